"""The playground in a real browser: Debian's chromium, driven by playwright.

HILP_PICTURES=docs/play python -m pytest tests/test_play_browser.py -k pictures makes the screenshots of docs/play.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
import serving
from hilp.play import scene
from hilp.prompts import specs

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no browser: apt-get install chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
NEAR, FAR, WALL = [1.5, 1.5], [6.5, 6.5], [0.5, 0.5]
PICTURES = os.environ.get("HILP_PICTURES")


@pytest.fixture(scope="module")
def address(able_run: Path) -> Iterator[str]:
    name = "runs/maze" if PICTURES else str(able_run)
    with serving.served(scene.stage_of(hilp.FoundationPolicy.load(able_run), name)) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


class Window:
    """A page, and what a person does on it."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def get(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def wait(self, expression: str, seconds: float = 30) -> Any:
        end = time.monotonic() + seconds
        while not (found := self.get(expression)):
            assert time.monotonic() < end, (expression, self.status)
            time.sleep(0.03)
        return found

    @property
    def status(self) -> str:
        return str(self.page.text_content("#status"))

    def frame(self) -> dict[str, Any]:
        return dict(self.get("hilpPlay.state.frame"))

    def place(self, agent: int = 0) -> list[float]:
        return list(self.frame()["agents"][agent]["place"])

    def pixel(self, place: list[float]) -> tuple[float, float]:
        """Where a place of the map is in the window."""
        x, y = self.get(
            f"""(() => {{ const map = document.getElementById("map"), box = map.getBoundingClientRect();
            const [x, y] = hilpPlay.state.view.to({place});
            return [box.left + x * box.width / map.width, box.top + y * box.height / map.height]; }})()"""
        )
        return float(x), float(y)

    def click(self, place: list[float]) -> None:
        self.page.mouse.click(*self.pixel(place))

    def drag(self, *places: list[float]) -> None:
        self.page.mouse.move(*self.pixel(places[0]))
        self.page.mouse.down()
        for place in places[1:]:
            self.page.mouse.move(*self.pixel(place), steps=6)
        self.page.mouse.up()

    def mode(self, name: str) -> None:
        self.page.click(f"#tab-{name}")

    def prompted(self, act: Callable[[], Any]) -> None:
        """Do something, until the server has taken it as a prompt."""
        before = self.get("hilpPlay.state.said[0] ? hilpPlay.state.said[0].id : 0")
        act()
        self.wait(f"hilpPlay.state.said[0] && hilpPlay.state.said[0].id > {before}")

    def put(self, place: list[float]) -> None:
        self.get(f'hilpPlay.send("agents", {{ starts: [{place}] }})')
        self.wait(f"hilpPlay.state.frame.agents.length === 1 && {away(place)} < 0.01")
        self.wait(f"{away(place, at='hilpPlay.state.shown[0]')} < 0.01")  # also drawn there


def away(place: list[float], at: str = "hilpPlay.state.frame.agents[0].place") -> str:
    """The distance of the first agent from a place, as the page computes it."""
    return f"Math.hypot({at}[0] - {place[0]}, {at}[1] - {place[1]})"


