"""`hilp data convert`: any readable data set as a native folder, for Minari or as ExORL does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from hilp.commands import common
from hilp.errors import HilpError, printable


@dataclass(frozen=True)
class Flags(common.Reading):
    """Write any readable data set as a native folder (memory-mapped, with checksums), for Minari or as ExORL does."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """a built-in name, a Minari id, a folder or a file"""
    target: Annotated[Positional[str], arg(metavar="TARGET")]
    """folder to write, or a Minari id such as robot/log-v0"""
    to: Literal["native", "minari", "exorl"] = "native"
    """what to write"""
    task: str | None = None
    """task that the data comes from, where it does not say so itself; noted in a native folder"""
    overwrite: bool = False
    """replace an existing data set"""
    json: bool = False
    """print JSON, and no progress"""


def run(flags: Flags) -> int:
    written, notes = write_exorl(flags) if flags.to == "exorl" else write(flags)
    if not flags.json:
        for note in notes:
            print(f"note: {printable(note)}")
    common.print_result({"out": str(written), "to": flags.to} | ({"notes": notes} if flags.json else {}), flags.json)
    return 0


def write_exorl(flags: Flags) -> tuple[Path, list[str]]:
    from hilp.data import convert

    if flags.overwrite:
        raise HilpError("--to exorl does not overwrite: choose another folder")
    data = common.load_data(flags.source, flags)
    return convert.write_exorl(data, flags.target), list(data.notes)


def write(flags: Flags) -> tuple[Path, list[str]]:
    """Where it was written, and what was decided or repaired on the way."""
    from hilp import tasks
    from hilp.collectors import named
    from hilp.data import convert
    from hilp.training.progress import bars

    assert flags.to != "exorl"
    if flags.task is not None and hasattr(world := tasks.make(flags.task), "render_dataset"):
        if flags.to != "native":
            raise HilpError(f"pictures of {flags.task} are written as a native folder only: leave out --to {flags.to}")
        data = common.load_data(flags.source, flags)
        with bars(quiet=flags.json) as bar:
            seen = world.render_dataset(data, lambda done: bar("drawing", done, data.rows))
        return seen.save(flags.target, overwrite=flags.overwrite), list(data.notes)
    options = flags.options()
    verify = options.pop("verify", True)
    source = named.open_source(flags.source, flags.format, **options)
    if flags.task is not None:
        source = named.in_task(source, flags.task)
    with bars(quiet=flags.json) as bar:
        written = convert.convert(
            source,
            flags.target,
            verify=verify,
            to=flags.to,
            overwrite=flags.overwrite,
            rescale_actions=flags.rescale_actions,
            progress=bar,
        )
    return written, list(source.notes)
