"""A message bus of our own, where there is no session bus: it starts amuxd as a session bus would."""

import contextlib
import fcntl
import os
import shlex
import signal
from pathlib import Path

from amuxd import addresses, paths
from amuxd.cli import keeper
from amuxd.cli.connection import BUS, Connection
from amuxd.cli.failures import ENDED, RemoteError, Unreachable

_START_TIMEOUT = 10
_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <keep_umask/>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <servicedir>{services}</servicedir>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
  <limit name="max_incoming_bytes">1000000000</limit>
  <limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_message_size">1000000000</limit>
  <limit name="service_start_timeout">60000</limit>
  <limit name="max_completed_connections">100000</limit>
  <limit name="max_connections_per_user">100000</limit>
  <limit name="max_match_rules_per_connection">50000</limit>
  <limit name="max_replies_per_connection">50000</limit>
</busconfig>
"""
# To buses that this process started.
_ours: set[Connection] = set()
_SERVICE = """[D-BUS Service]
Name={name}
Exec={command}
"""


def connect(timeout: float, start: bool) -> Connection | None:
    """None: there is none, and none was to be started."""
    socket = paths.private_bus_socket()
    if connection := _connected(socket, timeout):
        if start:
            _have_ours_started(connection, socket.parent)
        return connection
    if not start:
        return None
    keeper.refuse_if_elsewhere(socket)
    directory = paths.ensure_private(socket.parent)
    with (directory / "bus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another amux may have started it while we waited for the lock.
        if connection := _connected(socket, timeout):
            return connection
        _note_state(directory).write_bytes(_state())
        _start(socket, directory)
        connection = Connection(str(socket), timeout)
        _ours.add(connection)
        return connection


def _have_ours_started(connection: Connection, directory: Path) -> None:
    """Whoever started the bus may have been another amux, which is gone."""
    # It matters for the next start alone: the amuxd that there is answers all the same. A bus that cannot
    # read its configuration any more still looks at the file when it starts the service.
    with contextlib.suppress(OSError, RemoteError):
        if _service_is_ours(directory):
            return
        _write_service(directory)
        connection.call(BUS, "ReloadConfig", timeout=_START_TIMEOUT)


def look_after(connection: Connection, start: bool) -> str:
    """Nobody waits for an amuxd that itself waits for another, nor leaves a bus behind that has none.

    Why it stays away, if it is not to be started.
    """
    if connection.call(BUS, "NameHasOwner", "s", addresses.BUS_NAME, timeout=_START_TIMEOUT)[0]:
        return ""
    try:
        keeper.refuse_if_elsewhere(paths.private_bus_socket())
    except Unreachable:
        if connection in _ours:
            _end(connection)
        raise
    return "" if start else ENDED


def _end(connection: Connection) -> None:
    with contextlib.suppress(OSError, RemoteError):
        asked = connection.call(BUS, "GetConnectionUnixProcessID", "s", BUS.bus_name, timeout=_START_TIMEOUT)
        os.kill(asked[0], signal.SIGTERM)


def _connected(socket: Path, timeout: float) -> Connection | None:
    try:
        connection = Connection(str(socket), timeout)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    try:
        _check_state(socket.parent)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_state(directory: Path) -> None:
    """The bus starts amuxd with the environment of whoever started the bus, and so on that one's sessions."""
    try:
        theirs = _note_state(directory).read_bytes()
    except FileNotFoundError:
        return
    if theirs != _state():
        where, here = os.fsdecode(theirs), os.fsdecode(_state())
        raise Unreachable(
            f"amuxd here keeps its sessions in {where}, and you have yours in {here}",
            "HOME or XDG_STATE_HOME differ; with another XDG_RUNTIME_DIR you get an amuxd of your own",
        )


def _note_state(directory: Path) -> Path:
    return directory / "bus.state"


def _state() -> bytes:
    return os.fsencode(paths.state_directory().resolve())


def _start(socket: Path, directory: Path) -> None:
    import subprocess

    socket.unlink(missing_ok=True)
    try:
        # With --fork it returns once the bus listens, and the bus itself is detached: / is its directory,
        # /dev/null its input and output. The session of its own keeps Ctrl-C off meanwhile.
        finished = subprocess.run(
            [
                "dbus-daemon",
                "--config-file",
                str(_written_config(socket, directory)),
                "--fork",
                "--nopidfile",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # In a session it would else carry that session's mark, and end with it.
            env={name: value for name, value in os.environ.items() if not name.startswith("AMUX_")},
            timeout=_START_TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        raise Unreachable(
            "there is no session bus, and dbus-daemon to start one is not installed",
            "install it: apt install dbus, dnf install dbus-daemon or pacman -S dbus",
        ) from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"dbus-daemon did not start (waited {_START_TIMEOUT} s)") from None
    if finished.returncode != 0:
        said = os.fsdecode(finished.stderr).strip().replace("\n", "; ")
        raise Unreachable(f"dbus-daemon did not start: {said or f'exit code {finished.returncode}'}")


def _written_config(socket: Path, directory: Path) -> Path:
    from xml.sax.saxutils import escape

    _write_service(directory)
    services = str(_service_file(directory).parent)
    config = directory / "bus.conf"
    config.write_text(_CONFIG.format(socket=escape(_address_value(str(socket))), services=escape(services)))
    return config


def _service_file(directory: Path) -> Path:
    return directory / "services" / f"{addresses.BUS_NAME}.service"


def _our_service() -> str:
    command = " ".join(map(_quoted, paths.amuxd_command()))
    return _SERVICE.format(name=addresses.BUS_NAME, command=command)


def _service_is_ours(directory: Path) -> bool:
    try:
        return _service_file(directory).read_text() == _our_service()
    except FileNotFoundError:
        return False


def _write_service(directory: Path) -> None:
    """In one step: the bus may be reading it."""
    file = _service_file(directory)
    file.parent.mkdir(exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.write_text(_our_service())
    unfinished.replace(file)


def _quoted(word: str) -> str:
    return '"' + "".join("\\" + char if char in '"\\$`' else char for char in word) + '"'


def _address_value(value: str) -> str:
    plain = b"-_/.*abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return "".join(chr(octet) if octet in plain else f"%{octet:02x}" for octet in os.fsencode(value))


def by_hand() -> str:
    """How to see what amuxd says when the private bus cannot start it."""
    address = f"unix:path={_address_value(str(paths.private_bus_socket()))}"
    return f"DBUS_SESSION_BUS_ADDRESS={address} {shlex.join(paths.amuxd_command())}"
