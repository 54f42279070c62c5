"""Bytes of a command as text for a model: cut with a count, and between tags that it cannot close."""

from __future__ import annotations

import re

OPENING = '<workspace_tool_result untrusted="true">'
CLOSING = "</workspace_tool_result>"

_LETTERS = "workspacetool"
"""Enough of the name: a tag that was cut in the middle is not to look like one either."""
_FILLER = r"(?:[^\w<]|_)*+"
"""Whatever is no letter, digit or bracket: a reader of tags may overlook it. Possessive, so time is linear."""
_TAG = re.compile(rf"<(?={_FILLER}{_FILLER.join(_LETTERS)})", re.IGNORECASE)
_LONGEST_CHARACTER = 4


def suffix(omitted: int) -> str:
    return f"\n[... truncated, {omitted} bytes omitted; refine your search/path]"


def cut(data: bytes, total: int, most: int) -> tuple[str, int]:
    """Give the first `most` bytes as text, and how many of `total` are left out. No character is cut in two."""
    kept = data[:most]
    if total > len(kept):
        kept = kept[: whole_characters(kept)]
    omitted = total - len(kept)
    return kept.decode(errors="replace") + (suffix(omitted) if omitted else ""), omitted


def wrapped(text: str) -> str:
    """
    Put text of a command between the tags.

    Anything in it that could be taken for one of the tags, in whatever case and with whatever blanks or signs in
    between, loses its bracket to the entity. That is done last, so no cut can make a tag of two halves.
    """
    return f"{OPENING}\n{_TAG.sub('&lt;', text)}\n{CLOSING}"


def whole_characters(data: bytes) -> int:
    """How many bytes there are before a UTF-8 character that has only begun. Bytes that are no UTF-8 are whole."""
    for size in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-size]
        if byte & 0xC0 == 0x80:  # noqa: PLR2004 - a continuation
            continue
        length = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1  # noqa: PLR2004
        return len(data) - size if length > size else len(data)
    return len(data)
