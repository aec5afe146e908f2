"""`hilp data collect`: unlabeled trajectories from a task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hilp.commands import common
from hilp.errors import HilpError


@dataclass(frozen=True)
class Flags:
    """Collect unlabeled trajectories in a task into a native folder."""

    task: str
    """task, map or map file, gym:ID for an environment of Gymnasium, or path/to/file.py:make for your own"""
    out: str
    """folder to write"""
    kind: str | None = None
    """behaviour to collect: navigate, explore, stitch (mazes); rnd, apt, random (robots); diverse, play (AntMaze);
    navigate, stitch, explore, play (OGBench); partial, mixed, complete (Kitchen); wander (ant-open); wander, random
    (others); or path/to/file.py:act, a function of an observation, in any"""
    steps: int = 300_000
    """transitions"""
    seed: int = 0
    """random seed"""
    workers: int | None = None
    """processes or threads that simulate (default: one a core)"""
    overwrite: bool = False
    """replace an existing data set"""
    rows: str | None = None
    """JSONL file to append what came of it to: the data set, how often its script was successful, and what its
    behaviour was like"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp.collectors import collect
    from hilp.collectors.collecting import script_outcome
    from hilp.data import native
    from hilp.storage import lines
    from hilp.training.progress import Progress
    from hilp.versions import versions

    common.require_counts(flags, "steps", "workers")
    if Path(flags.out).exists():
        if not flags.overwrite:
            raise HilpError(f"{flags.out} already exists: pass --overwrite or choose another --out")
        if not native.is_native(flags.out):
            raise HilpError(f"{flags.out} is not a data set, so --overwrite will not delete it: choose another --out")
    with Progress(flags.steps, quiet=flags.json, verb="collecting") as progress:
        data = collect(
            flags.task,
            flags.kind,
            flags.steps,
            flags.seed,
            lambda done: progress.advance(done - progress.done, {}, {}),
            out=flags.out,
            workers=flags.workers,
            overwrite=flags.overwrite,
        )
    counts = {"transitions": data.transitions, "episodes": data.episodes}
    result = {**counts, "fingerprint": data.fingerprint, **script_outcome(data), **data.measured}
    if flags.rows:
        about = {"task": data.task, "data": data.name, "seed": flags.seed, **result}
        lines.append(flags.rows, [{**about, "command": common.command(), "versions": versions()}])
    common.print_result({"out": flags.out, **result}, flags.json)
    return 0
