"""The robots: walker, cheetah, quadruped and the Jaco arm. Models, resets and control rates are dm_control's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hilp.tasks.dmc import rewards
from hilp.tasks.simulator import import_simulator

Parts = tuple[tuple[str, tuple[int, ...]], ...]


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
    camera: int | str = 0
    axes: Mapping[str, int]  # the two columns of an observation that pictures show, by what they are

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

    def observe(self, now: Arrays) -> np.ndarray:
        """Observations [n, obs], parts side by side."""
        raise NotImplementedError

    def measure(self, data: Any) -> Sequence[float]:
        """What rewards are made of, from qpos and qvel alone: only the stages of the physics that it takes."""
        raise NotImplementedError

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

    def compute_speeds(self, data: Any) -> None:
        """Positions and velocities of all bodies, from qpos and qvel."""
        self.mujoco.mj_kinematics(self.model, data)
        self.mujoco.mj_comPos(self.model, data)
        self.mujoco.mj_comVel(self.model, data)


class SuiteDomain(Domain):
    """A robot of dm_control's suite: a module with a `Physics`, and a task that begins its episodes."""

    task: tuple[str, dict[str, Any]]  # a class of the module, and its arguments

    @property
    def suite(self) -> Any:
        return import_simulator("a DeepMind Control task", f"dm_control.suite.{type(self).__name__.lower()}")

    def build(self) -> Any:
        physics = self.suite.Physics.from_xml_string(*self.suite.get_model_and_assets())
        self.torso = physics.model.name2id("torso", "body")
        return physics

    def begin(self, seed: int) -> None:
        name, values = self.task
        with self.physics.reset_context():
            getattr(self.suite, name)(**values, random=seed).initialize_episode(self.physics)


class Walker(SuiteDomain):
    parts = (("orientations", (14,)), ("height", (1,)), ("velocity", (9,)))
    rewards = rewards.WALKER
    task = ("PlanarWalker", {"move_speed": 0})
    substeps = 10
    axes = {"forward speed of the torso": 16, "height of the torso": 14}  # noqa: RUF012

    def observe(self, now: Arrays) -> np.ndarray:
        planar = now.xmat[:, 1:, [0, 2]]  # the x axis of each body, in the plane it moves in
        return np.concatenate([planar.reshape(len(planar), -1), now.xpos[:, self.torso, 2:], now.qvel], axis=1)

    def measure(self, data: Any) -> Sequence[float]:
        self.compute_speeds(data)
        self.mujoco.mj_subtreeVel(self.model, data)
        at = self.torso
        return data.xpos[at, 2], data.xmat[at, 8], data.subtree_linvel[at, 0], data.subtree_angmom[at, 1]


class Cheetah(SuiteDomain):
    parts = (("position", (8,)), ("velocity", (9,)))
    rewards = rewards.CHEETAH
    task = ("Cheetah", {})
    substeps = 1
    axes = {"forward speed of the torso": 8, "height of the torso over its place at rest": 0}  # noqa: RUF012

    def observe(self, now: Arrays) -> np.ndarray:
        return np.concatenate([now.qpos[:, 1:], now.qvel], axis=1)

    def measure(self, data: Any) -> Sequence[float]:
        self.compute_speeds(data)
        self.mujoco.mj_subtreeVel(self.model, data)
        return (data.subtree_linvel[self.torso, 0],)


class Quadruped(SuiteDomain):
    parts = (
        ("egocentric_state", (44,)),
        ("torso_velocity", (3,)),
        ("torso_upright", (1,)),
        ("imu", (6,)),
        ("force_torque", (24,)),
    )
    rewards = rewards.QUADRUPED
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

    def observe(self, now: Arrays) -> np.ndarray:
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
    rewards = rewards.JACO
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
        self.arm = robots.make_arm(observations.PERFECT_FEATURES)
        self.hand = robots.make_hand(observations.PERFECT_FEATURES)
        self.arm.attach(self.hand)
        arena.attach_offset(self.arm, offset=robots.ARM_OFFSET)
        arena.mjcf_model.worldbody.add("camera", **cameras.FRONT_CLOSE._asdict())
        for name, target in rewards.JACO_TARGETS.items():
            site = workspaces.add_target_site(
                arena.mjcf_model.worldbody,
                rewards.JACO_TARGET_RADIUS,
                visible=True,
                rgba=(1.0, 0.0, 0.0, 0.3),
                name=name,
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

    def observe(self, now: Arrays) -> np.ndarray:
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
        self.mujoco.mj_kinematics(self.model, data)
        return tuple(data.site_xpos[self.pinch])


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
