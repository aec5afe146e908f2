"""`hilp play --export`: the playground as one page without a server, the policy and its maze inside.

What is written are arrays and programs of plain steps (`hilp.export`), the bank, the graph and the map; the scripts of
this folder run them. So every method whose rules can be exported has such a page, and none is known by name.
"""

import base64
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.errors import HilpError, path_of
from hilp.evaluation import setup
from hilp.export import policy_programs, runtime
from hilp.play import page
from hilp.play.scene import FIELD, Stage
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import formulas, graph_reward, segments
from hilp.prompts.agent import has_graph
from hilp.prompts.reward import graph_samples
from hilp.prompts.specs import RewardOptions
from hilp.tasks.maze import REGION_RADIUS, Maze, maps
from hilp.tasks.maze.chance import ChanceMaze

RULES = ("act", "encode", "goal_skill", "cumulant", "backward", "project", "distance", "goal_direction")
NAMED = 1e-5  # how far a named reward may be from its formula


def write(stage: Stage, out: str | Path) -> dict[str, Any]:
    """Write the page of a policy in a maze: a whole file, held against the policy, or nothing."""
    path = path_of(out)
    if path.is_dir():
        raise HilpError(f"cannot write {path}: it is a folder, and --export takes the name of a page such as play.html")
    text = html(stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_text(path, text)
    return {"page": str(path), "megabytes": round(len(text.encode()) / 1e6, 2)}


def html(stage: Stage) -> str:
    """The page, with what it needs of a policy and its maze."""
    return page.without_server(as_json(stage))


def as_json(stage: Stage) -> str:
    """What a page holds, as text: a literal of JavaScript too, where infinity has the same name."""
    return json.dumps(described(stage), separators=(",", ":"))


def described(stage: Stage) -> dict[str, Any]:
    """Arrays, programs, map and scene as plain values."""
    policy, world = stage.policy, stage.world
    require(policy, world)
    exported = policy_programs.programs_of(policy, policy.method, RULES)
    for reason in exported.refused.values():
        raise HilpError(reason)
    programs = {name: asdict(program) for name, program in exported.programs.items()}
    policy_programs.hold(policy, {name: runtime.Program(own, exported.arrays) for name, own in programs.items()})
    named = named_rewards(policy, world)
    scene = {name: value for name, value in stage.description.items() if name != "field"}
    return {
        **policy_programs.described(policy),
        "observation_dim": policy.spec.observation_dim,
        "action_dim": policy.spec.action_dim,
        "trained_graph": policy.graph is not None,
        "columns": columns(policy, world),
        "named": named,
        "maze": world.map_text.split("\n"),
        "scene": {**scene, "rewards": sorted(named)},
        "programs": {name: {**own, **_told_apart(own)} for name, own in programs.items()},
        "arrays": {name: packed(array) for name, array in {**exported.arrays, **kept(policy)}.items()},
    }


def require(policy: FoundationPolicy, world: Any) -> None:
    """Raise unless a page can hold this policy and its task."""
    if not isinstance(world, Maze) or policy.spec.parts:
        raise HilpError(f"only built-in mazes fit into a page, seen as positions, not {world.name}: leave out --export")
    if isinstance(world, ChanceMaze):
        raise HilpError(f"a page has no chance, by which {world.name} moves: leave out --export")
    if policy.chunk > 1:
        raise HilpError("this policy answers chunks of actions, which a page does not play: leave out --export")
    if segments.serve(policy):
        raise HilpError(f"a page follows no rewards by segments, as {policy.method} policies do: leave out --export")
    if policy.graph is not None and policy.graph.smooth > 1.0:
        raise HilpError("this policy averages where an agent was over some steps, as no page does: leave out --export")


def kept(policy: FoundationPolicy) -> dict[str, np.ndarray]:
    """What the policy keeps of its data, and the random choices of numpy that its prompts make."""
    bank, count = policy.bank, len(policy.bank)
    found = {f"bank.{name}": column for name, column in bank.columns().items()}
    found["field_rows"] = bank.sample_rows(FIELD, 0)
    samples, graph_rows = RewardOptions.samples, count
    if policy.has_rule("goal_direction"):
        found["bank.latents"] = policy.midpoints.latents
    if has_graph(policy):
        graph = policy.planner.graph
        edges = np.bincount(graph.origin, minlength=len(graph))  # of each landmark: they lie in its order
        found |= {f"graph.{name}": column for name, column in graph.columns().items() if name != "origin"}
        found |= {"graph.edges": edges}
        graph_rows = graph_samples(policy, samples)
        found["train"] = graph_reward.is_trained_on(min(count, graph_rows))
    chosen = {"fit_rows": samples, "graph_rows": graph_rows}
    return found | {name: bank.sample_rows(wanted, 0) for name, wanted in chosen.items() if wanted < count}


def columns(policy: FoundationPolicy, world: Any) -> dict[str, list[int]]:
    """Names in formulas: where each begins in an observation, and how many numbers it has."""
    found = {name: [int(column), 1] for name, column in world.columns.items()}
    begin = 0
    for name, shape in policy.observation_parts:
        found[name] = [begin, int(np.prod(shape))]
        begin += found[name][1]
    return found


# ---- named rewards ---------------------------------------------------------------------------------------------------


def named_rewards(policy: FoundationPolicy, world: Maze) -> dict[str, dict[str, str]]:
    """Rewards of the maze by name, as formulas: what is paid, and what a map of it shows.

    A formula that does not give the task's own numbers on the policy's bank is left out.
    """
    potentials, rewards = _formulas(world)
    found = {name: {"reward": f"({text}) - before({text})", "shown": text} for name, text in potentials.items()}
    found |= {name: {"reward": text, "shown": text} for name, text in rewards.items()}
    bank, width, action = policy.bank, policy.spec.observation_dim, policy.spec.action_dim
    own = (bank.observations, bank.actions, bank.next_observations)
    for name, texts in list(found.items()):
        read: Any = formulas.reward(texts["reward"], (), width, action, world.columns)
        apart = np.abs(read(*own, None) - setup.reward_function(world, name)(*own))
        if apart.max(initial=0.0) > NAMED:
            del found[name]
    return found


def _formulas(world: Maze) -> tuple[dict[str, str], dict[str, str]]:
    """Of potentials and of rewards of being somewhere."""
    rows, wide = world.walls.shape
    centres, middle = world.cell_corners + 0.5, np.array([wide / 2, rows / 2])

    def nearest(place: np.ndarray) -> np.ndarray:
        return np.asarray(centres[np.square(centres - place).sum(axis=1).argmin()])

    def apart(place: np.ndarray) -> str:
        return f"((x - {place[0]})**2 + (y - {place[1]})**2)**0.5"

    first, last = maps.longest_corridor(world.walls)
    (dx, dy), length = last - first, float(np.square(last - first).sum())
    along = f"clip((({dx}) * (x - {first[0]}) + ({dy}) * (y - {first[1]})) / {length}, 0, 1)"
    off = f"max(abs(x - {first[0]} - ({dx}) * {along}), abs(y - {first[1]} - ({dy}) * {along}))"
    potentials = {"right": "x", "left": "-x", "up": "y", "down": "-y", "centre": f"-{apart(middle)}"}
    rewards = {
        "region": f"{apart(nearest(np.array([wide - 1.5, rows - 1.5])))} <= {REGION_RADIUS}",
        "avoid": f"{apart(nearest(middle))} > {2 * REGION_RADIUS}",
        "corridor": f"{along} if {off} <= 0.5 else 0",
        "target": f"{apart(np.asarray(world.target, np.float64))} <= {maps.SUCCESS_RADIUS}",
    }
    return potentials, rewards


# ---- as text ---------------------------------------------------------------------------------------------------------


def _told_apart(program: dict[str, Any]) -> dict[str, Any]:
    """Steps with numbers in lists: JSON has 1.0 and 1 for the same, and 1 is the number of a value."""

    def operand(one: Any) -> Any:
        return [one] if isinstance(one, float) else one

    return {"steps": [list(map(operand, step)) for step in program["steps"]], "output": operand(program["output"])}


def packed(array: np.ndarray) -> dict[str, Any]:
    """An array as text; whole numbers in as few bytes as hold them."""
    kind = array.dtype
    if kind.kind in "iu":
        kind = np.min_scalar_type(array.max(initial=0))
    content = np.ascontiguousarray(array, kind.newbyteorder("<")).tobytes()
    return {"kind": kind.name, "shape": list(array.shape), "base64": base64.b64encode(content).decode()}
