"""Convert: any readable data to the native folder, or to Minari for sharing, in little memory.

A native folder is written block by block next to its target, under a hidden name, and takes the target's place when it
is complete and hashed. A conversion that was killed goes on where it stopped when it is started again; if the source or
the options have changed since, it starts over.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hilp import storage
from hilp.data import checks, load, native
from hilp.data.columns import NpyWriter
from hilp.data.formats import minari
from hilp.data.source import Source, rescaled
from hilp.data.transforms import ActionScaling
from hilp.errors import HilpError, path_of

STATE = "conversion.json"  # in the hidden folder: what is being converted, and how many rows are safe on disk
COLUMNS = "columns"  # in there too: the folder that takes its place in the end
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
    opened = load.open_source(source, format, **options)
    if verify and opened.damages is not None:
        for damage in opened.damages():
            raise HilpError(damage)
    for problem in checks.structural_problems(opened):
        raise HilpError(f"{opened.name}: {problem}")
    if rescale_actions:
        health = checks.examine(opened)
        for problem in health.problems(rescale=True):
            raise HilpError(f"{opened.name}: {problem}")
        opened = rescaled(opened, ActionScaling.of_range(health.low, health.high))
    tell = progress or (lambda what, done, total: None)
    if to == "minari":
        return minari.write(opened, str(target), overwrite, tell)
    written, problems = _to_native(opened, Path(target), overwrite, tell)
    for problem in problems:
        warnings.warn(f"{opened.name}: training will refuse this data: {problem}", stacklevel=2)
    return written


# ---- the native folder -----------------------------------------------------------------------------------------------


def _to_native(source: Source, target: Path, overwrite: bool, progress: Progress) -> tuple[Path, list[str]]:
    """The folder, and what makes training on it impossible."""
    target = storage.with_a_name(path_of(target))
    storage.clean_leftovers(target)
    native.require_free(target, overwrite)
    work = target.with_name(f".{target.name}.converting")  # a name that the same command finds again
    try:
        _require_own(work)
        with storage.locked(work, f"a conversion to {target}"):
            columns = work / COLUMNS
            problems = _write_columns(source, columns, progress)
            np.save(columns / native.file_name("lengths"), source.lengths, allow_pickle=False)
            total = sum(file.stat().st_size for file in columns.glob("*.npy"))
            hashed = 0

            def on_block(count: int) -> None:
                nonlocal hashed
                hashed += count
                progress("hashing", hashed, total)

            native.seal(columns, source, list(source.columns), on_block)
            (work / STATE).unlink()  # what lies here after the swap is not what a next conversion may go on with
            storage.swap_folder(columns, target)
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise HilpError(
            f"cannot write {target}: {error.strerror or error}; the same command goes on where this one stopped"
        ) from error
    return target, problems


def _require_own(work: Path) -> None:
    """What this command will empty and fill must be a folder of this user: others may have put anything there."""
    try:
        status = os.lstat(work)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        raise HilpError(f"{work} is in the way and not a folder of yours: remove it or choose another target")


def _write_columns(source: Source, folder: Path, progress: Progress) -> list[str]:
    """Write what is not on disk yet; what makes training impossible, also of what an earlier process wrote."""
    plan = _plan(source)
    done, known = _rows_done(folder, plan)
    health = checks.HealthCheck(source)
    try:
        writers = _open_writers(folder, source, done)
    except (ValueError, EOFError, FileNotFoundError):  # not even the headers were safe on disk
        done, known = 0, []
        writers = _open_writers(folder, source, done)
    saved = time.monotonic()

    def checkpoint() -> None:
        for writer in writers.values():
            writer.flush()
        temporary = folder.parent / f".{STATE}.writing"  # only this process writes in here
        temporary.write_text(json.dumps({"plan": plan, "rows": done, "problems": [*known, *health.problems()]}))
        os.replace(temporary, folder.parent / STATE)

    try:
        progress("writing", done, source.rows)
        for first, block in source.blocks(done):
            for name, values in block.items():
                writers[name].append(values)
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
    finally:
        for writer in writers.values():
            writer.close()
    return [*known, *health.problems()]


def _open_writers(folder: Path, source: Source, done: int) -> dict[str, NpyWriter]:
    return {
        name: NpyWriter(folder / native.file_name(name), (source.rows, *kind.shape), kind.dtype, done)
        for name, kind in source.columns.items()
    }


def _plan(source: Source) -> str | None:
    """Equal for equal conversions of unchanged files; None where there are no files to tell."""
    if source.identity is None:
        return None
    digest = hashlib.sha256(source.identity.encode())
    digest.update(repr(sorted(source.columns.items())).encode())
    digest.update(np.ascontiguousarray(source.lengths).data)
    digest.update(json.dumps(source.to_json()).encode())
    return digest.hexdigest()


def _rows_done(folder: Path, plan: str | None) -> tuple[int, list[str]]:
    """Rows of this very conversion that are safe on disk, and what is wrong with them; else a new folder."""
    try:
        state = json.loads((folder.parent / STATE).read_text())
        if plan is not None and state["plan"] == plan and folder.is_dir():
            return int(state["rows"]), [str(problem) for problem in state["problems"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return 0, []
