"""
Protected names: what a run finds in its workspace and can only read, such as `.git`. Each is mounted over itself,
read-only, so that it can be neither written nor removed nor renamed, by nobody inside.

A mount holds a name only where the name is itself in the mounted folder, so only names of the first level are taken: a
parent could be renamed, and a new one made in its place. Three more ways round are closed here:

- A link: the mount would be on what it leads to, and the link itself could be replaced. Refused.
- A name that is not there yet: the run would make it. An empty directory, the placeholder, holds its place; git and
  others take an empty `.git` for none. It goes when the provider closes, if it is still empty and no other provider's;
  a provider that is killed leaves it behind.
- A pointer: `.git` as a file, or `commondir` in it, may lead to a folder of the same workspace, where the hooks then
  are. Refused, unless that folder's first-level name is protected as well.

So is a file with a second name, through which it could be written. What else a protected file names (a hooksPath, say),
and second names of files within a protected folder, are not looked for.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from provider.errors import CallError
from provider.model import Protected, Workspace
from provider.workspace import FOLDER, open_workspace

MAX_NAMES = 32
_MAX_NAME_BYTES = 255
_MAX_POINTER_BYTES = 4096
_TRIES = 10
_POINTER = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def find_protected(workspace: Workspace, names: Sequence[str]) -> tuple[Protected, ...]:
    """
    Pin what is to be protected, in the order of the names.

    Raises:
        CallError: one cannot be protected, and why.
    """
    wanted = _check_names(names)
    if not wanted:
        return ()
    with _opened(workspace) as root:
        found = tuple(_find(root, name) for name in wanted)
    if ".git" in wanted:
        _check_pointers(workspace.path, wanted)
    return found


def _check_names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or len(names) > MAX_NAMES:
        message = f"protect takes a list of at most {MAX_NAMES} names"
        raise CallError(message)
    for name in names:
        try:
            size = len(os.fsencode(name))
        except UnicodeEncodeError:
            size = 0
        if name in {"", ".", ".."} or "/" in name or "\0" in name or not 0 < size <= _MAX_NAME_BYTES:
            message = f"protect {name!r}: must be a name of the workspace's first level; of a deeper one, name its top"
            raise CallError(message)
    return tuple(sorted(set(names)))


@contextlib.contextmanager
def _opened(workspace: Workspace) -> Iterator[int]:
    try:
        root = open_workspace(workspace)
    except OSError as error:
        message = f"workspace {workspace.path}: {error.strerror}"
        raise CallError(message) from error
    try:
        yield root
    finally:
        os.close(root)


def _find(root: int, name: str) -> Protected:
    try:
        status = os.lstat(name, dir_fd=root)
    except OSError as error:
        message = f"protect {name!r}: {error.strerror}"
        raise CallError(message) from error
    if stat.S_ISLNK(status.st_mode):
        why = "is a symbolic link, which a run could replace; protect what it leads to, and make it no link"
    elif not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        why = "is neither a file nor a directory"
    elif stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        why = f"has {status.st_nlink} names, by another of which a run could write it; make it a copy"
    else:
        return Protected(name=name, device=status.st_dev, inode=status.st_ino)
    message = f"protect {name!r}: it {why}"
    raise CallError(message)


def _check_pointers(workspace: Path, names: Sequence[str]) -> None:
    """See that git is not led to a folder of the workspace that can be written."""
    repository = workspace / ".git"
    if not repository.is_dir():
        repository = _follow(workspace, repository, "gitdir:", names)
    if repository.is_dir():
        _follow(workspace, repository / "commondir", "", names)


def _follow(workspace: Path, pointer: Path, prefix: str, names: Sequence[str]) -> Path:
    """Where a pointer of git's leads. Raises CallError for a place that a run could write to."""
    text = _read(pointer)
    if text is None or not text.startswith(prefix):
        return pointer
    folder = pointer.parent
    target = Path(os.path.normpath(folder / text.removeprefix(prefix).strip()))
    try:
        real = target.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        message = f"protect '.git': {pointer} leads to {str(target)!r}: {error}"
        raise CallError(message) from error
    inside = [path for path in (target, real) if path.is_relative_to(workspace)]
    tops = {path.relative_to(workspace).parts[:1] for path in inside}
    if inside and (target != real or not tops <= {(name,) for name in names}):
        message = f"protect '.git': {pointer} leads to {target}, which a run could change; protect its first name too"
        raise CallError(message)
    return real


