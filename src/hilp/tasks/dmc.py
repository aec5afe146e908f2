"""DeepMind Control: walker, cheetah, quadruped and the Jaco arm, with the four rewards of each.

The models, resets and control rates are dm_control's own. Where its suite has no such task (walker flip, cheetah
backward, quadruped jump, ...) the reward is written here, on what the shipped model measures. A reward is a function of
the physics state alone, so the same function labels the rows of a data set and scores a rollout.

Episodes step MuJoCo directly, side by side in threads, in the order that dm_control steps it: what depends on position
and velocity is of now, force and acceleration sensors are of the substep before.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.errors import HilpError, nearest
from hilp.tasks import Finite
from hilp.tasks.simulator import import_simulator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hilp.data.extras import RewardFunction

Parts = tuple[tuple[str, tuple[int, ...]], ...]
GAUSSIAN_AT_MARGIN = 0.1


# ---- rewards ---------------------------------------------------------------------------------------------------------


def at_least(x: np.ndarray, bound: float, margin: float, value: float) -> np.ndarray:
    """1 from the bound on, falling linearly to `value` at `margin` below it, and on to 0."""
    return np.clip(1 - (bound - x) / margin * (1 - value), 0.0, 1.0)


def near(distance: np.ndarray, margin: float) -> np.ndarray:
    """1 up to distance 0, falling as a Gaussian to 0.1 at `margin`."""
    away = np.maximum(distance, 0.0) / margin
    return np.exp(away**2 * np.log(GAUSSIAN_AT_MARGIN))


def walker_stand(height: np.ndarray, upright: np.ndarray, speed: np.ndarray, spin: np.ndarray) -> np.ndarray:
    return (3 * near(1.2 - height, 0.6) + (1 + upright) / 2) / 4


def walker_walk(height: np.ndarray, upright: np.ndarray, speed: np.ndarray, spin: np.ndarray) -> np.ndarray:
    return walker_stand(height, upright, speed, spin) * (5 * at_least(speed, 1.0, 0.5, 0.5) + 1) / 6


def walker_run(height: np.ndarray, upright: np.ndarray, speed: np.ndarray, spin: np.ndarray) -> np.ndarray:
    return walker_stand(height, upright, speed, spin) * (5 * at_least(speed, 8.0, 4.0, 0.5) + 1) / 6


def walker_flip(height: np.ndarray, upright: np.ndarray, speed: np.ndarray, spin: np.ndarray) -> np.ndarray:
    return walker_stand(height, upright, speed, spin) * (5 * at_least(spin, 5.0, 5.0, 0.0) + 1) / 6


def quadruped_stand(upright: np.ndarray, speed: np.ndarray, height: np.ndarray) -> np.ndarray:
    return at_least(upright, 1.0, 2.0, 0.0)


def quadruped_walk(upright: np.ndarray, speed: np.ndarray, height: np.ndarray) -> np.ndarray:
    return at_least(upright, 1.0, 2.0, 0.0) * at_least(speed, 0.5, 0.5, 0.5)


def quadruped_run(upright: np.ndarray, speed: np.ndarray, height: np.ndarray) -> np.ndarray:
    return at_least(upright, 1.0, 2.0, 0.0) * at_least(speed, 5.0, 5.0, 0.5)


def quadruped_jump(upright: np.ndarray, speed: np.ndarray, height: np.ndarray) -> np.ndarray:
    return at_least(upright, 1.0, 2.0, 0.0) * at_least(height, 1.0, 1.0, 0.5)


JACO_TARGETS = {
    f"reach_{vertical}_{side}": np.array([0.09 * x, 0.09 * y, 0.001])
    for vertical, y in (("top", 1), ("bottom", -1))
    for side, x in (("left", -1), ("right", 1))
}
JACO_TARGET_RADIUS = 0.05


def _reach(target: np.ndarray) -> Callable[..., np.ndarray]:
    def reward(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        distance = np.linalg.norm(np.stack([x, y, z], axis=-1) - target, axis=-1)
        return near(distance - JACO_TARGET_RADIUS, JACO_TARGET_RADIUS)

    return reward


# ---- domains ---------------------------------------------------------------------------------------------------------


class Domain:
    """One robot: its compiled model, how an episode begins, what is observed and what rewards measure."""

    parts: Parts  # of the observation
    rewards: Mapping[str, Callable[..., np.ndarray]]  # of the columns of `measure`
    substeps: int  # of the physics in a step of control
    max_steps = 1000
    score_scale = 1.0  # of returns in aggregates: what makes the shorter episodes of the arm count as much
    camera: int | str = 0
    axes: tuple[str, str]  # what `place` gives

    def __init__(self) -> None:
        import_simulator("a DeepMind Control task", "dm_control.suite")  # `build` will want it
        self.mujoco = import_simulator("a DeepMind Control task")
        self.physics = self.build()  # dm_control's; only used to begin episodes
        self.model = self.physics.model.ptr

    def build(self) -> Any:
        """dm_control's physics of this robot."""
        raise NotImplementedError

    def begin(self, seed: int) -> None:
        """Put the physics to the start of a random episode."""
        raise NotImplementedError

    def observe(self, now: Views) -> np.ndarray:
        """Observations [n, obs], parts side by side."""
        raise NotImplementedError

    def measure(self, data: Any) -> Sequence[float]:
        """What rewards are made of, from qpos and qvel alone: only the stages of the physics that it takes."""
        raise NotImplementedError

    def place(self, observations: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class Views:
    """The arrays of n simulations, by their MuJoCo names, stacked when asked for: [n, ...]."""

    def __init__(self, simulations: Sequence[Any]) -> None:
        self._simulations = simulations
        self._views: dict[str, list[np.ndarray]] = {}  # MuJoCo updates them in place

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in self._views:
            self._views[name] = [getattr(data, name) for data in self._simulations]
        return np.array(self._views[name])


class Walker(Domain):
    parts = (("orientations", (14,)), ("height", (1,)), ("velocity", (9,)))
    rewards = {"stand": walker_stand, "walk": walker_walk, "run": walker_run, "flip": walker_flip}  # noqa: RUF012
    substeps = 10
    axes = ("forward speed of the torso", "height of the torso")

    def build(self) -> Any:
        from dm_control.suite import walker

        physics = walker.Physics.from_xml_string(*walker.get_model_and_assets())
        self.torso = physics.model.name2id("torso", "body")
        return physics

    def begin(self, seed: int) -> None:
        from dm_control.suite import walker

        with self.physics.reset_context():
            walker.PlanarWalker(move_speed=0, random=seed).initialize_episode(self.physics)

    def observe(self, now: Views) -> np.ndarray:
        planar = now.xmat[:, 1:, [0, 2]]  # the x axis of each body, in the plane it moves in
        return np.concatenate([planar.reshape(len(planar), -1), now.xpos[:, self.torso, 2:], now.qvel], axis=1)

    def measure(self, data: Any) -> Sequence[float]:
        mujoco = self.mujoco
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        mujoco.mj_comVel(self.model, data)
        mujoco.mj_subtreeVel(self.model, data)
        torso = self.torso
        return (
            data.xpos[torso, 2],
            data.xmat[torso, 8],
            data.subtree_linvel[torso, 0],
            data.subtree_angmom[torso, 1],
        )

    def place(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, [16, 14]]


class Cheetah(Domain):
    parts = (("position", (8,)), ("velocity", (9,)))
    rewards = {  # noqa: RUF012
        "run": lambda speed: at_least(speed, 10.0, 10.0, 0.0),
        "run_backward": lambda speed: at_least(-speed, 10.0, 10.0, 0.0),
        "walk": lambda speed: at_least(speed, 2.0, 2.0, 0.0),
        "walk_backward": lambda speed: at_least(-speed, 2.0, 2.0, 0.0),
    }
    substeps = 1
    axes = ("forward speed of the torso", "height of the torso over its place at rest")

    def build(self) -> Any:
        from dm_control.suite import cheetah

        physics = cheetah.Physics.from_xml_string(*cheetah.get_model_and_assets())
        self.torso = physics.model.name2id("torso", "body")
        return physics

    def begin(self, seed: int) -> None:
        from dm_control.suite import cheetah

        with self.physics.reset_context():
            cheetah.Cheetah(random=seed).initialize_episode(self.physics)

    def observe(self, now: Views) -> np.ndarray:
        return np.concatenate([now.qpos[:, 1:], now.qvel], axis=1)

    def measure(self, data: Any) -> Sequence[float]:
        mujoco = self.mujoco
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        mujoco.mj_comVel(self.model, data)
        mujoco.mj_subtreeVel(self.model, data)
        return (data.subtree_linvel[self.torso, 0],)

    def place(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, [8, 0]]


class Quadruped(Domain):
    parts = (
        ("egocentric_state", (44,)),
        ("torso_velocity", (3,)),
        ("torso_upright", (1,)),
        ("imu", (6,)),
        ("force_torque", (24,)),
    )
    rewards = {  # noqa: RUF012
        "stand": quadruped_stand,
        "walk": quadruped_walk,
        "run": quadruped_run,
        "jump": quadruped_jump,
    }
    substeps = 4
    camera = 2
    axes = ("forward speed in the torso's frame", "uprightness of the torso")

    def build(self) -> Any:
        from dm_control.suite import common, quadruped

        mujoco = self.mujoco
        # Floors are infinite to the physics whatever their size; this is the size drawn for the fastest task.
        physics = quadruped.Physics.from_xml_string(quadruped.make_model(floor_size=100), common.ASSETS)
        model = physics.model.ptr
        self.torso = physics.model.name2id("torso", "body")
        self.velocimeter = model.sensor("velocimeter")
        self.site = mujoco.mjtObj.mjOBJ_SITE
        hinges = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)
        self.hinge_positions, self.hinge_velocities = model.jnt_qposadr[hinges], model.jnt_dofadr[hinges]
        kinds = mujoco.mjtSensor
        self.imu = _sensor_columns(model, kinds.mjSENS_GYRO, kinds.mjSENS_ACCELEROMETER)
        self.force_torque = _sensor_columns(model, kinds.mjSENS_FORCE, kinds.mjSENS_TORQUE)
        return physics

    def begin(self, seed: int) -> None:
        from dm_control.suite import quadruped

        with self.physics.reset_context():
            quadruped.Move(desired_speed=0, random=seed).initialize_episode(self.physics)

    def observe(self, now: Views) -> np.ndarray:
        sensors, speed_at = now.sensordata, int(self.velocimeter.adr[0])
        return np.concatenate(
            [
                now.qpos[:, self.hinge_positions],
                now.qvel[:, self.hinge_velocities],
                now.act,
                sensors[:, speed_at : speed_at + 3],
                now.xmat[:, self.torso, 8:],
                sensors[:, self.imu],
                np.arcsinh(sensors[:, self.force_torque]),
            ],
            axis=1,
        )

    def measure(self, data: Any) -> Sequence[float]:
        mujoco = self.mujoco
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        mujoco.mj_comVel(self.model, data)
        velocity = np.zeros(6)  # turning, then moving
        mujoco.mj_objectVelocity(self.model, data, self.site, int(self.velocimeter.objid[0]), velocity, 1)
        return data.xmat[self.torso, 8], velocity[3], data.subtree_com[self.torso, 2]

    def place(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, [44, 47]]


