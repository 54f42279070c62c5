"""
Verbs about JSON. Keys keep their order and the last of two wins; numbers keep their spelling; only what must be escaped
is. A value that is no string is given as JSON in one line.

JsonQuery reads two kinds of paths: `/a/0/b`, where a segment is a key or an index, as it stands; and of JSONPath
(RFC 9535) the part that names one value: `$`, `.name`, `['name']`, `["name"]`, `[0]`, and `[-1]` from the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from ..errors import StepFailure
from ..verb import TEXT, Arguments, Verb, World
from .limits import at, brief, even, in_size, joined, refuse

MOST_ITEMS: Final = 64
MOST_DEPTH: Final = 64
"""As .NET has it."""

_LONE: Final = re.compile("[\ud800-\udfff]")
_STEP: Final = re.compile(
    r"""[ \t\n\r]*(?:\.(?P<name>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)
    |\[\s*(?P<index>0|-?[1-9][0-9]{0,14})\s*\]
    |\[\s*(?P<single>'(?:[^'\\\x00-\x1f]|\\.)*')\s*\]
    |\[\s*(?P<double>"(?:[^"\\\x00-\x1f]|\\.)*")\s*\])""",
    re.VERBOSE,
)
_MORE: Final = (
    "right are $, $.name, $['name'] and $[0], one after the other, or /name/0; there are no filters, wildcards, slices"
    " or '..'"
)


class _Number(str):
    """As it was spelled: what is not calculated with should not change."""

    __slots__ = ()


def parse(text: str, what: str = "the input") -> Any:
    """Read JSON. Raises StepFailure for what is not JSON, and for what is nested too deep."""
    try:
        value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        message = f"{what} is not JSON: {why}: {brief(text)}"
        raise StepFailure(message) from error
    _check_depth(value, what)
    return value


def _no_number(word: str) -> NoReturn:
    message = f"{word} is no JSON value"
    raise ValueError(message)


def _check_depth(value: Any, what: str) -> None:
    level, spaces = [value], 0
    for depth in range(1, MOST_DEPTH + 1):
        level = [inner for outer in level for inner in _inner(outer)]
        spaces += 2 * depth * len(level)
        in_size(spaces, f"{what}, indented,")
        level = [inner for inner in level if isinstance(inner, dict | list)]
        if not level:
            return
    message = f"{what} is nested deeper than {MOST_DEPTH}"
    raise StepFailure(message)


def _inner(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _quoted(text: str) -> str:
    quoted: str = encode_basestring(text)
    return quoted if quoted.isascii() else _LONE.sub(lambda half: f"\\u{ord(half[0]):04x}", quoted)


def compact(value: Any) -> str:
    return _written(value, "", "", ":")


def indented(value: Any) -> str:
    return _written(value, "\n", "  ", ": ")


def _written(value: Any, line: str, indent: str, colon: str) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    inner = line + indent
    if isinstance(value, dict):
        parts = [f"{_quoted(key)}{colon}{_written(one, inner, indent, colon)}" for key, one in value.items()]
    else:
        parts = [_written(one, inner, indent, colon) for one in value]
    if not parts:
        return opened + closed
    return f"{opened}{inner}{f',{inner}'.join(parts)}{line}{closed}"


def _plain(value: Any) -> str:
    """A string as it is, anything else as JSON."""
    return value if isinstance(value, str) and not isinstance(value, _Number) else compact(value)


def _object(text: str, what: str) -> dict[str, Any]:
    value = parse(text, what)
    if not isinstance(value, dict):
        message = f'{what} is of the type {_type(value)}, but it has to be an object, such as {{"a": 1}}'
        raise StepFailure(message)
    return value


def _type(value: Any) -> str:
    if isinstance(value, _Number):
        return "number"
    if value is None:
        return "null"
    return {bool: "boolean", str: "string", dict: "object", list: "array"}[type(value)]


def steps(path: str) -> list[str | int]:
    """
    Read a path: keys and, in JSONPath, indexes. Segments of a `/` path are text, since only the value says which it is.

    Raises: ValueError for a path that cannot be right.
    """
    if not path.startswith("$"):
        trimmed = path.removeprefix("/")
        return list(trimmed.split("/")) if trimmed else []
    found: list[str | int] = []
    place = 1
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise ValueError(brief(path[place:]))
        place = step.end()
        if step["index"] is not None:
            found.append(int(step["index"]))
        else:
            found.append(step["name"] if step["name"] is not None else _unquoted(step["single"] or step["double"]))
    return found


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    if text[0] == "'":
        inner = re.sub(r"\\(.)|\"", lambda part: {"'": "'", None: '\\"'}.get(part[1], part[0]), inner)
    unquoted: str = json.loads(f'"{inner}"')
    return unquoted


def _query(world: World, arguments: Sequence[str]) -> str:
    text, path = arguments
    value = parse(text)
    for step in steps(path):
        value = _taken(value, step, path)
    return _plain(value)


def _taken(value: Any, step: str | int, path: str) -> Any:
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        return value[step]
    if isinstance(value, list):
        index = step if isinstance(step, int) or path.startswith("$") else _whole(step)
        if isinstance(index, int) and -len(value) <= index < len(value):
            return value[index]
    message = f"{brief(path)} names nothing: {brief(str(step))} is not in {_told(value)}"
    raise StepFailure(message)


def _told(value: Any) -> str:
    if isinstance(value, list):
        return f"the array of {len(value)} elements"
    return f"the object with {brief(', '.join(value))}" if isinstance(value, dict) else f"a {_type(value)}"


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,15}", text, re.ASCII) else None


