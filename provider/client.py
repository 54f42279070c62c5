"""
The near side of the daemon: hands a command line over, and lends it this process's streams, terminal and signals.

The standard library only, and little of it: what this file imports is what `sandbox run` waits for. Unless the daemon
has taken the command line, the answer is None and it runs here, as if there were no daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections import deque
from pathlib import Path

from provider import screen

SERVED = frozenset({"run", "shell", "tool", "check"})
HEADER = struct.Struct(">BI")
"""Frames as those of pid 1: a letter, a length, a payload of at most 64 KiB."""
PIECE = 65536
LOST = 125
SIGNALED = 128
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAFE_WRITE = 4096
"""A pipe that poll calls writable takes this much without blocking."""
_HANDSHAKE_SECONDS = 5.0
_ANSWER_SECONDS = 4.0
"""After that the daemon does not take it any more; we may have begun it here."""
_END_SECONDS = 10.0
"""After a signal: the daemon's grace and second line are over by then."""
_FLUSH_SECONDS = 0.3


def socket_path() -> Path:
    """Where this user's daemon listens. The folder is for nobody else, wherever it is."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    shared = Path("/tmp", f"sandbox-provider-{os.getuid()}")  # noqa: S108 - whose it is, is_ours sees
    return (Path(runtime, "sandbox-provider") if runtime else shared) / "daemon.sock"


def is_ours(path: Path) -> bool:
    """Whether only this user can have put the socket there: whoever answers gets command lines, and is believed."""
    try:
        folder, end = path.parent.lstat(), path.lstat()
    except OSError:
        return False
    is_private = stat.S_ISDIR(folder.st_mode) and folder.st_uid == os.geteuid() and not folder.st_mode & 0o077
    return is_private and stat.S_ISSOCK(end.st_mode) and end.st_uid == os.geteuid()


def surroundings() -> dict[str, str]:
    """What decides about engine and settings besides the command line; a daemon with others does not serve us."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in {"HOME", "XDG_CONFIG_HOME"} or name.startswith(("SANDBOX_", "DOCKER_"))
    }


def fingerprint() -> str:
    """Of this code: a daemon that runs other code, from before an update, say, does not serve us."""
    package = os.path.dirname(__file__)  # noqa: PTH120 - this way it takes no time
    sources = (f"{folder}/{name}" for folder, _, names in os.walk(package) for name in names if name.endswith(".py"))
    return f"{package} {max(os.stat(source).st_mtime_ns for source in sources)}"  # noqa: PTH116


def connect() -> socket.socket | None:
    """Give a connection to this user's daemon; None where none is up."""
    path = socket_path()
    if not is_ours(path):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_HANDSHAKE_SECONDS)
    try:
        connection.connect(os.fspath(path))
    except OSError:
        connection.close()
        return None
    return connection


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind[0], len(payload)) + payload


def ask(argv: list[str]) -> int | None:
    """Have the daemon run a command line; its exit status, or None when it is to be run here."""
    if not argv or argv[0] not in SERVED:
        return None
    folder = _folder()
    connection = connect() if folder else None
    if connection is None:
        return None
    asked = {
        "argv": argv,
        "folder": folder,
        "terminal": screen.size(0) if os.isatty(0) else None,
        "surroundings": surroundings(),
        "fingerprint": fingerprint(),
        "until": time.monotonic() + _ANSWER_SECONDS,
    }
    text = json.dumps(asked).encode()
    pieces = [frame(b"A", text[at : at + PIECE]) for at in range(0, len(text), PIECE)]
    with connection, contextlib.ExitStack() as undo:
        try:
            connection.sendall(b"".join(pieces) + frame(b"A"))
            taken = connection.recv(HEADER.size, socket.MSG_WAITALL)
        except OSError:
            return None
        if taken != frame(b"Y"):
            return None
        connection.settimeout(None)
        status = _Loan(connection, undo).serve()
    if status is None:
        sys.stderr.write("sandbox: the daemon went away\n")
        return LOST
    return status


def _folder() -> str:
    """Where we are; empty where that was removed, and then the error is for whoever can tell it."""
    try:
        return os.getcwd()  # noqa: PTH109 - as above
    except OSError:
        return ""


