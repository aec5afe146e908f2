"""Rewards as formulas: `height - 0.1*norm(action)` in, a vectorised reward function out.

A formula has Python's syntax, but nothing of it is ever run by Python: the syntax tree is walked once, every node must
be one of those known here, and each becomes a numpy operation on float64 arrays whose first axis is the transition.

| piece | what it is |
|---|---|
| `height`, `velocity` | a part of the observation at s' |
| `observation`, `action` | all of s'; the action between s and s' |
| any other name | an extra column of the data, at s' |
| `before(x)` | x at s |
| `velocity[0]`, `observation[3:6]` | some of the numbers; indices are whole numbers |
| `+ - * / ** %`, `< <= > >= == !=`, `and or not`, `x if c else y` | number by number; true is 1, false is 0 |
| `norm sum mean`, `min max` of one vector, `dot(x, y)` | over the numbers of the last axis |
| `min max` of more, `abs exp log sqrt sin cos tanh sign`, `clip(x, low, high)` | number by number |

A number counts as a vector of one number and the other way round. The result is one number a transition. `observation`
and `action` always mean the whole, also where a part has that name.
"""

import ast
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np

from hilp.data.rewards import Extras, RewardFunction
from hilp.errors import HilpError, nearest
from hilp.prompts.agent import Parts

LONGEST = 2000  # characters
DEEPEST = 100  # levels of the syntax tree; Python's own stack must hold them, and a sum of n terms has n
BRACKETS = 50  # in brackets: Python's parser takes the stack of its thread for each, which may be a small one
TOO_DEEP = f"it is nested deeper than {DEEPEST} levels: write a function"
SHOWN_FORMULA, SHOWN_PIECE = 120, 60  # characters in an error


@dataclass(frozen=True)
class Formula:
    """A reward as a function of (s, a, s', extras) that gives float64 [n], and the text it was read from."""

    text: str
    function: RewardFunction
    change: "Formula | None" = None  # f - before(f), where f is a formula of s' alone: what it gains in a step

    def __call__(self, s: np.ndarray, a: np.ndarray, s2: np.ndarray, extras: Extras) -> np.ndarray:
        return self.function(s, a, s2, extras)


def reward(
    text: str,
    parts: Parts,
    observation_dim: int,
    action_dim: int,
    columns: Mapping[str, int] | None = None,
    angles: Sequence[tuple[int, float]] = (),
) -> Formula:
    """The reward of a formula; `columns` are more names of single numbers of an observation.

    angles: columns of the observation that wrap, with their periods: x - before(x) is the shorter way round.

    What is wrong whatever the data is an error here; what depends on extra columns is one when the function is called.
    """
    reader = _Reader(text, parts, observation_dim, columns or {}, dict(angles))
    evaluate = reader.read()

    def function(s: np.ndarray, a: np.ndarray, s2: np.ndarray, extras: Extras) -> np.ndarray:
        s, a, s2 = (np.asarray(array, np.float64) for array in (s, a, s2))
        shapes = [array.shape for array in (s, a, s2)]
        wanted = [(len(s), size) for size in (observation_dim, action_dim, observation_dim)]
        if shapes != wanted:
            raise reader.error(f"it is for observations, actions and next observations {wanted}, not {shapes}")
        with np.errstate(all="ignore"):  # the caller looks for NaN and infinity, and can say where
            result = evaluate(_Transitions(s, a, s2, extras))
        if math.prod(result.shape[1:]) != 1:
            raise reader.error(f"it gives {_described(result)} a transition, not one number: use norm, sum or an index")
        return result.reshape(len(s))

    if not reader.extra_names:
        observations, actions = np.zeros((1, observation_dim)), np.zeros((1, action_dim))
        function(observations, actions, observations, None)  # type: ignore[arg-type]  # which no name asks for
    if not reader.is_of_a_state or reader.extra_names:
        return Formula(reader.text, function)
    first = reader.text if reader.text.isidentifier() else f"({reader.text})"
    text = f"{first} - before({reader.text})"
    wrap = reader.wrap_of_all

    def gained(s: np.ndarray, a: np.ndarray, s2: np.ndarray, extras: Extras) -> np.ndarray:
        return wrap(function(s, a, s2, extras) - function(s2, a, s, extras))

    return Formula(reader.text, function, Formula(text, gained))


