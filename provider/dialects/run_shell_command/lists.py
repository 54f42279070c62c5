"""
Allow and deny lists: prefix rules that every part of a command is held against, deny first.

Parts are what bash would run: each command of a chain, newlines included, inside subshells, conditions and functions,
behind assignments, `!`, `time` and other wrappers, and in the text of `eval` and `bash -c`. A deny rule also counts for
the program under another path. An allow rule counts for the program as it is written, so `(node)` is not `./node`.

A hard denial is final. A soft one is a question: where nobody can be asked, it is a no as well.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from provider.dialects.run_shell_command import substitution
from provider.dialects.run_shell_command.substitution import EVALUATORS, SHELLS
from provider.model import Decision, Verdict
from provider.policy.env import denied
from provider.policy.known import ELLIPSIS, base_name, unwrap
from provider.policy.rules import Segment, assigned, is_local, segments

TOOL = "run_shell_command"
NAMES = (TOOL, "ShellTool")

DISABLED = "Shell tool is globally disabled in configuration"
BLOCKED = "Command '{}' is blocked by configuration"
NOT_ALLOWED = "Command(s) not in the allowed commands list. Disallowed commands: "
NOT_CONFIRMED = "Command(s) not on the global or session allowlist. Disallowed commands: "
NO_ROOT = "Could not identify command root to obtain permission from user."

Width = Literal["root", "exact"]


class Prefix(NamedTuple):
    """One entry of a list, such as `run_shell_command(git push)`; without words it is about the whole tool."""

    words: tuple[str, ...] = ()


_ENTRY = re.compile(rf"(?:{'|'.join(NAMES)})(?:\((.*)\))?", re.DOTALL)


def parse_entry(entry: str) -> Prefix:
    """Raises ValueError for an entry that is about no command of this tool."""
    match = _ENTRY.fullmatch(entry.strip())
    right = f"`{TOOL}` or `{TOOL}(prefix)`"
    if match is None:
        message = f"{entry!r} must be {right}"
        raise ValueError(message)
    if match[1] is None:
        return Prefix()
    try:
        words = tuple(shlex.split(match[1]))
    except ValueError as error:
        message = f"{entry!r}: {error}; it must be {right}"
        raise ValueError(message) from error
    if not words:
        message = f"{entry!r} has no prefix; it must be {right}"
        raise ValueError(message)
    return Prefix(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    allow: tuple[Prefix, ...] = ()
    deny: tuple[Prefix, ...] = ()
    confirm: bool = False
    """Ask about every command that is not allowed, also where there is no allow list."""
    allow_redirection: bool = False
    remember: Width = "root"
    """What a yes for the session covers: the programs of the command, or this very command."""

    @property
    def allows_all(self) -> bool:
        return Prefix() in self.allow

    @property
    def restricts(self) -> bool:
        """Whether a command must be allowed to run without a question."""
        return not self.allows_all and (self.confirm or bool(self.allow))


class Judged(NamedTuple):
    verdict: Verdict
    remember: tuple[str, ...] = ()


def judge(command: str, lists: Lists) -> Judged:
    """Say what the contract's rules make of a command. Pure."""
    text = substitution.with_quoted_delimiters(command)
    found = segments(text)
    substitutions = substitution.find(text, found)
    if substitutions.live:
        return _refused(substitution.refusal(substitutions))
    if Prefix() in lists.deny:
        return _refused(DISABLED)
    for part in found:
        if any(_denies(prefix, part) is _Match.YES for prefix in lists.deny):
            return _refused(BLOCKED.format(part.text))
    doubts = [
        *(_Doubt(f"it may hide a command substitution: {source}") for source in substitutions.doubtful),
        *(doubt for part in found for doubt in _doubts(part, lists)),
    ]
    if doubts:
        return _asked(command, doubts, lists)
    unread = [part.unknown for part in found if part.unknown]
    reasons = tuple(f"it could not be read, and there is no list to hold it against: {why}" for why in unread)
    return Judged(Verdict(decision=Decision.ALLOW, reasons=reasons))


def parts(command: str) -> tuple[str, ...]:
    """The commands that lists are held against, as they are shown."""
    return tuple(part.text for part in segments(substitution.with_quoted_delimiters(command)) if _counts(part))


def _refused(reason: str) -> Judged:
    return Judged(Verdict(decision=Decision.REFUSE, reasons=(reason,)))


class _Doubt(NamedTuple):
    """Why somebody is asked about a part."""

    reason: str = ""
    uncovered: str = ""
    """The part, when it is on no list."""
    key: str = ""
    """What a yes for the session covers; empty where it must not cover anything."""


