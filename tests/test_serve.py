"""`hilp serve`: actions over a socket are those of the policy, no robot disturbs another, and nothing ends it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import serve

import hilp
from hilp import HilpError
from hilp.evaluation import setup
from hilp.policy import policy as policies
from hilp.serve import server, wire
from hilp.serve.batching import SIZES, Batcher, Request
from hilp.serve.client import Client
from serving import listening
from test_export import untrained

GOAL = {"kind": "goal", "goal": [1.5, 1.5], "plan": "auto"}
PLACES = np.random.default_rng(0).uniform(1.2, 6.8, (12, 2)).astype(np.float32)
CLOSE = {"rtol": 0, "atol": 2e-5}  # batches of other sizes round otherwise
NEAR = {"rtol": 0, "atol": 1e-3}  # the same of thousands of places, some of them so near to the goal that it shows
TIMEOUT = 30


def state(place: Any, **more: Any) -> dict[str, Any]:
    return {"observation/state": place, **more}


def of(policy: hilp.FoundationPolicy, folder: Path = Path("nowhere"), **options: Any) -> server.PolicyServer:
    return server.PolicyServer(policy, folder, port=0, **options)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tiny: hilp.FoundationPolicy) -> Path:
    """A run's folder with one saved prompt."""
    folder = tmp_path_factory.mktemp("run")
    tiny.goal([6.5, 6.5]).save(folder / "corner.safetensors")
    return folder


@pytest.fixture(scope="module")
def found(tiny: hilp.FoundationPolicy, home: Path) -> Iterator[server.PolicyServer]:
    """A server whose robots are sent to a goal, unless they ask for something else."""
    one = of(tiny, home, world=setup.task_of(tiny), prompt=tiny.goal([1.5, 1.5], plan="auto"))
    with listening(one):
        yield one


@pytest.fixture
def robot(found: server.PolicyServer) -> Iterator[Client]:
    client = Client(found.address)
    yield client
    client.close()


def lives(found: server.PolicyServer) -> None:
    client = Client(found.address)
    assert client.infer(state(PLACES[0]))["actions"].shape == (1, 2)
    client.close()


# ---- acting ----------------------------------------------------------------------------------------------------------


def test_a_robot_is_told_what_is_served(robot: Client, tiny: hilp.FoundationPolicy) -> None:
    about = robot.get_server_metadata()
    assert about["observation"] == {"observation/state": {"shape": [2], "dtype": "float32"}}
    assert about["actions"] == [1, 2] and about["prompt"] == "goal" and about["prompts"] == ["corner"]
    assert about["policy"] == tiny.fingerprint


def test_actions_are_those_of_the_policy(robot: Client, tiny: hilp.FoundationPolicy) -> None:
    """Step by step, with what the prompt remembers; as openpi's client sends a state, or as lists."""
    alone = tiny.goal([1.5, 1.5], plan="auto")
    for step, place in enumerate(np.repeat(PLACES[:3], 5, axis=0)):  # it stands still: then a prompt tries otherwise
        answer = robot.infer(state(place.astype(np.float64) if step % 2 else place.tolist()))
        assert answer["actions"].shape == (1, 2) and answer["actions"].dtype == np.float32
        np.testing.assert_allclose(answer["actions"][0], tiny.act(place, alone), **CLOSE)
        assert answer["server_timing"].keys() == ({"infer_ms", "prev_total_ms"} if step else {"infer_ms"})


