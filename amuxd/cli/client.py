"""amuxd as the commands see it: finds the bus, calls, and tells what happens."""

import contextlib
import os
import select
from collections.abc import Iterator
from math import inf
from time import monotonic, time
from typing import Any, cast

from jeepney import DBusAddress

from amuxd import __version__, addresses
from amuxd.cli import failures, reader
from amuxd.cli.connection import BUS, Connection, Signal, socket_paths
from amuxd.cli.failures import NotStarted, RemoteError, Unanswered, Unreachable

Properties = dict[str, Any]

ORDINARY = 10.0
# Without an answer for so long, and ever again when twice the time has passed, systemd is asked about amuxd.
_PATIENCE = 0.5
# However little time is left, amuxd gets so much for an answer.
_LEAST = 1.0
# The same while it is away and somebody waits for what it will tell.
_AWAY = 2.0
# Whoever starts or stops something waits for a program that has its own idea of time: after so long without a
# reply amuxd is asked whether it is there.
LONG = 120.0
# After so long it is said what is waited for, where somebody knows.
_UNTOLD = 5.0

MANAGER = DBusAddress(addresses.MANAGER_PATH, addresses.BUS_NAME, addresses.MANAGER_INTERFACE)
_PEER = DBusAddress(addresses.MANAGER_PATH, addresses.BUS_NAME, "org.freedesktop.DBus.Peer")
PROPERTIES_INTERFACE = "org.freedesktop.DBus.Properties"

# Calls that change nothing may be made twice.
_ONLY_ASK = frozenset(
    {
        *("Ping", "GetAll", "GetSession", "ListSessions", "History", "Certificate", "AttachCommand"),
        *("GetWorkspace", "ListWorkspaces", "Status"),
    }
)

_OBJECTS = f"type='signal',sender='{addresses.BUS_NAME}',path_namespace='{addresses.MANAGER_PATH}'"
_OWNER = f"type='signal',sender='{BUS.bus_name}',member='NameOwnerChanged',arg0='{addresses.BUS_NAME}'"


