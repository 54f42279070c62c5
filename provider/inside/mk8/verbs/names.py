"""Patterns for the names of files: `*`, `?` and letters."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable


def fits(pattern: str) -> Callable[[str], bool]:
    """Say of a name whether the pattern matches it. What fnmatch makes of one does not backtrack."""
    matches = re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match
    return lambda name: matches(name) is not None