class Jaco(Domain):
    parts = (
        ("arm_joints_pos", (6, 2)),
        ("arm_joints_torque", (6,)),
        ("arm_joints_vel", (6,)),
        ("hand_joints_pos", (3,)),
        ("hand_joints_vel", (3,)),
        ("pinch_site_pos", (3,)),
        ("pinch_site_rmat", (9,)),
    )
    rewards = {name: _reach(target) for name, target in JACO_TARGETS.items()}  # noqa: RUF012
    substeps = 20
    max_steps = 250
    score_scale = 4.0
    camera = "front_close"
    axes = ("x of the pinch", "y of the pinch")

    def build(self) -> Any:
        from dm_control import composer, mjcf
        from dm_control.composer import initializers
        from dm_control.composer.variation import distributions
        from dm_control.manipulation.shared import arenas, cameras, observations, robots, workspaces

        arena = arenas.Standard()
        self.arm = robots.make_arm(observations.PERFECT_FEATURES)
        self.hand = robots.make_hand(observations.PERFECT_FEATURES)
        self.arm.attach(self.hand)
        arena.attach_offset(self.arm, offset=robots.ARM_OFFSET)
        arena.mjcf_model.worldbody.add("camera", **cameras.FRONT_CLOSE._asdict())
        for name, target in JACO_TARGETS.items():
            site = workspaces.add_target_site(
                arena.mjcf_model.worldbody, JACO_TARGET_RADIUS, visible=True, rgba=(1.0, 0.0, 0.0, 0.3), name=name
            )
            site.pos = target
        self.initializer = initializers.ToolCenterPointInitializer(
            self.hand,
            self.arm,
            position=distributions.Uniform((-0.2, -0.2, 0.02), (0.2, 0.2, 0.4)),
            quaternion=workspaces.DOWN_QUATERNION,
        )
        self.failure = composer.EpisodeInitializationError
        physics = mjcf.Physics.from_mjcf_model(arena.mjcf_model)
        model = physics.model.ptr
        self.pinch = physics.bind(self.hand.pinch_site).element_id
        self.arm_joints = np.asarray(physics.bind(self.arm.joints).element_id)
        self.hand_joints = np.asarray(physics.bind(self.hand.joints).element_id)
        sensors = physics.bind(self.arm.joint_torque_sensors).element_id
        self.torques = np.asarray([np.arange(3) + model.sensor_adr[sensor] for sensor in sensors])
        self.axes_of_joints = model.jnt_axis[self.arm_joints].copy()
        return physics

    def begin(self, seed: int) -> None:
        random = np.random.RandomState(seed)  # what dm_control's initializers take
        while True:
            try:
                with _without_warnings("absl"), self.physics.reset_context():
                    self.hand.set_grasp(self.physics, close_factors=random.uniform())
                    self.initializer(self.physics, random)
                return
            except self.failure:  # no pose without a collision was found: draw again, as dm_control does
                continue

    def observe(self, now: Views) -> np.ndarray:
        positions, velocities = now.qpos, now.qvel  # every joint is a hinge: its row is its number
        angles = positions[:, self.arm_joints]
        torque = np.einsum("nij,ij->ni", now.sensordata[:, self.torques], self.axes_of_joints)
        return np.concatenate(
            [
                np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(angles), -1),
                np.sign(torque) * np.log1p(np.abs(torque)),
                velocities[:, self.arm_joints],
                positions[:, self.hand_joints],
                velocities[:, self.hand_joints],
                now.site_xpos[:, self.pinch],
                now.site_xmat[:, self.pinch],
            ],
            axis=1,
        )

    def measure(self, data: Any) -> Sequence[float]:
        mujoco = self.mujoco
        mujoco.mj_kinematics(self.model, data)
        return tuple(data.site_xpos[self.pinch])

    def place(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, [30, 31]]


