"""
What a model is shown of a stream: text without terminal codes, its head and its tail, and how much is left out between.

Bytes that are not UTF-8 are replaced in the text, and given whole in base64 beside it where they fit.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

HEAD_SHARE = 0.2  # errors stand at the end
SNIFFED = 512
"""A NUL among the first so many bytes makes an output binary."""
HALTED = "[Binary output detected. Halting stream...]"

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    text: str
    base64: str | None = None
    """The bytes, where the text cannot tell them and they fit."""
    omitted: int = 0
    """Characters left out in the middle; bytes, of a binary output."""


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:SNIFFED]


def strip_ansi(text: str) -> str:
    return _ANSI.sub("", text) if "\x1b" in text or "\x9b" in text else text


def shown(data: bytes, *, total: int, characters: int) -> Shown:
    """Show a stream of which `data` was kept, out of `total` bytes."""
    try:
        text, encoded = data.decode(), None
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        encoded = _base64(data, total, characters)
    if is_binary(data):
        encoded = _base64(data, total, characters)
        return Shown(
            text=f"{HALTED}\n[{total} bytes received]", base64=encoded, omitted=0 if encoded is not None else total
        )
    dropped = total - len(data)
    if len(text) <= characters and not dropped:
        return Shown(text=strip_ansi(text), base64=encoded)
    head = int(characters * HEAD_SHARE)
    tail = min(characters - head, len(text) - head)
    omitted = max(0, len(text) - characters)
    if len(text) <= characters:
        middle = f"\n... [{dropped} bytes omitted] ...\n"
        return Shown(text=strip_ansi(text) + middle, base64=encoded, omitted=dropped)
    count = f"{omitted} characters" + (f" and {dropped} bytes after the tail" if dropped else "")
    middle = f"\n... [{count} omitted] ...\n"
    return Shown(
        text=strip_ansi(text[:head]) + middle + strip_ansi(text[len(text) - tail :]),
        base64=encoded,
        omitted=omitted + dropped,
    )


def _base64(data: bytes, total: int, characters: int) -> str | None:
    fits = len(data) == total and len(data) * 4 <= characters * 3
    return base64.b64encode(data).decode() if fits else None
