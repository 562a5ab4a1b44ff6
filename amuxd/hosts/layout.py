"""Where the terminal of a session has its files."""

import shutil
from pathlib import Path

from amuxd.hosts.tmux import Terminal, program
from amuxd.paths import ensure_private


class Layout:
    def __init__(self, runtime: Path) -> None:
        self._tmux = ensure_private(runtime / "tmux")
        self._gates = ensure_private(runtime / "gates")
        self.attached = ensure_private(runtime / "attached")

    def socket(self, session_id: str) -> Path:
        return self._tmux / f"{session_id}.sock"

    def config(self, session_id: str) -> Path:
        return self._tmux / f"{session_id}.conf"

    def gates(self, session_id: str) -> Path:
        return self._gates / session_id

    def forget(self, session_id: str) -> None:
        shutil.rmtree(self.gates(session_id), ignore_errors=True)
        for leftover in (self.attached / session_id, self.socket(session_id), self.config(session_id)):
            leftover.unlink(missing_ok=True)

    def terminal(self, session_id: str) -> Terminal:
        return Terminal(program() or "tmux", self.socket(session_id))
