"""
What a shell text comes to: simple commands with their words, assignments, redirections and places.

Tuples rather than frozen dataclasses, which take two microseconds to make, and none at all for a plain argument.
Where there are many, they are made by `tuple.__new__` and not by the class: in Python 3.11 that takes 0.15 us and not
0.5, since a named tuple's own `__new__` is one more function in Python.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Dynamic(enum.StrEnum):
    """What in a word only bash knows, once it runs."""

    PARAMETER = "parameter"
    COMMAND = "command substitution"
    PROCESS = "process substitution"
    ARITHMETIC = "arithmetic"
    GLOB = "glob"
    BRACE = "brace"
    TILDE = "tilde"
    ANSI_C = "$'' quoting"


class Place(enum.StrEnum):
    """What a command stands in; the top level is no place at all."""

    SUBSHELL = "subshell"
    GROUP = "group"
    SUBSTITUTION = "substitution"
    PROCESS = "process substitution"
    FUNCTION = "function"
    LOOP = "loop"
    CONDITION = "condition"
    CASE = "case"


class Part(NamedTuple):
    """A piece of a word: literal text when `dynamic` is None, otherwise the source of what is dynamic."""

    text: str
    dynamic: Dynamic | None = None
    quoted: bool = False
    """In double quotes, so that it stays one word whatever it comes to."""


class Word(NamedTuple):
    source: str
    """As it was written, with its quotes."""
    literal: str | None
    """What the program will see, when that can be known from the text alone."""
    parts: tuple[Part, ...] = ()
    """In order; empty when the word is literal."""

    @property
    def dynamic(self) -> frozenset[Dynamic]:
        return frozenset(part.dynamic for part in self.parts if part.dynamic)


def make_word(source: str, literal: str | None, parts: tuple[Part, ...] = ()) -> Word:
    return tuple.__new__(Word, (source, literal, parts))


def as_word(written: Word | str) -> Word:
    return make_word(written, written) if isinstance(written, str) else written


class Assignment(NamedTuple):
    name: str
    values: tuple[Word, ...]
    """One, or the elements of an array."""
    appends: bool = False
    array: bool = False


class Heredoc(NamedTuple):
    delimiter: str
    quoted: bool
    """A quoted delimiter: nothing in the body is expanded."""
    body: Word
    strips_tabs: bool = False


class Redirection(NamedTuple):
    operator: str
    """`>`, `>>`, `<`, `<>`, `>|`, `>&`, `<&`, `&>`, `&>>`, `<<`, `<<-`, `<<<`."""
    descriptor: str
    """The number in front, or empty."""
    target: Word
    heredoc: Heredoc | None = None


class Command(NamedTuple):
    """A simple command; or, with a `keyword`, the words of a construct that starts no program itself."""

    start: int
    """Offsets are in bytes of the UTF-8 text."""
    end: int
    program: Word | None
    """None where there are only assignments, redirections, or a keyword."""
    rest: tuple[Word | str, ...] = ()
    """The arguments, and of a plain one, which is as it is written, the text alone."""
    assignments: tuple[Assignment, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    keyword: str = ""
    """`for`, `case`, `[[`, `function` (its name is the argument), or empty."""
    joined_by: str = ""
    """The operator after it: `;`, `&&`, `||`, `|`, `|&`, `&`, a newline; empty at the end of its list."""
    background: bool = False
    negated: bool = False
    places: tuple[Place, ...] = ()
    """Outermost first."""

    @property
    def arguments(self) -> tuple[Word, ...]:
        return tuple(map(as_word, self.rest))

    @property
    def words(self) -> tuple[Word, ...]:
        return self.arguments if self.program is None else (self.program, *self.arguments)


class Script(NamedTuple):
    commands: tuple[Command, ...]
    """In the order of the text; commands inside substitutions are among them."""
    unknown: str | None = None
    """Why bash may read this text otherwise, or run more than `commands` says."""
    offset: int | None = None
    """Where that was seen."""
    commented: bool = False
    portable: bool = True
    """dash and busybox sh read it as bash does."""
