"""Text as bytes and bytes as text: UTF-8, or what a byte order mark says."""

from __future__ import annotations

import re
from typing import Final

MARKS: Final = (  # the longer first: a UTF-16 mark is the beginning of a UTF-32 one
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
LONGEST_MARK: Final = 4

_LONE = re.compile("[\ud800-\udfff]")


def mark(data: bytes) -> tuple[bytes, str]:
    """Give the byte order mark that the data begins with, and the encoding that it stands for."""
    return next(((found, encoding) for found, encoding in MARKS if data.startswith(found)), (b"", "utf-8"))


def from_bytes(data: bytes) -> str:
    """Decode. What is not valid becomes U+FFFD, since a wrong byte should not hide the rest of a file."""
    found, encoding = mark(data)
    return data[len(found) :].decode(encoding, "replace")


def to_bytes(text: str) -> bytes:
    """Encode as UTF-8. Half a surrogate pair, which JSON can spell and UTF-8 cannot, becomes U+FFFD."""
    return (text if text.isascii() else _LONE.sub("\ufffd", text)).encode()


def shown(name: str) -> str:
    r"""Spell the bytes of a file's name that are not UTF-8 as `\udcXX`."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()