class _Loan:
    """Our streams, terminal and signals, lent to the daemon until it tells the exit status."""

    def __init__(self, connection: socket.socket, undo: contextlib.ExitStack) -> None:
        self._connection = connection
        self._undo = undo
        self._arrived = b""
        self._output: deque[tuple[int, memoryview]] = deque()
        self._wants_stdin = False
        self._status: int | None = None
        self._until: float | None = None
        self._signals, awakened = socket.socketpair()
        for end in (self._signals, awakened):
            end.settimeout(0)
        undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(awakened.fileno()))
        undo.enter_context(awakened)
        undo.enter_context(self._signals)
        for number in _SIGNALS:
            undo.callback(signal.signal, number, signal.signal(number, _noted))

    def serve(self) -> int | None:
        while self._status is None or self._output:
            left = None if self._until is None else self._until - time.monotonic()
            if left is not None and left <= 0:
                break  # nobody reads our output, or the daemon does not end what it was told to
            events = self._wait(left)
            if self._signals.fileno() in events:
                self._pass_signals_on()
            if 0 in events and self._wants_stdin:
                self._wants_stdin = False
                self._send(b"I", _read(0))
            if self._output and self._output[0][0] in events:
                self._write_some()
            if self._connection.fileno() in events and not self._receive():
                return None
        return self._status

    def _wait(self, seconds: float | None) -> dict[int, int]:
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._output:
            poll.register(self._output[0][0], select.POLLOUT)
        if self._wants_stdin:
            poll.register(0, select.POLLIN)
        # With output in hand we take no more, and so slow the command; when all is to end, its end comes behind it.
        if self._status is None and (not self._output or self._until is not None):
            poll.register(self._connection, select.POLLIN)
        return dict(poll.poll(None if seconds is None else seconds * 1000))

    def _receive(self) -> bool:
        try:
            data = self._connection.recv(4 * PIECE)
        except OSError:
            data = b""
        self._arrived += data
        while len(self._arrived) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._arrived)
            if len(self._arrived) < HEADER.size + size:
                break
            self._take(chr(kind), self._arrived[HEADER.size : HEADER.size + size])
            self._arrived = self._arrived[HEADER.size + size :]
        return bool(data) or self._status is not None

    def _take(self, kind: str, payload: bytes) -> None:
        match kind:
            case "O" | "E":
                self._output.append((1 if kind == "O" else 2, memoryview(payload)))
            case "I":
                self._wants_stdin = True
            case "T":
                self._undo.enter_context(screen.raw(0))
                signal.signal(signal.SIGWINCH, _noted)
            case "Z":
                self._status = payload[0]
                if self._until is not None:
                    self._until = time.monotonic() + _FLUSH_SECONDS
            case _:
                self._connection.shutdown(socket.SHUT_RDWR)  # no daemon of ours; the next look at it tells

    def _write_some(self) -> None:
        descriptor, data = self._output.popleft()
        try:
            written = os.write(descriptor, data[:_SAFE_WRITE])
        except BlockingIOError:
            written = 0  # whoever shares it has made it so, and was faster
        except OSError:
            # Nobody reads it any more: what SIGPIPE would do to the command, were it here.
            self._end(signal.SIGPIPE)
            return
        if data[written:]:
            self._output.appendleft((descriptor, data[written:]))

    def _pass_signals_on(self) -> None:
        for number in self._signals.recv(PIECE):
            if number == signal.SIGWINCH:
                with contextlib.suppress(OSError):  # the terminal is gone, and SIGHUP on its way
                    self._send(b"W", struct.pack(">HH", *screen.size(0)))
            elif number in _SIGNALS:
                self._end(number)

    def _end(self, number: int) -> None:
        self._send(b"K", bytes([number]))
        self._until = self._until or time.monotonic() + _END_SECONDS

    def _send(self, kind: bytes, payload: bytes) -> None:
        with contextlib.suppress(OSError):  # it is gone; the next look at it tells
            self._connection.sendall(frame(kind, payload))


def _noted(_number: int, _frame: object) -> None:
    """The wake-up descriptor has the number."""


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, PIECE)
    except OSError:
        return b""
