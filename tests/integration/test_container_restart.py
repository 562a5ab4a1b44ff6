"""A container that is begun anew is another boot, though the kernel has been up all the time."""

import json

from agent_fixtures import state_file, state_on_disk
from harness.daemon import Amux, Embedded

# Process 1 of a namespace of its own: when it ends the kernel kills whatever runs in it.
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-ec"]
RUN = """
amux run -n plain -- sleep infinity
amux run -n server --resume auto -- sleep infinity
amux ls --json
"""
LOOK = """
until amux ls | grep -q 'server.*running'; do sleep 0.1; done
amux ls --json
"""


def live_in_container(embedded: Embedded, script: str) -> dict[str, tuple[str, int]]:
    run = embedded.machine.run
    listed = run([*CONTAINER, f"{script}"], env=embedded.environment, timeout=60).stdout
    sessions = json.loads(listed[listed.index("[") :])
    return {session["name"]: (session["state"], session["run"]) for session in sessions}


def test_its_sessions_are_suspended_and_come_back_where_they_should(embedded: Embedded) -> None:
    assert live_in_container(embedded, RUN) == {"plain": ("running", 1), "server": ("running", 1)}
    assert live_in_container(embedded, LOOK) == {"plain": ("suspended", 1), "server": ("running", 2)}


def test_what_an_amuxd_wrote_that_knew_the_kernels_boot_alone_is_of_this_one(amux: Amux) -> None:
    """Tests run in a namespace of their own."""
    session = amux.create(["sleep", "infinity"], cwd="/")
    pid = session.get("Pid")
    amux.machine.systemctl("kill", "--signal=SIGKILL", "amuxd.service")
    amux.machine.systemctl("stop", "amuxd.socket", "amuxd.service", check=False)
    kernels, slash, _ = state_on_disk(amux, session)["boot_id"].partition("/")
    assert slash
    path = state_file(amux, session)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": kernels}))
    amux.start()
    assert (session.state, session.get("Pid")) == ("running", pid)
    session.stop()
    assert session.state == "stopped"
