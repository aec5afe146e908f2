"""What README.md and docs/ tell a reader to type works.

Python blocks are executed, page by page, in a new folder. Every `hilp` line of a shell block is read by the real
parser; those that need no simulator and no table of many runs are then run, too. The text is taken as it stands; what
is small here are the budgets: updates, episodes, kept states, transitions and networks are cut after they were read
(`few`, `run`). A block that is only a fragment says so in the line above it: <!-- not run: why -->
"""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import hilp
import serving
from hilp import cli
from hilp.training import auto_config

ROOT = Path(__file__).parent.parent
PAGES = {str(path.relative_to(ROOT)): path for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))}
ELSEWHERE = {"docs/add-a-method.md": "test_methods.py"}  # a page whose Python another test follows
CUT = {"steps": 20, "episodes": 2, "bank": 400, "pairs": 50}
TRANSITIONS = 4_000
NETWORKS: dict[str, Any] = {"dim": 4, "hidden": (16, 16), "actor_hidden": (16, 16), "batch": 32}
# Robots need minutes to simulate, tables of methods need hours to train: these lines are only parsed.
TOO_MUCH = re.compile(r"^hilp (bench|play|quickstart|serve)\b|walker|antmaze|runs/ant\b|\.\.\.")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    skipped: bool  # told to be a fragment


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page; a fence may be indented, as in a list."""
    found, lines, start = [], page.read_text().splitlines(), None
    for number, line in enumerate(lines):
        fence = re.match(r" *```(\w*)", line)
        if not fence:
            continue
        if start is None:
            start, language = number, fence[1]
            continue
        above = next((lines[i] for i in range(start - 1, -1, -1) if lines[i].strip()), "")
        text = "\n".join(lines[start + 1 : number])
        found.append(Block(language, text, start + 1, above.strip().startswith("<!-- not run:")))
        start = None
    assert start is None, f"{page.name}: a block is not closed"
    return found


def commands(block: Block) -> list[str]:
    """The `hilp` lines of a shell block, without comments; a backslash carries on a line."""
    joined = re.sub(r"\\\n\s*", "", block.text)
    return [line for line in joined.splitlines() if line.startswith("hilp ")]


class Parsed(Exception):
    """Thrown instead of running what was parsed."""


Cli = Callable[[str], int]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Reads a line by the real parser and runs nothing; raises the parser's HilpError."""
    real = cli._parse

    def stop(flags: type, verb: str, words: list[str]) -> Any:
        raise Parsed(real(flags, verb, words))

    monkeypatch.setattr(cli, "_parse", stop)

    def read(line: str) -> None:
        with pytest.raises(Parsed):
            cli._command(shlex.split(line, comments=True)[1:])

    return read


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a line, with budgets cut after the real parser has read them."""
    real = cli._parse

    def cut(flags: type, verb: str, words: list[str]) -> Any:
        given = real(flags, verb, words)
        small = {**CUT, "steps": TRANSITIONS} if verb == "data collect" else CUT
        names = {field.name for field in fields(given)}
        less = {name: least(getattr(given, name), most) for name, most in small.items() if name in names}
        if verb == "prompt" and given.run == "runs/robot":
            del less["steps"]  # there are no episodes without a task, and the log of a robot has none
        if verb == "pretrain":
            less["set"] = (*given.set, *(f"{key}={shown(value)}" for key, value in NETWORKS.items()))
            less["eval_every"] = CUT["steps"]
        return replace(given, **less)

    monkeypatch.setattr(cli, "_parse", cut)
    return lambda line: cli.main(shlex.split(line, comments=True)[1:])


def shown(value: int | tuple[int, ...]) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def least(given: int | None, most: int) -> int:
    return most if given is None else min(given, most)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of the API with budgets cut."""
    load, pretrain, evaluate, collect = hilp.load, hilp.pretrain, hilp.evaluate, hilp.collect

    def load_few(source: Any, *args: Any, **options: Any) -> Any:
        builtin = isinstance(source, str) and source.startswith("maze-") and not Path(source).exists()
        return load(source, *args, **options, **({"steps": TRANSITIONS} if builtin else {}))

    def pretrain_few(config: Any, data: Any, *, steps: int | None = None, **rest: Any) -> Any:
        if isinstance(config, str):
            config = auto_config.usual(config, data)[0].config
        names = {field.name for field in fields(config)}
        config = replace(config, **{name: value for name, value in NETWORKS.items() if name in names})
        rest["bank"] = least(rest.get("bank"), CUT["bank"])
        return pretrain(config, data, steps=least(steps, CUT["steps"]), **{**rest, "quiet": True})

    def evaluate_few(*args: Any, **rest: Any) -> Any:
        return evaluate(*args, **{**rest, "episodes": least(rest.get("episodes"), CUT["episodes"])})

    def collect_few(task: str, kind: str, steps: int, *args: Any, **rest: Any) -> Any:
        return collect(task, kind, least(steps, TRANSITIONS), *args, **rest)

    small = {"load": load_few, "pretrain": pretrain_few, "evaluate": evaluate_few, "collect": collect_few}
    for name, function in small.items():
        monkeypatch.setattr(hilp, name, function)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the pages speak of: a CSV log, an npz and an HDF5 file."""
    rng = np.random.default_rng(0)
    runs, steps = 12, 30
    push = np.clip(rng.normal(0, 8, (runs * steps, 2)), -12, 12)
    place = np.cumsum(0.02 * push.reshape(runs, steps, 2), axis=1).reshape(-1, 2)
    log = np.column_stack([np.repeat(np.arange(runs), steps), place, push])
    header = "run,x,y,push_x,push_y"
    np.savetxt(tmp_path / "robot_log.csv", log, delimiter=",", header=header, comments="", fmt="%.4f")
    arrays = {"observations": place, "actions": push / 12, "episode_lengths": np.full(runs, steps)}
    np.savez(tmp_path / "log.npz", **arrays)
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_python_runs(page: str, folder: Path, few: None) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(PAGES[page]):
        if block.language == "python" and not block.skipped:
            code = "\n" * block.line + block.text  # so that an error names its line in the page
            exec(compile(code, page, "exec"), names)


@pytest.mark.parametrize("page", ELSEWHERE)
def test_python_runs_elsewhere(page: str) -> None:
    assert Path(page).name in Path(__file__).with_name(ELSEWHERE[page]).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_command_lines_parse(page: str, parse: Callable[[str], None]) -> None:
    for block in blocks(PAGES[page]):
        before = ""
        for line in commands(block):
            if " ... " in line:  # the line before, and more
                verb, _, more = line.partition(" ... ")
                assert before.startswith(verb), f"{page}: nothing before '{line}'"
                line = f"{before.partition(' #')[0]} {more}"
            try:
                parse(line)
            except hilp.HilpError as error:
                raise AssertionError(f"{page}: '{line}': {error}") from None
            before = line


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md"])
def test_command_lines_run(page: str, folder: Path, run: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    done = 0
    for block in blocks(PAGES[page]):
        for line in commands(block):
            if not TOO_MUCH.search(line.partition(" #")[0]):
                code = run(line)
                assert code == 0, f"{page}: '{line}': {capsys.readouterr().err}"
                done += 1
    assert done >= 3, "hardly any line was run"


def test_from_log_to_robot(
    folder: Path, run: Cli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The eight commands of docs/serve.md in their order; the server in a thread, the robot for half a second."""
    lines = re.sub(r"\\\n\s*", "", blocks(PAGES["docs/serve.md"])[0].text).splitlines()
    assert len(lines) == 8 and lines[0] == "pip install 'hilp[serve]'" and lines[-2].startswith("hilp serve ")
    for line in lines[1:-2]:
        assert run(line) == 0, f"'{line}': {capsys.readouterr().err}"
    served = cli._parse(cli.flags_of("serve"), "serve", shlex.split(lines[-2])[2:])
    program = ROOT / shlex.split(lines[-1], comments=True)[1]
    with serving.listening(replace(served, port=0).prepared()) as address:
        monkeypatch.setattr("sys.argv", [str(program), address, "0.5"])
        runpy.run_path(str(program), run_name="__main__")
    said = capsys.readouterr().out
    assert "25 ticks: " in said and "1 without an answer, connected 2 times" in said, "it was cut off once"


