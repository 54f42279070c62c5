"""
Which calls are patches. Pure: nothing is read but the call.

A patch is taken out of a call before any shell sees it. Recognised are `apply_patch PATCH` as two words, and a script
that is nothing but `apply_patch <<DELIMITER`, or that after one `cd PATH &&`. Everything else is a command like any
other.

Of a script, the line before the here-document is read by the policy's own reader, with an empty body in the place of
the patch: patches may be longer than shell text may be, and an unquoted delimiter expands nothing here, as in the
original. Stricter than it: an argument after `cd PATH && apply_patch` is not overlooked, so that is no patch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import PurePosixPath

from provider.inside.apply_patch import ApplyError, Operation, ParseError, Root, Update, read_patch, resolve
from provider.policy.script import Command
from provider.policy.syntax import read

NAMES = frozenset({"apply_patch", "applypatch"})
SHELLS = frozenset({"bash", "zsh", "sh"})
FLAGS = frozenset({"-lc", "-c"})

FAILED = "apply_patch verification failed: "
IMPLICIT = 'patch detected without explicit call to apply_patch. Rerun as ["apply_patch", "<patch>"]'
EMPTY = "patch rejected: empty patch"
UNSUPPORTED_PAYLOAD = "apply_patch handler received unsupported payload"

# Bounded, since a line of `<` alone would otherwise be tried from each of them.
_OPENING = re.compile(
    r"\s*(?P<head>[^\n]{1,4096}?)<<(?P<dash>-?)[ \t]*"
    r"""(?:'(?P<single>[^'\n]{1,256})'|"(?P<double>[^"\\$`\n]{1,256})"|\\?(?P<bare>[^\s'"\\$`<>|&;()#]{1,256}))"""
    r"[ \t]*\n"
)
_ONE_WORD = re.compile(r"""'[^']*'|"[^"]*"|[^'"\\-][^'"\\]*""")
_ARGV = 2
_SCRIPT = 3


@dataclass(frozen=True, slots=True)
class Patch:
    text: str
    operations: tuple[Operation, ...]
    directory: str = ""
    """Where `cd` goes before it, as written: paths begin there."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """It is meant as a patch and cannot be one; the whole call fails with this, and nothing runs."""

    message: str


def recognise(argv: Sequence[str]) -> Patch | Rejected | None:
    """Find the patch in a call; None when it is an ordinary command."""
    if len(argv) == 1:
        return _implicit(argv[0])
    if len(argv) == _ARGV and argv[0] in NAMES:
        return parse(argv[1])
    if len(argv) == _SCRIPT and PurePosixPath(argv[0]).name in SHELLS and argv[1] in FLAGS:
        return _implicit(argv[2]) or _in_script(argv[2])
    return None


def from_tool(payload: object) -> Patch | Rejected:
    """Read the payload of the tool `apply_patch`: the text, or an object with the text as `input`."""
    if isinstance(payload, dict) and set(payload) == {"input"}:
        payload = payload["input"]
    return parse(payload) if isinstance(payload, str) else Rejected(UNSUPPORTED_PAYLOAD)


def parse(text: str, directory: str = "") -> Patch | Rejected:
    try:
        operations = read_patch(text)
    except ParseError as error:
        return Rejected(f"{FAILED}{error.verified}")
    return Patch(text, operations, directory)


def objection(patch: Patch, workspace: str, cwd: str) -> str | None:
    """
    Say why a patch cannot be let through, by its paths alone; links are for who applies it.

    `workspace` is absolute, `cwd` absolute or relative to it.
    """
    if not patch.operations:
        return EMPTY
    directory = str(PurePosixPath(cwd, patch.directory))
    root = Root(descriptor=-1, path=workspace, directory=directory)  # nothing is opened
    try:
        for operation in patch.operations:
            resolve(operation.path, root)
            if isinstance(operation, Update) and operation.move_to is not None:
                resolve(operation.move_to, root)
    except ApplyError as error:
        return str(error)
    return None


def _implicit(text: str) -> Rejected | None:
    try:
        read_patch(text)
    except ParseError:
        return None
    return Rejected(f"{FAILED}{IMPLICIT}")


def _in_script(script: str) -> Patch | Rejected | None:
    opening = _OPENING.match(script)
    if not opening:
        return None
    directory = _directory(opening["head"])
    if directory is None:
        return None
    delimiter = opening["single"] or opening["double"] or opening["bare"]
    lines = script[opening.end() :].split("\n")
    if opening["dash"]:
        lines = [line.lstrip("\t") for line in lines]
    try:
        end = lines.index(delimiter)
    except ValueError:
        return None  # bash would take the rest, with a warning; nobody should have to guess where a patch ends
    if any(line.strip() for line in lines[end + 1 :]):
        return None
    return parse("\n".join(lines[:end]).rstrip("\n"), directory)


def _directory(head: str) -> str | None:
    """Read what stands before the here-document: where the patch begins, or None if that is anything else."""
    script = read(f"{head}<<'EOF'\nEOF\n")
    if script.unknown or not script.commands:
        return None
    *before, call = script.commands
    patches = _is_plain(call, NAMES) and not call.arguments and [here.descriptor for here in call.redirections] == [""]
    if not patches or not before:
        return "" if patches else None
    change = before[0]
    moves = len(before) == 1 and _is_plain(change, {"cd"}) and change.joined_by == "&&" and not change.redirections
    if not moves or len(change.arguments) != 1:
        return None
    path = change.arguments[0]
    return path.literal if path.literal and _ONE_WORD.fullmatch(path.source) else None


def _is_plain(command: Command, names: AbstractSet[str]) -> bool:
    odd = command.assignments or command.keyword or command.background or command.negated or command.places
    return not odd and command.program is not None and command.program.source in names
