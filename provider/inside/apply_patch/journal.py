"""
Changes -> files, all or none, also when the program is killed at any point.

Everything that a patch will touch is written to a journal in the root before anything else is done. Then

    folders are made, and new contents written, under names of ours beside the files that they are for;
    what was written is noted in the journal, by inode;
    each old file gets a name of ours beside its own, and the new one takes its place;
    the journal is renamed: that moment, and no other, makes the patch a fact;
    old files and the journal are removed.

Whoever comes next finds the journal under its first name and undoes what it lists, or under its second and finishes
the clearing away. Both can be killed and begun again. A lock on the root folder tells a patch that is under way from
one that is not: the kernel lets go of it with the process, and all containers have one kernel.

A process that is killed loses nothing that it has written, so nothing is synced to disk, as `git apply` does not. After
a loss of power the filesystem has the files that it has, and neither the old nor the new ones are promised.

The journal lies where code that nobody trusts can write it. It is read as data of a hostile author: bounded, checked,
its paths opened like those of a patch, without following any link; the names beside them are made up here from a
number. Whatever is odd is removed and nothing is done. A forged one moves files in the workspace, which its author can
do as well. A file that somebody has changed since is left to them.
"""

from __future__ import annotations

import binascii
import errno
import fcntl
import os
import stat
import time

from .grammar import MAX_OPERATIONS, Value
from .paths import BESIDE, DONE, JOURNAL, ApplyError, os_error, too_large
from .tree import CLOSED, READ, Failing, Folders, existing, is_there, make_folder, read_all, regular, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, Literal

    from .paths import Root, Target
    from .tree import Change

MAX_JOURNAL: Final = 32 * 1024 * 1024
MAX_ENTRIES: Final = 20 * MAX_OPERATIONS  # folders are counted as well
WAIT = 5.0  # seconds for another patch; half of what a call has by default, so that its caller still hears why
UNDER_WAY = "Failed to begin: another patch is being applied in this workspace"
NOT_LOCKED = "Failed to lock the workspace: "
NOT_RECOVERED = "Failed to undo an earlier patch that was killed: "

REPLACE, ADD, REMOVE, MAKE = "=", "+", "-", "/"
_STAGE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSED
_TOKEN_BYTES = 8
_HEX = frozenset("0123456789abcdef")
_FRAME = b"%08x %08x\n"
_FRAME_BYTES = 18
NAME_MAX: Final = 255  # bytes, of the kernel
_IDENTITY_BYTES = 64  # three numbers of 64 bits
_NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_NOT_OURS = {*_NOWHERE, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EACCES, errno.EPERM}

Seen = tuple[int, int, int]
"""What tells whether a file is still the same: inode, size, and the time of its last change."""


class Step:
    """One name that changes: what it is, and what it shall be."""

    __slots__ = ("content", "expected", "failure", "kind", "mode", "parts", "written")

    def __init__(self, kind: str, target: Target, expected: os.stat_result | None, failure: str) -> None:
        self.kind, self.parts, self.written = kind, target.parts, target.written
        self.expected, self.failure = expected, failure
        self.content = b""
        self.mode: int | None = None


