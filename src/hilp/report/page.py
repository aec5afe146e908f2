"""Rows, trajectories and a policy in; tables, figures and one self-contained HTML page out. Nothing is run for it."""

import html as escape
import itertools
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hilp import storage, tasks
from hilp.errors import counted, printable
from hilp.evaluation import explain, stats, trajectories
from hilp.evaluation import rows as files
from hilp.evaluation.rows import Metrics, Row, grouped
from hilp.evaluation.setup import task_of
from hilp.evaluation.trajectories import SavedRollout
from hilp.learning import hilbert
from hilp.policy import places
from hilp.policy.listening import listening
from hilp.policy.policy import FoundationPolicy
from hilp.prompts.bank import Bank
from hilp.prompts.midpoints import Midpoints
from hilp.report import figures
from hilp.report.markup import Section, page
from hilp.runs import METRICS, PAGE, ROWS, TRAJECTORIES
from hilp.tasks import rendering

SHOWN_PAIRS = 20_000
SHOWN_LATENTS = 800  # by t-SNE, in a second or two
FIELD_STATES = 5_000  # enough to cover the floor
SHOWN_LOSSES = 24  # a method has a few
HELD_OUT_ACTOR = (
    "A held-out actor loss says how likely the actor finds the data's own actions. A policy that does better than its "
    "data leaves them, so lower is not better there: look at evaluations."
)
STRIPS = 3  # plans in pictures
HALVINGS = 3  # of the way: seven midpoints between a start and a goal
FAR_PAIRS = 200  # that the far ones are chosen from
Kept = Sequence[SavedRollout]


def build(
    policy: FoundationPolicy, rows: Sequence[Row], metrics: list[Metrics], world: tasks.Task | None, kept: Kept = ()
) -> str:
    """The page: results, trajectories a prompt, the learned distance, the latent map, the training curves."""
    by_task = grouped(rows, itemgetter("task"))
    where = (lambda name: "") if len(by_task) == 1 else (lambda name: f" in {name}")
    sections = [_results(group, f"Results{where(name)}") for name, group in by_task.items()]
    if world is not None and world.has_goals and world.name in by_task:  # robots have no map to draw on
        sections.append(_trajectories(world, by_task[world.name], kept))
    sections += _plans_in_pictures(policy)
    for name, group in by_task.items():
        sections += _foresight(group, where(name))
    sections += [] if world is None else _representation(policy, world)
    sections += [*_listening(policy, metrics), *_training(metrics), _origin(policy, rows)]
    data = escape.escape(printable(str(policy.provenance.data or "your data")))
    meet = " Meet it in the browser with <code>hilp play</code> and the folder of this page."
    intro = (
        f"<p>A policy trained on <strong>{data}</strong> without rewards or goals "
        f"({policy.provenance.steps or 0:,} updates), then prompted with no further training."
        f"{meet if policy.provenance.task else ''}</p>"  # there is no playground without a task
    )
    return page("hilp report", intro, sections)


def write(run: str | Path, out: str | Path | None = None, task: str | None = None) -> Path:
    """Build the page of a run's folder from what the folder holds; `task` where its data names none."""
    found, folder = places.find(run)
    policy = FoundationPolicy.load(found)
    metrics_folder = folder if (folder / METRICS).is_file() else folder.parent  # several seeds share a run's metrics
    rows = _read(files.read_rows, folder / ROWS)
    rows = files.latest(row for row in rows if row["policy"] == policy.fingerprint)
    metrics = _read(files.read_metrics, metrics_folder / METRICS)
    kept = [entry for entry in _read(trajectories.read, folder / TRAJECTORIES) if entry.policy == policy.fingerprint]
    known = task or policy.provenance.task
    if task is None and known is not None and tasks.runs_user_code(known):
        known = None  # a page is made without running what a file names
    target = Path(out) if out else folder / PAGE
    storage.write_text(target, build(policy, rows, metrics, task_of(policy, task) if known else None, kept))
    return target


def _read(read: Callable[[Path], list[Any]], path: Path) -> list[Any]:
    return read(path) if path.is_file() else []


