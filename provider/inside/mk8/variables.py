"""`$NAME` in a text: where it stands, and what stands for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .errors import InvalidArgument

BUILT_IN: Final = frozenset({"WORKSPACE", "CWD", "USER", "PREV"})
RESERVED: Final = BUILT_IN | {"ITEM", "INDEX"}
"""Names that no capture may have."""
MOST_CHARS: Final = 16 * 2**20
"""Of one text with everything filled in: a thousand times `$PREV` is no way to use up the memory."""
_TOKEN: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def names(text: str) -> tuple[str, ...]:
    """The variables of a text, in upper case and in their order."""
    return tuple(map(str.upper, _TOKEN.findall(text))) if "$" in text else ()


def expand(text: str, values: Mapping[str, str], most: int = MOST_CHARS) -> str:
    """
    Fill in what is known, in one pass: what a value contains stays as it is, and so does an unknown name.

    `values` are by name in upper case.

    Raises:
        InvalidArgument: it would become too long.
    """
    if "$" not in text:
        return text
    found = names(text)
    length = len(text) + sum(len(values.get(name, "")) for name in found)
    if length > most:
        used = ", ".join(f"${name}" for name in dict.fromkeys(found))
        text = f"with {used} filled in, the text has about {length} characters; {most} is the most"
        raise InvalidArgument(text)
    return _TOKEN.sub(lambda token: values.get(token[1].upper(), token[0]), text)


def literals(text: str) -> list[str]:
    """What stands between the variables."""
    return _TOKEN.split(text)[::2] if "$" in text else [text]
