"""The manager, the sessions and the log control, as others see them on the bus."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from amuxd import __version__, journal
from amuxd.bus.interface import load, snake
from amuxd.bus.server import Server
from amuxd.bus.values import Typed
from amuxd.errors import InvalidArgument, InvalidTransition
from amuxd.paths import MANAGER_INTERFACE, MANAGER_PATH, SESSION_INTERFACE, SESSIONS_PATH
from amuxd.records import Certificate, Limits, ResumePolicy, Session
from amuxd.registry import Entry, NotReadable
from amuxd.states import ENDED, State, Transition
from amuxd.supervisor import Supervisor, now

LOG_CONTROL_PATH = "/org/freedesktop/LogControl1"

MANAGER = load(MANAGER_INTERFACE)
SESSION = load(SESSION_INTERFACE)
LOG_CONTROL = load("org.freedesktop.LogControl1")

# All that can differ after a transition.
_MOVING = (
    *(
        "State",
        "Reason",
        "StateChangedUSec",
        "StartedUSec",
        "Run",
        "Pid",
        "LogPath",
        "ExitCode",
        "ExitSignal",
    ),
    *("CoreDumped", "OomKilled", "Parked", "Resumable", "SessionAlive", "HostAlive", "Attention"),
)


def path_of(session_id: str) -> str:
    return f"{SESSIONS_PATH}/{session_id}"


class Announcer:
    """Tells the bus what the supervisor did."""

    def __init__(self, server: Server, supervisor: Supervisor) -> None:
        self._server = server
        self._supervisor = supervisor

    def appeared(self, entry: Entry) -> None:
        self._server.export(path_of(entry.id), SessionObject(self._supervisor, entry))
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
        if transition.target in ENDED:
            code, signal = _code_and_signal(entry.certificate)
            self._server.emit(
                *(MANAGER_PATH, MANAGER_INTERFACE, "SessionExited", path, session.id, session.name),
                *(code, signal, transition.run),
            )
        self.changed(entry, *_MOVING)
        self._totals()

    def changed(self, entry: Entry, *properties: str) -> None:
        self._server.changed(path_of(entry.id), SESSION_INTERFACE, properties)

    def _totals(self) -> None:
        self._server.changed(MANAGER_PATH, MANAGER_INTERFACE, ("Counts", "Badge"))


class ManagerObject:
    interface = MANAGER

    def __init__(self, supervisor: Supervisor, server: Server, mode: str, reload: Callable[[], None]) -> None:
        self._supervisor = supervisor
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
        raise LookupError(name)

    async def create_session(self, command: list[str], options: dict[str, Any]) -> str:
        options = dict(options)
        start = _take(options, "start", bool, True)
        name = _take(options, "name", str, "")
        registry = self._supervisor.registry
        session = _session(registry.new_id(), command, options)
        promised = registry.promise_name(name, command[0])
        try:
            entry = await self._supervisor.create(replace(session, name=promised))
        finally:
            registry.forget_promise(promised)
        if start:
            await self._supervisor.start(entry)
        return path_of(entry.id)

    async def get_session(self, name: str) -> str:
        return path_of(self._supervisor.registry.find(name).id)

    async def list_sessions(self, filter: dict[str, Any]) -> list[tuple[str, object]]:
        wanted = dict(filter)
        states = _take(wanted, "states", list, [])
        archived = _take(wanted, "archived", bool, False) or State.ARCHIVED in states
        workspace = _take(wanted, "workspace", str, "")
        properties = _take(wanted, "properties", list, None)
        _nothing_left(wanted, "filter")
        for state in states:
            if state not in set(State):
                raise InvalidArgument(f"there is no state {state!r}")
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

    async def reload(self) -> None:
        self._reload()


class SessionObject:
    interface = SESSION

    def __init__(self, supervisor: Supervisor, entry: Entry) -> None:
        self._supervisor = supervisor
        self._entry = entry

    def get_property(self, name: str) -> object:
        return _READERS[name](self._supervisor, self._entry)

    async def start(self) -> None:
        await self._supervisor.start(self._entry)

    async def stop(self, options: dict[str, Any]) -> None:
        options = dict(options)
        grace = _take(options, "grace", float, None)
        _nothing_left(options, "option")
        if grace is not None and not 0 <= grace < 1e6:
            raise InvalidArgument(f"a grace cannot be {grace}")
        await self._supervisor.stop(self._entry, grace)

    async def kill(self, signal: str) -> None:
        self._supervisor.kill(self._entry, signal)

    async def restart(self) -> None:
        await self._supervisor.restart(self._entry)

    async def archive(self) -> None:
        await self._supervisor.archive(self._entry)

    async def remove(self, options: dict[str, Any]) -> None:
        options = dict(options)
        force = _take(options, "force", bool, False)
        _nothing_left(options, "option")
        await self._supervisor.remove(self._entry, force)

    async def send(self, text: str, enter: bool) -> None:
        await self._supervisor.send(self._entry, text, enter)

    async def capture(self, lines: int) -> str:
        return await self._supervisor.capture(self._entry, min(lines, 100_000))

    async def attach_command(self) -> list[str]:
        return self._supervisor.attach_command(self._entry)

    async def history(self) -> list[tuple[int, int, str, str, str, str]]:
        entries = await self._supervisor.on_disk(self._supervisor.store.history, self._entry.id)
        return [(e.at, e.run, (e.from_state or ""), e.to_state.value, e.reason, e.by) for e in entries]

    async def certificate(self, run: int) -> dict[str, Typed]:
        certificate = await self._supervisor.certificate(self._entry, run)
        if certificate is None:
            which = f"run {run}" if run else "no run"
            verb = "has not ended" if run else "has ended yet"
            raise InvalidArgument(f"{which} of {self._entry.session.name} {verb}")
        end = certificate.end
        log = self._supervisor.store.log(self._entry.id, certificate.run)
        told = {
            "run": Typed("u", certificate.run),
            "known": Typed("b", end.known),
            "reason": Typed("s", certificate.reason),
            "exit_code": Typed("i", -1 if end.code is None else end.code),
            "signal": Typed("s", end.signal or ""),
            "oom_killed": Typed("b", end.out_of_memory),
            "ended_usec": Typed("t", certificate.ended_at),
            "log_path": Typed("s", str(log)),
            "last_lines": Typed("as", certificate.last_lines),
        }
        if end.core_dumped is not None:
            told["core_dumped"] = Typed("b", end.core_dumped)
        return told


class NotReadableObject:
    """A session whose files this amuxd cannot read: it is shown, and everything else is refused."""

    interface = SESSION

    def __init__(self, session: NotReadable) -> None:
        self._session = session

    def get_property(self, name: str) -> object:
        known: dict[str, object] = {
            "Id": self._session.id,
            "Name": self._session.name,
            "State": "unknown",
            "Reason": f"not readable: {self._session.why}",
            "Workspace": "/",
            "ExitCode": -1,
            "SessionAlive": "unknown",
            "HostAlive": "unknown",
        }
        empty: dict[str, object] = {"s": "", "as": [], "b": False}
        return known[name] if name in known else empty.get(SESSION.properties[name].type, 0)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in {snake(member) for member in SESSION.methods}:
            raise AttributeError(name)

        async def refuse(*arguments: object) -> None:
            raise InvalidTransition(
                f"{self._session.name} cannot be read, and so nothing of it is changed: {self._session.why}"
            )

        return refuse


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


def _code_and_signal(certificate: Certificate | None) -> tuple[int, str]:
    if certificate is None:
        return -1, ""
    end = certificate.end
    return (-1 if end.code is None else end.code), end.signal or ""


_READERS: Mapping[str, Callable[[Supervisor, Entry], object]] = {
    "Id": lambda _, e: e.id,
    "Name": lambda _, e: e.session.name,
    "Description": lambda _, e: e.session.description,
    "Agent": lambda _, e: e.session.agent,
    "Host": lambda _, e: e.session.host.value,
    "Directory": lambda _, e: e.session.directory,
    "Unit": lambda s, e: s.host.unit(e.id),
    "LogPath": lambda s, e: str(s.store.log(e.id, e.state.run)),
    "Command": lambda _, e: e.session.command,
    "Workspace": lambda _, e: "/",
    "State": lambda _, e: e.state.state.value,
    "Reason": lambda _, e: e.state.reason,
    "StateChangedUSec": lambda _, e: e.state.state_changed_at,
    "CreatedUSec": lambda _, e: e.session.created_at,
    "StartedUSec": lambda _, e: e.state.started_at,
    "Run": lambda _, e: e.state.run,
    "Pid": lambda _, e: e.home.command.pid if e.home and not e.ended.is_set() else 0,
    "Attached": lambda _, e: e.attached,
    "ExitCode": lambda _, e: _code_and_signal(e.certificate)[0],
    "ExitSignal": lambda _, e: _code_and_signal(e.certificate)[1],
    "CoreDumped": lambda _, e: bool(e.certificate and e.certificate.end.core_dumped),
    "OomKilled": lambda _, e: bool(e.certificate and e.certificate.end.out_of_memory),
    "Parked": lambda _, e: e.state.parked,
    "Resumable": lambda _, e: False,
    "SessionAlive": lambda _, e: e.session_alive.value,
    "HostAlive": lambda _, e: e.host_alive.value,
    "Attention": lambda _, e: e.state.attention,
    "AttentionMessage": lambda _, e: e.state.attention_message,
    "LastActivityHash": lambda _, e: e.activity_hash,
    "LastActivityUSec": lambda _, e: e.activity_at,
    "LastCheckedUSec": lambda _, e: e.checked_at,
}


def _take(options: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    if name not in options:
        return default
    value = options.pop(name)
    if kind is float and isinstance(value, int):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidArgument(f"{name} cannot be {value!r}")
    return value


def _nothing_left(options: dict[str, Any], what: str) -> None:
    if options:
        raise InvalidArgument(f"there is no {what} {next(iter(options))!r}")


def _session(session_id: str, command: Sequence[str], options: dict[str, Any]) -> Session:
    """What was asked for, or InvalidArgument before anything exists."""
    if not command or not command[0]:
        raise InvalidArgument("a session needs a command")
    if any("\0" in word for word in command):
        raise InvalidArgument("a command cannot hold NUL")
    directory = _take(options, "cwd", str, "") or str(Path.home())
    if not directory.startswith("/"):
        raise InvalidArgument(f"the directory must be absolute, and {directory!r} is not")
    if _take(options, "host", str, "local") != "local":
        raise InvalidArgument("there is no host but local")
    if agent := _take(options, "agent", str, ""):
        raise InvalidArgument(f"there is no agent {agent!r}")
    resume = _take(options, "resume", str, "manual")
    if resume not in set(ResumePolicy):
        raise InvalidArgument(f"resume must be manual or auto, not {resume!r}")
    session = Session(
        id=session_id,
        name="",
        command=list(command),
        directory=os.path.normpath(directory),
        created_at=now(),
        description=_take(options, "description", str, ""),
        shell=_take(options, "shell", bool, False),
        resume=ResumePolicy(resume),
        environment=_environment(_take(options, "env", dict, {})),
        limits=_limits(options),
    )
    _nothing_left(options, "option")
    return session


def _environment(environment: dict[str, str]) -> dict[str, str]:
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + str(value):
            raise InvalidArgument(f"{name!r} cannot be the name of a variable")
    return environment


def _limits(options: dict[str, Any]) -> Limits:
    limits = Limits(
        memory_max=_take(options, "memory_max", int, None),
        memory_high=_take(options, "memory_high", int, None),
        cpu_quota=_take(options, "cpu_quota", int, None),
        cpu_weight=_take(options, "cpu_weight", int, None),
        tasks_max=_take(options, "tasks_max", int, None),
    )
    if limits.cpu_weight is not None and not 1 <= limits.cpu_weight <= 10_000:
        raise InvalidArgument(f"cpu_weight must be from 1 to 10000, not {limits.cpu_weight}")
    for name in ("memory_max", "memory_high", "cpu_quota", "tasks_max"):
        if getattr(limits, name) == 0:
            raise InvalidArgument(f"{name} must be more than 0")
    return limits

