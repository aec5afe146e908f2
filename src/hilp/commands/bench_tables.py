"""What `hilp bench rewards`, `goals` and `hierarchy` share: their flags, and filling a table of methods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hilp.commands import common
from hilp.errors import HilpError, printable, require_count

if TYPE_CHECKING:
    from hilp.bench import cells
    from hilp.evaluation.rows import Row


@dataclass(frozen=True)
class TableFlags(common.Reading):
    """What all tables of methods take."""

    task: str | None = None
    """task of the data (default: the one that each data set names)"""
    preset: str = "laptop"
    """laptop or paper"""
    steps: int | None = None
    """gradient updates of each policy (default: the preset's)"""
    seeds: int = 4
    """policies of each method: seed, seed + 1, ..."""
    seed: int = 0
    """first seed"""
    set: tuple[str, ...] = ()
    """config values to change for all: key=value ..."""
    sweep: str | None = None
    """a config value to vary, one table row each: key=value,value,..., e.g. dim=2,8,32,128"""
    variants: tuple[str, ...] = ()
    """more rows for each method, with config values changed: name:key=value,key=value ... (sizes as 256x256)"""
    out: str = "runs/bench"
    """folder of the runs and of the pictures"""
    rows: str | None = None
    """JSONL file of rows to add to (default: named after the table, in --out)"""
    json: bool = False
    """print the table as JSON, and no progress"""
    engine: Literal["local"] = "local"
    """where cells are run: processes of this machine"""
    jobs: int = 1
    """cells at once, each in a process of its own that has its share of the cores"""
    retries: int = 2
    """how often a cell is tried again when its process is lost"""


def fill(
    kind: Literal["rewards", "goals", "hierarchy"], flags: Any, usual: tuple[str, ...], **extra: Any
) -> tuple[list[Row], str | None]:
    """The rows of a table, run where they are missing (by one process at a time), and the key of its sweep."""
    from hilp import storage
    from hilp.bench import cells
    from hilp.collectors import named

    common.require_counts(flags, "steps", "seeds", "episodes", "jobs")
    require_count("--retries", flags.retries, 0)
    sweep = _sweep(flags.sweep)
    variants = [_variant(text) for text in flags.variants]
    entries = cells.entries(flags.methods or usual, common.config_values(flags.set), sweep, variants)
    out = Path(flags.out)
    recipes = {source: flags.recipe(source) | {"task": flags.task} for source in flags.data}
    with storage.locked(out, common.command()):
        rows = cells.fill(
            kind,
            entries,
            {source: named.load(**recipe) for source, recipe in recipes.items()},
            range(flags.seed, flags.seed + flags.seeds),
            size=flags.preset,
            steps=flags.steps,
            episodes=flags.episodes,
            file=Path(flags.rows) if flags.rows else out / f"{kind}.jsonl",
            run=_way(flags, out, recipes),
            **extra,
        )
    return rows, None if sweep is None else sweep[0]


def _way(flags: Any, out: Path, recipes: dict[str, dict[str, Any]]) -> cells.Run:
    """How cells are run: one after the other in this process, or several at once in others."""
    from hilp.bench import cells, engines
    from hilp.bench.board import Board

    def tell(text: str) -> None:
        if not flags.json:
            print(printable(text), flush=True)

    if flags.jobs == 1:
        return partial(cells.one_by_one, out=out, quiet=flags.json, command=common.command(), tell=tell)
    return partial(
        engines.run,
        engine=engines.Local(flags.jobs),
        retries=flags.retries,
        out=out,
        recipes=recipes,
        command=common.command(),
        board=Board(flags.json, tell),
    )


def _sweep(text: str | None) -> tuple[str, list[str]] | None:
    if text is None:
        return None
    key, values = common.key_value(text, "--sweep")
    return key, [value for value in values.split(",") if value]


def _variant(text: str) -> tuple[str, dict[str, str]]:
    """A row of a table: its name and the config values that it changes."""
    name, colon, values = text.partition(":")
    if not colon or not name.strip():
        raise HilpError(f"--variants takes name:key=value,key=value, not '{text}'")
    return name.strip(), dict(common.key_value(part, "--variants") for part in values.split(","))
