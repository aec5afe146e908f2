"""Values of a config that are "auto", chosen by the time scale of the data.

Numbers of the user always win. What was chosen is written down as numbers, so a policy, a run and a row say what they
were trained with, and a run that is resumed goes on with what it began with.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hilp.data import timescale
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, say
from hilp.learning import configs
from hilp.presets import Preset

HORIZON = "phi_discount"  # where it is "auto", so is the stride
GROWTH = 2 / 3  # of updates with phi's horizon (docs/results.md, maps of one's own)
PIECES = 0.5  # of the way across: data whose episodes are shorter has to be put together
DECISIVE = {"discount": 0.95, "temperature": 10.0}  # of skills that follow plans through such data (docs/results.md)


class Resolved(NamedTuple):
    """A config without open values, the data to train it on, and what was chosen, in a line."""

    config: Any
    data: Dataset
    line: str | None = None


def resolve(config: Any, data: Dataset, before: Mapping[str, Any] = {}) -> Resolved:
    """Numbers for all that is "auto", and data subsampled to go with them; before: the description of a resumed run."""
    keys = configs.to_fit(config)
    if not keys:
        return Resolved(config, data)
    stride_open = HORIZON in keys and _stride_open(data)
    begun = before.get("config") or {}
    if not isinstance(begun, Mapping):
        raise HilpError(
            f"the config in run.json is no config, but {begun!r:.60}: restore it, or train in another folder"
        )
    values = {key: value for key, value in begun.items() if key in keys}
    stride = before.get("stride", 1)
    if len(values) == len(keys) and type(stride) is int and stride >= 1:
        return Resolved(configs.changed(config, values), _subsampled(data, stride if stride_open else 1))
    scale = timescale.of_dataset(data)
    if not stride_open:
        scale = scale.not_subsampled
    data = _subsampled(data, scale.stride)
    config = configs.changed(config, dict.fromkeys(keys, scale.discount))
    return Resolved(config, data, scale.line + _pieces(config, data, scale))


def updates(preset: Preset, config: Any, data: Dataset, quiet: bool = True) -> int:
    """A preset's updates; more, with a message, where data takes longer to cross, unless they were chosen for its task.

    Distances grow from neighbours to neighbours of neighbours, and there are more places to learn to turn at. With a
    number for `phi_discount` the preset decides.
    """
    if not preset.for_any_data or HORIZON not in configs.to_fit(config):
        return preset.steps
    scale = timescale.of_dataset(data)
    discount = (scale if _stride_open(data) else scale.not_subsampled).discount
    longer = (1.0 - timescale.USUAL_DISCOUNT) / (1.0 - discount)
    found = max(preset.steps, 1000 * round(preset.steps * longer**GROWTH / 1000))
    if found > preset.steps and not quiet:
        say(f"{found:,} updates, for data that takes long to cross (--steps overrules)")
    return found


def _stride_open(data: Dataset) -> bool:
    """Whether data may be subsampled: the user set no stride, and it names no task, which would have its own steps."""
    return data.stride is None and data.task is None and data.frames == 1


def _pieces(config: Any, data: Dataset, scale: timescale.TimeScale) -> str:
    """What to try where episodes are short pieces of the data: there, skills of the preset stand still at turns."""
    median = float(np.median(data.lengths)) - 1  # rows, a step fewer
    if scale.crossing is None or median >= PIECES * scale.crossing / scale.stride:
        return ""
    weighted = all(hasattr(config, name) for name in DECISIVE) and getattr(config, "extraction", "awr") == "awr"
    if not weighted or _weight(config.discount, config.temperature) >= _weight(**DECISIVE):
        return ""
    values = " ".join(f"{name}={value:g}" for name, value in DECISIVE.items())
    return f"; its episodes are short pieces of that (median {median:.0f} steps): for plans, consider --set {values}"


def _weight(discount: float, temperature: float) -> float:
    """How much a step the right way weighs against a wrong one, for as much as there is to gain (how-it-works.md)."""
    return temperature * (1.0 - discount**2)


def _subsampled(data: Dataset, stride: int) -> Dataset:
    if stride == 1:
        return data
    data = timescale.subsample(data, stride)
    data = data if data.action_scaling is None else timescale.refit_action_range(data)
    return data.as_checked()  # of rows that were checked
