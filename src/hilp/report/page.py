"""Rows and a policy in; tables, figures and one self-contained HTML page out."""

from __future__ import annotations

import html as escape
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hilp import storage, tasks
from hilp.evaluation import rollouts, stats
from hilp.learning import hilbert
from hilp.policy.bank import Bank
from hilp.policy.policy import FoundationPolicy
from hilp.report import figures
from hilp.report.markup import Section, page
from hilp.runs import METRICS, PAGE, ROWS, find, home

SHOWN_EPISODES = 12
SHOWN_PAIRS = 20_000
SHOWN_LATENTS = 800  # by t-SNE, in a second or two
FIELD_STATES = 5_000  # enough to cover the floor


def build(
    policy: FoundationPolicy,
    rows: list[rollouts.Row],
    metrics: list[dict[str, Any]],
    world: tasks.Task | None,
    paths: dict[str, Any] | None = None,
) -> str:
    """The page: results, trajectories a prompt, the learned distance, the latent map, the training curves."""
    sections = []
    by_task: dict[str, list[rollouts.Row]] = {}
    for row in rows:
        by_task.setdefault(row["task"], []).append(row)
    for name, group in by_task.items():
        sections.append(_results(group, "Results" if len(by_task) == 1 else f"Results in {name}"))
    if world is not None and world.has_goals and (paths or world.name in by_task):  # robots have no map to draw on
        sections.append(_trajectories(policy, world, by_task.get(world.name, []), paths))
    if world is not None:
        sections += _representation(policy, world)
    if metrics:
        sections.append(_training(metrics))
    sections.append(_origin(policy, rows))
    data = escape.escape(str(policy.provenance.data or "your data"))
    intro = (
        f"<p>A policy trained on <strong>{data}</strong> without rewards or goals "
        f"({policy.provenance.steps or 0:,} updates), then prompted with no further training.</p>"
    )
    return page("hilp report", intro, sections)


def write(run: str | Path, out: str | Path | None = None) -> Path:
    """Build the page of a run's folder from what the folder holds."""
    found = find(Path(run))
    folder = home(found)
    policy = FoundationPolicy.load(found)
    rows_path, metrics_path = folder / ROWS, folder / METRICS
    if not metrics_path.is_file():  # one of several seeds, which share the run's metrics
        metrics_path = folder.parent / METRICS
    rows = rollouts.read_rows(rows_path) if rows_path.is_file() else []
    rows = _latest([row for row in rows if row.get("policy") == policy.fingerprint])
    metrics = rollouts.read_rows(metrics_path) if metrics_path.is_file() else []
    task = policy.provenance.task
    target = Path(out) if out else folder / PAGE
    storage.write_text(target, build(policy, rows, metrics, rollouts.task_of(policy, task) if task else None))
    return target


def _latest(rows: list[rollouts.Row]) -> list[rollouts.Row]:
    """The last row of each prompt in each task: a new evaluation replaces what the page shows, not what is on file."""
    return list({(row["task"], row["prompt"], row.get("plan"), row.get("reward")): row for row in rows}.values())


def results_table(rows: list[rollouts.Row]) -> tuple[list[str], list[list[Any]]]:
    """Headers and lines of the table that is printed and put on the page."""
    headers = ["prompt", "score", "95% interval", "episodes", "steps of successes", "R²"]
    lines = []
    for row in rows:
        prompt = f"goal, plan {row['plan']}" if row["prompt"] == "goal" else f"reward, {row['reward']}"
        interval = row.get("interval")
        length = row.get("mean_length_of_successes")
        number = _number(row)
        lines.append(
            [
                prompt,
                number(row["score"]),
                f"{number(interval[0])} to {number(interval[1])}" if interval else None,
                row["episodes"],
                None if length is None else f"{length:.1f}",
                None if row.get("r2") is None else f"{row['r2']:.2f}",
            ]
        )
    return headers, lines


def _number(row: rollouts.Row) -> Callable[[float], str]:
    """How a row's scores are written: returns as they are, shares and successes in percent."""
    return (lambda value: f"{value:.1f}") if row["metric"] == "return" else (lambda value: f"{100 * value:.1f}%")


