"""Wires everything together, and says when it is ready, alive and going."""

import asyncio
import atexit
import contextlib
import fcntl
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import sdnotify

from amuxd import __version__, boots, comeback, config, helpers, inotify, paths, processes, reconcile
from amuxd.addresses import BUS_NAME, MANAGER_PATH, bus_address, system_bus_address
from amuxd.bus.connection import Bus, BusError, BusLost, BusTimeout, NameOwned
from amuxd.bus.messages import DBUS, DBUS_PATH
from amuxd.bus.objects import (
    LOG_CONTROL_PATH,
    QUESTIONS,
    Announcer,
    LogControl,
    ManagerObject,
    NotReadableObject,
    SessionObject,
    path_of,
)
from amuxd.bus.server import Server
from amuxd.bus.workspaces import Shelf, WorkspaceAnnouncer
from amuxd.errors import NEEDS_PERSON, AmuxError
from amuxd.events import Events
from amuxd.hosts import Enclosure
from amuxd.hosts.bare import Bare
from amuxd.hosts.local import LocalHost
from amuxd.hosts.units import SYSTEMD, Units
from amuxd.journal import Log
from amuxd.notify import Notifier
from amuxd.registry import UnreadableSession
from amuxd.runs import Runs
from amuxd.scheduling import ask_for_short_turns
from amuxd.shutdown import ShutdownDelay
from amuxd.statuslines import StatusLines
from amuxd.store import Store, StoreError
from amuxd.supervisor import Supervisor, now
from amuxd.terminals import Terminals
from amuxd.unreadable import Unreadables
from amuxd.watch import Watch
from amuxd.windows import AsProcess, InUnit, Windows
from amuxd.workspaces.ledger import Ledger
from amuxd.workspaces.making import Maker
from amuxd.workspaces.orphans import Orphans
from amuxd.workspaces.queue import Queue
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.removing import Remover
from amuxd.workspaces.repositories import Repositories

logger = logging.getLogger(__name__)

OTHER_DAEMON_DEADLINE = 15.0
DRAIN = 3.0
STDERR = 2
# For workspaces that were being made to be finished or undone before anybody asks for them.
RECOVERY = 2.0


class CannotServe(Exception):
    """amuxd ends with this sentence, and not with success."""


class NeedsPerson(CannotServe):
    """To try again would do nothing about it."""


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print(f"amuxd {__version__}")
        return
    if sys.argv[1:]:
        print("amuxd: it takes no arguments but --version; systemctl --user start amuxd", file=sys.stderr)
        raise SystemExit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 2)
    try:
        paths.ensure_private(paths.state_directory())
        log = Log(paths.daemon_log())
    except OSError as error:
        print(f"amuxd: {error}", file=sys.stderr)
        raise SystemExit(NEEDS_PERSON) from None
    try:
        asyncio.run(Daemon(log).run())
    except (NeedsPerson, paths.Unsafe) as error:
        logger.error("%s", error)
        raise SystemExit(NEEDS_PERSON) from None
    except inotify.UsedUp as error:
        logger.error("%s", error.strerror)
        raise SystemExit(NEEDS_PERSON) from None
    except CannotServe as error:
        logger.error("%s", error)
        raise SystemExit(1) from None
    except Exception:
        # Standard error may lead nowhere.
        logger.exception("amuxd ends by a fault of its own")
        raise SystemExit(1) from None
    # After the threads have ended: to take apart what a thousand sessions were takes as long as a tenth of
    # what it took to suspend them, and systemd waits for it.
    atexit.register(os._exit, 0)


