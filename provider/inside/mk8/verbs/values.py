"""Verbs about values: paths as text, random values, times, versions, numbers, and what only says something."""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from .. import dates
from ..arithmetic import LONGEST, evaluate, what_is_wrong
from ..deadline import left
from ..encoding import to_bytes
from ..errors import AssertionFailed, StepFailure
from ..verb import TEXT, Arguments, Verb, World
from .limits import Check, at, brief, every, in_size, number, one_of, refuse, whole

MOST_JOINED: Final = 16
MOST_RANDOM: Final = 1_000_000
SHORTEST_SLEEP, LONGEST_SLEEP = 0.1, 30.0

_MOST_64, _LEAST_64 = 2**63 - 1, -(2**63)
_LONGEST_SPAN: Final = _MOST_64 // 10_000_000  # .NET counts a span in tenths of microseconds
_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")
# Begun only where digits begin, and possessive: on a megabyte of digits anything else is quadratic.
_VERSION: Final = re.compile(r"(?<![0-9])[0-9]++\.[0-9]++(?:\.[0-9]++(?:\.[0-9]++)?)?")
_LONGEST_PART: Final = 10
_DIGITS: Final = {2: "[01]+", 8: "[0-7]+", 10: "-?[0-9]+", 16: "(?:0[xX])?[0-9A-Fa-f]+"}
_FORMATS: Final = {2: "b", 8: "o", 16: "x"}


# Paths, as text


def _path_join(world: World, arguments: Sequence[str]) -> str:
    return posixpath.join(*arguments)


def _relative_parts(arguments: Arguments) -> None:
    for index, part in enumerate(arguments[1:], start=2):
        if part is not None and part.startswith("/"):
            refuse("PathJoin", f"argument {index} is {brief(part)}, but only the first part may be absolute")


def _path_dir(world: World, arguments: Sequence[str]) -> str:
    return posixpath.dirname(arguments[0])


def _path_file(world: World, arguments: Sequence[str]) -> str:
    return posixpath.basename(arguments[0])


def _split_extension(path: str) -> tuple[str, str]:
    """Cut a path before the last dot of its last name; a dot at the very end is no extension."""
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    if not dot:
        return path, ""
    return f"{folder}{slash}{stem}", f".{extension}" if extension else ""


def _path_ext(world: World, arguments: Sequence[str]) -> str:
    return _split_extension(arguments[0])[1]


def _path_stem(world: World, arguments: Sequence[str]) -> str:
    return posixpath.basename(_split_extension(arguments[0])[0])


def _path_change_ext(world: World, arguments: Sequence[str]) -> str:
    path, extension = arguments
    without = _split_extension(path)[0]
    return f"{without}.{extension.removeprefix('.')}" if extension.removeprefix(".") else without


# Random values


def _guid(world: World, arguments: Sequence[str]) -> str:
    data = bytearray(os.urandom(16))
    data[6] = data[6] & 0x0F | 0x40  # version 4: random
    data[8] = data[8] & 0x3F | 0x80
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _guid_short(world: World, arguments: Sequence[str]) -> str:
    return _guid(world, arguments)[:8]


def _random_int(world: World, arguments: Sequence[str]) -> str:
    from random import SystemRandom

    least, most = map(int, arguments)
    return str(SystemRandom().randint(least, most))


def _in_order(arguments: Arguments) -> None:
    least, most = at(arguments, 0), at(arguments, 1)
    if least is not None and most is not None and int(least) > int(most):
        refuse("RandomInt", f"the least, {least}, is more than the most, {most}; give them in order")


# Times


def _date_format(verb: str, index: int, *, reading: bool = False) -> Check:
    def check(arguments: Arguments) -> None:
        form = at(arguments, index)
        wrong = dates.what_is_wrong(form, reading=reading) if form is not None else None
        if wrong:
            refuse(verb, f"the format {brief(form or '')} is wrong: {wrong}. Right: yyyy-MM-dd HH:mm:ss, or o")

    return check


def _time_format(world: World, arguments: Sequence[str]) -> str:
    seconds = int(arguments[0])
    if not dates.FIRST <= seconds <= dates.LAST:
        message = f"{seconds} seconds after 1970 is not within the years 1 to 9999 ({dates.FIRST} to {dates.LAST})"
        raise StepFailure(message)
    return dates.show(seconds * 1_000_000_000, arguments[1] if len(arguments) > 1 else "o")


def _is_whole(arguments: Arguments) -> None:
    text = at(arguments, 0)
    if text is not None and not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text, re.ASCII):
        refuse("TimeFormat", f"argument 1 is {brief(text)}, but it is an integer: seconds since 1970")


def _time_parse(world: World, arguments: Sequence[str]) -> str:
    text, now = arguments[0], datetime.now(UTC)
    if len(arguments) > 1:
        seconds, wanted = dates.read(text, arguments[1], now), f"has the format {arguments[1]}"
    else:
        seconds, wanted = dates.guess(text, now), "looks like 2024-05-06 07:08:09, 5/6/2024 or 6 May 2024"
    if seconds is None:
        message = f"{brief(text)} is no time that {wanted}"
        raise StepFailure(message)
    return str(seconds)


