"""amux report against an amuxd that is not well."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd.cli import reporting


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes | None], None]]:
    """Begins a server that answers so; None: never."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    server.listen()
    environment = {
        b"AMUX_SESSION_ID": b"abc",
        b"AMUX_TOKEN": b"t",
        b"AMUX_SOCKET": bytes(tmp_path / "socket"),
    }
    monkeypatch.setattr(reporting, "environ", environment)
    done = threading.Event()
    threads = []

    def serve(data: bytes | None) -> None:
        connection, _ = server.accept()
        with connection:
            assert json.loads(connection.recv(65536))["sessionId"] == "abc"
            if data is None:
                done.wait(10)
            else:
                connection.sendall(data)

    def begin(data: bytes | None) -> None:
        threads.append(threading.Thread(target=serve, args=(data,)))
        threads[-1].start()

    yield begin
    done.set()
    for thread in threads:
        thread.join()
    server.close()


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b'{"type":"ok"}\n', 0, ""),
        (b"", 5, "amuxd closed the connection"),
        (b"hello\n", 1, "does not understand: hello"),
        (b'{"type":"error"}\n', 1, "does not understand"),
        (b"x" * 100_000, 1, "does not understand"),
        (b'{"type":"error","code":"InvalidTransition","message":"no"}\n', 4, "amux: no\n"),
    ],
)
def test_what_amuxd_may_say(
    answer: Callable[[bytes | None], None],
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    code: int,
    says: str,
) -> None:
    answer(data)
    assert reporting.run(["turn", "done"]) == code
    assert says in capsys.readouterr().err


def test_an_amuxd_that_hangs_is_not_waited_for_for_ever(
    answer: Callable[[bytes | None], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporting, "DEADLINE", 0.05)
    answer(None)
    assert reporting.run(["turn"]) == 5
    assert "does not answer" in capsys.readouterr().err


def test_a_hook_passes_on_which_conversation_it_is_about() -> None:
    told = '{"thread-id":"abc","last-assistant-message":"done"}'
    assert reporting._told_by_hook("turn", told) == ("done", "abc")
    assert reporting._told_by_hook("turn", '{"session_id":"abc","message":"done"}') == ("done", "")
    assert reporting._told_by_hook("conversation", '{"session_id":"abc","thread-id":"d"}') == ("abc", "")


@given(st.text(st.characters()))
def test_any_text_is_sent_as_it_is(text: str) -> None:
    assert json.loads(reporting._quoted(text)) == text.encode(errors="replace").decode()
