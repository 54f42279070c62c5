"""
The console of a command line: bytes in and out without ever blocking the event loop, terminal, signals.

Reads and writes block in daemon threads. Asyncio's own pipe support would set O_NONBLOCK on descriptors that
are shared with the shell that started us, and a thread pool would be waited for at exit, for ever when the
reader of a pipe has stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol

from provider import screen
from provider.model import Stream
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
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # whoever shares it has made it so
                select.select([], [self._descriptor], [])


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
                piece = _read(descriptor)
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


def _read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, _PIECE)
        except BlockingIOError:  # whoever shares it has made it so
            select.select([descriptor], [], [])


class Console(Protocol):
    """Whoever typed a command line: here, or on the far side of the daemon's socket."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Rows and columns of the terminal on stdin, if it is one."""

    def stdin(self) -> AsyncIterator[bytes]: ...

    async def write(self, stream: Stream, data: bytes) -> None:
        """Raises OSError when nobody reads any more."""

    def raw(self, resized: Callable[[int, int], None]) -> contextlib.AbstractContextManager[None]:
        """Pass every key on as it is, and tell about each new size of the terminal."""

    def on_signal(self, told: Callable[[int], None]) -> None:
        """Tell about each wish to end."""


class OwnConsole:
    """Our own streams, terminal and signals."""

    def __init__(self) -> None:
        self._writers = {"stdout": Writer(1), "stderr": Writer(2)}

    @property
    def size(self) -> tuple[int, int] | None:
        return screen.size(0) if os.isatty(0) else None

    def stdin(self) -> AsyncIterator[bytes]:
        return read(0)

    async def write(self, stream: Stream, data: bytes) -> None:
        await self._writers[stream].write(data)

    @contextlib.contextmanager
    def raw(self, resized: Callable[[int, int], None]) -> Iterator[None]:
        follow_size(0, resized)
        with screen.raw(0):
            yield

    def on_signal(self, told: Callable[[int], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, told, number)


def follow_size(descriptor: int, resized: Callable[[int, int], None]) -> None:
    """Tell about each new size of the terminal."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, lambda: resized(*screen.size(descriptor)))
