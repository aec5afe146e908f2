"""What `hilp bench rewards`, `goals` and `hierarchy` share: their flags, and filling a table of methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hilp.commands import common
from hilp.errors import HilpError, printable

if TYPE_CHECKING:
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


def fill(
    kind: Literal["rewards", "goals", "hierarchy"], flags: Any, usual: tuple[str, ...], **extra: Any
) -> tuple[list[Row], str | None]:
    """The rows of a table, run where they are missing (by one process at a time), and the key of its sweep."""
    from hilp import storage
    from hilp.bench import cells

    common.require_counts(flags, "steps", "seeds", "episodes")
    sweep = _sweep(flags.sweep)
    variants = [_variant(text) for text in flags.variants]
    entries = cells.entries(flags.methods or usual, common.config_values(flags.set), sweep, variants)
    out = Path(flags.out)
    with storage.locked(out, common.command()):
        rows = cells.fill(
            kind,
            entries,
            {source: common.load_data(source, flags, task=flags.task) for source in flags.data},
            range(flags.seed, flags.seed + flags.seeds),
            size=flags.preset,
            steps=flags.steps,
            episodes=flags.episodes,
            out=out,
            file=Path(flags.rows) if flags.rows else out / f"{kind}.jsonl",
            quiet=flags.json,
            command=common.command(),
            tell=lambda text: None if flags.json else print(printable(text), flush=True),
            **extra,
        )
    return rows, None if sweep is None else sweep[0]


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
