"""One tmux server a session: its configuration, its command lines, and calls that cannot hang amuxd."""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from pathlib import Path
from weakref import WeakValueDictionary

import psutil

from amuxd.signal_names import signal_name
from amuxd.threads import alone

PANE = "%0"
DEADLINE = 5.0
_ANSWER_LIMIT = 64 * 1024
_SCREEN = ("-x", "200", "-y", "50")

# What systemd tells a service about itself says nothing true to the programs in a session.
_OF_THE_SERVICE = (
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "MANAGERPID",
    "MANAGERPIDFDID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    "NOTIFY_SOCKET",
    "PIDFILE",
    "SYSTEMD_EXEC_PID",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)

# tmux reaching the user bus would move each pane out of the session's unit, its limits and its end.
SERVER_ENVIRONMENT = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/dev/null", "LANG": "C.UTF-8"}


class TmuxUnreachable(Exception):
    """tmux could not be asked, which says nothing about the session."""


class TmuxUnanswered(TmuxUnreachable):
    """tmux was asked, and may yet do it: what waits in its socket cannot be taken back."""


class TmuxRefused(Exception):
    """tmux answered, and said no."""


def program() -> str | None:
    return shutil.which("tmux")


def quote(text: str) -> str:
    """One word of tmux's configuration language, whatever is in it."""
    plain = {"\\": "\\\\", '"': '\\"', "$": "\\$", "~": "\\~", "\n": "\\n"}
    return '"' + "".join(plain.get(c, c if c.isprintable() else _octal(c)) for c in text) + '"'


def _octal(character: str) -> str:
    if ord(character) > 0x7F:
        return character
    return f"\\{ord(character):03o}"


def unformatted(text: str) -> str:
    """Text that tmux will put through its formats, and must leave as it is."""
    return text.replace("#", "##")


def literal(text: str) -> str:
    """The same where it also puts in the date."""
    return unformatted(text).replace("%", "%%")


ENDED_TEXT = "remain-on-exit-format"
# Until amuxd says how: tmux may show an end before it knows that itself.
_ENDED = "Process has ended"
_WINDOW_FORMATS = ("window-status-format", "window-status-current-format")
_OTHER_WINDOWS = "#{?#{==:#{session_windows},1},,#I:#{?#{==:#I,0},main,#W}#F}"

# Keys that are there only while the command has ended: those of a live session are its own.
_ENDED_KEYS = "amux-ended"
_IS_ENDED_PANE = "#{&&:#{==:#{pane_id},%0},#{pane_dead}}"
# Pressed twice it is asked for twice, and the second time is not possible any more: no need to say so.
_RESTART = 'told=$("$1" restart "$2" 2>&1 >/dev/null); [ $? -eq 4 ] || printf %s "$told"'


# Who looks, and all that makes a program draw itself anew: a client resized, a pane split off or zoomed,
# another window of the desktop chosen.
_TOLD = (
    *("client-attached", "client-detached", "window-layout-changed"),
    *("pane-focus-in", "pane-focus-out"),
)
# How the session stands, whichever window is looked at.
STATUS = "@amux-status"
# In terminals that an older amuxd opened it is not set.
_FOCUS_IS_TOLD = "@amux-focus-is-told"


@dataclass(frozen=True)
class Shown:
    """What a terminal says of its session, and how it has it restarted."""

    name: str
    session_id: str
    amux: str


def _ended_pane(shown: Shown) -> list[str]:
    restart = shlex.join(["sh", "-c", _RESTART, "sh", shown.amux, shown.session_id])
    run = quote("run-shell -b " + quote(unformatted(restart)))
    condition = quote(_IS_ENDED_PANE)
    begin = quote(f"set -t main key-table {_ENDED_KEYS}; set -t main mouse on")
    died = f"if -F {quote('#{==:#{hook_pane},%0}')} {begin}"
    return [
        f"set-hook -g pane-died {quote(died)}",
        *(f"bind -T {_ENDED_KEYS} {key} if -F {condition} {run} {quote('send-keys ' + key)}" for key in "Rr"),
        f"bind -T {_ENDED_KEYS} MouseDown1Pane if -F -t = {condition} {run} {quote('select-pane -t =')}",
    ]


