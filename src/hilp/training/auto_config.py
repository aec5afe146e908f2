"""What is chosen by the data where the user says nothing: the method, its updates, and values of a config.

Numbers of the user always win. What was chosen is written down as numbers, so a policy, a run and a row say what they
were trained with, and a run that is resumed goes on with what it began with.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hilp import presets, trees
from hilp.data import chance, checks, dynamics, gait, measures, timescale
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, say
from hilp.learning import configs, methods
from hilp.learning.configs import AUTO
from hilp.presets import Preset

HORIZON = "phi_discount"  # where it is "auto", so is the stride
CHUNK = "chunk"
AHEAD = "k"  # rows that a skill of hindsight sums up
LEAPS = "cut_leaps"
COUNTS = (CHUNK, AHEAD)
TARGETS = 0.5  # share of commands that are targets for what is observed, from which a log is one of positions
ALIKE = 0.8  # of the autocorrelation over one row that is left over a chunk
LONGEST_CHUNK = 16
COMPARED = 20_000  # rows whose actions are held against later ones, or against those of near states
BC_WEIGHT = "bc_weight"
NARROW = 0.6  # of the spread of all actions: where near states differ by less, a log shows few others
STAYING = 0.3  # the weight of staying with the actions of such a log
ASKED = 500  # states whose nearest ones are looked for
GROWTH = 2 / 3  # of updates with phi's horizon (docs/results/mazes.md, maps of one's own)
MOST_TIMED = 10_000  # times the preset's updates that a run with a limit of time goes on for, which ends long before
HELD_OUT = 0.1  # of the episodes, where no task can measure a policy


class Resolved(NamedTuple):
    """A config without open values, the data to train it on, and what was chosen, in a line."""

    config: Any
    data: Dataset
    line: str | None = None


def resolve(config: Any, data: Dataset, before: Mapping[str, Any] = {}) -> Resolved:
    """Numbers for all that is "auto", and data subsampled to go with them; before: the description of a resumed run."""
    begun = before.get("config") or {}
    if not isinstance(begun, Mapping):
        raise HilpError(
            f"the config in run.json is no config, but {begun!r:.60}: restore it, or train in another folder"
        )
    config, data, line = _without_leaps(config, data, begun)
    lines = [] if line is None else [line]
    keys = configs.to_fit(config)
    if not keys:
        return Resolved(config, data, line)
    stride_open = HORIZON in keys and not hasattr(config, AHEAD) and _stride_open(data)  # a gait is not subsampled
    values = configs.known(config, begun, keys)
    stride = before.get("stride", 1)
    if len(values) == len(keys) and type(stride) is int and stride >= 1:
        return Resolved(configs.changed(config, values), _subsampled(data, stride if stride_open else 1))
    if discounts := [key for key in keys if key.endswith("discount")]:
        scale = timescale.of_dataset(data)
        if not stride_open:
            scale = scale.not_subsampled
        data = _subsampled(data, scale.stride)
        config = configs.changed(config, dict.fromkeys(discounts, scale.discount))
        lines.append(scale.line)
    if CHUNK in keys:
        chunk, line = chunk_for(data)
        config = configs.changed(config, {CHUNK: max(chunk, config.play)})
        lines += [] if line is None else [line]
    if AHEAD in keys:
        config = configs.changed(config, {AHEAD: gait.stride_rows(data) or gait.LENGTHS[0]})
        lines.append(f"skills sum up {config.k} rows")
    if BC_WEIGHT in keys:
        weight, line = bc_weight_for(data)
        config = configs.changed(config, {BC_WEIGHT: weight})
        lines += [] if line is None else [line]
    return Resolved(config, data, "; ".join(lines) or None)


def _without_leaps(config: Any, data: Dataset, begun: Mapping[str, Any]) -> tuple[Any, Dataset, str | None]:
    """Data that ends where chance made a long step, if that is wanted or, of "auto", if there are any."""
    if LEAPS in configs.to_fit(config):
        known = configs.known(config, begun, [LEAPS])
        if not known and not chance.of_dataset(data).leaps:
            return configs.changed(config, {LEAPS: False}), data, None
        config = configs.changed(config, known or {LEAPS: True})
    if not getattr(config, LEAPS, False):
        return config, data, None
    told = chance.of_dataset(data).line
    cut, leaps = chance.without_leaps(data)
    config = configs.changed(config, {LEAPS: leaps > 0})
    done = f"trajectories are cut at {leaps:,} long steps ({LEAPS})" if leaps else "no step is long enough to be cut"
    return config, cut, f"{told}; {done}"


def usual(
    name: str, data: Dataset, minutes: float | None = None, before: Mapping[str, Any] = {}, quiet: bool = True
) -> tuple[Preset, Dataset, dict[str, Any]]:
    """What `hilp pretrain` takes without flags: a preset, the data as networks see it, options of the training.

    name: a method, or "auto" for the one that suits the data. before: the description of a resumed run.
    """
    tell = (lambda line: None) if quiet else say
    data = with_past(seen_usually(data, tell), tell)
    preset = presets.preset(method_named(name, "laptop", data, before, tell), "laptop", data.task)
    steps = MOST_TIMED * preset.steps if minutes else updates(preset, preset.config, data, quiet)
    return preset, data, {"steps": steps, "bank": preset.bank, "validation": held_out_share(data)}


def with_past(data: Dataset, tell: Callable[[str], object]) -> Dataset:
    """Data of no task whose rows do not tell the state, with the last few seen at once; told, where there are any.

    Only where every row would be trained on: of data that is subsampled, neighbours are not a step apart.
    """
    if not _stride_open(data) or timescale.of_dataset(data).stride > 1:
        return data
    count, why = dynamics.advised(dynamics.Dynamics.past(data))
    if not why:
        return data
    tell(f"{why}: networks see {count} at once (--frames 1 overrules)")
    return data.in_frames(count).as_checked()


def seen_usually(data: Dataset, tell: Callable[[str], object]) -> Dataset:
    """Data of no task with its angles as networks should see them; what was turned is told."""
    turned = data if data.task is not None else checks.with_angles(data)
    if turned is not data:
        tell(f"{'; '.join(turned.notes[len(data.notes) :])}, as it wraps (--angles none leaves it as it is)")
    return turned


def method_named(name: str, size: str, data: Dataset, before: Mapping[str, Any], tell: Callable[[str], object]) -> str:
    """The method of this name; of "auto" the one that a run began with, else the one that suits the data, and why."""
    if name != AUTO or isinstance(before.get("method"), str):
        return name if name != AUTO else str(before["method"])
    method, line = ("hilp", None) if size == "paper" else method_for(data)
    if line is not None:
        tell(line)
    return method


def config_begun(config: Any, before: Mapping[str, Any]) -> Any:
    """The config that a run of the same method began with, or of a new run this one."""
    if not isinstance(before.get("config"), Mapping) or before.get("method") != methods.name_of(config):
        return config
    chosen = {field.name for field in dataclasses.fields(config)}.difference(configs.to_fit(config))  # see `resolve`
    return configs.changed(config, configs.known(config, before["config"], chosen))


def as_begun(before: Mapping[str, Any], steps: Any, minutes: Any) -> dict[str, Any]:
    """Validation of a run that is resumed, and where neither is given its steps and minutes, as far as it says so."""
    begun = {"validation": before["validation"]} if isinstance(before.get("validation"), float) else {}
    if steps is None and isinstance(before.get("steps"), int):
        begun["steps"] = before["steps"]
    until = before.get("until")
    if steps is None and minutes is None and isinstance(until, Mapping):
        begun |= {"minutes": until.get("minutes")} | ({"steps": AUTO} if until.get("converged") else {})
    return begun


def held_out_share(data: Dataset) -> float:
    """Of episodes that a policy is not trained on but measured with, where no task can measure it."""
    return HELD_OUT if data.task is None and data.episodes * HELD_OUT >= 1 else 0.0


def method_for(data: Dataset) -> tuple[str, str | None]:
    """The method that suits data, and a line where that is not hilp.

    Most of what changes in a walking body swings back at once. A direction of phi says little about the actions of such
    data, and a policy told to follow one hardly listens; what its next stride was like says all.
    """
    rows = gait.walks(data)
    if rows is None:
        return "hilp", None
    told = f"most columns swing back within {rows} rows and others get on, as in a body that walks"
    return "hindsight", f"{told}: trained with hindsight (--method hilp overrules)"


def bc_weight_for(data: Dataset) -> tuple[float, str | None]:
    """How much an actor that climbs Q shall stay with the data's actions, and a line where it shall.

    Q is not to be trusted for actions that a log never shows: where all near states act alike, climbing it makes a
    robot fall over. Data of random or exploring actions shows all kinds, and needs no such term.
    """
    share = action_spread(data)
    if share is None or share >= NARROW:
        return 0.0, None
    told = f"near states act alike (actions differ by {share:.2f} of what those of any two states do)"
    return STAYING, f"{told}: actors stay with the data's (bc_weight {STAYING:g})"


def action_spread(data: Dataset) -> float | None:
    """E|a_i - a_j|^2 / (2 Var[a]), j the nearest state to i of another episode: 1 where near states act at random.

    Columns count in units of their deviation. None where there is one episode, nothing but pictures, or one action.
    """
    parts, rows = _numbers(data), data.transition_rows
    if not parts or data.episodes < 2:
        return None
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(rows, min(COMPARED, len(rows)), replace=False))
    episode = np.searchsorted(data.starts, rows, side="right")
    seen = np.concatenate([np.asarray(part[rows], np.float32) for part in parts], axis=1)
    deviation = seen.std(axis=0)
    seen = (seen - seen.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    actions = np.asarray(data.network_actions[rows], np.float64)
    at = rng.choice(len(rows), min(ASKED, len(rows)), replace=False)
    apart = np.square(seen).sum(axis=1) - 2.0 * seen[at] @ seen.T  # but for what is the same for all of a row
    apart[episode[at][:, None] == episode] = np.inf
    differ = np.square(actions[at] - actions[apart.argmin(axis=1)]).sum(axis=1).mean()
    usual = 2.0 * actions.var(axis=0).sum()
    return float(differ / usual) if usual > 0 else None


def _numbers(data: Dataset) -> list[Any]:
    """The parts of observations that are vectors of numbers."""
    parts = trees.named(data.observations, "").values()
    return [part for part in parts if part.dtype != np.uint8 and part.ndim == 2]


def chunk_for(data: Dataset) -> tuple[int, str | None]:
    """How many actions to answer at once, and a line where that is more than one.

    People who say by their commands where a body shall be pause and turn as they please: an actor of one action learns
    to stand still. Where most commands are targets for what is observed, it answers as many as stay alike; elsewhere
    actions are fresh at each step, and it answers one.
    """
    parts = _numbers(data)
    if not parts or data.choices:
        return 1, None
    seen, actions = parts[0], data.actions
    if len(parts) > 1:
        seen, actions = np.concatenate([part[:COMPARED] for part in parts], axis=1), actions[:COMPARED]
    targets = measures.position_commands(seen, actions)
    if len(targets) < TARGETS * data.action_dim:
        return 1, None
    longer = [k for k in (2, 4, 8, LONGEST_CHUNK) if autocorrelation(data, k) >= ALIKE * autocorrelation(data, 1) > 0.0]
    chunk = max(longer, default=1)
    told = f"{len(targets)} of {data.action_dim} commands are positions that the body follows, and stay alike for "
    return chunk, None if chunk == 1 else f"{told}{chunk} rows or more: {chunk} actions are answered at once (chunk)"


def autocorrelation(data: Dataset, lag: int) -> float:
    """Of actions, so many rows apart in an episode, all columns together; 0 where no episode is as long."""
    left = np.repeat(data.starts + data.lengths - 1, data.lengths)[data.transition_rows] - data.transition_rows
    rows = data.transition_rows[left > lag]
    if not len(rows):
        return 0.0
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, COMPARED).astype(np.int64))]
    now, later = (np.asarray(data.actions[at], np.float64) for at in (rows, rows + lag))
    mean = now.mean(axis=0)
    return float(((now - mean) * (later - mean)).sum() / max(np.square(now - mean).sum(), 1e-12))


def updates(preset: Preset, config: Any, data: Dataset, quiet: bool = True) -> int:
    """A preset's updates; more, with a message, where data takes longer to cross, unless they were chosen for its task.

    Distances grow from neighbours to neighbours of neighbours, and there are more places to learn to turn at. With a
    number for `phi_discount` the preset decides.
    """
    keys = configs.to_fit(config)
    if not preset.for_any_data or HORIZON not in keys or hasattr(config, AHEAD):  # of a body, phi sees places alone
        return preset.steps
    scale = timescale.of_dataset(data)
    discount = (scale if _stride_open(data) else scale.not_subsampled).discount
    longer = (1.0 - timescale.USUAL_DISCOUNT) / (1.0 - discount)
    found = max(preset.steps, 1000 * round(preset.steps * longer**GROWTH / 1000))
    if found > preset.steps and not quiet:
        say(f"{found:,} updates, for data that takes long to cross (--steps overrules)")
    return found


def _stride_open(data: Dataset) -> bool:
    """Whether data may be subsampled: the user set no stride, and commands have a mean; a task has its own steps."""
    return data.stride is None and data.task is None and data.frames == 1 and not data.choices


def _subsampled(data: Dataset, stride: int) -> Dataset:
    if stride == 1:
        return data
    data = timescale.subsample(data, stride)
    data = data if data.action_scaling is None else timescale.refit_action_range(data)
    return data.as_checked()  # of rows that were checked
