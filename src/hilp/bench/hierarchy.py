"""The table of hierarchies: skills, a high level over them, and one sparse reward; flat IQL beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hilp import presets, runs, tasks
from hilp.bench.cells import Cell, digest, file_name, has_rule
from hilp.data import rewards
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.evaluation import rollouts, setup
from hilp.evaluation import rows as files
from hilp.evaluation.rows import Row
from hilp.learning import methods
from hilp.learning.methods.preset_values import KITCHENS
from hilp.policy.policy import FoundationPolicy
from hilp.spec import Spec
from hilp.training.hierarchy import hierarchy

METHODS = ("iql", "opal", "hilp")  # flat IQL is ours to add, the others in the paper's order
PAPER_STEPS = 500_000  # of the paper's table, also where other tables have more for the same method
PAPER_KITCHEN = {"phi_expectile": 0.7}  # of HILP here, and not in the paper's goal-conditioned table
# A skill that is held cannot be put right at every step: the last update of an actor may have lost a corner for good.
HELD_SKILLS = {"actor_ema": 2e-3}


@dataclass(frozen=True)
class HierarchyCell(Cell):
    """One policy of the table, its high level where it has skills, and what they earn."""

    reward: str = setup.TARGET
    high_steps: int | None = None
    high_values: tuple[tuple[str, str], ...] = ()

    @property
    def flat(self) -> bool:
        """Whether the method learns from rewards itself."""
        return bool(methods.columns(self.config))

    @property
    def config(self) -> Any:
        usual = self.preset.config
        values: dict[str, Any] = {}
        if self.entry.method == "hilp" and self.size == "laptop" and usual.actor_ema == 1.0:
            values = HELD_SKILLS
        elif self.entry.method == "hilp" and self.size == "paper" and self.data.task in KITCHENS:
            values = PAPER_KITCHEN
        return methods.configure(usual, {**values, **self.entry.values})

    @property
    def changed(self) -> bool:
        return bool(self.config != self.preset.config)

    @property
    def updates(self) -> int:
        usual = PAPER_STEPS if self.size == "paper" else self.preset.steps
        return usual if self.steps is None else self.steps

    @property
    def high(self) -> presets.Preset:
        return presets.high_level(self.size, self.data.task)

    @property
    def high_config(self) -> Any:
        return methods.configure(self.high.config, dict(self.high_values))

    @property
    def high_updates(self) -> int:
        return self.high.steps if self.high_steps is None else self.high_steps

    @classmethod
    def of(cls, settings: Mapping[str, Any], data: Dataset) -> Self:
        pairs = tuple((key, value) for key, value in settings["high_values"])  # JSON has lists only
        return super().of({**settings, "high_values": pairs}, data)

    def trainings(self, out: Path) -> dict[Path, int]:
        high = self.folder(out) / f"high-{file_name(self.reward)}-*"
        return super().trainings(out) | ({} if self.flat else {high: self.high_updates})

    @property
    def identity(self) -> files.Cell:
        above: dict[str, Any] = {"reward": self.reward}
        if not self.flat:
            above |= {"high_config": digest(methods.config_values(self.high_config)), "high_updates": self.high_updates}
        return {**super().identity, **above}  # type: ignore[typeddict-item]

    def check(self, world: tasks.Task) -> None:
        _ = self.high_config
        spec = Spec(world.observation_dim, world.action_dim)
        if not self.flat and not has_rule("skill_of", self.config, spec):
            raise HilpError(f"{self.label} cannot name the skill of a segment: a hierarchy is of hilp or opal")

    def prompts(self, world: tasks.Task) -> tuple[int | str, ...]:
        return (self.reward,)

    def run(self, world: tasks.Task, out: Path, *, quiet: bool, command: str) -> list[Row]:
        """Train (or go on training) skills and high level, or the flat policy, and evaluate."""
        folder = self.folder(out)
        function, usual = setup.reward_function(world, self.reward), setup.default_shift(world, self.reward)
        labelled = rewards.label(self.data, function, **usual)  # first: a reward that asks for nothing is refused
        policy = self.train(world, folder, quiet, command, labelled if self.flat else None)
        if self.flat:
            return self.evaluate(policy, world, command, rewards=self.reward)
        # Skills that were trained on are other skills: their high level begins anew.
        about = {"policy": policy.fingerprint, **methods.config_values(self.high_config)}
        high = folder / f"high-{file_name(self.reward)}-{digest(about)}"
        prompt = hierarchy(
            policy,
            self.data,
            function,
            **usual,
            steps=self.high_updates,
            config=self.high_config,
            seed=self.seed,
            out=high,
            resume=(high / runs.RUN).is_file(),
            quiet=quiet,
            command=command,
            named=self.reward,
        )
        return self.evaluate(policy, world, command, rewards=self.reward, prompt=prompt)

    def folder(self, out: Path) -> Path:
        """Flat policies are trained for one reward, skills for any."""
        own = super().folder(out)
        return own.with_name(f"{own.name}-{file_name(self.reward)}") if self.flat else own

    def evaluate(self, policy: FoundationPolicy, world: tasks.Task, command: str, **prompts: Any) -> list[Row]:
        found = super().evaluate(policy, world, command, plan=(), **prompts)
        for row in found:
            if row["metric"] == "return":
                row["random"] = float(rollouts.random_return(world, self.reward, self.episodes, self.seed).mean())
        return found


def reward_for(world: tasks.Task, asked: str | None) -> str:
    """The reward of a table on a task: as asked for, else that of its far place, else its only one."""
    if asked is not None:
        setup.require_reward(world, asked)
        if asked in world.potentials:
            raise HilpError(
                f"'{asked}' rewards every step on the way: a table of hierarchies is of 'target' or a return"
            )
        return asked
    if setup.has_reward(world, setup.TARGET):
        return setup.TARGET
    if len(world.rewards) == 1:
        return next(iter(world.rewards))
    raise HilpError(f"task {world.name} has several rewards: choose one with --reward: {', '.join(world.rewards)}")
