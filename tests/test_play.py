"""The playground without a browser: its simulation, message by message, and its server under attack."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect as connect_here
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

import hilp
import serving
from hilp.commands.play import trained_quickstart
from hilp.errors import HilpError
from hilp.learning import methods
from hilp.play import scene, server
from hilp.play.simulation import Simulation
from hilp.policy.artifact import Provenance
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.report import page as report
from hilp.spec import Spec
from test_methods import config_of

GOAL = {"kind": "goal", "goal": [1.5, 1.5], "plan": "auto"}
FAR, HERE, NEARBY = [6.5, 6.5], [1.5, 6.5], [5.5, 6.5]  # two corners of the maze, and beside one of them
DISC = "max((x-1.5)**2+(y-6.5)**2<0.5,0)"
INSIDE = 0.5**0.5
Message = dict[str, Any]


@pytest.fixture(scope="module")
def policy(able_run: Path) -> hilp.FoundationPolicy:
    return hilp.FoundationPolicy.load(able_run)


@pytest.fixture(scope="module")
def stage(policy: hilp.FoundationPolicy, able_run: Path) -> scene.Stage:
    return scene.stage_of(policy, str(able_run))


def begun(stage: scene.Stage, *starts: list[float], slots: list[int] | None = None) -> Simulation:
    simulation = Simulation(stage)
    simulation.receive({"type": "hello", "version": 1})
    if starts:
        simulation.receive({"type": "agents", "starts": list(starts), **({} if slots is None else {"slots": slots})})
    return simulation


@pytest.fixture
def play(stage: scene.Stage) -> Simulation:
    """One agent, at the far corner."""
    return begun(stage, FAR)


def prompt(simulation: Simulation, spec: Any, **fields: Any) -> Message:
    (answer,) = simulation.receive({"type": "prompt", "id": 7, "spec": spec, **fields})
    json.dumps(answer, allow_nan=False)
    return answer


def advance(simulation: Simulation, steps: int) -> np.ndarray:
    """The places of the first agent, step by step."""
    places = []
    for _ in range(steps):
        simulation.advance()
        places.append(simulation.frame()["agents"][0]["place"])
    return np.array(places)


def away(place: Any, other: Any) -> float:
    return float(np.linalg.norm(np.asarray(place) - np.asarray(other), axis=-1))


# ---- messages --------------------------------------------------------------------------------------------------------


def test_scene_says_what_there_is(stage: scene.Stage) -> None:
    (said,) = Simulation(stage).receive({"type": "hello", "version": 1})
    json.dumps(said, allow_nan=False)
    assert (said["type"], said["version"], said["method"], said["task"]) == ("scene", 1, "hilp", "maze-medium")
    assert said["modes"] == ["goal", "place", "reward", "paint", "skill", "follow", "prefer"]
    walls = stage.world.walls
    x0, y0, x1, y1 = said["map"]["bounds"]
    assert (x1 - x0, y1 - y0) == walls.shape[::-1]
    assert sum(width * height for _, _, width, height in said["map"]["walls"]) == walls.sum()
    inside = np.floor([[x - x0, y1 - y] for x, y in said["field"]["places"]]).astype(int)
    assert not walls[inside[:, 1], inside[:, 0]].any(), "data lies on the floor, row 0 of the map at the top"
    axes = np.array(said["skill"]["axes"])
    np.testing.assert_allclose(axes @ axes.T, np.eye(len(axes)), atol=1e-3)
    assert {"x", "y", "action"} <= set(said["columns"]) and "before" in said["functions"]
    assert said["rival"] is None and len(said["states"]) == scene.STATES


def test_a_goal_is_reached_on_the_way_shown(play: Simulation) -> None:
    said = prompt(play, GOAL)
    assert (said["id"], said["slot"], said["kind"], said["goal"], said["warnings"]) == (7, 0, "goal", [1.5, 1.5], [])
    assert said["spec"] == GOAL
    places = np.array(play.stage.description["field"]["places"])
    heat, far = np.array(said["heat"]), np.linalg.norm(places - [1.5, 1.5], axis=1)
    assert np.argmin(heat) in np.argsort(far)[:20] and heat.min() >= 0
    way = play.frame()["ways"][0]
    assert way["path"][0] == FAR and way["path"][-1] == [1.5, 1.5] and way["reachable"] == "yes" and way["support"] > 0
    steps = way["steps"]
    advance(play, 60)
    (agent,) = play.frame()["agents"]
    assert agent["reached"] and away(agent["place"], [1.5, 1.5]) < 1
    assert not play.is_moving, "who is there rests"
    assert 10 < steps < 60


def test_what_cannot_be_asked_leaves_the_last_prompt(play: Simulation) -> None:
    prompt(play, GOAL)
    for spec in ({"kind": "goal", "goal": [0.5, 0.5]}, {"kind": "reward", "reward": "x +* y"}, {"kind": "gaol"}):
        with pytest.raises(HilpError) as told:
            prompt(play, spec)
        assert "\n" not in str(told.value)
    advance(play, 60)
    assert play.frame()["agents"][0]["reached"]


def test_a_painted_reward_is_understood_and_obeyed(play: Simulation) -> None:
    said = prompt(play, {"kind": "reward", "reward": DISC})
    places = np.array(play.stage.description["field"]["places"])
    paid = ((places - HERE) ** 2).sum(axis=1) < 0.5
    np.testing.assert_array_equal(said["asked"], paid.astype(float))
    understood = np.array(said["heat"])
    assert said["kind"] == "graph" and 0.5 < said["r2"] <= 1
    assert understood[paid].mean() > 5 * abs(understood[~paid].mean())
    path = advance(play, 100)
    assert all(away(place, HERE) < INSIDE + 0.4 for place in path[60:]), "it goes there and stays"


def test_named_rewards_and_changes_are_shown_as_potentials(play: Simulation) -> None:
    places = np.array(play.stage.description["field"]["places"])
    for text in ("right", "x - before(x)"):
        said = prompt(play, {"kind": "reward", "reward": text})
        assert said["r2"] > 0.5
        np.testing.assert_allclose(said["asked"], places[:, 0], atol=2e-3)
    start = play.frame()["agents"][0]["place"][0]
    play.receive({"type": "move", "agent": 0, "to": [1.5, 6.5]})
    assert advance(play, 40)[-1, 0] > 2.3 and start == 6.5


def test_a_skill_is_followed(play: Simulation) -> None:
    z = play.stage.description["skill"]["axes"][0]
    first, second = (prompt(play, {"kind": "skill", "z": one}) for one in (z, [-value for value in z]))
    assert first["kind"] == "skill" and first["asked"] is None
    np.testing.assert_allclose(first["heat"], -np.array(second["heat"]), atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(first["z"]), 1, atol=1e-3)


def test_a_path_is_followed(play: Simulation) -> None:
    play.receive({"type": "move", "agent": 0, "to": HERE})
    trajectory = [[x, 5.5] for x in np.arange(1.5, 2.8, 0.3).tolist()] + [[2.5, y] for y in (5.1, 4.8, 4.5)]
    assert prompt(play, {"kind": "follow", "trajectory": trajectory})["kind"] == "follow"
    path = advance(play, 30)
    assert min(away(place, trajectory[-1]) for place in path) < 1


def test_preferences_change_the_prompt(play: Simulation) -> None:
    """Whoever always likes the piece that ends further to the right wants to go right."""
    play.receive({"type": "move", "agent": 0, "to": HERE})
    pairs = []
    for seed in range(12):
        (said,) = play.receive({"type": "segments", "id": 3, "seed": seed})
        (again,) = play.receive({"type": "segments", "id": 3, "seed": seed})
        assert said == again and said["id"] == 3
        pieces = sorted(said["states"], key=lambda rows: -rows[-1][0])
        assert all(len(rows) == 26 for rows in pieces)
        pairs.append(pieces)
    heat = np.array(prompt(play, {"kind": "prefer", "pairs": pairs})["heat"])
    x = np.array(play.stage.description["field"]["places"])[:, 0]
    assert np.corrcoef(heat, x)[0, 1] > 0.3


def test_prompts_of_prompts(play: Simulation) -> None:
    both = {"kind": "sum", "parts": [[1.0, GOAL], [0.1, {"kind": "reward", "reward": "right"}]]}
    assert prompt(play, both)["kind"] == "sum"
    advance(play, 2)
    then = {"kind": "then", "first": {"kind": "goal", "goal": [6.5, 6.0], "plan": "auto"}, "second": GOAL}
    assert prompt(play, then)["kind"] == "then"
    assert min(away(place, [1.5, 1.5]) for place in advance(play, 80)) < 1


def test_agents_come_and_go(play: Simulation) -> None:
    play.receive({"type": "agents", "count": 20})
    frame = play.frame()
    assert len(frame["agents"]) == 20 and len({tuple(agent["place"]) for agent in frame["agents"]}) > 10
    play.receive({"type": "agents", "count": 4, "slots": [0, 0, 1, 1]})
    places = [agent["place"] for agent in play.frame()["agents"]]
    assert places[:2] == places[2:] and places[0] != places[1], "two slots begin alike"


def test_drag_and_restart(play: Simulation) -> None:
    prompt(play, GOAL)
    advance(play, 5)
    play.receive({"type": "move", "agent": 0, "to": HERE})
    assert play.frame()["agents"][0]["place"] == HERE
    advance(play, 3)
    play.receive({"type": "control", "restart": True})
    frame = play.frame()
    assert frame["agents"][0]["place"] == FAR and frame["step"] == 0
    play.receive({"type": "control", "step": 3, "run": False, "speed": 40})
    frame = play.frame()
    assert (frame["step"], frame["run"], frame["speed"]) == (3, False, 40.0)


def test_a_push_moves_who_rests_and_passes(play: Simulation) -> None:
    prompt(play, {"kind": "goal", "goal": FAR, "plan": "auto"})
    advance(play, 1)
    assert play.frame()["agents"][0]["reached"] and not play.is_moving
    play.receive({"type": "push", "seed": 3})
    pushed = advance(play, 5)
    assert away(pushed[-1], FAR) > 0.5
    advance(play, 30)
    assert play.frame()["agents"][0]["reached"], "and goes back"


def test_a_push_moves_who_was_asked_nothing(stage: scene.Stage) -> None:
    play = begun(stage, FAR)
    play.receive({"type": "push", "seed": 3})
    assert away(advance(play, 5)[-1], FAR) > 0.5 and not play.is_moving


def test_two_prompts_side_by_side(stage: scene.Stage) -> None:
    play = begun(stage, FAR, FAR, slots=[0, 1])
    prompt(play, GOAL)
    prompt(play, {"kind": "goal", "goal": HERE, "plan": "auto"}, slot=1)
    advance(play, 60)
    frame = play.frame()
    assert [agent["reached"] for agent in frame["agents"]] == [True, True]
    assert away(frame["agents"][0]["place"], [1.5, 1.5]) < 1 and away(frame["agents"][1]["place"], HERE) < 1


def test_two_policies_side_by_side(stage: scene.Stage, tiny: hilp.FoundationPolicy, tiny_run: Path) -> None:
    """Each acts as it does alone; rows are those of the first."""
    rival = scene.stage_of(tiny, str(tiny_run))
    both = scene.stage_of(stage.policy, stage.run, rival=rival)
    assert both.description["rival"] == {"run": str(tiny_run), "method": "hilp"}
    play = begun(both, FAR, FAR, slots=[0, 1])
    assert prompt(play, GOAL, slot=1)["goal"] == GOAL["goal"]
    row = {"kind": "goal", "goal": "row:5", "plan": 0}
    assert prompt(play, row, slot=0)["goal"] == prompt(play, row, slot=1)["goal"]
    alone = begun(rival, FAR)
    prompt(alone, prompt(play, row, slot=1)["spec"])
    own = advance(alone, 5)
    advance(play, 5)
    frame = play.frame()["agents"]
    np.testing.assert_allclose(frame[1]["place"], own[-1], atol=1e-4)
    assert frame[0]["place"] != frame[1]["place"]


SOME = ("hilp-directed", "fb", "gc-bc", "opal", "iql")


@pytest.mark.parametrize("name", [n if n in SOME else pytest.param(n, marks=pytest.mark.slow) for n in methods.MODULES])
def test_every_method_plays(name: str, tiny_data: hilp.Dataset) -> None:
    """What the modes of a policy say is taken; what it has no rule for is told in one line."""
    config, spec, preparation = config_of(name), Spec(2, 2), Preparation.of(tiny_data, True)
    method = methods.of(config)
    core = method.export(config, method.init(config, spec, jax.random.key(7)))
    bank, about = Bank.draw(tiny_data, 300, 0), Provenance(task="maze-medium")
    stage = scene.stage_of(hilp.FoundationPolicy(config, spec, core, preparation, bank, about), "run")
    play, modes = begun(stage, FAR), stage.modes
    asked = {
        "goal": {"kind": "goal", "goal": NEARBY},
        "reward": {"kind": "reward", "reward": "right"},
        "skill": {"kind": "skill"},
        "follow": {"kind": "follow", "trajectory": [FAR, NEARBY]},
    }
    for mode, one in asked.items():
        with contextlib.nullcontext() if mode in modes else contextlib.suppress(HilpError):
            prompt(play, one)
            advance(play, 2)
    if not modes:
        prompt(play, stage.description["alone"])
        assert away(advance(play, 3)[-1], FAR) > 0, "it acts by itself"


@pytest.fixture(scope="module")
def other_task_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a Gymnasium environment."""
    folder = tmp_path_factory.mktemp("reacher") / "run"
    data = hilp.collect("gym:Reacher-v5", "random", 500)
    config = hilp.HILP(dim=4, hidden=(8,), actor_hidden=(8,), batch=16)
    hilp.pretrain(config, data, steps=5, bank=200, out=folder, quiet=True)
    return folder


