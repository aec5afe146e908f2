"""The help of a verb: what most people need first, the other flags by topic, and with --help-all what each does.

All of it comes from the verb's class: fields are flags, the text below a field is its help, `first` names those that
come first (else the fields of the class itself), `example` is a command that can be typed.
"""

import ast
import dataclasses
import inspect
import itertools
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any

FEW = 12  # flags that need no topics
WIDEST = 100  # columns

TOPICS: dict[str, tuple[str, ...]] = {  # fields by topic, in the order of the page
    "goals": ("goal", "plan", "best", "radius", "goal_dims", "smooth", "follow", "window"),
    "rewards": ("reward", "rewards", "labels", "rule", "intercept", "discount", "samples", "shift", "ends"),
    "skills": ("skill", "prefer", "load", "add", "then", "until", "adapt", "earn"),
    "data": ("data", "task", "stride", "stride_actions", "validation", "verify"),
    "method": ("method", "methods", "preset", "set", "sweep", "variants", "k", "high_steps", "high_set"),
    "training": ("steps", "minutes", "seed", "seeds", "eval_task", "eval_every", "curve_points"),
    "episodes": ("episodes", "start", "random", "errors"),
    "machine": ("device_budget", "devices", "coordinator", "processes", "process", "engine", "jobs", "retries",
                "address", "cpus_per_cell", "gpus_per_cell"),
    "output": ("out", "bank", "rows", "save", "picture", "video", "rerun", "log", "overwrite", "json"),
}  # fmt: skip
OF_CLASSES = {"Reading": "data", "GoalOptions": "goals", "RewardOptions": "rewards", "RunOptions": "training"}
REST = "more"
VALUES = {  # what a flag takes, where its type does not say it
    "out": "PATH", "data": "DATA", "method": "NAME", "preset": "NAME", "goal": "GOAL", "plan": "PLAN",
    "skill": "SKILL", "columns": "WHAT=NAMES", "start": "NUMBERS", "stride": "N|auto", "host": "ADDRESS",
    "until": "END", "token": "FILE", **dict.fromkeys(("format", "methods"), "NAME"),
    **dict.fromkeys(("angles", "goal_dims"), "NAMES"),
    **dict.fromkeys(("split", "drop"), "WHAT"), "discrete_actions": "N|auto|none",
    **dict.fromkeys(("task", "eval_task"), "TASK"),
    **dict.fromkeys(("set", "option"), "KEY=VALUE"),
    **dict.fromkeys(("reward", "rewards", "earn"), "REWARD"),
    **dict.fromkeys(("load", "save", "picture", "video", "rerun", "rows"), "FILE"),
    **dict.fromkeys(("follow", "prefer", "labels", "then", "add"), "FILE"),
}  # fmt: skip


def text(flags: Any, verb: str, everything: bool = False) -> str:
    """The page of a verb."""
    width = min(shutil.get_terminal_size((WIDEST, 0)).columns, WIDEST)
    fields = {field.name: field for field in dataclasses.fields(flags)}
    hints, about = typing.get_type_hints(flags, include_extras=True), _about(flags)
    entries = {name: _entry(field, hints[name], about.get(name, "")) for name, field in fields.items()}
    needed = [name for name, field in fields.items() if field.default is dataclasses.MISSING]
    needed.sort(key=lambda name: entries[name][0].startswith("-"))  # RUN comes first, wherever its class stands
    maybe = [f"[{left}]" for name, (left, _) in entries.items() if name not in needed and not left.startswith("-")]
    usage = " ".join(["usage: hilp", verb, *(entries[name][0] for name in needed), *maybe, "[options]"])
    said = [usage, "", *_paragraphs(inspect.getdoc(flags) or "", width)]
    if example := getattr(flags, "example", None):
        said += ["", f"example: {example}"]
    first = [name for name in getattr(flags, "first", None) or flags.__annotations__ if name in entries]
    first = [*needed, *(name for name in first if name not in needed)]
    column = 4 + min(22, max(len(left) for left, _ in entries.values()))
    if len(fields) <= FEW or not set(fields) - set(first):
        said += ["", *_lines(entries, [*first, *(name for name in fields if name not in first)], column, width)]
    elif everything:
        for topic, names in {"most used": first, **_by_topic(flags, first)}.items():
            said += ["", f"{topic}:", *_lines(entries, names, column, width)]
    else:
        said += ["", *_lines(entries, first, column, width), "", f"more (hilp {verb} --help-all explains all of them):"]
        topics = _by_topic(flags, first)
        left = 4 + max(map(len, topics))
        for topic, names in topics.items():
            said += _hanging(topic, " ".join(map(flag_of, names)), left, width)
    return "\n".join(said) + "\n"


