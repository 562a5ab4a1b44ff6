"""Worktrees made and listed, against git itself; directories deleted and slots given back."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness.daemon import Amux
from harness.repositories import empty_repository, git

from bench import ground
from bench.samples import interleaved, p50
from bench.stopwatch import Stopwatch
from bench.subscriber import Subscriber
from bench.table import Floor, Row, against, ms

FILES = 5000
# In a repository that is hardly more than begun, a program's start is most of what ws add takes.
FEWEST_FILES = 10
ADDED = 10
LISTED, FEWER_FILES = 100, 1000
# As in most repositories; in one directory git's work is another mix.
TOGETHER = 10
LISTS = 10
ENDS = 40
MOST = 0.050
DEADLINE = 60.0

STATUS_OF_EACH = 'for place; do git -C "$place" status --porcelain=v2 --branch >/dev/null || exit; done'


def measure() -> list[Row]:
    # Each with its own workspaces: all that there are is listed.
    shapes = ((FEWER_FILES, TOGETHER), (FILES, TOGETHER), (FEWER_FILES, FEWER_FILES))
    listed = [partial(_listed, files=files, together=together) for files, together in shapes]
    added = [partial(_added, files=FILES, at_most=1.3), partial(_added, files=FEWEST_FILES)]
    rows: list[Callable[[Amux], Row]] = [*added, *listed, _orphaned, _followed]
    return [_alone(row) for row in rows]


def _alone(row: Callable[[Amux], Row]) -> Row:
    with ground.amux() as amux:
        return row(amux)


def _repository(directory: Path, files: int, together: int) -> Path:
    empty_repository(directory)
    for number in range(files):
        file = directory / f"part{number // together // TOGETHER}/d{number // together}/file{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n" * 20)
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", "first")
    return directory


def _added(amux: Amux, files: int, at_most: float | None = None) -> Row:
    top = amux.machine.temporary / "added"
    repo = _repository(top / "code", files, TOGETHER)
    count = 0

    def timed(command: Callable[[str], list[str]]) -> float:
        nonlocal count
        count += 1
        return stopwatch.time(*command(f"n{count}"))

    def by_git(name: str) -> list[str]:
        return ["git", "-C", str(repo), "worktree", "add", "-q", "-b", name, str(top / name)]

    def by_amux(name: str) -> list[str]:
        return [str(amux.bindir / "amux"), "ws", "add", name, "--repo", str(repo)]

    with Stopwatch(amux) as stopwatch:
        floor, product = interleaved(lambda: timed(by_git), lambda: timed(by_amux), rounds=ADDED)
    return against(
        f"ws add, {files} files: p50", Floor("git worktree add", p50(floor)), p50(product), at_most
    )


def _listed(amux: Amux, files: int, together: int) -> Row:
    top = amux.machine.temporary / "listed"
    repo = _repository(top / "code", files, together)
    for number in range(LISTED):
        amux.manager.call("AddWorkspace", "sa{sv}", f"w{number}", {"repo": ("s", str(repo))})
    listed = git(repo, "worktree", "list", "--porcelain").splitlines()
    places = [line.removeprefix("worktree ") for line in listed if line.startswith("worktree ")][1:]
    each = ["sh", "-c", STATUS_OF_EACH, "sh", *places]
    with Stopwatch(amux) as stopwatch:
        floor, product = interleaved(
            lambda: stopwatch.time(*each),
            lambda: stopwatch.time(amux.bindir / "amux", "ws", "ls"),
            rounds=LISTS,
        )
    return against(
        f"ws ls, {LISTED} worktrees of {files} files, {together} in a directory: p50",
        Floor("git status in each", p50(floor)),
        p50(product),
        at_most=0.7,
    )


def _orphaned(amux: Amux) -> Row:
    directory = amux.machine.temporary / "orphaned"
    directory.mkdir()
    amux.cli("ws", "add", "orphaned", "--path", str(directory))
    subscriber = Subscriber(amux.bus_address, {"SessionStateChanged": 1})
    samples = []
    for _ in range(ENDS):
        directory.mkdir(exist_ok=True)
        session = amux.create(["sleep", "infinity"], workspace="orphaned")
        _moments(subscriber, 2, session.id)
        deleted = time.perf_counter()
        directory.rmdir()
        samples.append(_moments(subscriber, 1, session.id)[0] - deleted)
        session.certificate()
        session.remove()
    subscriber.close()
    return _within("directory deleted → orphaned at a subscriber: p50", samples)


def _followed(amux: Amux) -> Row:
    amux.cli("ws", "add", "followed", "--slots", "1", "--path", str(amux.machine.temporary))
    subscriber = Subscriber(amux.bus_address, {"SessionStateChanged": 1})
    samples = []
    for _ in range(ENDS):
        holder = amux.create(["sleep", "infinity"], workspace="followed")
        waiting = amux.create(["sleep", "infinity"], workspace="followed", queue=True)
        _moments(subscriber, 2, holder.id)
        holder.call("Kill", "s", "SIGKILL")
        moments = _moments(subscriber, 2, waiting.id, holder.id)
        samples.append(moments[1] - moments[0])
        waiting.wait_state("running")
        for session in (holder, waiting):
            session.remove(force=True)
        _moments(subscriber, 3, waiting.id)
    subscriber.close()
    return _within("slot given back → next in the queue is starting: p50", samples)


def _moments(subscriber: Subscriber, count: int, *keys: str) -> list[float]:
    """When it was told of so many changes of these sessions."""
    moments: list[float] = []
    deadline = time.monotonic() + DEADLINE
    while len(moments) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{' and '.join(keys)} were not told of within {DEADLINE:.0f} s")
        moments += [told.moment for told in subscriber.read() if told.key in keys]
    return moments


def _within(what: str, samples: list[float]) -> Row:
    taken = p50(samples)
    return Row(what, ms(taken), goal=f"≤ {ms(MOST)}", met=taken <= MOST)
