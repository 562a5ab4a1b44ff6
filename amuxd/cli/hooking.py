"""amux report and amux hooks"""

import shlex

import click

from amuxd import attention
from amuxd import hooks as agents
from amuxd.cli import reporting
from amuxd.cli.failures import WrongUsage


@click.command()
@click.argument("kind")
@click.argument("message", required=False)
@click.option("--hook", is_flag=True, help="As the hook of an agent, which tells what it is about in JSON.")
def report(kind: str, message: str | None, hook: bool) -> int:
    """Tell amux, from within a session, that it waits for a person, or no longer does.

    KIND is permission, question, turn (it finished what it was asked), bell or custom; working ends the wait,
    and so does what is printed or typed later. An agent that goes over to another conversation reports
    conversation and, as MESSAGE, its id: that is the one to be resumed.
    """
    words = [kind] if message is None else [kind, message]
    return reporting.run([*words, "--hook"] if hook else words)


@click.command()
@click.argument("agent")
def hooks(agent: str) -> None:
    """Print what makes AGENT report to amux: arguments for its command line, or a file to put somewhere.

    claude, codex and aider take it for one run, on their command line; gemini and opencode need a file of
    yours, which amux does not touch.
    """
    if given := agents.arguments(agent):
        print(shlex.join(given))
    elif text := agents.by_hand(agent):
        print(text, end="")
    else:
        kinds = ", ".join(attention.REPORTS)
        raise WrongUsage(
            f"amux knows no hooks of {agent!r}, only of {', '.join(agents.known())}",
            f"any program can call amux report KIND in its session ({kinds}), or ring the terminal's bell",
        )
