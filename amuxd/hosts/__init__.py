"""Where a run lives."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from amuxd.records import Limits, Process, RunState, Session
from amuxd.states import End

# The file in a run's directory that a shell leaves the code of its command in.
EXIT_STATUS = "exit_status"
# And how one ended of which the kernel told its parent alone.
ENDED = "ended"


class LaunchRefused(Exception):
    """The command was not started, and the message says why."""


class StopRefused(Exception):
    """Something of the session lives on."""


class LoggerMissing(Exception):
    """Nobody takes down what is printed, and nobody could be made to."""


class LoggerUnknown(LoggerMissing):
    """Whether anybody takes down what is printed could not be found out."""


@dataclass
class Home:
    """A live run: its processes, held so that their end is an event and nobody else's."""

    command: Process
    server: Process
    command_fd: int
    server_fd: int
    memory_kills: int = 0
    not_enforced: list[str] = field(default_factory=list)

    @property
    def is_closed(self) -> bool:
        return self.command_fd < 0

    def close(self) -> None:
        for fd in (self.command_fd, self.server_fd):
            if fd >= 0:
                os.close(fd)
        self.command_fd = self.server_fd = -1


@dataclass(frozen=True)
class Alive:
    home: Home


@dataclass(frozen=True)
class Ended:
    end: End


@dataclass(frozen=True)
class Gone:
    """Nothing is left that could tell how it ended."""


@dataclass(frozen=True)
class Unknown:
    why: str


Finding = Alive | Ended | Gone | Unknown


@dataclass(frozen=True)
class ServerEnd:
    """How a session's terminal server was seen to end."""

    how: str = ""
    out_of_memory: bool = False
    unit_stopped: bool = False


class Enclosure(Protocol):
    """What keeps the processes of a session together: a systemd unit or, where there is none, a mark."""

    def unit(self, session_id: str) -> str: ...

    async def start(
        self, session: Session, server: Sequence[str], pid_file: Path, environment: Mapping[str, str]
    ) -> None:
        """The server goes to the background, and writes down in the file which process it is."""

    async def inherited(self) -> dict[str, str]:
        """The variables that reach what it starts from elsewhere. Raises LaunchRefused."""

    def not_enforced(self, limits: Limits, server: Process) -> list[str]:
        """Those of the limits that nothing is known to hold the processes to."""

    async def watch(self, session_id: str) -> None: ...

    async def stop(self, session_id: str) -> None:
        """Returns when no process is left."""

    async def kill(self, session_id: str) -> None: ...

    async def standing(self) -> dict[str, str]:
        """Whatever session may be there, known or not: its name, or its id where nothing tells the name."""

    async def thaw(self, session_id: str) -> None:
        """Lets what was frozen go on. Does not raise."""

    async def members(self, session_id: str) -> list[int]:
        """The processes that it keeps together. Raises where that cannot be known."""

    async def is_ending(self, session_id: str) -> bool:
        """Whether all of it is being ended, by somebody who is not amuxd."""

    async def server_end(self, session_id: str) -> ServerEnd: ...

    async def ran_out_of_memory(self, session_id: str) -> bool:
        """Whether that is how all of it ended, for who did not watch."""


class Host(Protocol):
    def unit(self, session_id: str) -> str: ...

    async def check(self, session: Session) -> None:
        """Raises LaunchRefused where a run of it could not begin as things are now."""

    async def launch(self, session: Session, run: int, keep_terminal: bool) -> Home:
        """The command waits for release(). Raises LaunchRefused."""

    async def environment(self, session: Session) -> dict[str, str]:
        """All variables that a run of it would find now. Raises LaunchRefused where that is not known."""

    def release(self, session_id: str) -> None: ...

    async def find(self, session: Session, state: RunState) -> Finding: ...

    async def standing(self) -> dict[str, str]:
        """Whatever session may live, whether anybody knows of it or not, by its id, with its name."""

    async def members(self, session_id: str) -> list[int]:
        """All processes of a session. Raises where that cannot be known."""

    async def processor_time(self, session_id: str, server: Process) -> float:
        """In seconds, by all processes of a session so far. Raises where that cannot be known."""

    async def find_in_terminal(self, session_id: str) -> Home | None:
        """What the terminal itself knows of what runs in it, without a file's help."""

    async def end_of(self, session: Session, run: int, home: Home) -> End: ...

    def end_in_shell(self, session: Session, run: int) -> End | None:
        """How the command ended in a shell, which lives on."""

    def end_on_record(self, session: Session, run: int) -> End | None:
        """What the run itself wrote down of its end, and can be read on another boot too."""

    def is_frozen(self, home: Home) -> bool:
        """Whether its processes are held, by systemctl freeze say."""

    def has_terminal(self, session_id: str) -> bool:
        """Whether a terminal of the session may be standing. Cheap, so that it can be asked of a thousand."""

    async def logger(self, session_id: str, run: int, server: Process) -> Process | None:
        """Who takes down what it prints; None where nothing more is printed.

        Begun again where nobody does, or where somebody has taken away the log. Raises LoggerMissing.
        """

    async def drain(self, session_id: str, run: int, server: Process | None) -> None:
        """Returns once all that the run printed is in its log."""

    async def drain_command(self, session_id: str, run: int, command: Process, server: Process) -> None:
        """Returns once all that ran in a shell, which lives on as the command, has printed is in its log."""

    async def show_status(self, session_id: str, text: str) -> None:
        """In the status line of its terminal."""

    async def show_end(self, session_id: str, text: str) -> None: ...

    async def ask_to_end(self, session: Session, home: Home, number: int, with_children: bool) -> None: ...

    async def signal(self, home: Home, number: int, in_shell: bool) -> None:
        """Its command: in a shell that stays open, what runs there. Raises OSError."""

    def memory_kills(self, server: Process) -> int:
        """How many of a session's processes the kernel has killed for memory so far."""

    def memory_events(self, server: Process) -> Path | None:
        """What is written when there are more; None where nothing tells of them."""

    async def tear_down(self, session_id: str, at_once: bool = False) -> None:
        """Returns when no process is left."""

    async def attached(self, session_id: str) -> int: ...

    def may_be_attached(self, session_id: str) -> bool:
        """False where nobody has ever attached to its terminal."""

    async def panes(self, session_id: str) -> int:
        """In how many windows and panes of its terminal something runs, the command's own among them."""

    async def takes_only_keys(self, session_id: str) -> bool:
        """Whether what its command reads was typed, if nobody came, left or arranged windows just then."""

    async def send(self, session_id: str, text: str, enter: bool, pause: float) -> None: ...

    async def capture(self, session_id: str, lines: int) -> str: ...

    def attach_command(self, session_id: str) -> list[str]: ...
