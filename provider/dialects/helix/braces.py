"""
Brace expansion as bash does it, `{a,b}` and `{1..3}`, on the text of one word with its quotes. Pure and bounded.

It is done here because dash and busybox do not know it, and a sandbox's image need not have bash. Lists and ranges are
expanded; braces that are neither, or have no partner, bash reads by rules that surprise, and they are refused.
"""

from __future__ import annotations

import re

from provider.errors import CallError

MAX_BRACES = 100
MAX_WORDS = 4096

_NUMBERS = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?")
_LETTERS = re.compile(r"([a-z])\.\.([a-z])(?:\.\.(-?\d{1,9}))?|([A-Z])\.\.([A-Z])(?:\.\.(-?\d{1,9}))?")
"""Of one case: between Z and a there are a backslash and a backquote."""


def expand_braces(word: str) -> list[str]:
    """
    Give the words that a word stands for, in bash's order.

    Raises:
        CallError: there are too many of them, or a brace is neither a list nor a range.
    """
    if word.count("{") > MAX_BRACES:
        message = f"more than {MAX_BRACES} braces in one word; write the names out"
        raise CallError(message)
    return [expanded for expanded in _expand(word) if expanded]


def _expand(text: str) -> list[str]:
    at = 0
    while at < len(text):
        if text[at] == "}":
            raise _surprising(text)
        if text[at] == "{":
            alternatives, end = _group(text, at)
            middles = [middle for one in alternatives for middle in _expand(one)]
            tails = _expand(text[end:])
            check_count(len(middles) * len(tails))
            return [text[:at] + middle + tail for middle in middles for tail in tails]
        at = _after(text, at)
    return [text]


def _group(text: str, start: int) -> tuple[list[str], int]:
    """What a brace and its partner offer, and where that ends."""
    depth, at = 1, start + 1
    commas = [start]
    while at < len(text):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                break
        elif text[at] == "," and depth == 1:
            commas.append(at)
        at = _after(text, at)
    else:
        raise _surprising(text)
    if len(commas) == 1:
        return _range(text[start + 1 : at]), at + 1
    return [text[begin + 1 : end] for begin, end in zip(commas, [*commas[1:], at], strict=True)], at + 1


def _after(text: str, at: int) -> int:
    """Where the next character begins, with a quoted piece counted as one."""
    match text[at]:
        case "\\":
            return at + 2
        case "'":
            return text.index("'", at + 1) + 1
        case '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        case _:
            pass
    return at + 1


def _range(text: str) -> list[str]:
    if numbers := _NUMBERS.fullmatch(text):
        first, last = numbers[1], numbers[2]
        padded = any(re.match(r"-?0\d", end) for end in (first, last))
        width = max(len(first), len(last)) if padded else 0
        return [f"{number:0{width}d}" for number in _steps(int(first), int(last), numbers[3])]
    if letters := _LETTERS.fullmatch(text):
        first, last, step = letters.groups()[:3] if letters[1] else letters.groups()[3:]
        return [chr(code) for code in _steps(ord(first), ord(last), step)]
    raise _surprising("{" + text + "}")


def _steps(first: int, last: int, step: str | None) -> range:
    size = abs(int(step or 1)) or 1
    count = abs(last - first) // size + 1
    check_count(count)
    return range(first, last + 1, size) if first <= last else range(first, last - 1, -size)


def _surprising(text: str) -> CallError:
    return CallError(f"braces in {text[:40]} must be a list such as {{a,b}}, or a range such as {{1..9}} or {{a..f}}")


def check_count(count: int) -> None:
    """Raises CallError for more words than a command can sensibly have."""
    if count > MAX_WORDS:
        message = f"{count} words in one command that has globs; at most {MAX_WORDS} can be"
        raise CallError(message)
