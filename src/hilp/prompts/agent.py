"""Agent: what prompts ask of a policy, over numpy. `FoundationPolicy` and the exported runtime both are one.

A backend gives the attributes of `Agent` and `rule`; all else is here, so both act on prompts by the same code: how
observations of a call are checked and brought to a batch once, and held against the range of the data, too.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, PromptUnsupported, some
from hilp.prompts import graph, value_graph
from hilp.prompts.bank import Bank, LatentBank
from hilp.prompts.graph import Graph, GraphPlanner
from hilp.prompts.memory import RecentRows
from hilp.prompts.midpoints import DirectedMidpoints, Midpoints
from hilp.prompts.value_graph import ValuePlanner
from hilp.spec import Spec
from hilp.trees import Tree

Parts = tuple[tuple[str, tuple[int, ...]], ...]  # named parts of one flat vector
FAR = 1.0  # ranges of a column beyond its smallest and largest value
STILL = 0.1  # the same for a column of one value, in units of that value, or of 1 where it is smaller
AT_GOAL = 1e-3  # latent steps: this near a direction is that of rounding errors, so there is none, and the skill is 0
BLOCK = 4096  # images encoded at a time
RECENT = "_recent"  # the attribute of a prompt that remembers what its agents saw, reset as all memories are


class Batch:
    """Checked observations [n, ...] of one call; what networks take of them is computed once."""

    __slots__ = ("_prepared", "latents", "single", "tree")

    def __init__(self, tree: Tree, single: bool, latents: np.ndarray | None = None) -> None:
        self.tree, self.single, self.latents = tree, single, latents
        self._prepared: Any = None

    def __len__(self) -> int:
        return trees.rows(self.tree)

    @property
    def arrays(self) -> list[np.ndarray]:
        """As exported programs take them, which prepare them themselves."""
        return list(trees.named(self.tree, "").values())

    def prepared(self, prepare: Callable[[Tree], Any]) -> Any:
        """The observations as the networks take them."""
        if self._prepared is None:
            self._prepared = prepare(self.tree)
        return self._prepared

    def take(self, rows: np.ndarray | slice) -> "Batch":
        """Some of the rows."""
        latents = None if self.latents is None else self.latents[rows]
        return Batch(trees.over(lambda part: part[rows], self.tree), False, latents)


def numbers(values: Any, name: str, kind: Any = np.float64) -> np.ndarray:
    """An array of numbers; a HilpError where they are none."""
    try:
        found = np.asanyarray(values)
        require_plain(found, name)
        return np.asarray(found, kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise HilpError(f"{name} must be numbers: {error}") from error


def require_plain(array: np.ndarray, name: str) -> None:
    """Raise where numpy would make numbers of what are none: masked values, dates, texts, complex numbers."""
    if isinstance(array, np.ma.MaskedArray):
        raise HilpError(f"{name} is a masked array, whose masked values are no numbers: fill them first")
    if array.dtype.kind in "mMSUc":
        raise HilpError(f"{name} must be numbers, not {array.dtype}")


def _check_parts(observation: Any, parts: Sequence[tuple[str, tuple[int, ...], str]]) -> Batch:
    """The same for named arrays, in the order of the data; names that the policy does not know are left out."""
    about = some([f"{name} {kind} {shape}" for name, shape, kind in parts])
    if not isinstance(observation, Mapping):
        raise HilpError(f"this policy takes observations by name ({about}): give a dict of arrays")
    lacking = [name for name, _, _ in parts if name not in observation]
    if lacking:
        raise HilpError(f"this policy's observation is made of {about}, and '{lacking[0]}' is missing")
    arrays = {name: _check_part(name, observation[name], shape, kind) for name, shape, kind in parts}
    counts = {None if arrays[name].shape == shape else len(arrays[name]) for name, shape, _ in parts}
    if len(counts) > 1:
        raise HilpError(f"the parts of an observation ({about}) have different numbers of rows")
    single = counts == {None}
    return Batch({name: array[None] if single else array for name, array in arrays.items()}, single)


def _check_part(name: str, values: Any, shape: tuple[int, ...], kind: str) -> np.ndarray:
    try:
        found = np.asanyarray(values)
        require_plain(found, f"part '{name}' of an observation")
        exact = np.asarray(found).astype(kind, casting="safe" if kind == "uint8" else "unsafe")
    except (TypeError, ValueError, OverflowError) as error:
        raise HilpError(f"part '{name}' of an observation must be {kind}: {error}") from error
    if shape not in (exact.shape, exact.shape[1:]):
        turned = len(shape) == 3 and exact.shape[-3:] == (shape[2], shape[0], shape[1])
        hint = f"; channels come last: np.moveaxis({name}, -3, -1)" if turned else ""
        raise HilpError(f"part '{name}' of an observation is {shape}, or [n, ...] for a batch, not {exact.shape}{hint}")
    if kind != "uint8" and not np.isfinite(exact).all():
        raise HilpError(f"part '{name}' of the observation holds a NaN or an infinity")
    return exact


class DataRange:
    """The range of the states that a policy keeps; warns, once a kind, of what is far outside.

    A policy without a bank has no range. Columns that networks do not see, and angles, cannot be outside.
    """

    def __init__(self, bank: Any, parts: Parts, transform: Any | None) -> None:
        self._warned: set[str] = set()
        self._names = [(name, int(np.prod(shape))) for name, shape in parts]
        self._limits: dict[str, tuple[np.ndarray, ...]] = {}  # least and most of the data, and what is far outside
        after = _by_name(bank.next_observations)
        for name, before in _by_name(bank.observations).items():
            if not len(before) or before.dtype == np.uint8:
                continue
            low = np.minimum(before.min(axis=0), after[name].min(axis=0))
            high = np.maximum(before.max(axis=0), after[name].max(axis=0))
            still = STILL * np.maximum(1.0, np.abs(low))
            margin = np.where(high > low, FAR * (high - low), still).astype(np.float32)
            if transform is not None:
                angles = dict(transform.angles)
                of_row = [c % transform.width for c in range(len(margin))]
                margin[[at for at, c in enumerate(of_row) if c not in transform.columns or c in angles]] = np.inf
            self._limits[name] = (low, high, low - margin, high + margin)

    def warn(self, what: str, observations: Tree) -> None:
        """Warn of a batch that leaves the range, the first time that one of this kind does."""
        if what in self._warned or not self._limits:
            return
        columns = _by_name(observations)
        for name, (least, most, low, high) in self._limits.items():
            rows = columns[name]
            if not ((rows < low).any() or (rows > high).any()):
                continue
            self._warned.add(what)
            row, *column = np.argwhere((rows < low) | (rows > high))[0]
            at = tuple(column)
            warnings.warn(
                f"this {what} is far outside the data behind the policy ({self._name(name, column)} is "
                f"{float(rows[(row, *at)]):.4g}, the data has {float(least[at]):.4g} to {float(most[at]):.4g}): do not "
                "expect it to know what to do there",
                stacklevel=4,
            )
            return

    def _name(self, part: str, column: list[int]) -> str:
        """What to call a column: by its part, or by its number."""
        place = int(column[0]) if len(column) == 1 else -1
        if part:
            return f"'{part}'" + (f" column {place}" if place >= 0 else "")
        for name, size in self._names:
            if place < size:
                return name if size == 1 else f"{name}[{place}]"
            place -= size
        return f"column {int(column[0])}"


def _by_name(tree: Tree) -> dict[str, np.ndarray]:
    return tree if isinstance(tree, dict) else {"": tree}


class Agent:
    """The rules of a policy's method (hilp.learning.methods), and what is kept of its data."""

    method: str
    fingerprint: Any
    spec: Spec
    bank: Bank
    latent_bank: LatentBank | None
    graph: Graph | None  # from training; None: that of the bank's own transitions
    observation_parts: Parts
    skill_dim: Any
    stride: Any  # rows of the user's log that a step of training spans
    chunk: Any  # actions that `act` answers at once; with more than one they are rows x chunk x act
    play: Any  # of them played before the policy is asked anew
    skill_horizon: Any  # steps that skills of segments were learnt for; None where any number will do
    known_discount: Any  # `discount`, where the method says it
    transform: Any  # which columns networks see, and which are angles; None: all, and none

    def rule(self, name: str, *inputs: Any) -> np.ndarray:
        """What a rule gives for checked observations (`Batch`), skills and latents.

        Rules that act give actions in the user's units; of discrete actions a score for each choice.
        """
        raise NotImplementedError

    def chosen(self, answers: np.ndarray) -> np.ndarray:
        """The actions [..., act] of what a rule that acts gives: of discrete ones the choice with the largest score."""
        return answers.argmax(axis=-1)[..., None] if self.spec.choices else answers

    def has_rule(self, name: str) -> bool:
        """Whether the method behind this policy has a rule."""
        raise NotImplementedError

    def require_rule(self, name: str, lacking: str) -> None:
        """Raise unless the method behind this policy has a rule."""
        if not self.has_rule(name):
            raise PromptUnsupported(f"{self.method} {lacking}")

    def require_own(self, fingerprint: Any, what: Any = "this prompt") -> None:
        """Raise unless a prompt of this fingerprint is one of this very policy."""
        if fingerprint != self.fingerprint:
            raise HilpError(
                f"{what} was made for policy {str(fingerprint)[:8]}, not for this one ({self.fingerprint[:8]}): "
                "make it again with this policy"
            )

    def check(self, observation: Any, what: str = "observation", always: bool = False) -> Batch:
        """One observation (or what else it is) or several, in whatever shape, as a checked batch; one stays one.

        always: where observations are stacks of rows, one row is taken to be all of them, as at an episode's start.
        """
        if isinstance(observation, Batch):
            return observation
        if self.spec.parts:
            return _check_parts(observation, self.spec.parts)
        found, stack = self._vectors(observation, what), self.spec.history
        if found.tree.shape[1] == self.spec.observation_dim:
            return found
        if not always:
            raise HilpError(
                f"this policy sees the last {stack} observations at once, and this is one: act under a prompt, which "
                f"remembers them, or give {self.spec.observation_dim} numbers, as data with frames={stack} has them"
            )
        nothing = self.spec.observation_dim - found.tree.shape[1]  # changed
        return Batch(np.pad(found.tree, ((0, 0), (nothing, 0))), found.single)

    def seen(self, observation: Any, prompt: Any) -> Batch:
        """The checked batch that agents see: where it is stacks, a prompt puts each row behind those before it."""
        if isinstance(observation, Batch) or self.spec.history == 1 or not hasattr(prompt, "fingerprint"):
            return self.check(observation)
        found = self._vectors(observation, "observation")
        if found.tree.shape[1] == self.spec.observation_dim:
            return found
        recent = vars(prompt).setdefault(RECENT, RecentRows(self.spec.history))
        return Batch(recent(found.tree), found.single)

    def _vectors(self, observation: Any, what: str) -> Batch:
        """The same of vectors, which may be whole observations, or single rows of what they stack."""
        if isinstance(observation, Mapping):
            if not self.observation_parts:
                raise HilpError("the data of this policy had no named parts: give an observation as one array")
            named = _check_parts(observation, [(name, shape, "float32") for name, shape in self.observation_parts])
            flat = [part.reshape(len(named), -1) for part in named.tree.values()]
            return Batch(np.concatenate(flat, axis=1), named.single)
        array = numbers(observation, f"the {what}", np.float32)
        dim, row = self.spec.observation_dim, self.spec.of_row.observation_dim
        if array.ndim not in (1, 2) or array.shape[-1] not in (dim, row):
            raise HilpError(f"this policy takes {what}s of {dim} numbers (or batches [n, {dim}]), not {array.shape}")
        if not np.isfinite(array).all():
            raise HilpError(f"the {what} holds a NaN or an infinity")
        return Batch(array[None], True) if array.ndim == 1 else Batch(array, False)

    def encode(self, observation: Any) -> np.ndarray:
        """phi of one observation or a batch."""
        return self._of_each("encode", "has no latent map", observation)

    @property
    def plans_by_steps(self) -> bool:
        """Whether it has no phi to plan in, but says how many steps lie between two states, as the skills of goals."""
        return self.has_rule("steps") and not self.spec.pictures  # of pictures that would take seconds

    def goal_skill(self, goal: Any) -> np.ndarray:
        """The one skill that a goal stands for, of one goal or a batch."""
        return self._of_each("goal_skill", "has no goal rule", goal)

    def _of_each(self, rule: str, lacking: str, observation: Any) -> np.ndarray:
        self.require_rule(rule, lacking)
        batch = self.check(observation)
        found = self.rule(rule, batch)
        return found[0] if batch.single else found

    def latents(self, batch: Batch) -> np.ndarray:
        """What plans know a checked batch by, computed once: phi, or the skill of being there."""
        if batch.latents is None:
            batch.latents = self.rule("goal_skill" if self.plans_by_steps else "encode", batch)
        return batch.latents

    def encode_goal(self, goal: Batch) -> np.ndarray:
        """phi of one checked goal, [1, dim]; a backend may do so by the program that acts on the way there."""
        return self.rule("encode", goal)

    def encode_all(self, rows: Tree, numbers: np.ndarray | None = None) -> np.ndarray:
        """The latents of any number of rows, or of these; images in blocks, because they take more memory."""
        if not self.plans_by_steps:
            self.require_rule("encode", "has no latent map")
        if not self.spec.parts:
            return self.latents(Batch(self.check(rows if numbers is None else rows[numbers]).tree, False))
        count = trees.rows(rows) if numbers is None else len(numbers)
        blocks: list[Any] = [slice(first, first + BLOCK) for first in range(0, max(1, count), BLOCK)]
        wanted = blocks if numbers is None else [numbers[block] for block in blocks]
        return np.concatenate(
            [self.latents(self.check(trees.over(lambda part, at=at: part[at], rows))) for at in wanted]
        )

    def goal_direction(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """The skill that moves from one latent to another; 0 where they are the same to within rounding errors."""
        self.require_rule("goal_direction", "has no goal rule")
        apart = np.linalg.norm(np.asarray(there) - np.asarray(here), axis=-1, keepdims=True)
        return np.where(apart > AT_GOAL, self.rule("goal_direction", here, there), np.float32(0.0))

    def distance(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """From one latent to another, on the discounted scale of steps; leading axes are broadcast."""
        if self.has_rule("distance"):
            return self.rule("distance", here, there)
        return np.asarray(np.linalg.norm(np.asarray(there - here, np.float64), axis=-1))

    def steps_between(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """From one state to another, both as the skills of goals; leading axes are broadcast."""
        return self.rule("steps", here, there)

    def reward_features(self, observation: Any, following: Any) -> np.ndarray:
        """What rewards of transitions are expressed in: the cumulant, whose inner product with a skill is the reward
        that it maximises; or the backward map of where they lead, whose mean, weighted by a reward, is its skill.
        """
        is_cumulant = self.has_rule("cumulant")
        rule, seen = ("cumulant", (observation, following)) if is_cumulant else ("backward", (following,))
        self.require_rule(rule, "has no reward rule")
        return self.rule(rule, *map(self.check, seen))

    def segment_skills(self, data: Any, rows: np.ndarray) -> np.ndarray:
        """The skills of a data set's segments that begin in these rows."""
        raise PromptUnsupported(f"{self.method} names skills of other data where it was trained, not in an export")

    def project(self, z: np.ndarray) -> np.ndarray:
        """The valid skill in the direction of z, of one or a batch."""
        self.require_rule("project", "has no skill rule")
        z = np.asarray(z, np.float64)
        z = z / np.linalg.norm(z, axis=-1, keepdims=True)  # a direction has no scale, and float32 loses small ones
        return self.rule("project", z.astype(np.float32))

    @property
    def discount(self) -> float:
        """Of latent distances: they differ up to about 1 / (1 - discount) steps."""
        self.require_rule("discount", "does not say how far its distances reach")
        return float(self.known_discount)

    @cached_property
    def data_range(self) -> DataRange:
        return DataRange(self.bank, self.observation_parts, self.transform)

    def latent_column(self, name: str) -> np.ndarray | None:
        return None if self.latent_bank is None else self.latent_bank.encoded.get(name)

    @cached_property
    def bank_latents(self) -> np.ndarray:
        """The latents of the observations of the bank."""
        return self.encode_all(self.bank.observations)

    @cached_property
    def midpoints(self) -> Midpoints:
        """Latents of the kept data states, for planning."""
        kept = self.latent_column("latents")
        latents = self.bank_latents if kept is None else kept
        return DirectedMidpoints(latents, self.distance) if self.has_rule("distance") else Midpoints(latents)

    @cached_property
    def planner(self) -> GraphPlanner:
        """The graph of the data, for planning. Without one from training, that of the bank's own transitions."""
        drawn = self.graph
        if drawn is None:
            kept = self.latent_column("next_latents")
            following = self.encode_all(self.bank.next_observations) if kept is None else kept
            pairs = np.stack([self.midpoints.latents, following], axis=1).reshape(-1, following.shape[1])
            drawn = self.drawn(pairs, np.full(len(following), 2))
        return self.planner_on(drawn)

    def drawn(self, latents: np.ndarray, lengths: np.ndarray, seed: int = 0, slower: float = 1.0) -> Graph:
        """The graph of trajectories whose latents lie one behind the other; slower: see `graph.build`."""
        bank = self.midpoints.latents
        if self.plans_by_steps:
            return value_graph.build(bank, latents, lengths, self.steps_between, seed, slower)
        return graph.build(bank, latents, lengths, self.discount, seed, slower)

    def planner_on(self, drawn: Graph) -> GraphPlanner:
        """What plans on a graph."""
        if self.plans_by_steps:
            return ValuePlanner(drawn, self.midpoints, self.steps_between)
        return GraphPlanner(drawn, self.midpoints, self.discount)


def has_graph(policy: Agent) -> bool:
    """Whether a policy has what a graph of its data is made of, and directions along it."""
    return policy.has_rule("goal_direction") and policy.has_rule("discount") and len(policy.bank) > 0


def has_ways(policy: Agent) -> bool:
    """Whether goals can be reached by way of a graph of the data."""
    return has_graph(policy) or (policy.plans_by_steps and len(policy.bank) > 0)


def require_graph(policy: Agent) -> None:
    """Raise unless a policy has what a graph of its data is made of, and directions along it."""
    policy.require_rule("goal_direction", "has no latent distances, so it has no graph of its data: use plan=0")
    policy.require_rule("discount", "does not say how far its distances reach, so it has no graph of its data")
    require_bank(policy)


def require_ways(policy: Agent) -> None:
    """Raise unless goals can be reached by way of a graph of the data."""
    if not policy.plans_by_steps:
        return require_graph(policy)
    policy.require_rule("steps", "does not say how many steps lie between two states")
    require_bank(policy)


def require_bank(policy: Agent) -> None:
    if not len(policy.bank):
        raise HilpError("this policy was saved without a bank of states, so it has no graph of its data: use plan=0")