def flag_of(name: str) -> str:
    """A field as it is typed."""
    return f"--{name.replace('_', '-')}"


def _by_topic(flags: Any, first: list[str]) -> dict[str, list[str]]:
    """The fields of a verb that do not come first by topic: by name, else by the class that they come from."""
    found: dict[str, list[str]] = {topic: [] for topic in (*TOPICS, REST)}
    for name in [field.name for field in dataclasses.fields(flags) if field.name not in first]:
        owners = [one.__name__ for one in flags.__mro__ if name in inspect.get_annotations(one)]
        named = (topic for topic, names in TOPICS.items() if name in names)
        found[next(named, OF_CLASSES.get(owners[-1], REST))].append(name)
    order = [name for names in TOPICS.values() for name in names]
    for names in found.values():
        names.sort(key=lambda name: order.index(name) if name in order else len(order))
    return {topic: names for topic, names in found.items() if names}


def _entry(field: Any, hint: Any, about: str) -> tuple[str, str]:
    """How a flag is typed and what it does, with its default where that says something and the text does not."""
    kind, *marks = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
    positional = [mark.metavar for mark in marks if getattr(mark, "metavar", None)]
    if positional:
        return positional[0], about
    left = " ".join([flag_of(field.name), *_value(field.name, kind)])
    if field.default is dataclasses.MISSING:
        return left, f"{about} (required)"
    plain = field.default is not None and field.default is not False and field.default not in ("", ())
    if not plain or "(default" in about:
        return left, about
    usual = " ".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
    return left, f"{about} (default: {usual})"


def _value(name: str, kind: Any) -> list[str]:
    """What follows a flag; nothing after a switch."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    several = typing.get_origin(kind) is tuple
    if several:
        kind = typing.get_args(kind)[0]
    if kind is bool:
        return []
    if typing.get_origin(kind) is typing.Literal:
        value = "|".join(map(str, typing.get_args(kind)))
    else:
        value = VALUES.get(name, {int: "N", float: "X"}.get(kind, "TEXT"))
    return [value, "..."] if several else [value]


def _about(flags: Any) -> dict[str, str]:
    """The text below each field, of the class that says it last."""
    found: dict[str, str] = {}
    for one in reversed(flags.__mro__):
        source = inspect.getsource(one) if one is not object else "class object: pass"
        body: list[ast.stmt] = getattr(ast.parse(textwrap.dedent(source)).body[0], "body", [])
        for field, below in itertools.pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = " ".join(words.split())
    return found


def _paragraphs(words: str, width: int) -> Iterator[str]:
    for number, paragraph in enumerate(words.split("\n\n")):
        yield from ([""] if number else [])
        yield from textwrap.wrap(" ".join(paragraph.split()), width)


def _lines(entries: dict[str, tuple[str, str]], names: typing.Iterable[str], column: int, width: int) -> Iterator[str]:
    for name in names:
        yield from _hanging(*entries[name], column, width)


def _hanging(left: str, words: str, column: int, width: int) -> list[str]:
    """Words in a column of their own, to the right of what they are about."""
    lines = textwrap.wrap(words, max(width - column, 20), break_on_hyphens=False) or [""]
    if len(left) + 4 > column:  # too long to stand beside it
        return [f"  {left}", *(" " * column + line for line in lines)]
    return [f"  {left}".ljust(column) + lines[0], *(" " * column + line for line in lines[1:])]
