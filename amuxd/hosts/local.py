"""Runs on this machine: a tmux server of their own, enclosed so that one cannot hurt another."""

import asyncio
import contextlib
import logging
import os
import signal
from functools import partial
from pathlib import Path

import psutil

from amuxd import processes
from amuxd.hosts import Alive, Enclosure, Ended, Finding, Gone, Home, LaunchRefused, Unknown
from amuxd.hosts.cgroups import is_frozen, memory_events, memory_kills, processor_time
from amuxd.hosts.ends import STATUS_DEADLINE, Ends, for_memory
from amuxd.hosts.launcher import Launcher, NotOpened, hold
from amuxd.hosts.layout import Layout
from amuxd.hosts.outputs import Outputs
from amuxd.hosts.pipes import readable_within
from amuxd.hosts.surroundings import check, environment_of
from amuxd.hosts.tmux import ENDED_TEXT, STATUS, Terminal, TmuxRefused, TmuxUnreachable, literal, program
from amuxd.logs import give_back_reserved
from amuxd.records import Process, RunState, Session
from amuxd.states import End
from amuxd.store import Store
from amuxd.threads import alone

logger = logging.getLogger(__name__)

# A loaded machine is slow, and slow is not dead.
PANE_DEADLINE = 30.0
FIRST_DEADLINE = 8.0
# Of a file system, which may be on a network.
CHECK_DEADLINE = 5.0
# By then nobody knows how.
_ENDED_WITHOUT_WORD = "Process has ended. Click or press R to restart."

# As shell.sh starts it.
_RUNS_LINE = ["-i", "-c"]
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh"})


