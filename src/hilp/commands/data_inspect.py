"""`hilp data inspect`: what is in a data set, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hilp.commands import common


@dataclass(frozen=True)
class Flags(common.Reading):
    """Say what is in a data set and what is wrong with it. Exit code 1 when it cannot be trained on."""

    data: Annotated[Positional[str], arg(metavar="DATA")]
    """a built-in name, a Minari id, a folder or a file"""
    picture: str | None = None
    """PNG, SVG or PDF file to draw some episodes to"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp.collectors import named
    from hilp.data import audit
    from hilp.report import data_picture

    common.require_picture("--picture", flags.picture)
    options = flags.options()
    verify = options.pop("verify", True)
    source = named.open_source(flags.data, flags.format, **options)
    report = audit.inspect(source, rescale_actions=flags.rescale_actions, verify=verify)
    if flags.picture is not None:
        data_picture.save(report, Path(flags.picture))
    if flags.json:
        common.print_json(report.to_json())
    else:
        common.show(audit.render(report))
    return report.exit_code
