"""Data with rewards: the two columns that methods which learn from rewards read, a number for each transition.

`rewards` and `terminals` stand in the row that the transition begins in. They come from what the data recorded, or from
a function of (s, a, s'). A terminal transition is the last that pays; a walk that goes on behind it is still data.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, is_number, require_function, require_known, some

if TYPE_CHECKING:  # exported policies have a copy of this file, and numpy alone
    from hilp.data.dataset import Dataset

RewardFunction = Callable[..., np.ndarray]  # of (s, a, s'), or of (s, a, s', Extras)
REWARDS, TERMINALS = "rewards", "terminals"
BLOCK = 1 << 16  # transitions in one call of a function


def label(
    data: "Dataset", reward: RewardFunction | None = None, *, shift: float = 0.0, ends: bool = False
) -> "Dataset":
    """The same data with rewards and terminals: of a vectorised function of (s, a, s'), or those that it recorded.

    ends: a transition that earns more than 0 is terminal, as where a goal is reached. shift: added to every reward, and
    so to none behind a terminal; -1 makes reaching a goal a matter of time, as the paper does for AntMaze.
    """
    from hilp.data.dataset import require_dataset

    require_dataset(data)
    if not is_number(shift):
        raise HilpError(f"a reward is shifted by a finite number, not {shift!r:.60}")
    rewards, terminals = recorded(data) if reward is None else (computed(data, reward), np.zeros(data.rows, bool))
    at = data.transition_rows
    bad = at[~np.isfinite(rewards[at])]
    if len(bad):
        raise HilpError(f"the reward is NaN or infinite for {len(bad)} of {len(at)} transitions, rows {some(bad, 5)}")
    if np.ptp(rewards[at]) == 0.0:
        raise HilpError(
            f"the reward is {rewards[at[0]]:g} for all {len(at)} transitions of {data.name}, so it asks for nothing: "
            "is the place or the event that it rewards in the data?"
        )
    if ends:
        terminals = terminals | (rewards > 0)
    columns = {REWARDS: (rewards + shift).astype(np.float32), TERMINALS: terminals.astype(np.float32)}
    return replace(data, extras={**data.extras, **columns})


def recorded(data: "Dataset") -> tuple[np.ndarray, np.ndarray]:
    """The rewards and terminals that came with the data, by row of s.

    `rewards` (D4RL, Minari) came with the action, `reward` (ExORL) with the state that it led to. Where the row behind
    an episode's last transition is flagged terminal, as in D4RL's files, its step has no next state: what it paid and
    its end go to the step before it.
    """
    if REWARDS in data.extras:
        rewards = _numbers(data, REWARDS)
        name = next((name for name in (TERMINALS, "terminations") if name in data.extras), None)
        terminals = np.zeros(data.rows, bool) if name is None else _numbers(data, name) > 0
        last = data.starts + data.lengths - 1
        lost = last[terminals[last] & (data.lengths > 1)]
        rewards[lost - 1] += rewards[lost]
        terminals[lost - 1] = True
        rewards[lost], terminals[lost] = 0.0, False  # labelled again, data stays as it is
        return rewards, terminals
    if "reward" in data.extras:
        over = _numbers(data, "discount") == 0 if "discount" in data.extras else np.zeros(data.rows, bool)
        return np.roll(_numbers(data, "reward"), -1), np.roll(over, -1)
    raise HilpError(f"{data.name} has no column 'rewards' or 'reward': give a reward, e.g. a function of (s, a, s')")


def computed(data: "Dataset", function: RewardFunction) -> np.ndarray:
    """What a function of (s, a, s'), or of (s, a, s', extras), gives for each transition; 0 in last rows."""
    require_function("a reward", function)
    found = np.zeros(data.rows)
    for first in range(0, data.transitions, BLOCK):
        rows = data.transition_rows[first : first + BLOCK]
        seen, newest = data.observations, data.spec.newest
        before, after = (newest(trees.over(lambda part, at=at: np.array(part[at]), seen)) for at in (rows, rows + 1))
        rewards = apply_reward(function, before, np.array(data.acted(rows)), after, Extras.of(data, rows))
        try:
            own = np.asarray(rewards, np.float64)
        except (TypeError, ValueError) as error:
            raise HilpError(f"the reward must be numbers: {error}") from error
        if own.shape != rows.shape:
            raise HilpError(f"the reward must give one number per transition, {len(rows)} of them, not {own.shape}")
        found[rows] = own
    return found


def _numbers(data: "Dataset", name: str) -> np.ndarray:
    """A column of one number a row."""
    column = np.asarray(data.extras[name])
    if column.size != data.rows:
        raise HilpError(f"the column '{name}' of {data.name} is not one number a row, but {column.shape[1:]}")
    return column.reshape(-1).astype(np.float64)


@dataclass(frozen=True)
class Extras:
    """Named columns of some transitions, besides the observations, for rewards that need more than the observation."""

    at_s: Mapping[str, np.ndarray]
    at_next: Mapping[str, np.ndarray]
    owner: str  # whose columns they are, for the error
    rows: np.ndarray | None = None  # of s, where these are the columns of all rows; each is read when it is used

    @staticmethod
    def of(data: "Dataset", rows: np.ndarray) -> "Extras":
        """The columns of a data set at the transitions that start in these rows."""
        return Extras(data.extras, data.extras, data.name, rows)

    def before(self, name: str) -> np.ndarray:
        """A column at s."""
        return self._column(self.at_s, name, 0)

    def after(self, name: str) -> np.ndarray:
        """A column at s'."""
        return self._column(self.at_next, name, 1)

    def _column(self, columns: Mapping[str, np.ndarray], name: str, ahead: int) -> np.ndarray:
        require_known(name, columns, f"this reward needs the extra column '{name}', which {self.owner} does not have")
        return columns[name] if self.rows is None else np.asarray(columns[name][self.rows + ahead])


def apply_reward(function: RewardFunction, before: Any, actions: np.ndarray, after: Any, extras: Extras) -> np.ndarray:
    """The reward of transitions; extras go to functions that ask for them."""
    return function(before, actions, after, extras) if _takes_extras(function) else function(before, actions, after)


def _takes_extras(function: RewardFunction) -> bool:
    """Whether a reward function has a fourth parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) > 3
