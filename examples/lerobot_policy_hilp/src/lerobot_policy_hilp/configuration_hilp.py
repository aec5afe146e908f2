"""Which policy acts, and under which prompt."""

from dataclasses import dataclass, field
from typing import Any

from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import NormalizationMode

NO_TRAINING = "LeRobot does not train policies of hilp: train with `hilp pretrain`, then act here"


@PreTrainedConfig.register_subclass("hilp")
@dataclass
class HilpConfig(PreTrainedConfig):
    """A trained policy and what it is asked for."""

    policy_path: str = "policy"
    """folder of a run or of a policy of hilp; a relative one is looked for in the folder of this file first"""
    prompt: str = ""
    """a prompt's spec as JSON, such as {"kind": "goal", "goal": [10.5, 1.5], "plan": "auto"}, or a file of a saved
    prompt; without one, the task of each observation says it in the same way"""
    normalization_mapping: dict[str, NormalizationMode] = field(
        # The policy brings its own normaliser: what LeRobot knows of other data must not come before it.
        default_factory=lambda: dict.fromkeys(("STATE", "VISUAL", "ACTION"), NormalizationMode.IDENTITY)
    )

    @property
    def observation_delta_indices(self) -> None:
        return None

    @property
    def action_delta_indices(self) -> None:
        return None

    @property
    def reward_delta_indices(self) -> None:
        return None

    def get_optimizer_preset(self) -> Any:
        raise NotImplementedError(NO_TRAINING)

    def get_scheduler_preset(self) -> None:
        return None

    def validate_features(self) -> None:
        """Nothing before the policy is loaded, which knows its own."""
