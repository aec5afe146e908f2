"""What episodes were like, besides their score: whether they stand still, end early, or leave what they had reached."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hilp.errors import counted
from hilp.evaluation.rollouts import Rollout
from hilp.evaluation.rows import Row
from hilp.policy.policy import FoundationPolicy

STILL = 0.05  # of the length of a usual step of the data: an episode whose steps are shorter at its end stands still
LIMIT = 0.99  # of the range of actions: beyond it a command is at its limit
WINDOW = 0.05  # of an episode: rewards are averaged over as many steps
PASSED, LEFT = 0.5, 0.25  # of the range of rewards: one was above the first, and ended below the second
MANY, MOST = 0.2, 0.5  # shares of episodes, and of commands, that deserve a word


def behaviour(policy: FoundationPolicy, rollout: Rollout) -> dict[str, Any]:
    """What a row says of its episodes; nothing of what cannot be measured."""
    if not len(rollout.actions):
        return {}
    steps, episodes = len(rollout.actions), len(rollout.lengths)
    alive = np.asarray(rollout.alive, bool).reshape(steps, episodes)
    lived = np.where(rollout.reached_goal, np.minimum(alive.sum(axis=0), rollout.lengths), alive.sum(axis=0))
    active = np.arange(steps)[:, None] < lived  # steps x episodes
    found: dict[str, Any] = {"steps_alive": float(lived.mean())}
    early = ~rollout.reached_goal & (lived < steps)
    if early.any():
        found["ended_early"] = int(early.sum())
    if (share := _at_limits(policy, rollout, active)) is not None:
        found["at_limits"], found["data_at_limits"] = share
    if (still := _standing(policy, rollout, lived)) is not None:
        to_goals = not np.isnan(rollout.goals).all()  # a reward may well pay for standing
        found["standing"] = int((still & ~rollout.reached & ~early).sum()) if to_goals else 0
    if rollout.earned is not None:
        found["passed"] = int(_passed(np.asarray(rollout.earned), lived).sum())
    return found


def _at_limits(policy: FoundationPolicy, rollout: Rollout, active: np.ndarray) -> tuple[float, float] | None:
    """Share of commands at their limit, of the policy and of its data."""
    preparation = policy.preparation
    if not active.any() or not len(policy.bank):
        return None
    made, done = (
        np.abs((np.asarray(actions) - preparation.action_center) / preparation.action_half_range) >= LIMIT
        for actions in (np.asarray(rollout.actions)[active], policy.bank.actions)
    )
    return float(made.mean()), float(done.mean())


def _standing(policy: FoundationPolicy, rollout: Rollout, lived: np.ndarray) -> np.ndarray | None:
    """Episodes that hardly move in their last half, bool [episodes]; None where states are pictures."""
    bank = policy.bank
    row = policy.spec.of_row
    if row.parts or not len(bank) or rollout.observations.shape[-1] != row.observation_dim:
        return None
    now, then = (
        np.asarray(policy.spec.newest(seen), np.float64) for seen in (bank.observations, bank.next_observations)
    )
    spread = np.maximum(now.std(axis=0), 1e-9)
    usual = (np.abs(then - now) / spread).mean() / policy.stride
    sizes = (np.abs(np.diff(rollout.observations, axis=0)) / spread).mean(axis=-1)  # steps x episodes
    late = [sizes[int(length) // 2 : max(1, int(length)), number] for number, length in enumerate(lived)]
    return np.array([len(own) > 1 and own.mean() < STILL * usual for own in late])


def _passed(earned: np.ndarray, lived: np.ndarray) -> np.ndarray:
    """Episodes that earned well for a while and hardly anything at their end; earned: steps x episodes."""
    window = max(1, round(WINDOW * len(earned)))
    sums = np.cumsum(np.concatenate([np.zeros((1, earned.shape[1])), earned]), axis=0)
    means = (sums[window:] - sums[:-window]) / window  # of the steps from each one on
    low, high = float(means.min()), float(means.max())
    if high - low <= 1e-9 * max(1.0, abs(high)):
        return np.zeros(earned.shape[1], bool)
    share = (means - low) / (high - low)
    last = np.clip(lived - window, 0, len(share) - 1)
    end = share[last, np.arange(share.shape[1])]
    within = np.arange(len(share))[:, None] <= last
    return (np.where(within, share, 0.0).max(axis=0) > PASSED) & (end < LEFT)


def words(row: Row) -> Iterator[str]:
    """Sentences about what a score does not show."""
    found, episodes = row.get("behaviour", {}), row["episodes"]
    all_of = counted(episodes, "episode")
    under = f"Under plan {row['plan']}," if row["prompt"] == "goal" else f"Under reward '{row['reward']}',"
    if early := found.get("ended_early", 0):
        falls = f", {row['falls']} by a fall" if row.get("falls") else ""
        missing = "; where rewards are negative, the steps that are missing count like those before"
        yield (
            f"{under} {early} of {all_of} ended early{falls}: they lasted {found['steps_alive']:.0f} steps on average"
            f"{missing if 'uncharged' in row else ''}."
        )
    if found.get("passed", 0) >= MANY * episodes:
        yield (
            f"{under} {found['passed']} of {all_of} were where it pays and left again: it is passed, not kept; "
            "--rule goal stays at one place."
        )
    if found.get("standing", 0) >= MANY * episodes:
        yield (
            f"{under} {found['standing']} of {all_of} end standing still without having arrived: another plan may know "
            "a way on, and a longer training makes actions more decided."
        )
    limits, usual = found.get("at_limits", 0.0), found.get("data_at_limits", 1.0)
    if limits > MOST and limits > 2 * usual:
        yield (
            f"{under} {limits:.0%} of commands are at their limit, {usual:.0%} in the data: it asks for more than was "
            "ever tried."
        )
