"""Pictures as goals: a file that shows what a policy should see."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hilp.errors import HilpError, some
from hilp.learning.images import pictures
from hilp.spec import Spec

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


def is_file(text: str) -> bool:
    """Whether a goal is asked for as the file of a picture."""
    return Path(text).suffix.lower() in ENDINGS


def observation(path: str, spec: Spec) -> dict[str, np.ndarray]:
    """What a policy would see where a picture was taken; of a stack of frames, the same frame in each."""
    shapes = pictures(spec)
    if len(shapes) != 1 or len(spec.parts) != 1:
        parts = some([f"{name} {kind} {shape}" for name, shape, kind in spec.parts]) or "plain vectors"
        raise HilpError(f"{path} is a picture, and this policy sees {parts}: a picture alone is no goal for it")
    ((name, (height, width, channels)),) = shapes.items()
    frame = 1 if channels in (1, 2) else 3
    if channels % frame:
        raise HilpError(f"{path} is a picture, and this policy sees {channels} channels, no stack of frames in colour")
    found = read(path, height, width, "L" if frame == 1 else "RGB").reshape(height, width, frame)
    return {name: np.tile(found, (1, 1, channels // frame))}


def read(path: str, height: int, width: int, mode: str = "RGB") -> np.ndarray:
    """The picture in a file, brought to a size: as it is where it has that, else averaged over areas."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            found = picture.convert(mode)
            if found.size != (width, height):
                found = found.resize((width, height), Image.Resampling.BOX)
            return np.asarray(found, np.uint8)
    except FileNotFoundError:
        raise HilpError(f"there is no picture {path}") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise HilpError(f"{path} is not a picture that can be read: {' '.join(str(error).split())[:120]}") from error
