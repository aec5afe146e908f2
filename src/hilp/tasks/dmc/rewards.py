"""The rewards of DeepMind Control's robots, as functions of what a domain measures, for many states at once.

Where dm_control's suite has no such task (walker flip, cheetah backward, quadruped jump, ...) the reward is written
here, on what the shipped model measures.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

GAUSSIAN_AT_MARGIN = 0.1
Reward = Callable[..., np.ndarray]


def at_least(x: np.ndarray, bound: float, margin: float, value: float) -> np.ndarray:
    """1 from the bound on, falling linearly to `value` at `margin` below it, and on to 0."""
    return np.clip(1 - (bound - x) / margin * (1 - value), 0.0, 1.0)


def near(distance: np.ndarray, margin: float) -> np.ndarray:
    """1 up to distance 0, falling as a Gaussian to 0.1 at `margin`."""
    away = np.maximum(distance, 0.0) / margin
    return np.exp(away**2 * np.log(GAUSSIAN_AT_MARGIN))


def walker_stand(height: np.ndarray, upright: np.ndarray, speed: np.ndarray, spin: np.ndarray) -> np.ndarray:
    return (3 * near(1.2 - height, 0.6) + (1 + upright) / 2) / 4


def _while_standing(rate: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Reward:
    """A reward of a walker's speed and spin that counts while it stands."""

    def reward(height: np.ndarray, upright: np.ndarray, speed: np.ndarray, spin: np.ndarray) -> np.ndarray:
        return walker_stand(height, upright, speed, spin) * (5 * rate(speed, spin) + 1) / 6

    return reward


def _while_upright(rate: Callable[[np.ndarray, np.ndarray], np.ndarray | float]) -> Reward:
    """A reward of a quadruped's speed and height that counts while it is upright."""

    def reward(upright: np.ndarray, speed: np.ndarray, height: np.ndarray) -> np.ndarray:
        return at_least(upright, 1.0, 2.0, 0.0) * rate(speed, height)

    return reward


WALKER: dict[str, Reward] = {
    "stand": walker_stand,
    "walk": _while_standing(lambda speed, spin: at_least(speed, 1.0, 0.5, 0.5)),
    "run": _while_standing(lambda speed, spin: at_least(speed, 8.0, 4.0, 0.5)),
    "flip": _while_standing(lambda speed, spin: at_least(spin, 5.0, 5.0, 0.0)),
}
CHEETAH: dict[str, Reward] = {
    "run": lambda speed: at_least(speed, 10.0, 10.0, 0.0),
    "run_backward": lambda speed: at_least(-speed, 10.0, 10.0, 0.0),
    "walk": lambda speed: at_least(speed, 2.0, 2.0, 0.0),
    "walk_backward": lambda speed: at_least(-speed, 2.0, 2.0, 0.0),
}
QUADRUPED: dict[str, Reward] = {
    "stand": _while_upright(lambda speed, height: 1.0),
    "walk": _while_upright(lambda speed, height: at_least(speed, 0.5, 0.5, 0.5)),
    "run": _while_upright(lambda speed, height: at_least(speed, 5.0, 5.0, 0.5)),
    "jump": _while_upright(lambda speed, height: at_least(height, 1.0, 1.0, 0.5)),
}
JACO_TARGETS = {
    f"reach_{vertical}_{side}": np.array([0.09 * x, 0.09 * y, 0.001])
    for vertical, y in (("top", 1), ("bottom", -1))
    for side, x in (("left", -1), ("right", 1))
}
JACO_TARGET_RADIUS = 0.05


def reach(target: np.ndarray) -> Reward:
    """The reward of holding the pinch at a target."""

    def reward(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        distance = np.linalg.norm(np.stack([x, y, z], axis=-1) - target, axis=-1)
        return near(distance - JACO_TARGET_RADIUS, JACO_TARGET_RADIUS)

    return reward


JACO: dict[str, Reward] = {name: reach(target) for name, target in JACO_TARGETS.items()}
