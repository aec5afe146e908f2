"""What servers share: how they listen, whom they refuse, and how an error is told on the wire."""

import hmac
import http
import importlib.util
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from hilp.errors import HilpError

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection

LOOPBACK = "127.0.0.1"
ANYWHERE = ("0.0.0.0", "::")
Handler = Callable[["ServerConnection"], Awaitable[None]]
Answerer = Callable[["ServerConnection", Any], Any]  # a response, or None: go on with the WebSocket


def require(verb: str, *packages: str) -> None:
    """Raise unless the packages are there that a verb of `hilp` needs; its extra has its name."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise HilpError(f"hilp {verb} needs {package}: pip install 'hilp[{verb}]'")


async def listen(handler: Handler, answer: Answerer, host: str, port: int, largest: int) -> "Server":
    """Begin to listen. largest: bytes of a message."""
    from websockets.asyncio.server import serve

    try:
        return await serve(
            handler, host, port, process_request=answer, max_size=largest, max_queue=8, compression=None,
            server_header=None, open_timeout=10, close_timeout=1, ping_interval=20, write_limit=2**16,
            logger=quiet_logger(),
        )  # fmt: skip
    except OSError as error:
        raise HilpError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def port_of(server: "Server") -> int:
    """The port found, where none was asked for."""
    return int(next(iter(server.sockets)).getsockname()[1])


def is_secret(given: str, secret: str) -> bool:
    """Whether two texts are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), secret.encode())


def told(error: Exception) -> str:
    """An error as a client is told it: one line."""
    text = str(error) if isinstance(error, HilpError) else f"that did not work ({type(error).__name__}: {error})"
    return " ".join(text.split())[:600]


def refusal(connection: "ServerConnection", status: int, text: str) -> Any:
    response = connection.respond(http.HTTPStatus(status), text + "\n")
    return guard(response, "default-src 'none'")


def guard(response: Any, policy: str) -> Any:
    """Headers that keep a page to itself."""
    response.headers["Content-Security-Policy"] = policy
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
    return response


def quiet_logger() -> Any:
    """Broken handshakes are the client's business."""
    import logging

    logger = logging.getLogger("hilp.sockets")
    logger.setLevel(logging.CRITICAL)
    return logger
