"""Long work: a live line with rate, time left and losses, or plain ones; and what ends it politely, such as Ctrl-C."""

import contextlib
import math
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
PLAIN_SECONDS = 15.0  # between lines in a log file
RATE_SECONDS = 60.0  # that a rate is taken over: phases of a run differ in speed


class Progress:
    """Counts updates; `rate` is steps per second of late, without the first (compiling) chunk."""

    def __init__(
        self,
        total: int,
        start: int = 0,
        quiet: bool = False,
        verb: str = "training",
        seconds: float | None = None,  # after which it ends, whatever is done by then
    ):
        self.total, self.done, self.quiet, self.verb, self.seconds = total, start, quiet, verb, seconds
        self._marks: deque[tuple[float, int]] = deque()  # when so many were done, over the last RATE_SECONDS
        self._printed = time.monotonic()
        self._bar = None
        if not quiet and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("[bold]{task.description}"),
                progress.BarColumn(),
                progress.TextColumn(f"{{task.completed:,}}{self._of}"),
                progress.TextColumn("{task.fields[text]}"),
                progress.TextColumn("ETA {task.fields[left]}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(verb, total=total, completed=start, text="compiling ...", left="?")

    @property
    def rate(self) -> float:
        if len(self._marks) < 2:
            return 0.0
        (began, before), (now, done) = self._marks[0], self._marks[-1]
        return (done - before) / max(now - began, 1e-9)

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def advance(self, count: int, losses: dict[str, float], evaluation: dict[str, float], seconds: float = 0.0) -> None:
        """`count` more are done after so many seconds; show these losses and the latest evaluation."""
        self.done += count
        self._marks.append((time.monotonic(), self.done))
        while len(self._marks) > 2 and self._marks[-1][0] - self._marks[1][0] > RATE_SECONDS:
            self._marks.popleft()
        left = self._left(seconds)
        shown = {name: value for name, value in losses.items() if name.endswith("loss")} | evaluation
        text = f"{self.rate:,.1f}/s " + " ".join(f"{name} {value:.3g}" for name, value in shown.items())
        if self._bar:
            self._bar.update(self._task, completed=self.done, text=text, left=left)
        elif not self.quiet and self.rate and time.monotonic() - self._printed > PLAIN_SECONDS:
            self._printed = time.monotonic()
            print(f"{self.verb} {self.done:,}{self._of} {text} ETA {left}", file=sys.stderr)

    @property
    def _of(self) -> str:
        return f"/{self.total:,}" if self.seconds is None else ""  # how many come in that time is not known

    def _left(self, seconds: float) -> str:
        """The time left, of what is done one by one or by the clock, whichever ends it."""
        left = (self.total - self.done) / self.rate if self.rate else math.inf
        left = left if self.seconds is None else min(left, max(0.0, self.seconds - seconds))
        return f"{left:.0f} s" if left < math.inf else "?"


@contextlib.contextmanager
def bars(quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A function for work that reports (what, done, total), such as converting data: a bar for each kind of work."""
    line: Progress | None = None
    with contextlib.ExitStack() as stack:

        def show(what: str, done: int, total: int) -> None:
            nonlocal line
            if line is None or line.verb != what:
                stack.close()
                line = stack.enter_context(Progress(total, quiet=quiet, verb=what))
            line.advance(done - line.done, {}, {})

        yield show


@contextlib.contextmanager
def on_stop(handler: Callable[[int, Any], object]) -> Iterator[None]:
    """Handle signals to stop so; the earlier handlers come back at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    numbers = [getattr(signal, name) for name in STOP_SIGNALS if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup's, say
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list that fills with signals to stop: what is under way can end and be saved; a second one stops at once."""
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    with on_stop(receive):
        yield received
