"""Builds a release and tries it as a stranger would; what it leaves in dist/ is what is published.

The source distribution is made from git, the wheel from the source distribution, and a wheel made from git must be the
same. For each Python that is named, the wheel goes into an empty environment with what pip finds today; there the
command says its version, collects, trains, prompts, and acts with the zoo. Beside the wheel go two lists of what was
installed with it: tested-3.12.txt (as `pip freeze` writes it) and hilp-3.12.cdx.json (a CycloneDX bill of materials).

Run: python tools/check_release.py [--tagged v1.2.3] [PYTHON ...]   (default: the Python that runs it)

It needs `build` and `twine`: pip install -c constraints.txt build twine
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).parent.parent
LARGEST = 3_000_000  # bytes of a wheel, of which the zoo has the most
TINY = "--set dim=4 hidden=16x16 actor_hidden=16x16 batch=32"
TRIED = (  # lines that a stranger could type first, in an empty folder
    "--help",
    "data collect --task maze-medium --kind navigate --steps 2000 --out data",
    f"pretrain --data data --steps 20 --bank 200 --out run {TINY}",
    "prompt run --goal 1.5,1.5 --plan 0 --steps 5",
    "prompt zoo:maze-large --goal 10.5,1.5 --start 1.5,7.5 --json",
    "evaluate zoo:large-pixels --plan 0 --episodes 2",
)


def main(words: list[str]) -> None:
    """Build, compare, and try in the environments of all these Pythons."""
    tag, pythons = (words[1], words[2:]) if words[:1] == ["--tagged"] else (None, words)
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    (wheel,) = out.glob("*.whl")
    version = wheel.name.split("-")[1]
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes")
    require(wheel.stat().st_size <= LARGEST, f"the wheel is larger than {LARGEST:,} bytes")
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
        (direct,) = Path(folder).glob("*.whl")
        require(direct.name == wheel.name, f"from git it is {direct.name}")
        differ = sorted(name for name, _ in contents(wheel).items() ^ contents(direct).items())
        require(not differ, f"the wheels from git and from the source distribution differ in {', '.join(differ)}")
    run(sys.executable, "-m", "twine", "check", "--strict", *out.iterdir())
    require(tag in (None, f"v{version}"), f"the tag is {tag}, the version {version}")
    require_told(version)
    for python in pythons or [sys.executable]:
        try_wheel(python, wheel, version)
    print(f"hilp {version} could be released: {', '.join(sorted(path.name for path in out.iterdir()))}")


def contents(wheel: Path) -> dict[str, str]:
    """What is in a wheel: names, and hashes of what they hold."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def require_told(version: str) -> None:
    """A release has a tag, and says in the list of changes and in CITATION.cff what it is; days between have not."""
    if not re.fullmatch(r"[\d.]+", version):
        print(f"{version} is no release: the newest commit has no tag, or a file is not committed")
        return
    changes = (ROOT / "CHANGELOG.md").read_text()
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    dated = re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.M)
    require(dated is not None, f"CHANGELOG.md has no line '## {version} (YYYY-MM-DD)'")
    require(cited is not None and cited[1] == version, f"CITATION.cff names another version than {version}")


def try_wheel(python: str, wheel: Path, version: str) -> None:
    """Install it where nothing is, and use it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(python, "-m", "venv", place / "venv")
        here = place / "venv" / "bin" / "python"
        run(here, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        about = json.loads(run(here, "-m", "pip", "--disable-pip-version-check", "inspect"))
        write_lists(about, wheel.parent)
        hilp = place / "venv" / "bin" / "hilp"
        said = run(hilp, "--version").strip()
        require(said == f"hilp {version}", f"it says '{said}', not '{version}'")
        for line in TRIED:
            run(hilp, *line.split(), at=place)
        print(f"tried on Python {about['environment']['python_full_version']}")


def write_lists(about: dict[str, Any], out: Path) -> None:
    """What was installed, as pip would install it again, and as a bill of materials."""
    python = about["environment"]["python_version"]
    found = sorted((one["metadata"]["name"], one["metadata"]["version"]) for one in about["installed"])
    found = [(name, version) for name, version in found if name != "pip"]
    locked = [f"{name}=={version}" for name, version in found if name != "hilp"]
    (out / f"tested-{python}.txt").write_text("\n".join([f"# with Python {python}", *locked]) + "\n")
    parts = []
    for name, version in found:
        purl = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{quote(version)}"
        parts.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    (own,) = [part for part in parts if part["name"] == "hilp"]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [part for part in parts if part is not own],
    }
    (out / f"hilp-{python}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")


def run(*words: object, at: Path = ROOT) -> str:
    """Run a command; what it prints, and all of it if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX_", "XLA_"))}
    done = subprocess.run([str(word) for word in words], cwd=at, env=clean, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(str(word) for word in words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def require(right: bool, otherwise: str) -> None:
    if not right:
        raise SystemExit(f"no release: {otherwise}")


if __name__ == "__main__":
    main(sys.argv[1:])
