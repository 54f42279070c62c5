"""What `provider.terminal` promises: the caller's own pipes never block the loop, and a terminal is left as it was."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Iterator

import pytest

from provider import terminal


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):  # the test has closed it
            os.close(end)


@pytest.fixture
def tty() -> Iterator[tuple[int, int]]:
    """A terminal: the side of its user, and the side of its programs."""
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


async def test_pieces_are_written_whole_and_in_order(pipe: tuple[int, int]):
    """What is larger than the pipe arrives all the same, and the next piece comes after it."""
    reader, writer = pipe
    pieces = [bytes([65 + at]) * 100_000 for at in range(5)]
    out = terminal.Writer(writer)

    async def write_all() -> None:
        for piece in pieces:
            await out.write(piece)
        os.close(writer)

    writing = asyncio.create_task(write_all())
    found = b"".join([piece async for piece in terminal.read(reader)])
    await writing
    assert found == b"".join(pieces)


async def test_a_full_pipe_blocks_only_its_writer(pipe: tuple[int, int]):
    """While nobody reads, the loop goes on, and a write can be given up."""
    reader, writer = pipe
    out = terminal.Writer(writer)
    writing = asyncio.create_task(out.write(bytes(1_000_000)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(writing, 0.05)
    os.close(reader)  # the thread's write ends, with an error that nobody waits for


async def test_a_reader_that_went_away_is_told(pipe: tuple[int, int]):
    """EPIPE reaches whoever writes, so that a run into `head` can end."""
    reader, writer = pipe
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        await terminal.Writer(writer).write(b"x")


async def test_reading_ends_with_the_pipe(pipe: tuple[int, int]):
    """Everything before the end is yielded, then the iteration ends."""
    reader, writer = pipe
    os.write(writer, b"abc")
    os.close(writer)
    assert [piece async for piece in terminal.read(reader)] == [b"abc"]


async def test_reading_what_cannot_be_read_is_the_end(pipe: tuple[int, int]):
    """A closed stdin is an empty one."""
    _, writer = pipe
    assert [piece async for piece in terminal.read(writer)] == []


async def test_reading_waits_to_be_asked(pipe: tuple[int, int]):
    """No more than one piece is taken from a pipe before the one before it was used."""
    reader, writer = pipe
    os.write(writer, b"x" * 65536)
    pieces = terminal.read(reader)
    await anext(pieces)
    os.write(writer, b"for the next program")
    await asyncio.sleep(0)
    assert os.read(reader, 100) == b"for the next program"


async def test_descriptors_stay_blocking(pipe: tuple[int, int]):
    """They are shared with the shell that started us, which would trip over O_NONBLOCK."""
    reader, writer = pipe
    await terminal.Writer(writer).write(b"x")
    assert await anext(terminal.read(reader)) == b"x"
    assert os.get_blocking(reader)
    assert os.get_blocking(writer)


async def test_descriptors_that_somebody_made_nonblocking_lose_nothing(pipe: tuple[int, int]):
    """A full pipe is not one that nobody reads, and an empty one is not at its end, whatever mode they are in."""
    reader, writer = pipe
    for end in pipe:
        os.set_blocking(end, False)
    found = asyncio.create_task(collected(reader))
    for at in range(3):
        await terminal.Writer(writer).write(bytes([at]) * 500_000)
    os.close(writer)
    assert await asyncio.wait_for(found, 10) == b"".join(bytes([at]) * 500_000 for at in range(3))


async def collected(descriptor: int) -> bytes:
    return b"".join([piece async for piece in terminal.read(descriptor)])


def resize(side: int, rows: int, columns: int) -> None:
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def test_new_sizes_are_followed(tty: tuple[int, int]):
    """Each SIGWINCH tells the size that the terminal has by then."""
    sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    terminal.follow_size(tty[1], lambda *size: sizes.put_nowait(size))
    try:
        for size in ((10, 20), (30, 40)):
            resize(tty[1], *size)
            os.kill(os.getpid(), signal.SIGWINCH)
            assert await asyncio.wait_for(sizes.get(), 5) == size
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGWINCH)
