"""The live table of cells: which wait, run, are done or failed, and when all will be; plain lines in a log file."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hilp.bench.orders import STARTED, Order
from hilp.errors import printable

if TYPE_CHECKING:
    from rich.live import Live

REFRESH_SECONDS = 1.0
PLAIN_SECONDS = 60.0  # between lines in a log file
LINES = 20  # of cells that are shown at once


class Board:
    """Told what happens to orders, it shows how they stand."""

    def __init__(self, quiet: bool, tell: Callable[[str], None]) -> None:
        """tell: prints a line, where there is no terminal."""
        self._quiet, self._tell = quiet, tell
        self._live: Live | None = None
        self._orders: Sequence[Order] = ()
        self._total = 0
        self._states: dict[str, str] = {}  # by the place of an order
        self._notes: dict[str, str] = {}
        self._trained: dict[str, int] = {}  # updates of each, as last seen
        self._began = self._looked = self._shown = time.monotonic()
        self._at_first = 0  # updates that were there when it began

    @contextlib.contextmanager
    def showing(self, orders: Sequence[Order], total: int) -> Iterator[None]:
        self._orders, self._total = orders, total
        self._states = {order.place: "waiting" for order in orders}
        self._began = time.monotonic()
        self._trained = {order.place: order.trained for order in orders}
        self._at_first = sum(self._trained.values())
        if self._quiet or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), auto_refresh=False) as self._live:
            yield
            self._live.update(self._table(), refresh=True)
        self._live = None

    # ---- what happens ------------------------------------------------------------------------------------------------

    def done(self, order: Order) -> None:
        self._trained[order.place] = order.updates
        self._become(order, "done")

    def failed(self, order: Order, problem: str) -> None:
        self._become(order, "failed", problem)

    def again(self, order: Order, problem: str) -> None:
        self._become(order, "waiting", problem)
        self.say(f"{self._name(order)} is tried again: {problem}")

    def say(self, text: str) -> None:
        """A line that stays, above the table."""
        if self._live is not None:
            self._live.console.print(printable(text), markup=False, highlight=False)
        else:
            self._tell(text)

    def _become(self, order: Order, state: str, note: str = "") -> None:
        self._states[order.place], self._notes[order.place] = state, note
        if self._live is None and state in ("done", "failed"):
            self._tell(f"{self._name(order)} {state}{': ' + note if note else ''}")

    def _name(self, order: Order) -> str:
        return f"cell {order.number} of {self._total}: {order.title}" if order.number else order.title

    # ---- how it stands -----------------------------------------------------------------------------------------------

    def show(self, running: Collection[str]) -> None:
        """Look at what runs, now and then."""
        now = time.monotonic()
        if now - self._looked < REFRESH_SECONDS:
            return
        self._looked = now
        for order in self._orders:
            if order.place not in running:
                continue
            self._trained[order.place] = order.trained
            if self._states[order.place] == "waiting" and (order.at / STARTED).is_file():
                self._states[order.place] = "running"
                if self._live is None:
                    self._tell(self._name(order))
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        elif now - self._shown > PLAIN_SECONDS:
            self._shown = now
            self._tell(self.summary())

    def summary(self) -> str:
        """All of it in one line."""
        count = Counter(self._states.values())
        states = ", ".join(f"{count[state]} {state}" for state in ("done", "running", "waiting", "failed"))
        return f"{states}, {self._time_left()}"

    def _time_left(self) -> str:
        """By updates: those of a cell that failed are not waited for."""
        left = [order for order in self._orders if self._states[order.place] != "failed"]
        total, trained = sum(order.updates for order in left), sum(self._trained[order.place] for order in left)
        new = trained - self._at_first
        if new <= 0 or total <= 0:
            return "ETA unknown"
        seconds = int((time.monotonic() - self._began) * max(0, total - trained) / new)
        return f"ETA {seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(title=self.summary(), title_justify="left")
        for header in ("cell", "state", "updates", ""):
            table.add_column(header)
        order_of = ("running", "failed", "waiting", "done")
        ranked = sorted(self._orders, key=lambda order: order_of.index(self._states[order.place]))
        for order in ranked[:LINES]:
            state = self._states[order.place]
            updates = f"{self._trained[order.place]:,}/{order.updates:,}" if order.updates else ""
            texts = (order.title, state, updates, self._notes.get(order.place, ""))
            table.add_row(*(printable(text).replace("[", "\\[") for text in texts))
        if len(ranked) > LINES:
            table.add_row(f"and {len(ranked) - LINES} more", "", "", "")
        return table
