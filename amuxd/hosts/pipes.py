"""Waiting for what others write."""

import asyncio
import contextlib
import os

LOOK_AGAIN = 0.5


async def hear(fd: int, lines: list[str], count: int) -> None:
    """Adds the first lines that are written into the pipe, each as it comes, and once."""
    text = b""
    while len(lines) < count:
        # A look now and then as a net: a launch must not hang on one word that was not noticed.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN):
                await _readable(fd)
        with contextlib.suppress(BlockingIOError):
            *whole, text = (text + os.read(fd, 4096)).split(b"\n")
            lines += [line for line in dict.fromkeys(map(bytes.decode, whole)) if line not in lines]


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, ready.set_result, None)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def readable_within(fd: int, deadline: float) -> bool:
    """Also where somebody closes it meanwhile; False of one that is closed already."""
    if fd < 0:
        return False
    own = os.dup(fd)
    try:
        async with asyncio.timeout(deadline):
            await _readable(own)
    except TimeoutError:
        return False
    finally:
        os.close(own)
    return True
