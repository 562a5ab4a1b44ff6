"""Shells that stay open after the command that ran in them has ended."""

import os
from collections.abc import Callable
from functools import partial

from amuxd import processes
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.supervisor import Supervisor
from amuxd.watch import Watch


class OpenShells:
    def __init__(self, supervisor: Supervisor, watch: Watch, ended: Callable[[Entry], None]) -> None:
        self._supervisor = supervisor
        self._watch = watch
        self._ended = ended
        self._held: dict[str, int] = {}

    def keep(self, entry: Entry) -> bool:
        """Until it ends by itself or the user ends it; False: there is none."""
        state = entry.state
        if not entry.session.shell or state.state not in {State.COMPLETED, State.FAILED}:
            return False
        if state.command is None or state.server is None:
            return False
        if processes.is_dying(state.command) or processes.is_dying(state.server):
            return False
        shell = processes.open_process(state.command)
        if shell is None:
            return False
        self._held[entry.id] = shell
        entry.shell_open = True
        self._watch.process(shell, partial(self._shell_ended, entry))
        self._supervisor.changed(entry, "ShellOpen", "HostAlive")
        return True

    def _shell_ended(self, entry: Entry) -> None:
        self.let_go(entry)
        self._ended(entry)

    def let_go(self, entry: Entry) -> None:
        if (shell := self._held.pop(entry.id, None)) is not None:
            entry.shell_open = False
            self._watch.forget_process(shell)
            os.close(shell)
            self._supervisor.changed(entry, "ShellOpen")