def _results(rows: list[rollouts.Row], title: str) -> Section:
    text = (
        "Goal prompts: share of random start-goal pairs reached within the step limit; plan is the number of midpoint "
        "recursions.\n\nReward prompts: share of the largest possible gain that was realised (rewards of getting "
        "somewhere) or the return (rewards of being somewhere), and R², how much of the reward phi can express. A low "
        "R² warns that the policy follows only that part."
    )
    headers, lines = results_table(rows)
    shown = []
    goals = [row for row in rows if row["prompt"] == "goal"]
    if goals:
        lows, highs = zip(*(row["interval"] for row in goals), strict=True)
        labels = [str(row["plan"]) for row in goals]
        fig = figures.success_by_depth(labels, [row["score"] for row in goals], lows, highs)
        shown.append(
            (figures.png_data_uri(fig), "Success against the number of plan recursions, 95% Wilson intervals.")
        )
    gains = [row for row in rows if row["metric"] == "share of the possible gain"]
    if gains:
        values, lows, highs = zip(*map(_gain_interval, gains), strict=True)
        fig = figures.bars(_reward_labels(gains), values, lows, highs, "Reward prompts", "share of the possible gain")
        shown.append(
            (figures.png_data_uri(fig), "Share of the possible gain per reward prompt, 95% bootstrap intervals.")
        )
    returns = [row for row in rows if row["metric"] == "return"]
    if returns:
        lows, highs = zip(*(row["interval"] for row in returns), strict=True)
        scores = [row["score"] for row in returns]
        fig = figures.bars(_reward_labels(returns), scores, lows, highs, "Reward prompts", "return")
        shown.append((figures.png_data_uri(fig), "Mean return per reward prompt, 95% bootstrap intervals."))
    return Section(title, text, shown, [(headers, lines, "One line a prompt.")])


def _reward_labels(rows: list[rollouts.Row]) -> list[str]:
    return [row["reward"] + ("" if row.get("r2") is None else f" (R² {row['r2']:.2f})") for row in rows]


def aggregate_table(rows: list[rollouts.Row]) -> tuple[list[str], list[list[Any]]]:
    """Headers and lines of the table over several seeds."""
    headers = ["prompt", "mean", "std", "IQM", "95% interval of the IQM", "seeds"]
    lines = []
    for line in rollouts.aggregate(rows):
        prompt = f"goal, plan {line['plan']}" if line["prompt"] == "goal" else f"reward, {line['reward']}"
        number = _number(line)
        shown = [number(line[name]) for name in ("mean", "std", "iqm")]
        low, high = line["interval"]
        lines.append([prompt, *shown, f"{number(low)} to {number(high)}", line["runs"]])
    return headers, lines


def _gain_interval(row: rollouts.Row) -> tuple[float, float, float]:
    """Share of the possible gain with a bootstrap over episodes (a ratio of sums)."""
    gain, possible = np.asarray(row["outcomes"]), np.asarray(row["possible"])
    drawn = np.random.default_rng(0).integers(len(gain), size=(2000, len(gain)))
    shares = gain[drawn].sum(axis=1) / possible[drawn].sum(axis=1)
    low, high = np.quantile(shares, [0.025, 0.975])
    return row["score"], float(low), float(high)


def _trajectories(
    policy: FoundationPolicy, world: tasks.Task, rows: list[rollouts.Row], paths: dict[str, Any] | None
) -> Section:
    if paths is None:
        paths = {}
        plans = [row["plan"] for row in rows if row["prompt"] == "goal"]
        rewards = [row["reward"] for row in rows if row["prompt"] == "reward"]
        seed = rows[0]["evaluation_seed"]
        rollouts.evaluate(policy, world, plan=plans, rewards=rewards, episodes=SHOWN_EPISODES, seed=seed, paths=paths)
    notes = {
        "goal": "the same starts and goals in every panel",
        "reward": "from random starts; blue where at least half of the possible gain or return was realised",
    }
    shown = []
    for kind, note in notes.items():
        if any(_kind(name) == kind for name in paths):
            uri = figures.png_data_uri(trajectory_figure(kind, paths, world))
            shown.append((uri, f"{SHOWN_EPISODES} episodes, {note}."))
    return Section("Trajectories", "", shown)


def trajectory_figure(kind: str, paths: dict[str, Any], world: tasks.Task) -> Figure:
    """The rollouts of all goal prompts, or of all reward prompts, side by side."""
    named = {name: _trials(kept) for name, kept in paths.items() if _kind(name) == kind}
    return figures.trajectory_grid(world, named, f"Trajectories of {kind} prompts")


def _kind(name: str) -> str:
    return "reward" if name.startswith("reward") else "goal"


