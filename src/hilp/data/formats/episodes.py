"""Data that lies episode by episode: ExORL's folders of .npz, HDF5 files with a group an episode, and Minari's store.

Episodes are read as they are needed. HDF5 and Minari are read by the child process of `subprocess_reader`, and what
lies outside of their files is not followed.
"""

import contextlib
import functools
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hilp import trees
from hilp.data import subprocess_reader
from hilp.data.columns import BLOCK_BYTES, open_npz
from hilp.data.formats import arrays
from hilp.data.formats.arrays import Chosen, Names
from hilp.data.source import Source, chain, short_note, with_files, with_numbers, without_short
from hilp.data.tables import Table, left_out
from hilp.errors import HilpError, nearest, require_count, require_known, some

GROUP = re.compile(r"(?P<group>(?:.*/)?[^/]*\d+)/actions?")
OBSERVATIONS = ("obs", "observations", "observation")
FOLLOWING = ("next_obs", "next_observations")
KITCHEN_KEY, KITCHEN_WIDTH = "observation", 59  # of FrankaKitchen: positions and speeds of robot and objects
KITCHEN_KEEP = (*range(9), *range(18, 39))  # the positions, which are what D4RL's rows begin with


def _of_episodes(
    name: str, episodes: Mapping[str, int], table: Callable[[int], Table], columns: Chosen, flatten: bool, extras: Names
) -> Source:
    """Episodes that are a table each, with the extras of the first; episodes: their names, and rows of each."""

    def opened(number: int, wanted: Names) -> Source:
        found = table(number)
        if wanted is not None and {*wanted} <= found.columns.keys():  # the others are not even opened
            named = (arrays.listed(columns, what) for what in columns or {})
            needed = {"observations", "actions", *wanted}.union(*named) & found.columns.keys()
            found = replace(found, columns={key: found.columns[key] for key in sorted(needed)})
        rows = np.array(found[arrays.named_for(columns, "observations")].shape[:1], np.int64)
        return arrays.of_table(found, columns, flatten, False, wanted, rows)

    first = opened(0, extras)
    kept = list(first.extras)
    again = functools.lru_cache(1)(lambda number: opened(number, kept))  # a block may end inside an episode
    parts = tuple((key.partition("/")[2] or key, shape) for key, shape in first.observation_parts)
    lengths = [np.array([rows], np.int64) for rows in episodes.values()]
    whole = chain(name, lengths, again, [key.rpartition("/")[2] for key in episodes])
    return replace(whole, observation_parts=parts, action_parts=(), notes=())


# ---- ExORL -----------------------------------------------------------------------------------------------------------


def read_exorl(source: Path, *, episodes: int | None = None, flatten: bool = False, extras: Names = None) -> Source:
    """An ExORL folder (`<domain>/<algorithm>`, or its `buffer`): one episode a file, in the order of their names.

    A file has T + 1 rows; action[0] is a dummy and action[i] leads to observation[i], so actions move up by a row.
    Reward, discount, physics and whatever else has a row per observation stay with their observation, as extras;
    reward[0] and discount[0] are dummies. `episodes` reads the first so many files.
    """
    if episodes is not None:
        episodes = require_count("episodes", episodes)
    files = exorl_files(source.absolute())[:episodes]  # read as they are needed, wherever this process then is
    if not files:
        raise HilpError(f"{source} has no .npz files: give the folder of an algorithm, <domain>/<algorithm>")

    def table(number: int) -> Table:
        found = Table(str(files[number]), "exorl", open_npz(files[number]))
        observation, action = found["observation"], found["action"]
        if action.shape[:1] != observation.shape[:1]:
            shapes = f"observation is {observation.shape} but action {action.shape}"
            raise HilpError(f"{found.name}: {shapes}: give as many rows of both")
        rest = {name: column for name, column in found.columns.items() if name not in ("observation", "action")}
        return replace(found, columns={"observations": observation, "actions": action[1:], **rest})

    lengths = {file.name: _exorl_rows(file) for file in files}
    found = _of_episodes(str(source), lengths, table, None, flatten, extras)
    return without_short(with_files(found, files))


