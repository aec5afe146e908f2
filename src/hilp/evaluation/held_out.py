"""Measuring without a simulator: what data that a policy has not seen says about it.

Three numbers, from the strongest evidence to the weakest. Do latent distances order pairs of states as observed time
does? Where a trajectory went to a later state of its own without detours, does the policy act in the same direction?
And what would it reach in a world made of nothing but the observed transitions? The last is an estimate: in that world
a command does what the most similar command did in the most similar state, and nothing else exists.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hilp import trees
from hilp.data.dataset import Dataset
from hilp.data.measures import position_commands
from hilp.errors import HilpError, require_count, require_seed
from hilp.evaluation import stats, theory
from hilp.evaluation.evaluate import default_plans, describe
from hilp.evaluation.rows import Row
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import midpoints
from hilp.prompts.bank import Bank
from hilp.training.hierarchy import as_trained

PAIRS = 4000  # of a state and a later one
ACTED = 500  # of them that the policy acts on
EPISODES = 40  # in the world of observed transitions, a plan
MOST_STEPS = 200  # of such an episode
REPLAYED, STRETCHES = 10, 100  # steps of a stretch of the data that is played again in that world, and how many
MODEL_ROWS = 20_000  # transitions that make up that world
ALIKE = 12  # states near one, among which the most similar command is looked for
LOST = 4.0  # steps of usual length from the nearest state, beyond which it is taken for that state
NEAR = 2.0  # steps of usual length within which a goal counts as reached
DETOUR = 1.5  # a later state is reached without one where it took no longer than this times its latent distance
SATURATED = 0.9  # of the longest distance that phi can express
LEAST_DIRECT = 50  # pairs without a detour that are worth a share
CLEARLY = 3.0  # standard errors of its mean that a plan must save in steps, episode by episode, to be advised instead
USUAL: tuple[int | str, ...] = ("auto", 0, 1, 3)  # the default of prompts first, then the simplest
TASK = "held-out"  # what rows are called where there is no task
METRIC = "estimated success"
Numbers = dict[str, Any]
Plans = Sequence[int | str] | None  # None: those that a policy can make


def measure(
    policy: FoundationPolicy, data: Dataset, *, plans: Plans = None, episodes: int = EPISODES, seed: int = 0
) -> Numbers:
    """Numbers about a policy on data of its kind, ready for JSON; `explain.explain_held_out` says what they mean."""
    episodes, seed = require_count("episodes", episodes), require_seed(seed)
    if not policy.has_rule("goal_direction") and not policy.has_rule("goal_skill"):
        raise HilpError(f"{policy.method} has no goal rule: there is nothing to hold against observed time")
    data = as_trained(policy, data)
    plans = default_plans(policy) if plans is None else plans
    plans = [plan for plan in plans if plan == 0 or len(policy.bank)]
    if not plans:
        raise HilpError("nothing to evaluate: give at least one plan (0, where a policy keeps no states: --bank 0)")
    rng = np.random.default_rng(seed)
    first = rng.choice(data.transition_rows, PAIRS)  # each with a later row of its episode, within the horizon
    left = (data.starts + data.lengths - 1)[np.searchsorted(data.starts, first, "right") - 1] - first
    later = first + rng.integers(1, np.minimum(left, horizon(policy)) + 1)
    found: Numbers = {"data": data.name, "episodes": data.episodes, "transitions": data.transitions, "pairs": PAIRS}
    direct = later - first > 1
    if policy.has_rule("goal_direction"):
        about_time, expected = against_time(policy, data, first, later, rng, seed)
        found |= about_time
        direct &= later - first <= DETOUR * np.maximum(expected, 1.0)
    # A target is near the state that it is given in, wherever it leads: all policies agree on these.
    aimed = np.flatnonzero(direct)[: 0 if _targets(data) else ACTED]
    world = Neighbours(policy, data, seed)
    found["targets"] = len(_targets(data))
    found["replayed"] = world.replayed(data, rng)
    starts, goals = (_at(data.observations, rng.choice(data.rows, episodes)) for _ in range(2))
    found["plans"] = [
        {"plan": plan, **agreement(policy, data, first[aimed], later[aimed], plan), **world.run(starts, goals, plan)}
        for plan in plans
    ]
    return {**found, "neighbour_distance": world.typical_distance, "advised_plan": advised(found["plans"])}


def evaluate(
    policy: FoundationPolicy,
    data: Dataset,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    command: str | None = None,
    plans: Plans = None,
) -> list[Row]:
    """`measure` as rows, one a plan: the estimated success is its score, the rest is in `held_out`."""
    found = measure(policy, data, plans=plans, episodes=episodes, seed=seed)
    measured = found.pop("plans")
    about = {**describe(policy, TASK, seed, command), "prompt": "goal", "metric": METRIC, "episodes": episodes}
    rows = []
    for plan in measured:
        own = {name: plan.pop(name) for name in ("interval", "outcomes", "lengths")}
        score = plan.pop("estimated_success")
        rows.append({**about, "plan": plan["plan"], "score": score, **own, "held_out": {**found, **plan}})
    return rows


def horizon(policy: FoundationPolicy) -> int:
    """Steps up to which the policy's distances mean something."""
    return round(1.0 / (1.0 - policy.discount)) if policy.has_rule("discount") else 50


