"""The caller's environment that a session needs: a service's own is thin."""

import os
from pathlib import Path

from amuxd.cli.failures import WrongUsage, say

# fmt: off
_NAMES = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM",
    "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
    "WAYLAND_DISPLAY", "XAUTHORITY", "EDITOR", "VISUAL", "PAGER", "http_proxy", "https_proxy",
    "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "NODE_EXTRA_CA_CERTS", "VIRTUAL_ENV", "JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME",
))
# fmt: on
_PREFIXES = ("LC_", "XDG_", "SSL_CERT_", "CONDA_", "NVM_", "PYENV_")


def environment(given: tuple[str, ...]) -> dict[str, str]:
    chosen = {}
    for name, value in os.environ.items():
        if name not in _NAMES and not name.startswith(_PREFIXES):
            continue
        if _is_utf8(name + value):
            chosen[name] = value
        else:
            say(f"amux: {name} is left out: its value is not valid UTF-8")
    chosen.update(_given(assignment) for assignment in given)
    return chosen


def directory(given: Path | None, otherwise: str) -> Path:
    """Absolute; here, if none was given. WrongUsage says what is to be done where that is no more."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        if given is None or not given.is_absolute():
            raise WrongUsage("this directory no longer exists", otherwise) from None
        return given
    return here / given if given else here


def umask() -> int:
    """It can only be read by setting it."""
    own = os.umask(0o077)
    os.umask(own)
    return own


def _given(assignment: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    if not name:
        raise WrongUsage(f"-e {assignment}: a variable needs a name", "amux run -e NAME=VALUE")
    if not equals:
        if name not in os.environ:
            raise WrongUsage(f"-e {name}: not set here", f"amux run -e {name}=VALUE")
        value = os.environ[name]
    if not _is_utf8(name + value):
        raise WrongUsage(f"-e {name!a}: its value is not valid UTF-8")
    return name, value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
