"""DeepMind Control tasks against dm_control itself, and rewards against formulas written out from live sensors."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from hilp.data.dataset import Dataset
from hilp.data.rewards import Extras
from hilp.errors import HilpError

pytest.importorskip("dm_control", reason="pip install 'hilp[mujoco]'")

from hilp.report import video
from hilp.tasks import dmc

STEPS = 120
SIZES = {  # of observations, actions, physics and episodes
    "walker": (24, 6, 18, 1000),
    "cheetah": (17, 6, 18, 1000),
    "quadruped": (78, 12, 57, 1000),
    "jaco": (42, 9, 18, 250),
}


def first_seed(seed: int) -> int:
    """The seed that the first episode begins with."""
    return int(np.random.default_rng(seed).integers(2**32))


def suite_environment(domain: str, task: str, seed: int):
    from dm_control import suite
    from dm_control.suite.wrappers import action_scale

    environment = suite.load(domain, task, task_kwargs={"random": first_seed(seed)})
    return action_scale.Wrapper(environment, minimum=-1.0, maximum=1.0)


def flat(time_step) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in time_step.observation.values()])


def lively_actions(action_dim: int, steps: int) -> np.ndarray:
    """Random actions that last, so that robots get somewhere."""
    rng = np.random.default_rng(7)
    return np.repeat(rng.uniform(-1, 1, (-(-steps // 8), action_dim)), 8, axis=0)[:steps]


def linear(x: float, low: float, margin: float, value: float) -> float:
    if x >= low:
        return 1.0
    return max(0.0, 1.0 - (low - x) / margin * (1.0 - value))


@pytest.fixture(scope="module")
def worlds() -> dict[str, dmc.Dmc]:
    made = {name: dmc.make(name) for name in dmc.NAMES}
    for world in made.values():
        assert world.domain  # built before a test imports dm_control, which would then ask for a screen
    return made


# ---- against the suite -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*in1d.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("domain", "task"),
    [
        ("walker", "stand"),
        ("walker", "walk"),
        ("walker", "run"),
        ("cheetah", "run"),
        ("quadruped", "walk"),
        ("quadruped", "run"),
    ],
)
def test_rollout_is_the_suites(worlds, domain, task):
    """Starts, observations and rewards, all along a rollout, are those of dm_control's own task."""
    world, environment = worlds[domain], suite_environment(domain, task, seed=3)
    episodes = world.episodes(np.random.default_rng(3), 2)
    now, rewards, physics = environment.reset(), [], []
    np.testing.assert_allclose(episodes.observations[0], flat(now), rtol=1e-6, atol=1e-6)
    for action in lively_actions(world.action_dim, STEPS):
        now = environment.step(action)
        episodes.step(np.stack([action, action]))
        np.testing.assert_allclose(episodes.observations[0], flat(now), rtol=1e-5, atol=1e-5)
        rewards.append(now.reward)
        physics.append(environment.physics.get_state())
        np.testing.assert_array_equal(episodes.extra("physics")[0], physics[-1])
    np.testing.assert_allclose(world.reward_of(np.array(physics), task), rewards, atol=1e-12)
    assert np.ptp(rewards) > 1e-3  # a reward that never changes would prove nothing


@pytest.mark.parametrize("domain", ["walker", "cheetah", "quadruped"])
def test_episodes_are_as_long_as_the_suites(worlds, domain):
    environment = suite_environment(domain, "run", seed=0)
    assert environment._step_limit == worlds[domain].max_steps == 1000


# ---- rewards the suite does not have ---------------------------------------------------------------------------------


def test_walker_flip(worlds):
    world, environment = worlds["walker"], suite_environment("walker", "stand", seed=1)
    environment.reset()
    expected, physics = [], []
    for action in lively_actions(6, STEPS):
        stand = environment.step(action).reward
        spin = float(environment.physics.named.data.subtree_angmom["torso", 1])
        expected.append(stand * (5 * linear(spin, 5, 5, 0) + 1) / 6)
        physics.append(environment.physics.get_state())
    np.testing.assert_allclose(world.reward_of(np.array(physics), "flip"), expected, atol=1e-12)
    assert np.ptp(expected) > 0.05


