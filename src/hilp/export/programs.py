"""Rules of a policy as programs: short lists of plain steps that numpy and ONNX both know.

A rule is traced by JAX, for any number of rows at once, and its primitives are written down as steps. So every method
is exported by what it computes, not by its name, those of other packages too; a rule that computes something which has
no step is refused, and what is written is held against the rule itself before anybody gets it (`policy_programs`).

Every value of a program is rows x numbers, or one number a row, kept as rows x 1; weights and numbers broadcast.
Values of more axes, such as pictures (rows x height x width x channels), have them all, as JAX has them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex

from hilp.errors import HilpError

Operand = int | float | str  # the value of a step, by its number; a number; an array, by its name
Known = Operand | np.ndarray  # an array that is computed while the program is written, and has no name yet
Step = list[Any]  # [name, operand, ..., {parameters}]

PLAIN = {name: name for name in ("add", "sub", "mul", "div", "max", "min", "tanh", "exp", "log", "sqrt", "abs", "sin",
                                 "gt", "ge", "lt", "le", "eq")} | {"add_any": "add"}  # fmt: skip
LOGICAL = ("and", "or", "not")
# Primitives that make one number of each, whatever the shape.
EACH = (*PLAIN, *LOGICAL, "neg", "square", "integer_pow", "rsqrt", "select_n", "convert_element_type")
SAME = ("optimization_barrier", "copy", "copy_p", "stop_gradient")  # steps that change no number
# Steps whose values must be as wide as JAX takes them for: what is broadcast stays narrow here.
OF_WHOLE = ("matmul", "transpose", "conv", "pool", "sum", "largest", "any", "flatten", "pad", "concat", "slice",
            "reshape", "expand")  # fmt: skip
PICTURES = [(0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)]  # where JAX finds batch, channels, height and width
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # where primitives that stand for others keep them


@dataclass(frozen=True)
class Program:
    """Steps in their order: values 0, 1, ... are the inputs, and each step makes the next one."""

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    output: Operand

    def arrays(self) -> set[str]:
        """The names of the arrays that it asks for, among others."""
        return {one for step in (*self.steps, [self.output]) for one in step if isinstance(one, str)}


class NoStep(Exception):
    """A primitive that programs have no step for."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NoStep(otherwise)


@dataclass
class Builder:
    """A program that is being written."""

    what: str  # for whom: the method and the rule, to be told
    inputs: tuple[str, ...]
    steps: list[Step] = field(default_factory=list)
    narrow: set[Operand] = field(default_factory=set)  # values that also stand for broadcasts of them
    constants: dict[str, np.ndarray] = field(default_factory=dict)  # arrays that the rule brings beside its weights

    def step(self, name: str, *operands: Operand, **parameters: Any) -> int:
        """Write a step; the number of its value."""
        if name in OF_WHOLE:
            values = operands if name == "concat" else operands[:1]  # without weights
            whole = all(isinstance(value, int) and value not in self.narrow for value in values)
            _require(whole, "it puts together, cuts or sums what it broadcast before")
        self.steps.append([name, *operands, *([parameters] if parameters else [])])
        return len(self.inputs) + len(self.steps) - 1

    def rule(self, function: Callable[..., Any], weights: Mapping[str, Any], arguments: Sequence[Any],
             operands: Sequence[Operand]) -> Operand:  # fmt: skip
        """Write the steps of `function(weights, *arguments)`, whose arguments (shapes, or trees of them) are these."""
        names, cannot = list(weights), f"{self.what} cannot be exported"
        leaves = [jax.ShapeDtypeStruct(weights[name].shape, weights[name].dtype) for name in names]
        try:
            traced = jax.make_jaxpr(function)(leaves, *arguments)
        except Exception as error:  # the code of a method, which can fail in any way
            why = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise HilpError(f"{cannot}: JAX cannot trace it for any number of rows ({why})") from error
        try:
            (output,) = self._inlined(traced, [*names, *operands])
        except NoStep as error:
            raise HilpError(f"{cannot}: {error}") from None
        return self._operand(output)

    def _inlined(self, closed: Any, operands: Sequence[Known]) -> list[Known]:
        jaxpr = closed.jaxpr
        known: dict[Any, Known] = dict(zip(jaxpr.invars, operands, strict=True))
        known |= {var: np.asarray(value) for var, value in zip(jaxpr.constvars, closed.consts, strict=True)}
        for equation in _needed(jaxpr):
            known |= zip(equation.outvars, self._written(equation, _values(equation.invars, known)), strict=True)
        return _values(jaxpr.outvars, known)

    def _operand(self, value: Known) -> Operand:
        """What a step can take: an array without a name gets one, or is a number."""
        if not isinstance(value, np.ndarray):
            return value
        if value.size == 1:
            return float(value.reshape(()))
        name = f"constant.{len(self.constants)} of {self.what}"
        self.constants[name] = value if value.dtype == np.bool_ else value.astype(np.float32)
        return name

    def _written(self, equation: Any, given: Sequence[Known]) -> Sequence[Known]:
        name, parameters = equation.primitive.name, equation.params
        inner = next((parameters[key] for key in CALLS if key in parameters), None)
        if inner is not None:
            return self._inlined(inner if hasattr(inner, "consts") else jex.ClosedJaxpr(inner, []), given)
        if name in SAME:
            return given
        if (folded := _folded(equation, given)) is not None:
            return folded
        operands = [self._operand(value) for value in given]
        if name in LOGICAL:
            return [_decided(self, equation, name, *operands)]
        if name in PLAIN:
            return [self.step(PLAIN[name], *operands)]
        if name in SPECIAL:
            return SPECIAL[name](self, operands, [v.aval.shape for v in equation.invars], equation)
        raise NoStep(f"it computes '{name}', which exported programs have no step for")


