"""The lines of a table, and its cells: policies that are trained and prompted by the ordinary functions.

A run resumes and its rows name the cell, so a cell can be tried again at any time, by any process.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

import jax

from hilp import presets, runs, tasks
from hilp.collectors import named
from hilp.data import rewards
from hilp.data.dataset import Dataset
from hilp.errors import FolderBusy, HilpError, nearest, some
from hilp.evaluation import diagnosis, evaluate, setup
from hilp.evaluation import rows as files
from hilp.evaluation.rows import Row
from hilp.learning import configs, methods
from hilp.policy.policy import FoundationPolicy
from hilp.prompts.specs import Reward
from hilp.spec import Spec
from hilp.tasks import rendering
from hilp.training import auto_config, loop
from hilp.training.hierarchy import hierarchy

Kind = Literal["rewards", "goals", "hierarchy"]
Recipe = dict[str, Any]  # of data, for `named.load`
GOAL_PLANS: tuple[int | str, ...] = (0, 3, "auto")  # straight ahead, the paper's, and the default of prompts
VALUE_SEED = 0  # of V(s, g): all policies on a data set are compared with the same one, on the same pairs
METHODS: dict[Kind, tuple[str, ...]] = {  # in the paper's order, which has no flat IQL
    "goals": ("gc-bc", "gc-iql", "gc-cql", "fb", "iql-fdm", "iql-lap", "iql-rand", "hilp"),
    "rewards": ("gc-td3", "sf-cl", "sf-rand", "sf-idm", "sf-ae", "sf-lap", "sf-fdm", "fb", "sf-hilp"),
    "hierarchy": ("iql", "opal", "hilp"),
}
ADAPTED = "-adapted"  # ends the name of a line whose prompts are searched for with a few episodes


@dataclass(frozen=True)
class Entry:
    """A line of a table."""

    method: str
    values: dict[str, Any] = field(default_factory=dict)  # of its config, over the preset's
    rule: str = "skill"  # how rewards become prompts
    adapt: int = 0  # episodes of a search around each prompt


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
    values: Mapping[str, str],
    changes: Sequence[tuple[str, Mapping[str, str]]] = (("", {}),),
    adapt: int = 0,
) -> dict[str, Entry]:
    """The lines of a table by label: each method as often as it is changed, by a label and config values each time.

    A method that lacks a key, say dim where the skill is the goal itself, has no such line.
    adapt: one more line of the same policies each, their prompts moved by a search with so many episodes.
    """
    made = {}
    for name in names:
        for ending, episodes in (("", 0), (ADAPTED, adapt)) if adapt else (("", 0),):
            base = replace(entry(name), adapt=episodes)
            for label, own in changes:
                if methods.keys(base.method) >= own.keys():
                    made[f"{name}{ending} {label}".strip()] = replace(base, values={**base.values, **values, **own})
    for label, own in changes:
        if not any(f"{name} {label}".strip() in made for name in names):
            raise HilpError(f"none of these methods has the config keys of '{label}' ({some(list(own))})")
    return made


@dataclass(frozen=True)
class Table:
    """What all cells of a table share, in strings and numbers."""

    kind: Kind
    size: str
    steps: int | None
    episodes: int
    out: str  # folder of the runs
    command: str  # that the table is made by
    quiet: bool = True
    intercept: bool = False  # rewards: prompt with a constant, too
    errors: bool = False  # goals: compare distances of policies with the true ones
    curve_points: int = 0  # goals: evaluations while training; no part of a cell's identity, as they change nothing
    reward: str | None = None  # hierarchies: the reward to learn
    high_steps: int | None = None
    high_values: dict[str, str] = field(default_factory=dict)


def load_source(kind: Kind, recipe: Mapping[str, Any]) -> tuple[Dataset, tasks.Task]:
    """A data set, and the task that a table of this kind prompts its policies in."""
    data, source = named.load(**recipe), recipe["source"]
    if data.task is None:
        raise HilpError(f"{source} does not say which task it comes from: name it with --task")
    world = tasks.make_recorded(data.task)
    setup.require_fit(source, data.spec, world, data.observation_parts)
    world = rendering.for_data(world, data)
    if kind == "rewards" and not world.rewards:
        raise HilpError(f"task {data.task} of {source} has no named rewards: try `hilp bench goals`")
    if kind == "goals" and not world.has_goals:
        raise HilpError(f"task {data.task} of {source} has no goals: try `hilp bench rewards`")
    return data, world


@dataclass(frozen=True)
class Cell:
    """A policy of a table, and its rows: it is prompted with every reward of its task, where its kind says no other."""

    table: Table
    label: str
    entry: Entry
    recipe: Recipe
    seed: int
    data: Dataset
    world: tasks.Task

    @property
    def title(self) -> str:
        return f"{self.label}, {self.data.name}, seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """The cell without its data, for another process (`load`)."""
        own = {"label": self.label, "recipe": self.recipe, "seed": self.seed}
        return {**own, "table": asdict(replace(self.table, quiet=True)), "entry": asdict(self.entry)}

    @property
    def preset(self) -> presets.Preset:
        return presets.preset(self.entry.method, self.table.size, self.data.task)

    @cached_property
    def config(self) -> Any:
        """In numbers: what the preset leaves to the data is resolved, so that it is part of the cell's identity."""
        return auto_config.resolve(methods.configure(self.preset.config, self.entry.values), self.data).config

    @property
    def updates(self) -> int:
        return self.preset.steps if self.table.steps is None else self.table.steps

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this cell's rows from others."""
        options = {"intercept": self.table.intercept, "errors": self.table.errors, "adapt": self.entry.adapt}
        return {
            "kind": self.table.kind,
            "label": self.label,
            "config": digest(methods.config_values(self.config)),
            "data": self.data.name,
            "data_fingerprint": self.data.fingerprint,
            "seed": self.seed,
            "preset": self.table.size,
            "updates": self.updates,
            "episodes": self.table.episodes,
            **{name: value for name, value in options.items() if value},
        }

    def has_rule(self, name: str) -> bool:
        return has_rule(name, self.config, self.data.spec)

    def check(self) -> None:
        """Raise where this cell cannot be run, before any cell is."""
        _ = self.config

    @property
    def prompts(self) -> tuple[int | str, ...]:
        """The plans or rewards that the policy is prompted with: a row each."""
        return tuple(self.world.rewards)

    def complete(self, rows: Sequence[Row]) -> list[Row] | None:
        """This cell's rows in the order of its prompts, None where one is missing."""
        identity = self.identity
        own = {files.prompt_of(row)[-1]: row for row in rows if row.get("cell") == identity}
        return [own[name] for name in self.prompts] if own.keys() >= {*self.prompts} else None

    @property
    def folder(self) -> Path:
        """Of the run; entries that differ only in how they are prompted share it."""
        label = self.label.replace(ADAPTED, "", 1) if self.entry.adapt else self.label
        if label in ENTRIES and not ENTRIES[label].values:
            label = self.entry.method
        usual = presets.preset(self.entry.method, self.table.size, self.data.task).config
        changed = self.entry.values or self.preset.config != usual
        own = f"-{digest(methods.config_values(self.config))}" if changed else ""
        return self.of_data / f"{file_name(label)}{own}" / f"seed-{self.seed}"

    @property
    def of_data(self) -> Path:
        """The folder of all runs on the same data."""
        return Path(self.table.out) / file_name(self.data.name)

    @property
    def trainings(self) -> dict[Path, int]:
        """The folders that this cell trains in, the last name a pattern, and the updates of each."""
        return {self.folder: self.updates}

    def run(self) -> list[Row]:
        """Train the policy, or go on with it, and prompt it."""
        rule, intercept = self.entry.rule, self.table.intercept
        prompts = [Reward(str(name), rule=rule, intercept=intercept) for name in self.prompts]
        return self.evaluate(self.train(), prompts=prompts, data=self.data, adapt=self.entry.adapt, random=True)

    def training(self, folder: Path) -> dict[str, Any]:
        """What trainings in a folder are told."""
        resume = (folder / runs.RUN).is_file()
        about = {"quiet": self.table.quiet, "command": self.table.command}
        return {"seed": self.seed, "out": folder, "resume": resume, **about}

    def train(self, data: Dataset | None = None) -> FoundationPolicy:
        """The policy; `data` replaces the cell's where it learns from more, rewards say."""
        options = {"steps": self.updates, "bank": self.preset.bank, **self.training(self.folder)}
        if points := self.table.curve_points:
            options["evaluate"] = partial(evaluate.evaluate_in_training, world=self.world, seed=self.seed)
            options["eval_every"] = max(1, self.updates // points)
        policy: FoundationPolicy = loop.pretrain(self.config, data or self.data, **options)
        return policy

    def evaluate(self, policy: FoundationPolicy, **prompts: Any) -> list[Row]:
        options: dict[str, Any] = {"episodes": self.table.episodes, "seed": self.seed, "command": self.table.command}
        found = evaluate.evaluate(policy, self.world, **options, **prompts)
        return [{**row, "cell": self.identity} for row in found]


class GoalCell(Cell):
    """A policy that is sent to the goals of its task, with every plan that it can make."""

    @property
    def prompts(self) -> tuple[int | str, ...]:
        by_steps = self.has_rule("steps") and not self.data.spec.pictures
        return GOAL_PLANS if self.has_rule("goal_direction") else (0, "auto") if by_steps else (0,)

    def run(self) -> list[Row]:
        compared = self.table.errors and self.has_rule("goal_direction")
        needs = getattr(methods.of(self.config), "reference", None)
        if compared and needs is not None and self.world.finite() is None:
            where, value = self.value(needs(self.config))
            with contextlib.suppress(FolderBusy):  # another cell trains it while this one trains its policy
                value.train_once(where, self.table.quiet)
        policy = self.train()
        errors = {"embedding": self.embedding_error(policy)} if compared else {}
        found = [row | errors for row in self.evaluate(policy, plan=self.prompts, rewards=())]
        if self.table.curve_points:
            found[0]["curve"] = files.evaluations(self.folder / runs.METRICS)
        return found

    def embedding_error(self, policy: FoundationPolicy) -> diagnosis.Numbers:
        """How far |phi(s) - phi(g)| is from the exact distance, or from V(s, g) where that is unknown."""
        exact = diagnosis.exact_error(policy, self.world)
        if exact is not None:
            return exact
        folder, value = self.value(policy.reference)
        found = diagnosis.value_error(policy, value, value.train_once(folder, self.table.quiet, wait=True))
        return {**found, "value": folder.name}

    def value(self, needs: Mapping[str, Any]) -> tuple[Path, diagnosis.Reference]:
        """The V(s, g) of these config values to compare with, and its folder: one for all cells that need the same."""
        steps = diagnosis.phi_updates(self.config, self.updates)
        value = diagnosis.Reference(self.data, diagnosis.value_config(needs), steps, VALUE_SEED)
        return self.of_data / f"value-{digest(value.identity)}", value


class HierarchyCell(Cell):
    """Skills and a high level over them for one sparse reward, or a flat policy for it."""

    @cached_property
    def reward(self) -> str:
        """As the table says, else that of the task's far place, else its only one."""
        world = self.world
        usual = [setup.TARGET] if setup.TARGET in setup.reward_names(world) else list(world.rewards)
        if self.table.reward is None and len(usual) != 1:
            raise HilpError(f"task {world.name} has several rewards: choose one with --reward: {', '.join(usual)}")
        found = usual[0] if self.table.reward is None else self.table.reward
        setup.reward_function(world, found)  # an error where there is none
        if found in world.potentials:
            raise HilpError(f"'{found}' rewards every step on the way: hierarchies are of 'target' or a return")
        return found

    @property
    def preset(self) -> presets.Preset:
        return presets.under_high_level(self.entry.method, self.table.size, self.data.task)

    @cached_property
    def config(self) -> Any:
        """What is left to the data is resolved by training, which may also choose a stride."""
        return methods.configure(self.preset.config, self.entry.values)

    @property
    def is_flat(self) -> bool:
        """Whether the method learns from rewards itself."""
        return bool(methods.columns(self.config))

    @cached_property
    def high(self) -> presets.Preset:
        """Config and updates of the high level."""
        usual = presets.high_level(self.table.size, self.data.task)
        steps = usual.steps if self.table.high_steps is None else self.table.high_steps
        return presets.Preset(methods.configure(usual.config, self.table.high_values), steps, usual.bank)

    @property
    def identity(self) -> dict[str, Any]:
        found = {**super().identity, "reward": self.reward}
        if not self.is_flat:
            found |= {"high_config": digest(methods.config_values(self.high.config)), "high_updates": self.high.steps}
        return found

    def check(self) -> None:
        _ = self.high, self.reward
        if not self.is_flat and not self.has_rule("skill_of"):
            raise HilpError(f"{self.label} cannot name the skill of a segment: a hierarchy is of hilp or opal")

    @property
    def prompts(self) -> tuple[int | str, ...]:
        return (self.reward,)

    @property
    def folder(self) -> Path:
        """Flat policies are trained for one reward, skills for any."""
        own = super().folder
        return own.with_name(f"{own.name}-{file_name(self.reward)}") if self.is_flat else own

    @property
    def trainings(self) -> dict[Path, int]:
        high = self.folder / f"high-{file_name(self.reward)}-*"
        return super().trainings | ({} if self.is_flat else {high: self.high.steps})

    def run(self) -> list[Row]:
        function = setup.reward_function(self.world, self.reward)
        shift = setup.reward_shift(self.world, self.reward)
        labelled = rewards.label(self.data, function, **shift)  # first: a reward that is constant is refused
        policy = self.train(labelled if self.is_flat else None)
        if self.is_flat:
            prompt: Any = policy.skill()
        else:
            # Skills that were trained on are other skills: their high level begins anew.
            about = {"policy": policy.fingerprint, **methods.config_values(self.high.config)}
            options = self.training(self.folder / f"high-{file_name(self.reward)}-{digest(about)}")
            options |= {"steps": self.high.steps, "config": self.high.config, "named": self.reward}
            prompt = hierarchy(policy, self.data, function, **shift, **options)
        return self.evaluate(policy, prompts=prompt, rewards=self.reward, random=True)


CELLS: dict[Kind, type[Cell]] = {"rewards": Cell, "goals": GoalCell, "hierarchy": HierarchyCell}


def cells(table: Table, entries: Mapping[str, Entry], recipes: Iterable[Recipe], seeds: Sequence[int]) -> list[Cell]:
    """All cells of a table, checked."""
    sources = [(recipe, *load_source(table.kind, recipe)) for recipe in recipes]
    made = [
        CELLS[table.kind](table, label, entry, recipe, seed, data, world)
        for recipe, data, world in sources
        for seed in seeds
        for label, entry in entries.items()
    ]
    for cell in made:
        cell.check()
    return _adaptable(made)


def _adaptable(made: Sequence[Cell]) -> list[Cell]:
    """Not those whose prompts are to be searched for without skills around them."""
    lacking = {cell.label: cell.entry.method for cell in made if cell.entry.adapt and not cell.has_rule("project")}
    if lacking and all(cell.label in lacking for cell in made if cell.entry.adapt):
        raise HilpError(f"{some(list(lacking.values()))}: the skill is the goal itself, there is none around it to try")
    return [cell for cell in made if cell.label not in lacking]


def load(settings: Mapping[str, Any]) -> Cell:
    """The cell behind its settings, with its data."""
    table, entry, recipe = Table(**settings["table"]), Entry(**settings["entry"]), settings["recipe"]
    about = (table, settings["label"], entry, recipe, settings["seed"])
    return CELLS[table.kind](*about, *load_source(table.kind, recipe))


@cache
def has_rule(rule: str, config: Any, spec: Spec) -> bool:
    """Whether policies of a config have a rule, such as directions and so plans; nothing is computed to know it."""
    method = methods.of(config)
    most = max(1, getattr(config, "play", 1))  # any number will do that goes with the others
    config = configs.changed(config, {key: most for key in configs.to_fit(config) if key in auto_config.COUNTS})
    export = jax.eval_shape(lambda: method.export(config, method.init(config, spec, jax.random.key(0))))
    return hasattr(export, rule)


def file_name(text: str) -> str:
    """A name as part of a file's name; data sets may be called by their path."""
    return re.sub(r"[^\w.=]+", "-", text).strip("-")


def digest(config: Mapping[str, Any]) -> str:
    """A short name of a config, the same for the one in memory and the one in a row."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