def test_robots_together_act_as_each_alone(tiny: hilp.FoundationPolicy) -> None:
    """Other prompts, other places, in one call of a size that was compiled before."""
    prompts = [
        tiny.goal([1.5, 1.5], plan="auto"), tiny.goal([6.5, 6.5]), tiny.goal(PLACES[3], plan=1, smooth=3.0),
        tiny.skill(np.arange(8)), tiny.goal([6.5, 1.5]).then(tiny.skill(seed=1), until=2),
        tiny.goal([1.5, 6.5]) + 0.5 * tiny.skill(seed=2), tiny.reward(None, "observation[0] - before(observation[0])"),
    ]  # fmt: skip
    batcher, alone = Batcher(tiny), [prompt.fresh() for prompt in prompts]
    batcher.start()
    for prompt in prompts:
        batcher.try_out(prompt)
    compiled = programs(tiny)
    for step in range(4):
        places = np.roll(PLACES, step, axis=0)[: len(prompts)]
        together = [Request(tiny.check(place), prompt) for place, prompt in zip(places, prompts, strict=True)]
        batcher._answer(together)
        for place, prompt, request in zip(places, alone, together, strict=True):
            np.testing.assert_allclose(request.actions.result()[0], tiny.act(place[None], prompt)[0], **CLOSE)
    for count in range(1, SIZES[-1] + 1):
        batcher._answer([Request(tiny.check(PLACES[0]), prompts[0].fresh()) for _ in range(count)])
    assert programs(tiny) == compiled, "nothing was compiled to act"
    batcher.close()


def programs(policy: hilp.FoundationPolicy) -> dict[str, int]:
    """How often each rule was compiled."""
    import jax

    structure = jax.tree.structure(policy.core)
    rules = ("act", "encode", "act_and_encode", "act_between", "goal_direction")
    return {rule: policies._compiled(rule, structure)._cache_size() for rule in rules}  # type: ignore[attr-defined]


def test_one_broken_prompt_stops_no_other_robot(tiny: hilp.FoundationPolicy) -> None:
    batcher, broken = Batcher(tiny), tiny.skill(seed=1).until(lambda rows: np.ones(7, bool)).then(tiny.skill(seed=2))
    batch, good = tiny.check(PLACES[0]), tiny.skill(seed=3)
    requests = [Request(batch, prompt) for prompt in (good, broken, good)]
    batcher._answer(requests)
    with pytest.raises(HilpError, match="one truth an observation"):
        requests[1].actions.result(1)
    for request in (requests[0], requests[2]):
        np.testing.assert_allclose(request.actions.result(1)[0], tiny.act(PLACES[0], good), **CLOSE)


def test_robots_at_once(found: server.PolicyServer, tiny: hilp.FoundationPolicy) -> None:
    """Eight, each with a goal of its own, faster than they are answered."""
    failed: list[Any] = []

    def drive(number: int) -> None:
        try:
            client, goal = Client(found.address), PLACES[number]
            alone = tiny.goal(goal)
            for place in np.roll(PLACES, number, axis=0):
                asked = {"kind": "goal", "goal": goal}  # an array in a map will do
                actions = client.infer(state(place, prompt=asked))["actions"]
                np.testing.assert_allclose(actions[0], tiny.act(place, alone), **CLOSE)
            client.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not failed and not any(thread.is_alive() for thread in threads)


def test_a_chunk_is_all_that_is_played_until_the_next_question() -> None:
    policy = untrained("gc-bc", chunk=3, play=2)
    policy.stride = 2
    goal, seen = policy.bank.observations[0], policy.bank.observations[:3]
    prompt = policy.goal(goal)
    with listening(of(policy, prompt=policy.goal(goal))) as address:
        client = Client(address)
        assert client.get_server_metadata()["actions"] == [4, 2]
        for one in seen:
            actions = client.infer({"observation": one})["actions"]
            np.testing.assert_allclose(actions, [policy.act(one, prompt) for _ in range(4)], **CLOSE)
            assert np.array_equal(actions[0], actions[1]) and not np.array_equal(actions[1], actions[2])
        client.close()


def test_what_prompts_remember_counts_the_steps_of_a_chunk() -> None:
    policy = untrained("gc-bc", chunk=3, play=3)
    first, second = (policy.goal(row) for row in policy.bank.observations[:2])
    batcher, prompt, batch = Batcher(policy), first.then(second, until=3), policy.check(policy.bank.observations[2])
    for wanted in (first, second):
        request = Request(batch, prompt)
        batcher._answer([request])
        np.testing.assert_allclose(request.actions.result()[0], policy.act(batch.tree[0], wanted.fresh()), **CLOSE)


