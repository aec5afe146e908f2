"""`hilp play --export`: one page that holds a policy and its maze, held against Python in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.errors import HilpError
from hilp.evaluation.evaluate import make_prompt
from hilp.play import export, scene
from hilp.play import page as pages
from hilp.prompts import formulas, specs
from hilp.tasks import maze
from test_export import untrained

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NODE = shutil.which("node")
STATES = 1_000
TOLERANCE = 1e-5
FLIPPED = 0.01  # share of states where two states of the bank tie to within rounding, and either is taken
GOAL = [6.5, 6.5]
RUN = "runs/a <!-- <script> maze"  # of a folder as anybody may name it
PAINT = "max((x-1.5)**2+(y-6.5)**2<0.5,(x-2)**2+(y-6.5)**2<0.5)-max((x-6.5)**2+(y-1.5)**2<0.36,0)"
ACT = """([spec, states]) => {
  const { simulation } = hilpLocal.backend, { policy } = simulation, seen = Float32Array.from(states);
  const resolved = spec.kind === "goal" ? { ...spec, goal: simulation.goal(spec.goal) } : spec;
  const prompt = policy.prompt(resolved, spec.kind === "reward" ? simulation.reward(spec.reward) : null);
  const { kind, r2, warnings } = prompt;
  return { kind, r2, warnings, actions: Array.from(policy.act(seen, prompt.skills(seen))) };
}"""


def stage_of(policy: hilp.FoundationPolicy, task: str = "maze-medium") -> scene.Stage:
    return scene.Stage(policy, maze.make(task), RUN)


@pytest.fixture(scope="module")
def stage(tiny: hilp.FoundationPolicy) -> scene.Stage:
    return stage_of(tiny)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("there is no browser: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


def wait(page: Any, expression: str, seconds: float = 60) -> None:
    """Until a page says so. By asking again and again: the page forbids what playwright's own waiting does."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, (expression, page.text_content("#status"))
        time.sleep(0.05)


