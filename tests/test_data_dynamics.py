"""What `inspect` says of how actions move observations: commands of positions, and what no column shows."""

from __future__ import annotations

import numpy as np

from hilp.data.measures import position_commands


def servo(kind: str, rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """A point that is sent from place to place by targets or by speeds; columns: place, speed or noise, last action."""
    random = np.random.default_rng(0)
    place, speed, last, goal = np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2)
    seen, acted = [], []
    for row in range(rows):
        goal = random.uniform(-1, 1, 2) if row % 25 == 0 else goal
        way = np.clip(goal - place, -0.1, 0.1)
        action = place + way + random.normal(0, 0.01, 2) if kind == "position" else way
        seen.append([*place, *(random.normal(size=2) if kind == "position" else speed), *last])
        acted.append(action)
        speed = 0.3 * (action - place) if kind == "position" else 0.3 * speed + 0.7 * action
        place, last = place + speed, action
    return np.array(seen), np.array(acted)


def test_targets_are_told_from_speeds_and_from_records_of_actions():
    seen, acted = servo("position")
    assert position_commands(seen, acted) == {0: 0, 1: 1}
    assert position_commands(seen[:, ::-1], 3.0 * acted + 1.0) == {0: 5, 1: 4}, "whatever the order, scale and offset"
    assert position_commands(seen[:, 2:], acted) == {}, "the column that repeats the last action is no place"
    assert position_commands(*servo("velocity")) == {}, "a speed that follows the command is no place"


def test_rows_that_say_nothing_have_no_targets():
    random = np.random.default_rng(0)
    assert position_commands(random.normal(size=(500, 3)), random.normal(size=(500, 2))) == {}
    assert position_commands(np.zeros((2, 3)), np.zeros((2, 2))) == {}
    assert position_commands(np.full((50, 3), np.nan), np.zeros((50, 2))) == {}
    assert position_commands(np.zeros((50, 3)), np.zeros((50, 2))) == {}
