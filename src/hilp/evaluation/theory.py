"""The paper's theory in numbers: how far phi is from an isometry of a finite world, and where that is near enough.

The definitions are those of the appendix "Theoretical Results". A world is deterministic: `successors` [n, motions] is
the state that each motion leads to, `steps` [n, n] the fewest steps from row to column, -1 where there is no way.
Everything is measured from `starts`, some or all of the states, to every state as a goal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hilp.errors import HilpError
from hilp.evaluation import stats
from hilp.learning import hilbert
from hilp.prompts import midpoints

MOST_PAIRS = 5_000_000  # pairs up to which all of them are measured; beyond, the start states are a sample
RANKED_PAIRS = 500_000  # pairs that a rank correlation is taken over; sorting more would change its third digit
UNIT_SLACK = 1e-5  # a motion of latent length 1 is allowed although float32 made it 1.000001; the theorem bears it
MARGIN = 1e-5  # more than the rounding error of 4 eps_e + eps_d: the condition must hold by this much
ROUNDING = 1e-13  # of a squared distance, relative to the largest squared latent
BLOCK = 64  # start states worked on at once, so that their tables stay small
Array = np.ndarray
Numbers = dict[str, Any]
Distance = Callable[[Array, Array], Array]  # from latents to latents; leading axes are broadcast


def choose_starts(states: int, pairs: int = MOST_PAIRS, seed: int = 0) -> Array:
    """The states to measure from: all, or as many at random as keep starts x states within `pairs`."""
    count = min(states, max(1, pairs // states))
    if count == states:
        return np.arange(states)
    return np.sort(np.random.default_rng(seed).choice(states, count, replace=False))


def asymmetry(steps: Array, starts: Array) -> Numbers:
    """mean |d(s, g) - d(g, s)| / mean d(s, g) over pairs with ways both ways; the share of ways without a way back."""
    there, back = steps[starts], steps[:, starts].T
    both = (there > 0) & (back > 0)
    one_way = 1.0 - int(both.sum()) / int((there > 0).sum())
    there, back = there[both].astype(np.float64), back[both]
    share = float(np.abs(there - back).mean() / there.mean()) if len(there) else None
    return {"asymmetry": share, "one_way_share": one_way}


def embedding(
    steps: Array, latents: Array, discount: float, starts: Array, seed: int = 0, distance: Distance | None = None
) -> Numbers:
    """How well |phi(s) - phi(g)|, or another distance of latents, tells the exact one, over all pairs with a way.

    A phi trained with a discount has its own scale, (1 - gamma^d) / (1 - gamma). `error_discounted` compares there;
    `error_in_steps` maps latent distances back to steps first; `error_plain` compares latent distances with steps as
    they are. The rank correlation is the same on every scale.
    """
    ways = steps[starts] > 0
    exact = steps[starts][ways].astype(np.float64)
    latent = np.asarray(latent_distances(latents, starts, distance), np.float64)[ways]
    return {
        "rank_correlation": rank_correlation(latent, exact, seed),
        "error_discounted": errors(latent, hilbert.discounted(exact, discount)),
        "error_in_steps": errors(midpoints.undiscounted(latent, discount), exact),
        "error_plain": errors(latent, exact),
    }


def errors(found: Array, true: Array) -> Numbers:
    """Mean, largest and mean squared error, and the means of both sides to set them against."""
    off = np.abs(found - true)
    return {
        "mean": float(off.mean()),
        "sup": float(off.max()),
        "mse": float(np.square(off).mean()),
        "mean_found": float(found.mean()),
        "mean_true": float(true.mean()),
    }


def rank_correlation(x: Array, y: Array, seed: int = 0) -> float | None:
    """Spearman's, over a sample where there are very many pairs; None where one side is constant."""
    if len(x) > RANKED_PAIRS:
        rows = np.random.default_rng(seed).integers(len(x), size=RANKED_PAIRS)
        x, y = x[rows], y[rows]
    found = stats.spearman(x, y)
    return None if np.isnan(found) else found


