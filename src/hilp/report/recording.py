"""One episode for Rerun's viewer, in one .rrd file: all that is known of each step on one timeline.

`frame_index` counts steps, `timestamp` is in seconds. Position and way are in space, the rest is numbers and pictures.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import storage, trees
from hilp.errors import HilpError
from hilp.prompts.midpoints import undiscounted
from hilp.storage.atomic import clean_leftovers
from hilp.tasks import rendering

if TYPE_CHECKING:
    from hilp.evaluation.rollouts import Episode
    from hilp.policy.policy import FoundationPolicy

ENDING = ".rrd"
RADIUS = 0.1  # of the agent, in the units of its place


class Watched:
    """A prompt that keeps what it was asked: the observations of one agent, as the policy sees them, and its skills."""

    def __init__(self, prompt: Any):
        self._prompt = prompt
        self.seen: list[trees.Tree] = []
        self.skills: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prompt, name)

    def __call__(self, observations: Any, **options: Any) -> np.ndarray:
        skill = self._prompt(observations, **options)
        self.seen.append(trees.over(lambda part: np.array(part[0]), observations.tree))
        self.skills.append(np.array(skill[0]))
        return np.asarray(skill)


def require(path: str) -> Any:
    """Rerun; one line where it is missing or the file is to be called otherwise, before anything is run."""
    if Path(path).suffix != ENDING:
        raise HilpError(f"--rerun takes a file that ends in {ENDING}, not '{path}'")
    try:
        import rerun
    except ImportError as error:
        raise HilpError(f"--rerun needs {error.name}: pip install 'hilp[rerun]'") from error
    return rerun


def write(
    path: str, policy: "FoundationPolicy", world: Any, watched: Watched, episode: "Episode", earned: Any, fps: float
) -> Path:
    """The file, whole or not at all. watched: the prompt of the episode; earned: what each step did, under a reward."""
    rerun, target = require(path), Path(path)
    stream = rerun.RecordingStream("hilp", send_properties=False)
    stream.set_log_time_enabled(False)
    stream.set_log_tick_enabled(False)
    sink = stream.binary_stream()
    for step, name, what in _steps(rerun, policy, world, watched, episode, earned):
        stream.set_time("frame_index", sequence=step)
        stream.set_time("timestamp", duration=step / fps)
        stream.log(name, what)
    content = sink.read(flush=True)
    clean_leftovers(target)
    with storage.told(f"cannot write {target}"):
        target.parent.mkdir(parents=True, exist_ok=True)
    storage.write_bytes(target, [content])
    return target


Logged = Iterator[tuple[int, str, Any]]  # step, name, and what Rerun shows of it


def _steps(
    rerun: Any, policy: "FoundationPolicy", world: Any, watched: Watched, episode: "Episode", earned: Any
) -> Logged:
    places = _in_space(world, episode.path)
    for step, row in enumerate(episode.path):
        yield step, "observation", rerun.Scalars(row)
        yield step, "path/agent", rerun.Points3D(places[step][None], radii=RADIUS)
    yield 0, "path", rerun.LineStrips3D([places])
    for step, action in enumerate(episode.actions):
        yield step, "action", rerun.Scalars(action)
    for step, reward in enumerate(() if earned is None else earned):
        yield step, "reward", rerun.Scalars(reward)
    for step, (seen, skill) in enumerate(zip(watched.seen, watched.skills, strict=True)):
        yield step, "skill", rerun.Scalars(skill)
        for name in policy.spec.pictures:
            yield step, f"sees/{name}", rerun.Image(_newest(seen[name]))
    end = trees.over(lambda part: np.asarray(part)[0], episode.last_seen)
    yield from _on_the_way(rerun, policy, world, watched, [*watched.seen, end])
    yield from _film(rerun, world, episode)


def _on_the_way(rerun: Any, policy: "FoundationPolicy", world: Any, watched: Any, seen: list[trees.Tree]) -> Logged:
    """Latents; of a goal its place, the way that the data shows, and how far it is by either."""
    if not policy.has_rule("encode"):
        return
    latents = [np.asarray(policy.encode(one)) for one in seen]
    for step, latent in enumerate(latents):
        yield step, "latent", rerun.Scalars(latent)
    if getattr(watched, "kind", None) != "goal" or not policy.has_rule("goal_direction"):
        return
    shown = rendering.can_infer_states(world)
    if shown:
        goal = _in_space(world, rendering.infer_states(world, watched.goal)[None])
        yield 0, "path/goal", rerun.Points3D(goal, radii=RADIUS)
    on_graph = getattr(watched, "stuck", None) is not None
    for step, (here, latent) in enumerate(zip(seen, latents, strict=True)):
        apart = policy.distance(latent[None], np.reshape(watched.latent, (1, -1)))
        yield step, "distance_to_go/phi", rerun.Scalars(undiscounted(apart, policy.discount))
        if on_graph and math.isfinite(steps := watched.steps(here)):
            yield step, "distance_to_go/data", rerun.Scalars(steps)
        if on_graph and shown:
            way = _in_space(world, rendering.infer_states(world, watched.path(here)))
            yield step, "path/plan", rerun.LineStrips3D([way] if len(way) > 1 else [])


def _film(rerun: Any, world: Any, episode: "Episode") -> Logged:
    """Pictures of the task, where it makes some: of every state, or of every few."""
    if not hasattr(world, "film") or len(episode.path) < 2:
        return
    with contextlib.suppress(HilpError):  # of a computer without a renderer: the rest is still of use
        frames = world.film(episode.path, episode.extras.get("physics"))
        steps = np.linspace(0, len(episode.path) - 1, len(frames)).astype(int).tolist()
        for step, frame in zip(steps, frames, strict=True):
            yield step, "film", rerun.Image(frame)


def _newest(picture: np.ndarray) -> np.ndarray:
    """The last frame of a stack, as Rerun shows pictures: of one channel or of three."""
    return picture[..., -3:] if picture.shape[-1] % 3 == 0 else picture[..., -1:]


def _in_space(world: Any, observations: np.ndarray) -> np.ndarray:
    """Places on the ground [n, 3]."""
    places = np.asarray(world.place(np.asarray(observations)), np.float64)
    return np.pad(places[:, :2], ((0, 0), (0, 1)))