@contextmanager
def _without_warnings(logger: str) -> Iterator[None]:
    """Inverse kinematics warns of every pose that it cannot reach, and then tries another."""
    talker = logging.getLogger(logger)
    before = talker.level
    talker.setLevel(logging.ERROR)
    try:
        yield
    finally:
        talker.setLevel(before)


def _sensor_columns(model: Any, *kinds: Any) -> np.ndarray:
    """The columns of sensordata of all sensors of these kinds, in the model's order."""
    chosen = np.flatnonzero(np.isin(model.sensor_type, [int(kind) for kind in kinds]))
    return np.concatenate([np.arange(model.sensor_dim[s]) + model.sensor_adr[s] for s in chosen])


DOMAINS: dict[str, type[Domain]] = {"walker": Walker, "cheetah": Cheetah, "quadruped": Quadruped, "jaco": Jaco}
NAMES = tuple(DOMAINS)
TASKS = tuple(f"{name}_{reward}" for name, domain in DOMAINS.items() for reward in domain.rewards)


# ---- the task --------------------------------------------------------------------------------------------------------


class Dmc:
    """A robot in its world, with one or all of its rewards. `threads` simulate side by side."""

    family = "dmc"
    has_goals = False
    extra_columns: tuple[str, ...] = ("physics",)
    potentials: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {}

    def __init__(self, name: str, rewards: Sequence[str], threads: int | None = None) -> None:
        self.name = name
        self.domain_name = name.partition("_")[0]
        self.kind = DOMAINS[self.domain_name]
        self.max_steps, self.score_scale = self.kind.max_steps, self.kind.score_scale
        self.observation_parts = self.kind.parts
        self.observation_dim = sum(int(np.prod(shape)) for _, shape in self.kind.parts)
        self.rewards: Mapping[str, RewardFunction] = {reward: self._labels(reward) for reward in rewards}
        self.threads = threads or _cores()

    @cached_property
    def domain(self) -> Domain:
        return self.kind()

    @cached_property
    def action_dim(self) -> int:
        return int(self.domain.model.nu)

    @cached_property
    def physics_dim(self) -> int:
        model = self.domain.model
        return int(model.nq + model.nv + model.na)

    @property
    def fps(self) -> float:
        """Steps of control in a second."""
        return float(1 / (self.domain.substeps * self.domain.model.opt.timestep))

    @cached_property
    def pool(self) -> ThreadPoolExecutor | None:
        """The threads that simulate; None where one is all there is."""
        return ThreadPoolExecutor(self.threads, "hilp-dmc") if self.threads > 1 else None

    def _labels(self, name: str) -> RewardFunction:
        def reward(s: np.ndarray, a: np.ndarray, s2: np.ndarray, extras: Any) -> np.ndarray:
            return self.reward_of(extras.after("physics"), name)

        return reward

    def reward_of(self, physics: np.ndarray, name: str) -> np.ndarray:
        """The reward [n] of being in these physics states [n, p], as the simulator pays it after a step."""
        if name not in self.kind.rewards:
            raise HilpError(f"{self.domain_name} has no reward '{name}': {nearest(name, self.kind.rewards)}")
        return self.kind.rewards[name](*self.measure(physics).T)

    def measure(self, physics: np.ndarray) -> np.ndarray:
        """What rewards are made of [n, k], e.g. height, uprightness, speed and spin for the walker."""
        states, domain = self._states(physics), self.domain
        data = domain.mujoco.MjData(domain.model)
        state = _StateOf(domain.model, data)
        rows = []
        for row in states:
            state.set(row)
            rows.append(domain.measure(data))
        return np.array(rows, np.float64).reshape(len(states), -1)

    def _states(self, physics: np.ndarray) -> np.ndarray:
        states = np.asarray(physics, np.float64)
        if states.ndim != 2 or states.shape[1] != self.physics_dim:
            raise HilpError(
                f"physics of {self.domain_name} has {self.physics_dim} numbers a state, not shape {states.shape}"
            )
        return states

    def episodes(
        self, rng: np.random.Generator, n: int, start: np.ndarray | None = None, goal: np.ndarray | None = None
    ) -> DmcEpisodes:
        """n episodes from random starts, or all from one physics state."""
        if goal is not None:
            raise HilpError(f"{self.name} has rewards and no goals: prompt with one of {', '.join(self.rewards)}")
        return DmcEpisodes(self, [self._begin(int(rng.integers(2**32)), start) for _ in range(n)])

    def _begin(self, seed: int, start: np.ndarray | None) -> Any:
        domain = self.domain
        if start is None:
            domain.begin(seed)
            return copy.copy(domain.physics.data.ptr)
        data = domain.mujoco.MjData(domain.model)
        _StateOf(domain.model, data).set(self._states(np.asarray(start)[None])[0])
        with domain.physics.model.disable("actuation"):  # there is no action yet, as after a reset
            domain.mujoco.mj_forward(domain.model, data)
        return data

    def for_data(self, first: np.ndarray) -> Dmc:
        return self

    def potential_max(self, name: str) -> float:
        raise HilpError(f"{self.name} has no potentials: prompt with one of its rewards, {', '.join(self.rewards)}")

    def best_return(self, name: str, observations: np.ndarray, steps: int) -> np.ndarray | None:
        """Nobody knows; a reward is at most 1 a step."""
        return None

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray:
        raise HilpError(f"{self.name} has no goals: prompt with one of its rewards, {', '.join(self.rewards)}")

    def finite(self) -> Finite | None:
        return None

    def draw(self, ax: Axes) -> None:
        """Name the axes that `place` uses."""
        x, y = self.kind.axes
        ax.set_xlabel(x)
        ax.set_ylabel(y)

    def place(self, observations: np.ndarray) -> np.ndarray:
        """Two telling numbers of each observation: what robots do has no place on a map."""
        return self.domain.place(np.asarray(observations))

    def film(self, observations: np.ndarray, physics: np.ndarray) -> np.ndarray:
        """Frames of an episode for people to look at."""
        return self.frames(physics, (240, 320))

    def frames(
        self, physics: np.ndarray, size: tuple[int, int] = (64, 64), camera: int | str | None = None
    ) -> np.ndarray:
        """Pictures uint8 [t, height, width, 3] of physics states [t, p], without shadows and reflections."""
        states, (height, width) = self._states(physics), size
        domain, mujoco = self.domain, self.domain.mujoco
        model, data = domain.model, mujoco.MjData(domain.model)
        try:
            view = model.camera(domain.camera if camera is None else camera).id
        except (KeyError, IndexError) as error:
            named = [model.camera(number).name for number in range(model.ncam)]
            raise HilpError(f"{self.domain_name} has no camera {camera!r}: {nearest(str(camera), named)}") from error
        state, pictures = _StateOf(model, data), np.empty((len(states), height, width, 3), np.uint8)
        with _drawing(mujoco, model, height, width) as draw:
            for row, picture in zip(states, pictures, strict=True):
                state.set(row)
                mujoco.mj_kinematics(model, data)
                mujoco.mj_comPos(model, data)
                mujoco.mj_camlight(model, data)
                draw(data, view, picture)
        return pictures


