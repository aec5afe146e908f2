"""Tables of speed, made from the kept rows."""

from __future__ import annotations

from kept_rows import Table, kept


def speed() -> Table:
    rows = {row["name"]: row for row in (*kept("speed"), *kept("data"))}
    acting = ("act", "act_goal", "act_plan", "act_numpy", "act_onnx", "start")
    frames = ("maze_frames", "walker_frames", "cube_frames", "kitchen_frames")
    training, data = ("train_step", "sf_train_step", "plan", "graph"), ("convert", "stream", "films")
    order = (*training, *acting, "memory", "import", "help", *data, *frames)
    lines = [
        [name, f"{rows[name]['value']} {rows[name]['unit']}", str(rows[name]["ratio"]), rows[name]["against"]]
        for name in order
    ]
    return [["name", "value", "ratio", "against"], *lines]


def speed_trials() -> Table:
    lines = [[row["of"], row["trial"], f"{row['ms']} ms", f"{row['ratio']:.3f}"] for row in kept("speed-trials")]
    return [["of", "tried", "processor", "ratio"], *lines]
