"""Sessions whose files cannot be read: looked at from outside, ended on demand, and their files put aside."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable

from amuxd import processes
from amuxd.errors import Internal, InvalidArgument, InvalidTransition, NoSuchSession
from amuxd.hosts import Host
from amuxd.registry import UnreadableSession
from amuxd.signal_names import signal_number
from amuxd.states import Liveness
from amuxd.store import StoreError
from amuxd.supervisor import RETRY_PAUSE, Supervisor, not_written
from amuxd.watch import Watch

LOOK_AGAIN = 0.1

logger = logging.getLogger(__name__)


class Unreadables:
    def __init__(self, supervisor: Supervisor, host: Host, watch: Watch) -> None:
        self.host = host
        self.store = supervisor.store
        self._supervisor = supervisor
        self._watch = watch
        self.changed: Callable[[UnreadableSession], None] = lambda _: None
        self.disappeared: Callable[[UnreadableSession], None] = lambda _: None

    async def find_lost(self) -> None:
        """What lives though its files are gone would else be nobody's."""
        registry = self._supervisor.registry
        try:
            standing = await self.host.standing()
            for session_id, name in standing.items():
                known = registry.get(session_id) or session_id in registry.not_readable
                if not known and await self.host.members(session_id):
                    logger.error("%s lives, and its files are gone", name, extra={"AMUX_SESSION": session_id})
                    registry.not_readable[session_id] = UnreadableSession(
                        session_id, name, "its files are gone", None, 0
                    )
        except Exception as error:
            logger.warning("whether there are sessions that nobody knows of is not known: %s", error)

    async def look_at_all(self) -> None:
        await asyncio.gather(*map(self.look, self._supervisor.registry.not_readable.values()))

    async def look(self, session: UnreadableSession) -> None:
        """What lives of it now; the end of that is an event, and looked at again."""
        async with session.looking:
            await self._look(session)

    async def _look(self, session: UnreadableSession) -> None:
        try:
            members = await self.host.members(session.id)
            home = await self.host.find_in_terminal(session.id) if members else None
        except Exception as error:
            logger.warning("%s cannot be looked at now: %s", session.name, error)
            members, home = [], None
            session.host_alive = session.session_alive = Liveness.UNKNOWN
            asyncio.get_running_loop().call_later(RETRY_PAUSE, self._ended, session)
        else:
            session.host_alive = Liveness.ALIVE if members else Liveness.DEAD
            session.session_alive = session.host_alive if home or not members else Liveness.UNKNOWN
        self._leave(session)
        session.home = home
        if home is not None and processes.has_ended(home.command_fd):
            session.session_alive = Liveness.DEAD
        elif home is not None:
            self._await_end(session, home.command_fd)
        if home is not None:
            self._await_end(session, home.server_fd)
        elif members:
            try:
                session.member_fd = os.pidfd_open(members[0])
                self._await_end(session, session.member_fd)
            except ProcessLookupError:
                # It went while it was looked at, and others may be left.
                asyncio.get_running_loop().call_later(LOOK_AGAIN, self._ended, session)
            except OSError as error:
                logger.warning("%s cannot be watched now: %s", session.name, error)
                asyncio.get_running_loop().call_later(RETRY_PAUSE, self._ended, session)
        self.changed(session)

    def _await_end(self, session: UnreadableSession, fd: int) -> None:
        self._watch.process(fd, lambda: self._ended(session))

    def _ended(self, session: UnreadableSession) -> None:
        if session.id in self._supervisor.registry.not_readable:
            self._supervisor.spawn(self.look(session))

    def _leave(self, session: UnreadableSession) -> None:
        if session.home is not None:
            self._watch.forget_process(session.home.command_fd)
            self._watch.forget_process(session.home.server_fd)
            session.home.close()
            session.home = None
        if session.member_fd >= 0:
            self._watch.forget_process(session.member_fd)
            os.close(session.member_fd)
            session.member_fd = -1

    async def stop(self, session: UnreadableSession, grace: float) -> None:
        """As any other, but that nothing is written."""
        async with session.operation:
            await self.look(session)
            if session.host_alive is Liveness.DEAD:
                raise InvalidTransition(f"{session.name} cannot be read, and nothing of it is alive")
            if session.home is not None:
                server = session.home.server
                if await self._asked_to_end(session.home.command_fd, grace):
                    await self.host.drain(session.id, session.run, server)
            try:
                await self.host.tear_down(session.id)
            except Exception as error:
                raise Internal(f"{session.name} could not be stopped: {error}") from error
            finally:
                await self.look(session)
            logger.info("%s: stopped, unread", session.name, extra={"AMUX_SESSION": session.id})

    async def _asked_to_end(self, command_fd: int, grace: float) -> bool:
        # One of its own: what is watched is closed as soon as it ended.
        command = os.dup(command_fd)
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(command, over.set)
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(command, signal.SIGTERM)
            async with asyncio.timeout(grace):
                await over.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(command)
            os.close(command)
        return True

    async def kill(self, session: UnreadableSession, name: str) -> None:
        number = signal_number(name)
        if number is None:
            raise InvalidArgument(f"there is no signal {name!r}")
        if session.home is None or session.session_alive is not Liveness.ALIVE:
            raise InvalidTransition(f"{session.name} cannot be read, and no command of it is seen to live")
        with contextlib.suppress(ProcessLookupError):
            in_shell = session.session is not None and session.session.shell
            await self.host.signal(session.home, number, in_shell)

    async def remove(self, session: UnreadableSession, force: bool) -> None:
        async with session.operation:
            if self._supervisor.registry.not_readable.get(session.id) is not session:
                raise NoSuchSession(f"{session.name} was removed")
            await self.look(session)
            if session.host_alive is not Liveness.DEAD:
                raise InvalidTransition(f"{session.name} is not known to be dead: stop it first")
            has_files = self.store.directory(session.id).exists()
            if has_files and not force:
                raise InvalidTransition(
                    f"{session.name} cannot be read: rm -f puts its files aside, in {self.store.set_aside}"
                )
            where = "gone"
            if has_files:
                try:
                    where = f"in {await self._supervisor.on_disk(self.store.put_aside, session.id)}"
                except StoreError as error:
                    raise not_written(str(error), error) from error
            del self._supervisor.registry.not_readable[session.id]
            logger.warning("%s: removed unread, its files are %s", session.name, where)
            self.disappeared(session)
