"""The robots: walker, cheetah, quadruped and the Jaco arm. Models, resets and control rates are dm_control's own.

Rewards are functions of what a domain measures, for many states at once. Where dm_control's suite has no such task
(walker flip, cheetah backward, quadruped jump, ...) the reward is written here, on what the shipped model measures.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from hilp.data.transforms import Parts
from hilp.tasks.base import import_simulator

Reward = Callable[..., np.ndarray]


def at_least(x: np.ndarray, bound: float, margin: float, value: float) -> np.ndarray:
    """1 from the bound on, falling linearly to `value` at `margin` below it, and on to 0."""
    return np.clip(1 - (bound - x) / margin * (1 - value), 0.0, 1.0)


def near(distance: np.ndarray, margin: float) -> np.ndarray:
    """1 up to distance 0, falling as a Gaussian to 0.1 at `margin`."""
    away = np.maximum(distance, 0.0) / margin
    return np.exp(away**2 * np.log(0.1))


def standing(height: np.ndarray, upright: np.ndarray) -> np.ndarray:
    """How much a walker stands, from 0 to 1."""
    return (3 * near(1.2 - height, 0.6) + (1 + upright) / 2) / 4


def moving(height: np.ndarray, upright: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """The reward of a walker for a rate of moving that counts while it stands."""
    return standing(height, upright) * (5 * rate + 1) / 6


WALKER: dict[str, Reward] = {
    "stand": lambda height, upright, speed, spin: standing(height, upright),
    "walk": lambda height, upright, speed, spin: moving(height, upright, at_least(speed, 1.0, 0.5, 0.5)),
    "run": lambda height, upright, speed, spin: moving(height, upright, at_least(speed, 8.0, 4.0, 0.5)),
    "flip": lambda height, upright, speed, spin: moving(height, upright, at_least(spin, 5.0, 5.0, 0.0)),
}
CHEETAH: dict[str, Reward] = {
    "run": lambda speed: at_least(speed, 10.0, 10.0, 0.0),
    "run_backward": lambda speed: at_least(-speed, 10.0, 10.0, 0.0),
    "walk": lambda speed: at_least(speed, 2.0, 2.0, 0.0),
    "walk_backward": lambda speed: at_least(-speed, 2.0, 2.0, 0.0),
}
QUADRUPED: dict[str, Reward] = {  # that counts while it is upright
    "stand": lambda upright, speed, height: at_least(upright, 1.0, 2.0, 0.0),
    "walk": lambda upright, speed, height: at_least(upright, 1.0, 2.0, 0.0) * at_least(speed, 0.5, 0.5, 0.5),
    "run": lambda upright, speed, height: at_least(upright, 1.0, 2.0, 0.0) * at_least(speed, 5.0, 5.0, 0.5),
    "jump": lambda upright, speed, height: at_least(upright, 1.0, 2.0, 0.0) * at_least(height, 1.0, 1.0, 0.5),
}
JACO_TARGETS = {
    f"reach_{vertical}_{side}": np.array([0.09 * x, 0.09 * y, 0.001])
    for vertical, y in (("top", 1), ("bottom", -1))
    for side, x in (("left", -1), ("right", 1))
}
JACO_TARGET_RADIUS = 0.05


def reach(target: np.ndarray, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The reward of holding the pinch at a target."""
    distance = np.linalg.norm(np.stack([x, y, z], axis=-1) - target, axis=-1)
    return near(distance - JACO_TARGET_RADIUS, JACO_TARGET_RADIUS)


JACO: dict[str, Reward] = {name: partial(reach, target) for name, target in JACO_TARGETS.items()}


class Arrays:
    """The arrays of n simulations by their MuJoCo names, stacked on access: [n, ...]."""

    def __init__(self, simulations: Sequence[Any]) -> None:
        self._simulations = simulations
        self._found: dict[str, list[np.ndarray]] = {}  # MuJoCo updates them in place

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in self._found:
            self._found[name] = [getattr(data, name) for data in self._simulations]
        return np.array(self._found[name])


