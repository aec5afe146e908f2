"""Pictures of a simulation, in memory, without shadows and reflections."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hilp.errors import HilpError


def offscreen() -> bool:
    """Whether pictures are drawn without a desktop, by EGL, in any thread."""
    return os.environ.get("MUJOCO_GL") == "egl"


@contextmanager
def drawing(mujoco: Any, model: Any, height: int, width: int) -> Iterator[Callable[[Any, Any, np.ndarray], None]]:
    """A function (data, camera, picture) that fills the picture; a camera is a number of the model's or a free one.

    What costs most time and shows least is off.
    """
    model.vis.quality.offsamples = 0
    model.vis.global_.offheight = max(model.vis.global_.offheight, height)
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
    scene, area, fixed = mujoco.MjvScene(model, maxgeom=1000), mujoco.MjrRect(0, 0, width, height), mujoco.MjvCamera()
    for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
        scene.flags[flag] = 0
    fixed.type = mujoco.mjtCamera.mjCAMERA_FIXED
    try:
        if offscreen():  # also where MuJoCo was imported before that was set
            from mujoco.egl import GLContext
        else:
            from mujoco import GLContext
        screen = GLContext(width, height)
        screen.make_current()
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
    except Exception as error:  # each GL library fails in its own way
        raise HilpError(
            f"there is nothing to render with ({error}): install EGL (Debian: libegl1) and set MUJOCO_GL=egl"
        ) from error
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)

    def draw(data: Any, view: Any, picture: np.ndarray) -> None:
        if isinstance(view, int):
            fixed.fixedcamid = view
        camera = fixed if isinstance(view, int) else view
        mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
        mujoco.mjr_render(area, scene, context)
        mujoco.mjr_readPixels(picture, None, area, context)
        picture[:] = picture[::-1].copy()  # OpenGL counts rows from the bottom

    try:
        yield draw
    finally:
        context.free()
        screen.free()
