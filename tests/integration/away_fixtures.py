"""amuxd with other settings, or away."""

from collections.abc import Iterator
from contextlib import contextmanager

from harness.daemon import Amux
from harness.waiting import until


@contextmanager
def settings(amux: Amux, text: str) -> Iterator[None]:
    """An amuxd unit with other settings, for as long as this lasts."""
    path = amux.machine.outside(amux.machine.runtime) / "systemd/user/amuxd.service.d/test.conf"
    path.parent.mkdir()
    path.write_text(text)
    try:
        amux.machine.systemctl("daemon-reload")
        yield
    finally:
        path.unlink()
        path.parent.rmdir()
        amux.machine.systemctl("daemon-reload")


@contextmanager
def stays_down(amux: Amux, number: int) -> Iterator[None]:
    with settings(amux, "[Service]\nRestart=no\n"):
        amux.kill(number)
        until(lambda: amux.machine.systemctl("is-active", "amuxd", check=False) in ("failed", "inactive"))
        yield