def test_a_task_of_ones_own_is_filmed(other_task_run: Path) -> None:
    """An environment that draws: its pictures are streamed, and goals are rows of the data."""
    stage = scene.stage_of(hilp.FoundationPolicy.load(other_task_run), "run")
    said = stage.description
    assert "goal" in said["modes"] and "place" not in said["modes"] and len(said["states"]) == scene.STATES
    if not stage.is_filmed:
        stage.close()
        pytest.skip("there is nothing to render with: install EGL (Debian: libegl1)")
    play = begun(stage)
    first = play.frame()["pictures"]
    assert first[0].startswith("data:image/jpeg;base64,")
    assert prompt(play, {"kind": "goal", "goal": "row:5"})["heat"]
    advance(play, 3)
    assert play.frame()["pictures"] != first and not play.frame()["agents"][0]["reached"]
    stage.close()


# ---- what no page would send -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ([], "JSON object"),
        ({"type": 3}, "JSON object"),
        ({"type": "helo"}, "did you mean 'hello'"),
        ({"type": "hello", "version": 2}, "speaks version 1"),
        ({"type": "prompt"}, "a prompt is a dict"),
        ({"type": "prompt", "spec": GOAL, "slot": 2}, "0 or 1"),
        ({"type": "prompt", "spec": GOAL, "slot": True}, "0 or 1"),
        ({"type": "prompt", "spec": GOAL, "slot": [0]}, "0 or 1"),
        ({"type": "prompt", "spec": {"kind": "goal", "goal": [1.5]}}, "2 numbers"),
        ({"type": "prompt", "spec": {"kind": "goal", "goal": ["a", "b"]}}, "goal"),
        ({"type": "prompt", "spec": {"kind": "goal", "goal": [0.5, 0.5]}}, "wall"),
        ({"type": "prompt", "spec": {"kind": "goal", "goal": [99, 99]}}, "goal"),
        ({"type": "prompt", "spec": {"kind": "goal", "goal": "row:99999999"}}, "no row"),
        ({"type": "prompt", "spec": {"kind": "goal", "goal": {"x": 1}}}, "observation"),
        ({"type": "prompt", "spec": {"kind": "reward", "reward": "z"}}, "z"),
        ({"type": "prompt", "spec": {"kind": "skill", "z": [1, 2]}}, "8 numbers"),
        ({"type": "prompt", "spec": {"kind": "skill", "z": [0] * 8}}, "skill"),
        ({"type": "prompt", "spec": {"kind": "follow", "trajectory": 3}}, "2 numbers"),
        ({"type": "prompt", "spec": {"kind": "prefer", "pairs": [[1, 2]]}}, "2 numbers"),
        ({"type": "agents", "count": 21}, "1 to 20"),
        ({"type": "agents", "count": 10**9}, "1 to 20"),
        ({"type": "agents", "count": -1}, "count"),
        ({"type": "agents", "starts": []}, "1 to 20"),
        ({"type": "agents", "starts": [["a"]]}, "list of numbers"),
        ({"type": "agents", "count": 2, "slots": [0]}, "one for each"),
        ({"type": "agents", "count": 1, "slots": [[]]}, "one for each"),
        ({"type": "move", "agent": 1, "to": FAR}, "no agent 1"),
        ({"type": "move", "agent": 0, "to": [0.5, 0.5]}, "wall"),
        ({"type": "move", "agent": 0, "to": "there"}, "list of numbers"),
        ({"type": "move", "agent": 0}, "list of numbers"),
        ({"type": "push", "seed": "x"}, "seed"),
        ({"type": "control", "speed": 1e9}, "speed"),
        ({"type": "control", "speed": "fast"}, "speed"),
        ({"type": "control", "speed": 1e-300}, "0.1 to 120"),
        ({"type": "control", "speed": 0}, "0.1 to 120"),
        ({"type": "control", "step": -4}, "step"),
        ({"type": "segments", "seed": -1}, "seed"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(stage: scene.Stage, message: Any, told: str) -> None:
    play = begun(stage, FAR)
    with pytest.raises(HilpError, match=told) as error:
        play.receive(message)
    assert "\n" not in str(error.value)
    assert play.frame()["agents"][0]["place"] == FAR


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "saved", "path": "/etc/passwd"},
        {"kind": "goal", "goal": "/etc/passwd"},
        {"kind": "goal", "goal": "photo.png"},
        {"kind": "goal", "goal": "a=b.png"},
        {"kind": "goal", "goal": "x=1,y=2/../../a.png"},
        {"kind": "follow", "trajectory": "/etc/passwd"},
        {"kind": "sum", "parts": [[1.0, {"kind": "saved", "path": "/etc/passwd"}]]},
        {"kind": "then", "first": GOAL, "second": {"kind": "goal", "goal": "../secret.png"}},
        {"kind": "prefer", "pairs": "/etc/passwd"},
        {"kind": "reward", "reward": "__import__('os').system('touch /tmp/hilp-was-here')"},
        {"kind": "reward", "reward": "x.__class__"},
        {"kind": "reward", "reward": "9**9**9**9"},
    ],
)
def test_a_page_opens_no_file_and_runs_no_code(stage: scene.Stage, spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    play = begun(stage, FAR)

    def opened(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"opened {args}")

    for name in ("open", "exec", "eval", "__import__") if spec["kind"] == "reward" else ("open",):
        monkeypatch.setattr(f"builtins.{name}", opened)
    try:
        with pytest.raises(HilpError):
            prompt(play, spec)
    finally:
        monkeypatch.undo()
    assert not Path("/tmp/hilp-was-here").exists()


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, width=32)
    | st.text(max_size=8)
)
TREES = st.recursive(
    LEAVES, lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=6), part, max_size=3)
)
KINDS = ["goal", "reward", "skill", "follow", "prefer", "sum", "then", "prior", "saved"]
FIELDS = [
    *(
        "goal",
        "plan",
        "best",
        "radius",
        "goal_dims",
        "smooth",
        "reward",
        "rule",
        "samples",
        "z",
        "trajectory",
        "window",
    ),
    *("pairs", "parts", "first", "second", "until", "k", "seed", "discount", "intercept"),
]
SPECS = st.builds(
    lambda kind, fields: {"kind": kind, **fields},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(FIELDS), TREES, max_size=3),
)
PARTS = ["spec", "id", "slot", "starts", "count", "slots", "agent", "to", "run", "speed", "step", "seed", "version"]
MESSAGES = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(["hello", "prompt", "agents", "move", "push", "control", "segments", "x"]),
    st.dictionaries(st.sampled_from(PARTS), SPECS | TREES, max_size=4),
)


