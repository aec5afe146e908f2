"""What the arm does in the kitchen, by hand: the hand follows points, the joints follow by damped least squares.

Each script is a generator of actions that looks at the simulation as it goes. Three things make them work: the arm
sags under its own weight unless the weight is added to the action; joints at their limits are left out of the Jacobian,
because the arm begins with one there; and joints that are free to choose go back to a middle pose, or a script ends in
a pose that the next one cannot begin in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hilp.tasks.kitchen import HAND, HANDLES, ROBOT, Simulator

JOINTS = 7  # of the arm; two fingers follow
OPEN, CLOSED = 1.0, -1.0  # speeds of the fingers
GAIN = 1.5  # how far beyond the next point the hand is told to go: the position servo lags
FAST, SLOW = 0.1, 0.05  # metres a step that the hand is told to go at most, free and while it pushes
TURN = 0.2  # radians a step
DAMPING = 1e-3  # of the least squares, in square metres
MARGIN = 0.01  # radians before the limit of a joint, where it is left out
REST_GAIN = 0.2  # how much of the way to the middle pose the free joints go
MIDDLE = np.array([-0.6, -1.4, 1.5, -2.0, 0.1, 1.2, 1.3])  # a pose from which everything can be reached
FRONT = np.array([-0.38, 0.40, 2.2])  # a place in front of the knobs
STEER = 0.3  # metres beside the kettle's middle that the hand pushes, for each unit of its quaternion's z
AHEAD = 0.17  # radians that the hand pulls the microwave's door ahead of where it is: more would slip off
BACK = 0.12  # metres that the hand draws back when it is done with something
Actions = Iterator[np.ndarray]


class Hand:
    """The hand of one simulation, and the actions that move it."""

    def __init__(self, simulator: Simulator, data: Any) -> None:
        self.simulator, self.data = simulator, data
        mujoco, model = simulator.mujoco, simulator.model
        self._site = model.site(HAND).id
        self._stiffness = model.actuator_gainprm[:JOINTS, 0]
        self._low, self._high = model.jnt_range[:JOINTS].T
        self._along, self._around = np.zeros((2, 3, model.nv))
        self._reach = simulator.scale[:JOINTS] * simulator.dt  # radians that an action of 1 asks for
        mujoco.mj_forward(model, data)
        self.home = self.at.copy()
        self.forward = self.turned.copy()  # at the beginning it points forward, the fingers side by side

    @property
    def at(self) -> np.ndarray:
        """Where it is [3], as a view that moves with it."""
        place: np.ndarray = self.data.site_xpos[self._site]
        return place

    @property
    def turned(self) -> np.ndarray:
        """How it is turned, as a matrix [3, 3] that moves with it."""
        matrix: np.ndarray = self.data.site_xmat[self._site].reshape(3, 3)
        return matrix

    def towards(
        self, place: np.ndarray, turned: np.ndarray, fingers: float, fastest: float, hold: float = 0.3
    ) -> np.ndarray:
        """The action [9] that brings the hand nearer to a place; `hold` weighs turning against moving."""
        self.simulator.mujoco.mj_jacSite(self.simulator.model, self.data, self._along, self._around, self._site)
        spin = turned @ self.turned.T
        turn = 0.5 * np.array([spin[2, 1] - spin[1, 2], spin[0, 2] - spin[2, 0], spin[1, 0] - spin[0, 1]])
        wanted = np.concatenate([_at_most(GAIN * (place - self.at), fastest), hold * _at_most(turn, TURN)])
        jacobian = np.concatenate([self._along[:, :JOINTS], hold * self._around[:, :JOINTS]])
        pose = self.data.qpos[:JOINTS]
        free, motion = np.ones(JOINTS, bool), np.zeros(JOINTS)
        while free.any():
            own = jacobian[:, free]
            inverse = own.T @ np.linalg.inv(own @ own.T + DAMPING * np.eye(6))
            rest = REST_GAIN * (MIDDLE - pose)[free]
            motion = np.zeros(JOINTS)
            motion[free] = inverse @ wanted + rest - inverse @ (own @ rest)
            after = pose + motion
            stuck = free & (
                ((after > self._high - MARGIN) & (motion > 0)) | ((after < self._low + MARGIN) & (motion < 0))
            )
            if not stuck.any():
                break
            free &= ~stuck
        weight = self.data.qfrc_bias[:JOINTS] / self._stiffness
        return np.concatenate([(motion + weight) / self._reach, np.full(ROBOT - JOINTS, fingers)])

    # Pieces of scripts

    def go(
        self,
        place: np.ndarray | Callable[[], np.ndarray],
        fingers: float,
        *,
        near: float = 0.02,
        most: int = 45,
        fastest: float = FAST,
        until: Callable[[], bool] | None = None,
        turned: np.ndarray | None = None,
        hold: float = 0.3,
    ) -> Actions:
        """To a place, or after one that moves, until it is near or something has happened, or for `most` steps."""
        for _ in range(most):
            point = place() if callable(place) else place
            yield self.towards(point, self.forward if turned is None else turned, fingers, fastest, hold)
            if until() if until else np.linalg.norm(self.at - point) < near:
                return

    def stay(self, fingers: float, steps: int) -> Actions:
        """Where it is, while the fingers open or close."""
        yield from self.go(self.at.copy(), fingers, most=steps, turned=self.turned.copy(), until=lambda: False)

    def back(self, fingers: float) -> Actions:
        """Away from the wall of things to touch."""
        yield from self.go(moved(self.at, y=-BACK), fingers, near=0.04, most=6)

    def handle(self, subtask: str) -> np.ndarray:
        """Where to touch what a subtask is about, now."""
        place: np.ndarray = self.data.site(HANDLES[subtask]).xpos.copy()
        return place

    def number(self, subtask: str) -> float:
        """How far a subtask is: the first of its numbers."""
        return float(self.data.qpos[self.simulator.columns[subtask][0]])


def light_switch(hand: Hand) -> Actions:
    """Push the lever to the left, from its right."""
    lever, done = hand.handle("light switch"), lambda: hand.number("light switch") < -0.65
    yield from hand.go(moved(lever, x=0.07, y=-0.09), CLOSED, near=0.03)
    yield from hand.go(moved(lever, x=0.06), CLOSED, most=12)
    yield from hand.go(moved(lever, x=-0.12), CLOSED, most=15, fastest=SLOW, until=done)
    yield from hand.back(CLOSED)


def slide_cabinet(hand: Hand) -> Actions:
    """Push the handle to the right, from its left."""
    handle, done = hand.handle("slide cabinet"), lambda: hand.number("slide cabinet") > 0.22
    yield from hand.go(moved(handle, x=-0.09, y=-0.10), CLOSED, near=0.03)
    yield from hand.go(moved(handle, x=-0.08), CLOSED, most=12)
    yield from hand.go(moved(handle, x=0.35), CLOSED, most=25, fastest=SLOW, until=done)
    yield from hand.back(CLOSED)
    yield from hand.go(FRONT, CLOSED, near=0.08)  # straight down from up there, the arm would fold and be stuck


def bottom_burner(hand: Hand) -> Actions:
    """Grasp the knob and turn the wrist: pushed from the side, the knob is too stiff."""
    knob = moved(hand.handle("bottom burner"), y=-0.045)
    yield from hand.go(moved(knob, y=-0.09), OPEN)
    yield from hand.go(knob, OPEN, near=0.012, most=12)
    yield from hand.go(knob, CLOSED, most=3, until=lambda: False)
    cos, sin = np.cos(1.4), np.sin(1.4)
    twisted = np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]]) @ hand.forward
    yield from hand.go(
        knob, CLOSED, most=25, turned=twisted, hold=0.5, until=lambda: hand.number("bottom burner") < -0.75
    )
    yield from hand.stay(OPEN, 3)
    yield from hand.back(OPEN)


def kettle(hand: Hand) -> Actions:
    """Push it to the back: low, so that it does not tip, with both fingers, and where it turns, off its middle."""
    columns = hand.simulator.columns["kettle"]
    x, y, z, twist = columns[0], columns[1], columns[2], columns[6]
    position = hand.data.qpos
    start = position[[x, y, z]].copy()
    height = start[2] + 0.085
    yield from hand.go(moved(start, y=-0.24, z=0.16), OPEN, near=0.04)
    yield from hand.go(np.array([start[0], start[1] - 0.21, height]), OPEN, most=12)
    yield from hand.go(
        lambda: np.array([position[x] - STEER * position[twist], hand.at[1] + 0.1, height]),
        OPEN,
        most=25,
        fastest=SLOW,
        until=lambda: bool(position[y] > 0.6),
    )
    yield from hand.back(OPEN)


def microwave(hand: Hand) -> Actions:
    """Grasp the handle and pull it along its arc."""
    handle = hand.handle("microwave")
    yield from hand.go(moved(handle, y=-0.10), OPEN)
    grip = moved(handle, y=0.02)
    yield from hand.go(grip, OPEN, near=0.015, most=12)
    yield from hand.go(grip, CLOSED, most=3, until=lambda: False)
    hinge = hand.data.body("microdoorroot").xpos.copy()

    def ahead() -> np.ndarray:
        cos, sin = np.cos(AHEAD), np.sin(AHEAD)
        x, y, z = hand.handle("microwave") - hinge
        return moved(hinge, cos * x + sin * y, cos * y - sin * x, z)

    yield from hand.go(ahead, CLOSED, most=30, fastest=SLOW, hold=0.1, until=lambda: hand.number("microwave") < -0.8)
    yield from hand.stay(OPEN, 3)
    yield from hand.back(OPEN)


def rest(hand: Hand) -> Actions:
    """Back to where the hand began, and on and on there."""
    while True:
        yield from hand.go(hand.home, OPEN, most=1)


SCRIPTS: dict[str, Callable[[Hand], Actions]] = {
    "bottom burner": bottom_burner,
    "kettle": kettle,
    "light switch": light_switch,
    "microwave": microwave,
    "slide cabinet": slide_cabinet,
}


def moved(place: np.ndarray, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> np.ndarray:
    """A place so far to the right, forward and up of another."""
    return place + np.array([x, y, z])


def _at_most(vector: np.ndarray, length: float) -> np.ndarray:
    size = float(np.linalg.norm(vector))
    return vector if size <= length else vector * (length / size)
