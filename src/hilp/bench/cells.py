"""Filling a table: every (method, data set, seed) is a cell that is trained, prompted and kept.

A cell whose rows are all there is skipped and one that was interrupted goes on, so the command can be given again and
again until the table is full.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import jax

from hilp import presets, runs, tasks
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, nearest, some
from hilp.evaluation import diagnosis, evaluate, rollouts, setup
from hilp.evaluation import rows as files
from hilp.evaluation.rows import Row
from hilp.learning import methods
from hilp.policy.policy import FoundationPolicy
from hilp.spec import Spec
from hilp.storage import lines
from hilp.tasks import rendering
from hilp.training import auto_config, loop

Kind = Literal["rewards", "goals", "hierarchy"]
GOAL_METHODS = ("gc-bc", "gc-iql", "gc-cql", "fb", "iql-fdm", "iql-lap", "iql-rand", "hilp")  # paper's order
GOAL_PLANS: tuple[int | str, ...] = (0, 1, 2, 3, "midpoints", "graph", "auto")
EARLIER_GOAL_PLANS: tuple[int | str, ...] = (0, 1, 2, 3, "auto")  # of rows made before there were graphs
REWARD_METHODS = ("gc-td3", "sf-cl", "sf-rand", "sf-idm", "sf-ae", "sf-lap", "sf-fdm", "fb", "sf-hilp")  # paper's order
ADAPTED = "-adapted"  # behind the name of what a row prompts after a search with a few episodes
VALUE_SEED = 0  # of V(s, g): all policies on a data set are compared with the same one, on the same pairs


@dataclass(frozen=True)
class Entry:
    """A row of the table: a method, and what it is given beside its preset."""

    method: str
    values: dict[str, Any] = field(default_factory=dict)  # of its config
    rule: str = "skill"  # how rewards become prompts
    adapt: int = 0  # episodes of a search around each of these prompts


# Entries that are not the bare name of a method.
ENTRIES = {
    "sf-hilp-g": Entry("sf-hilp", {"cumulant": "diff", "phi_expectile": 0.9}, rule="goal"),
    "hilp-graph": Entry("hilp", rule="graph"),
    "sf-hilp-graph": Entry("sf-hilp", rule="graph"),
}


def entry(name: str) -> Entry:
    known = {*ENTRIES, *methods.names()}
    if name not in known:
        raise HilpError(f"unknown method '{name}': {nearest(name, known)}")
    return ENTRIES.get(name, Entry(name))


def entries(
    names: Sequence[str],
    values: dict[str, str],
    sweep: tuple[str, Sequence[str]] | None = None,
    variants: Sequence[tuple[str, dict[str, str]]] = (),
    adapt: int = 0,
) -> dict[str, Entry]:
    """The rows of a table by label; a sweep makes one of each value of a config key, variants one more each.

    A method that lacks a key, say dim where the skill is the goal itself, has no such row.
    adapt: one more row of the same policies each, their prompts moved by a search with so many episodes.
    """
    if sweep and variants:
        raise HilpError("--sweep and --variants are two tables: ask for one after the other")
    labels = [label for label, _ in variants]
    if len(set(labels)) < len(labels):
        raise HilpError(f"two variants have one name: {some(labels)}")
    made = {}
    asked = [(name, entry(name)) for name in names]
    if adapt:
        moved = [(f"{name}{ADAPTED}", replace(base, adapt=adapt)) for name, base in asked]
        asked = [each for both in zip(asked, moved, strict=True) for each in both]
    for name, base in asked:
        keys = methods.keys(base.method)
        if sweep and sweep[0] not in keys:
            continue
        for value in sweep[1] if sweep else (None,):
            own = {**base.values, **values, **({sweep[0]: value} if sweep and value is not None else {})}
            made[name if sweep is None else f"{name} {sweep[0]}={value}"] = replace(base, values=own)
        for label, own in variants:
            if keys.issuperset(own):
                made[f"{name} {label}"] = replace(base, values={**base.values, **values, **own})
    for label in labels:
        if not any(f"{name} {label}" in made for name in names):
            raise HilpError(f"none of these methods has all config keys of the variant '{label}'")
    if sweep and not made:
        raise HilpError(f"none of these methods has the config key '{sweep[0]}' to sweep")
    if sweep and not all(_is_number(value) for value in sweep[1]):
        raise HilpError(f"a sweep is drawn against numbers, not {some(sweep[1])}: compare them with --variants")
    return made


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


class Missing(NamedTuple):
    """A cell whose rows are to be made, its number in the table, and its task."""

    number: int
    cell: Cell
    world: tasks.Task


Keep = Callable[[int, list[Row]], None]  # takes the rows of a cell, by its number
Run = Callable[[Sequence[Missing], int, Keep], None]  # of all missing cells of a table with so many


def one_by_one(
    missing: Sequence[Missing],
    total: int,
    keep: Keep,
    *,
    out: Path,
    quiet: bool,
    command: str,
    tell: Callable[[str], None],
) -> None:
    """Cells one after the other in this process."""
    for number, cell, world in missing:
        tell(f"cell {number} of {total}: {cell.title}")
        keep(number, cell.run(world, out, quiet=quiet, command=command))


def fill(
    kind: Kind,
    rows: dict[str, Entry],
    data: Mapping[str, Dataset],
    seeds: Sequence[int],
    *,
    size: str,
    steps: int | None,
    episodes: int,
    intercept: bool,
    file: Path,
    run: Run,
    errors: bool = False,
    curve_points: int = 0,
    make: Callable[[tasks.Task], Callable[..., Cell]] | None = None,
) -> list[Row]:
    """Train and prompt what the file of rows lacks; all rows of this table.

    run: how missing cells are run, e.g. `one_by_one`; rows are added to the file here and nowhere else.
    errors: rows of policies with distances also say how far these are from the true ones (`embedding`).
    curve_points: how often policies are sent to goals while they are trained, for a learning curve.
    make: the kind of cell that a table has in a task, where it is not the usual one.
    """
    worlds = {source: world_of(kind, source, found) for source, found in data.items()}
    kinds = {source: Cell if make is None else make(world) for source, world in worlds.items()}
    cells = [
        kinds[source](
            kind, label, rows[label], source, data[source], seed, size, steps, episodes, intercept, errors, curve_points
        )
        for source in data
        for seed in seeds
        for label in rows
    ]
    for cell in cells:
        cell.check(worlds[cell.source])  # a mistake in a value is told before the first cell is trained
    lacking = {cell.label: cell.entry.method for cell in cells if not cell.adaptable}
    if lacking and all(label in lacking for label, entry in rows.items() if entry.adapt):
        raise HilpError(f"{some(list(lacking.values()))}: the skill is the goal itself, there is none around it to try")
    cells = [cell for cell in cells if cell.label not in lacking]
    lines.require_writable(file)  # before hours of training
    known = files.read_rows(file) if file.is_file() else []
    kept = {number: cell.complete(known, worlds[cell.source]) for number, cell in enumerate(cells, 1)}

    def keep(number: int, have: list[Row]) -> None:
        files.append_rows(file, have, instead_of=cells[number - 1].owns)  # an interrupted write may have left some
        kept[number] = have

    missing = [Missing(n, cell, worlds[cell.source]) for n, cell in enumerate(cells, 1) if kept[n] is None]
    run(missing, len(cells), keep)
    return [row for number in kept for row in kept[number] or ()]


def world_of(kind: Kind, source: str, data: Dataset) -> tasks.Task:
    """The task that a table of this kind prompts policies of this data in."""
    if data.task is None:
        raise HilpError(f"{source} does not say which task it comes from: name it with --task")
    world = tasks.make_recorded(data.task)
    setup.require_fit(source, Spec.of(data.observations, data.action_dim), world)
    world = rendering.for_data(world, data)
    if kind == "rewards" and not world.rewards:
        raise HilpError(f"task {data.task} of {source} has no named rewards: try `hilp bench goals`")
    if kind == "goals" and not world.has_goals:
        raise HilpError(f"task {data.task} of {source} has no goals: try `hilp bench rewards`")
    return world


@dataclass(frozen=True)
class Cell:
    """One policy of the table."""

    kind: Kind
    label: str
    entry: Entry
    source: str
    data: Dataset
    seed: int
    size: str
    steps: int | None
    episodes: int
    intercept: bool
    errors: bool
    curve_points: int  # no part of the identity: evaluating on the way changes nothing

    @property
    def title(self) -> str:
        """The cell for people."""
        return f"{self.label}, {self.data.name}, seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """All but the data, in strings and numbers: another process makes the cell of them again (`of`)."""
        own = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "data"}
        return {**own, "entry": asdict(self.entry)}

    @classmethod
    def of(cls, settings: Mapping[str, Any], data: Dataset) -> Self:
        """The cell behind its settings."""
        return cls(**{**settings, "entry": Entry(**settings["entry"]), "data": data})

    @property
    def preset(self) -> presets.Preset:
        return presets.preset(self.entry.method, self.size, self.data.task)

    @cached_property
    def config(self) -> Any:
        """In numbers: what is left to the data is chosen here, so that cells are told apart as they always were."""
        return auto_config.resolve(methods.configure(self.preset.config, self.entry.values), self.data).config

    @property
    def updates(self) -> int:
        return self.preset.steps if self.steps is None else self.steps

    def trainings(self, out: Path) -> dict[Path, int]:
        """The folders that this cell trains in, the last name a pattern, and the updates of each."""
        return {self.folder(out): self.updates}

    @property
    def identity(self) -> files.Cell:
        """What tells this cell's rows from others."""
        return {
            "kind": self.kind,
            "label": self.label,
            "config": digest(methods.config_values(self.config)),
            "data": self.data.name,
            "data_fingerprint": self.data.fingerprint,
            "seed": self.seed,
            "preset": self.size,
            "updates": self.updates,
            "episodes": self.episodes,
            **({"intercept": True} if self.intercept else {}),
            **({"errors": True} if self.errors else {}),
            **({"adapt": self.entry.adapt} if self.entry.adapt else {}),
        }

    def check(self, world: tasks.Task) -> None:
        """Raise where this cell cannot be run."""
        _ = self.config

    @property
    def adaptable(self) -> bool:
        """Whether there are skills around that of a prompt to try, where a search was asked for."""
        spec = Spec.of(self.data.observations, self.data.action_dim)
        return not self.entry.adapt or has_rule("project", self.config, spec)

    def owns(self, row: Row) -> bool:
        return row.get("cell") == self.identity

    def prompts(self, world: tasks.Task) -> tuple[int | str, ...]:
        """The plans or rewards that the policy is prompted with: a row each."""
        if self.kind == "rewards":
            return tuple(world.rewards)
        return (
            GOAL_PLANS
            if has_rule("goal_direction", self.config, Spec(world.observation_dim, world.action_dim))
            else (0,)
        )

    def complete(self, rows: Sequence[Row], world: tasks.Task) -> list[Row] | None:
        """This cell's rows in the order of its prompts, None where one is lacking."""
        own = {files.prompt_of(row)[-1]: row for row in rows if self.owns(row)}
        wanted = self.prompts(world)
        if self.kind == "goals" and own.keys() == {*EARLIER_GOAL_PLANS}:
            wanted = EARLIER_GOAL_PLANS
        return [own[name] for name in wanted] if own and own.keys() >= {*wanted} else None

    def run(self, world: tasks.Task, out: Path, *, quiet: bool, command: str) -> list[Row]:
        """Train (or go on training) the policy and prompt it."""
        folder = self.folder(out)
        policy = self.train(world, folder, quiet, command)
        if self.kind == "goals":
            # Before the episodes: V(s, g) is kept once it is trained, and they are not before they are over.
            embedding = self.embedding_error(policy, world, out, quiet) if self.errors else None
            found = self.evaluate(policy, world, command, plan=self.prompts(world), rewards=())
            for row in found:
                if embedding is not None:
                    row["embedding"] = embedding
            if self.curve_points:
                found[0]["curve"] = files.evaluations(folder / runs.METRICS)
            return found
        found = self.evaluate(
            policy,
            world,
            command,
            plan=(),
            rewards=self.prompts(world),
            rule=self.entry.rule,
            intercept=self.intercept,
            data=self.data,
            adapt=self.entry.adapt,
        )
        for row in found:
            row["random"] = float(rollouts.random_return(world, row["reward"], self.episodes, self.seed).mean())
        return found

    @property
    def changed(self) -> bool:
        """Whether the config is not simply the preset's."""
        return bool(self.entry.values)

    def folder(self, out: Path) -> Path:
        """Of the run; entries that differ in how they are prompted only share it."""
        label = self.label.replace(ADAPTED, "", 1) if self.entry.adapt else self.label
        if label in ENTRIES and not ENTRIES[label].values:
            label = self.entry.method
        changed = f"-{digest(methods.config_values(self.config))}" if self.changed else ""
        return out / file_name(self.data.name) / f"{file_name(label)}{changed}" / f"seed-{self.seed}"

    def train(
        self, world: tasks.Task, folder: Path, quiet: bool, command: str, data: Dataset | None = None
    ) -> FoundationPolicy:
        """The policy; `data` is what it learns from where that is more than the cell's, with rewards say."""
        points = self.curve_points
        policy: FoundationPolicy = loop.pretrain(
            self.config,
            data or self.data,
            steps=self.updates,
            seed=self.seed,
            out=folder,
            resume=(folder / runs.RUN).is_file(),
            bank=self.preset.bank,
            evaluate=partial(evaluate.evaluate_in_training, world=world, seed=self.seed) if points else None,
            eval_every=max(1, self.updates // points) if points else None,
            quiet=quiet,
            command=command,
        )
        return policy

    def evaluate(self, policy: FoundationPolicy, world: tasks.Task, command: str, **prompts: Any) -> list[Row]:
        found = evaluate.evaluate(policy, world, episodes=self.episodes, seed=self.seed, command=command, **prompts)
        for row in found:
            row["cell"] = self.identity
        return found

    def embedding_error(
        self, policy: FoundationPolicy, world: tasks.Task, out: Path, quiet: bool
    ) -> diagnosis.Numbers | None:
        """How far |phi(s) - phi(g)| is from the exact distance, or from V(s, g) where nobody knows that.

        None for a policy without distances. V is trained as long as phi was, once for all cells that ask for the same.
        """
        if not policy.has_rule("goal_direction"):
            return None
        exact = diagnosis.exact_error(policy, world)
        if exact is not None:
            return exact
        folder, value = self.value(policy.reference, out)
        found = diagnosis.value_error(policy, value, value.train_once(folder, quiet, wait=True))
        return {**found, "value": folder.name}

    def value(self, values: Mapping[str, Any], out: Path) -> tuple[Path, diagnosis.Reference]:
        """The V(s, g) of these config values that distances are held against, and the folder that keeps it."""
        steps = diagnosis.phi_updates(self.config, self.updates)
        value = diagnosis.Reference(self.data, diagnosis.value_config_of(values), steps, VALUE_SEED)
        return out / file_name(self.data.name) / f"value-{digest(value.identity)}", value

    def shared_value(self, world: tasks.Task, out: Path) -> tuple[Path, diagnosis.Reference] | None:
        """The same before there is a policy, so that it can be trained beside; None where none will be needed.

        Of a method that does not say what V it needs, the first cell that asks trains it.
        """
        method = methods.of(self.config)
        spec = Spec(world.observation_dim, world.action_dim)
        if not self.errors or not hasattr(method, "reference") or not has_rule("goal_direction", self.config, spec):
            return None
        return None if world.finite() is not None else self.value(method.reference(self.config), out)


@cache
def has_rule(rule: str, config: Any, spec: Spec) -> bool:
    """Whether policies of a config have a rule, such as directions and so plans; nothing is computed to know it."""
    method = methods.of(config)
    export = jax.eval_shape(lambda: method.export(config, method.init(config, spec, jax.random.key(0))))
    return hasattr(export, rule)


def file_name(text: str) -> str:
    """A name as part of a file's name; data sets may be called by their path."""
    return re.sub(r"[^\w.=]+", "-", text).strip("-")


def digest(config: dict[str, Any]) -> str:
    """A short name of a config, the same for the one in memory and the one in a row."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
