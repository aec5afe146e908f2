"""`hilp data`: what comes with hilp, what is in a data set, data in other formats, and data collected in tasks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import Positional, arg

from hilp.commands import common
from hilp.errors import HilpError, printable, size_text, some
from hilp.training.progress import bars
from hilp.versions import versions

with common.WhenUsed():
    from hilp import collectors, tasks
    from hilp.data import audit, convert, dataset, lerobot, measures
    from hilp.learning import methods
    from hilp.report import figures, markup

if TYPE_CHECKING:
    from rich.console import Group

PAID = "reward_"  # before the name of a reward, in what a collector measured
SHOWN_COLUMNS = 24  # on the page; all of them are in the JSON


@dataclass(frozen=True)
class List(common.Verb):
    """List the data sets and tasks that come with hilp."""

    def __call__(self) -> None:
        from hilp.collectors import named

        built_in = {name: {"task": task, "kind": kind} for name, (task, kind) in named.built_in_names().items()}
        if self.json:
            return common.print_json({"data": built_in, "tasks": tasks.names(), "methods": sorted(methods.names())})
        lines = [[name, about["task"], about["kind"], f"{named.BUILT_IN_STEPS:,}"] for name, about in built_in.items()]
        common.print_table(["data", "task", "kind", "transitions"], lines, title="collected on the spot, no download")


@dataclass(frozen=True)
class Inspect(common.Verb, common.Reading):
    """Say what is in a data set and what is wrong with it. Exit code 1 when it cannot be trained on."""

    example: ClassVar = "hilp data inspect log.csv --columns observations=x,y actions=ux,uy episode_ids=run"
    data: Annotated[Positional[str], arg(metavar="DATA")]
    """a built-in name, a Minari id, a folder or a file"""
    stride: str | None = None
    """look at every n-th row only, as training with --stride does; auto: as the data asks for"""
    picture: str | None = None
    """PNG, SVG or PDF file to draw some episodes to"""

    def __call__(self) -> int:
        common.require_picture("--picture", self.picture)
        source, verify = _opened(self, self.data)
        report = audit.inspect(source, rescale_actions=self.rescale_actions, verify=verify, stride=self.stride)
        if self.picture is not None:
            figures.save_data_picture(report, Path(self.picture))
        if self.json:
            measured = {"measured": dict(source.measured)} if source.measured else {}
            common.print_json({**report.to_json(), **measured})
        else:
            common.show(render(report, source.measured))
            if self.picture is not None:
                print(f"picture: {printable(self.picture)}")
        return 0 if report.trainable else 1


def _opened(flags: common.Reading, name: str) -> tuple[Any, bool]:
    """A source of data as the flags say, not read yet, and whether checksums are compared."""
    from hilp.collectors import named

    options = flags.options()
    verify = options.pop("verify", True)
    return named.open_source(name, flags.format, **options), verify


def render(report: "audit.AuditReport", measured: Mapping[str, Any] | None = None) -> "Group":
    """The report for a rich console, with what a collector measured of the data."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    summary = Table.grid(padding=(0, 2))
    summary.add_column(style="bold")
    summary.add_column(overflow="fold")
    for name, text in {**_summary(report), **behaviour(measured or {})}.items():
        summary.add_row(name, Text(text))
    parts: list[Any] = [Text(report.name, style="bold underline"), summary, Text()]
    parts.append(Text("lengths in rows", style="bold"))
    parts += _histogram(report.lengths["edges"], report.lengths["counts"])
    for title, columns in (("observations", report.observations), ("actions", report.actions)):
        if columns:
            parts += [Text(), _column_table(title, columns, report)]
    parts += [Text(f"{name}: {about}") for name, about in report.images.items()]
    parts.append(Text())
    parts += [Text(f"note: {note}", style="dim") for note in report.notes]
    for warning in report.warnings:
        parts.append(Text.assemble(("warning: ", "yellow bold"), f"{warning.what} ({warning.where})"))
        parts.append(Text(f"         {warning.do}"))
    parts += [Text.assemble(("error: ", "red bold"), error) for error in report.errors]
    verdict = ("can be trained on", "green bold") if report.trainable else ("cannot be trained on", "red bold")
    return Group(*parts, Text(*verdict))