def exorl_files(path: Path) -> list[Path]:
    """The files of the folder of an algorithm, or of its `buffer`."""
    folder = path / "buffer" if (path / "buffer").is_dir() else path
    return sorted(folder.glob("*.npz"))


def _exorl_rows(file: Path) -> int:
    columns = open_npz(file)
    if "observation" not in columns or not columns["observation"].shape or not columns["observation"].shape[0]:
        raise HilpError(f"{file} is not an ExORL episode: it has no rows of 'observation'")
    return columns["observation"].shape[0]


# ---- a group an episode ----------------------------------------------------------------------------------------------


def read_groups(
    source: Path, *, columns: Chosen = None, final: bool = True, flatten: bool = False, extras: Names = None
) -> Source:
    """An HDF5 file with a group an episode, in the order of their numbers: robomimic's data/demo_0/{actions, obs/NAME}.

    `columns={"observations": ["robot0_eef_pos", ...]}` chooses parts of the observation, images too, and their order;
    without it all are taken that are vectors, in the order of their names. Where there are `next_obs`, the
    last of them is an episode's final state, unless `final=False`. Other arrays with a row a step become extras.
    """
    found, others = subprocess_reader.open_columns(source)
    groups = episode_groups(found)
    if not groups:
        raise HilpError(f"{source} has no groups with actions, as data/demo_0/actions: it is no file of this layout")
    inside = _by_group(found, groups)
    first = Table(f"{source}, {groups[0]}", "groups", inside[groups[0]])
    chosen, notes = _group_columns(first, columns, final)
    keys = chosen["observations"]
    outside = _left_outside(source, groups, others, keys)
    # Extras are what all episodes have, but no images.
    shared = set.intersection(*(set(arrays_of) for arrays_of in inside.values()))
    shared = {n for n in shared if len(first[n].shape) <= 2 and n.partition("/")[0] not in FOLLOWING}
    shared = shared.union(*chosen.values())

    def table(number: int) -> Table:
        own = {name: column for name, column in inside[groups[number]].items() if name in shared}
        return Table(f"{source}, {groups[number]}", "groups", own)

    more = "next_observations" in chosen
    lengths = {group: table(number)[keys[0]].shape[0] + more for number, group in enumerate(groups)}
    whole = _of_episodes(str(source), lengths, table, chosen, flatten, extras)
    return without_short(with_files(replace(whole, notes=(*notes, *left_out(outside))), [source]))


def episode_groups(names: Collection[str]) -> list[str]:
    """The groups with actions of their own, in the order of their numbers."""
    found = [match["group"] for name in names if (match := GROUP.fullmatch(name))]
    return sorted(found, key=arrays.natural)


