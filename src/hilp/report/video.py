"""Films: pictures in a row to one file, .gif or .webp by themselves, .mp4 where imageio-ffmpeg is installed.

Of a task without a film of its own they show its plan: the robot and its trail, several runs side by side, over the
learned distance to the goal. The plan is drawn once; on each frame only trails and robots are new, so that a film takes
a second or two.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.errors import HilpError
from hilp.storage.atomic import temporary_beside, told

if TYPE_CHECKING:
    from hilp.policy.policy import FoundationPolicy

ENDINGS = (".gif", ".webp", ".mp4")
FPS = 20.0  # of films on a plan
MOST_FRAMES = 300
FIELD_STATES = 4_000
HELD = 15  # frames that the end is shown for
DPI = 90


def write(path: str | os.PathLike[str], frames: np.ndarray, fps: float) -> Path:
    """Write uint8 frames [t, height, width, 3]; the ending of the path says as what. It appears whole or not at all."""
    target = Path(path)
    ending = target.suffix.lower()
    if ending not in ENDINGS:
        raise HilpError(f"cannot write a video to {target}: its name must end in {', '.join(ENDINGS)}")
    frames = np.asarray(frames)
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or not len(frames):
        raise HilpError(f"a video needs uint8 frames [t, height, width, 3], not {frames.dtype} {frames.shape}")
    if not 0 < fps < 1000:
        raise HilpError(f"a video has between 0 and 1000 frames a second, not {fps}")
    temporary = temporary_beside(target, ending)
    try:
        with told(f"cannot write {target}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            (_write_mp4 if ending == ".mp4" else _write_pictures)(temporary, frames, fps)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _write_pictures(path: Path, frames: np.ndarray, fps: float) -> None:
    from PIL import Image

    first, *rest = (Image.fromarray(frame) for frame in frames)
    options: dict[str, Any] = {"lossless": True} if path.suffix == ".webp" else {}
    # The durations are rounded as a whole, or 24 frames a second would drift.
    stops = np.rint(1000 / fps * np.arange(len(frames) + 1)).astype(int)
    first.save(path, save_all=True, append_images=rest, duration=np.diff(stops).tolist(), loop=0, **options)


def _write_mp4(path: Path, frames: np.ndarray, fps: float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise HilpError("writing .mp4 needs imageio-ffmpeg: pip install imageio-ffmpeg, or write a .gif") from error
    height, width = frames.shape[1:3]
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=fps, macro_block_size=2)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()


def on_plan(
    policy: "FoundationPolicy", world: Any, paths: Mapping[str, np.ndarray], goal: np.ndarray | None = None
) -> np.ndarray:
    """Frames uint8 [t, height, width, 3] of episodes [t + 1, obs] by name, which run at the same time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image, ImageDraw

    from hilp.report.figures import maps
    from hilp.report.figures.style import INK, VERMILLION, draw_panel_title
    from hilp.tasks import rendering

    fig, axes = maps.plan_panels(world, len(paths), len(paths))
    if goal is not None and policy.has_rule("goal_direction"):
        if (finite := world.finite()) is not None:
            states = np.asarray(finite.observations)
        else:
            states = rendering.infer_states(world, policy.bank.subsample(FIELD_STATES, 0).observations)
        at_goal = policy.encode(policy.check(rendering.observe_states(world, goal), always=True))
        distances = policy.distance(policy.encode_all(rendering.observe_states(world, states)), at_goal[None])
        maps.draw_fields(fig, axes, world, states, [distances] * len(axes), goal)
    for ax, name in zip(axes, paths, strict=True):
        draw_panel_title(ax, name)
    fig.set_dpi(DPI)
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    ground = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    height = len(ground)
    tracks = []
    for ax, path in zip(axes, paths.values(), strict=True):
        pixels = ax.transData.transform(maps.places_of(world, path, "path"))
        tracks.append(np.column_stack([pixels[:, 0], height - pixels[:, 1]]))
    longest = max(map(len, tracks))
    times = np.unique(np.linspace(0, longest - 1, min(longest, MOST_FRAMES)).round().astype(int))
    frames = []
    for time in times:
        picture = Image.fromarray(ground)
        draw = ImageDraw.Draw(picture)
        for track in tracks:
            trail = [tuple(point) for point in track[: time + 1]]
            if len(trail) > 1:
                draw.line(trail, fill=INK, width=3, joint="curve")
            x, y = trail[-1]
            draw.ellipse((x - 6, y - 6, x + 6, y + 6), fill=VERMILLION, outline="white", width=2)
        frames.append(np.asarray(picture))
    return np.stack([*frames, *frames[-1:] * HELD])
