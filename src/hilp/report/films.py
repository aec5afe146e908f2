"""Films on a plan: the robot and its trail, several runs side by side, over the learned distance to the goal.

The plan is drawn once; on each frame only trails and robots are new, so that a film takes a second or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from hilp.policy.policy import FoundationPolicy
from hilp.report.figures import maps
from hilp.report.figures.style import INK, VERMILLION, draw_panel_title
from hilp.tasks import rendering

FPS = 20.0
MOST_FRAMES = 300
FIELD_STATES = 4_000
HELD = 15  # frames that the end is shown for
DPI = 90


def on_plan(
    policy: FoundationPolicy, world: Any, paths: Mapping[str, np.ndarray], goal: np.ndarray | None = None
) -> np.ndarray:
    """Frames uint8 [t, height, width, 3] of episodes [t + 1, obs] by name, which run at the same time."""
    from PIL import Image, ImageDraw

    fig, axes = maps.plan_panels(world, len(paths), len(paths))
    if goal is not None and policy.has_rule("goal_direction"):
        if (finite := world.finite()) is not None:
            states = np.asarray(finite.observations)
        else:
            states = rendering.infer_states(world, policy.bank.subsample(FIELD_STATES, 0).observations)
        at_goal = policy.encode(rendering.observe_states(world, goal))
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
