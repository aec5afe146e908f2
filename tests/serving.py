"""A server of the playground, in a thread of the tests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from hilp.play import scene, server


@contextlib.contextmanager
def served(stage: scene.Stage) -> Iterator[str]:
    """The address of a server, which ends with the block and all its windows with it."""
    play, ready = server.Play(stage), threading.Event()
    loop = asyncio.new_event_loop()
    task = loop.create_task(play.run(lambda _: ready.set()))

    def serve() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(60)
    yield play.address
    loop.call_soon_threadsafe(task.cancel)
    thread.join(20)
    assert not thread.is_alive()