def _summary(report: "audit.AuditReport") -> dict[str, str]:
    lengths = report.lengths
    lines = {
        "format": report.format + {None: "", True: ", hashes agree", False: ", HASHES DIFFER"}[report.verified],
        "episodes": f"{report.episodes:,} of {lengths['shortest']:,} to {lengths['longest']:,} rows "
        f"(median {lengths['median']:,.0f})",
        "transitions": f"{report.transitions:,}",
        "observations": f"{report.observation_dim} numbers",
        "actions": (f"one of {report.choices}, discrete" if report.choices else f"{report.action_dim} numbers")
        + _targets(report.targets),
        "extras": ", ".join(f"{name} ({about})" for name, about in report.extras.items()) or "none",
        "episodes end": ", ".join(f"{n:,} {how}" for how, n in report.endings.items() if n)
        or "the data does not say how",
        "size": f"{size_text(report.disk_bytes) if report.disk_bytes else 'none'} on disk, "
        f"{size_text(report.training_bytes)} in training",
    }
    if report.time_scale is not None:
        lines["time scale"] = report.time_scale.line.removeprefix("time scale: ")
    if report.chance.share is not None:
        lines["chance"] = report.chance.line
    return lines


def _targets(targets: dict[str, str]) -> str:
    """Which actions are targets for columns of the observation: position commands."""
    pairs = [f"{action} -> {column}" for action, column in targets.items()]
    return f", {len(pairs)} of them position commands, targets of columns: {some(pairs)}" if pairs else ""


def _histogram(edges: Sequence[float], counts: Sequence[int]) -> list[Any]:
    from rich.text import Text

    most = max(counts, default=0)
    lines = []
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        first, last = math.ceil(low), math.ceil(high) - 1
        label = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        lines.append(Text.assemble(f"{label:>17} ", ("█" * round(30 * count / most), "cyan"), f" {count:,}"))
    return lines


def _column_table(title: str, columns: "list[measures.ColumnStats]", report: "audit.AuditReport") -> Any:
    lines = []
    for stats in columns[:SHOWN_COLUMNS]:
        numbers = [f"{value:.4g}" for value in (stats.low, stats.high, stats.mean, stats.deviation)]
        constant = " constant" if stats.low == stats.high else ""
        lines.append([stats.name, *numbers, f"{stats.at_limits:.1%}{constant}"])
    table = markup.rich_table(["column", "low", "high", "mean", "deviation", "at limits"], lines, title)
    total = report.observation_dim if title == "observations" else report.action_dim
    total = len(columns) if report.images else total  # images have a line of their own
    if total > SHOWN_COLUMNS:
        table.caption = f"and {total - SHOWN_COLUMNS} more"
    return table


