"""One step of a controller on its way to a goal: one observation in, one action out, in as few calls as it takes.

Batches do not come here, so their numbers stay those of `prompt(observations)` and `act`, to the bit.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from hilp.policy.preparation import Preparation
from hilp.policy.prompts import GoalPrompt
from hilp.policy.rules import Rules
from hilp.trees import Tree


def act(rules: Rules, preparation: Preparation, observation: Tree, prompt: GoalPrompt) -> np.ndarray:
    """The action for one checked observation [1, ...] under a prompt that goes by direction."""
    prepared = preparation.observations(observation)
    if prompt.plan == 0:
        action = np.asarray(rules.on_device("act_and_encode", prepared, prompt.one_goal)[0])
    else:
        here = rules("encode", prepared)
        action = rules("act_between", prepared, here, prompt.subgoal(here))
    return preparation.actions(action)[0]


def encode_goal(rules: Rules, core: Any, goal: Tree) -> np.ndarray:
    """The latent [1, dim] of one prepared goal [1, ...], by the program that will act on the way there."""
    width = jax.eval_shape(lambda rows: core.encode(rows), goal).shape[-1]
    nowhere = np.zeros((1, width), np.float32)
    return np.asarray(rules.on_device("act_and_encode", goal, nowhere)[1])
