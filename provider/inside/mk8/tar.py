"""
A gzipped tar, read entry by entry: only what ArchiveExtract can use, so that nothing else in a file that strangers
wrote is ever interpreted.

Regular files and folders are entries, with names of any length (ustar, GNU and pax). Everything else is an entry of the
kind `other`, to be refused. Sparse files are `other` too: what they say of themselves is not what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, NoReturn

from .errors import StepFailure

if TYPE_CHECKING:
    from gzip import GzipFile

_BLOCK: Final = 512
_LONGEST_NAME: Final = 65_536
_MOST_HEADERS: Final = 8
_PIECE: Final = 1024 * 1024
_KINDS: Final = {b"0": "file", b"\0": "file", b"7": "file", b"5": "folder"}
_RECORD: Final = re.compile(rb"([0-9]{1,10}) ([^=\n]+)=")


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    kind: str
    size: int
    content: Iterator[bytes]
    """To be read before the next entry; what is left of it is skipped."""


def entries(file: BinaryIO) -> Iterator[Entry]:
    """Raises StepFailure for what is no gzipped tar, also in the middle of it."""
    import gzip

    with gzip.GzipFile(fileobj=file, mode="rb") as stream:
        yield from _entries(stream)


def _refuse(text: str, cause: Exception | None = None) -> NoReturn:
    message = f"the archive {text}"
    raise StepFailure(message) from cause


def _entries(stream: GzipFile) -> Iterator[Entry]:
    told: dict[bytes, bytes] = {}
    headers = 0
    while any(header := _exactly(stream, _BLOCK)):
        kind, size = header[156:157], _octal(header[124:136])
        _check_sum(header)
        if kind in b"xgLK" and kind:
            headers += 1
            if size > _LONGEST_NAME or headers > _MOST_HEADERS:
                _refuse(f"has headers before an entry that are too many, or more than {_LONGEST_NAME} bytes long")
            data = _exactly(stream, size)
            _exactly(stream, -size % _BLOCK)
            if kind == b"L":
                told[b"path"] = data.rstrip(b"\0")
            elif kind == b"x":
                told |= _records(data)
            continue
        name = told.get(b"path") or _ustar_name(header)
        sparse = any(key.startswith(b"GNU.sparse") for key in told)
        size = _whole(told[b"size"]) if b"size" in told else size
        content = _content(stream, size)
        said = "other" if sparse else _KINDS.get(kind, "other")
        if said == "file" and name.endswith(b"/"):
            said = "folder"  # as the oldest tars wrote one
        if said == "folder" and size:
            said = "other"
        yield Entry(name.decode("utf-8", "surrogateescape"), said, size, content)
        for _ in content:
            pass
        _exactly(stream, -size % _BLOCK)
        told, headers = {}, 0


def _content(stream: GzipFile, size: int) -> Iterator[bytes]:
    left = size
    while left:
        piece = _piece(stream, min(left, _PIECE))
        if not piece:
            _refuse("ends within a file")
        left -= len(piece)
        yield piece


def _exactly(stream: GzipFile, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = _piece(stream, size - len(data))
        if not piece:
            _refuse("ends too early")
        data += piece
    return data


def _piece(stream: GzipFile, size: int) -> bytes:
    import zlib
    from gzip import BadGzipFile

    try:
        return stream.read(size)
    except (BadGzipFile, zlib.error, EOFError) as error:
        _refuse(f"is damaged, or not compressed with gzip: {error}", error)


def _octal(field: bytes) -> int:
    text = field.rstrip(b"\0 ").lstrip(b" ")
    if not re.fullmatch(rb"[0-7]*", text):  # also the other notation, which is for more than 8 GiB
        _refuse("has an entry without a right size; it is no tar, or too large")
    return int(text or b"0", 8)


def _whole(text: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,12}", text):
        _refuse("has an entry without a right size")
    return int(text)


def _check_sum(header: bytes) -> None:
    blanked = header[:148] + b" " * 8 + header[156:]
    if _octal(header[148:156]) != sum(blanked):
        _refuse("is damaged, or no tar: a header's sum is wrong")


def _ustar_name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:262] == b"ustar" and header[262:264] != b"  " else b""
    return prefix + b"/" + name if prefix else name


def _records(data: bytes) -> dict[bytes, bytes]:
    r"""`<length> <key>=<value>\n`, where the length is that of all of it."""
    found: dict[bytes, bytes] = {}
    place = 0
    while place < len(data):
        record = _RECORD.match(data, place)
        end = place + int(record[1]) if record else 0
        if record is None or end <= record.end() or data[end - 1 : end] != b"\n":
            _refuse("has a pax header that cannot be read")
        found[record[2]] = data[record.end() : end - 1]
        place = end
    return found
