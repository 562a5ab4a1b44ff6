"""Sessions as transient units of the user's systemd, never as children of amuxd."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amuxd.bus.connection import Bus, BusError, Match, Signal, Subscription
from amuxd.bus.values import Typed
from amuxd.hosts import LaunchRefused, ServerEnd, StopRefused, cgroups
from amuxd.records import Limits, Process, Session
from amuxd.signal_names import signal_name

logger = logging.getLogger(__name__)

SYSTEMD = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = SYSTEMD + ".Manager"
UNIT = SYSTEMD + ".Unit"
SERVICE = SYSTEMD + ".Service"
PROPERTIES = "org.freedesktop.DBus.Properties"

CALL_DEADLINE = 25.0
JOB_DEADLINE = 30.0
# Its answer comes when the kernel has let the last process go.
THAW_DEADLINE = 5.0
# Time for what is left of a session to end by itself, after its command had its own grace.
LEFTOVERS_GRACE = 5.0

OUT_OF_MEMORY = "oom-kill"

_UNIT = re.compile(r"amux-([a-z0-9]+)\.service")
_DESCRIPTION = "amux session "
_ENDED = {"inactive", "failed"}
_CLD_EXITED = 1


@dataclass
class _Seen:
    """What systemd has told of a unit since it was watched."""

    result: str = ""
    code: int = 0
    status: int = 0
    stopped: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    subscription: Subscription | None = None


class Units:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._jobs: dict[str, asyncio.Future[str]] = {}
        self._finished: dict[str, str] = {}
        self._seen: dict[str, _Seen] = {}

    async def begin(self) -> None:
        await self._bus.add_match(
            Match(sender=SYSTEMD, path=PATH, interface=MANAGER, member="JobRemoved"), self._job_removed
        )
        await self._call("Subscribe")

    def unit(self, session_id: str) -> str:
        return f"amux-{session_id}.service"

    async def start(
        self, session: Session, server: Sequence[str], pid_file: Path, environment: Mapping[str, str]
    ) -> None:
        unit = self.unit(session.id)
        properties: list[list[Any]] = [
            ["Description", Typed("s", _DESCRIPTION + _printable(session.name))],
            ["Slice", Typed("s", "amux.slice")],
            ["Type", Typed("s", "forking")],
            ["ExecStart", Typed("a(sasb)", [[server[0], list(server), False]])],
            # A daemon forks twice. While the first process of the two still ends, systemd would take that
            # for the daemon, and end the unit with it.
            ["PIDFile", Typed("s", str(pid_file))],
            ["Environment", Typed("as", [f"{name}={value}" for name, value in environment.items()])],
            # One process killed for memory must not end the others.
            ["OOMPolicy", Typed("s", "continue")],
            ["CollectMode", Typed("s", "inactive-or-failed")],
            # amuxd is ordered after it, and must not wait long for one that hangs as it begins.
            ["TimeoutStartUSec", Typed("t", int(JOB_DEADLINE * 1e6))],
            ["TimeoutStopUSec", Typed("t", int(LEFTOVERS_GRACE * 1e6))],
            ["SendSIGHUP", Typed("b", True)],
            # At shutdown amuxd is stopped first and marks the sessions suspended; only then do they end.
            ["Before", Typed("as", ["amuxd.service"])],
            *_limits(session),
        ]
        await self._watch(unit)
        try:
            result = await self._job("StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", properties, [])
        except BusError as error:
            if not error.name.endswith(".UnitExists"):
                raise LaunchRefused(f"systemd refused its unit: {error.message}") from error
            await self.stop(session.id)
            await self._watch(unit)
            result = await self._job("StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", properties, [])
        if result != "done":
            seen = self._seen.get(unit)
            told = seen.result if seen else ""
            raise LaunchRefused(f"its terminal server did not start ({told or result})")

    async def inherited(self) -> dict[str, str]:
        try:
            [variables] = await self._bus.call(
                SYSTEMD, PATH, PROPERTIES, "Get", "ss", (MANAGER, "Environment"), timeout=CALL_DEADLINE
            )
        except BusError as error:
            raise LaunchRefused(f"systemd does not tell its environment: {error.message}") from error
        return dict(variable.split("=", 1) for variable in variables)

    def not_enforced(self, limits: Limits, server: Process) -> list[str]:
        return cgroups.not_enforced(limits, server)

    async def stop(self, session_id: str) -> None:
        unit = self.unit(session_id)
        try:
            result = await self._job("StopUnit", "ss", unit, "replace")
            if result != "done":
                raise StopRefused(f"{unit} does not end ({result})")
        except BusError as error:
            if not error.name.endswith(".NoSuchUnit"):
                raise
        self._forget(unit)

    async def kill(self, session_id: str) -> None:
        try:
            await self._call("KillUnit", "ssi", self.unit(session_id), "all", 9)
        except BusError as error:
            if not error.name.endswith(".NoSuchUnit"):
                raise

    async def standing(self) -> dict[str, str]:
        [units] = await self._call("ListUnitsByPatterns", "asas", [], [self.unit("*")])
        # Nobody else's unit that happens to be named like one.
        return {
            named[1]: description.removeprefix(_DESCRIPTION)
            for unit, description, *_ in units
            if (named := _UNIT.fullmatch(unit)) and description.startswith(_DESCRIPTION)
        }

    async def thaw(self, session_id: str) -> None:
        try:
            # Of what is not frozen nothing comes.
            await self._call("ThawUnit", "s", self.unit(session_id), patience=THAW_DEADLINE)
        except BusError as error:
            logger.warning("%s cannot be thawed: %s", self.unit(session_id), error.message)

    async def members(self, session_id: str) -> list[int]:
        try:
            [processes] = await self._call("GetUnitProcesses", "s", self.unit(session_id))
        except BusError as error:
            if error.name.endswith(".NoSuchUnit"):
                return []
            raise
        return [process[1] for process in processes]

    async def is_ending(self, session_id: str) -> bool:
        return await self._told(session_id, UNIT, "ActiveState", "inactive") in {*_ENDED, "deactivating"}

    async def ran_out_of_memory(self, session_id: str) -> bool:
        return await self._told(session_id, SERVICE, "Result", "") == OUT_OF_MEMORY

    async def _told(self, session_id: str, interface: str, name: str, of_none: str) -> str:
        """A property of the unit, or what stands for it where there is none; empty: systemd does not tell."""
        try:
            path = _path_of(self.unit(session_id))
            (value,) = await self._bus.call(SYSTEMD, path, PROPERTIES, "Get", "ss", (interface, name))
        except BusError as error:
            return of_none if error.name.endswith((".NoSuchUnit", ".UnknownObject")) else ""
        return str(value)

    async def server_end(self, session_id: str) -> ServerEnd:
        seen = self._seen.get(self.unit(session_id))
        if seen is None:
            return ServerEnd("")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEFTOVERS_GRACE * 2):
                await seen.over.wait()
        if seen.result == OUT_OF_MEMORY:
            return ServerEnd(out_of_memory=True)
        if seen.stopped:
            return ServerEnd(unit_stopped=True)
        if seen.code == 0:
            return ServerEnd("")
        if seen.code == _CLD_EXITED:
            return ServerEnd(f"it exited with code {seen.status}")
        return ServerEnd(signal_name(seen.status))

    async def _watch(self, unit: str) -> None:
        self._forget(unit)
        seen = self._seen[unit] = _Seen()

        def told(message: Signal) -> None:
            changed = message.body[1]
            seen.result = changed.get("Result", seen.result)
            seen.code = changed.get("ExecMainCode", seen.code)
            seen.status = changed.get("ExecMainStatus", seen.status)
            state, job = changed.get("ActiveState"), changed.get("Job", (0,))[0]
            if state in _ENDED and not job:
                seen.over.set()
            elif state:
                # It begins inactive, too.
                seen.over.clear()
            if state == "deactivating" and job:
                seen.stopped = True

        seen.subscription = await self._bus.add_match(_changes_of(unit), told)

    async def watch(self, session_id: str) -> None:
        await self._watch(self.unit(session_id))

    def _forget(self, unit: str) -> None:
        seen = self._seen.pop(unit, None)
        if seen is None:
            return
        # Nothing more is heard of it by whoever waits for its end.
        seen.over.set()
        if seen.subscription:
            self._bus.remove_match(seen.subscription)

    async def _call(
        self, member: str, signature: str = "", *body: object, patience: float = CALL_DEADLINE
    ) -> list[Any]:
        return await self._bus.call(SYSTEMD, PATH, MANAGER, member, signature, body, timeout=patience)

    async def _job(self, member: str, signature: str, *body: Any) -> str:
        """The match for JobRemoved stands already: a job may be over before its reply is read."""
        path: str = (await self._call(member, signature, *body))[0]
        if path in self._finished:
            return self._finished.pop(path)
        # systemd answers who asks for the same once more with the job that there is.
        job = self._jobs.setdefault(path, asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(JOB_DEADLINE):
                return await asyncio.shield(job)
        except TimeoutError:
            return "timeout"
        finally:
            self._jobs.pop(path, None)

    def _job_removed(self, message: Signal) -> None:
        path, unit, result = (str(word) for word in message.body[1:4])
        if not _UNIT.fullmatch(unit):
            return
        job = self._jobs.get(path)
        if job is None:
            self._finished[path] = result
            while len(self._finished) > 100:
                self._finished.pop(next(iter(self._finished)))
        elif not job.done():
            job.set_result(result)


def _path_of(unit: str) -> str:
    escaped = "".join(c if c.isalnum() else f"_{ord(c):02x}" for c in unit)
    return f"{PATH}/unit/{escaped}"


def _changes_of(unit: str) -> Match:
    return Match(sender=SYSTEMD, path=_path_of(unit), interface=PROPERTIES, member="PropertiesChanged")


def _limits(session: Session) -> list[list[Any]]:
    limits = session.limits
    wanted = {
        "MemoryMax": limits.memory_max,
        "MemoryHigh": limits.memory_high,
        "CPUWeight": limits.cpu_weight,
        "TasksMax": limits.tasks_max,
        "CPUQuotaPerSecUSec": limits.cpu_quota and limits.cpu_quota * 10_000,
    }
    return [[name, Typed("t", value)] for name, value in wanted.items() if value is not None]


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)