def test_observations_by_name() -> None:
    """Numbers and pictures: under a prefix, in a map, or bare; what the policy does not know is left out."""
    rng = np.random.default_rng(0)
    seen = {
        "camera": rng.integers(0, 255, (60, 8, 8, 3), np.uint8),
        "arm": rng.standard_normal((60, 3)).astype(np.float32),
    }
    data = hilp.Dataset(seen, rng.uniform(-1, 1, (60, 2)).astype(np.float32), [30, 30], name="pictures")
    policy = untrained("gc-bc", data)
    one = {name: rows[7] for name, rows in seen.items()}
    goal = policy.goal({name: rows[0] for name, rows in seen.items()})
    with listening(of(policy, prompt=goal)) as address:
        client = Client(address)
        about = client.get_server_metadata()["observation"]
        assert about["observation/camera"] == {"shape": [8, 8, 3], "dtype": "uint8"}
        for sent in (
            {f"observation/{name}": part for name, part in one.items()},
            {"observation": one, "other": rng.random(4), "task": "pick"},
            one,
        ):
            np.testing.assert_allclose(client.infer(sent)["actions"][0], policy.act(one, goal), **CLOSE)
        for wrong, told in (
            ({**one, "camera": one["camera"].astype(np.float32)}, "uint8"),
            ({**one, "camera": one["camera"][:4]}, r"is \(8, 8, 3\)"),
            ({"arm": one["arm"]}, "'camera' is missing"),
        ):
            with pytest.raises(RuntimeError, match=told):
                client.infer(wrong)
        client.close()


def test_columns_of_a_log_by_name(change: Any, tiny: hilp.FoundationPolicy) -> None:
    policy = change(tiny)
    policy.observation_parts = (("x", (1,)), ("y", (1,)))
    with listening(of(policy, prompt=policy.goal([1.5, 1.5]))) as address:
        client = Client(address)
        assert list(client.get_server_metadata()["observation"]) == ["observation/x", "observation/y"]
        by_name = client.infer({"x": [2.5], "observation/y": np.array([6.5])})["actions"]
        np.testing.assert_allclose(client.infer(state([2.5, 6.5]))["actions"], by_name, **CLOSE)
        with pytest.raises(RuntimeError, match="has 'observation/x', 'observation/y', and this one has z"):
            client.infer({"z": [2.5]})
        client.close()


# ---- prompts ---------------------------------------------------------------------------------------------------------


def test_a_robot_says_what_to_do(robot: Client, tiny: hilp.FoundationPolicy, home: Path) -> None:
    place, corner = PLACES[5], tiny.goal([6.5, 6.5])
    skill = tiny.skill(np.ones(8))
    for asked, prompt in (
        ("corner", corner),
        (json.dumps(skill.spec.to_json()), skill),
        (skill.spec.to_json(), skill),
        ({"kind": "goal", "goal": np.array([6.5, 6.5])}, corner),
        ({"kind": "goal", "goal": "x=6.5,y=6.5"}, corner),
        (np.str_("corner"), corner),
    ):
        actions = robot.infer(state(place, prompt=asked))["actions"]
        np.testing.assert_allclose(actions[0], tiny.act(place, prompt), **CLOSE)
        np.testing.assert_allclose(robot.infer(state(place))["actions"], actions, **CLOSE)  # the last one goes on


def test_a_prompt_that_was_saved_anew_is_read_anew(found: server.PolicyServer, tiny: hilp.FoundationPolicy) -> None:
    for z in (np.ones(8), -np.ones(8)):
        skill = tiny.skill(z)
        skill.save(found.home / "mine.safetensors")
        client = Client(found.address)
        answer = client.infer(state(PLACES[1], prompt="mine"))["actions"]
        np.testing.assert_allclose(answer[0], tiny.act(PLACES[1], skill), **CLOSE)
        client.close()
    (found.home / "mine.safetensors").unlink()