def _is_path(arguments: Arguments) -> None:
    path = at(arguments, 1)
    if path is None:
        return
    try:
        steps(path)
    except ValueError as error:
        refuse("JsonQuery", f"the path {brief(path)} cannot be read from {error} on; {_MORE}")


def _merge(world: World, arguments: Sequence[str]) -> str:
    first, second = (_object(text, f"argument {index}") for index, text in enumerate(arguments, start=1))
    return indented(first | second)


def _count(world: World, arguments: Sequence[str]) -> str:
    value = parse(arguments[0])
    if not isinstance(value, list):
        message = f"the input is of the type {_type(value)}, but JsonCount counts an array, such as [1, 2]"
        raise StepFailure(message)
    return str(len(value))


def _from_pairs(world: World, arguments: Sequence[str]) -> str:
    return indented(dict(zip(arguments[::2], arguments[1::2], strict=True)))


def _set(world: World, arguments: Sequence[str]) -> str:
    text, key, value = arguments
    return indented({**_object(text, "argument 1"), key: value})


def _remove_key(world: World, arguments: Sequence[str]) -> str:
    text, unwanted = arguments
    return indented({key: value for key, value in _object(text, "argument 1").items() if key != unwanted})


def _get(world: World, arguments: Sequence[str]) -> str:
    text, key = arguments
    value = parse(text)
    if isinstance(value, Mapping):
        return _plain(value.get(key))
    if not isinstance(value, list):
        message = f"the input is of the type {_type(value)}, but JsonGet takes from an object or an array"
        raise StepFailure(message)
    index = _whole(key.strip())
    if index is None or index >= len(value):
        message = f"{brief(key)} is no index of the array: it has {len(value)} elements, counted from 0"
        raise StepFailure(message)
    return _plain(value[index])


def _simple(name: str, describe: str, act: Callable[[str], str]) -> Verb:
    """Make a verb of what takes one text."""

    def run(world: World, arguments: Sequence[str]) -> str:
        return act(arguments[0])

    return Verb(name=name, least=1, most=1, kinds=(TEXT,), describe=describe, act=run)


VERBS: Final = (
    _simple("JsonParse", "json", lambda text: indented(parse(text))),
    Verb(name="JsonQuery", least=2, most=2, kinds=(TEXT,), describe="json, path", act=_query, check=_is_path),
    Verb(name="JsonMerge", least=2, most=2, kinds=(TEXT,), describe="object, object", act=_merge),
    _simple("JsonKeys", "object", lambda text: joined(_object(text, "the input"))),
    Verb(name="JsonCount", least=1, most=1, kinds=(TEXT,), describe="array", act=_count),
    _simple("JsonType", "json", lambda text: _type(parse(text))),
    Verb(
        name="JsonFromPairs",
        least=2,
        most=2 * MOST_ITEMS,
        kinds=(TEXT,),
        describe=f"key, value, ... (1-{MOST_ITEMS} pairs)",
        act=_from_pairs,
        check=even("JsonFromPairs", "key and value"),
    ),
    Verb(name="JsonSet", least=3, most=3, kinds=(TEXT,), describe="object, key, value", act=_set),
    Verb(name="JsonRemoveKey", least=2, most=2, kinds=(TEXT,), describe="object, key", act=_remove_key),
    Verb(name="JsonGet", least=2, most=2, kinds=(TEXT,), describe="object or array, key or index", act=_get),
    _simple("JsonCompact", "json", lambda text: compact(parse(text))),
    _simple("JsonStringify", "text", _quoted),
    Verb(
        name="JsonArrayFrom",
        least=1,
        most=MOST_ITEMS,
        kinds=(TEXT,),
        describe=f"item, ... (1-{MOST_ITEMS})",
        act=lambda _, arguments: indented(list(arguments)),
    ),
)
