"""What a page is told about a policy and its task before anything moves: the map, the modes, the names, the data."""

import base64
import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError
from hilp.evaluation import setup
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import formulas
from hilp.prompts.agent import has_graph
from hilp.tasks import rendering

VERSION = 1
FIELD = 3_000  # transitions of the bank over which heat maps have values
STATES = 24  # of the bank that a goal can be chosen from
AXES = 8  # principal directions of phi
MOST_AGENTS = 20
SPEED = 15.0  # steps a second at first
MARGIN = 0.05  # around the data, where a task draws no map


@dataclass(frozen=True)
class Stage:
    """A policy and its task, which all windows share; nothing here changes.

    Simulators are no friends of threads: who makes or steps episodes holds the lock, and one thread draws all pictures.
    """

    policy: FoundationPolicy
    world: Any  # the task as the policy acts in it
    run: str  # the folder, as the user named it
    task: str | None = None  # the task, where the user named it
    rival: "Stage | None" = None  # another policy, that the second slot's agents have
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _camera: ThreadPoolExecutor = field(default_factory=lambda: one_thread(), repr=False)

    def of(self, slot: int) -> "Stage":
        """The one that agents of a slot are on."""
        return self.rival if slot and self.rival is not None else self

    @cached_property
    def sample(self) -> Any:
        """Transitions of the bank that heat maps are about."""
        return self.policy.bank.subsample(FIELD, 0)

    @cached_property
    def places(self) -> np.ndarray:
        """Where these transitions lead to, on the map."""
        return self.place(self.sample.next_observations)

    def place(self, observations: Any) -> np.ndarray:
        """Places [n, 2] of observations."""
        return np.asarray(self.world.place(observations), np.float64)

    @property
    def has_places(self) -> bool:
        """Whether a place on the map can be a goal and a start."""
        return {"x", "y"} <= set(self.world.columns) and hasattr(self.world, "goal_base")

    @cached_property
    def modes(self) -> list[str]:
        """What the policy and the task take."""
        policy, has = self.policy, self.policy.has_rule
        goals = has("goal_direction") or has("goal_skill")
        rewards = has("cumulant") or has("backward")
        vectors = not policy.spec.parts
        plain = vectors and self.world.observation_dim == 2
        modes = {
            "goal": goals,
            "place": goals and self.has_places,
            "reward": rewards or goals,
            "paint": (rewards or goals) and self.has_places and vectors,
            "skill": has("project") and policy.skill_dim > 0,
            "follow": goals and plain and self.has_places,
            "prefer": rewards and vectors,
        }
        return [name for name, known in modes.items() if known]

    @cached_property
    def description(self) -> dict[str, Any]:
        """The message `scene`."""
        policy, world = self.policy, self.world
        plans: list[Any] = ["auto", 0, 1, 3, *(["graph"] if has_graph(policy) else [])]
        names = [name for name, _ in policy.observation_parts]
        return {
            "type": "scene",
            "version": VERSION,
            "run": self.run,
            "task": world.name,
            "named": self.task,
            "method": policy.method,
            "policy": policy.fingerprint,
            "observation_dim": world.observation_dim,
            "map": self._map(),
            "modes": self.modes,
            "alone": None if self.modes else {"kind": "prior" if policy.has_rule("prior") else "skill"},
            "columns": list(dict.fromkeys([*world.columns, *names, "observation", "action"])),
            "functions": [*formulas.FUNCTIONS, formulas.BEFORE],
            "rewards": setup.reward_names(world),
            "goals": list(getattr(world, "goal_names", ())),
            "plans": plans if policy.has_rule("goal_direction") else [0],
            "rules": ["auto", "skill", "goal", *(["graph"] if has_graph(policy) else [])],
            "skill": self._skill(),
            "field": {"places": rounded(self.places)},
            "states": self._states(),
            "rival": None if self.rival is None else {"run": self.rival.run, "method": self.rival.policy.method},
            "agents": MOST_AGENTS,
            "speed": SPEED,
        }

    def _map(self) -> dict[str, Any]:
        """What the task draws: walls as vectors, anything else as a picture behind the agents."""
        from matplotlib.figure import Figure
        from matplotlib.patches import Polygon

        figure = Figure(figsize=(6, 6), dpi=100)
        ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.world.draw(ax)
        drawn = bool(ax.images or ax.lines or ax.patches or ax.collections)
        low, high = self.places.min(axis=0), self.places.max(axis=0)
        margin = MARGIN * np.maximum(high - low, 1e-6)
        bounds = [*(low - margin).tolist(), *(high + margin).tolist()]
        walls: list[list[float]] = []
        if len(ax.images) == 1 and ax.images[0].get_size() == np.shape(getattr(self.world, "walls", ())):
            left, right, bottom, top = ax.images[0].get_extent()
            bounds = [left, bottom, right, top]
            walls = wall_boxes(self.world.walls, bounds, ax.images[0].origin == "upper")
        elif drawn:
            (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
            bounds = [left, bottom, right, top]
        picture = None
        if drawn and not walls:
            ax.set_aspect("auto")
            ax.axis("off")
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", transparent=True)
            picture = data_url(buffer.getvalue(), "png")
        side = max(bounds[2] - bounds[0], bounds[3] - bounds[1])
        rows = max(np.shape(self.world.walls)) if walls else 0
        doors = [patch.get_xy()[:3].tolist() for patch in ax.patches if isinstance(patch, Polygon)] if walls else []
        radius = 0.25 * side / rows if rows else side / 60
        return {"bounds": bounds, "walls": walls, "doors": doors, "picture": picture, "radius": radius}

    def _skill(self) -> dict[str, Any] | None:
        """The dial of skills: principal directions of phi, where skills are directions of phi."""
        if "skill" not in self.modes:
            return None
        dim = int(self.policy.skill_dim)
        axes = np.eye(dim)
        if self.policy.has_rule("encode"):
            latents = self.policy.encode_all(self.sample.observations)
            if latents.shape[1] == dim:
                axes = np.linalg.svd(latents - latents.mean(axis=0), full_matrices=False)[2]
        return {"dim": dim, "axes": rounded(axes[:AXES], 5)}

    def _states(self) -> list[dict[str, Any]]:
        """Some states of the bank, far apart from each other where phi can tell."""
        bank, policy = self.policy.bank, self.policy
        rows = np.random.default_rng(0).permutation(len(bank))[: 40 * STATES]
        chosen = rows[:STATES]
        if policy.has_rule("encode") and len(rows) > STATES:
            latents = (
                policy.encode_all(bank.observations, rows)
                if policy.spec.parts
                else policy.encode_all(bank.observations[rows])
            )
            chosen = rows[farthest(latents, STATES)]
        states = trees.over(lambda part: part[chosen], bank.observations)
        places = self.place(states)
        pictures = self._pictures(states, chosen)
        return [
            {"row": int(row), "place": rounded(place), "picture": picture}
            for row, place, picture in zip(chosen, places, pictures, strict=True)
        ]

    def _pictures(self, states: Any, rows: np.ndarray) -> list[str | None]:
        """Pictures of states of the bank: what policies see, where that is one, or what a camera would."""
        if isinstance(states, dict):
            part = next((rows for rows in states.values() if rows.dtype == np.uint8 and rows.ndim == 4), None)
            if part is not None:
                return [jpeg(image[..., :3]) for image in part]
        extras = self.policy.bank.next_extras
        physics = extras["physics"][rows] if "physics" in extras else [None] * len(rows)  # a step later, as good as now
        if not self.is_filmed or hasattr(self.world, "pool"):  # environments of Gymnasium cannot be put into a state
            return [None] * len(rows)
        return [self._filmed(state, one) for state, one in zip(np.asarray(states), physics, strict=True)]

    def _filmed(self, state: np.ndarray, physics: np.ndarray | None) -> str | None:
        film = self.world.film
        return self._drawn(lambda: film(state[None], None if physics is None else physics[None])[0])

    @cached_property
    def is_filmed(self) -> bool:
        """Whether a page is shown pictures of agents: where there is no map to draw them on, and something to render
        with.
        """
        if self.has_places or not hasattr(self.world, "film"):
            return False
        with self.lock:
            return self.camera(self.world.episodes(np.random.default_rng(0), 1)) is not None

    def camera(self, running: Any) -> str | None:
        """What a camera sees of the first of some episodes; None where there is nothing to render with."""
        if hasattr(running, "picture"):
            return self._drawn(running.picture)
        physics = running.extra("physics") if "physics" in self.world.extra_columns else None
        return self._drawn(lambda: self.world.film(running.observations[:1], physics)[0])

    def close(self) -> None:
        """Let go of what draws, in the thread that drew."""
        if hasattr(self.world, "close"):
            self._camera.submit(self.world.close).result()
        self._camera.submit(rendering.close_screens).result()
        self._camera.shutdown()

    def _drawn(self, draw: Callable[[], Any]) -> str | None:
        with self.lock:
            try:
                return jpeg(np.asarray(self._camera.submit(draw).result()))
            except Exception:  # renderers fail in their own ways; the page shows the map alone then
                return None


def one_thread() -> ThreadPoolExecutor:
    """A thread that draws, and keeps what it draws on."""
    return ThreadPoolExecutor(1, "hilp-camera", rendering.keep_screens)


def stage_of(policy: FoundationPolicy, run: str, task: Any = None, rival: "Stage | None" = None) -> Stage:
    """A policy in its task, in the one named or in a given one; a HilpError where it has nothing to show."""
    if not len(policy.bank):
        raise HilpError(f"{run} keeps no states (--bank 0), which the playground draws: train it with a bank")
    if policy.spec.history > 1:
        raise HilpError(f"{run} sees {policy.spec.history} observations at once (--frames), and a page shows one: it "
                        "acts in `hilp evaluate` and `hilp serve`")  # fmt: skip
    named = task if isinstance(task, str) else None
    world = setup.acting_task(policy, setup.task_of(policy, named) if task is None or named else task)
    return Stage(policy, world.with_rendering() if hasattr(world, "with_rendering") else world, run, named, rival)


def wall_boxes(walls: np.ndarray, bounds: list[float], upper: bool) -> list[list[float]]:
    """Walls [rows, columns] as rectangles [x, y, width, height], one a run of a row; upper: row 0 is at the top."""
    rows, columns = walls.shape
    wide, high = (bounds[2] - bounds[0]) / columns, (bounds[3] - bounds[1]) / rows
    boxes = []
    for row in range(rows):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], walls[row].astype(int), [0]])))
        y = bounds[1] + high * (rows - 1 - row if upper else row)
        boxes += [[bounds[0] + wide * a, y, wide * (b - a), high] for a, b in edges.reshape(-1, 2).tolist()]
    return boxes


def farthest(latents: np.ndarray, count: int) -> np.ndarray:
    """Rows of latents [n, dim] that lie far apart: each next one is the farthest from those chosen."""
    chosen = [0]
    apart = np.full(len(latents), np.inf)
    while len(chosen) < min(count, len(latents)):
        apart = np.minimum(apart, np.linalg.norm(latents - latents[chosen[-1]], axis=1))
        chosen.append(int(apart.argmax()))
    return np.array(chosen)


def rounded(values: Any, digits: int = 3) -> Any:
    """As plain numbers, short on the wire; None where one is not finite."""
    array = np.asarray(values, np.float64)
    if np.isfinite(array).all():
        return np.round(array, digits).tolist()
    return [rounded(row, digits) for row in array] if array.ndim else None


def exact(row: np.ndarray) -> list[float | None]:
    """Numbers [n] that give the same float32 again, as short as they can be."""
    return [float(str(value)) if np.isfinite(value) else None for value in np.asarray(row, np.float32)]


def jpeg(image: np.ndarray) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image, np.uint8)).save(buffer, "JPEG", quality=80)
    return data_url(buffer.getvalue(), "jpeg")


def data_url(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
