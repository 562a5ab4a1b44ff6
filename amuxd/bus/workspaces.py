"""The workspaces, as others see them on the bus."""

from typing import Any

from amuxd.addresses import SESSION_INTERFACE, SESSIONS_PATH, WORKSPACE_INTERFACE, WORKSPACES_PATH
from amuxd.bus.interface import load
from amuxd.bus.options import environment_from, nothing_left, properties_from, take, umask_from
from amuxd.bus.server import PropertyMap, Server
from amuxd.bus.values import variant
from amuxd.errors import InvalidArgument, InvalidTransition, NoSuchWorkspace, SetupNotAllowed
from amuxd.records import Workspace
from amuxd.registry import Entry
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.ledger import UnreadableWorkspace
from amuxd.workspaces.making import Asked, Maker
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.removing import Remover
from amuxd.workspaces.slots import UNLIMITED
from amuxd.workspaces.telling import Teller, Told, described, not_readable

WORKSPACE = load(WORKSPACE_INTERFACE)
# What the bus can tell of.
_MOST_SLOTS = 2**32 - 1


def path_of(workspace: Workspace | UnreadableWorkspace | None) -> str:
    return f"{WORKSPACES_PATH}/{workspace.id}" if workspace else "/"


class WorkspaceAnnouncer:
    """Tells the bus of workspaces that come, go and change."""

    def __init__(self, server: Server, shelf: "Shelf") -> None:
        self._server = server
        self._shelf = shelf

    def workspace_appeared(self, workspace: Workspace | UnreadableWorkspace) -> None:
        self._shelf.export(workspace)

    def workspace_disappeared(self, workspace: Workspace | UnreadableWorkspace) -> None:
        self._server.unexport(path_of(workspace))
        for entry in self._shelf.workspaces.sessions_in(workspace.id):
            path = f"{SESSIONS_PATH}/{entry.id}"
            self._server.changed(path, SESSION_INTERFACE, ("Workspace", "WorkspaceName"))

    def workspace_changed(self, workspace: Workspace) -> None:
        self._server.changed(path_of(workspace), WORKSPACE_INTERFACE, ("Holders", "Queue"))

    def directory_changed(self, workspace: Workspace) -> None:
        self._server.changed(path_of(workspace), WORKSPACE_INTERFACE, ("Directory",))

    def presence_changed(self, workspace: Workspace) -> None:
        self._server.changed(path_of(workspace), WORKSPACE_INTERFACE, ("Presence",))


class Shelf:
    """What the manager does with workspaces."""

    def __init__(self, server: Server, workspaces: Workspaces, maker: Maker, remover: Remover) -> None:
        self.workspaces = workspaces
        self._server = server
        self._maker = maker
        self._remover = remover
        self._teller = Teller(workspaces.presence)

    def export(self, workspace: Workspace | UnreadableWorkspace, announce: bool = True) -> None:
        shown: WorkspaceObject | NotReadableWorkspace
        if isinstance(workspace, UnreadableWorkspace):
            shown = NotReadableWorkspace(workspace.id, self.workspaces)
        else:
            shown = WorkspaceObject(workspace.id, self.workspaces, self._maker, self._remover, self._teller)
        self._server.export(path_of(workspace), shown, announce=announce)

    async def add(self, name: str, options: dict[str, Any]) -> str:
        options = dict(options)
        asked = Asked(
            name,
            path=take(options, "path", str, ""),
            repository=take(options, "repo", str, ""),
            branch=take(options, "branch", str, ""),
            base=take(options, "base", str, ""),
            slots=_slots_from(options),
            environment=environment_from(take(options, "env", dict, {})),
            umask=umask_from(options),
        )
        nothing_left(options, "option")
        if bool(asked.path) == bool(asked.repository):
            raise InvalidArgument("a workspace is either a path or a worktree of a repo")
        if asked.path and (asked.branch or asked.base):
            raise InvalidArgument("a directory is taken as it is: branch and base are for worktrees")
        if asked.repository and not asked.repository.startswith("/"):
            raise InvalidArgument(f"the repository must be absolute, and {asked.repository!r} is not")
        if any("\0" in word for word in (asked.path, asked.repository, asked.branch, asked.base)):
            raise InvalidArgument("neither names nor paths can hold NUL")
        made = await self._maker.add(asked)
        if made.repository:
            await self.find_linked()
        return path_of(made)

    async def find_linked(self) -> None:
        await self._maker.find_linked()

    async def list(self, filter: dict[str, Any]) -> list[tuple[str, object]]:
        wanted = dict(filter)
        with_status = take(wanted, "status", bool, False)
        properties = properties_from(wanted, WORKSPACE)
        nothing_left(wanted, "filter")
        shown = list(self.workspaces)
        told = await self._teller.all(shown) if with_status else [Told()] * len(shown)
        # They may have been removed while git was asked.
        stand: list[tuple[Workspace | UnreadableWorkspace, Told]] = [
            (workspace, status)
            for workspace, status in zip(shown, told, strict=True)
            if self.workspaces.get(workspace.id)
        ]
        stand += [(unread, not_readable(unread)) for unread in self.workspaces.not_readable.values()]
        listed: list[tuple[str, object]] = []
        for workspace, status in stand:
            path = path_of(workspace)
            values: PropertyMap = self._server.property_map(path, WORKSPACE_INTERFACE, properties)
            if with_status:
                values["Status"] = variant("a{sv}", _status(status))
            listed.append((path, values))
        return listed


