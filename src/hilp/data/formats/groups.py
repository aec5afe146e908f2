"""HDF5 with a group an episode: robomimic's data/demo_N, and files laid out like it (traj_N, episode_N, ...).

The file is read by the process that reads all HDF5 (`subprocess_reader`), and what lies outside of it is not followed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp.data import subprocess_reader
from hilp.data.formats import arrays
from hilp.data.formats.arrays import Columns
from hilp.data.source import Kind, Source, chain, with_files, without_short
from hilp.data.tables import Table, left_out
from hilp.errors import HilpError, nearest, some

GROUP = re.compile(r"(?P<group>(?:.*/)?[^/]*\d+)/actions?")
OBSERVATIONS = ("obs", "observations", "observation")
FOLLOWING = ("next_obs", "next_observations")


def read(
    source: Path,
    *,
    columns: Columns | None = None,
    final: bool = True,
    flatten: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """An HDF5 file with a group an episode, in the order of their numbers: data/demo_0/{actions, obs/NAME, ...}.

    `columns={"observations": ["robot0_eef_pos", ...]}` chooses parts of the observation, images too, and their order;
    without it all are taken that are vectors, in the order of their names. Where there are `next_obs`, the
    last of them is an episode's final state, unless `final=False`. Other arrays with a row a step become extras.
    """
    found, others = subprocess_reader.open_columns(source)
    groups = episode_groups(found)
    if not groups:
        raise HilpError(f"{source} has no groups with actions, as data/demo_0/actions: it is no file of this layout")
    inside, links = _by_group(found, groups), _by_group(dict.fromkeys(others), groups)
    first = Table(f"{source}, {groups[0]}", "groups", inside[groups[0]])
    chosen, notes = _chosen(first, columns, final)
    keys = chosen["observations"]
    outside = sorted(set(others) - {f"{group}/{name}" for group, names in links.items() for name in names})
    _require_no_links(source, groups, outside, links, keys)
    # Extras are what all episodes have, but no images.
    shared = {n for n in first.columns if all(n in columns for columns in inside.values()) and len(first[n].shape) <= 2}
    shared = {n for n in shared if n.partition("/")[0] not in FOLLOWING}.union(*chosen.values())

    def episode(group: str) -> Source:
        table = replace(
            first, name=f"{source}, {group}", columns={n: c for n, c in inside[group].items() if n in shared}
        )
        lengths = np.array(table[keys[0]].shape[:1], np.int64)
        return arrays.of_table(table, chosen, flatten, False, extras, lengths)

    episodes = [episode(group) for group in groups]
    names = [group.rpartition("/")[2] for group in groups]
    whole = chain(str(source), [found.lengths for found in episodes], episodes.__getitem__, names)
    named = keys if isinstance(whole.observation, Kind) else ()
    parts = tuple((key.partition("/")[2] or key, first[key].shape[1:]) for key in named)
    whole = replace(whole, observation_parts=parts, action_parts=(), notes=(*notes, *left_out(outside)))
    return without_short(with_files(whole, [source.absolute()]))


def _require_no_links(
    source: Path, groups: Sequence[str], outside: Sequence[str], links: Mapping[str, Any], keys: list[str]
) -> None:
    """Episodes and observations that lie elsewhere would be missing without a word."""
    places = {group.rpartition("/")[0] for group in groups}
    astray = [name for name in outside if name.rpartition("/")[0] in places and re.search(r"\d$", name)]
    astray += [f"{g}/{name}" for g, names in links.items() for name in names if name in (*keys, *OBSERVATIONS)]
    if astray:
        raise HilpError(f"{source}: '{astray[0]}' is a link or lies in other files: hilp does not follow it; copy it")


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


def _chosen(table: Table, columns: Columns | None, final: bool) -> tuple[dict[str, list[str]], list[str]]:
    """The arrays that are the observation, the action and what follows, and what was decided about it."""
    unknown = sorted(set(columns or {}) - {"observations", "actions"})
    if unknown:
        raise HilpError(f"{table.name}: columns names observations and actions here, not '{unknown[0]}'")
    actions = arrays.listed(columns, "actions") or ["actions" if "actions" in table.columns else "action"]
    if len(actions) > 1:
        raise HilpError(f"{table.name}: actions are one array here, not {len(actions)}: name one")
    table[actions[0]]  # says what there is
    keys, notes = _observation_keys(table, arrays.listed(columns, "observations"))
    # Next observations count where there is one for each array of the observation.
    after = _place(table, FOLLOWING)
    following = [f"{after}/{key.partition('/')[2]}" for key in keys]
    whole = final and all(key in table.columns for key in following)
    return {"observations": keys, "actions": actions, **({"next_observations": following} if whole else {})}, notes


def _place(table: Table, names: Sequence[str]) -> str | None:
    """The first of these that there is an array or a group of."""
    places = {key.partition("/")[0] for key in table.columns}
    return next((name for name in names if name in places), None)


def _observation_keys(table: Table, chosen: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arrays that are the observation: those that the user chose, else all that are vectors."""
    place = _place(table, OBSERVATIONS)
    inside = {key.removeprefix(f"{place}/"): key for key in sorted(table.columns) if key.startswith(f"{place}/")}
    named = {**{name: name for name in table.columns}, **inside}
    for name in chosen:
        if name not in named:
            raise HilpError(f"{table.name}: there is no array '{name}' for observations: {nearest(name, named)}")
    if chosen or place in table.columns:
        return [named[name] for name in chosen] or [str(place)], []
    if place is None:
        raise HilpError(
            f"{table.name}: there are no observations (obs/NAME) among {some(sorted(table.columns))}: name them with "
            "columns={'observations': [...]} (--columns observations=...)"
        )
    images = [name for name, key in inside.items() if len(table.columns[key].shape) > 2]
    low = [name for name in inside if name not in images]
    if not low:
        raise HilpError(f"{table.name}: all observations are images ({some(images)}): encode them first")
    notes = [f"observations are {some(low)}: choose others with columns"]
    return [inside[name] for name in low], notes + ([f"images are left out: {some(images)}"] if images else [])