def _by_group(columns: Mapping[str, Any], groups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What lies in each group, by its name there."""
    found: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for name, column in columns.items():
        for slash in re.finditer("/", name):
            if name[: slash.start()] in found:
                found[name[: slash.start()]][name[slash.end() :]] = column
                break
    return found


def _left_outside(source: Path, groups: Sequence[str], others: Sequence[str], keys: Sequence[str]) -> list[str]:
    """What is no array of an episode. Episodes and observations that lie elsewhere would be missing without a word."""
    by_group = _by_group(dict.fromkeys(others), groups)
    links = {f"{group}/{name}": name for group, names in by_group.items() for name in names}
    outside = sorted(set(others) - links.keys())
    places = {group.rpartition("/")[0] for group in groups}
    astray = [name for name in outside if name.rpartition("/")[0] in places and name[-1:].isdecimal()]
    astray += [path for path, name in links.items() if name in (*keys, *OBSERVATIONS)]
    if astray:
        raise HilpError(f"{source}: '{astray[0]}' is a link or lies in other files: hilp does not follow it; copy it")
    return outside


def _group_columns(table: Table, columns: Chosen, final: bool) -> tuple[dict[str, list[str]], list[str]]:
    """The arrays that are the observation, the action and what follows, and what was decided about it."""
    unknown = sorted(set(columns or {}) - {"observations", "actions"})
    if unknown:
        raise HilpError(f"{table.name}: columns names observations and actions here, not '{unknown[0]}'")
    inside = [name.partition("/")[2] or name for name in table.columns]
    columns = arrays.expanded(columns, dict.fromkeys([*inside, *table.columns]))
    actions = arrays.listed(columns, "actions") or ["actions" if "actions" in table.columns else "action"]
    if len(actions) > 1:
        raise HilpError(f"{table.name}: actions are one array here, not {len(actions)}: name one")
    table[actions[0]]  # says what there is
    keys, notes = _observation_keys(table, arrays.listed(columns, "observations"))
    # Next observations count where there is one for each array of the observation.
    following = [f"{_place(table, FOLLOWING)}/{key.partition('/')[2]}" for key in keys]
    whole = final and all(key in table.columns for key in following)
    return {"observations": keys, "actions": actions, **({"next_observations": following} if whole else {})}, notes


def _place(table: Table, names: Sequence[str]) -> str | None:
    """The first of these names that an array has, or a group of arrays."""
    places = {key.partition("/")[0] for key in table.columns}
    return next((name for name in names if name in places), None)


def _observation_keys(table: Table, chosen: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arrays that are the observation: those that the user chose, else all in their place that are vectors."""
    place = _place(table, OBSERVATIONS)
    inside = {key.removeprefix(f"{place}/"): key for key in sorted(table.columns) if key.startswith(f"{place}/")}
    if chosen:
        for name in chosen:
            known = [*inside, *table.columns]
            require_known(name, known, f"{table.name}: there is no array '{name}' for observations")
        return [inside.get(name, name) for name in chosen], []
    if place is None:
        raise HilpError(
            f"{table.name}: there are no observations (obs/NAME) among {some(sorted(table.columns))}: name them with "
            "columns={'observations': [...]} (--columns observations=...)"
        )
    if place in table.columns:
        return [place], []
    low = [name for name, key in inside.items() if len(table.columns[key].shape) <= 2]
    images = sorted({*inside}.difference(low))
    if not low:
        raise HilpError(f"{table.name}: all observations are images ({some(images)}): encode them first")
    notes = [f"observations are {some(low)}: choose others with columns"]
    return [inside[name] for name in low], notes + ([f"images are left out: {some(images)}"] if images else [])


# ---- Minari ----------------------------------------------------------------------------------------------------------


def read_minari(
    source: Path,
    *,
    convention: Literal["kitchen"] | None = None,
    observation_keys: Sequence[str] | str | None = None,
    flatten: bool = False,
    extras: Names = None,
) -> Source:
    """A local Minari data set, by id or by folder. Dict observations need `observation_keys`, put side by side.

    Where pictures are among them, observations are a named tree of them. The convention "kitchen" takes the 30
    positions of FrankaKitchen's observations, as in D4RL's files.

    Rewards, terminations and truncations stand in the row of the action they came with (zero in the last row of an
    episode); infos and the observation keys that were not chosen are extras too.
    """
    folder = _require_minari(source).absolute()  # read as it is needed, wherever this process then is
    identifier, steps = subprocess_reader.open_minari(folder)
    name = f"Minari {identifier}"
    whole = [number for number, count in enumerate(steps) if count > 0]  # episodes with a transition
    if not whole:
        raise HilpError(f"{name}: there are no episodes")
    kitchen = convention is not None
    chosen = _minari_choice(convention, observation_keys)
    (sample,) = subprocess_reader.read_minari(folder, whole[0], whole[0] + 1)
    keys = _minari_keys(sample, chosen, name)
    if kitchen and sample[keys[0]].shape[1:] != (KITCHEN_WIDTH,):
        raise HilpError(
            f"{name}: observations of Kitchen have {KITCHEN_WIDTH} numbers, these have "
            f"{', '.join(map(str, sample[keys[0]].shape[1:]))}: leave out convention='kitchen'"
        )
    many = BLOCK_BYTES // sum(array.nbytes for array in sample.values())
    at_once = min(max(1, many), subprocess_reader.EPISODES_AT_ONCE)

    @functools.lru_cache(maxsize=1)
    def fetched(first: int) -> list[dict[str, np.ndarray]]:
        return subprocess_reader.read_minari(folder, first, min(first + at_once, len(steps)))

    def table(number: int) -> Table:
        at = whole[number]
        found = Table(f"{name}, episode {at}", "minari", fetched(at - at % at_once)[at % at_once])
        rows, acts = ((*found[key].shape, 0)[0] for key in (keys[0], "actions"))
        if (rows, acts) != (steps[at] + 1, steps[at]):
            raise HilpError(f"{found.name}: {rows} observations and {acts} actions, but {steps[at]} steps")
        return found

    # Observations that are one array are found by their name.
    columns = None if chosen is None else {"observations": keys if len(keys) > 1 else keys[0]}
    lengths = {f"episode {at}": steps[at] + 1 for at in whole}
    found = _of_episodes(name, lengths, table, columns, flatten, extras)
    found = replace(found, notes=short_note(np.flatnonzero(np.asarray(steps) <= 0)), choices=_minari_choices(folder))
    found = with_files(found, sorted(filter(Path.is_file, folder.rglob("*"))))
    return with_numbers(found, KITCHEN_KEEP) if kitchen else found


def _minari_choices(folder: Path) -> int:
    """How many discrete actions the data set's environment has; 0 where they are something else."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        space = json.loads(json.loads((folder / "metadata.json").read_text())["action_space"])
        if space["type"] == "Discrete" and space.get("start", 0) == 0:
            return max(0, int(space["n"]))
    return 0


def _minari_choice(convention: str | None, keys: Sequence[str] | str | None) -> Sequence[str] | None:
    if convention is None:
        return [keys] if isinstance(keys, str) else keys
    require_known(str(convention), ["kitchen"], f"unknown convention '{convention}'")
    if keys is not None:
        raise HilpError("convention='kitchen' says which observations to take: leave out observation_keys")
    return [KITCHEN_KEY]


def _minari_keys(episode: Mapping[str, np.ndarray], chosen: Sequence[str] | None, name: str) -> list[str]:
    """The arrays that are the observation, where actions are one array."""
    if "actions" not in episode:
        parts = list(trees.unnamed(episode, "actions"))
        problem = f"in several parts, {some(parts)}" if parts else "not numbers"
        raise HilpError(f"{name}: actions are {problem}: hilp needs one array")
    keys = list(trees.unnamed(episode, "observations"))
    if "observations" in episode:
        if chosen is not None:
            raise HilpError(f"{name}: observations are one array, so there are no observation_keys to choose")
        return ["observations"]
    if not keys:
        raise HilpError(f"{name}: observations are not numbers")
    if chosen is None:
        raise HilpError(f"{name}: observations have parts: choose with observation_keys=[...] from {some(keys)}")
    for key in chosen:
        require_known(key, keys, f"{name}: there is no observation key '{key}'")
    if not chosen:
        raise HilpError(f"{name}: observation_keys is empty: choose from {some(keys)}")
    return [f"observations/{key}" for key in chosen]


def _minari_root() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def minari_folder(path: Path) -> Path | None:
    """The folder with the data of a Minari data set: of a path, or of an id."""
    for folder in (path, path / "data", _minari_root() / path / "data"):
        if (folder / "metadata.json").is_file():
            return folder
    return None


def _require_minari(source: Path) -> Path:
    folder, ids = minari_folder(source), minari_ids()
    if folder is None:
        none = f"there are none in {_minari_root()}; download one with `minari download`"
        raise HilpError(f"there is no local Minari data set '{source}': {nearest(str(source), ids) if ids else none}")
    return folder


def minari_ids() -> list[str]:
    """All data sets in the local store."""
    root = _minari_root()
    ids = [found.parent.parent.relative_to(root) for found in root.glob("**/data/metadata.json")]
    return sorted(str(path) for path in ids if not path.name.startswith("."))  # hidden ones are not finished
