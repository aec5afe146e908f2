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
from hilp.data.source import Source, chain, with_files, without_short
from hilp.data.tables import Table, extra_columns, lay_out, left_out, vectors
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
    found, others = subprocess_reader.open_columns(source)
    groups = episode_groups(found)
    if not groups:
        raise HilpError(f"{source} has no groups with actions, as data/demo_0/actions: it is no file of this layout")
    inside, links = _by_group(found, groups), _by_group(dict.fromkeys(others), groups)
    tables = [Table(f"{source}, {group}", "hdf5", inside[group]) for group in groups]
    keys, notes = _observation_keys(tables[0], columns)
    outside = sorted(set(others) - {f"{group}/{name}" for group, names in links.items() for name in names})
    _require_no_links(source, groups, outside, links, keys)
    actions = _actions_key(tables[0], columns)
    following = _following_keys(tables[0], keys) if final else []
    spent = {*keys, actions, *(name for name in tables[0].columns if name.partition("/")[0] in FOLLOWING)}
    kept, _ = extra_columns(_shared(source, tables), spent, tables[0][actions].shape[:1], extras)

    def episode(table: Table) -> Source:
        observations = vectors(table, "observations", keys, flatten, single=True)
        after = vectors(table, "next_observations", following, flatten, single=True) if following else None
        acted = vectors(table, "actions", [actions], single=True)
        extra = {name: table[name] for name in kept}
        return lay_out(table, "groups", np.array([observations.rows]), observations, acted, after, extra)

    whole = chain([episode(table) for table in tables], str(source), [group.rpartition("/")[2] for group in groups])
    parts = tuple((key.partition("/")[2] or key, tables[0][key].shape[1:]) for key in keys)
    whole = replace(whole, observation_parts=parts, notes=(*notes, *left_out(outside)))
    return without_short(with_files(whole, [source.absolute()]))


def _shared(source: Path, tables: Sequence[Table]) -> Table:
    """The vectors of the first episode that all episodes have."""
    everywhere = set.intersection(*(set(table.columns) for table in tables))
    columns = {n: c for n, c in tables[0].columns.items() if n in everywhere and len(c.shape) <= 2}
    return Table(str(source), "hdf5", columns)


def _require_no_links(
    source: Path,
    groups: Sequence[str],
    outside: Sequence[str],
    links: Mapping[str, Mapping[str, Any]],
    keys: list[str],
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


def _actions_key(table: Table, columns: Columns | None) -> str:
    chosen = arrays.listed(columns, "actions")
    if len(chosen) > 1:
        raise HilpError(f"{table.name}: actions are one array here, not {len(chosen)}: name one")
    name = chosen[0] if chosen else "actions" if "actions" in table.columns else "action"
    table[name]  # says what there is
    return name


def _place(table: Table, names: Sequence[str]) -> str | None:
    """The first of these that there is an array or a group of."""
    places = {key.partition("/")[0] for key in table.columns}
    return next((name for name in names if name in places), None)


def _following_keys(table: Table, keys: Sequence[str]) -> list[str]:
    """The arrays of next observations, where there is one for each array of the observation."""
    place = _place(table, FOLLOWING) or FOLLOWING[0]
    found = [f"{place}/{key.partition('/')[2]}" for key in keys]
    return found if all(key in table.columns for key in found) else []


def _observation_keys(table: Table, columns: Columns | None) -> tuple[list[str], list[str]]:
    """The arrays that are the observation, and what was decided about it."""
    unknown = sorted(set(columns or {}) - {"observations", "actions"})
    if unknown:
        raise HilpError(f"{table.name}: columns names observations and actions here, not '{unknown[0]}'")
    place = _place(table, OBSERVATIONS)
    inside = {key.removeprefix(f"{place}/"): key for key in sorted(table.columns) if key.startswith(f"{place}/")}
    chosen = arrays.listed(columns, "observations")
    named = {**dict(zip(table.columns, table.columns, strict=True)), **inside}
    for name in chosen:
        if name not in named:
            raise HilpError(f"{table.name}: there is no array '{name}' for observations: {nearest(name, named)}")
    if chosen:
        return [named[name] for name in chosen], []
    if place is None:
        raise HilpError(
            f"{table.name}: there are no observations (obs/NAME) among {some(sorted(table.columns))}: name them with "
            "columns={'observations': [...]} (--columns observations=...)"
        )
    return ([place], []) if place in table.columns else _vectors(table, inside)


def _vectors(table: Table, inside: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """All parts of an observation that are vectors."""
    images = [name for name, key in inside.items() if len(table.columns[key].shape) > 2]
    low = [name for name in inside if name not in images]
    if not low:
        raise HilpError(f"{table.name}: all observations are images ({some(images)}): encode them first")
    notes = [f"observations are {some(low)}: choose others with columns"]
    return [inside[name] for name in low], notes + ([f"images are left out: {some(images)}"] if images else [])
