"""Logs of one line a step: "episode | x y | dx dy", after a first line "#steps"."""

from pathlib import Path

import numpy as np


def recognises(path: Path) -> bool:
    """Whether this is such a log; asked for files that hilp itself does not know."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(6) == b"#steps"


def read(source: Path) -> dict[str, np.ndarray]:
    """A dict of arrays, as `hilp.load` takes one."""
    rows = [line.split("|") for line in Path(source).read_text().splitlines()[1:]]
    numbers = [np.array([part.split() for part in column], np.float32) for column in zip(*rows, strict=True)]
    return {"episode_ids": numbers[0][:, 0].astype(int), "observations": numbers[1], "actions": numbers[2]}
