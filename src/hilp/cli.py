"""The `hilp` command: finds the verb, reads its flags, and turns a user's mistake into one line and exit code 2.

Nothing heavy is imported before a verb is known, so that `hilp --help` answers at once; then only the file of that verb
(`hilp.commands`). A verb is a class: its fields are the flags, calling it does the work.
"""

import contextlib
import importlib
import io
import os
import re
import sys
import typing
import warnings
from collections.abc import Sequence
from typing import Any

from hilp.errors import HilpError, TrainingDiverged, TrainingStopped, nearest, say

VERBS = {  # in the order a new user meets them
    "quickstart": "collect, pretrain, evaluate and report in minutes: the whole story on the built-in maze",
    "pretrain": "train a policy on unlabeled trajectories",
    "preset": "every value that a method is trained with, and where it comes from",
    "evaluate": "prompt a policy with goals and rewards in a task and count what it reaches",
    "prompt": "prompt a policy once: with a goal, a reward or a skill",
    "hierarchy": "train a high-level policy that sequences a policy's skills for a reward",
    "diagnose": "how well |phi(s) - phi(g)| fits the steps from s to g, and what that means",
    "map": "draw the latent space next to the plan of the task",
    "report": "one self-contained HTML page about a run",
    "export": "write a policy for robots that have numpy, or an ONNX runtime, alone",
    "bench rewards": "train methods side by side and prompt each with the rewards of a task: zero-shot RL",
    "bench goals": "train methods side by side and send each to the goals of a task: goal-conditioned RL",
    "bench hierarchy": "train skills and a high level over them side by side, for one sparse reward: hierarchical RL",
    "data list": "the data sets and tasks that come with hilp",
    "data inspect": "what is in a data set, and what is wrong with it",
    "data convert": "write any readable data set as a native folder, for Minari or as ExORL does",
    "data collect": "collect unlabeled trajectories in a task",
}

# Others have files of their name.
FILES = {"hierarchy": "pretrain", **dict.fromkeys(("preset", "diagnose", "map", "report", "export"), "views")}

HELP = """usage: hilp VERB [options]

Unlabeled trajectories in, a promptable policy out.

{verbs}

`hilp VERB --help` explains a verb. Start with `hilp quickstart`.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `hilp` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a letter shows its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _main(words)
        sys.stdout.flush()  # here, where a closed pipe or a full disk can still be reported
        return code
    except TrainingStopped as error:
        return _ended(str(error), 130)
    except TrainingDiverged as error:
        return _ended(f"stopped: {error}", 1)
    except HilpError as error:
        return _ended(f"error: {error}", 2)
    except KeyboardInterrupt:
        return _ended("stopped", 130)
    except BrokenPipeError:  # `hilp ... | head`
        _forget_output()
        return 141
    except MemoryError as error:
        return _ended(f"error: not enough memory ({str(error) or 'allocation failed'}): ask for less at once", 2)
    except OSError as error:  # no space, no permission
        _forget_output()
        return _ended(f"error: {error}", 2)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning on one line."""
    name = "warning" if issubclass(category, UserWarning) else category.__name__
    say(f"{name}: {' '.join(str(message).split())}")


def _ended(message: str, code: int) -> int:
    say(" ".join(message.split()))
    return code


def _forget_output() -> None:
    """Drop what could not be printed, or Python would try again at its end and complain."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: no real file, as in tests
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(words: list[str]) -> int:
    first, second = [*words, "", ""][:2]
    if first in ("", "-h", "--help", "help"):
        width = max(map(len, VERBS))
        print(HELP.format(verbs="\n".join(f"  {verb:<{width}}  {what}" for verb, what in VERBS.items())), end="")
        return 0
    if first in ("-V", "--version", "version"):
        from importlib.metadata import version

        print(f"hilp {version('hilp')}")
        return 0
    if first == "data" and second in ("", "-h", "--help"):
        print("\n".join(f"hilp {name}: {what}" for name, what in VERBS.items() if name.startswith("data ")))
        return 0
    verb = f"{first} {second}" if first == "data" or f"{first} {second}" in VERBS else first
    if verb not in VERBS:
        raise HilpError(f"unknown verb '{verb}': {nearest(verb, VERBS)}")
    command = _parse(flags_of(verb), verb, words[len(verb.split()) :])
    for name in [name for name in sys.modules if name.startswith("hilp.")]:
        sys.modules[name].__doc__  # noqa: B018  # reads what is imported WhenUsed, before there are threads
    return int(command() or 0)


def flags_of(verb: str) -> Any:
    """The class of a verb, from its file and no other."""
    first, last = verb.split()[0], verb.split()[-1]
    return getattr(importlib.import_module(f"hilp.commands.{FILES.get(first, first)}"), last.title())


def _parse(flags: type, verb: str, words: list[str]) -> Any:
    """The dataclass of a verb from its words; tyro's error box becomes one line."""
    import tyro

    hints = typing.get_type_hints(flags)
    words = _merge_repeated(_join_texts(words, {f"--{name}" for name, kind in hints.items() if kind == str | None}))
    known = {"--help", *(f"--{name.replace('_', '-')}" for name in hints)}
    for word in words:
        option = word.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option not in known:
            raise HilpError(f"hilp {verb} has no option {option}: {nearest(option, known)}")
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(flags, prog=f"hilp {verb}", args=words, config=(tyro.conf.FlagCreatePairsOff,))
    except SystemExit as stop:
        if stop.code in (0, None):  # --help
            sys.stdout.flush()
            raise
        raise HilpError(f"{_one_line(errors.getvalue())} (see hilp {verb} --help)") from None


def _one_line(box: str) -> str:
    """What tyro says in a frame, which is drawn in Unicode or ASCII and has a title as its first line."""
    body = [" ".join(line.strip("│|╭╮╰╯+ ").split()) for line in box.splitlines()[1:]]
    kept = " ".join(line for line in body if line.strip("─-"))
    message = re.split(r"\.? (?:For full helptext|Argument helptext|Got errors)", f"{kept} ")[0].strip()
    wrong = re.match(r"Error parsing (--[\w-]+): .*?'(.*?)'", message)
    return f"{wrong[1]} cannot be '{wrong[2]}'" if wrong else message


def _join_texts(words: list[str], texts: set[str]) -> list[str]:
    """A text that begins with a minus, as in --reward "-abs(x-5)" or --goal -1,2, belongs to the flag before it."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in texts and word.startswith("-") and not word.startswith("--") and word != "-h":
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _merge_repeated(words: list[str]) -> list[str]:
    """Let flags that take several values be repeated: the values of each are put together at the end."""
    values: dict[str, list[str]] = {"--set": [], "--option": [], "--columns": []}
    rest: list[str] = []
    into = rest
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in values and equals:
            values[flag].append(value)
        elif word.startswith("-"):
            into = values.get(word, rest)
            if into is rest:
                rest.append(word)
        else:
            into.append(word)
    return rest + [word for flag, several in values.items() if several for word in (flag, *several)]
