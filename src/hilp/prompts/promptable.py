"""PromptablePolicy: an agent that acts, and makes prompts of what users say, of specs and of files.

What users know of every policy, whatever its backend. Loading runs no code.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, place_of, require_count, require_seed
from hilp.prompts import goal, graph_reward, reward, skills, specs
from hilp.prompts.agent import Agent, Batch, numbers, require_graph
from hilp.prompts.base import Prompt, SumPrompt, ThenPrompt, UntilPrompt
from hilp.prompts.goal import FollowPrompt, GoalPrompt
from hilp.prompts.memory import AgentMemory
from hilp.prompts.skills import AdaptedPrompt, HierarchyPrompt, PriorPrompt, SkillPrompt
from hilp.storage.arrays import read_arrays

Arrays = Mapping[str, np.ndarray]
Note = Mapping[str, Any]
DEEPEST = 20  # prompts in prompts
LARGEST_SKILL = 1e6  # numbers of a skill: those of policies have a length of 1, or of the root of their number
CHUNKS = "_chunks"  # the attribute of a prompt that remembers what its agents are playing, reset as all memories are


class PromptablePolicy(Agent):
    """A policy that takes prompts. Observations and actions are those of the user's data, not normalised."""

    def act(
        self, observation: Any, prompt: Prompt | np.ndarray | None = None, active: np.ndarray | None = None
    ) -> np.ndarray:
        """The action for one observation or a batch, under a prompt or a skill vector.

        A policy that was trained for one task (`skill_dim` 0) needs no prompt. active (bool [n]): agents whose action
        is used; nothing is planned for the others. A policy that answers chunks of actions plays them under a prompt,
        so a new episode begins with the prompt's reset(); under a skill vector it acts on the first one at every step.
        Discrete actions are whole numbers: one, or [n] of a batch. Where observations are stacks of the last rows, a
        prompt remembers those of its agents.
        """
        batch = self.seen(observation, prompt)
        active = None if active is None else _agents(active, len(batch))
        self.data_range.warn("observation", batch.tree)
        if not callable(prompt):
            action = self.chosen(self.rule("act", batch, self._skills(prompt, batch)))
            action = action if self.chunk == 1 else action[:, 0]
        else:
            self.require_own(_fingerprint(prompt))
            action = self._answer(batch, prompt, active) if self.chunk == 1 else self._played(batch, prompt, active)
        if self.spec.choices:  # a number an agent, as environments take it
            action = action[..., 0].astype(np.int64)
        return action[0] if batch.single else action

    def _answer(self, batch: Batch, prompt: Prompt, active: np.ndarray | None) -> np.ndarray:
        """What the actor answers under a prompt: an action an agent, or a chunk of them."""
        answer = prompt.step(batch) if batch.single else None
        if answer is None:
            z = prompt(batch) if active is None else prompt(batch, active=active)
            answer = self.rule("act", batch, self._skills(z, batch))
        if self.spec.choices and self.chunk == 1 and isinstance(prompt, Prompt):
            answer = prompt.untried(answer, batch, np.ones(len(batch), bool) if active is None else active)
        return self.chosen(answer)

    @property
    def horizon(self) -> int:
        """Actions that are played before the policy is asked anew, one a row of the user's log."""
        return 1 if self.chunk == 1 else self.play * self.stride

    def until_asked(self, answer: np.ndarray) -> np.ndarray:
        """What the actor answers to n agents, as all that each plays before it asks anew: n x horizon x act."""
        return answer[:, None] if self.chunk == 1 else np.repeat(answer[:, : self.play], self.stride, axis=1)

    def _played(self, batch: Batch, prompt: Prompt, active: np.ndarray | None) -> np.ndarray:
        """The next action of each agent's chunk; where all that are to be played were, the prompt is asked anew.

        A prompt sees every step, because what it remembers counts them; it plans only for agents that ask. An action
        lasts as many calls as the rows that a step of training spans.
        """
        played = self.play * self.stride
        agents = vars(prompt).setdefault(CHUNKS, AgentMemory(step=played, actions=np.float32(0.0)))
        agents.begin(len(batch), actions=self.play * self.spec.action_dim)
        due = agents["step"] >= played
        due = due if active is None else due & active  # who is not asked plans nothing, and begins when it is
        if due.any():
            answer = self._answer(batch, prompt, due)[:, : self.play]
            agents["actions"][due] = answer.reshape(len(batch), -1)[due]
            agents["step"][due] = 0
        else:
            prompt(batch, active=due)
        at = np.minimum(agents["step"] // self.stride, self.play - 1)
        agents["step"] += 1
        return agents["actions"].reshape(len(batch), self.play, -1)[np.arange(len(batch)), at]

    def _skills(self, z: Any, batch: Batch) -> np.ndarray:
        if z is None and self.skill_dim:
            raise HilpError(f"{self.method} acts on a prompt: give one, e.g. policy.goal(...)")
        z = numbers(() if z is None else z, "a skill", np.float32)
        wanted = (len(batch), self.skill_dim)
        if z.shape not in (wanted[1:], wanted):
            raise HilpError(f"a skill of this policy has {self.skill_dim} numbers (a batch {wanted}), not {z.shape}")
        if not np.isfinite(z).all():
            raise HilpError("the skill holds a NaN or an infinity")
        return np.broadcast_to(z, wanted)

    def goal(
        self,
        goal_observation: Any,
        plan: int | str = "auto",
        best: int = specs.BEST,
        radius: float | None = None,
        goal_dims: Sequence[int] | None = None,
        smooth: float | str = "auto",
    ) -> GoalPrompt:
        """Reach a goal observation. `plan` is "auto", "graph", "midpoints" or a number of midpoint recursions.

        0 heads straight for the goal, as in the paper, where 3 is HILP-Plan.
        "graph" heads for states of the data that are nearest to the goal by way of the graph of the data, and tells
        beforehand what it knows (`path`, `steps`, `support`, `reachable`). "midpoints" recurses until the subgoal is
        within `radius` latent steps; by default a share of phi's horizon. "auto" follows the graph wherever the data
        shows a way, and midpoints where it does not; it is 0 where a policy has no distances or keeps no states.

        goal_dims: the columns of the goal that count, if not all: a place, whatever the posture. A state of the data
        that agrees with the goal in these takes its place. smooth: take the agent to be at the mean of where it was
        over about so many steps, for bodies that walk and sensors with noise; "auto": as the data behind the policy
        asks, 1: where it is.
        """
        options = specs.Goal(None, plan=plan, best=best, radius=radius, goal_dims=goal_dims, smooth=smooth)  # type: ignore[arg-type]
        return goal.goal(self, goal_observation, options)

    def reward(
        self,
        data: Any = None,
        function: Callable[..., np.ndarray] | str | None = None,
        samples: int = 10_000,
        seed: int = 0,
        rule: str = "auto",
        intercept: bool = False,
        discount: float = specs.REWARD_DISCOUNT,
    ) -> Prompt:
        """Maximise a reward: a vectorised function of (s, a, s'), a formula, or a table (s, s', r) of labelled samples.

        A formula such as "height - 0.1*norm(action)" names parts of the observation at s' (hilp.prompts.formulas).

        data: a data set whose transitions the function is called with, or a table; without one, the policy's own bank.
        The function may take a fourth argument for named extra columns: x.before("qpos") at s, x.after("qpos") at s';
        the bank keeps the column `physics` only. rule="goal" makes the state of highest reward the goal (HILP-G)
        instead of finding the skill that follows the reward; methods without a reward rule do so always. intercept=True
        fits a constant too, so that adding one to the reward changes nothing. rule="graph" plans on the graph of the
        data, by value iteration with this `discount`; rule="auto" plans there wherever the graph expresses the reward,
        else it finds the skill (rule="skill"), as it does with an intercept.
        """
        if not (function is None or isinstance(function, str) or callable(function)):
            raise HilpError(f"a reward is a function of (s, a, s') or a formula, not {function!r:.60}")
        if not (data is None or isinstance(data, tuple) or hasattr(data, "transition_rows")):
            raise HilpError(f"a reward is fitted on a data set or on a table (s, s', r), not on {data!r:.60}")
        options = specs.Reward(None, rule=rule, intercept=intercept, discount=discount, samples=samples, seed=seed)
        return reward.reward(self, data, function, options)

    def skill(self, z: Any = None, seed: int = 0) -> SkillPrompt:
        """Follow one latent direction: z, or a random one."""
        if z is None and self.skill_dim == 0:
            return SkillPrompt(self, np.zeros(0, np.float32), spec=specs.Skill())
        self.require_rule("project", "has no skill rule: prompt it with a goal")
        drawn = np.random.default_rng(require_seed(seed)).normal(size=self.skill_dim) if z is None else None
        z = numbers(z, "a skill") if drawn is None else drawn
        if z.shape != (self.skill_dim,):
            raise HilpError(f"a skill of this policy has {self.skill_dim} numbers, not {z.shape}")
        if not np.isfinite(z).all() or not np.any(z):
            raise HilpError("a skill must be a finite direction, not zero or NaN")
        return SkillPrompt(self, self.project(z), spec=specs.Skill(None if drawn is not None else z, seed))

    def follow(self, trajectory: Any, window: int | None = None) -> FollowPrompt:
        """Follow a demonstration, observations [rows, obs], at its pace or faster; a new episode may begin on its way.

        window: rows ahead to head for; without one, as far as directions are trusted.
        """
        by_direction = self.has_rule("goal_direction")
        if not by_direction:
            self.require_rule("goal_skill", "has no goal rule, so it cannot follow a trajectory")
        elif window is None:
            self.require_rule("discount", "does not say how far its distances reach: say a window")
        window = None if window is None else require_count("window", window)
        rows = self.check(trajectory)
        if rows.single or len(rows) < 2:
            raise HilpError("a demonstration has at least two observations, one a row")
        latents = self.encode(rows) if by_direction else self.goal_skill(rows)
        return FollowPrompt(self, trees.over(np.array, rows.tree), window, latents, AgentMemory(row=0, begun=False))

    def prefer(self, pairs: Sequence[tuple[Any, Any]]) -> SkillPrompt:
        """The skill that explains preferences: pairs (better, worse) of segments, observations [rows, obs] each."""
        return skills.prefer(self, pairs)

    def prior(self, k: int | None = None, seed: int = 0) -> PriorPrompt:
        """Follow skills that the prior p(z | s) draws, a new one every k steps (as learnt, where the method says)."""
        return PriorPrompt(self, k, seed)

    def prompt(self, spec: specs.Spec, data: Any = None) -> Any:
        """The prompt of a spec (`hilp.prompts.specs`). data: whose transitions a reward is fitted on."""
        match spec:
            case specs.Goal(goal=None | str() as name):
                named = "without a goal" if name is None else f"to '{name}'"
                raise HilpError(f"a goal prompt {named} needs its task: give the numbers of an observation")
            case specs.Goal():
                return self.goal(spec.goal, **spec.options())
            case specs.Reward():
                return self.reward(data, spec.reward, **spec.options())
            case specs.Follow(trajectory=None | str()):
                raise HilpError("a follow prompt needs the rows of its demonstration, not the name of a file")
            case specs.Skill() | specs.Prior() | specs.Follow() | specs.Prefer():
                return getattr(self, spec.kind)(**vars(spec))
            case specs.Saved():
                return self.load_prompt(spec.path)
            case specs.Sum():
                return SumPrompt(tuple((weight, self.prompt(part, data)) for weight, part in spec.parts))
            case specs.Then():
                first, second = (self.prompt(part, data) for part in (spec.first, spec.second))
                return ThenPrompt(first, second, spec.until)
        raise HilpError(f"a prompt is made of a spec such as Goal(...), not of {spec!r:.60}")

    def load_prompt(self, path: str | os.PathLike[str]) -> Any:
        """A prompt saved earlier for this very policy."""
        return load(self, place_of("the path of a prompt", path))

    def high_level(self, arrays: Any, note: Any, path: Any) -> Any:
        """The high level of a saved hierarchy (see `hilp.prompts.skills.HierarchyPrompt`)."""
        raise NotImplementedError


def _fingerprint(prompt: Any) -> Any:
    if not hasattr(prompt, "fingerprint"):
        raise HilpError(f"a policy acts on one of its prompts or on a skill, not on {prompt!r:.60}: see policy.goal")
    return prompt.fingerprint


def _agents(active: Any, count: int) -> np.ndarray:
    """Which agents act, a truth each."""
    if isinstance(active, list | tuple) and all(isinstance(one, bool | np.bool_) for one in active):
        active = np.array(active, bool)
    if not isinstance(active, np.ndarray) or active.dtype != bool or active.shape != (count,):
        raise HilpError(f"active says True or False for each of {count} observations, not {active!r:.60}")
    return active


def load(policy: PromptablePolicy, path: Path, high_level: Callable[..., Any] | None = None) -> Prompt:
    """A prompt that was saved for this very policy. high_level: what reads high levels, if not the policy."""
    return _Reader(policy, path, high_level or policy.high_level).read(*read_arrays(path))


@dataclass
class _Reader:
    policy: PromptablePolicy
    path: Path
    high_level: Callable[..., Any]
    depth: int = 0

    def read(self, arrays: Arrays, note: Note) -> Prompt:
        if not isinstance(note, Mapping) or "kind" not in note:
            raise HilpError(f"{self.path} is not a prompt")
        self.policy.require_own(note.get("fingerprint"), self.path)
        try:
            return self._made(arrays, note)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise HilpError(f"{self.path} is not a whole prompt ({error!r}): make it again") from error

    def _made(self, arrays: Arrays, note: Note) -> Prompt:
        policy = self.policy
        match note["kind"]:
            case "goal":
                return goal.goal(policy, trees.unnamed(arrays, "goal"), self._spec(note, specs.Goal), matched=True)
            case "follow":
                window = self._spec(note, specs.Follow).window
                return policy.follow(trees.unnamed(arrays, "trajectory"), window)
            case "skill":
                z = policy._skills(arrays["z"], Batch(np.zeros((1, 1)), single=True))[0]
                if np.abs(z).max(initial=0.0) > LARGEST_SKILL:
                    raise ValueError("its skill is no direction that a policy has")
                return SkillPrompt(policy, np.array(z), note["r2"], note.get("agreement"), self._spec(note))
            case "prior":
                return policy.prompt(self._spec(note, specs.Prior))
            case "hierarchy":
                return HierarchyPrompt(policy, self.high_level(arrays, note, self.path))
            case "graph":
                require_graph(policy)
                return graph_reward.loaded(policy, arrays, note, self._spec(note))
            case "adapted":
                offset = np.asarray(arrays["offset"], np.float32)
                if offset.shape != (policy.skill_dim,) or not np.abs(offset).max(initial=0.0) <= LARGEST_SKILL:
                    raise ValueError("its offset is none of this policy's skills")
                return AdaptedPrompt(policy, self._part("first", arrays, note), offset)
            case "sum":
                parts = [self._part(str(number), arrays, note) for number in range(len(note["weights"]))]
                return SumPrompt(tuple(zip(map(float, note["weights"]), parts, strict=True)))
            case "until" | "then":
                return self._ended(arrays, note)
        raise HilpError(f"{self.path} is not a prompt")

    def _ended(self, arrays: Arrays, note: Note) -> Prompt:
        first, until = self._part("first", arrays, note), note["until"]
        ending = until["formula"] if until["steps"] is None else until["steps"]
        columns = {str(name): int(column) for name, column in until["columns"].items()}
        if note["kind"] == "until":
            return UntilPrompt(first, ending, columns)
        return ThenPrompt(first, self._part("second", arrays, note), ending, columns)

    def _spec(self, note: Note, kind: type[Any] | None = None) -> Any:
        """The spec in a note, where it has one; a KeyError or ValueError where it has to be of a kind and is not."""
        found = specs.from_json(note["spec"]) if kind is not None or "spec" in note else None
        if kind is not None and not isinstance(found, kind):
            raise ValueError("its spec is of another prompt")
        return found

    def _part(self, name: str, arrays: Arrays, note: Note) -> Prompt:
        if self.depth == DEEPEST:
            raise ValueError(f"more than {DEEPEST} prompts in prompts")
        prefix = f"{name}/"
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        return replace(self, depth=self.depth + 1).read(own, note["parts"][name])
