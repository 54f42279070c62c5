"""What fits into a slot of a template, and what the program is then given for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import templates
from .compiled import Rules
from .errors import CompileError
from .paths import resolve_read, resolve_write, shown
from .templates import NO_FREETEXT, Slot, Template, is_protected
from .words import BUILT_IN, entry, not_in

MOST_WORDS: Final = 12
LONGEST_TEXT: Final = 200
"""Of a FreeText, where nobody has set another limit."""
SECRETS: Final = (
    *("KEY=", "SECRET=", "TOKEN=", "PASSWORD=", "PASSWD=", "CREDENTIAL=", "CONN=", "CONNECTION_STRING=", "PRIVATE="),
    *("ENCRYPT=", "JWT=", "BEARER=", "CERTIFICATE=", "APIKEY=", "API_KEY="),
    *("KEY:", "SECRET:", "TOKEN:", "PASSWORD:", "AUTHORIZATION:", "BEARER:"),
)
"""A text with one of these looks as if a secret were about to be written into a history."""
_BRANCH: Final = re.compile(r"(?![-/.])[A-Za-z0-9._/-]+(?<![/.])")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NOT_IN_TAGS: Final = re.compile(r"[ ~^:?*\[\\\x00-\x1f\x7f]|\.\.|@\{|//")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PACKED: Final = (".gz", ".tgz")


class Mismatch(Exception):
    """A value does not fit; the text says why. Another template may still take the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What every slot of a command is held against."""

    rules: Rules
    root: str
    links: bool
    relative: bool
    """Whether the program starts in the root, so that it can be given paths as people write them."""


def fill(slot: Slot, value: str, template: Template, ground: Ground) -> str:  # noqa: PLR0911 - one for each kind
    """
    Give what the program gets for a value.

    Raises:
        Mismatch: it is not of the slot's kind.
        Mk8Error: a path that no script may use.
    """
    match slot.kind:
        case templates.READ:
            return _given(resolve_read(value, ground.root, links=ground.links), ground)
        case templates.WRITE:
            return _given(resolve_write("ProcRun", value, ground.root, links=ground.links), ground)
        case templates.GUNZIP:
            return _gunzip(value, ground)
        case templates.CHOICE:
            return _listed(slot.choices, value, "one of " + ", ".join(slot.choices))
        case templates.NUMBER:
            return _number(slot, value)
        case templates.WORD:
            return _word(slot, value, ground.rules)
        case templates.BRANCH:
            return _branch(slot, value, ground.rules)
        case templates.COMPOUND:
            return _compound(slot, value, ground.rules)
        case _:
            return _freetext(slot, value, template, ground.rules)


def freetext(rules: Rules, command: str, binary: str = "") -> tuple[bool, int]:
    """Whether a command's texts are free, and how long they may be. The master switch wins."""
    settings: Mapping[str, Any] = rules.freetext
    of_verb: Mapping[str, Any] = next(
        (value for name, value in settings.get("perVerb", {}).items() if name.lower() == command.lower()), {}
    )
    enabled = settings.get("enabled") is True and of_verb.get("enabled", True) is True and binary not in NO_FREETEXT
    longest = of_verb.get("maxLength") or settings.get("maxLength") or LONGEST_TEXT
    return enabled, int(longest)


def word_list(rules: Rules, name: str) -> tuple[str, ...]:
    return rules.words.get(name, BUILT_IN.get(name, ()))


def _given(path: str, ground: Ground) -> str:
    """A path that no program takes for an option, a revision or another machine."""
    if not ground.relative:
        return path
    return f".{path[len(ground.root) :]}"


def _gunzip(value: str, ground: Ground) -> str:
    path = resolve_write("ProcRun", value, ground.root, links=ground.links)
    packed = next((end for end in _PACKED if path.endswith(end)), "")
    unpacked = path.removesuffix(packed) + (".tar" if packed == ".tgz" else "")
    if not packed or unpacked.endswith("/"):
        text = f"{shown(value)} does not end in .gz or .tgz, so there is no telling what would be written"
        raise Mismatch(text)
    try:
        resolve_write("ProcRun", unpacked, ground.root, links=ground.links)
    except CompileError as error:
        text = f"it would write {shown(unpacked)}: {error}"
        raise Mismatch(text) from None
    return _given(path, ground)


