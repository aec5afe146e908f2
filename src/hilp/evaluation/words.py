"""A diagnosis in words: sentences that a user can act on."""

from __future__ import annotations

from typing import Any

SYMMETRIC, ASYMMETRIC = 0.1, 0.3  # up to the first a metric fits; from the second on it can only average both ways
GOOD_RANKS, POOR_RANKS = 0.95, 0.8  # rank correlations
UNSURE = 0.15  # relative difference of V's two networks above which V is not trained enough
BIASED = 0.15  # relative error of the mean distance that is worth a word
Numbers = dict[str, Any]


def sentences(result: Numbers) -> list[str]:
    """A diagnosis in sentences that a user can act on."""
    told = []
    if "exact" in result:
        told += _exact_words(result["exact"], result)
    if "learned" in result:
        told += _learned_words(result["learned"], result)
    return told


def _exact_words(exact: Numbers, result: Numbers) -> list[str]:
    told = [
        f"Compared with the exact distances of {exact['task']}: {exact['pairs']:,} pairs of states, "
        f"{exact['mean_steps']:.1f} steps apart on average, {exact['longest_steps']} at most."
    ]
    if exact["pairs_without_way"]:
        told.append(f"{exact['pairs_without_way']:,} pairs have no way between them and are left out.")
    if exact["asymmetry"] is not None:
        told.append(_asymmetry_words(exact["asymmetry"]))
    if exact["one_way_share"] > 0:
        told.append(
            f"{_percent(exact['one_way_share'])} of the ways have no way back: |phi(s) - phi(g)| is the same both ways "
            "and cannot show that."
        )
    error = exact["error_in_steps"]
    told.append(
        f"|phi(s) - phi(g)|, turned back into steps, is off by {error['mean']:.1f} steps on average (at most "
        f"{error['sup']:.0f})."
    )
    told += _rank_words(exact["rank_correlation"], "the exact distance", result)
    told += _bias_words(exact["error_discounted"])
    horizon = 1.0 / (1.0 - result["discount"])
    if exact["longest_steps"] > 2.0 * horizon:
        told.append(
            f"With phi_discount {result['discount']:g} distances beyond about {horizon:.0f} steps look alike, and the "
            f"longest here is {exact['longest_steps']}: raise phi_discount."
        )
    told += _theorem_words(exact)
    return told


def _learned_words(learned: Numbers, result: Numbers) -> list[str]:
    told = [
        f"Compared with a value V(s, g) trained for {learned['steps']:,} updates on {learned['data']}: "
        f"{learned['pairs']:,} random pairs of its states. V is an estimate itself: its two networks differ by "
        f"{_percent(learned['disagreement'])}."
    ]
    if learned["disagreement"] > UNSURE:
        told.append("That is much: train V longer (--steps) before trusting what follows.")
    told.append(_asymmetry_words(learned["asymmetry"]))
    error = learned["error_discounted"]
    told.append(
        f"|phi(s) - phi(g)| (mean {error['mean_found']:.3g}) and -V(s, g) (mean {error['mean_true']:.3g}) differ by "
        f"{error['mean']:.2g} on average (mean squared difference {error['mse']:.2g}), on the discounted scale."
    )
    told += _rank_words(learned["rank_correlation"], "V(s, g)", result)
    return told


def _asymmetry_words(asymmetry: float) -> str:
    share = _percent(asymmetry)
    if asymmetry <= SYMMETRIC:
        return f"Distances are nearly symmetric (asymmetry {share}), as those of a Hilbert metric have to be."
    if asymmetry < ASYMMETRIC:
        return (
            f"Distances are somewhat asymmetric (asymmetry {share}): |phi(s) - phi(g)| averages there and back; expect "
            "detours where the way back is much longer."
        )
    return (
        f"Distances are strongly asymmetric (asymmetry {share}): |phi(s) - phi(g)| can only average there and back; "
        "expect directions that try to go against one-way transitions, and consider observations that include "
        "velocities, or a goal-conditioned method that is no metric."
    )


def _rank_words(correlation: float | None, reference: str, result: Numbers) -> list[str]:
    if correlation is None:
        return ["All latent distances are equal: phi has collapsed or was never trained."]
    told = f"Latent distance and {reference} order pairs alike with rank correlation {correlation:.2f}"
    if correlation >= GOOD_RANKS:
        return [f"{told}: good."]
    if correlation >= POOR_RANKS:
        return [f"{told}: usable, and planning (plan 3 or auto) will help with far goals; train longer to improve it."]
    remedies = f"a larger phi_discount (now {result['discount']:g})"
    if result["expectile"] is not None:
        remedies += f" or a larger phi_expectile (now {result['expectile']:g})"
    return [f"{told}: low. Train longer, on more data between far places, or with {remedies}."]


def _bias_words(error: Numbers) -> list[str]:
    bias = error["mean_found"] / error["mean_true"] - 1.0
    if bias > BIASED:
        return [
            f"Latent distances are {_percent(bias)} too long on average, as they are where data takes detours: a "
            "larger phi_expectile or data with shorter ways may help."
        ]
    if bias < -BIASED:
        return [
            f"Latent distances are {_percent(-bias)} too short on average, as they are before phi has spread out: "
            "train longer, or raise dim."
        ]
    return []


def _theorem_words(exact: Numbers) -> list[str]:
    learned, scaled = exact["theorem_as_learned"], exact["theorem_scaled"]
    if learned["optimal_where_condition"] is None:
        promise = (
            "The condition of the theorem (4 eps_e + eps_d < 1) holds for no pair, so it promises nothing here: it "
            "asks for distances right to a quarter of a step all around a state."
        )
    else:
        promise = (
            f"The condition of the theorem (4 eps_e + eps_d < 1) holds for {_percent(learned['condition_share'])} of "
            f"pairs; on these the direction is optimal for {_percent(learned['optimal_where_condition'])}."
        )
    return [
        f"Over all pairs the greedy latent motion is optimal for {_percent(exact['greedy_motion_optimal'])} (a random "
        f"motion: {_percent(exact['random_motion_optimal'])}).",
        f"{promise} Motions within latent length 1, as the theorem has them, are optimal for "
        f"{_percent(learned['optimal_share'])} of all pairs.",
        f"At its best scale ({scaled['scale']:.2f} phi) the condition holds for {_percent(scaled['condition_share'])} "
        f"of pairs, and these motions are optimal for {_percent(scaled['optimal_share'])} of all.",
    ]


def _percent(share: float) -> str:
    """With one digit where it matters, and neither 0% nor 100% unless it is exactly that."""
    if 0 < share < 0.001:
        return "less than 0.1%"
    if 0.999 < share < 1:
        return "more than 99.9%"
    digits = 1 if share < 0.1 or 0.99 < share < 1 else 0
    return f"{100 * share:.{digits}f}%".replace(".0%", "%")
