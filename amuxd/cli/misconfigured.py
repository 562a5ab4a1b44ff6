"""Says that amuxd goes by other settings than the user wrote down."""

from amuxd.cli import failures
from amuxd.cli.client import Client
from amuxd.cli.text import harmless


class Warner:
    """A line on standard error, which no pipe reads and no JSON is in: once for each thing that is wrong."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told = ""

    def warn(self) -> None:
        told = sentence(self._client)
        if told and told != self._told:
            failures.say(f"amux: {told}")
        self._told = told


def warn(client: Client) -> None:
    Warner(client).warn()


def sentence(client: Client) -> str:
    """Empty where nothing is wrong."""
    if error := client.configuration_error():
        return (
            f"the configuration is wrong: {harmless(error)}; until it is read again without an error, the "
            "settings of before hold, or the defaults, nothing is cleaned, nothing parked by itself, and no "
            "agent comes back by itself"
        )
    return ""