@pytest.fixture(scope="module")
def opener(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Writes the page of a stage and opens it from its file; at the end, no page may have complained."""
    said: list[str] = []

    def open_page(stage: scene.Stage, width: int = 1280, height: int = 900) -> Any:
        path = tmp_path_factory.mktemp("page") / "play.html"
        export.write(stage, path)
        page = browser.new_page(viewport={"width": width, "height": height})
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda one: said.append(one.url) if not one.url.startswith(("file:", "data:")) else None)
        page.goto(path.as_uri(), timeout=120_000)  # of a machine with other work
        wait(page, "window.hilpPlay && hilpPlay.state.frame !== null")
        return page

    yield open_page
    assert said == []


@pytest.fixture(scope="module")
def page(opener: Callable[..., Any], stage: scene.Stage) -> Any:
    return opener(stage)


@pytest.fixture
def opened(opener: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Opens pages of one test: each that stays open goes on acting and drawing."""
    shown: list[Any] = []

    def open_page(*given: Any) -> Any:
        shown.append(opener(*given))
        return shown[-1]

    yield open_page
    for page in shown:
        page.close()


# ---- the same numbers ------------------------------------------------------------------------------------------------

SPECS: dict[str, dict[str, Any]] = {
    "goal": {"kind": "goal", "goal": GOAL, "plan": 0},
    "midpoints": {"kind": "goal", "goal": GOAL, "plan": 3},
    "auto": {"kind": "goal", "goal": GOAL, "plan": "auto"},
    "graph": {"kind": "goal", "goal": GOAL, "plan": "graph"},
    "until near": {"kind": "goal", "goal": GOAL, "plan": "midpoints", "best": 20},
    "row": {"kind": "goal", "goal": "row:120", "plan": 1},
    "skill": {"kind": "skill", "z": [0.1, -0.9, 0.4, 0.2, 0.3, -0.2, 0.1, 0.5]},
    "follow": {"kind": "follow", "trajectory": [[1.5, 1.5], [1.5, 2.5], [2.5, 2.5]]},
    "named": {"kind": "reward", "reward": "right", "rule": "skill"},
    "right": {"kind": "reward", "reward": "right"},
    "well by both": {"kind": "reward", "reward": "up"},
    "well by neither": {"kind": "reward", "reward": "centre"},
    "hardly": {"kind": "reward", "reward": "sin(20*x) - before(sin(20*x))"},
    "by formula": {"kind": "reward", "reward": "x - before(x) + 0.5*action[1]"},
    "with an intercept": {"kind": "reward", "reward": "right", "intercept": True},
    "named on the graph": {"kind": "reward", "reward": "centre", "rule": "graph"},
    "painted": {"kind": "reward", "reward": PAINT},
    "painted on the graph": {"kind": "reward", "reward": PAINT, "rule": "graph"},
    "formula": {"kind": "reward", "reward": "x - before(x) - 0.1*norm(action)", "rule": "skill", "intercept": True},
    "highest": {"kind": "reward", "reward": "y - abs(x - 3)", "rule": "goal"},
    "prefer": {"kind": "prefer", "pairs": [[[[1.5, 1.5], [1.9, 1.5]], [[1.5, 1.5], [1.1, 1.5]]]]},
}


def swayed(policy: hilp.FoundationPolicy, prompt: Any, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """How far the policy's own actions move [n] when states do by less than they can be told apart."""
    rng, most = np.random.default_rng(0), np.zeros(len(states))
    for _ in range(8):
        nudged = (states + rng.uniform(-2e-6, 2e-6, states.shape)).astype(np.float32)
        prompt.reset()
        most = np.maximum(most, np.abs(policy.act(nudged, prompt) - actions).max(axis=1))
    return most


@pytest.mark.parametrize("name", SPECS)
def test_acts_as_python_does(name: str, page: Any, stage: scene.Stage) -> None:
    """To 1e-5; of few states in a thousand a subgoal hangs on a tie, and Python's own action does as well."""
    spec, policy = SPECS[name], stage.policy
    states = stage.world.starts(np.random.default_rng(3), STATES).astype(np.float32)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        prompt = make_prompt(policy, specs.from_json(spec), stage.world)
        actions = policy.act(states, prompt)
    found = page.evaluate(ACT, [spec, states.ravel().tolist()])
    assert found["kind"] == prompt.kind
    if spec["kind"] == "reward":
        assert [text[:30] for text in found["warnings"]] == [str(one.message)[:30] for one in said]
    if getattr(prompt, "r2", None) is not None:
        assert found["r2"] == pytest.approx(prompt.r2, abs=1e-5)
    apart = np.abs(np.reshape(found["actions"], actions.shape) - actions).max(axis=1)
    off = apart > TOLERANCE
    plans = spec.get("plan", 0) != 0 or prompt.kind == "graph"
    assert off.mean() <= (FLIPPED if plans else 0.002), apart[off]
    if off.any() and prompt.kind == "goal":
        assert (apart[off] <= 3 * swayed(policy, prompt, states[off], actions[off]) + TOLERANCE).all()
    assert np.median(apart) < 2e-6


def test_a_reward_is_planned_on_the_graph_where_that_expresses_it(stage: scene.Stage) -> None:
    """So the cases above are of all kinds: both fit well, both fit badly, hardly anything fits."""
    fits: dict[str, list[tuple[str, bool]]] = {}
    for name in ("well by both", "well by neither", "hardly"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rules = (specs.from_json({**SPECS[name], "rule": rule}) for rule in ("skill", "graph", "auto"))
            found: list[Any] = [make_prompt(stage.policy, one, stage.world) for one in rules]
        fits[name] = [(prompt.kind, prompt.r2 >= 0.7) for prompt in found]
    assert fits == {
        "well by both": [("skill", True), ("graph", True), ("graph", True)],
        "well by neither": [("skill", False), ("graph", False), ("graph", False)],
        "hardly": [("skill", False), ("graph", False), ("skill", False)],
    }


@pytest.mark.parametrize("plan", [0, 2, "auto", "graph"])
def test_acts_as_python_does_near_a_goal(plan: int | str, page: Any, stage: scene.Stage) -> None:
    """Also where the data stays: the goal is a state near which it did."""
    policy, rng = stage.policy, np.random.default_rng(2)
    assert policy.graph is not None and len(policy.graph.rests)
    goal = policy.bank.observations[policy.graph.rests[0]]
    around = (goal + rng.uniform(-0.7, 0.7, (600, 2))).astype(np.float32)
    states = np.concatenate([goal[None], around[stage.world.valid(around)][:200]])
    actions = policy.act(states, policy.goal(goal, plan=plan))
    spec = {"kind": "goal", "goal": goal.tolist(), "plan": plan}
    found = np.reshape(page.evaluate(ACT, [spec, states.ravel().tolist()])["actions"], actions.shape)
    assert (np.abs(found - actions).max(axis=1) > TOLERANCE).mean() <= FLIPPED


@pytest.mark.parametrize("name", ["fb", "gc-bc", "hilp-directed", "sf-hilp", "sf-lap"])
def test_any_method_acts_as_python_does(name: str, opened: Callable[..., Any], tiny_data: hilp.Dataset) -> None:
    """By its programs alone: methods without distances, with directed ones, with a backward map, without goals."""
    policy = untrained(name, tiny_data)
    stage = stage_of(policy)
    page = opened(stage)
    count = 20 if policy.has_rule("distance") else 100  # distances by a program are slow
    states = stage.world.starts(np.random.default_rng(3), count).astype(np.float32)
    tried = 0
    for spec in (SPECS["goal"], SPECS["midpoints"], SPECS["auto"], SPECS["named"], SPECS["highest"], SPECS["formula"]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                actions = policy.act(states, make_prompt(policy, specs.from_json(spec), stage.world))
            except HilpError:
                continue
        found = page.evaluate(ACT, [spec, states.ravel().tolist()])
        apart = np.abs(np.reshape(found["actions"], actions.shape) - actions).max(axis=1)
        # Features of networks that learnt nothing are nearly of less dimensions: a fit makes more of their rounding.
        allowed = TOLERANCE * (10 if spec["kind"] == "reward" else 1)
        assert (apart > allowed * np.abs(actions).max()).mean() <= FLIPPED, (spec, apart.max())
        tried += 1
    assert tried >= 2


@pytest.mark.parametrize("name", ["maze-medium", "maze-oneway"])
def test_the_maze_steps_to_the_same_bits(name: str, page: Any) -> None:
    world, rng = maze.make(name), np.random.default_rng(1)
    places, actions = world.starts(rng, 5_000), rng.uniform(-1.4, 1.4, (5_000, 2))
    places[:500] = np.round(places[:500] / 0.2) * 0.2 + 0.1  # in contact with walls, where they are free
    places = np.where(world.valid(places)[:, None], places, world.starts(rng, 5_000))
    walk = """([rows, places, actions]) => { const maze = new hilpLocal.Maze(rows);
      const twice = (place, action) => maze.step(maze.step(place, action), action);
      return places.map((place, n) => [maze.isFree(place), ...twice(place, actions[n])]); }"""
    found = np.array(page.evaluate(walk, [world.map_text.split("\n"), places.tolist(), actions.tolist()]), np.float64)
    assert found[:, 0].all()
    assert (found[:, 1:] == world.step(world.step(places, actions), actions)).all()
    anywhere = rng.uniform(-1, max(world.walls.shape) + 1, (5_000, 2))
    free = page.evaluate("([r, p]) => p.map((one) => new hilpLocal.Maze(r).isFree(one))",
                         [world.map_text.split("\n"), anywhere.tolist()])  # fmt: skip
    assert free == world.valid(anywhere).tolist()


FORMULAS = (
    "x", "-x**2", "2**-1 + x", "x - before(x)", "1 - 2 - 3*x", "8 / 2 / 2 * y", "-7 % 3 + x % 2", "not x > 3 and y > 2",
    "1 < x < 3", "x if y > 3 else -x if y > 2 else 0", "norm(observation - before(observation))", "observation[-1]",
    "sum(observation[0:2:1]) + mean(action)", "min(x, y, 3) - max(observation)", "clip(x, 2, 3) * sign(action[0])",
    "dot(observation, action)", "(x - 1)**0.5 if x >= 1 else 0", "abs(sin(x)) + exp(-y) or 0", "1e-1*x + .5 - 2.",
    PAINT,
)  # fmt: skip


def test_formulas_mean_the_same(page: Any, stage: scene.Stage) -> None:
    bank = stage.policy.bank.subsample(200, 0)
    own = [column.tolist() for column in (bank.observations, bank.actions, bank.next_observations)]
    read = """([text, s, a, s2]) => { const reward = hilpFormulas.read(text, hilpNote.columns);
      return s.map((_, n) => reward({ s: s[n], a: a[n], s2: s2[n] })); }"""
    for text in FORMULAS:
        function: Any = formulas.reward(text, (), 2, 2, stage.world.columns)
        wanted = function(bank.observations, bank.actions, bank.next_observations, None)
        assert page.evaluate(read, [text, *own]) == pytest.approx(wanted.tolist(), rel=1e-12, abs=1e-12), text


@pytest.mark.parametrize(
    "text",
    ["", "x +", "(x", "x)", "x y", "3x", "q", "alert(1)", "x.y", "before(before(x))", "before(action)", "observation",
     "norm(x, y)", "x[2]", "action[0", "x; y", "'x'", "__proto__", "constructor(x)", "1e999", "x if y", "(" * 200 + "x",
     "x" * 2001, "observation[0.5]", "norm"],
)  # fmt: skip
def test_formulas_refuse_what_python_refuses(text: str, page: Any, stage: scene.Stage) -> None:
    def python() -> None:
        stage.policy.reward(None, formulas.reward(text, (), 2, 2, stage.world.columns))

    with pytest.raises(HilpError):
        python()
    said = page.evaluate(
        """(text) => { const message = { type: "prompt", id: 1, spec: { kind: "reward", reward: text } };
      try { hilpLocal.backend.simulation.receive(message); return null; } catch (error) { return error.message; } }""",
        text,
    )
    assert said and "\n" not in said and "undefined" not in said and "is not a function" not in said


def test_named_rewards_are_those_of_the_task(stage: scene.Stage) -> None:
    """A formula that was not the reward of its name would have been left out."""
    named = export.named_rewards(stage.policy, stage.world)
    assert set(named) == {"right", "left", "up", "down", "centre", "region", "avoid", "corridor", "target"}


# ---- the page --------------------------------------------------------------------------------------------------------


def click(page: Any, place: list[float]) -> None:
    x, y = page.evaluate(
        f"""(() => {{ const map = document.getElementById("map"), box = map.getBoundingClientRect();
        const [x, y] = hilpPlay.state.view.to({place});
        return [box.left + x * box.width / map.width, box.top + y * box.height / map.height]; }})()"""
    )
    page.mouse.click(x, y)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_click_sets_a_goal_and_the_agent_acts_as_python(
    width: int, opened: Callable[..., Any], stage: scene.Stage
) -> None:
    """From the first step to the goal, each action is Python's, and so is the place that it leads to."""
    page = opened(stage, width, 844)
    start, goal = [1.5, 1.5], [2.5, 1.5]
    page.evaluate(
        """(start) => { const { simulation } = hilpLocal.backend, { policy } = simulation, act = policy.act;
      window.acted = []; policy.act = (...given) => { const found = act.apply(policy, given);
        acted.push([Array.from(given[0]), Array.from(found)]); return found; };
      hilpPlay.send("agents", { starts: [start] }); hilpPlay.send("control", { speed: 60 }); }""",
        start,
    )
    click(page, goal)
    wait(page, "hilpPlay.state.frame.agents[0].reached")
    assert page.text_content("#reachable") == "reached"
    said = page.evaluate("hilpPlay.state.said[0]")
    assert np.linalg.norm(np.subtract(said["goal"], goal)) < 0.1
    assert len(said["heat"]) == len(page.evaluate("hilpPlay.state.scene.field.places"))
    seen, acted = (np.array(part, np.float32) for part in zip(*page.evaluate("acted"), strict=True))
    prompt = make_prompt(stage.policy, specs.from_json(said["spec"]), stage.world)
    agent = stage.world.episodes(np.random.default_rng(0), 1, start=start)
    for state, action in zip(seen, acted, strict=True):
        assert np.abs(agent.observations[0] - state).max() <= TOLERANCE * (1 + len(seen))
        assert np.abs(stage.policy.act(state[None], prompt)[0] - action).max() <= TOLERANCE
        agent.step(action[None])
    assert stage.world.near(agent.observations, np.float32(said["goal"]))[0]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_paint_skills_agents_and_errors(page: Any) -> None:
    page.evaluate("hilpPlay.send('agents', { starts: Array(20).fill([6.5, 1.5]) })")  # out of the brush's way
    wait(page, "hilpPlay.state.frame.agents.length === 20")
    page.click("#tab-reward")
    click(page, [1.5, 6.5])
    wait(page, "hilpPlay.state.said[0] && hilpPlay.state.said[0].asked")
    asked = page.evaluate("hilpPlay.state.said[0].asked")
    assert {0, 1} >= set(asked) and sum(asked) > 0
    page.fill("#formula", "x +")
    page.press("#formula", "Enter")
    wait(page, "document.querySelector('#status.error') !== null")
    assert re.match(r"reward formula 'x \+': .+", page.text_content("#status"))
    page.select_option("#reward-name", "up")
    wait(page, "hilpPlay.state.said[0].spec.reward === 'up'")
    before = page.evaluate("hilpPlay.state.frame.step")
    wait(page, f"hilpPlay.state.frame.step > {before} + 2")  # the agents go on
    page.click("#tab-skill")
    page.focus("#dial")
    page.keyboard.press("ArrowLeft")
    wait(page, "hilpPlay.state.said[0].z !== null")
    page.click("#tab-prefer")
    wait(page, "hilpPlay.state.pair")
    page.click("#better-0")
    wait(page, "hilpPlay.state.said[0].spec.kind === 'prefer'")
    page.click("#tab-goal")
    click(page, [0.2, 0.2])
    wait(page, "document.getElementById('status').textContent.includes('in a wall')")


def test_a_plan_is_drawn_and_a_link_keeps_the_prompt(opened: Callable[..., Any], stage: scene.Stage) -> None:
    page = opened(stage)
    page.evaluate("hilpPlay.send('agents', { starts: [[1.5, 1.5]] }); hilpPlay.send('control', { run: false })")
    click(page, [6.5, 6.5])
    wait(page, "hilpPlay.state.frame.ways[0]")
    way = page.evaluate("hilpPlay.state.frame.ways[0]")
    prompt = stage.policy.goal(np.float32(page.evaluate("hilpPlay.state.said[0].spec.goal")), plan="graph")
    info = prompt.path_info(np.float32([1.5, 1.5]))
    assert way["path"][1:-1] == np.round(stage.policy.bank.observations[info.path].astype(np.float64), 3).tolist()
    assert way["steps"] == pytest.approx(info.steps, rel=1e-5) and way["support"] == info.support
    assert way["reachable"] == info.reachable
    page.wait_for_timeout(500)
    page.reload(timeout=120_000)
    wait(page, "hilpPlay.state.said[0] && hilpPlay.state.said[0].kind === 'goal'")
    assert page.evaluate("hilpPlay.state.frame.agents[0].state") == [1.5, 1.5]


def test_rewards_are_planned_on_as_many_transitions_as_in_python(
    tiny: hilp.FoundationPolicy, change: Callable[..., Any], opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bank larger than the samples of a reward: numpy chooses which, so the page is told."""
    monkeypatch.setattr(specs.RewardOptions, "samples", 700)
    policy = change(tiny, bank=tiny.bank.subsample(1_500, 0))
    stage = stage_of(policy)
    page = opened(stage)
    states = stage.world.starts(np.random.default_rng(3), STATES).astype(np.float32)
    spec = {"kind": "reward", "reward": "right", "rule": "skill"}
    found = page.evaluate(ACT, [spec, states.ravel().tolist()])
    prompt = make_prompt(policy, specs.Reward("right", rule="skill", samples=700), stage.world)
    assert found["r2"] == pytest.approx(prompt.r2, abs=1e-6)
    assert np.abs(np.reshape(found["actions"], (-1, 2)) - policy.act(states, prompt)).max() <= TOLERANCE


# ---- the file --------------------------------------------------------------------------------------------------------


def test_the_command_writes_a_small_page(run: Callable[..., Any], tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "play.html"
    code, said, _ = run("play", tiny_run, "--export", out, "--json")
    text = out.read_text()
    assert code == 0 and json.loads(said) == {"page": str(out), "megabytes": round(len(text.encode()) / 1e6, 2)}
    assert len(text.encode()) < 2_000_000
    assert not re.search(r"https?://", re.sub(r"http://www\.w3\.org", "", text)), "nothing is fetched from elsewhere"
    assert "connect-src" not in text and "default-src 'none'" in text


def test_no_text_of_a_run_begins_a_tag(stage: scene.Stage) -> None:
    """A page whose JSON holds `<!-- <script>` would end nowhere; escaped, it is the same text."""
    found = re.search(r"window\.hilpNote = (.*);\n", export.html(stage))
    assert found is not None and "<" not in found[1]
    assert json.loads(found[1])["scene"]["run"] == RUN


def test_what_fits_into_no_page_is_refused(
    refused: Callable[..., str], tiny_run: Path, tmp_path: Path, tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset
) -> None:
    assert "one run" in refused("play", tiny_run, "runs/other", "--export", tmp_path / "play.html")
    assert "it is a folder" in refused("play", tiny_run, "--export", tmp_path)
    elsewhere = scene.Stage(tiny, untrained("hilp"), "runs/maze")
    elsewhere.world.name = "a robot"
    with pytest.raises(HilpError, match="only built-in mazes fit into a page"):
        export.html(elsewhere)
    with pytest.raises(HilpError, match="chunks of actions"):
        export.require(untrained("hilp", chunk=3, play=2), maze.make("maze-medium"))
    with pytest.raises(HilpError, match="rewards by segments, as hindsight policies do"):
        export.html(stage_of(untrained("hindsight", tiny_data).with_skills(tiny_data)))
    assert tiny.graph is not None
    with pytest.raises(HilpError, match="averages where an agent was"):
        export.html(stage_of(replace(tiny, graph=replace(tiny.graph, smooth=3.0))))


@pytest.mark.skipif(NODE is None, reason="there is no node: apt-get install nodejs")
def test_the_scripts_run_no_text_as_code() -> None:
    for name in pages.LOCAL:
        path = pages.HERE / name
        assert path.read_text().split("\n", 3)[0].startswith("// ")
        subprocess.run([str(NODE), "--check", str(path)], check=True, capture_output=True)
        assert not re.search(r"\beval\(|new Function|innerHTML", path.read_text())


def test_twenty_agents_plan_many_times_a_second(opened: Callable[..., Any], stage: scene.Stage) -> None:
    """Far below what a free machine does: this one has other work."""
    page = opened(stage)
    page.evaluate("hilpPlay.send('agents', { count: 20 }); hilpPlay.askGoal([6.5, 6.5])")
    wait(page, "hilpPlay.state.frame.step > 0")
    begun = time.monotonic()
    page.evaluate("for (let n = 0; n < 20; n++) hilpLocal.backend.simulation.advance()")
    assert time.monotonic() - begun < 10
