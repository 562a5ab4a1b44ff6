"""The events socket: what happens and what is asked for, a JSON object a line, without D-Bus."""

import asyncio
import hmac
import json
import logging
import os
import re
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amuxd import attention
from amuxd.errors import AmuxError, Busy, InvalidArgument, InvalidTransition, NoSuchSession
from amuxd.listeners import Place, is_listened_at, place_of, place_of_socket
from amuxd.peers import Garbage, Peer
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import State, Transition
from amuxd.store import StoreError
from amuxd.supervisor import not_written

logger = logging.getLogger(__name__)

MOST_PEERS = 1024
# The rest is for those who come, report and go.
MOST_SUBSCRIBERS = 768
# Seconds for each subscriber between two writes to all of them: so many that they do not cost too much.
PACE = 0.0005
# The file is systemd's own, or goes in close(): later versions of Python would remove either.
_KEEPING_FILE: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
_CREDENTIALS = struct.Struct("3i")


class AccessDenied(AmuxError):
    name = "AccessDenied"


class Events:
    """Tells each subscriber what the bus is told, in the same order, and answers requests."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._supervisor = runs.supervisor
        self._server: asyncio.AbstractServer | None = None
        self._made: tuple[Path, Place | None] | None = None
        # In the order in which they came.
        self._peers: dict[Peer, None] = {}
        self._subscribers: set[Peer] = set()
        self._lines: list[bytes] = []
        self._flushed_at = 0.0

    async def listen(self, path: Path) -> None:
        given = activated_socket()
        if given is not None and not _leads_to(path, given):
            logger.warning("%s does not lead to the socket that systemd passed: it is made anew", path)
            given.close()
            given = None
        if given is None:
            given = _bound(path)
            self._made = path, place_of(path)
        create = asyncio.get_running_loop().create_unix_server
        self._server = await create(self._new_peer, sock=given, backlog=MOST_PEERS, **_KEEPING_FILE)

    def close(self) -> None:
        self._flush()
        if self._server is not None:
            self._server.close()
        for peer in list(self._peers):
            peer.close()
        if self._made is not None:
            _give_back(*self._made)

    # Peers.

    def _new_peer(self) -> Peer:
        return Peer(self._welcome, self._answer, self._left, self._supervisor.spawn)

    def _welcome(self, peer: Peer, transport: asyncio.BaseTransport) -> None:
        """Raises what the peer is turned away with."""
        if _uid_of(transport.get_extra_info("socket")) != os.getuid():
            raise AccessDenied("this socket is for its owner alone")
        if len(self._peers) >= MOST_PEERS:
            self._make_room()
        self._peers[peer] = None

    def _make_room(self) -> None:
        """A session whose programs only hold connections must not keep the others from reporting."""
        idle = next((peer for peer in self._peers if peer.waits), None)
        if idle is None:
            raise Busy(f"{MOST_PEERS} programs are connected already")
        del self._peers[idle]
        idle.leave(Busy("so many programs are connected that one which says nothing has to go"))

    def _left(self, peer: Peer) -> None:
        self._peers.pop(peer, None)
        self._subscribers.discard(peer)

    async def _answer(self, peer: Peer, line: bytes) -> None:
        request = _parsed(line)
        handlers: dict[Any, Callable[[Peer, dict[str, Any]], Any]] = {
            "subscribe": self._subscribe,
            "session.report": self._report,
            "session.resume": self._resume,
        }
        kind = request.get("type")
        handler = handlers.get(kind) if isinstance(kind, str) else None
        try:
            if handler is None:
                raise InvalidArgument(f"there is no request of type {kind!r}")
            await handler(peer, request)
        except AmuxError as error:
            peer.refuse(error)
        except StoreError as error:
            peer.refuse(not_written(f"it could not be written: {error}", error))

    async def _subscribe(self, peer: Peer, _request: dict[str, Any]) -> None:
        if len(self._subscribers) >= MOST_SUBSCRIBERS and peer not in self._subscribers:
            raise Busy(f"{MOST_SUBSCRIBERS} programs listen already")
        # What is not sent yet is in the present state that it gets.
        self._flush()
        lines = [_OK]
        for entry in sorted(self._supervisor.registry, key=lambda e: (e.session.created_at, e.id)):
            lines.append(encoded(_status(entry)))
            if entry.state.attention:
                lines.append(encoded(_attention(entry)))
        peer.send(b"".join(lines))
        if peer in self._peers:
            peer.stays = True
            self._subscribers.add(peer)

    async def _report(self, peer: Peer, request: dict[str, Any]) -> None:
        entry = self._session(request)
        kind, message = _text(request, "kind"), _text(request, "message", "")
        conversation = _text(request, "conversation", "")
        if kind not in attention.REPORTS:
            raise InvalidArgument(f"there is no kind {kind!r}: {', '.join(attention.REPORTS)}")
        run, store = entry.state.run, self._supervisor.store
        token = await self._supervisor.on_disk(store.token, entry.id, run)
        known = token and hmac.compare_digest(token.encode(), _text(request, "token").encode())
        concerns = known and (not conversation or await self._runs.homes.is_in(entry, conversation))
        if not known or entry.state.run != run:
            raise _not_its_token(entry)
        if entry.state.state is not State.RUNNING or entry.parked:
            state = "parked" if entry.parked else entry.state.state
            raise InvalidTransition(f"{entry.session.name} is {state}: nothing of it runs that could report")
        if kind == attention.CONVERSATION:
            if not await self._runs.homes.learn_conversation(entry, _conversation(entry, message), run):
                raise _not_its_token(entry)
        elif concerns:
            await self._runs.homes.attending.reported(entry, kind, message)
            if kind in attention.OF_A_TURN:
                await self._runs.homes.learn_said(entry, run)
        peer.send(_OK)

    async def _resume(self, peer: Peer, request: dict[str, Any]) -> None:
        await self._runs.resume(self._session(request))
        peer.send(_OK)

    def _session(self, request: dict[str, Any]) -> Entry:
        session_id = _text(request, "sessionId")
        entry = self._supervisor.registry.get(session_id)
        if entry is None:
            raise NoSuchSession(f"there is no session {session_id!r}")
        return entry

    # What is told.

    def appeared(self, entry: Entry) -> None:
        self._tell(_status(entry))

    def disappeared(self, entry: Entry) -> None:
        self._tell({"type": "session.removed", "sessionId": entry.id, "name": entry.session.name})

    def moved(self, entry: Entry, transition: Transition) -> None:
        told = {"status": transition.target.value, "reason": transition.reason, "run": transition.run}
        self._tell({**_status(entry), **told})

    def exited(self, entry: Entry) -> None:
        self._tell(_exit(entry))

    def changed(self, entry: Entry, *properties: str) -> None:
        """The socket tells of events alone; a front end that wants each property asks the bus."""

    def attention_changed(self, entry: Entry) -> None:
        self._tell(_attention(entry))

    def _tell(self, message: dict[str, Any]) -> None:
        if not self._subscribers:
            return
        if not self._lines:
            # After a quiet time at once; in a flood not each line by itself to each subscriber.
            due = self._flushed_at + PACE * len(self._subscribers)
            asyncio.get_running_loop().call_at(due, self._flush)
        self._lines.append(encoded(message))

    def _flush(self) -> None:
        data = b"".join(self._lines)
        self._lines.clear()
        if data:
            self._flushed_at = asyncio.get_running_loop().time()
            for peer in list(self._subscribers):
                peer.send(data)


def _status(entry: Entry) -> dict[str, Any]:
    state = entry.state
    return {
        "type": "session.status",
        "sessionId": entry.id,
        "name": entry.session.name,
        "status": state.state.value,
        "reason": state.reason,
        "run": state.run,
    }


def _exit(entry: Entry) -> dict[str, Any]:
    end = entry.certificate.end if entry.certificate else None
    return {
        "type": "terminal.exit",
        "sessionId": entry.id,
        "exitCode": end.code if end else None,
        "signal": end.signal if end else None,
    }


def _attention(entry: Entry) -> dict[str, Any]:
    return {
        "type": "session.attention",
        "sessionId": entry.id,
        "kind": entry.state.attention,
        "message": entry.state.attention_message,
    }


def encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


_OK = encoded({"type": "ok"})


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line.decode())
    except UnicodeDecodeError:
        raise Garbage("a line must be UTF-8") from None
    except (ValueError, RecursionError):
        raise Garbage("a line must be one JSON object") from None
    if not isinstance(request, dict):
        raise Garbage("a line must be one JSON object")
    return request


def _text(request: dict[str, Any], key: str, default: str | None = None) -> str:
    value = request.get(key, default)
    if not isinstance(value, str):
        raise InvalidArgument(f"{key} must be a text")
    # JSON can write down halves of characters that UTF-8 cannot.
    return value.encode(errors="replace").decode()


def _not_its_token(entry: Entry) -> AccessDenied:
    return AccessDenied(f"this token is not that of {entry.session.name}'s present run")


def _conversation(entry: Entry, message: str) -> str:
    if entry.agent is None:
        raise InvalidArgument(f"{entry.session.name} has no conversation: {entry.why_not_resumable}")
    # It becomes a word of a command line, and must not be taken for an option there.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}", message):
        raise InvalidArgument(f"{message!r:.200} is not the id of a conversation")
    return message


def _uid_of(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def activated_socket() -> socket.socket | None:
    """The one that systemd listened on until now; its variables are not for anybody else."""
    count, pid = os.environ.pop("LISTEN_FDS", "0"), os.environ.pop("LISTEN_PID", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or count != "1":
        return None
    os.set_inheritable(3, False)
    given = socket.socket(fileno=3)
    if given.family != socket.AF_UNIX or given.type != socket.SOCK_STREAM:
        logger.error("systemd passed a socket that is not the events socket: it is left alone")
        given.detach()
        return None
    return given


def _leads_to(path: Path, given: socket.socket) -> bool:
    """An amuxd that was run by hand, and killed, may have left another there; or somebody cleared up."""
    place = place_of_socket(given)
    if place is None:
        # The kernel does not tell: what is there is right as a rule.
        return path.exists()
    if place_of(path) != place and place_of(_aside(path)) == place:
        _aside(path).replace(path)
    return place_of(path) == place


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".aside")


def _bound(path: Path) -> socket.socket:
    """Only one amuxd at a time gets this far: what is there is a leftover, or systemd listens on it.

    Then it waits aside until this amuxd ends. The sessions know this path alone, and what they report has to
    reach the amuxd that runs, while systemd would only try to start another one for it.

    Private before it is listened on is soon enough; the umask is that of the threads as well.
    """
    if is_listened_at(path):
        path.replace(_aside(path))
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    path.chmod(0o600)
    return made


def _give_back(path: Path, own: Place | None) -> None:
    """Whoever connects from now on starts amuxd again, if systemd still listens on what waits aside."""
    aside = _aside(path)
    if place_of(path) == own:
        path.unlink(missing_ok=True)
    if is_listened_at(aside) and not is_listened_at(path):
        aside.replace(path)
    else:
        aside.unlink(missing_ok=True)
