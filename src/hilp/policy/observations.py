"""What a policy is given as observations: checked, and brought to a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hilp.data.dataset import Parts
from hilp.errors import HilpError, some
from hilp.spec import Spec
from hilp.trees import Tree


def batched(observation: Any, spec: Spec, observation_parts: Parts) -> tuple[Tree, bool]:
    """Observations as a batch, and whether a single one was given."""
    if spec.parts:
        return _parts(observation, spec)
    if isinstance(observation, Mapping):
        observation = _put_together(observation, observation_parts)
    try:
        array = np.asarray(observation, np.float32)
    except (TypeError, ValueError) as error:
        raise HilpError(f"an observation must be numbers: {error}") from error
    wanted = spec.observation_dim
    if array.ndim not in (1, 2) or array.shape[-1] != wanted:
        raise HilpError(
            f"this policy takes observations of {wanted} numbers (or batches [n, {wanted}]), not {array.shape}"
        )
    if not np.isfinite(array).all():
        raise HilpError("the observation holds a NaN or an infinity")
    return (array[None], True) if array.ndim == 1 else (array, False)


def _parts(observation: Any, spec: Spec) -> tuple[dict[str, np.ndarray], bool]:
    """The same for observations that are a tree of named arrays; names that nobody knows are left."""
    about = some([f"{name} {kind} {shape}" for name, shape, kind in spec.parts])
    if not isinstance(observation, Mapping):
        raise HilpError(f"this policy takes observations by name ({about}): give a dict of arrays")
    arrays: dict[str, np.ndarray] = {}
    counts: set[int | None] = set()
    for name, shape, kind in spec.parts:
        if name not in observation:
            raise HilpError(f"this policy's observation is made of {about}, and '{name}' is not given")
        try:
            array = np.asarray(observation[name])
            exact = array.astype(kind, casting="safe" if kind == "uint8" else "unsafe")
        except (TypeError, ValueError) as error:
            raise HilpError(f"part '{name}' of an observation must be {kind}: {error}") from error
        if exact.shape == shape:
            counts.add(None)
        elif exact.shape[1:] == shape:
            counts.add(len(exact))
        else:
            turned = len(shape) == 3 and exact.shape[-3:] == (shape[2], shape[0], shape[1])
            hint = f"; channels come last: np.moveaxis({name}, -3, -1)" if turned else ""
            raise HilpError(
                f"part '{name}' of an observation is {shape}, or [n, ...] for a batch, not {exact.shape}{hint}"
            )
        if kind != "uint8" and not np.isfinite(exact).all():
            raise HilpError(f"part '{name}' of the observation holds a NaN or an infinity")
        arrays[name] = exact
    if len(counts) > 1:
        raise HilpError(f"the parts of an observation ({about}) have different numbers of rows")
    single = counts == {None}
    return {name: array[None] if single else array for name, array in arrays.items()}, single


def _put_together(parts: Mapping[str, Any], observation_parts: Parts) -> np.ndarray:
    """An observation (or a batch) from its named parts, in the order of the data; others are left."""
    known = dict(observation_parts)
    if not known:
        raise HilpError("the data of this policy had no named parts: give an observation as one array")
    for name in (name for name in known if name not in parts):
        raise HilpError(f"this policy's observation is made of {some(list(known))}, and '{name}' is not given")
    try:
        arrays = [np.asarray(parts[name], np.float32) for name in known]
    except (TypeError, ValueError) as error:
        raise HilpError(f"the parts of an observation must be numbers: {error}") from error
    if all(array.shape == shape for array, shape in zip(arrays, known.values(), strict=True)):
        return np.concatenate([array.reshape(-1) for array in arrays])
    counts = {array.shape[:1] for array in arrays}
    if len(counts) > 1 or any(a.ndim == 0 or a.shape[1:] != s for a, s in zip(arrays, known.values(), strict=True)):
        raise HilpError(f"the parts of an observation have the shapes {known}, or one more axis for a batch")
    return np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
