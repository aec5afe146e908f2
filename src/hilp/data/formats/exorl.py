"""ExORL's layout: `<domain>/<algorithm>/buffer/<time>_<episode>_<steps>.npz`, read, and written for other tools.

Each file is one episode of T + 1 rows: observation, action, reward, discount and physics, of which action[i], reward[i]
and discount[i] led to observation[i] and those of row 0 are dummies.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.data.columns import open_npz
from hilp.data.dataset import Dataset
from hilp.data.formats import arrays
from hilp.data.source import Source, chain, with_files, without_short
from hilp.data.tables import Table
from hilp.errors import HilpError, path_of, require_count

TIME = "20000101T000000"  # names begin with a time; a constant one keeps equal data in equal files


def read(
    source: Path, *, episodes: int | None = None, flatten: bool = False, extras: Sequence[str] | None = None
) -> Source:
    """An ExORL folder (`<domain>/<algorithm>`, or its `buffer`): one episode a file, in the order of their names.

    A file has T + 1 rows; action[0] is a dummy and action[i] leads to observation[i], so actions move up by a row.
    Reward, discount, physics and whatever else has a row per observation stay with their observation, as extras;
    reward[0] and discount[0] are dummies. `episodes` reads the first so many files. Files are read as they are needed.
    """
    if episodes is not None:
        episodes = require_count("episodes", episodes)
    files = episode_files(source.absolute())[:episodes]  # read as they are needed, wherever this process then is
    if not files:
        raise HilpError(f"{source} has no .npz files: give the folder of an algorithm, <domain>/<algorithm>")
    lengths = [np.array([_rows(file)], np.int64) for file in files]

    def opened(number: int, wanted: Sequence[str] | None, only: Sequence[str] | None = None) -> Source:
        table = Table(str(files[number]), "exorl", open_npz(files[number], only))
        observation, action = table["observation"], table["action"]
        if action.shape[:1] != observation.shape[:1]:
            raise HilpError(
                f"{table.name}: observation is {observation.shape} but action {action.shape}: give as many rows of both"
            )
        rest = {name: column for name, column in table.columns.items() if name not in ("observation", "action")}
        table = replace(table, columns={"observations": observation, "actions": action[1:], **rest})
        return arrays.of_table(table, None, flatten, False, wanted, lengths[number])

    kept = list(opened(0, extras).extras)

    @functools.lru_cache(maxsize=1)  # a block may end inside an episode, and the next one goes on with it
    def episode(number: int) -> Source:
        return opened(number, kept, ("observation", "action", *kept))

    found = replace(chain(str(source), lengths, episode, [file.name for file in files]), notes=())
    return without_short(with_files(found, files))


def episode_files(path: Path) -> list[Path]:
    """The files of the folder of an algorithm, or of its `buffer`."""
    folder = path / "buffer" if (path / "buffer").is_dir() else path
    return sorted(folder.glob("*.npz"))


def _rows(file: Path) -> int:
    columns = open_npz(file, ("observation",))
    if "observation" not in columns or not columns["observation"].shape or not columns["observation"].shape[0]:
        raise HilpError(f"{file} is not an ExORL episode: it has no rows of 'observation'")
    return columns["observation"].shape[0]


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(
    data: Dataset, folder: str | os.PathLike[str], domain: str | None = None, algorithm: str | None = None
) -> Path:
    """Write `data` below `folder`; returns `<folder>/<domain>/<algorithm>`, which appears whole or not at all.

    Domain and algorithm are those that hilp collected the data with, unless named. Rewards are the extra column
    "reward" (at the state it was paid for), or 0 where there is none: ExORL's users label by physics.
    """
    domain = domain or data.task
    if algorithm is None and domain is not None and data.name.startswith(f"{domain}-"):
        algorithm = data.name.removeprefix(f"{domain}-")
    if not domain or not algorithm:
        raise HilpError(f"{data.name} does not say its domain and algorithm: pass domain=... and algorithm=...")
    if isinstance(data.observations, Mapping):
        raise HilpError(f"{data.name} has named observations, which hilp does not write as ExORL: choose native")
    if data.transform is not None:
        raise HilpError(f"{data.name}: ExORL does not keep angles and dropped columns: choose native, or leave them")
    target = path_of(folder) / domain / algorithm
    storage.clean_leftovers(target)
    if target.exists():
        raise HilpError(f"{target} already exists: choose another folder")
    digits = len(str(max(data.episodes - 1, 0)))  # ExORL is read in the order of names
    with storage.new_folder(target) as temporary:
        (temporary / "buffer").mkdir()
        for number, rows in enumerate(data.iter_episodes()):
            steps = rows.stop - rows.start - 1
            actions = np.asarray(data.actions[rows])
            columns: dict[str, Any] = {
                "reward": np.zeros((steps + 1, 1), np.float32),
                "discount": np.ones((steps + 1, 1), np.float32),
                **{name: np.asarray(column[rows]) for name, column in data.extras.items()},
                "observation": np.asarray(data.observations[rows]),
                "action": np.concatenate([np.zeros_like(actions[:1]), actions[:-1]]),
            }
            np.savez(temporary / "buffer" / f"{TIME}_{number:0{digits}d}_{steps}.npz", **columns)
    return target
