"""What prompts remember of agents side by side: one `AgentMemory`, and the two habits that goals build on it."""

import warnings
import zlib
from typing import Any

import numpy as np

from hilp import trees

REACHES = (0.7, 0.7, 0.35, 0.7)  # of the trust radius, one after the other: farther, ways bend
RANDOM_SUBGOAL = (False, True, False, True)  # which of them lead to a random state
LEAST = 3  # steps without progress before something else is tried
WAITS = (2, 1, 1, 1)  # times as long as the trust radius takes, before the next is tried
PROGRESS = 0.5  # steps nearer that count as getting nearer
NOWHERE = -1
REMEMBERED = 50  # steps that an agent looks back over for choices that it made in the same state


class AgentMemory(dict[str, np.ndarray]):
    """Named columns with one row an agent, and the random numbers that its prompt draws.

    Agents are known by their row in the batch. So a batch of another size is one of other agents, whose episodes begin
    as after `reset()`; where episodes were under way, a warning says so.
    """

    def __init__(self, seed: int = 0, **fresh: Any) -> None:
        """seed: of the random numbers, which begin anew with the episodes of all; fresh: what a new agent has."""
        self.seed, self.fresh = seed, fresh
        self.reset()

    def reset(self, rows: Any = None) -> None:
        """New episodes begin, of all agents or of those in these rows (numbers or a mask)."""
        if rows is None:
            self.rng = np.random.default_rng(self.seed)
            self.count = 0
            self.update({name: np.full(0, value) for name, value in self.fresh.items()})
        elif self.count:
            for name, value in self.fresh.items():
                self[name][rows] = value

    def begin(self, count: int, **widths: int) -> bool:
        """Have as many agents; whether they are new ones. widths: of columns with several numbers an agent."""
        if self.count == count > 0:
            return False
        if self.count:
            warnings.warn(
                f"a batch of {count} came after one of {self.count}, and a prompt knows agents by their row: all begin "
                "new episodes; where that is meant, call the prompt's reset() before",
                stacklevel=4,
            )
        self.reset()
        self.count = count
        for name, value in self.fresh.items():
            self[name] = np.full((count, widths[name]) if name in widths else count, value)
        return True


class RecentRows(AgentMemory):
    """The last rows that agents saw, as data stacks them, for policies that see more than one: the changes from each
    to the next, oldest first, and the newest. At the start of an episode its first row stands in for those before it.
    """

    def __init__(self, count: int) -> None:
        super().__init__(rows=np.float32(np.nan))
        self.rows = count

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """The stacks [n, count x obs] after the next row [n, obs] of each."""
        count, width = rows.shape
        whole = np.tile(rows, self.rows)
        self.begin(count, rows=whole.shape[1])
        before = np.where(np.isnan(self["rows"][:, :1]), whole, self["rows"])
        self["rows"] = now = np.concatenate([before[:, width:], rows], axis=1)
        return np.concatenate([now[:, width:] - now[:, :-width], rows], axis=1)


class LatentEma(AgentMemory):
    """Where agents are, as a moving mean of their latents over the last steps.

    A body that walks, or a sensor with noise, changes its latent at every step by more than it gets on, and a direction
    from there to a near subgoal swings with it. The mean of some steps swings less; it also lags behind, so what moves
    without swinging is better off without it. An agent that is suddenly elsewhere begins anew.
    """

    def __init__(self, steps: float, jump: float) -> None:
        """steps: that the mean goes back, about; jump: the latent distance in one step that no agent goes."""
        super().__init__(last=np.float32(np.inf), mean=np.float32(0.0))
        self.steps, self.jump = steps, jump

    def __call__(self, here: np.ndarray) -> np.ndarray:
        """The means after one more step, [n, dim]."""
        here = np.asarray(here)
        self.begin(len(here), last=here.shape[1], mean=here.shape[1])
        begins = ~(np.linalg.norm(here - self["last"], axis=1, keepdims=True) <= self.jump)
        self["mean"] = np.where(begins, here, self["mean"] + (here - self["mean"]) / np.float32(self.steps))
        self["last"] = np.array(here)
        return np.array(self["mean"])