class Domain:
    """One robot: its compiled model, how an episode begins, what is observed and what rewards measure."""

    parts: Parts  # of the observation
    rewards: Mapping[str, Callable[..., np.ndarray]]  # of the columns of `measure`
    substeps: int  # of the physics in a step of control
    max_steps = 1000
    score_scale = 1.0  # of returns in aggregates: what makes the shorter episodes of the arm count as much
    task: tuple[str, dict[str, Any]]  # of the suite's module: a class that begins episodes, and its arguments
    camera: int | str = 0
    axes: Mapping[str, int]  # the two columns of an observation that pictures show, by what they are
    observe: Callable[[Arrays], Sequence[np.ndarray]]  # the parts [n, k] of observations, which stand side by side
    speed: int | None = None  # the number of `measure` that is the forward speed
    measure: Callable[[Any], Sequence[float]]  # what rewards are made of, from qpos and qvel: by the stages it takes

    def __init__(self) -> None:
        import_simulator("a DeepMind Control task", "dm_control.suite")  # `build` will want it
        self.mujoco = import_simulator("a DeepMind Control task")
        self.physics = self.build()  # dm_control's; only used to begin episodes
        self.model = self.physics.model.ptr

    @property
    def suite(self) -> Any:
        """The module of dm_control's suite, where the robot is one of its own."""
        return import_simulator("a DeepMind Control task", f"dm_control.suite.{type(self).__name__.lower()}")

    def build(self) -> Any:
        """dm_control's physics of this robot."""
        physics = self.suite.Physics.from_xml_string(*self.suite.get_model_and_assets())
        self.torso = physics.model.name2id("torso", "body")
        return physics

    def begin(self, seed: int) -> None:
        """Put the physics to the start of a random episode."""
        name, values = self.task
        with self.physics.reset_context():
            getattr(self.suite, name)(**values, random=seed).initialize_episode(self.physics)

    def putting(self, *stages: Callable[[Any, Any], None]) -> Callable[[np.ndarray], Any]:
        """A function that puts a physics state (positions, velocities, activations) into a simulation of its own.

        It then runs these stages of the physics.
        """
        data, cuts = self.mujoco.MjData(self.model), (self.model.nq, self.model.nq + self.model.nv)

        def put(state: np.ndarray) -> Any:
            data.qpos[:], data.qvel[:], data.act[:] = np.split(state, cuts)
            for stage in stages:
                stage(self.model, data)
            return data

        return put

    def compute_speeds(self, data: Any, *more: Callable[[Any, Any], None]) -> None:
        """Positions and velocities of all bodies, from qpos and qvel; then more stages of the physics."""
        for stage in (self.mujoco.mj_kinematics, self.mujoco.mj_comPos, self.mujoco.mj_comVel, *more):
            stage(self.model, data)


class Walker(Domain):
    parts = (("orientations", (14,)), ("height", (1,)), ("velocity", (9,)))
    rewards = WALKER
    speed = 2
    task = ("PlanarWalker", {"move_speed": 0})
    substeps = 10
    axes = {"forward speed of the torso": 16, "height of the torso": 14}  # noqa: RUF012

    def observe(self, now: Arrays) -> Sequence[np.ndarray]:
        planar = now.xmat[:, 1:, [0, 2]]  # the x axis of each body, in the plane it moves in
        return planar.reshape(len(planar), -1), now.xpos[:, self.torso, 2:], now.qvel

    def measure(self, data: Any) -> Sequence[float]:
        self.compute_speeds(data, self.mujoco.mj_subtreeVel)
        at = self.torso
        return data.xpos[at, 2], data.xmat[at, 8], data.subtree_linvel[at, 0], data.subtree_angmom[at, 1]


class Cheetah(Domain):
    parts = (("position", (8,)), ("velocity", (9,)))
    rewards = CHEETAH
    speed = 0
    task = ("Cheetah", {})
    substeps = 1
    axes = {"forward speed of the torso": 8, "height of the torso over its place at rest": 0}  # noqa: RUF012

    def observe(self, now: Arrays) -> Sequence[np.ndarray]:
        return now.qpos[:, 1:], now.qvel

    def measure(self, data: Any) -> Sequence[float]:
        self.compute_speeds(data, self.mujoco.mj_subtreeVel)
        return (data.subtree_linvel[self.torso, 0],)