def test_episodes_begin_with_a_reset_or_another_prompt(robot: Client, tiny: hilp.FoundationPolicy) -> None:
    """A prompt that changes over after two steps, and begins anew."""
    first, second = tiny.skill(np.ones(8)), tiny.skill(-np.ones(8))
    asked = first.then(second, until=2).spec.to_json()
    before, after = (tiny.act(PLACES[0], one) for one in (first, second))

    def acts(wanted: np.ndarray, **more: Any) -> None:
        np.testing.assert_allclose(robot.infer(state(PLACES[0], **more))["actions"][0], wanted, **CLOSE)

    for wanted in (before, before, after, after):
        acts(wanted, prompt=asked)
    acts(before, prompt=asked, reset=True)
    acts(before, reset=np.bool_(False))
    acts(after)
    robot.reset()
    with pytest.raises(RuntimeError, match="NaN"):
        robot.infer(state([np.nan, 0.0]))
    acts(before)  # the next one that is taken begins an episode
    acts(tiny.act(PLACES[0], tiny.goal([6.5, 6.5])), prompt="corner")
    acts(before, prompt=asked)


def test_prompts_are_copied_with_nothing_remembered(tiny: hilp.FoundationPolicy) -> None:
    follow = tiny.follow(np.stack([np.linspace(1.5, 3, 20), np.full(20, 1.5)], axis=1))
    for prompt in (tiny.goal([1.5, 1.5], plan="auto"), follow, tiny.skill(seed=1).until(3), tiny.goal(PLACES[0]) * 2.0):
        before = [tiny.act(place, prompt) for place in PLACES]
        copy = prompt.fresh()
        assert copy.policy is tiny and type(copy) is type(prompt)
        prompt.reset()
        np.testing.assert_array_equal([tiny.act(place, copy) for place in PLACES], before)


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("pick up the fork", "'pick up the fork' is no prompt.* saved one: corner"),
        ("../corner", "is no prompt"),
        ("/etc/passwd", "is no prompt"),
        ("{", "JSON"),
        ('{"kind": "goal", "goal": [NaN, 0]}', "finite"),
        ({"kind": "gaol"}, "did you mean 'goal'"),
        ({"kind": "goal", "goal": [1.5]}, "2 numbers"),
        ({"kind": "goal", "goal": "photo.png"}, "a goal of a client"),
        ({"kind": "saved", "path": "/etc/passwd"}, "opens no files"),
        ({"kind": "reward", "reward": "x.__class__"}, "formula|reward"),
        ({"kind": "goal", "goal": b"x"}, "spec as JSON"),
        (7, "spec as JSON"),
        (["corner"], "spec as JSON"),
    ],
)
def test_a_prompt_that_is_none_leaves_the_last_one(robot: Client, prompt: Any, told: str) -> None:
    before = robot.infer(state(PLACES[0]))["actions"]
    with pytest.raises(RuntimeError, match=told) as error:
        robot.infer(state(PLACES[0], prompt=prompt))
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)
    np.testing.assert_array_equal(robot.infer(state(PLACES[0]))["actions"], before)


def test_without_a_prompt_a_robot_is_told_to_send_one(tiny: hilp.FoundationPolicy) -> None:
    with listening(of(tiny)) as address:
        client = Client(address)
        assert client.get_server_metadata()["prompt"] is None
        with pytest.raises(RuntimeError, match=r"say what to do: send 'prompt'.*save one in nowhere"):
            client.infer(state(PLACES[0]))
        assert client.infer(state(PLACES[0], prompt=GOAL))["actions"].shape == (1, 2)
        client.close()


# ---- what no robot would send ----------------------------------------------------------------------------------------


def array(data: bytes, dtype: Any, shape: Any) -> dict[bytes, Any]:
    return {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape}


