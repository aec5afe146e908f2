"""What ends a process politely: Ctrl-C, the end of a job's time, a closed terminal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP


@contextlib.contextmanager
def on_stop(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle these signals so; the earlier handlers come back at the end."""
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
