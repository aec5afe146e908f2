"""MuJoCo and other simulators: imported when a task is made, stepped in threads, and rendered in memory."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes.util import find_library
from functools import cache
from typing import Any, Self

import numpy as np

from hilp.errors import HilpError
from hilp.tasks.base import BaseTask


def import_simulator(needed_by: str, module: str = "mujoco") -> Any:
    """MuJoCo or another module of its extra."""
    choose_rendering()  # before the import, by which simulators choose how to render
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise HilpError(f"{needed_by} needs {error.name or error}: pip install 'hilp[mujoco]'") from error


def choose_rendering() -> None:
    """Let simulators render in memory where there is no screen."""
    screenless = sys.platform == "linux" and not os.environ.get("DISPLAY")
    if screenless and "mujoco" not in sys.modules and "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = "egl" if find_library("EGL") else "disable"
    if screenless and "pygame" not in sys.modules:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """The threads of this process, shared by all its tasks."""
    return ThreadPoolExecutor(threads, "hilp-simulator")


class Threaded(BaseTask):
    """A task whose episodes are simulated by several threads: MuJoCo runs outside Python's lock."""

    threads: int

    def with_threads(self, threads: int) -> Self:
        return self.changed(threads=threads)

    def share_out(self, advance: Callable[[Any, Any], None], episodes: np.ndarray, actions: np.ndarray) -> None:
        """Advance these episodes by one action each, each thread some of them."""

        def simulate(some: np.ndarray) -> None:
            for episode in some:
                advance(episode, actions[episode])

        if self.threads < 2 or len(episodes) < 2:
            simulate(episodes)
        else:
            list(pool(self.threads).map(simulate, np.array_split(episodes, min(self.threads, len(episodes)))))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- rendering -------------------------------------------------------------------------------------------------------

Draw = Callable[[Any, Any, np.ndarray], None]  # (data, camera, image): fills the image


def offscreen() -> bool:
    """Whether images are rendered without a desktop, by EGL, in any thread."""
    return os.environ.get("MUJOCO_GL") == "egl"


@contextmanager
def drawing(model: Any, height: int, width: int, fast: bool = True) -> Iterator[Draw]:
    """A function that fills an image; a camera is a number of the model's or a free one.

    fast: without what costs most time and shows least: shadows, reflections and multisampling.
    """
    import mujoco

    if fast:
        model.vis.quality.offsamples = 0
    model.vis.global_.offheight = max(model.vis.global_.offheight, height)
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
    scene, area, fixed = mujoco.MjvScene(model, maxgeom=10_000), mujoco.MjrRect(0, 0, width, height), mujoco.MjvCamera()
    for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION) if fast else ():
        scene.flags[flag] = 0
    fixed.type = mujoco.mjtCamera.mjCAMERA_FIXED
    with rendering_errors():
        if offscreen():  # also where MuJoCo was imported before that was set
            from mujoco.egl import GLContext
        else:
            from mujoco import GLContext
        screen = GLContext(width, height)
        screen.make_current()
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)

    def draw(data: Any, view: Any, image: np.ndarray) -> None:
        if isinstance(view, int):
            fixed.fixedcamid = view
        camera = fixed if isinstance(view, int) else view
        mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
        mujoco.mjr_render(area, scene, context)
        mujoco.mjr_readPixels(image, None, area, context)
        image[:] = image[::-1].copy()  # OpenGL counts rows from the bottom

    try:
        yield draw
    finally:
        context.free()
        screen.free()


def render(
    model: Any, states: np.ndarray, size: tuple[int, int], camera: Any, put: Callable[[Any], Any], fast: bool = True
) -> np.ndarray:
    """Images uint8 [n, height, width, 3] of states; `put(state)` gives a simulation that is in one."""
    images = np.empty((len(states), *size, 3), np.uint8)
    with drawing(model, *size, fast=fast) as draw:
        for state, image in zip(states, images, strict=True):
            draw(put(state), camera, image)
    return images


@contextmanager
def rendering_errors() -> Iterator[None]:
    """Turn what a GL library raises, each in its own way, into one line."""
    try:
        yield
    except Exception as error:
        raise HilpError(
            f"there is nothing to render with ({error}): install EGL (Debian: libegl1) and set MUJOCO_GL=egl"
        ) from error
