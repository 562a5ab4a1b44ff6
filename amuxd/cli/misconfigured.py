"""Says that amuxd goes by other settings than the user wrote down."""

import sys

from amuxd.cli.client import Client
from amuxd.cli.text import harmless


def warn(client: Client) -> None:
    """A line on standard error, which no pipe reads and no JSON is in."""
    if error := client.configuration_error():
        print(
            f"amux: the configuration is wrong: {harmless(error)}; until it is read again without an error, "
            "nothing is cleaned, nothing parked by itself, and no agent comes back by itself",
            file=sys.stderr,
        )
