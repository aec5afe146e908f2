from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import deque

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from hilp import tasks
from hilp.errors import HilpError
from hilp.tasks import antmaze, gym_maze, maze
from hilp.tasks.maze import MOTIONS, RADIUS, STEP, SUCCESS_RADIUS, Maze

CORRIDOR = "######\n#....#\n######"
CORNER = "####\n#..#\n##.#\n####"
OPEN = "#####\n#...#\n#...#\n#...#\n#####"
NAMES = sorted(maze.MAZES)


@pytest.fixture(scope="module")
def mazes() -> dict[str, Maze]:
    return {name: maze.make(name) for name in NAMES}


def overlaps_wall(world: Maze, x: float, y: float, slack: float) -> bool:
    """Whether a robot at (x, y) overlaps a wall by more than slack, one wall cell at a time."""
    rows, columns = world.walls.shape
    for row in range(rows):
        for column in range(columns):
            if world.walls[row, column]:
                depth_x = min(x + RADIUS, column + 1) - max(x - RADIUS, column)
                depth_y = min(y + RADIUS, rows - row) - max(y - RADIUS, rows - 1 - row)
                if min(depth_x, depth_y) > slack:
                    return True
    return False


@st.composite
def connected_maps(draw: st.DrawFn, max_moves: int = 40) -> str:
    """Maps carved by a walk, so that all free cells hang together."""
    rows, columns = draw(st.integers(3, 8)), draw(st.integers(4, 8))
    walls = np.ones((rows, columns), bool)
    row, column = draw(st.integers(1, rows - 2)), draw(st.integers(1, columns - 3))
    walls[row, column] = walls[row, column + 1] = False
    for down, right in draw(st.lists(st.sampled_from([(0, 1), (0, -1), (1, 0), (-1, 0)]), max_size=max_moves)):
        row, column = int(np.clip(row + down, 1, rows - 2)), int(np.clip(column + right, 1, columns - 2))
        walls[row, column] = False
    return "\n".join("".join("#" if wall else "." for wall in line) for line in walls)


# Coordinates and physics


def test_row_zero_is_the_top() -> None:
    world = Maze("corner", CORNER)
    assert world.free_cells.tolist() == [[1, 1], [1, 2], [2, 2]]
    assert world.cell_corners.tolist() == [[1, 2], [2, 2], [2, 1]]
    assert world.valid(np.array([[1.5, 2.5], [2.5, 1.5], [1.9, 2.1]])).all()
    assert not world.valid(np.array([[1.5, 1.5], [0.5, 2.5], [1.9, 2.05], [-3, 2], [np.nan, 2]])).any()
    assert world.cell(np.array([[1.2, 2.9], [2.5, 1.5]])).tolist() == [0, 2]


def test_free_motion_is_the_action_times_the_step_size_and_actions_are_clipped() -> None:
    world = Maze("open", OPEN)
    moved = world.step(np.array([[2.5, 2.5]] * 3), np.array([[1, -0.5], [7, -9], [0, 0]]))
    assert moved == pytest.approx(np.array([[2.9, 2.3], [2.9, 2.1], [2.5, 2.5]]))
    assert moved.dtype == np.float64


def test_walls_stop_the_robot_at_touch_and_let_it_slide() -> None:
    world = Maze("corridor", CORRIDOR)
    right = np.array([[1.0, 1.0]])
    assert world.step(np.array([[4.7, 1.7]]), right) == pytest.approx(np.array([[4.9, 1.9]]))
    assert world.step(np.array([[2.0, 1.8]]), right) == pytest.approx(np.array([[2.4, 1.9]]))
    assert world.step(np.array([[2.0, 1.9]]), right) == pytest.approx(np.array([[2.4, 1.9]]))
    assert world.step(np.array([[1.2, 1.2]]), -right) == pytest.approx(np.array([[1.1, 1.1]]))


