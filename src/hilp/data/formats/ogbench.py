"""OGBench's .npz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from hilp.data.formats import arrays
from hilp.data.source import Source, without_short
from hilp.errors import HilpError


def read(
    source: Mapping[str, Any] | Path,
    *,
    split: Literal["train", "val"] | None = None,
    flatten: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """OGBench's .npz: `terminals` is 1 on each episode's last row. `split` picks the file or its "-val" sibling."""
    if split not in (None, "train", "val"):
        raise HilpError(f"split is 'train' or 'val', not '{split}'")
    if split is not None:
        if isinstance(source, Mapping):
            raise HilpError("split picks one of two files, and this is a dict")
        source = source.with_name(source.stem.removesuffix("-val") + ("-val" if split == "val" else "") + source.suffix)
        if not source.is_file():
            raise HilpError(f"there is no file {source}")
    found = arrays.read(source, flatten=flatten, extras=extras)
    return replace(without_short(found), format="ogbench", endings={})
