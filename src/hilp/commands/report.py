"""`hilp report`: one self-contained HTML page about a run."""

from __future__ import annotations

from dataclasses import dataclass

from hilp.commands import common
from hilp.errors import printable


@dataclass(frozen=True)
class Flags:
    """Write one self-contained HTML page about a run."""

    run: common.RunFolder
    """folder of a run"""
    out: str | None = None
    """page to write (default: report.html in the run)"""
    task: str | None = None
    """task to draw in (default: the one its data was collected in)"""


def run(flags: Flags) -> int:
    from hilp.report import page

    print(printable(str(page.write(flags.run, flags.out, flags.task))))
    return 0
