"""Whether an actor listens: how far its actions spread over skills, against how far the data's actions spread.

An actor that has learnt to ignore its skill does one thing whatever the prompt, and no loss says so.
"""

from typing import Any

import numpy as np

from hilp.prompts.agent import Batch
from hilp.prompts.bank import Bank
from hilp.spec import Spec

ROWS = 256  # states that the number is measured in
PICTURES = 32  # the same of policies that see pictures, which take longer
SKILLS = 8  # in each of them


def states(spec: Spec) -> int:
    """How many states a policy is measured in."""
    return PICTURES if spec.pictures else ROWS


def listening(policy: Any, seed: int = 0) -> float | None:
    """`spread` of a policy in states of its bank; None where it takes no prompt or keeps no states."""
    if not policy.skill_dim or not len(policy.bank):
        return None
    kept = policy.bank.subsample(states(policy.spec), seed)
    skills = _skills(policy, kept, np.random.default_rng(seed))
    if skills is None:
        return None
    batch = Batch(kept.observations, False)
    inside = policy.preparation.inside
    acted = np.stack([inside(policy.chosen(policy.rule("act", batch, z))) for z in skills])
    return spread(acted, inside(kept.actions))


def spread(acted: np.ndarray, actions: np.ndarray) -> float | None:
    """sqrt(mean of Var over skills z of act(s, z) / mean of Var over rows of the data's action).

    acted: skills x rows x (chunk x) act, actions: rows x act. The means are over all other axes, the variance over
    skills is that of a sample (n - 1). At 1 prompts move actions as far as the data moved them; None where the data's
    actions are all the same.
    """
    of_data = float(np.var(actions, axis=0, dtype=np.float64).mean())
    return float(np.sqrt(np.var(acted, axis=0, ddof=1, dtype=np.float64).mean() / of_data)) if of_data > 0.0 else None


def _skills(policy: Any, kept: Bank, rng: np.random.Generator) -> np.ndarray | None:
    """SKILLS x rows x dim, as the method draws them: of other segments, uniform, or the goals of other rows."""
    if policy.skill_horizon is None and policy.has_rule("project"):
        drawn = rng.normal(size=(SKILLS * len(kept), policy.skill_dim))
        return np.asarray(policy.project(drawn)).reshape(SKILLS, len(kept), -1)
    of_rows = kept.skills
    if policy.has_rule("goal_skill"):
        of_rows = policy.rule("goal_skill", Batch(kept.observations, False))
    return None if of_rows is None else np.stack([rng.permutation(of_rows) for _ in range(SKILLS)])
