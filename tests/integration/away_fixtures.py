"""amuxd with other settings, or away."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from harness.daemon import Amux
from harness.waiting import until

DOWN = ("failed", "inactive")


@contextmanager
def settings(amux: Amux, text: str) -> Iterator[None]:
    """An amuxd unit with other settings, for as long as this lasts."""
    path = amux.machine.outside(amux.machine.runtime) / "systemd/user/amuxd.service.d" / f"{uuid4().hex}.conf"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    try:
        amux.machine.systemctl("daemon-reload")
        yield
    finally:
        path.unlink()
        with suppress(OSError):
            # Others may be there still.
            path.parent.rmdir()
        amux.machine.systemctl("daemon-reload")


@contextmanager
def stays_down(amux: Amux, number: int) -> Iterator[None]:
    with settings(amux, "[Service]\nRestart=no\n"):
        amux.kill(number)
        until(lambda: amux.machine.systemctl("is-active", "amuxd", check=False) in DOWN)
        yield
