"""What the arguments of a verb may be, beyond their count and kind: checks, which raise CompileError."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, NoReturn

from ..errors import CompileError, StepFailure
from ..verb import Arguments

LARGEST_TEXT: Final = 16 * 1024 * 1024
"""Characters of one text in memory. Outputs are cut far below; this keeps a step from using up the sandbox's memory."""

ALGORITHMS: Final = ("sha256", "sha512", "md5")

Check = Callable[[Arguments], None]

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*", re.ASCII)


def refuse(verb: str, text: str) -> NoReturn:
    """Say no, before anything runs."""
    raise CompileError(verb, text)


def at(arguments: Arguments, index: int) -> str | None:
    """An argument, or None where it was left out or only the run knows it."""
    return arguments[index] if index < len(arguments) else None


def every(*checks: Check) -> Check:
    """All of these."""

    def check(arguments: Arguments) -> None:
        for one in checks:
            one(arguments)

    return check


def whole(verb: str, index: int, name: str, least: int, most: int | None = None) -> Check:
    """Make it an integer of this range."""
    right = f"{name} is an integer of at least {least}" if most is None else f"{name} is an integer, {least} to {most}"

    def check(arguments: Arguments) -> None:
        text = at(arguments, index)
        if text is None:
            return
        if not _WHOLE.fullmatch(text) or int(text) < least or (most is not None and int(text) > most):
            refuse(verb, f"argument {index + 1} is {brief(text)}, but {right}")

    return check


def number(text: str) -> float | None:
    """Read a decimal number, as people write one; None for anything else, such as `nan` or `1_000`."""
    return float(text) if _NUMBER.fullmatch(text) else None


def one_of(verb: str, index: int, name: str, words: Collection[str]) -> Check:
    """Make it one of these words, in upper or lower case."""

    def check(arguments: Arguments) -> None:
        text = at(arguments, index)
        if text is not None and text.lower() not in words:
            refuse(verb, f"argument {index + 1} is {brief(text)}, but {name} is one of {', '.join(words)}")

    return check


def algorithm(verb: str, index: int) -> Check:
    return one_of(verb, index, "the algorithm", ALGORITHMS)


def even(verb: str, what: str) -> Check:
    """Take only pairs."""

    def check(arguments: Arguments) -> None:
        if len(arguments) % 2:
            refuse(verb, f"got {len(arguments)} arguments, but they are pairs of {what}: give an even number")

    return check


def in_size(length: int, what: str) -> None:
    """Refuse a text that would be too long, before it is made."""
    if length > LARGEST_TEXT:
        message = f"{what} would have {length} characters, and at most {LARGEST_TEXT} are handled; take it in pieces"
        raise StepFailure(message)


def joined(parts: Iterable[str]) -> str:
    return "\n".join(parts)


def brief(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")  # noqa: PLR2004 - what a message can bear
