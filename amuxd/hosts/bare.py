"""Sessions where there is no systemd: kept together by their terminal server and a mark they carry."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from amuxd.hosts import LaunchRefused, ServerEnd
from amuxd.hosts.cgroups import asked_for
from amuxd.hosts.tmux import TmuxRefused, TmuxUnreachable, run
from amuxd.records import Limits, Process, Session

MARK = "AMUX_SESSION_ID"
GRACE = 5.0


class Bare:
    def __init__(self, sockets: Path) -> None:
        self._sockets = sockets

    def unit(self, session_id: str) -> str:
        return ""

    async def start(
        self, session: Session, server: Sequence[str], pid_file: Path, environment: Mapping[str, str]
    ) -> None:
        await self.stop(session.id)
        try:
            # tmux leaves for a session and a parent of its own, so amuxd's end is not its end.
            await run(server, deadline=GRACE)
        except (TmuxUnreachable, TmuxRefused) as error:
            await self.stop(session.id)
            raise LaunchRefused(f"its terminal server did not start ({error})") from error

    async def inherited(self) -> dict[str, str]:
        """tmux is run with none of amuxd's own."""
        return {}

    def not_enforced(self, limits: Limits, server: Process) -> list[str]:
        return asked_for(limits)

    async def watch(self, session_id: str) -> None:
        """Without systemd there is nobody to ask: the processes themselves are all that is watched."""

    async def stop(self, session_id: str) -> None:
        await asyncio.to_thread(self._stop, session_id)

    async def kill(self, session_id: str) -> None:
        await asyncio.to_thread(self._signal_all, session_id)

    async def standing(self) -> dict[str, str]:
        return {socket.stem: socket.stem for socket in self._sockets.glob("*.sock")}

    async def thaw(self, session_id: str) -> None:
        """What is frozen here nobody told of."""

    async def members(self, session_id: str) -> list[int]:
        return [process.pid for process in await asyncio.to_thread(self._members, session_id)]

    async def is_ending(self, session_id: str) -> bool:
        return False

    async def server_end(self, session_id: str) -> ServerEnd:
        return ServerEnd("")

    async def ran_out_of_memory(self, session_id: str) -> bool:
        return False

    def _members(self, session_id: str) -> list[psutil.Process]:
        socket = str(self._sockets / f"{session_id}.sock")
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == session_id
                if marked or socket in process.cmdline():
                    found[process.pid] = process
                    found.update({child.pid: child for child in process.children(recursive=True)})
            except (psutil.Error, FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        found.pop(psutil.Process().pid, None)
        return [process for process in found.values() if _runs(process)]

    def _stop(self, session_id: str) -> None:
        remaining = self._members(session_id)
        for process in remaining:
            _ask(process.terminate)
        psutil.wait_procs(remaining, timeout=GRACE if remaining else 0)
        # A process may have forked while it was being looked for.
        while self._signal_all(session_id):
            pass

    def _signal_all(self, session_id: str) -> bool:
        remaining = self._members(session_id)
        for process in remaining:
            _ask(process.kill)
        psutil.wait_procs(remaining, timeout=GRACE if remaining else 0)
        return bool(remaining)


def _ask(verb: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.Error):
        verb()


def _runs(process: psutil.Process) -> bool:
    try:
        # The first thread of a process may have left the others to go on.
        return bool(process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.Error:
        return False
