"""Sessions where there is no systemd: kept together by their terminal server and a mark they carry."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from amuxd.hosts import LaunchRefused, ServerEnd, StopRefused
from amuxd.hosts.cgroups import asked_for
from amuxd.hosts.tmux import TmuxRefused, TmuxUnreachable, run
from amuxd.records import Limits, Process, Session
from amuxd.threads import one_at_a_time

MARK = "AMUX_SESSION_ID"
GRACE = 5.0
# How long what was asked to end, and then killed, may take to go.
DEADLINE = GRACE + 10.0
# Less than anybody notices who waits for an end.
LOOK_AGAIN = 0.01
# For looks at all processes, on top of that: the kernel may not answer about one that hangs in it.
LOOKS = 15.0

Result = TypeVar("Result")


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
        if left := await _answered(session_id, partial(self._stop, session_id)):
            raise StopRefused(_cannot_be_ended(left))

    async def kill(self, session_id: str) -> None:
        await _answered(session_id, partial(self._kill, session_id))

    async def standing(self) -> dict[str, str]:
        return {socket.stem: socket.stem for socket in self._sockets.glob("*.sock")}

    async def thaw(self, session_id: str) -> None:
        """What is frozen here nobody told of."""

    async def members(self, session_id: str) -> list[int]:
        return [process.pid for process in await _answered(session_id, partial(self._members, session_id))]

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

    def _stop(self, session_id: str) -> list[psutil.Process]:
        """What does not end: it waits in the kernel for a disk that hangs, say, or is another user's."""
        over = time.monotonic() + DEADLINE
        remaining = self._members(session_id)
        for process in remaining:
            _ask(process.terminate)
        _wait(remaining, GRACE)
        # A process may have forked while it was being looked for.
        while self._kill(session_id):
            if time.monotonic() >= over:
                return self._members(session_id)
        return []

    def _kill(self, session_id: str) -> list[psutil.Process]:
        """All that were there to be killed."""
        remaining = self._members(session_id)
        for process in remaining:
            _ask(process.kill)
        _wait(remaining, GRACE)
        return remaining


async def _answered(session_id: str, work: Callable[[], Result]) -> Result:
    """Not in a thread that others need, nor in one that the end of amuxd waits for."""
    try:
        return await one_at_a_time(f"the processes of {session_id}", work, DEADLINE + LOOKS)
    except TimeoutError:
        raise StopRefused("its processes could not be looked at in time: one of them may hang") from None


def _cannot_be_ended(left: Sequence[psutil.Process]) -> str:
    named = ", ".join(f"{process.pid} ({_name(process)})" for process in left)
    return f"process{'es' if len(left) > 1 else ''} {named} cannot be ended, not even by SIGKILL"


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "gone since"


def _wait(processes: Sequence[psutil.Process], patience: float) -> None:
    """Until they have ended: process 1 of a container may never take away what is left of them."""
    over = time.monotonic() + patience
    while any(process.is_running() and _runs(process) for process in processes):
        if time.monotonic() >= over:
            return
        time.sleep(LOOK_AGAIN)


def _ask(verb: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.Error):
        verb()


def _runs(process: psutil.Process) -> bool:
    try:
        # The first thread of a process may have left the others to go on.
        return bool(process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.Error:
        return False
