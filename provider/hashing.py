"""
Sha256 of files in a tree that untrusted code wrote, by descriptor; and the program that does it for half of them.

Only what is quick to import is imported: for thousands of small files `artifacts.py` starts this file as a program of
its own, on the second core (`python -I -S`, the tree's descriptor inherited, paths and answers by marshal, since JSON
takes longer to import than a thousand files to hash). Nothing else than the tree is reachable by what it is given.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import marshal
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 64
SMALL_BYTES = 64 * 1024
_BUFFER_BYTES = 256 * 1024  # stays in a core's own cache
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KIND = 0o170000
_KINDS = {
    stat.S_IFLNK: "symlink",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
_ABSENT = {errno.ENOENT, errno.ENAMETOOLONG}
_SWAPPED = {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}  # only when it changed between the look at it and the opening


class Fault(Exception):
    """Why a path is not hashed."""

    def __init__(self, problem: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem
        self.detail = detail


def _unstable() -> Fault:
    return Fault("unstable", "changed while it was being read")


def told(error: Fault | OSError) -> tuple[str, str]:
    """The problem, and what there is to say about it."""
    if isinstance(error, Fault):
        return error.problem, error.detail
    if error.errno in _SWAPPED:
        return "unstable", "changed while it was being opened"
    return "missing" if error.errno in _ABSENT else "unreadable", os.strerror(error.errno or errno.EIO)


def is_absent(error: OSError) -> bool:
    return error.errno in _ABSENT


class Found:
    """What became of some paths."""

    def __init__(self) -> None:
        self.hashed: list[tuple[str, int, str]] = []
        """Path, size, sha256."""
        self.faults: list[tuple[str, str, str]] = []
        """Path, problem, detail."""
        self.large: list[str] = []
        """Files that were left for later."""

    def add(self, other: Found) -> None:
        self.hashed += other.hashed
        self.faults += other.faults
        self.large += other.large


class Opened:
    """A directory below a root, for as long as it is looked at."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree, self._path = tree, path
        self._held = -1

    def __enter__(self) -> int:
        """Open it anew from the root each time, so that no tree is deep enough to use up descriptors."""
        parts = self._path.split("/") if self._path else []
        if len(parts) > MAX_DEPTH:
            raise Fault("too_many", f"more than {MAX_DEPTH} directories deep")  # noqa: EM101
        self._held = os.dup(self._tree.root)
        try:
            for part in parts:
                self._check(part, os.lstat(part, dir_fd=self._held))
                self._held, above = os.open(part, _DIRECTORY, dir_fd=self._held), self._held
                os.close(above)
                self._check(part, os.fstat(self._held))
        except BaseException:
            os.close(self._held)
            raise
        return self._held

    def __exit__(self, *raised: object) -> None:
        os.close(self._held)

    def _check(self, name: str, info: os.stat_result) -> None:
        if info.st_mode & _KIND != stat.S_IFDIR or info.st_dev != self._tree.device:
            raise self._tree.fault(name, info, stat.S_IFDIR)


