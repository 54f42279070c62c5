"""Verbs about the script itself: those that the compiler expands, and those that tell what the rules are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..errors import CompileError, StepFailure
from ..verb import READ, TEXT, WRITE, Verb, World
from .limits import brief, even

MOST_BATCHED: Final = 64


def _expanded(name: str) -> Callable[[World, Sequence[str]], str]:
    def act(world: World, arguments: Sequence[str]) -> str:
        raise CompileError(name, "it is expanded when a script is compiled, and cannot be a step of its own")

    return act


def _answer(name: str) -> Callable[[World, Sequence[str]], str]:
    """Give what the host has put down, from the tables that it enforces."""

    def act(world: World, arguments: Sequence[str]) -> str:
        key = " ".join((name, *arguments)).lower()
        known = {asked.lower(): answer for asked, answer in world.answers.items()}
        if key in known:
            return known[key]
        others = sorted(asked.partition(" ")[2] for asked in world.answers if asked.startswith(f"{name} "))
        if name == "Mk8Vocab":
            return f"Word list '{arguments[0]}' not found. Available: {', '.join(others)}"
        message = f"{name} has no answer{f' about {brief(arguments[0])}' if arguments else ''} in this run"
        raise StepFailure(f"{message}; it knows {', '.join(others)}" if others else message)

    return act


def _asks(name: str, least: int = 0, most: int = 0, describe: str = "") -> Verb:
    return Verb(name=name, least=least, most=most, kinds=(TEXT,), describe=describe, act=_answer(name))


VERBS: Final = (
    Verb(
        name="ForEach",
        least=0,
        most=0,
        kinds=(),
        describe="none; with forEach: {items, body}",
        act=_expanded("ForEach"),
        control=True,
    ),
    Verb(
        name="If",
        least=0,
        most=0,
        kinds=(),
        describe="none; with if: {predicate, then}",
        act=_expanded("If"),
        control=True,
    ),
    Verb(
        name="Include",
        least=1,
        most=1,
        kinds=(TEXT,),
        describe="fragment",
        act=_expanded("Include"),
        control=True,
    ),
    Verb(
        name="FileWriteMany",
        least=2,
        most=2 * MOST_BATCHED,
        kinds=(WRITE, TEXT) * MOST_BATCHED,
        describe=f"path, content, ... (1-{MOST_BATCHED} pairs)",
        act=_expanded("FileWriteMany"),
        check=even("FileWriteMany", "path and content"),
        control=True,
    ),
    Verb(
        name="FileCopyMany",
        least=2,
        most=2 * MOST_BATCHED,
        kinds=(READ, WRITE) * MOST_BATCHED,
        describe=f"from, to, ... (1-{MOST_BATCHED} pairs)",
        act=_expanded("FileCopyMany"),
        check=even("FileCopyMany", "from and to"),
        control=True,
    ),
    Verb(
        name="FileDeleteMany",
        least=1,
        most=MOST_BATCHED,
        kinds=(WRITE,),
        describe=f"path, ... (1-{MOST_BATCHED})",
        act=_expanded("FileDeleteMany"),
        control=True,
    ),
    _asks("Mk8Blacklist"),
    _asks("Mk8Vocab", 1, 1, "word list"),
    _asks("Mk8VocabList"),
    _asks("Mk8FreeText", 0, 1, "[command]"),
    _asks("Mk8Env"),
    _asks("Mk8Info"),
    _asks("Mk8Templates"),
    _asks("Mk8Verbs"),
    _asks("Mk8Skills"),
    _asks("Mk8Docs"),
)
