"""What amuxd is called on a message bus, and where that is: amux and amuxd agree because both ask here."""

import os
import stat
from collections.abc import Iterator

BUS_NAME = "org.amux.Amux1"
MANAGER_PATH = "/org/amux/Amux1"
SESSIONS_PATH = MANAGER_PATH + "/sessions"
WORKSPACES_PATH = MANAGER_PATH + "/workspaces"
MANAGER_INTERFACE = "org.amux.Amux1.Manager"
SESSION_INTERFACE = "org.amux.Amux1.Session"
WORKSPACE_INTERFACE = "org.amux.Amux1.Workspace"


def bus_address() -> str | None:
    """The session bus, found as in a login session but also from ssh, cron and sudo; None: there is none."""
    return next(bus_addresses(), None)


def bus_addresses() -> Iterator[str]:
    """The likeliest first: an old shell may remember a bus that is no more."""
    if address := os.environ.get("DBUS_SESSION_BUS_ADDRESS"):
        yield address
    candidates = [f"/run/user/{os.getuid()}/bus"]
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        candidates.insert(0, runtime.rstrip("/") + "/bus")
    for candidate in candidates:
        if _is_socket(candidate):
            yield f"unix:path={candidate}"


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False


def system_bus_address() -> str:
    return os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or "unix:path=/run/dbus/system_bus_socket"
