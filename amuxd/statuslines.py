"""What the status line of a session's terminal says of it: as amux ls does, but for how long it is idle."""

from amuxd.hosts import Host
from amuxd.records import Process
from amuxd.registry import Entry
from amuxd.states import Liveness, State, Transition
from amuxd.supervisor import Supervisor


class StatusLines:
    """Listens to what becomes of sessions, for those whose terminal somebody looks at, or may find open."""

    def __init__(self, supervisor: Supervisor, host: Host) -> None:
        self._supervisor = supervisor
        self._host = host
        # In which terminal, for each has one of its own, and what it says.
        self._said: dict[str, tuple[Process | None, str]] = {}
        self._saying: set[str] = set()

    def appeared(self, entry: Entry) -> None:
        pass

    def disappeared(self, entry: Entry) -> None:
        self._said.pop(entry.id, None)

    def moved(self, entry: Entry, transition: Transition) -> None:
        self._look(entry)

    def exited(self, entry: Entry) -> None:
        """Its state said so."""

    def changed(self, entry: Entry, *properties: str) -> None:
        self._look(entry)

    def attention_changed(self, entry: Entry) -> None:
        self._look(entry)

    def _look(self, entry: Entry) -> None:
        if entry.id not in self._saying and self._is_to_be_said(entry):
            self._saying.add(entry.id)
            self._supervisor.spawn(self._say(entry))

    def _is_to_be_said(self, entry: Entry) -> bool:
        # Of what is suspended nobody looks on any more: its status line says what it said.
        is_looked_after = entry.state.state is not State.SUSPENDED and entry.host_alive is Liveness.ALIVE
        is_seen = entry.attached > 0 or entry.shell_open
        return is_looked_after and is_seen and self._said.get(entry.id) != _word(entry)

    async def _say(self, entry: Entry) -> None:
        """One at a time, so that the latest word is the last."""
        try:
            while self._is_to_be_said(entry):
                self._said[entry.id] = word = _word(entry)
                await self._host.show_status(entry.id, word[1])
        finally:
            self._saying.discard(entry.id)


def _word(entry: Entry) -> tuple[Process | None, str]:
    return entry.state.server, status(entry)


def status(entry: Entry) -> str:
    details = [
        _detail(entry),
        "not written" if entry.unwritten else "",
        "shell open" if entry.shell_open else "",
    ]
    detail = ", ".join(filter(None, details))
    return f"{entry.state.state} ({detail})" if detail else str(entry.state.state)


def _detail(entry: Entry) -> str:
    if entry.state.state is State.RUNNING:
        if entry.session_alive is Liveness.DEAD:
            return "ended"
        return f"waiting: {entry.state.attention}" if entry.state.attention else ""
    return entry.how_ended if entry.state.state is State.FAILED else ""