def _whole_64(text: str) -> int:
    # Digits are counted before they are read: reading is quadratic.
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", text, re.ASCII) or not _LEAST_64 <= int(text) <= _MOST_64:
        message = f"{brief(text)} is no integer of 64 bits"
        raise StepFailure(message)
    return int(text)


def _in_64(value: int) -> str:
    if not _LEAST_64 <= value <= _MOST_64:
        message = f"{value} does not fit into 64 bits"
        raise StepFailure(message)
    return str(value)


def _time_add(world: World, arguments: Sequence[str]) -> str:
    return _in_64(sum(map(_whole_64, arguments)))


def _time_diff(world: World, arguments: Sequence[str]) -> str:
    first, second = map(_whole_64, arguments)
    return _in_64(abs(first - second))


# Versions and numbers


def _version_parse(world: World, arguments: Sequence[str]) -> str:
    found = _VERSION.search(arguments[0])
    return found[0] if found else ""


def _version(text: str) -> tuple[int, ...]:
    found = _VERSION.search(text)
    parts = found[0].split(".") if found else []
    if not parts or max(map(len, parts)) > _LONGEST_PART:
        message = (
            f"{brief(text)} has no version in it, such as 1.2 or 1.2.3.4 with parts of at most {_LONGEST_PART} digits"
        )
        raise StepFailure(message)
    numbers = tuple(map(int, parts))
    return numbers + (0,) * (4 - len(numbers))


def _version_compare(world: World, arguments: Sequence[str]) -> str:
    first, second = map(_version, arguments)
    return str((first > second) - (first < second))


def _hex_encode(world: World, arguments: Sequence[str]) -> str:
    in_size(2 * len(arguments[0]), "the result")
    return to_bytes(arguments[0]).hex()


def _hex_decode(world: World, arguments: Sequence[str]) -> str:
    text = arguments[0]
    if len(text) % 2 or not re.fullmatch("[0-9A-Fa-f]*", text):
        message = f"{brief(text)} is not hexadecimal: an even number of the digits 0-9 and a-f, without spaces"
        raise StepFailure(message)
    return bytes.fromhex(text).decode("utf-8", "replace")


def _base_convert(world: World, arguments: Sequence[str]) -> str:
    text, source, target = arguments[0].strip(), int(arguments[1]), int(arguments[2])
    if not re.fullmatch(_DIGITS[source], text) or len(text) > 80:  # noqa: PLR2004 - more than 64 bits in any base
        message = f"{brief(text)} is no integer in base {source}"
        raise StepFailure(message)
    value = int(text, source)
    if source != 10 and 2**63 <= value < 2**64:  # noqa: PLR2004 - written as two's complement
        value -= 2**64
    if not _LEAST_64 <= value <= _MOST_64:
        message = f"{brief(text)} in base {source} does not fit into 64 bits"
        raise StepFailure(message)
    return str(value) if target == 10 else format(value % 2**64, _FORMATS[target])  # noqa: PLR2004 - decimal


def _amount(text: str, what: str) -> float:
    value = number(text)
    if value is None or not 0 <= value < float("inf"):
        message = f"{brief(text)} is no number of {what}, 0 or more"
        raise StepFailure(message)
    return value


def _format_bytes(world: World, arguments: Sequence[str]) -> str:
    size = _amount(arguments[0], "bytes")
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - the factor
        size /= 1024
        unit += 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.2f} {_UNITS[unit]}"


def _format_duration(world: World, arguments: Sequence[str]) -> str:
    seconds = _amount(arguments[0], "seconds")
    if seconds > _LONGEST_SPAN:
        message = f"{brief(arguments[0])} is too long a duration: at most {_LONGEST_SPAN} seconds are counted"
        raise StepFailure(message)
    if seconds < 1:
        return f"{int(seconds * 1000)}ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{int(seconds * 10) / 10:.1f}s"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = ((days, "d"), (hour, "h"), (minute, "m"), (second, "s"))
    first = 0 if days else 1 if hours else 2
    return " ".join(f"{count}{unit}" for count, unit in parts[first:])


def _math(world: World, arguments: Sequence[str]) -> str:
    return evaluate(arguments[0])


def _is_expression(arguments: Arguments) -> None:
    text = at(arguments, 0)
    wrong = what_is_wrong(text) if text is not None else None
    if wrong:
        refuse("MathEval", f"{brief(text or '')} cannot be calculated: {wrong}. Right: (1 + 2) * 3 / 4")


# What only says something


def _clipboard(world: World, arguments: Sequence[str]) -> str:
    return "Clipboard not available on this platform"


def _echo(world: World, arguments: Sequence[str]) -> str:
    return arguments[0]


def _sleep(world: World, arguments: Sequence[str]) -> str:
    seconds = number(arguments[0]) or 0.0
    end = time.monotonic() + seconds
    while (wait := end - time.monotonic()) > 0:
        time.sleep(left(world.deadline, wait))
    return f"Slept {seconds:g}s"


