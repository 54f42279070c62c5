"""Verbs about text. All are pure; indexes and lengths count code points, comparisons are by code point."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Final

from .. import regex
from ..encoding import to_bytes
from ..errors import StepFailure
from ..verb import TEXT, Arguments, Verb, World
from .json_ import indented
from .limits import algorithm, at, brief, every, in_size, joined, number, refuse, whole

MOST_PARTS: Final = 32
MOST_REPEATS: Final = 256
MOST_WIDTH: Final = 10_000
MOST_COLUMN: Final = 100

_ESCAPED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_QUOTED: Final = tuple(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in range(256))


def _searched(verb: str, text: str) -> str:
    """Refuse to search for nothing, which would be found everywhere."""
    if not text:
        message = f"{verb} got an empty text to search for; give at least one character"
        raise StepFailure(message)
    return text


def _regex(world: World, arguments: Sequence[str]) -> str:
    text, pattern = arguments
    return joined(regex.values(pattern, text, world.deadline))


def _match(world: World, arguments: Sequence[str]) -> str:
    text, pattern = arguments
    return str(regex.search(pattern, text, world.deadline))


def _regex_groups(world: World, arguments: Sequence[str]) -> str:
    text, pattern = arguments
    return indented(regex.groups(pattern, text, world.deadline))


def _replace(world: World, arguments: Sequence[str]) -> str:
    text, old, new = arguments
    _searched("TextReplace", old)
    in_size(len(text) + text.count(old) * (len(new) - len(old)), "the result")
    return text.replace(old, new)


def _remove(world: World, arguments: Sequence[str]) -> str:
    text, unwanted = arguments
    return text.replace(_searched("TextRemove", unwanted), "")


def _split(world: World, arguments: Sequence[str]) -> str:
    text, delimiter = arguments
    return joined(text.split(_searched("TextSplit", delimiter)))


def _join(world: World, arguments: Sequence[str]) -> str:
    delimiter, *parts = arguments
    in_size(len(delimiter) * len(parts) + sum(map(len, parts)), "the result")
    return delimiter.join(parts)


def _one_to_one(change: Callable[[str], str]) -> Callable[[World, Sequence[str]], str]:
    """Change case as the invariant culture does: a letter stays one letter, whatever its neighbours."""

    def act(world: World, arguments: Sequence[str]) -> str:
        text = arguments[0]
        if text.isascii():
            return change(text)
        return "".join(changed if len(changed := change(letter)) == 1 else letter for letter in text)

    return act


def _substring(world: World, arguments: Sequence[str]) -> str:
    text = arguments[0]
    start = _index("start", arguments[1])
    if len(arguments) == 2:  # noqa: PLR2004 - to the end
        return text[start:]
    return text[start : start + _index("length", arguments[2])]


def _index(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*\+?[0-9]{1,18}\s*", text, re.ASCII):
        message = f"the {name} is {brief(text)}, but it is an integer of at least 0"
        raise StepFailure(message)
    return int(text)


def _base64_encode(world: World, arguments: Sequence[str]) -> str:
    import binascii

    return binascii.b2a_base64(to_bytes(arguments[0]), newline=False).decode()


def _base64_decode(world: World, arguments: Sequence[str]) -> str:
    import binascii

    text = arguments[0].translate(dict.fromkeys(map(ord, " \t\r\n")))
    try:
        return binascii.a2b_base64(text, strict_mode=True).decode("utf-8", "replace")
    except ValueError as error:
        message = f"{brief(arguments[0])} is not base64: {error}"
        raise StepFailure(message) from error


def _url_encode(world: World, arguments: Sequence[str]) -> str:
    data = to_bytes(arguments[0])
    in_size(3 * len(data), "the result")
    return "".join(map(_QUOTED.__getitem__, data))


def _url_decode(world: World, arguments: Sequence[str]) -> str:
    from urllib.parse import unquote

    return unquote(arguments[0])


def _html_encode(world: World, arguments: Sequence[str]) -> str:
    return arguments[0].translate(_ESCAPED)


def _hash(world: World, arguments: Sequence[str]) -> str:
    import hashlib

    name = arguments[1].lower() if len(arguments) > 1 else "sha256"
    return hashlib.new(name, to_bytes(arguments[0]), usedforsecurity=False).hexdigest()


def _sort(world: World, arguments: Sequence[str]) -> str:
    lines = arguments[0].split("\n")
    order = arguments[1].strip().lower() if len(arguments) > 1 else "asc"
    if order == "numeric":
        values = ((number(line), line) for line in lines)
        keyed = [(value is None, value or 0.0, line) for value, line in values]
        return joined(line for _, _, line in sorted(keyed, key=lambda one: one[:2]))
    return joined(sorted(lines, reverse=order == "desc"))


def _uniq(world: World, arguments: Sequence[str]) -> str:
    lines = arguments[0].split("\n")
    return joined(line for index, line in enumerate(lines) if index == 0 or line != lines[index - 1])


def _count(world: World, arguments: Sequence[str]) -> str:
    text = arguments[0]
    if len(arguments) > 1:
        return str(text.count(_searched("TextCount", arguments[1])))
    return joined((f"Lines: {_line_count(text)}", f"Words: {len(text.split())}", f"Chars: {len(text)}"))


def _line_count(text: str) -> int:
    return text.count("\n") + 1


def _padded(*, left: bool) -> Callable[[World, Sequence[str]], str]:
    def act(world: World, arguments: Sequence[str]) -> str:
        text, width = arguments[0], int(arguments[1])
        letter = arguments[2] if len(arguments) > 2 else " "  # noqa: PLR2004 - the third
        return text.rjust(width, letter) if left else text.ljust(width, letter)

    return act


def _repeat(world: World, arguments: Sequence[str]) -> str:
    text, count = arguments[0], int(arguments[1])
    size = len(to_bytes(text))
    # As often as the output holds; a text that alone is too long is cut where all outputs are.
    most = max(1, world.output_bytes // size) if size else count
    return text * min(count, most)


def _column(world: World, arguments: Sequence[str]) -> str:
    text, index = arguments[0], int(arguments[1])
    # An empty delimiter is none.
    delimiter = (arguments[2] if len(arguments) > 2 else "") or None  # noqa: PLR2004 - the third
    rows = (line.split(delimiter, index + 1) for line in text.split("\n"))
    return joined(row[index].strip() if index < len(row) else "" for row in rows).rstrip("\n")


def _table(world: World, arguments: Sequence[str]) -> str:
    delimiter = _searched("TextTable", arguments[1]) if len(arguments) > 1 else "\t"
    lines = arguments[0].split("\n")
    widths: list[int] = []
    counts: dict[int, int] = {}
    for line in lines:
        lengths = [len(cell.strip()) for cell in line.split(delimiter)]
        counts[len(lengths)] = counts.get(len(lengths), 0) + 1
        widths += [0] * (len(lengths) - len(widths))
        widths[: len(lengths)] = map(max, lengths, widths[: len(lengths)])
    # By the sums of the widths, long cells in many rows are seen to be too much before they are made.
    sums = [0, *itertools.accumulate(width + 2 for width in widths)]
    in_size(sum(sums[length] * count for length, count in counts.items()), "the table")
    rows = (map(str.strip, line.split(delimiter)) for line in lines)
    return joined("  ".join(map(str.ljust, row, widths)) for row in rows)


def _pads(verb: str) -> Callable[[Arguments], None]:
    def one_letter(arguments: Arguments) -> None:
        letter = at(arguments, 2)
        if letter is not None and (len(letter) != 1 or _CONTROL.search(letter)):
            refuse(verb, f"argument 3 is {brief(letter)}, but it is the one character to pad with")

    return every(whole(verb, 1, "the width", 0, MOST_WIDTH), one_letter)


def _simple(name: str, describe: str, act: Callable[..., str]) -> Verb:
    """Make a verb of what takes its arguments one by one; describe tells how many, all of them needed."""
    count = describe.count(",") + 1

    def run(world: World, arguments: Sequence[str]) -> str:
        return act(*arguments)

    return Verb(name=name, least=count, most=count, kinds=(TEXT,), describe=describe, act=run)


VERBS: Final = (
    Verb(name="TextRegex", least=2, most=2, kinds=(TEXT,), describe="input, regular expression", act=_regex),
    Verb(name="TextReplace", least=3, most=3, kinds=(TEXT,), describe="input, find, replace", act=_replace),
    Verb(name="TextSplit", least=2, most=2, kinds=(TEXT,), describe="input, delimiter", act=_split),
    Verb(
        name="TextJoin",
        least=2,
        most=MOST_PARTS + 1,
        kinds=(TEXT,),
        describe=f"delimiter, part... (1-{MOST_PARTS})",
        act=_join,
    ),
    _simple("TextTrim", "input", str.strip),
    Verb(name="TextToUpper", least=1, most=1, kinds=(TEXT,), describe="input", act=_one_to_one(str.upper)),
    Verb(name="TextToLower", least=1, most=1, kinds=(TEXT,), describe="input", act=_one_to_one(str.lower)),
    _simple("TextReverse", "input", lambda text: text[::-1]),
    _simple("TextLength", "input", lambda text: str(len(text))),
    Verb(name="TextSubstring", least=2, most=3, kinds=(TEXT,), describe="input, start, [length]", act=_substring),
    _simple("TextLines", "input", lambda text: f"{_line_count(text)} lines\n{text}"),
    Verb(name="TextBase64Encode", least=1, most=1, kinds=(TEXT,), describe="input", act=_base64_encode),
    Verb(name="TextBase64Decode", least=1, most=1, kinds=(TEXT,), describe="base64", act=_base64_decode),
    Verb(name="TextUrlEncode", least=1, most=1, kinds=(TEXT,), describe="input", act=_url_encode),
    Verb(name="TextUrlDecode", least=1, most=1, kinds=(TEXT,), describe="input", act=_url_decode),
    Verb(name="TextHtmlEncode", least=1, most=1, kinds=(TEXT,), describe="input", act=_html_encode),
    _simple("TextContains", "input, text", lambda text, part: str(part in text)),
    _simple("TextStartsWith", "input, prefix", lambda text, part: str(text.startswith(part))),
    _simple("TextEndsWith", "input, suffix", lambda text, part: str(text.endswith(part))),
    Verb(name="TextMatch", least=2, most=2, kinds=(TEXT,), describe="input, regular expression", act=_match),
    Verb(
        name="TextHash",
        least=1,
        most=2,
        kinds=(TEXT,),
        describe="input, [sha256|sha512|md5]",
        act=_hash,
        check=algorithm("TextHash", 1),
    ),
    Verb(name="TextSort", least=1, most=2, kinds=(TEXT,), describe="input, [asc|desc|numeric]", act=_sort),
    Verb(name="TextUniq", least=1, most=1, kinds=(TEXT,), describe="input", act=_uniq),
    Verb(name="TextCount", least=1, most=2, kinds=(TEXT,), describe="input, [text]", act=_count),
    _simple("TextIndexOf", "input, text", lambda text, part: str(text.find(part))),
    _simple("TextLastIndexOf", "input, text", lambda text, part: str(text.rfind(part))),
    Verb(name="TextRemove", least=2, most=2, kinds=(TEXT,), describe="input, text", act=_remove),
    _simple("TextWordCount", "input", lambda text: str(len(text.split()))),
    Verb(
        name="TextPadLeft",
        least=2,
        most=3,
        kinds=(TEXT,),
        describe=f"input, width 0-{MOST_WIDTH}, [character]",
        act=_padded(left=True),
        check=_pads("TextPadLeft"),
    ),
    Verb(
        name="TextPadRight",
        least=2,
        most=3,
        kinds=(TEXT,),
        describe=f"input, width 0-{MOST_WIDTH}, [character]",
        act=_padded(left=False),
        check=_pads("TextPadRight"),
    ),
    Verb(
        name="TextRepeat",
        least=2,
        most=2,
        kinds=(TEXT,),
        describe=f"input, count 0-{MOST_REPEATS}",
        act=_repeat,
        check=whole("TextRepeat", 1, "the count", 0, MOST_REPEATS),
    ),
    Verb(
        name="TextRegexGroups",
        least=2,
        most=2,
        kinds=(TEXT,),
        describe="input, regular expression",
        act=_regex_groups,
    ),
    Verb(
        name="TextColumn",
        least=2,
        most=3,
        kinds=(TEXT,),
        describe=f"input, column 0-{MOST_COLUMN}, [delimiter]",
        act=_column,
        check=whole("TextColumn", 1, "the column", 0, MOST_COLUMN),
    ),
    Verb(name="TextTable", least=1, most=2, kinds=(TEXT,), describe="input, [delimiter, default tab]", act=_table),
)