@pytest.mark.parametrize(
    ("task", "sign", "speed"), [("walk", 1, 2), ("walk_backward", -1, 2), ("run", 1, 10), ("run_backward", -1, 10)]
)
def test_cheetah(worlds, task, sign, speed):
    world, environment = worlds["cheetah"], suite_environment("cheetah", "run", seed=1)
    environment.reset()
    rng = np.random.default_rng(2)
    expected, physics = [], []
    for action in lively_actions(6, STEPS):
        with environment.physics.reset_context():  # random actions alone hardly move it
            environment.physics.data.qvel[0] = rng.uniform(-12, 12)
        environment.step(action)
        expected.append(linear(sign * float(environment.physics.speed()), speed, speed, 0))
        physics.append(environment.physics.get_state())
    np.testing.assert_allclose(world.reward_of(np.array(physics), task), expected, atol=1e-12)
    assert np.ptp(expected) > 0.9


@pytest.mark.filterwarnings("ignore:.*in1d.*:DeprecationWarning")
@pytest.mark.parametrize("task", ["stand", "jump"])
def test_quadruped(worlds, task):
    world, environment = worlds["quadruped"], suite_environment("quadruped", "walk", seed=1)
    environment.reset()
    expected, physics = [], []
    for action in lively_actions(12, STEPS):
        environment.step(action)
        reward = (1 + float(environment.physics.torso_upright())) / 2
        if task == "jump":
            reward *= linear(float(environment.physics.named.data.sensordata["center_of_mass"][2]), 1, 1, 0.5)
        expected.append(reward)
        physics.append(environment.physics.get_state())
    np.testing.assert_allclose(world.reward_of(np.array(physics), task), expected, atol=1e-12)
    assert np.ptp(expected) > 0.02


