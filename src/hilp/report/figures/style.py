"""How figures look and leave: colours, frames, titles, checks of what they are given, and files."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hilp.errors import printable
from hilp.storage.atomic import write_bytes

# Okabe and Ito's palette: told apart with every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLUE, VERMILLION = PALETTE[:2]
INK, SOFT, LINE = "#1d2330", "#5b6475", "#dfe3ea"
DISTANCE_MAP = "viridis"
LONGEST_TITLE, LONGEST_LABEL = 70, 40  # letters
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 11.5, 9.5, 8.5
PLAIN_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": TEXT_SIZE, "labelcolor": INK, "handlelength": 1.6,
                                "columnspacing": 1.6}  # fmt: skip


def plain(text: object, longest: int = LONGEST_LABEL) -> str:
    """Text from outside as a label: short, and nothing in it is read as a formula."""
    words = printable(" ".join(str(text).split()))
    words = words if len(words) <= longest else f"{words[: longest - 1]}…"
    return words.replace("$", r"\$")


def png_data_uri(fig: Figure, dpi: int = 110) -> str:
    """The figure as a PNG data URI, for a page that is one file. The same figure gives the same bytes."""
    return "data:image/png;base64," + base64.b64encode(_encoded(fig, ".png", dpi)).decode("ascii")


def save(fig: Figure, path: str | Path, dpi: int = 160) -> Path:
    """Writes the figure in the format of the path's ending (png, svg, pdf) in one step, making folders as needed."""
    path = Path(path)
    if path.suffix not in _UNDATED:
        raise ValueError(f"a figure is saved as {', '.join(_UNDATED)}, not '{path.name}'")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, [_encoded(fig, path.suffix, dpi)])
    return path


# Dates and versions inside a file would make every redrawn figure a changed file.
_UNDATED: dict[str, Any] = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def _encoded(fig: Figure, ending: str, dpi: int) -> bytes:
    buffer, undated = io.BytesIO(), _UNDATED[ending]
    with matplotlib.rc_context({"svg.hashsalt": "hilp"}):
        fig.savefig(buffer, format=ending[1:], dpi=dpi, bbox_inches="tight", pad_inches=0.08, metadata=undated)
    return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def draw_frame(ax: Axes, grid: str) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#b8bfcb")
    ax.tick_params(colors=SOFT, labelsize=SMALL_SIZE, length=3, width=0.8, which="both")
    ax.xaxis.label.set(color=INK, fontsize=TEXT_SIZE)
    ax.yaxis.label.set(color=INK, fontsize=TEXT_SIZE)
    ax.grid(axis=grid, color=LINE, linewidth=0.7)  # type: ignore[arg-type]
    ax.set_axisbelow(True)


def draw_title(ax: Axes, text: str, size: float = TITLE_SIZE, weight: str = "bold", pad: float = 6) -> None:
    ax.set_title(plain(text, LONGEST_TITLE), loc="left", fontsize=size, fontweight=weight, color=INK, pad=pad)


def draw_panel_title(ax: Axes, text: str, note: str = "") -> None:
    """The title of one panel of several, and a note at its right end."""
    draw_title(ax, text, size=TEXT_SIZE + 0.5, weight="normal")
    if note:
        ax.set_title(note, loc="right", fontsize=TEXT_SIZE, color=SOFT, pad=6)


def draw_suptitle(fig: Figure, text: str) -> None:
    fig.suptitle(plain(text, LONGEST_TITLE), x=0.012, ha="left", fontsize=TITLE_SIZE + 1, fontweight="bold", color=INK)


def draw_legend(ax: Axes, loc: Literal["best", "upper left"]) -> None:
    ax.legend(loc=loc, frameon=True, framealpha=0.85, edgecolor="none", fontsize=SMALL_SIZE, labelcolor=INK)


def short_number(value: float) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def require_some(items: Mapping[str, Any], name: str) -> None:
    if not items:
        raise ValueError(f"{name} is empty")
