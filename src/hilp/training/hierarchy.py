"""Hierarchies: a high level pi(z | s) over the skills of a trained policy, learnt offline from data with rewards.

Every segment of k steps is labelled with the skill that it followed, once for all rows; then IQL takes skills for
actions, k steps for one, in the loop that trains everything else.
"""

import math
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from hilp import presets, trees
from hilp.data import rewards, timescale
from hilp.data.dataset import Dataset, require_dataset
from hilp.data.transforms import ActionScaling
from hilp.errors import HilpError, require_count
from hilp.learning import methods
from hilp.policy.policy import FoundationPolicy, HighLevel, require_policy
from hilp.prompts import reward as reward_prompts
from hilp.prompts.skills import HierarchyPrompt, steps_of_a_skill
from hilp.runs import PROMPT
from hilp.spec import Spec
from hilp.training import loop
from hilp.training.options import TrainOptions
from hilp.training.run import fingerprint_with

BLOCK = 8192  # segments whose skills are named at a time
NOT_OF_A_HIERARCHY = {"bank", "most_steps", "evaluate", "eval_every", "on_policies"}  # options of policies
MOST_PICTURES = 64 << 20  # bytes of pictures in such a block


@overload
def hierarchy(
    policy: FoundationPolicy, data: Dataset, reward: Any = None, *, seeds: Literal[1] = 1, **keywords: Any
) -> HierarchyPrompt: ...
@overload
def hierarchy(
    policy: FoundationPolicy, data: Dataset, reward: Any = None, *, seeds: int, **keywords: Any
) -> list[HierarchyPrompt]: ...
def hierarchy(
    policy: FoundationPolicy,
    data: Dataset,
    reward: Any = None,
    *,
    steps: int | None = None,
    k: int | None = None,
    shift: float = 0.0,
    ends: bool = False,
    config: Any = None,
    preset: str = "laptop",
    named: str | None = None,
    **keywords: Any,
) -> HierarchyPrompt | list[HierarchyPrompt]:
    """Train a high level that chooses one of the policy's skills every k steps, for a reward; a prompt comes out.

    reward: a vectorised function of (s, a, s') (or of (s, a, s', extras)), a formula over the observation's parts, or
    None: the rewards of the data. shift, ends: see `hilp.label`. k: steps that a skill lasts (10, or as the policy's
    skills were learnt). config: that of the method `iql`, instead of `preset` (laptop or paper). named: the name of the
    reward in run.json and in the prompt. The other keywords are those of `hilp.pretrain`: seed, seeds, out, resume, ...
    """
    for name in keywords.keys() & NOT_OF_A_HIERARCHY:
        raise HilpError(f"a high level is trained without {name}: leave it out")
    require_policy(policy)
    policy.require_rule("skill_of", "cannot name the skill of a segment, so no high level can choose among its skills")
    require_dataset(data)
    by_row, data = data, as_trained(policy, data)
    if reward is None and data is not by_row:
        raise HilpError(
            f"steps of this policy span {data.stride} rows, and the rewards of {data.name} are of one row each: give a "
            "reward as a function or a formula"
        )
    usual = presets.high_level(preset, data.task)
    config = own_config(policy, data, usual.config if config is None else config, k)
    options = TrainOptions(require_count("steps", usual.steps if steps is None else steps), **keywords)
    if isinstance(reward, str):
        named, reward = named or reward, _formula(policy, reward)
    labelled = rewards.label(data, reward, shift=shift, ends=ends)
    run = loop.prepare(config, with_skills(policy, labelled, config.k), options)
    run.about = {
        "policy": policy.fingerprint,
        "reward": named or ("the data's own" if reward is None else getattr(reward, "__name__", "a function")),
        "shift": shift,
        "ends": ends,
        # Without the skills: their last bits depend on the machine and the compiler, and a run may be resumed on
        # another one.
        "data_fingerprint": fingerprint_with(labelled, methods.columns(config)),
    }
    session = loop.Session(run)
    with session.writer.locked():
        state, updates = session.train()
        spec = Spec.of(data.observations, policy.skill_dim)
        found = []
        for seed, core in enumerate(run.exports(state), options.seed):
            about = {**run.about, "data": data.name, "updates": updates, "seed": seed}
            found.append(HierarchyPrompt(policy, HighLevel(config, spec, core, run.preparation, about)))
            if session.writer.own_folder is not None:
                options.home(seed).mkdir(exist_ok=True)
                found[-1].save(options.home(seed) / PROMPT)
    return found[0] if options.seeds == 1 else found


