"""Convert: any readable data to the native folder, or to Minari for sharing, in little memory.

A native folder is written block by block beside its place, under a hidden name, and takes its place when it is complete
and hashed. A conversion that was killed goes on where it stopped when it is started again; if the source or the options
have changed since, it starts anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hilp.data import checks, dataset, load, sources
from hilp.data.columns import NpyWriter, reason
from hilp.data.sources import Block, Source
from hilp.errors import HilpError

STATE = "conversion.json"  # in the hidden folder: what is being converted, and how many rows are safe on disk
CHECKPOINT_SECONDS = 2.0

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


def convert(
    source: Any,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    to: Literal["native", "minari"] = "native",
    overwrite: bool = False,
    verify: bool = True,
    rescale_actions: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Write `source` (whatever `load` takes, with the same `format` and `options`) to `target`; returns its folder.

    to: "native", a folder that is trained on from disk; or "minari", where `target` is a Minari id ("name-v0").
    verify: compare a native source with its hashes first, so that damage is not copied under new ones.
    rescale_actions: map each action column's range to [-1, 1], which takes one more pass over the data.
    progress: called now and then with ("writing", rows, all rows) and ("hashing", bytes, all bytes).
    """
    if to not in ("native", "minari"):
        raise HilpError(f"data can be converted to 'native' or 'minari', not to '{to}'")
    chosen = load.recognise(source, options) if format is None else format
    if chosen == "native":
        options.setdefault("verify", verify)
    opened = load.open_source(source, chosen, **options)
    for problem in checks.structural_problems(opened):
        raise HilpError(f"{opened.name}: {problem}")
    if rescale_actions:
        health = checks.examine(opened)
        for problem in health.problems(rescale=True):
            raise HilpError(f"{opened.name}: {problem}")
        opened = sources.rescaled(opened, sources.Scaling(health.low, health.high))
    tell = progress or (lambda what, done, total: None)
    if to == "minari":
        return _to_minari(opened, str(target), overwrite, tell)
    return _to_native(opened, Path(target), overwrite, tell)


# ---- native ----------------------------------------------------------------------------------------------------------


def _to_native(source: Source, target: Path, overwrite: bool, progress: Progress) -> Path:
    dataset.require_free(target, overwrite)
    temporary = target.with_name(f".{target.name}.converting")
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        with _alone(temporary, target):
            extras = sorted(source.extras)
            _write_columns(source, temporary, progress)
            np.save(temporary / dataset.file_name("lengths"), source.lengths, allow_pickle=False)
            total = sum(file.stat().st_size for file in temporary.glob("*.npy"))
            hashed = 0

            def beside(count: int) -> None:
                nonlocal hashed
                hashed += count
                progress("hashing", hashed, total)

            dataset.seal(temporary, dataset.describe(source), extras, beside)
            (temporary / STATE).unlink()
            dataset.take_place(temporary, target)
    except OSError as error:
        raise HilpError(
            f"cannot write {target}: {error.strerror or error}; the same command goes on where this one stopped"
        ) from error
    return target


def _write_columns(source: Source, folder: Path, progress: Progress) -> None:
    kinds = {"observations": source.observation, "actions": source.action}
    kinds |= {f"extra.{name}": kind for name, kind in source.extras.items()}
    plan = _plan(source)
    done = _rows_done(folder, plan)
    try:
        writers = _open_writers(folder, kinds, source.rows, done)
    except (ValueError, EOFError):  # not even the headers were safe on disk
        done = 0
        writers = _open_writers(folder, kinds, source.rows, done)
    saved = time.monotonic()

    def checkpoint() -> None:
        for writer in writers.values():
            writer.flush()
        _write_state(folder, plan, done)

    try:
        progress("writing", done, source.rows)
        for first, block in source.blocks(done):
            for name, writer in writers.items():
                writer.append(_column(block, name))
            done = first + len(block.observations)
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                checkpoint()
                saved = time.monotonic()
            progress("writing", done, source.rows)
        checkpoint()
    except HilpError:  # the source is damaged: nothing to go on with
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        for writer in writers.values():
            writer.close()


def _open_writers(folder: Path, kinds: dict[str, Any], rows: int, done: int) -> dict[str, NpyWriter]:
    return {
        name: NpyWriter(folder / dataset.file_name(name), (rows, *kind.shape), kind.dtype, done)
        for name, kind in kinds.items()
    }


def _column(block: Block, name: str) -> np.ndarray:
    if name in ("observations", "actions"):
        return np.asarray(getattr(block, name))
    return block.extras[name.removeprefix("extra.")]


def _plan(source: Source) -> str | None:
    """Equal for equal conversions of unchanged files; None where there are no files to tell."""
    if source.identity is None:
        return None
    digest = hashlib.sha256(source.identity.encode())
    digest.update(repr((source.observation, source.action, sorted(source.extras.items()))).encode())
    digest.update(np.ascontiguousarray(source.lengths).data)
    digest.update(json.dumps(dataset.describe(source)).encode())
    return digest.hexdigest()


