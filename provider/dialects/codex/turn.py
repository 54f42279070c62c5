"""
A turn of a conversation: what its calls share. Calls that may change something go one after the other; and whatever
patches have changed since it began can be told as one diff.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from provider.dialects.codex.diff import File, turn_diff

MAX_TURNS: Final = 256
"""Sessions whose turn is remembered; the one that was quiet for longest begins a new turn."""


@dataclass(slots=True, kw_only=True)
class Turn:
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _before: dict[str, File | None] = field(default_factory=dict)
    _after: dict[str, File | None] = field(default_factory=dict)
    _moves: dict[str, str] = field(default_factory=dict)

    def changed(
        self, files: Iterable[tuple[str, File | None, File | None]], moved: tuple[str, str] | None = None
    ) -> None:
        """Note each path with what it held before and after; what it first held stays what the diff begins with."""
        for path, before, after in files:
            self._before.setdefault(path, before)
            self._after[path] = after
        if moved:
            old, new = moved
            first = next((origin for origin, last in self._moves.items() if last == old), old)
            self._moves[first] = new

    @property
    def diff(self) -> str:
        """Of all changes so far; empty where everything is as it was."""
        return turn_diff(self._before, self._after, self._moves)


class Turns:
    """The turn of each session."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Turn] = OrderedDict()

    def of(self, session: str) -> Turn:
        turn = self._of.setdefault(session, Turn())
        self._of.move_to_end(session)
        if len(self._of) > MAX_TURNS:
            self._of.popitem(last=False)
        return turn

    def begin(self, session: str) -> Turn:
        """A new one, with an empty diff."""
        self._of.pop(session, None)
        return self.of(session)