class LocalHost:
    def __init__(self, enclosure: Enclosure, store: Store, runtime: Path, log_cap: int) -> None:
        self._enclosure = enclosure
        self._store = store
        self._layout = Layout(runtime)
        self._launcher = Launcher(enclosure, store, self._layout, log_cap)
        self._runtime = runtime
        self.attached_directory = self._layout.attached
        self._ends = Ends(enclosure, store, self._layout)
        self._outputs = Outputs(store, self._layout, log_cap)
        # The run of a session whose log is whole, before anybody has asked for that.
        self._drained: dict[str, int] = {}

    def unit(self, session_id: str) -> str:
        return self._enclosure.unit(session_id)

    def _terminal(self, session_id: str) -> Terminal:
        return self._layout.terminal(session_id)

    def attach_command(self, session_id: str) -> list[str]:
        return self._terminal(session_id).attach_command()

    async def send(self, session_id: str, text: str, enter: bool, pause: float) -> None:
        await self._terminal(session_id).send(text, enter, pause)

    async def capture(self, session_id: str, lines: int) -> str:
        return await self._terminal(session_id).capture(lines)

    async def attached(self, session_id: str) -> int:
        return await self._terminal(session_id).clients()

    def may_be_attached(self, session_id: str) -> bool:
        return self._layout.may_be_attached(session_id)

    async def panes(self, session_id: str) -> int:
        return await self._terminal(session_id).panes()

    async def takes_only_keys(self, session_id: str) -> bool:
        try:
            return await self._terminal(session_id).takes_only_keys()
        except (TmuxUnreachable, TmuxRefused):
            return False

    async def check(self, session: Session) -> None:
        environment = environment_of(session, self._runtime)
        try:
            # A file system that does not answer must not keep a thread that others need.
            await alone(partial(check, session, environment), CHECK_DEADLINE)
        except TimeoutError:
            raise LaunchRefused(
                f"its directory {session.directory}, or its program, did not answer "
                f"within {CHECK_DEADLINE:.0f} s"
            ) from None

    async def launch(self, session: Session, run: int, keep_terminal: bool) -> Home:
        await self.check(session)
        environment, tmux = environment_of(session, self._runtime), await asyncio.to_thread(program)
        if tmux is None:
            raise LaunchRefused("tmux is not installed")
        self._layout.tmux = tmux
        try:
            return await self._launcher.launch(tmux, session, run, environment, keep_terminal, FIRST_DEADLINE)
        except NotOpened as silence:
            # Nothing of the command has run, so that it can begin anew.
            logger.warning("%s: its terminal did not open, and is opened again: %s", session.name, silence)
        await self.tear_down(session.id, at_once=True)
        try:
            return await self._launcher.launch(tmux, session, run, environment, False, PANE_DEADLINE)
        except NotOpened as silence:
            raise LaunchRefused(
                f"its terminal did not open within {PANE_DEADLINE:.0f} s: {silence}"
            ) from silence

    async def environment(self, session: Session) -> dict[str, str]:
        return {**await self._enclosure.inherited(), **environment_of(session, self._runtime)}

    def configure(self, log_cap: int) -> None:
        """For the runs that begin from now on."""
        self._launcher.log_cap = log_cap
        self._outputs.log_cap = log_cap

    def release(self, session_id: str) -> None:
        self._launcher.release(session_id)

    async def find(self, session: Session, state: RunState) -> Finding:
        if state.command is None or state.server is None:
            return Gone()
        if (told := self._ends.end_in_shell(session, state.run)) is not None:
            return Ended(told)
        command_fd = processes.open_process(state.command)
        if command_fd is None:
            if told := self._ends.end_on_record(session, state.run):
                return Ended(told)
            return await self._ends.gone(session)
        home = Home(state.command, state.server, command_fd, -1)
        try:
            if (server_fd := processes.open_process(state.server)) is not None:
                home.server_fd = server_fd
            finding = await self._look_into(home, session, state)
        except BaseException:
            home.close()
            raise
        if not isinstance(finding, Alive):
            home.close()
        return finding

    async def _look_into(self, home: Home, session: Session, state: RunState) -> Finding:
        if processes.is_dying(home.command):
            if not await readable_within(home.command_fd, STATUS_DEADLINE):
                return Unknown("its command is being killed, and has not ended yet")
            await self._have_told(session, state.run, home)
            # Nobody reaps it while its terminal stands.
            end = self._ends.of_command(session, state.run, home) or End()
            if end.code == 127 and (refusal := self._ends.refusal(session, state.run)):
                return Ended(refusal)
            return Ended(for_memory(session, end, home.server, state.memory_kills))
        if home.server_fd < 0:
            gone = await self._ends.gone(session)
            return gone if isinstance(gone, Ended) else Ended(End(terminal_died="while nobody watched"))
        home.memory_kills = max(state.memory_kills, memory_kills(home.server))
        home.not_enforced = self._enclosure.not_enforced(session.limits, home.server)
        await self._enclosure.watch(session.id)
        return Alive(home)

    async def standing(self) -> dict[str, str]:
        return await self._enclosure.standing()

    async def members(self, session_id: str) -> list[int]:
        return await self._enclosure.members(session_id)

    async def processor_time(self, session_id: str, server: Process) -> float:
        used = await asyncio.to_thread(processor_time, server)
        if used is not None:
            return used
        members = await self.members(session_id)
        return await asyncio.to_thread(lambda: sum(map(processes.processor_time, members)))

    async def find_in_terminal(self, session_id: str) -> Home | None:
        try:
            answer = await self._terminal(session_id).ask("#{pid} #{pane_pid}")
        except (TmuxUnreachable, TmuxRefused):
            return None
        server, parent = (processes.identify(int(word)) for word in answer.split())
        # The one that keeps the terminal open is the parent of the command, its only child.
        children = processes.children(parent.pid) if parent else []
        command = processes.identify(children[0]) if children else None
        return hold(command, server)

    def end_in_shell(self, session: Session, run: int) -> End | None:
        return self._ends.end_in_shell(session, run)

    def end_on_record(self, session: Session, run: int) -> End | None:
        return self._ends.end_on_record(session, run)

    async def end_of(self, session: Session, run: int, home: Home) -> End:
        await self._have_told(session, run, home)
        return await self._ends.end_of(session, run, home)

    async def _have_told(self, session: Session, run: int, home: Home) -> None:
        """Once all is printed its parent has told it. If not, that goes, and the kernel tells everybody."""
        if not processes.is_withheld(home.command):
            return
        await self.drain(session.id, run, home.server)
        if self._ends.told_by_parent(session, run) is not None:
            # Another mark would need another who prints it, and there is one who still has the terminal.
            self._drained[session.id] = run
            return
        with contextlib.suppress(TmuxUnreachable, TmuxRefused):
            # It is drawn once, as the terminal ends with that.
            await self._terminal(session.id).run("set", "-g", ENDED_TEXT, _ENDED_WITHOUT_WORD)
        self._outputs.let_go_of_end(session.id)
        # Whoever stops it may have left it meanwhile.
        if not home.is_closed:
            await asyncio.to_thread(processes.is_reaped_within, home.command_fd, STATUS_DEADLINE)

    def is_frozen(self, home: Home) -> bool:
        return is_frozen(home.server)

    def has_terminal(self, session_id: str) -> bool:
        """Or what is left of one: its configuration is made first, and goes last."""
        return (self._layout.config(session_id)).exists()

    async def logger(self, session_id: str, run: int, server: Process) -> Process | None:
        return await self._outputs.logger(session_id, run, server)

    async def drain(self, session_id: str, run: int, server: Process | None) -> None:
        if self._drained.pop(session_id, None) == run:
            return
        if server is not None:
            await self._let_go_on(session_id, server)
        await self._outputs.drain(session_id, run, server)

    async def drain_command(self, session_id: str, run: int, command: Process, server: Process) -> None:
        await self._outputs.drain_command(session_id, run, command, server)

    async def show_status(self, session_id: str, text: str) -> None:
        with contextlib.suppress(TmuxUnreachable, TmuxRefused):
            await self._terminal(session_id).run("set", "-g", STATUS, text)

    async def show_end(self, session_id: str, text: str) -> None:
        """Leaves the dead terminal to who looks at it, with a line that says what it was."""
        with contextlib.suppress(TmuxUnreachable, TmuxRefused):
            await self._terminal(session_id).run("set", "-g", ENDED_TEXT, literal(text))
        self._outputs.let_go_of_end(session_id)
        with contextlib.suppress(TmuxUnreachable, TmuxRefused, TimeoutError):
            async with asyncio.timeout(STATUS_DEADLINE):
                await self._until_shown(session_id)

    async def _until_shown(self, session_id: str) -> None:
        """tmux 3.3 may close the terminal of a process whose end it missed, and then shows nothing of it."""
        question = "#{pid} #{pane_dead} #{pane_dead_status}#{pane_dead_signal}"
        while True:
            server, dead, *how = (await self._terminal(session_id).ask(question)).split()
            if dead == "1" and how:
                return
            if dead == "1":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(server), signal.SIGCHLD)
            await asyncio.sleep(0.05)

    async def ask_to_end(self, session: Session, home: Home, number: int, with_children: bool) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(home.command_fd, number)
        if session.shell or with_children:
            await asyncio.to_thread(_signal_children, home.command.pid, number)
        # Interactive shells ignore SIGTERM; a terminal that hangs up is what ends them.
        if _is_interactive_shell(session) and processes.ignores(home.command.pid, number):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(home.command_fd, signal.SIGHUP)

        await self._let_go_on(session.id, home.server, home.command)

    async def _let_go_on(self, session_id: str, server: Process, *others: Process) -> None:
        """What is frozen or stopped can neither end well nor hand over what was printed."""
        if is_frozen(server):
            await self._enclosure.thaw(session_id)
        for process in (server, *others):
            processes.go_on(process)

    async def signal(self, home: Home, number: int, in_shell: bool) -> None:
        # What the kernel killed for memory until now is not what this does.
        home.memory_kills = max(home.memory_kills, memory_kills(home.server))
        group = processes.foreground_group(home.command) if in_shell else None
        if group is None:
            signal.pidfd_send_signal(home.command_fd, number)
            return
        if number != signal.SIGKILL and await asyncio.to_thread(_signal_front, group, number):
            return
        await asyncio.to_thread(_signal_children, home.command.pid, number)

    def memory_kills(self, server: Process) -> int:
        return memory_kills(server)

    def memory_events(self, server: Process) -> Path | None:
        return memory_events(server)

    async def tear_down(self, session_id: str, at_once: bool = False) -> None:
        self._launcher.close_gate(session_id)
        self._drained.pop(session_id, None)
        self._outputs.let_go_of_end(session_id)
        if at_once:
            await self._enclosure.kill(session_id)
        await self._enclosure.stop(session_id)
        await asyncio.to_thread(self._tidy, session_id)

    def _tidy(self, session_id: str) -> None:
        self._outputs.take_out_ends(session_id)
        for log in self._store.directory(session_id).glob("runs/*/output.log"):
            give_back_reserved(log)
        self._layout.forget(session_id)


def _signal_children(pid: int, number: int) -> None:
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.send_signal(number)


def _signal_front(group: int, number: int) -> bool:
    """As Ctrl-C does, but not the shell itself that runs a line: its programs may handle what ends it."""
    if processes.command_line(group)[1:3] == _RUNS_LINE:
        run = [child for child in processes.children(group) if _group_of(child) == group]
        for pid in run:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                _signal_children(pid, number)
        if run:
            return True
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _is_interactive_shell(session: Session) -> bool:
    if session.agent:
        return False
    name, *arguments = session.command
    flags_only = all(a.startswith("--") or (a.startswith("-") and "c" not in a) for a in arguments)
    return session.shell or (name.rpartition("/")[2] in _SHELLS and flags_only)