def _asked(command: str, doubts: Sequence[_Doubt], lists: Lists) -> Judged:
    uncovered = dict.fromkeys(doubt.uncovered for doubt in doubts if doubt.uncovered)
    text = NOT_CONFIRMED if lists.confirm else NOT_ALLOWED
    listed = [text + ", ".join(f'"{part}"' for part in uncovered)] if uncovered else []
    others = dict.fromkeys(doubt.reason for doubt in doubts if doubt.reason)
    keys = dict.fromkeys(doubt.key for doubt in doubts)
    remember: tuple[str, ...] = ()
    if all(keys):
        remember = tuple(keys) if lists.remember == "root" else (f"{TOOL}(={command})",)
    return Judged(Verdict(decision=Decision.ASK, reasons=(*listed, *others)), remember)


# What is asked about.

_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})
_NOWHERE = {"/dev/null", "/dev/stdout", "/dev/stderr", "-"}


def _doubts(part: Segment, lists: Lists) -> Iterator[_Doubt]:
    prefixes = [prefix for prefix in lists.deny if prefix.words]
    if not prefixes and not lists.restricts:
        return
    if part.unknown:
        yield _Doubt(f"{NO_ROOT} It cannot be read: {part.unknown}")
        return
    if any(_denies(prefix, part) is _Match.MAYBE for prefix in prefixes):
        yield _Doubt(f"it may be a command that is blocked by configuration: {part.text}")
    cover = max((len(prefix.words) for prefix in lists.allow if _allows(prefix, part)), default=0)
    if part.argv and not part.program:
        yield _Doubt(f"{NO_ROOT} Only the shell knows which program this is: {part.text}")
    else:
        yield from _unseen(part, cover, restricts=lists.restricts)
    if lists.restricts:
        yield from _restricted(part, lists, is_covered=bool(cover))


def _restricted(part: Segment, lists: Lists, *, is_covered: bool) -> Iterator[_Doubt]:
    root = part.argv[0] if part.program else ""
    if part.program and _counts(part) and not is_covered:
        yield _Doubt(uncovered=part.text, key=f"{TOOL}({root})")
    if not lists.allow_redirection:
        for target in _written(part):
            shown = part.text if target in part.text else f"{part.text} > {target}".strip()
            yield _Doubt(f"redirection is not covered by the allowed commands list: {shown}", key=f"{TOOL}({root} >)")
    for name in assigned(part):
        if reason := denied(name):
            yield _Doubt(f"{name} is set, and {reason}: {part.text}")


def _counts(part: Segment) -> bool:
    """Whether it is a command by itself: a wrapper such as `time` is judged by what it runs."""
    return bool(part.argv) and not part.transparent


def _unseen(part: Segment, cover: int, *, restricts: bool) -> Iterator[_Doubt]:
    """
    Yield what a part runs that is not in the text.

    An allow rule of one word, such as `(bash)`, covers files; text in arguments only one that goes on: `(bash -c)`.
    Under a deny list alone a language of its own is no shell: what it does is its business, as with any program.
    """
    if part.inline and cover <= 1:
        runs_commands = part.program in EVALUATORS or bool(unwrap((part.program, "1", "true")).commands)
        if runs_commands or restricts:
            reason = f"it evaluates text that cannot be read here ({part.inline}): {part.text}"
            yield _Doubt(reason, key="" if runs_commands else f"{TOOL}({part.inline})")
    if part.inline or part.transparent or cover or restricts:
        return
    program, *rest = part.argv or ("",)
    named = rest[0] if part.program in _RUN_FILES and rest else None
    if named or is_local(program):
        key = f"{TOOL}({program} {named})" if named else f"{TOOL}({program})"
        yield _Doubt(f"it runs a file, which may be a script: {part.text}", key=key)


_RUN_FILES = SHELLS | {"source", "."}


def _written(part: Segment) -> Iterator[str]:
    for redirection in part.command.redirections if part.command else ():
        target = redirection.target
        if redirection.operator not in _WRITES or (target.literal or "").isdecimal() or target.literal in _NOWHERE:
            continue
        yield target.source


# Prefixes.


class _Match(enum.Enum):
    NO = enum.auto()
    MAYBE = enum.auto()
    """Only the shell knows."""
    YES = enum.auto()


def _denies(prefix: Prefix, part: Segment) -> _Match:
    if not prefix.words or not part.argv:
        return _Match.NO
    for at, wanted in enumerate(prefix.words):
        if at >= len(part.argv):
            return _Match.NO
        word = part.argv[at]
        if word is None:
            return _Match.MAYBE
        known, cut, _ = word.partition(ELLIPSIS)
        if cut:
            return _Match.MAYBE if at == 0 or wanted.startswith(known) else _Match.NO
        if word != wanted and (at > 0 or base_name(word) != base_name(wanted)):
            return _Match.NO
    return _Match.YES


def _allows(prefix: Prefix, part: Segment) -> bool:
    return bool(prefix.words) and part.argv[: len(prefix.words)] == prefix.words