JACO_TARGETS = {
    "reach_top_left": (-0.09, 0.09),
    "reach_top_right": (0.09, 0.09),
    "reach_bottom_left": (-0.09, -0.09),
    "reach_bottom_right": (0.09, -0.09),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jaco_is_dm_controls_arm_and_pays_for_the_pinch_at_the_target(worlds):
    """The same arm in dm_control's own reaching task: same observations, and rewards from its live pinch site."""
    from dm_control import manipulation

    world, environment = worlds["jaco"], manipulation.load("reach_site_features", seed=0)
    assert environment._time_limit == pytest.approx(world.max_steps * environment.control_timestep())
    now = environment.reset()
    episodes = world.episodes(np.random.default_rng(0), 1, start=environment.physics.get_state())
    low, high = environment.action_spec().minimum, environment.action_spec().maximum
    expected: dict[str, list[float]] = {name: [] for name in JACO_TARGETS}
    physics = []
    for action in lively_actions(9, 50):
        now = environment.step(low + (action + 1) / 2 * (high - low))
        episodes.step(action[None])
        named = {key: value for key, value in now.observation.items() if key != "target_position"}
        np.testing.assert_allclose(
            episodes.observations[0], flat(SimpleNamespace(observation=named)), rtol=1e-4, atol=1e-4
        )
        pinch = now.observation["jaco_arm/jaco_hand/pinch_site_pos"][0]
        for name, (x, y) in JACO_TARGETS.items():
            beyond = max(0.0, float(np.linalg.norm(pinch - (x, y, 0.001))) - 0.05)
            expected[name].append(0.1 ** ((beyond / 0.05) ** 2))
        physics.append(environment.physics.get_state())
    for name, values in expected.items():
        np.testing.assert_allclose(world.reward_of(np.array(physics), name), values, atol=1e-9)
    assert max(map(max, expected.values())) > 1e-6


def test_jaco_rewards_are_told_apart(worlds):
    """Where the pinch is on one side, the target of that side pays most."""
    world = worlds["jaco"]
    physics = world.episodes(np.random.default_rng(2), 12).extra("physics")
    x, y, _ = world.measure(physics).T
    paid = np.stack([world.reward_of(physics, name) for name in JACO_TARGETS])
    best = [list(JACO_TARGETS)[row] for row in paid.argmax(axis=0)]
    sides = [f"reach_{'top' if b > 0 else 'bottom'}_{'right' if a > 0 else 'left'}" for a, b in zip(x, y, strict=True)]
    assert best == sides
    assert len(set(sides)) > 1


def test_jaco_starts_inside_its_box_with_the_hand_down(worlds):
    episodes = worlds["jaco"].episodes(np.random.default_rng(4), 12)
    pinch, rotation = episodes.observations[:, 30:33], episodes.observations[:, 33:].reshape(-1, 3, 3)
    assert (pinch > (-0.2, -0.2, 0.02)).all() and (pinch < (0.2, 0.2, 0.4)).all()
    assert np.ptp(pinch, axis=0).min() > 0.1
    np.testing.assert_allclose(rotation[:, 2, 2], -1, atol=1e-3)


# ---- the task protocol -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", dmc.NAMES)
def test_sizes_and_determinism(worlds, domain):
    world = worlds[domain]
    observation_dim, action_dim, physics_dim, steps = SIZES[domain]
    assert (world.observation_dim, world.action_dim, world.physics_dim, world.max_steps) == SIZES[domain]
    assert sum(int(np.prod(shape)) for _, shape in world.observation_parts) == observation_dim
    assert (world.score_scale * world.max_steps, steps) == (1000, world.max_steps)

    def rollout(threads: int) -> tuple[np.ndarray, np.ndarray]:
        episodes = dmc.make(domain, threads).episodes(np.random.default_rng(5), 3)
        assert episodes.observations.dtype == np.float32 and episodes.observations.shape == (3, observation_dim)
        assert np.isnan(episodes.goals).all() and episodes.goals.shape == (3, observation_dim)
        for action in lively_actions(action_dim, 10):
            episodes.step(np.stack([action, -action, 3 * action]))
        assert not episodes.reached().any()
        return episodes.observations, episodes.extra("physics")

    observations, physics = rollout(threads=1)
    assert physics.shape == (3, physics_dim) and physics.dtype == np.float64
    for again in (rollout(threads=1), rollout(threads=3)):
        np.testing.assert_array_equal(again[0], observations)
        np.testing.assert_array_equal(again[1], physics)
    assert not np.array_equal(observations[0], observations[1])
    assert world.place(observations).shape == (3, 2)
    assert world.finite() is None and not world.potentials and not world.has_goals
    assert world.best_return(next(iter(world.rewards)), observations, 10) is None
    assert world.fps == pytest.approx({"walker": 40, "cheetah": 100, "quadruped": 50, "jaco": 25}[domain])


def test_actions_are_clipped_and_reach_the_ends_of_the_controls(worlds):
    world = worlds["quadruped"]  # whose controls do not lie around 0
    states = []
    for size in (1.0, 5.0):
        episodes = world.episodes(np.random.default_rng(0), 1)
        episodes.step(np.full((1, 12), size))
        states.append(episodes.extra("physics"))
        np.testing.assert_array_equal(episodes.simulations[0].ctrl, world.domain.model.actuator_ctrlrange[:, 1])
    np.testing.assert_array_equal(*states)


def test_a_start_goes_on_where_it_was_left(worlds):
    world = worlds["walker"]
    actions = lively_actions(6, 30)
    whole = world.episodes(np.random.default_rng(1), 1)
    for action in actions[:15]:
        whole.step(action[None])
    rest = world.episodes(np.random.default_rng(9), 2, start=whole.extra("physics")[0])
    np.testing.assert_allclose(rest.observations[1], whole.observations[0], atol=1e-6)
    for action in actions[15:]:
        whole.step(action[None])
        rest.step(np.stack([action, action]))
    # Not bit for bit: the solver's warm start is no part of a physics state.
    np.testing.assert_allclose(rest.extra("physics")[0], whole.extra("physics")[0], atol=1e-3)


def test_rewards_label_data_through_prompts_extras(worlds):
    """The reward functions take what `hilp.reward` hands them: rows of a data set, with physics at s'."""
    world = worlds["cheetah"]
    episodes = world.episodes(np.random.default_rng(0), 1)
    rows, physics = [episodes.observations[0]], [episodes.extra("physics")[0]]
    for action in lively_actions(6, 40):
        episodes.step(action[None])
        rows.append(episodes.observations[0])
        physics.append(episodes.extra("physics")[0])
    data = Dataset(np.array(rows), np.zeros((41, 6), np.float32), np.array([41]), {"physics": np.array(physics)})
    at = np.array([0, 7, 39])
    labels = world.rewards["walk"](
        data.observations[at], data.actions[at], data.observations[at + 1], Extras.of(data, at)
    )
    np.testing.assert_array_equal(labels, world.reward_of(np.array(physics)[at + 1], "walk"))
    assert not np.array_equal(labels, world.reward_of(np.array(physics)[at], "walk"))


@pytest.mark.parametrize("domain", dmc.NAMES)
def test_ten_thousand_labels_take_seconds(worlds, domain):
    physics = np.tile(worlds[domain].episodes(np.random.default_rng(0), 10).extra("physics"), (1000, 1))
    name = next(iter(worlds[domain].rewards))
    began = time.monotonic()
    rewards = worlds[domain].reward_of(physics, name)
    assert time.monotonic() - began < 5
    assert rewards.shape == (10_000,) and (rewards >= 0).all() and (rewards <= 1).all()


def test_names():
    assert len(dmc.TASKS) == 16
    assert set(dmc.make("walker").rewards) == {"stand", "walk", "run", "flip"}
    assert set(dmc.make("walker_run").rewards) == {"run"}
    assert set(dmc.make("jaco_reach_top_left").rewards) == {"reach_top_left"}
    assert set(dmc.make("cheetah_run_backward").rewards) == {"run_backward"}


def test_mistakes(worlds):
    walker = worlds["walker"]
    with pytest.raises(HilpError, match="unknown DeepMind Control task 'walker_rum': did you mean 'walker_run'"):
        dmc.make("walker_rum")
    with pytest.raises(HilpError, match="has no reward 'jump'"):
        walker.reward_of(np.zeros((1, 18)), "jump")
    with pytest.raises(HilpError, match=r"18 numbers a state, not shape \(1, 57\)"):
        walker.reward_of(np.zeros((1, 57)), "run")
    with pytest.raises(HilpError, match="rewards and no goals"):
        walker.episodes(np.random.default_rng(0), 1, goal=np.zeros(24))
    with pytest.raises(HilpError, match="no potentials"):
        walker.potential_max("run")
    with pytest.raises(HilpError, match="no extra column 'physic'"):
        walker.episodes(np.random.default_rng(0), 1).extra("physic")


def test_without_the_simulator_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "dm_control.suite", None)
    with pytest.raises(HilpError, match=r"pip install 'hilp\[mujoco\]'"):
        dmc.make("walker").episodes(np.random.default_rng(0), 1)


