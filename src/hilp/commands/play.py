"""`hilp play`: meet a policy in the browser."""

import asyncio
import os
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hilp import runs
from hilp.commands import common
from hilp.commands.quickstart import Quickstart, quickstart
from hilp.errors import printable

with common.WhenUsed():
    from hilp.play import scene, server


@dataclass(frozen=True)
class Play(common.Verb):
    """Meet a policy in the browser: click goals, paint rewards, drag the robot, and take the prompt home as code."""

    run: Annotated[Positional[str], arg(metavar="RUN")] = ""
    """folder of a run (default: that of the quickstart, which is trained first where there is none)"""
    rival: Annotated[Positional[str], arg(metavar="RUN2")] = ""
    """folder of another run, whose policy does the same beside it"""
    task: str | None = None
    """task to act in (default: the one its data was collected in)"""
    host: str = "127.0.0.1"
    """address to listen on; any other than this machine's own lets others in who know the token"""
    port: int = 0
    """port to listen on; 0: any that is free"""
    no_open: bool = False
    """print the address, but open no browser"""

    def __call__(self) -> None:
        run = self.run or trained_quickstart()
        rival = self.stage(self.rival) if self.rival else None
        stage = self.stage(run, rival)
        try:
            asyncio.run(server.Play(stage, self.host, self.port).run(self.opened))
        finally:
            stage.close()

    def stage(self, run: str, rival: "scene.Stage | None" = None) -> "scene.Stage":
        return scene.stage_of(common.load_policy(run)[0], str(Path(run)), self.task, rival)

    def opened(self, address: str) -> None:
        """Say where the page is, and show it where there is a screen."""
        print(f"the playground is open at {address}\nctrl-c ends it", flush=True)
        has_screen = sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY"))
        if has_screen and not self.no_open:
            webbrowser.open(address)


def trained_quickstart() -> str:
    """The folder of the quickstart, which is made where there is none."""
    folder = Quickstart.out
    if not (Path(folder) / runs.RUN).is_file():
        print(f"there is no run in {printable(folder)} yet: the quickstart makes one, which takes a few minutes")
        quickstart(Quickstart())
    return folder
