"""The manager, the sessions and the log control, as others see them on the bus."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from amuxd import __version__, conversations, journal, past
from amuxd.addresses import MANAGER_INTERFACE, MANAGER_PATH, SESSION_INTERFACE, SESSIONS_PATH
from amuxd.bus.interface import load, snake
from amuxd.bus.options import nothing_left, properties_from, session_from, take
from amuxd.bus.server import Server
from amuxd.bus.values import Typed
from amuxd.bus.workspaces import Shelf
from amuxd.bus.workspaces import path_of as path_of_workspace
from amuxd.cleaning import clean
from amuxd.errors import AmuxError, InvalidArgument, InvalidTransition
from amuxd.possible import possible
from amuxd.records import Certificate, Workspace
from amuxd.registry import Entry, UnreadableSession
from amuxd.runs import Runs
from amuxd.states import Liveness, State, Transition
from amuxd.terminals import Terminals
from amuxd.unreadable import Unreadables

# What changes nothing is answered to the last.
QUESTIONS = frozenset({"GetSession", "ListSessions", "History", "Certificate", "Capture", "AttachCommand"})
# Seconds between two words about how many sessions are in which state.
PACE = 0.1
LOG_CONTROL_PATH = "/org/freedesktop/LogControl1"

MANAGER = load(MANAGER_INTERFACE)
SESSION = load(SESSION_INTERFACE)
LOG_CONTROL = load("org.freedesktop.LogControl1")

# All that can differ after a transition that neither begins nor ends a run.
_STANDING = (
    *("State", "Reason", "StateChangedUSec", "Pid", "Parked", "ParkedUSec", "Resumable"),
    *("SessionAlive", "HostAlive", "Unwritten"),
)
# And after any.
_MOVING = (
    *_STANDING,
    *("StartedUSec", "Run", "LogPath", "Command", "LimitsNotEnforced", "EndedUSec", "EndedAfterUSec"),
    *("ExitCode", "ExitSignal", "HowEnded", "CoreDumped", "OomKilled"),
)


def path_of(session_id: str) -> str:
    return f"{SESSIONS_PATH}/{session_id}"


class Announcer:
    """Tells the bus what the supervisor did."""

    def __init__(self, server: Server, runs: Runs, terminals: Terminals) -> None:
        self._server = server
        self._runs = runs
        self._terminals = terminals
        self._totals_due: asyncio.TimerHandle | None = None
        self._totals_told = 0.0

    def appeared(self, entry: Entry) -> None:
        self._server.export(path_of(entry.id), SessionObject(self._runs, self._terminals, entry))
        self._totals()

    def disappeared(self, entry: Entry) -> None:
        self._server.unexport(path_of(entry.id))
        self._totals()

    def moved(self, entry: Entry, transition: Transition) -> None:
        path, session = path_of(entry.id), entry.session
        self._server.emit(
            *(MANAGER_PATH, MANAGER_INTERFACE, "SessionStateChanged", path, session.id, session.name),
            *(transition.source.value, transition.target.value, transition.reason, transition.run),
        )
        # A thousand of these are told before amuxd may go.
        self.changed(entry, *(_STANDING if transition.target is State.SUSPENDED else _MOVING))
        self._totals()

    def exited(self, entry: Entry) -> None:
        path, session = path_of(entry.id), entry.session
        code, signal = _code_and_signal(entry.certificate)
        self._server.emit(
            *(MANAGER_PATH, MANAGER_INTERFACE, "SessionExited", path, session.id, session.name),
            *(code, signal, entry.state.run),
        )

    def changed(self, entry: Entry, *properties: str) -> None:
        self._server.changed(path_of(entry.id), SESSION_INTERFACE, properties)

    def attention_changed(self, entry: Entry) -> None:
        path, session, state = path_of(entry.id), entry.session, entry.state
        self._server.emit(
            *(MANAGER_PATH, MANAGER_INTERFACE, "AttentionChanged", path, session.id, session.name),
            *(state.attention, state.attention_message),
        )
        self.changed(entry, "Attention", "AttentionMessage")
        self._server.changed(MANAGER_PATH, MANAGER_INTERFACE, ("Attention",))

    def configured(self) -> None:
        self._server.changed(MANAGER_PATH, MANAGER_INTERFACE, ("ConfigurationError",))

    def unreadable_changed(self, session: UnreadableSession) -> None:
        names = ("Reason", "Pid", "SessionAlive", "HostAlive")
        self._server.changed(path_of(session.id), SESSION_INTERFACE, names)

    def unreadable_disappeared(self, session: UnreadableSession) -> None:
        self._server.unexport(path_of(session.id))

    def _totals(self) -> None:
        """At once after a quiet time; in a flood not after each of all the transitions."""
        if self._totals_due is None:
            loop = asyncio.get_running_loop()
            self._totals_due = loop.call_at(self._totals_told + PACE, self._tell_totals)

    def _tell_totals(self) -> None:
        self._totals_due = None
        self._totals_told = asyncio.get_running_loop().time()
        self._server.changed(MANAGER_PATH, MANAGER_INTERFACE, ("Counts", "Badge"))


class ManagerObject:
    interface = MANAGER

    def __init__(
        self, runs: Runs, server: Server, shelf: Shelf, mode: str, reload: Callable[[], None]
    ) -> None:
        self._runs = runs
        self._shelf = shelf
        self._supervisor = runs.supervisor
        self._server = server
        self._mode = mode
        self._reload = reload

    def get_property(self, name: str) -> object:
        registry = self._supervisor.registry
        match name:
            case "Version":
                return __version__
            case "Mode":
                return self._mode
            case "Counts":
                return registry.counts()
            case "Badge":
                return registry.badge()
            case "Attention":
                return registry.attention()
            case "ConfigurationError":
                return self._runs.settings.error
        raise LookupError(name)

    async def create_session(self, command: list[str], options: dict[str, Any]) -> str:
        options = dict(options)
        start = take(options, "start", bool, True)
        name = take(options, "name", str, "")
        workspace = self._workspace_of(options)
        queue = take(options, "queue", bool, False)
        if queue and workspace is None:
            raise InvalidArgument("only a session with a workspace can wait for a slot")
        registry = self._supervisor.registry
        settings = self._runs.settings
        session = session_from(registry.new_id(), command, options, settings)
        if workspace is not None:
            session = replace(session, workspace_id=workspace.id, queue=queue)
            if start:
                await self._shelf.workspaces.refuse_displaced(workspace)
            if start and not queue:
                await self._shelf.workspaces.refuse_busy(workspace)
        promised = registry.promise_name(name, session.agent or command[0])
        try:
            session = replace(session, name=promised)
            entry = await self._supervisor.create(session, settings.agents.get(session.agent))
        finally:
            registry.forget_promise(promised)
        if start:
            await self._runs.start_new(entry)
        return path_of(entry.id)

    def _workspace_of(self, options: dict[str, Any]) -> Workspace | None:
        """The one that is asked for; the directory is then its own, or one in it."""
        name = take(options, "workspace", str, "")
        if not name:
            return None
        workspace = self._shelf.workspaces.find_readable(name)
        directory = os.path.normpath(Path(workspace.directory) / take(options, "cwd", str, ""))
        if not Path(directory).is_relative_to(workspace.directory):
            raise InvalidArgument(f"{directory} does not lie in the workspace {workspace.name}")
        options["cwd"] = directory
        return workspace

    async def add_workspace(self, name: str, options: dict[str, Any]) -> str:
        return await self._shelf.add(name, options)

    async def get_workspace(self, name: str) -> str:
        return path_of_workspace(self._shelf.workspaces.find(name))

    async def list_workspaces(self, filter: dict[str, Any]) -> list[tuple[str, object]]:
        return await self._shelf.list(filter)

    async def get_session(self, name: str) -> str:
        return path_of(self._supervisor.registry.find(name).id)

    def list_sessions(self, filter: dict[str, Any]) -> list[tuple[str, object]]:
        """At once: all that was told before the reply is in it, and nothing of what is told after it."""
        wanted = dict(filter)
        states = take(wanted, "states", list, [])
        archived = take(wanted, "archived", bool, False) or State.ARCHIVED in states
        word = take(wanted, "workspace", str, "")
        properties = properties_from(wanted, SESSION)
        nothing_left(wanted, "filter")
        for state in states:
            if state not in set(State):
                raise InvalidArgument(f"there is no state {state!r}")
        workspace = self._shelf.workspaces.find(word).id if word else ""
        registry = self._supervisor.registry
        chosen = [
            entry
            for entry in sorted(registry, key=lambda e: (e.session.created_at, e.id))
            if (not states or entry.state.state in states)
            and (archived or entry.state.state is not State.ARCHIVED)
            and (not workspace or entry.session.workspace_id == workspace)
        ]
        paths = [path_of(entry.id) for entry in chosen]
        if not states and not workspace:
            paths += [path_of(session_id) for session_id in registry.not_readable]
        return [(path, self._server.property_map(path, SESSION_INTERFACE, properties)) for path in paths]

    async def clean(self, options: dict[str, Any]) -> list[str]:
        options = dict(options)
        dry_run = take(options, "dry_run", bool, False)
        nothing_left(options, "option")
        # What is removed does not come back: what counts is what the file says now.
        with contextlib.suppress(AmuxError):
            self._reload()
        return await clean(self._runs, dry_run)

    async def reload(self) -> None:
        self._reload()
        await self._shelf.find_linked()


class SessionObject:
    interface = SESSION

    def __init__(self, runs: Runs, terminals: Terminals, entry: Entry) -> None:
        self._runs = runs
        self._terminals = terminals
        self._entry = entry

    def get_property(self, name: str) -> object:
        return _READERS[name](self._runs, self._entry)

    async def start(self) -> None:
        await self._runs.start(self._entry)

    async def stop(self, options: dict[str, Any]) -> None:
        await self._runs.stop(self._entry, _grace(options))

    async def kill(self, signal: str) -> None:
        await self._terminals.kill(self._entry, signal)

    async def restart(self) -> None:
        await self._runs.restart(self._entry)

    async def resume(self) -> None:
        await self._runs.resume(self._entry)

    async def park(self) -> None:
        await self._runs.parking.park(self._entry)

    async def archive(self) -> None:
        await self._runs.archive(self._entry)

    async def remove(self, options: dict[str, Any]) -> None:
        await self._runs.remove(self._entry, _force(options))

    async def send(self, text: str, enter: bool) -> None:
        await self._terminals.send(self._entry, text, enter)

    async def capture(self, lines: int) -> str:
        return await self._terminals.capture(self._entry, min(lines, 100_000))

    async def attach_command(self) -> list[str]:
        return await self._terminals.attach_command(self._entry)

    async def history(self) -> list[tuple[int, int, str, str, str, str]]:
        entries = await past.history(self._runs, self._entry)
        return [(e.at, e.run, (e.from_state or ""), e.to_state.value, e.reason, e.by) for e in entries]

    async def certificate(self, run: int) -> dict[str, Typed]:
        certificate = await past.certificate(self._runs, self._entry, run)
        if certificate is None:
            raise InvalidArgument(_why_no_certificate(self._entry, run))
        end = certificate.end
        log = self._runs.supervisor.store.log(self._entry.id, certificate.run)
        told = {
            "run": Typed("u", certificate.run),
            "known": Typed("b", end.known),
            "reason": Typed("s", certificate.reason),
            "exit_code": Typed("i", -1 if end.code is None else end.code),
            "signal": Typed("s", end.signal or ""),
            "oom_killed": Typed("b", end.out_of_memory),
            "ended_usec": Typed("t", certificate.ended_at),
            "ended_after_usec": Typed("t", certificate.ended_after),
            "log_path": Typed("s", str(log)),
            "last_lines": Typed("as", certificate.last_lines),
            "conversation": Typed("s", certificate.conversation_id),
        }
        if end.core_dumped is not None:
            told["core_dumped"] = Typed("b", end.core_dumped)
        return told


class NotReadableObject:
    """A session whose files this amuxd cannot read: shown and ended as far as that goes without them."""

    interface = SESSION

    def __init__(self, runs: Runs, unreadables: Unreadables, session: UnreadableSession) -> None:
        self._runs = runs
        self._unreadables = unreadables
        self._session = session

    def get_property(self, name: str) -> object:
        session, readable = self._session, self._session.session
        known: dict[str, object] = {
            "Id": session.id,
            "Name": session.name,
            "Unit": self._unreadables.host.unit(session.id),
            "State": "unknown",
            "Reason": f"not readable: {session.reason}",
            "Workspace": "/",
            "Run": session.run,
            "LogPath": str(self._unreadables.store.log(session.id, session.run)) if session.run else "",
            "Pid": session.home.command.pid
            if session.home and session.session_alive is Liveness.ALIVE
            else 0,
            "ExitCode": -1,
            # Its files are only put aside with force, which is not for everybody.
            "Possible": [] if session.host_alive is Liveness.DEAD else ["stop"],
            "SessionAlive": session.session_alive.value,
            "HostAlive": session.host_alive.value,
        }
        if readable is not None:
            known |= {
                "Description": readable.description,
                "Agent": readable.agent,
                "Host": readable.host.value,
                "Directory": readable.directory,
                "Command": readable.command,
                "CreatedUSec": readable.created_at,
            }
        empty: dict[str, object] = {"s": "", "as": [], "b": False}
        return known[name] if name in known else empty.get(SESSION.properties[name].type, 0)

    async def stop(self, options: dict[str, Any]) -> None:
        grace = _grace(options)
        usual = self._runs.settings.stop_grace
        await self._unreadables.stop(self._session, usual if grace is None else grace)

    async def kill(self, signal: str) -> None:
        await self._unreadables.kill(self._session, signal)

    async def remove(self, options: dict[str, Any]) -> None:
        await self._unreadables.remove(self._session, _force(options))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in {snake(member) for member in SESSION.methods}:
            raise AttributeError(name)

        async def refuse(*arguments: object) -> None:
            raise InvalidTransition(
                f"{self._session.name} cannot be read, and so nothing of it is changed: {self._session.why}"
            )

        return refuse


def _grace(options: dict[str, Any]) -> float | None:
    options = dict(options)
    grace: float | None = take(options, "grace", float, None)
    nothing_left(options, "option")
    if grace is not None and not 0 <= grace < 1e6:
        raise InvalidArgument(f"a grace cannot be {grace}")
    return grace


def _force(options: dict[str, Any]) -> bool:
    options = dict(options)
    force: bool = take(options, "force", bool, False)
    nothing_left(options, "option")
    return force


class LogControl:
    interface = LOG_CONTROL

    def __init__(self, log: journal.Log) -> None:
        self._log = log

    def get_property(self, name: str) -> object:
        return {
            "LogLevel": self._log.level,
            "LogTarget": self._log.target,
            "SyslogIdentifier": journal.IDENTIFIER,
        }[name]

    def set_log_level(self, level: str) -> None:
        if level not in journal.LEVELS:
            raise InvalidArgument(f"there is no log level {level!r}")
        self._log.level = level
        self._log.apply()

    def set_log_target(self, target: str) -> None:
        if target not in journal.TARGETS:
            raise InvalidArgument(f"there is no log target {target!r}: {', '.join(journal.TARGETS)}")
        self._log.target = target
        self._log.apply()


def _why_no_certificate(entry: Entry, run: int) -> str:
    name, latest = entry.session.name, entry.state.run
    if not run:
        return f"no run of {name} has ended yet"
    if run > latest:
        return f"there is no run {run} of {name}: the latest is run {latest}"
    return (
        f"run {run} of {name} has not ended"
        if run == latest
        else f"how run {run} of {name} ended is not kept"
    )


def _code_and_signal(certificate: Certificate | None) -> tuple[int, str]:
    if certificate is None:
        return -1, ""
    end = certificate.end
    return (-1 if end.code is None else end.code), end.signal or ""


_READERS: Mapping[str, Callable[[Runs, Entry], object]] = {
    "Id": lambda _, e: e.id,
    "Name": lambda _, e: e.session.name,
    "Description": lambda _, e: e.session.description,
    "Agent": lambda _, e: e.session.agent,
    "Host": lambda _, e: e.session.host.value,
    "Directory": lambda _, e: e.session.directory,
    "Unit": lambda r, e: r.host.unit(e.id),
    "LogPath": lambda r, e: str(r.supervisor.store.log(e.id, e.state.run)),
    "Command": lambda _, e: conversations.command(e),
    "Workspace": lambda r, e: path_of_workspace(r.places.shown_of(e)),
    "WorkspaceName": lambda r, e: workspace.name if (workspace := r.places.shown_of(e)) else "",
    "State": lambda _, e: e.state.state.value,
    "Reason": lambda _, e: e.state.reason,
    "Unwritten": lambda _, e: e.why_unwritten,
    "StateChangedUSec": lambda _, e: e.state.state_changed_at,
    "CreatedUSec": lambda _, e: e.session.created_at,
    "StartedUSec": lambda _, e: e.state.started_at,
    "EndedUSec": lambda _, e: e.certificate.ended_at if e.certificate else 0,
    "EndedAfterUSec": lambda _, e: e.certificate.ended_after if e.certificate else 0,
    "Run": lambda _, e: e.state.run,
    "Pid": lambda _, e: e.home.command.pid if e.home and not e.ended.is_set() else 0,
    "Attached": lambda _, e: e.attached,
    "ExitCode": lambda _, e: _code_and_signal(e.certificate)[0],
    "ExitSignal": lambda _, e: _code_and_signal(e.certificate)[1],
    "HowEnded": lambda _, e: e.how_ended,
    "CoreDumped": lambda _, e: bool(e.certificate and e.certificate.end.core_dumped),
    "OomKilled": lambda _, e: bool(e.certificate and e.certificate.end.out_of_memory),
    "Parked": lambda _, e: e.parked,
    "ParkedUSec": lambda _, e: e.state.parked_at if e.parked else 0,
    "Resumable": lambda _, e: e.resumable,
    "Possible": lambda _, e: possible(e),
    "WhyNotResumable": lambda _, e: e.why_not_resumable or e.lost,
    "WhyNotByItself": lambda _, e: e.why_not_by_itself,
    "IdleAfterUSec": lambda r, e: int(r.settings.idle_after_of(e.agent) * 1e6),
    "SessionAlive": lambda _, e: e.session_alive.value,
    "HostAlive": lambda _, e: e.host_alive.value,
    "LimitsNotEnforced": lambda _, e: (e.home or e.state).not_enforced,
    "Attention": lambda _, e: e.state.attention,
    "AttentionMessage": lambda _, e: e.state.attention_message,
    "LastActivityHash": lambda _, e: e.activity_hash,
    "ShellOpen": lambda _, e: e.shell_open,
    "Frozen": lambda r, e: e.home is not None and r.host.is_frozen(e.home),
    "LastActivityUSec": lambda _, e: e.activity_at,
    "LastCheckedUSec": lambda _, e: e.checked_at,
}
