"""hilp-directed: its distances, directions and losses against values computed by hand, and what is done with them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hilp
from hilp import export
from hilp.errors import HilpError
from hilp.evaluation import diagnosis, explain, theory
from hilp.export import numpy_folder
from hilp.learning import hilbert, methods
from hilp.learning.methods import directed
from hilp.learning.sampling import Batch
from hilp.prompts import midpoints as planning
from hilp.prompts.midpoints import DirectedMidpoints
from hilp.spec import Spec
from hilp.tasks import maze


def intervals(here: Any, there: Any) -> np.ndarray:
    return np.asarray(directed.distance("intervals", jnp.asarray(here, float), jnp.asarray(there, float)))


def heights(here: Any, there: Any) -> np.ndarray:
    return np.asarray(directed.distance("heights", jnp.asarray(here, float), jnp.asarray(there, float)))


def test_distances_by_hand() -> None:
    # Two groups of eight, a number of each in turn. Of the first, [0, 2] and [1, 4] overlap: 4; the second's [5, 6]: 1.
    s, g = np.zeros(16), np.zeros(16)
    s[[0, 2, 1]], g[[0, 2, 1]] = (0, 1, 5), (2, 4, 6)
    assert intervals(s, g) == pytest.approx((2.5 + 4.0) / 2)
    assert intervals(g, s) == 0.0 and intervals(s, s) == 0.0  # nothing on the way back
    s, g = [3.0, 0.0, 0.0, 5.0, 1.0, 0.0], [0.0, 4.0, 0.0, 2.0, 0.5, 9.0]
    # phi: (3, 0, 0) to (0, 4, 0) is 5; h: falls by 3, by 0.5 and not at all. Back, the third falls by 9.
    assert heights(s, g) == pytest.approx(5.0 + 3.0, rel=1e-6)
    assert heights(g, s) == pytest.approx(5.0 + 9.0, rel=1e-6)
    assert heights(s, s) == pytest.approx(1e-3, rel=1e-4)  # the floor that gives the root a gradient


@pytest.mark.parametrize("distance", [intervals, heights])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_it_is_a_quasimetric(distance: Any, seed: int) -> None:
    a, b, c = np.random.default_rng(seed).normal(size=(3, 20, 16)).astype(np.float32)
    to_b, on, direct = distance(a, b), distance(b, c), distance(a, c)
    assert (direct <= to_b + on + 1e-5).all() and (direct >= 0).all()


def test_directions_by_hand() -> None:
    half = np.sqrt(0.5)
    here, there = np.array([[0.0, 0.0, 5.0, 1.0]]), np.array([[3.0, 4.0, 2.0, 0.0]])
    expected = [[0.6 * half, 0.8 * half, -half, 0.0]]  # towards the goal, and down where it is farthest above
    np.testing.assert_allclose(directed.direction("heights", here, there), expected, rtol=1e-5)
    # Where nothing has to fall, it is HILP's direction.
    above = there + np.array([0, 0, 9, 9])
    np.testing.assert_allclose(directed.direction("heights", here, above), [[0.6, 0.8, 0.0, 0.0]], rtol=1e-5)
    # Intervals shrink from their left ends: a covered end changes nothing, and the longest group counts for more.
    s, g = np.zeros((1, 16)), np.full((1, 16), -1.0)
    s[0, [0, 2, 1]], g[0, [0, 2, 1]] = (0, 1, 5), (2, 4, 6)
    z = np.asarray(directed.direction("intervals", s, g))[0]
    assert z[0] == pytest.approx(0.75 / np.hypot(0.75, 0.25)) and z[1] == pytest.approx(0.25 / np.hypot(0.75, 0.25))
    assert z[2] == 0.0


@pytest.mark.parametrize("head", ["intervals", "heights"])
def test_a_step_along_the_skill_gets_nearer(head: directed.Head) -> None:
    here, there = np.random.default_rng(0).normal(size=(2, 100, 16)).astype(np.float32)
    z = np.asarray(directed.direction(head, here, there))
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1.0, rtol=1e-4)
    gain = directed.distance(head, here, there) - directed.distance(head, here + 1e-3 * z, there)
    other = hilbert.unit(np.random.default_rng(1).normal(size=z.shape))
    assert (gain > 0).all() and np.all(
        gain > directed.distance(head, here, there) - directed.distance(head, here + 1e-3 * other, there)
    )


def test_the_loss_by_hand() -> None:
    """Latents that are read off the observation: phi is its first two numbers, h its last two."""
    cfg = directed.Config(dim=8, head="heights", phi_discount=0.9, phi_expectile=0.8)

    class Read:
        def __call__(self, x: jax.Array) -> jax.Array:
            return x

    rows: dict[str, Any] = {
        "observation": [[0.0, 0.0, 2.0, 0.0], [1.0, 1.0, 0.0, 0.0]],
        "next_observation": [[1.0, 0.0, 1.0, 0.0], [9.0, 9.0, 9.0, 9.0]],
        "goal": [[3.0, 4.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]],
    }
    batch = Batch(**{name: jnp.asarray(part) for name, part in rows.items()}, reached=jnp.array([False, True]))

    def apply_all(networks: list[Read], x: jax.Array) -> jax.Array:
        return jnp.stack([network(x) for network in networks])

    original = directed.networks.apply_all
    directed.networks.apply_all = apply_all  # type: ignore[assignment]
    try:
        loss, (info, latents) = directed.latent_loss([Read(), Read()], cfg, [Read(), Read()], batch)  # type: ignore[arg-type]
    finally:
        directed.networks.apply_all = original
    # Sample 1: d(s, g) = 5 + 2 = 7, d(s', g) = sqrt(4 + 16) + 1; q = -1 - 0.9 d(s', g), a step nearer than -7: the
    # advantage is positive. Sample 2 has arrived: q = 0, and v = -0.001 by the floor of the root.
    target = -1.0 - 0.9 * (np.sqrt(20.0) + 1.0)
    each = (0.8 * (target + 7.0) ** 2 + 0.8 * 1e-3**2) / 2
    assert float(loss) == pytest.approx(2 * each, rel=1e-5)
    assert float(info["distance"]) == pytest.approx((7.0 + 1e-3) / 2, rel=1e-5)
    np.testing.assert_array_equal(latents, np.concatenate([batch.observation, batch.goal]))


@pytest.mark.parametrize("head", ["intervals", "heights"])
def test_sizes_and_rules(head: directed.Head) -> None:
    cfg = directed.Config(dim=16, head=head, hidden=(8,), actor_hidden=(8,))
    state = directed.init(cfg, Spec(3, 2), jax.random.key(0))._replace(step=jnp.asarray(2.0))
    core = directed.export(cfg, state)
    s, s2 = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    x, x2 = core.encode(s), core.encode(s2)
    assert x.shape == (5, 16) and core.skill_dim == 16
    np.testing.assert_allclose(x, state.latent[0](s) / 2.0, rtol=1e-5)  # in steps of the data ...
    np.testing.assert_allclose(core.distance(x, x2), directed.distance(head, 2 * x, 2 * x2), rtol=1e-5)  # ... not d
    np.testing.assert_allclose(core.cumulant(s, s2), x2 - x, atol=1e-6)
    assert core.goal_direction(x, x2).shape == core.skill_of(np.stack([s, s2], 1), None, None).shape == (5, 16)
    assert core.act(s, core.goal_direction(x, x2)).shape == (5, 2)
    np.testing.assert_allclose(core.distance(x[:, None], x2[None])[1, 3], core.distance(x[1], x2[3]), rtol=1e-5)


def test_config_mistakes() -> None:
    with pytest.raises(HilpError, match="'dim' must be a multiple of 8, not 12"):
        directed.Config(dim=12)
    with pytest.raises(HilpError, match="head"):
        methods.configure(methods.config("hilp-directed"), {"head": "bilinear"})


# ---- planning --------------------------------------------------------------------------------------------------------


def slowly(latents: np.ndarray, here: np.ndarray, goal: np.ndarray, recursions: int, best: int) -> np.ndarray:
    u = goal
    for _ in range(recursions):
        cost = np.maximum(heights(here[None], latents), heights(latents, u[None]))
        u = latents[np.argsort(cost)[:best]].mean(axis=0)
    return u


@pytest.mark.parametrize("agents", [1, 5, 40])
def test_directed_midpoints_are_those_of_both_ways(agents: int) -> None:
    rng = np.random.default_rng(1)
    latents, here, goals = (rng.normal(size=(n, 6)).astype(np.float32) for n in (200, agents, agents))
    table = DirectedMidpoints(latents, heights)
    found = table.subgoals(here, goals, 3, best=7)
    for number in range(agents):
        np.testing.assert_allclose(found[number], slowly(latents, here[number], goals[number], 3, 7), atol=1e-5)
    np.testing.assert_allclose(table.subgoal(here[0], goals[0], 3, best=7), found[0], atol=1e-5)
    near = table.subgoals(here, goals, "auto", best=7, radius=100.0)
    np.testing.assert_array_equal(near, goals)  # all within the radius: nothing to plan
    assert not np.allclose(table.subgoals(here, goals, "auto", best=7, radius=0.5), goals)
    plain = planning.Midpoints(latents).subgoals(here, goals, 3, best=7)
    assert not np.allclose(plain, found)


# ---- a ring of doors -------------------------------------------------------------------------------------------------

RING = """
#####
#.>.#
#^#v#
#.<.#
#####
"""


def trained(steps: int) -> hilp.FoundationPolicy:
    data = hilp.collect(RING, "navigate", 20_000, 0)
    config = methods.config(
        "hilp-directed", dim=32, hidden=(64, 64), actor_hidden=(16,), batch=128, lr=2e-3, phi_discount=0.95,
        goal_discount=0.95, phi_tau=0.02, normalize=True, bound_targets=True
    )  # fmt: skip
    return hilp.pretrain(config, data, steps=steps, quiet=True, bank=1000)


@pytest.fixture(scope="module")
def policy() -> hilp.FoundationPolicy:
    return trained(steps=100)


@pytest.mark.slow
def test_a_ring_of_doors_is_learned_better_than_any_metric_can() -> None:
    """There and back are a whole round together: the best symmetric guess is off by half of their difference."""
    world, policy = maze.make(RING), trained(steps=1200)
    finite = world.finite()
    assert finite is not None
    steps = hilbert.discounted(finite.steps.astype(float), policy.discount)
    metric = np.abs(steps - steps.T)[finite.steps > 0].mean() / 2
    found = diagnosis.diagnose(policy, world)
    assert found["exact"]["error_discounted"]["mean"] < metric  # 0.78 of it after these few updates
    text = " ".join(explain.explain_diagnosis(found))
    assert "which this directed phi can follow" in text and "d(s, g), turned back" in text
    assert "theorem" not in text and "theorem_as_learned" not in found["exact"]


def test_prompts_of_a_directed_policy(policy: hilp.FoundationPolicy, tmp_path: Any) -> None:
    world = maze.make(RING)
    finite = world.finite()
    assert finite is not None
    here = finite.observations[:40]
    for plan in (0, 3, "auto", "graph"):
        prompt = policy.goal(finite.observations[60], plan=plan)
        z = prompt(here)
        np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1.0, rtol=1e-4)
        prompt.save(tmp_path / f"{plan}.safetensors")
        again = policy.load_prompt(tmp_path / f"{plan}.safetensors")
        again.reset()
        np.testing.assert_array_equal(again(here), z)
    policy.save(tmp_path / "policy")
    kept = hilp.FoundationPolicy.load(tmp_path / "policy")
    latents = kept.encode(here)
    np.testing.assert_array_equal(
        kept.distance(latents[:9], latents[9:18]), policy.distance(latents[:9], latents[9:18])
    )
    assert isinstance(kept.midpoints, DirectedMidpoints)
    reward = policy.reward(function=lambda s, a, s2: s2[:, 0] - s[:, 0], rule="skill")
    assert reward(here).shape == (40, policy.skill_dim)


def test_exports_go_by_directed_distances(policy: hilp.FoundationPolicy, tmp_path: Any) -> None:
    export.write(policy, "numpy", tmp_path / "robot")
    runtime = numpy_folder.load(tmp_path / "robot").load(tmp_path / "robot")
    seen, goals = policy.bank.observations[:60], policy.bank.observations[500:560]
    here, there = policy.encode(seen), policy.encode(goals)
    np.testing.assert_allclose(runtime.distance(here[:, None], there[None, :5]),
                               policy.distance(here[:, None], there[None, :5]), rtol=1e-4, atol=1e-5)  # fmt: skip
    assert runtime.midpoints.distance is not None and type(runtime.midpoints).__name__ == "DirectedMidpoints"
    for plan in (0, 1, 2, 3, "midpoints", "graph", "auto"):
        ours, theirs = (one.act(seen, one.goal(goals, plan=plan)) for one in (policy, runtime))
        # Which midpoints are best, and which end of an interval is covered, rounding errors turn once in a long while.
        assert np.mean(np.abs(ours - theirs).max(axis=1) <= 1e-4) >= 0.98, plan
        one, other = (one.act(seen[0], one.goal(goals[0], plan=plan)) for one in (policy, runtime))
        np.testing.assert_allclose(other, one, atol=1e-4, err_msg=str(plan))


def test_embedding_takes_any_distance() -> None:
    steps = np.array([[0, 1, 2], [2, 0, 1], [1, 2, 0]])  # a one-way ring of three

    def exact(here: np.ndarray, there: np.ndarray) -> np.ndarray:
        return hilbert.discounted((there - here)[..., 0] % 3, 0.9)

    found = theory.embedding(steps, np.arange(3.0)[:, None], 0.9, np.arange(3), distance=exact)
    assert found["error_in_steps"]["sup"] < 1e-9 and found["rank_correlation"] == pytest.approx(1.0)
