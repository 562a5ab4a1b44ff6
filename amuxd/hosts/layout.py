"""Where the terminal of a session has its files."""

import shutil
from pathlib import Path

from amuxd.hosts.tmux import Terminal, program
from amuxd.paths import ensure_private


class Layout:
    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self._tmux = runtime / "tmux"
        self._gates = runtime / "gates"
        self.attached = runtime / "attached"
        # As it was found last: a directory in the PATH may not answer.
        self.tmux: str | None = None
        # Who attached before now has left a mark there, unless somebody tidied that away.
        self._knows_attached = self.attached.is_dir()
        self.make()

    def make(self) -> None:
        """Again before each launch: who tidies a runtime directory may take them away under a live amuxd."""
        for directory in (self._runtime, self._tmux, self._gates, self.attached):
            ensure_private(directory)

    def socket(self, session_id: str) -> Path:
        return self._tmux / f"{session_id}.sock"

    def config(self, session_id: str) -> Path:
        return self._tmux / f"{session_id}.conf"

    def gates(self, session_id: str) -> Path:
        return self._gates / session_id

    def may_be_attached(self, session_id: str) -> bool:
        return not self._knows_attached or (self.attached / session_id).exists()

    def waits_for_room(self, session_id: str) -> Path:
        """There while the output cannot be written."""
        return self.gates(session_id) / "full"

    def forget(self, session_id: str) -> None:
        shutil.rmtree(self.gates(session_id), ignore_errors=True)
        for leftover in (self.attached / session_id, self.socket(session_id), self.config(session_id)):
            leftover.unlink(missing_ok=True)

    def terminal(self, session_id: str) -> Terminal:
        self.tmux = self.tmux or program()
        return Terminal(self.tmux or "tmux", self.socket(session_id))
