"""Loggers of metrics: a CSV file, TensorBoard, Weights & Biases.

A logger is called with each row of metrics, as `on_metrics` of `pretrain` is. It begins with the first row, when the
run's folder is there and it is known where a resumed run goes on; nothing is imported before. What an earlier process
logged beyond that step will be logged again, and is dropped as far as the other side can.
"""

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

Metrics = Mapping[str, Any]
Log = Callable[[Metrics], None]
TABLE, EVENTS, WANDB_ID = "metrics.csv", "tensorboard", "wandb-id.txt"  # in the folder of a run


def csv_logger(folder: Path, first: int, config: Metrics, closing: ExitStack) -> Log:
    """`metrics.csv`: a column a metric; one that comes later, as in a later stage, is empty above."""
    path, names, rows = folder / TABLE, ["step"], list[Mapping[str, Any]]()
    if path.is_file():
        with open(path, newline="", errors="replace") as file:
            reader = csv.DictReader(file)
            names = list(reader.fieldnames or names)
            rows = [row for row in reader if (row.get("step") or "").isdecimal() and int(row["step"]) < first]

    def lines(some: Sequence[Mapping[str, Any]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n").writerows(some)
        return text.getvalue()

    def write() -> None:
        storage.write_text(path, ",".join(names) + "\n" + lines(rows))

    def log(row: Metrics) -> None:
        rows.append(row)
        new = [name for name in row if name not in names]
        if new:
            names.extend(new)
            return write()
        with open(path, "a", newline="") as file:
            file.write(lines([row]))

    write()
    return log


def tensorboard_logger(folder: Path, first: int, config: Metrics, closing: ExitStack) -> Log:
    """`tensorboard/`: event files, written by TensorBoard itself, which needs neither TensorFlow nor torch for it."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / EVENTS))
    closing.callback(writer.close)
    # A session that starts at a step takes the place of what an earlier one wrote from there on.
    start = SessionLog(status=SessionLog.START)
    writer.add_event(Event(wall_time=time.time(), step=first, session_log=start))

    def log(row: Metrics) -> None:
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in row.items() if name != "step"]
        writer.add_event(Event(wall_time=time.time(), step=int(row["step"]), summary=Summary(value=values)))
        writer.flush()  # a row a second at most: what is watched is there at once, also after a kill

    return log


def wandb_logger(folder: Path, first: int, config: Metrics, closing: ExitStack) -> Log:
    """A run of Weights & Biases, in the project that WANDB_PROJECT names, or `hilp`; resumed under the same id."""
    import wandb

    path = folder / WANDB_ID
    known = path.read_text().strip() if path.is_file() else ""
    if not known:
        known = uuid.uuid4().hex[:12]
        storage.write_text(path, known + "\n")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "hilp"),
        name=folder.name,
        id=known,
        resume="allow",
        dir=str(folder),
        config=dict(config),
        settings=wandb.Settings(console="off", silent=True),
    )
    closing.callback(run.finish)
    return lambda row: run.log({name: value for name, value in row.items() if name != "step"}, step=int(row["step"]))


KINDS = {"csv": csv_logger, "tensorboard": tensorboard_logger, "wandb": wandb_logger}
EXTRAS = ("tensorboard", "wandb")  # that import the package of the same name


def require(kinds: Sequence[str]) -> None:
    """Raise where a logger is unknown or not installed, before anything is run for it."""
    for kind in kinds:
        if kind not in KINDS:
            raise HilpError(f"unknown logger '{kind}': {nearest(kind, KINDS)}")
        if kind in EXTRAS and importlib.util.find_spec(kind) is None:
            raise HilpError(f"--log {kind} needs {kind}: pip install 'hilp[{kind}]', or use --log csv")


@contextmanager
def opened(kinds: Sequence[str], folder: str | Path, config: Metrics | None = None) -> Iterator[Log | None]:
    """What to pass as `on_metrics` to log a run in a folder to these loggers; None where there are none."""
    require(kinds)
    logs: list[Log] = []
    with ExitStack() as closing:

        def log(row: Metrics) -> None:
            if not logs:
                logs.extend(
                    KINDS[kind](Path(folder), int(row["step"]), config or {}, closing) for kind in dict.fromkeys(kinds)
                )
            for one in logs:
                one(row)

        yield log if kinds else None
