"""The server of the playground: one page over HTTP, and a WebSocket behind which every window has its own simulation.

It listens on this machine unless told otherwise. Whoever asks must know the token; a request must name one of our own
hosts, so that no other name can be bound to this address, and a page of another site is refused by its Origin.
"""

import asyncio
import contextlib
import http
import json
import queue
import re
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from hilp.play import page
from hilp.play.scene import Stage
from hilp.play.simulation import Message, Simulation
from hilp.serve import sockets
from hilp.serve.client_prompts import loaded
from hilp.serve.sockets import ANYWHERE, LOOPBACK, guard, refusal

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection

LARGEST = 256 * 1024  # bytes of a message
MOST_WINDOWS = 256
WAITING = 64  # messages of a window that are not yet answered, or answers that it has not yet taken
FRAMES = 1 / 40  # seconds between two frames, on average
SOCKET = "/socket"
ADDRESS = re.compile(r"(\d+\.\d+\.\d+\.\d+|\[[\da-f:]+\])(:\d+)?")
THIS_MACHINE = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")


class Window:
    """A simulation in a thread of its own. Answers are kept in their order, of frames only the newest."""

    def __init__(self, stage: Stage, wake: Callable[[], None]) -> None:
        self._simulation, self._wake = Simulation(stage), wake
        self.inbox: queue.Queue[str | None] = queue.Queue()
        self.answers: deque[str] = deque()
        self.frame: str | None = None
        self._thread = threading.Thread(target=self._run, name="hilp-play", daemon=True)
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        return self.inbox.qsize() > WAITING or len(self.answers) > WAITING

    def close(self) -> None:
        self.inbox.put(None)

    def _run(self) -> None:
        """Answer messages as they come; in between, step at the speed asked for."""
        simulation, due, shown = self._simulation, time.monotonic(), 0.0
        while True:
            moves = simulation.run and simulation.is_moving
            try:
                text = self.inbox.get(timeout=max(0.0, due - time.monotonic()) if moves else None)
            except queue.Empty:
                try:
                    simulation.advance()
                except Exception as error:  # a task of the user's own may fail in any way
                    simulation.run = False
                    self._answer(failed(error, None))
                due = max(due + 1 / simulation.speed, time.monotonic() - 0.5)
            else:
                if text is None:
                    return
                self._receive(text)
                now, shown = time.monotonic(), 0.0
                due = min(max(due, now), now + 1 / simulation.speed)  # a slow speed before delays no longer
            now = time.monotonic()
            if self.inbox.empty() and (now - shown >= FRAMES or not simulation.is_moving):
                shown = max(shown + FRAMES, now - FRAMES)  # not `now`: 60 steps a second would be 30 frames, not 40
                self._show()

    def _show(self) -> None:
        if not self._simulation.agents:
            return
        try:
            self.frame = dumped(self._simulation.frame())
            self._wake()
        except Exception as error:
            self._simulation.run = False
            self._answer(failed(error, None))

    def _receive(self, text: str) -> None:
        asked = None
        try:
            message = loaded(text)
            asked = message.get("id") if isinstance(message, dict) else None
            for answer in self._simulation.receive(message):
                self._answer(answer)
        except Exception as error:  # whatever a message holds, the window lives
            self._answer(failed(error, asked))

    def _answer(self, message: Message) -> None:
        self.answers.append(dumped(message))
        self._wake()


def failed(error: Exception, asked: Any) -> Message:
    """An error as a page shows it: one line."""
    message: Message = {"type": "error", "message": sockets.told(error)}
    return message if not isinstance(asked, int | str) else {**message, "id": asked}


def dumped(message: Message) -> str:
    return json.dumps(message, separators=(",", ":"), allow_nan=False)


class Play:
    """A server that runs until it is stopped."""

    def __init__(self, stage: Stage, host: str = LOOPBACK, port: int = 0, token: str | None = None) -> None:
        self.stage, self.host, self.port = stage, host, port
        self.token = secrets.token_urlsafe(24) if token is None else token
        self.windows = 0

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{self.name}:{self.port}/?token={self.token}"

    @property
    def name(self) -> str:
        """The host of the address."""
        name = socket.gethostname() if self.host in ANYWHERE else self.host
        return f"[{name}]" if ":" in name else name

    def _is_own(self, host: str) -> bool:
        """Whether a request is for us. The names of this machine have any port, that of a tunnel or a container. A
        server for all addresses of a machine also answers to any of these: only names can be bound to another address.
        """
        if host == f"{self.name}:{self.port}".lower() or THIS_MACHINE.fullmatch(host):
            return True
        return self.host in ANYWHERE and bool(ADDRESS.fullmatch(host))

    async def start(self) -> "Server":
        """Begin to listen; `port` is the one found, where none was asked for."""
        sockets.require("play", "websockets")
        await asyncio.to_thread(lambda: self.stage.description)  # so that the first window need not wait for it
        server = await sockets.listen(self._serve, self._request, self.host, self.port, LARGEST)
        self.port = sockets.port_of(server)
        return server

    async def run(self, opened: Callable[[str], None]) -> None:
        """Listen until cancelled; `opened` is told the address."""
        server = await self.start()
        async with server:  # which waits for windows that are being closed
            opened(self.address)
            await server.wait_closed()

    def _request(self, connection: "ServerConnection", request: Any) -> Any:
        """The page, or a refusal; None: go on with the WebSocket."""
        asked = urlsplit(request.path)
        hosts = [host.lower() for host in request.headers.get_all("Host")]
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return refusal(connection, 421, "this server does not answer to that name")
        origins = request.headers.get_all("Origin")
        if any(origin.lower() != f"http://{hosts[0]}" for origin in origins):
            return refusal(connection, 403, "this server answers no other site")
        given = parse_qs(asked.query).get("token", [""])[0]
        if not sockets.is_secret(given, self.token):
            return refusal(connection, 403, "open the address that `hilp play` printed: it ends in a token")
        if asked.path == SOCKET:
            return refusal(connection, 503, "too many windows are open") if self.windows >= MOST_WINDOWS else None
        if asked.path != "/":
            return refusal(connection, 404, "there is nothing here")
        return self._page(connection)

    def _page(self, connection: "ServerConnection") -> Any:
        nonce = secrets.token_urlsafe(12)
        response = connection.respond(http.HTTPStatus.OK, page.html(nonce=nonce))
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data: blob:"
        guard(response, f"{policy}; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "text/html; charset=utf-8"
        return response

    async def _serve(self, connection: "ServerConnection") -> None:
        """One window, until it is closed."""
        from websockets.protocol import State

        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(ready.set)

        self.windows += 1
        window = Window(self.stage, wake)
        sender = asyncio.create_task(self._send(connection, window, ready))
        try:
            async for text in connection:
                window.inbox.put(text if isinstance(text, str) else "")
                while window.is_behind and connection.state is State.OPEN and not sender.done():
                    await asyncio.sleep(0.02)  # who does not listen is not listened to
        finally:
            self.windows -= 1
            window.close()
            sender.cancel()

    async def _send(self, connection: "ServerConnection", window: Window, ready: asyncio.Event) -> None:
        """Send answers and the newest frame; while a slow client takes one, later frames replace each other."""
        from websockets.exceptions import ConnectionClosed

        with contextlib.suppress(ConnectionClosed):
            while True:
                await ready.wait()
                ready.clear()
                while window.answers or window.frame is not None:
                    if window.answers:
                        await connection.send(window.answers.popleft())
                    else:
                        frame, window.frame = window.frame, None
                        await connection.send(str(frame))
