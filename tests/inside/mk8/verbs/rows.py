"""
What each verb promises, as rows: the documentation counts them, and test_verbs.py runs each in a workspace of its own.

`/workspace` stands for that workspace in arguments, outputs and links.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Link:
    """A symbolic link, in a workspace before or after."""

    target: str


FOLDER = None
"""An empty directory, in a workspace before or after."""


@dataclass(frozen=True, kw_only=True)
class Row:
    verb: str
    args: tuple[str, ...]
    gives: str | re.Pattern[str] | None = None
    """The whole output."""
    fails: str | None = None
    """The category of the error,"""
    says: str = ""
    """and a part of its text."""
    files: Mapping[str, Any] = field(default_factory=dict)
    """What is there before: text, bytes, FOLDER or a Link, by name."""
    after: Mapping[str, Any] | None = None
    """What is there afterwards, exactly; None where only the output counts."""
    world: Mapping[str, Any] = field(default_factory=dict)
    """What its World has besides."""
    patch: Mapping[str, Any] = field(default_factory=dict)
    """`module.name` below provider.inside.mk8, and what stands there meanwhile."""


def ok(verb: str, *args: str, gives: str | re.Pattern[str], **rest: Any) -> Row:
    return Row(verb=verb, args=args, gives=gives, **rest)


def no(verb: str, *args: str, fails: str = "Compile", says: str, **rest: Any) -> Row:
    return Row(verb=verb, args=args, fails=fails, says=says, **rest)


def like(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def all_rows() -> list[Row]:
    import rows_control
    import rows_files
    import rows_json
    import rows_network
    import rows_system
    import rows_text
    import rows_values

    tables = (rows_files, rows_text, rows_json, rows_values, rows_system, rows_network, rows_control)
    return [row for table in tables for row in table.ROWS]