Open = Callable[..., Window]


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Open]:
    """Opens windows, none of which may complain on its console."""
    contexts, complaints = [], []

    def opened(link: str = "", **options: Any) -> Window:
        context = browser.new_context(**{"viewport": WIDE, "color_scheme": "light", **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(link or address)
        window = Window(page)
        window.wait("Boolean(hilpPlay.state.frame && hilpPlay.state.view)")
        return window

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


# ---- what people do --------------------------------------------------------------------------------------------------


def test_click_a_goal(visit: Open) -> None:
    window = visit()
    window.put(FAR)
    window.page.fill("#speed", "60")
    window.click(NEAR)
    window.wait("document.getElementById('status').textContent === 'the goal is reached'")
    assert np.hypot(*np.subtract(window.place(), NEAR)) < 1
    assert window.page.text_content("#reachable") == "reached" and window.page.text_content("#steps-to-go") == "0"
    window.click(WALL)
    window.wait("document.getElementById('status').classList.contains('error')")
    assert "wall" in window.status and "\n" not in window.status
    assert window.get("hilpPlay.state.specs[0].goal") == NEAR, "what is copied is what the agent does"


def test_drag_the_agent_and_the_goal(visit: Open) -> None:
    window = visit()
    window.put(FAR)
    window.page.click("#run")
    window.wait("!hilpPlay.state.frame.run")
    assert window.page.text_content("#run") == "Run"
    window.drag(FAR, [5.5, 6.5], [5.5, 5.5])
    window.wait(f"{away([5.5, 5.5])} < 0.05")
    window.prompted(lambda: window.drag(NEAR, [2.5, 1.5]))
    window.wait("hilpPlay.state.said[0].goal && Math.abs(hilpPlay.state.said[0].goal[0] - 2.5) < 0.05")
    window.page.click("#step")
    window.wait("hilpPlay.state.frame.step === 1")
    window.page.click("#restart")
    window.wait(f"hilpPlay.state.frame.step === 0 && {away(FAR)} < 0.01")


def test_paint_a_reward(visit: Open) -> None:
    window = visit()
    window.put(FAR)
    window.page.fill("#speed", "60")
    window.mode("reward")
    window.prompted(lambda: window.drag([1.2, 6.5], [1.9, 6.5]))
    formula = window.page.input_value("#formula")
    assert formula.startswith("max((x-1.2)**2+(y-6.5)**2<")
    at = "hilpPlay.state.frame.agents[0].place"
    inside = f"hilpPlay.state.paint.some(([x, y, r]) => Math.hypot({at}[0] - x, {at}[1] - y) < r + 0.3)"
    window.wait(inside)
    since = window.frame()["step"]
    while window.frame()["step"] < since + 60:
        assert window.get(inside), "it stays"
        time.sleep(0.05)
    assert float(window.page.text_content("#r2")) > 0.5 and window.page.text_content("#kind") == "the graph"
    window.page.click("#minus")
    window.prompted(lambda: window.click([4.5, 6.5]))
    assert "-max(" in window.page.input_value("#formula")
    window.page.click("#clear")
    assert window.page.input_value("#formula") == ""


def test_a_formula_with_an_error(visit: Open) -> None:
    window = visit()
    window.mode("reward")
    window.prompted(lambda: window.page.select_option("#reward-name", "right"))
    window.page.fill("#formula", "xx - before(x)")
    window.page.press("#formula", "Enter")
    window.wait("document.getElementById('status').classList.contains('error')")
    assert "xx" in window.status and "\n" not in window.status
    assert window.get("hilpPlay.state.specs[0].reward") == "right"
    step = window.frame()["step"]
    window.wait(f"hilpPlay.state.frame.step > {step} + 2")
    window.page.fill("#formula", "y - before(y)")
    window.prompted(lambda: window.page.press("#formula", "Enter"))
    assert not window.get("document.getElementById('status').classList.contains('error')")
    window.page.fill("#formula", "x + be")
    offered = window.get("[...document.querySelectorAll('#columns option')].map((one) => one.value)")
    assert offered == ["x + before("], "the word under the cursor is completed"


def test_skills_paths_and_preferences(visit: Open) -> None:
    window = visit()
    window.put([1.5, 6.5])
    window.mode("skill")
    box = window.page.locator("#dial").bounding_box()
    window.prompted(lambda: window.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 14))
    assert window.page.get_attribute("#dial", "aria-valuenow") == "90"
    np.testing.assert_allclose(
        window.get("hilpPlay.state.specs[0].z"), window.get("hilpPlay.state.scene.skill.axes[1]"), atol=0.02
    )
    window.prompted(lambda: window.page.locator("#sliders input").first.fill("0.5"))
    window.mode("follow")
    window.prompted(lambda: window.drag([1.5, 6.5], [1.5, 5.5], [2.5, 5.5], [2.5, 4.6]))
    assert window.get("hilpPlay.state.said[0].kind") == "follow"
    window.mode("prefer")
    window.wait("Boolean(hilpPlay.state.pair)")
    for answers in ("1 answer", "2 answers"):
        pair = window.get("hilpPlay.state.pair.id")
        window.prompted(lambda: window.page.click("#better-0"))
        assert window.page.text_content("#answers") == answers
        window.wait(f"hilpPlay.state.pair.id > {pair}")
    assert window.get("hilpPlay.state.specs[0].kind") == "prefer"


def test_push_and_compare(visit: Open) -> None:
    window = visit()
    window.put(FAR)
    window.page.fill("#speed", "60")
    window.prompted(lambda: window.click([6.5, 6.0]))
    window.wait("hilpPlay.state.frame.agents[0].reached")
    step = window.frame()["step"]
    window.page.click("#push")
    window.wait(f"hilpPlay.state.frame.step >= {step} + 5")  # who has reached its goal rests otherwise
    window.page.check("#compare")
    window.wait("hilpPlay.state.frame.agents.length === 2 && hilpPlay.state.said[1]")
    window.prompted(lambda: window.click(NEAR))
    window.wait("hilpPlay.state.frame.agents.every((agent) => agent.reached)")
    assert np.hypot(*np.subtract(window.place(0), NEAR)) < 1 < np.hypot(*np.subtract(window.place(1), NEAR))
    window.page.fill("#agents", "5")
    window.page.press("#agents", "Enter")
    window.wait("hilpPlay.state.frame.agents.length === 10")
    window.page.uncheck("#compare")
    window.wait("hilpPlay.state.frame.agents.length === 5")


def test_two_policies_side_by_side(visit: Open, able_run: Path, tiny_run: Path) -> None:
    able, tiny = (
        scene.stage_of(hilp.FoundationPolicy.load(folder), folder.parent.name) for folder in (able_run, tiny_run)
    )
    with serving.served(replace(able, rival=tiny)) as address:
        window = visit(address)
        window.wait("hilpPlay.state.frame.agents.length === 2")
        assert window.place(0) == window.place(1), "from one start"
        window.prompted(lambda: window.click(NEAR))
        window.wait("Boolean(hilpPlay.state.said[1]) && hilpPlay.state.specs[1].goal[0] === 1.5")
        window.page.click("#copy-python")
        code = window.page.input_value("#code")
        assert 'load("able-run")' in code and 'load("tiny-run")' in code
        window.page.close()


def test_two_windows_at_once(visit: Open) -> None:
    first, second = visit(), visit()
    for window, goal in ((first, NEAR), (second, [1.5, 6.5])):
        window.put(FAR)
        window.page.fill("#speed", "60")
        window.click(goal)
    for window, goal in ((first, NEAR), (second, [1.5, 6.5])):
        window.wait("hilpPlay.state.frame.agents[0].reached")
        assert np.hypot(*np.subtract(window.place(), goal)) < 1


def test_reload_and_link_keep_the_state(visit: Open) -> None:
    window = visit()
    window.put(FAR)
    window.mode("reward")
    window.prompted(lambda: window.click([1.5, 6.5]))
    step = window.frame()["step"]
    window.wait(f"hilpPlay.state.frame.step > {step} + 3")
    window.page.click("#run")
    window.wait("!hilpPlay.state.frame.run")
    kept = window.get("hilpPlay.state.specs[0]"), window.get("hilpPlay.state.paint"), window.place()
    window.page.click("#copy-link")
    link = window.page.input_value("#code")
    window.page.reload()
    for again in (window, visit(link)):
        again.wait("Boolean(window.hilpPlay && hilpPlay.state.said[0] && hilpPlay.state.frame)")
        again.wait("!hilpPlay.state.frame.run")
        assert again.get("hilpPlay.state.mode") == "reward"
        assert (again.get("hilpPlay.state.specs[0]"), again.get("hilpPlay.state.paint")) == kept[:2]
        np.testing.assert_allclose(again.place(), kept[2], atol=1e-3)


# ---- taking it home --------------------------------------------------------------------------------------------------


def in_a_process(*command: str, text: str | None = None) -> str:
    paths = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, input=text, text=True, capture_output=True, env={**os.environ, **paths}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_copied_code_does_what_is_seen(visit: Open, tmp_path: Path) -> None:
    """Two prompts side by side, in a fresh process: the same states after the same number of steps."""
    window = visit()
    window.put(FAR)
    window.page.click("#run")
    window.prompted(lambda: window.click(NEAR))
    window.page.check("#compare")
    window.wait("hilpPlay.state.frame.agents.length === 2 && Boolean(hilpPlay.state.said[1])")
    window.mode("reward")
    window.prompted(lambda: window.page.select_option("#reward-name", "down"))
    window.wait("!hilpPlay.state.frame.run")
    window.page.click("#copy-python")
    code = window.page.input_value("#code")
    for _ in range(12):
        window.page.click("#step")
    window.wait("hilpPlay.state.frame.step === 12")
    seen = [window.place(0), window.place(1)]
    assert seen[0] != seen[1]
    told = in_a_process(sys.executable, "-", text=code.replace("range(100)", "range(12)"))
    np.testing.assert_allclose([json.loads(line) for line in told.splitlines()], seen, atol=1e-3)
    with window.page.expect_download() as download:
        window.page.click("#save")
    download.value.save_as(tmp_path / "prompt.json")
    assert specs.from_json(json.loads((tmp_path / "prompt.json").read_text())) == specs.Reward("down")


def test_the_copied_command_runs(visit: Open) -> None:
    window = visit()
    window.put(FAR)
    window.page.click("#run")
    window.prompted(lambda: window.click(NEAR))
    window.page.click("#copy-shell")
    command = window.page.input_value("#code")
    assert command.startswith("hilp prompt ") and command.count("\n") == 1
    told = json.loads(in_a_process("bash", "-c", f"{command.strip()} --json"))
    assert told["reached"] is True


def test_a_film_is_a_gif(visit: Open, tmp_path: Path) -> None:
    from PIL import Image

    window = visit()
    window.put(FAR)
    window.prompted(lambda: window.click(NEAR))
    window.page.click("#film")
    assert window.page.text_content("#film") == "Save GIF"
    time.sleep(1)
    window.page.click("#run")
    window.wait("!hilpPlay.state.frame.run")
    time.sleep(1)  # until what is drawn has come to rest
    with window.page.expect_download() as download:
        window.page.click("#film")
    download.value.save_as(tmp_path / "film.gif")
    shot = window.page.locator("#map").screenshot()
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames > 8 and film.width == 480
        first = np.asarray(film.convert("RGB"), int)
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB"), int)
    (tmp_path / "shot.png").write_bytes(shot)
    seen = np.asarray(Image.open(tmp_path / "shot.png").convert("RGB").resize((480, len(last))), int)
    assert np.abs(last - seen).mean() < 6, "its last frame is what is on the screen"
    assert (np.abs(first - last).max(axis=2) > 60).sum() > 20, "and the agent has moved"


# ---- everyone --------------------------------------------------------------------------------------------------------


def test_all_controls_by_keyboard(visit: Open) -> None:
    window = visit()
    window.put([5.5, 6.5])
    keys = window.page.keyboard
    window.page.focus("#map")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        keys.press(key)
    cursor = window.get("hilpPlay.state.cursor")
    assert cursor is not None
    window.get("hilpPlay.state.cursor = [6.5, 6.5]")
    window.prompted(lambda: keys.press("Enter"))
    assert window.get("hilpPlay.state.specs[0].goal") == [6.5, 6.5]
    keys.press("Space")
    window.wait("!hilpPlay.state.frame.run")
    step = window.frame()["step"]
    keys.press(".")
    window.wait(f"hilpPlay.state.frame.step === {step + 1}")
    keys.press("r")
    window.wait("hilpPlay.state.frame.step === 0")
    keys.press("Shift+Enter")
    window.wait(f"{away([6.5, 6.5])} < 0.05")
    window.page.focus("#tab-goal")
    reached: set[str] = set()
    for mode in ("reward", "skill", "follow", "prefer", "goal"):
        keys.press("ArrowRight")
        assert window.get("hilpPlay.state.mode") == mode
        wanted = set(
            window.get(
                "[...document.querySelectorAll('button, input, select, textarea, [tabindex=\"0\"]')]"
                ".filter((one) => one.offsetParent && one.tabIndex >= 0 && one.id).map((one) => one.id)"
            )
        )
        reached = set()
        for _ in range(60):
            reached.add(window.get("document.activeElement.id"))
            keys.press("Tab")
        assert wanted <= reached, f"of {mode} by keyboard: {wanted - reached}"
        window.page.focus(f"#tab-{mode}")
    window.mode("skill")
    window.page.focus("#dial")
    window.prompted(lambda: keys.press("ArrowUp"))
    assert window.page.get_attribute("#dial", "aria-valuenow") == "10"


@pytest.fixture(scope="module")
def axe(request: pytest.FixtureRequest) -> str:
    """The text of axe-core, which npm fetches once."""
    folder = request.config.cache.mkdir("axe-core")
    if not (folder / "axe.min.js").exists():
        if shutil.which("npm") is None:
            pytest.skip("axe-core is not here, and there is no npm to fetch it: apt-get install npm")
        done = subprocess.run(["npm", "pack", "axe-core@4"], cwd=folder, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"npm cannot fetch axe-core: {done.stderr.strip().splitlines()[-1] if done.stderr else ''}")
        with tarfile.open(folder / done.stdout.split()[-1]) as package:
            found = package.extractfile("package/axe.min.js")
            assert found is not None
            (folder / "axe.min.js").write_bytes(found.read())
    return (folder / "axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_to_all(visit: Open, axe: str, scheme: str) -> None:
    window = visit(color_scheme=scheme)
    window.prompted(lambda: window.click(NEAR))
    window.page.click("#copy-python")
    window.get(f"(() => {{ {axe}; window.axe = axe; return true; }})()")
    for mode in ("goal", "reward", "skill", "follow", "prefer"):
        window.mode(mode)
        found = window.get("axe.run().then((found) => found.violations)")
        found = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], [node["html"][:100] for node in one["nodes"]]) for one in found] == [], mode


