"""`python -m hilp.bench.worker`: carries out one order, which it reads from its standard input.

The input stays open as long as whoever gave the order is there; when it ends, the work is saved and stops, so that
nobody is left training for a table that no one fills.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

from hilp.bench import orders
from hilp.errors import HilpError, TrainingDiverged, TrainingStopped, printable

DONE, MISTAKE, DIVERGED, STOPPED = 0, 2, 3, 130
FINAL = (MISTAKE, DIVERGED)  # another try would end the same way


def main() -> int:
    order = orders.Order.read(sys.stdin.readline())
    threading.Thread(target=_stop_at_the_end_of_input, daemon=True).start()
    code, said = work(order)
    if said:
        print(f"hilp: {said}", file=sys.stderr, flush=True)
    return code


def work(order: orders.Order) -> tuple[int, str]:
    """Carry an order out; how it ended, and what was wrong, in one line."""
    try:
        orders.carry_out(order)
        return DONE, ""
    except TrainingStopped as error:
        return STOPPED, _line(str(error))
    except TrainingDiverged as error:
        return DIVERGED, _line(f"stopped: {error}")
    except HilpError as error:
        return MISTAKE, _line(f"error: {error}")
    except KeyboardInterrupt:
        return STOPPED, "stopped"


def _stop_at_the_end_of_input() -> None:
    with contextlib.suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 1 << 16):
            pass
    os.kill(os.getpid(), signal.SIGTERM)  # which training takes as a wish to stop


def _line(text: str) -> str:
    return printable(" ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main())
