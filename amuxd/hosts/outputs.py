"""What sessions print, taken down to the end."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from amuxd import processes
from amuxd.hosts import EXIT_STATUS, LoggerMissing, LoggerUnknown, loggers
from amuxd.hosts.ends import STATUS_DEADLINE
from amuxd.hosts.layout import Layout
from amuxd.hosts.pipes import readable_within
from amuxd.hosts.tmux import TmuxRefused, TmuxUnreachable
from amuxd.logs import (
    END_OF_LOG,
    Ending,
    Place,
    end_of,
    is_deleted,
    say,
    shell_mark,
    size_of,
    take_out,
    take_out_ends,
)
from amuxd.records import NotReadable, Process
from amuxd.store import Store
from amuxd.threads import one_at_a_time

logger = logging.getLogger(__name__)

# Of a file system, which may be on a network.
LOOK_DEADLINE = 5.0
BEGIN_DEADLINE = 8.0
# Of a log that is to have an end. A loaded machine is slow, and slow is not dead.
SILENCE = 30.0
# Whoever takes down the output looks for room every second.
ROOM_DEADLINE = 3.0
SLOW = 0.1


class Outputs:
    def __init__(self, store: Store, layout: Layout, log_cap: int) -> None:
        self._store = store
        self._layout = layout
        self.log_cap = log_cap
        self._ends: dict[str, int] = {}
        # Of each run whose log has a mark, up to where there was none.
        self._marked: dict[str, dict[int, Place]] = {}
        # One at a time for each session: who comes second finds the one that the first has begun.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def logger(self, session_id: str, run: int, server: Process) -> Process | None:
        log = self._store.log(session_id, run)
        async with self._turns.setdefault(session_id, asyncio.Lock()):
            looked = await self._look_for_logger(server, log)
            found = looked.logger
            if not looked.is_certain or (found is not None and not looked.has_lost_log):
                return found
            terminal = self._layout.terminal(session_id)
            try:
                if await terminal.is_dead():
                    return None
                gates = self._layout.gates(session_id)
                command = loggers.command(log, self.log_cap, gates)
                if found is not None:
                    # At once, so that it stands before what the other has still to bring.
                    await asyncio.to_thread(say, log, loggers.TAKEN_AWAY)
                await loggers.begin_again(terminal, command, gates, found, BEGIN_DEADLINE)
            except (TmuxUnreachable, TmuxRefused, OSError) as error:
                if found is None and isinstance(error, TmuxUnreachable) and await _ends(server):
                    # With the terminal it ends by itself, once all is taken down.
                    return None
                raise LoggerMissing(str(error) or "it did not begin in time") from error
            found = (await self._look_for_logger(server, log)).logger
            if found is None:
                raise LoggerMissing("it ended at once")
            return found

    async def _look_for_logger(self, server: Process, log: Path) -> loggers.Found:
        try:
            return await one_at_a_time(str(log), partial(loggers.look, server, log), LOOK_DEADLINE)
        except TimeoutError:
            why = f"the processes of its terminal, or its log, did not answer within {LOOK_DEADLINE:.0f} s"
            raise LoggerUnknown(why) from None
        except OSError as error:
            raise LoggerUnknown(f"the processes of its terminal cannot be seen: {error.strerror}") from error

    async def drain(self, session_id: str, run: int, server: Process | None) -> None:
        """What amuxd prints into the terminal comes after all that the command did: once it is in the log,
        the log is whole. It is taken out with the terminal: what the command left there may print until then.
        """
        log = self._store.log(session_id, run)
        self._will_mark(session_id, run, log)
        self.let_go_of_end(session_id)
        ending = await asyncio.to_thread(Ending, log)
        taker = self._present_logger(session_id, run, server)
        await self._until_whole(session_id, log, server, ending, taker, partial(self._print_end, session_id))

    async def drain_command(self, session_id: str, run: int, command: Process, server: Process) -> None:
        """What ran in a shell that stays open has printed what comes before the shell's own mark."""
        log, mark = self._store.log(session_id, run), shell_mark(session_id, run)
        self._will_mark(session_id, run, log)
        ending = await asyncio.to_thread(Ending, log, mark, from_start=True)
        if await asyncio.to_thread(ending.has_come):
            ending.close()
            return

        def is_alive() -> bool:
            return processes.may_live(command)

        taker = self._logger_left(server, log)
        await self._until_whole(session_id, log, server, ending, taker, lambda: is_alive)
        if not is_alive():
            # It may have been killed before it had said so.
            await self.drain(session_id, run, server)

    def _will_mark(self, session_id: str, run: int, log: Path) -> None:
        self._marked.setdefault(session_id, {}).setdefault(run, end_of(log))

    async def _logger_left(self, server: Process, log: Path) -> Process | None:
        try:
            looked = await self._look_for_logger(server, log)
        except LoggerUnknown:
            # The mark tells.
            return None
        if looked.is_certain and looked.logger is None:
            raise LoggerMissing("it had ended before, and what it had not written yet is lost")
        return looked.logger

    async def _until_whole(
        self,
        session_id: str,
        log: Path,
        server: Process | None,
        ending: Ending,
        taker: Awaitable[Process | None],
        begin: Callable[[], Callable[[], bool]],
    ) -> None:
        try:
            present = await taker
            whole = await self._until_come(session_id, log, ending, server, present, begin())
        except LoggerMissing as error:
            logger.warning("nobody takes down what is printed into %s: %s", log, error)
            whole = False
        finally:
            ending.close()
        if not whole:
            await asyncio.to_thread(say, log, loggers.ENDED)

    async def _present_logger(self, session_id: str, run: int, server: Process | None) -> Process | None:
        if server is None:
            return None
        try:
            return await self.logger(session_id, run, server)
        except LoggerUnknown:
            # The end of the log tells.
            return None

    def _print_end(self, session_id: str) -> Callable[[], bool]:
        """Whether it is still on its way."""
        try:
            path = self._layout.gates(session_id) / "end"
            # For reading too: after the shortest of commands the one that prints it may not be there yet.
            self._ends[session_id] = end = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            os.write(end, END_OF_LOG)
        except OSError:
            # The terminal is gone, and its log with it.
            return lambda: False
        return lambda: self._ends.get(session_id) == end

    async def _until_come(
        self,
        session_id: str,
        log: Path,
        ending: Ending,
        server: Process | None,
        taker: Process | None,
        is_on_its_way: Callable[[], bool],
    ) -> bool:
        """False where who takes down the output was killed meanwhile."""
        loop = asyncio.get_running_loop()
        size, pause, patience = -1, 0.001, loop.time() + SILENCE
        room_by = loop.time() + ROOM_DEADLINE
        while is_on_its_way() and not await asyncio.to_thread(ending.has_come):
            if not self._layout.waits_for_room(session_id).exists():
                room_by = loop.time() + ROOM_DEADLINE
            if loop.time() > room_by or is_deleted(log):
                # Its end has nowhere to go to.
                return True
            if size != (size := size_of(log)):
                patience = loop.time() + SILENCE
            elif loop.time() > patience or server is None or not processes.may_live(server):
                return True
            elif taker is not None and not processes.may_live(taker):
                # With the terminal it ends by itself, when all is taken down.
                return await asyncio.to_thread(ending.has_come) or await self._is_over(session_id)
            elif pause >= SLOW and await self._is_over(session_id):
                # An amuxd that was killed while it did this has ended the one who prints.
                return True
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)
        return True

    async def _is_over(self, session_id: str) -> bool:
        try:
            return await self._layout.terminal(session_id).is_dead()
        except (TmuxUnreachable, TmuxRefused):
            return False

    def let_go_of_end(self, session_id: str) -> None:
        if (end := self._ends.pop(session_id, None)) is not None:
            os.close(end)

    def take_out_ends(self, session_id: str) -> None:
        for run, since in self._marked.pop(session_id, {}).items():
            log = self._store.log(session_id, run)
            try:
                take_out_ends(log, since)
                if (log.parent / EXIT_STATUS).exists() and self._is_certified(session_id, run):
                    take_out(log, shell_mark(session_id, run))
            except OSError as error:
                logger.error("%s keeps the mark of its end: %s", log, error.strerror)

    def _is_certified(self, session_id: str, run: int) -> bool:
        """Before that the mark of a shell is needed: it tells which lines were the command's last."""
        try:
            certificate = self._store.certificate(session_id, run)
        except NotReadable:
            return False
        return certificate is not None and certificate.complete


async def _ends(server: Process) -> bool:
    """One that is ending answers nobody any more."""
    try:
        end = await asyncio.to_thread(processes.open_process, server)
        if end is None:
            return True
        try:
            return await readable_within(end, STATUS_DEADLINE)
        finally:
            os.close(end)
    except OSError:
        # No descriptor is left to see it by.
        return False
