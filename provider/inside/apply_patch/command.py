"""
The command line: a patch from stdin or the one argument, the workspace as working directory.

    --check            verify and say what would be done; nothing is written
    --compat           upstream's way: in place, operation after operation, LF, stops half way
    --directory=SUB    relative paths begin there
    --recover          no patch: only undo, or clear away after, one that was killed; always in JSON
    --sha256=HEX       the patch has this digest, or nothing is done
    --json             one JSON object on stdout, whatever happens; the exit status is the same

    {"ok": true, "stdout": "Success. ...", "stderr": "",    what is printed without --json
     "contents": true,                                      false: above MAX_SHOWN bytes, and all are null
     "changes": [{"path": "a", "kind": "add|delete|update", "move_to": "b" or null,       below the workspace
                  "before": base64 or null, "after": ..., "over": ...,                    over: what a move replaces
                  "mode_before": 420 or null, "mode_after": ..., "mode_over": ...}],
     "recovered": {"found": "nothing|undone|finished|odd|waiting",
                   "restored": [path], "removed": [path], "kept": [path]}}

`recovered` is about an earlier patch that was killed. When it is waiting, nothing else was done: it has to be undone
first, with --recover, where the workspace can be written.
A change of kind add has `before` where it replaces a file. When compatibility mode fails, `changes` are those it made.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the module in front of it is four milliseconds of every start
import binascii
import os
import stat
import sys

from .grammar import MAX_PATCH, PatchError, read_patch
from .journal import NotRecovered, Recovered, commit, lock, recover, recovered, unlock
from .paths import Root
from .tree import FOLDER, MAX_SHOWN, Folders, computed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO, TextIO

    from .tree import Change

FLAGS = frozenset({"--check", "--compat", "--json", "--recover"})
DIRECTORY, SHA256 = "--directory=", "--sha256="
USAGE = "Usage: apply_patch 'PATCH'\n       echo 'PATCH' | apply-patch"
ONE_ARGUMENT = "Error: apply_patch accepts exactly one argument."
ANOTHER_PATCH = "Error: the patch does not have the digest that was named."
NOT_UTF8 = "Error: apply_patch requires a UTF-8 PATCH argument."
SUCCESS = "Success. Updated the following files:\n"
VERIFIED = "The patch fits. It would update the following files:\n"
_HELD = {_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP}
_ESCAPES = {
    **{number: f"\\u{number:04x}" for number in (*range(0x20), 0x7F, *range(0xDC80, 0xDD00))},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


class Told:
    """What there is to say about one call."""

    def __init__(self) -> None:
        self.status = 0
        self.stdout = self.stderr = ""
        self.changes: list[Change] = []
        self.recovered = Recovered()

    def failed(self, status: int, why: str) -> Told:
        self.status, self.stderr = status, f"{why}\n"
        return self


def apply(text: str, root: Root, *, compat: bool = False) -> str:
    """
    Apply a patch and give the summary.

    Raises:
        PatchError: it was not applied, or, with `compat`, not wholly.
    """
    told = Told()
    _carry_out(text, root, told, compat=compat)
    return told.stdout


def _carry_out(text: str, root: Root, told: Told, *, compat: bool = False, check: bool = False) -> None:
    operations = read_patch(text)
    lock(root)
    try:
        with Folders(root) as folders:
            told.recovered = recovered(folders)
            if check:
                told.changes = computed(operations, folders, compat=compat)
            elif compat:
                from .upstream import apply_each  # seldom needed

                for change in apply_each(operations, folders):
                    told.changes.append(change)  # those that were made count also when one fails
            else:
                changes = computed(operations, folders)
                held = _signal.pthread_sigmask(_signal.SIG_BLOCK, _HELD)
                try:
                    commit(changes, folders)
                finally:
                    _signal.pthread_sigmask(_signal.SIG_SETMASK, held)
                told.changes = changes
    finally:
        unlock(root)
    told.stdout = (VERIFIED if check else SUCCESS) + _summary(told.changes)


def _summary(changes: Sequence[Change]) -> str:
    return "".join(
        [
            f"{letter} {change.destination.written}\n"
            for letter, kind in (("A", "add"), ("M", "update"), ("D", "delete"))
            for change in changes
            if change.kind == kind
        ]
    )


def program() -> int:
    """Run with the process's own arguments and streams; gives the exit status."""
    # Whatever the image's locale says: paths and messages are UTF-8.
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    sys.stderr.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    return main(sys.argv[1:], sys.stdin.buffer, sys.stdout, sys.stderr)


