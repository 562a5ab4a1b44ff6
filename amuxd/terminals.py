"""What a person does at a session's terminal. A parked session comes back for it."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from amuxd.errors import AmuxError, Internal, InvalidArgument, InvalidTransition, LaunchFailed
from amuxd.hosts.tmux import TmuxRefused, TmuxUnanswered, TmuxUnreachable
from amuxd.logs import last_written, size_of
from amuxd.possible import impossible
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.signal_names import signal_number
from amuxd.states import Liveness
from amuxd.supervisor import now

# An agent that began is ready once it has printed something and then nothing for a while: they pause for up
# to two seconds as they start, and throw away what was typed meanwhile. Some print for ever, and some
# nothing at all.
QUIET = 2.5
LONGEST_WAKING = 20.0
# Between the answer to who wants to attach and their being there.
COMING = 10.0
_LOOK_AGAIN = 0.05

Result = TypeVar("Result")


class Terminals:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def kill(self, entry: Entry, name: str) -> None:
        number = signal_number(name)
        if number is None:
            raise InvalidArgument(f"there is no signal {name!r}")
        if entry.home is None or entry.ended.is_set():
            raise impossible(entry, "kill")
        try:
            await self._runs.host.signal(entry.home, number, entry.session.shell)
        except PermissionError:
            raise Internal(f"{entry.session.name} runs as another user, who alone can signal it") from None
        except ProcessLookupError:
            raise impossible(entry, "kill") from None
        except OSError as error:
            raise Internal(f"{entry.session.name} could not be signalled: {error.strerror}") from error

    async def send(self, entry: Entry, text: str, enter: bool) -> None:
        with self._runs.parking.put_off(entry):
            await self._runs.parking.bring_back(entry)
            await self._until_ready(entry)
            await self._ask(entry, "send", self._typed(entry, text, enter))
            await self._runs.homes.attending.typed(entry)

    async def _typed(self, entry: Entry, text: str, enter: bool) -> None:
        pause = entry.agent.pause_before_enter if entry.agent else 0.0
        try:
            await self._runs.host.send(entry.id, text, enter, pause)
        except TmuxUnanswered as error:
            name = entry.session.name
            raise Internal(
                f"it is not known whether it was typed into {name}, or will be yet: {error}"
            ) from error

    async def capture(self, entry: Entry, lines: int) -> str:
        return await self._ask(entry, "capture", self._runs.host.capture(entry.id, lines))

    async def attach_command(self, entry: Entry) -> list[str]:
        with self._runs.parking.put_off(entry):
            await self._runs.parking.bring_back(entry)
            # Whoever took a terminal that does not answer would see nothing, and not know why.
            await self._ask(entry, "attach", self._runs.host.attached(entry.id))
            entry.expected_until = now() + int(COMING * 1e6)
            return self._runs.host.attach_command(entry.id)

    async def _until_ready(self, entry: Entry) -> None:
        waking = entry.waking
        if waking is None:
            return
        log = self._runs.supervisor.store.log(entry.id, entry.state.run)
        deadline = waking.since + LONGEST_WAKING
        while asyncio.get_running_loop().time() < deadline:
            if entry.ended.is_set():
                raise LaunchFailed(f"{entry.session.name} ended before anything could be typed into it")
            if size_of(log) != waking.log_size and time.time() - last_written(log) / 1e6 >= QUIET:
                break
            await asyncio.sleep(_LOOK_AGAIN)
        if entry.waking is waking:
            entry.waking = None

    async def _ask(self, entry: Entry, verb: str, question: Coroutine[Any, Any, Result]) -> Result:
        if entry.host_alive is not Liveness.ALIVE:
            question.close()
            raise await self._gone(entry, verb)
        if entry.home is not None and self._runs.host.is_frozen(entry.home):
            question.close()
            raise InvalidTransition(
                f"{entry.session.name} is frozen, {verb} is not possible; "
                f"systemctl --user thaw {self._runs.host.unit(entry.id)} lets it go on"
            )
        try:
            return await question
        except (TmuxUnreachable, TmuxRefused) as error:
            raise Internal(f"the terminal of {entry.session.name} did not do it: {error}") from error

    async def _gone(self, entry: Entry, verb: str) -> AmuxError:
        """Whoever has something to say to an agent hears whether its conversation can go on."""
        why = entry.why_not_resumable or await self._runs.homes.why_lost(entry) if entry.session.agent else ""
        error = impossible(entry, verb)
        return InvalidTransition(f"{error}; it cannot be resumed: {why}") if why else error
