"""Writes man/amux.1 from the commands and man/org.amux.Amux1.5 from the interfaces that amuxd answers to."""

import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import click

from amuxd import __version__
from amuxd.cli.app import amux

MAN = Path(__file__).resolve().parent.parent / "man"
INTERFACES = Path(__file__).resolve().parent.parent / "amuxd/bus/interfaces"
DOCUMENTATION = "org.gtk.GDBus.DocString"
EMITS_CHANGED = "org.freedesktop.DBus.Property.EmitsChangedSignal"

AMUX_DESCRIPTION = """\
amux keeps terminal sessions \N{EM DASH} coding agents, builds, shells \N{EM DASH} alive, truthfully
described and apart from each other. Each session runs in a systemd unit and a tmux server of its own;
amuxd(8), which this command calls over D-Bus and which is started when it is needed, watches them and keeps
their state, their history, all that they printed, and how they ended.

A session goes by its name, its id, or the beginning of its id, from three characters on; so does a workspace.

Where there is no systemd user manager, amux starts a message bus and amuxd by itself, and sessions run
without units."""

AMUX_STATES = [
    ("created", "It exists and was not started."),
    ("starting", "Its unit and its terminal are being made."),
    ("running", "The command runs."),
    ("stale", "Its home is alive, the session in it is not."),
    ("suspended", "amuxd stopped watching, or the machine went down, while it was live."),
    ("stopping", "It is being stopped."),
    ("stopped", "It ended because the user asked."),
    ("completed", "The command ended with code 0."),
    ("failed", "It could not start, ended with another code, or was killed by a signal."),
    ("orphaned", "Its workspace was deleted under it."),
    ("archived", "It was put away; lists leave it out unless asked."),
]

AMUX_FILES = [
    (
        "$XDG_STATE_HOME/amux/sessions/ID/",
        "What a session is, its state and its history; ~/.local/state if unset.",
    ),
    ("$XDG_STATE_HOME/amux/sessions/ID/runs/N/output.log", "All that the terminal printed in run N."),
    (
        "$XDG_STATE_HOME/amux/sessions/ID/runs/N/exit.json",
        "The death certificate of run N, written once all of its output is.",
    ),
    ("$XDG_STATE_HOME/amux/workspaces/ID.json", "What a workspace is, who holds its slots and who waits."),
    (
        "$XDG_STATE_HOME/amux/worktrees/REPOSITORY/NAME/",
        "The worktrees, unless configured otherwise.",
    ),
    (
        "$XDG_CONFIG_HOME/amux/config.toml",
        "Settings, all optional. [sessions]: log_cap, stop_grace. [workspaces]: directory (where worktrees "
        "are made), copy (files that git does not keep, brought along into each), setup (a command to run "
        "in each new worktree, or a table of them by repository; run only once it was allowed).",
    ),
    ("$XDG_RUNTIME_DIR/amux/", "Sockets, for as long as the user is logged in."),
]


def main() -> None:
    for name, text in pages().items():
        (MAN / name).write_text(text)
        print(f"man/{name}", file=sys.stderr)


def pages() -> dict[str, str]:
    return {"amux.1": "\n".join(_amux()) + "\n", "org.amux.Amux1.5": "\n".join(_interfaces()) + "\n"}


def _amux() -> Iterator[str]:
    yield from _heading("AMUX", 1, "amux \\- terminal sessions that outlive their terminal")
    yield ".SH SYNOPSIS"
    yield ".B amux\n.I COMMAND\n.RI [ OPTIONS ]\n.RI [ ARGUMENTS ]"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(AMUX_DESCRIPTION)
    yield from _paragraphs(amux.epilog or "", first=".PP")
    yield ".SH COMMANDS"
    context = click.Context(amux, info_name="amux")
    for name in amux.list_commands(context):
        command = amux.get_command(context, name)
        assert command is not None
        yield from _command(name, command)
    yield ".SH STATES"
    yield from _definitions(AMUX_STATES)
    yield ".SH FILES"
    yield from _definitions(AMUX_FILES)
    yield ".SH SEE ALSO"
    yield ".BR amuxd (8),\n.BR org.amux.Amux1 (5),\n.BR tmux (1),\n.BR systemctl (1)"


