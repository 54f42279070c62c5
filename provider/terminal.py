"""
The caller's own terminal and pipes: bytes in and out without ever blocking the event loop, raw mode, window
size.

Reads and writes block in daemon threads. Asyncio's own pipe support would set O_NONBLOCK on descriptors that
are shared with the shell that started us, and a thread pool would be waited for at exit, for ever when the
reader of a pipe has stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import threading
import tty
from collections.abc import AsyncIterator, Callable, Iterator

from provider.worker import Raised, Worker

_PIECE = 65536


class Writer:
    """Writes to a descriptor, one piece after the other; each is awaited."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._worker = Worker()

    async def write(self, data: bytes) -> None:
        """Raises OSError when nobody reads any more."""
        result = await self._worker.call(self._write_all, data)
        if isinstance(result, Raised):
            raise result.error

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


async def read(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what arrives on a descriptor until its end; reads no further ahead than one piece."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    wanted = threading.Semaphore(0)

    def serve() -> None:
        piece = b"-"
        while piece:
            wanted.acquire()
            try:
                piece = os.read(descriptor, _PIECE)
            except OSError:
                piece = b""
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

    threading.Thread(target=serve, daemon=True).start()
    while True:
        wanted.release()
        piece = await pieces.get()
        if not piece:
            return
        yield piece


@contextlib.contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Pass every key on as it is, and put the terminal back on any way out."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def size(descriptor: int) -> tuple[int, int]:
    """Rows and columns."""
    columns, rows = os.get_terminal_size(descriptor)
    return rows, columns


def follow_size(descriptor: int, resized: Callable[[int, int], None]) -> None:
    """Tell about each new size of the terminal."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, lambda: resized(*size(descriptor)))
