"""
The payload of a call, with the contract's corrections.

Checked by hand: the contract corrects some mistakes, tolerates others and has words of its own for the rest; a schema
library would say something else. What leaves here is typed.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from provider.dialects.contract import Rejected
from provider.dialects.shell_cmd import words

NAME: Final = "shell_cmd"
DEFAULT_TIMEOUT_MS: Final = 600_000
INVALID: Final = "<invalid>"
"""Stands for the command in a reply when there is none that could be repeated."""

_TYPES: Final = {
    "command": "string",
    "parameters": "array",
    "directory": "string",
    "timeout": "number",
    "output_format": "string",
    "output_detail": "string",
    "artifact_paths": "array",
}
_SYSTEM_FIELDS: Final = ("workingDirectory", "working_directory")
"""Models copy them from the surroundings of a call; they are not theirs to set."""

Format = Literal["markdown", "json"]
Detail = Literal["minimal", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    command: str
    parameters: tuple[str, ...] = ()
    directory: str | None = None
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    output_format: Format = "markdown"
    output_detail: Detail = "minimal"
    artifact_paths: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()
    """What was put right in the payload, in the contract's words."""

    @property
    def timeout_text(self) -> str:
        whole = int(self.timeout_ms)
        return str(whole if whole == self.timeout_ms else self.timeout_ms)


def unreadable(payload: object) -> Call:
    """What a reply can still say of a payload that is no call: its command, and the form of the answer."""
    given = payload if isinstance(payload, Mapping) else {}
    command = given.get("command")
    return Call(
        command=command if isinstance(command, str) and command.strip() else INVALID,
        output_format=_format(given.get("output_format")),
        output_detail=_detail(given.get("output_detail")),
    )


def read_call(payload: object) -> Call:
    """
    Correct a payload and check it.

    Raises:
        Rejected: it is no call; the text has every fault.
    """
    if not isinstance(payload, Mapping):
        raise Rejected(words.not_an_object(_typeof(payload)))
    corrections: list[str] = []
    given = dict(payload)
    for field in _SYSTEM_FIELDS:
        if field in given:
            del given[field]
            corrections.append(f"{field} stripped (system context field, not a tool parameter)")
    if faults := list(_faults(given)):
        raise Rejected(words.invalid("; ".join(faults)))
    values = {name: _corrected(name, value, corrections) for name, value in given.items()}
    directory = values.get("directory")
    return Call(
        command=str(given["command"]),
        parameters=_strings("parameters", values, corrections),
        directory=directory if isinstance(directory, str) and directory.strip() else None,
        timeout_ms=_milliseconds(values.get("timeout")),
        output_format=_format(values.get("output_format")),
        output_detail=_detail(values.get("output_detail")),
        artifact_paths=_strings("artifact_paths", values, corrections),
        corrections=tuple(corrections),
    )


def _faults(given: Mapping[Any, Any]) -> Iterator[str]:
    command = given.get("command")
    if command is None or command == "":
        yield words.missing("command")
    for name in given:
        if name not in _TYPES:
            yield words.unknown(name)
    for name, value in given.items():
        if not all(_is_text(item) for item in (value if isinstance(value, list | tuple) else (value,))):
            yield words.no_text(name)
    if command is not None and not isinstance(command, str):
        yield words.wrong_type("command", "a string", _typeof(command))


def _is_text(value: object) -> bool:
    """Whether the system can be given it. Bytes that are not UTF-8 may be there, as Python writes them."""
    try:
        os.fsencode(value if isinstance(value, str) else "")
    except UnicodeEncodeError:
        return False
    return True


def _corrected(name: str, value: object, corrections: list[str]) -> object:
    if value is None:
        corrections.append(f"{name}: null/undefined omitted (optional parameter)")
        return None
    if _TYPES[name] == "array" and isinstance(value, str) and value:
        corrections.append(f"{name}: string -> array")
        return [value]
    if _TYPES[name] == "number" and isinstance(value, str) and (number := _leading_number(value)) is not None:
        corrections.append(f'{name}: "{value}" -> {number:g}')
        return number
    return value


_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")


def _leading_number(text: str) -> float | None:
    found = _NUMBER.match(text)
    return float(found[1]) if found else None


def _strings(name: str, values: Mapping[str, object], corrections: list[str]) -> tuple[str, ...]:
    """The strings of a list. The contract drops what is none of them; we say so at least."""
    value = values.get(name)
    if not isinstance(value, list | tuple):
        return ()
    kept = tuple(item for item in value if isinstance(item, str))
    if len(kept) < len(value):
        corrections.append(f"{name}: {len(value) - len(kept)} non-string items dropped")
    return kept


def _milliseconds(value: object) -> float:
    """The contract leaves the rest to a timer, for which a negative time is none at all and a word is no time."""
    if not value or value != value:  # noqa: PLR0124 - NaN
        return DEFAULT_TIMEOUT_MS
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Rejected(words.invalid(words.wrong_type("timeout", "a number", _typeof(value))))
    try:
        milliseconds = float(value)
    except OverflowError:
        milliseconds = math.inf
    if milliseconds <= 0 or math.isinf(milliseconds):
        wanted = "a positive number of milliseconds"
        raise Rejected(words.invalid(words.wrong_type("timeout", wanted, f"{milliseconds:g}")))
    return milliseconds


def _format(value: object) -> Format:
    return "json" if value == "json" else "markdown"


def _detail(value: object) -> Detail:
    return "full" if value == "full" else "minimal"


def _typeof(value: object) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", type(None): "null"}
    return names.get(type(value), "object")
