"""Which amuxd a person's amux finds, where the way to the right one is blocked."""

from harness.daemon import Amux, Embedded
from harness.machine import Machine


def test_a_bus_that_is_no_more_does_not_hide_the_real_one(amux: Amux) -> None:
    stale = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/no/such/bus"}
    amux.cli("run", "-n", "here", "--", "true", env=stale)
    assert "here" in amux.cli("ls", env=stale).stdout
    assert not (amux.runtime / "bus").exists()


def test_beside_systemd_no_amuxd_without_units_is_started(machine: Machine) -> None:
    stranger = Embedded(machine)
    refused = stranger.cli("ls", check=False)
    assert refused.returncode == 5
    assert "knows of no amuxd" in refused.stderr
    assert "systemctl --user start amuxd" in refused.stderr
    assert not machine.outside(stranger.runtime / "bus").exists()
