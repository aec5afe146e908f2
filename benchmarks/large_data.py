"""Large data: what converting it needs in memory, and what streaming it from disk costs in training speed.

python benchmarks/large_data.py    # needs 1.3 GB of disk
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from timing import Line, python, updates_per_second

TRANSITIONS, COLUMNS, ACTIONS, EPISODE = 5_000_000, 24, 6, 1_000

CONVERT = """
import sys
from timing import peak_memory
from hilp.data.convert import convert
convert(sys.argv[1], sys.argv[2])
print(peak_memory())
"""


def measure(only: Sequence[str] = ()) -> Iterator[Line]:
    """One line a benchmark; both work on the same files, which are made here and deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="hilp-bench-") as folder:
        source, native = write_npz(Path(folder)), Path(folder) / "native"
        line = convert(source, native)
        source.unlink()
        if not only or "convert" in only:
            yield line
        if not only or "stream" in only:
            yield stream(native)


def write_npz(folder: Path) -> Path:
    """Random walks of the full size, written through mapped files."""
    rng, rows = np.random.default_rng(0), TRANSITIONS + TRANSITIONS // EPISODE
    arrays = {}
    for name, width in (("observations", COLUMNS), ("actions", ACTIONS)):
        array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (rows, width))
        for start in range(0, rows, 1 << 16):
            block = array[start : start + (1 << 16)]
            block[:] = np.clip(rng.standard_normal(block.shape, np.float32), -1.0, 1.0)
        arrays[name] = array
    lengths = np.full(TRANSITIONS // EPISODE, EPISODE + 1)
    np.savez(folder / "source.npz", episode_lengths=lengths, **arrays)
    for name in arrays:
        (folder / f"{name}.npy").unlink()
    return folder / "source.npz"


def convert(source: Path, target: Path) -> Line:
    """Peak memory of converting the file to a native folder."""
    start = time.perf_counter()
    peak = int(python("-c", CONVERT, str(source), str(target)))
    return {
        "name": "convert",
        "value": round(peak / 2**20),
        "unit": "MiB",
        "ratio": round(peak / source.stat().st_size, 3),
        "against": f"file of {source.stat().st_size / 2**20:.0f} MiB: {TRANSITIONS:,} transitions x {COLUMNS} columns",
        "seconds": round(time.perf_counter() - start, 1),
    }


def stream(folder: Path) -> Line:
    """Updates a second of the laptop preset, data streamed from disk over data on the device."""
    from hilp.data.dataset import Dataset
    from hilp.learning import configs
    from hilp.presets import preset

    data = Dataset.open(folder)
    config = configs.changed(preset("hilp", "laptop").config, {"phi_discount": 0.97, "goal_discount": 0.97, "chunk": 1})
    rate = updates_per_second(config, data, first=64, steps=320, turns=4)
    return {
        "name": "stream",
        "value": round(rate["stream"], 1),
        "unit": "updates/s",
        "ratio": round(rate["stream"] / rate["device"], 3),
        "against": f"the same data on the device, {rate['device']:.1f} updates/s",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=("convert", "stream"), default=(), help="names to measure")
    for line in measure(parser.parse_args().only):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
