"""Convert: any readable data to the native folder, or to Minari's, LeRobot's or ExORL's for other tools.

A native folder is written block by block next to its target, under a hidden name, and takes the target's place when it
is complete and hashed. A conversion that was killed goes on where it stopped when it is started again; if the source or
the options have changed since, it starts over.
"""

import hashlib
import json
import os
import shutil
import stat
import time
import warnings
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hilp import storage, trees
from hilp.data import checks, dataset, lerobot, load
from hilp.data.columns import begin_npy, flush
from hilp.data.dataset import Dataset, extras_of
from hilp.data.lerobot import Progress
from hilp.data.source import Kind, Rows, Source, mapped
from hilp.data.transforms import ActionScaling, Metadata
from hilp.errors import HilpError, path_of, require_count

STATE = "conversion.json"  # in the hidden folder: what is being converted, and how many rows are safe on disk
COLUMNS = "columns"  # in there too: the folder that takes its place in the end
CHECKPOINT_SECONDS = 2.0
EXORL_TIME = "20000101T000000"  # names begin with a time; a constant one keeps equal data in equal files

TARGETS = ("native", "minari", "lerobot")


def convert(
    source: Any,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    to: Literal["native", "minari", "lerobot"] = "native",
    fps: int | None = None,
    overwrite: bool = False,
    verify: bool = True,
    rescale_actions: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Write `source` (whatever `load` takes, with the same `format` and `options`) to `target`; returns its folder.

    to: "native", a folder that is trained on from disk; "lerobot", a folder too; or "minari", where `target` is a
    Minari id ("name-v0").
    fps: rows a second, of LeRobot data (default: by the time column).
    verify: compare a native source with its hashes first, so that damage is not copied under new ones.
    rescale_actions: map each action column's range to [-1, 1], which takes one more pass over the data.
    progress: called now and then with ("writing", rows, all rows) and ("hashing", bytes, all bytes).
    """
    if to not in TARGETS:
        raise HilpError(f"data can be converted to 'native', 'minari' or 'lerobot', not to '{to}'")
    if fps is not None:
        if to != "lerobot":
            raise HilpError(f"fps is for LeRobot data: leave it out, or convert with to='lerobot', not '{to}'")
        require_count("fps", fps)
    opened = load.open_source(source, format, **options)
    if verify and opened.damages is not None:
        for damage in opened.damages():
            raise HilpError(damage)
    for problem in checks.structural_problems(opened):
        raise HilpError(f"{opened.name}: {problem}")
    if rescale_actions:
        load.require_to_rescale(opened)
        health = checks.examine(opened)
        for problem in health.problems(rescale=True):
            raise HilpError(f"{opened.name}: {problem}")
        scaling = ActionScaling.of_range(health.acted.low, health.acted.high)
        opened = mapped(
            opened,
            lambda block: {**block, "actions": scaling.scaled(block["actions"])},
            action_scaling=scaling.after(opened.action_scaling),
        )
    tell = progress or (lambda what, done, total: None)
    if to == "minari":
        return _to_minari(opened, str(target), overwrite, tell)
    if to == "lerobot":
        _require_untransformed(opened, "LeRobot")
        return lerobot.write(opened, Path(target), fps, overwrite, tell)
    written, problems = _to_native(opened, Path(target), overwrite, tell)
    for problem in problems:
        warnings.warn(f"{opened.name}: training will refuse this data: {problem}", stacklevel=2)
    return written


def _to_native(source: Source, target: Path, overwrite: bool, progress: Progress) -> tuple[Path, list[str]]:
    """The folder, and what makes training on it impossible."""
    target = storage.with_a_name(path_of(target))
    storage.clean_leftovers(target)
    dataset.require_free(target, overwrite)
    work = target.with_name(f".{target.name}.converting")  # a name that the same command finds again
    with storage.told(f"cannot write {target}", then="; the same command goes on where this one stopped"):
        _require_own(work)
        with storage.locked(work, f"a conversion to {target}"):
            columns = work / COLUMNS
            problems = _write_columns(source, columns, progress)
            np.save(columns / dataset.file_name("lengths"), source.lengths, allow_pickle=False)
            total = sum(file.stat().st_size for file in columns.glob("*.npy"))
            hashed = 0

            def on_block(count: int) -> None:
                nonlocal hashed
                hashed += count
                progress("hashing", hashed, total)

            dataset.seal(columns, source, list(source.columns), on_block)
            (work / STATE).unlink()  # what lies here after the swap is not what a next conversion may go on with
            storage.swap_folder(columns, target)
            shutil.rmtree(work, ignore_errors=True)
    return target, problems


def _require_own(work: Path) -> None:
    """What this command will empty and fill must be a folder of this user: others may have put anything there."""
    if not os.path.lexists(work):
        return
    status = os.lstat(work)
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        raise HilpError(f"{work} is in the way and not a folder of yours: remove it or choose another target")


def _write_columns(source: Source, folder: Path, progress: Progress) -> list[str]:
    """Write what is not on disk yet; what makes training impossible, also of what an earlier process wrote."""
    plan = _plan(source)
    done, known = _rows_done(source, folder, plan)
    health = checks.HealthCheck(source)
    files = {name: folder / dataset.file_name(name) for name in source.columns}
    saved = time.monotonic()

    def checkpoint() -> None:
        flush(files.values())
        temporary = folder.parent / f".{STATE}.writing"  # only this process writes in here
        temporary.write_text(json.dumps({"plan": plan, "rows": done, "problems": [*known, *health.problems()]}))
        os.replace(temporary, folder.parent / STATE)

    try:
        progress("writing", done, source.rows)
        for first, block in source.blocks(done):
            for name, values in block.items():
                with open(files[name], "ab") as file:
                    file.write(np.ascontiguousarray(values, source.columns[name].dtype).data)
            health.add(first, block)
            done = first + len(block["actions"])
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                checkpoint()
                saved = time.monotonic()
            progress("writing", done, source.rows)
        checkpoint()
    except HilpError:  # the source is damaged: nothing to go on with
        shutil.rmtree(folder.parent, ignore_errors=True)
        raise
    return [*known, *health.problems()]


def _plan(source: Source) -> str | None:
    """Equal for equal conversions of unchanged files; None where there are no files to tell."""
    about = (source.identity, sorted(source.columns.items()), source.lengths.tolist(), json.dumps(source.to_json()))
    return None if source.identity is None else hashlib.sha256(repr(about).encode()).hexdigest()


def _rows_done(source: Source, folder: Path, plan: str | None) -> tuple[int, list[str]]:
    """Rows of this very conversion that are safe on disk, and what is wrong with them; else none, in a new folder."""

    def begin(rows: int) -> None:
        for name, kind in source.columns.items():
            begin_npy(folder / dataset.file_name(name), (source.rows, *kind.shape), kind.dtype, rows)

    try:
        state = json.loads((folder.parent / STATE).read_text())
        if plan is not None and state["plan"] == plan:
            begin(int(state["rows"]))
            return int(state["rows"]), [str(problem) for problem in state["problems"]]
    except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError):
        pass  # not even the headers may be safe on disk
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begin(0)
    return 0, []


def _require_plain(data: Metadata, observations: Any, format: str) -> None:
    if isinstance(observations, Mapping):
        raise HilpError(f"{data.name} has named observations, which hilp does not write as {format}: choose native")
    _require_untransformed(data, format)


def _require_untransformed(data: Metadata, format: str) -> None:
    if data.transform is not None:
        raise HilpError(f"{data.name}: {format} does not keep angles and dropped columns: choose native, or leave them")


def _to_minari(source: Source, name: str, overwrite: bool, progress: Progress) -> Path:
    """A Minari data set appears whole or not at all; one that was killed starts again.

    Actions are written in the user's units. `rewards` (recorded with the action) or ExORL's `reward` (recorded with the
    state it led to) become rewards, `terminations` stay; other extras become infos.
    """
    _require_untransformed(source, "Minari")
    try:
        import minari
        from minari.dataset.minari_storage import MinariStorage
    except ImportError as error:
        raise HilpError(f"writing Minari data needs {error.name}: pip install 'hilp[formats]'") from error
    from gymnasium.spaces import Box, Dict, Discrete

    def space(kind: Kind) -> Box:
        least, most = (0, 255) if kind.dtype == np.uint8 else (-np.inf, np.inf)
        return Box(least, most, kind.shape, kind.dtype.type)

    target = _minari_target(name, overwrite)
    low, high = np.full(source.action.shape, -1.0, np.float32), np.full(source.action.shape, 1.0, np.float32)
    if source.action_scaling is not None:
        low, high = source.action_scaling.raw(low), source.action_scaling.raw(high)
    seen = trees.over(space, source.observation)
    note = {"minari_version": minari.__version__, "description": f"written by hilp from {source.name}"}
    with storage.new_folder(target) as temporary:
        (temporary / "data").mkdir()
        written = MinariStorage.new(
            temporary / "data",
            observation_space=Dict(seen) if isinstance(seen, dict) else seen,
            action_space=Discrete(source.choices) if source.choices else Box(low, high, dtype=np.float32),
            data_format="hdf5",
        )
        written.update_metadata({"dataset_id": name, **note})
        for done, episodes in _whole_episodes(source):
            written.update_episodes([_minari_buffer(source, episode) for episode in episodes])
            progress("writing", done, source.rows)
    return target


def _minari_target(name: str, overwrite: bool) -> Path:
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.namespace import create_namespace, list_local_namespaces
    from minari.storage import get_dataset_path

    try:
        namespace, _, version = parse_dataset_id(name)
    except (ValueError, TypeError) as error:
        raise HilpError(f"'{name}' is not a Minari id: give one like 'name-v0' or 'group/name-v0'") from error
    target = Path(get_dataset_path(name))
    storage.clean_leftovers(target)
    if target.exists() and not overwrite:
        raise HilpError(f"Minari already has '{name}': choose version {version + 1} or pass overwrite")
    if namespace is not None and namespace not in list_local_namespaces():
        create_namespace(namespace)
    return target


def _whole_episodes(source: Source) -> Iterator[tuple[int, list[Rows]]]:
    """Whole episodes, as many at a time as fit in a block (but at least one), and the rows done with them.

    NaN and infinities in them are an error after the last, when all that is wrong is known.
    """
    health = checks.HealthCheck(source)
    for first, beyond in source.groups():
        begin, stop = int(source.stops[first] - source.lengths[first]), int(source.stops[beyond - 1])
        rows = source.read(begin, stop)
        health.add(begin, rows)
        edges = [0, *(int(s) - begin for s in source.stops[first:beyond])]
        yield stop, [{name: column[a:b] for name, column in rows.items()} for a, b in pairwise(edges)]
    for problem in health.problems(rescale=True):
        raise HilpError(f"{source.name}: {problem}")


def _minari_buffer(source: Source, episode: Rows) -> Any:
    from minari.data_collector.episode_buffer import EpisodeBuffer

    steps = len(episode["actions"]) - 1
    actions = episode["actions"][:-1, 0].astype(np.int64) if source.choices else episode["actions"][:-1]
    if source.action_scaling is not None:
        actions = source.action_scaling.raw(actions)
    extras = extras_of(episode)
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
        observations=trees.unnamed(episode, "observations"),
        actions=actions,
        rewards=rewards,
        terminations=terminations,
        truncations=truncations,
        infos=infos,
    )


def write_exorl(
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
    _require_plain(data, data.observations, "ExORL")
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
            np.savez(temporary / "buffer" / f"{EXORL_TIME}_{number:0{digits}d}_{steps}.npz", **columns)
    return target