class WorkspaceObject:
    interface = WORKSPACE

    def __init__(
        self, workspace_id: str, workspaces: Workspaces, maker: Maker, remover: Remover, teller: Teller
    ) -> None:
        self._id = workspace_id
        self._workspaces = workspaces
        self._maker = maker
        self._remover = remover
        self._teller = teller

    @property
    def _workspace(self) -> Workspace:
        workspace = self._workspaces.get(self._id)
        assert workspace is not None
        return workspace

    def get_property(self, name: str) -> object:
        workspace = self._workspace
        match name:
            case "Id" | "Name" | "Directory" | "Repository" | "Branch" | "Slots":
                return getattr(workspace, name.lower())
            case "Holders":
                return [place.session_id for place in workspace.holders]
            case "Queue":
                return [place.session_id for place in workspace.queue]
            case "Presence":
                return self._workspaces.presence.get(workspace.id, Presence.UNKNOWN).value
            case "CreatedUSec":
                return workspace.created_at
            case "HookFailure":
                return workspace.hook_failure
            case "SetupCommand":
                return self._maker.setup_of(workspace)
            case "SetupAllowed":
                return self._maker.is_allowed(workspace, self._maker.setup_of(workspace))
        raise LookupError(name)

    async def status(self) -> PropertyMap:
        return _status(await self._teller.one(self._workspace))

    async def remove(self, options: dict[str, Any]) -> tuple[list[str], list[str]]:
        force, ignored, dry_run = _how(options)
        if dry_run:
            return await self._remover.would_lose(self._workspace, force, ignored), []
        removed = await self._remover.remove(self._workspace, force, ignored)
        return removed.lost, removed.kept

    async def setup(self, options: dict[str, Any]) -> str:
        options = dict(options)
        allow = take(options, "allow", bool, False)
        shown = take(options, "command", str, "")
        environment, umask = environment_from(take(options, "env", dict, {})), umask_from(options)
        nothing_left(options, "option")
        workspace = self._workspace
        await self._maker.find_linked()
        if self._workspaces.get(workspace.id) is None:
            raise NoSuchWorkspace(f"the workspace {workspace.name} was removed already")
        command = self._maker.setup_of(workspace)
        if not command:
            raise InvalidArgument(f"there is no set-up command for {workspace.repository or workspace.name}")
        if allow and not shown:
            raise InvalidArgument(
                "allow is for the command that the user was shown: it needs the option command"
            )
        if shown not in ("", command):
            raise SetupNotAllowed(
                f"the set-up command of {workspace.name} is {command!r} by now, and not {shown!r}: ask again"
            )
        if allow:
            await self._maker.allow(workspace, command)
        if not self._maker.is_allowed(workspace, command):
            raise SetupNotAllowed(f"nobody has allowed {command!r} in {workspace.repository} yet")
        entry: Entry = await self._maker.set_up(workspace, command, environment, umask)
        return f"{SESSIONS_PATH}/{entry.id}"


class NotReadableWorkspace:
    """One whose file this amuxd cannot read: shown as far as that goes, and never written."""

    interface = WORKSPACE

    def __init__(self, workspace_id: str, workspaces: Workspaces) -> None:
        self._id = workspace_id
        self._workspaces = workspaces

    @property
    def _workspace(self) -> UnreadableWorkspace:
        return self._workspaces.not_readable[self._id]

    def get_property(self, name: str) -> object:
        match name:
            case "Id" | "Name" | "Directory" | "Repository" | "Branch":
                return getattr(self._workspace, name.lower())
            case "Presence":
                return Presence.UNKNOWN.value
        empty: dict[str, object] = {"s": "", "as": [], "b": False}
        return empty.get(WORKSPACE.properties[name].type, 0)

    async def status(self) -> PropertyMap:
        return _status(not_readable(self._workspace))

    async def remove(self, options: dict[str, Any]) -> tuple[list[str], list[str]]:
        force, _, dry_run = _how(options)
        workspace, set_aside = self._workspace, self._workspaces.ledger.set_aside
        if not force:
            raise InvalidTransition(
                f"{workspace.name} {workspace.state}: rm -f puts its file aside, in {set_aside}, "
                "and leaves its directory as it is"
            )
        if dry_run:
            return [], []
        kept = [f"its file, in {await self._workspaces.put_aside(workspace)}"]
        return [], [*kept, workspace.directory] if workspace.directory else kept

    async def setup(self, options: dict[str, Any]) -> str:
        unread = self._workspace
        raise InvalidTransition(f"{unread.name} {unread.state}, and so nothing is done in it: {unread.why}")


def _slots_from(options: dict[str, Any]) -> int:
    slots: int = take(options, "slots", int, UNLIMITED)
    if not UNLIMITED <= slots <= _MOST_SLOTS:
        raise InvalidArgument(
            f"slots must be from {UNLIMITED} (as many as anybody wants) to {_MOST_SLOTS}, not {slots}"
        )
    return slots


def _how(options: dict[str, Any]) -> tuple[bool, bool, bool]:
    options = dict(options)
    force, ignored, dry_run = (take(options, name, bool, False) for name in ("force", "ignored", "dry_run"))
    nothing_left(options, "option")
    return force, ignored, dry_run


def _status(told: Told) -> PropertyMap:
    return PropertyMap({name: variant(kind, value) for name, (kind, value) in described(told).items()})