def results_table(rows: list[Row]) -> tuple[list[str], list[list[Any]]]:
    """Headers and lines of the table that is printed and put on the page."""
    headers = ["prompt", "score", "95% interval", "episodes", "steps of successes", "R²"]
    shown = {name: name for name in files.TALLIES if any(name in row for row in rows)}
    if all("largest" in row for row in rows):  # else there are goals, and no room
        shown["largest"] = "best step"
    compared = any("random" in row for row in rows)
    lines = []
    for row in rows:
        length, r2 = row.get("mean_length_of_successes"), _fit_of(row)
        number = _number(row["metric"])
        line = [_prompt(row), number(row["score"]), _range(number, files.interval_of(row)), row["episodes"]]
        line += [None if length is None else f"{length:.1f}", None if r2 is None else f"{r2:.2f}"]
        line += [f"{value:.4g}" if isinstance(value := row.get(name), float) else value for name in shown]
        lines.append([*line, number(row["random"]) if "random" in row else None] if compared else line)
    return [*headers, *shown.values(), *(["random actions"] if compared else [])], lines


def _prompt(row: Row) -> str:
    """What a row or an aggregate was prompted with; a reward by another rule than the method's own says by which."""
    options = files.option_words(row.get("options") or files.options(row))
    if row["prompt"] == "goal":
        return f"goal, plan {row['plan']}{options}"
    marked = f" ({row['rule']})" if row.get("rule") in ("graph", "goal") else ""
    adapted = f", adapted with {row['adapted']} episodes" if row.get("adapted") else ""
    return f"reward, {row['reward']}{options}{marked}{adapted}"


def _number(metric: str) -> Callable[[float], str]:
    """How a row's scores are written: returns as they are, shares and successes in percent."""
    return (lambda value: f"{value:.1f}") if metric == "return" else (lambda value: f"{100 * value:.1f}%")


def _range(number: Callable[[float], str], interval: Sequence[float] | None) -> str | None:
    return None if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def _results(rows: list[Row], title: str) -> Section:
    headers, lines = results_table(rows)
    if held_out := [row["held_out"] for row in rows if "held_out" in row]:  # data that the policy has not seen
        headers[1] = "estimated success"
        caption = "Goals of held-out states, in the world of observed transitions."
        told = "\n\n".join(explain.explain_held_out(held_out))
        return Section("Without a simulator", told, tables=[(headers, lines, caption)])
    text = (
        "Goal prompts: share of random start-goal pairs reached within the step limit; plan is the number of midpoint "
        "recursions.\n\nReward prompts: share of the largest possible gain that was realised (rewards of getting "
        "somewhere) or the return (rewards of being somewhere), and R², how much of the reward phi can express. A low "
        "R² warns that the policy follows only that part. What is marked (graph) was planned on the graph of the data; "
        "its R² is that of a model of the reward on landmarks, on samples that were held out. What is marked (goal) "
        "heads for the state of highest reward."
    )
    shown = []
    if goals := [row for row in rows if row["prompt"] == "goal"]:
        fig = figures.success_by_depth(list(map(_label, goals)), *_scores(goals))
        shown.append((fig, "Success against the number of plan recursions, 95% Wilson intervals."))
    for metric, label in ((files.GAIN, "share of the possible gain"), ("return", "mean return")):
        own = [row for row in rows if row["prompt"] == "reward" and row["metric"] == metric]
        if own:
            fig = figures.bars(list(map(_label, own)), *_scores(own), "Reward prompts", label)
            shown.append((fig, f"{label.capitalize()} per reward prompt, 95% bootstrap intervals."))
    return Section(title, text, shown, [(headers, lines, "One line a prompt.")])


def _label(row: Row) -> str:
    if row["prompt"] == "goal":
        return f"{row['plan']}{files.option_words(files.options(row))}"
    r2 = _fit_of(row)
    return row["reward"] + ("" if r2 is None else f" (R² {r2:.2f})")


def _fit_of(row: Row) -> float | None:
    """How much of a reward its prompt expresses. A graph's own R² is of a model of the reward, whatever is earned."""
    return None if row.get("rule") == "graph" else row.get("r2")


def _scores(rows: Sequence[Row]) -> tuple[list[float], list[float], list[float]]:
    intervals = [files.interval_of(row) or (row["score"], row["score"]) for row in rows]
    return [row["score"] for row in rows], [low for low, _ in intervals], [high for _, high in intervals]


