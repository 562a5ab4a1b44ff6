"""Stands in for amuxd in the CLI's tests: the same bus name and objects, sessions in memory, ends on request.

A JSON file, $STANDIN_FILE, keeps the sessions over a restart and says how to misbehave.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    new_error,
    new_method_call,
    new_method_return,
    new_signal,
)
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from amuxd import __version__, addresses, states

ERROR = "org.amux.Amux1.Error."
CONTROL = "org.amux.Standin"
PROPERTIES = "org.freedesktop.DBus.Properties"
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"
SIGNATURES = {
    "Id": "s",
    "Name": "s",
    "Description": "s",
    "Agent": "s",
    "Host": "s",
    "Directory": "s",
    "Unit": "s",
    "LogPath": "s",
    "Command": "as",
    "Workspace": "o",
    "State": "s",
    "Reason": "s",
    "StateChangedUSec": "t",
    "CreatedUSec": "t",
    "StartedUSec": "t",
    "Run": "u",
    "Pid": "u",
    "Attached": "u",
    "ExitCode": "i",
    "ExitSignal": "s",
    "HowEnded": "s",
    "CoreDumped": "b",
    "OomKilled": "b",
    "Parked": "b",
    "Resumable": "b",
    "Unwritten": "s",
    "Possible": "as",
    "SessionAlive": "s",
    "HostAlive": "s",
    "Attention": "s",
    "AttentionMessage": "s",
    "LastActivityHash": "u",
    "LastActivityUSec": "t",
    "LastCheckedUSec": "t",
}
# What tmux does when its server has gone, or goes just then.
LATE = {"without server": "echo no server running on /x.sock >&2; exit 1", "without a word": "true"}
ENDED = ("stopped", "completed", "failed", "orphaned", "archived")


class Refusal(Exception):
    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name if "." in name else ERROR + name


def now() -> int:
    return time.time_ns() // 1000


def path_of(key: str) -> str:
    return f"{addresses.SESSIONS_PATH}/{key}"


class Standin:
    def __init__(self, connection: DBusConnection, file: Path) -> None:
        self.connection = connection
        self.file = file
        kept = json.loads(file.read_text()) if file.exists() else {}
        self.sessions: dict[str, dict[str, Any]] = kept.get("sessions", {})
        self.history: dict[str, list[list[Any]]] = kept.get("history", {})
        self.version: str = kept.get("version", __version__)
        self.silent: list[str] = kept.get("silent", [])
        self.unknown: list[str] = kept.get("unknown", [])
        # Members whose reply is kept back until it is released, and the calls that wait for that.
        self.held: list[str] = []
        self.waiting: list[Message] = []
        # How a session ends just before it is attached to.
        self.late = ""
        self.sent: list[Any] = []
        self.calls: list[str] = []

    def save(self) -> None:
        kept = {
            "sessions": self.sessions,
            "history": self.history,
            "version": self.version,
            "silent": self.silent,
            "unknown": self.unknown,
        }
        # Whole or not at all: the tests kill this at any moment.
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(kept))
        new.replace(self.file)

    def serve(self) -> None:
        bus = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        self.connection.send(new_method_call(bus, "RequestName", "su", (addresses.BUS_NAME, 4)), serial=1000)
        while True:
            # The call that had us started comes before the reply to our own.
            message = self.connection.receive()
            if message.header.fields.get(HeaderFields.reply_serial) == 1000:
                print("ready", flush=True)
            if message.header.message_type is MessageType.method_call:
                self.answer(message)

    def answer(self, message: Message) -> None:
        fields = message.header.fields
        member = fields[HeaderFields.member]
        self.calls.append(member)
        if member in self.silent:
            return
        if member in self.held:
            self.waiting.append(message)
            return
        self.reply(message)

    def reply(self, message: Message) -> None:
        fields = message.header.fields
        member, interface = fields[HeaderFields.member], fields.get(HeaderFields.interface, "")
        try:
            signature, body = self.handle(fields[HeaderFields.path], interface, member, message.body)
        except Refusal as refusal:
            self.connection.send(new_error(message, refusal.name, "s", (str(refusal),)))
            return
        self.save()
        self.connection.send(new_method_return(message, signature or None, body))

    def handle(
        self, path: str, interface: str, member: str, body: tuple[Any, ...]
    ) -> tuple[str, tuple[Any, ...]]:
        if member in self.unknown:
            raise Refusal("org.freedesktop.DBus.Error.UnknownMethod", f"no method {member}")
        if interface == CONTROL:
            return getattr(self, "control_" + member.lower())(*body) or ("", ())
        if interface == PROPERTIES and path == addresses.MANAGER_PATH:
            version = ("s", self.version)
            return ("a{sv}", ({"Version": version},)) if member == "GetAll" else ("v", (version,))
        if member == "Ping":
            return "", ()
        answer: tuple[str, tuple[Any, ...]]
        if path == addresses.MANAGER_PATH:
            answer = getattr(self, "manager_" + member.lower())(*body)
            return answer
        key = path.rpartition("/")[2]
        if key not in self.sessions:
            raise Refusal("org.freedesktop.DBus.Error.UnknownObject", f"no object {path}")
        if interface == PROPERTIES:
            return "a{sv}", (self.variants(self.sessions[key]),)
        answer = getattr(self, "session_" + member.lower())(self.sessions[key], *body)
        return answer

    @staticmethod
    def variants(session: dict[str, Any], only: list[str] | None = None) -> dict[str, tuple[str, Any]]:
        situation = states.Situation(states.State(session["State"]), 1, resumable=session["Resumable"])
        known = session | {"Possible": states.possible(situation)}
        return {name: (SIGNATURES[name], value) for name, value in known.items() if not only or name in only}

    def emit(self, member: str, signature: str, *body: Any) -> None:
        emitter = DBusAddress(addresses.MANAGER_PATH, interface=addresses.MANAGER_INTERFACE)
        self.connection.send(new_signal(emitter, member, signature, body))

    def move(self, session: dict[str, Any], new: str, reason: str, **changes: Any) -> None:
        old = session["State"]
        # As amuxd's are: one moment for both, and later than the one before.
        at = max(now(), session["StateChangedUSec"] + 1)
        session.update(changes, State=new, Reason=reason, StateChangedUSec=at)
        key, run = session["Id"], session["Run"]
        self.history.setdefault(key, []).append([at, run, old, new, reason, "standin"])
        self.save()
        self.emit("SessionStateChanged", "osssssu", path_of(key), key, session["Name"], old, new, reason, run)
        if new in ("completed", "failed", "stopped") and session["StartedUSec"]:
            end = (session["ExitCode"], session["ExitSignal"])
            self.emit("SessionExited", "ossisu", path_of(key), key, session["Name"], *end, run)

    # Manager

    def manager_createsession(
        self, command: list[str], options: dict[str, tuple[str, Any]]
    ) -> tuple[str, tuple[Any, ...]]:
        given = {name: value for name, (_, value) in options.items()}
        self.sent.append(["CreateSession", command, given])
        key = f"s{len(self.sessions) + 1:03}"
        name = given.get("name", command[0])
        if any(other["Name"] == name for other in self.sessions.values()):
            raise Refusal("NameTaken", f"{name!r} is taken")
        log = self.file.parent / key / "runs" / "1" / "output.log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"")
        session: dict[str, Any] = dict.fromkeys(SIGNATURES, "") | {
            name: 0 for name, code in SIGNATURES.items() if code in ("t", "u")
        }
        session |= dict.fromkeys(("CoreDumped", "OomKilled", "Parked", "Resumable"), False)
        session |= {
            "Id": key,
            "Name": name,
            "Description": given.get("description", ""),
            "Host": "local",
            "Directory": given.get("cwd", "/"),
            "LogPath": str(log),
            "Command": command,
            "Workspace": "/",
            "State": "created",
            "StateChangedUSec": now(),
            "CreatedUSec": now(),
            "Run": 1,
            "ExitCode": -1,
            "SessionAlive": "none",
            "HostAlive": "none",
        }
        self.sessions[key] = session
        added = {addresses.SESSION_INTERFACE: self.variants(session)}
        emitter = DBusAddress(addresses.MANAGER_PATH, interface=OBJECT_MANAGER)
        self.connection.send(new_signal(emitter, "InterfacesAdded", "oa{sa{sv}}", (path_of(key), added)))
        self.start(session)
        return "o", (path_of(key),)

    def start(self, session: dict[str, Any]) -> None:
        self.move(session, "starting", "asked to start", ExitCode=-1, ExitSignal="")
        command = session["Command"]
        if command[0] == "nope":
            self.move(session, "failed", "no such program: nope", HowEnded="could not start")
            return
        self.move(
            session, "running", "started", StartedUSec=now(), Pid=42, SessionAlive="alive", HostAlive="alive"
        )
        if command[0] == "exit":
            self.control_exit(session["Id"], int(command[1]), "")

    def manager_getsession(self, name: str) -> tuple[str, tuple[Any, ...]]:
        for key, session in self.sessions.items():
            if name in (key, session["Name"]):
                return "o", (path_of(key),)
        raise Refusal("NoSuchSession", f"there is no session {name!r}: did you mean 'build'?")

    def manager_listsessions(self, only: dict[str, tuple[str, Any]]) -> tuple[str, tuple[Any, ...]]:
        states = only.get("states", ("", None))[1]
        chosen = [
            session
            for session in self.sessions.values()
            if (session["State"] in states if states else True)
            and (session["State"] != "archived" or only.get("archived", ("b", False))[1])
        ]
        names = only.get("properties", ("", None))[1]
        return "a(oa{sv})", ([(path_of(s["Id"]), self.variants(s, names)) for s in chosen],)

    # Session

    def session_stop(self, session: dict[str, Any], options: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        if session["State"] != "running":
            raise Refusal("InvalidTransition", f"a {session['State']} session cannot be stopped")
        self.move(session, "stopped", "asked to stop", ExitSignal="SIGTERM", Pid=0)
        return "", ()

    def session_kill(self, session: dict[str, Any], signal: str) -> tuple[str, tuple[Any, ...]]:
        self.sent.append(["Kill", session["Id"], signal])
        return "", ()

    def session_restart(self, session: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        session["Run"] += 1
        self.start(session)
        return "", ()

    def session_archive(self, session: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        self.move(session, "archived", "asked to archive")
        return "", ()

    def session_remove(self, session: dict[str, Any], options: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        if session["State"] == "running" and not options["force"][1]:
            raise Refusal("InvalidTransition", "a running session is not removed: use rm -f")
        del self.sessions[session["Id"]]
        emitter = DBusAddress(addresses.MANAGER_PATH, interface=OBJECT_MANAGER)
        gone = (path_of(session["Id"]), [addresses.SESSION_INTERFACE])
        self.connection.send(new_signal(emitter, "InterfacesRemoved", "oas", gone))
        return "", ()

    def session_send(self, session: dict[str, Any], text: str, enter: bool) -> tuple[str, tuple[Any, ...]]:
        self.sent.append(["Send", session["Id"], text, enter])
        return "", ()

    def session_attachcommand(self, session: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        if self.late:
            self.control_exit(session["Id"], 3, "")
        if self.late == "refused":
            raise Refusal("InvalidTransition", f"{session['Name']} is failed, attach is not possible")
        command = LATE.get(self.late, f"echo attached to {session['Id']} tmux=$TMUX")
        return "as", (["sh", "-c", command],)

    def session_history(self, session: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        return "a(tussss)", ([tuple(row) for row in self.history[session["Id"]]],)

    def session_certificate(self, session: dict[str, Any], run: int) -> tuple[str, tuple[Any, ...]]:
        certificate = {
            "run": ("u", run),
            "known": ("b", True),
            "reason": ("s", session["Reason"]),
            "exit_code": ("i", session["ExitCode"]),
            "signal": ("s", session["ExitSignal"]),
            "ended_usec": ("t", session["StateChangedUSec"]),
            "last_lines": ("as", ["the last line\x1b[31m", "of all"]),
        }
        return "a{sv}", (certificate,)

    # What the tests ask for

    def control_exit(self, key: str, code: int, signal: str) -> None:
        reason = f"killed by {signal}" if signal else f"exited with code {code}"
        new = "failed" if code or signal else "completed"
        ended = {
            "ExitCode": code,
            "ExitSignal": signal,
            "Pid": 0,
            "SessionAlive": "dead",
            "HostAlive": "dead",
        }
        self.move(self.sessions[key], new, reason, **ended)

    def control_move(self, key: str, new: str, reason: str) -> None:
        self.move(self.sessions[key], new, reason)

    def control_set(self, key: str, changes: str) -> None:
        self.sessions[key].update(json.loads(changes))

    def control_attention(self, key: str, kind: str, message: str) -> None:
        session = self.sessions[key]
        session.update(Attention=kind, AttentionMessage=message)
        self.emit("AttentionChanged", "ossss", path_of(key), key, session["Name"], kind, message)

    def control_behave(self, settings: str) -> None:
        for name, value in json.loads(settings).items():
            setattr(self, name, value)

    def control_release(self) -> None:
        for message in self.waiting:
            self.reply(message)

    def control_sent(self) -> tuple[str, tuple[Any, ...]]:
        return "s", (json.dumps(self.sent),)

    def control_calls(self) -> tuple[str, tuple[Any, ...]]:
        return "as", (self.calls,)


def main() -> None:
    connection = open_dbus_connection()
    Standin(connection, Path(os.environ["STANDIN_FILE"])).serve()


if __name__ == "__main__":
    main()