class Client:
    def __init__(self, start: bool = True, timeout: float = ORDINARY, *, until: float | None = None) -> None:
        self._start = start
        self._patient_for = timeout
        # When whoever asks has no time any more.
        self.until = until
        self._rules: list[str] = []
        # While amuxd is away: when it is next asked whether anybody starts it.
        self._look_after_at: float | None = None
        self._has_said_so = False
        self._looks_on = False
        self._has_answered = False
        # What a long wait is for, and when that is to be said.
        self._untold = ""
        self._tell_at = 0.0
        self._connection, self._may_switch, self._is_private = self._connect()

    def close(self) -> None:
        self._connection.close()

    def manager(self, member: str, signature: str = "", *body: Any, patient: bool = False) -> tuple[Any, ...]:
        return self._call(MANAGER, member, signature, *body, patient=patient)

    def session(
        self, path: str, member: str, signature: str = "", *body: Any, patient: bool = False
    ) -> tuple[Any, ...]:
        return self._call(_session(path), member, signature, *body, patient=patient)

    def begin(self, path: str, member: str, signature: str = "", *body: Any) -> int:
        """Sends a call to a session without waiting for its reply."""
        return self._connection.send(_session(path), member, signature, *body)

    def finish(self, serial: int) -> tuple[Any, ...]:
        return self._reply(serial, patient=True)

    def find(self, name: str) -> str:
        return cast(str, self.manager("GetSession", "s", name)[0])

    def properties(self, path: str) -> Properties:
        address = DBusAddress(path, addresses.BUS_NAME, PROPERTIES_INTERFACE)
        return plain(self._call(address, "GetAll", "s", addresses.SESSION_INTERFACE)[0])

    def sessions(self, **only: tuple[str, Any]) -> list[tuple[str, Properties]]:
        return cast("list[tuple[str, Properties]]", self.manager("ListSessions", "a{sv}", only)[0])

    def workspace(
        self, path: str, member: str, signature: str = "", *body: Any, patient: bool = False
    ) -> tuple[Any, ...]:
        address = DBusAddress(path, addresses.BUS_NAME, addresses.WORKSPACE_INTERFACE)
        return self._call(address, member, signature, *body, patient=patient)

    def configuration_error(self) -> str:
        """Empty also of an amuxd that does not tell."""
        address = DBusAddress(addresses.MANAGER_PATH, addresses.BUS_NAME, PROPERTIES_INTERFACE)
        properties = plain(self._call(address, "GetAll", "s", addresses.MANAGER_INTERFACE)[0])
        return cast(str, properties.get("ConfigurationError", ""))

    def find_workspace(self, name: str) -> str:
        return cast(str, self.manager("GetWorkspace", "s", name)[0])

    def workspace_properties(self, path: str) -> Properties:
        address = DBusAddress(path, addresses.BUS_NAME, PROPERTIES_INTERFACE)
        return plain(self._call(address, "GetAll", "s", addresses.WORKSPACE_INTERFACE)[0])

    def workspaces(self, **only: tuple[str, Any]) -> list[Properties]:
        """Each with a "Status", if that is wanted: what git says of it, for which it is waited."""
        found = self.manager("ListWorkspaces", "a{sv}", only, patient="status" in only)[0]
        return [properties for _, properties in found]

    def certificate(self, path: str, run: int) -> Properties:
        return plain(self.session(path, "Certificate", "u", run)[0])

    @contextlib.contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """What is waited for patiently in here, said once if it takes long."""
        self._untold, self._tell_at = what, monotonic() + _UNTOLD
        try:
            yield
        finally:
            self._untold = ""

    def tell_if_late(self) -> None:
        if not self._time_to_tell:
            self._tell()

    def _tell(self) -> None:
        failures.say(f"amux: {self._untold}")
        self._untold = ""

    def subscribe(self) -> None:
        """Everything that amuxd tells from now on, and when it comes and goes. Subscribe first, then look."""
        self._rules = [_OBJECTS, _OWNER]
        self._add_rules()

    def look_on(self) -> None:
        """From now on no call starts an amuxd that somebody stopped, also while it still leaves.

        Nor is anything waited for that nobody reads: BrokenPipeError.
        """
        self._looks_on = True
        self._connection.output = reader.output()

    def next_signal(self, timeout: float | None = None) -> Signal | None:
        while True:
            signal = self._connection.next_signal(self.patience if timeout is None else timeout)
            if signal is not None and is_owner_change(signal):
                self._note_owner(signal)
            if signal is not None or timeout is not None:
                return signal
            self.look_after()

    def signals_before_reply(self) -> list[Signal]:
        """What amuxd told before it answered the last call, and so had happened by then."""
        signals = self._connection.signals_at_hand()
        for signal in filter(is_owner_change, signals):
            self._note_owner(signal)
        return [signal for signal in signals if not is_owner_change(signal)]

    def wait_for_change(self, settle: float, latest: float, patience: float | None = None) -> bool:
        """Until there was a change, and then none for a moment, or it is late; waits while amuxd is away.

        False: for as long as the patience lasts there was none.
        """
        first = self.next_signal(patience if self._look_after_at is None else None)
        if first is None:
            return False
        away = _is_leaving(first)
        deadline = monotonic() + latest
        while signal := self.next_signal(None if away else min(settle, deadline - monotonic())):
            if is_owner_change(signal):
                away = _is_leaving(signal)
            elif monotonic() >= deadline:
                break
        return True

    @property
    def patience(self) -> float | None:
        """For so long what amuxd tells can be waited for before it is looked after."""
        return None if self._look_after_at is None else max(0.0, self._look_after_at - monotonic())

    def look_after(self) -> None:
        """Says once that amuxd is away and nobody starts it; nothing where it is too soon for that."""
        if self._look_after_at is None or monotonic() < self._look_after_at:
            return
        self._look_after_at = monotonic() + _AWAY
        # Whoever only looks on does not have started what somebody stopped.
        why = self._look_after_unit(start=False)
        if why and not self._has_said_so:
            failures.say(f"amux: {why}")
            self._has_said_so = True

    def _note_owner(self, change: Signal) -> None:
        is_away = _is_leaving(change)
        self._look_after_at = monotonic() + _AWAY if is_away else None
        self._has_said_so = self._has_said_so and is_away

    def filenos(self) -> dict[int, int]:
        """What to poll for until there may be a signal, or nobody who reads of it."""
        output = self._connection.output
        return {self._connection.fileno(): select.POLLIN} | ({} if output is None else {output: 0})

    @property
    def _timeout(self) -> float:
        if self.until is None:
            return self._patient_for
        return min(self._patient_for, max(_LEAST, self.until - monotonic()))

    @property
    def _activates(self) -> bool:
        return self._start and not self._looks_on

    def _connect(self) -> tuple[Connection, bool, bool]:
        """The connection, whether the private bus may take its place, and whether it is the private one."""
        began = monotonic()
        try:
            if address := os.environ.get("AMUX_BUS_ADDRESS"):
                return self._at(address), False, False
            for address in addresses.bus_addresses():
                try:
                    return self._at(address), True, False
                except (OSError, Unreachable):
                    continue
            return self._private(), False, True
        except TimeoutError:
            waited = monotonic() - began
            raise Unreachable(f"the message bus does not answer (waited {waited:.0f} s)") from None

    def _at(self, address: str) -> Connection:
        problem: OSError | None = None
        for socket_path in socket_paths(address):
            try:
                return Connection(socket_path, self._timeout)
            except TimeoutError:
                raise
            except OSError as refusal:
                problem = refusal
        why = problem.strerror or str(problem) if problem else "no such transport here"
        raise Unreachable(f"no message bus at {address}: {why}")

    def _private(self) -> Connection:
        from amuxd import paths
        from amuxd.cli import private_bus

        if paths.has_user_manager():
            # Beside systemd an amuxd without units would take the sessions, and keep the real one out.
            raise Unreachable(
                "the session bus knows of no amuxd, though systemd runs for you",
                "make install; if that is done: systemctl --user start amuxd",
            )
        try:
            connection = private_bus.connect(self._timeout, self._start)
        except OSError as problem:
            raise Unreachable(f"no message bus of our own: {problem.strerror or problem}") from None
        if connection is None:
            raise Unreachable("there is no message bus")
        return connection

    def _call(
        self, address: DBusAddress, member: str, signature: str = "", *body: Any, patient: bool = False
    ) -> tuple[Any, ...]:
        for argument in body:
            if isinstance(argument, str) and "\0" in argument:
                raise failures.WrongUsage("text with a NUL character cannot be sent")
        if patient and not self._has_answered:
            self._greet()
        try:
            serial = self._connection.send(address, member, signature, *body, activate=self._activates)
            return self._reply(serial, patient)
        except RemoteError as problem:
            if problem.name == failures.SERVICE_UNKNOWN and self._may_switch:
                self._switch_to_private()
                return self._call(address, member, signature, *body, patient=patient)
            if member not in _ONLY_ASK or not self._may_be_asked_again(problem, patient):
                raise
            return self._ask_again(problem, address, member, signature, *body, patient=patient)
        finally:
            self._may_switch = False

    def _greet(self) -> None:
        """Nobody waits long for an amuxd that does not answer at all, and nothing is asked of it.

        One that is starting may take until then.
        """
        deadline = monotonic() + LONG
        while True:
            try:
                self._call(_PEER, "Ping")
            except (Unanswered, RemoteError, ConnectionResetError) as problem:
                if not failures.may_be_done(problem):
                    raise
                said = failures.explain(problem)
                raise Unreachable(said.sentence, said.hint) from None
            except NotStarted:
                if monotonic() >= deadline:
                    raise self._unanswered(LONG) from None
            else:
                return

    def _may_be_asked_again(self, problem: RemoteError, patient: bool) -> bool:
        if problem.is_of_one_that_stops:
            return self._has_successor(problem.sender, LONG if patient else self._timeout)
        return problem.name == failures.NO_REPLY

    def _has_successor(self, leaving: str, timeout: float) -> bool:
        """Whether another takes its place in time: for a mere question nobody starts what was stopped."""
        self._connection.call(BUS, "AddMatch", "s", _OWNER, timeout=self._timeout)
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        deadline = monotonic() + timeout
        while (owner := self._owner()) in ("", leaving):
            if monotonic() >= deadline or (not owner and self._look_after_unit(start=False)):
                return False
            poll.poll(_PATIENCE * 1000)
        return True

    def _owner(self) -> str:
        try:
            asked = self._connection.call(BUS, "GetNameOwner", "s", addresses.BUS_NAME, timeout=self._timeout)
        except RemoteError:
            return ""
        return cast(str, asked[0])

    def _ask_again(
        self, problem: RemoteError, address: DBusAddress, member: str, *arguments: Any, patient: bool
    ) -> tuple[Any, ...]:
        """It was restarted in the middle of our call: the next one finds it back."""
        try:
            serial = self._connection.send(address, member, *arguments, activate=self._activates)
            return self._reply(serial, patient)
        except RemoteError as again:
            raise problem if again.is_not_started or again.name == failures.NO_REPLY else again from None

    def _reply(self, serial: int, patient: bool) -> tuple[Any, ...]:
        since = time()
        self._await(serial, patient)
        try:
            answer = self._connection.reply(serial, 0)
            self._has_answered = True
            return answer
        except RemoteError as problem:
            if problem.is_not_started and self._looks_on:
                raise RemoteError(failures.NO_REPLY, problem.message) from None
            if problem.is_not_understood:
                self._check_version()
            problem.ask = self._what_it_said() if problem.name == failures.NO_REPLY else self._ask()
            if problem.is_not_started:
                problem.said_last = self._said_last(since)
            raise

    def _await(self, serial: int, patient: bool) -> None:
        """What may take its time is waited for as long as amuxd answers to something else."""
        began = monotonic()
        limit = LONG if patient else self._timeout
        deadline = began + limit
        pause = _PATIENCE
        while not self._connection.has_reply(
            serial, min(pause, deadline - monotonic(), self._time_to_tell if patient else inf)
        ):
            self._look_after_unit(start=self._activates)
            if patient:
                self._tell_in_time(serial)
            if monotonic() >= deadline:
                if not (patient and self._is_there()) and not self._connection.has_reply(serial, 0):
                    raise self._unanswered(monotonic() - began)
                deadline = monotonic() + limit
            pause *= 2

    @property
    def _time_to_tell(self) -> float:
        return max(0.0, self._tell_at - monotonic()) if self._untold else inf

    def _tell_in_time(self, serial: int) -> None:
        if self._time_to_tell:
            return
        if not self._is_there():
            # An amuxd that hangs waits for nothing.
            self._tell_at = monotonic() + _UNTOLD
        elif not self._connection.has_reply(serial, 0):
            self._tell()

    def _is_there(self) -> bool:
        try:
            self._connection.reply(self._connection.send(_PEER, "Ping", activate=False), self._timeout)
        except TimeoutError:
            return False
        except RemoteError as problem:
            return not problem.is_not_started
        return True

    def _unanswered(self, waited: float) -> Unreachable:
        if not self._is_private:
            from amuxd.cli import unit

            if unit.is_starting(self._connection):
                said = self._said_last(0)
                return NotStarted(f"amuxd does not start (waited {waited:.0f} s){said}", self._ask())
        return Unanswered(f"amuxd does not answer (waited {waited:.0f} s)", self._ask_of_hung())

    def _look_after_unit(self, start: bool) -> str:
        """Nobody waits for an amuxd that nobody starts. Why it stays away, if it is not to be started."""
        if self._is_private:
            from amuxd.cli import private_bus

            return private_bus.look_after(self._connection, start)
        if self._start:
            from amuxd.cli import unit

            return unit.look_after(self._connection, start)
        return ""

    def _said_last(self, since: float) -> str:
        from amuxd import paths
        from amuxd.cli import said_last

        if self._is_private:
            return said_last.in_log(paths.daemon_log(), since)
        return said_last.in_journal()

    def _what_it_said(self) -> str:
        """Of one that is gone, and that the next call starts again."""
        if not self._is_private:
            return self._ask()
        import shlex

        from amuxd import paths

        return f"tail {shlex.quote(str(paths.daemon_log()))}"

    def _ask_of_hung(self) -> str:
        """Nobody but who reads it ends one on a private bus, and beside it no other starts."""
        if self._is_private:
            with contextlib.suppress(RemoteError, OSError):
                return f"kill -9 {self._pid()}  (no session ends, and the next amux starts another)"
        return self._ask()

    def _ask(self) -> str:
        """Where amuxd tells why it does not start or answer."""
        if not self._is_private:
            return "journalctl --user -u amuxd"
        from amuxd.cli import private_bus

        return private_bus.by_hand()

    def _switch_to_private(self) -> None:
        """A session bus that knows of no amuxd is as good as none."""
        self._connection.close()
        self._may_switch, self._is_private = False, True
        self._connection = self._private()
        self._add_rules()

    def _add_rules(self) -> None:
        for rule in self._rules:
            self._connection.call(BUS, "AddMatch", "s", rule, timeout=self._timeout)

    def _check_version(self) -> None:
        address = DBusAddress(addresses.MANAGER_PATH, addresses.BUS_NAME, PROPERTIES_INTERFACE)
        serial = self._connection.send(address, "Get", "ss", addresses.MANAGER_INTERFACE, "Version")
        try:
            version = self._connection.reply(serial, self._timeout)[0][1]
        except (RemoteError, OSError):
            version = "of another version"
        if version != __version__:
            raise failures.other_version(version, self._how_to_restart())

    def _how_to_restart(self) -> str:
        if not self._is_private:
            return "systemctl --user restart amuxd"
        return f"kill {self._pid()}"

    def _pid(self) -> int:
        asked = self._connection.call(
            BUS, "GetConnectionUnixProcessID", "s", addresses.BUS_NAME, timeout=self._timeout
        )
        return cast(int, asked[0])


def is_owner_change(signal: Signal) -> bool:
    return signal.member == "NameOwnerChanged"


def _is_leaving(signal: Signal | None) -> bool:
    return signal is not None and is_owner_change(signal) and not signal.body[2]


def _session(path: str) -> DBusAddress:
    return DBusAddress(path, addresses.BUS_NAME, addresses.SESSION_INTERFACE)


def plain(variants: dict[str, tuple[str, Any]]) -> Properties:
    return {key: value for key, (_, value) in variants.items()}