def _read(pointer: Path) -> str | None:
    try:
        descriptor = os.open(pointer, _POINTER)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"protect '.git': {pointer} cannot be read, so where it leads is not known: {error.strerror}"
        raise CallError(message) from error
    with os.fdopen(descriptor, "rb") as file:
        return os.fsdecode(file.read(_MAX_POINTER_BYTES)) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


class Placeholders:
    """
    Empty directories that hold the place of protected names until the provider closes.

    A mount goes with its directory, also when that is removed from without. So whoever uses an empty one has a lock on
    it, and who made it removes it only where nobody else has.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[Workspace, str], _Held] = {}

    def make(self, workspace: Workspace, names: Sequence[str]) -> None:
        """
        Make those that are missing, and hold what is empty.

        Raises:
            CallError: one cannot be made or held.
        """
        wanted = _check_names(names)
        if not wanted:
            return
        with _opened(workspace) as root:
            for name in wanted:
                try:
                    self._hold(workspace, root, name)
                except OSError as error:
                    message = f"protect {name!r}: its place cannot be held: {error.strerror}"
                    raise CallError(message) from error

    def _hold(self, workspace: Workspace, root: int, name: str) -> None:
        made = False
        for _ in range(_TRIES):
            held, status = self._held.get((workspace, name)), _status(root, name)
            if status is None:
                made = _make(workspace, root, name)
            elif not stat.S_ISDIR(status.st_mode) or (held and held.is_of(status)):
                return
            with contextlib.ExitStack() as stack:
                descriptor = os.open(name, FOLDER, dir_fd=root)
                stack.callback(os.close, descriptor)
                if not _is_empty(descriptor):
                    return  # nobody removes what is not
                if not _is_locked(descriptor):
                    continue  # its maker is about to remove it
                self._let_go(held)
                self._held[workspace, name] = _Held(descriptor, os.fstat(descriptor), made=made)
                stack.pop_all()
        raise TimeoutError(errno.EBUSY, "it comes and goes")

    async def close(self) -> None:
        """Remove those that are ours and still empty; when no sandbox is left."""
        while self._held:
            (workspace, name), held = self._held.popitem()
            with contextlib.suppress(CallError, OSError), _opened(workspace) as root:
                status = _status(root, name)
                if held.made and status and held.is_of(status):
                    fcntl.flock(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.rmdir(name, dir_fd=root)
            self._let_go(held)

    @staticmethod
    def _let_go(held: _Held | None) -> None:
        if held:
            os.close(held.descriptor)


class _Held:
    def __init__(self, descriptor: int, status: os.stat_result, *, made: bool) -> None:
        self.descriptor, self.made = descriptor, made
        self._identity = (status.st_dev, status.st_ino)

    def is_of(self, status: os.stat_result) -> bool:
        return self._identity == (status.st_dev, status.st_ino)


def _status(root: int, name: str) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=root)
    except FileNotFoundError:
        return None


def _is_empty(folder: int) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def _is_locked(folder: int) -> bool:
    """Lock it together with others; False where somebody has it for himself."""
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(workspace: Workspace, root: int, name: str) -> bool:
    try:
        os.mkdir(name, 0o755, dir_fd=root)
    except FileExistsError:
        return False  # somebody was faster; what it is now is looked at next
    if os.geteuid() == 0:
        os.chown(name, workspace.uid, workspace.gid, dir_fd=root, follow_symlinks=False)
    return True