@dataclass(frozen=True)
class Convert(common.Verb, common.Reading):
    """Write any readable data set as a native folder (memory-mapped, with checksums), or for Minari, LeRobot, ExORL."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """a built-in name, a Minari id, a folder or a file"""
    target: Annotated[Positional[str], arg(metavar="TARGET")]
    """folder to write, or a Minari id such as robot/log-v0"""
    to: Literal["native", "minari", "lerobot", "exorl"] = "native"
    """what to write"""
    fps: int | None = None
    """rows a second, for --to lerobot (default: by the time column)"""
    task: str | None = None
    """task that the data comes from, where it does not say so itself; noted in a native folder"""
    overwrite: bool = False
    """replace an existing data set"""

    def __call__(self) -> None:
        written, notes = _write(self)
        if self.json:
            return common.print_json({"out": str(written), "to": self.to, "notes": notes})
        for note in notes:
            print(f"note: {printable(note)}")
        common.print_result({"out": str(written), "to": self.to}, as_json=False)


def _write(flags: Convert) -> tuple[Path, list[str]]:
    """Where it was written, and what was decided or repaired on the way."""
    from hilp.collectors import named

    if flags.fps is not None and flags.to != "lerobot":
        raise HilpError(f"--fps is for --to lerobot: leave it out of --to {flags.to}")
    if flags.to == "exorl":
        if flags.overwrite:
            raise HilpError("--to exorl does not overwrite: choose another folder")
        data = common.load_data(flags.source, flags)
        return convert.write_exorl(data, flags.target), list(data.notes)
    with bars(quiet=flags.json) as bar:
        if flags.task is not None and hasattr(world := tasks.make(flags.task), "render_dataset"):
            if flags.to != "native":
                raise HilpError(f"pictures of {flags.task} become a native folder only: leave out --to {flags.to}")
            data = common.load_data(flags.source, flags)
            seen = world.render_dataset(data, lambda done: bar("drawing", done, data.rows))
            return seen.save(flags.target, overwrite=flags.overwrite), list(data.notes)
        source, verify = _opened(flags, flags.source)
        if flags.task is not None:
            source = named.in_task(source, flags.task)
        options: dict[str, Any] = {"verify": verify, "overwrite": flags.overwrite, "progress": bar}
        options["rescale_actions"] = flags.rescale_actions
        written = convert.convert(source, flags.target, to=flags.to, fps=flags.fps, **options)
        said = lerobot.notes(source, flags.fps) if flags.to == "lerobot" else []
        return written, [*source.notes, *said]


@dataclass(frozen=True)
class Collect(common.Verb):
    """Collect unlabeled trajectories in a task into a native folder."""

    task: str
    """task, map or map file, gym:ID for an environment of Gymnasium, or path/to/file.py:make for your own"""
    out: str
    """folder to write"""
    kind: str | None = None
    """behaviour to collect: navigate, explore, stitch (mazes); rnd, apt, random (robots); diverse, play (AntMaze);
    navigate, stitch, explore, play (OGBench); partial, mixed, complete (Kitchen); wander (ant-open); wander, random
    (others); in any, skills (rounds of learning and exploring) or path/to/file.py:act, a function of an observation"""
    steps: int = 300_000
    """transitions"""
    seed: int = 0
    """random seed"""
    workers: int | None = None
    """processes or threads that simulate (default: one a core; for environments of Gymnasium 1, and 8 at most)"""
    set: tuple[str, ...] = ()
    """config values of the learners of rnd, apt and skills: key=value ..."""
    overwrite: bool = False
    """replace an existing data set"""
    rows: str | None = None
    """JSONL file to append what came of it to: the data set, how often its script was successful, and what its
    behaviour was like"""

    def __call__(self) -> None:
        from hilp.collectors.collecting import script_outcome
        from hilp.storage import lines

        dataset.require_free(Path(self.out), self.overwrite)  # before anything is collected
        with bars(quiet=self.json) as bar:
            where: dict[str, Any] = {"out": self.out, "workers": self.workers, "overwrite": self.overwrite}
            where["config"] = common.config_values(self.set)
            where["progress"] = lambda done: bar("collecting", done, self.steps)
            data = collectors.collect(self.task, self.kind, self.steps, self.seed, **where)
        counts = {"transitions": data.transitions, "episodes": data.episodes}
        about = {**counts, "fingerprint": data.fingerprint, **script_outcome(data)}
        if self.rows:
            row = {"task": data.task, "data": data.name, "seed": self.seed, **about, **data.measured}
            lines.append(self.rows, [{**row, "command": common.command(), "versions": versions()}])
        shown = data.measured if self.json else behaviour(data.measured)
        common.print_result({"out": self.out, **about, **shown}, self.json)


def behaviour(measured: Mapping[str, Any]) -> dict[str, str]:
    """What a collector measured of its data, in a line each: coverage, speeds, rewards and early ends."""
    from hilp.collectors.collecting import covered

    found = {}
    if "cells_at" in measured:
        found["cells visited, by tenths"] = covered(measured)
    if "speed_edges" in measured:
        edges, shares = measured["speed_edges"], measured["speed_shares"]
        parts = [
            f"{low:g} to {high:g}: {share:.1%}" for low, high, share in zip(edges, edges[1:], shares, strict=False)
        ]
        found["speeds (m/s)"] = ", ".join(parts)
    rewards = {name.removeprefix(PAID): paid for name, paid in measured.items() if name.startswith(PAID)}
    if rewards:
        found["rewards a step"] = ", ".join(f"{name} {paid:.3g}" for name, paid in rewards.items())
    if "ended_early" in measured:
        found["episodes ended early"] = f"{measured['ended_early']:,}"
    return found
