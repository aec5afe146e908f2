"""Packages that bring methods, tasks and readers: the example is installed in a fresh environment and used there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import plugins, tasks
from hilp.data import load

EXAMPLE = Path(__file__).parent.parent / "examples" / "plugin"


def write_log(path: Path, episodes: int = 20, steps: int = 20) -> None:
    """A log as the example's reader reads it."""
    rng = np.random.default_rng(0)
    lines = ["#steps"]
    for episode in range(episodes):
        at = rng.uniform(-1, 1, 2)
        for action in rng.uniform(-1, 1, (steps, 2)):
            lines.append(f"{episode} | {at[0]:.5f} {at[1]:.5f} | {action[0]:.5f} {action[1]:.5f}")
            at = np.clip(at + 0.1 * action, -1, 1)
    path.write_text("\n".join(lines))


AGAIN = "---- the next command"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that sees this one's packages and has the example installed."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    found = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    inside = sysconfig.get_path("purelib", vars={"base": str(folder / "env"), "platbase": str(folder / "env")})
    ours = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(inside) / "ours.pth").write_text(ours)  # instead of a download
    shutil.copytree(EXAMPLE, folder / "package")
    words = [sys.executable, "-m", "pip", "--python", str(found), "install", "--quiet", "--no-index", "--no-deps"]
    done = subprocess.run(
        [*words, "--no-build-isolation", str(folder / "package")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return found


def shell(python: Path, where: Path, *commands: list[str]) -> list[str]:
    """What each command prints, one after the other in one process: to begin takes longer than most of them."""
    loop = "import json, sys\nfrom hilp.cli import main\nfor words in json.loads(sys.argv[1]):\n    "
    loop += f"assert main(words) == 0\n    print({AGAIN!r}, flush=True)"
    told = [str(python), "-c", loop, json.dumps(commands)]
    done = subprocess.run(told, cwd=where, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(AGAIN)[:-1]


def test_an_installed_package_is_used_from_the_shell(python: Path, tmp_path: Path) -> None:
    write_log(tmp_path / "my.log")
    train = ["pretrain", "--data", "my.log", "--task", "table", "--method", "imitate", "--steps", "20", "--out", "run"]
    trained, listed, inspected = shell(
        python, tmp_path, [*train, "--set", "batch=32"],
        ["data", "list", "--json"], ["data", "inspect", "my.log", "--json"],
    )  # fmt: skip
    assert "hilp evaluate run" in trained
    assert "imitate" in json.loads(listed)["methods"] and "table" in json.loads(listed)["tasks"]
    assert (json.loads(inspected)["format"], json.loads(inspected)["episodes"]) == ("steps-log", 20)
    table = ["bench", "goals", "--data", "my.log", "--task", "table", "--methods", "imitate", "--seeds", "1"]
    evaluated, _ = shell(
        python, tmp_path, ["evaluate", "run", "--episodes", "3", "--json"],
        [*table, "--steps", "5", "--episodes", "2", "--set", "batch=32", "--json"],
    )  # fmt: skip
    (row,) = map(json.loads, evaluated.splitlines())
    assert (row["task"], row["method"], row["metric"]) == ("table", "imitate", "success")


def test_without_the_package_its_names_are_told_unknown(tmp_path: Path) -> None:
    write_log(tmp_path / "my.log")
    with pytest.raises(hilp.HilpError):
        hilp.load(tmp_path / "my.log")
    with pytest.raises(hilp.HilpError, match="unknown format 'steps-log'"):
        hilp.load(tmp_path / "my.log", "steps-log")
    with pytest.raises(hilp.HilpError, match="unknown task 'table'"):
        tasks.make("table")


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLE / "src")
    from hilp_example import reader

    yield reader
    for name in [name for name in sys.modules if name.startswith("hilp_example")]:
        del sys.modules[name]
    load._registered.clear()


def test_a_format_of_one_process(reader: Any, tmp_path: Path) -> None:
    write_log(tmp_path / "my.log")
    hilp.register_format("steps-log", reader.read, reader.recognises)
    data = hilp.load(tmp_path / "my.log")
    assert (data.format, data.episodes, data.transitions) == ("steps-log", 20, 380)
    with pytest.raises(hilp.HilpError, match="'colums' is no option of the format steps-log"):
        hilp.load(tmp_path / "my.log", colums=3)
    hilp.register_format("odd", lambda source: 3)
    with pytest.raises(hilp.HilpError, match="the reader of the format odd gave a int"):
        hilp.load(tmp_path / "my.log", "odd")
    with pytest.raises(hilp.HilpError, match="registered with a function that reads it"):
        hilp.register_format("none", None)  # type: ignore[arg-type]


def test_a_broken_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"lost": EntryPoint("lost", "no_such_package.task:make", "hilp.tasks")}
    monkeypatch.setattr(plugins, "found", lambda kind: entries if kind == "tasks" else {})
    with pytest.raises(hilp.HilpError, match="the plugin 'lost' cannot be imported from no_such_package"):
        tasks.make("lost")
    assert tasks.make("maze-large").name == "maze-large"  # ours work on


def test_the_method_is_that_of_the_page() -> None:
    page = (EXAMPLE.parent.parent / "docs" / "add-a-method.md").read_text()
    assert (EXAMPLE / "src" / "hilp_example" / "method.py").read_text() in page
