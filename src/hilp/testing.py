"""The conformance suites: what every method and every task must do, for yours as for those that come with hilp.

    from hilp.testing import check_method, check_task
    check_method(my_method.Config(batch=32, ...))       # raises AssertionError with what is wrong
    check_method(my_method.Config(batch=32, ...), choices=3)  # the same on data with three discrete actions
    check_task(my_task)                                 # a task, or its name

A check of a method takes a config with small networks and a small batch. docs/add-a-method.md says how a method is
written, docs/your-own-task.md how a task is.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hilp import storage, tasks
from hilp.data.dataset import Dataset
from hilp.data.rewards import Extras, apply_reward
from hilp.learning import methods
from hilp.policy.policy import FoundationPolicy
from hilp.tasks.base import random_actions
from hilp.training.loop import pretrain
from hilp.training.options import TrainOptions
from hilp.training.program import chunk_function, drawn_batch
from hilp.training.run import Run

RULES_OF_A_GOAL, RULES_OF_A_REWARD = ("goal_direction", "goal_skill"), ("cumulant", "backward")
RULES_OF_SEGMENTS = ("skill_of", "prior")
NEEDED = (  # a rule, what an export with it also has, and why
    ("goal_direction", "encode", "goal_direction(here, there) takes latents: an export with it needs encode(s)"),
    ("goal_direction", "discount", "plans need to know how far distances are told apart: discount"),
    ("distance", "goal_direction", "distance(here, there) is that of latents with a goal_direction(here, there)"),
    ("cumulant", "project", "a reward becomes a skill by project(z)"),
    ("backward", "project", "a reward becomes a skill by project(z)"),
)


def check_method(config: Any, choices: int = 0) -> None:
    """Run every check on a method's config; choices: with so many discrete actions."""
    for check in CHECKS:
        check(config, choices)


