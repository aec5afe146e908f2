"""`hilp play`: meet a policy in the browser."""

import asyncio
import os
import sys
import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hilp.commands import common
from hilp.commands.quickstart import RESULTS, Quickstart, quickstart
from hilp.errors import HilpError, printable

with common.WhenUsed():
    from hilp.play import export, scene, server
    from hilp.policy import places
    from hilp.training import checkpoints


@dataclass(frozen=True)
class Play(common.Verb):
    """Meet a policy in the browser: click goals, paint rewards, drag the robot, and take the prompt home as code."""

    run: Annotated[Positional[str], arg(metavar="RUN")] = ""
    """folder of a run (default: that of the quickstart, which is trained first where there is none); zoo:maze-large,
    zoo:large-pixels or zoo:ant-open, which come with hilp; or hf://USER/NAME"""
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
    export: str | None = None
    """write the playground of a maze as one page that needs no server, to mail or to host: FILE.html"""

    def __call__(self) -> None:
        if self.export is not None and self.rival:
            raise HilpError(
                f"--export writes the page of one run, not of {printable(self.rival)} beside it: leave that out"
            )
        run = self.run or trained_quickstart()
        stage = scene.stage_of(common.load_policy(run)[0], places.written(run), self.task)
        if self.export is not None:
            return common.print_result(export.write(stage, self.export), self.json)
        if self.rival:  # in the same task
            rival = scene.stage_of(common.load_policy(self.rival)[0], places.written(self.rival), stage.world)
            stage = replace(stage, rival=rival)
        try:
            asyncio.run(server.Play(stage, self.host, self.port).run(self.opened))
        finally:
            stage.close()

    def opened(self, address: str) -> None:
        """Say where the page is, and show it where there is a screen."""
        print(f"the playground is open at {address}\nctrl-c ends it", flush=True)
        has_screen = sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY"))
        if has_screen and not self.no_open:
            webbrowser.open(address)


def trained_quickstart() -> str:
    """The folder of the quickstart, which is made where there is none, and anew where it was interrupted."""
    folder = Path(Quickstart.out)
    if (folder / RESULTS).is_file():
        return Quickstart.out
    if folder.exists() and not is_unfinished(folder):
        raise HilpError(f"{folder} is not the folder of a quickstart: name the run to meet, hilp play RUN")
    print(f"there is no run in {printable(Quickstart.out)} yet: the quickstart makes one, which takes a few minutes")
    quickstart(Quickstart(overwrite=folder.exists()))
    return Quickstart.out


def is_unfinished(folder: Path) -> bool:
    """Whether a quickstart began here, or nothing: what another command trained is not replaced."""
    words = str(checkpoints.read_run(folder).get("command")).split()
    return words[1:2] in (["quickstart"], ["play"]) or (folder.is_dir() and not any(folder.iterdir()))
