"""Rewards as prompts: the skill that follows one, the goal that it points at, or a plan on the graph of the data."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilp import trees
from hilp.data.rewards import Extras, RewardFunction, apply_reward
from hilp.errors import HilpError, some
from hilp.prompts import formulas, goal, graph_reward, segments
from hilp.prompts.agent import Agent, Parts, has_graph, numbers, require_graph
from hilp.prompts.bank import Bank, PictureNotKept, WithoutPictures
from hilp.prompts.base import Prompt
from hilp.prompts.graph import has_scipy
from hilp.prompts.graph_reward import POOR_FIT
from hilp.prompts.skills import SkillPrompt
from hilp.prompts.specs import Goal, Reward
from hilp.spec import Spec
from hilp.trees import Tree

SAMPLES_A_LANDMARK = 50  # for a model of a reward on the graph
RIDGE = 1e-6  # of the mean feature variance: keeps rank-deficient features solvable, changes nothing else
OTHER_WAY = 0.5  # cosine below which the fits with and without an intercept ask for different things
EXACT = 0.9999  # R^2 from which on a fit misses what float32 rounds, and no more


def goals_by_reward(policy: Agent, near: Callable[[Tree, Tree], np.ndarray], goals: Tree) -> SkillPrompt:
    """One skill a goal, for methods that have no goal rule: that of the reward of being at the goal.

    near(observations, goal) says which of the bank's states count as there; where none does, the goal means nothing to
    the policy, and the skill is zero: a random one would be as good.
    """
    policy.require_rule("cumulant", "has no goal rule and no reward rule")
    sample = policy.bank
    if not len(sample):
        raise HilpError("this policy was saved without a bank of states, so it cannot say what a goal's reward is")
    features = policy.reward_features(sample.observations, sample.next_observations)
    skills = []
    for number in range(trees.rows(goals)):
        one = trees.over(lambda rows, number=number: rows[number], goals)
        there = near(policy.spec.newest(sample.next_observations), one).astype(np.float64)
        z, _ = least_squares(features, there)
        skills.append(policy.project(z) if np.any(z) else np.zeros(policy.skill_dim))
    return SkillPrompt(policy, np.asarray(skills, np.float32))


def reward(policy: Agent, data: Any, function: Any, options: Reward) -> Prompt:
    """The skill of a reward (section 5.1 of the paper), by the rule of the policy's method, or the goal it points at.

    By regression: z* = argmin E[(r - <features, z>)^2], closed form. By the backward map: z* = E[r B(s')]. Both are
    then projected onto the policy's skills. By goal: the s' of highest reward among the samples. By graph: value
    iteration on the graph of the data, for rewards that are no direction of phi. By segments: the mean skill of those
    that the reward pays most, of methods whose skills are what segments were like. data: a data set, a table of
    labelled samples, or None: the policy's own bank.
    """
    if isinstance(function, str):
        function = formula(policy.spec, policy.observation_parts, function, angles_of(policy.transform))
    if options.rule == "graph":
        require_graph(policy)
        return _on_graph(policy, data, function, options)
    if options.rule == "segments" or (options.rule in ("auto", "skill") and segments.serve(policy)):
        return _by_segments(policy, data, function, options)
    if options.rule == "goal" or not (policy.has_rule("cumulant") or policy.has_rule("backward")):
        return _by_goal(policy, data, function, options)
    labelled = _labelled(policy, data, function, options.samples, options.seed)
    z, r2 = _fit(policy, labelled, options.intercept)
    # A direction leads up to walls, a plan goes around them: a direction is for what the graph cannot express.
    if options.rule == "auto" and not options.intercept and _has_fine_graph(policy):
        on_graph = _on_graph(policy, data, function, options)
        if on_graph.r2 >= max(0.0, min(r2 - graph_reward.AS_GOOD, POOR_FIT)):
            if on_graph.r2 < POOR_FIT:
                warnings.warn(
                    f"the graph of the data expresses only R^2 = {on_graph.r2:.2f} of this reward (a direction of phi "
                    f"{r2:.2f}): the prompt follows the part it can express; prefer smooth rewards of what is observed",
                    stacklevel=3,
                )
            return on_graph
    if not (options.intercept or policy.has_rule("backward")):
        _warn_of_mean(z, labelled.rewards, labelled.features(policy))
    if r2 < POOR_FIT:
        warnings.warn(
            f"phi expresses only R^2 = {r2:.2f} of this reward: the prompt follows the part it can express; "
            f"{_what_else(policy, function, labelled, options.intercept)}",
            stacklevel=3,
        )
    return SkillPrompt(policy, policy.project(z), r2, spec=_spec(function, options))


def _has_fine_graph(policy: Agent) -> bool:
    return has_graph(policy) and has_scipy() and policy.planner.is_fine_enough


def _by_goal(policy: Agent, data: Any, function: Any, options: Reward) -> goal.GoalPrompt:
    if not policy.has_rule("goal_direction"):
        policy.require_rule("goal_skill", "has no goal rule" if options.rule == "goal" else "has no reward rule")
    labelled = _labelled(policy, data, function, options.samples, options.seed, whole=True)
    best = int(np.argmax(labelled.rewards))
    return goal.goal(policy, trees.over(lambda rows: rows[best], labelled.after), Goal(plan=0))


def _by_segments(policy: Agent, data: Any, function: Any, options: Reward) -> SkillPrompt:
    if isinstance(data, tuple) or function is None:
        raise HilpError(
            "a table of labelled samples has no segments: give the reward as a function or a formula, or take "
            "rule='goal' (--rule goal)"
        )
    if data is None:
        sample = policy.bank.subsample(options.samples, options.seed)
        skills = segments.kept(policy, sample)
        found = _of_sample(policy, sample, function, lambda own: Extras({}, own.next_extras, "the bank"))
    else:
        found = _of_data(policy, data, function, options.samples, options.seed)
        skills = policy.segment_skills(data, Bank.rows(data, options.samples, options.seed))
    z = segments.best_paid(skills, _checked(policy, found).rewards)
    return SkillPrompt(policy, z, spec=_spec(function, options))


def _fit(policy: Agent, labelled: "Labelled", intercept: bool) -> tuple[np.ndarray, float]:
    """The direction of a reward, and how much of it a direction expresses.

    Without an intercept, as in the paper, the mean of the reward is explained by the mean of the features.
    """
    rewards, features = labelled.rewards, labelled.features(policy)
    if not np.isfinite(features).all():
        raise HilpError("the observations of the labelled samples hold a NaN or an infinity")
    x, r = _centred(features, rewards) if intercept else (features, rewards)
    z, r2 = least_squares(x, r)
    if policy.has_rule("backward"):
        z = r @ features / len(r)
    if not np.any(z):
        raise HilpError("phi does not change on the sampled data, so no skill can follow a reward")
    return z, r2


def _centred(features: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return features - features.mean(axis=0), rewards - rewards.mean()


def _warn_of_mean(z: np.ndarray, rewards: np.ndarray, features: np.ndarray) -> None:
    """Warn where a fit without an intercept differs from one with it: no policy earns more or less of a constant."""
    if cosine(z, least_squares(*_centred(features, rewards))[0]) < OTHER_WAY:
        warnings.warn(
            f"the mean of this reward ({rewards.mean():.3g}), not its differences, decides this prompt: subtract it, "
            "or pass intercept=True (--intercept)",
            stacklevel=4,
        )


def _on_graph(policy: Agent, data: Any, function: Any, options: Reward) -> graph_reward.GraphRewardPrompt:
    labelled = _labelled(policy, data, function, graph_samples(policy, options.samples), options.seed)
    if not has_scipy():
        raise HilpError("a reward on the graph needs SciPy: install it, or have hilp plan it and save the prompt")
    if len(labelled.rewards) < 2:
        raise HilpError("a reward on the graph needs at least two labelled transitions")
    rewards, latents = labelled.rewards, labelled.latents(policy)
    seen = None if policy.spec.parts else _change(labelled.before, labelled.after, rewards)
    known = None if seen is None or seen[1] < EXACT else seen[0]
    plan = graph_reward.plan(policy.planner, *latents, rewards, options.discount, known)
    if known is None and plan.r2 < POOR_FIT:  # steps within a landmark look alike, but phi may tell them apart
        along, r2 = _change(*latents, rewards)
        if r2 > plan.r2:
            plan = replace(graph_reward.plan(policy.planner, *latents, rewards, options.discount, along), r2=r2)
    return graph_reward.GraphRewardPrompt(policy, plan, spec=_spec(function, options))


def _change(before: np.ndarray, after: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, float]:
    """c s' [n] of the change c (s' - s) that explains a reward best, up to a constant, and its R^2 where held out."""
    steps, wanted = _centred(after - before, rewards)
    train = graph_reward.is_trained_on(len(wanted))  # with as many columns as samples any reward would fit
    c, _ = least_squares(steps[train], wanted[train])
    variance = np.var(wanted[~train])
    r2 = 1.0 - float(np.var(wanted[~train] - steps[~train] @ c) / variance) if variance > 0 else 0.0
    return after @ c, r2


def graph_samples(policy: Agent, samples: int) -> int:
    """A model of a reward has two numbers a landmark, so it wants more samples than a direction."""
    return max(samples, SAMPLES_A_LANDMARK * len(policy.planner.graph))


def _spec(function: Any, options: Reward) -> Reward | None:
    """What goes to JSON: rewards by a formula do."""
    text = getattr(function, "text", None)
    return None if text is None else Reward(text, **options.options())


@dataclass(frozen=True)
class Labelled:
    """Transitions and their rewards."""

    before: Tree
    after: Tree
    rewards: np.ndarray
    encoded: Mapping[str, np.ndarray] | None = None  # of transitions that were kept without their pictures

    def features(self, policy: Agent) -> np.ndarray:
        """What rewards are expressed in."""
        if self.encoded is not None:
            return self.encoded["features"]
        return policy.reward_features(self.before, self.after)

    def latents(self, policy: Agent) -> tuple[np.ndarray, np.ndarray]:
        """Of s and s'."""
        if self.encoded is not None:
            return self.encoded["latents"], self.encoded["next_latents"]
        return policy.encode(self.before), policy.encode(self.after)


def _what_else(policy: Agent, function: Any, labelled: "Labelled", intercept: bool) -> str:
    """What to try instead of a reward that phi cannot express; the form that rewards a change only where it fits."""
    tips = ["prefer smooth rewards", "a larger latent dimension"]
    if policy.has_rule("goal_direction") or policy.has_rule("goal_skill"):
        tips.insert(0, 'make the state of highest reward a goal with rule="goal" (--rule goal)')
    if has_graph(policy):
        tips.insert(0, 'plan it on the graph of the data with rule="graph" (--rule graph)')
    change = function.change if isinstance(function, formulas.Formula) else None
    if change is not None and policy.has_rule("cumulant"):
        actions = np.zeros((len(labelled.rewards), policy.spec.action_dim))
        before, after = (policy.spec.newest(seen) for seen in (labelled.before, labelled.after))
        rewards = change(before, actions, after, Extras({}, {}, "the bank"))
        features = labelled.features(policy)
        if intercept:
            features, rewards = _centred(features, rewards)
        found = least_squares(features, rewards)[1]
        if found >= POOR_FIT:
            tips.insert(0, f"reward the change instead, '{change.text}' (R^2 = {found:.2f})")
    return ", or ".join(tips)


def _labelled(policy: Agent, data: Any, function: Any, samples: int, seed: int, whole: bool = False) -> Labelled:
    """s, s' and the reward of sampled transitions, checked; `whole`: with all that policies see of them.

    Of the policy's own transitions those that are kept without pictures, which are more, unless the reward looks at
    pictures.
    """
    if isinstance(data, tuple):
        return _checked(policy, _of_table(data, function))
    if function is None:
        raise HilpError("a reward prompt needs a function of (s, a, s'), a formula, or a table of labelled samples")
    if data is not None:
        return _checked(policy, _of_data(policy, data, function, samples, seed))
    found = None if whole else _without_pictures(policy, function, samples, seed)
    if found is None:
        sample = policy.bank.subsample(samples, seed)
        found = _of_sample(policy, sample, function, lambda own: Extras({}, own.next_extras, "the bank"))
    return _checked(policy, found)


def _of_table(data: tuple[Any, ...], function: Any) -> Labelled:
    if function is not None or len(data) != 3:
        raise HilpError("a table of labelled samples is (observations, next_observations, rewards), with no function")
    before, after = (
        trees.over(np.asarray, tree)  # bytes stay bytes
        if isinstance(tree, Mapping)
        else numbers(tree, "a table of labelled samples")
        for tree in data[:2]
    )
    return Labelled(before, after, numbers(data[2], "a table of labelled samples"))


def _of_data(policy: Agent, data: Any, function: RewardFunction, samples: int, seed: int) -> Labelled:
    if data.spec.parts != policy.spec.parts:
        takes = some([name for name, _, _ in policy.spec.parts]) or "plain vectors"
        raise HilpError(f"the observations of {data.name} are not those of this policy ({takes})")
    rows = Bank.rows(data, samples, seed)
    return _of_sample(policy, Bank.at(data, rows), function, lambda own: Extras.of(data, rows))


def _of_sample(policy: Agent, sample: Bank, function: RewardFunction, extras_of: Callable[[Bank], Extras]) -> Labelled:
    own = sample.over(np.array)  # what a function writes into its arguments changes neither the bank nor the features
    before, after = (policy.spec.newest(seen) for seen in (own.observations, own.next_observations))
    found = apply_reward(function, before, own.actions, after, extras_of(own))
    return Labelled(sample.observations, sample.next_observations, numbers(found, "the reward"))


def _without_pictures(policy: Agent, function: RewardFunction, samples: int, seed: int) -> Labelled | None:
    """Of transitions that are kept without pictures; None where there are none, or the reward looks at one."""
    kept = policy.latent_bank
    if kept is None:
        return None
    rows = np.sort(np.random.default_rng(seed).choice(len(kept), min(samples, len(kept)), replace=False))
    own = kept.rest.over(lambda column: column[rows])
    before, after = (WithoutPictures(tree, policy.spec.pictures) for tree in (own.observations, own.next_observations))
    try:
        found = apply_reward(function, before, own.actions, after, Extras({}, own.next_extras, "the bank"))
    except PictureNotKept:
        return None
    encoded = {name: column[rows] for name, column in kept.encoded.items()}
    return Labelled(own.observations, own.next_observations, numbers(found, "the reward"), encoded)


def _checked(policy: Agent, labelled: Labelled) -> Labelled:
    rewards, by_name = labelled.rewards, bool(policy.spec.parts)
    before, after = (trees.over(np.shape, tree) for tree in (labelled.before, labelled.after))
    rows = [*trees.named(labelled.before, "s").values(), *(labelled.encoded or {}).values()]
    fit = all(np.shape(column)[:1] == rewards.shape for column in rows)
    if before != after or isinstance(before, Mapping) != by_name or not fit or not (by_name or len(before) == 2):
        raise HilpError(
            f"the reward must give one number per transition: {before} observations, {after} next "
            f"observations, rewards {rewards.shape}"
        )
    if not len(rewards):
        raise HilpError("there is no transition to ask the reward about: pass a data set, or a table that is not empty")
    bad = np.flatnonzero(~np.isfinite(rewards))
    if len(bad):
        of_all = f"{len(bad)} of {len(rewards)} transitions"
        raise HilpError(f"the reward is NaN or infinite for {of_all}, first at {bad[0]}")
    if np.ptp(rewards) == 0.0:
        raise HilpError("the reward is the same everywhere in the sampled data, so it asks for nothing")
    return labelled


def angles_of(transform: Any) -> Sequence[tuple[int, float]]:
    """The columns that networks see as angles, with their periods."""
    return () if transform is None else transform.angles


def formula(
    spec: Spec, observation_parts: Parts, text: str, angles: Sequence[tuple[int, float]] = ()
) -> RewardFunction:
    """The reward of a formula over the named parts of an observation; of images it knows nothing."""
    if not spec.parts:
        width = spec.of_row.observation_dim
        return formulas.reward(text, observation_parts, width, spec.action_dim, angles=angles)
    parts = tuple((name, shape) for name, shape, kind in spec.parts if kind != "uint8")
    size = sum(math.prod(shape) for _, shape in parts)
    on_vectors = formulas.reward(text, parts, size, spec.action_dim)

    def flat(tree: Tree, rows: int) -> np.ndarray:
        return np.concatenate([np.zeros((rows, 0)), *(tree[name].reshape(rows, -1) for name, _ in parts)], axis=1)

    return lambda s, a, s2, extras: on_vectors(flat(s, len(a)), a, flat(s2, len(a)), extras)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of the angle between two vectors; 1 where one is zero."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths > 0.0 else 1.0


def least_squares(features: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, float]:
    """z = (E[x x'] + ridge I)^-1 E[r x], no intercept, and the share of the reward's variance it explains.

    Features of a low-dimensional world do not fill their space, so the second moment is close to singular; the ridge is
    RIDGE times its mean eigenvalue. R^2 = 1 - Var[r - <x, z>] / Var[r]: a constant that is left over asks for nothing.
    """
    x = np.asarray(features, np.float64)
    r = np.asarray(rewards, np.float64)
    moment = x.T @ x / len(x)
    ridge = RIDGE * np.trace(moment) / len(moment)
    if ridge == 0.0:
        return np.zeros(x.shape[1]), 0.0
    z = np.linalg.solve(moment + ridge * np.eye(len(moment)), x.T @ r / len(x))
    variance = np.var(r)
    r2 = 1.0 - float(np.var(r - x @ z) / variance) if variance > 0 else 0.0
    return z, r2
