"""A plan as the pictures of its midpoints: a strip of a film."""

from __future__ import annotations

import itertools

import numpy as np

from hilp.policy.policy import FoundationPolicy
from hilp.prompts.midpoints import Midpoints
from hilp.report import figures
from hilp.report.markup import Section

STRIPS = 3
HALVINGS = 3  # of the way: seven midpoints between a start and a goal
PAIRS = 200  # that the far ones are chosen from


def section(policy: FoundationPolicy) -> list[Section]:
    """Plans between far states of the data, where policies see pictures and have distances to plan with."""
    if not policy.spec.pictures or not policy.has_rule("goal_direction") or len(policy.bank) < 2:
        return []
    frames, latents = kept_pictures(policy)
    shown = []
    for start, goal in far_pairs(latents):
        rows = plan(policy.midpoints, latents, start, goal)
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


def far_pairs(latents: np.ndarray, count: int = STRIPS) -> list[tuple[int, int]]:
    """Rows of far starts and goals: of random pairs those that are farthest apart."""
    a, b = np.random.default_rng(0).integers(len(latents), size=(2, PAIRS))
    order = np.argsort(-np.linalg.norm(latents[a] - latents[b], axis=1))
    return [(int(a[n]), int(b[n])) for n in order[:count]]


def plan(midpoints: Midpoints, latents: np.ndarray, start: int, goal: int, halvings: int = HALVINGS) -> np.ndarray:
    """Rows of `latents` on the way from one of them to another, both included, by a plan of midpoints."""
    way = [latents[start], latents[goal]]
    for _ in range(halvings):
        between = [midpoints.subgoal(a, b, recursions=1) for a, b in itertools.pairwise(way)]
        way = [latent for pair in zip(way, [*between, way[-1]], strict=True) for latent in pair][:-1]
    inner = [int(np.argmin(np.square(latents - latent).sum(axis=1))) for latent in way[1:-1]]
    return np.array([start, *inner, goal])