def _trials(kept: dict[str, Any]) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Paths, starts, goals and outcomes of the first episodes, as the figures want them."""
    observations = kept["observations"][:, :SHOWN_EPISODES]
    count = observations.shape[1]
    paths = [observations[: kept["lengths"][i] + 1, i] for i in range(count)]
    return paths, observations[0], kept["goals"][:count], kept["reached"][:count]


def evaluation_goal(world: tasks.Task, goal: np.ndarray | None = None, seed: int = 0) -> np.ndarray:
    """A goal observation as an evaluation prompts with: of the goal given, or of one that the task draws."""
    return np.asarray(world.episodes(np.random.default_rng(seed), 1, goal=goal).goals[0])


def learned_distances(policy: FoundationPolicy, world: tasks.Task, states: Bank, goal: np.ndarray) -> Figure:
    """|phi(s) - phi(g)| over the states of a sample."""
    observations = states.subsample(FIELD_STATES, 0).observations
    distances = np.linalg.norm(policy.encode(observations) - policy.encode(goal), axis=1)
    return figures.distance_field(world, observations, distances, goal, "Learned distance to the goal")


def _representation(policy: FoundationPolicy, world: tasks.Task) -> list[Section]:
    if not policy.has_rule("direct"):  # the other features are no distances
        return []
    finite = world.finite()
    if finite is not None:
        return [_against_exact(policy, world, finite)]
    if not world.has_goals or len(policy.bank) == 0:  # no plan, or nothing to draw on it
        return []
    field = learned_distances(policy, world, policy.bank, evaluation_goal(world))
    shown = policy.bank.subsample(SHOWN_LATENTS, 0).observations
    latent = figures.latent_map(world, shown, policy.encode(shown))
    text = (
        f"States of the data. {world.name} has no exact distances to compare with; hilp diagnose with --data "
        "compares with a separately trained V(s, g)."
    )
    pictures = [
        (figures.png_data_uri(field), "Learned distance |phi(s) - phi(g)| to the star, a goal of the evaluation."),
        (figures.png_data_uri(latent), f"The latent space at {len(shown):,} states, coloured by place."),
    ]
    return [Section("What phi has learned", text, pictures)]


def _against_exact(policy: FoundationPolicy, world: tasks.Task, finite: tasks.Finite) -> Section:
    latents = policy.encode(finite.observations)
    discount = policy.discount
    goal = int(np.argmax(finite.steps.max(axis=1)))  # a corner: the state with the farthest point
    learned = np.linalg.norm(latents - latents[goal], axis=1)
    steps = np.where(finite.steps >= 0, finite.steps, np.nan).astype(float)
    exact = hilbert.discounted(steps[:, goal], discount)
    fields = figures.distance_fields(
        world, finite.observations, {"learned": learned, "exact": exact}, finite.observations[goal]
    )
    rng = np.random.default_rng(0)
    a, b = rng.integers(len(latents), size=(2, SHOWN_PAIRS))
    known = finite.steps[a, b] >= 0
    a, b = a[known], b[known]
    distance = np.linalg.norm(latents[a] - latents[b], axis=1)
    correlation = stats.spearman(finite.steps[a, b], distance)
    scatter = figures.scatter_distance(finite.steps[a, b], distance, correlation, curve=discount)
    # On this plane distances are those of the latents, as far as the share of the variance goes.
    latent = figures.latent_map(world, finite.observations, latents, flatten="pca")
    text = (
        f"Rank correlation of |phi(s) - phi(g)| with the exact number of steps: {correlation:.3f} over "
        f"{len(a):,} random pairs. The curve is the discounted distance that phi is trained towards."
    )
    return Section(
        "What phi has learned",
        text,
        [
            (figures.png_data_uri(fields), "Distance to the star: learned |phi(s) - phi(g)| and exact, same scale."),
            (figures.png_data_uri(scatter), "Learned against exact distance."),
            (figures.png_data_uri(latent), "The latent space, coloured by place."),
        ],
    )


def _training(metrics: list[dict[str, Any]]) -> Section:
    names = {name for row in metrics for name in row}  # not every row has all of them where phi is learned first
    panels: dict[str, dict[str, tuple[list[int], list[float]]]] = {}
    for name in sorted(name for name in names if name.endswith("_loss") and not name.startswith("validation")):
        panels[name] = {}
        for line, key in (("training", name), ("held out", f"validation_{name}")):
            found = [row for row in metrics if key in row]
            if found:
                panels[name][line] = ([row["step"] for row in found], [row[key] for row in found])
    fig = figures.curve_grid(panels, "Losses")
    return Section("Training", "", [(figures.png_data_uri(fig), "Mean of each loss since the last point.")])


def _origin(policy: FoundationPolicy, rows: list[rollouts.Row]) -> Section:
    config = json.dumps(policy.settings, indent=None)
    lines = [[key, str(value)] for key, value in policy.provenance.to_json().items() if key != "versions"]
    lines += [["method", policy.method], ["config", config], ["policy", policy.fingerprint]]
    if rows:
        lines += [["command", rows[-1]["command"]], ["evaluation seed", rows[-1]["evaluation_seed"]]]
        lines += [[f"{name} version", version] for name, version in rows[-1]["versions"].items()]
    return Section("Where this comes from", "", (), [(["what", "value"], lines, "Enough to make it again.")])
