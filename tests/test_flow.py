"""The flow actor: its loss and its steps by hand, two ways that it does not average, methods that have it, exports."""

from __future__ import annotations

import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import hilp
from hilp import export, testing
from hilp.export import numpy_folder
from hilp.learning import actors, methods
from test_export import DATA, run_graph, untrained
from test_methods import SMALL

WITH_FLOW = ("gc-bc", "gc-iql", "gc-iql-q", "hilp")


def linear_flow() -> actors.FlowActor:
    """v(x, a, t) = relu(x + 2 a + 3 t), of one number each."""
    actor = actors.FlowActor(1, (1,), 1, jax.random.key(0))
    parts = (
        jnp.array([[1.0], [2.0]]),
        jnp.zeros(1),
        jnp.array([3.0]),
        jnp.ones((1, 1)),
        jnp.zeros(1),
        jnp.array([0.5]),
    )
    return eqx.tree_at(
        lambda a: (a.hidden[0].weight, a.hidden[0].bias, a.time, a.mean.weight, a.mean.bias, a.start), actor, parts
    )


def test_acting_is_ten_euler_steps_from_the_start() -> None:
    action = 0.5
    for step in range(10):
        action += max(0.2 + 2.0 * action + 3.0 * step / 10, 0.0) / 10
    assert float(linear_flow()(jnp.array([[0.2]]))[0, 0]) == pytest.approx(action, rel=1e-6)
    assert float(linear_flow().act(jnp.array([[0.2]]))[0, 0]) == 1.0  # inside the box


def test_the_loss_is_the_squared_error_of_the_velocity() -> None:
    key = jax.random.key(3)
    x, action = jnp.array([[0.2], [-0.4]]), jnp.array([[0.7], [0.1]])
    key_noise, key_time = jax.random.split(key)
    noise, t = jax.random.normal(key_noise, (2, 1)), jax.random.uniform(key_time, (2, 1))
    between = (1 - t) * noise + t * action
    velocity = jnp.maximum(x + 2 * between + 3 * t, 0.0)
    expected = -0.5 * (velocity - (action - noise))[:, 0] ** 2
    np.testing.assert_allclose(linear_flow().log_prob(x, action, key), expected, rtol=1e-5)
    weight = jnp.minimum(jnp.exp(2.0 * jnp.array([0.3, -0.1])), 1.5)
    loss, mean = actors.awr_loss(linear_flow(), x, action, jnp.array([0.3, -0.1]), 2.0, 1.5, key)
    assert float(loss) == pytest.approx(float(-jnp.mean(weight * expected)), rel=1e-5)
    assert float(mean) == pytest.approx(float(jnp.mean(weight)))


def cloned(actor: actors.Density, action: jax.Array) -> jax.Array:
    """What a head does in one state after it imitated these actions."""
    x, adam = jnp.zeros((len(action), 1)), optax.adam(1e-2)

    @jax.jit
    def step(actor: actors.Density, opt: optax.OptState, key: jax.Array) -> tuple[actors.Density, optax.OptState]:
        grads = jax.grad(actors.bc_loss)(actor, x, action, key)
        updates, opt = adam.update(grads, opt)
        return optax.apply_updates(actor, updates), opt

    opt = adam.init(actor)
    for number in range(600):
        actor, opt = step(actor, opt, jax.random.fold_in(jax.random.key(1), number))
    return actor.act(jnp.zeros((1, 1)))[0]


def test_two_ways_are_not_averaged() -> None:
    ways = jnp.where(jnp.arange(256)[:, None] % 2 == 0, 0.8, -0.8)
    gaussian, flow = (cloned(head(1, (32, 32), 1, jax.random.key(0)), ways) for head in actors.HEADS.values())
    assert abs(float(gaussian[0])) < 0.1
    assert abs(float(flow[0])) == pytest.approx(0.8, abs=0.1)


def test_of_noise_it_takes_the_middle() -> None:
    noisy = 0.3 + 0.2 * jax.random.normal(jax.random.key(5), (1024, 1))
    assert float(cloned(actors.FlowActor(1, (32, 32), 1, jax.random.key(0)), noisy)[0]) == pytest.approx(0.3, abs=0.08)


@pytest.mark.parametrize("name", WITH_FLOW)
@pytest.mark.parametrize("check", [testing.check_contract, testing.check_resume])
def test_methods_with_a_flow_pass_the_suite(name: str, check: object) -> None:
    check(methods.config(name, **SMALL[name], actor="flow"))  # type: ignore[operator]


def test_a_method_without_a_flow_says_so() -> None:
    with pytest.raises(hilp.HilpError, match="'actor' cannot be 'flow'"):
        methods.configure(methods.config("hiql", **SMALL["hiql"]), {"actor": "flow"})


@pytest.mark.parametrize("name", ["gc-bc", "hilp"])
def test_exports_act_as_the_policy_does(name: str, tmp_path: Path) -> None:
    policy, seen, goals = untrained(name, actor="flow"), DATA.observations[5:25], DATA.observations[200:220]
    wanted = policy.act(seen, policy.goal(goals))
    export.write(policy, "numpy", tmp_path / "numpy")
    runtime = numpy_folder.load(tmp_path / "numpy").load(tmp_path / "numpy")
    np.testing.assert_allclose(runtime.act(seen, runtime.goal(goals)), wanted, atol=1e-5)
    export.write(policy, "onnx", tmp_path / "onnx")
    target = run_graph(tmp_path / "onnx", "target", observation=goals)
    np.testing.assert_allclose(run_graph(tmp_path / "onnx", "goal", observation=seen, target=target), wanted, atol=1e-5)


def test_one_observation_takes_less_than_a_millisecond() -> None:
    policy = untrained("hilp", actor="flow", actor_hidden=(128, 128, 128), hidden=(128, 128, 128))
    prompt, seen = policy.goal(DATA.observations[200]), DATA.observations[5]
    policy.act(seen, prompt)
    best = 1.0
    for _ in range(200):
        begun = time.perf_counter()
        policy.act(seen, prompt)
        best = min(best, time.perf_counter() - begun)
    assert best < 1e-3
