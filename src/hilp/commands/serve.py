"""`hilp serve`: a policy behind a WebSocket, for robots."""

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hilp.commands import common
from hilp.commands.prompt import Asking
from hilp.errors import HilpError, say

with common.WhenUsed():
    from hilp.commands import prompt_run
    from hilp.evaluation import setup
    from hilp.policy import places
    from hilp.serve import server

LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Serve(Asking):
    """Answer robots: observations in, actions out, by the protocol of openpi's client.

    A robot says what to do in the key 'prompt' of its observation: a spec as JSON, or the name of a prompt that
    was saved in the run's folder. The flags of `hilp prompt` say what those do that send none.
    """

    first: ClassVar = ("host", "port", "token", *Asking.kinds[:5], "plan", "task", "seed")
    example: ClassVar = "hilp serve runs/robot --goal x=2.5,y=1"

    host: str = "127.0.0.1"
    """address to listen on; any other than this machine's own lets others in"""
    port: int = 8000
    """port to listen on; 0: any that is free"""
    token: str | None = None
    """file that holds what clients must send: the header Authorization: Api-Key TOKEN"""

    def __call__(self) -> None:
        found = self.prepared()
        if self.host not in LOCAL and self.token is None:
            say(f"whoever reaches {self.host} can use this policy: --token FILE lets in those who know a token")
        asyncio.run(until_ended(found, self.opened))
        if found.making:  # the end of Python would wait for it
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def prepared(self) -> "server.PolicyServer":
        """What the flags say, before it listens."""
        secret, (policy, home) = self.secret(), common.load_policy(self.run)
        world = self.world(policy)
        return server.PolicyServer(policy, home, world, self.prompt(policy, world), self.host, self.port, secret)

    def opened(self, address: str) -> None:
        """Say where it is, once it answers."""
        common.print_result({"served at": address, "run": places.written(self.run)}, self.json)
        sys.stdout.flush()  # whoever started it may read a pipe

    def secret(self) -> str | None:
        """The token in the file of that name."""
        if self.token is None:
            return None
        try:
            found = Path(self.token).read_text().strip()
        except (OSError, ValueError) as error:
            raise HilpError(f"--token takes a file that holds one: {error}") from error
        if not found or not found.isascii() or not found.isprintable():
            raise HilpError(f"--token {self.token} holds no token: one line of letters and digits")
        return found

    def world(self, policy: Any) -> Any:
        """The task that names in prompts are of; a robot's computer may lack the simulator of the one it was."""
        try:
            found = setup.task_if_known(policy, self.task)
        except HilpError as error:
            if self.task is not None:
                raise
            say(f"prompts cannot name goals and rewards of the task: {error}")
            return None
        if found is not None:
            setup.require_fit("this policy", policy.spec, found, policy.observation_parts)
        return found

    def prompt(self, policy: Any, world: Any) -> Any:
        """The prompt of the flags; None where they name none."""
        if not any(getattr(self, kind) is not None for kind in self.kinds):
            others = [name for name in ("plan", "window", "data", "then", "until") if getattr(self, name) is not None]
            others += [*(["add"] if self.add else []), *self.given_options(), *self.words()]
            if others:
                flag = others[0].replace("_", "-").split()[0].removeprefix("--")
                raise HilpError(f"--{flag} is about a prompt, and there is none: name one, e.g. --goal")
            return None
        flags, kind = prompt_run.one_prompt(self, world)
        prompt_run.check_options(flags, kind)
        made, _ = prompt_run.make_prompt(flags, kind, policy, world)
        return prompt_run.combined(flags, policy, world, made)


async def until_ended(found: "server.PolicyServer", opened: Any) -> None:
    """Serve until Ctrl-C, or until the system ends the service (SIGTERM)."""
    serving = asyncio.ensure_future(found.run(opened))
    with contextlib.suppress(NotImplementedError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():  # Ctrl-C
            raise