def configuration(environment: Mapping[str, str], attached_marker: Path, shown: Shown) -> str:
    tell = unformatted(f": >{shlex.quote(str(attached_marker))}")
    lines = [
        # The user's own configuration is for the user's own server.
        "set -g exit-empty off",
        "set -g remain-on-exit on",
        f"set -g {ENDED_TEXT} {quote(_ENDED)}",
        *_ended_pane(shown),
        "set -g history-limit 10000",
        f"set -g default-terminal {_terminal()}",
        "set -g focus-events on",
        "set -s escape-time 10",
        "set -g set-titles on",
        "set -g set-titles-string " + quote(f"{literal(shown.name)} - #T"),
        # The first window runs the session's command; tmux would give it the name of whoever waits for that.
        *(f"set -g {option} {quote(_OTHER_WINDOWS)}" for option in _WINDOW_FORMATS),
        "set -g status-left-length 40",
        "set -g status-left " + quote(f" {literal(shown.name)} "),
        f"set -g {STATUS} running",
        "set -g status-right-length 60",
        "set -g status-right " + quote(f" #{{{STATUS}}} | #{{prefix}} d detaches "),
        *(f"set-hook -g {hook} {quote('run-shell -b ' + quote(tell))}" for hook in _TOLD),
        f"set -g {_FOCUS_IS_TOLD} 1",
    ]
    lines += [f"set-environment -gr {name}" for name in _OF_THE_SERVICE]
    lines += [f"set-environment -g {quote(name)} {quote(value)}" for name, value in environment.items()]
    if "DBUS_SESSION_BUS_ADDRESS" not in environment:
        lines.append("set-environment -gr DBUS_SESSION_BUS_ADDRESS")
    if shell := environment.get("SHELL"):
        lines.append(f"set -g default-shell {quote(shell)}")
    return "\n".join(lines) + "\n"


@cache
def _terminal() -> str:
    known = (
        Path(base) / "t" / "tmux-256color"
        for base in ("/usr/share/terminfo", "/lib/terminfo", "/etc/terminfo")
    )
    return "tmux-256color" if any(path.exists() for path in known) else "screen-256color"


def server_command(tmux: str, socket: Path, config: Path) -> list[str]:
    """Its session is made by its configuration, so that one process starts both."""
    return [tmux, "-S", str(socket), "-f", str(config), "start-server"]


def opening(directory: str, argv: Sequence[str], logger: Sequence[str], pid_file: Path) -> str:
    """The lines of the configuration that make the session; without it the server ends."""
    lines = [
        ["new-session", "-d", "-s", "main", *_SCREEN, "-c", unformatted(directory), "--", *argv],
        pipe_arguments(logger),
        ["run-shell", "echo #{pid} >" + unformatted(shlex.quote(str(pid_file)))],
        ["set", "-g", "exit-empty", "on"],
    ]
    return "".join(" ".join(map(quote, line)) + "\n" for line in lines)


def respawning(directory: str, argv: Sequence[str], logger: Sequence[str]) -> list[Sequence[str]]:
    """The commands that begin the session anew where it was."""
    return [
        ("set", "-u", "-t", "main", "key-table"),
        ("set", "-u", "-t", "main", "mouse"),
        ("set", "-g", ENDED_TEXT, _ENDED),
        ("respawn-pane", "-k", "-t", PANE, "-c", unformatted(directory), "--", *argv),
        ("set", "-w", "-t", PANE, "remain-on-exit", "on"),
        pipe_arguments(logger),
    ]


def _words(*commands: Sequence[str]) -> list[str]:
    """What a client of tmux is given for them: an argument that ends in a semicolon would end its command."""
    words: list[str] = []
    for command in commands:
        words += [";"] if words else []
        words += (f"{word[:-1]}\\;" if word.endswith(";") else word for word in command)
    return words


