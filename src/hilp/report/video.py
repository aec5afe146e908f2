"""Video: pictures in a row to one file, .gif or .webp by themselves, .mp4 where imageio-ffmpeg is installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.storage.atomic import temporary_beside

ENDINGS = (".gif", ".webp", ".mp4")


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
        target.parent.mkdir(parents=True, exist_ok=True)
        if ending == ".mp4":
            _write_mp4(temporary, frames, fps)
        else:
            _write_pictures(temporary, frames, fps)
        os.replace(temporary, target)
    except OSError as error:
        raise HilpError(f"cannot write {target}: {error.strerror or error}") from error
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
