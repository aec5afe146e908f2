"""A policy behind a WebSocket, for robots: openpi's protocol, so that a stock `openpi-client` gets actions from it.

The server speaks first and says what it serves. Then an observation comes in and actions go out, in turns. A mistake in
an observation or a prompt is answered by a text of one line, and the connection goes on.
"""

import asyncio
import http
import json
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import runs
from hilp.errors import HilpError, counted, require_switch, say, some
from hilp.evaluation.evaluate import make_prompt
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import specs
from hilp.prompts.base import Prompt
from hilp.serve import sockets, wire
from hilp.serve.batching import Batcher
from hilp.serve.client_prompts import loaded, require_safe
from hilp.tasks import rendering

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

PORT = 8000  # openpi's
LARGEST = 16 * 2**20  # bytes of a message; more where an observation is larger
MOST_ROBOTS = 64
MOST_MADE = 32  # prompts that are kept, for robots that come back
HEALTH = "/healthz"
KEY = "Api-Key "  # before the token in the header `Authorization`
LONGEST_NAME = 1000  # characters before the last part of a name, which each name behind them takes in memory
WHOLE = ("state", "observation")  # names of an observation without names


@dataclass
class Robot:
    """One connection, and the prompt that remembers its episode."""

    prompt: Prompt | None = None
    asked: str | None = None  # the text of that prompt, where the robot sent one
    answered: int = 0
    last_ms: float | None = None  # from its last message to the answer


