"""A command and every command that it would run for itself: `sudo env -i sh -c x` has three layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from provider.policy.known import Unwrapped, base_name, unwrap

MAX_LAYERS: Final = 8
MAX_COMMANDS: Final = 64
"""More is an attempt to hide something."""


class Layer(NamedTuple):
    argv: tuple[str | None, ...]
    """None is a word that is not known before it runs."""
    program: str
    """The base name, in lower case and without `.exe`; empty when not even that is known."""
    opened: Unwrapped

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(word for word in self.argv[1:] if word is not None)


def layers(argv: Sequence[str | None]) -> Iterator[Layer]:
    """Yield them from the outside in."""
    todo = [(0, tuple(argv))]
    seen = 0
    while todo:
        depth, words = todo.pop()
        opened = unwrap(words)
        seen += 1
        if opened.commands and (depth >= MAX_LAYERS or seen >= MAX_COMMANDS):
            opened = Unwrapped(inline="wrappers around wrappers, too many to follow")
        first = words[0] if words else None
        yield Layer(words, base_name(first) if first else "", opened)
        todo.extend((depth + 1, inner) for inner in reversed(opened.commands))