@contextmanager
def _drawing(mujoco: Any, model: Any, height: int, width: int) -> Iterator[Callable[[Any, int, np.ndarray], None]]:
    """A function (data, camera, picture) that fills the picture. What costs most time and shows least is off."""
    model.vis.quality.offsamples = 0
    model.vis.global_.offheight = max(model.vis.global_.offheight, height)
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
    scene, area, camera = mujoco.MjvScene(model, maxgeom=1000), mujoco.MjrRect(0, 0, width, height), mujoco.MjvCamera()
    for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
        scene.flags[flag] = 0
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
    try:
        if os.environ.get("MUJOCO_GL") == "egl":  # also where MuJoCo was imported before that was set
            from mujoco.egl import GLContext
        else:
            from mujoco import GLContext
        screen = GLContext(width, height)
        screen.make_current()
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
    except Exception as error:  # each GL library fails in its own way
        raise HilpError(
            f"there is nothing to render with ({error}): install EGL (Debian: libegl1) and set MUJOCO_GL=egl"
        ) from error
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)

    def draw(data: Any, view: int, picture: np.ndarray) -> None:
        camera.fixedcamid = view
        mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
        mujoco.mjr_render(area, scene, context)
        mujoco.mjr_readPixels(picture, None, area, context)
        picture[:] = picture[::-1].copy()  # OpenGL counts rows from the bottom

    try:
        yield draw
    finally:
        context.free()
        screen.free()