class _Transitions(NamedTuple):
    s: np.ndarray
    a: np.ndarray
    s2: np.ndarray
    extras: Extras


_Piece = Callable[[_Transitions], np.ndarray]  # [n, ...]


def _described(array: np.ndarray) -> str:
    shape = array.shape[1:]
    return "one number" if math.prod(shape) == 1 else f"{' x '.join(map(str, shape))} numbers (shape {shape})"


def _aligned(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays with as many axes each, new ones after the first: rows are broadcast, never transitions."""
    axes = max(array.ndim for array in arrays)
    return [array.reshape(len(array), *(1,) * (axes - array.ndim), *array.shape[1:]) for array in arrays]


def _as_vector(array: np.ndarray) -> np.ndarray:
    return array if array.ndim > 1 else array[:, None]


_Function = Callable[..., np.ndarray]


def _as_number(compare: _Function) -> _Function:
    """True is 1, false is 0."""
    return lambda *arrays: compare(*arrays).astype(np.float64)


def _over_last_axis(reduce: _Function) -> _Function:
    return lambda x: reduce(_as_vector(x), axis=-1)


def _extreme(reduce: _Function, pairwise: _Function) -> _Function:
    over_numbers = _over_last_axis(reduce)
    return lambda *arrays: over_numbers(arrays[0]) if len(arrays) == 1 else functools.reduce(pairwise, arrays)


def _dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = _as_vector(x), _as_vector(y)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError
    return np.sum(x * y, axis=-1)


MANY = LONGEST  # arguments: no formula can hold more
PLAIN: dict[str, _Function] = {
    "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "sign": np.sign,
}  # fmt: skip
FUNCTIONS: dict[str, tuple[_Function, int, int]] = {  # and the fewest and the most arguments
    "norm": (_over_last_axis(np.linalg.norm), 1, 1),
    "sum": (_over_last_axis(np.sum), 1, 1),
    "mean": (_over_last_axis(np.mean), 1, 1),
    "min": (_extreme(np.min, np.minimum), 1, MANY),
    "max": (_extreme(np.max, np.maximum), 1, MANY),
    "dot": (_dot, 2, 2),
    "clip": (np.clip, 3, 3),
    **{name: (function, 1, 1) for name, function in PLAIN.items()},
}
BEFORE = "before"

OPERATORS: dict[type[ast.AST], _Function] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide, ast.Pow: np.power,
    ast.Mod: np.mod, ast.USub: np.negative, ast.UAdd: np.positive,
}  # fmt: skip
OPERATORS |= {
    node: _as_number(test)
    for node, test in {
        ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal, ast.Eq: np.equal,
        ast.NotEq: np.not_equal, ast.And: np.logical_and, ast.Or: np.logical_or, ast.Not: np.logical_not,
    }.items()
}  # fmt: skip

# What people may try, and what to do instead.
REFUSED: dict[type[ast.AST], str] = {
    ast.Attribute: "a dot is not allowed: functions and names are plain, as in exp(x)",
    ast.Lambda: "lambda is not allowed: write the formula itself",
    ast.List: "lists are not allowed: write each number's index, as in velocity[0] - 1",
    ast.Tuple: "a comma is only allowed between the arguments of a function",
    ast.JoinedStr: "text is not allowed: a formula has numbers and names",
    ast.NamedExpr: "':=' is not allowed: write the piece out",
    ast.Starred: "'*' before an argument is not allowed",
    ast.Slice: "a slice is only allowed in an index, as in observation[3:6]",
    ast.FloorDiv: "'//' is not allowed: use / or %",
    ast.BitXor: "'^' is not allowed: a power is **",
    ast.BitAnd: "'&' is not allowed: use 'and'",
    ast.BitOr: "'|' is not allowed: use 'or'",
    ast.Invert: "'~' is not allowed: use 'not'",
    ast.MatMult: "'@' is not allowed: use dot(x, y)",
    ast.In: "'in' is not allowed: use comparisons, as in 0 < x < 1",
    ast.NotIn: "'not in' is not allowed: use comparisons, as in 0 < x < 1",
    ast.Is: "'is' is not allowed: use ==",
    ast.IsNot: "'is not' is not allowed: use !=",
}


class _Reader:
    """One formula, on its way from text to numpy operations."""

    def __init__(
        self, text: str, parts: Parts, observation_dim: int, columns: Mapping[str, int], angles: Mapping[int, float]
    ) -> None:
        if not isinstance(text, str):
            raise HilpError(f"a reward formula is text, such as 'height - 0.1*norm(action)', not {type(text).__name__}")
        self.text = " ".join(text.split())  # one line, so that a formula may be folded in a file
        self.columns: dict[str, tuple[int, tuple[int, ...]]] = {}  # where a part begins, and the shape of its rows
        self.extra_names: set[str] = set()
        begin = 0
        for name, shape in parts:
            self.columns[name] = begin, shape
            begin += math.prod(shape)
        self.columns = {name: (at, ()) for name, at in columns.items()} | self.columns
        self._periods = np.array([[angles.get(column, 0.0) for column in range(observation_dim)]])
        self.wrap_of_all: _Function = np.positive  # of the difference of the whole formula, where it is an angle
        self.is_of_a_state = True  # so far: neither the action nor before() is in it
        if parts and begin != observation_dim:
            raise self.error(f"the parts of an observation have {begin} numbers, but an observation {observation_dim}")

    def error(self, problem: str, node: ast.AST | None = None) -> HilpError:
        piece = f" at '{_shown(ast.get_source_segment(self.text, node) or '', SHOWN_PIECE)}'" if node else ""
        return HilpError(f"reward formula '{_shown(self.text, SHOWN_FORMULA)}'{piece}: {problem}")

    def read(self) -> _Piece:
        if not self.text:
            raise self.error("it is empty: write one such as 'height - 0.1*norm(action)'")
        if len(self.text) > LONGEST:
            raise self.error(f"it has {len(self.text)} characters, at most {LONGEST} are allowed: write a function")
        if "#" in self.text:
            raise self.error("comments ('#') are not allowed")
        opened = itertools.accumulate((letter in "([{") - (letter in ")]}") for letter in self.text)
        if max(opened) > BRACKETS:
            raise self.error(TOO_DEEP)
        try:
            with warnings.catch_warnings():  # of Python to programmers, about spaces and backslashes
                warnings.simplefilter("ignore")
                tree = ast.parse(self.text, mode="eval")
        except SyntaxError as error:
            at = min(max(error.offset or 1, 1), len(self.text))
            rest = _shown(self.text[at - 1 :], SHOWN_PIECE)
            raise self.error(f"syntax error at character {at} ('{rest}'): {_shown(error.msg, LONGEST)}") from None
        except (RecursionError, MemoryError):
            raise self.error(TOO_DEEP) from None
        except ValueError as error:
            raise self.error(f"it holds a character that cannot be in a formula ({error})") from None
        self.wrap_of_all = self._wrap(tree.body)
        return self._piece(tree.body, 1, False)

    def _wrap(self, node: ast.expr) -> _Function:
        """What makes differences of a piece those of angles, where it is nothing but columns of which some wrap."""
        chosen = node
        while isinstance(chosen, ast.Subscript):
            chosen = chosen.value
        name = chosen.id if isinstance(chosen, ast.Name) else ""
        if not self._periods.any() or (name != "observation" and name not in self.columns):
            return np.positive
        known = _Transitions(self._periods, self._periods, self._periods, None)  # type: ignore[arg-type]
        periods = self._piece(node, 1, False)(known)[0]  # as the columns are chosen, so are their periods
        whole = np.where(periods > 0, periods, np.inf)
        return lambda step: step - np.where(periods > 0, periods, 0.0) * np.round(step / whole)

    def _minus(self, node: ast.BinOp) -> _Function:
        """The difference of two pieces; of an angle after and before a step, the shorter way round."""
        for one, other in ((node.left, node.right), (node.right, node.left)):
            match other:
                case ast.Call(func=ast.Name(id="before"), args=[same]) if ast.dump(same) == ast.dump(one):
                    wrap = self._wrap(one)
                    return lambda after, before: wrap(np.subtract(after, before))
        return np.subtract

    def _piece(self, node: ast.expr, depth: int, is_before: bool) -> _Piece:
        if depth > DEEPEST:
            raise self.error(TOO_DEEP)

        def inner(child: ast.expr, is_before: bool = is_before) -> _Piece:
            return self._piece(child, depth + 1, is_before)

        match node:
            case ast.Constant():
                return self._number(node)
            case ast.Name():
                return self._name(node, is_before)
            case ast.BinOp(op=ast.Sub()):
                return self._apply(node, self._minus(node), [inner(node.left), inner(node.right)])
            case ast.BinOp():
                return self._apply(node, self._operator(node.op, node), [inner(node.left), inner(node.right)])
            case ast.UnaryOp():
                return self._apply(node, self._operator(node.op, node), [inner(node.operand)])
            case ast.BoolOp():
                both, pieces = self._operator(node.op, node), [inner(value) for value in node.values]
                return self._apply(node, lambda *values: functools.reduce(both, values), pieces)
            case ast.Compare():
                return self._comparison(node, [inner(node.left), *map(inner, node.comparators)])
            case ast.IfExp():
                return self._apply(node, np.where, [inner(node.test), inner(node.body), inner(node.orelse)])
            case ast.Subscript():
                return self._index(node, inner(node.value))
            case ast.Call():
                return self._call(node, inner, is_before)
        self._refuse(node, node)

    def _operator(self, operator: ast.AST, node: ast.expr) -> _Function:
        return OPERATORS.get(type(operator)) or self._refuse(operator, node)

    def _refuse(self, what: ast.AST, node: ast.expr) -> NoReturn:
        raise self.error(REFUSED.get(type(what), f"{type(what).__name__} is not allowed in a formula"), node)

    def _apply(self, node: ast.expr, function: _Function, pieces: list[_Piece]) -> _Piece:
        def apply(at: _Transitions) -> np.ndarray:
            arrays = [piece(at) for piece in pieces]
            try:
                return function(*_aligned(arrays))
            except ValueError:
                sizes = " and ".join(_described(array) for array in arrays)
                raise self.error(f"{sizes} a transition do not fit together", node) from None

        return apply

    def _number(self, node: ast.Constant) -> _Piece:
        value = node.value
        if isinstance(value, str | bytes):
            raise self.error("text is not allowed: a formula has numbers and names", node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error("this is not a number: true is 1 and false is 0", node)
        try:
            number = float(value)  # a whole number could grow without bound, 9**9**9
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise self.error("this number is too large", node)
        return lambda at: np.full(len(at.s), number)

    def _name(self, node: ast.Name, is_before: bool) -> _Piece:
        name = node.id
        if name == "observation":
            return lambda at: at.s if is_before else at.s2
        if name == "action":
            if is_before:
                raise self.error("the action lies between s and s': take it out of before()", node)
            self.is_of_a_state = False
            return lambda at: at.a
        if name in self.columns:
            begin, shape = self.columns[name]
            columns = slice(begin, begin + math.prod(shape))
            return lambda at: (at.s if is_before else at.s2)[:, columns].reshape(-1, *shape)
        if name in FUNCTIONS or name == BEFORE:
            raise self.error(f"'{name}' is a function: call it, as in {name}(x)", node)
        self.extra_names.add(name)
        return lambda at: self._extra(node, at.extras, is_before, len(at.s))

    def _extra(self, node: ast.Name, extras: Extras, is_before: bool, count: int) -> np.ndarray:
        name = node.id
        try:
            column = extras.before(name) if is_before else extras.after(name)
        except HilpError:
            known_extras = extras.at_s if is_before else extras.at_next
            hint = nearest(name, {*self.columns, "observation", "action", *known_extras})
            kind = "extra column at s" if is_before else "extra column"
            problem = f"unknown name, neither a part of the observation nor an {kind} of {extras.owner}: {hint}"
            known = next((n for n, (_, shape) in self.columns.items() if math.prod(shape) == 1), "observation[0]")
            raise self.error(f"{problem}; a reward for moving is e.g. '{known} - before({known})'", node) from None
        try:
            column = np.asarray(column, np.float64)
        except (TypeError, ValueError):
            raise self.error("this extra column does not hold numbers", node) from None
        if column.shape[:1] != (count,) or 0 in column.shape[1:]:
            raise self.error(f"this extra column has shape {column.shape} for {count} transitions", node)
        return column

    def _comparison(self, node: ast.Compare, pieces: list[_Piece]) -> _Piece:
        tests = [self._operator(operator, node) for operator in node.ops]

        def compare(*values: np.ndarray) -> np.ndarray:
            pairs = zip(tests, values[:-1], values[1:], strict=True)
            return functools.reduce(np.multiply, [test(left, right) for test, left, right in pairs])

        return self._apply(node, compare, pieces)

    def _call(self, node: ast.Call, inner: Callable[..., _Piece], is_before: bool) -> _Piece:
        if not isinstance(node.func, ast.Name):
            self._refuse(node.func, node.func)
        name = node.func.id
        if name not in FUNCTIONS and name != BEFORE:
            raise self.error(f"unknown function '{name}': {nearest(name, [*FUNCTIONS, BEFORE])}", node)
        if node.keywords:
            raise self.error(f"arguments go by position, not by name, in {name}()", node)
        function, fewest, most = FUNCTIONS.get(name, (None, 1, 1))
        if not fewest <= len(node.args) <= most:
            wanted = "at least one argument" if most > fewest else f"{fewest} argument{'s'[: fewest > 1]}"
            raise self.error(f"{name}() takes {wanted}, not {len(node.args)}", node)
        if function is not None:
            return self._apply(node, function, [inner(argument) for argument in node.args])
        if is_before:
            raise self.error("before() inside of before(): only s and s' are known", node)
        self.is_of_a_state = False
        return inner(node.args[0], True)

    def _index(self, node: ast.Subscript, piece: _Piece) -> _Piece:
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        wanted = tuple(self._position(item, node) for item in items)

        def index(at: _Transitions) -> np.ndarray:
            array = _as_vector(piece(at))
            if len(wanted) > array.ndim - 1:
                raise self.error(f"{len(wanted)} indices into {_described(array)} a transition", node)
            for position, size in zip(wanted, array.shape[1:], strict=False):
                self._check(position, size, node)
            return array[(slice(None), *wanted)]

        return index

    def _position(self, node: ast.expr, whole: ast.Subscript) -> int | slice:
        if not isinstance(node, ast.Slice):
            return self._whole_number(node, whole)
        bounds = [one and self._whole_number(one, whole) for one in (node.lower, node.upper, node.step)]
        if bounds[2] == 0:
            raise self.error("the step of a slice cannot be 0", whole)
        return slice(*bounds)

    def _whole_number(self, node: ast.expr, whole: ast.Subscript) -> int:
        sign, digits = 1, node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, digits = -1, node.operand
        if not isinstance(digits, ast.Constant) or type(digits.value) is not int:
            raise self.error("an index is a whole number or a slice of them, as in velocity[0] or velocity[:3]", whole)
        return sign * digits.value

    def _check(self, position: int | slice, size: int, node: ast.Subscript) -> None:
        """Raise if an index is out of range, or a slice: numpy would take what there is, and the reward be another."""
        if isinstance(position, int):
            if not -size <= position < size:
                has = f"are {size} numbers, from 0 to {size - 1}" if size > 1 else "is one number, 0"
                raise self.error(f"there {has}", node)
            return
        if any(bound is not None and not -size <= bound <= size for bound in (position.start, position.stop)):
            raise self.error(f"the slice goes beyond the {size} numbers", node)
        if not range(size)[position]:
            raise self.error(f"the slice is empty: there are {size} numbers", node)


def _shown(text: str, most: int) -> str:
    """Text for one line of an error: no control characters, not too long."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= most else f"{text[: most - 3]}..."