def _sleepable(arguments: Arguments) -> None:
    text = at(arguments, 0)
    seconds = number(text) if text is not None else SHORTEST_SLEEP
    if seconds is None or not SHORTEST_SLEEP <= seconds <= LONGEST_SLEEP:
        right = f"Sleep takes a number of seconds, {SHORTEST_SLEEP:g} to {LONGEST_SLEEP:g}"
        refuse("Sleep", f"argument 1 is {brief(text or '')}, but {right}")


def _assert(world: World, arguments: Sequence[str]) -> str:
    actual, expected = arguments[:2]
    if actual == expected:
        return f"Assert passed: '{actual}'"
    message = arguments[2] if len(arguments) > 2 else ""  # noqa: PLR2004 - the third
    raise AssertionFailed(message or f"Assertion failed: '{actual}' != '{expected}'")


def _fail(world: World, arguments: Sequence[str]) -> str:
    raise AssertionFailed(arguments[0])


VERBS: Final = (
    Verb(
        name="PathJoin",
        least=2,
        most=MOST_JOINED,
        kinds=(TEXT,),
        describe=f"part, part, ... (2-{MOST_JOINED})",
        act=_path_join,
        check=_relative_parts,
    ),
    Verb(name="PathDir", least=1, most=1, kinds=(TEXT,), describe="path", act=_path_dir),
    Verb(name="PathFile", least=1, most=1, kinds=(TEXT,), describe="path", act=_path_file),
    Verb(name="PathExt", least=1, most=1, kinds=(TEXT,), describe="path", act=_path_ext),
    Verb(name="PathStem", least=1, most=1, kinds=(TEXT,), describe="path", act=_path_stem),
    Verb(name="PathChangeExt", least=2, most=2, kinds=(TEXT,), describe="path, extension", act=_path_change_ext),
    Verb(name="GuidNew", least=0, most=0, kinds=(), describe="", act=_guid),
    Verb(name="GuidNewShort", least=0, most=0, kinds=(), describe="", act=_guid_short),
    Verb(
        name="RandomInt",
        least=2,
        most=2,
        kinds=(TEXT,),
        describe=f"least, most (0-{MOST_RANDOM})",
        act=_random_int,
        check=every(
            whole("RandomInt", 0, "the least", 0, MOST_RANDOM),
            whole("RandomInt", 1, "the most", 0, MOST_RANDOM),
            _in_order,
        ),
    ),
    Verb(
        name="TimeFormat",
        least=1,
        most=2,
        kinds=(TEXT,),
        describe="seconds since 1970, [format, default o]",
        act=_time_format,
        check=every(_is_whole, _date_format("TimeFormat", 1)),
    ),
    Verb(
        name="TimeParse",
        least=1,
        most=2,
        kinds=(TEXT,),
        describe="text, [format]",
        act=_time_parse,
        check=_date_format("TimeParse", 1, reading=True),
    ),
    Verb(name="TimeAdd", least=2, most=2, kinds=(TEXT,), describe="seconds, seconds", act=_time_add),
    Verb(name="TimeDiff", least=2, most=2, kinds=(TEXT,), describe="seconds, seconds", act=_time_diff),
    Verb(name="VersionCompare", least=2, most=2, kinds=(TEXT,), describe="version, version", act=_version_compare),
    Verb(name="VersionParse", least=1, most=1, kinds=(TEXT,), describe="text", act=_version_parse),
    Verb(name="HexEncode", least=1, most=1, kinds=(TEXT,), describe="text", act=_hex_encode),
    Verb(name="HexDecode", least=1, most=1, kinds=(TEXT,), describe="hex", act=_hex_decode),
    Verb(
        name="BaseConvert",
        least=3,
        most=3,
        kinds=(TEXT,),
        describe="value, from base, to base (2, 8, 10, 16)",
        act=_base_convert,
        check=every(
            one_of("BaseConvert", 1, "a base", ("2", "8", "10", "16")),
            one_of("BaseConvert", 2, "a base", ("2", "8", "10", "16")),
        ),
    ),
    Verb(name="FormatBytes", least=1, most=1, kinds=(TEXT,), describe="bytes", act=_format_bytes),
    Verb(name="FormatDuration", least=1, most=1, kinds=(TEXT,), describe="seconds", act=_format_duration),
    Verb(
        name="MathEval",
        least=1,
        most=1,
        kinds=(TEXT,),
        describe=f"expression of + - * / % ( ) and numbers, at most {LONGEST} characters",
        act=_math,
        check=_is_expression,
    ),
    Verb(name="ClipboardSet", least=1, most=1, kinds=(TEXT,), describe="text", act=_clipboard),
    Verb(name="Echo", least=1, most=1, kinds=(TEXT,), describe="text", act=_echo),
    Verb(name="Sleep", least=1, most=1, kinds=(TEXT,), describe="seconds 0.1-30", act=_sleep, check=_sleepable),
    Verb(name="Assert", least=2, most=3, kinds=(TEXT,), describe="actual, expected, [message]", act=_assert),
    Verb(name="Fail", least=1, most=1, kinds=(TEXT,), describe="message", act=_fail),
)