def against_time(
    policy: FoundationPolicy, data: Dataset, first: np.ndarray, later: np.ndarray, rng: np.random.Generator, seed: int
) -> tuple[Numbers, np.ndarray]:
    """How distances order pairs of a row and a later one, compared with time; and the steps that phi expects."""

    def distances(some: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Between latents, and between the observations as the networks get them."""
        s, g = _at(data.observations, some), _at(data.observations, others)
        latent = policy.distance(policy.encode(s), policy.encode(g))
        return latent, np.linalg.norm(_flat(policy, s) - _flat(policy, g), axis=1)

    latent, plain = distances(first, later)
    time = (later - first).astype(float)
    found: Numbers = {
        "time_correlation": theory.rank_correlation(latent, time, seed),
        "plain_correlation": theory.rank_correlation(plain, time, seed),
    }
    if not policy.has_rule("discount"):
        return found, latent
    far, _ = distances(*(rng.choice(data.rows, PAIRS // 4) for _ in range(2)))  # random pairs
    found["saturated"] = float(np.mean(far * (1.0 - policy.discount) > SATURATED))  # phi can no longer tell how far
    return found, midpoints.undiscounted(latent, policy.discount)


def agreement(policy: FoundationPolicy, data: Dataset, rows: np.ndarray, goals: np.ndarray, plan: int | str) -> Numbers:
    """Share of steps that went to a later state without detours on which the policy acts in the same direction."""
    if len(rows) < LEAST_DIRECT:
        return {"agreement": None, "agreement_pairs": len(rows)}
    prompt = policy.goal(_at(data.observations, goals), plan=plan)
    usual = _scaled(policy, data.acted(data.transition_rows)).mean(axis=0)
    acted = _scaled(policy, policy.act(_at(data.observations, rows), prompt)) - usual
    did = _scaled(policy, data.acted(rows)) - usual
    return {"agreement": float(np.mean((acted * did).sum(axis=1) > 0.0)), "agreement_pairs": len(rows)}


class Neighbours:
    """A world of observed transitions: each command moves as the most similar one did in the most similar state."""

    def __init__(self, policy: FoundationPolicy, data: Dataset, seed: int):
        self.policy = policy
        banks = [bank for bank in (policy.bank, Bank.draw(data, MODEL_ROWS, seed)) if len(bank)]
        columns = [[bank.observations, bank.actions, bank.next_observations] for bank in banks]  # that all of them have
        joined = [trees.over(lambda *all: np.concatenate(all), *each) for each in zip(*columns, strict=True)]
        self.bank = Bank(*joined).subsample(MODEL_ROWS, seed)
        self.states = _flat(policy, self.bank.observations)
        self.squares = np.square(self.states).sum(axis=1)
        self.actions = _scaled(policy, self.bank.actions)
        moved = np.linalg.norm(_flat(policy, self.bank.next_observations) - self.states, axis=1)
        self.step_length = float(np.sqrt(np.mean(np.square(moved))))
        self.most_steps = min(MOST_STEPS, 3 * horizon(policy))
        self.typical_distance: float | None = None

    def replayed(self, data: Dataset, rng: np.random.Generator) -> float | None:
        """Share of stretches of the data whose own commands lead here to where they led: what can be told at all."""
        long = np.flatnonzero(np.asarray(data.lengths) > REPLAYED)
        if not len(long):
            return None
        chosen = rng.choice(long, STRETCHES)
        first = data.starts[chosen] + rng.integers(0, np.asarray(data.lengths)[chosen] - REPLAYED)
        here = _at(data.observations, first)
        for ahead in range(REPLAYED):
            here, _ = self.step(here, _scaled(self.policy, data.acted(first + ahead)))
        away = _flat(self.policy, here) - _flat(self.policy, _at(data.observations, first + REPLAYED))
        return float(np.mean(np.linalg.norm(away, axis=1) <= NEAR * self.step_length))

    def run(self, starts: trees.Tree, goals: trees.Tree, plan: int | str) -> Numbers:
        """Episodes from `starts` to `goals`, and how many of them arrive, in how many steps."""
        prompt = self.policy.goal(goals, plan=plan)
        target = _flat(self.policy, goals)
        count = len(target)
        reached, lengths = np.zeros(count, bool), np.full(count, self.most_steps)
        here, away = trees.over(np.array, starts), []
        for step in range(self.most_steps + 1):
            near = np.linalg.norm(_flat(self.policy, here) - target, axis=1) <= NEAR * self.step_length
            lengths[near & ~reached] = step
            reached |= near
            if reached.all() or step == self.most_steps:
                break
            actions = self.policy.act(here, prompt, active=~reached)
            here, distance = self.step(here, _scaled(self.policy, actions))
            away.append(distance)
        self.typical_distance = float(np.median(np.concatenate(away)) / self.step_length) if away else 0.0
        return {
            "estimated_success": float(reached.mean()),
            "reached_any": bool(reached.any()),
            "interval": [*stats.wilson(int(reached.sum()), count)],
            "estimated_steps": float(lengths.mean()),  # those of a failure count as the limit
            "outcomes": reached.astype(float).tolist(),
            "lengths": lengths.tolist(),
        }

    def step(self, here: trees.Tree, actions: np.ndarray) -> tuple[trees.Tree, np.ndarray]:
        """Where these commands lead, and how far the states are that say so."""
        seen = _flat(self.policy, here)
        squares = np.square(seen).sum(axis=1)[:, None] - 2.0 * seen @ self.states.T + self.squares  # n x transitions
        alike = np.argpartition(squares, min(ALIKE, len(self.squares)) - 1, axis=1)[:, :ALIKE]
        commands = np.square(self.actions[alike] - actions[:, None]).sum(axis=-1)
        chosen = np.take_along_axis(alike, commands.argmin(axis=1)[:, None], axis=1)[:, 0]
        away = np.sqrt(np.maximum(np.take_along_axis(squares, chosen[:, None], axis=1)[:, 0], 0.0))

        def moved(now: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
            if now.dtype == np.uint8:  # an image does not move, it becomes another
                return after[chosen]
            lost = away > LOST * self.step_length  # no state is near: go on from the neighbour
            return np.where(lost[:, None], after[chosen], now + (after[chosen] - before[chosen]))

        return trees.over(moved, here, self.bank.observations, self.bank.next_observations), away


def advised(plans: Sequence[Numbers]) -> int | str:
    """The usual plan, unless others arrive clearly sooner: then the quickest; failures count as long ways."""
    by_name = {plan["plan"]: plan for plan in plans}
    usual = by_name[usual_plan(list(by_name))]
    better = [plan for plan in plans if _clearly_sooner(plan["lengths"], usual["lengths"])]
    return min(better, key=lambda plan: plan["estimated_steps"], default=usual)["plan"]


def usual_plan(plans: Sequence[int | str]) -> int | str:
    return next((plan for plan in USUAL if plan in plans), plans[0])


def _clearly_sooner(lengths: Sequence[int], others: Sequence[int]) -> bool:
    """Of the same episodes, one by one."""
    saved = np.subtract(others, lengths)
    return len(saved) > 1 and bool(saved.mean() > CLEARLY * saved.std(ddof=1) / np.sqrt(len(saved)))


def _targets(data: Dataset) -> dict[int, int]:
    """Actions that are targets of observation columns."""
    plain = not isinstance(data.observations, dict)
    return position_commands(np.asarray(data.observations), np.asarray(data.actions)) if plain else {}


def _at(observations: trees.Tree, rows: np.ndarray) -> trees.Tree:
    return trees.over(lambda part: np.asarray(part[rows]), observations)


def _flat(policy: FoundationPolicy, observations: trees.Tree) -> np.ndarray:
    """Observations as the networks get them, each one row of numbers."""
    seen = policy.preparation.observations(observations)
    parts = trees.named(seen, "observations").values()
    return np.concatenate([np.asarray(part, np.float32).reshape(len(part), -1) for part in parts], axis=1)


def _scaled(policy: FoundationPolicy, actions: np.ndarray) -> np.ndarray:
    """Actions [n, act], or one number each, in the units of networks."""
    return policy.preparation.inside(np.reshape(actions, (len(actions), -1)))
