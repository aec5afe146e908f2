"""What policies observe of a task: its states, or images of them.

A task that policies see through a camera keeps its states: its physics, rewards, goals and maps are about them. It also
has `image_parts`, the parts of a policy's observation, and its episodes have `images` and `goal_images`. Where an image
is a function of the state, it also has `render_states(states)`, and where an image shows the whole state,
`infer_states(images)`.

Simulators are rendered in memory.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from hilp import trees
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.spec import Spec
from hilp.trees import Tree

SUFFIX = "-pixels"  # ends the name of a task with image observations
VISUAL = "visual-"  # begins it, where papers name tasks so
Draw = Callable[[Any, Any, np.ndarray], None]  # (data, camera, image): fills the image


def policy_spec(world: Any) -> Spec:
    """The sizes of what policies see and do in a task."""
    parts = getattr(world, "image_parts", ())
    if not parts:
        return Spec(world.observation_dim, world.action_dim, choices=getattr(world, "choices", 0))
    kinds = {name: np.empty((1, *shape), kind) for name, shape, kind in parts}
    return Spec.of(kinds, world.action_dim, getattr(world, "choices", 0))


def policy_observations(running: Any) -> Tree:
    """What policies see of episodes now."""
    return getattr(running, "images", running.observations)


def policy_goals(running: Any) -> Tree:
    """The goals of episodes, as policies see them."""
    return getattr(running, "goal_images", running.goals)


def observe_states(world: Any, states: np.ndarray) -> Tree:
    """States of a task (a batch, or one) as policies see them."""
    if not getattr(world, "image_parts", ()):
        return states
    if not hasattr(world, "render_states"):
        raise HilpError(f"{world.name} cannot render a state that it is not in: give a picture")
    states = np.asarray(states, np.float64)
    if states.shape[-1:] != (world.observation_dim,) or not np.isfinite(states).all():
        raise HilpError(f"a state of {world.name} has {world.observation_dim} finite numbers, not {states.tolist()}")
    single = states.ndim == 1
    images = world.render_states(np.atleast_2d(states))
    return trees.over(lambda rows: rows[0], images) if single else images


def can_infer_states(world: Any) -> bool:
    """Whether what policies see shows the whole state."""
    return not getattr(world, "image_parts", ()) or hasattr(world, "infer_states")


def infer_states(world: Any, observations: Tree) -> np.ndarray:
    """States (a batch, or one) behind what policies see; states stay as they are."""
    if not isinstance(observations, Mapping):
        return np.asarray(observations)
    if not hasattr(world, "infer_states"):
        raise HilpError(f"{world.name} cannot infer a state from its image")
    parts = {name: shape for name, shape, _ in world.image_parts}
    single = any(np.shape(observations[name]) == shape for name, shape in parts.items())
    batch = trees.over(lambda part: np.asarray(part)[None], observations) if single else observations
    found = np.asarray(world.infer_states(batch))
    return found[0] if single else found


def for_data(world: Any, data: Dataset) -> Any:
    """A task as it is evaluated on data: some goals look like its first state."""
    if not isinstance(data.observations, Mapping):
        return world.for_data(np.asarray(data.observations[0]))
    states = data.extras.get(str(getattr(world, "state_column", "")))
    return world if states is None else world.for_data(np.asarray(states[0]))


def with_images(
    data: Dataset,
    part: str,
    draw: Callable[[np.ndarray], np.ndarray],
    states: np.ndarray,
    shape: tuple[int, ...],
    progress: Callable[[int], None] | None,
    block: int = 100,
    **changes: Any,
) -> Dataset:
    """Data with images uint8 [n, *shape] of states [n, ...] as observations, drawn a block at a time.

    Calls `progress` with how many are done. They are no longer what was checked and prepared.
    """
    images = np.empty((len(states), *shape), np.uint8)
    for first in range(0, len(states), block):
        images[first : first + block] = draw(np.asarray(states[first : first + block]))
        if progress:
            progress(min(first + block, len(states)))
    fresh: dict[str, Any] = {"observation_parts": (), "transform": None, "checked": ()}
    return replace(data, observations={part: images}, **fresh, **changes)


class ImageTask:
    """What a task with image observations adds to the same task by states, of which it is a subclass, too."""

    image_parts = (("pixels", (64, 64, 3), "uint8"),)  # name, shape and dtype of each part of an observation
    state_column = "physics"  # the column of states in data whose observations are images
    name: str
    observation_dim: int
    data_hint = ""  # what to do where data has other states
    render_states: Callable[[np.ndarray], dict[str, np.ndarray]]  # images of states [n, obs]

    def episodes(self, *args: Any, **kwargs: Any) -> Any:
        return RenderedEpisodes(self, super().episodes(*args, **kwargs))  # type: ignore[misc]

    def render_dataset(self, data: Dataset, progress: Callable[[int], None] | None = None) -> Dataset:
        """Data of this task's states with images of them as observations; the states become a column."""
        if data.observation_dim != self.observation_dim:
            raise HilpError(
                f"{data.name} has observations of {data.observation_dim} numbers, and images of {self.name} are "
                f"rendered from {self.observation_dim}{self.data_hint}"
            )
        ((part, shape, _),) = self.image_parts
        extras = {**data.extras, self.state_column: np.asarray(data.observations, np.float32)}
        named: dict[str, Any] = {"task": self._task_of(data), "name": VISUAL + data.name, "extras": extras}

        def draw(states: np.ndarray) -> np.ndarray:
            return self.render_states(states)[part]

        return with_images(data, part, draw, data.observations, shape, progress, **named)

    def _task_of(self, data: Dataset) -> str:
        """The task of rendered data: a data set's own task also says its kind of data."""
        return self.name if data.task is None else VISUAL + data.task.removeprefix(VISUAL)