class PolicyServer:
    """A server that runs until it is stopped. prompt: of robots that send none; home: the folder of the run."""

    def __init__(
        self,
        policy: FoundationPolicy,
        home: Path,
        world: Any = None,
        prompt: Prompt | None = None,
        host: str = sockets.LOOPBACK,
        port: int = PORT,
        token: str | None = None,
    ) -> None:
        if policy.spec.history > 1 < policy.horizon:
            raise HilpError(f"this policy sees the last {policy.spec.history} observations, and a robot that plays "
                            f"{policy.horizon} actions sends none between: train with --set chunk=1")  # fmt: skip
        self.policy, self.home, self.world, self.host, self.port, self.token = policy, home, world, host, port, token
        self.prompt = policy.skill() if prompt is None and policy.skill_dim == 0 else prompt
        self.robots = self.making = 0
        self._batcher = Batcher(policy)
        # One thread makes all prompts, so that nobody waits for them to act, and simulators stay in one thread.
        self._maker = ThreadPoolExecutor(1, "hilp-prompts", rendering.keep_screens)
        self._made = lru_cache(MOST_MADE)(self._make)

    @property
    def address(self) -> str:
        """Where robots connect to."""
        return f"ws://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def run(self, opened: Callable[[str], None]) -> None:
        """Listen until cancelled; `opened` is told the address once actions take no compiling."""
        sockets.require("serve", "websockets", "msgpack")
        await asyncio.to_thread(self._begin)
        observation = sum(math.prod(shape) * np.dtype(kind).itemsize for _, shape, kind in self.policy.spec.parts)
        try:
            most = LARGEST + 2 * observation
            server = await sockets.listen(self._serve, self._request, self.host, self.port, most)
            self.port = sockets.port_of(server)
            async with server:  # which tells robots that it goes away
                opened(self.address)
                await server.wait_closed()
        finally:
            self._batcher.close()
            self._maker.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        self._batcher.start()
        if self.prompt is not None:
            self._batcher.try_out(self.prompt)

    def about(self) -> dict[str, Any]:
        """What a robot is told first: names, types and shapes of an observation, of the actions, and the prompts."""
        policy = self.policy
        parts = policy.spec.parts or [(name, shape, "float32") for name, shape in policy.observation_parts]
        named = parts or [(WHOLE[0], (policy.spec.of_row.observation_dim,), "float32")]
        return {
            "server": "hilp",
            "method": policy.method,
            "policy": policy.fingerprint,
            "observation": {f"observation/{name}": {"shape": shape, "dtype": kind} for name, shape, kind in named},
            "actions": [policy.horizon, policy.spec.action_dim],
            "prompt": None if self.prompt is None else self.prompt.kind,
            "prompts": sorted(runs.prompts(self.home)),
        }

    # ---- connections ---------------------------------------------------------------------------------------------

    def _request(self, connection: "ServerConnection", request: Any) -> Any:
        """Health, or a refusal; None: go on with the WebSocket."""
        if request.path == HEALTH:
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        if request.headers.get_all("Origin"):
            return sockets.refusal(connection, 403, "this server is for robots: it answers no page of a browser")
        given = " ".join(request.headers.get_all("Authorization"))
        if self.token is not None and not sockets.is_secret(given, KEY + self.token):
            return sockets.refusal(connection, 401, f"send the token: the header Authorization: {KEY}TOKEN")
        if self.robots >= MOST_ROBOTS:
            return sockets.refusal(connection, 503, f"{MOST_ROBOTS} robots are connected already")
        return None

    async def _serve(self, connection: "ServerConnection") -> None:
        """One robot, until it leaves."""
        from websockets.exceptions import ConnectionClosed

        robot, name = Robot(), "{}:{}".format(*connection.remote_address)
        self.robots += 1
        say(f"{name} is connected")
        try:
            await connection.send(wire.packed(self.about()))
            async for message in connection:
                await connection.send(await self._answer(robot, message))
        except ConnectionClosed:
            pass  # killed, or cut off
        finally:
            self.robots -= 1
            say(f"{name} left after {counted(robot.answered, 'answer')}")

    async def _answer(self, robot: Robot, message: str | bytes) -> str | bytes:
        """The actions for an observation; a text where there are none."""
        begin = time.perf_counter()
        try:
            if not isinstance(message, bytes):
                raise HilpError("a message is binary, an observation as openpi-client packs it, not text")
            observation = wire.unpacked(message)
            if not isinstance(observation, dict):
                raise HilpError(f"an observation is a map of arrays by name, not a {type(observation).__name__}")
            reset = require_switch("reset", observation.pop("reset", False))
            await self._prompt(robot, observation.pop("prompt", None))
            seen = self._whole(by_name(observation))
            batch = self.policy.check(seen, always=True)
            if not batch.single:
                raise HilpError("a message is one observation, not a batch: each robot has a connection of its own")
            assert robot.prompt is not None
            if reset:
                robot.prompt.reset()
            if self.policy.spec.history > 1:
                batch = self.policy.seen(seen, robot.prompt)
            asked = time.perf_counter()
            actions = await asyncio.wrap_future(self._batcher.act(batch, robot.prompt))
            infer_ms = 1e3 * (time.perf_counter() - asked)
            timing = {"infer_ms": infer_ms}
            if robot.last_ms is not None:
                timing["prev_total_ms"] = robot.last_ms
            kind = np.int64 if self.policy.spec.choices else np.float32
            answer = wire.packed({"actions": np.asarray(actions, kind), "server_timing": timing})
        except Exception as error:  # whatever a message holds, the server lives
            return sockets.told(error)
        robot.answered += 1
        robot.last_ms = 1e3 * (time.perf_counter() - begin)
        return answer

    def _whole(self, observation: dict[str, Any]) -> Any:
        """An observation as the policy takes it: one that has no names, or is sent whole, is one array."""
        known = [name for name, _, _ in self.policy.spec.parts] or [name for name, _ in self.policy.observation_parts]
        if self.policy.spec.parts or any(name in observation for name in known):
            return observation
        found = [name for name in WHOLE if name in observation]
        if not found:
            wanted = some([f"'observation/{name}'" for name in known or WHOLE[:1]])
            raise HilpError(f"an observation has {wanted}, and this one has {some(sorted(observation)) or 'nothing'}")
        return observation[found[0]]

    # ---- prompts -------------------------------------------------------------------------------------------------

    async def _prompt(self, robot: Robot, prompt: Any) -> None:
        """Give a robot the prompt that it asks for. One that it has goes on, with what it remembers."""
        text = None if prompt is None else text_of(prompt)
        if robot.prompt is not None and text in (None, robot.asked):
            return
        if text is not None:
            made = await asyncio.get_running_loop().run_in_executor(self._maker, self._asked_for, text)
        elif self.prompt is not None:
            made = self.prompt
        else:
            raise HilpError(f"say what to do: send 'prompt', a spec as JSON, {self._saved()}")
        robot.prompt, robot.asked = made.fresh(), text

    def _asked_for(self, text: str) -> Prompt:
        """A spec is made once; a file is read anew, because another may have taken its place."""
        self.making += 1
        try:
            return self._made(text) if text.lstrip().startswith("{") else self._make(text)
        finally:
            self.making -= 1

    def _make(self, text: str) -> Prompt:
        found: Prompt
        if text.lstrip().startswith("{"):
            spec = loaded(text)
            require_safe(spec, self.world)
            found = make_prompt(self.policy, specs.from_json(spec), self.world)
        else:
            files = runs.prompts(self.home)
            if text not in files:
                raise HilpError(f"'{text:.60}' is no prompt: send a spec as JSON, {self._saved()}")
            found = self.policy.load_prompt(files[text])
        self._batcher.try_out(found)
        return found

    def _saved(self) -> str:
        names = sorted(runs.prompts(self.home))
        return f"or the name of a saved one: {some(names)}" if names else f"or save one in {self.home}"


def text_of(prompt: Any) -> str:
    """A prompt of a message as a text: JSON, or a name."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, Mapping):
        raise HilpError(f"a prompt is a spec as JSON or the name of a saved one, not a {type(prompt).__name__}")
    try:
        return json.dumps(prompt, default=lambda value: value.tolist())
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise HilpError(f"a prompt is a spec as JSON: {error}") from None


def by_name(observation: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """The arrays of a message by name: `observation/x`, a map `observation` with an `x` in it, and `x` are the same."""
    if len(prefix) > LONGEST_NAME:
        raise HilpError(f"names in an observation are too long, or too many in each other: {prefix:.60}...")
    found: dict[str, Any] = {}
    for name, value in observation.items():
        if isinstance(value, Mapping):
            found |= by_name(value, f"{prefix}{name}/")
        else:
            found[f"{prefix}{name}".removeprefix("observation/")] = value
    return found
