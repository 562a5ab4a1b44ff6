"""A program at the events socket."""

import json
import socket
import time
from pathlib import Path
from typing import Any, Self


class Lines:
    def __init__(self, path: Path, timeout: float = 60) -> None:
        self._timeout = timeout
        self._buffer = b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, **message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def ask(self, **message: Any) -> dict[str, Any]:
        self.send(**message)
        answer = self.next()
        assert answer is not None
        return answer

    def next(self) -> dict[str, Any] | None:
        """The next message; None: the connection was closed."""
        while b"\n" not in self._buffer:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                assert not self._buffer
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    def until(self, **wanted: Any) -> list[dict[str, Any]]:
        """All messages up to the first that has these fields."""
        seen: list[dict[str, Any]] = []
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            message = self.next()
            assert message is not None, f"closed after {seen}"
            seen.append(message)
            if all(message.get(key) == value for key, value in wanted.items()):
                return seen
        raise TimeoutError(f"{wanted} did not come, but {seen[-20:]}")
