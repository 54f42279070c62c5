"""
What MathEval calculates: + - * / % ( ) and decimal numbers, exactly, by the usual precedence.

    expression = term {(+ | -) term}
    term       = signed {(* | / | %) signed}
    signed     = [+ | -] signed | number | ( expression )

`%` is the remainder, with the sign of what is divided. Fractions are kept as such until the end, so 0.1 + 0.2 is 0.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .errors import StepFailure

if TYPE_CHECKING:
    from fractions import Fraction

LONGEST: Final = 256
_ALLOWED: Final = re.compile(r"[0-9.+\-*/%() ]*")
_TOKEN: Final = re.compile(r" *([0-9]+(?:\.[0-9]+)?|\.[0-9]+|[-+*/%()])")
_OPEN, _SIGNS = "(", {"+": "plus", "-": "minus"}
_STRENGTH: Final = {_OPEN: 0, "+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "plus": 3, "minus": 3}


def what_is_wrong(text: str) -> str | None:
    """Say what is wrong with an expression; None for a right one."""
    if not text.strip(" ") or len(text) > LONGEST:
        return f"it has {len(text)} characters, but 1 to {LONGEST} are right, and not only spaces"
    if not _ALLOWED.fullmatch(text):
        strange = next(letter for letter in text if not _ALLOWED.fullmatch(letter))
        return f"it has {strange!r} in it, but only digits . + - * / % ( ) and space are right"
    try:
        _postfix(text)
    except ValueError as error:
        return str(error)
    return None


def evaluate(text: str) -> str:
    """Calculate. Raises StepFailure for a division by zero, and ValueError for what what_is_wrong says is wrong."""
    from fractions import Fraction

    values: list[Fraction] = []
    for token in _postfix(text):
        if token in _STRENGTH:
            right = values.pop()
            values.append(_applied(token, values.pop() if token not in _SIGNS.values() else Fraction(0), right))
        else:
            values.append(Fraction(token))
    return _shown(values[0])


def _applied(operator: str, one: Fraction, other: Fraction) -> Fraction:
    if operator in {"+", "plus"}:
        return one + other
    if operator in {"-", "minus"}:
        return one - other
    if operator == "*":
        return one * other
    if not other:
        message = f"{_shown(one)} {operator} 0: nothing can be divided by zero"
        raise StepFailure(message)
    return one / other if operator == "/" else one - other * int(one / other)


def _shown(value: Fraction) -> str:
    from decimal import Decimal

    if value.denominator == 1:
        return str(value.numerator)
    try:
        return format(Decimal(repr(float(value))).normalize(), "f")
    except OverflowError as error:
        message = "the result is too large to be written as a decimal fraction"
        raise StepFailure(message) from error


def _tokens(text: str) -> Iterator[str]:
    place, end = 0, len(text.rstrip(" "))
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            message = f"{text[place : place + 10]!r} is no number; right are 2, 2.5 and .5"
            raise ValueError(message)
        place = found.end()
        yield found[1]


def _postfix(text: str) -> list[str]:
    """Operators after what they are for, by the shunting-yard: no recursion, so nesting costs no stack."""
    out: list[str] = []
    waiting: list[str] = []
    value_next = True
    for token in _tokens(text):
        if value_next and (token == _OPEN or token in _SIGNS):
            waiting.append(_SIGNS.get(token, token))
        elif token == _OPEN or value_next != (token[0] in "0123456789."):
            message = f"{token!r} stands where {'a number' if value_next else 'an operator'} is expected"
            raise ValueError(message)
        elif value_next:
            out.append(token)
            value_next = False
        elif token in _STRENGTH:
            while waiting and _STRENGTH[waiting[-1]] >= _STRENGTH[token]:
                out.append(waiting.pop())
            waiting.append(token)
            value_next = True
        else:
            _close(waiting, out)
    if value_next or _OPEN in waiting:
        message = "it ends where a number is expected" if value_next else "a parenthesis is not closed"
        raise ValueError(message)
    return out + waiting[::-1]


def _close(waiting: list[str], out: list[str]) -> None:
    while waiting and waiting[-1] != _OPEN:
        out.append(waiting.pop())
    if not waiting:
        message = "a parenthesis is closed that was not opened"
        raise ValueError(message)
    waiting.pop()
