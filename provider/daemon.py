"""
A provider that stays, for one user's command lines: `sandbox up`.

It listens on a socket that only its user can reach, and performs jobs as `sandbox run` would by itself, on a console
that is the client's. A command line that it would not serve exactly as the client itself would (other code, other
settings, another environment, a mistake) it declines, and the client goes on alone. It ends when asked to, or when
idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from provider import client
from provider.errors import CallError, ConfigError, EngineUnavailable
from provider.job import Job, perform
from provider.model import Stream
from provider.provider import Provider
from provider.settings import Settings, load_settings
from provider.tooljob import ToolJob

Parser = Callable[[list[str]], Job | None]
"""The job that a command line asks for, or None for one that is not for the daemon."""

_MAX_ASKED = 8 * 2**20
_ASK_SECONDS = 5.0
_START_SECONDS = 30.0
_FAREWELL_SECONDS = 5.0
"""Past the grace: what clients have for taking the last of their output, and the exit status."""
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 128 * 2**10


class _Console:
    """A client's streams, terminal and signals. What arrives from it is taken in by `listen`."""

    def __init__(self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()
        self._resized: Callable[[int, int], None] | None = None
        self._told: Callable[[int], None] | None = None
        self._signal: int | None = None
        self.size: tuple[int, int] | None = tuple(asked["terminal"]) if asked["terminal"] else None

    async def stdin(self) -> AsyncIterator[bytes]:
        while True:
            self._writer.write(client.frame(b"I"))
            piece = await self._typed.get()
            if not piece:
                return
            yield piece

    async def write(self, stream: Stream, data: bytes) -> None:
        kind = b"O" if stream == "stdout" else b"E"
        for at in range(0, len(data), client.PIECE):
            self._writer.write(client.frame(kind, data[at : at + client.PIECE]))
        await self._writer.drain()

    @contextlib.contextmanager
    def raw(self, resized: Callable[[int, int], None]) -> Iterator[None]:
        self._resized = resized
        self._writer.write(client.frame(b"T"))
        yield

    def on_signal(self, told: Callable[[int], None]) -> None:
        self._told = told
        if self._signal is not None:
            told(self._signal)

    async def listen(self) -> None:
        """Until the client is gone, or does not speak as ours do, which is a signal, too."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, ValueError, struct.error, CallError):
            while True:
                kind, payload = await _frame(self._reader)
                match kind:
                    case b"I":
                        self._typed.put_nowait(payload)
                    case b"W" if self._resized:
                        self.size = struct.unpack(">HH", payload)
                        self._resized(*self.size)
                    case b"K" if payload:
                        self._note(payload[0])
                    case _:
                        break
        self._note(signal.SIGHUP)

    def _note(self, number: int) -> None:
        self._signal = self._signal or number
        if self._told:
            self._told(number)


class _Daemon:
    def __init__(self, settings: Settings, parse: Parser, idle: float) -> None:
        self._settings = settings
        self._parse = parse
        self._idle = idle
        self._fingerprint = client.fingerprint()
        self._surroundings = client.surroundings()
        self._conversations: set[asyncio.Task[Any]] = set()
        self._idle_since = time.monotonic()
        self.down = asyncio.Event()

    async def serve(self, provider: Provider) -> None:
        """Until asked to end, or idle for long enough."""
        path = client.socket_path()

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._conversations.add(task)
            try:
                await self._converse(provider, reader, writer)
            except (asyncio.IncompleteReadError, OSError, ValueError, KeyError, TypeError, RecursionError):
                pass  # gone, or not a client of ours
            finally:
                self._conversations.discard(task)
                self._idle_since = time.monotonic()
                writer.close()

        server = await asyncio.start_unix_server(converse, path)
        path.chmod(0o600)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.down.set)
        try:
            while not self.down.is_set() and (left := self._seconds_left(provider)) > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.down.wait(), left)
        finally:
            path.unlink(missing_ok=True)  # nobody comes any more
            server.close()
            self.down.set()
            for run in provider.runs():
                run.end()
            if self._conversations:
                await asyncio.wait(self._conversations, timeout=self._settings.grace + _FAREWELL_SECONDS)

    def _seconds_left(self, provider: Provider) -> float:
        is_busy = self._conversations or provider.runs() or provider.leases()
        return self._idle if is_busy else self._idle_since + self._idle - time.monotonic()

    async def _converse(self, provider: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_ASK_SECONDS):
            kind, text = await _frame(reader)
            piece = text if kind == b"A" else b""
            while piece and len(text) < _MAX_ASKED:
                _, piece = await _frame(reader)
                text += piece
        if kind == b"D":
            self.down.set()
            return
        asked = json.loads(text)
        job = self._accept(asked)
        if job is None:
            writer.write(client.frame(b"N"))
            return
        writer.write(client.frame(b"Y"))
        console = _Console(asked, reader, writer)
        listening = asyncio.ensure_future(console.listen())
        try:
            status = await perform(job, console, folder=Path(asked["folder"]), provider=provider)
            writer.write(client.frame(b"Z", bytes([status])))
            await writer.drain()
        finally:
            listening.cancel()

    def _accept(self, asked: dict[str, Any]) -> Job | None:
        if asked["fingerprint"] != self._fingerprint or asked["surroundings"] != self._surroundings:
            return None
        if self.down.is_set() or time.monotonic() > asked["until"]:
            return None
        words = asked["argv"]
        job = self._parse(words) if words and words[0] in client.SERVED else None  # parsing others would do them
        if job is None or (isinstance(job, ToolJob) and job.approve == "ask"):  # which is the client's own terminal
            return None
        try:
            wanted = load_settings(Path(asked["folder"]) / job.config if job.config else None)
        except ConfigError:
            return None
        return job if wanted == self._settings else None


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind, size = client.HEADER.unpack(await reader.readexactly(client.HEADER.size))
    if size > client.PIECE:
        message = f"a frame of {size} bytes"
        raise ValueError(message)
    return bytes([kind]), await reader.readexactly(size)


def _folder() -> Path:
    """Where socket, lock and log are. Raises ConfigError where others can reach it."""
    folder = client.socket_path().parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or folder.is_symlink():
        message = f"{folder} is not a folder of this user alone; remove it, or set XDG_RUNTIME_DIR"
        raise ConfigError(message)
    return folder


@contextlib.contextmanager
def _only_one() -> Iterator[bool]:
    """Whether we are the one daemon of this user; others do not get past here while we live."""
    with (_folder() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def give_memory_back() -> None:
    """
    Have a freed output go back to the system.

    By default glibc keeps them: the first large one that is freed raises its idea of large, up to 32 MiB, and what is
    below that stays in its heaps. Over 2,000 runs of up to 2 MB, 85 MB became 134.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:  # a C library without it has no such habit that we know of
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


async def serve(parse: Parser, *, config: Path | None, idle: float) -> None:
    """
    Be the daemon, until asked to end, or idle for long enough. Where there is one already, do nothing.

    Raises:
        ConfigError, DisposeFailed.
    """
    settings = load_settings(config)
    with _only_one() as alone:
        if alone:
            give_memory_back()
            async with Provider(settings=settings) as provider:
                await _Daemon(settings, parse, idle).serve(provider)


def start(*, config: Path | None, idle: float) -> str:
    """
    Have a daemon run in the background.

    Raises:
        ConfigError, EngineUnavailable: it did not come up.
    """
    load_settings(config)
    if connection := client.connect():
        connection.close()
        return "already up"
    command = [sys.executable, "-m", "provider", "up", "--foreground", "--idle", str(idle)]
    command += ["--config", str(config.absolute())] if config else []
    log = _folder() / "daemon.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if connection := client.connect():
            connection.close()
            return f"up, pid {process.pid}; it ends after {idle:g} s without a request"
        time.sleep(0.01)
    said = log.read_text(errors="replace").strip()
    message = f"the daemon did not come up: {said[-500:] or 'it says nothing'}"
    raise EngineUnavailable(message)


def stop() -> bool:
    """Have this user's daemon end, and wait until it has; False where none is up."""
    connection = client.connect()
    if connection is None:
        return False
    with connection, contextlib.suppress(OSError):  # it ends by itself at this very moment
        connection.sendall(client.frame(b"D"))
        connection.settimeout(None)
        while connection.recv(1):
            pass
    with (client.socket_path().parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given when its last container is gone
    return True