@settings(max_examples=150, deadline=None)
@given(message=MESSAGES | TREES)
def test_any_message_is_taken_or_refused(stage: scene.Stage, message: Any) -> None:
    if isinstance(message, dict) and isinstance(message.get("step"), int):
        message["step"] = min(message["step"], 3)
    play = begun(stage, FAR)
    with contextlib.suppress(HilpError):
        for answer in play.receive(message):
            json.dumps(answer, allow_nan=False)
    json.dumps(play.frame(), allow_nan=False)
    play.advance()


# ---- the server ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(stage: scene.Stage) -> Iterator[str]:
    """That of a server of this module."""
    with serving.served(stage) as found:
        yield found


def opened(address: str, **options: Any) -> ClientConnection:
    url = urlsplit(address)
    return connect(f"ws://{url.netloc}/socket?{url.query}", compression=None, **options)


def say(window: ClientConnection, **message: Any) -> None:
    window.send(json.dumps(message))


def heard(window: ClientConnection, kind: str, seconds: float = 30) -> Message:
    """The next message of a type."""
    end = time.monotonic() + seconds
    while True:
        message: Message = json.loads(window.recv(timeout=end - time.monotonic()))
        if message["type"] == kind:
            return message


def asked(
    address: str, path: str | None = None, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, str, Any]:
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.netloc, timeout=20)
    try:
        connection.request(method, path if path is not None else f"{url.path}?{url.query}", body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def lives(address: str) -> None:
    """A new window reaches a goal."""
    with opened(address) as window:
        say(window, type="hello", version=1)
        assert heard(window, "scene")["task"] == "maze-medium"
        say(window, type="agents", starts=[[1.5, 2.5]])
        say(window, type="control", speed=100)
        say(window, type="prompt", id=1, spec=GOAL)
        assert heard(window, "prompted")["id"] == 1
        end = time.monotonic() + 20
        while not heard(window, "frame")["agents"][0]["reached"]:
            assert time.monotonic() < end


def test_the_page_is_one_guarded_document(address: str) -> None:
    status, text, headers = asked(address)
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert not re.search(r"(src|href)=[\"'](?!data:)", text), "nothing is fetched"
    policy = headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([\w-]+)'", policy)
    assert nonce and text.count(f'nonce="{nonce[1]}"') == text.count("<script") + text.count("<style")
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
    token = parse_qs(urlsplit(address).query)["token"][0]
    assert len(token) >= 32 and token not in text


def test_who_is_refused(address: str) -> None:
    url = urlsplit(address)
    assert url.hostname == "127.0.0.1"
    path = f"/?{url.query}"
    for name in ("evil.example", f"evil.example:{url.port}", "localhost:x", f"127.0.0.1.evil.example:{url.port}", ""):
        assert asked(address, Host=name)[0] == 421, "another name bound to this address"
    for name in (f"localhost:{url.port}", f"LOCALHOST:{url.port}", "localhost:9000", "127.0.0.1", "[::1]:9000"):
        assert asked(address, Host=name)[0] == 200, "as it is called at the other end of a tunnel"
        assert asked(address, Host=name, Origin=f"http://{name}")[0] == 200
        assert asked(address, Host=name, Origin="http://localhost:1")[0] == 403, "a page of another server"
    for origin in (
        "http://evil.example",
        "null",
        f"https://127.0.0.1:{url.port}",
        f"http://127.0.0.1:{int(url.port or 0) + 1}",
    ):
        assert asked(address, Origin=origin)[0] == 403
        with pytest.raises(InvalidStatus) as refused:
            opened(address, origin=origin)
        assert refused.value.response.status_code == 403
    for query in ("", "?token=", "?token=guess", "?token=" + "x" * 5000, f"?{url.query}x", "?token=%ff%fe"):
        assert asked(address, f"/{query}")[0] == 403
        with pytest.raises(InvalidStatus):
            connect(f"ws://{url.netloc}/socket{query}")
    for odd in ("/../../etc/passwd", "/page.js", "//etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/socket/../x", "/..\\x"):
        status, text, _ = asked(address, f"{odd}?{url.query}")
        assert status in (400, 404) and "root:" not in text
    assert asked(address, path)[0] == 200
    lives(address)


@pytest.mark.parametrize(
    ("host", "own", "others"),
    [
        ("0.0.0.0", ["localhost:9000", "192.0.2.7:9000", "192.0.2.7", "[2001:db8::1]:80"], ["evil.example:5", "x"]),
        ("192.0.2.7", ["192.0.2.7:5", "localhost:9000"], ["192.0.2.7:6", "192.0.2.8:5", "localhost.evil.example"]),
        ("::1", ["[::1]:5", "[::1]:9000", "localhost"], ["[::2]:5"]),
    ],
)
def test_names_of_a_server_for_others(stage: scene.Stage, host: str, own: list[str], others: list[str]) -> None:
    play = server.Play(stage, host, 5)
    assert play._is_own(f"{play.name}:5".lower())
    assert all(play._is_own(name) for name in own) and not any(play._is_own(name) for name in others)


def test_another_speed_counts_at_once(address: str) -> None:
    """Also after a speed at which the next step would be long away, or none that can be waited for."""
    with opened(address) as window:
        say(window, type="agents", starts=[FAR])
        say(window, type="prompt", id=1, spec=GOAL)
        heard(window, "prompted")
        say(window, type="control", speed=1e-300)
        assert "0.1 to 120" in heard(window, "error")["message"]
        say(window, type="control", speed=0.1)
        time.sleep(0.3)  # in which a step is made, and the next one is 10 seconds away
        say(window, type="control", speed=15)
        say(window, type="hello", version=1)
        heard(window, "scene", 5)
        first, begin = heard(window, "frame", 5)["step"], time.monotonic()
        while heard(window, "frame", 5)["step"] < first + 5:
            assert time.monotonic() < begin + 5


def test_large_and_broken_requests(address: str) -> None:
    url = urlsplit(address)
    large = b"x" * 10_000_000
    try:
        status = asked(address, method="POST", body=large)[0]
    except (OSError, http.client.HTTPException):
        status = 400  # the connection was cut
    assert status >= 400
    with opened(address, max_size=None) as window:
        with contextlib.suppress(ConnectionClosed):  # while it is still being sent
            window.send(large.decode())
        with pytest.raises(ConnectionClosed):
            window.recv(timeout=20)
        assert window.close_code in (1006, 1009)
    for raw in (b"\x00" * 2000, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET " + b"/" * 100_000, b"\r\n\r\n"):
        with socket.create_connection((url.hostname, url.port or 0), timeout=20) as plain:
            plain.sendall(raw)
            plain.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                assert b"200 OK" not in plain.recv(4096)
    lives(address)


def test_broken_messages_are_answered(address: str) -> None:
    with opened(address) as window:
        for text in ("", "{", "[]", "null", '{"type":"hello","version":NaN}', '{"a":' * 5000,
                     '{"type":"prompt","id":4,"spec":{"kind":"goal","goal":[1e999,0]}}'):  # fmt: skip
            window.send(text)
            told = heard(window, "error")["message"]
            assert told and "\n" not in told and "Traceback" not in told
        window.send(b"\x00\xff")
        assert heard(window, "error")
        say(window, type="prompt", id="mine", spec={"kind": "x"})
        assert heard(window, "error")["id"] == "mine"
        say(window, type="hello", version=1)
        assert heard(window, "scene") and heard(window, "frame")


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40) | TREES.map(json.dumps) | st.binary(max_size=40))
def test_any_text_is_answered(address: str, text: str | bytes) -> None:
    with opened(address) as window:
        window.send(text)
        assert json.loads(window.recv(timeout=20))["type"] in ("error", "scene", "frame")


