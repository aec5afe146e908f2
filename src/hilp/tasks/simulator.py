"""The way to MuJoCo and other simulators: extras, imported when a task is made."""

from __future__ import annotations

import importlib
import os
import sys
from ctypes.util import find_library
from typing import Any

from hilp.errors import HilpError


def import_simulator(needed_by: str, module: str = "mujoco") -> Any:
    """MuJoCo or another module of its extra.

    They choose how to draw when they are first imported: in memory where there is no screen.
    """
    choose_rendering()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise HilpError(f"{needed_by} needs {error.name or error}: pip install 'hilp[mujoco]'") from error


def choose_rendering() -> None:
    """Where there is no screen, let simulators draw in memory."""
    screenless = sys.platform == "linux" and not os.environ.get("DISPLAY")
    if screenless and "mujoco" not in sys.modules and "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = "egl" if find_library("EGL") else "disable"
    if screenless and "pygame" not in sys.modules:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