class RenderedEpisodes:
    """n episodes on states, with images of them, which are rendered when needed."""

    def __init__(self, world: Any, plain: Any) -> None:
        self._world, self._plain = world, plain
        self._states: np.ndarray | None = None  # that were rendered last
        self._images: dict[str, np.ndarray] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    @property
    def images(self) -> dict[str, np.ndarray]:
        """Images of all episodes; those that have not moved since the last call are not rendered again."""
        now = self._plain.observations
        if self._states is None:
            self._images = self._world.render_states(now)
        elif len(moved := np.flatnonzero((now != self._states).any(axis=1))):
            new = self._world.render_states(now[moved])
            self._images = {name: part.copy() for name, part in self._images.items()}  # others may still hold the last
            for name, part in new.items():
                self._images[name][moved] = part
        self._states = now.copy()
        return self._images

    @cached_property
    def goal_images(self) -> dict[str, np.ndarray]:
        """Images of the goals; episodes often share one."""
        states, which = np.unique(self._plain.goals, axis=0, return_inverse=True)
        return {name: part[which.reshape(-1)] for name, part in self._world.render_states(states).items()}

    def extra(self, name: str) -> np.ndarray:
        known = name == self._world.state_column and name in self._world.extra_columns
        return self._plain.observations if known else self._plain.extra(name)


def offscreen() -> bool:
    """Whether images are rendered without a desktop, by EGL, in any thread."""
    return os.environ.get("MUJOCO_GL") == "egl"


_kept = threading.local()  # what threads keep to draw on: `screens`, and the `stack` that closes them


def keep_screens() -> None:
    """Let this thread keep what it draws on: to open it takes far longer than a picture."""
    _kept.screens, _kept.stack = {}, ExitStack()


def close_screens() -> None:
    """Close what this thread keeps."""
    _kept.stack.close()


@contextmanager
def drawing(model: Any, height: int, width: int, fast: bool = True) -> Iterator[Draw]:
    """A function that fills an image; a camera is a number of the model's or a free one.

    fast: without what costs most time and shows least: shadows, reflections and multisampling.
    """
    screens, key = getattr(_kept, "screens", None), (id(model), height, width, fast)
    if screens is None:
        with _screen(model, height, width, fast) as draw:
            yield draw
        return
    if key not in screens:
        screens[key] = _kept.stack.enter_context(_screen(model, height, width, fast))
    yield screens[key]


@contextmanager
def _screen(model: Any, height: int, width: int, fast: bool) -> Iterator[Draw]:
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
        screen.make_current()  # where a thread has several
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