Special = Callable[[Builder, list[Operand], list[Any], Any], list[Operand]]  # of the operands and their shapes


def _needed(jaxpr: Any) -> list[Any]:
    """The equations of a trace that its output depends on: a gradient computes its function, and drops it."""
    wanted = {var for var in jaxpr.outvars if not isinstance(var, jex.Literal)}
    found = []
    for equation in reversed(jaxpr.eqns):
        if wanted.intersection(equation.outvars):
            wanted.update(var for var in equation.invars if not isinstance(var, jex.Literal))
            found.append(equation)
    return found[::-1]


def _values(places: Sequence[Any], known: Mapping[Any, Known]) -> list[Known]:
    """What stands in the places of a trace: values that are known, or numbers that are written there."""
    literal: Any = jex.Literal
    return [np.asarray(one.val, one.aval.dtype) if isinstance(one, literal) else known[one] for one in places]


def _folded(equation: Any, given: Sequence[Known]) -> list[Known] | None:
    """The values of a primitive of arrays that are known, as JAX computes them; None where it asks for more.

    A number may stand for as many of it as there are rows: what is done to each of them is done to it.
    """
    arrays = [value for value in given if isinstance(value, np.ndarray)]
    if len(arrays) < len(given):
        return None
    name = equation.primitive.name
    if not _has_known_shapes(equation, arrays):
        if any(array.size != 1 for array in arrays) or name not in (*EACH, "broadcast_in_dim"):
            return None
        arrays = [array.reshape(()) for array in arrays]
        if name == "broadcast_in_dim":
            return [arrays[0]]
    with jax.ensure_compile_time_eval():
        found = equation.primitive.bind(*arrays, **equation.params)
    return [np.asarray(value) for value in (found if equation.primitive.multiple_results else [found])]


def _has_known_shapes(equation: Any, arrays: Sequence[np.ndarray]) -> bool:
    """Whether a primitive takes these arrays as they are, and what it gives does not depend on the number of rows."""
    sizes = [size for variable in equation.outvars for size in variable.aval.shape]
    as_they_are = [array.shape for array in arrays] == [variable.aval.shape for variable in equation.invars]
    return as_they_are and all(isinstance(size, int) for size in sizes)


