"""
Files and folders of the workspace, opened so that no link leads out of it, also when somebody swaps one in meanwhile.

`place` follows the links of a path by name and holds the place that they lead to against the same rules as the path
itself. What comes after trusts no name: each component is opened with O_NOFOLLOW relative to the descriptor of the one
above, so a link that was not there for `place` is an error and never followed. Only regular files are read or replaced;
a file is replaced by a rename in its own folder, so that it is the old one or the new one and never half of it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from .deadline import look
from .encoding import LONGEST_MARK, mark, shown
from .errors import PathViolation, StepFailure
from .paths import OWN_FILES, resolve_read, resolve_write

PIECE: Final = 1024 * 1024
MOST_ENTRIES: Final = 100_000
MOST_DEPTH: Final = 128
LONGEST_LINE: Final = 1024 * 1024

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_STAGE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_MEANING: Final = {
    errno.ENOENT: "does not exist",
    errno.EISDIR: "is a directory, not a file",
    errno.ENOTDIR: "is not a directory, lies below a file, or has become a link",
    errno.ELOOP: "has become a link",
    errno.EACCES: "may not be opened by this user",
    errno.EPERM: "may not be changed by this user",
    errno.EROFS: "is on a file system that is read-only",
    errno.ENOSPC: "does not fit: no space is left on the device",
    errno.EDQUOT: "does not fit: the quota is used up",
    errno.EFBIG: "would be larger than a file may be here",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.ENOTEMPTY: "is not empty: somebody writes into it",
    errno.EXDEV: "is on another file system than its target; copy it and delete it",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a folder, seen without following it."""

    path: str
    """Relative to where the walk began."""
    kind: str
    """`file`, `folder`, `link`, `other`, or `denied` for a folder that cannot be opened."""
    size: int = 0

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def depth(self) -> int:
        return self.path.count("/")


@contextlib.contextmanager
def saying(path: str) -> Iterator[None]:
    """Turn what the system says into what the agent reads."""
    try:
        yield
    except OSError as error:
        meaning = _MEANING.get(error.errno or 0) or f"cannot be used: {error.strerror or error}"
        message = f"{shown(path)} {meaning}"
        raise StepFailure(message) from error


def place(root: str, path: str, *, verb: str | None = None, follow: bool = True) -> str:
    """
    Where a path leads to, with every link on the way followed; the last one only with `follow`.

    With a verb the rules for writing hold there as well, otherwise those for reading.
    Raises: PathViolation, CompileError.
    """
    above, name = os.path.split(path)
    base = os.path.realpath(root)
    real = os.path.realpath(path) if follow or path == root else f"{os.path.realpath(above)}/{name}"
    if real != base and not real.startswith(f"{base}/"):
        message = f"{shown(path)!r} leads out of the sandbox through a link"
        raise PathViolation(message)
    named = root + real[len(base) :]
    if named != path:
        return resolve_read(named, root) if verb is None else resolve_write(verb, named, root)
    return named


@contextlib.contextmanager
def _held(root: str, real: str, *, create: bool = False) -> Iterator[int]:
    """The folder at a place, by its descriptor."""
    held = os.open(os.path.realpath(root), _FOLDER)
    try:
        for part in real[len(root) :].split("/"):
            if part:
                held, above = _step(part, held, create=create), held
                os.close(above)
        yield held
    finally:
        os.close(held)


def _step(part: str, above: int, *, create: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, 0o755, dir_fd=above)
    return os.open(part, _FOLDER, dir_fd=above)


@contextlib.contextmanager
def _parent(
    root: str, path: str, *, verb: str | None = None, follow: bool = True, create: bool = False
) -> Iterator[tuple[int, str]]:
    """The folder that holds the last component, and that component's name."""
    real = place(root, path, verb=verb, follow=follow)
    if real == root:
        message = f"{shown(path)} is the sandbox's root itself; name something below it"
        raise StepFailure(message)
    folder, _, name = real.rpartition("/")
    with saying(path), _held(root, folder, create=create) as held:
        yield held, name


@contextlib.contextmanager
def reading(root: str, path: str) -> Iterator[BinaryIO]:
    """Open a regular file."""
    with _parent(root, path) as (held, name):
        # Looked at before the opening, because to open a pipe or a device is already to do something to it.
        _regular(path, os.stat(name, dir_fd=held, follow_symlinks=False))
        descriptor = os.open(name, _READ, dir_fd=held)
        with os.fdopen(descriptor, "rb") as file:
            _regular(path, os.fstat(file.fileno()))
            yield file


