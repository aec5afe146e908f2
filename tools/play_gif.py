"""A film of the playground for the README: a goal, a painted reward, and both side by side, in a real browser.

Run: python tools/play_gif.py RUN docs/play.gif   (needs chromium; RUN: that of `hilp quickstart`)
"""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from hilp.commands import common
from hilp.play import scene, server

SIZE = (1120, 720)  # of the window
WIDE = 760  # of the film, in pixels
PAUSE = 0.1  # seconds between two frames
COLOURS = 255
LARGEST = 1_000_000  # bytes: what tools/check_files.py lets in


def address_of(run: str) -> str:
    """The address of a playground that ends with this program."""
    play = server.Play(scene.stage_of(common.load_policy(run)[0], "runs/quickstart"))
    ready = threading.Event()
    threading.Thread(target=lambda: asyncio.run(play.run(lambda _: ready.set())), daemon=True).start()
    ready.wait()
    return play.address


class Film:
    """Takes a picture after every few steps of the simulation, so that a slow machine makes the same film."""

    def __init__(self, page: Page) -> None:
        self.page, self.frames = page, list[Image.Image]()

    def take(self, count: int, steps: int = 1) -> None:
        for _ in range(count):
            if steps:
                self.page.evaluate(f'hilpPlay.send("control", {{ run: false, step: {steps} }})')
                time.sleep(0.35)  # until what is drawn has caught up
            shot = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
            self.frames.append(shot.resize((WIDE, round(WIDE * SIZE[1] / SIZE[0])), Image.Resampling.LANCZOS))

    def save(self, out: Path) -> None:
        plain = Image.Dither.NONE
        sheet = Image.new("RGB", (WIDE, 3 * self.frames[0].height))
        for n, at in enumerate((0.2, 0.5, 0.9)):
            sheet.paste(self.frames[int(at * len(self.frames))], (0, n * self.frames[0].height))
        palette = sheet.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=plain)  # keeps rare colours, too
        frames = [frame.quantize(palette=palette, dither=plain) for frame in self.frames]
        rest, pause = frames[1:], round(1000 * PAUSE)
        frames[0].save(out, save_all=True, append_images=rest, optimize=True, disposal=1, duration=pause, loop=0)


def pixel(page: Page, place: list[float]) -> tuple[float, float]:
    """Where a place of the map is in the window."""
    x, y = page.evaluate(
        """(place) => { const map = document.getElementById("map"), box = map.getBoundingClientRect();
        const [x, y] = hilpPlay.state.view.to(place);
        return [box.left + x * box.width / map.width, box.top + y * box.height / map.height]; }""",
        place,
    )
    return x, y


def wait(page: Page, expression: str) -> None:
    while not page.evaluate(expression):
        time.sleep(0.05)


def prompted(page: Page, act: Callable[[], Any]) -> None:
    before = page.evaluate("hilpPlay.state.said[0] ? hilpPlay.state.said[0].id : 0")
    act()
    wait(page, f"Boolean(hilpPlay.state.said[0] && hilpPlay.state.said[0].id > {before})")


def drag(page: Page, film: Film, *places: list[float]) -> None:
    page.mouse.move(*pixel(page, places[0]))
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*pixel(page, place), steps=4)
        film.take(1, steps=0)
    prompted(page, page.mouse.up)


def play(page: Page) -> Film:
    """The story: go there; be here; and now both."""
    film = Film(page)
    page.evaluate('hilpPlay.send("control", { run: false }); hilpPlay.send("agents", { starts: [[1.5, 7.5]] })')
    time.sleep(0.5)
    film.take(4, steps=0)
    prompted(page, lambda: page.mouse.click(*pixel(page, [10.5, 1.5])))
    film.take(22, steps=2)
    page.click("#tab-reward")
    drag(page, film, [4.2, 5.5], [4.6, 5.5], [5.0, 5.5], [5.4, 5.5])
    film.take(16, steps=2)
    page.click("#tab-goal")
    starts = [[1.5 + 0.3 * (n % 4), 7.2 + 0.3 * (n // 4)] for n in range(8)]
    page.evaluate('(starts) => hilpPlay.send("agents", { starts })', starts)
    wait(page, "hilpPlay.state.frame.agents.length === 8")
    prompted(page, lambda: page.mouse.click(*pixel(page, [10.5, 7.5])))
    film.take(24, steps=2)
    return film


def main(run: str, out: str) -> int:
    address = address_of(run)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.goto(address)
        wait(page, "Boolean(hilpPlay.state.frame && hilpPlay.state.view)")
        film = play(page)
        browser.close()
    film.save(Path(out))
    size = Path(out).stat().st_size
    print(f"{out}: {len(film.frames)} frames, {size:,} bytes")
    return int(size > LARGEST)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
