"""Rewards by segments: do what the data did where it was paid most, for skills that are what segments were like."""

import numpy as np

from hilp.errors import HilpError
from hilp.prompts.agent import Agent
from hilp.prompts.bank import Bank

SHARE = 0.01  # of segments that count as best paid


def serve(policy: Agent) -> bool:
    """Whether segments are what a policy has for rewards."""
    return policy.bank.skills is not None and not (policy.has_rule("cumulant") or policy.has_rule("backward"))


def kept(policy: Agent, bank: Bank) -> np.ndarray:
    """The skills of segments that a bank of a policy keeps."""
    if bank.skills is None:
        raise HilpError(
            f"this {policy.method} policy keeps no skills of segments: methods such as hindsight do, with a bank"
        )
    return bank.skills


def best_paid(skills: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """The mean skill [dim] of the segments [n, dim] whose first step is paid most, all that are paid alike among them.

    No regression: a reward of speeds is no direction of what segments were like, but its best segments are alike.
    """
    least = np.sort(rewards)[-max(1, round(SHARE * len(rewards)))]
    best = rewards >= least if least > rewards.min() else rewards > least  # the worst are never among the best
    return skills[best].mean(axis=0)
