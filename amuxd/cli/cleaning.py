"""amux clean"""

import click

from amuxd.cli import sessions
from amuxd.cli.client import Client
from amuxd.cli.text import harmless


@click.command()
@click.option("-n", "--dry-run", is_flag=True, help="Only tell what would be removed.")
def clean(dry_run: bool) -> None:
    """Remove the sessions that have been at rest for as long as they are to be kept, and their logs.

    Suspended ones are kept for 7 days, 30 if they can be resumed; failed and orphaned ones for a day;
    completed and stopped ones for 7 days. [retention] in the configuration says otherwise. What is live,
    was never started or is archived stays; all does while the configuration is wrong. With systemd this
    happens every day by itself.
    """
    client = Client()
    # Asked before, for afterwards they are gone.
    only = {"properties": ("as", ["Id", "Name"])}
    labels = {session["Id"]: sessions.label(session) for _, session in client.sessions(**only)}
    (ids,) = client.manager("Clean", "a{sv}", {"dry_run": ("b", dry_run)}, patient=True)
    for session_id in ids:
        print(harmless(f"{'would remove' if dry_run else 'removed'} {labels.get(session_id, session_id)}"))