class Tree:
    """A directory by its descriptor; threads of one collection share it."""

    def __init__(self, root: int, device: int, max_file_bytes: int, stopped: Callable[[], bool]) -> None:
        self.root, self.device, self.max_file_bytes, self.stopped = root, device, max_file_bytes, stopped

    def directory(self, path: str) -> Opened:
        return Opened(self, path)

    def fault(self, name: str, info: os.stat_result, wanted: int) -> Fault:
        """Return why it is not what is wanted: of another kind, or of another filesystem."""
        kind = info.st_mode & _KIND
        if kind == wanted:
            return Fault("unreadable", f"{name!r} is on another filesystem than the workspace")
        if wanted == stat.S_IFDIR and kind != stat.S_IFLNK:
            return Fault("missing", f"{name!r} is not a directory")
        problem = _KINDS.get(kind, "unreadable")
        return Fault(problem, f"{name!r} is a {problem}")

    def hash_batch(self, paths: list[str], most: int = sys.maxsize, *, look: bool = True) -> Found:
        """
        Say what each path is, but for files of more than `most` bytes, which are only listed.

        Without `look` they were files a moment ago, when their directory was read.
        """
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        found = Found()
        for folder, members in itertools.groupby(paths, lambda path: path.rpartition("/")[0]):
            if self.stopped():
                break
            group = list(members)
            try:
                with self.directory(folder) as parent:
                    self.hash_files(group, parent, buffer, most, found, look=look)
            except (Fault, OSError) as error:
                found.faults += [(path, *told(error)) for path in group]
        return found

    def hash_files(
        self, paths: list[str], parent: int, buffer: memoryview, most: int, found: Found, *, look: bool
    ) -> None:
        # For 10,000 files of 4 KiB the system calls and sha256 take 0.12 s, and all else in this loop 0.03 s. It was
        # 0.05 s while every question had a function of its own, so the questions stand here, one by one.
        for path in paths:
            if self.stopped():
                return
            name = path.rpartition("/")[2]
            try:
                if look:  # before the opening, because to open a pipe or a device is already to do something to it
                    seen = os.lstat(name, dir_fd=parent)
                    if seen.st_mode & _KIND != stat.S_IFREG or seen.st_dev != self.device:
                        raise self.fault(name, seen, stat.S_IFREG)
                file = os.open(name, _FILE, dir_fd=parent)
                try:
                    before = os.fstat(file)
                    if before.st_mode & _KIND != stat.S_IFREG or before.st_dev != self.device:
                        raise self.fault(name, before, stat.S_IFREG)
                    if before.st_size > most:
                        found.large.append(path)
                        continue
                    sha256 = self.hash_open(file, before.st_size, buffer)
                    after = os.fstat(file)
                finally:
                    os.close(file)
                if (
                    before.st_ctime_ns != after.st_ctime_ns
                    or before.st_mtime_ns != after.st_mtime_ns
                    or before.st_size != after.st_size
                    or before.st_ino != after.st_ino
                ):
                    raise _unstable()
            except (Fault, OSError) as error:
                found.faults.append((path, *told(error)))
            else:
                found.hashed.append((path, before.st_size, sha256))

    def hash_open(self, file: int, size: int, buffer: memoryview) -> str:
        if size > self.max_file_bytes:
            raise Fault("too_large", f"{size} bytes; the limit is {self.max_file_bytes}")  # noqa: EM101
        if size <= SMALL_BYTES:  # one read, if nobody is at it
            data = os.read(file, size)
            digest, left = hashlib.sha256(data), size - len(data)
        else:
            digest, left = hashlib.sha256(), size
        # Read and not mapped: a file cut short under a mapping is SIGBUS.
        while left and not self.stopped() and (count := os.readv(file, [buffer[:left]])):
            digest.update(buffer[:count])
            left -= count
        if left:
            raise _unstable()
        return digest.hexdigest()


def order(tree: Tree, paths: list[str], most: int) -> bytes:
    """What the program below is told on stdin."""
    return marshal.dumps((tree.root, tree.device, tree.max_file_bytes, most, paths))


def answer(text: bytes) -> Found:
    """Read what the program below says. Raises ValueError, EOFError, TypeError: it was ended before it could."""
    found = Found()
    found.hashed, found.faults, found.large = marshal.loads(text)  # noqa: S302 - it is ourselves who speak
    return found


def program() -> None:
    """The second process: it ends with its work, or when it is killed."""
    with os.fdopen(0, "rb") as stdin:
        root, device, limit, most, paths = marshal.load(stdin)  # noqa: S302 - it is ourselves who speak
    found = Tree(root, device, limit, lambda: False).hash_batch(paths, most, look=False)
    with os.fdopen(1, "wb") as stdout:
        marshal.dump((found.hashed, found.faults, found.large), stdout)