class StuckAgents(AgentMemory):
    """Notices that an agent no longer gets nearer to its goal, and tries something else.

    A policy without noise in a world without noise that stands still once stands still for ever: it sees the same
    state, heads for the same subgoal and takes the same action into the same corner. The graph knows that there is a
    way, so an agent that has not come nearer for a while is sent to a random state around it, which leads away from the
    corner; then to a nearer subgoal, which leads around it. The while is long, because an agent that walks may seem to
    get no nearer, too: a body's posture is part of its state. What is tried then is short. An agent that is suddenly
    elsewhere is in a new episode.
    """

    def __init__(self, trust: float, steps: float) -> None:
        """trust: the radius, in latents; steps: the same in steps, by which waiting is measured."""
        # nearest: fewest steps to the goal since something was tried; tried_at: steps to the goal when it was; level:
        # what is tried, 0 where nothing had to be; here: latents at the last call
        super().__init__(nearest=np.inf, tried_at=np.inf, waited=0, level=0, heads_for=NOWHERE, here=np.nan)
        self.trust, self.steps = trust, max(LEAST, steps)

    def reaches(self, here: np.ndarray, steps_left: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the agents in these rows: the radius, in latents, within which to choose a subgoal, and whether at random.

        here: latents of all agents; steps_left: of those in `rows`.
        """
        self.begin(len(here), here=here.shape[1])
        self.reset(np.linalg.norm(here - self["here"], axis=1) > self.trust)
        self["here"] = np.array(here)
        nearer = steps_left < self["nearest"][rows] - PROGRESS
        self["nearest"][rows[nearer]] = steps_left[nearer]
        self["waited"][rows] = np.where(nearer, 0, self["waited"][rows] + 1)
        well_past = steps_left < self["tried_at"][rows] - self.steps
        self["level"][rows[well_past]] = 0
        stuck = self["waited"][rows] > self.steps * np.asarray(WAITS)[self["level"][rows]]
        again = rows[stuck]
        self["level"][again] = (self["level"][again] + 1) % len(REACHES)
        self["waited"][again], self["heads_for"][again] = 0, NOWHERE
        self["nearest"][again] = self["tried_at"][again] = steps_left[stuck]
        level = self["level"][rows]
        return self.trust * np.asarray(REACHES)[level], np.asarray(RANDOM_SUBGOAL)[level]

    def random_subgoal(self, agent: int, states: np.ndarray) -> int:
        """One of these states of the bank, the same one until something else is tried."""
        heads_for = self["heads_for"]
        if heads_for[agent] == NOWHERE:
            heads_for[agent] = self.rng.choice(states)
        return int(heads_for[agent])


class TriedChoices(AgentMemory):
    """Takes agents of discrete actions out of circles.

    The choice with the largest score is the same one whenever a state comes back: an agent walks into a wall, or turns
    left and right, for ever. Numbers of a mean action differ a little with the subgoal and slide along; choices do not.
    So where an agent is in the very state of an earlier step, it takes the best of the choices that it made there least
    often. In a world without noise those were in vain; states that never come back to the last bit are left alone.
    """

    def __init__(self) -> None:
        super().__init__(state=np.int64(NOWHERE), choice=NOWHERE, step=0)  # of the last steps, oldest overwritten

    def untried(self, scores: np.ndarray, observations: trees.Tree, goals: trees.Tree, active: np.ndarray) -> Any:
        """The scores [n, choices], minus infinity for choices made more often here than others; and remembers which is
        taken now. An agent that is exactly at its goal (one, or one an agent) forgets: it may stay. Those that are not
        `active` do nothing.
        """
        self.begin(len(scores), state=REMEMBERED, choice=REMEMBERED)
        here, there = _checksums(observations), _checksums(goals)
        self.reset(here == there)
        same = self["state"] == here[:, None]
        made = np.stack([(same & (self["choice"] == one)).sum(axis=1) for one in range(scores.shape[1])], axis=1)
        found = np.where(made == made.min(axis=1, keepdims=True), scores, -np.inf)
        rows = np.flatnonzero(active)
        at = self["step"][rows] % REMEMBERED
        self["state"][rows, at], self["choice"][rows, at] = here[rows], found[rows].argmax(axis=1)
        self["step"][rows] += 1
        return found


def _checksums(tree: trees.Tree) -> np.ndarray:
    """A number for each row of observations, the same where they are the same to the last bit."""
    found = [0] * trees.rows(tree)
    for part in trees.named(tree, "").values():
        found = [zlib.crc32(row.tobytes(), before) for row, before in zip(part, found, strict=True)]
    return np.asarray(found, np.int64)
