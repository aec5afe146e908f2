"""A diagnosis in words: sentences that a user can act on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hilp.errors import counted
from hilp.evaluation import held_out, stats
from hilp.evaluation.rows import CERTIFICATES, Row
from hilp.training.loop import MOVING

SYMMETRIC, ASYMMETRIC = 0.1, 0.3  # up to the first a metric fits; from the second on it can only average both ways
GOOD_RANKS, POOR_RANKS = 0.95, 0.8  # rank correlations
UNSURE = 0.15  # relative difference of V's two networks above which V is not trained enough
BIASED = 0.15  # relative error of the mean distance that is worth a word
SATURATED_SHARE = 0.3  # of distances at their longest that deserve a word
LONGEST = 0.995  # a discount of phi that is not worth raising
POOR_TIME = 0.5  # rank correlation with observed time, which detours keep low
CARRIES = 0.5  # share of stretches of the data that an estimate must be able to play again
AGREES = 0.6  # of actions, where chance is a half
LISTENS = 0.3  # of the data's spread of actions: an actor whose actions move less hardly hears its prompt
COLLAPSED = "All latent distances are equal: phi has collapsed or was never trained."
ALIKE = "Latent distance and {} order pairs alike with rank correlation {:.2f}"
DISTANCE = {False: "|phi(s) - phi(g)|", True: "d(s, g)"}  # by whether phi is directed
NEEDS_DIRECTED = "A directed phi can: hilp pretrain --method hilp-directed."
Numbers = dict[str, Any]


def explain_diagnosis(result: Numbers) -> list[str]:
    """A diagnosis in sentences that a user can act on."""
    told = _exact_words(result["exact"], result) if "exact" in result else []
    told += _learned_words(result["learned"], result) if "learned" in result else []
    told += [f"Chance: {result['chance']}."] if "chance" in result else []
    return told + ([explain_listening(result["listening"])] if "listening" in result else [])


def explain_listening(found: float) -> str:
    """Whether the actor does different things under different prompts (`hilp.policy.listening`)."""
    told = f"Over skills, actions spread by {found:.2f} of what they do in the data"
    if found >= LISTENS:
        return f"{told}: the actor listens to its prompt."
    return (
        f"{told}: the actor hardly listens to its prompt. Train longer, or with another method: hindsight is told "
        "what the data did next."
    )


def explain_without_distances(policy: Any) -> list[str]:
    """What is known of a policy whose method learns no distances."""
    rules = {"goals": ("goal_skill",), "rewards": ("cumulant", "backward"), "skills": ("project",)}
    takes = [name for name, any_of in rules.items() if any(policy.has_rule(rule) for rule in any_of)]
    about = policy.provenance
    trained = "" if about.steps is None else f" It was trained for {about.steps:,} updates on {about.data}."
    return [
        f"{policy.method} does not learn distances: there is nothing to compare with steps.{trained}",
        f"It takes {' and '.join(takes)}; `hilp evaluate` counts what it reaches in a task."
        if takes
        else "It was trained for one task: `hilp evaluate` counts what it reaches there.",
    ]


def explain_held_out(plans: Sequence[Numbers]) -> list[str]:
    """What data that a policy has not seen says of it: numbers of `held_out.measure`, a plan each."""
    first = plans[0]
    episodes = counted(first["episodes"], "episode")
    told = [f"Measured on {episodes} of {first['data']} ({first['transitions']:,} steps) without a simulator."]
    if "time_correlation" in first and first["time_correlation"] is None:
        told.append(COLLAPSED)
    elif "time_correlation" in first:
        plain, detours = first["plain_correlation"], "trajectories with detours keep it below 1"
        compared = "" if plain is None else f" (plain distance of observations: {plain:.2f}); {detours}"
        told.append(f"{ALIKE.format('observed time', first['time_correlation'])}{compared}.")
    return [*told, _agreement_words(plans), *_estimate_words(plans)]


def _agreement_words(plans: Sequence[Numbers]) -> str:
    """Of the plan that is advised: that of another one would be a promise that nobody keeps."""
    agreeing = {plan["plan"]: plan["agreement"] for plan in plans if plan.get("agreement") is not None}
    advised = plans[0]["advised_plan"]
    if plans[0].get("targets"):
        return (
            f"{plans[0]['targets']} of the commands are targets of columns, which are near the state whatever a policy "
            "wants: directions of actions say nothing here and are not compared."
        )
    if not agreeing:
        return "Hardly any trajectory goes anywhere without detours: there are no actions to compare with."
    shown = advised if advised in agreeing else next(iter(agreeing))
    return (
        f"On steps that went to a later state without detours the policy acts in the same direction in "
        f"{_percent(agreeing[shown])} (plan {shown}; by chance 50%)."
    )


def _estimate_words(plans: Sequence[Numbers]) -> list[str]:
    first = plans[0]
    replayed = first.get("replayed")
    world = (
        f"a world in which a command does what the most similar one did in the most similar state, typically "
        f"{first['neighbour_distance']:.1f} steps away"
    )
    if replayed is not None and replayed < CARRIES:
        return [
            f"The estimated success says nothing here: in {world}, even the data's own commands lead where they led in "
            f"{_percent(replayed)} of stretches only. Try the policy in a simulator or on the robot."
        ]
    if not any(plan.get("reached_any", True) for plan in plans):
        return [f"No goal is reached in {world}; goals are seldom hit so exactly, so it says little of the policy."]
    advised, usual = first["advised_plan"], held_out.usual_plan([plan["plan"] for plan in plans])
    sooner = "no other arrives sooner" if advised == usual else f"it arrives sooner than plan {usual}"
    default = ", the default" if advised == "auto" else ""
    return [
        f"The estimated success is that of {world}: it tells plans apart better than it tells how good they are, and "
        "knows nothing of what the data never tried.",
        f"Of the plans, it advises plan {advised}{default}: {sooner} by more than chance.",
    ]


def explain_unseen(found: Numbers, training: Numbers) -> list[str]:
    """What `held_out.measure` found, and what to change: `advise`."""
    plans = [{**found, **plan} for plan in found["plans"]]
    return explain_held_out(plans) + advise(plans, training)


def advise(plans: Sequence[Numbers], training: Numbers) -> list[str]:
    """What to change, by what is wrong; never what was done already. training: of `diagnosis.training_summary`."""
    first, found = plans[0], []
    scale, moving = training.get("scale"), training.get("moving")
    if (first.get("saturated") or 0.0) > SATURATED_SHARE and training["discount"] < LONGEST:
        found.append(
            f"{_percent(first['saturated'])} of distances are as long as phi can tell (phi_discount "
            f"{training['discount']:g}): raise phi_discount, or keep fewer rows with --stride."
        )
    if scale is not None and training["stride"] == 1 and scale["stride"] > 1:
        found.append(
            f"The data takes about {scale['crossing']:.0f} steps to cross its states: train with --stride "
            f"{scale['stride']} (or auto)."
        )
    if moving is not None and moving > MOVING:
        found.append(
            f"Distances still changed by {_percent(moving)} in the last part of training: go on with --resume --steps "
            f"{2 * int(training.get('updates') or 1)}, or --steps auto."
        )
    return found or [_first_doubt(plans, training.get("normalize", True))]


def _first_doubt(plans: Sequence[Numbers], normalized: bool) -> str:
    """What is wrong with a policy that was trained long enough on data of the right scale."""
    correlation, plain = plans[0].get("time_correlation"), plans[0].get("plain_correlation")
    poor = correlation is not None and correlation < POOR_TIME
    agreement = [plan["agreement"] for plan in plans if plan.get("agreement")]
    doubts = {
        "Observations are not normalised: train with --set normalize=true.": poor and not normalized,
        "Plain distances order time better than phi does: train longer, or with a smaller dim.": (
            poor and plain is not None and plain > correlation
        ),
        "Time is hard to tell from these observations: add velocities, or columns that show progress.": poor,
        "Distances order time, but actions do not follow: check that each command is in the row of the state that it "
        "was applied in, and try a lower temperature.": max(agreement, default=1.0) < AGREES,
        "In the world of observed transitions no goal is reached: goals are seldom hit so exactly here.": (
            not any(plan["reached_any"] for plan in plans)
        ),
    }
    words = (sentence for sentence, holds in doubts.items() if holds)
    return next(words, "Nothing stands out: more data and more updates are what is left.")


def _exact_words(exact: Numbers, result: Numbers) -> list[str]:
    directed, error = result.get("directed", False), exact["error_in_steps"]
    told = [
        f"Compared with the exact distances of {exact['task']}: {exact['pairs']:,} pairs of states, "
        f"{exact['mean_steps']:.1f} steps apart on average, {exact['longest_steps']} at most."
    ]
    if exact["pairs_without_way"]:
        told.append(f"{exact['pairs_without_way']:,} pairs have no way between them and are left out.")
    if exact["asymmetry"] is not None:
        told.append(_asymmetry_words(exact["asymmetry"], directed))
    if exact["one_way_share"] > 0 and not directed:
        told.append(
            f"{_percent(exact['one_way_share'])} of the ways have no way back: |phi(s) - phi(g)| is the same both ways "
            f"and cannot show that. {NEEDS_DIRECTED}"
        )
    told.append(
        f"{DISTANCE[directed]}, turned back into steps, is off by {error['mean']:.1f} steps on average (at most "
        f"{error['sup']:.0f})."
    )
    told.append(_rank_words(exact["rank_correlation"], "the exact distance", result))
    bias = exact["error_discounted"]["mean_found"] / exact["error_discounted"]["mean_true"] - 1.0
    if abs(bias) > BIASED:
        where = "too short on average, as they are before phi has spread out: train longer, or raise dim."
        if bias > 0:
            where = (
                "too long on average, as they are where data takes detours: a larger phi_expectile or data with "
                "shorter ways may help."
            )
        told.append(f"Latent distances are {_percent(abs(bias))} {where}")
    horizon = 1.0 / (1.0 - result["discount"])
    if exact["longest_steps"] > 2.0 * horizon:
        told.append(
            f"With phi_discount {result['discount']:g} distances beyond about {horizon:.0f} steps look alike, and the "
            f"longest here is {exact['longest_steps']}: raise phi_discount."
        )
    return told + (_theorem_words(exact) if "theorem_as_learned" in exact else [])


def _learned_words(learned: Numbers, result: Numbers) -> list[str]:
    directed, error = result.get("directed", False), learned["error_discounted"]
    unsure = ["That is much: train V longer (--steps) before trusting what follows."]
    return [
        f"Compared with a value V(s, g) trained for {learned['steps']:,} updates on {learned['data']}: "
        f"{learned['pairs']:,} random pairs of its states. V is an estimate itself: its two networks differ by "
        f"{_percent(learned['disagreement'])}.",
        *(unsure if learned["disagreement"] > UNSURE else []),
        _asymmetry_words(learned["asymmetry"], directed),
        f"{DISTANCE[directed]} (mean {error['mean_found']:.3g}) and -V(s, g) (mean {error['mean_true']:.3g}) differ "
        f"by {error['mean']:.2g} on average (mean squared difference {error['mse']:.2g}), on the discounted scale.",
        _rank_words(learned["rank_correlation"], "V(s, g)", result),
    ]


def _asymmetry_words(asymmetry: float, directed: bool) -> str:
    """What there and back differ by, and whether a directed phi is needed for it."""
    share = _percent(asymmetry)
    if asymmetry <= SYMMETRIC:
        verdict = "so a directed phi is not needed: method hilp has fewer numbers to learn"
        verdict = verdict if directed else "as those of a Hilbert metric have to be"
        return f"Distances are nearly symmetric (asymmetry {share}), {verdict}."
    if directed:
        return f"Distances are asymmetric (asymmetry {share}), which this directed phi can follow."
    if asymmetry < ASYMMETRIC:
        return (
            f"Distances are somewhat asymmetric (asymmetry {share}): |phi(s) - phi(g)| averages there and back; expect "
            "detours where the way back is much longer, or try a directed phi (hilp pretrain --method hilp-directed)."
        )
    return (
        f"Distances are strongly asymmetric (asymmetry {share}): |phi(s) - phi(g)| can only average there and back; "
        "expect directions that try to go against one-way transitions. Consider observations that include velocities, "
        f"where they lack. {NEEDS_DIRECTED}"
    )


def _rank_words(correlation: float | None, reference: str, result: Numbers) -> str:
    if correlation is None:
        return COLLAPSED
    rank = ALIKE.format(reference, correlation)
    if correlation >= GOOD_RANKS:
        return f"{rank}: good."
    if correlation >= POOR_RANKS:
        return f"{rank}: usable, and planning (plan 3 or auto) will help with far goals; train longer to improve it."
    remedies = f"a larger phi_discount (now {result['discount']:g})"
    if result["expectile"] is not None:
        remedies += f" or a larger phi_expectile (now {result['expectile']:g})"
    return f"{rank}: low. Train longer, on more data between far places, or with {remedies}."


def _theorem_words(exact: Numbers) -> list[str]:
    learned, scaled = exact["theorem_as_learned"], exact["theorem_scaled"]
    promise = "no pair, so it promises nothing: it asks for distances right to a quarter of a step all around a state."
    if learned["optimal_where_condition"] is not None:
        promise = (
            f"{_percent(learned['condition_share'])} of pairs; on these the direction is optimal for "
            f"{_percent(learned['optimal_where_condition'])}."
        )
    return [
        "What the theorem says: always make the motion that takes phi straight towards the goal's phi, and you are on "
        "a shortest way, wherever the map is right to less than a quarter of a step all around you (eps_e is its "
        "largest error there) and some motion goes almost exactly that way (eps_d is by how much the best one misses).",
        f"Over all pairs the greedy latent motion is optimal for {_percent(exact['greedy_motion_optimal'])} (a random "
        f"motion: {_percent(exact['random_motion_optimal'])}).",
        f"The condition of the theorem (4 eps_e + eps_d < 1) holds for {promise} Motions within latent length 1, as "
        f"the theorem has them, are optimal for {_percent(learned['optimal_share'])} of all pairs.",
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


def certificates(row: Row) -> dict[str, tuple[int, int]]:
    """How many goals the graph calls reachable, unknown and not reachable, and how many of each were reached."""
    forecast, reached = np.array(row["reachable"]), np.array(row["outcomes"]) >= 1.0
    return {word: (int((forecast == word).sum()), int(reached[forecast == word].sum())) for word in CERTIFICATES}


def calibration(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Expected and realised steps of the episodes that reached a goal by a way that the data shows."""
    came = np.array(row["outcomes"]) >= 1.0
    known = came & (np.array(row["reachable"]) == "yes") & (np.array(row["lengths"]) > 0)
    expected = np.array([np.nan if steps is None else steps for steps in row["expected_steps"]], float)
    return expected[known], np.array(row["lengths"], float)[known]


def explain_forecast(row: Row) -> list[str]:
    """How the graph's forecast compares with what happened."""
    words = {"yes": "shows a way to", "unknown": "cannot tell of", "no": "shows no way to"}
    counts = [
        f"it {words[word]} {count:,} of {row['episodes']:,} goals, of which {reached:,} were reached"
        for word, (count, reached) in certificates(row).items()
        if count
    ]
    found = [f"Before the first step, the graph of the data said (plan {row['plan']}): {'; '.join(counts)}."]
    expected, realised = calibration(row)
    if len(expected) >= 2:
        ratio = float(np.median(realised / np.maximum(expected, 1.0)))
        found.append(
            f"Of those reached by a way that it shows, the steps taken were {ratio:.2f} of those expected (median), in "
            f"the same order with rank correlation {stats.spearman(expected, realised):.2f}."
        )
    return found


def row_with_forecast(rows: Sequence[Row]) -> Row | None:
    """The row whose forecast is shown: that of the graph itself, or of another plan that follows it."""
    forecasts = [row for row in rows if "expected_steps" in row and "reachable" in row]
    return next((row for row in forecasts if row["plan"] == "graph"), forecasts[0] if forecasts else None)
