"""hilp_runtime: acts with a policy that `hilp export --to numpy` wrote. It needs numpy; SciPy, if there, plans faster.

    import hilp_runtime
    policy = hilp_runtime.load("folder")
    go = policy.goal(goal_observation)              # or plan=0, plan=3; policy.reward(...), policy.follow(...)
    action = policy.act(observation, go)            # at every step; a batch of observations gives a batch of actions

Prompts are hilp's own: this package holds a copy of `hilp.prompts`. Loading runs no code of the policy's file: a policy
is arrays, and programs made of the few steps that STEPS lists.
"""

import os
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from hilp.errors import HilpError, PromptUnsupported
from hilp.prompts.agent import Batch
from hilp.prompts.bank import Bank
from hilp.prompts.base import Packed
from hilp.prompts.graph import Graph, GraphPlanner
from hilp.prompts.promptable import PromptablePolicy
from hilp.spec import Spec
from hilp.storage.arrays import read_arrays

FORMAT, VERSION = "hilp-numpy", 4
POLICY = "policy.safetensors"
NEEDS = {  # what else a rule is made of: refused where one of these is
    "goal_direction": ("encode", "act_towards", "act_between"),
    "cumulant": ("project",),
    "backward": ("project",),
}
INSTEAD = {  # what to do without a rule
    "distance": ": use plan=0",
    "cumulant": "; rule='goal' goes to the state of highest reward",
    "backward": "; rule='goal' goes to the state of highest reward",
}
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
        steps = [(step if isinstance(step[-1], dict) else [*step, {}]) for step in described["steps"]]
        operands = [one for _, *several, _ in steps for one in several] + [described["output"]]
        constants = list(dict.fromkeys(one for one in operands if not isinstance(one, int)))  # names, numbers

        def place(operand: Any) -> int:
            """Where a value lies: constants first, then inputs and steps."""
            return operand + len(constants) if isinstance(operand, int) else constants.index(operand)

        self._constants = [arrays[one] if isinstance(one, str) else one for one in constants]
        self._steps = [
            (partial(STEPS[name], **how) if how else STEPS[name], [place(one) for one in several])
            for name, *several, how in steps
        ]
        self._output = place(described["output"])

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        values = [*self._constants, *inputs]
        keep = values.append
        for run, operands in self._steps:
            if len(operands) == 2:
                keep(run(values[operands[0]], values[operands[1]]))
            else:
                keep(run(*[values[at] for at in operands]))
        found: np.ndarray = values[self._output]
        return found


def load(folder: str | os.PathLike[str] | None = None) -> "Policy":
    """The policy in a folder; without one, in the folder that this package lies in."""
    path = Path(folder) if folder is not None else Path(__file__).parent.parent
    arrays, note = read_arrays(path / POLICY)
    if note.get("format") != FORMAT or note.get("version") != VERSION:
        raise HilpError(f"{path} is not a policy that `hilp export --to numpy` wrote for this runtime: export it again")
    return Policy(arrays, note)


class Policy(PromptablePolicy):
    """An exported policy. It takes the prompts that hilp takes, in the same words."""

    latent_bank = None

    def __init__(self, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any]):
        self.arrays, self.note = arrays, note
        self.method, self.fingerprint, self.skill_dim = note["method"], note["fingerprint"], note["skill_dim"]
        self.stride, self.skill_horizon = note["stride"], note["skill_horizon"]
        self.chunk, self.play = note.get("chunk", 1), note.get("play", 1)
        self.known_discount = note["discount"]
        self.spec = Spec.from_json(note["spec"])
        self.observation_parts = tuple((name, tuple(shape)) for name, shape in note["observation_parts"])
        self.transform = None if note["transform"] is None else SimpleNamespace(**note["transform"])
        self.rules = {name: Program(described, arrays) for name, described in note["programs"].items()}
        self.refused: dict[str, str] = dict(note["refused"])
        for name, needed in NEEDS.items():
            lacking = [self.refused[one] for one in needed if one in self.refused]
            if lacking and name in self.rules:
                self.refused[name] = lacking[0]
        self.refused |= {name: self.refused[name] + INSTEAD[name] for name in INSTEAD.keys() & self.refused.keys()}

    def rule(self, name: str, *inputs: Any) -> np.ndarray:
        if name not in self.rules:
            raise HilpError(self.refused.get(name, f"{self.method} has no rule '{name}'"))
        if name in ("distance", "goal_direction", "steps"):
            return self._in_blocks(self.rules[name], *inputs)
        single = name == "project" and np.ndim(inputs[0]) == 1
        given = [one.arrays if isinstance(one, Batch) else [one[None] if single else one] for one in inputs]
        found = self.rules[name](*(part for parts in given for part in parts))
        return found[0] if single else found

    def _in_blocks(self, program: Program, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """A rule of two latents or skills, whose leading axes are broadcast."""
        here, there = np.asarray(here, np.float32), np.asarray(there, np.float32)
        shape = np.broadcast_shapes(here.shape, there.shape)
        pairs = [np.broadcast_to(latents, shape).reshape(-1, shape[-1]) for latents in (here, there)]
        blocks = [slice(first, first + PAIRS_AT_A_TIME) for first in range(0, max(1, len(pairs[0])), PAIRS_AT_A_TIME)]
        found = np.concatenate([program(*(one[block] for one in pairs)) for block in blocks])
        return found.reshape(shape[:-1] if found.shape[1] == 1 and shape[-1] != 1 else (*shape[:-1], found.shape[1]))

    def has_rule(self, name: str) -> bool:
        if name == "discount":
            return self.known_discount is not None
        return name in self.rules or name in self.refused

    def require_rule(self, name: str, lacking: str) -> None:
        if name in self.refused:
            raise PromptUnsupported(self.refused[name])
        super().require_rule(name, lacking)

    @cached_property
    def bank(self) -> Bank:  # type: ignore[override]  # its columns are put together when they are first used
        columns = {name[5:]: column for name, column in self.arrays.items() if name.startswith("bank.")}
        columns.pop("latents", None)
        return Bank.from_columns(columns, self.spec)

    @cached_property
    def graph(self) -> Graph | None:  # type: ignore[override]
        return self.planner.graph if self.note["trained_graph"] else None

    @cached_property
    def planner(self) -> GraphPlanner:
        """On the graph that was exported: from training, or of the bank's own transitions."""
        columns = {name[6:]: column for name, column in self.arrays.items() if name.startswith("graph.")}
        if not columns:
            raise HilpError(self.refused.get("goal_direction", "this policy was exported without a graph"))
        return self.planner_on(Graph.from_columns(columns, len(self.midpoints)))

    def latent_column(self, name: str) -> np.ndarray | None:
        """Latents as hilp computed them: whether a state is near enough is a yes or a no, to the last bit."""
        return self.arrays.get(f"bank.{name}")

    def high_level(self, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any], path: Path) -> "HighLevel":
        if "program" not in note:
            raise HilpError(f"{path} is a high level as hilp saved it: take it along with hilp export --prompts")
        return HighLevel(Program(note["program"], arrays), int(note["steps"]), dict(note["about"]))


class HighLevel(NamedTuple):
    """The high level of a hierarchy, as a program."""

    program: Program
    steps: int
    about: dict[str, Any]

    def skills(self, batch: Batch) -> np.ndarray:
        return self.program(*batch.arrays, np.zeros((len(batch), 0), np.float32))

    def packed(self) -> Packed:
        raise HilpError("an exported hierarchy is saved where it was exported from: copy its file")
