"""
What an `If` asks, and when the answer is yes. Comparisons do not tell capitals from small letters (a pattern does,
unless it begins with `(?i)`); an argument too few, a bad number and a bad pattern are a no.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from . import regex
from .allowlist import is_allowed
from .check import check_path
from .compiled import Rules
from .errors import CompileError, StepFailure, TimedOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a guard can ask about."""

    previous: str
    captures: Mapping[str, str]
    """By name in upper case."""
    environment: Mapping[str, str]
    root: str
    rules: Rules
    deadline: float
    """By time.monotonic()."""


def holds(kind: str, args: Sequence[str], seen: Seen) -> bool:
    """
    Whether a guard lets its step run; `args` are with everything filled in.

    Raises:
        CompileError: there is no such question.
        Mk8Error: a path that is not one of the sandbox's.
    """
    if kind not in PREDICATES:
        verb, text = "If", f"unknown predicate {kind!r}; there are {', '.join(PREDICATES)}"
        raise CompileError(verb, text)
    least, ask = PREDICATES[kind]
    return len(args) >= least and ask(seen, args)


def _text(compare: Callable[[str, str], bool]) -> Callable[[Seen, Sequence[str]], bool]:
    return lambda seen, args: compare(seen.previous.casefold(), args[0].casefold())


def _matches(seen: Seen, args: Sequence[str]) -> bool:
    try:
        return regex.search(args[0], seen.previous, seen.deadline)
    except (StepFailure, TimedOut):  # no pattern, or one that needs too long
        return False


_ORDER: Final = {
    "eq": operator.eq,
    "gt": operator.gt,
    "lt": operator.lt,
    "gte": operator.ge,
    "lte": operator.le,
}


def _line_count(seen: Seen, args: Sequence[str]) -> bool:
    compare = _ORDER.get(args[0].strip().lower())
    if compare is None or not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", args[1]):
        return False
    return bool(compare(seen.previous.count("\n") + 1, int(args[1])))


def _capture(seen: Seen, args: Sequence[str]) -> str:
    return seen.captures.get(args[0].upper(), "")


def _environment(seen: Seen, args: Sequence[str]) -> bool:
    if not is_allowed(args[0]):
        return False
    return seen.environment.get(args[0].upper(), "").casefold() == args[1].casefold()


def _path(exists: Callable[[str], bool]) -> Callable[[Seen, Sequence[str]], bool]:
    return lambda seen, args: exists(check_path(args[0], seen.rules, seen.root, links=True))


PREDICATES: Final[Mapping[str, tuple[int, Callable[[Seen, Sequence[str]], bool]]]] = {
    "PrevContains": (1, _text(lambda previous, value: value in previous)),
    "PrevEmpty": (0, lambda seen, args: not seen.previous.strip()),  # noqa: ARG005 - the shape of all of them
    "PrevStartsWith": (1, _text(str.startswith)),
    "PrevEndsWith": (1, _text(str.endswith)),
    "PrevEquals": (1, _text(operator.eq)),
    "PrevMatch": (1, _matches),
    "PrevLineCount": (2, _line_count),
    "CaptureEmpty": (1, lambda seen, args: not _capture(seen, args).strip()),
    "CaptureContains": (2, lambda seen, args: args[1].casefold() in _capture(seen, args).casefold()),
    "EnvEquals": (2, _environment),
    "FileExists": (1, _path(os.path.isfile)),
    "DirExists": (1, _path(os.path.isdir)),
}
"""By kind: how many arguments it needs, and the question."""
