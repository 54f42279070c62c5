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
import queue
import signal
import termios
import threading
import tty
from collections.abc import AsyncIterator, Callable, Iterator

_PIECE = 65536


class Writer:
    """Writes to a descriptor, one piece after the other; each is awaited."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Raises OSError when nobody reads any more."""
        done = self._loop.create_future()
        self._work.put((data, done))
        await done

    def _serve(self) -> None:
        while True:
            data, done = self._work.get()
            error: OSError | None = None
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError as problem:
                error = problem
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error:
        done.set_exception(error)
    else:
        done.set_result(None)


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
