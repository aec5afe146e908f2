"""A client of the server with the calls of a stock `openpi-client`, which refuses numpy 2."""

import contextlib
from typing import Any, Self

from hilp.serve import wire


class Client:
    """A robot's end of the connection. One that broke is replaced by another Client.

    timeout: seconds to wait for an answer before a TimeoutError, which ends the connection; None: for ever.
    """

    def __init__(self, address: str, token: str | None = None, timeout: float | None = None) -> None:
        from websockets.sync.client import connect

        headers = None if token is None else {"Authorization": f"Api-Key {token}"}
        patience = 10.0 if timeout is None else timeout
        opened = connect(
            address,
            compression=None,
            max_size=None,
            additional_headers=headers,
            open_timeout=patience,
            close_timeout=patience,
        )
        self._open = contextlib.ExitStack()
        self._socket = self._open.enter_context(opened)
        self._begins, self._timeout = False, timeout
        self._metadata = wire.unpacked(self._received())  # type: ignore[arg-type]

    def get_server_metadata(self) -> dict[str, Any]:
        """What the server said first."""
        return dict(self._metadata)

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """The actions for an observation; a RuntimeError where the server refuses it."""
        return self.send(observation).receive()

    def send(self, observation: dict[str, Any]) -> Self:
        """The first half of `infer`, for who does something else until the answer is there."""
        self._socket.send(wire.packed({**observation, "reset": True} if self._begins else observation))
        return self

    def receive(self) -> dict[str, Any]:
        """The second half."""
        answer = self._received()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        self._begins = False
        return dict(wire.unpacked(answer))

    def _received(self) -> str | bytes:
        try:
            return self._socket.recv(self._timeout)
        except TimeoutError:  # a late answer would be taken for that to the next question
            self.close()
            raise

    def reset(self) -> None:
        """The next observation begins an episode."""
        self._begins = True

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