def small_data(rows: int = 400, choices: int = 0) -> Dataset:
    """Noise with three numbers a state and two an action, in episodes of twenty rows, and rewards as random.

    choices: or one of so many discrete actions.
    """
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(rows, 3)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
    if choices:
        actions = rng.integers(choices, size=(rows, 1)).astype(np.uint8)
    extras = {"rewards": observations[:, 0], "terminals": (observations[:, 1] > 2.0).astype(np.float32)}
    return Dataset(observations, actions, np.full(rows // 20, 20), extras, choices=choices)


def check_contract(config: Any, choices: int = 0) -> None:
    """Five names, a name of its own, and an export whose rules fit together."""
    name = methods.name_of(config)
    module, spec = methods.module(name), small_data(choices=choices).network_spec
    core = jax.eval_shape(lambda: module.export(config, module.init(config, spec, jax.random.key(0))))
    fields = {field.name for field in dataclasses.fields(config)}
    assert fields >= {"batch", "normalize"}, "a Config has `batch` and `normalize`"
    type(config)()  # every field has a default: kept policies are read with it
    assert hasattr(core, "skill_dim"), "an export has the size of a skill: skill_dim"
    assert hasattr(core, "act"), "an export acts: act(observation, z)"
    for rule, needed, why in NEEDED:
        assert not hasattr(core, rule) or hasattr(core, needed), why
    takes_tasks = any(hasattr(core, rule) for rule in (*RULES_OF_A_GOAL, *RULES_OF_A_REWARD, *RULES_OF_SEGMENTS))
    assert takes_tasks or core.skill_dim == 0, "an export without any rule can be prompted with nothing but a skill"


def check_segments(config: Any, choices: int = 0) -> None:
    """Where a method gives the skill of a segment, what follows the segment's real steps changes nothing."""
    data = small_data(choices=choices)
    core = Run(config, data).exports(Run(config, data).fresh)[0]
    if not hasattr(core, "skill_of"):
        return
    k, steps = getattr(core, "skill_horizon", 6), np.array([1, 2])
    rows = np.minimum(np.array([0, 20])[:, None] + np.arange(k + 1), np.array([0, 20])[:, None] + steps[:, None])
    actions = data.network_actions[rows[:, :-1]]
    skills = core.skill_of(data.observations[rows], actions, steps)
    assert skills.shape == (2, core.skill_dim), f"skill_of gives {skills.shape}"
    assert np.isfinite(skills).all(), "the skill of a segment holds a NaN or an infinity"
    after = np.arange(k) >= steps[:, None]
    other = np.where(after[..., None], -actions, actions)
    np.testing.assert_array_equal(core.skill_of(data.observations[rows], other, steps), skills)


def check_targets(config: Any, choices: int = 0) -> None:
    """Targets (fields of the state that end in _target), where there are any, equal their networks at step 0."""
    state = Run(config, small_data(choices=choices)).fresh
    for field in getattr(state, "_fields", ()):
        if field.endswith("_target"):
            assert equal(getattr(state, field), getattr(state, field.removesuffix("_target"))), field


def check_samples(config: Any, choices: int = 0) -> None:
    """Samplers draw rows of the data by number."""
    run = Run(config, small_data(choices=choices))
    for stage in run.stages:
        rows = stage.sample(config, run.index, jax.random.key(0))
        for wanted in rows.columns.values():
            for name, numbers in wanted.items():
                assert jnp.issubdtype(numbers.dtype, jnp.integer), name
                assert int(numbers.min()) >= 0 and int(numbers.max()) < run.data.rows, name


def check_one_trace(config: Any, choices: int = 0) -> None:
    """`update` is traced once, whatever the lengths of chunks."""
    run = Run(config, small_data(choices=choices))
    for number, stage in enumerate(run.stages):
        calls: list[int] = []

        def counted(*args: Any, stage: Any = stage, calls: list[int] = calls) -> Any:
            calls.append(1)
            return stage.update(config, *args)

        run.enter(number, run.fresh)
        chunk = jax.jit(chunk_function(counted, partial(drawn_batch, config, stage.sample)))
        state = run.fresh
        for start, count in ((0, 3), (3, 1), (4, 7)):  # nothing runs: what a call gives is what the next one takes
            numbers = (np.int32(start), np.int32(count))
            state = chunk.eval_shape(state, (run.columns, run.index), run.keys, *numbers)[0]
        assert len(calls) == 1, f"update of stage {number} was traced {len(calls)} times"


def check_chunks(config: Any, choices: int = 0) -> None:
    """The lengths of chunks do not change the result."""
    run = Run(config, small_data(choices=choices))
    whole, _ = run.advance(jax.tree.map(jnp.copy, run.fresh), 0, 10)
    part, _ = run.advance(jax.tree.map(jnp.copy, run.fresh), 0, 4)
    part, _ = run.advance(part, 4, 6)
    assert equal(whole, part), "the lengths of chunks change the result"


def check_determinism(config: Any, choices: int = 0) -> None:
    """Equal seeds give equal policies, different ones different policies."""
    one, two, other = (
        pretrain(config, small_data(choices=choices), steps=5, seed=seed, quiet=True) for seed in (0, 0, 1)
    )
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != other.fingerprint


def check_artifact(config: Any, choices: int = 0) -> None:
    """A policy that was saved and loaded acts as before, inside the box, or one of the choices."""
    data = small_data(choices=choices)
    policy = pretrain(config, data, steps=5, quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        again = FoundationPolicy.load(policy.save(Path(folder) / "policy"))
    z = np.random.default_rng(3).normal(size=policy.skill_dim).astype(np.float32)
    actions = policy.act(data.observations, z)
    np.testing.assert_array_equal(actions, again.act(data.observations, z))
    assert again.fingerprint == policy.fingerprint
    if choices:
        assert actions.shape == (len(data.observations),) and actions.dtype == np.int64
        assert actions.min() >= 0 and actions.max() < choices
        assert isinstance(policy.act(data.observations[0], z), np.int64), "one observation, one number"
        return
    assert actions.shape == (len(data.observations), 2)
    assert np.abs(actions).max() <= 1.0


def check_resume(config: Any, choices: int = 0) -> None:
    """A run that was stopped and resumed ends in the same bits, optimiser included."""
    data = small_data(choices=choices)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = pretrain(config, data, steps=30, quiet=True, out=folder / "whole")
        pretrain(config, data, steps=11, quiet=True, out=folder / "parts")
        parts = pretrain(config, data, steps=30, quiet=True, out=folder / "parts", resume=True)
        assert whole.fingerprint == parts.fingerprint, "resumed runs end elsewhere; columns of what a stage trains?"
        newest = [sorted((folder / run / "checkpoints").iterdir())[-1] for run in ("whole", "parts")]
        (a, _), (b, _) = (storage.read_arrays(path) for path in newest)
        assert equal(a, b), "optimiser state included"


def check_seeds(config: Any, choices: int = 0) -> None:
    """Several seeds in one program match their single runs."""
    data = small_data(choices=choices)
    together = pretrain(config, data, steps=20, seed=5, seeds=2, quiet=True)
    assert len({policy.fingerprint for policy in together}) == 2
    for number, policy in enumerate(together):
        alone = pretrain(config, data, steps=20, seed=5 + number, quiet=True)
        for a, b in zip(jax.tree.leaves(alone.core), jax.tree.leaves(policy.core), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-4)


def check_stream(config: Any, choices: int = 0, seeds: int = 1) -> None:
    """Streamed data gives the same batches (XLA and numpy round a division differently) and the same training."""
    device = Run(config, small_data(choices=choices), TrainOptions(1, seed=3, seeds=seeds))
    host = Run(config, small_data(choices=choices), TrainOptions(1, seed=3, seeds=seeds, device_budget=0))
    key = device.keys if seeds == 1 else device.keys[1]
    host.enter(0, host.fresh)
    assert host.stream is not None and not device.streamed
    blocks = host.stream.block(host.index, 5)
    own = blocks if seeds == 1 else jax.tree.map(lambda leaf: leaf[1], blocks)
    source = (device.columns, device.index)
    for i in (0, 7):
        rows = jax.random.split(jax.random.fold_in(key, 5 + i + 1))[0]
        wanted = drawn_batch(config, device.stages[0].sample, source, rows, jnp.int32(i))
        found = jax.tree.map(lambda leaf, i=i: leaf[i], own)
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg="the same batch")
    states = [run.fresh for run in (device, host)]
    for start, count in ((0, 40), (40, 3), (43, 50)):
        states = [run.advance(state, start, count)[0] for run, state in zip((device, host), states, strict=True)]
    for a, b in zip(jax.tree.leaves(states[0]), jax.tree.leaves(states[1]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def tree_data(choices: int = 0) -> Dataset:
    """The small data with an image beside each state."""
    plain = small_data(choices=choices)
    camera = np.random.default_rng(1).integers(0, 256, size=(plain.rows, 4, 4, 3), dtype=np.uint8)
    return dataclasses.replace(plain, observations={"camera": camera, "state": plain.observations})


def check_trees(config: Any, choices: int = 0, device_budget: int | None = None) -> None:
    """Observations that are a vector and an image are trained on, acted on, saved and loaded."""
    data = tree_data(choices)
    check_tree_policy(pretrain(config, data, steps=10, device_budget=device_budget, quiet=True), data)


def check_tree_policy(policy: FoundationPolicy, data: Dataset) -> None:
    """A policy acts on a vector and an image, one row as a batch, and acts the same once saved and loaded."""
    one, batch = ({name: part[rows] for name, part in data.observations.items()} for rows in (0, slice(9)))
    z = np.random.default_rng(3).normal(size=policy.skill_dim).astype(np.float32)
    np.testing.assert_allclose(policy.act(one, z), policy.act(batch, z)[0], atol=1e-5)
    darker = {**batch, "camera": batch["camera"] // 2}
    skills = np.broadcast_to(z, (9, policy.skill_dim))
    seen = [policy.rule("act", policy.check(rows), skills) for rows in (darker, batch)]  # before a choice is made
    assert not np.array_equal(seen[0], seen[1]), "the image makes no difference"
    with tempfile.TemporaryDirectory() as folder:
        again = FoundationPolicy.load(policy.save(Path(folder) / "policy"))
    np.testing.assert_array_equal(again.act(batch, z), policy.act(batch, z))
    if any(hasattr(policy.core, rule) for rule in RULES_OF_A_GOAL):
        assert again.act(batch, again.goal(one)).shape == ((9,) if again.spec.choices else (9, 2))


def equal(a: Any, b: Any) -> bool:
    """Whether two trees have equal arrays."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


CHECKS: tuple[Callable[..., None], ...] = (
    check_contract, check_segments, check_targets, check_samples, check_one_trace, check_chunks, check_determinism,
    check_artifact, check_resume, check_seeds, check_stream, check_trees,
)  # fmt: skip


# ---- tasks -----------------------------------------------------------------------------------------------------------


def check_task(task: str | tasks.Task, steps: int = 5) -> None:
    """Run every check on a task; each takes a few episodes of so many steps."""
    world = tasks.make(task) if isinstance(task, str) else task
    check_task_facts(world)
    for check in TASK_CHECKS:
        check(world, steps)


def check_task_facts(world: Any) -> None:
    """It has every attribute, of its kind."""
    for name, kind in (("name", str), ("family", str), ("has_goals", bool), ("extra_columns", tuple)):
        assert isinstance(getattr(world, name, None), kind), f"{name} must be a {kind.__name__}"
    for name in ("max_steps", "observation_dim", "action_dim"):
        assert isinstance(getattr(world, name, None), int) and getattr(world, name) >= 1, f"{name} must be at least 1"
    columns = getattr(world, "columns", None)
    assert isinstance(columns, Mapping), "columns names numbers of an observation: {'x': 0}, or {} where none has one"
    assert all(0 <= at < world.observation_dim for at in columns.values()), "columns has one that observations lack"
    assert world.score_scale > 0, "score_scale brings returns to a common scale, so it is above 0"
    assert world.has_goals or world.rewards or world.potentials, "a task has goals or rewards"
    finite = world.finite()
    if finite is not None:
        count = len(finite.observations)
        assert finite.observations.shape == (count, world.observation_dim), "finite(): observations [n, obs]"
        assert finite.steps.shape == (count, count), "finite(): steps [n, n]"


def check_task_episodes(world: Any, steps: int) -> None:
    """Episodes side by side have the shapes and kinds that they should."""
    running = world.episodes(np.random.default_rng(0), 3)
    wanted = (3, world.observation_dim)
    for step in range(steps + 1):
        if step:
            running.step(_actions(world, step))
        seen = running.observations
        assert seen.shape == wanted and seen.dtype == np.float32, f"observations are float32 {wanted}"
        assert np.isfinite(seen).all(), "observations are finite"
        reached = running.reached()
        assert reached.shape == (3,) and reached.dtype == bool, "reached() is one bool an episode"
        for name in world.extra_columns if step else ():
            assert len(running.extra(name)) == 3, f"extra('{name}') has one row an episode"
    assert running.goals.shape == wanted and running.goals.dtype == np.float32, f"goals are float32 {wanted}"
    assert world.has_goals == bool(np.isfinite(running.goals).all()), "goals are finite exactly where a task has goals"


def check_task_determinism(world: Any, steps: int) -> None:
    """A generator of one seed gives the same episodes again, of another seed others."""
    one, two, other = (_path(world, seed, steps) for seed in (3, 3, 4))
    assert np.array_equal(one, two), "the same seed gives other episodes: draw all randomness from the generator"
    goals, others = (world.episodes(np.random.default_rng(seed), 3).goals for seed in (3, 4))
    alike = np.array_equal(one, other) and np.array_equal(goals, others, equal_nan=True)
    assert not alike, "another seed gives the same starts and goals"


def check_task_independence(world: Any, steps: int) -> None:
    """Episodes change nothing about each other, nor about those that began earlier."""
    alone = _path(world, 5, steps)
    first = world.episodes(np.random.default_rng(5), 3)
    second = world.episodes(np.random.default_rng(5), 3)
    for step in range(1, steps + 1):
        first.step(_actions(world, step))
        changed = _actions(world, step)
        changed[0] = (changed[0] + 1) % world.choices if getattr(world, "choices", 0) else -changed[0]
        second.step(changed)
    assert np.array_equal(first.observations, alone[-1]), "episodes that began later change earlier ones"
    assert np.array_equal(second.observations[1:], alone[-1][1:]), "an action of one episode changes another one"


def check_task_goals(world: Any, steps: int) -> None:
    """A goal is near itself, can be chosen, and fits the data's observations."""
    if not world.has_goals:
        return
    running = world.episodes(np.random.default_rng(0), 3)
    near = world.near(running.goals, running.goals)
    assert near.shape == (3,) and near.all(), "near(observations, goals): a goal is at itself"
    chosen = world.episodes(np.random.default_rng(1), 2, goal=running.goals[0].copy())
    assert world.near(chosen.goals, np.tile(running.goals[0], (2, 1))).all(), "episodes(goal=...) has that goal"
    fitted = world.for_data(running.observations[0].copy())
    assert fitted.observation_dim == world.observation_dim, "for_data gives a task of the same sizes"
    assert fitted.episodes(np.random.default_rng(0), 2).goals.shape == (2, world.observation_dim)


def check_task_rewards(world: Any, steps: int) -> None:
    """Rewards and potentials are one finite number a transition."""
    running = world.episodes(np.random.default_rng(0), 3)
    before, actions = running.observations.copy(), _actions(world, 1)
    running.step(actions)
    extras = Extras({}, {name: running.extra(name) for name in world.extra_columns}, world.name)
    for name, reward in world.rewards.items():
        found = np.asarray(apply_reward(reward, before, actions, running.observations, extras))
        assert found.shape == (3,) and np.isfinite(found).all(), f"reward '{name}' is one number a transition"
        best = world.best_return(name, before, steps)
        assert best is None or len(best) == 3, f"best_return('{name}') is None or one number an episode"
    for name, potential in world.potentials.items():
        found = np.asarray(potential(before))
        assert found.shape == (3,) and np.isfinite(found).all(), f"potential '{name}' is one number a state"
        assert (found <= world.potential_max(name) + 1e-6).all(), f"potential_max('{name}') is the largest"


def check_task_pictures(world: Any, steps: int) -> None:
    """Observations have a place on a plot."""
    from matplotlib.figure import Figure

    seen = world.episodes(np.random.default_rng(0), 3).observations
    assert world.place(seen).shape == (3, 2), "place(observations) is [n, 2]"
    world.draw(Figure().subplots())


def _actions(world: Any, step: int) -> np.ndarray:
    return random_actions(world, np.random.default_rng(step), 3).astype(np.float32)


def _path(world: Any, seed: int, steps: int) -> np.ndarray:
    """Observations [steps + 1, 3, obs] of three episodes."""
    running = world.episodes(np.random.default_rng(seed), 3)
    path = [running.observations.copy()]
    for step in range(1, steps + 1):
        running.step(_actions(world, step))
        path.append(running.observations.copy())
    return np.stack(path)


TASK_CHECKS: tuple[Callable[[Any, int], None], ...] = (
    check_task_episodes, check_task_determinism, check_task_independence, check_task_goals, check_task_rewards,
    check_task_pictures,
)  # fmt: skip
