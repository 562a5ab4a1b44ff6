"""A command that waits at its gate, without a terminal."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from amuxd.hosts import launch


def test_once_at_its_gate_a_command_needs_none_of_its_runs_files(tmp_path: Path) -> None:
    run, gates = tmp_path / "run", tmp_path / "gates"
    run.mkdir()
    gates.mkdir()
    for name in ("gate", "up", "end"):
        os.mkfifo(gates / name)
    words = [str(tmp_path), os.defpath, "sh", "-c", 'echo "$AMUX_TOKEN"']
    (run / "command").write_text("\0".join(words))
    (run / "token").write_text("secret\n")
    gate = os.open(gates / "gate", os.O_RDWR)
    program = [sys.executable, "-I", "-S", launch.__file__, str(run), str(gates)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as waiting:
        assert (gates / "up").read_text().endswith(f" {os.getpid()}\n")
        shutil.rmtree(run)
        os.write(gate, launch.GO)
        os.close(gate)
        # Who stayed is let go, and the output has an end.
        (gates / "end").write_bytes(b"")
        assert waiting.communicate(timeout=60)[0] == "secret\n"
