"""Where a policy can lie: in a folder, in the zoo that comes with hilp (zoo:NAME), or on the Hub (hf://USER/NAME).

Whatever takes the folder of a run takes these names, too. The zoo and what was downloaded are only read: rows and
pictures about them go to a folder of their own under runs/.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

from hilp import runs
from hilp.errors import HilpError, nearest, place_of, some

ZOO_FOLDER = Path(__file__).parent.parent / "zoo"  # one policy's folder each, made by tools/make_zoo.py
ZOO, HUB = "zoo:", "hf:/"  # of hf://user/name a Path leaves one slash


class Place(NamedTuple):
    """The folder of a policy, and where rows and reports about it belong."""

    folder: Path
    home: Path


def find(run: Any) -> Place:
    """Where the policy is that somebody names; what lies on the Hub is downloaded first, unless it is here already."""
    text = os.fspath(run) if isinstance(run, str | os.PathLike) else ""
    if isinstance(text, str) and text.startswith(ZOO):
        name = text.removeprefix(ZOO)
        if name not in zoo():
            asked = f"there is no policy '{name}' in the zoo: {nearest(name, zoo())}" if name else None
            raise HilpError(asked or f"name one of the zoo's policies: {some([ZOO + one for one in zoo()])}")
        return Place(ZOO_FOLDER / name, Path("runs") / f"zoo-{name}")
    if isinstance(text, str) and text.startswith(HUB):
        from hilp.policy import hub

        there = hub.Repository.named(text)
        return Place(hub.download(there), Path("runs") / f"hf-{there.user}-{there.name}")
    folder = runs.find(place_of("the folder of a policy", run))
    return Place(folder, runs.home(folder))


def written(run: str) -> str:
    """The name of a policy as it goes into code; a path without what changes nothing about it."""
    return run if run.startswith((ZOO, HUB)) else str(Path(run))


def zoo() -> list[str]:
    """The names of the policies that come with hilp."""
    return sorted(path.parent.name for path in ZOO_FOLDER.glob(f"*/{runs.CONFIG}"))