def latent_distances(latents: Array, starts: Array, distance: Distance | None = None) -> Array:
    """|phi(s) - phi(g)|, or another distance of latents, from each start to every state: starts x states."""
    if distance is None:
        phi = _centred(latents)
        return _distances(phi, starts, phi[starts] @ phi.T)
    return np.concatenate([np.asarray(distance(latents[block][:, None], latents[None])) for block in _blocks(starts)])


def _blocks(starts: Array) -> list[Array]:
    return [starts[first : first + BLOCK] for first in range(0, len(starts), BLOCK)]


class Directed(NamedTuple):
    """The theorem's quantities for every start and goal (starts x states)."""

    motion: Array  # int32: pi(s, g); -1 where it is not defined: phi(s) = phi(g), or no motion is short enough
    movement_error: Array  # |z'* - z'|, the directional movement error; infinite where there is no motion
    local_error: Array  # sup over s' in N(s) and s of |d(s', g) - |phi(s') - phi(g)||; infinite without a way


def direct(successors: Array, steps: Array, latents: Array, starts: Array, longest: float = 1.0) -> Directed:
    """pi(s, g): of the motions up to `longest` in latent length, the one that gets farthest towards phi(g) from phi(s).

    The theorem is about motions of length at most 1; the policy that training aims at has no such limit.
    """
    phi = _centred(latents)
    parts = [_direct_block(successors[block], steps, phi, block, longest) for block in _blocks(starts)]
    return Directed(*(np.concatenate(tables) for tables in zip(*parts, strict=True)))