class Journal:
    """What is to be done, in a form that can be undone from it alone."""

    __slots__ = ("entries", "staged", "token")

    def __init__(self, token: str, entries: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        self.token = token
        self.entries = entries
        """Kind and path from the root; folders to be made come first, each after the one above it."""
        self.staged: Sequence[Seen | None] = ()
        """Of each entry, once all new contents are written; before that, none has replaced anything."""

    def new(self, number: int) -> str:
        return f"{BESIDE}{self.token}.{number}.new"

    def old(self, number: int) -> str:
        return f"{BESIDE}{self.token}.{number}.old"


class Recovered(Value):
    """What became of a patch that was killed: undone, finished, or still waiting since nothing could be written."""

    __slots__ = ("found", "kept", "removed", "restored")

    def __init__(self, found: Literal["nothing", "undone", "finished", "odd", "waiting"] = "nothing") -> None:
        self.found = found
        self.restored: list[str] = []
        self.removed: list[str] = []
        """Files that it had added."""
        self.kept: list[str] = []
        """Changed by somebody since, and left as they are."""


class NotRecovered(ApplyError):
    """A patch that was killed is still to be undone."""


def lock(root: Root) -> None:
    """
    Wait until no other patch is under way in the workspace.

    Raises:
        ApplyError: one still is, after a while.
    """
    # Of a folder: that lock is the kernel's own also where a file's is up to a server (NFS) or a daemon (FUSE).
    until = time.monotonic() + WAIT
    while True:
        try:
            return fcntl.flock(root.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                message = f"{NOT_LOCKED}{os_error(error)}"
                raise ApplyError(message) from error
            if time.monotonic() > until:
                raise ApplyError(UNDER_WAY) from error
        time.sleep(0.005)


def unlock(root: Root) -> None:
    fcntl.flock(root.descriptor, fcntl.LOCK_UN)


def commit(changes: Sequence[Change], folders: Folders) -> None:
    """
    Make the changes, all or none; the root is locked, and nothing is left of earlier patches.

    Raises:
        ApplyError: one could not be made; the files are as they were.
    """
    steps = _steps(changes)
    missing = _missing_folders(steps, folders)
    entries = [(MAKE, parts) for parts in missing] + [(step.kind, step.parts) for step in steps]
    journal = Journal(os.urandom(_TOKEN_BYTES).hex(), entries)
    descriptor = _begin(journal, folders, steps[0].failure)
    try:
        try:
            for parts, written in missing.items():
                with Failing(f"Failed to create parent directories for {written}"):
                    make_folder(parts, folders)
            first = len(missing)
            staged = [_stage(step, journal.new(at), folders) for at, step in enumerate(steps, first)]
            journal.staged = [None] * first + staged
            with Failing(steps[0].failure):
                write_all(descriptor, _framed(_spelled(journal.staged)))
        finally:
            with Failing(steps[0].failure):  # what was written may be refused only now
                os.close(descriptor)
        for at, step in enumerate(steps, first):
            with Failing(step.failure):
                _take_place(step, journal.new(at), journal.old(at), folders)
        with Failing(steps[0].failure):
            os.rename(JOURNAL, DONE, src_dir_fd=folders.root.descriptor, dst_dir_fd=folders.root.descriptor)
    except BaseException:
        try:
            undo(journal, folders)
            os.unlink(JOURNAL, dir_fd=folders.root.descriptor)
        except OSError:  # the journal stays, and who comes next tries again
            pass
        raise
    # From here on it is a fact, whatever fails; what stays behind is for who comes next.
    _clear_away(journal, folders, keep_if_failed=True)


def _steps(changes: Sequence[Change]) -> list[Step]:
    """Put the changes as names that change."""
    steps: list[Step] = []
    for change in changes:
        to, moves = change.destination, change.destination.parts != change.target.parts
        if change.after is not None:
            there = change.over_seen if moves else change.seen
            step = Step(REPLACE if there else ADD, to, there, f"Failed to write file {to.written}")
            step.content = change.after
            kept = change.seen or there
            step.mode = kept and kept.st_mode & 0o777
            steps.append(step)
        if change.after is None or moves:
            verb = "Failed to delete file" if change.after is None else "Failed to remove original"
            steps.append(Step(REMOVE, change.target, change.seen, f"{verb} {change.target.written}"))
    return steps


def _missing_folders(steps: Sequence[Step], folders: Folders) -> dict[tuple[str, ...], str]:
    """Find the folders that are to be made, each after the one above it; and for which file, as written."""
    missing: dict[tuple[str, ...], str] = {}
    for step in steps:
        if step.kind != ADD:
            continue
        with Failing(step.failure):
            _check_names(step.parts[-1:])
        with Failing(f"Failed to create parent directories for {step.written}"):
            new: list[tuple[str, ...]] = []
            parts = step.parts[:-1]
            _check_names(parts)
            while parts not in missing and not is_there(parts, folders):
                new.append(parts)
                parts = parts[:-1]
            missing.update(dict.fromkeys(reversed(new), step.written))
    return missing


def _check_names(parts: Sequence[str]) -> None:
    """What no file can be called is not in a journal either."""
    if not all(map(_is_name, parts)):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def _begin(journal: Journal, folders: Folders, failure: str) -> int:
    """Write the journal; gives its descriptor."""
    content = "\0".join([journal.token, *(kind + "/".join(parts) for kind, parts in journal.entries)])
    with Failing(failure):
        framed = _framed(os.fsencode(content))
        if len(framed) > MAX_JOURNAL // 2 or len(journal.entries) > MAX_ENTRIES:
            raise too_large()
        descriptor = os.open(JOURNAL, _STAGE, 0o600, dir_fd=folders.root.descriptor)
        try:
            write_all(descriptor, framed)
        except BaseException:
            os.close(descriptor)
            _remove(JOURNAL, folders.root.descriptor)
            raise
    return descriptor


def _stage(step: Step, name: str, folders: Folders) -> Seen | None:
    """Write the new content beside its destination."""
    if step.kind == REMOVE:
        return None
    with Failing(f"Failed to create parent directories for {step.written}"):
        folder = folders.open(step.parts[:-1])
    with Failing(step.failure):
        descriptor = os.open(name, _STAGE, 0o666 if step.mode is None else step.mode, dir_fd=folder)
        try:
            if step.mode is not None:
                os.fchmod(descriptor, step.mode)
            write_all(descriptor, step.content)
            return _identity(os.fstat(descriptor))
        finally:
            os.close(descriptor)


def _take_place(step: Step, new: str, old: str, folders: Folders) -> None:
    folder, name = folders.open(step.parts[:-1]), step.parts[-1]
    if step.kind == ADD:
        try:
            os.link(new, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:  # not every filesystem has links
            if error.errno == errno.EEXIST or existing(folder, name):
                raise
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.unlink(new, dir_fd=folder)
        return
    _set_aside(name, old, folder, keep=step.kind == REPLACE)
    now = regular(os.stat(old, dir_fd=folder, follow_symlinks=False))
    if step.expected and _identity(now) != _identity(step.expected):
        raise OSError(errno.ESTALE, "changed since it was read")
    if step.kind == REPLACE:
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)


def _set_aside(name: str, old: str, folder: int, *, keep: bool) -> None:
    """Give a file a name of ours; its own stays or, without `keep` or links, is free."""
    try:
        if keep:
            os.link(name, old, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        keep = False
    if not keep:
        os.rename(name, old, src_dir_fd=folder, dst_dir_fd=folder)


def recover(root: Root) -> Recovered:
    """
    Undo, or clear away after, a patch that was killed; nothing, where there is none.

    Raises:
        NotRecovered: it could not be undone now.
        ApplyError: another one is under way.
    """
    lock(root)
    try:
        with Folders(root) as folders:
            return recovered(folders)
    finally:
        unlock(root)


def recovered(folders: Folders) -> Recovered:
    """`recover`, under a lock that is already held."""
    told = Recovered()
    try:
        for name in (JOURNAL, DONE):  # at most one of them is ours
            journal = _read_journal(name, folders.root.descriptor)
            if isinstance(journal, Journal) and name == DONE:
                told.found = "finished"
                _clear_away(journal, folders)
                continue
            if isinstance(journal, Journal):
                told = undo(journal, folders)
            elif journal:
                told.found = "odd"
            if journal:
                _discard(name, folders.root.descriptor)
    except OSError as error:
        message = f"{NOT_RECOVERED}{os_error(error)}"
        raise NotRecovered(message) from error
    return told


def undo(journal: Journal, folders: Folders) -> Recovered:
    """Bring back what was; whatever has been undone before stays as it is."""
    told = Recovered("undone")
    for number in reversed(range(len(journal.entries))):
        kind, parts = journal.entries[number]
        try:
            folder = folders.open(parts[:-1])
        except OSError as error:
            if error.errno not in _NOWHERE:
                raise
            continue  # never made, or somebody has moved it: nothing of ours is below that name
        if kind == MAKE:
            _remove_empty(parts[-1], folder)
            continue
        staged = journal.staged[number] if journal.staged else None
        path = "/".join(parts)
        if kind == ADD:
            if staged and _identity(_look(parts[-1], folder)) == staged:
                os.unlink(parts[-1], dir_fd=folder)
                told.removed.append(path)
        else:
            _put_back(path, journal.old(number), staged, folder, told)
        if kind != REMOVE:
            _remove(journal.new(number), folder)
    for paths in (told.restored, told.removed, told.kept):
        paths.reverse()
    return told


def _put_back(path: str, old: str, staged: Seen | None, folder: int, told: Recovered) -> None:
    name = path.rpartition("/")[2]
    backup, now = _look(old, folder), _look(name, folder)
    if backup is None:
        return
    if now and os.path.samestat(now, backup):
        _remove(old, folder)  # a second name, and nothing has come of it yet
    elif now is None or (staged and _identity(now) == staged):
        os.rename(old, name, src_dir_fd=folder, dst_dir_fd=folder)
        told.restored.append(path)
    elif stat.S_ISREG(backup.st_mode):
        _remove(old, folder)
        told.kept.append(path)


def _clear_away(journal: Journal, folders: Folders, *, keep_if_failed: bool = False) -> None:
    """Remove the old files, and then the journal, as far as that can be done."""
    failed = False
    for number, (kind, parts) in enumerate(journal.entries):
        try:
            if kind in {REPLACE, REMOVE}:
                os.unlink(journal.old(number), dir_fd=folders.open(parts[:-1]))
        except OSError as error:
            failed = failed or error.errno not in _NOWHERE
    try:
        if not (failed and keep_if_failed):
            os.unlink(DONE, dir_fd=folders.root.descriptor)
    except OSError:
        if not keep_if_failed:
            raise


def _read_journal(name: str, root: int) -> Journal | bool:
    """Read a journal; True for something that is none, False for nothing."""
    try:
        descriptor = os.open(name, READ, dir_fd=root)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > MAX_JOURNAL:
            return True
        return _parsed(read_all(descriptor, seen.st_size, MAX_JOURNAL)) or True
    except OSError:
        return True
    finally:
        os.close(descriptor)


def _parsed(content: bytes) -> Journal | None:
    first, content = _unframed(content)
    second, _ = _unframed(content)
    if first is None:
        return None  # half of one: its author had not begun with anything else
    token, *lines = os.fsdecode(first).split("\0")
    if len(token) != 2 * _TOKEN_BYTES or not _HEX.issuperset(token) or len(lines) > MAX_ENTRIES:
        return None
    entries: list[tuple[str, tuple[str, ...]]] = []
    for line in lines:
        kind, parts = line[:1], tuple(line[1:].split("/"))
        if kind not in {REPLACE, ADD, REMOVE, MAKE} or not all(map(_is_name, parts)):
            return None
        entries.append((kind, parts))
    journal = Journal(token, entries)
    if second is not None:
        journal.staged = _read_staged(second)
        if len(journal.staged) != len(entries):
            return None
    return journal


def _is_name(part: str) -> bool:
    return part not in {"", ".", ".."} and len(os.fsencode(part)) <= NAME_MAX


def _framed(content: bytes) -> bytes:
    return _FRAME % (binascii.crc32(content), len(content)) + content


def _unframed(content: bytes) -> tuple[bytes | None, bytes]:
    """Take a frame off; None for what is not a whole one. The sum finds what was cut short, not who forges."""
    try:
        end = _FRAME_BYTES + int(content[9 : _FRAME_BYTES - 1], 16)
    except ValueError:
        return None, b""
    body = content[_FRAME_BYTES:end]
    return (body, content[end:]) if _framed(body) == content[:end] else (None, b"")


def _spelled(staged: Sequence[Seen | None]) -> bytes:
    return b"\n".join([b"%d %d %d" % seen if seen else b"" for seen in staged])


def _read_staged(content: bytes) -> list[Seen | None]:
    """Read identities; none at all where one cannot be one."""
    staged: list[Seen | None] = []
    for line in content.split(b"\n"):
        numbers = line[:_IDENTITY_BYTES].split(b" ")
        if line and (len(numbers) != len(("inode", "size", "time")) or not all(map(bytes.isdigit, numbers))):
            return []
        staged.append((int(numbers[0]), int(numbers[1]), int(numbers[2])) if line else None)
    return staged


def _identity(seen: os.stat_result | None) -> Seen | None:
    return seen and (seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _look(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        return None


def _remove(name: str, folder: int) -> None:
    if _look(name, folder):
        os.unlink(name, dir_fd=folder)


def _remove_empty(name: str, folder: int) -> None:
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise


def _discard(name: str, root: int) -> None:
    """Remove a journal, or what lies in its place."""
    try:
        os.unlink(name, dir_fd=root)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=root)