@pytest.mark.parametrize("page", PAGES)
def test_words_in_the_text_exist(page: str, parse: Callable[[str], None]) -> None:
    """Verbs, flags, make targets, extras, scripts and modules that a page names in passing."""
    text = re.sub(r"^ *```.*?^ *```", "", PAGES[page].read_text(), flags=re.M | re.S)
    for span in re.findall(r"`([^`]+)`", text):
        span = re.sub(r"[\[\]]", "", span.replace("\n", " ")).replace("rewards|goals", "rewards").removesuffix(" ...")
        if span.startswith("hilp ") and not re.match(r"hilp (VERB|.*\|)", span):
            assert not unknown(parse, span), f"{page}: `{span}`: {unknown(parse, span)}"
        elif re.match(r"--[a-z]", span) and page not in ("CONTRIBUTING.md", "docs/develop.md"):
            assert not all(unknown(parse, f"hilp {verb} {span}") for verb in cli.VERBS), f"{page}: no verb has `{span}`"


def unknown(parse: Callable[[str], None], line: str) -> str:
    """What the parser does not know of a line that may be incomplete; "" if it knows all words."""
    try:
        parse(line)
    except hilp.HilpError as error:
        return str(error) if re.search(r"has no option|unknown verb", str(error)) else ""
    except (ValueError, pytest.fail.Exception):  # an open quote; --help, which parses and stops
        return ""
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_what_stands_beside_hilp_exists(page: str) -> None:
    text = PAGES[page].read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.M))
    assert named <= targets, f"{page}: the Makefile has no {named - targets}"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {x for group in re.findall(r"pip install .*?(?:hilp|\.)\[([\w,]+)\]", text) for x in group.split(",")}
    assert asked <= set(extras), f"{page}: no extra {asked - set(extras)}"
    for module in re.findall(r"python -m (hilp[\w.]*)", text):
        assert find_spec(module), f"{page}: no module {module}"
    for script in re.findall(r"python ((?:tools|tests|examples)/\S+?\.py)", text):
        assert (ROOT / script).exists(), f"{page}: no file {script}"


