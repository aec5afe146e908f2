"""Whether the actor listens: the number by hand, for every kind of skill, and where people meet it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import testing
from hilp.cli import main
from hilp.evaluation import diagnosis, explain
from hilp.learning import methods
from hilp.policy.listening import SKILLS, listening, spread
from test_export import untrained
from test_methods import SMALL

DATA = testing.small_data()


def test_the_number_by_hand() -> None:
    """Two skills in two states: sample variances 2 and 0, mean 1; the data's actions have variance 4."""
    acted = np.array([[[0.0], [1.0]], [[2.0], [1.0]]])
    assert spread(acted, np.array([[-2.0], [2.0]])) == pytest.approx(0.5)
    chunks = np.stack([acted, acted], axis=2)  # of two actions, both as above
    assert spread(chunks, np.array([[-2.0], [2.0]])) == pytest.approx(0.5)
    assert spread(acted, np.ones((2, 1))) is None


def with_actor(policy: Any, act: Any, **rules: Any) -> Any:
    """A policy that acts by a function of (s, z)."""
    return replace(policy, core=SimpleNamespace(skill_dim=policy.skill_dim, act=act, **rules))


def test_goals_of_other_rows() -> None:
    """An actor that does what the data did in the goal spreads as the data does, whatever the units of actions."""
    plain = untrained("gc-bc")
    acted = jnp.asarray(plain.preparation.inside(plain.bank.actions))
    seen = plain.preparation.observations(plain.bank.observations)

    def as_there(s: Any, z: Any) -> Any:
        return acted[jnp.argmin(jnp.sum(jnp.square(z[:, None] - seen), axis=-1), axis=1)]

    policy = with_actor(plain, as_there, goal_skill=lambda goal: goal)
    policy._rules = lambda name, *arguments: getattr(policy.core, name)(*arguments)
    assert listening(policy) == pytest.approx(1.0, abs=0.05)
    policy.core.act = lambda s, z: as_there(s, s)
    assert listening(policy) == pytest.approx(0.0, abs=1e-6)


def test_uniform_skills() -> None:
    """act = 0.1 z, of unit vectors z in two dimensions: each number of z has variance 1/2."""
    policy = with_actor(
        untrained("hilp", dim=2), None, project=lambda z: z / jnp.linalg.norm(z, axis=-1, keepdims=True)
    )
    policy._rules = lambda name, *arguments: getattr(policy.core, name)(*arguments)
    policy.core.act = lambda s, z: 0.1 * z
    kept = policy.bank.subsample(256, 0).actions / policy.preparation.action_half_range
    assert listening(policy) == pytest.approx(0.1 * np.sqrt(0.5 / np.var(kept, axis=0).mean()), rel=0.05)


@pytest.mark.parametrize("name", ["hindsight", "opal"])
def test_skills_of_other_segments(name: str) -> None:
    config = methods.config(name, **SMALL[name])
    policy = hilp.pretrain(config, DATA, steps=2, quiet=True)
    assert policy.bank.skills is not None
    kept = policy.bank.subsample(256, 0)
    rng = np.random.default_rng(0)
    acted = np.stack([policy.act(kept.observations, rng.permutation(kept.skills)) for _ in range(SKILLS)])
    assert listening(policy) == pytest.approx(spread(acted, kept.actions), rel=1e-5)
    assert listening(replace(policy, bank=replace(policy.bank, skills=None))) is None


@pytest.mark.parametrize("name", ["hilp", "gc-iql", "opal", "fb"])
def test_rows_of_metrics_have_it(name: str) -> None:
    rows: list[dict[str, float]] = []
    config = methods.config(name, **SMALL[name])
    policy = hilp.pretrain(config, DATA, steps=6, log_every=3, on_metrics=rows.append, seeds=1, quiet=True)
    assert all(row["listening"] > 0.0 for row in rows)
    if len(policy.bank) <= 256:
        assert rows[-1]["listening"] == pytest.approx(listening(policy), rel=1e-4)


def test_not_while_there_is_no_actor() -> None:
    """Neither while phi is trained before the policy, nor for a policy of one task."""
    rows: list[dict[str, float]] = []
    config = methods.config("hilp", **SMALL["hilp"], schedule="sequential", phi_steps=4)
    hilp.pretrain(config, DATA, steps=8, log_every=4, on_metrics=rows.append, quiet=True)
    assert ["listening" in row for row in rows] == [False, True]
    assert listening(untrained("iql")) is None
    assert listening(replace(untrained("hilp"), bank=untrained("hilp").bank.subsample(0, 0))) is None


def test_diagnosis_says_it(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a method that learns no distances, of which there is nothing else to say."""
    policy = untrained("gc-bc")
    found = diagnosis.diagnose(policy)
    assert found["listening"] == listening(policy)
    assert main(["diagnose", str(policy.save(tmp_path / "policy"))]) == 0
    assert explain.explain_listening(found["listening"]) in capsys.readouterr().out
    assert "hardly listens" in explain.explain_listening(0.1)
    assert "the actor listens" in explain.explain_listening(0.9)


def test_rows_say_it() -> None:
    """Of policies that take prompts; of a policy of one task there is nothing to say."""
    from hilp.evaluation.evaluate import describe

    policy = untrained("gc-bc")
    assert describe(policy, "t", 0, None)["listening"] == listening(policy)
    assert "listening" not in describe(untrained("iql"), "t", 0, None)