class Daemon:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._notifier = sdnotify.SystemdNotifier()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        keep_descriptors()
        _raise_descriptor_limit()
        ask_for_short_turns()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(8, initializer=ask_for_short_turns))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        state = paths.ensure_private(paths.state_directory())
        runtime = paths.ensure_private(paths.runtime_directory())
        settings = self._first_settings()
        bus = await _connect()
        try:
            await _become_sole_keeper(state, bus)
            await self._serve(bus, state, runtime, settings)
        finally:
            helpers.stop()
            bus.close()

    async def _serve(self, bus: Bus, state: Path, runtime: Path, settings: config.Settings) -> None:
        enclosure, mode = await _enclosure(bus, runtime)
        try:
            store = Store(state)
        except (OSError, StoreError) as error:
            raise NeedsPerson(f"nothing can be kept in {state}: {error}") from error
        host = LocalHost(enclosure, store, runtime, settings.log_cap)
        watch = Watch()
        supervisor = Supervisor(store, processes.boot_id())
        workspaces = Workspaces(supervisor, Ledger(state, store, supervisor.boot_id))
        runs = Runs(supervisor, host, watch, workspaces, settings)
        runs.boots = await supervisor.on_disk(boots.counted, state, supervisor.boot_id, now())
        repositories = Repositories()
        maker = Maker(runs, workspaces, repositories)
        remover = Remover(runs, workspaces, repositories)

        windows = Windows(InUnit(bus) if mode == "systemd" else AsProcess(), settings.terminal)
        kept = runtime / "notifications.json"
        notifier = Notifier(bus, runs, kept, settings.notify, paths.amux_program(), windows.open)

        def reload() -> None:
            try:
                fresh = config.load(paths.config_file())
            except AmuxError as error:
                runs.configure(replace(runs.settings, error=str(error)))
                raise
            host.configure(fresh.log_cap)
            runs.configure(fresh)
            notifier.wanted, windows.configured = fresh.notify, fresh.terminal
            supervisor.spawn(maker.find_linked())
            logger.info("the configuration was read again")

        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload_by_signal, reload)
        runs.homes.watch_attachments(host.attached_directory)
        supervisor.listen(runs.parking)
        supervisor.listen(StatusLines(supervisor, host))
        await reconcile.load(supervisor, runs.settings)
        recovering = [supervisor.spawn(maker.recover(unfinished)) for unfinished in await workspaces.load()]
        recovering.append(supervisor.spawn(remover.recover()))
        recovering.append(supervisor.spawn(maker.resolve_paths()))
        recovering.append(supervisor.spawn(maker.find_linked()))
        # A repository that hangs keeps nobody waiting for longer.
        await asyncio.wait(recovering, timeout=RECOVERY)
        # Before anything is found: what ended while nobody watched is news as well.
        await notifier.begin()
        supervisor.listen(notifier)
        await reconcile.reconcile(runs)
        unreadables = Unreadables(supervisor, host, watch)
        await unreadables.find_lost()
        await unreadables.look_at_all()
        queue, orphans = Queue(runs, workspaces), Orphans(runs, workspaces)
        await queue.begin()
        supervisor.listen(queue)
        workspaces.listen(queue)
        supervisor.listen(orphans)
        workspaces.listen(orphans)
        server = self._export(bus, runs, unreadables, workspaces, maker, remover, queue, mode, reload)
        try:
            await bus.request_name(BUS_NAME)
        except NameOwned as error:
            raise CannotServe(f"{error.message}: is another amuxd running?") from error
        events = Events(runs)
        supervisor.listen(events)
        # Not before it is the one who serves: it would take the place of another.
        await events.listen(paths.events_socket())
        self._notify("READY=1", f"STATUS={len(supervisor.registry)} sessions")
        logger.info("amuxd %s is ready, mode %s", __version__, mode)
        await runs.parting.keep_room()
        orphans.begin()
        background = [
            supervisor.spawn(reconcile.sweep_forever(runs)),
            supervisor.spawn(self._watchdog(bus)),
            supervisor.spawn(_delay_shutdown(runs)),
            supervisor.spawn(comeback.bring_back(runs)),
            supervisor.spawn(queue.run()),
            # Of whoever could leave no mark, at a session's own limit of processes say.
            supervisor.spawn(runs.homes.count_all()),
            supervisor.spawn(orphans.run()),
        ]
        bus_failure = await self._until_stopped(bus)
        was_stopped = bus_failure is None or self._stop.is_set()
        why = "amuxd was stopped" if was_stopped else "amuxd lost its bus"
        for task in background:
            task.cancel()
        self._notify("STOPPING=1")
        # At once: at a shutdown the machine waits for this, and what callers still wait for comes after.
        refused = await runs.suspend(why)
        await server.drain(DRAIN, QUESTIONS)
        await runs.part(why, refused)
        events.close()
        if bus_failure:
            # systemd starts amuxd again; the sessions do not notice.
            raise CannotServe(f"the bus went away: {bus_failure}")
        with contextlib.suppress(BusError, TimeoutError):
            async with asyncio.timeout(DRAIN):
                await bus.flush()
        orphans.close()
        watch.close()

    def _first_settings(self) -> config.Settings:
        try:
            return config.load(paths.config_file())
        except AmuxError as error:
            # Sessions that nobody looks after would be worse than settings that nobody wanted.
            logger.error("%s: the defaults are used", error)
            return config.Settings(error=str(error))

    def _export(
        self,
        bus: Bus,
        runs: Runs,
        unreadables: Unreadables,
        workspaces: Workspaces,
        maker: Maker,
        remover: Remover,
        queue: Queue,
        mode: str,
        reload: Callable[[], None],
    ) -> Server:
        server = Server(bus)
        supervisor, terminals = runs.supervisor, Terminals(runs)
        shelf = Shelf(server, workspaces, maker, remover)
        server.export(MANAGER_PATH, ManagerObject(runs, server, shelf, mode, reload))
        server.export(LOG_CONTROL_PATH, LogControl(self._log))
        for entry in supervisor.registry:
            server.export(path_of(entry.id), SessionObject(runs, terminals, entry), announce=False)
        for session in supervisor.registry.not_readable.values():
            unreadable = NotReadableObject(runs, unreadables, session)
            server.export(path_of(session.id), unreadable, announce=False)
        for workspace in workspaces:
            shelf.export(workspace, announce=False)
        for unread in workspaces.not_readable.values():
            shelf.export(unread, announce=False)
        workspaces.listen(WorkspaceAnnouncer(server, shelf))
        announcer = Announcer(server, runs, terminals)
        supervisor.listen(announcer)

        def configured() -> None:
            announcer.configured()
            # An agent may stand at its head that could not be begun.
            queue.advance_all()

        runs.configured = configured

        def unreadable_changed(session: UnreadableSession) -> None:
            announcer.unreadable_changed(session)
            queue.unreadable_changed(session)

        unreadables.changed = unreadable_changed
        unreadables.disappeared = announcer.unreadable_disappeared
        return server

    async def _until_stopped(self, bus: Bus) -> str | None:
        """Why there is no bus any more, or None: amuxd was told to stop."""
        stop = asyncio.ensure_future(self._stop.wait())
        lost = asyncio.ensure_future(bus.lost())
        await asyncio.wait({stop, lost}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if lost.done():
            return lost.result()
        lost.cancel()
        return None

    async def _watchdog(self, bus: Bus) -> None:
        interval = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
        while interval:
            # The answer has come through the bus and this loop: only that proves both alive.
            with contextlib.suppress(BusTimeout):
                await bus.ping(interval / 2)
                self._notify("WATCHDOG=1")
            await asyncio.sleep(interval / 2)

    def _notify(self, *lines: str) -> None:
        self._notifier.notify("\n".join(lines))


def _reload_by_signal(reload: Callable[[], None]) -> None:
    try:
        reload()
    except AmuxError as error:
        logger.error("the configuration stays as it was: %s", error)


async def _become_sole_keeper(state: Path, bus: Bus) -> int:
    """Two daemons, on two buses say, must not look after the same sessions. Held until the process ends."""
    try:
        fd = os.open(state / "amuxd.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NeedsPerson(f"nothing can be kept in {state}: {error.strerror}") from error
    deadline = time.monotonic() + OTHER_DAEMON_DEADLINE
    while not _locked(fd):
        pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
        # A file may be empty yet, and nobody have the name.
        if pid and pid == await _serving(bus):
            raise NeedsPerson(f"amuxd runs already (pid {pid}): amux ls")
        # It may have lost its bus, and be about to end.
        if time.monotonic() > deadline:
            raise CannotServe(f"another amuxd (pid {pid}) looks after {state}")
        await asyncio.sleep(0.05)
    # Who holds it is for others: on a disk that refuses it, sessions are looked after all the same.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, os.pwrite(fd, f"{os.getpid()}\n".encode(), 0))
    return fd


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _serving(bus: Bus) -> str:
    """The process that has the name on this bus; empty: none."""
    try:
        [pid] = await bus.call(DBUS, DBUS_PATH, DBUS, "GetConnectionUnixProcessID", "s", (BUS_NAME,))
    except BusError:
        return ""
    return str(pid)


async def _connect() -> Bus:
    address = os.environ.get("DBUS_STARTER_ADDRESS") or bus_address()
    if address is None:
        raise CannotServe("there is no session bus: run amux, which starts one where it is missing")
    try:
        return await Bus.connect(address)
    except BusError as error:
        raise CannotServe(error.message) from error


async def _delay_shutdown(runs: Runs) -> None:
    try:
        bus = await Bus.connect(system_bus_address(), descriptors=True)
    except BusError as error:
        logger.info("a shutdown will not wait for amuxd: %s", error.message)
        return
    try:
        delay = ShutdownDelay(runs, bus)
        runs.supervisor.listen(delay)
        await delay.keep()
    finally:
        bus.close()


async def _enclosure(bus: Bus, runtime: Path) -> tuple[Enclosure, str]:
    units = Units(bus)
    try:
        await units.begin()
    except (BusTimeout, BusLost) as error:
        raise CannotServe(f"systemd does not answer: {error.message}") from error
    except BusError as error:
        logger.info("no %s (%s): sessions run without units", SYSTEMD, error.message)
        return Bare(runtime / "tmux"), "embedded"
    return units, "systemd"


def keep_descriptors() -> None:
    """What amuxd was begun with is not for what it begins."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        # That of the list itself is closed by now.
        with contextlib.suppress(OSError):
            os.set_inheritable(number, number <= STDERR)


def _raise_descriptor_limit() -> None:
    """Three descriptors a session."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
