"""Loggers of metrics: a CSV file, TensorBoard, Weights & Biases.

A logger is called with each row of metrics, as `on_metrics` of `pretrain` is. It begins with the first row, when the
run's folder is there and it is known where a resumed run goes on; nothing is imported before. What an earlier process
logged beyond that step will be logged again, and is dropped as far as the other side can.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hilp import storage
from hilp.errors import HilpError, nearest

Metrics = Mapping[str, float]
TABLE, EVENTS, WANDB_ID = "metrics.csv", "tensorboard", "wandb-id.txt"  # in the folder of a run


class CsvLogger:
    """`metrics.csv`: a column a metric; one that comes later, as in a later stage, is empty above."""

    def __init__(self, folder: Path, first: int, config: Mapping[str, Any]) -> None:
        self.path = folder / TABLE
        self.names: list[str] = ["step"]
        self.rows: list[Mapping[str, Any]] = []
        if self.path.is_file():
            with open(self.path, newline="", errors="replace") as file:
                reader = csv.DictReader(file)
                self.names = list(reader.fieldnames or self.names)
                self.rows = [row for row in reader if (row.get("step") or "").isdecimal() and int(row["step"]) < first]
        self._write()

    def log(self, row: Metrics) -> None:
        self.rows.append(row)
        new = [name for name in row if name not in self.names]
        if new:
            self.names += new
            self._write()
            return
        with open(self.path, "a", newline="") as file:
            file.write(self._lines([row]))

    def close(self) -> None:
        """Every row has been written."""

    def _write(self) -> None:
        storage.write_text(self.path, ",".join(self.names) + "\n" + self._lines(self.rows))

    def _lines(self, rows: Sequence[Mapping[str, Any]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self.names, extrasaction="ignore", lineterminator="\n").writerows(rows)
        return text.getvalue()


class TensorBoardLogger:
    """`tensorboard/`: event files, written by TensorBoard itself, which needs neither TensorFlow nor torch for it."""

    def __init__(self, folder: Path, first: int, config: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = EventFileWriter(str(folder / EVENTS))
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        # A session that starts at a step takes the place of what an earlier one wrote from there on.
        self._writer.add_event(self._event(wall_time=time.time(), step=first, session_log=start))

    def log(self, row: Metrics) -> None:
        values = [
            self._summary.Value(tag=name, simple_value=float(value)) for name, value in row.items() if name != "step"
        ]
        event = self._event(wall_time=time.time(), step=int(row["step"]), summary=self._summary(value=values))
        self._writer.add_event(event)
        self._writer.flush()  # a row a second at most: what is watched is there at once, also after a kill

    def close(self) -> None:
        self._writer.close()


class WandbLogger:
    """A run of Weights & Biases, in the project that WANDB_PROJECT names, or `hilp`; resumed under the same id."""

    def __init__(self, folder: Path, first: int, config: Mapping[str, Any]) -> None:
        import wandb

        path = folder / WANDB_ID
        known = path.read_text().strip() if path.is_file() else ""
        if not known:
            known = uuid.uuid4().hex[:12]
            storage.write_text(path, known + "\n")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "hilp"),
            name=folder.name,
            id=known,
            resume="allow",
            dir=str(folder),
            config=dict(config),
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, row: Metrics) -> None:
        self._run.log({name: value for name, value in row.items() if name != "step"}, step=int(row["step"]))

    def close(self) -> None:
        self._run.finish()


Logger = CsvLogger | TensorBoardLogger | WandbLogger
KINDS: dict[str, type[Logger]] = {"csv": CsvLogger, "tensorboard": TensorBoardLogger, "wandb": WandbLogger}
EXTRAS = ("tensorboard", "wandb")  # that import the package of the same name


def require(kinds: Sequence[str]) -> None:
    """Raise where a logger is unknown or not installed, before anything is run for it."""
    for kind in kinds:
        if kind not in KINDS:
            raise HilpError(f"unknown logger '{kind}': {nearest(kind, KINDS)}")
        if kind in EXTRAS and importlib.util.find_spec(kind) is None:
            raise HilpError(f"--log {kind} needs {kind}: pip install 'hilp[{kind}]', or use --log csv")


@contextmanager
def opened(
    kinds: Sequence[str], folder: str | Path, config: Mapping[str, Any] | None = None
) -> Iterator[Callable[[Metrics], None] | None]:
    """What to pass as `on_metrics` to log a run in a folder to these loggers; None where there are none."""
    require(kinds)
    loggers: list[Logger] = []
    with ExitStack() as stack:

        def log(row: Metrics) -> None:
            if not loggers:
                for kind in dict.fromkeys(kinds):
                    loggers.append(KINDS[kind](Path(folder), int(row["step"]), config or {}))
                    stack.callback(loggers[-1].close)
            for logger in loggers:
                logger.log(row)

        yield log if kinds else None
