"""Kitchen data by scripts, as D4RL has it from people: an arm that does one thing after the other, with noise.

"partial" does all that the scripts know, in random order, so that some episodes do all four subtasks of the task.
"mixed" leaves one of its four out, so that no episode does all, and breaks off some halfway, to come back to them
later. "complete" does D4RL's four in their order. An arm that is done early rests where it began.

Each script is a generator of actions that looks at the simulation as it goes: the hand follows points, the joints
follow by damped least squares. Three things make them work: the arm sags under its own weight unless the weight is
added to the action; joints at their limits are left out of the Jacobian, because the arm begins with one there; and
joints that are free to choose go back to a middle pose, or a script ends in a pose that the next one cannot begin in.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from hilp.collectors.collecting import NO_TARGET, Episode, Request, Simulate, at_target, collect_blocks, recorded
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.tasks import kitchen
from hilp.tasks.kitchen import HAND, HANDLES, MAX_STEPS, NAMES, PARTS, ROBOT, Kitchen, Simulator
from hilp.tasks.rendering import VISUAL

KINDS = ("partial", "mixed", "complete")
EPISODE_STEPS = MAX_STEPS  # 281 rows
ACTION_NOISE = 0.1  # standard deviation of the Gaussian on the arm's actions; on the fingers it would lose the grip
BREAK_CHANCE = 0.25  # of breaking off a subtask of "mixed" after BREAK_STEPS
BREAK_STEPS = (10, 50)  # the last excluded
BLOCK = 5  # episodes in one piece of work, and in one file on the way

# Of scripts
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


class Cook:
    """One episode of an arm that follows scripts."""

    def __init__(self, world: Kitchen, plan: list[str], rng: np.random.Generator, breaks: float = 0.0) -> None:
        """plan: subtasks in order. breaks: chance of leaving one halfway; it is taken up again after the others."""
        self.running = world.episodes(rng, 1)  # of all subtasks, whichever count later
        self.rng, self._breaks = rng, breaks
        self.hand = Hand(world.simulator, self.running.data[0])
        self.target, self.subtask = NO_TARGET, ""  # what the last action was for; what is to be broken off is none
        self._actions = self._all(deque(plan))

    def step(self) -> np.ndarray:
        """Go on for one step; returns the action."""
        action = next(self._actions)
        action[:JOINTS] += ACTION_NOISE * self.rng.standard_normal(JOINTS)
        action = action.clip(-1, 1).astype(np.float32)
        self.running.step(action[None])
        return action

    def row(self) -> Episode:
        """What the data holds of now: also whether the subtask that the arm is at is done."""
        reached = self.target != NO_TARGET and self.running.done[0, self.running.subtasks.index(self.subtask)]
        return {"observations": self.running.observations[0], **at_target(self.target, reached)}

    def _all(self, plan: deque[str]) -> Actions:
        taken_up = 0
        while plan:
            subtask = plan.popleft()
            most = None
            if self.rng.random() < self._breaks:
                most = int(self.rng.integers(*BREAK_STEPS))
                plan.append(subtask)
                self.target = NO_TARGET
            else:
                self.target, self.subtask, taken_up = taken_up, subtask, taken_up + 1
            for taken, action in enumerate(SCRIPTS[subtask](self.hand)):
                if taken == most:
                    yield from self.hand.back(1.0)
                    break
                yield action
        self.target = NO_TARGET
        while True:  # back to where the hand began, and on and on there
            yield from self.hand.go(self.hand.home, OPEN, most=1)


def plan_of(kind: str, rng: np.random.Generator) -> list[str]:
    """What an episode sets out to do, in order."""
    if kind == "complete":
        return list(NAMES["kitchen-complete"])
    subtasks = list(SCRIPTS)
    if kind == "mixed":
        subtasks.remove(str(rng.choice(NAMES["kitchen-mixed"])))
    return [str(name) for name in rng.permutation(subtasks)]


def require(world: Kitchen, request: Request) -> None:
    """Raise where the data would be another task's."""
    plain, name = world.name.removeprefix(VISUAL), f"kitchen-{request.kind}"
    if plain not in ("kitchen", name):
        of = world.name.removesuffix(plain)
        raise HilpError(
            f"data of kind {request.kind} belongs to {of}{name}, not to {world.name}: take --task {of}kitchen"
        )


def collect(world: Kitchen, request: Request) -> Dataset:
    """Episodes of 281 rows, simulated by several processes."""
    name = f"kitchen-{request.kind}"
    _ = world.simulator  # raises before there is a folder where it is not installed
    make = partial(_simulation, request.kind, request.seed)
    return collect_blocks(request, request.identity(name), make, EPISODE_STEPS, BLOCK, name, name, PARTS)


def _simulation(kind: str, seed: int) -> Simulate:
    """What a process needs to collect: it makes a world of its own."""
    world = kitchen.make("kitchen", threads=1)

    def episode(number: int, steps: int) -> Episode:
        rng = np.random.default_rng([seed, number])
        cook = Cook(world, plan_of(kind, rng), rng, BREAK_CHANCE if kind == "mixed" else 0.0)
        return recorded(cook.row, cook.step, steps)

    return lambda block: [episode(number, steps) for number, steps in block]


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
        return np.asarray(self.data.site_xpos[self._site])

    @property
    def turned(self) -> np.ndarray:
        """How it is turned, as a matrix [3, 3] that moves with it."""
        return np.asarray(self.data.site_xmat[self._site].reshape(3, 3))

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
            beyond = np.where(motion > 0, after > self._high - MARGIN, (motion < 0) & (after < self._low + MARGIN))
            stuck = free & beyond
            if not stuck.any():
                break
            free &= ~stuck
        weight = self.data.qfrc_bias[:JOINTS] / self._stiffness
        return np.concatenate([(motion + weight) / self._reach, np.full(ROBOT - JOINTS, fingers)])

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
        return np.array(self.data.site(HANDLES[subtask]).xpos)

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
    knob, done = moved(hand.handle("bottom burner"), y=-0.045), lambda: hand.number("bottom burner") < -0.75
    yield from hand.go(moved(knob, y=-0.09), OPEN)
    yield from hand.go(knob, OPEN, near=0.012, most=12)
    yield from hand.go(knob, CLOSED, most=3, until=lambda: False)
    cos, sin = np.cos(1.4), np.sin(1.4)
    twisted = np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]]) @ hand.forward
    yield from hand.go(knob, CLOSED, most=25, turned=twisted, hold=0.5, until=done)
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