def aggregate_table(rows: list[Row]) -> tuple[list[str], list[list[Any]]]:
    """Headers and lines of the table over several seeds."""
    headers = ["prompt", "mean", "std", "IQM", "95% interval of the IQM", "seeds"]
    lines, summaries = [], files.aggregate(rows)
    counts = [name for name in files.TALLIES if any(name in line for line in summaries)]
    for line in summaries:
        number = _number(line["metric"])
        shown = [None if line[name] is None else number(line[name]) for name in ("mean", "std", "iqm")]
        interval = _range(number, line["interval"])
        if interval and line["interval_over"] == "episodes":
            interval += " (over episodes)"
        lines.append([_prompt(line), *shown, interval, line["runs"], *(line.get(name) for name in counts)])
    return [*headers, *counts], lines


def _trajectories(world: tasks.Task, rows: Sequence[Row], kept: Kept) -> Section:
    """The kept episodes of the prompts in these rows, in the order of the rows."""
    known = (world.name, world.observation_dim)
    fitting = (entry for entry in kept if (entry.task, entry.rollout.observations.shape[-1]) == known)
    by_prompt = {entry.prompt_of: entry for entry in fitting}
    wanted = [by_prompt[prompt] for prompt in map(files.prompt_of, rows) if prompt in by_prompt]
    lacking = len(rows) - len(wanted)
    text = (
        f"The folder of this run keeps no trajectories of {lacking} of these prompts: evaluate them again with "
        "hilp evaluate, which keeps the first episodes of each prompt, and then make this page again."
    )
    shown = []
    coloured = "coloured by the share of what was possible; the score is that of all episodes"
    for kind, draw, note in (
        ("goal", trajectory_figure, "the same starts and goals in every panel"),
        ("reward", partial(_earnings_figure, rows=rows), f"from random starts, {coloured}"),
    ):
        if own := [entry for entry in wanted if entry.prompt == kind]:
            most = max(len(entry.rollout.lengths) for entry in own)
            shown.append((draw(world, own), f"{counted(most, 'episode')}, {note}."))
    return Section("Trajectories", text if lacking else "", shown)


def _foresight(rows: Sequence[Row], where: str) -> list[Section]:
    """What the graph of the data said beforehand, against what came."""
    row = explain.row_with_forecast(rows)
    if row is None:
        return []
    shown = []
    expected, realised = explain.calibration(row)
    if len(expected) >= 2:
        labels = ("expected steps", "steps it took")
        correlation = stats.spearman(expected, realised)
        fig = figures.scatter_distance(expected, realised, correlation, 1, "Expected and realised steps", labels)
        shown.append((fig, "Goals that were reached by a way that the data shows."))
    return [Section(f"Known before acting{where}", "\n\n".join(explain.explain_forecast(row)), shown)]


def trajectory_figure(world: tasks.Task, kept: Kept) -> Figure:
    """The episodes of goal prompts side by side."""
    named = {entry.title: _trials(entry) for entry in kept}
    return figures.trajectories(world, named, f"Trajectories of {kept[0].prompt} prompts")


def _earnings_figure(world: tasks.Task, kept: Kept, rows: Sequence[Row]) -> Figure:
    """The episodes of reward prompts side by side, coloured by what they earned of what they could."""
    by_prompt = {files.prompt_of(row): row for row in rows}
    named = {}
    for entry in kept:
        row = by_prompt[entry.prompt_of]
        paths = _trials(entry)[0]
        outcomes = np.asarray(row.get("outcomes", []), float)[: len(paths)]
        if len(outcomes) < len(paths):  # the row lacks them: only whether it was at least half is known
            shares = entry.rollout.reached.astype(float)
        elif row["metric"] == files.GAIN:
            possible = np.asarray(row.get("possible", np.ones(len(paths))), float)[: len(paths)]
            shares = np.divide(outcomes, possible, out=np.ones_like(outcomes), where=possible > 0)
        else:
            best = row.get("best_possible") or float(max(row["outcomes"]))
            shares = outcomes / best if best > 0 else np.zeros_like(outcomes)
        named[entry.title] = paths, shares, _number(row["metric"])(row["score"])
    return figures.earnings_grid(world, named)


