"""amux ls"""

from typing import Any

import click

from amuxd.cli import overview, sessions
from amuxd.cli.naming import workspace_option


@click.command()
@click.option("-a", "--all", "archived", is_flag=True, help="Archived sessions too.")
@click.option(
    "--state",
    "states",
    metavar="STATE",
    multiple=True,
    type=click.Choice(sessions.STATES),
    help="Only sessions in this state; may be given again.",
)
@workspace_option("Only sessions in this workspace.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects, with every property.")
@click.option("--watch", is_flag=True, help="Show the list again at every change, until Ctrl-C.")
def ls(**chosen: Any) -> None:
    """List the sessions.

    In a pipe: a line of headings, then a line a session, the columns separated by a tab, a dash where there
    is nothing. IN-STATUS is how long it has been in this status, at the least where it ended unseen, TOTAL
    the time since it was created. A running session is idle once it printed nothing for a minute, or what
    the configuration says.
    """
    overview.show(**chosen)
