"""What systemd knows of an amuxd that does not answer."""

from typing import Any

from jeepney import DBusAddress

from amuxd.addresses import BUS_NAME
from amuxd.cli.connection import BUS, Connection
from amuxd.cli.failures import ENDED, STOPPED, RemoteError, Unreachable
from amuxd.cli.said_last import in_journal
from amuxd.errors import NEEDS_PERSON

_SYSTEMD = "org.freedesktop.systemd1"
_UNIT = "amuxd.service"
_MANAGER = DBusAddress("/org/freedesktop/systemd1", _SYSTEMD, f"{_SYSTEMD}.Manager")
_PROPERTIES = DBusAddress(
    "/org/freedesktop/systemd1/unit/amuxd_2eservice", _SYSTEMD, "org.freedesktop.DBus.Properties"
)
_TIMEOUT = 2.0
_HINT = "journalctl --user -u amuxd tells more; once that is mended: systemctl --user reset-failed amuxd"


def look_after(connection: Connection, start: bool) -> str:
    """While somebody waits: says so if systemd has given up, and starts it if that is wanted and nobody does.

    A bus whose request to start it has failed without a word waits on, and asks no more. Returns why it
    stays away, if it is not to be started.
    """
    # One that was started by hand is in no unit.
    if _asked(connection, BUS, "NameHasOwner", "s", BUS_NAME) == (True,):
        return ""
    unit = _properties(connection, "Unit")
    if not unit:
        # Else systemd has no time for us just now.
        is_alone = _asked(connection, BUS, "NameHasOwner", "s", _SYSTEMD) == (False,)
        return ENDED if is_alone and not start else ""
    if unit["Job"][0]:
        return ""
    if unit["ActiveState"] == "failed":
        service = _properties(connection, "Service")
        if service.get("ExecMainStatus") == NEEDS_PERSON:
            if unit["InactiveEnterTimestamp"] >= connection.began * 1e6:
                raise Unreachable(f"amuxd does not start{in_journal()}", "journalctl --user -u amuxd")
            # That was for somebody else, and may be mended.
            return _started(connection, start)
        result = service.get("Result", "")
        how = "" if result in ("exit-code", "") else f" ({result})"
        raise Unreachable(
            f"amuxd failed too often{how}, and systemd does not start it any more{in_journal()}", _HINT
        )
    return _started(connection, start) if unit["ActiveState"] == "inactive" else ""


def _started(connection: Connection, start: bool) -> str:
    if not start:
        return STOPPED
    _asked(connection, _MANAGER, "StartUnit", "ss", _UNIT, "replace")
    return ""


def is_starting(connection: Connection) -> bool:
    """Also between two attempts."""
    return _properties(connection, "Unit").get("ActiveState") == "activating"


def _properties(connection: Connection, kind: str) -> dict[str, Any]:
    """Nothing where there is no systemd, or where it does not know the unit."""
    found = _asked(connection, _PROPERTIES, "GetAll", "s", f"{_SYSTEMD}.{kind}")
    return {name: value for name, (_, value) in found[0].items()} if found else {}


def _asked(connection: Connection, address: DBusAddress, member: str, *arguments: Any) -> tuple[Any, ...]:
    try:
        return connection.reply(connection.send(address, member, *arguments, activate=False), _TIMEOUT)
    except (RemoteError, TimeoutError):
        return ()