def _direct_block(around: Array, steps: Array, phi: Array, starts: Array, longest: float) -> Directed:
    """`direct` for some starts and the states around them; what one state and a goal decide is computed once."""
    rows, place = np.unique(np.column_stack([starts, around]), return_inverse=True)
    place = place.reshape(len(starts), -1)
    inner = phi[rows] @ phi.T  # rows x goals
    distance = _distances(phi, rows, inner)
    exact = steps[rows]
    error = np.where(exact < 0, np.inf, np.abs(exact - distance))

    here = place[:, 0]
    to_goal = distance[here]  # starts x goals
    local_error = error[here]
    length = distance[place[:, 1:], starts[:, None]]  # starts x motions
    best = np.full(to_goal.shape, -np.inf)  # <phi(s') - phi(s), phi(g) - phi(s)>, up to what all motions share
    number = np.zeros(to_goal.shape, np.int32)  # of the best motion so far, from 1
    for a, there in enumerate(place[:, 1:].T):
        np.maximum(local_error, error[there], out=local_error)
        gain = inner[there] - inner[there, starts][:, None]
        gain[length[:, a] > longest + UNIT_SLACK] = -np.inf
        # Numbers only grow, so the largest that was ever better is the last: far quicker than a masked copy.
        np.maximum(number, (gain > best) * np.int32(a + 1), out=number)
        np.maximum(best, gain, out=best)

    motion = np.where(to_goal == 0, -1, number - 1)
    best -= inner[here] - inner[here, starts][:, None]
    moved = np.take_along_axis(length, np.maximum(motion, 0), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # where there is no motion
        square = 1.0 - 2.0 * best / to_goal + np.square(moved)
    movement_error = np.where(motion < 0, np.inf, np.sqrt(np.maximum(square, 0.0)))
    return Directed(motion, movement_error, local_error)


def theorem(successors: Array, steps: Array, latents: Array, starts: Array) -> Numbers:
    """Where 4 eps_e + eps_d < 1 holds (locally), and how often the directed motion is optimal there and anywhere.

    Optimal means that the exact distance shrinks by one. The theorem promises it wherever the condition holds.
    """
    directed = direct(successors, steps, latents, starts)
    ways = steps[starts] > 0
    count, with_motion = int(ways.sum()), ways & (directed.motion >= 0)
    optimal = is_optimal(successors, steps, starts, directed.motion)
    condition = ways & (4.0 * directed.local_error + directed.movement_error < 1.0 - MARGIN)
    met = int(condition.sum())
    return {
        "condition_share": met / count,
        "optimal_where_condition": int((optimal & condition).sum()) / met if met else None,
        "optimal_share": int(optimal.sum()) / count,
        "undefined_share": 1.0 - int(with_motion.sum()) / count,
        "median_local_error": _median(directed.local_error[ways]),
        "median_movement_error": _median(directed.movement_error[with_motion]),
    }


def is_optimal(successors: Array, steps: Array, starts: Array, motion: Array) -> Array:
    """Whether each of these motions (starts x goals, -1 for none) takes the state one step nearer to its goal."""
    reached = successors[starts[:, None], np.maximum(motion, 0)]
    return (motion >= 0) & (steps[reached, np.arange(len(steps))] == steps[starts] - 1) & (steps[starts] > 0)


def examine(
    successors: Array,
    steps: Array,
    latents: Array,
    discount: float,
    pairs: int = MOST_PAIRS,
    seed: int = 0,
    distance: Distance | None = None,
) -> Numbers:
    """All of this in numbers; of Euclidean distances the theorem, too, for phi as learned and at its best scale."""
    starts = choose_starts(len(steps), pairs, seed)
    from_starts = steps[starts]
    ways = from_starts > 0
    if not ways.any():
        raise HilpError("no state of this task can reach another: there is no distance to compare phi with")
    numbers = {
        "states": len(steps),
        "motions": successors.shape[1],
        "start_states": len(starts),
        "pairs": int(ways.sum()),
        "pairs_without_way": int((from_starts < 0).sum()),
        "mean_steps": float(from_starts[ways].mean()),
        "longest_steps": int(from_starts.max()),
        "discount": discount,
        **asymmetry(steps, starts),
        **embedding(steps, latents, discount, starts, seed, distance),
    }
    if distance is not None or steps.dtype.kind == "f":  # the theorem is about worlds without chance
        return numbers
    count, motions = int(ways.sum()), successors.shape[1]
    greedy = direct(successors, steps, latents, starts, longest=np.inf).motion  # however long
    at_random = sum(int(is_optimal(successors, steps, starts, np.array([[motion]])).sum()) for motion in range(motions))
    latent = latent_distances(latents, starts)[ways]
    square = float(latent @ latent)
    # The c that makes |c phi(s) - c phi(g)| fit the exact steps best, by least squares.
    scale = float(latent @ from_starts[ways]) / square if square > 0 else 1.0
    return {
        **numbers,
        "greedy_motion_optimal": int(is_optimal(successors, steps, starts, greedy).sum()) / count,
        "random_motion_optimal": at_random / (count * motions),  # what any other is to be measured against
        "theorem_as_learned": {"scale": 1.0, **theorem(successors, steps, latents, starts)},
        "theorem_scaled": {"scale": scale, **theorem(successors, steps, scale * np.asarray(latents), starts)},
    }


def _centred(latents: Array) -> Array:
    """In float64 and around zero, so that inner products are not much larger than the differences they stand for."""
    phi = np.asarray(latents, np.float64)
    return phi - phi.mean(axis=0)


def _distances(phi: Array, rows: Array, inner: Array) -> Array:
    """|phi(row) - phi(g)| from inner products (rows x states); differences within their rounding error are zero."""
    squares = np.einsum("nd,nd->n", phi, phi)
    distance = squares[rows, None] - 2.0 * inner + squares
    distance[distance < ROUNDING * squares.max()] = 0.0
    return np.sqrt(distance, out=distance)


def _median(values: Array) -> float | None:
    """None where half of the values are infinite, or there is none."""
    middle = float(np.median(values)) if len(values) else np.inf
    return middle if np.isfinite(middle) else None
