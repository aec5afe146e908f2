"""How well a script did, from its data: which target it had in each row, and whether it was there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

NUMBER = "target"  # extra column: how many targets the episode had before this one, or NONE
REACHED = "target_reached"  # extra column, bool: whether the script is at its target in this row
NONE = -1  # the number of a row in which the script had no target: it rests, or is going to break off


def outcome(data: Dataset) -> dict[str, int | float]:
    """Targets that a script took up, how many it reached and their share, and how many an episode's end cut short.

    Empty for data without targets. One that is followed by a rest was not cut short.
    """
    if not {NUMBER, REACHED} <= data.extras.keys():
        return {}
    number, reached = np.asarray(data.extras[NUMBER]), np.asarray(data.extras[REACHED])
    episode = np.repeat(np.arange(data.episodes), data.lengths)
    firsts = np.flatnonzero(np.diff(number, prepend=-1) | np.diff(episode, prepend=-1))  # first row of each target
    got = np.logical_or.reduceat(reached, firsts)
    last = np.diff(episode[firsts], append=data.episodes) > 0  # of its episode
    some = number[firsts] != NONE
    got, last = got[some], last[some]
    if not len(got):
        return {}
    return {
        "targets": len(got),
        "targets_reached": int(got.sum()),
        "targets_cut_short": int((last & ~got).sum()),
        "script_success": float(got.mean()),
    }