def _command(name: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        yield f".SS {_text(f'amux {name}')}"
        yield from _paragraphs(command.help or "")
        for below in command.commands.values():
            yield from _command(f"{name} {below.name}", below)
        return
    arguments = [_argument(param) for param in command.params if isinstance(param, click.Argument)]
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    synopsis = " ".join(["amux", name, *(["[OPTIONS]"] if options else []), *arguments])
    yield f".SS {_text(synopsis)}"
    yield from _paragraphs(command.help or "")
    for option in options:
        yield ".TP"
        yield _option(option)
        # A paragraph without text would swallow the next option.
        yield _text(_option_help(option)) or "\\&"


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: click.Option) -> str:
    names = ", ".join(f"\\fB{_text(name)}\\fR" for name in [*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return names
    if option.metavar:
        value = option.metavar
    elif isinstance(option.type, click.Choice):
        value = "|".join(map(str, option.type.choices))
    else:
        value = option.type.name.upper()
    return f"{names} \\fI{_text(value)}\\fR"


def _option_help(option: click.Option) -> str:
    text = option.help or ""
    if isinstance(option.type, click.Choice) and option.metavar:
        text += f" One of {', '.join(map(str, option.type.choices))}."
    # What an option without a default has for one differs between the versions of click.
    if option.show_default and isinstance(option.default, str | int | float) and not option.is_flag:
        text += f" Default: {option.default}."
    return text.strip()


def _interfaces() -> Iterator[str]:
    yield from _heading("ORG.AMUX.AMUX1", 5, "org.amux.Amux1 \\- the D\\-Bus interface of amuxd")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(
        "amuxd(8) is on the session bus as org.amux.Amux1, and is started by a call to that name. "
        "/org/amux/Amux1 has org.amux.Amux1.Manager and org.freedesktop.DBus.ObjectManager; each session is "
        "an object at /org/amux/Amux1/sessions/ID with org.amux.Amux1.Session, and each workspace one at "
        "/org/amux/Amux1/workspaces/ID with org.amux.Amux1.Workspace. Of these interfaces nothing "
        "is taken away and nothing changes its meaning; what is new is added.\n\n"
        "Below, the types are those of the D-Bus specification; a property changes with a PropertiesChanged "
        "signal unless it says otherwise."
    )
    for file in sorted(INTERFACES.glob("org.amux.*.xml")):
        for interface in ElementTree.parse(file).getroot().iter("interface"):
            yield from _interface(interface)
    yield ".SH ERRORS"
    yield from _paragraphs(
        "Errors are named org.amux.Amux1.Error. and what is the matter: " + ", ".join(_error_names()) + ". "
        "The message is a sentence for a person. After Busy nothing was begun: the same can be asked again "
        "in a moment. Calls to what does not exist, or with arguments of other types, are answered with the "
        "standard errors of org.freedesktop.DBus.Error."
    )
    yield ".SH EXAMPLES"
    yield from _example(
        "busctl --user introspect org.amux.Amux1 /org/amux/Amux1",
        "busctl --user call org.amux.Amux1 /org/amux/Amux1 org.amux.Amux1.Manager \\",
        '    CreateSession "asa{sv}" 2 make test 2 name s build cwd s "$PWD"',
        "busctl --user monitor org.amux.Amux1",
    )
    yield ".SH SEE ALSO"
    yield ".BR amux (1),\n.BR amuxd (8),\n.BR busctl (1)"


def _interface(interface: ElementTree.Element) -> Iterator[str]:
    yield f".SH {_text(interface.attrib['name'])}"
    yield from _paragraphs(_documentation(interface))
    for kind, title in (("method", "Methods"), ("signal", "Signals"), ("property", "Properties")):
        members = interface.findall(kind)
        if members:
            yield f".SS {title}"
        for member in members:
            yield ".TP"
            yield _member(member)
            yield _text(" ".join(filter(None, [_documentation(member), _changes(member)]))) or "\\&"


def _member(member: ElementTree.Element) -> str:
    name = f"\\fB{_text(member.attrib['name'])}\\fR"
    if member.tag == "property":
        return f"{name} \\fI{_text(member.attrib['type'])}\\fR"
    taken = [_typed(arg) for arg in member.findall("arg") if arg.get("direction", "in") == "in"]
    given = [_typed(arg) for arg in member.findall("arg") if arg.get("direction") == "out"]
    return f"{name}({', '.join(taken)})" + (f" \\(-> {', '.join(given)}" if given else "")


def _typed(argument: ElementTree.Element) -> str:
    return f"\\fI{_text(argument.attrib['type'])}\\fR {_text(argument.attrib['name'])}"


def _documentation(element: ElementTree.Element) -> str:
    return _annotation(element, DOCUMENTATION)


def _changes(element: ElementTree.Element) -> str:
    return {"const": "Never changes.", "false": "Its changes are not told; ask."}.get(
        _annotation(element, EMITS_CHANGED), ""
    )


def _annotation(element: ElementTree.Element, name: str) -> str:
    for annotation in element.findall("annotation"):
        if annotation.attrib["name"] == name:
            return annotation.attrib["value"]
    return ""


def _error_names() -> list[str]:
    from amuxd import errors

    return sorted(
        {
            kind.name
            for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, errors.AmuxError)
        }
    )


def _heading(title: str, section: int, name: str) -> Iterator[str]:
    yield f'.TH {title} {section} "" "amux {__version__}"'
    yield ".SH NAME"
    yield name


def _paragraphs(text: str, first: str = "") -> Iterator[str]:
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number or first:
            yield first or ".PP"
        lines = paragraph.strip().splitlines()
        # click's mark for a paragraph whose lines are to stay as they are.
        if lines and lines[0].strip() == "\b":
            yield from _example(*(line.strip() for line in lines[1:]))
        else:
            yield _text(" ".join(line.strip() for line in lines))


def _definitions(entries: list[tuple[str, str]]) -> Iterator[str]:
    for name, meaning in entries:
        yield f".TP\n.B {_text(name)}\n{_text(meaning)}"


def _example(*lines: str) -> Iterator[str]:
    yield ".PP\n.nf\n.RS 4"
    for line in lines:
        yield _text(line)
    yield ".RE\n.fi"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("\N{EM DASH}", "\\(em")
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


if __name__ == "__main__":
    main()