class Quadruped(Domain):
    parts = (
        ("egocentric_state", (44,)),
        ("torso_velocity", (3,)),
        ("torso_upright", (1,)),
        ("imu", (6,)),
        ("force_torque", (24,)),
    )
    rewards = QUADRUPED
    speed = 1
    task = ("Move", {"desired_speed": 0})
    substeps = 4
    camera = 2
    axes = {"forward speed in the torso's frame": 44, "uprightness of the torso": 47}  # noqa: RUF012

    def build(self) -> Any:
        from dm_control.suite import common

        mujoco = self.mujoco
        # Floors are infinite to the physics whatever their size; this is the size drawn for the fastest task.
        physics = self.suite.Physics.from_xml_string(self.suite.make_model(floor_size=100), common.ASSETS)
        model = physics.model.ptr
        self.torso = physics.model.name2id("torso", "body")
        self.velocimeter = model.sensor("velocimeter")
        hinges = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)
        self.hinge_positions, self.hinge_velocities = model.jnt_qposadr[hinges], model.jnt_dofadr[hinges]
        kinds = mujoco.mjtSensor
        self.imu = _sensor_columns(model, kinds.mjSENS_GYRO, kinds.mjSENS_ACCELEROMETER)
        self.force_torque = _sensor_columns(model, kinds.mjSENS_FORCE, kinds.mjSENS_TORQUE)
        return physics

    def observe(self, now: Arrays) -> Sequence[np.ndarray]:
        sensors, speed_at = now.sensordata, int(self.velocimeter.adr[0])
        return (
            now.qpos[:, self.hinge_positions],
            now.qvel[:, self.hinge_velocities],
            now.act,
            sensors[:, speed_at : speed_at + 3],
            now.xmat[:, self.torso, 8:],
            sensors[:, self.imu],
            np.arcsinh(sensors[:, self.force_torque]),
        )

    def measure(self, data: Any) -> Sequence[float]:
        self.compute_speeds(data)
        velocity = np.zeros(6)  # turning, then moving
        site = self.mujoco.mjtObj.mjOBJ_SITE
        self.mujoco.mj_objectVelocity(self.model, data, site, int(self.velocimeter.objid[0]), velocity, 1)
        return data.xmat[self.torso, 8], velocity[3], data.subtree_com[self.torso, 2]


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
    rewards = JACO
    substeps = 20
    max_steps = 250
    score_scale = 4.0
    camera = "front_close"
    axes = {"x of the pinch": 30, "y of the pinch": 31}  # noqa: RUF012

    def build(self) -> Any:
        from dm_control import composer, mjcf
        from dm_control.composer import initializers
        from dm_control.composer.variation import distributions
        from dm_control.manipulation.shared import arenas, cameras, observations, robots, workspaces

        arena = arenas.Standard()
        world = arena.mjcf_model.worldbody
        self.arm = robots.make_arm(observations.PERFECT_FEATURES)
        self.hand = robots.make_hand(observations.PERFECT_FEATURES)
        self.arm.attach(self.hand)
        arena.attach_offset(self.arm, offset=robots.ARM_OFFSET)
        world.add("camera", **cameras.FRONT_CLOSE._asdict())
        for name, target in JACO_TARGETS.items():
            site = workspaces.add_target_site(world, JACO_TARGET_RADIUS, visible=True, rgba=(1, 0, 0, 0.3), name=name)
            site.pos = target
        places, down = distributions.Uniform((-0.2, -0.2, 0.02), (0.2, 0.2, 0.4)), workspaces.DOWN_QUATERNION
        self.initializer = initializers.ToolCenterPointInitializer(self.hand, self.arm, places, down)
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
        talker = logging.getLogger("absl")  # inverse kinematics warns of every pose that it cannot reach
        with ExitStack() as stack:
            stack.callback(talker.setLevel, talker.level)
            talker.setLevel(logging.ERROR)
            while True:
                try:
                    with self.physics.reset_context():
                        self.hand.set_grasp(self.physics, close_factors=random.uniform())
                        self.initializer(self.physics, random)
                    return
                except self.failure:  # no pose without a collision was found: draw again, as dm_control does
                    continue

    def observe(self, now: Arrays) -> Sequence[np.ndarray]:
        positions, velocities = now.qpos, now.qvel  # every joint is a hinge: its row is its number
        angles = positions[:, self.arm_joints]
        torque = np.einsum("nij,ij->ni", now.sensordata[:, self.torques], self.axes_of_joints)
        return (
            np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(angles), -1),
            np.sign(torque) * np.log1p(np.abs(torque)),
            velocities[:, self.arm_joints],
            positions[:, self.hand_joints],
            velocities[:, self.hand_joints],
            now.site_xpos[:, self.pinch],
            now.site_xmat[:, self.pinch],
        )

    def measure(self, data: Any) -> Sequence[float]:
        self.mujoco.mj_kinematics(self.model, data)
        return tuple(data.site_xpos[self.pinch])


def _sensor_columns(model: Any, *kinds: Any) -> np.ndarray:
    """The columns of sensordata of all sensors of these kinds, in the model's order."""
    chosen = np.flatnonzero(np.isin(model.sensor_type, [int(kind) for kind in kinds]))
    return np.concatenate([np.arange(model.sensor_dim[s]) + model.sensor_adr[s] for s in chosen])


DOMAINS: dict[str, type[Domain]] = {"walker": Walker, "cheetah": Cheetah, "quadruped": Quadruped, "jaco": Jaco}
NAMES = tuple(DOMAINS)
TASKS = tuple(f"{name}_{reward}" for name, domain in DOMAINS.items() for reward in domain.rewards)
