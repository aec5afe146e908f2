"""What a run writes while it trains: its description, its metrics, its checkpoints. Checked when it is resumed."""

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hilp import storage
from hilp.errors import HilpError, say
from hilp.runs import CHECKPOINTS, METRICS, RUN
from hilp.training import distributed
from hilp.training.run import Means, Run, scalars, weighted_mean

CHECKPOINT_MINUTES = 5.0  # a slow run is saved at least this often
# Must agree to resume; only a hierarchy is of a policy.
IDENTITY = ("policy", "method", "config", "seed", "seeds", "validation", "data_fingerprint", "devices")


class RunWriter:
    """The folder of a run in training; without one nothing is kept. Of several processes one writes."""

    def __init__(self, run: Run) -> None:
        self.run, self.options, self.folder = run, run.options, run.options.folder
        self.writes = distributed.writes(run.options.devices)
        self.own_folder = self.folder if self.writes else None
        self.waiting: list[tuple[int, Means]] = []  # chunks since the last metrics row
        self._saved_at = time.monotonic()

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """The folder, kept from other writers."""
        if self.own_folder is None:
            return contextlib.nullcontext()
        if self.own_folder.exists() and not self.own_folder.is_dir():
            raise HilpError(f"{self.own_folder} exists and is not the folder of a run: choose another --out")
        return storage.locked(self.own_folder, self.run.command)

    def begin(self) -> tuple[int, Any, dict[str, Any]]:
        """The update to go on from, the state there and its checkpoint's note; the folder is made where it is new."""
        run, steps = self.run, self.options.updates
        start, state, note, problem = 0, run.fresh, dict[str, Any](), None
        if self.folder is None:
            return start, state, note
        description = run.description()
        try:
            if self.writes:
                require_own_folder(self.folder, description, self.options.resume)
            if self.options.resume:
                start, state, note = newest_checkpoint(self.folder, run.fresh)
        except HilpError as error:
            problem = error
        identity = [description.get(key) for key in (*IDENTITY, "steps", "until")]
        distributed.require_same(start, json.dumps([*identity, str(self.options.pace)]), problem)
        if start > steps:
            raise HilpError(f"{self.folder} is already at step {start}, past the end at {steps}: ask for more steps")
        if self.writes:
            self._open(self.folder, description, start)
        return start, state if run.mesh is None or start == 0 else distributed.placed(state, run.mesh), note

    def _open(self, folder: Path, description: dict[str, Any], start: int) -> None:
        """Write the description; leave of metrics what the run goes on from."""
        planned = read_run(folder).get("steps")
        if self.options.resume and isinstance(planned, int) and description["steps"] < planned:
            say(
                f"warning: {folder} was begun for {planned:,} updates and will now end at {description['steps']:,}: "
                f"--resume --steps {planned} goes on to its end"
            )
        with storage.told(f"cannot write {folder}"):
            storage.clean_leftovers_in(folder)
            storage.write_json(folder / RUN, description)  # first: it is what makes the folder a run's
            (folder / CHECKPOINTS).mkdir(exist_ok=True)
            storage.clean_leftovers_in(folder / CHECKPOINTS)
        trim_metrics(folder / METRICS, start)

    def log(self, step: int, more: dict[str, float]) -> dict[str, float]:
        """A row of metrics: the means since the last one, and more; written where there is a folder."""
        row = {"step": step, **scalars(weighted_mean(self.waiting)), **more}
        self.waiting = []
        if self.own_folder is not None:
            path = self.own_folder / METRICS
            with storage.told(f"cannot write {path}"), open(path, "a") as file:
                file.write(json.dumps(row) + "\n")
        return row

    @property
    def late(self) -> bool:
        """Whether the last checkpoint is long ago."""
        return time.monotonic() - self._saved_at > 60 * CHECKPOINT_MINUTES

    def save(self, state: Any, step: int, note: Mapping[str, Any]) -> None:
        """Write a checkpoint with a note, and drop old ones."""
        if self.own_folder is None:
            return
        folder = self.own_folder / CHECKPOINTS
        path = folder / f"step-{step:09d}.safetensors"
        storage.write_arrays(path, storage.flatten(state), {"step": step, **note})
        found = sorted(folder.glob("step-*.safetensors"))
        here = found.index(path) + 1
        for old in (*found[: max(0, here - self.options.keep)], *found[here:]):  # no run goes on from what lies ahead
            old.unlink()
        self._saved_at = time.monotonic()


def require_own_folder(folder: Path, description: dict[str, Any], resume: bool) -> None:
    """Refuse a folder that holds another run, or something else; nothing is changed yet."""
    if (folder / RUN).is_file():
        if not resume:
            raise HilpError(f"{folder} already holds a run: go on with --resume, or choose another --out")
        before = read_run(folder)
        now = json.loads(json.dumps(description))  # tuples become lists, as on disk
        for key in IDENTITY:
            if before.get(key) != now.get(key):
                raise HilpError(f"cannot resume {folder}: its {_difference(key, before.get(key), now.get(key))}")
        return
    # A process killed before it had a run leaves a lock, or the half of a description.
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    if not all(name == storage.LOCK or name.startswith(f".{RUN}.") for name in names):
        raise HilpError(f"{folder} exists and is not the folder of a run: choose another --out")


def read_run(folder: Path) -> dict[str, Any]:
    """The description of the run in a folder; nothing where there is none."""
    found = storage.read_json(folder / RUN) if (folder / RUN).is_file() else {}
    if not isinstance(found, dict):
        raise HilpError(f"{folder / RUN} is damaged (not an object): choose another --out")
    return found


def _difference(key: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        odd = next(k for k in {**before, **now} if before.get(k) != now.get(k))
        was, wanted = (one.get(odd, "its default") for one in (before, now))
        return f"config has {odd}={was}, not {wanted}"
    if key == "devices":
        return f"batches are shared out among {before or 1} devices, not {now or 1}"
    return f"{key} is {before}, not {now}"


def newest_checkpoint(folder: Path, fresh: Any) -> tuple[int, Any, dict[str, Any]]:
    """Step, state and note of the newest checkpoint that is whole; a torn one is named and passed over."""
    found = sorted((folder / CHECKPOINTS).glob("step-*.safetensors"), reverse=True)
    for path in found:
        try:
            arrays, note = storage.read_arrays(path)
            return int(note["step"]), storage.unflatten(fresh, arrays, path), note
        except (HilpError, KeyError, ValueError) as error:
            say(f"warning: skipping checkpoint {path.name}: {error}")
    if found:
        raise HilpError(f"no checkpoint in {folder} can be resumed: choose another --out to start over")
    return 0, fresh, {}


def trim_metrics(path: Path, step: int) -> None:
    """Drop rows past the step that training goes on from; they will be written again."""
    if not path.is_file():
        return
    kept = []
    for line in path.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):  # of a line torn by a kill
            if json.loads(line)["step"] <= step:
                kept.append(line)
    storage.write_text(path, "".join(line + "\n" for line in kept))
