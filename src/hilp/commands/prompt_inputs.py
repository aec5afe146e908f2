"""What `hilp prompt` makes of files and of other prompts: demonstrations, preferences, sums, a few episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hilp.commands import common
from hilp.errors import HilpError

if TYPE_CHECKING:
    from hilp.policy.policy import FoundationPolicy


def combined(flags: Any, policy: FoundationPolicy, world: Any | None, prompt: Any) -> Any:
    """The prompt with what --add and --then say."""
    from hilp.policy import combining

    for text in flags.add:
        weight, colon, path = text.partition(":")
        try:
            share = float(weight) if colon else 1.0
        except ValueError:  # a path with a colon in it
            share, path = 1.0, text
        prompt = prompt + share * policy.load_prompt(path if colon else text)
    if flags.then is None:
        return prompt
    until: Any = flags.until
    if until is not None and until.strip().lstrip("+-").isdigit():
        until = int(until)
    ending = combining.condition_of(prompt, until, {} if world is None else dict(world.columns))
    return combining.ThenPrompt(prompt, policy.load_prompt(flags.then), ending)


def adapted(flags: Any, policy: FoundationPolicy, world: Any, prompt: Any) -> tuple[Any, dict[str, Any]]:
    """The prompt after a search with a few episodes, and what these earned."""
    from hilp.evaluation import rollouts

    name = flags.earn if flags.earn is not None else flags.reward
    reward = None if name is None else common.reward_of(name, policy, world)
    evaluator = rollouts.episode_return(policy, world, reward, flags.seed)
    search = policy.adapt(prompt, evaluator, episodes=flags.adapt or 0, seed=flags.seed)
    return search.prompt, {"earned before": search.earned[0], "earned adapted": search.earned[search.best]}


def demonstration(text: str, run: str, reading: common.Reading) -> Any:
    """The observations of one episode of a data file: FILE, or FILE:3."""
    import numpy as np

    from hilp import trees

    path, colon, number = text.rpartition(":")
    if not colon or not number.isdigit() or Path(text).exists():
        path, number = text, "0"
    data = common.read_as_trained(run, path, reading)
    if int(number) >= data.episodes:
        raise HilpError(f"{path} has {data.episodes} episodes, counted from 0: there is no episode {number}")
    first = int(data.starts[int(number)])
    rows = slice(first, first + int(data.lengths[int(number)]))
    return trees.over(lambda part: np.asarray(part[rows]), data.observations)


def preferences(path: str, parts: Sequence[str]) -> list[tuple[Any, Any]]:
    """Pairs of segments from an npz file."""
    from hilp.data import columns

    if parts:
        raise HilpError("--prefer takes plain vectors, and this policy has observations by name: use policy.prefer")
    wanted = "--prefer takes an npz file with 'better' and 'worse', numbers [pairs, rows, observation] each"
    try:
        found = columns.open_npz(Path(path), ("better", "worse"))
        for name in ("better", "worse"):
            if name not in found:
                raise HilpError(f"{path} has no '{name}'")
            if found[name].dtype.kind not in columns.NUMBERS or len(found[name].shape) != 3:
                raise HilpError(f"'{name}' of {path} holds {found[name].dtype} of shape {tuple(found[name].shape)}")
        better, worse = (found[name][:] for name in ("better", "worse"))
    except HilpError as error:
        raise HilpError(f"{wanted}: {error}") from error
    if len(better) != len(worse):
        raise HilpError(f"{wanted}: it has {len(better)} better and {len(worse)} worse segments")
    return list(zip(better, worse, strict=True))
