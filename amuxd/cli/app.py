"""The commands, each in a module that is imported when it is called."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from amuxd import __version__
from amuxd.cli import failures, way_out

COMMANDS = {
    "run": ("running", "Start a command in a session of its own."),
    "ls": ("listing", "List the sessions."),
    "show": ("showing", "Tell everything about a session."),
    "history": ("showing", "Tell how a session came to be what it is."),
    "attach": ("attaching", "Take a session into this terminal."),
    "send": ("attaching", "Type text into a session."),
    "logs": ("logs", "Print what a session printed."),
    "wait": ("waiting", "Wait until sessions end."),
    "watch": ("watching", "Tell of every change as it happens."),
    "start": ("acting", "Start sessions that were only created."),
    "stop": ("acting", "End sessions, and all that they started."),
    "kill": ("acting", "Send a signal to the command of sessions."),
    "restart": ("acting", "Begin a new run of sessions."),
    "resume": ("acting", "Go on with the conversation of agents."),
    "park": ("acting", "End the process of agents until they are wanted."),
    "archive": ("acting", "Put sessions away."),
    "rm": ("acting", "Remove sessions and all their files."),
    "clean": ("cleaning", "Remove what has been at rest for long."),
    "badge": ("badging", "Print how many sessions there are, for a bar."),
    "report": ("hooking", "Tell amux that a session waits for a person."),
    "hooks": ("hooking", "Print what makes an agent report to amux."),
    "ws": ("workspaces", "Make, list and remove workspaces."),
    "completion": ("completing", "Print the completion script of a shell."),
}


@contextlib.contextmanager
def _read_by_somebody() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # click would take it for a failure of ours.
        raise failures.BrokenOutput("nobody reads any more") from None


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"amuxd.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        command.short_help = COMMANDS[cmd_name][1]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"no such command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        found = super().resolve_command(ctx, args)
        way_out.loaded()
        return found

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        # Help and version are printed in here.
        with _read_by_somebody():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _read_by_somebody():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"amux {__version__}")
        ctx.exit()


_EPILOG = (
    "S is a session's name, its id, or the beginning of its id. Exit codes: 0 done, 1 did not work, "
    "2 wrong usage, 3 no such session, 4 not possible in this state, 5 amuxd unreachable, "
    "124 the time of wait is over, 130 Ctrl-C, 141 nobody reads the output any more. AMUX_BUS_ADDRESS names "
    "another message bus to find amuxd on; NO_COLOR turns colours off."
)
amux = Commands(
    "amux",
    help="Terminal sessions that outlive their terminal.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        )
    ],
)


def command(arguments: list[str]) -> Callable[[], Any]:
    return partial(_run, arguments)


def _run(arguments: list[str]) -> Any:
    try:
        return amux.main(arguments or ["--help"], prog_name="amux", standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
