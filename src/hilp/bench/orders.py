"""Orders: what another process is told to do for a table, in strings and numbers, and how it does it.

Data sets do not travel: who carries an order out loads the data itself and holds it against what was ordered.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hilp import runs, storage
from hilp.bench import cells, hierarchy
from hilp.collectors import named
from hilp.errors import FolderBusy, HilpError
from hilp.evaluation import rows as files

STARTED, ROWS, LOG = "started", "rows.jsonl", "log"  # in the place of an order
BUSY_SECONDS = 120.0  # that a folder may be held by a process that is ending: one whose machine was lost, say
Recipe = Mapping[str, Any]  # what `named.load` takes


@dataclass(frozen=True)
class Order:
    """A cell to run, or the V(s, g) that several cells need."""

    number: int  # of the cell in its table; of a V, 0
    title: str
    job: Literal["cell", "value"]
    settings: dict[str, Any]  # of the cell
    identity: dict[str, Any]  # of the cell, as whoever gives the order knows it
    recipe: dict[str, Any]  # how its data is loaded
    command: str
    folder: str  # that paths are relative to
    out: str
    trainings: dict[str, int]  # folders that it trains in (the last name a pattern), and the updates of each
    place: str  # a folder of its own beside its run: what it says and what comes of it

    def text(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    @staticmethod
    def read(text: str) -> Order:
        return Order(**json.loads(text))

    @property
    def at(self) -> Path:
        return Path(self.folder, self.place)

    @property
    def updates(self) -> int:
        return sum(self.trainings.values())

    @property
    def trained(self) -> int:
        """How many updates its folders tell of; one that is being written may be behind."""
        return sum(min(_last_step(Path(self.folder, run)), most) for run, most in self.trainings.items())

    def prepare(self) -> None:
        """Its place, without what an earlier try left there but its log."""
        try:
            self.at.mkdir(parents=True, exist_ok=True)
            for name in (STARTED, ROWS):
                (self.at / name).unlink(missing_ok=True)
        except OSError as error:
            raise HilpError(f"cannot write {self.at}: {error.strerror or error}") from error

    def clear(self) -> None:
        shutil.rmtree(self.at, ignore_errors=True)

    def last_words(self) -> str:
        """The last line of its log."""
        try:
            said = (self.at / LOG).read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(said) if line.strip()), "")


def of_cells(missing: Sequence[cells.Missing], out: Path, recipes: Mapping[str, Recipe], command: str) -> list[Order]:
    """The orders of these cells; a V(s, g) that some of them share comes first, once."""
    here = str(Path.cwd())
    values: dict[Path, Order] = {}
    found: list[Order] = []
    for number, cell, world in missing:
        known: dict[str, Any] = {
            "settings": json.loads(json.dumps(cell.settings)),
            "identity": dict(cell.identity),
            "recipe": dict(recipes[cell.source]),
            "command": command,
            "folder": here,
            "out": str(out),
        }
        run = cell.folder(out)
        trainings = {str(folder): updates for folder, updates in cell.trainings(out).items()}
        place = str(run.with_name(f"{run.name}.cell"))
        if any(order.place == place for order in found):  # another way to ask the same policy
            place = str(run.with_name(f"{run.name}.{number}.cell"))
        found.append(Order(number, cell.title, "cell", trainings=trainings, place=place, **known))
        shared = cell.shared_value(world, out)
        if shared is not None and not shared[1].is_in(shared[0]):
            title, place = f"V(s, g) of {cell.data.name}", f"{shared[0]}.cell"
            values.setdefault(shared[0], Order(0, title, "value", trainings={}, place=place, **known))
    return [*values.values(), *found]


def carry_out(order: Order) -> Path:
    """Do what is ordered; the file of rows that came of it (a V has none)."""
    place = order.at
    try:
        os.chdir(order.folder)  # as the command was given there, so are its paths
        place.mkdir(parents=True, exist_ok=True)
        storage.write_json(place / STARTED, {"host": socket.gethostname(), "pid": os.getpid()})
    except OSError as error:
        raise HilpError(
            f"{socket.gethostname()} cannot write {place} ({error.strerror}): all machines of a table need its folder"
        ) from error
    data = named.load(**order.recipe)
    kind = order.settings["kind"]
    made = (hierarchy.HierarchyCell if kind == "hierarchy" else cells.Cell).of(order.settings, data)
    require_same(order, json.loads(json.dumps(made.identity)))
    world = cells.world_of(kind, made.source, data)
    out = Path(order.out)
    found: list[files.Row] = []
    if order.job == "value":
        shared = made.shared_value(world, out)
        assert shared is not None, "it was ordered"
        shared[1].train_once(shared[0], quiet=True, wait=True)
    else:
        found = _when_free(lambda: made.run(world, out, quiet=True, command=order.command))
    files.append_rows(place / ROWS, found)
    return place / ROWS


def require_same(order: Order, found: Mapping[str, Any]) -> None:
    """Raise where this machine would make another cell of an order than was meant."""
    here, ours = socket.gethostname(), order.identity
    if found.get("data_fingerprint") != ours.get("data_fingerprint"):
        raise HilpError(
            f"{order.recipe['source']} is not the same data on {here} (fingerprint {found.get('data_fingerprint')}, "
            f"not {ours.get('data_fingerprint')}): give all machines the same files"
        )
    other = next((key for key in (*ours, *found) if found.get(key) != ours.get(key)), None)
    if other is not None:
        raise HilpError(
            f"{order.title} is not the same on {here} ({other}: {found.get(other)}, not {ours.get(other)}): install "
            "the same version of hilp on all machines"
        )


def _when_free(run: Callable[[], list[files.Row]]) -> list[files.Row]:
    """Run it as soon as the process that had its folder before is gone."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return run()
        except FolderBusy:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def _last_step(run: Path) -> int:
    """The update that the metrics of a run end with; 0 where there are none."""
    try:
        newest = max(run.parent.glob(f"{run.name}/{runs.METRICS}"), key=lambda path: path.stat().st_mtime)
        with open(newest, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            lines = file.read().split(b"\n")[:-1]
        return int(json.loads(lines[-1])["step"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return 0
