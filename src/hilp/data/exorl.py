"""ExORL's layout, written: `<domain>/<algorithm>/buffer/<time>_<episode>_<steps>.npz`, for tools that read no other.

Each file is one episode of T + 1 rows: observation, action, reward, discount and physics, of which action[i], reward[i]
and discount[i] led to observation[i] and those of row 0 are dummies. `readers.exorl` reads it again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from hilp.data.dataset import Dataset
from hilp.errors import HilpError

TIME = "20000101T000000"  # names begin with a time; a constant one keeps equal data in equal files


def export_exorl(
    data: Dataset, folder: str | os.PathLike[str], domain: str | None = None, algorithm: str | None = None
) -> Path:
    """Write `data` below `folder`; returns `<folder>/<domain>/<algorithm>`, which appears whole or not at all.

    Domain and algorithm are those that hilp collected the data with, unless given. Rewards are the extra column
    "reward" (at the state it was paid for), or 0 where there is none: ExORL's users label by physics.
    """
    domain = domain or data.task
    if algorithm is None and domain is not None and data.name.startswith(f"{domain}-"):
        algorithm = data.name.removeprefix(f"{domain}-")
    if not domain or not algorithm:
        raise HilpError(f"{data.name} does not say its domain and algorithm: pass domain=... and algorithm=...")
    target = Path(folder) / domain / algorithm
    if target.exists():
        raise HilpError(f"{target} already exists: choose another folder")
    temporary = target.with_name(f".{target.name}.writing-{os.getpid()}")
    digits = len(str(max(data.episodes - 1, 0)))  # ExORL is read in the order of names
    try:
        (temporary / "buffer").mkdir(parents=True)
        for number, rows in enumerate(data.iter_episodes()):
            steps = rows.stop - rows.start - 1
            name = f"{TIME}_{number:0{digits}d}_{steps}.npz"
            np.savez(temporary / "buffer" / name, **_episode(data, rows))
        os.replace(temporary, target)
    except OSError as error:
        raise HilpError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _episode(data: Dataset, rows: slice) -> dict[str, Any]:
    actions = np.asarray(data.actions[rows])
    count = len(actions)
    columns: dict[str, Any] = {
        "observation": np.asarray(data.observations[rows]),
        "action": np.concatenate([np.zeros_like(actions[:1]), actions[:-1]]),
        "reward": np.zeros((count, 1), np.float32),
        "discount": np.ones((count, 1), np.float32),
    }
    extras = {name: np.asarray(column[rows]) for name, column in data.extras.items()}
    return columns | {name: column for name, column in extras.items() if name not in ("observation", "action")}
