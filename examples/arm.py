"""An arm's log at any rate: a messy CSV file in, a policy that reaches poses out, with nothing said about time.

Run: python examples/arm.py [updates]               one arm, logged at 100 Hz
     python examples/arm.py --table rows.jsonl      the same arm logged at 10, 50, 100 and 500 Hz, one row each
"""

import numpy as np

SPEED = 90.0  # degrees a second, the most that a joint is told
LAG = 0.05  # seconds until a joint moves as told, but for a third
NOISE = 0.05  # degrees, of the encoders
ELBOW = 150.0  # degrees, where the elbow stops
NEAR = 10.0  # degrees: both joints within this of the goal have reached it


class Arm:
    """Arms side by side: a base that turns all the way round, an elbow, joint speeds as commands."""

    def __init__(self, rate: float, joints: np.ndarray, rng: np.random.Generator):
        self.rate, self.joints, self.rng = rate, np.array(joints, float), rng  # degrees, [n, 2]
        self.speeds = np.zeros_like(self.joints)

    def step(self, commands: np.ndarray) -> None:
        """One tick of the controller: 1 / rate seconds."""
        wanted = np.clip(commands, -SPEED, SPEED)
        self.speeds += (1.0 - np.exp(-1.0 / (self.rate * LAG))) * (wanted - self.speeds)
        self.joints += self.speeds / self.rate
        self.joints[:, 0] = wrapped(self.joints[:, 0])
        self.joints[:, 1] = np.clip(self.joints[:, 1], -ELBOW, ELBOW)

    def read(self) -> np.ndarray:
        """What the encoders say: the base jumps from 180 to -180 degrees."""
        seen = self.joints + self.rng.normal(0.0, NOISE, self.joints.shape)
        seen[:, 0] = wrapped(seen[:, 0])
        return seen


def wrapped(degrees: np.ndarray) -> np.ndarray:
    return (degrees + 180.0) % 360.0 - 180.0


def poses(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform([-180.0, -ELBOW], [180.0, ELBOW], (count, 2))


class Operator:
    """Somebody who drives the arms to one pose after the other, with an unsteady hand; knows no goal of ours."""

    def __init__(self, rate: float, count: int, rng: np.random.Generator):
        self.rate, self.rng = rate, rng
        self.targets, self.wobble = poses(rng, count), np.zeros((count, 2))

    def act(self, joints: np.ndarray) -> np.ndarray:
        keep = np.exp(-1.0 / (0.3 * self.rate))  # the hand's error lasts 0.3 s, at any rate
        self.wobble = keep * self.wobble + np.sqrt(1.0 - keep**2) * self.rng.normal(0.0, 20.0, self.wobble.shape)
        ahead = self.targets - joints
        ahead[:, 0] = wrapped(ahead[:, 0])
        there = np.abs(ahead).max(axis=1) < 5.0
        self.targets[there] = poses(self.rng, int(there.sum()))
        return np.clip(2.0 * ahead, -60.0, 60.0) + self.wobble
