"""
Operations -> changes, by reading the files; nothing is written here.

No link is ever followed: every folder is opened relative to the descriptor of the one above it. Only regular files are
read, replaced or removed.
"""

from __future__ import annotations

import errno
import os
import stat

from .grammar import Add, Delete, ParseError
from .matching import new_content
from .paths import ApplyError, does_not_fit, os_error, resolve, too_large

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, Literal, Self

    from .grammar import Operation
    from .paths import Root, Target

MAX_FILE: Final = 64 * 1024 * 1024
MAX_SHOWN: Final = 32 * 1024 * 1024
"""Of all the old contents together: what is above is not kept for showing."""
MAX_OPEN = 128  # folders at a time; the usual limit for a process is 1,024 files
PATH_MAX: Final = 4096  # of the kernel for a whole path; nobody else could name what lies deeper

NOTHING = "No files were modified."
CLOSED = os.O_CLOEXEC | os.O_NOFOLLOW
FOLDER = os.O_RDONLY | os.O_DIRECTORY | CLOSED
READ = os.O_RDONLY | os.O_NONBLOCK | CLOSED  # NONBLOCK: a pipe in the file's place must not hold us up
_PIECE = 1024 * 1024


class Folders:
    """Descriptors of folders below a root, opened link by link of the chain, and kept for the files that follow."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._open: dict[tuple[str, ...], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._open:
            _close_folder(self._open.popitem()[1])

    def open(self, parts: tuple[str, ...]) -> int:
        """Give a folder's descriptor, which is good until the next call."""
        known = self._open.get(parts)
        if known is not None:
            return known
        if len(os.fsencode("/".join(parts))) >= PATH_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if len(self._open) >= MAX_OPEN:
            self.close()
        depth = len(parts)
        while depth and parts[:depth] not in self._open:
            depth -= 1
        base = folder = self._open[parts[:depth]] if depth else self.root.descriptor
        for name in parts[depth:]:
            above = folder
            try:
                folder = os.open(name, FOLDER, dir_fd=above)
            finally:
                if above != base:
                    _close_folder(above)
        if folder != base:
            self._open[parts] = folder
        return folder


def _close_folder(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:  # it is closed all the same, and nothing was written to it
        return


class Failing:
    """Turns what the system says into what the program says."""

    __slots__ = ("_message",)

    def __init__(self, message: str) -> None:
        self._message = message

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise ApplyError(self._message) from error


class Change:
    """What one operation comes to. Contents are None where there is no file, or it is too large to be shown."""

    __slots__ = ("after", "before", "kind", "move_to", "over", "over_seen", "seen", "target")

    def __init__(
        self,
        kind: Literal["add", "delete", "update"],
        target: Target,
        *,
        move_to: Target | None = None,
        before: bytes | None = None,
        after: bytes | None = None,
        seen: os.stat_result | None = None,
    ) -> None:
        self.kind, self.target, self.move_to, self.before, self.after = kind, target, move_to, before, after
        self.seen = seen
        """The file as it was found; of one that is added, the one that it replaces."""
        self.over: bytes | None = None
        self.over_seen: os.stat_result | None = None
        """What a move replaces where it goes to."""

    @property
    def destination(self) -> Target:
        return self.move_to or self.target


def compute(operations: Sequence[Operation], root: Root, *, compat: bool = False) -> list[Change]:
    """
    Find out what a patch comes to, against the files as they are; writes nothing.

    Raises:
        ParseError: two operations are about one path.
        ApplyError: one of them cannot be done.
    """
    with Folders(root) as folders:
        return computed(operations, folders, compat=compat)


def computed(operations: Sequence[Operation], folders: Folders, *, compat: bool = False) -> list[Change]:
    if not operations:
        raise ApplyError(NOTHING, "patch rejected: empty patch")
    taken: set[tuple[str, ...]] = set()
    changes: list[Change] = []
    held = 0
    for operation in operations:
        change = compute_one(operation, folders, compat=compat)
        for target in {change.target.parts: change.target, change.destination.parts: change.destination}.values():
            if target.parts in taken and not compat:
                message = f"multiple operations target {target.written}"
                raise ParseError(message)
            taken.add(target.parts)
        held += len(change.before or b"") + len(change.over or b"")
        if held > MAX_SHOWN:
            change.before = change.over = None
        changes.append(change)
    return changes


def compute_one(operation: Operation, folders: Folders, *, compat: bool) -> Change:
    target = resolve(operation.path, folders.root)
    if isinstance(operation, Add):
        change = Change("add", target, after=operation.content.encode())
        change.before, change.seen = _what_is_there(folders, target)
        return change
    try:
        # A file that goes may be of any size; only its content is not kept then.
        before, seen = _read_file(folders, target, may_be_large=isinstance(operation, Delete))
    except OSError as error:
        why = os_error(error)
        if isinstance(operation, Delete):
            message = f"Failed to delete file {target.written}"
            raise ApplyError(message, f"Failed to read {target.absolute}: {why}") from error
        does_not_fit("Failed to read file to update ", target, f": {why}")
    if isinstance(operation, Delete):
        return Change("delete", target, before=before, seen=seen)
    move_to = None if operation.move_to is None else resolve(operation.move_to, folders.root)
    after = new_content(before or b"", operation, target, compat=compat)
    change = Change("update", target, move_to=move_to, before=before, after=after, seen=seen)
    if move_to and move_to.parts != target.parts:
        change.over, change.over_seen = _what_is_there(folders, move_to)
    return change


def _what_is_there(folders: Folders, target: Target) -> tuple[bytes | None, os.stat_result | None]:
    """Look at a file that is going to be replaced; whatever is in the way there is found out by who writes."""
    seen = None
    try:
        seen = existing(folders.open(target.parts[:-1]), target.parts[-1])
        return _read_file(folders, target, may_be_large=True) if seen else (None, None)
    except OSError:
        return None, seen


def _read_file(folders: Folders, target: Target, *, may_be_large: bool) -> tuple[bytes | None, os.stat_result]:
    folder = folders.open(target.parts[:-1])
    descriptor = os.open(target.parts[-1], READ, dir_fd=folder)
    try:
        seen = regular(os.fstat(descriptor))
        if seen.st_size > (MAX_SHOWN if may_be_large else MAX_FILE):
            if may_be_large:
                return None, seen
            raise too_large()
        return read_all(descriptor, seen.st_size, MAX_FILE), seen
    finally:
        os.close(descriptor)


def read_all(descriptor: int, expected: int, limit: int) -> bytes:
    """Read to the end, but never more than the limit, also of a file that grows."""
    pieces = [os.read(descriptor, min(expected, limit) + 1)]
    left = limit - len(pieces[0])
    while pieces[-1] and left > 0:
        pieces.append(os.read(descriptor, min(_PIECE, left)))
        left -= len(pieces[-1])
    return b"".join(pieces)[:limit]


def regular(seen: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(seen.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(seen.st_mode) else errno.EINVAL
        raise OSError(number, os.strerror(number))
    return seen


def existing(folder: int, name: str) -> os.stat_result | None:
    """Look at a name; None when there is nothing, OSError when it is no regular file."""
    try:
        return regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def is_there(parts: tuple[str, ...], folders: Folders) -> bool:
    try:
        folders.open(parts)
    except FileNotFoundError:
        return False
    return True


def make_folder(parts: tuple[str, ...], folders: Folders) -> None:
    folder = folders.open(parts[:-1])
    try:
        os.mkdir(parts[-1], dir_fd=folder)
    except FileExistsError:  # if it is none, who opens it will say so
        return


def write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
