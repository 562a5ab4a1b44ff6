"""How runs have ended: as the kernel, the unit and what they wrote down themselves tell it."""

import contextlib
import re
from dataclasses import replace

from amuxd import processes
from amuxd.hosts import ENDED, EXIT_STATUS, Enclosure, Ended, Gone, Home
from amuxd.hosts.cgroups import memory_kills
from amuxd.hosts.layout import Layout
from amuxd.hosts.pipes import readable_within
from amuxd.hosts.tmux import TmuxRefused, TmuxUnreachable
from amuxd.quantities import format_size
from amuxd.records import Process, Session
from amuxd.states import End
from amuxd.store import Store

# Of what has ended already, and is only to be told how.
STATUS_DEADLINE = 2.0

_EXIT_STATUS = re.compile(rb" *([0-9]+)\n")
_ENDED = re.compile(rb"([0-9]+) ([0-9]+)\n")


class Ends:
    def __init__(self, enclosure: Enclosure, store: Store, layout: Layout) -> None:
        self._enclosure = enclosure
        self._store = store
        self._layout = layout

    async def gone(self, session: Session) -> Ended | Gone:
        if await self._enclosure.ran_out_of_memory(session.id):
            return Ended(End(out_of_memory=True, memory_limit=_limit(session)))
        return Gone()

    def refusal(self, session: Session, run: int) -> End | None:
        """What the run itself wrote down of why it never began."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path = self._store.run_directory(session.id, run) / "not_started"
            # A power cut may have left nothing in it.
            if why := path.read_text(errors="replace").strip():
                return End(not_started=why)
        return None

    def end_in_shell(self, session: Session, run: int) -> End | None:
        if session.shell:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                written = (self._store.run_directory(session.id, run) / EXIT_STATUS).read_bytes()
                # A power cut may have left nothing in it, or a part.
                if whole := _EXIT_STATUS.fullmatch(written):
                    return End(code=int(whole[1]))
        return None

    def of_command(self, session: Session, run: int, home: Home) -> End | None:
        return processes.end_of(home.command_fd, home.command) or self.told_by_parent(session, run)

    def told_by_parent(self, session: Session, run: int) -> End | None:
        for place in (self._store.run_directory(session.id, run), self._layout.gates(session.id)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if whole := _ENDED.fullmatch((place / ENDED).read_bytes()):
                    return processes.from_wait_code(int(whole[1]), int(whole[2]))
        return None

    def end_on_record(self, session: Session, run: int) -> End | None:
        told = self.end_in_shell(session, run) or self.refusal(session, run)
        return told or self.told_by_parent(session, run)

    async def end_of(self, session: Session, run: int, home: Home) -> End:
        # A shell may be gone by the time that its command's end is read.
        if (told := self.end_in_shell(session, run)) is not None:
            return told
        end = self.of_command(session, run, home)
        if await self._server_ends_too(session.id, home, end):
            return await self._end_with_server(session, home, end or End())
        if end is None:
            return End()
        if end.code == 127 and (refusal := self.refusal(session, run)):
            return refusal
        return for_memory(session, end, home.server, home.memory_kills)

    async def _server_ends_too(self, session_id: str, home: Home, end: End | None) -> bool:
        if processes.is_dying(home.server):
            return True
        # What ends a terminal server, or all of its unit, may have reached the command before it; but whoever
        # kills a unit kills its server first.
        if end is None or end.signal not in {"SIGHUP", "SIGTERM"}:
            return False
        if await self._enclosure.is_ending(session_id):
            return True
        if end.signal == "SIGHUP":
            try:
                await self._layout.terminal(session_id).ask()
            except (TmuxUnreachable, TmuxRefused):
                return await readable_within(home.server_fd, STATUS_DEADLINE)
        return processes.is_dying(home.server)

    async def _end_with_server(self, session: Session, home: Home, end: End) -> End:
        server = await self._enclosure.server_end(session.id)
        if server.out_of_memory:
            limit = _limit(session)
            return End(end.code, end.signal, end.core_dumped, out_of_memory=True, memory_limit=limit)
        if server.unit_stopped:
            return End(end.code, end.signal, end.core_dumped, unit_stopped=True)
        how = server.how
        if not how:
            await readable_within(home.server_fd, STATUS_DEADLINE)
            # Whoever stopped the session meanwhile has left it, and tells of its end.
            seen = None if home.is_closed else processes.end_of(home.server_fd, home.server)
            how = (seen.signal or f"it exited with code {seen.code}") if seen else "how is not known"
        return End(end.code, end.signal, end.core_dumped, terminal_died=how)


def for_memory(session: Session, end: End, server: Process, kills_before: int) -> End:
    """The kernel kills for want of memory with the signal that anybody may send."""
    if end.signal == "SIGKILL" and memory_kills(server) > kills_before:
        return replace(end, out_of_memory=True, memory_limit=_limit(session))
    return end


def _limit(session: Session) -> str:
    limit = session.limits.memory_max
    return "" if limit is None else format_size(limit)