SOURCE_FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")


@pytest.mark.parametrize("page", PAGES)
def test_source_files_exist(page: str) -> None:
    """Named as they lie under src/hilp, or as tools/..., tests/... under the root."""
    named = SOURCE_FILE.findall(PAGES[page].read_text())
    gone = [name for name in named if not (ROOT / "src" / "hilp" / name).is_file() and not (ROOT / name).is_file()]
    assert not gone, f"{page} names what does not exist: {' '.join(gone)}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", PAGES[page].read_text()):
        made = target.startswith(("import-graph-", "modules.md"))  # when the site is built
        if not re.match(r"https?:", target) and not made:
            assert (PAGES[page].parent / target).exists(), f"{page}: no {target}"


# The checks can fail.


def test_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    lines = ["```python", "x = 1", "```", "<!-- not run: half of it -->", "```python", "y =", "```"]
    page.write_text("\n".join(["# a", "", *lines, "```", "hilp a \\", "  b # c", "ls", "```", ""]))
    first, second, third = blocks(page)
    assert (first.language, first.text, first.line, first.skipped) == ("python", "x = 1", 3, False)
    assert second.skipped
    assert commands(third) == ["hilp a b # c"]


def test_a_wrong_line_is_told(parse: Callable[[str], None]) -> None:
    parse("hilp pretrain --data a --out b  # fine")
    for line in ("hilp pretrain --data a --out b --stepps 3", "hilp pretrian --data a", "hilp pretrain --data a"):
        with pytest.raises(hilp.HilpError):
            parse(line)
    assert unknown(parse, "hilp evaluate RUN --planz 3")
    assert not unknown(parse, "hilp evaluate --plan 3")
