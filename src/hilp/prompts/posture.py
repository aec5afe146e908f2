"""What trajectories tell of a body: how far back the mean of its latents must go for its posture to cancel out, which
`smooth="auto"` of goals takes, and where it rests.

Legs that swing move a latent to and fro, and the direction from there to a subgoal swings with them. Trajectories show
by how much: where a body is, posture aside, is the mean of the rows around it, before and after. An agent that acts
knows the rows before only. So for each number of steps the direction from its moving mean to a place farther ahead is
held against the direction from where it is, posture aside. A longer mean swings less and lags more behind in bends.
"""

import numpy as np

STEPS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40)  # that a mean may go back
GAIN = 0.03  # of the mean cosine: a gain of less is not worth lagging behind
SLACK = 0.02  # of it that the longest of several means may lose against the best
SEGMENTS = 300  # of trajectories that are looked at
PLACES = 40  # rows of a segment that are looked at
LEAST_WAIT, MOST_WAIT = 4, 200  # rows that a body must stay
CHECKS = 8  # of these rows that are looked at
LEAST_AHEAD, MOST_AHEAD = 6, 40  # rows to the place ahead


def smoothing_steps(latents: np.ndarray, lengths: np.ndarray, ahead: float, seed: int = 0) -> int:
    """The steps that a mean of latents should go back, 1 for none.

    latents: of trajectories one behind the other, [rows, D], with `lengths` rows each; ahead: steps to the places that
    directions lead to.
    """
    ahead = int(np.clip(round(ahead), LEAST_AHEAD, MOST_AHEAD))
    around, longest = ahead // 2, int(np.max(lengths, initial=0))
    room = longest - PLACES - ahead - around  # rows before, over which means settle
    steps = [one for one in STEPS if 2 * one <= room]
    if len(steps) < 2:
        return 1
    before = max(2 * steps[-1], around)
    paths = _segments(latents, lengths, before + PLACES + ahead + around, seed)
    now = before + np.arange(PLACES)
    places = _centred(paths, around)
    here, there = places[:, now - around], places[:, now - around + ahead]
    way = there - here
    moves = np.linalg.norm(way, axis=-1)
    moving = moves > np.median(moves) / 4  # who stands still has no direction
    agreement = {}
    for one in steps:
        found = there - _moving_mean(paths, one)[:, now]
        apart = np.maximum(np.linalg.norm(found, axis=-1) * moves, 1e-12)
        agreement[one] = float(np.mean(((found * way).sum(axis=-1) / apart)[moving])) if moving.any() else 1.0
    best = max(agreement.values())
    if best - agreement[1] < GAIN:
        return 1
    return max(one for one, found in agreement.items() if found >= best - SLACK)


def _segments(latents: np.ndarray, lengths: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """Pieces of trajectories of so many rows, [n, rows, D]."""
    rng, starts = np.random.default_rng(seed), np.cumsum(lengths) - lengths
    fitting = np.flatnonzero(np.asarray(lengths) >= rows)
    chosen = rng.choice(fitting, SEGMENTS)
    first = starts[chosen] + rng.integers(np.asarray(lengths)[chosen] - rows + 1)
    return np.asarray(latents[first[:, None] + np.arange(rows)], np.float64)


def _centred(paths: np.ndarray, around: int) -> np.ndarray:
    """The mean of the rows up to so many before and after each, [n, rows - 2 * around, D]."""
    sums = np.concatenate([np.zeros_like(paths[:, :1]), np.cumsum(paths, axis=1)], axis=1)
    width = 2 * around + 1
    return np.asarray((sums[:, width:] - sums[:, :-width]) / width)


def _moving_mean(paths: np.ndarray, steps: int) -> np.ndarray:
    """As `LatentEma` has it of each row, [n, rows, D]."""
    found = np.array(paths)
    for row in range(1, paths.shape[1]):
        found[:, row] = found[:, row - 1] + (paths[:, row] - found[:, row - 1]) / steps
    return found


def resting(latents: np.ndarray, lengths: np.ndarray, radius: float) -> np.ndarray:
    """Rows of trajectories from which a body stays: within a radius for three times as long as it usually takes out.

    latents: as above.
    """
    lengths = np.asarray(lengths)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    near = np.diff(episode) == 0
    steps = np.linalg.norm(np.diff(latents, axis=0), axis=1)[near]
    pace = float(np.median(steps)) if len(steps) else 0.0
    wait = int(np.clip(np.ceil(3 * radius / max(pace, 1e-9)), LEAST_WAIT, MOST_WAIT))
    if wait >= len(latents):
        return np.zeros(0, np.int64)
    stays = episode[wait:] == episode[:-wait]
    for lag in np.unique(np.linspace(1, wait, CHECKS).round().astype(int)):
        away = np.linalg.norm(latents[lag : len(latents) - wait + lag] - latents[:-wait], axis=1)
        stays &= away <= radius
    return np.flatnonzero(stays)
