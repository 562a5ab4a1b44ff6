"""What can go wrong, each with the name that it bears on the bus."""

PREFIX = "org.amux.Amux1.Error."

# What amuxd says as it ends: of what it does not begin any more, and of what it has begun.
STOPPING = "amuxd is stopping"
UNFINISHED = f"{STOPPING}, and what was asked for may be done yet"

# What amuxd exits with where it is of no use to start it again: systemd/amuxd.service has the number too.
NEEDS_PERSON = 78


class AmuxError(Exception):
    """A failure whose message is one sentence for a person."""

    name = "Internal"

    @property
    def bus_name(self) -> str:
        return PREFIX + self.name


class NoSuchSession(AmuxError):
    name = "NoSuchSession"


class Ambiguous(AmuxError):
    name = "Ambiguous"


class NameTaken(AmuxError):
    name = "NameTaken"


class InvalidName(AmuxError):
    name = "InvalidName"


class InvalidTransition(AmuxError):
    name = "InvalidTransition"


class Displaced(InvalidTransition):
    """What stands in the place of a worktree is another: it may be mounted over that later."""


class InvalidArgument(AmuxError):
    name = "InvalidArgument"


class NotResumable(AmuxError):
    name = "NotResumable"


class NotResumableYet(NotResumable):
    """What is kept of its conversation could not be looked at: it may be resumable all the same."""


class NoSuchWorkspace(AmuxError):
    name = "NoSuchWorkspace"


class WorkspaceBusy(AmuxError):
    name = "WorkspaceBusy"


class WorkspaceDirty(AmuxError):
    name = "WorkspaceDirty"


class SetupNotAllowed(AmuxError):
    name = "SetupNotAllowed"


class LaunchFailed(AmuxError):
    name = "LaunchFailed"


class Busy(AmuxError):
    """Nothing was begun, and nothing is wrong: the same can be asked again in a moment."""

    name = "Busy"


class ConfigurationError(AmuxError):
    """What the user wants is written down, and cannot be read."""

    name = "ConfigurationError"


class NotReadable(AmuxError):
    """It is on disk, and left as it is: an amuxd that can read it may come."""

    name = "NotReadable"


class Internal(AmuxError):
    name = "Internal"


class StillAlive(Internal):
    """It was asked to end, goes on, and is not to be killed."""