def _trials(kept: SavedRollout) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Paths, starts, goals and outcomes, as the figures want them."""
    rollout = kept.rollout
    paths = [rollout.episode(i)[0] for i in range(len(rollout.lengths))]
    return paths, rollout.observations[0], rollout.goals, rollout.reached


def evaluation_goal(world: tasks.Task, goal: np.ndarray | None = None, seed: int = 0) -> np.ndarray:
    """A goal observation as an evaluation prompts with: of the goal given, or of one that the task draws."""
    return np.asarray(world.episodes(np.random.default_rng(seed), 1, goal=goal).goals[0])


def learned_distances(policy: FoundationPolicy, world: tasks.Task, states: Bank, goal: np.ndarray) -> Figure:
    """|phi(s) - phi(g)| over the states of a sample."""
    observations = states.subsample(FIELD_STATES, 0).observations
    at_goal = policy.encode(policy.check(rendering.observe_states(world, goal), always=True))
    distances = policy.distance(policy.encode_all(observations), at_goal[None])
    places = rendering.infer_states(world, observations)
    return figures.distance_fields(world, places, {"Learned distance to the goal": distances}, goal)


def _plans_in_pictures(policy: FoundationPolicy) -> list[Section]:
    """Plans between far states of the data, where policies see pictures and have distances to plan with."""
    if not policy.spec.pictures or not policy.has_rule("goal_direction") or len(policy.bank) < 2:
        return []
    frames, latents = kept_pictures(policy)
    shown = []
    for start, goal in far_pairs(latents):
        rows = plan_by_midpoints(policy.midpoints, latents, start, goal)
        left = np.linalg.norm(latents[rows] - latents[goal], axis=1)
        words = ["start", *(f"{steps:.0f} to go" for steps in left[1:-1]), "goal"]
        shown.append((frames[rows], words))
    text = (
        "A plan halves the way between two states, again and again: each midpoint is a latent, and what is shown is "
        "the picture of the state of the data that is nearest to it. Numbers are latent steps to the goal.\n\n"
        f"The policy keeps {policy.keeps}."
    )
    fig = figures.film_strips(shown, "Plans in pictures")
    return [Section("Plans in pictures", text, [(fig, f"{len(shown)} plans of {2**HALVINGS - 1} midpoints.")])]


def kept_pictures(policy: FoundationPolicy) -> tuple[np.ndarray, np.ndarray]:
    """The pictures that a policy keeps, small ones where it has them, and the latents of what they show."""
    kept = policy.latent_bank
    if kept is not None and len(kept.thumbnails) > 1:
        return kept.thumbnails, policy.midpoints.latents[kept.shown]
    frames = np.asarray(policy.bank.observations[next(iter(policy.spec.pictures))])
    return frames, policy.bank_latents


def far_pairs(latents: np.ndarray) -> list[tuple[int, int]]:
    """Rows of far starts and goals: of random pairs those that are farthest apart."""
    a, b = np.random.default_rng(0).integers(len(latents), size=(2, FAR_PAIRS))
    order = np.argsort(-np.linalg.norm(latents[a] - latents[b], axis=1))
    return [(int(a[n]), int(b[n])) for n in order[:STRIPS]]


def plan_by_midpoints(midpoints: Midpoints, latents: np.ndarray, start: int, goal: int) -> np.ndarray:
    """Rows of `latents` on the way from one of them to another, both included, by a plan of midpoints."""
    way = [latents[start], latents[goal]]
    for _ in range(HALVINGS):
        between = [midpoints.subgoal(a, b, recursions=1) for a, b in itertools.pairwise(way)]
        way = [latent for pair in zip(way, [*between, way[-1]], strict=True) for latent in pair][:-1]
    inner = [int(np.argmin(np.square(latents - latent).sum(axis=1))) for latent in way[1:-1]]
    return np.array([start, *inner, goal])


def _representation(policy: FoundationPolicy, world: tasks.Task) -> list[Section]:
    if not policy.has_rule("goal_direction"):  # the other features are no distances
        return []
    finite = world.finite()
    if finite is not None:
        return [_against_exact(policy, world, finite)]
    if not world.has_goals or len(policy.bank) == 0 or not rendering.can_infer_states(world):
        return []  # no plan, or nothing to draw on it
    field = learned_distances(policy, world, policy.bank, evaluation_goal(world))
    shown = policy.bank.subsample(SHOWN_LATENTS, 0).observations
    latents = policy.encode_all(shown)
    flatten = figures.choose_flatten(latents)
    latent = figures.latent_map(world, rendering.infer_states(world, shown), latents, flatten=flatten)
    how = "by t-SNE, which keeps neighbours together" if flatten == "tsne" else "in two principal directions (PCA)"
    text = (
        f"States of the data. {world.name} has no exact distances to compare with; hilp diagnose with --data "
        "compares with a separately trained V(s, g)."
    )
    pictures = [
        (field, "Learned distance |phi(s) - phi(g)| to the star, a goal of the evaluation."),
        (latent, f"The latent space at {len(latents):,} states {how}, coloured by place."),
    ]
    return [Section("What phi has learned", text, pictures)]


def _against_exact(policy: FoundationPolicy, world: tasks.Task, finite: tasks.Finite) -> Section:
    latents = policy.encode_all(rendering.observe_states(world, finite.observations))
    discount = policy.discount
    goal = int(np.argmax(finite.steps.max(axis=1)))  # a corner: the state with the farthest point
    learned = policy.distance(latents, latents[goal][None])
    steps = np.where(finite.steps >= 0, finite.steps, np.nan).astype(float)
    exact = hilbert.discounted(steps[:, goal], discount)
    both = {"learned": learned, "exact": exact}
    field = figures.distance_fields(world, finite.observations, both, finite.observations[goal], "Distance to the goal")
    a, b = np.random.default_rng(0).integers(len(latents), size=(2, SHOWN_PAIRS))
    known = finite.steps[a, b] >= 0
    a, b = a[known], b[known]
    distance = policy.distance(latents[a], latents[b])
    correlation = stats.spearman(finite.steps[a, b], distance)
    scatter = figures.scatter_distance(finite.steps[a, b], distance, correlation, curve=discount)
    # On this plane distances are those of the latents, as far as the share of the variance goes.
    latent = figures.latent_map(world, finite.observations, latents, flatten="pca")
    text = (
        f"Rank correlation of |phi(s) - phi(g)| with the exact number of steps: {correlation:.3f} over "
        f"{len(a):,} random pairs. The curve is the discounted distance that phi is trained towards."
    )
    pictures = [
        (field, "Distance to the star: learned |phi(s) - phi(g)| and exact, same scale."),
        (scatter, "Learned against exact distance."),
        (latent, "The latent space in its two principal directions (PCA), coloured by place."),
    ]
    return Section("What phi has learned", text, pictures)


def _listening(policy: FoundationPolicy, metrics: list[Metrics]) -> list[Section]:
    found = listening(policy)
    if found is None:
        return []
    shown, curve = [], _series(metrics, "listening")
    if len(curve[0]) > 1:
        fig = figures.curve_grid({"listening": {"training": curve}}, "Spread of actions over skills")
        shown.append((fig, "In units of the spread of the data's actions."))
    return [Section("Whether the actor listens", explain.explain_listening(found), shown)]


def _training(metrics: list[Metrics]) -> list[Section]:
    names = {name for row in metrics for name in row}  # not every row has all of them where phi is learned first
    losses = sorted(name for name in names if name.endswith("_loss") and not name.startswith("validation"))
    if not losses:
        return []
    panels = {}
    for name in losses[:SHOWN_LOSSES]:
        both = {"training": _series(metrics, name), "held out": _series(metrics, f"validation_{name}")}
        panels[name] = {line: points for line, points in both.items() if points[0]}
    left_out = len(losses) - len(panels)
    text = f"{left_out:,} more losses are left out here; metrics.jsonl has them." if left_out else ""
    if "actor_loss" in panels and len(panels["actor_loss"]) > 1:
        text = f"{HELD_OUT_ACTOR} {text}".strip()
    fig = figures.curve_grid(panels, "Losses")
    return [Section("Training", text, [(fig, "Mean of each loss since the last point.")])]


def _series(metrics: list[Metrics], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of a metric, within what an axis has room for; what is not finite stays a gap."""
    found = [(row["step"], row[key]) for row in metrics if key in row]
    values = [min(max(v, -files.LARGEST), files.LARGEST) if math.isfinite(v) else v for _, v in found]
    return [step for step, _ in found], values


def _origin(policy: FoundationPolicy, rows: Sequence[Row]) -> Section:
    origin = policy.provenance.to_json().items()
    known: dict[str, Any] = {key: str(value) for key, value in origin if key != "versions"}
    known |= {"method": policy.method, "config": json.dumps(policy.settings), "policy": policy.fingerprint}
    if rows:
        last = rows[-1]
        known |= {"command": last.get("command"), "evaluation seed": last.get("evaluation_seed")}
        known |= {f"{name} version": version for name, version in last.get("versions", {}).items()}
    table = (["what", "value"], list(known.items()), "Enough to make it again.")
    return Section("Where this comes from", tables=[table])