def test_a_diagonal_step_gets_round_a_corner_and_back() -> None:
    world = Maze("corner", CORNER)
    # From above the wall cell: x clears it first, so the robot gets round the corner in one diagonal step.
    assert world.step(np.array([[1.8, 2.1]]), np.array([[1, -1]])) == pytest.approx(np.array([[2.2, 1.7]]))
    # The way back is blocked along x first, but free along y first.
    assert world.step(np.array([[2.2, 1.7]]), np.array([[-1, 1]])) == pytest.approx(np.array([[1.8, 2.1]]))


def test_a_position_rounded_to_float32_still_slides() -> None:
    world = Maze("corner", CORNER)
    xy = np.array([[1.3, 2.1], [2.1, 1.3]], np.float32)
    assert float(xy[0, 1]) < 2.1, "float32 puts this position a little into the wall"
    assert world.step(xy, np.array([[1, 0], [0, 1]])) == pytest.approx(np.array([[1.7, 2.1], [2.1, 1.7]]))


def test_the_robot_never_moves_against_its_action() -> None:
    world, rng = Maze("corner", CORNER), np.random.default_rng(0)
    # Positions a hair beyond the walls they touch, as rounding may leave them, and any other.
    xy = np.concatenate([rng.choice([1.1, 1.9, 2.1, 2.9], (5000, 2)), world.starts(rng, 5000)])
    xy = xy + rng.uniform(-2, 2, xy.shape) * maze.TOUCH
    xy = xy[world.valid(xy)]
    action = rng.uniform(-1, 1, xy.shape) * rng.choice([1, 1e-6], xy.shape)
    moved = world.step(xy, action) - xy
    assert len(xy) > 5000
    assert (moved * action >= 0).all()
    assert (abs(moved) <= STEP * abs(action) + 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_never_in_a_wall(name: str, mazes: dict[str, Maze]) -> None:
    world, rng = mazes[name], np.random.default_rng(0)
    xy = world.starts(rng, 200)
    for _ in range(100):
        before, xy = xy, world.step(xy, rng.uniform(-1.5, 1.5, (200, 2)))
        assert world.valid(xy).all()
        assert (abs(xy - before) <= STEP + 1e-12).all()
    assert not any(overlaps_wall(world, x, y, 1.01 * maze.TOUCH) for x, y in xy)


@settings(max_examples=40, deadline=None)
@given(connected_maps(), st.integers(0, 2**32 - 1))
def test_never_in_a_wall_on_random_maps(text: str, seed: int) -> None:
    world, rng = Maze("random", text), np.random.default_rng(seed)
    xy = world.starts(rng, 20)
    assert not any(overlaps_wall(world, x, y, 1e-9) for x, y in xy)
    for _ in range(50):
        xy = world.step(xy, rng.choice([-1, -0.5, 0, 0.3, 1], (20, 2)))
        assert world.valid(xy).all()
    assert not any(overlaps_wall(world, x, y, 1.01 * maze.TOUCH) for x, y in xy)


def test_starts_are_uniform_over_the_valid_positions() -> None:
    world, rng = Maze("corner", CORNER), np.random.default_rng(0)
    xy = world.starts(rng, 20_000)
    cloud = rng.uniform(0, 4, (200_000, 2))
    cloud = cloud[world.valid(cloud)]
    for low, high in (((1, 2), (1.5, 3)), ((1.9, 1), (2.1, 4)), ((2, 1), (3, 2)), ((2.5, 1.5), (3, 3))):
        share = [np.all((points >= low) & (points < high), axis=1).mean() for points in (xy, cloud)]
        assert share[0] == pytest.approx(share[1], abs=0.012)


# The lattice and its distances


def brute_force_steps(world: Maze) -> np.ndarray:
    """All pairs by breadth-first search in plain Python, with a physics of its own on integers (tenths of a cell)."""
    rows, columns = world.walls.shape
    odd = [
        (10 * column + x, 10 * row + y)
        for row in range(rows)
        for column in range(columns)
        if not world.walls[rows - 1 - row, column]
        for x in (1, 3, 5, 7, 9)
        for y in (1, 3, 5, 7, 9)
    ]

    def fits(x: int, y: int) -> bool:
        # The robot covers tenths x-1 to x+1; it overlaps the cells of its inner quarter points.
        return not any(
            world.walls[rows - 1 - int((y + up) // 10), int((x + right) // 10)]
            for right in (-0.5, 0.5)
            for up in (-0.5, 0.5)
        )

    def passes(x: int, y: int, right: int, up: int) -> bool:
        """Whether doors let the centre onto the edge between two cells, where it is on its way across."""
        if (x if right else y) % 10:
            return True
        own = {">": (1, 0), "<": (-1, 0), "^": (0, 1), "v": (0, -1)}
        beside = [((y + sign * up) // 10, (x + sign * right) // 10) for sign in (-1, 1)]
        return all(own.get(world.cells[rows - 1 - row, column], (right, up)) == (right, up) for row, column in beside)

    def along(x: int, y: int, dx: int, dy: int) -> tuple[int, int]:
        right, up = int(np.sign(dx)), int(np.sign(dy))
        for _ in range(abs(dx) + abs(dy)):
            if not (fits(x + right, y + up) and passes(x + right, y + up, right, up)):
                break
            x, y = x + right, y + up
        return x, y

    def slide(x: int, y: int, dx: int, dy: int) -> tuple[int, int]:
        x_first = along(*along(x, y, dx, 0), 0, dy)
        y_first = along(*along(x, y, 0, dy), dx, 0)
        return max(x_first, y_first, key=lambda end: abs(end[0] - x) + abs(end[1] - y))

    moves = [(dx, dy) for dx in (-4, -2, 0, 2, 4) for dy in (-4, -2, 0, 2, 4)]
    leads = {point: {slide(*point, *move) for move in moves} for point in odd}
    row_of = {point: int(world.nearest(np.array([point]) / 10)[0]) for point in odd}
    steps = np.full((len(odd), len(odd)), -1)
    for source in odd:
        far, queue = {source: 0}, deque([source])
        while queue:
            here = queue.popleft()
            for there in leads[here]:
                if there not in far:
                    far[there] = far[here] + 1
                    queue.append(there)
        for point, distance in far.items():
            steps[row_of[source], row_of[point]] = distance
    return steps


@pytest.mark.parametrize("name", NAMES)
def test_the_lattice_is_closed_under_the_motions(name: str, mazes: dict[str, Maze]) -> None:
    world = mazes[name]
    finite = world.finite()
    assert finite is not None
    lattice = finite.observations.astype(np.float64)
    assert len(lattice) == 25 * len(world.free_cells)
    assert (world.nearest(lattice) == np.arange(len(lattice))).all()
    for k, motion in enumerate(MOTIONS):
        moved = world.step(lattice, np.tile(motion, (len(lattice), 1)))
        assert moved == pytest.approx(lattice[finite.successors[:, k]], abs=1e-5)


def test_distances_equal_a_brute_force_search() -> None:
    world = Maze("small", "######\n#..#.#\n##...#\n#..#.#\n######")
    finite = world.finite()
    assert finite is not None
    assert (finite.steps == brute_force_steps(world)).all()


@settings(max_examples=5, deadline=None)
@given(connected_maps(max_moves=8))
def test_distances_equal_a_brute_force_search_on_random_maps(text: str) -> None:
    world = Maze("random", text)
    finite = world.finite()
    assert finite is not None
    assert (finite.steps == brute_force_steps(world)).all()


def test_distances_counted_by_hand() -> None:
    def steps(world: Maze, start: tuple[float, float], goal: tuple[float, float]) -> int:
        finite = world.finite()
        assert finite is not None
        return int(finite.steps[world.nearest(np.array([start]))[0], world.nearest(np.array([goal]))[0]])

    corridor = Maze("corridor", CORRIDOR)
    assert steps(corridor, (1.1, 1.5), (4.9, 1.5)) == 10  # 3.8 at 0.4 a step: nine full steps and a half
    assert steps(corridor, (1.1, 1.1), (4.9, 1.9)) == 10  # up on the way
    assert steps(corridor, (1.5, 1.5), (1.7, 1.3)) == 1
    open_room = Maze("open", OPEN)
    assert steps(open_room, (1.5, 1.5), (3.5, 3.5)) == 5  # diagonally 0.4 on both axes
    corner = Maze("corner", CORNER)
    assert steps(corner, (1.5, 2.5), (2.5, 1.5)) == 3  # round the corner: down and right, right and down, rest
    four_rooms = maze.make("maze-four-rooms")
    # Straight through the upper door, 6 cells to the right.
    assert steps(four_rooms, (1.5, 7.5), (7.5, 7.5)) == 15


@pytest.mark.parametrize("name", NAMES)
def test_distances_are_a_metric(name: str, mazes: dict[str, Maze]) -> None:
    finite = mazes[name].finite()
    assert finite is not None
    steps = finite.steps
    assert steps.dtype == np.int16 and finite.successors.dtype == np.int32
    assert (np.diag(steps) == 0).all() and (steps[~np.eye(len(steps), dtype=bool)] > 0).all()
    for via in np.random.default_rng(0).integers(len(steps), size=20):
        assert (steps <= steps[:, via, None] + steps[via]).all()
    # A blocked motion ends where a shorter free one would, and every free motion can be undone, but not through a door.
    assert (steps == steps.T).all() != mazes[name].has_doors


def test_unreachable_is_minus_one() -> None:
    assert maze.maps.fewest_steps(np.array([[1], [1], [0]])).tolist() == [[0, 1, -1], [-1, 0, -1], [1, 2, 0]]


def test_nearest_from_anywhere_gives_the_closest_point() -> None:
    world = Maze("corner", CORNER)
    finite = world.finite()
    assert finite is not None
    xy = np.random.default_rng(0).uniform(-1, 5, (500, 2))
    gap = np.linalg.norm(xy[:, None] - finite.observations, axis=2)
    assert gap[np.arange(500), world.nearest(xy)][world.valid(xy)].max() <= 0.1 * 2**0.5 + 1e-6
    assert gap[np.arange(500), world.nearest(xy)] == pytest.approx(gap.min(axis=1), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_step_limits_are_what_the_rule_gives(name: str, mazes: dict[str, Maze]) -> None:
    assert Maze("anew", mazes[name].map_text).max_steps == mazes[name].max_steps == maze.MAZES[name][1]


def test_a_huge_map_has_no_finite_version_but_a_step_limit() -> None:
    side = 23
    text = "\n".join(["#" * side, *["#" + "." * (side - 2) + "#"] * (side - 2), "#" * side])
    world = Maze("huge", text)
    assert world.finite() is None
    assert world.max_steps == 400  # 40 cells are 100 steps


# Tasks


def test_the_maze_is_a_task(mazes: dict[str, Maze]) -> None:
    assert set(tasks.names()) >= set(NAMES)
    task: tasks.Task = tasks.make("maze-large")
    assert (task.name, task.observation_dim, task.action_dim) == ("maze-large", 2, 2)
    assert task.place(np.array([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]
    with pytest.raises(HilpError, match="did you mean 'maze-large'"):
        tasks.make("maze-lage")


def test_four_rooms_have_four_doors(mazes: dict[str, Maze]) -> None:
    walls = mazes["maze-four-rooms"].walls.copy()
    doors = [(3, 5), (7, 5), (5, 2), (5, 7)]
    assert not any(walls[door] for door in doors)
    for door in doors:
        walls[door] = True
    with pytest.raises(HilpError, match="cut off"):
        Maze("closed", "\n".join("".join("#" if wall else "." for wall in row) for row in walls))
    assert (~walls).sum() == 4 * 16


def test_episodes_reproduce_and_start_away_from_the_goal(mazes: dict[str, Maze]) -> None:
    world = mazes["maze-medium"]
    one, two = (world.episodes(np.random.default_rng(3), 500) for _ in range(2))
    assert (one.observations == two.observations).all() and (one.goals == two.goals).all()
    assert one.observations.dtype == one.goals.dtype == np.float32
    assert world.valid(one.observations).all() and world.valid(one.goals).all()
    assert not one.reached().any()
    other = world.episodes(np.random.default_rng(4), 500)
    assert (one.goals != other.goals).any()

    actions = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    expected = world.step(one.xy, actions)
    one.step(actions)
    assert (one.observations == expected.astype(np.float32)).all()


def test_reached_is_the_euclidean_radius() -> None:
    world = Maze("open", OPEN)
    goals = np.array([[2.5, 2.5]] * 3)
    episodes = maze.MazeEpisodes(world, np.array([[2.5 + SUCCESS_RADIUS, 2.5], [2.5, 3.01], [2.86, 2.86]]), goals)
    assert episodes.reached().tolist() == [True, False, False]
    episodes.step(np.array([[1, 0], [0, -1], [-1, 0]]))
    assert episodes.reached().tolist() == [False, True, True]


@pytest.mark.parametrize("text", [CORNER, maze.MAZES["maze-medium"][0], maze.MAZES["maze-four-rooms"][0]])
def test_potentials_and_their_maxima(text: str) -> None:
    world = Maze("any", text)
    rows, columns = world.walls.shape
    grid = np.stack(np.meshgrid(np.arange(0, columns, 0.02), np.arange(0, rows, 0.02)), axis=-1).reshape(-1, 2)
    grid = grid[world.valid(grid)]
    centre = np.hypot(grid[:, 0] - columns / 2, grid[:, 1] - rows / 2)
    by_hand = {"right": grid[:, 0], "left": -grid[:, 0], "up": grid[:, 1], "down": -grid[:, 1], "centre": -centre}
    assert set(world.potentials) == set(by_hand)
    for name, values in by_hand.items():
        assert np.allclose(world.potentials[name](grid), values)
        assert world.potential_max(name) == pytest.approx(values.max(), abs=0.015)
        assert world.potential_max(name) >= values.max() - 1e-9
    with pytest.raises(HilpError, match="did you mean 'right'"):
        world.potential_max("rigth")


def test_drawing(mazes: dict[str, Maze]) -> None:
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    mazes["maze-large"].draw(ax)
    assert ax.get_xlim() == (0, 12) and ax.get_ylim() == (0, 9)
    assert not len(ax.get_xticks()) and not len(ax.get_yticks()) and ax.get_aspect() == 1


def test_importing_the_maze_is_light() -> None:
    code = "import sys, hilp.tasks.maze as m; m.make('maze-large'); print([x for x in HEAVY if x in sys.modules])"
    heavy = ("jax", "scipy", "matplotlib", "gymnasium")
    run = subprocess.run(
        [sys.executable, "-c", f"HEAVY={heavy}; {code}"], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == "[]"


# Maps from people


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the map is empty"),
        ("\n  \n", "the map is empty"),
        ("####\n#..#\n#####", "row 3 of the map has 5 cells but row 1 has 4"),
        ("####\n#.x#\n####", "unknown character 'x' at row 2, column 3"),
        ("####\n#...\n####", "the border of the map is open at row 2, column 4: put a '#' there"),
        ("####\n#..#\n#.##", "the border of the map is open at row 3, column 2"),
        ("..", "the border of the map is open at row 1, column 1"),
        ("####\n####\n####", "the map has no free cell"),
        ("####\n##.#\n####", "the map has only one free cell, at row 2, column 3"),
        ("######\n#..#.#\n######", "the free cell at row 2, column 5 of the map is cut off"),
        ("#####\n#..##\n###.#\n#####", "the free cell at row 3, column 4 of the map is cut off"),
    ],
)
def test_map_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(HilpError) as caught:
        Maze("wrong", text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_maps_may_be_digits_spaces_and_indented() -> None:
    expected = Maze("a", CORRIDOR).walls
    for text in (
        "111111\n100001\n111111",
        "######\n#    #\n######\n\n",
        "\n    ######\r\n    #....#\r\n    ######\r\n  ",
    ):
        assert (Maze("b", text).walls == expected).all()
        assert maze.maps.looks_like_map(text)


# One-way doors

DOOR = """
######
#.>..#
#....#
######
"""
RING = """
#####
#.>.#
#.#.#
#.<.#
#####
"""


def test_a_door_is_entered_and_left_in_its_direction_only() -> None:
    world = Maze("door", DOOR)
    right, left, up, down = (np.array([move], float) for move in ((1, 0), (-1, 0), (0, 1), (0, -1)))

    def moved(x: float, y: float, move: np.ndarray) -> list[float]:
        return [round(float(part), 6) for part in world.step(np.array([[x, y]]), move)[0]]

    assert moved(1.7, 2.5, right) == [2.1, 2.5]  # in
    assert moved(2.7, 2.5, right) == [3.1, 2.5]  # out
    assert moved(3.3, 2.5, left) == [3.1, 2.5]  # not in from behind: stopped at a touch, as by a wall
    assert moved(2.3, 2.5, left) == [2.1, 2.5]  # not out backwards
    assert moved(2.7, 2.5, left) == [2.3, 2.5]  # inside it may turn round
    assert moved(2.5, 1.7, up) == [2.5, 1.9] and moved(2.5, 2.3, down) == [2.5, 2.1]  # not from or to a side
    assert moved(3.5, 1.7, up) == [3.5, 2.1]  # beside the door the way is free
    assert moved(3.02, 2.5, left) == [3.02, 2.5]  # a robot that has just left stays; it is not thrown out
    # Diagonally: along x it is stopped at the door, along y it slides.
    assert moved(3.3, 2.7, left + down) == [3.1, 2.3]
    assert moved(3.3, 2.3, left + down) == [2.9, 1.9]  # down first, and past the door below it


@pytest.mark.parametrize(("door", "cell"), [(">", (0, 1)), ("<", (0, -1)), ("^", (-1, 0)), ("v", (1, 0))])
def test_doors_of_all_directions(door: str, cell: tuple[int, int]) -> None:
    world = Maze("cross", f"#####\n#...#\n#.{door}.#\n#...#\n#####")
    rng = np.random.default_rng(0)
    xy = np.concatenate([world.starts(rng, 20_000), rng.uniform(2.1, 2.9, (2000, 2))])
    after = world.step(xy, rng.uniform(-1, 1, xy.shape))
    inside, then = (np.all(np.floor(at) == 2, axis=1) for at in (xy, after))
    crossed = np.floor(after) - np.floor(xy)
    direction = np.array([cell[1], -cell[0]])
    for who in (inside & ~then, ~inside & then):
        assert who.sum() > 20
        # A diagonal step may turn the corner of the door's own side, never another one.
        assert (crossed[who] @ direction == 1).all()


def test_directed_distances_equal_a_brute_force_search() -> None:
    for text in (DOOR, RING, "######\n#.>..#\n#.##.#\n#....#\n#.v^.#\n#....#\n######"):
        world = Maze("small", text)
        finite = world.finite()
        assert finite is not None
        assert (finite.steps == brute_force_steps(world)).all() and not (finite.steps == finite.steps.T).all()


def test_directed_distances_counted_by_hand() -> None:
    world = Maze("ring", RING)
    finite = world.finite()
    assert finite is not None
    here, there = world.nearest(np.array([[1.5, 3.5], [3.5, 3.5]]))
    assert finite.steps[here, there] == 5  # two cells through the door
    # Back through the lower one: 1.6 down to 1.9, 1.2 left to 2.1 with the rest of the way down, ... as walked below.
    path, back = np.array([[3.5, 3.5]]), 0
    for action in ([0, -1], [0, -1], [0, -1], [0, -1], *([[-1, 0]] * 5), *([[0, 1]] * 4)):
        path, back = world.step(path, np.array([action])), back + 1
    assert np.allclose(path, [[1.5, 3.5]]) and finite.steps[there, here] <= back
    assert world.cell_steps[world.cell(np.array([[3.5, 3.5]]))[0], world.cell(np.array([[1.5, 3.5]]))[0]] == 6
    assert world.target_episodes(np.random.default_rng(0), 5).goals.shape == (5, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#####\n#.>##\n#...#\n#####", "the door '>' at row 2, column 3 of the map leads into a wall: free the cell"),
        ("#####\n##>.#\n#...#\n#####", "the door '>' at row 2, column 3 of the map has a wall before it"),
        ("#####\n#.>.#\n#####", "no way from row 2, column 3 to row 2, column 2: turn a door, or open another way"),
        ("######\n#.><.#\n#....#\n######", "no way from row 2, column 3 to row 2, column 2"),
        ("#####\n#.<.#\n#####", "no way from row 2, column 2 to row 2, column 3"),
        ("####\n#.>#\n####", "leads into a wall"),
        ("####\n#.V#\n####", "unknown character 'V' at row 2, column 3"),
    ],
)
def test_mistakes_with_doors_are_named(text: str, message: str) -> None:
    with pytest.raises(HilpError) as caught:
        Maze("wrong", text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_map_with_doors_travels_as_its_text_and_an_ant_has_none() -> None:
    world = tasks.make(DOOR)
    assert ">" in world.map_text and tasks.make(world.task).map_text == world.map_text
    with pytest.raises(HilpError, match="one-way doors, which only the built-in maze has"):
        antmaze.make("antmaze:" + RING)


def test_doors_are_drawn() -> None:
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    Maze("ring", RING).draw(ax)
    tips = sorted(tuple(np.round(patch.get_xy()[2], 3)) for patch in ax.patches)
    assert tips == [(2.2, 1.5), (2.8, 3.5)]  # to the left below, to the right above
    env = gym_maze.MazeEnv(RING, render_mode="rgb_array")
    env.reset(seed=0, options={"start": (1.5, 2.5), "goal": (3.5, 2.5)})
    image = env.render()
    assert image is not None
    size = len(image) // 5
    pixels = np.argwhere((image == (194, 87, 26)).all(axis=-1))
    assert {tuple(pixel // size) for pixel in pixels} == {(1, 2), (3, 2)}
    upper = pixels[pixels[:, 0] < 2 * size]
    heights = [np.sum(upper[:, 1] == 2 * size + column) for column in (10, 20)]
    assert heights[0] > heights[1] > 0  # it narrows to the right


def test_a_map_may_be_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "corridor.txt"
    path.write_text(CORRIDOR)
    assert maze.maps.looks_like_map(str(path))
    world = tasks.make(str(path))
    assert world.name == "corridor" and world.map_text == CORRIDOR
    assert tasks.make(world.map_text).name == "maze-custom"
    path.write_text(".")
    with pytest.raises(HilpError, match=r"corridor.txt: the border of the map is open at row 1, column 1"):
        tasks.make(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HilpError, match="cannot read the map"):
        tasks.make(str(path))
    assert not maze.maps.looks_like_map(str(tmp_path)) and not maze.maps.looks_like_map("x" * 10_000)
    with pytest.raises(HilpError, match="choose from"):
        maze.make("nowhere")


def test_a_map_file_with_a_mark_of_its_encoding_and_a_name_that_is_no_text(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = os.fsencode(tmp_path) + b"/cor\xffridor.txt"
    with open(path, "wb") as file:
        file.write(b"\xef\xbb\xbf" + CORRIDOR.encode())
    for prefix in ("", "antmaze:"):
        world = tasks.make(prefix + os.fsdecode(path))
        assert world.map_text == CORRIDOR
        assert world.name.encode() == "cor\N{REPLACEMENT CHARACTER}ridor".encode(), "a name that can be written down"


# Gymnasium


@pytest.mark.parametrize("name", [*NAMES, CORNER])
def test_the_environment_passes_gymnasiums_check(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(gym_maze.ENV_ID, map=name, render_mode="rgb_array").unwrapped)


def test_the_environment_has_the_physics_of_the_maze() -> None:
    env = gymnasium.make(gym_maze.ENV_ID)
    observation, info = env.reset(seed=0, options={"start": (1.5, 1.5), "goal": (10.5, 7.5)})
    world, rng = maze.make("maze-large"), np.random.default_rng(0)
    assert observation.tolist() == [1.5, 1.5] and info["goal"].tolist() == [10.5, 7.5]
    xy = np.array([[1.5, 1.5]])
    for step in range(1, world.max_steps + 1):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        xy = world.step(xy, action[None])
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation.dtype == np.float32 and (observation == xy[0].astype(np.float32)).all()
        assert info["distance"] == pytest.approx(np.linalg.norm(xy[0] - [10.5, 7.5]))
        assert (reward, terminated, truncated) == (0.0, False, step == world.max_steps)


def test_the_environment_rewards_the_goal() -> None:
    env = gymnasium.make(gym_maze.ENV_ID, map=CORRIDOR, max_steps=7)
    env.reset(seed=0, options={"start": (1.5, 1.5), "goal": (2.5, 1.5)})
    right = np.array([1, 0], np.float32)
    assert env.step(right)[1:4] == (0.0, False, False)
    assert env.step(right)[1:4] == (1.0, True, False)


def test_the_environment_draws_starts_and_goals_apart_and_by_seed() -> None:
    env = gymnasium.make(gym_maze.ENV_ID, map=CORRIDOR)
    resets = [env.reset(seed=seed) for seed in (0, 0, 1)]
    assert (resets[0][0] == resets[1][0]).all() and (resets[0][1]["goal"] == resets[1][1]["goal"]).all()
    assert (resets[0][0] != resets[2][0]).any()
    for options in (None, {"start": (2.5, 1.5)}, {"goal": (2.5, 1.5)}):
        assert all(env.reset(options=options)[1]["distance"] > SUCCESS_RADIUS for _ in range(30))
    for name, value, message in (
        ("start", (0.5, 0.5), "the start .* is not a free position"),
        ("goal", (1, 2, 3), "the goal .* is not a free position"),
        ("gaol", (1.5, 1.5), "did you mean 'goal'"),
    ):
        with pytest.raises(HilpError, match=message):
            env.reset(options={name: value})


def test_the_picture_shows_walls_goal_and_robot() -> None:
    env = gymnasium.make(gym_maze.ENV_ID, map=CORNER, render_mode="rgb_array")
    env.reset(options={"start": (1.5, 2.5), "goal": (2.5, 1.5)})
    picture: object = env.render()
    assert isinstance(picture, np.ndarray) and picture.shape == (128, 128, 3) and picture.dtype == np.uint8
    wall, floor, robot, goal = (1.5, 1.5), (2.2, 2.8), (1.5, 2.5), (2.5, 1.5)
    colours = {tuple(picture[int(32 * (4 - y)), int(32 * x)]) for x, y in (wall, floor, robot, goal)}
    assert len(colours) == 4


def test_registering_twice_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gym_maze.register()
    assert gymnasium.make("hilp.tasks.gym_maze:hilp/Maze-v0").unwrapped.maze.name == "maze-large"  # type: ignore[attr-defined]
