"""hilp_runtime: acts with a policy that `hilp export --to numpy` wrote. One file, and it needs numpy alone.

    import hilp_runtime
    policy = hilp_runtime.load("folder")
    go = policy.goal(goal_observation)              # or plan="auto", plan=3; policy.reward(...), policy.skill(...)
    action = policy.act(observation, go)            # at every step; a batch of observations gives a batch of actions

Loading runs no code of the folder: a policy is arrays, and programs made of the few steps that STEPS lists.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.export.runtime_prompts import Goal, GraphGoal, GraphReward, Held, Prompt, Skill, by_sweeps
from hilp.policy.directed_planning import DirectedMidpoints
from hilp.policy.graph import Graph
from hilp.policy.graph_planner import GraphPlanner
from hilp.policy.graph_rewards import Plan
from hilp.policy.latent_ema import LatentEma, require_smooth
from hilp.policy.planning import BEST, MOST_RECURSIONS, NAMED, Midpoints, trust_radius
from hilp.policy.reward_prompts import POOR_FIT, least_squares
from hilp.storage.arrays import read_arrays

FORMAT, VERSION = "hilp-numpy", 3
POLICY = "policy.safetensors"
REWARD_RULES = ("cumulant", "backward", "project")
STEPS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "tanh": np.tanh, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs, "sin": np.sin, "matmul": np.dot,
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal, "where": np.where,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "sum": lambda x, axes=None: _over(np.add, x, axes), "largest": lambda x, axes=None: _over(np.maximum, x, axes),
    "any": lambda x, axes=None: _over(np.logical_or, x, axes),
    "pad": lambda x, before, behind: np.pad(x, ((0, 0), (before, behind))),
    "flatten": lambda x: x.reshape(len(x), int(np.prod(x.shape[1:]))),
    "concat": lambda *x: np.concatenate(x, axis=1), "slice": lambda x, first, last: x[:, first:last],
    "take": lambda x, columns: x[:, columns], "cast": lambda x, to: x.astype(to),
    "expand": lambda x, shape: np.broadcast_to(x, (len(x), *shape)),
    "reshape": lambda x, shape: x.reshape(len(x), *shape), "transpose": lambda x, axes: x.transpose(axes),
    "conv": lambda x, kernel, strides, padding: _conv(x, kernel, strides, padding),
    "pool": lambda x, sizes, strides, padding: _windows(x, sizes, strides, padding, -np.inf).max(axis=(-2, -1)),
}  # fmt: skip
PAIRS_AT_A_TIME = 256  # whose distances are computed together, so that what a step makes stays in cache
PICTURES_AT_A_TIME = 16  # whose windows are laid out side by side: each takes the memory of as many pictures


def _over(reduced: np.ufunc, x: np.ndarray, axes: Any) -> np.ndarray:
    """Over the numbers of rows, which are rows of one then; or over these axes of a value with more."""
    if axes is None:
        return np.asarray(reduced.reduce(x, axis=1, keepdims=True))
    return np.asarray(reduced.reduce(x, axis=tuple(axes)))


def _windows(x: np.ndarray, sizes: Any, strides: Any, padding: Any, outside: float = 0.0) -> np.ndarray:
    """Windows of pictures: rows x places down x places across x channels x height x width of a window."""
    padded = np.pad(x, ((0, 0), *padding, (0, 0)), constant_values=outside)
    across: Any = (1, 2)
    return np.lib.stride_tricks.sliding_window_view(padded, sizes, axis=across)[:, :: strides[0], :: strides[1]]


def _conv(x: np.ndarray, kernel: np.ndarray, strides: Any, padding: Any) -> np.ndarray:
    """Pictures convolved with a kernel, height x width x channels in x out."""
    blocks = [x[first : first + PICTURES_AT_A_TIME] for first in range(0, max(1, len(x)), PICTURES_AT_A_TIME)]
    found = [_windows(block, kernel.shape[:2], strides, padding) for block in blocks]
    return np.concatenate([np.tensordot(one, kernel, axes=([4, 5, 3], [0, 1, 2])) for one in found])


class Program:
    """Steps over rows of numbers. Values 0, 1, ... are the inputs, each step makes the next one."""

    def __init__(self, described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]):
        self.inputs = tuple(described["inputs"])
        constants: list[Any] = []
        places: dict[Any, int] = {}

        def place(operand: Any) -> int:
            """Where a value lies: constants first, then inputs and steps (numbered from behind the constants)."""
            if isinstance(operand, int):
                return operand
            if operand not in places:
                places[operand] = -1 - len(constants)
                constants.append(arrays[operand] if isinstance(operand, str) else operand)
            return places[operand]

        steps = []
        for name, *operands in described["steps"]:
            parameters = operands.pop() if isinstance(operands[-1], dict) else {}
            steps.append((_step(name, parameters), [place(operand) for operand in operands]))
        self._output = place(described["output"])
        count = len(constants)
        self._constants = constants[::-1]  # -1 is the last of them
        self._steps = [(run, [at + count for at in operands]) for run, operands in steps]
        self._output += count

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        values = self._constants.copy()
        values += inputs
        keep = values.append
        for run, operands in self._steps:
            if len(operands) == 2:
                keep(run(values[operands[0]], values[operands[1]]))
            else:
                keep(run(*[values[at] for at in operands]))
        found: np.ndarray = values[self._output]
        return found


def _step(name: str, parameters: dict[str, Any]) -> Callable[..., Any]:
    run = STEPS[name]
    return (lambda *x: run(*x, **parameters)) if parameters else run


def load(folder: str | os.PathLike[str] | None = None) -> Policy:
    """The policy in a folder; without one, in the folder of this file."""
    path = Path(folder) if folder is not None else Path(__file__).parent
    arrays, note = read_arrays(path / POLICY)
    if note.get("format") != FORMAT or note.get("version") != VERSION:
        raise HilpError(f"{path} is not a policy that `hilp export --to numpy` wrote for this runtime: export it again")
    return Policy(arrays, note, path)


class Policy:
    """A policy that takes prompts. Observations and actions are those of the data that it was trained on."""

    def __init__(self, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any], folder: Path):
        self.folder, self.arrays, self.note = folder, arrays, note
        self.method: str = note["method"]
        self.fingerprint: str = note["fingerprint"]
        self.skill_dim: int = note["skill_dim"]
        self.observation_dim: int = note["observation_dim"]
        self.action_dim: int = note["action_dim"]
        self.parts = [(name, tuple(shape), kind) for name, shape, kind in note["parts"]]
        self.rules = {name: Program(described, arrays) for name, described in note["programs"].items()}
        self._midpoints: Midpoints | None = None
        self._planner: GraphPlanner | None = None

    # ---- using it ----------------------------------------------------------------------------------------------------

    def act(self, observation: Any, prompt: Any = None) -> np.ndarray:
        """The action for one observation or a batch, under a prompt or a skill vector."""
        observations, single = self.batched(observation)
        if isinstance(prompt, Prompt):
            if prompt.policy.fingerprint != self.fingerprint:
                raise HilpError("this prompt was made for another policy: make it again with this one")
            actions = prompt.act(observations)
        elif prompt is None and self.skill_dim:
            raise HilpError(f"{self.method} acts on a prompt: give one, e.g. policy.goal(...)")
        else:
            actions = self.act_on(observations, self._skill(() if prompt is None else prompt, observations))
        return actions[0] if single else actions

    def act_on(self, observations: list[np.ndarray], z: np.ndarray) -> np.ndarray:
        """Actions for checked observations and skills."""
        return self.rules["act"](*observations, z)

    def encode(self, observation: Any) -> np.ndarray:
        """phi of one observation or a batch."""
        observations, single = self.batched(observation)
        latents = self.rule("encode", "has no latent map")(*observations)
        return latents[0] if single else latents

    def distance(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """From one latent to another by the method's own rule; leading axes are broadcast."""
        rule, shape = self.rule("distance", "has no distances of its own"), np.broadcast_shapes(here.shape, there.shape)
        pairs = [np.broadcast_to(latents, shape).reshape(-1, shape[-1]) for latents in (here, there)]
        blocks = [slice(first, first + PAIRS_AT_A_TIME) for first in range(0, len(pairs[0]), PAIRS_AT_A_TIME)]
        return np.concatenate([rule(*(one[block] for one in pairs)) for block in blocks]).reshape(shape[:-1])

    @property
    def discount(self) -> float:
        """Of latent distances: they are told apart up to about 1 / (1 - discount) steps."""
        return float(self.note["discount"])

    @property
    def midpoints(self) -> Midpoints:
        """Latents of the states that the policy keeps, for plans."""
        if self._midpoints is None:
            latents = self.arrays["bank.latents"]
            directed = self.note["directed"]
            self._midpoints = DirectedMidpoints(latents, self.distance) if directed else Midpoints(latents)
        return self._midpoints

    @property
    def planner(self) -> GraphPlanner:
        """The graph of the data, for plans."""
        if not self.note["graph"]:
            raise HilpError(self.note["refused"].get("act_between", "this policy was exported without a graph"))
        if self._planner is None:
            columns = {name: self.arrays[f"graph.{name}"] for name in self.note["graph"]}
            graph = Graph.from_columns(columns, len(self.midpoints))
            self._planner = GraphPlanner(graph, self.midpoints, self.discount, by_sweeps)
        return self._planner

    # ---- prompts -----------------------------------------------------------------------------------------------------

    def goal(
        self, goal: Any, plan: int | str = 0, best: int = BEST, radius: float | None = None, smooth: float | None = None
    ) -> Prompt:
        """Reach a goal observation. `plan` is a number of midpoint recursions, "midpoints" (as many as it takes),
        "graph" (the ways that the data has gone), or "auto": the graph where it shows a way, midpoints elsewhere.
        smooth: take the agent to be at the mean of where it was over about so many steps.
        """
        goals, _ = self.batched(goal)
        if "act_towards" in self.note["refused"]:
            raise HilpError(self.note["refused"]["act_towards"])
        if plan not in NAMED and not (type(plan) is int and 0 <= plan <= MOST_RECURSIONS):
            raise HilpError(
                f"plan is a number of recursions from 0 to {MOST_RECURSIONS} or one of {', '.join(NAMED)}, not {plan!r}"
            )
        if "act_towards" not in self.rules:
            if plan != 0 or smooth is not None:
                raise HilpError(f"{self.method} has no latent distances to plan with: use plan=0, and not smooth")
            return Skill(self, self.rule("goal_skill", "has no goal rule: prompt it with a reward")(*goals))
        if plan != 0 and "distance" in self.note["refused"]:
            raise HilpError(f"{self.note['refused']['distance']}: use plan=0")
        if plan != 0 and not self.note["bank"]:
            raise HilpError("this policy was exported without a bank of states, so it cannot plan: use plan=0")
        if best < 1 or (radius is not None and not radius > 0.0):
            raise HilpError(f"planning needs at least one best midpoint and a radius above 0, not {best} and {radius}")
        if smooth is not None:
            require_smooth(smooth)
        calm = None if smooth is None else LatentEma(smooth, trust_radius(self.discount))
        latents = self.rules["encode"](*goals)
        if type(plan) is int:
            return Goal(self, latents, plan, best, 0.0, calm)
        if radius is None and self.note["discount"] is None:
            raise HilpError(f"{self.method} does not say how far its distances reach: use a number as plan")
        if plan == "graph" or (plan == "auto" and radius is None and self.note["auto"] == "graph"):
            return GraphGoal(self, latents, best, trust_radius(self.discount) if plan == "auto" else None, calm)
        return Goal(self, latents, "auto", best, trust_radius(self.discount) if radius is None else radius, calm)

    def skill(self, z: Any = None, seed: int = 0) -> Prompt:
        """Follow one latent direction, given or random."""
        if z is None and self.skill_dim == 0:
            return Skill(self, np.zeros((1, 0), np.float32))
        self.rule("project", "has no skill rule: prompt it with a goal")
        z = np.random.default_rng(seed).normal(size=self.skill_dim) if z is None else np.asarray(z, np.float64)
        if z.shape != (self.skill_dim,) or not np.isfinite(z).all() or not np.any(z):
            raise HilpError(f"a skill of this policy is a direction of {self.skill_dim} finite numbers, not all zero")
        return Skill(self, self.project(z[None]))

    def project(self, z: np.ndarray) -> np.ndarray:
        """The valid skills in the directions of z, [n, dim]."""
        return self.rules["project"]((z / np.linalg.norm(z, axis=-1, keepdims=True)).astype(np.float32))

    def reward(
        self, function: Any = None, table: Any = None, samples: int = 10_000, seed: int = 0, rule: str = "skill",
        intercept: bool = False,
    ) -> Prompt:  # fmt: skip
        """Maximise a reward: a vectorised function of (s, a, s'), asked about the policy's bank, or a table (s, s', r).

        rule="goal" makes the state of highest reward the goal; methods without a reward rule do so always.
        """
        if rule not in ("skill", "goal"):
            raise HilpError(
                f"the exported runtime finds a 'skill' or a 'goal' for a reward, not '{rule}': have hilp plan on the "
                "graph, save the prompt, and take it along (hilp export --prompts)"
            )
        refused = [self.note["refused"][one] for one in REWARD_RULES if one in self.note["refused"]]
        if rule == "skill" and refused:
            raise HilpError(f"{refused[0]}; rule='goal' goes to the state of highest reward")
        before, after, rewards = self._labelled(function, table, samples, seed)
        by_features = "cumulant" in self.rules or "backward" in self.rules
        if rule == "goal" or not by_features:
            best = int(np.argmax(rewards))
            return self.goal(self._as_given([part[best] for part in after]))
        backward = "cumulant" not in self.rules
        x = self.rules["backward"](*after) if backward else self.rules["cumulant"](*before, *after)
        centred = (x - x.mean(axis=0), rewards - rewards.mean()) if intercept else (x, rewards)
        z, r2 = least_squares(*centred)
        if backward:
            z = centred[1] @ x / len(x)
        if not np.any(z):
            raise HilpError("phi does not change on the sampled data, so no skill can follow a reward")
        if r2 < POOR_FIT:
            warnings.warn(f"phi expresses only R^2 = {r2:.2f} of this reward", stacklevel=2)
        return Skill(self, self.project(z[None]))

    def prior(self, k: int | None = None, seed: int = 0) -> Prompt:
        """Follow skills that the prior p(z | s) draws, a new one every k steps."""
        draw = self.rule("prior", "has no prior over skills")
        horizon = self.note["skill_horizon"]
        if k is not None and (horizon not in (None, k) or k < 1):
            raise HilpError(
                f"skills of this policy were learnt for {horizon or 'at least 1'} steps, not {k}: leave k out"
            )
        steps = (horizon or k or 10) * self.note["stride"]

        def choose(observations: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
            noise = rng.standard_normal((len(observations[0]), self.skill_dim)).astype(np.float32)
            return draw(*observations, noise)

        return Held(self, choose, steps, seed)

    def load_prompt(self, path: str | os.PathLike[str]) -> Prompt:
        """A prompt that hilp saved for this policy; a hierarchy as `hilp export --prompts` wrote it."""
        arrays, note = read_arrays(Path(path))
        if note.get("fingerprint") != self.fingerprint:
            raise HilpError(f"{path} is not a prompt for this policy ({self.fingerprint[:8]}): make it again")
        kind = note.get("kind")
        if kind == "skill":
            return Skill(self, np.atleast_2d(arrays["z"]))
        if kind == "prior":
            return self.prior(note["k"], note["seed"])
        if kind == "goal":
            named = {name.partition("/")[2]: part for name, part in arrays.items()}
            how = (note["plan"], note["best"], note["radius"], note.get("smooth"))
            return self.goal(named if self.parts else arrays["goal"], *how)
        if kind == "graph":
            columns = {name: np.asarray(arrays[name], np.float64) for name in ("state_reward", "potential", "values")}
            if any(column.shape != (len(self.planner.graph),) for column in columns.values()):
                raise HilpError(f"{path} does not fit the graph of this policy: make it again")
            plan = Plan(**columns, discount=note["discount"], r2=note["r2"], model=note["model"])
            return GraphReward(self, plan, note["best"])
        if kind == "exported hierarchy":
            high, projects = Program(note["program"], arrays), "project" in self.rules

            def choose(observations: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
                nothing = np.zeros((len(observations[0]), 0), np.float32)
                skills = high(*observations, nothing)
                return self.project(skills.astype(np.float64)) if projects else skills

            return Held(self, choose, note["steps"])
        raise HilpError(f"{path} is a prompt of the kind '{kind}', which this runtime does not know: export it again")

    # ---- what is given -----------------------------------------------------------------------------------------------

    def rule(self, name: str, lacking: str) -> Program:
        if name not in self.rules:
            raise HilpError(self.note["refused"].get(name, f"{self.method} {lacking}"))
        return self.rules[name]

    def batched(self, observation: Any) -> tuple[list[np.ndarray], bool]:
        """The parts of observations as batches, checked, and whether a single one was given."""
        if not self.parts:
            if isinstance(observation, Mapping):
                observation = self._put_together(observation)
            one, single = self._rows(observation, (self.observation_dim,), "float32", "an observation of this policy")
            return [one], single
        if not isinstance(observation, Mapping):
            raise HilpError(f"this policy takes observations by name: {', '.join(name for name, _, _ in self.parts)}")
        for name, _, _ in self.parts:
            if name not in observation:
                raise HilpError(f"part '{name}' of the observation is not given")
        found = [self._rows(observation[name], shape, kind, f"part '{name}'") for name, shape, kind in self.parts]
        if len({(len(part), single) for part, single in found}) > 1:
            raise HilpError("the parts of an observation have different numbers of rows")
        return [part for part, _ in found], found[0][1]

    def _put_together(self, named: Mapping[str, Any]) -> np.ndarray:
        """An observation (or a batch) from its named parts, in the order of the data; others are left."""
        known = {name: tuple(shape) for name, shape in self.note["observation_parts"]}
        lacking = [name for name in known if name not in named]
        if lacking or not known:
            raise HilpError(f"'{lacking[0]}' of the observation is not given" if lacking else "give one array")
        found = [self._rows(named[name], shape, "float32", f"part '{name}'") for name, shape in known.items()]
        if len({(len(part), single) for part, single in found}) > 1:
            raise HilpError("the parts of an observation have different numbers of rows")
        rows = np.concatenate([part.reshape(len(part), -1) for part, _ in found], axis=1)
        return rows[0] if found[0][1] else rows

    def _rows(self, values: Any, shape: tuple[int, ...], kind: str, what: str) -> tuple[np.ndarray, bool]:
        try:
            array = np.asarray(values).astype(kind, casting="safe" if kind == "uint8" else "unsafe", copy=False)
        except (TypeError, ValueError) as error:
            raise HilpError(f"{what} must be {kind}: {error}") from error
        single = array.shape == shape
        if not single and array.shape[1:] != shape:
            raise HilpError(f"{what} has the shape {shape}, or (n, ...) for a batch, not {array.shape}")
        if kind != "uint8" and not np.isfinite(array).all():
            raise HilpError(f"{what} holds a NaN or an infinity")
        return (array[None] if single else array), single

    def _skill(self, z: Any, observations: list[np.ndarray]) -> np.ndarray:
        try:
            skill = np.asarray(z, np.float32)
        except (TypeError, ValueError) as error:
            raise HilpError(f"a skill must be numbers: {error}") from error
        wanted = (len(observations[0]), self.skill_dim)
        if skill.shape not in (wanted[1:], wanted) or not np.isfinite(skill).all():
            raise HilpError(f"a skill of this policy has {self.skill_dim} finite numbers, not {skill.shape}")
        return np.broadcast_to(skill, wanted)

    def _as_given(self, parts: list[np.ndarray]) -> Any:
        """Observations as the user knows them; copies, because a reward may write into them."""
        if not self.parts:
            return parts[0].copy()
        return {name: part.copy() for (name, _, _), part in zip(self.parts, parts, strict=True)}

    def _bank(self, column: str) -> list[np.ndarray]:
        names = [f"bank.{column}/{name}" for name, _, _ in self.parts] if self.parts else [f"bank.{column}"]
        return [self.arrays[name] for name in names]

    def _labelled(self, function: Any, table: Any, samples: int, seed: int) -> Any:
        """s, s' and the rewards of transitions."""
        if (function is None) == (table is None):
            raise HilpError(
                "a reward is a function of (s, a, s') or a table (observations, next observations, rewards)"
            )
        if table is not None:
            before, after = (self.batched(observations)[0] for observations in table[:2])
            rewards = np.asarray(table[2], np.float64)
        else:
            if not self.note["bank"]:
                raise HilpError("this policy was exported without a bank of states: give a table of labelled samples")
            count = len(self.arrays["bank.actions"])
            drawn = np.random.default_rng(seed).choice(count, samples, replace=False) if count > samples else None
            at = slice(None) if drawn is None else np.sort(drawn)
            before, after = ([part[at] for part in self._bank(name)] for name in ("observations", "next_observations"))
            asked = (self._as_given(before), self.arrays["bank.actions"][at].copy(), self._as_given(after))
            rewards = np.asarray(function(*asked), np.float64)
        if rewards.shape != (len(after[0]),) or len(before[0]) != len(after[0]):
            raise HilpError(f"a reward is one number a transition, {(len(after[0]),)}, not {rewards.shape}")
        if not np.isfinite(rewards).all() or np.ptp(rewards) == 0.0:
            raise HilpError("the reward is not finite, or the same everywhere, so it asks for nothing")
        return before, after, rewards
