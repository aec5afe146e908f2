"""What a prompt asks of a policy: so a policy can make prompts without a circle of imports."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hilp.data.dataset import Parts
from hilp.errors import HilpError, PromptUnsupported
from hilp.policy import planning
from hilp.policy.bank import Bank
from hilp.policy.graph import Graph
from hilp.policy.routes import Routes
from hilp.spec import Spec
from hilp.trees import Tree


class Promptable(Protocol):
    """What a prompt asks of a policy; see FoundationPolicy, which is one."""

    @property
    def method(self) -> str: ...
    @property
    def spec(self) -> Spec: ...
    @property
    def bank(self) -> Bank: ...
    @property
    def observation_parts(self) -> Parts: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def skill_dim(self) -> int: ...
    @property
    def discount(self) -> float: ...
    @property
    def stride(self) -> int: ...
    @property
    def lasts(self) -> int | None: ...
    @property
    def midpoints(self) -> planning.Midpoints: ...
    @property
    def graph(self) -> Graph | None: ...
    @property
    def routes(self) -> Routes: ...
    def has_rule(self, rule: str) -> bool: ...
    def require_rule(self, rule: str, lacking: str) -> None: ...
    def batched(self, observation: Any) -> tuple[Tree, bool]: ...
    def encode(self, observation: Any) -> np.ndarray: ...
    def direct(self, here: np.ndarray, there: np.ndarray) -> np.ndarray: ...
    def distance(self, here: np.ndarray, there: np.ndarray) -> np.ndarray: ...
    def aim(self, goal: Any) -> np.ndarray: ...
    def cumulant(self, observation: Any, following: Any) -> np.ndarray: ...
    def backward(self, following: Any) -> np.ndarray: ...
    def project(self, z: np.ndarray) -> np.ndarray: ...
    def prior_skill(self, observation: Any, noise: np.ndarray) -> np.ndarray: ...


def has_graph(policy: Promptable) -> bool:
    """Whether a policy has what a graph of its data is made of."""
    return policy.has_rule("direct") and policy.has_rule("discount") and len(policy.bank) > 0


def require_graph(policy: Promptable) -> None:
    """Raise unless a policy has what a graph of its data is made of."""
    if not policy.has_rule("direct"):
        raise PromptUnsupported(f"{policy.method} has no latent distances, so it has no graph of its data: use plan=0")
    policy.require_rule("discount", "does not say how far its distances reach, so it has no graph of its data")
    if not len(policy.bank):
        raise HilpError("this policy was saved without a bank of states, so it has no graph of its data: use plan=0")


def numbers(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise HilpError(f"{name} must be numbers: {error}") from error
