"""A few episodes: search among skills around those of a prompt."""

from __future__ import annotations

from typing import Any

from hilp.evaluation.rollouts import episode_return
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import search
from hilp.prompts.base import Prompt


def adapt(
    policy: FoundationPolicy, prompt: Prompt, evaluator: Any, episodes: int = 10, seed: int = 0, **options: Any
) -> search.Search:
    """Search among skills around a prompt's own with a few episodes; `prompt` of the result is what earned most.

    evaluator: a function of a prompt that runs an episode and gives what it earned, or a task (then `reward` names one
    of its rewards, where it has several). The first episode is that of the prompt as it is.
    """
    run = evaluator if callable(evaluator) else episode_return(policy, evaluator, seed=seed, **options)
    return search.search(policy, prompt, run, episodes, seed)
