"""A file's bytes and an update -> its new bytes. Pure."""

from __future__ import annotations

import sys
from itertools import accumulate

from .grammar import WHITE
from .paths import does_not_fit, os_error, too_large

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from .grammar import Chunk, Update
    from .paths import Target

_PUNCTUATION: Final = {
    **dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-"),
    **dict.fromkeys(range(0x2018, 0x201C), "'"),
    **dict.fromkeys(range(0x201C, 0x2020), '"'),
    **dict.fromkeys([0xA0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000], " "),
}
# After the exact spelling, in this order, each over the whole file; the first that finds the lines wins.
LOOSE: Final[tuple[Callable[[str], str], ...]] = (
    lambda line: line.rstrip(WHITE),
    lambda line: line.strip(WHITE),
    lambda line: line.strip(WHITE).translate(_PUNCTUATION),
)
_BOM: Final = b"\xef\xbb\xbf"


def new_content(before: bytes, update: Update, target: Target, *, compat: bool = False) -> bytes:
    """
    Give a file's bytes after an update.

    Raises:
        ApplyError: the file does not have the lines that the patch expects.
    """
    return _upstream_content(before, update, target) if compat else _kept_content(before, update, target)


def _upstream_content(before: bytes, update: Update, target: Target) -> bytes:
    try:
        before.decode()
    except UnicodeDecodeError:
        does_not_fit("Failed to read file to update ", target, ": stream did not contain valid UTF-8")
    lines = before.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for match in reversed(_matches(lines, update, target, compat=True)):
        new = match.chunk.new
        if match.dropped and new and not new[-1]:
            new.pop()
        lines[match.start : match.start + match.length] = [line.encode() for line in new]
    if not lines or lines[-1]:
        lines.append(b"")
    return b"\n".join(lines)


def _kept_content(before: bytes, update: Update, target: Target) -> bytes:
    bom = _BOM if before.startswith(_BOM) else b""
    # Of bytes, unlike of str, only CR, LF and CRLF are ends.
    body = before.removeprefix(_BOM)
    ended, lines = body.splitlines(keepends=True), body.splitlines()
    newline = (ended[0][len(lines[0]) :] if ended else b"") or b"\n"
    unended = bool(ended) and len(ended[-1]) == len(lines[-1])
    if unended:
        # It may not be the last any more; if there still is a last line, it has no end then either.
        ended[-1] += newline
    out: list[bytes] = []
    last = b""  # what `out` ends with, without its end
    cursor = 0
    for match in _matches(lines, update, target, compat=False):
        if match.start > cursor:
            out += ended[cursor : match.start]
            last = lines[match.start - 1]
        cursor = match.start
        for sign, text in _shown_lines(match):
            if sign == "+":
                last = text.encode()
                out.append(last + newline)
                continue
            if sign == " ":
                last = lines[cursor]
                out.append(ended[cursor])
            cursor += 1
    if cursor < len(ended):
        out += ended[cursor:]
        last = lines[-1]
    if unended and out:
        out[-1] = last
    return bom + b"".join(out)


def _shown_lines(match: _Match) -> list[tuple[str, str]] | tuple[tuple[str, str], ...]:
    """Give a chunk's lines as far as the file has them."""
    if not match.dropped:
        return match.chunk.lines
    lines = list(match.chunk.lines)
    last = max(at for at, (sign, _) in enumerate(lines) if sign != "+")
    removed, _ = lines.pop(last)
    if removed == "-" and lines and lines[-1] == ("+", ""):
        lines.pop()
    return lines


class _Match:
    """A chunk's place: `length` lines from `start` are what its lines without `+` say."""

    __slots__ = ("chunk", "dropped", "length", "start")

    def __init__(self, start: int, length: int, chunk: Chunk, *, dropped: bool = False) -> None:
        self.start, self.length, self.chunk = start, length, chunk
        self.dropped = dropped
        """Its last old line, an empty one, is not in the file."""


def _matches(lines: list[bytes], update: Update, target: Target, *, compat: bool) -> list[_Match]:
    if len(lines) > sys.maxunicode:
        does_not_fit("Failed to read file to update ", target, f": {os_error(too_large())}")
    index = _Index(lines)
    cursor = 0
    found: list[_Match] = []
    for chunk in update.chunks:
        if chunk.context is not None:
            place = index.find([chunk.context], cursor, at_end=False, overlap=compat)
            if place is None:
                does_not_fit(f"Failed to find context '{chunk.context}' in ", target)
            cursor = place + 1
        old = chunk.old
        if not old:
            end = len(lines)
            found.append(_Match(end - 1 if end and not lines[-1] else end, 0, chunk))
            continue
        place = index.find(old, cursor, at_end=chunk.at_end, overlap=compat)
        length = len(old)
        if place is None and not old[-1]:
            length -= 1
            place = index.find(old[:-1], cursor, at_end=chunk.at_end, overlap=compat)
        if place is None:
            does_not_fit("Failed to find expected lines in ", target, ":\n" + "\n".join(old))
        found.append(_Match(place, length, chunk, dropped=length < len(old)))
        cursor = place + length
    # Additions at the end may come before replacements further up; stable, so that several keep their order.
    return sorted(found, key=lambda match: match.start)


class _Index:
    """
    A file's lines, findable in linear time: looking for lines is looking for bytes in bytes, which is never quadratic.

    Where the exact spelling is not there, every distinct line gets a character of its own, after being normalised, and
    the file becomes one string of them.
    """

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self._bytes = b"\n".join([b"", *lines, b""])
        self._starts: list[int] = []
        self._texts: list[str] = []
        self._passes: list[tuple[dict[str, str], str]] = []

    def find(self, wanted: list[str], start: int, *, at_end: bool, overlap: bool) -> int | None:
        if not wanted:
            return start
        tail = len(self._lines) - len(wanted)
        if tail < 0 or (at_end and tail < start and not overlap):
            return None
        first = tail if at_end else start
        found = self._bytes.find("\n".join(["", *wanted, ""]).encode(), self._offset(first))
        if found >= 0:
            return self._starts.index(found, first) if first else self._bytes.count(b"\n", 0, found)
        for number, normal in enumerate(LOOSE):
            letters, text = self._pass(number)
            spelled = [letters.get(normal(line)) for line in wanted]
            if None not in spelled:
                found = text.find("".join([letter for letter in spelled if letter]), first)
                if found >= 0:
                    return found
        return None

    def _offset(self, line: int) -> int:
        if line and not self._starts:  # most files have one place to be found, and no need of this
            self._starts = list(accumulate([len(line) + 1 for line in self._lines], initial=0))
        return self._starts[line] if line else 0

    def _pass(self, number: int) -> tuple[dict[str, str], str]:
        if not self._texts:
            self._texts = [line.decode(errors="surrogateescape") for line in self._lines]
        while len(self._passes) <= number:
            normal = LOOSE[len(self._passes)]
            letters: dict[str, str] = {}
            text = "".join([letters.setdefault(normal(line), chr(len(letters))) for line in self._texts])
            self._passes.append((letters, text))
        return self._passes[number]
