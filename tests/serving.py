"""Servers in a thread of the tests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from hilp.play import scene, server


@contextlib.contextmanager
def listening(found: Any) -> Iterator[str]:
    """The address of a server, which ends with the block and all its connections with it."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    task = loop.create_task(found.run(lambda _: ready.set()))

    def serve() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(60)
    yield found.address
    loop.call_soon_threadsafe(task.cancel)
    thread.join(20)
    assert not thread.is_alive()


def served(stage: scene.Stage) -> contextlib.AbstractContextManager[str]:
    """The playground's."""
    return listening(server.Play(stage))
