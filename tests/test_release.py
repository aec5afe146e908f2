"""What is released: what pyproject.toml says is what is tried, a wheel lacks nothing, and the workflow could run."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml

import check_release

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCE = ROOT / "src" / "hilp"


def workflow(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text()))


def named() -> list[str]:
    """The Pythons that the package says it runs on."""
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c) for c in PROJECT["project"]["classifiers"])
    return [match[1] for match in found if match]


def test_the_pythons_that_are_named_are_tried() -> None:
    assert workflow("ci")["jobs"]["wheel"]["strategy"]["matrix"]["python"] == named()
    steps = workflow("release")["jobs"]["build"]["steps"]
    asked = next(step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", ""))
    assert asked.split() == named()
    assert any(" ".join(f"python{one}" for one in named()) in step.get("run", "") for step in steps)
    assert PROJECT["project"]["requires-python"] == f">={named()[0]}"


def test_publishing_needs_no_password() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and jobs["publish"]["needs"] == "build"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()} == {
        "publish",
        "notes",
    }


def test_a_wheel_lacks_no_file_and_is_small() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["hilp"]
    known = subprocess.run(["git", "ls-files", "src/hilp"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    there = [ROOT / name for name in known] or [path for path in SOURCE.rglob("*") if path.is_file()]
    names = {str(path.relative_to(SOURCE)) for path in there if path.exists() and path.suffix != ".py"}
    missing = {name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}
    assert not missing, f"no pattern of package-data in pyproject.toml has {missing}"
    unused = [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]
    assert not unused
    packed = sum(len(zlib.compress(path.read_bytes(), 6)) for path in there if path.exists())
    assert packed < check_release.LARGEST - 200_000, "besides, a wheel has a list of its files"


def test_the_list_of_changes_and_the_citation_are_of_the_same_version() -> None:
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert newest is not None and str(cited["version"]) == newest[1]
    assert newest[2] == "unreleased" or re.fullmatch(r"\d{4}-\d\d-\d\d", newest[2])


def test_forms_for_issues_are_whole() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.stem != "config":
            assert {"name", "description", "body"} <= set(form), path.name
            assert all({"type", "attributes"} <= set(field) for field in form["body"]), path.name


def test_no_release_without_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check_release, "ROOT", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.3.0 (unreleased)\n")
    (tmp_path / "CITATION.cff").write_text("version: 0.2.0\n")
    check_release.require_told("0.3.1.dev2+gabc")
    with pytest.raises(SystemExit, match=r"CHANGELOG.md has no line '## 0.3.0 \(YYYY-MM-DD\)'"):
        check_release.require_told("0.3.0")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.3.0 (2026-12-01)\n")
    with pytest.raises(SystemExit, match=r"CITATION.cff names another version than 0.3.0"):
        check_release.require_told("0.3.0")
    (tmp_path / "CITATION.cff").write_text("version: 0.3.0\n")
    check_release.require_told("0.3.0")


def interpreters() -> list[str]:
    """Those of the named Pythons that are on this machine: on the path, or where pyenv keeps them."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for one in named():
        others = [str(path) for path in sorted(kept.glob(f"{one}.*/bin/python"))]
        found += [path for path in (shutil.which(f"python{one}"), *others) if path and works(path)][:1]
    return found


def works(python: str) -> bool:
    """A name on the path may be one of pyenv's, behind which there is nothing."""
    return subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0


VERSIONS = "import setuptools_scm; print(setuptools_scm.get_version())"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that can build and check packages."""
    place = tmp_path_factory.mktemp("tools") / "venv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    words = ["-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", "build", "twine", "setuptools-scm"]
    subprocess.run([place / "bin" / "python", *words], check=True)
    return place / "bin" / "python"


def git(folder: Path, *words: str) -> None:
    person = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *person, *words], cwd=folder, check=True, capture_output=True)


def in_folder(python: Path, folder: Path, *words: str | Path) -> str:
    done = subprocess.run([python, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_version_comes_from_tags(tools: Path, tmp_path: Path) -> None:
    """Of a tag, of commits after it, of a clone without tags or history, and of files without git."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    git(clone, "tag", "v7.8.9")
    assert in_folder(tools, clone, "-c", VERSIONS) == "7.8.9"
    (clone / "README.md").write_text("more")
    git(clone, "commit", "-am", "More")
    assert re.fullmatch(r"7\.8\.10\.dev1\+g\w+", in_folder(tools, clone, "-c", VERSIONS))
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", "--no-tags", clone.as_uri(), shallow], check=True)
    in_folder(tools, shallow, "-m", "build", "--wheel")
    (wheel,) = (shallow / "dist").glob("*.whl")
    assert re.match(r"hilp-0\.1\.dev\d+", wheel.name)
    shutil.rmtree(shallow / ".git")
    shutil.rmtree(shallow / "dist")
    in_folder(tools, shallow, "-m", "build", "--wheel")
    assert [path.name for path in (shallow / "dist").iterdir()] == ["hilp-0.1.dev0-py3-none-any.whl"]


@pytest.mark.slow
def test_a_release_could_be_made(tools: Path, tmp_path: Path) -> None:
    """In a clone, as on a fresh machine: wheel and source distribution, and every Python that is here."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    pythons = interpreters()
    said = in_folder(tools, clone, "tools/check_release.py", *pythons)
    assert said.count("tried on Python") == len(pythons) >= 1
    lists = {path.name for path in (clone / "dist").iterdir()}
    assert {f"tested-{sys.version_info[0]}.{sys.version_info[1]}.txt"} <= lists or len(pythons) > 1
