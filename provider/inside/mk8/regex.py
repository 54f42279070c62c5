r"""
Regular expressions with a time limit that holds. The dialect is that of Python's `re`, without flags: named groups are
`(?P<name>…)`, flags are written `(?i)` at the beginning, `\d` and `\w` know all of Unicode.

Each is compiled and run in a child (child.py), since some need longer than the universe has.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final

from . import child
from .errors import StepFailure

SECONDS: Final = 2.0


def search(pattern: str, text: str, deadline: float) -> bool:
    """Whether it matches anywhere."""
    return bool(_ask(pattern, lambda compiled, _: compiled.search(text) is not None, deadline))


def values(pattern: str, text: str, deadline: float) -> list[str]:
    """All matches, from the left, none overlapping another."""
    found: list[str] = _ask(pattern, lambda compiled, _: [match[0] for match in compiled.finditer(text)], deadline)
    return found


def groups(pattern: str, text: str, deadline: float) -> dict[str, str]:
    """Give the groups of the first match, those with a number before those with a name; none without a match."""

    def find(compiled: re.Pattern[str], _: child.Again) -> dict[str, str]:
        match = compiled.search(text)
        if match is None:
            return {}
        named = set(compiled.groupindex.values())
        numbers = {str(index): match[index] or "" for index in range(compiled.groups + 1) if index not in named}
        return numbers | {name: match[name] or "" for name in compiled.groupindex}

    found: dict[str, str] = _ask(pattern, find, deadline)
    return found


def lines(pattern: str, numbered: Iterable[tuple[int, str]], most: int, deadline: float) -> list[tuple[int, str]]:
    """Give the lines that it matches, at most `most` of them. The limit holds for each line by itself."""

    def find(compiled: re.Pattern[str], again: child.Again) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for number, line in numbered:
            again()
            if compiled.search(line):
                found.append((number, line))
            if len(found) == most:
                break
        return found

    return [(number, line) for number, line in _ask(pattern, find, deadline)]


def _ask(pattern: str, find: Callable[[re.Pattern[str], child.Again], Any], deadline: float) -> Any:
    def work(again: child.Again) -> bytes:
        warnings.simplefilter("ignore")  # Python's thoughts about a pattern are not for the log
        try:
            compiled = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            message = f"{_brief(pattern)} is not a regular expression of Python's `re`: {error}"
            raise StepFailure(message) from error
        return json.dumps(find(compiled, again)).encode()

    said = child.ask(work, seconds=SECONDS, deadline=deadline, what=f"the regular expression {_brief(pattern)}")
    return json.loads(said)


def _brief(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else f"{pattern[:77]}...")  # noqa: PLR2004 - what a message can bear