def _regular(path: str, info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        message = f"{shown(path)} {_MEANING[errno.EISDIR]}"
        raise StepFailure(message)
    if not stat.S_ISREG(info.st_mode):
        message = f"{shown(path)} is no regular file (it is a link, a pipe, a socket or a device), so it is left alone"
        raise StepFailure(message)


def content(root: str, path: str, most: int) -> bytes:
    """Read a whole file. Raises StepFailure for one of more than `most` bytes."""
    with reading(root, path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        message = f"{shown(path)} has more than {most} bytes; read it with FileHead, FileTail or FileSearch"
        raise StepFailure(message)
    return data


def pieces(file: BinaryIO, deadline: float) -> Iterator[bytes]:
    """The rest of a file, a piece at a time."""
    while piece := file.read(PIECE):
        look(deadline)
        yield piece


def text_lines(path: str, file: BinaryIO, deadline: float) -> Iterator[str]:
    r"""Lines as text, without their ends, which may be `\n`, `\r\n` or `\r`."""
    found, encoding = mark(file.read(LONGEST_MARK))
    file.seek(len(found))
    text = io.TextIOWrapper(file, encoding, "replace")
    try:
        while line := text.readline(LONGEST_LINE):
            look(deadline)
            if len(line) == LONGEST_LINE and line[-1] != "\n":
                message = f"{shown(path)} has a line of more than {LONGEST_LINE} characters; it is no text in lines"
                raise StepFailure(message)
            yield line.removesuffix("\n")
    finally:
        text.detach()


def status(root: str, path: str) -> os.stat_result | None:
    """What is there; None for nothing. Raises StepFailure for what cannot be looked at."""
    real = place(root, path)
    if real == root:
        return os.stat(os.path.realpath(root))  # noqa: PTH116 - of all verbs the most called
    try:
        folder, _, name = real.rpartition("/")
        with _held(root, folder) as held:
            return os.stat(name, dir_fd=held, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENAMETOOLONG}:
            return None
        with saying(path):
            raise


def replace(verb: str, root: str, path: str, data: Iterable[bytes], *, mode: int | None = None) -> None:
    """Write a file whole, in place of what was there; folders above it are made. Its permissions stay as they were."""
    with _parent(root, path, verb=verb, create=True) as (held, name):
        if mode is None:
            mode = _mode(path, name, held)
        staged = f".mk8-{os.urandom(8).hex()}.part"
        try:
            with os.fdopen(os.open(staged, _STAGE, 0o600, dir_fd=held), "wb") as file:
                for piece in data:
                    file.write(piece)
                os.fchmod(file.fileno(), mode)
            os.replace(staged, name, src_dir_fd=held, dst_dir_fd=held)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(staged, dir_fd=held)
            raise


def _mode(path: str, name: str, held: int) -> int:
    try:
        before = os.stat(name, dir_fd=held, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    _regular(path, before)
    return before.st_mode & 0o777


def append(verb: str, root: str, path: str, data: bytes) -> None:
    """Write to the end of a file; it and the folders above it are made where they are missing."""
    with _parent(root, path, verb=verb, create=True) as (held, name):
        _mode(path, name, held)
        with os.fdopen(os.open(name, _APPEND, 0o644, dir_fd=held), "ab") as file:
            _regular(path, os.fstat(file.fileno()))
            file.write(data)


def remove(verb: str, root: str, path: str) -> None:
    """Delete a file, or a link and not what it leads to. One that is not there is deleted already."""
    folder, _, name = place(root, path, verb=verb, follow=False).rpartition("/")
    with saying(path), contextlib.suppress(FileNotFoundError), _held(root, folder) as held:
        if path == root or stat.S_ISDIR(os.stat(name, dir_fd=held, follow_symlinks=False).st_mode):
            message = f"{shown(path)} is a directory, not a file; DirDelete deletes directories"
            raise StepFailure(message)
        os.unlink(name, dir_fd=held)


def move(verb: str, root: str, source: str, target: str) -> None:
    """Give a file another name, over a file that has it. A link is moved itself, not what it leads to."""
    with _parent(root, source, verb=verb, follow=False) as (old, name):
        if stat.S_ISDIR(os.stat(name, dir_fd=old, follow_symlinks=False).st_mode):
            message = f"{shown(source)} is a directory, not a file; FileMove moves files"
            raise StepFailure(message)
        with _parent(root, target, verb=verb, follow=False, create=True) as (new, wanted):
            os.replace(name, wanted, src_dir_fd=old, dst_dir_fd=new)


def make_folder(verb: str, root: str, path: str) -> None:
    """Make a folder and those above it, as far as they are missing."""
    real = place(root, path, verb=verb)
    with saying(path), _held(root, real, create=True):
        pass


def entries(root: str, path: str) -> list[Entry]:
    """What a folder holds, sorted by name."""
    real = place(root, path)
    with saying(path), _held(root, real) as held:
        return _list(held, "")


def _list(held: int, above: str) -> list[Entry]:
    found = []
    with os.scandir(held) as scanned:
        for one in scanned:
            found.append(Entry(above + one.name, _kind(one)))
            if len(found) > MOST_ENTRIES:
                _too_many()
    return sorted(found, key=lambda entry: entry.path)


def _kind(one: os.DirEntry[str]) -> str:
    if one.is_symlink():
        return "link"
    if one.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if one.is_file(follow_symlinks=False) else "other"


def _too_many() -> None:
    message = f"there are more than {MOST_ENTRIES} entries; name a folder further down"
    raise StepFailure(message)


def walk(
    root: str, path: str, *, deadline: float, depth: int | None = None, hidden: bool = True, sizes: bool = False
) -> Iterator[Entry]:
    """
    Everything below a folder, parents first, each folder sorted by name. Links are entries and are never followed.

    A folder that cannot be opened is `denied`; without `hidden`, names that begin with a dot are left out.
    """
    real = place(root, path)
    pending = entries(root, path)[::-1]
    seen = 0
    while pending:
        look(deadline)
        entry = pending.pop()
        seen += 1
        if seen > MOST_ENTRIES:
            _too_many()
        if not hidden and entry.name.startswith("."):
            continue
        if entry.kind == "folder" and entry.depth >= MOST_DEPTH:
            message = f"{shown(path)} is nested more than {MOST_DEPTH} folders deep; name a folder further down"
            raise StepFailure(message)
        if entry.kind == "folder" and (depth is None or entry.depth + 1 < depth):
            try:
                # Anew from the root each time, so that no tree is deep enough to use up descriptors.
                with _held(root, f"{real}/{entry.path}") as held:
                    pending += _list(held, f"{entry.path}/")[::-1]
            except OSError:
                entry = Entry(entry.path, "denied")
        elif entry.kind == "file" and sizes:
            entry = Entry(entry.path, "file", _size(root, f"{real}/{entry.path}"))
        yield entry


def _size(root: str, real: str) -> int:
    folder, _, name = real.rpartition("/")
    try:
        with _held(root, folder) as held:
            return os.stat(name, dir_fd=held, follow_symlinks=False).st_size
    except OSError:
        return 0


def remove_folder(verb: str, root: str, path: str, deadline: float) -> None:
    """
    Delete a folder with all that it holds, or nothing of it where it holds what must stay.

    Raises: StepFailure for the root, for what holds git's own files or the sandbox's configuration, and for no folder.
    """
    real = place(root, path, verb=verb, follow=False)
    kept = {".git", *OWN_FILES}
    for entry in walk(root, path, deadline=deadline):
        if entry.name.lower() in kept:
            message = f"{shown(path)} holds {shown(entry.path)}, which no script may delete; so all of it stays"
            raise StepFailure(message)
    with _parent(root, path, verb=verb, follow=False) as (held, name):
        os.close(os.open(name, _FOLDER, dir_fd=held))  # a link is no folder
        _empty(root, real, deadline)
        os.rmdir(name, dir_fd=held)


def _empty(root: str, real: str, deadline: float) -> None:
    """Delete what a folder holds; by a list of what is to do and not by recursion, which a deep tree would exhaust."""
    pending = [(real, False)]
    while pending:
        look(deadline)
        folder, emptied = pending.pop()
        with _held(root, folder) as held:
            listed = _list(held, "")
            folders = [entry.name for entry in listed if entry.kind == "folder"]
            if emptied:
                for name in folders:
                    os.rmdir(name, dir_fd=held)
                continue
            for entry in listed:
                if entry.kind != "folder":
                    os.unlink(entry.name, dir_fd=held)
        if folders:
            pending.append((folder, True))
            pending += [(f"{folder}/{name}", False) for name in folders]
