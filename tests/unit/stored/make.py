"""Stores samples of what the present amuxd writes, for the tests of every later one.

As root: python tests/unit/stored/make.py VERSION. What is there is never written over: a directory that was
stored once says for ever what its version wrote.
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1])]

from harness import as_claude  # noqa: E402
from harness.client import Session  # noqa: E402
from harness.daemon import Amux  # noqa: E402
from harness.machine import Machine  # noqa: E402
from harness.waiting import until  # noqa: E402

HOME = "/home/ann"
# The samples are read on this one as well.
BOOT = "0d9c3a5e-6f0e-4a51-9d3c-5a1b6d2f7e11"


def main() -> None:
    [version] = sys.argv[1:] if len(sys.argv) == 2 else sys.exit(str(__doc__))
    target = HERE / version
    if target.exists():
        sys.exit(f"{target} is there already, and stays as it is")
    with Machine() as machine:
        amux = Amux(machine)
        try:
            amux.start()
            store(amux, target)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        finally:
            amux.close()


def store(amux: Amux, target: Path) -> None:
    """Each session is named for what it is."""
    project = amux.machine.home / "project"
    project.mkdir()
    options = {"path": ("s", str(project)), "slots": ("u", 1)}
    amux.manager.call("AddWorkspace", "sa{sv}", "project", options)
    sleep = ["sleep", "1000"]
    amux.create(sleep, name="created", start=False)
    amux.create(sleep, name="running", cwd="/", env={"LESS": "a\tb"}, tasks_max=99, description="über ✨")
    amux.create(sleep, name="in a workspace", workspace="project")
    suspended = amux.create(sleep, name="suspended", resume="auto")
    for session, state in (
        (amux.create(["true"], name="completed"), "completed"),
        (amux.create(["sh", "-c", "echo oh no; exit 3"], name="failed"), "failed"),
        (archived := amux.create(["true"], name="archived"), "completed"),
    ):
        session.wait_state(state)
        session.certificate()
    archived.call("Archive")
    stopped = amux.create(sleep, name="stopped")
    stopped.stop()
    stopped.certificate()
    restarted = amux.create(["sh", "-c", "exit 4"], name="restarted")
    restarted.wait_state("failed")
    restarted.call("Restart")
    until(lambda: restarted.get("Run") == 2)
    restarted.wait_state("failed")
    restarted.certificate()
    claude(amux, "claude")
    claude(amux, "parked").call("Park")
    keep(amux, target, "sessions")
    keep(amux, target, "workspaces")
    amux.stop()
    shutil.rmtree(target / "sessions" / suspended.id)
    keep(amux, target, f"sessions/{suspended.id}")


def claude(amux: Amux, name: str) -> Session:
    programs = as_claude.program(amux).parent
    home = str(amux.machine.home)
    session = amux.create(
        [], agent="claude", name=name, cwd=home, env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": home}
    )
    until(lambda: "remembering []" in session.log())
    session.send("apples")
    until(lambda: "heard apples" in session.log())
    return session


def keep(amux: Amux, target: Path, below: str) -> None:
    """As it is, but for the names of the machine that it was made on."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    names = {str(amux.machine.home): HOME, str(amux.bindir): f"{HOME}/.local/bin", boot: BOOT}
    shutil.copytree(amux.state / below, target / below, ignore=shutil.ignore_patterns(".*"))
    for path in (target / below).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for name, other in names.items():
                content = content.replace(name.encode(), other.encode())
            path.write_bytes(content)


if __name__ == "__main__":
    main()