def test_on_a_phone(visit: Open) -> None:
    window = visit(viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2)
    window.put(FAR)
    for mode in ("goal", "reward", "skill", "follow", "prefer"):
        window.page.tap(f"#tab-{mode}")
        assert window.get("document.documentElement.scrollWidth") <= 390, mode
        small = window.get(
            "[...document.querySelectorAll('button, select')].filter((one) => one.offsetParent)"
            ".filter((one) => one.getBoundingClientRect().height < 32).map((one) => one.id)"
        )
        assert small == [], "wide enough for a finger"
    window.page.tap("#tab-goal")
    window.prompted(lambda: window.page.touchscreen.tap(*window.pixel([5.5, 6.5])))
    np.testing.assert_allclose(window.get("hilpPlay.state.specs[0].goal"), [5.5, 6.5], atol=0.1)
    window.page.click("#copy-python")
    assert window.get("document.documentElement.scrollWidth") <= 390


def test_nothing_jumps(visit: Open) -> None:
    """Whatever is asked and shown, the map and the buttons stay where they are."""
    window = visit()
    boxes = """['map', 'run', 'speed', 'tabs'].map((id) => {
        const { x, y, width } = document.getElementById(id).getBoundingClientRect();
        return [x, y, width];
    })"""
    before = window.get(boxes)
    window.prompted(lambda: window.click(NEAR))
    for mode in ("reward", "skill", "follow", "prefer", "goal"):
        window.mode(mode)
        assert window.get(boxes) == before
    window.mode("reward")
    window.page.fill("#formula", "nonsense +")
    window.page.press("#formula", "Enter")
    window.wait("document.getElementById('status').classList.contains('error')")
    assert window.get(boxes) == before


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")])
def test_pictures_of_each_mode(visit: Open, tmp_path: Path, size: dict[str, int], scheme: str) -> None:
    """A picture of each mode, some of which docs/play.md shows; the floor of the map is that of the scheme."""
    from PIL import Image

    folder = Path(PICTURES or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    window = visit(viewport=size, color_scheme=scheme)
    window.put(FAR)
    window.page.fill("#speed", "10")
    acts: dict[str, Callable[[], Any]] = {
        "goal": lambda: window.click(NEAR),
        "reward": lambda: window.drag([1.2, 6.5], [1.9, 6.5]),
        "skill": lambda: window.page.press("#dial", "ArrowUp"),
        "follow": lambda: window.drag([6.5, 6.5], [5.4, 6.4], [5.4, 5.5], [4.5, 5.4], [4.5, 4.5]),
        "prefer": lambda: window.page.click("#better-0"),
    }
    for mode, act in acts.items() if PICTURES else list(acts.items())[:1]:
        window.mode(mode)
        if mode == "prefer":
            window.wait("Boolean(hilpPlay.state.pair)")
        window.get("scrollTo(0, 0)")
        window.prompted(act)
        time.sleep(1.5 if PICTURES else 0)
        window.page.mouse.move(2, 2)
        file = folder / f"{mode}{'' if size is WIDE else '-phone'}{'' if scheme == 'light' else '-dark'}.png"
        window.page.screenshot(path=file, full_page=size is PHONE)
        Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
        assert file.stat().st_size < 150_000
    floor = window.get("getComputedStyle(document.documentElement).getPropertyValue('--floor').trim()")
    assert floor == {"light": "#ffffff", "dark": "#161b24"}[scheme]
