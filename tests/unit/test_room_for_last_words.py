"""The room for what is said as amuxd goes: all of it is there, as soon as the disk has it, and again."""

import asyncio
import errno
import logging
import os
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd.lastwords import ROOM, LastWordsFile
from amuxd.reconcile import sweep
from amuxd.records import LastWord

WORDS = [LastWord("k3x9qa", 1, 2, "amuxd was stopped")]


class NearlyFull:
    """A disk that takes so much of a write, and then nothing."""

    def __init__(self, left: int) -> None:
        self.left = left

    def pwrite(self, fd: int, content: bytes, at: int) -> int:
        taken = content[: min(self.left, 100_000)]
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= len(taken)
        return PWRITE(fd, taken, at)


PWRITE = os.pwrite


def test_a_write_that_is_taken_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LastWordsFile(tmp_path / "last-words")
    monkeypatch.setattr(os, "pwrite", NearlyFull(2 * ROOM).pwrite)
    file.keep_room()
    assert (tmp_path / "last-words").stat().st_size == ROOM
    file.write(WORDS)
    assert (tmp_path / "last-words").stat().st_size == ROOM
    assert file.read() == WORDS


def test_a_disk_that_takes_a_part_only_is_complained_of_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = NearlyFull(10_000)
    monkeypatch.setattr(os, "pwrite", disk.pwrite)
    file = LastWordsFile(tmp_path / "last-words")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            file.keep_room()
        assert [m for m in caplog.messages if "no room is kept" in m] == [
            "no room is kept for what a full disk would refuse: No space left on device"
        ]
        disk.left = ROOM
        file.keep_room()
        assert (tmp_path / "last-words").stat().st_size == ROOM
        # And of the next time it is told again.
        (tmp_path / "last-words").unlink()
        disk.left = 0
        file.keep_room()
        assert len([m for m in caplog.messages if "no room is kept" in m]) == 2


def test_words_of_which_a_part_only_fits_are_told_as_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", NearlyFull(50).pwrite)
    file = LastWordsFile(tmp_path / "last-words")
    with pytest.raises(OSError, match="No space left"):
        file.write(WORDS)
    assert file.read() == []


def test_where_somebody_deleted_it_the_sweep_keeps_room_anew(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await sweep(world.runs)
        assert size_in(tmp_path) == ROOM
        remove_in(tmp_path)
        await sweep(world.runs)
        assert size_in(tmp_path) == ROOM

    asyncio.run(in_world(tmp_path, story))


def test_it_is_written_where_no_room_was_kept(tmp_path: Path) -> None:
    file = LastWordsFile(tmp_path / "last-words")
    file.write(WORDS)
    assert file.read() == WORDS
    assert (tmp_path / "last-words").stat().st_mode & 0o777 == 0o600


def size_in(root: Path) -> int:
    return (root / "last-words").stat().st_size


def remove_in(root: Path) -> None:
    (root / "last-words").unlink()
