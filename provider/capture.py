"""
One captured stream: small in memory, spilled to a private file when it grows, cut at its cap, counted and
hashed to the end.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from typing import IO

SPILL_BYTES = 1024 * 1024


class Capture:
    """Keeps the first `cap` bytes; knows the length and digest of all of them."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._kept = 0
        self._digest = hashlib.sha256()
        self.total_bytes = 0

    def write(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._digest.update(data)
        keep = data[: self._cap - self._kept]
        if not keep:
            return
        if self._file is None and self._kept + len(keep) <= SPILL_BYTES:
            self._memory += keep
            self._kept += len(keep)
            return
        try:
            self._spill(keep)
        except OSError:
            # No room for the spool. The command is not to blame: what was kept stays, the flag says that it is not all.
            self._cap = self._kept

    def _spill(self, data: bytes) -> None:
        if self._file is None:
            # Unlinked from birth, readable by nobody else.
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - lives as long as the capture
            weakref.finalize(self, file.close)
            _write_all(file.fileno(), bytes(self._memory), 0)
            self._file = file
            self._memory.clear()
        _write_all(self._file.fileno(), data, self._kept)
        self._kept += len(data)

    @property
    def truncated(self) -> bool:
        return self.total_bytes > self._kept

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def read(self, most: int | None = None) -> bytes:
        size = self._kept if most is None else min(most, self._kept)
        if self._file is None:
            return bytes(self._memory[:size])
        return _read_all(self._file.fileno(), size)


def _write_all(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def _read_all(fd: int, size: int) -> bytes:
    pieces = []
    at = 0
    while piece := os.pread(fd, size - at, at):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)