def pipe_arguments(logger: Sequence[str]) -> list[str]:
    return ["pipe-pane", "-t", PANE, literal("exec " + shlex.join(logger))]


class Terminal:
    """A running tmux server, asked from outside."""

    def __init__(self, tmux: str, socket: Path) -> None:
        self._tmux = tmux
        self.socket = socket

    def attach_command(self) -> list[str]:
        # -N here too: one that comes too late would leave the socket of a server that nobody looks after.
        return [self._tmux, "-N", "-S", str(self.socket), "attach-session", "-t", PANE]

    async def run(self, *command: str, text: str | None = None, deadline: float = DEADLINE) -> str:
        # -N: asking must never start a server.
        argv = [self._tmux, "-N", "-S", str(self.socket), *_words(command)]
        return await run(argv, text=text, deadline=deadline)

    async def run_all(self, commands: Sequence[Sequence[str]]) -> None:
        """As one: of those after the one that fails none is done."""
        await run([self._tmux, "-N", "-S", str(self.socket), *_words(*commands)])

    async def ask(self, format: str = "") -> str:
        """Raises unless the server answers."""
        return await self.run("display-message", "-p", "-t", PANE, format)

    async def is_dead(self) -> bool:
        return (await self.run("display-message", "-p", "-t", PANE, "#{pane_dead}")).strip() == "1"

    async def takes_only_keys(self) -> bool:
        """It asked for no mouse, and of all else that it may read beside keys amuxd is told."""
        return (await self.ask("#{" + _FOCUS_IS_TOLD + "}#{mouse_any_flag}")).strip() == "10"

    async def clients(self) -> int:
        return len(await self._verb("list-clients", "-F", "#{client_pid}"))

    async def panes(self) -> int:
        """In all windows; those that have ended and only show it count no more."""
        dead = await self._verb("list-panes", "-a", "-F", "#{pane_dead}")
        return sum(1 for pane in dead if pane.strip() == "0")

    async def capture(self, lines: int) -> str:
        # -J rejoins what the terminal's width broke.
        start = ["-S", f"-{lines}"] if lines else []
        shown = await self._verb("capture-pane", "-p", "-J", *start, "-t", PANE)
        kept = [line.rstrip() for line in shown]
        while kept and not kept[-1]:
            kept.pop()
        return "\n".join(kept[-lines:] if lines else kept)

    async def send(self, text: str, enter: bool, pause: float) -> None:
        typing = _typing.setdefault(self.socket, asyncio.Lock())
        try:
            async with asyncio.timeout(DEADLINE):
                await typing.acquire()
        except TimeoutError:
            raise TmuxUnreachable(_silence(DEADLINE)) from None
        try:
            await self._type(text, enter, pause)
        finally:
            typing.release()

    async def _type(self, text: str, enter: bool, pause: float) -> None:
        # tmux takes 16 KiB of arguments; and a line break typed is Enter, where one pasted is a line break.
        if len(text.encode()) > 8000 or "\n" in text:
            await self._paste(text)
        elif text:
            await self._verb("send-keys", "-t", PANE, "-l", "--", text)
        if text and enter and pause:
            await asyncio.sleep(pause)
        if enter:
            try:
                await self._verb("send-keys", "-t", PANE, "Enter")
            except (TmuxUnreachable, TmuxRefused) as error:
                if not text:
                    raise
                raise TmuxUnanswered(f"the text was, Enter perhaps not: {error}") from error

    async def _paste(self, text: str) -> None:
        # One that was given up may be there yet, and no other is to be typed in its place.
        buffer = f"amux-{next(_pasted)}"
        try:
            await self.run("load-buffer", "-b", buffer, "-", text=text)
        except TmuxUnanswered as error:
            # That alone types nothing.
            raise TmuxUnreachable(str(error)) from error
        await self.run("paste-buffer", "-d", "-p", "-r", "-b", buffer, "-t", PANE)

    async def _verb(self, *command: str) -> list[str]:
        return await _through_libtmux(self.socket, _words(command))


