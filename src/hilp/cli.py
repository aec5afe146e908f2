"""The `hilp` command: finds the verb, reads its flags, and turns a user's mistake into one line and exit code 2.

Nothing heavy is imported before a verb is known, so that `hilp --help` answers at once; then only the file of that verb
(`hilp.commands`). A verb is a class: its fields are the flags, calling it does the work.
"""

import contextlib
import dataclasses
import importlib
import io
import os
import re
import signal
import sys
import threading
import traceback
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hilp.errors import TRACEBACK, HilpError, TrainingDiverged, TrainingStopped, nearest, say, users_mistake

VERBS = {  # in the order a new user meets them
    "quickstart": "collect, pretrain, evaluate and report in minutes: the whole story on the built-in maze",
    "pretrain": "train a policy on unlabeled trajectories",
    "preset": "every value that a method is trained with, and where it comes from",
    "evaluate": "prompt a policy with goals and rewards in a task and count what it reaches",
    "prompt": "prompt a policy once: with a goal, a reward or a skill",
    "play": "meet a policy in the browser: click goals, paint rewards, take the prompt home as code",
    "serve": "answer robots over a socket: observations in, actions out, by openpi's protocol",
    "hierarchy": "train a high-level policy that sequences a policy's skills for a reward",
    "diagnose": "how well |phi(s) - phi(g)| fits the steps from s to g, and what that means",
    "map": "draw the latent space next to the plan of the task",
    "report": "one self-contained HTML page about a run",
    "export": "write a policy for robots that have numpy, or an ONNX runtime, alone",
    "push": "publish a policy on the Hugging Face Hub, with a card made from its run",
    "pull": "download a policy from the Hub to a folder of your own",
    "bench rewards": "train methods side by side and prompt each with the rewards of a task: zero-shot RL",
    "bench goals": "train methods side by side and send each to the goals of a task: goal-conditioned RL",
    "bench hierarchy": "train skills and a high level over them side by side, for one sparse reward: hierarchical RL",
    "data list": "the data sets and tasks that come with hilp",
    "data inspect": "what is in a data set, and what is wrong with it",
    "data convert": "write any readable data set as a native folder, for Minari or as ExORL does",
    "data collect": "collect unlabeled trajectories in a task",
}

# Others have files of their name.
FILES = {
    "hierarchy": "pretrain",
    "push": "hub",
    "pull": "hub",
    **dict.fromkeys(("preset", "diagnose", "map", "report", "export"), "views"),
}

HELP = """usage: hilp VERB [options]

Unlabeled trajectories in, a promptable policy out.

{verbs}

`hilp VERB --help` explains a verb. Start with `hilp quickstart`.
--traceback after any verb shows where in the code an error came from.
"""
ASK = ("-h", "--help", "--help-all")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `hilp` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    shows_code = TRACEBACK in words
    words = [word for word in words if word != TRACEBACK]
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a letter shows its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            with _ends_at_once():
                command = _command(words)
            code = 0 if command is None else int(command() or 0)
        sys.stdout.flush()  # here, where a closed pipe or a full disk can still be reported
        return code
    except BaseException as error:
        if shows_code:
            traceback.print_exception(error)
        return _ended_by(error)


def _ended_by(error: BaseException) -> int:
    """What an error means to the user, on one line, and the exit code. What is no user's mistake is raised again."""
    match error:
        case TrainingStopped():
            return _ended(str(error), 130)
        case TrainingDiverged():
            return _ended(f"stopped: {error}", 1)
        case HilpError():
            return _ended(f"error: {error}", 2)
        case KeyboardInterrupt():
            return _ended("stopped", 130)
        case BrokenPipeError():  # `hilp ... | head`
            _forget_output()
            return 141
    if (mistake := users_mistake(error)) is not None:
        return _ended(f"error: {mistake}", 2)
    match error:
        case MemoryError():
            return _ended(f"error: not enough memory ({str(error) or 'allocation failed'}): ask for less at once", 2)
        case OSError():  # no space, no permission
            _forget_output()
            return _ended(f"error: {error}", 2)
    raise error


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


@contextlib.contextmanager
def _ends_at_once() -> Iterator[None]:
    """Ctrl-C ends the process then and there: an import that is cut short can raise anything, or nothing at all."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        os.write(2, b"hilp: stopped\n")
        os._exit(130)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _command(words: list[str]) -> Callable[[], int | None] | None:
    """The verb that the words ask for, with all that it imports; None where they ask for help, which is printed."""
    if words[:1] == ["help"] and len(words) > 1:  # as git has it
        words = [*words[1:], "--help"]
    first, second = [*words, *ASK[:2]][:2]
    if first in (*ASK, "help"):
        print(HELP.format(verbs=_listed(VERBS)), end="")
        return None
    if first in ("-V", "--version", "version"):
        from importlib.metadata import version

        print(f"hilp {version('hilp')}")
        return None
    family = {name: what for name, what in VERBS.items() if name.startswith(f"{first} ")}
    if family and second in ASK:
        print(f"usage: hilp {first} VERB [options]\n\n{_listed(family)}")
        return None
    verb = f"{first} {second}" if family else first
    if verb not in VERBS:
        raise HilpError(f"unknown verb '{verb}': {nearest(verb, VERBS)}")
    flags, words = flags_of(verb), words[len(verb.split()) :]
    if asked := [word for word in words if word in ASK]:
        from hilp.commands import help

        print(help.text(flags, verb, everything="--help-all" in asked), end="")
        return None
    command: Callable[[], int | None] = _parse(flags, verb, words)
    for name in [name for name in sys.modules if name.startswith("hilp.")]:
        sys.modules[name].__doc__  # noqa: B018  # reads what is imported WhenUsed, before there are threads
    return command


def _listed(verbs: dict[str, str]) -> str:
    width = max(map(len, verbs))
    return "\n".join(f"  {verb:<{width}}  {what}" for verb, what in verbs.items())


def flags_of(verb: str) -> Any:
    """The class of a verb, from its file and no other."""
    first, last = verb.split()[0], verb.split()[-1]
    return getattr(importlib.import_module(f"hilp.commands.{FILES.get(first, first)}"), last.title())


def _parse(flags: type, verb: str, words: list[str]) -> Any:
    """The dataclass of a verb from its words; tyro's error box becomes one line."""
    import tyro

    hints = {field.name: typing.get_type_hints(flags)[field.name] for field in dataclasses.fields(flags)}
    words = _merge_repeated(_join_texts(words, {f"--{name}" for name, kind in hints.items() if kind == str | None}))
    known = {"--help", "--help-all", *(f"--{name.replace('_', '-')}" for name in hints)}
    for word in words:
        option = word.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option not in known:
            raise HilpError(f"hilp {verb} has no option {option}: {nearest(option, known)}")
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            switches = (tyro.conf.FlagCreatePairsOff,)
            return tyro.cli(flags, prog=f"hilp {verb}", args=words, add_help=False, config=switches)
    except SystemExit:
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