NINE = bytes(8) + b"x"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\xc1", "whole msgpack"),
        (b"", "whole msgpack"),
        (msgpack.packb(state([1.0, 2.0]))[:-3], "whole msgpack"),
        (msgpack.packb([1, 2]), "a map of arrays by name, not a list"),
        (msgpack.packb({}), "'observation/state', and this one has nothing"),
        (msgpack.packb(state([1.0])), "2 numbers"),
        (msgpack.packb(state([[1.0, 2.0]])), "not a batch"),
        (msgpack.packb(state("here")), "numbers"),
        (msgpack.packb(state(None)), "numbers|NaN"),
        (msgpack.packb(state([1.0, float("nan")])), "a NaN or an infinity"),
        (msgpack.packb(state([1.0, 1e300])), "a NaN or an infinity"),
        (msgpack.packb(state([1.5, 1.5], reset=1)), "reset is True or False"),
        (msgpack.packb(state(array(NINE[:8], "|O", [1]))), "cannot be sent"),
        (msgpack.packb(state(array(NINE[:8], "<c8", [1]))), "cannot be sent"),
        (msgpack.packb(state(array(NINE[:8], "|V8", [1]))), "cannot be sent"),
        (msgpack.packb(state(array(NINE[:8], "<f4,<f4", [1]))), "cannot be sent"),
        (msgpack.packb(state(array(NINE[:8], "<M8[s]", [1]))), "cannot be sent"),
        (msgpack.packb(state(array(NINE, "<f4", [2]))), "other bytes"),
        (msgpack.packb(state(array(NINE[:8], "<f4", [-2]))), "list of sizes"),
        (msgpack.packb(state(array(NINE[:8], "<f4", [2**40, 2**40]))), "other bytes"),
        (msgpack.packb(state(array(b"", "<U0", [2**40]))), "whole msgpack|numbers|other bytes"),
        (msgpack.packb(state(array(NINE[:8], "nonsense", [2]))), "whole msgpack"),
        (msgpack.packb(state(array(NINE[:8], 3, [2]))), "a text such as"),
        (msgpack.packb(state({b"__npgeneric__": True, b"data": "x", b"dtype": "<f4"})), "whole msgpack"),
        (msgpack.packb(state(msgpack.ExtType(5, b"x"))), "numbers"),
        (msgpack.packb({"a": [[]] * 60_000}), "at most 50,000"),
        (msgpack.packb(state(array(b"", "<f4", [2**63] * 50_000))), "list of sizes"),  # whose product takes minutes
        (msgpack.packb(state(array(b"", "f4," * 50_000, [0]))), "a text such as"),
        (msgpack.packb({"x" * 100_000: {str(i): 0 for i in range(40_000)}}), "too long"),  # 4 GB of names
        (b"\x81\xa1a" + b"\x91" * 100_000 + b"\x01", "msgpack"),
        (b"\xdd\xff\xff\xff\xff", "whole msgpack"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_the_connection_goes_on(robot: Client, message: bytes, told: str) -> None:
    robot._socket.send(message)
    answer = robot._socket.recv(TIMEOUT)
    assert isinstance(answer, str) and "\n" not in answer and "Traceback" not in answer
    assert re.search(told, answer), answer
    assert robot.infer(state(PLACES[0]))["actions"].shape == (1, 2)


def test_a_text_is_no_observation(robot: Client) -> None:
    robot._socket.send("hello")
    assert "a message is binary" in str(robot._socket.recv(TIMEOUT))


@settings(max_examples=60, deadline=None)
@given(message=st.binary(max_size=60))
def test_any_bytes_are_answered(found: server.PolicyServer, message: bytes) -> None:
    with opened(found) as one:
        one.recv(TIMEOUT)
        one.send(message)
        assert isinstance(one.recv(TIMEOUT), str)


def opened(found: server.PolicyServer, **options: Any) -> ClientConnection:
    return connect(found.address, compression=None, max_size=None, **options)


def test_a_message_that_is_too_large_ends_its_connection(found: server.PolicyServer) -> None:
    with opened(found) as one:
        one.recv(TIMEOUT)
        with contextlib.suppress(ConnectionClosed):  # while it is still being sent
            one.send(bytes(server.LARGEST + 1))
        with pytest.raises(ConnectionClosed):
            one.recv(TIMEOUT)
        assert one.close_code in (1006, 1009)
    lives(found)


HELLO = (
    b"GET / HTTP/1.1\r\nHost: robot\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.mark.parametrize(
    "sent",
    [b"\x00" * 2000, b"GET /", HELLO[:-9], HELLO, HELLO + b"\x82", HELLO + b"\x82\xfe\x10\x00" + bytes(50),
     HELLO + b"\x02\x81\0\0\0\0x", HELLO + b"\xff" * 300],
)  # fmt: skip
def test_half_a_message_and_a_cut_cable(found: server.PolicyServer, sent: bytes) -> None:
    """The connection is reset, as the system does for a process that was killed."""
    host, port = found.host, found.port
    with socket.create_connection((host, port), timeout=TIMEOUT) as plain:
        plain.sendall(sent)
        if sent.startswith(HELLO):
            with contextlib.suppress(ConnectionResetError):
                assert plain.recv(12) in (b"HTTP/1.1 101", b"")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    lives(found)


def test_who_left_is_forgotten(found: server.PolicyServer) -> None:
    lives(found)
    end = time.monotonic() + TIMEOUT
    while found.robots and time.monotonic() < end:
        time.sleep(0.01)
    assert found.robots == 0


def test_who_is_refused(
    found: server.PolicyServer, tiny: hilp.FoundationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(address: str, **options: Any) -> int:
        with pytest.raises(InvalidStatus) as refused:
            connect(address, **options).close()
        return int(refused.value.response.status_code)

    assert status(found.address, origin="http://127.0.0.1") == 403, "a page of a browser, whatever it calls itself"
    with monkeypatch.context() as patch:
        patch.setattr(server, "MOST_ROBOTS", 0)
        assert status(found.address) == 503
    locked = of(tiny, token="s3cret", prompt=tiny.skill(seed=1))
    with listening(locked) as address:
        for given in (None, {"Authorization": "Api-Key guess"}, {"Authorization": "s3cret"}):
            assert status(address, additional_headers=given) == 401
        client = Client(address, "s3cret")
        assert client.infer(state(PLACES[0]))["actions"].shape == (1, 2)
        client.close()
        assert healthy(locked), "which tells nothing, so that it needs no token"


def healthy(found: server.PolicyServer) -> bool:
    connection = http.client.HTTPConnection(found.host, found.port, timeout=TIMEOUT)
    connection.request("GET", "/healthz")
    response = connection.getresponse()
    return response.status == 200 and response.read() == b"OK\n"


# ---- the wire --------------------------------------------------------------------------------------------------------


def test_arrays_travel_as_openpi_has_them() -> None:
    """Byte by byte: keys are bytes, the data is that of the array, numbers of numpy's have a form of their own."""
    values = {"a": np.array([[1, 2]], ">i2"), "b": np.float32(0.5), "c": "text", "d": [1.5, None]}
    told = msgpack.unpackb(wire.packed(values))
    assert told["a"] == {b"__ndarray__": True, b"data": b"\0\1\0\2", b"dtype": ">i2", b"shape": [1, 2]}
    assert told["b"] == {b"__npgeneric__": True, b"data": 0.5, b"dtype": "<f4"}
    back = wire.unpacked(wire.packed(values))
    assert back["a"].tolist() == [[1, 2]] and back["b"] == np.float32(0.5) and back["c"] == "text"
    with pytest.raises(HilpError, match="object cannot be sent"):
        wire.packed(np.array([None]))
    with pytest.raises(HilpError, match="not a set"):
        wire.packed({"a": {1}})


# ---- the command -----------------------------------------------------------------------------------------------------


def test_a_robot_does_not_wait_for_ever() -> None:
    def greet_and_hang(connection: Any) -> None:
        connection.send(wire.packed({}))
        with contextlib.suppress(ConnectionClosed):
            connection.recv()
            connection.recv()

    with serve(greet_and_hang, "127.0.0.1", 0, compression=None) as hung:
        threading.Thread(target=hung.serve_forever, daemon=True).start()
        robot = Client(f"ws://127.0.0.1:{hung.socket.getsockname()[1]}", timeout=0.2)
        with pytest.raises(TimeoutError):
            robot.infer(state([1.5, 1.5]))
        with pytest.raises(ConnectionClosed):  # a late answer would be that to another question
            robot.infer(state([1.5, 1.5]))
        hung.shutdown()


def test_a_robot_comes_back_after_a_restart(tiny: hilp.FoundationPolicy) -> None:
    """At the same port, to the same policy; while there is no server, it is told so."""
    first = of(tiny, prompt=tiny.goal([1.5, 1.5]))
    with listening(first) as address:
        client = Client(address)
        before = client.infer(state(PLACES[0]))["actions"]
    with pytest.raises(ConnectionClosed):
        client.infer(state(PLACES[0]))
    with pytest.raises(ConnectionRefusedError):
        Client(address)
    again = server.PolicyServer(tiny, Path("nowhere"), prompt=tiny.goal([1.5, 1.5]), port=first.port)
    with listening(again):
        client = Client(address)
        np.testing.assert_array_equal(client.infer(state(PLACES[0]))["actions"], before)
        client.close()


@contextlib.contextmanager
def command(*words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    started = [str(Path(sys.executable).with_name("hilp")), "serve", *map(str, words), "--json"]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield process, json.loads(process.stdout.readline() or process.stderr.read())["served at"]
        finally:
            process.kill()


def test_the_command_serves_until_the_system_ends_it(
    tiny_run: Path, tiny: hilp.FoundationPolicy, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    with command(tiny_run, "--goal", "x=1.5,y=1.5", "--port", 0, "--token", tmp_path / "token") as (process, address):
        client = Client(address, "s3cret")
        actions = client.infer(state(PLACES[0]))["actions"]
        np.testing.assert_allclose(actions[0], tiny.act(PLACES[0], tiny.goal([1.5, 1.5], plan="auto")), **CLOSE)
        process.send_signal(signal.SIGTERM)
        err = process.communicate(timeout=TIMEOUT)[1]
        with pytest.raises(ConnectionClosed):
            client.infer(state(PLACES[0]))
    assert process.returncode == 0 and "left after 1 answer" in err and "Traceback" not in err


def test_mistakes_of_the_command(refused: Any, tiny_run: Path, tmp_path: Path) -> None:
    assert "no policy" in refused("serve", tmp_path / "nowhere")
    assert "--plan is about a prompt, and there is none" in refused("serve", tiny_run, "--plan", "3")
    assert "exactly one of" in refused("serve", tiny_run, "--goal", "1.5,1.5", "--skill", "random")
    assert "--token takes a file" in refused("serve", tiny_run, "--token", tmp_path / "none")
    assert "is far outside" not in refused("serve", tiny_run, "--goal", "1.5")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in refused("serve", tiny_run, "--port", port)


def test_a_package_that_is_missing_is_named(
    refused: Any, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, tiny: hilp.FoundationPolicy
) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    assert "hilp serve needs msgpack: pip install 'hilp[serve]'" in refused("serve", tiny_run)


# ---- a stock client, minutes -----------------------------------------------------------------------------------------

STOCK = """
import sys, time
import numpy as np
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy

port, places, out, prompt = int(sys.argv[1]), np.load(sys.argv[2]), sys.argv[3], sys.argv[4:]

def connected():
    while True:
        try:
            return WebsocketClientPolicy("127.0.0.1", port)
        except Exception:  # there is no server just now
            time.sleep(0.1)

robot, actions, connections = connected(), [], 1
assert robot.get_server_metadata()["server"] == "hilp"
for number, place in enumerate(places):
    while True:
        try:
            answer = robot.infer({"observation/state": place, **({"prompt": prompt[0]} if prompt else {})})
            break
        except RuntimeError:  # told a mistake
            raise
        except Exception:  # cut off: the same observation again, on another connection
            robot, connections = connected(), connections + 1
    assert answer["actions"].shape == (1, 2) and answer["server_timing"]["infer_ms"] > 0
    actions.append(answer["actions"][0])
    if number % 100 == 0:
        print(number, flush=True)
broker = ActionChunkBroker(robot, action_horizon=1)
assert np.allclose(broker.infer({"observation/state": place})["actions"], actions[-1], atol=1e-4)
np.savez(out, actions=np.array(actions), connections=connections)
"""


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A Python with openpi's client, whose numpy is older than ours, and the script of a robot."""
    folder = tmp_path_factory.mktemp("stock")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = str(folder / "venv" / "bin" / "python")
    needed = ["openpi-client==0.1.2", "typing_extensions"]  # which it imports and does not ask for
    subprocess.run([python, "-m", "pip", "install", "--quiet", *needed], check=True)
    (folder / "robot.py").write_text(STOCK)
    return [python, str(folder / "robot.py")]


class Stock:
    """A robot with the stock client, in a process of its own."""

    def __init__(self, stock: list[str], port: int, folder: Path, count: int, seed: int = 0, *prompt: str) -> None:
        self.places = np.random.default_rng(seed).uniform(1.2, 6.8, (count, 2)).astype(np.float32)
        self._out = folder / f"robot-{seed}.npz"
        np.save(folder / f"robot-{seed}.npy", self.places)
        words = [*stock, str(port), str(folder / f"robot-{seed}.npy"), str(self._out), *prompt]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)

    def wait_for(self, step: int) -> None:
        assert self.process.stdout is not None
        while int(self.process.stdout.readline()) < step:
            pass

    def ended(self) -> tuple[np.ndarray, int]:
        """Its actions, and how often it connected."""
        assert self.process.stdout is not None
        self.process.stdout.read()
        assert self.process.wait(600) == 0
        with np.load(self._out) as found:
            return found["actions"], int(found["connections"])


@pytest.mark.slow
def test_a_stock_client_gets_ten_thousand_actions(
    found: server.PolicyServer, tiny: hilp.FoundationPolicy, stock: list[str], tmp_path: Path
) -> None:
    robot = Stock(stock, found.port, tmp_path, 10_000, 0, json.dumps({"kind": "goal", "goal": [6.5, 6.5]}))
    actions, connections = robot.ended()
    assert len(actions) == 10_000 and connections == 1
    np.testing.assert_allclose(actions, tiny.act(robot.places, tiny.goal([6.5, 6.5])), **NEAR)


@pytest.mark.slow
def test_eight_stock_clients_of_which_two_are_killed(
    found: server.PolicyServer, tiny: hilp.FoundationPolicy, stock: list[str], tmp_path: Path
) -> None:
    goals = PLACES[:10].astype(np.float64)
    specs = [json.dumps({"kind": "goal", "goal": goal.tolist()}) for goal in goals]
    robots = [Stock(stock, found.port, tmp_path, 2_000, n, spec) for n, spec in enumerate(specs)]
    for robot in robots[8:]:
        robot.wait_for(500)
        robot.process.kill()  # with signal 9, in the middle of an answer
    for robot, goal in zip(robots[:8], goals, strict=False):
        actions, connections = robot.ended()
        assert connections == 1
        np.testing.assert_allclose(actions, tiny.act(robot.places, tiny.goal(goal)), **NEAR)
    test_who_left_is_forgotten(found)


@pytest.mark.slow
def test_a_stock_client_comes_back_to_a_server_that_was_killed(
    tiny_run: Path, tiny: hilp.FoundationPolicy, stock: list[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = (tiny_run, "--goal", "6.5,6.5", "--plan", "0", "--port", port)
    with command(*words) as (process, _):
        robot = Stock(stock, port, tmp_path, 4_000)
        robot.wait_for(500)
        process.kill()
    with command(*words):
        actions, connections = robot.ended()
    assert len(actions) == 4_000 and connections == 2
    np.testing.assert_allclose(actions, tiny.act(robot.places, tiny.goal([6.5, 6.5])), **NEAR)


def test_what_was_printed_is_flushed_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end does not wait for prompts that are still made, nor would it write what was printed."""
    from hilp.commands import serve

    done: list[str] = []
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(getattr(sys, name), "flush", lambda name=name: done.append(name))
    monkeypatch.setattr(serve.os, "_exit", lambda code: done.append("exit"))
    monkeypatch.setattr(serve.Serve, "prepared", lambda self: SimpleNamespace(making=True))

    async def ended(found: Any, opened: Any) -> None:
        done.clear()

    monkeypatch.setattr(serve, "until_ended", ended)
    serve.Serve(run="runs/robot")()
    assert {"stdout", "stderr"} <= set(done) and done[-1] == "exit"
