"""hilp: unlabeled trajectories in, a promptable policy out.

Public names are imported when first used, so that `import hilp` and `hilp --help` stay instant.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hilp import compiler

if TYPE_CHECKING:
    from hilp.collectors import collect
    from hilp.collectors.named import load
    from hilp.data.dataset import Dataset
    from hilp.data.load import register as register_format
    from hilp.data.rewards import label
    from hilp.errors import HilpError, PromptUnsupported
    from hilp.evaluation.diagnosis import diagnose
    from hilp.evaluation.evaluate import evaluate
    from hilp.evaluation.rollouts import adapt, episode_return
    from hilp.learning.methods import register as register_method
    from hilp.learning.methods.hilp import Config as HILP
    from hilp.policy.policy import FoundationPolicy
    from hilp.presets import preset
    from hilp.prompts.specs import Follow, Goal, Prefer, Prior, Reward, Saved, Skill, Sum, Then
    from hilp.tasks import make as make_task
    from hilp.tasks import register as register_task
    from hilp.tasks.gym import gym_task
    from hilp.training.hierarchy import hierarchy
    from hilp.training.loop import pretrain

compiler.avoid_wrong_reductions()

_NAMES = {  # by module; a name that is another one there comes with it
    "hilp.collectors": "collect",
    "hilp.collectors.named": "load",
    "hilp.data.dataset": "Dataset",
    "hilp.data.load": "register_format=register",
    "hilp.data.rewards": "label",
    "hilp.errors": "HilpError PromptUnsupported",
    "hilp.evaluation.diagnosis": "diagnose",
    "hilp.evaluation.evaluate": "evaluate",
    "hilp.evaluation.rollouts": "adapt episode_return",
    "hilp.learning.methods": "register_method=register",
    "hilp.learning.methods.hilp": "HILP=Config",
    "hilp.policy.policy": "FoundationPolicy",
    "hilp.presets": "preset",
    "hilp.prompts.specs": "Follow Goal Prefer Prior Reward Saved Skill Sum Then",
    "hilp.tasks": "make_task=make register_task=register",
    "hilp.tasks.gym": "gym_task",
    "hilp.training.hierarchy": "hierarchy",
    "hilp.training.loop": "pretrain",
}
_PAIRS = [(home, *name.split("=")) for home, names in _NAMES.items() for name in names.split()]
_HOMES = {name: (home, own[0] if own else name) for home, name, *own in _PAIRS}
__all__ = [  # noqa: RUF022
    "Dataset", "Follow", "FoundationPolicy", "Goal", "HILP", "HilpError", "Prefer", "Prior", "PromptUnsupported",
    "Reward", "Saved", "Skill", "Sum", "Then", "__version__", "adapt", "collect", "diagnose", "episode_return",
    "evaluate", "gym_task", "hierarchy", "label", "load", "make_task", "preset", "pretrain", "register_format",
    "register_method", "register_task",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("hilp")
    if name not in _HOMES:
        raise AttributeError(f"module 'hilp' has no attribute '{name}'")
    home, attribute = _HOMES[name]
    return getattr(importlib.import_module(home), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