def test_two_hundred_windows(address: str) -> None:
    with ExitStack() as stack:
        windows = [stack.enter_context(opened(address, close_timeout=1)) for _ in range(200)]
        for window in windows:
            say(window, type="hello", version=1)
        for window in windows:
            assert heard(window, "scene")
        lives(address)
        for _ in range(server.MOST_WINDOWS - 200):
            stack.enter_context(opened(address, close_timeout=1))
        with pytest.raises(InvalidStatus) as refused:
            opened(address)
        assert refused.value.response.status_code == 503
    end = time.monotonic() + 20
    while sum(thread.name == "hilp-play" for thread in threading.enumerate()):
        assert time.monotonic() < end, "a window's simulation ends with it"
        time.sleep(0.05)
    lives(address)


def test_a_client_that_does_not_listen_holds_nobody(address: str) -> None:
    """Frames that it does not take replace each other, and what it says is no longer read."""
    url = urlsplit(address)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect((url.hostname, url.port))
    with slow:
        slow.sendall(
            f"GET /socket?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert slow.recv(12) == b"HTTP/1.1 101"
        slow.sendall(framed({"type": "hello", "version": 1}) + framed({"type": "agents", "count": 20}))
        slow.sendall(framed({"type": "control", "speed": 120}))
        slow.sendall(framed({"type": "prompt", "id": 1, "spec": {"kind": "reward", "reward": "right"}}))
        slow.settimeout(1)
        with pytest.raises(TimeoutError):  # long before these 64 MB are through
            slow.sendall(8_000 * framed({"type": "hello", "version": 1, "filler": "x" * 8_000}))
        lives(address)


def test_a_window_that_is_behind_ends_with_its_connection(stage: scene.Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.Window, "_run", lambda window: None)  # it never answers

    async def left() -> int:
        play = server.Play(stage)
        listening = await play.start()
        async with connect_here(play.address.replace("http", "ws", 1).replace("/?", "/socket?")) as window:
            for _ in range(server.WAITING + 4):
                await window.send("{}")
        end = time.monotonic() + 3
        while play.windows and time.monotonic() < end:
            await asyncio.sleep(0.02)
        listening.close()
        return play.windows

    assert asyncio.run(left()) == 0


def framed(message: Message) -> bytes:
    """A text frame of a client, with a mask of zeros."""
    text = json.dumps(message).encode()
    size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
    return b"\x81" + size + bytes(4) + text


# ---- the command -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served_by_command(*words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    command = [str(Path(sys.executable).with_name("hilp")), "play", *map(str, words), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield process, (process.stdout.readline().split() or [process.stderr.read()])[-1]
        finally:
            process.kill()


def test_the_command_serves_until_it_is_stopped(able_run: Path, tiny_run: Path) -> None:
    with served_by_command(able_run, tiny_run) as (process, address):
        assert asked(address)[0] == 200
        with opened(address) as window:
            say(window, type="hello", version=1)
            assert heard(window, "scene")["rival"]["run"] == str(tiny_run)
            process.send_signal(signal.SIGINT)
            err = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in err


def test_mistakes_of_the_command(refused: Any, able_run: Path, tmp_path: Path, other_task_run: Path) -> None:
    assert "no policy" in refused("play", tmp_path / "nowhere")
    assert "maze-medium" in refused("play", able_run, other_task_run, "--no-open", "--host", "192.0.2.1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in refused("play", able_run, "--port", port, "--no-open")
    assert "--port must be at most 65,535, not 70000" in refused("play", able_run, "--port", 70_000, "--no-open")


def test_without_a_run_the_quickstart_is_made_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder, made = tmp_path / "runs" / "quickstart", []
    monkeypatch.setattr("hilp.commands.play.quickstart", lambda flags: made.append((flags.out, flags.overwrite)))
    assert trained_quickstart() == "runs/quickstart"
    folder.mkdir(parents=True)
    assert trained_quickstart() == "runs/quickstart"
    for command in ("hilp quickstart --seed 3", "hilp play"):  # which were interrupted
        (folder / "run.json").write_text(json.dumps({"command": command}))
        assert trained_quickstart() == "runs/quickstart"
    assert made == [("runs/quickstart", False), *[("runs/quickstart", True)] * 3]
    for command in ("hilp pretrain --out runs/quickstart", None):
        (folder / "run.json").write_text(json.dumps({"command": command}))
        with pytest.raises(HilpError, match="hilp play RUN"):
            trained_quickstart()
    (folder / "results.json").write_text("{}")
    assert trained_quickstart() == "runs/quickstart" and len(made) == 4


def test_a_report_advises_the_playground_where_there_is_one(policy: hilp.FoundationPolicy) -> None:
    assert "hilp play" in report.build(policy, [], [], None)
    nameless = copy.copy(policy)
    nameless.provenance = replace(policy.provenance, task=None)
    with pytest.raises(HilpError, match="--task"):
        scene.stage_of(nameless, "run")
    assert "hilp play" not in report.build(nameless, [], [], None)


# ---- minutes ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_thirty_frames_a_second_of_twenty_planning_agents(able_run: Path) -> None:
    with served_by_command(able_run) as (_, address), opened(address) as window:
        say(window, type="hello", version=1)
        say(window, type="agents", count=20)
        say(window, type="control", speed=60)
        say(window, type="prompt", id=1, spec={"kind": "goal", "goal": FAR, "plan": "auto"})
        heard(window, "prompted")
        begin, frames = time.monotonic(), 0
        while time.monotonic() < begin + 20:
            frame = heard(window, "frame")
            frames += 1
            if all(agent["reached"] for agent in frame["agents"]):
                say(window, type="control", restart=True)
    assert frames / 20 >= 30


@pytest.mark.slow
def test_memory_is_flat_over_ten_minutes(stage: scene.Stage, address: str) -> None:
    def resident() -> float:
        text = Path("/proc/self/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    rng, begin, early = np.random.default_rng(0), time.monotonic(), 0.0
    while (passed := time.monotonic() - begin) < 600:
        with opened(address) as window:
            say(window, type="hello", version=1)
            say(window, type="control", speed=60)
            for number in range(20):
                x, y = rng.choice(stage.places).round(2).tolist()
                spec = GOAL if number % 2 else {"kind": "reward", "reward": f"max((x-{x})**2+(y-{y})**2<0.5,0)"}
                say(window, type="agents", count=int(rng.integers(1, 21)))
                say(window, type="prompt", id=number, spec=spec)
                heard(window, "prompted")
                for _ in range(15):
                    heard(window, "frame", 5) if not number % 2 else None
        if passed > 120 and not early:
            early = resident()
    assert resident() - early < 40