def _rows_done(folder: Path, plan: str | None) -> int:
    """Rows of this very conversion that are safe on disk; the folder is emptied where there are none."""
    try:
        state = json.loads((folder / STATE).read_text())
        if plan is not None and state["plan"] == plan:
            return int(state["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    for file in folder.iterdir():
        file.unlink()
    return 0


def _write_state(folder: Path, plan: str | None, rows: int) -> None:
    temporary = folder / f".{STATE}.writing"
    temporary.write_text(json.dumps({"plan": plan, "rows": rows}))
    os.replace(temporary, folder / STATE)


@contextmanager
def _alone(folder: Path, target: Path) -> Iterator[None]:
    """Nobody else writes here meanwhile; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: without a lock
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HilpError(f"another process is converting to {target} right now") from error
        yield
    finally:
        os.close(handle)


# ---- Minari ----------------------------------------------------------------------------------------------------------


def _to_minari(source: Source, name: str, overwrite: bool, progress: Progress) -> Path:
    """A Minari data set appears whole or not at all; one that was killed starts anew.

    Actions are written in the user's units. `rewards` (recorded with the action) or ExORL's `reward` (recorded with the
    state it led to) become rewards, `terminations` stay; other extras become infos.
    """
    try:
        import minari
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.dataset.minari_storage import MinariStorage
        from minari.namespace import create_namespace, list_local_namespaces
        from minari.storage import get_dataset_path
    except ImportError as error:
        raise HilpError(f"writing Minari data needs {error.name}: pip install 'hilp[formats]'") from error
    from gymnasium.spaces import Box

    try:
        namespace, _, version = parse_dataset_id(name)
    except (ValueError, TypeError) as error:
        raise HilpError(f"'{name}' is not a Minari id: give one like 'name-v0' or 'group/name-v0'") from error
    target = Path(get_dataset_path(name))
    if target.exists() and not overwrite:
        raise HilpError(f"Minari already has '{name}': choose version {version + 1} or pass overwrite")
    if namespace is not None and namespace not in list_local_namespaces():
        create_namespace(namespace)
    temporary = target.with_name(f".{target.name}.converting")
    center, half_range = source.action_center, source.action_half_range
    low = np.full(source.action.shape, -1.0, np.float32)
    if center is not None and half_range is not None:
        box = Box(center - half_range, center + half_range, dtype=np.float32)
    else:
        box = Box(low, -low, dtype=np.float32)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        (temporary / "data").mkdir(parents=True)
        kind = source.observation.dtype
        least, most = (0, 255) if kind == np.uint8 else (-np.inf, np.inf)
        storage = MinariStorage.new(
            temporary / "data",
            observation_space=Box(least, most, source.observation.shape, kind.type),
            action_space=box,
            data_format="hdf5",
        )
        storage.update_metadata(
            {
                "dataset_id": name,
                "minari_version": minari.__version__,
                "description": f"written by hilp from {source.name}",
            }
        )
        for done, episodes in _episodes(source):
            storage.update_episodes([_minari_buffer(source, episode) for episode in episodes])
            progress("writing", done, source.rows)
        dataset.take_place(temporary, target)
    except OSError as error:
        raise HilpError(f"cannot write {target}: {reason(error)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _episodes(source: Source) -> Iterator[tuple[int, list[Block]]]:
    """Whole episodes, as many at a time as fit in a block (but at least one), and the rows done with them."""
    first, begin = 0, 0
    while first < source.episodes:
        beyond = int(np.searchsorted(source.stops, begin + source.block_rows, "right"))
        beyond = max(beyond, first + 1)
        stop = int(source.stops[beyond - 1])
        rows = source.read(begin, stop)
        edges = [0, *(int(s) - begin for s in source.stops[first:beyond])]
        yield stop, [rows.part(a, b) for a, b in pairwise(edges)]
        first, begin = beyond, stop


def _minari_buffer(source: Source, episode: Block) -> Any:
    from minari.data_collector.episode_buffer import EpisodeBuffer

    steps = len(episode.observations) - 1
    actions = episode.actions[:-1]
    if source.action_center is not None and source.action_half_range is not None:
        actions = source.action_center + source.action_half_range * actions
    extras = dict(episode.extras)
    rewards = np.zeros(steps)
    if "rewards" in extras and extras["rewards"].ndim == 1:
        rewards = extras.pop("rewards")[:-1]
    elif "reward" in extras and extras["reward"].size == steps + 1:
        rewards = extras.pop("reward").reshape(-1)[1:]
    terminations = extras.pop("terminations", np.zeros(steps + 1, bool))[:-1].astype(bool)
    truncations = extras.pop("truncations", np.zeros(steps + 1, bool))[:-1].astype(bool)
    truncations[-1] |= not terminations[-1]  # every episode ends somehow
    infos: dict[str, Any] = {}
    for name, column in extras.items():
        *path, leaf = name.removeprefix("infos/").split("/")
        inner = infos
        for part in path:
            inner = inner.setdefault(part, {})
        inner[leaf] = column
    return EpisodeBuffer(
        observations=episode.observations,
        actions=actions,
        rewards=rewards,
        terminations=terminations,
        truncations=truncations,
        infos=infos,
    )