def own_config(policy: FoundationPolicy, data: Dataset, config: Any, k: int | None) -> Any:
    """The config of a high level, with the steps that the policy's skills last."""
    if methods.name_of(config) != presets.HIGH_LEVEL:
        raise HilpError(f"a high level is trained by {presets.HIGH_LEVEL}, not by {methods.name_of(config)}")
    config = replace(config, k=steps_of_a_skill(policy, None if k is None else require_count("k", k), config.k))
    longest = int(data.lengths.max(initial=1)) - 1
    if config.k > longest:
        raise HilpError(f"k={config.k} is longer than every episode of {data.name} (the longest has {longest} steps)")
    return config


def _formula(policy: FoundationPolicy, text: str) -> Any:
    angles = reward_prompts.angles_of(policy.transform)
    return reward_prompts.formula(policy.spec, policy.observation_parts, text, angles)


def as_trained(policy: FoundationPolicy, data: Dataset) -> Dataset:
    """Data as the policy's own was: of its sizes and parts, and subsampled as that was."""
    remedy = "use data of the task that it was trained on, read as that was"
    policy.spec.require("this policy", data.spec, data.name, remedy)
    stride = policy.preparation.stride
    return timescale.subsample(data, stride) if stride > 1 and (data.stride or 1) == 1 else data


def with_skills(policy: FoundationPolicy, data: Dataset, k: int) -> Dataset:
    """The same data with the skill of each row's segment for an action, scaled to [-1, 1]."""
    skills = segment_skills(policy, data, k)
    used = skills[data.transition_rows]
    if not np.isfinite(used).all():
        raise HilpError(f"the skills of this policy on {data.name} hold a NaN or an infinity")
    scaling = ActionScaling.of_range(used.min(axis=0), used.max(axis=0))
    return replace(data, actions=scaling.scaled(skills), action_scaling=scaling, stride_actions="mean", choices=0)


def segment_ends(data: Dataset) -> np.ndarray:
    """[rows]: the last row that a segment from each row may reach, the end of its episode or of a terminal transition.

    Behind a terminal transition data may go on, as a walk does that was at its goal; where it goes then is no part of
    how it got there.
    """
    last = np.repeat(data.starts + data.lengths - 1, data.lengths)
    if rewards.TERMINALS not in data.extras:
        return last
    rows = np.arange(data.rows)
    over = np.where(np.asarray(data.extras[rewards.TERMINALS]) > 0, rows + 1, data.rows)
    return np.minimum(last, np.minimum.accumulate(over[::-1])[::-1])


def segment_skills(policy: FoundationPolicy, data: Dataset, k: int) -> np.ndarray:
    """[rows, skill_dim]: the skill that the data followed for k steps from each row, or to where that ends."""
    last = segment_ends(data)
    skills = np.zeros((data.rows, policy.skill_dim), np.float32)
    picture = sum(math.prod(shape) for shape in policy.spec.pictures.values())
    block = min(BLOCK, max(1, MOST_PICTURES // (picture * (k + 1)))) if picture else BLOCK
    for first in range(0, data.rows, block):
        # The last block goes back over rows that it shares with the one before: one program for all of them.
        at = np.arange(max(0, min(first, data.rows - block)), min(first + block, data.rows))
        rows = np.minimum(at[:, None] + np.arange(k + 1), last[at, None])
        observations = trees.over(lambda part, rows=rows: np.asarray(part[rows]), data.observations)
        if not policy.spec.parts:
            observations = np.asarray(observations, np.float32)
        skills[at] = policy.skill_of(observations, data.acted(rows[:, :-1]), np.minimum(last[at] - at, k))
    return skills