def main(arguments: Sequence[str], stdin: BinaryIO, stdout: TextIO, stderr: TextIO) -> int:
    """Run in the working directory; gives the exit status."""
    options = [argument for argument in arguments if argument in FLAGS or argument.startswith((DIRECTORY, SHA256))]
    patches = [argument for argument in arguments if argument not in options]
    told = _answer(options, patches, stdin)
    if "--json" in options or "--recover" in options:
        stdout.write(as_json(told, compat="--compat" in options))
    else:
        stdout.write(told.stdout)
        stderr.write(told.stderr)
    return told.status


def _answer(options: Sequence[str], patches: Sequence[str], stdin: BinaryIO) -> Told:
    told = Told()
    if len(patches) > (0 if "--recover" in options else 1):
        return told.failed(2, ONE_ARGUMENT)
    text = ""
    if "--recover" not in options:
        given = os.fsencode(patches[0]) if patches else stdin.read(4 * MAX_PATCH + 1)
        if not given:
            return told.failed(2, USAGE)
        digest = _value(options, SHA256)
        if digest and _sha256(given) != digest:
            return told.failed(1, ANOTHER_PATCH)
        try:
            text = given.decode()
        except UnicodeDecodeError:
            return told.failed(1, NOT_UTF8)
    check = "--check" in options
    descriptor = os.open(".", FOLDER)
    try:
        root = Root(descriptor, os.getcwd(), _value(options, DIRECTORY))  # noqa: PTH109 - os is all that is used here
        if "--recover" in options:
            told.recovered = recover(root)
        else:
            _carry_out(text, root, told, compat="--compat" in options, check=check)
    except PatchError as error:
        if isinstance(error, NotRecovered):
            told.recovered = Recovered("waiting")
        return told.failed(1, error.verified if check else str(error))
    finally:
        os.close(descriptor)
    return told


def _value(options: Sequence[str], name: str) -> str:
    return next((option.removeprefix(name) for option in options if option.startswith(name)), "")


def _sha256(content: bytes) -> str:
    try:  # OpenSSL's, by way of hashlib, is three milliseconds of every start
        from _sha2 import sha256  # type: ignore[import-not-found]
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found] # its name up to 3.11
        except ImportError:
            from hashlib import sha256
    return str(sha256(content).hexdigest())


def as_json(told: Told, *, compat: bool) -> str:
    """Put it as one line; without the module json, which is eight milliseconds of every start."""
    total = sum(
        len(content or b"") for change in told.changes for content in (change.before, change.after, change.over)
    )
    contents = total <= MAX_SHOWN and not any(
        (change.seen and change.before is None) or (change.over_seen and change.over is None) for change in told.changes
    )
    umask = os.umask(0o022)
    os.umask(umask)
    changes = [_change(change, 0o666 & ~umask, contents=contents, compat=compat) for change in told.changes]
    found = told.recovered
    recovered_ = _object(
        found=_text(found.found),
        **{name: f"[{','.join(map(_text, getattr(found, name)))}]" for name in ("restored", "removed", "kept")},
    )
    return (
        _object(
            ok=_truth(told.status == 0),
            stdout=_text(told.stdout),
            stderr=_text(told.stderr),
            contents=_truth(contents),
            changes=f"[{','.join(changes)}]",
            recovered=recovered_,
        )
        + "\n"
    )


def _change(change: Change, fresh: int, *, contents: bool, compat: bool) -> str:
    moves = change.destination.parts != change.target.parts
    there = change.over_seen if moves else change.seen
    # A replaced file's mode is kept; that of a moved one goes along, but not with upstream.
    kept = there if compat else change.seen or there
    return _object(
        path=_text(change.target.relative),
        kind=_text(change.kind),
        move_to=_text(change.move_to.relative) if change.move_to else "null",
        before=_bytes(change.before) if contents else "null",
        after=_bytes(change.after) if contents else "null",
        over=_bytes(change.over) if contents else "null",
        mode_before=_mode(change.seen),
        mode_after="null" if change.after is None else _mode(kept) if kept else str(fresh),
        mode_over=_mode(change.over_seen),
    )


def _object(**fields: str) -> str:
    return "{" + ",".join([f'"{name}":{value}' for name, value in fields.items()]) + "}"


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _bytes(content: bytes | None) -> str:
    return "null" if content is None else f'"{binascii.b2a_base64(content, newline=False).decode()}"'


def _mode(seen: os.stat_result | None) -> str:
    return "null" if seen is None else str(stat.S_IMODE(seen.st_mode) & 0o777)


def _truth(value: object) -> str:
    return "true" if value else "false"
