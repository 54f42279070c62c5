"""
Dates in .NET's notation, in UTC and in the invariant culture: `yyyy-MM-dd HH:mm:ss`, or one letter for a whole format.

    show     nanoseconds since 1970 and a format -> text
    read     text and a format -> seconds since 1970
    guess    text in one of the usual formats -> seconds since 1970

A single letter that is no standard format is taken as a custom one, where .NET would want `%H`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

LONGEST: Final = 32
ALLOWED: Final = frozenset("yMdHhmsfFzZKtTgoOrRuUD:-/.' 0123456789")
FIRST, LAST = -62_135_596_800, 253_402_300_799
"""Seconds since 1970 of what fits into the years 1 to 9999."""

_STANDARD: Final = {
    "d": "MM/dd/yyyy",
    "D": "dddd, dd MMMM yyyy",
    "f": "dddd, dd MMMM yyyy HH:mm",
    "F": "dddd, dd MMMM yyyy HH:mm:ss",
    "g": "MM/dd/yyyy HH:mm",
    "M": "MMMM dd",
    "m": "MMMM dd",
    "o": "yyyy-MM-ddTHH:mm:ss.fffffffK",
    "O": "yyyy-MM-ddTHH:mm:ss.fffffffK",
    "r": "ddd, dd MMM yyyy HH:mm:ss 'GMT'",
    "R": "ddd, dd MMM yyyy HH:mm:ss 'GMT'",
    "s": "yyyy-MM-ddTHH:mm:ss",
    "t": "HH:mm",
    "T": "HH:mm:ss",
    "u": "yyyy-MM-dd HH:mm:ssZ",
    "U": "dddd, dd MMMM yyyy HH:mm:ss",
    "y": "yyyy MMMM",
}
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_USUAL: Final = (
    "yyyy-MM-dd",
    "yyyy-MM-ddTHH:mmK",
    "yyyy-MM-ddTHH:mm:ss.FFFFFFFK",
    "yyyy-MM-dd HH:mmK",
    "yyyy-MM-dd HH:mm:ss.FFFFFFFK",
    "yyyy-MM-dd HH:mm:ss K",
    "yyyyMMdd",
    "yyyyMMddTHHmmssK",
    "yyyy/M/d",
    "yyyy/M/d H:mm",
    "yyyy/M/d H:mm:ss",
    "M/d/yyyy",
    "M/d/yyyy H:mm",
    "M/d/yyyy H:mm:ss",
    "M/d/yyyy h:mm tt",
    "M/d/yyyy h:mm:ss tt",
    "d MMM yyyy",
    "d MMMM yyyy",
    "d MMM yyyy H:mm:ss",
    "MMM d yyyy",
    "MMMM d yyyy",
    "ddd, d MMM yyyy HH:mm:ss 'GMT'",
    "ddd, d MMM yyyy HH:mm:ss zzz",
    "dddd, d MMMM yyyy",
    "dddd, d MMMM yyyy HH:mm:ss",
)
_TOKEN: Final = re.compile(r"'[^']*'|d+|f+|F+|g+|h+|H+|K|m+|M+|s+|t+|y+|z+|.", re.DOTALL)
_FRACTION: Final = 7
_LONGEST_DATE: Final = 100
_ABBREVIATED: Final = 3  # ddd and MMM are short names, dddd and MMMM the whole; yyy is all of the year
_NOON: Final = 12
_WORDS: Final = {"d": 7, "M": 12}
_OFFSET: Final = r"[+-][0-9]{1,2}(?::?[0-9]{2})?"


def what_is_wrong(form: str, *, reading: bool = False) -> str | None:
    """Say what is wrong with a format; None for a right one."""
    if not form or len(form) > LONGEST:
        return f"it has {len(form)} characters, but a format has 1 to {LONGEST}"
    strange = next((letter for letter in form if letter not in ALLOWED), None)
    if strange is not None:
        return (
            f"it has {strange!r} in it, but only y M d H h m s f F z Z K t T g o O r R u U D : - / . ' digits and space"
        )
    if form.count("'") % 2:
        return "it has a quotation mark without its other half"
    if re.search(r"f{8}|F{8}", form):
        return f"it has more than {_FRACTION} digits of a second"
    told = [_part(token) for token in _tokens(form) if token[0] in "dfFghHKmMstyz"]
    if reading and len(told) > len(set(told)):
        # Many parts of one or two digits each are also what an expression could try in too many ways.
        return "it has the same part of a date twice, so a text could contradict itself"
    return None


def _part(token: str) -> str:
    if token.startswith("ddd"):
        return "weekday"
    return {"h": "H", "F": "f", "K": "z"}.get(token[0], token[0])


def _tokens(form: str) -> list[str]:
    return _TOKEN.findall(_STANDARD.get(form, form))


def show(nanoseconds: int, form: str) -> str:
    """Write a moment; `nanoseconds` lies between FIRST and LAST seconds."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    ticks = f"{rest // 100:07d}"
    text = ""
    for token in _tokens(form):
        if token[0] == "F":
            digits = ticks[: len(token)].rstrip("0")
            # As in .NET, a fraction that is nothing takes its dot along.
            text = text + digits if digits else text.removesuffix(".")
        elif token[0] == "f":
            text += ticks[: len(token)]
        else:
            text += _shown(token, moment)
    return text


def _shown(token: str, moment: datetime) -> str:
    if token[0] == "'":
        return token[1:-1]
    write = _WRITERS.get(token[0])
    return write(moment, len(token)) if write else token


def _digits(value: int, length: int) -> str:
    return f"{value:0{min(length, 2)}d}"


def _named(names: Sequence[str], index: int, length: int) -> str:
    return names[index][:_ABBREVIATED] if length == _ABBREVIATED else names[index]


_WRITERS: Final[Mapping[str, Callable[[datetime, int], str]]] = {
    "y": lambda moment, length: f"{moment.year if length >= _ABBREVIATED else moment.year % 100:0{length}d}",
    "M": lambda moment, length: (
        _digits(moment.month, length) if length < _ABBREVIATED else _named(_MONTHS, moment.month - 1, length)
    ),
    "d": lambda moment, length: (
        _digits(moment.day, length) if length < _ABBREVIATED else _named(_DAYS, moment.weekday(), length)
    ),
    "H": lambda moment, length: _digits(moment.hour, length),
    "h": lambda moment, length: _digits((moment.hour + 11) % 12 + 1, length),
    "m": lambda moment, length: _digits(moment.minute, length),
    "s": lambda moment, length: _digits(moment.second, length),
    "t": lambda moment, length: ("AM" if moment.hour < _NOON else "PM")[: min(length, 2)],
    "g": lambda _, __: "A.D.",
    "z": lambda _, length: {1: "+0", 2: "+00"}.get(length, "+00:00"),
    "K": lambda _, __: "+00:00",
}


@dataclass(slots=True)
class _Parts:
    """What a text has told so far."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    hour: int = 0
    minute: int = 0
    second: int = 0
    afternoon: bool | None = None
    twelve: bool = False
    offset: timedelta = field(default_factory=timedelta)
    weekday: int | None = None


def read(text: str, form: str, now: datetime) -> int | None:
    """
    Read a text that has exactly this format; None for any other. Without a zone it is UTC.

    What the format leaves out is as of `now` for a time without a date, and the beginning of what is given otherwise.
    """
    if len(text) > _LONGEST_DATE:
        return None
    tokens = _tokens(form)
    expression, setters = "", []
    for index, token in enumerate(tokens):
        # The dot of a fraction that may be left out may be left out with it.
        optional = token[0] == "." and "".join(tokens[index + 1 :])[:1] == "F"
        pattern, setter = (r"\.?", None) if optional else _reader(token)
        expression += f"({pattern})" if setter else pattern
        setters += [setter] if setter else []
    match = re.fullmatch(expression, text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        return None
    parts = _Parts()
    for setter, value in zip(setters, match.groups(), strict=True):
        setter(parts, value or "")
    return _moment(parts, now)


def guess(text: str, now: datetime) -> int | None:
    """Read a text in one of the usual formats; None for any other."""
    if len(text) > _LONGEST_DATE:
        return None
    spaced = " ".join(text.replace(", ", " , ").split()).replace(" , ", ", ")
    for form in _USUAL:
        seconds = read(spaced, form, now)
        if seconds is None and form.startswith("MMM"):
            seconds = read(spaced.replace(",", ""), form, now)
        if seconds is not None:
            return seconds
    return None


_Setter = Callable[["_Parts", str], None]


def _reader(token: str) -> tuple[str, _Setter | None]:
    """How a token looks in a text, and what it tells."""
    letter, length = token[0], len(token)
    if letter == "'":
        return re.escape(token[1:-1]), None
    if letter in "dM" and length >= _ABBREVIATED:
        words = tuple(
            _named(_DAYS if letter == "d" else _MONTHS, index, length).lower() for index in range(_WORDS[letter])
        )
        return "|".join(words), _name_setter(letter, words)
    if letter in "dMHhms":
        return "[0-9]{1,2}" if length == 1 else "[0-9]{2}", _number_setter(letter)
    known: dict[str, tuple[str, _Setter | None]] = {
        "y": ("[0-9]{1,2}" if length == 1 else f"[0-9]{{{length}}}", _set_year),
        "f": (f"[0-9]{{{length}}}", _nothing),
        "F": (f"[0-9]{{0,{length}}}", _nothing),
        "g": (r"A\.D\.", None),
        "t": ("[AP]" if length == 1 else "[AP]M", _set_half),
        "z": (f"Z|{_OFFSET}", _set_offset),
        "K": (f"Z|{_OFFSET}|", _set_offset),
    }
    return known.get(letter, (re.escape(token), None))


def _nothing(parts: _Parts, value: str) -> None:
    """Fractions of a second do not change the second."""


def _set_year(parts: _Parts, value: str) -> None:
    # Of two digits, .NET's window ends with 2049.
    parts.year = int(value) + (0 if len(value) >= _ABBREVIATED else 2000 if int(value) < 50 else 1900)  # noqa: PLR2004


def _name_setter(letter: str, words: tuple[str, ...]) -> _Setter:
    def set_it(parts: _Parts, value: str) -> None:
        index = words.index(value.lower())
        if letter == "d":
            parts.weekday = index
        else:
            parts.month = index + 1

    return set_it


def _number_setter(letter: str) -> _Setter:
    name = {"d": "day", "M": "month", "H": "hour", "h": "hour", "m": "minute", "s": "second"}[letter]

    def set_it(parts: _Parts, value: str) -> None:
        setattr(parts, name, int(value))
        parts.twelve = parts.twelve or letter == "h"

    return set_it


def _set_half(parts: _Parts, value: str) -> None:
    parts.afternoon = value[:1].upper() == "P"


def _set_offset(parts: _Parts, value: str) -> None:
    if value and value.upper() != "Z":
        digits = value[1:].replace(":", "")
        hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))  # noqa: PLR2004
        parts.offset = timedelta(hours=hours, minutes=minutes) * (-1 if value[0] == "-" else 1)


def _moment(parts: _Parts, now: datetime) -> int | None:
    hour = parts.hour
    if parts.twelve and not 1 <= hour <= _NOON:
        return None
    if parts.afternoon is not None:
        hour = hour % _NOON + (_NOON if parts.afternoon else 0)
    if parts.year is None and parts.month is None and parts.day is None:
        year, month, day = now.year, now.month, now.day
    else:
        year, month, day = parts.year or now.year, parts.month or 1, parts.day or 1
    try:
        moment = datetime(year, month, day, hour, parts.minute, parts.second, tzinfo=UTC)
        seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    except ValueError:
        return None
    if parts.weekday is not None and parts.day is not None and moment.weekday() != parts.weekday:
        return None
    return seconds - int(parts.offset.total_seconds())
