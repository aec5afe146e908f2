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
from hilp.data.columns import NUMBERS
from hilp.data.formats import arrays
from hilp.data.formats.arrays import Columns
from hilp.data.source import Source, chain, choose_extras
from hilp.data.tables import Part, Table, identity_of, lay_out, left_out, without_short
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

    `columns={"observations": ["robot0_eef_pos", ...]}` chooses parts of the observation and their order; without it all
    are taken that are vectors, in the order of their names, and images are left out. Where there are `next_obs`, the
    last of them is an episode's final state, unless `final=False`. Other arrays with a row a step become extras.
    """
    found, others = subprocess_reader.open_hdf5(source)
    groups = episode_groups(found)
    if not groups:
        raise HilpError(f"{source} has no groups with actions, as data/demo_0/actions: it is no file of this layout")
    inside, beside = _by_group(found, groups), _by_group(dict.fromkeys(others), groups)
    tables = [Table(f"{source}, {group}", "hdf5", inside[group]) for group in groups]
    keys, notes = _observation_keys(tables[0], columns)
    outside = sorted(set(others) - {f"{group}/{name}" for group, names in beside.items() for name in names})
    places = {group.rpartition("/")[0] for group in groups}
    astray = [name for name in outside if name.rpartition("/")[0] in places and re.search(r"\d$", name)]
    astray += [f"{g}/{name}" for g, names in beside.items() for name in names if name in (*keys, *OBSERVATIONS)]
    if astray:
        raise HilpError(f"{source}: '{astray[0]}' is a link or lies in other files: hilp does not follow it; copy it")
    actions = _actions_key(tables[0], columns)
    following = [f"{_following(tables[0])}/{key.partition('/')[2]}" for key in keys] if final else []
    whole = bool(following) and all(key in tables[0].columns for key in following)
    spent = {*keys, actions, *(name for name in tables[0].columns if name.partition("/")[0] in FOLLOWING)}
    steps = tables[0][actions].shape[0]
    shared = [
        name
        for name, column in tables[0].columns.items()
        if name not in spent
        and column.shape[:1] == (steps,)
        and len(column.shape) <= 2
        and all(name in table.columns for table in tables)
    ]
    kept = choose_extras(shared, extras, str(source))
    sources = []
    for table in tables:
        observations = Part(table, "observations", keys, flatten, single=True)
        after = Part(table, "next_observations", following, flatten, single=True) if whole else None
        lengths = np.array([observations.rows], np.int64)
        extra = {name: table[name] for name in kept}
        acted = Part(table, "actions", [actions], single=True)
        sources.append(lay_out(table, "groups", lengths, observations, acted, after, extra))
    names = [group.rpartition("/")[2] for group in groups]
    path = source.absolute()
    parts = tuple((key.partition("/")[2] or key, tables[0][key].shape[1:]) for key in keys)
    return without_short(
        replace(
            chain(sources, str(source), names),
            observation_parts=parts,
            notes=(*notes, *left_out(outside)),
            disk_bytes=path.stat().st_size,
            identity=identity_of([path]),
        )
    )


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


def _actions_key(table: Table, columns: Columns | None) -> str:
    given = arrays.listed(columns, "actions")
    if len(given) > 1:
        raise HilpError(f"{table.name}: actions are one array here, not {len(given)}: name one")
    name = given[0] if given else "actions" if "actions" in table.columns else "action"
    table[name]  # says what there is
    return name


def _following(table: Table) -> str:
    return next((name for name in FOLLOWING if any(key.startswith(f"{name}/") for key in table.columns)), FOLLOWING[0])


def _observation_keys(table: Table, columns: Columns | None) -> tuple[list[str], list[str]]:
    """The arrays that are the observation, and what was decided about it."""
    place = next((p for p in OBSERVATIONS if any(k == p or k.startswith(f"{p}/") for k in table.columns)), None)
    given = arrays.listed(columns, "observations")
    for what in columns or {}:
        if what not in ("observations", "actions"):
            raise HilpError(f"{table.name}: columns names observations and actions here, not '{what}'")
    if given:
        named = {key.partition("/")[2] if place and key.startswith(f"{place}/") else key: key for key in table.columns}
        for name in given:
            if name not in named and name not in table.columns:
                raise HilpError(f"{table.name}: there is no array '{name}' for observations: {nearest(name, named)}")
        return [named.get(name, name) for name in given], []
    if place is None:
        raise HilpError(
            f"{table.name}: there are no observations (obs/NAME) among {some(sorted(table.columns))}: name them with "
            "columns={'observations': [...]} (--columns observations=...)"
        )
    if place in table.columns:
        return [place], []
    keys = sorted(key for key in table.columns if key.startswith(f"{place}/"))
    low = [key for key in keys if len(table.columns[key].shape) <= 2 and table.columns[key].dtype.kind in NUMBERS]
    images = [key.partition("/")[2] for key in keys if key not in low]
    if not low:
        raise HilpError(f"{table.name}: all observations are images ({some(images)}): encode them first")
    notes = [f"observations are {some([key.partition('/')[2] for key in low])}: choose others with columns"]
    return low, notes + ([f"images are left out: {some(images)}"] if images else [])
