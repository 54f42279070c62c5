"""
A command held against the templates: which one it is, and the words that the program is given.

The words are not always as they were written: flags come where the program reads them, list entries as the list has
them, paths so that no program can take them for anything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .compiled import Rules
from .errors import CompileError, InvalidArgument, Mk8Error, PathViolation
from .paths import shown
from .slots import Ground, Mismatch, fill
from .templates import BLOCKED, BY_BINARY, BY_FIRST_WORD, VERSION_ONLY, Slot, Template

VERB: Final = "ProcRun"
_INSTEAD: Final = {
    "echo": "Echo",
    "grep": "FileSearch or FileSearchRegex",
    "find": "FileGlob",
    "jq": "JsonQuery",
    "curl": "HttpGet",
    "wget": "HttpGet",
    "ssh": "none: scripts stay in their sandbox",
    "env": "EnvList",
    "dd": "FileCopy",
}
"""Verbs that do what agents want from some of the blocked programs."""


def check_command(
    values: Sequence[str | None], rules: Rules, root: str, *, links: bool, relative: bool
) -> tuple[str | None, ...]:
    """
    Give the words of the process. None stands for a value that only the run knows; it can only fill a slot.

    Raises:
        CompileError: no template takes it, or the program is blocked.
        PathViolation, InvalidArgument: a slot's path.
    """
    binary, *words = values
    if binary is None:
        return tuple(values)
    _check_binary(binary, words)
    ground = Ground(rules=rules, root=root, links=links, relative=relative)
    reasons: list[tuple[Template, Exception]] = []
    first = BY_FIRST_WORD.get((binary, words[0]), ()) if words and words[0] else ()
    for template in (*BY_FIRST_WORD.get((binary, ""), ()), *first):
        if words[: len(template.prefix)] != list(template.prefix):
            continue
        try:
            return (binary, *_matched(template, words[len(template.prefix) :], ground))
        except (Mismatch, Mk8Error) as error:
            reasons.append((template, error))
    raise _none_fits(binary, words, reasons)


def _check_binary(binary: str, words: Sequence[str | None]) -> None:
    name = re.split(r"[/\\]", binary)[-1].strip().lower()
    blocked = name in BLOCKED or name.removesuffix(".exe") in BLOCKED
    if blocked and not (binary in VERSION_ONLY and list(words) == ["--version"]):
        only = f" but for {name} --version" if name in VERSION_ONLY else ""
        instead = f" Instead, there is the verb {_INSTEAD[name]}." if name in _INSTEAD else ""
        raise CompileError(VERB, f"{shown(binary)} is never run{only}.{instead} Mk8Templates lists what is.")
    if name != binary.lower():
        raise CompileError(
            VERB,
            f"{shown(binary)} is no bare name. Right: a program's name alone, such as git; never a path to a file.",
        )
    if binary not in BY_BINARY:
        known = ", ".join(BY_BINARY)
        raise CompileError(VERB, f"there is no template for {shown(binary)}. Programs with templates: {known}.")


def _matched(template: Template, words: Sequence[str | None], ground: Ground) -> list[str | None]:
    """Raises Mismatch, and Mk8Error for a path."""
    flags: dict[str, list[str | None]] = {}
    plain: list[str | None] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word is None or not word.startswith("-"):
            plain.append(word)
            continue
        name = word.partition("=")[0]
        if name not in template.flags or name in flags:
            text = f"the flag {shown(name)} is given twice" if name in flags else f"it has no flag {shown(name)}"
            raise Mismatch(text)
        flags[name] = _flag(name, word, template, left, ground)
    if missing := [name for name in template.required if name not in flags]:
        text = f"{' and '.join(missing)} must be given"
        raise Mismatch(text)
    filled = [
        value if value is None else fill(slot, value, template, ground)
        for slot, value in zip(_slots(template, len(plain)), plain, strict=True)
    ]
    spread = [word for given in flags.values() for word in given]
    prefix: list[str | None] = list(template.prefix)
    if template.slots_first:
        return [*prefix, *filled, *spread]
    if prefix[-1:] == ["--"]:  # git reads no flags after it
        return [*prefix[:-1], *spread, "--", *filled]
    return [*prefix, *spread, *filled]


def _flag(name: str, word: str, template: Template, left: list[str | None], ground: Ground) -> list[str | None]:
    """A flag with its value, which may be the next word: long ones with `=`, which some programs insist on."""
    slot = template.flags[name]
    if slot is None:
        if word != name:
            text = f"the flag {name} takes no value"
            raise Mismatch(text)
        return [name]
    if word == name and not left:
        text = f"the flag {name} needs a value: {slot.described}"
        raise Mismatch(text)
    value = left.pop(0) if word == name else word.removeprefix(f"{name}=")
    if value is None:
        return [name, None]
    given = fill(slot, value, template, ground)
    return [f"{name}={given}"] if name.startswith("--") else [name, given]


def _slots(template: Template, count: int) -> list[Slot]:
    """The slot of each plain word. Raises Mismatch."""
    slots = list(template.slots)
    if count < len(slots):
        text = f"{' '.join(slot.described for slot in slots[count:])} is missing"
        raise Mismatch(text)
    if slots and slots[-1].many:
        slots += [slots[-1]] * (count - len(slots))
    if count > len(slots):
        text = f"{count} values are too many; it takes {len(slots) or 'none'}"
        raise Mismatch(text)
    return slots


def _none_fits(
    binary: str, words: Sequence[str | None], reasons: Sequence[tuple[Template, Exception]]
) -> CompileError | PathViolation | InvalidArgument:
    """What to say: why each template did not take it. Those of other first words are only listed."""
    tried = [template for template, _ in reasons]
    others = [template for template in BY_BINARY[binary] if template not in tried]
    command = shown(" ".join((binary, *("$?" if word is None else word for word in words))))
    lines = [f"no template takes {command}."]
    lines += [f"- {template.description} ({template.usage}): {_plain(reason)}" for template, reason in reasons]
    if others:
        forms = "; ".join(" ".join((binary, *template.prefix)) for template in others)
        lines.append(f"- others begin with: {forms}")
    text = "\n".join(lines)
    # What is wrong with a path is the category that counts, whatever the other templates say.
    for kind in (PathViolation, InvalidArgument):
        if any(type(reason) is kind for _, reason in reasons):
            return kind(text)
    return CompileError(VERB, text)


def _plain(reason: Exception) -> str:
    return str(reason).removeprefix(reason.begins) if isinstance(reason, Mk8Error) else str(reason)
