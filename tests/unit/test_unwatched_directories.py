"""Where the kernel lets the user watch no more files, a directory that goes is noticed all the same."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from standin_host import World, in_world

from amuxd.records import Session, Workspace
from amuxd.states import State
from amuxd.workspaces import orphans as orphans_module
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.ledger import Ledger
from amuxd.workspaces.orphans import Orphans
from amuxd.workspaces.registry import Workspaces

NO_MORE = 'echo 0 >/proc/sys/user/max_inotify_watches; exec "$@"'


def test_it_is_looked_at_from_time_to_time(tmp_path: Path) -> None:
    limited = ["unshare", "--user", "--map-root-user", "sh", "-ec", NO_MORE, "sh"]
    done = subprocess.run(
        [*limited, sys.executable, __file__, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "orphaned\n", done.stderr
    told = "directories that go may be noticed late, for"
    assert done.stderr.count(told) == 1
    assert " cannot be watched: No space left on device; sysctl fs.inotify.max_user_watches" in done.stderr


class Told:
    """Whatever is told of sessions and workspaces wakes who waits."""

    def __init__(self) -> None:
        self._something = asyncio.Event()

    async def until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            self._something.clear()
            await self._something.wait()

    def _wake(self, *_: object) -> None:
        self._something.set()

    appeared = disappeared = moved = exited = changed = attention_changed = _wake
    workspace_appeared = workspace_disappeared = workspace_changed = _wake
    directory_changed = presence_changed = _wake


async def story(world: World, root: Path) -> None:
    workspaces = Workspaces(world.supervisor, Ledger(root, world.store, "boot"))
    for name in ("one", "two"):
        (root / name).mkdir()
        workspace = Workspace(f"{name}11", name, str(root / name), 1)
        await workspaces.write(workspace)
        workspaces.know(workspace)
        session = Session(f"in{name}", name, ["true"], workspace.directory, 1, workspace_id=workspace.id)
        await world.supervisor.create(session, None)
    told = Told()
    workspaces.listen(told)
    world.supervisor.listen(told)
    orphans_module.SWEEP = 0.01
    orphans = Orphans(world.runs, workspaces)
    orphans.begin()
    sweeping = asyncio.create_task(orphans.run())
    await told.until(lambda: list(workspaces.presence.values()) == [Presence.PRESENT] * 2)
    (root / "one").rmdir()
    entry = world.supervisor.registry.get("inone")
    assert entry is not None
    await told.until(lambda: entry.state.state is State.ORPHANED)
    print(entry.state.state)
    sweeping.cancel()
    orphans.close()


async def in_time(root: Path) -> None:
    async with asyncio.timeout(30):
        await in_world(root, lambda world: story(world, root))


if __name__ == "__main__":
    asyncio.run(in_time(Path(sys.argv[1])))