# Of each terminal that is typed into: what one sends is there whole, Enter and all, before the next begins.
_typing: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
_pasted = count()


async def run(argv: Sequence[str], *, text: str | None = None, deadline: float = DEADLINE) -> str:
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            partial(SubprocessStreamProtocol, limit=_ANSWER_LIMIT, loop=loop),
            *argv,
            stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), **SERVER_ENVIRONMENT},
            start_new_session=True,
        )
    except OSError as error:
        raise TmuxUnreachable(f"tmux could not be run: {error.strerror}") from error
    except RuntimeError as error:
        # There is no thread to wait for its end in, and it may have done something before it was killed.
        raise TmuxUnanswered(f"tmux could not be run: {error}") from error
    process = Process(transport, protocol, loop)
    try:
        out, err = await asyncio.wait_for(
            process.communicate(text.encode() if text is not None else None), deadline
        )
    except TimeoutError:
        raise TmuxUnanswered(_silence(deadline)) from None
    finally:
        # It has lent its pipes to the server: one that hangs keeps them open when its client is no more.
        transport.close()
        await process.wait()
    if process.returncode and process.returncode < 0:
        raise _killed(process.returncode)
    if process.returncode:
        raise _failure(err.decode(errors="replace"))
    return out.decode(errors="replace")


def _silence(deadline: float) -> str:
    return f"tmux did not answer within {deadline:.0f} s"


def _failure(message: str) -> Exception:
    message = message.strip()
    if "lost server" in message or "server exited" in message:
        return TmuxUnanswered(message)
    if "no server running" in message or "error connecting" in message:
        return TmuxUnreachable(message)
    return TmuxRefused(message)


# Of each terminal that is asked: one that hangs is waited for by one thread, and keeps no other waiting.
_turns: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()


async def _through_libtmux(socket: Path, arguments: Sequence[str]) -> list[str]:
    turn = _turns.setdefault(socket, asyncio.Lock())
    silence: type[TmuxUnreachable] = TmuxUnreachable
    try:
        async with asyncio.timeout(DEADLINE):
            await turn.acquire()
            silence = TmuxUnanswered
            asked = asyncio.ensure_future(_asked(socket, arguments))
            asked.add_done_callback(partial(_end_turn, turn))
            try:
                return await asyncio.shield(asked)
            except asyncio.CancelledError:
                # libtmux has no time limit of its own: its thread ends with its client or, where a server
                # that hangs keeps the client's pipes open, with that. Until then nobody else has the turn.
                with contextlib.suppress(RuntimeError):
                    await alone(partial(_kill_clients, socket))
                raise
    except TimeoutError:
        raise silence(_silence(DEADLINE)) from None
    except (TmuxUnreachable, TmuxRefused):
        raise
    except Exception as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise TmuxUnreachable(f"tmux could not be run: {why or type(error).__name__}") from error


async def _asked(socket: Path, arguments: Sequence[str]) -> list[str]:
    def ask() -> tuple[int, list[str], list[str]]:
        # A seventh of the time that amuxd takes to start, and of its memory, where nobody is asked.
        from libtmux import Server

        answer = Server(socket_path=str(socket)).cmd(*arguments)
        return answer.returncode, list(answer.stdout), list(answer.stderr)

    code, out, err = await alone(ask)
    if err:
        raise _failure(" ".join(err))
    if code < 0:
        raise _killed(code)
    return out


def _killed(code: int) -> TmuxUnanswered:
    return TmuxUnanswered(f"its client was killed by {signal_name(-code)}")


def _end_turn(turn: asyncio.Lock, asked: asyncio.Future[list[str]]) -> None:
    turn.release()
    if not asked.cancelled():
        # Whoever asked may have gone.
        asked.exception()


def _kill_clients(socket: Path) -> None:
    # In one word, as libtmux writes it: what asks in another way has a time limit of its own.
    named = f"-S{socket}"
    for child in psutil.Process().children():
        try:
            if named in child.cmdline():
                child.kill()
        except psutil.Error:
            continue
