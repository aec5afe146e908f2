"""`hilp data list`: the data sets and tasks that come with hilp."""

from __future__ import annotations

from dataclasses import dataclass

from hilp.commands import common


@dataclass(frozen=True)
class Flags:
    """List the data sets and tasks that come with hilp."""

    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp import tasks
    from hilp.collectors import named
    from hilp.learning import methods

    built_in = {name: {"task": task, "kind": kind} for name, (task, kind) in named.built_in_names().items()}
    if flags.json:
        common.print_json({"data": built_in, "tasks": tasks.names(), "methods": sorted(methods.names())})
    else:
        lines = [[name, about["task"], about["kind"], f"{named.BUILT_IN_STEPS:,}"] for name, about in built_in.items()]
        common.print_table(["data", "task", "kind", "transitions"], lines, title="collected on the spot, no download")
    return 0