def _shaped(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    """Axes of one number come and go freely; of values with more axes than two they are all there."""
    (shape,), out = shapes, equation.outvars[0].aval.shape
    if max(len(shape), len(out)) > 2 and isinstance(given[0], int):
        return [_laid_out(builder, given[0], shape, out, equation)]
    wide, wider = ([size for size in sizes if not (isinstance(size, int) and size == 1)] for sizes in (shape, out))
    if wide and wide != wider:
        axes = tuple(equation.params.get("broadcast_dimensions", ()))
        natural = axes == tuple(range(len(out) - len(shape), len(out)))  # as numpy broadcasts
        of_rows = axes == (0,) and not isinstance(shape[0], int)  # one number a row, which is rows x 1 here
        _require(natural or of_rows, f"it lays out {shape} as {out}, which exported programs have no step for")
        builder.narrow.add(given[0])
    return given[:1]


def _laid_out(builder: Builder, value: int, shape: Any, out: Any, equation: Any) -> int:
    """A value in another shape of more axes than two, or from one; what is broadcast is as wide as JAX takes it for."""
    kept = dict(enumerate(out))
    if equation.primitive.name == "broadcast_in_dim":
        kept = dict(zip(equation.params["broadcast_dimensions"], shape, strict=True))
    by_rows = shape[0] == out[0] and kept.get(0) == out[0] and all(isinstance(size, int) for size in out[1:])
    _require(by_rows, f"it lays out {shape} as {out}, which exported programs have no step for")
    narrow, wide = [kept.get(axis, 1) for axis in range(1, len(out))], list(out[1:])
    laid = value if narrow == list(shape[1:]) else builder.step("reshape", value, shape=narrow or [1])
    return laid if narrow == wide else builder.step("expand", laid, shape=wide)


def _product(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    contracted, batched = equation.params["dimension_numbers"]
    plain = [tuple(axes) for axes in contracted] == [(len(shapes[0]) - 1,), (0,)] and not any(map(len, batched))
    by_weights = len(shapes[0]) in (2, 4) and len(shapes[1]) == 2 and isinstance(given[1], str)
    _require(plain and by_weights, f"it multiplies {shapes[0]} by {shapes[1]}, not rows by weights")
    return [builder.step("matmul", *given)]


def _turned(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    axes = [int(axis) for axis in equation.params["permutation"]]
    _require(axes[0] == 0 and len(axes) >= 4, f"it turns {shapes[0]} about")
    return [builder.step("transpose", given[0], axes=axes)]


def _convolved(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    how = equation.params
    of_pictures = [tuple(spec) for spec in how["dimension_numbers"]] == PICTURES and isinstance(given[1], str)
    factors = {*how["lhs_dilation"], *how["rhs_dilation"], how["feature_group_count"], how["batch_group_count"]}
    what = "something else than pictures (rows x height x width x channels) with weights"
    _require(of_pictures and factors == {1}, f"it convolves {what}")
    return [builder.step("conv", *given, **_windows(how["window_strides"], how["padding"]))]


def _pooled(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    how = equation.params
    sizes, strides, padding = (how[key] for key in ("window_dimensions", "window_strides", "padding"))
    whole = len(sizes) == 4 and all(sizes[at] == strides[at] == 1 and not any(padding[at]) for at in (0, 3))
    dense = {*how["base_dilation"], *how["window_dilation"]} == {1}
    _require(whole and dense, "it takes the largest of something else than windows of pictures")
    windows = _windows(strides[1:3], padding[1:3])
    return [builder.step("pool", given[0], sizes=[int(size) for size in sizes[1:3]], **windows)]


def _windows(strides: Sequence[int], padding: Sequence[Sequence[int]]) -> dict[str, list[Any]]:
    return {"strides": [int(one) for one in strides], "padding": [[int(end) for end in ends] for ends in padding]}


REDUCED = {"reduce_sum": ("sum", "the sum"), "reduce_max": ("largest", "the largest"), "reduce_or": ("any", "any")}


def _reduced(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    """A step over the numbers of a row, or over some axes of a value that has more."""
    step, what = REDUCED[equation.primitive.name]
    axes, rank = [int(axis) for axis in equation.params["axes"]], len(shapes[0])
    _require(rank >= 2 and 0 not in axes, f"it takes {what} of something else than the numbers of a row")
    if len(axes) < rank - 1:
        return [builder.step(step, given[0], axes=axes)]
    return [builder.step(step, given[0] if rank == 2 else builder.step("flatten", given[0]))]


def _decided(builder: Builder, equation: Any, step: str, *given: Operand) -> int:
    """A step of logic; of integers, bit by bit, there is none."""
    of_numbers = any(v.aval.dtype != np.bool_ for v in equation.invars) or any(isinstance(one, float) for one in given)
    _require(not of_numbers, f"it computes '{step}' of numbers, not of comparisons")
    return builder.step(step, *given)


def _chosen(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    """One of two values. Of comparisons by logic: ONNX runtimes choose among numbers."""
    which, false, true = given
    if isinstance(which, float):
        return [true if which else false]
    if equation.outvars[0].aval.dtype != np.bool_:
        return [builder.step("where", which, true, false)]
    either = _decided(builder, equation, "and", which, true)
    other = _decided(builder, equation, "and", builder.step("not", which), false)
    return [builder.step("or", either, other)]


def _padded(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    rows, columns = [(0, 0, 0), *equation.params["padding_config"]][-2:]
    of_rows = len(shapes[0]) == 2 and tuple(rows) == (0, 0, 0) and not columns[2] and min(columns) >= 0
    _require(of_rows and given[1] == 0.0, "it pads something else than rows with zeros")
    return [builder.step("pad", given[0], before=int(columns[0]), behind=int(columns[1]))]


def _joined(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    of_rows = equation.params["dimension"] == 1 and all(len(shape) == 2 for shape in shapes)
    _require(of_rows, "it puts together something else than rows")
    kept = [operand for operand, shape in zip(given, shapes, strict=True) if shape[1] != 0]
    return [kept[0] if len(kept) == 1 else builder.step("concat", *kept)]


def _split(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    _require(equation.params["axis"] == 1, "it splits something else than rows")
    ends = np.cumsum([0, *equation.params["sizes"]]).tolist()
    return [builder.step("slice", given[0], first=a, last=b) for a, b in pairwise(ends)]


def _slice(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    first, last, strides = (equation.params[key] for key in ("start_indices", "limit_indices", "strides"))
    all_rows = len(shapes[0]) == 2 and first[0] == 0 and last[0] == shapes[0][0] and {*(strides or ()), 1} == {1}
    _require(all_rows, "it cuts something else than the numbers of a row")
    return [builder.step("slice", given[0], first=int(first[1]), last=int(last[1]))]


def _power(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    exponent = equation.params["y"]
    _require(2 <= abs(exponent) <= 8 or exponent == -1, f"it takes a power of {exponent}")
    value = given[0]
    for _ in range(abs(exponent) - 1):
        value = builder.step("mul", value, given[0])
    return [value if exponent > 0 else builder.step("div", 1.0, value)]


def _converted(builder: Builder, given: list[Operand], shapes: list[Any], equation: Any) -> list[Operand]:
    before, after = equation.invars[0].aval.dtype, np.dtype(equation.params["new_dtype"])
    if before == after or isinstance(given[0], float):
        return given[:1]
    _require(after == np.float32 and before in (np.uint8, np.bool_), f"it turns {before} into {after}")
    return [builder.step("cast", given[0], to="float32")]


SPECIAL: dict[str, Special] = {
    **dict.fromkeys(("broadcast_in_dim", "reshape", "squeeze"), _shaped),
    "transpose": _turned,
    "conv_general_dilated": _convolved,
    "reduce_window_max": _pooled,
    "dot_general": _product,
    **dict.fromkeys(REDUCED, _reduced),
    "pad": _padded,
    "concatenate": _joined,
    "split": _split,
    "slice": _slice,
    "integer_pow": _power,
    "convert_element_type": _converted,
    "square": lambda builder, given, *_: [builder.step("mul", given[0], given[0])],
    "neg": lambda builder, given, *_: [builder.step("mul", -1.0, given[0])],
    "rsqrt": lambda builder, given, *_: [builder.step("div", 1.0, builder.step("sqrt", given[0]))],
    "logistic": lambda builder, given, *_: [
        builder.step("div", 1.0, builder.step("add", 1.0, builder.step("exp", builder.step("mul", -1.0, given[0]))))
    ],
    "clamp": lambda builder, given, *_: [builder.step("min", builder.step("max", given[1], given[0]), given[2])],
    "select_n": _chosen,
}
