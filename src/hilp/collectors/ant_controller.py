"""The ant's legs: a small network that walks the ant along a commanded direction, with inference in plain numpy.

It keeps facing +x whatever the direction: a walker whose heading wanders would show every place and every gait in all
headings, far more to learn from its data. The world and the ant together look the same after a quarter turn, if the
legs are renumbered. So the network sees directions within 45 degrees of +x only: 27 numbers of the body and two of
the direction.

The weights beside this file were trained by `tools/train_ant_controller.py`, which also measures them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from hilp.errors import HilpError
from hilp.storage import read_arrays

INPUT_DIM, ACTION_DIM = 29, 8
WEIGHTS = Path(__file__).with_name("ant_controller.safetensors")
LAYERS = 3
# Legs 1 to 4 stand at 45, 135, 225 and 315 degrees. In observations each is (hip, ankle); the actuators begin with
# leg 4. The ankles of legs 2 and 3 turn the other way round.
ANKLE_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
FIRST_ACTUATOR = 3


def quarter_turns(direction: np.ndarray) -> np.ndarray:
    """How many quarter turns [n] back bring directions [n, 2] within 45 degrees of +x."""
    angle = np.arctan2(direction[:, 1], direction[:, 0])
    return np.asarray(np.rint(angle / (np.pi / 2)).astype(np.intp) % 4)


def canonical(proprioception: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The network's inputs [n, 29]: the body's 27 numbers (an observation without xy) and the direction, turned back.

    World and legs turn by the same quarter turns, so that the heading stays what it was.
    """
    turns = quarter_turns(direction)
    out = np.concatenate([proprioception, direction], axis=1, dtype=np.float64)
    out[:, 1:5] *= np.where(out[:, 1:2] < 0, -1, 1)  # q and -q are the same rotation
    cos, sin = np.array([1, 0, -1, 0])[turns], np.array([0, 1, 0, -1])[turns]
    # The axis of a tilt, the velocity, the spin, the direction.
    for at in ((2, 3), (13, 14), (16, 17), (27, 28)):
        x, y = out[:, at].T
        out[:, at] = np.stack([cos * x + sin * y, cos * y - sin * x], axis=1)
    for joints in (slice(5, 13), slice(19, 27)):
        legs = out[:, joints].reshape(-1, 4, 2)
        legs[..., 1] *= ANKLE_SIGNS
        out[:, joints] = _renumber_legs(legs, turns)
    return out


def actual(action: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The actuators' signals [n, 8] of a network's action (the leg at 45 degrees first, all ankles alike)."""
    legs = _renumber_legs(action.reshape(-1, 4, 2), -quarter_turns(direction)).reshape(-1, 4, 2)
    legs[..., 1] *= ANKLE_SIGNS
    return np.roll(legs, -FIRST_ACTUATOR, axis=1).reshape(-1, 8)


def _renumber_legs(legs: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Legs [n, 4, 2] numbered as after so many quarter turns back, as joints [n, 8]."""
    return legs[np.arange(len(legs))[:, None], (np.arange(4) + turns[:, None]) % 4].reshape(-1, 8)


class Controller:
    """Proprioception and unit directions in, actions out."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.layers = [(arrays[f"weight{layer}"], arrays[f"bias{layer}"]) for layer in range(LAYERS)]

    @classmethod
    def load(cls, path: Path = WEIGHTS) -> Controller:
        arrays, _ = read_arrays(path)
        if set(arrays) != {f"{kind}{layer}" for kind in ("weight", "bias") for layer in range(LAYERS)}:
            raise HilpError(f"{path} holds no ant controller: train one with tools/train_ant_controller.py")
        inputs = len(arrays["weight0"])
        if inputs != INPUT_DIM:
            raise HilpError(f"{path} takes {inputs} inputs, not {INPUT_DIM}: train another controller")
        return cls(arrays)

    def head(self, x: np.ndarray) -> np.ndarray:
        """The network's raw output: the mean before tanh, then the log standard deviation."""
        x = x.astype(np.float32)
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return np.asarray(x @ weight + bias)

    def act(self, proprioception: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Actions [n, 8] in [-1, 1] that walk ants with these 27 numbers [n, 27] along unit directions [n, 2]."""
        mean = self.head(canonical(proprioception, direction))[:, :ACTION_DIM]
        return actual(np.tanh(mean), direction)


def fingerprint() -> str:
    """Of the weights: data by another controller is other data."""
    return hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