class DmcEpisodes:
    """n episodes running side by side."""

    def __init__(self, task: Dmc, simulations: list[Any]) -> None:
        self.task = task
        self._simulations = simulations
        self._views = Views(simulations)
        low, high = task.domain.model.actuator_ctrlrange.T
        self._low, self._half_range = low, (high - low) / 2
        parts = min(task.threads, len(simulations))
        self._shares = [range(len(simulations))[part::parts] for part in range(parts)]
        self.goals = np.full((len(simulations), task.observation_dim), np.nan, np.float32)
        self._observe()

    def _observe(self) -> None:
        self.observations = self.task.domain.observe(self._views).astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
        """One step of control with actions [n, act] inside [-1, 1]."""
        controls = self._low + self._half_range * (np.clip(np.asarray(actions, np.float64), -1, 1) + 1)
        if self.task.pool is None:
            self._advance(self._shares[0], controls)
        else:
            list(self.task.pool.map(lambda share: self._advance(share, controls), self._shares))
        self._observe()

    def _advance(self, share: range, controls: np.ndarray) -> None:
        mujoco = self.task.domain.mujoco
        model, more = self.task.domain.model, self.task.domain.substeps - 1
        for number in share:
            data = self._simulations[number]
            data.ctrl[:] = controls[number]
            mujoco.mj_step2(model, data)
            if more:
                mujoco.mj_step(model, data, more)
            mujoco.mj_step1(model, data)

    def extra(self, name: str) -> np.ndarray:
        """ "physics" [n, p]: positions, velocities and activations, from which rewards and pictures are made."""
        if name != "physics":
            raise HilpError(f"{self.task.name} has no extra column '{name}': {nearest(name, ['physics'])}")
        return np.concatenate([self._views.qpos, self._views.qvel, self._views.act], axis=1)

    def reached(self) -> np.ndarray:
        return np.zeros(len(self._simulations), bool)


class _StateOf:
    """Writes a physics state into a simulation."""

    def __init__(self, model: Any, data: Any) -> None:
        self._qpos, self._qvel, self._act = data.qpos, data.qvel, data.act
        self._cuts = (model.nq, model.nq + model.nv)

    def set(self, state: np.ndarray) -> None:
        first, second = self._cuts
        self._qpos[:], self._qvel[:], self._act[:] = state[:first], state[first:second], state[second:]


def make(name: str, threads: int | None = None) -> Dmc:
    """A domain ("walker") with all its rewards, or a task ("walker_run") with its own."""
    if name in NAMES:
        return Dmc(name, tuple(DOMAINS[name].rewards), threads)
    if name in TASKS:
        return Dmc(name, (name.partition("_")[2],), threads)
    raise HilpError(f"unknown DeepMind Control task '{name}': {nearest(name, (*NAMES, *TASKS))}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
