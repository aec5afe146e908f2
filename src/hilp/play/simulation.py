"""One window's simulation: agents in a task, a prompt or two that they follow, and the messages about them.

Messages come in as JSON and go out as JSON (docs/play.md). Nothing of them is run: prompts are specs, formulas are read
by `hilp.prompts.formulas`, and specs that would open a file of this machine are refused.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hilp import trees
from hilp.data.rewards import Extras, apply_reward
from hilp.errors import HilpError, is_number, nearest, require_count, require_seed
from hilp.evaluation import setup
from hilp.evaluation.evaluate import make_prompt
from hilp.play.scene import MOST_AGENTS, SPEED, VERSION, Stage, exact, rounded
from hilp.prompts import specs
from hilp.prompts.agent import has_graph
from hilp.prompts.goal import GoalPrompt
from hilp.prompts.midpoints import undiscounted
from hilp.serve.client_prompts import require_safe
from hilp.tasks import rendering

Message = dict[str, Any]
SLOTS = 2
SLOWEST, FASTEST = 0.1, 120.0  # steps a second
MOST_STEPS = 1_000  # that are asked for at once
SIZES = (1, 4, MOST_AGENTS)  # batches that actions are computed for: each is compiled once
SEGMENT = 25  # transitions of a piece of data to choose between
PAIRS = 8  # that are tried to find two that differ
APART = 0.3  # how far their ends are, in standard deviations of the data
PUSH = 5  # steps that a push lasts
DIGITS = 4


@dataclass
class Agent:
    """One episode, and where it begins again."""

    running: Any
    start: list[float] | None  # None: as the task draws it
    slot: int = 0
    reached: bool = False
    push: np.ndarray | None = None  # what it does instead of what it wants
    pushed: int = 0  # steps that this goes on for

    @property
    def is_over(self) -> bool:
        return bool(np.any(getattr(self.running, "over", False)))


@dataclass
class Slot:
    """A policy, its prompt and what is known about it."""

    policy: Any
    prompt: Any = None
    goal: np.ndarray | None = None  # the state to be at, as the task tells it
    way: Message | None = None
    planned_at: int = -1  # the step at which the way was looked at
    to_goal: Any = field(default=None, repr=False)


class Simulation:
    """Receives messages, steps, and says how things stand; knows neither threads nor sockets."""

    def __init__(self, stage: Stage, seed: int = 0) -> None:
        self.stage, self.policy, self.world = stage, stage.policy, stage.world
        self.agents: list[Agent] = []
        self.slots = [Slot(stage.of(number).policy) for number in range(SLOTS)]
        self.run, self.speed, self.step_count, self.seed = True, SPEED, 0, seed

    # ---- messages ------------------------------------------------------------------------------------------------

    def receive(self, message: Any) -> list[Message]:
        """The answers to a message; a HilpError where it cannot be taken."""
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise HilpError("a message is a JSON object with a 'type'")
        if not isinstance(message.get("id", 0), int | str):  # it is sent back
            raise HilpError("the id of a message is a whole number or a text")
        known = {
            "hello": self._hello,
            "prompt": self._prompt,
            "agents": self._agents,
            "move": self._move,
            "push": self._push,
            "control": self._control,
            "segments": self._segments,
        }
        kind = message["type"]
        if kind not in known:
            raise HilpError(f"there is no message '{kind:.40}': {nearest(kind, known)}")
        return known[kind](message)

    def _hello(self, message: Message) -> list[Message]:
        if message.get("version", VERSION) != VERSION:
            raise HilpError(f"this server speaks version {VERSION}, not {message['version']!r:.20}: reload the page")
        if not self.agents:
            self.agents = [self._begin(None, 0, 0)]
        return [self.stage.description]

    def _prompt(self, message: Message) -> list[Message]:
        number = message.get("slot", 0)
        if number not in range(SLOTS) or isinstance(number, bool):
            raise HilpError(f"the slot of a prompt is 0 or 1, not {number!r:.20}")
        require_safe(message.get("spec"), self.world)
        stage, spec = self.stage.of(number), specs.from_json(message.get("spec"))
        if stage is not self.stage and isinstance(spec, specs.Goal) and setup.is_row(str(spec.goal)):
            row = setup.resolve_goal(spec, self.policy, self.world)[1]  # rows are those of the first policy
            spec = replace(spec, goal=trees.over(np.ndarray.tolist, row.observation))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            prompt = make_prompt(stage.policy, spec, self.world)
        slot = Slot(stage.policy, prompt)
        if isinstance(prompt, GoalPrompt) and rendering.can_infer_states(self.world):
            slot.goal = rendering.infer_states(self.world, prompt.goal)
            if stage.has_places:  # then the task refuses goals in walls
                with self.stage.lock:
                    self.world.episodes(np.random.default_rng(0), 1, goal=slot.goal)
        said = self._understood(spec, slot)
        self.slots[number] = slot
        for agent in self.agents:
            agent.reached = agent.reached and agent.slot != number
        texts = [" ".join(str(warning.message).split()) for warning in caught]
        about = {"type": "prompted", "id": message.get("id"), "slot": number, "spec": spec.to_json()}
        return [{**about, **said, "warnings": texts}]

    def _agents(self, message: Message) -> list[Message]:
        starts = message.get("starts")
        if starts is None:
            starts = [None] * min(require_count("count", message.get("count", 1)), MOST_AGENTS + 1)
        if not isinstance(starts, list) or not 1 <= len(starts) <= MOST_AGENTS:
            raise HilpError(f"there are 1 to {MOST_AGENTS} agents at once")
        slots = message.get("slots", [0] * len(starts))
        if not isinstance(slots, list) or len(slots) != len(starts) or not all(slot in (0, 1) for slot in slots):
            raise HilpError("slots are 0 or 1, one for each agent")
        order = [slots[:n].count(slot) for n, slot in enumerate(slots)]  # those of two slots begin alike
        self.agents = [self._begin(*one) for one in zip(starts, map(int, slots), order, strict=True)]
        self._forget()
        return []

    def _move(self, message: Message) -> list[Message]:
        number = message.get("agent")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self.agents):
            raise HilpError(f"there is no agent {number!r:.20}: they are 0 to {len(self.agents) - 1}")
        old = self.agents[number]
        new = self._begin(numbers(message.get("to")), old.slot, self._rows(old.slot).index(number))
        new.start = old.start if old.start is not None else new.start
        self.agents[number] = new
        slot = self.slots[old.slot]
        slot.planned_at = -1
        if slot.prompt is not None:
            slot.prompt.reset([self._rows(old.slot).index(number)])
        return []

    def _push(self, message: Message) -> list[Message]:
        """All agents are pushed the same way, so that two of them can be compared."""
        rng = np.random.default_rng(require_seed(message.get("seed", 0)))
        prepared, choices = self.policy.preparation, self.policy.spec.choices
        way = rng.standard_normal(self.world.action_dim)
        action = (
            np.array(rng.integers(choices))
            if choices
            else prepared.action_center + prepared.action_half_range * way / np.abs(way).max()
        )
        for agent in self.agents:
            agent.push, agent.pushed, agent.reached = action, PUSH, False
        return []

    def _control(self, message: Message) -> list[Message]:
        if "run" in message:
            self.run = bool(message["run"])
        if "speed" in message:
            if not is_number(message["speed"]) or not SLOWEST <= message["speed"] <= FASTEST:
                raise HilpError(f"the speed is a number of steps a second, {SLOWEST} to {FASTEST:.0f}")
            self.speed = float(message["speed"])
        if "seed" in message:
            self.seed = require_seed(message["seed"])
        if message.get("restart"):
            order = [self._rows(agent.slot).index(n) for n, agent in enumerate(self.agents)]
            self.agents = [self._begin(a.start, a.slot, n) for n, a in zip(order, self.agents, strict=True)]
            self._forget()
        if "step" in message:
            for _ in range(min(require_count("step", message["step"]), MOST_STEPS)):
                self.advance()
        return []

    def _segments(self, message: Message) -> list[Message]:
        """Two pieces of behaviour that differ: the robot under two random skills, from one start."""
        if "prefer" not in self.stage.modes:
            raise HilpError("this policy cannot learn from preferences")
        rng = np.random.default_rng(require_seed(message.get("seed", 0)))
        spread = np.std(self.stage.sample.next_observations, axis=0) + 1e-6
        for _ in range(PAIRS):
            pieces = [self._piece(rng), self._piece(rng)]
            if np.linalg.norm((pieces[0][-1] - pieces[1][-1]) / spread) > APART:
                break
        pair = [rounded(self.stage.place(rows)) for rows in pieces]
        states = [rounded(rows, DIGITS) for rows in pieces]
        return [{"type": "segments", "id": message.get("id"), "pair": pair, "states": states}]

    def _piece(self, rng: np.random.Generator) -> np.ndarray:
        """States [SEGMENT + 1, obs] under a random skill, from where the first agent starts."""
        running = self._begin(self.agents[0].start if self.agents else None, 0, 0).running
        z = np.tile(self.policy.project(rng.standard_normal(self.policy.skill_dim)), (1, 1))
        rows = [running.observations[0].copy()]
        for _ in range(SEGMENT):
            with self.stage.lock:
                running.step(self.policy.act(running.observations, z))
            rows.append(running.observations[0].copy())
        return np.array(rows)

    # ---- the world -------------------------------------------------------------------------------------------------

    def _begin(self, start: Any, slot: int, number: int) -> Agent:
        """An episode from a state, from a place, or from where the task begins."""
        given = None
        if start is not None:
            given = np.asarray(numbers(start), np.float64)
        rng = np.random.default_rng([self.seed, number])
        with self.stage.lock:
            running = self.stage.of(slot).world.episodes(rng, 1, start=given)
        return Agent(running, None if given is None else given.tolist(), slot)

    def _forget(self) -> None:
        """New episodes begin."""
        self.step_count = 0
        for slot in self.slots:
            slot.planned_at = -1
            if slot.prompt is not None:
                slot.prompt.reset()

    def _rows(self, slot: int) -> list[int]:
        return [number for number, agent in enumerate(self.agents) if agent.slot == slot]

    @property
    def is_moving(self) -> bool:
        """Whether a step would change anything."""
        return any(self._can_move(agent) for agent in self.agents)

    def _can_move(self, agent: Agent) -> bool:
        wants = self.slots[agent.slot].prompt is not None and not agent.reached
        return (wants or agent.pushed > 0) and not agent.is_over

    def advance(self) -> None:
        """One step of every agent that is pushed, or that has a prompt and is not where it shall be."""
        for number, slot in enumerate(self.slots):
            agents = [self.agents[row] for row in self._rows(number)]
            moving = np.array([self._can_move(agent) for agent in agents], bool)
            if not moving.any():
                continue
            actions = [agent.push for agent in agents] if slot.prompt is None else self._act(slot, agents, moving)
            for agent, action, moves in zip(agents, actions, moving, strict=True):
                if moves:
                    self._step(slot, agent, agent.push if agent.pushed else action)
        self.step_count += 1

    def _step(self, slot: Slot, agent: Agent, action: Any) -> None:
        with self.stage.lock:
            agent.running.step(np.asarray(action)[None])
        agent.pushed = max(0, agent.pushed - 1)
        agent.reached = self._is_there(slot, agent)

    def _act(self, slot: Slot, agents: list[Agent], moving: np.ndarray) -> np.ndarray:
        """Actions of all agents of a slot, in a batch of one of a few sizes: others would be compiled anew."""
        parts = [rendering.policy_observations(agent.running) for agent in agents]
        seen = trees.over(lambda *rows: np.concatenate(rows), *parts)
        count = len(moving)
        rows = np.minimum(np.arange(next(size for size in SIZES if size >= count)), count - 1)
        padded, active = trees.over(lambda part: part[rows], seen), moving[rows] & (np.arange(len(rows)) < count)
        return np.asarray(slot.policy.act(padded, slot.prompt, active=active))[:count]

    def _is_there(self, slot: Slot, agent: Agent) -> bool:
        if slot.goal is None or agent.pushed or not self.world.has_goals:
            return False
        return bool(self.world.near(agent.running.observations, slot.goal)[0])

    # ---- what a page shows -----------------------------------------------------------------------------------------

    def frame(self) -> Message:
        """How things stand."""
        shown: list[Message] = []
        for agent in self.agents:
            state = agent.running.observations[0]
            place = rounded(self.stage.place(state[None])[0], DIGITS)
            shown.append({"place": place, "slot": agent.slot, "reached": agent.reached, "over": agent.is_over})
            shown[-1]["state"] = exact(state)
        frame = {"type": "frame", "step": self.step_count, "run": self.run, "speed": self.speed, "agents": shown}
        frame["ways"] = [self._way(number) for number in range(SLOTS)]
        if self.stage.is_filmed:
            frame["pictures"] = [self.stage.camera(agent.running) for agent in self._filmed()]
        return frame

    def _filmed(self) -> list[Agent]:
        """The first agent of each slot."""
        return [self.agents[rows[0]] for rows in map(self._rows, range(SLOTS)) if rows]

    def _way(self, number: int) -> Message | None:
        """The way of a slot's first agent to its goal, looked at every few steps."""
        slot, rows = self.slots[number], self._rows(number)
        if not rows or not isinstance(slot.prompt, GoalPrompt) or not has_graph(slot.policy):
            return None
        if slot.planned_at >= 0 and self.step_count - slot.planned_at < 5:
            return slot.way
        slot.planned_at = self.step_count
        agent, prompt, planner = self.agents[rows[0]], slot.prompt, slot.policy.planner
        seen = trees.over(lambda part: part[0], rendering.policy_observations(agent.running))
        if slot.to_goal is None:
            slot.to_goal = planner.to_goals(prompt.latent[None])[0]
        info = planner.path_info(np.asarray(slot.policy.encode(seen)), prompt.latent, slot.to_goal)
        steps = float(info.steps) if np.isfinite(info.steps) else None
        marks = trees.over(lambda part: part[info.path], slot.policy.bank.observations)
        path = [rounded(self.stage.place(agent.running.observations)[0]), *rounded(self.stage.place(marks))]
        if slot.goal is not None:
            path.append(rounded(self.stage.place(slot.goal[None])[0]))
        slot.way = {"path": path, "steps": steps, "support": info.support, "reachable": info.reachable}
        return slot.way

    def _understood(self, spec: Any, slot: Slot) -> Message:
        """What the policy makes of a prompt, over the field of the scene."""
        policy, prompt, after = slot.policy, slot.prompt, self.stage.sample.next_observations
        said: Message = {"kind": prompt.kind, "goal": None, "heat": None, "asked": None, "r2": None, "z": None}
        if slot.goal is not None:
            said["goal"] = rounded(self.stage.place(slot.goal[None])[0])
        if getattr(prompt, "r2", None) is not None and np.isfinite(prompt.r2):
            said["r2"] = round(float(prompt.r2), 4)
        if isinstance(prompt, GoalPrompt) and policy.has_rule("goal_direction"):
            apart = policy.distance(policy.encode_all(after), prompt.latent[None])
            steps = undiscounted(apart, policy.discount) if policy.has_rule("discount") else apart
            said["heat"] = rounded(steps, 2)
        elif hasattr(prompt, "planned"):
            said["heat"] = rounded(on_graph(policy, prompt.planned, policy.encode_all(after)))
        elif prompt.kind == "skill" and hasattr(prompt, "z"):
            said["z"] = rounded(prompt.z, DIGITS)
            latents = policy.encode_all(after) if policy.has_rule("encode") else np.zeros((0, 0))
            if 0 < latents.shape[1] == policy.skill_dim:  # then a skill is a direction of phi
                said["heat"] = rounded(latents @ np.asarray(prompt.z).reshape(-1))
        if isinstance(spec, specs.Reward) and spec.reward is not None:
            said["asked"] = self._asked(spec.reward)
        return said

    def _asked(self, text: str) -> Any:
        """The reward itself over the field: its potential, where it pays a change of one."""
        sample, policy = self.stage.sample, self.policy
        if isinstance(sample.observations, Mapping):
            return None
        moved = re.fullmatch(r"\s*(\(.*\)|\w+)\s*-\s*before\((.*)\)\s*", text)
        if moved and moved[1].strip("()") == moved[2].strip("()") and text not in self.world.potentials:
            text = moved[2]
        if text in self.world.potentials:
            return rounded(self.world.potentials[text](sample.next_observations))
        function = setup.reward_of(text, policy, self.world)
        extras = Extras({}, sample.next_extras, "the bank")
        found = apply_reward(function, sample.observations, sample.actions, sample.next_observations, extras)
        return rounded(found)


def on_graph(policy: Any, plan: Any, latents: np.ndarray) -> np.ndarray:
    """What the model of a reward pays at latents [n, D]: for being there, or in all for getting there."""
    near, shares = policy.planner.shares(latents)
    worth = plan.potential if plan.model == "potential" else plan.state_reward
    found: np.ndarray = np.sum(worth[near] * shares, axis=1)
    return found


def numbers(values: Any) -> list[float]:
    """A place or state of a message as plain finite numbers."""
    if not isinstance(values, list) or not values or not all(is_number(value) for value in values):
        raise HilpError(f"a place or state is a list of numbers, not {values!r:.60}")
    return [float(value) for value in values]
