"""The names and the layout of a run's folder, known here and nowhere else.

| file | what |
|---|---|
| `run.json` | command, method, config, seeds, data fingerprint, versions |
| `reading.json` | how its data was read, where flags decide it: other data of the kind is read alike |
| `metrics.jsonl` | one line per log interval: losses, rate, held-out losses, the latest evaluation |
| `metrics.csv`, `tensorboard/`, `wandb/` | the same, with `--log` |
| `checkpoints/` | the newest training states, each with a checksum |
| `policy/` | the artifact; with several seeds in `seed-N/policy/` |
| `held-out/` | episodes that were not trained on, where some were held out; a native data set |
| `NAME.safetensors` | any other: a prompt that was saved here, which `hilp serve` knows by its name |
| `prompt.safetensors` | instead of a policy: the high level of a hierarchy |
| `rows.jsonl` | evaluation rows, one a prompt |
| `trajectories.safetensors` | the first episodes of each evaluated prompt, for pictures |
| `report.html` | the page |
"""

import re
from pathlib import Path

from hilp.errors import HilpError

RUN, METRICS, CHECKPOINTS, POLICY, ROWS, PAGE = (
    "run.json", "metrics.jsonl", "checkpoints", "policy", "rows.jsonl", "report.html")  # fmt: skip
PROMPT = "prompt.safetensors"
TRAJECTORIES = "trajectories.safetensors"
READING = "reading.json"
HELD_OUT = "held-out"
CONFIG = "config.json"  # in the folder of a policy, written last
ARRAYS = ("weights", "bank", "graph", "latents", "trajectories")  # files of a run or a policy that are no prompts


def find(path: Path) -> Path:
    """The policy folder at a path: itself, or `policy/` inside a run."""
    from hilp.storage import restore_aside  # here: it needs numpy, and `hilp --help` does not

    for folder in (path, path / POLICY):
        restore_aside(folder)
        if (folder / CONFIG).is_file():
            return folder
    _require_one_seed(path)
    if (path / PROMPT).is_file():
        raise HilpError(
            f"{path} holds the high level of a hierarchy, a prompt, and no policy: name the policy that it belongs to, "
            f"and the prompt with --load {path / PROMPT}"
        )
    if (path / RUN).is_file():
        raise HilpError(f"{path} has no policy yet: its training has not finished, continue it with --resume")
    if not path.exists():
        raise HilpError(f"there is no policy at {path}: no such folder")
    raise HilpError(f"there is no policy at {path}: it has no {CONFIG}")


def find_prompt(run: Path) -> Path:
    """The file of the prompt that was trained in a folder."""
    if (run / PROMPT).is_file():
        return run / PROMPT
    _require_one_seed(run)
    if (run / RUN).is_file() and not (run / POLICY).is_dir():
        raise HilpError(f"{run} has no prompt yet: its training has not finished, continue it with --resume")
    raise HilpError(f"there is no prompt in {run}: give the file of one, or a folder that holds {PROMPT}")


def prompts(run: Path) -> dict[str, Path]:
    """The prompts that were saved in a run's folder, by name."""
    return {file.stem: file for file in run.glob("*.safetensors") if file.is_file() and file.stem not in ARRAYS}


def _require_one_seed(run: Path) -> None:
    if seeds := seed_folders(run):
        raise HilpError(f"{run} holds {len(seeds)} seeds: name one of them, e.g. {seeds[0]}")


def seed_folders(run: Path) -> list[Path]:
    """The folders of a run's seeds, where it trained several."""
    found = ((re.fullmatch("seed-([0-9]{1,18})", folder.name), folder) for folder in run.glob("seed-*"))
    seeds = [(int(match[1]), folder) for match, folder in found if match is not None and folder.is_dir()]
    return [folder for _, folder in sorted(seeds)]


def home(folder: Path) -> Path:
    """Where rows and reports about the policy in a folder belong: its run, or the folder itself outside of runs."""
    return folder.parent if folder.name == POLICY else folder


def held_out(folder: Path) -> Path | None:
    """The episodes that the run behind a policy's or a run's folder did not train on, where it kept any."""
    place = _shared(folder) / HELD_OUT
    return place if (place / "dataset.json").is_file() else None


def reading(folder: Path) -> Path | None:
    """How the data of the run behind a policy's or a run's folder was read, where that is kept."""
    place = _shared(folder) / READING
    return place if place.is_file() else None


def _shared(folder: Path) -> Path:
    """The folder of what the seeds of a run share."""
    place = home(folder)
    return place.parent if re.fullmatch("seed-[0-9]+", place.name) else place


def seed_folder(run: Path, seed: int, seeds: int) -> Path:
    """The folder of one seed of a run that trains so many: of one, the run's own."""
    return run if seeds == 1 else run / f"seed-{seed}"