# ---- pictures --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def has_gl(worlds) -> None:
    try:
        worlds["walker"].frames(np.zeros((1, 18)))
    except HilpError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("has_gl")
@pytest.mark.parametrize("domain", dmc.NAMES)
def test_frames_show_the_state(worlds, domain):
    world = worlds[domain]
    physics = world.episodes(np.random.default_rng(0), 2).extra("physics")
    frames = world.frames(physics[[0, 1, 0]], size=(48, 64))
    assert frames.shape == (3, 48, 64, 3) and frames.dtype == np.uint8
    np.testing.assert_array_equal(frames[0], frames[2])
    assert (frames[0] != frames[1]).any() and frames.std() > 5
    assert world.frames(physics[:1], size=(700, 800)).shape == (1, 700, 800, 3)  # larger than the model's own buffer


@pytest.mark.usefixtures("has_gl")
def test_an_unknown_camera_is_an_error(worlds):
    with pytest.raises(HilpError, match="no camera 'front'"):
        worlds["walker"].frames(np.zeros((1, 18)), camera="front")


@pytest.mark.parametrize("ending", [".gif", ".webp"])
def test_video(tmp_path, ending):
    from PIL import Image

    frames = np.zeros((5, 16, 24, 3), np.uint8)
    frames[np.arange(5), :, np.arange(5) * 4] = 255  # a bar that moves
    path = video.write(tmp_path / "new" / f"walk{ending}", frames, fps=24)
    with Image.open(path) as read:
        assert read.n_frames == 5 and read.size == (24, 16)
        durations = []
        for number in range(5):
            read.seek(number)
            np.testing.assert_array_equal(np.asarray(read.convert("RGB")), frames[number])
            durations.append(read.info["duration"])
    assert sum(durations) == pytest.approx(5 / 24 * 1000, abs=30)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_video_mistakes(tmp_path, monkeypatch):
    import sys

    frames = np.zeros((2, 8, 8, 3), np.uint8)
    with pytest.raises(HilpError, match=r"must end in \.gif, \.webp, \.mp4"):
        video.write(tmp_path / "walk.avi", frames, 20)
    with pytest.raises(HilpError, match="uint8 frames"):
        video.write(tmp_path / "walk.gif", frames / 2, 20)
    with pytest.raises(HilpError, match="frames a second, not 0"):
        video.write(tmp_path / "walk.gif", frames, 0)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(HilpError, match="pip install imageio-ffmpeg"):
        video.write(tmp_path / "walk.mp4", frames, 20)
    assert not list(tmp_path.iterdir())
