"""Preferences as a prompt: pairs of segments, of which somebody liked one better, become the skill that explains them.

A segment earns the sum of the reward over its transitions, and a reward is linear in the method's features; so the
chance that the first of two is preferred is the logistic function of <F(first) - F(second), w>, F being the sum of
features over a segment (Bradley and Terry). w is found by logistic regression, and is a reward: it becomes a skill as
any other reward does.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError
from hilp.policy.agent import Promptable
from hilp.policy.prompts import SkillPrompt
from hilp.trees import Tree

RIDGE = 1e-2  # of the loss, beside features of unit scale: where w explains all pairs, nothing else bounds it
ITERATIONS = 100
ENOUGH = 1e-8
POOR = 0.7  # share of pairs explained below which the user is told


def prefer(policy: Promptable, pairs: Sequence[tuple[Any, Any]]) -> SkillPrompt:
    """The skill of pairs (better, worse) of segments [rows, obs] each, which may differ in length."""
    if not policy.has_rule("cumulant"):
        policy.require_rule("backward", "has no reward rule, so it cannot learn from preferences")
    pairs = list(pairs)
    if not pairs:
        raise HilpError("preferences are pairs (better, worse) of segments: give at least one")
    differences = []
    for number, pair in enumerate(pairs):
        try:
            better, worse = pair
        except (TypeError, ValueError) as error:
            raise HilpError(f"pair {number} of the preferences is not (better, worse)") from error
        differences.append(segment(policy, better, number) - segment(policy, worse, number))
    x = np.asarray(differences, np.float64)
    weights = logistic(x)
    if not np.any(weights):
        raise HilpError("the segments of all pairs have the same features, so the preferences ask for nothing")
    agreement = float(np.mean(x @ weights > 0))
    if agreement < POOR:
        warnings.warn(
            f"a reward that phi can express explains only {agreement:.0%} of these {len(x)} preferences: are all pairs "
            "(better, worse)? Longer segments tell more",
            stacklevel=3,
        )
    if policy.has_rule("cumulant"):
        z = weights
    else:  # the skill of a reward is its mean weighted by features: E[B (B w)]
        features = policy.kept("features", lambda: policy.backward(policy.bank.next_observations)).astype(np.float64)
        if not len(features):
            raise HilpError("this policy was saved without a bank of states, so it cannot say what a reward's skill is")
        z = features.T @ (features @ weights) / len(features)
    return SkillPrompt(policy.fingerprint, policy.project(z), agreement=agreement, policy=policy)


def segment(policy: Promptable, observations: Any, number: int) -> np.ndarray:
    """The sum of features over the transitions of a segment."""
    rows, single = policy.batched(observations)
    if single or trees.rows(rows) < 2:
        raise HilpError(f"a segment of pair {number} has fewer than two observations: it shows no transition")

    def between(first: int | None, last: int | None) -> Tree:
        return trees.over(lambda part: part[first:last], rows)

    after = between(1, None)
    features = policy.cumulant(between(None, -1), after) if policy.has_rule("cumulant") else policy.backward(after)
    return np.asarray(features, np.float64).sum(axis=0)


def logistic(x: np.ndarray) -> np.ndarray:
    """w = argmin mean log(1 + exp(-<x, w>)) + RIDGE / 2 |w|^2 on features of unit scale, by Newton's method."""
    scale = np.sqrt(np.mean(np.square(x)))
    if scale == 0.0:
        return np.zeros(x.shape[1])
    x = x / scale
    w = np.zeros(x.shape[1])
    for _ in range(ITERATIONS):
        wrong = 1.0 / (1.0 + np.exp(np.clip(x @ w, -500, 500)))  # the chance of the other answer
        slope = RIDGE * w - x.T @ wrong / len(x)
        curve = x.T @ (x * (wrong * (1.0 - wrong))[:, None]) / len(x) + RIDGE * np.eye(len(w))
        step = np.linalg.solve(curve, slope)
        w = w - step
        if np.abs(step).max() < ENOUGH:
            break
    return w / scale