def _listed(words: tuple[str, ...], value: str, wanted: str) -> str:
    found = entry(words, value)
    if found is None:
        text = f"{shown(value)} is not {wanted}"
        raise Mismatch(text)
    return found


def _number(slot: Slot, value: str) -> str:
    if not _NUMBER.fullmatch(value) or not slot.least <= int(value) <= slot.most:
        text = f"{shown(value)} is not a whole number of {slot.least} to {slot.most}"
        raise Mismatch(text)
    return str(int(value))


def _word(slot: Slot, value: str, rules: Rules) -> str:
    words = word_list(rules, slot.words)
    if not words:
        text = f"the word list {slot.words} is empty here, so this command is not available"
        raise Mismatch(text)
    return _listed(words, value, f"in the word list {slot.words} (Mk8Vocab {slot.words} shows it)")


def _branch(slot: Slot, value: str, rules: Rules) -> str:
    if is_protected(value):
        text = f"{shown(value)} is a protected branch, which no script touches and no word list makes available"
        raise Mismatch(text)
    branch = _word(slot, value, rules)
    # `a:main` would push to another branch, and HEAD~3 is none.
    if not _BRANCH.fullmatch(branch) or ".." in branch or branch.upper() == "HEAD":
        text = f"{shown(branch)} is in {slot.words}, but is not the name of one branch"
        raise Mismatch(text)
    return branch


def _compound(slot: Slot, value: str, rules: Rules) -> str:
    if not rules.project_bases:
        text = "no project bases are configured, so projects cannot be named"
        raise Mismatch(text)
    suffixes = word_list(rules, slot.words)
    names = [
        name
        for base in rules.project_bases
        for name in (base, *(f"{base}{joint}{suffix}" for suffix in suffixes for joint in ("", ".")))
    ]
    wanted = f"a project's name: one of {', '.join(rules.project_bases)}, alone or with a suffix of {slot.words}"
    return _listed(tuple(names), value, wanted)


def _freetext(slot: Slot, value: str, template: Template, rules: Rules) -> str:
    if not value.strip():
        text = "the text is blank"
        raise Mismatch(text)
    enabled, longest = freetext(rules, template.description, template.binary)
    if enabled:
        _check_free(value, min(slot.most, longest))
    else:
        words = word_list(rules, slot.words)
        parts = [part for part in value.split(" ") if part]
        if len(parts) > MOST_WORDS:
            text = f"the text has {len(parts)} words; {MOST_WORDS} is the most"
            raise Mismatch(text)
        if unknown := not_in(words, parts):
            text = f"not in the word list {slot.words} (Mk8Vocab {slot.words} shows it): {shown(' '.join(unknown))}"
            raise Mismatch(text)
        if slot.form:
            value = entry(words, value) or value
    if slot.form == "tag":
        _check_tag(value)
    elif slot.form == "identifier" and not _IDENTIFIER.fullmatch(value):
        text = f"{shown(value)} is not an identifier: a letter or _, then letters, digits and _"
        raise Mismatch(text)
    return value


def _check_free(value: str, longest: int) -> None:
    if len(value) > longest:
        text = f"the text has {len(value)} characters; {longest} is the most"
        raise Mismatch(text)
    if _CONTROL.search(value):
        text = "the text has a control character in it, such as a line's end"
        raise Mismatch(text)
    if secret := next((mark for mark in SECRETS if mark in value.upper()), ""):
        text = f"the text looks as if it had a secret in it ({secret})"
        raise Mismatch(text)


def _check_tag(value: str) -> None:
    wrong = _NOT_IN_TAGS.search(value) or value[0] in "./" or value[-1] in "./" or value.endswith(".lock")
    if wrong:
        text = f"{shown(value)} cannot be the name of a tag"
        raise Mismatch(text)
