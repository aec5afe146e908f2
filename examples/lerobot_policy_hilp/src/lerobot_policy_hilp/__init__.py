"""Policies of hilp in LeRobot, which imports packages of such a name and then knows the policy type `hilp`."""

from lerobot_policy_hilp.configuration_hilp import HilpConfig
from lerobot_policy_hilp.modeling_hilp import HilpPolicy
from lerobot_policy_hilp.processor_hilp import make_hilp_pre_post_processors

__all__ = ["HilpConfig", "HilpPolicy", "make_hilp_pre_post_processors"]
