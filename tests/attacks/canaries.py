"""
What must never come out of a sandbox, and whom nothing in one may call.

All tokens begin with the same random stem, so one search finds any of them, also written backwards, in hexadecimal, in
base64 or as UTF-16. No input of an attack holds the stem: wherever it is found, it was taken from the host.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import secrets
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from provider.events import OutputArrived
from provider.model import Outcome

VARIABLE = "CANARY_API_TOKEN"
_MOST_FILES, _MOST_BYTES = 500, 2**20


class Canaries:
    """Planted on entering, removed on leaving."""

    def __init__(self, folder: Path, *, gateway: str | None, owner: int) -> None:
        self._stem = secrets.token_hex(12)
        self._forms = tuple(_forms(self._stem))
        self._stack = contextlib.ExitStack()
        self._sockets: list[socket.socket] = []
        self.beside = folder / "beside"
        self.tenant = folder / "tenant"
        self.spool = folder / "spool"
        """Where this process puts temporary files."""
        self.gateway = gateway
        self.seen_in_tmp: set[str] = set()
        self.calls: list[str] = []
        """Who was connected to, or sent something."""
        self.places: dict[str, str] = {}
        """What `@NAME@` stands for in an input: a path or an address, never a token."""
        self._owner = owner
        self._secret_digest = ""
        self._untouched: dict[str, tuple[object, ...]] = {}

    def token(self, name: str) -> str:
        return f"{self._stem}-{name}-{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        for folder in (self.beside, self.tenant):
            folder.mkdir()
        content = self.token("secret").encode()
        (self.beside / "secret").write_bytes(content)
        (self.beside / "secret").chmod(0o644)
        self._secret_digest = hashlib.sha256(content).hexdigest()
        (self.tenant / "notes").write_text(self.token("tenant"))
        if os.geteuid() == 0:
            for path in (self.tenant, self.tenant / "notes"):
                os.chown(path, self._owner, self._owner)
        os.environ[VARIABLE] = self.token("environment")
        self._stack.callback(os.environ.pop, VARIABLE, None)
        self.spool.mkdir()
        self._stack.callback(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = str(self.spool)
        self.places = {"SECRET": str(self.beside / "secret"), "BESIDE": str(self.beside), "TENANT": str(self.tenant)}
        self.places["LOOPBACK"] = self._serve("loopback", "127.0.0.1")
        self.places["GATEWAY"] = self._serve("gateway", self.gateway) if self.gateway else "127.0.0.1 9"
        self.serve_unix("unix", self.beside / "host.sock")
        self.serve_unix("abstract", f"\0{secrets.token_hex(8)}")
        self._untouched = {name: _state(folder) for name, folder in self._folders().items()}
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._sockets:
            server.close()
        self._stack.close()

    def _folders(self) -> Mapping[str, Path]:
        return {"beside the workspace": self.beside, "the other tenant's workspace": self.tenant}

    def _serve(self, name: str, address: str) -> str:
        """Listen by TCP and UDP; whoever connects by TCP is told a token."""
        server = socket.create_server((address, 0))
        port = server.getsockname()[1]
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind((address, port))
        self._listen(name, server)
        self._listen(f"{name} by UDP", datagrams)
        return f"{address} {port}"

    def serve_unix(self, name: str, path: Path | str) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        address = str(path)
        if isinstance(path, Path):
            # By way of its folder's descriptor: the address of a socket is 107 bytes at most, and a test's path longer.
            folder = os.open(path.parent, os.O_PATH)
            address = f"/proc/self/fd/{folder}/{path.name}"
        server.bind(address)
        if isinstance(path, Path):
            os.close(folder)
            path.chmod(0o777)
        server.listen()
        self._listen(name, server)
        return server

    def _listen(self, name: str, server: socket.socket) -> None:
        self._sockets.append(server)
        greeting = self.token(name.partition(" ")[0]).encode()

        def hear() -> None:
            with contextlib.suppress(OSError):  # closed, at the end
                while True:
                    if server.type == socket.SOCK_DGRAM:
                        server.recv(1)
                    else:
                        caller, _ = server.accept()
                        with caller:
                            caller.sendall(greeting)
                    self.calls.append(name)

        threading.Thread(target=hear, name=f"canary {name}", daemon=True).start()

    # What is looked at after every attack.

    def in_bytes(self, data: bytes) -> bool:
        return any(form in data for form in self._forms)

    def in_outcome(self, outcome: Outcome | None, error: Exception | None) -> list[str]:
        """Where in the answer to a request there is a canary: output, artifacts, receipt, notes, errors."""
        found: list[str] = []
        parts: dict[str, Any] = {"error": f"{error} {getattr(error, 'receipt', None)}" if error else ""}
        if outcome:
            parts |= {
                "stdout": outcome.stdout,
                "stderr": outcome.stderr,
                "receipt": json.dumps(outcome.receipt, default=str),
                "artifacts": json.dumps([asdict(artifact) for artifact in outcome.artifacts]),
                "problems": json.dumps([asdict(problem) for problem in outcome.artifact_problems]),
                "notes": f"{outcome.notes} {outcome.callback_errors} {outcome.error}",
            }
            if self._secret_digest in parts["receipt"] + parts["artifacts"]:
                found.append("the digests: the secret file was hashed")
        return found + [
            name for name, part in parts.items() if self.in_bytes(part if isinstance(part, bytes) else _raw(part))
        ]

    def in_tree(self, folder: Path) -> list[str]:
        """Which files that a run left hold a canary. The tree is hostile: nothing is followed, little is read."""
        found = []
        for path in _files(folder):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if self.in_bytes(os.read(descriptor, _MOST_BYTES)):
                    found.append(path)
            finally:
                os.close(descriptor)
        return [os.fsdecode(path) for path in found]

    def touched(self) -> list[str]:
        """Which folders of the host are not as they were when last asked: content, names, modes, owners, times."""
        now = {name: _state(folder) for name, folder in self._folders().items()}
        before, self._untouched = self._untouched, now
        return [name for name in now if now[name] != before[name]]

    def new_in_tmp(self) -> list[str]:
        """Temporary files of the provider that have a name, now or when there was output."""
        return sorted({*self.seen_in_tmp, *os.listdir(self.spool)})

    def listener(self) -> Watch:
        return Watch(self)


class Watch:
    """Takes a run's events and notes whether there was a canary in one, also one cut in two by the pieces."""

    def __init__(self, canaries: Canaries) -> None:
        self._canaries = canaries
        self._tails: dict[str, bytes] = {}
        self.found: list[str] = []
        self.chunks = 0

    async def __call__(self, event: object) -> None:
        if isinstance(event, OutputArrived):
            self.chunks += 1
            self._canaries.seen_in_tmp.update(os.listdir(self._canaries.spool))
            data = self._tails.get(event.stream, b"") + event.data
            self._tails[event.stream] = data[-512:]
        else:
            data = _raw(repr(event))
        if self._canaries.in_bytes(data):
            self.found.append(type(event).__name__)


def _raw(text: object) -> bytes:
    return str(text).encode("utf-8", "surrogateescape")


def _forms(stem: str) -> Iterator[bytes]:
    raw = stem.encode()
    yield raw
    yield raw[::-1]
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield raw.hex(" ").encode()
    yield stem.encode("utf-16-le")
    yield stem.upper().encode()
    for skip in range(3):  # where in a group of three it begins
        # The characters at both ends depend on what stands beside it.
        yield base64.b64encode(b"\0" * skip + raw)[4 if skip else 0 : -4]


def _state(folder: Path) -> tuple[object, ...]:
    return tuple(
        (path.name, info.st_mode, info.st_uid, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_nlink)
        for path in (folder, *sorted(folder.rglob("*")))
        for info in [path.lstat()]
    )


def _files(folder: Path) -> Iterator[bytes]:
    """Regular files, the first few, without recursion and by bytes: a name may be anything, a tree any depth."""
    pending, seen = [os.fsencode(folder)], 0
    while pending:
        place = pending.pop()
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                seen += 1
                if seen > _MOST_FILES:
                    return
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode):
                    yield entry.path
