"""amux report: one line to the events socket.

An agent waits for its hooks, so this imports next to nothing: its time is that of the interpreter itself.
"""

import _socket  # what the module socket is made of, without the ten others that it imports
import sys
from posix import environ

DID_NOT_WORK, WRONG_USAGE, NO_SUCH_SESSION, NOT_POSSIBLE, UNREACHABLE = 1, 2, 3, 4, 5
DEADLINE = 10.0
LONGEST_MESSAGE = 2000
_LONGEST_ANSWER = 64 * 1024
_OK = b'{"type":"ok"}'
_CODES = {
    '"InvalidArgument"': WRONG_USAGE,
    '"NoSuchSession"': NO_SUCH_SESSION,
    '"InvalidTransition"': NOT_POSSIBLE,
}
USAGE = "usage: amux report [--hook] KIND [MESSAGE]"


class Problem(Exception):
    def __init__(self, sentence: str, code: int = DID_NOT_WORK) -> None:
        super().__init__(sentence)
        self.code = code


def run(arguments: list[str]) -> int:
    as_hook = "--hook" in arguments
    words = [word for word in arguments if word != "--hook"]
    try:
        _report(words, as_hook)
    except Problem as problem:
        try:  # noqa: SIM105, contextlib is not imported here
            print(f"amux: {problem}", file=sys.stderr, flush=True)
        except OSError:
            # Nobody hears it; the exit code tells all the same.
            pass
        # To an agent, 2 from a hook means that it must not go on.
        return DID_NOT_WORK if as_hook else problem.code
    return 0


def _report(words: list[str], as_hook: bool) -> None:
    if not 1 <= len(words) <= 2:
        raise Problem(USAGE, WRONG_USAGE)
    session, token = _variable("AMUX_SESSION_ID"), _variable("AMUX_TOKEN")
    if not session or not token:
        if as_hook:
            # The hooks of one agent serve it outside of amux too.
            return
        raise Problem("this is no session of amux: AMUX_SESSION_ID and AMUX_TOKEN are not set")
    message, conversation = words[1] if len(words) == 2 else "", ""
    if as_hook:
        message, conversation = _told_by_hook(words[0], message or _standard_input())
    fields = {
        "type": "session.report",
        "sessionId": session,
        "token": token,
        "kind": words[0],
        "message": message[:LONGEST_MESSAGE],
    }
    if conversation:
        fields["conversation"] = conversation[:LONGEST_MESSAGE]
    line = "{" + ",".join(f"{_quoted(key)}:{_quoted(value)}" for key, value in fields.items()) + "}\n"
    answer = _ask(_path(), line.encode())
    if answer != _OK:
        raise _refusal(answer)


def _variable(name: str) -> str:
    return environ.get(name.encode(), b"").decode(errors="replace")


def _path() -> bytes:
    if given := environ.get(b"AMUX_SOCKET"):
        return given
    from os import fsencode

    from amuxd.paths import Unsafe, events_socket

    try:
        return fsencode(events_socket())
    except Unsafe as problem:
        raise Problem(str(problem), UNREACHABLE) from None


def _ask(path: bytes, line: bytes) -> bytes:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(DEADLINE)
    answer = b""
    try:
        connection.connect(path)
        while line:
            line = line[connection.send(line) :]
        while not answer.endswith(b"\n") and len(answer) <= _LONGEST_ANSWER:
            data = connection.recv(4096)
            if not data:
                raise Problem("amuxd closed the connection", UNREACHABLE)
            answer += data
    except TimeoutError:
        raise Problem(f"amuxd does not answer (waited {DEADLINE:.0f} s)", UNREACHABLE) from None
    except OSError as error:
        where = path.decode(errors="replace")
        raise Problem(f"amuxd cannot be reached at {where}: {error.strerror}", UNREACHABLE) from None
    finally:
        connection.close()
    return answer.rstrip(b"\n")


def _refusal(answer: bytes) -> Problem:
    text = answer.decode(errors="replace")
    code = next((number for name, number in _CODES.items() if name in text), DID_NOT_WORK)
    import json

    try:
        return Problem(str(json.loads(text)["message"]), code)
    except (ValueError, KeyError, TypeError):
        return Problem(f"amuxd answered what this amux does not understand: {text}")


def _quoted(text: str) -> str:
    """As JSON, all in ASCII; a message that holds half a character is sent with a mark in its place."""
    out = []
    for char in text.encode(errors="replace").decode():
        number = ord(char)
        if 0x20 <= number < 0x7F and char not in '"\\':
            out.append(char)
        elif number > 0xFFFF:
            high, low = divmod(number - 0x10000, 0x400)
            out.append(f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}")
        else:
            out.append(f"\\u{number:04x}")
    return '"' + "".join(out) + '"'


def _standard_input() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    return sys.stdin.buffer.read().decode(errors="replace")


def _told_by_hook(kind: str, text: str) -> tuple[str, str]:
    """What an agent tells its hooks, as a line for a person; and the conversation, where codex names it."""
    if not text.strip():
        return "", ""
    import json

    try:
        told = json.loads(text)
    except ValueError:
        return text, ""
    if not isinstance(told, dict):
        return "", ""
    if kind == "conversation":
        return str(told.get("session_id", "")), ""
    return _message_in(told), str(told.get("thread-id", ""))


def _message_in(told: "dict[str, object]") -> str:
    for key in ("message", "last_assistant_message", "last-assistant-message"):
        if isinstance(said := told.get(key), str) and said:
            return said
    given = told.get("tool_input")
    details = given.values() if isinstance(given, dict) else ()
    detail = next((value for value in details if isinstance(value, str)), "")
    tool = told.get("tool_name")
    return ": ".join(part for part in (tool, detail) if isinstance(part, str) and part)
