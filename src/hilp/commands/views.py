"""What methods are trained with and what came of it: `hilp preset`, `diagnose`, `map`, `report` and `export`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from hilp import runs
from hilp.commands import common
from hilp.errors import HilpError, nearest, printable

with common.WhenUsed():
    from hilp import export, presets, tasks
    from hilp.data import dataset
    from hilp.evaluation import diagnosis, explain, held_out, setup
    from hilp.learning import tables
    from hilp.prompts import bank
    from hilp.report import figures, page


@dataclass(frozen=True)
class Preset(common.Verb):
    """Print every config value that a method is trained with, and where it comes from."""

    method: Annotated[Positional[str], arg(metavar="METHOD")]
    """name of a method"""
    task: Annotated[Positional[str], arg(metavar="TASK")] = ""
    """name of a task that the data is of; without one, the values for any data"""
    preset: str = "laptop"
    """laptop (two cores, minutes) or paper (the paper's tables)"""

    def __call__(self) -> None:
        preset = presets.preset(self.method, self.preset, self.task)
        own = set[str]().union(*tables.FAMILIES.values())  # also what is not installed
        if self.task and self.task not in own and not tasks.is_known(self.task):
            raise HilpError(f"unknown task '{self.task}': {nearest(self.task, {*own, *tasks.names()})}")
        values = {**asdict(preset.config), "steps": preset.steps, "bank": preset.bank}
        sources = presets.sources(self.method, self.preset, self.task)
        if self.json:
            return common.print_json({key: {"value": value, "from": sources[key]} for key, value in values.items()})
        texts = {key: ",".join(map(str, it)) if isinstance(it, tuple) else str(it) for key, it in values.items()}
        lines = [[key, text, sources[key]] for key, text in texts.items()]
        common.print_table(["key", "value", "from"], lines, title=f"{self.method} {self.task}".strip())
        if self.task and sources == presets.sources(self.method, self.preset):
            print(f"{self.method} has no values of its own for the task '{self.task}': these are those for any data")


@dataclass(frozen=True)
class Diagnose(common.OfPolicy, common.Reading):
    """How well the latent distance fits the task, and whether the actor listens, in numbers and in words."""

    task: str | None = None
    """task with exact distances (default: the one its data was collected in)"""
    data: str | None = None
    """data set to train a separate V(s, g) on, for tasks without exact distances and for the asymmetry of the data"""
    steps: int = 5000
    """updates of that V"""
    seed: int = 0
    """random seed"""

    def __call__(self) -> None:
        policy, _ = common.load_policy(self.run)
        world = setup.task_if_known(policy, self.task)
        has_distances = policy.has_rule("goal_direction")
        has_goals = has_distances or policy.has_rule("goal_skill")
        kept = runs.held_out(Path(self.run)) if has_goals else None
        data = common.read_as_trained(self.run, self.data, self) if self.data else None
        unseen = None if kept is None else held_out.measure(policy, dataset.Dataset.open(kept), seed=self.seed)
        if not has_distances or (world is None and data is None and unseen is not None):
            result: dict[str, Any] = diagnosis.about(policy, self.seed)
        else:
            result = diagnosis.diagnose(policy, world, data, steps=self.steps, seed=self.seed, quiet=self.json)
        if unseen is not None:
            result["held_out"] = unseen
        if self.json:
            return common.print_json(result)
        sentences = explain.explain_diagnosis(result) + (
            [] if has_distances else explain.explain_without_distances(policy)
        )
        if unseen is not None and not has_distances:
            sentences += explain.explain_held_out([{**unseen, **plan} for plan in unseen["plans"]])
        elif unseen is not None:
            sentences += explain.explain_unseen(unseen, diagnosis.training_summary(policy, data))
        for sentence in sentences:
            print(f"- {printable(sentence)}")


@dataclass(frozen=True)
class Map(common.OfPolicy, common.Reading):
    """Draw the latent space next to the plan of the task and, where latents are distances, those to a goal."""

    out: str | None = None
    """PNG, SVG or PDF file (default: latents.png in the run); distances get '-distances' before the ending"""
    task: str | None = None
    """task with a plan to draw on (default: the one its data was collected in)"""
    data: str | None = None
    """data set to take states from (default: the states kept in the policy)"""
    points: int = 1000
    """states whose latents are drawn (t-SNE takes at most 1,500)"""
    flatten: Literal["tsne", "pca"] | None = None
    """how latents are projected to two dimensions: t-SNE or principal components (default: t-SNE above two)"""
    goal: str | None = None
    """goal of the distances: task3, row:12, x=3,y=4 or all numbers (default: one that `hilp evaluate` could draw)"""
    seed: int = 0
    """seed of the states and of that goal"""

    def __call__(self) -> None:
        from hilp.tasks import rendering

        common.require_picture("--out", self.out)
        policy, home = common.load_policy(self.run)
        policy.require_rule("encode", "has no latent map")
        world = setup.task_for_policy(policy, setup.task_of(policy, self.task))
        if not world.has_goals:
            raise HilpError(f"{world.name} has no plan to draw on: mazes and AntMaze have one")
        setup.require_fit("this policy", policy.spec, world, policy.observation_parts)
        goal = None
        if self.goal is not None:
            policy.require_rule("goal_direction", "does not learn distances: leave out --goal")
            goal = setup.find_goal(self.goal, policy, world, seed=self.seed).observation
        sample = policy.bank
        if self.data is not None:
            data = common.read_as_trained(self.run, self.data, self)
            setup.require_fit("this data", data.spec, world, data.observation_parts)
            sample = bank.Bank.draw(data, max(self.points, page.FIELD_STATES), self.seed)
        if len(sample) == 0:
            raise HilpError("this policy keeps no states (--bank 0): name a data set with --data")
        target = home / "latents.png" if self.out is None else Path(self.out)
        drawn = sample.subsample(self.points, self.seed).observations
        latents = policy.encode_all(drawn)
        result: dict[str, Any] = {"policy": policy.fingerprint, "task": world.name, "points": len(latents)}
        drawing = figures.latent_map(world, rendering.infer_states(world, drawn), latents, flatten=self.flatten)
        if policy.has_rule("goal_direction"):
            goal = page.evaluation_goal(world, goal, self.seed)  # a state, also where policies see pictures
            result["goal"] = goal.tolist()
            distances = page.learned_distances(policy, world, sample, goal)
            result["distances"] = str(figures.save(distances, target.with_stem(f"{target.stem}-distances")))
        result["latents"] = str(figures.save(drawing, target))
        common.print_result(result, self.json)


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page about a run."""

    run: common.RunFolder
    """folder of a run"""
    out: str | None = None
    """page to write (default: report.html in the run)"""
    task: str | None = None
    """task to draw in (default: the one its data was collected in)"""

    def __call__(self) -> None:
        print(printable(str(page.write(self.run, self.out, self.task))))


@dataclass(frozen=True)
class Export(common.OfPolicy):
    """Write a policy for robots and other programs that have numpy, or an ONNX runtime, alone."""

    to: Literal["numpy", "onnx"]
    """numpy: arrays and a runtime that needs numpy alone; onnx: graphs of act, encode and goals (hilp[onnx])"""
    out: str
    """folder to write"""
    prompts: tuple[str, ...] = ()
    """saved prompts that go along, hierarchies too (numpy only)"""
    overwrite: bool = False
    """replace an earlier export"""

    def __call__(self) -> None:
        policy, _ = common.load_policy(self.run)
        written = export.write(policy, self.to, self.out, self.prompts, self.overwrite)
        common.print_result(written, self.json)
