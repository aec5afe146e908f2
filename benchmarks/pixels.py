"""What pictures cost: training on films that stay on disk, and drawing them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from timing import Line, not_measured, updates_per_second

FRAMES, SIDE, STEPS = 20_000, 32, 64


def films() -> Line:
    """Updates a second of phi on pictures streamed from a folder, over the same networks fed from device memory."""
    config, made = filmed()
    with tempfile.TemporaryDirectory(prefix="hilp-bench-") as folder:
        data = Dataset.open(made.save(Path(folder) / "film"))
        rate = updates_per_second(config, data, first=32, steps=STEPS, turns=6)
    return {
        "value": round(rate["stream"], 1),
        "unit": "updates/s",
        "ratio": round(rate["stream"] / rate["device"], 2),
        "against": f"the same pictures on the device, {rate['device']:.1f} updates/s; {SIDE}x{SIDE}x3, "
        f"batch {config.batch}, light encoder",
    }


def filmed() -> tuple[Any, Dataset]:
    """A config that learns from pictures, and noise in their shapes."""
    from hilp.learning import configs
    from hilp.presets import preset

    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (FRAMES, SIDE, SIDE, 3), np.uint8)
    made = Dataset({"pixels": frames}, np.zeros((FRAMES, 2), np.float32), np.full(FRAMES // 100, 100), name="noise")
    values = {"phi_discount": 0.97, "goal_discount": 0.97, "chunk": 1}
    return configs.changed(preset("hilp", "laptop", "maze-large-pixels").config, values), made


def maze_frames() -> Line:
    """Pictures a second of the maze seen from above."""
    from hilp import tasks

    world: Any = tasks.make("maze-large-pixels")
    places = world.starts(np.random.default_rng(0), 4_096)
    return _rate(lambda: world.render_states(places), len(places), "32x32x3")


def walker_frames() -> Line:
    """Pictures a second of DeepMind Control's walker."""

    def ready(world: Any) -> tuple[Callable[[], Any], int, str]:
        physics = world.episodes(np.random.default_rng(0), 1).extra("physics").repeat(1_000, axis=0)
        return lambda: world.frames(physics), len(physics), "64x64x3, without shadows, reflections, multisampling"

    return _simulated("walker-pixels", ready)


def cube_frames() -> Line:
    """Pictures a second of OGBench's arm with a cube, by its own renderer."""

    def ready(world: Any) -> tuple[Callable[[], Any], int, str]:
        states = world.episodes(np.random.default_rng(0), 1).observations.repeat(4, axis=0)
        return lambda: world.render_states(states), len(states), "64x64x3, as OGBench draws them"

    return _simulated("visual-cube-single", ready)


def kitchen_frames() -> Line:
    """Pictures a second of the kitchen, by as many threads as there are cores."""

    def ready(world: Any) -> tuple[Callable[[], Any], int, str]:
        states = world.episodes(np.random.default_rng(0), 32).observations
        return (
            lambda: world.render_states(states),
            len(states),
            "64x64x3, 2x2 points a pixel, without shadows, reflections",
        )

    return _simulated("visual-kitchen", ready)


def _simulated(task: str, ready: Callable[[Any], tuple[Callable[[], Any], int, str]]) -> Line:
    """The rate of a simulator's pictures, where it is installed and can draw."""
    from hilp import tasks

    try:
        return _rate(*ready(tasks.make(task)))
    except (HilpError, ImportError) as error:
        return not_measured("frames/s", error)


def _rate(draw: Callable[[], Any], count: int, what: str) -> Line:
    """Frames a second, and against copying as many bytes; by processor time, too, which a busy machine changes less."""
    pictures = draw()
    array = pictures["pixels"] if isinstance(pictures, dict) else pictures
    clocks = (time.perf_counter, time.process_time)
    best = []
    for run in (draw, array.copy):
        tries = []
        for _ in range(3):
            start = [clock() for clock in clocks]
            run()
            tries.append([clock() - begun for clock, begun in zip(clocks, start, strict=True)])
        best.append(np.min(tries, axis=0))
    (drawn, processor), (copied, _) = best
    return {
        "value": round(count / drawn),
        "unit": "frames/s",
        "ratio": round(drawn / copied, 1),
        "against": f"copying these pictures ({what}), {count / copied:,.0f} frames/s",
        "per_cpu_s": round(count / processor, 1),
    }
