r"""
Sha256 of what a run left in its workspace: by descriptor, never by name.

Untrusted code wrote the tree: a name in it may be a link to a host file, a pipe that never opens, a terabyte of
nothing, or one of these a moment later. One mechanism stands against all of it. Each component is opened with
O_NOFOLLOW relative to its parent's descriptor, beginning at a workspace whose device and inode are the validated ones,
and must lie on that device; `..` is refused before. openat2 says the same in one call, but Python reaches it only by
ctypes and only Linux has it, so all this would have to stay as its fallback: two mechanisms where one is enough.

`_Walk` turns patterns into paths, `_Tree` says of each path what it is; one that changes in between is judged as what
it has become. Patterns match one component at a time, by the standard fnmatch, whose expressions do not backtrack. One
expression for whole paths does: with four `**`, wcmatch 11.2 held the GIL for 0.15 s over one path of 64 components.
A name that is not UTF-8 is reported with `\udcXX` for each byte that is not.
"""

from __future__ import annotations

import asyncio
import errno
import fnmatch
import hashlib
import itertools
import operator
import os
import re
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from provider.errors import CallError, SandboxLost
from provider.model import Artifact, ArtifactFault, ArtifactProblem, Workspace

_MOUNT = "workspace"
_MAX_PATTERNS = 1_000
_MAX_PATTERN_BYTES = 4_096  # PATH_MAX
_MAX_ENTRIES = 100_000
_MAX_MATCHES = 5_000_000  # names times patterns, seconds of work; 1,000 patterns over all entries would be minutes
_MAX_PATHS = 10_000
_MAX_DEPTH = 64
_SMALL_BYTES = 64 * 1024
_BATCH = 16  # large files; enough to make the hand-over to a thread cheap, few enough to share evenly
_BUFFER_BYTES = 256 * 1024  # stays in a core's own cache

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KIND = 0o170000  # S_IFMT: the bits of a mode that say what it is
_MAGIC = re.compile(r"[*?\[]")

_KINDS: dict[int, ArtifactFault] = {
    stat.S_IFLNK: "symlink",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
_ABSENT = {errno.ENOENT, errno.ENAMETOOLONG}
_SWAPPED = {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}  # only when it changed between the look at it and the opening

# Not the loop's default executor: minutes of hashing there would hold up whatever else waits for a thread.
_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="artifacts")

Collected = tuple[tuple[Artifact, ...], tuple[ArtifactProblem, ...]]


async def collect(workspace: Workspace, patterns: Sequence[str], *, max_file_bytes: int) -> Collected:
    """
    Hash the files that `patterns` name, and say of whatever else they name why it was not hashed.

    Raises: CallError for a pattern that cannot be right; SandboxLost when the workspace is not the validated one.
    """
    if not patterns:
        return (), ()
    checked, stop = check_patterns(patterns), threading.Event()
    work = _THREADS.submit(_collect, workspace, checked, max_file_bytes, stop)
    waiting = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        stop.set()
        if not work.cancel():
            await asyncio.wait([waiting])  # until every descriptor is closed, which takes one buffer's time
        raise


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Make every pattern relative to the workspace. Raises CallError for one that could never name a file in it."""
    if isinstance(patterns, str):
        message = f"artifacts is the text {patterns[:80]!r}; give a list of paths or patterns"
        raise CallError(message)
    if len(patterns) > _MAX_PATTERNS:
        message = f"artifacts has {len(patterns)} patterns and at most {_MAX_PATTERNS} are taken; join some with `**`"
        raise CallError(message)
    return tuple(_relative(index, pattern) for index, pattern in enumerate(patterns))


def _relative(index: int, pattern: str) -> str:
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    mount = parts[:1] if pattern.startswith("/") else []
    parts = parts[len(mount) :]
    if len(pattern.encode("utf-8", "replace")) > _MAX_PATTERN_BYTES:
        wrong = f"is longer than {_MAX_PATTERN_BYTES} bytes; shorten it with `**`"
    elif "\0" in pattern or re.search("[\ud800-\udc7f\udd00-\udfff]", pattern):
        wrong = "has a NUL or a lone surrogate, which no file name can have; remove it"
    elif pattern.startswith("/") and mount != [_MOUNT]:
        wrong = f"is outside the workspace; use a path relative to it, or one below /{_MOUNT}"
    elif ".." in parts:
        wrong = "has a `..` component; name the path below the workspace without it"
    elif not parts:
        wrong = "names no file; name one below the workspace, or `**` for all"
    else:
        return "/".join(parts)
    message = f"artifacts[{index}] {pattern[:80]!r} {wrong}"
    raise CallError(message)


def _collect(workspace: Workspace, patterns: tuple[str, ...], max_file_bytes: int, stop: threading.Event) -> Collected:
    try:
        root = os.open(workspace.path, _DIRECTORY)
    except OSError as error:
        message = f"the workspace {workspace.path} cannot be opened: {error.strerror}"
        raise SandboxLost(message) from error
    try:
        info = os.fstat(root)
        if (info.st_dev, info.st_ino) != (workspace.device, workspace.inode):
            message = f"{workspace.path} is no longer the directory that was validated; nothing in it was read"
            raise SandboxLost(message)
        tree = _Tree(root=root, device=info.st_dev, max_file_bytes=max_file_bytes, stop=stop)
        paths, problems = _Walk(tree, patterns).find()
        found = _hash_all(tree, sorted(paths - problems.keys()))
    finally:
        os.close(root)
    by_path = operator.attrgetter("path")
    found.problems += problems.values()
    return tuple(sorted(found.artifacts, key=by_path)), tuple(sorted(found.problems, key=by_path))


def _hash_all(tree: _Tree, paths: list[str]) -> _Found:
    # A small file is mostly system calls, and threads pass the GIL round at each: two took 0.30 s for 10,000 files of
    # 4 KiB, one 0.17 s. With files of 256 KiB two are 1.9 times as fast as one.
    found = tree.hash_batch(paths, most=_SMALL_BYTES)
    large, cores = found.large, os.cpu_count() or 1
    size = max(1, min(_BATCH, len(large) // cores))
    batches = [large[start : start + size] for start in range(0, len(large), size)]
    if len(batches) <= 1:
        others = [tree.hash_batch(large)]
    else:
        with ThreadPoolExecutor(cores, thread_name_prefix="sha256") as pool:
            others = list(pool.map(tree.hash_batch, batches))
    for other in others:
        found.artifacts += other.artifacts
        found.problems += other.problems
    return found


class _Fault(Exception):
    """Why a path is not hashed."""

    def __init__(self, *, problem: ArtifactFault, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem
        self.detail = detail


def _unstable() -> _Fault:
    return _Fault(problem="unstable", detail="changed while it was being read")


def _problem(path: str, error: _Fault | OSError) -> ArtifactProblem:
    if isinstance(error, OSError) and error.errno in _SWAPPED:
        error = _Fault(problem="unstable", detail="changed while it was being opened")
    elif isinstance(error, OSError):
        kind: ArtifactFault = "missing" if error.errno in _ABSENT else "unreadable"
        error = _Fault(problem=kind, detail=os.strerror(error.errno or errno.EIO))
    return ArtifactProblem(path=_shown(path), problem=error.problem, detail=_shown(error.detail))


def _shown(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


@dataclass(slots=True)
class _Found:
    artifacts: list[Artifact] = field(default_factory=list)
    problems: list[ArtifactProblem] = field(default_factory=list)
    large: list[str] = field(default_factory=list)
    """Files that were left for later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """The workspace by its descriptor, shared by the threads of one collection."""

    root: int
    device: int
    max_file_bytes: int
    stop: threading.Event

    @contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """Open a directory, anew from the root each time, so that no tree is deep enough to use up descriptors."""
        parts = path.split("/") if path else []
        if len(parts) > _MAX_DEPTH:
            raise _Fault(problem="too_many", detail=f"more than {_MAX_DEPTH} directories deep")
        held = os.dup(self.root)
        try:
            for part in parts:
                self.check_directory(part, os.lstat(part, dir_fd=held))
                held, above = os.open(part, _DIRECTORY, dir_fd=held), held
                os.close(above)
                self.check_directory(part, os.fstat(held))
            yield held
        finally:
            os.close(held)

    def check_directory(self, name: str, info: os.stat_result) -> None:
        if info.st_mode & _KIND != stat.S_IFDIR or info.st_dev != self.device:
            raise self.fault(name, info, stat.S_IFDIR)

    def fault(self, name: str, info: os.stat_result, wanted: int) -> _Fault:
        """Return why it is not what is wanted: of another kind, or of another filesystem."""
        kind = info.st_mode & _KIND
        if kind == wanted:
            return _Fault(problem="unreadable", detail=f"{name!r} is on another filesystem than the workspace")
        if wanted == stat.S_IFDIR and kind != stat.S_IFLNK:
            return _Fault(problem="missing", detail=f"{name!r} is not a directory")
        problem = _KINDS.get(kind, "unreadable")
        return _Fault(problem=problem, detail=f"{name!r} is a {problem}")

    def hash_batch(self, paths: list[str], most: int = sys.maxsize) -> _Found:
        """Say what each path is, but for files of more than `most` bytes, which are only listed."""
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        found = _Found()
        for folder, members in itertools.groupby(paths, lambda path: path.rpartition("/")[0]):
            if self.stop.is_set():
                break
            group = list(members)
            try:
                with self.directory(folder) as parent:
                    self.hash_files(group, parent, buffer, most, found)
            except (_Fault, OSError) as error:
                found.problems += [_problem(path, error) for path in group]
        return found

    def hash_files(self, paths: list[str], parent: int, buffer: memoryview, most: int, found: _Found) -> None:
        # For 10,000 files of 4 KiB the system calls and sha256 take 0.14 s, and all else in this loop 0.03 s. It was
        # 0.05 s while every question had a function of its own, so the questions stand here, one by one.
        for path in paths:
            if self.stop.is_set():
                return
            name = path.rpartition("/")[2]
            try:
                # Before the opening, because to open a pipe or a device is already to do something to it.
                seen = os.lstat(name, dir_fd=parent)
                if seen.st_mode & _KIND != stat.S_IFREG or seen.st_dev != self.device:
                    raise self.fault(name, seen, stat.S_IFREG)
                if seen.st_size > most:
                    found.large.append(path)
                    continue
                file = os.open(name, _FILE, dir_fd=parent)
                try:
                    before = os.fstat(file)
                    if before.st_mode & _KIND != stat.S_IFREG or before.st_dev != self.device:
                        raise self.fault(name, before, stat.S_IFREG)
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
            except (_Fault, OSError) as error:
                found.problems.append(_problem(path, error))
            else:
                found.artifacts.append(Artifact(path=_shown(path), sha256=sha256, bytes=before.st_size))

    def hash_open(self, file: int, size: int, buffer: memoryview) -> str:
        if size > self.max_file_bytes:
            raise _Fault(problem="too_large", detail=f"{size} bytes; the limit is {self.max_file_bytes}")
        if size <= _SMALL_BYTES:  # one read, if nobody is at it
            data = os.read(file, size)
            digest, left = hashlib.sha256(data), size - len(data)
        else:
            digest, left = hashlib.sha256(), size
        # Read and not mapped: a file cut short under a mapping is SIGBUS.
        while left and not self.stop.is_set() and (count := os.readv(file, [buffer[:left]])):
            digest.update(buffer[:count])
            left -= count
        if left:
            raise _unstable()
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One component of a pattern, and the step that comes after it."""

    pattern: str
    part: str
    fits: Callable[[str], re.Match[str] | None]
    then: _Step | None


def _first_step(pattern: str) -> _Step | None:
    step = None
    for part in reversed(pattern.split("/")):
        no_dot = "" if part[0] == "." else r"(?!\.)"  # as in a shell, where a leading dot has to be written
        step = _Step(pattern, part, re.compile(no_dot + fnmatch.translate(part)).match, step)
    return step


def _reach(steps: Iterable[_Step | None]) -> set[_Step]:
    """The steps themselves and, since `**` may match nothing, those after one."""
    reached = set()
    for start in steps:
        step = start
        while step:
            reached.add(step)
            step = step.then if step.part == "**" else None
    return reached


class _Walk:
    """Which paths the patterns name. Each directory is read once, for all patterns together."""

    def __init__(self, tree: _Tree, patterns: tuple[str, ...]) -> None:
        self.tree = tree
        self.paths = {pattern for pattern in patterns if not _MAGIC.search(pattern) or self.exists(pattern)}
        self.unmatched = set(patterns) - self.paths
        self.entries = self.matches = 0

    def exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        try:
            with self.tree.directory(folder) as parent:
                os.lstat(name, dir_fd=parent)
        except (_Fault, OSError) as error:
            return _problem(path, error).problem != "missing"
        return True

    def find(self) -> tuple[set[str], dict[str, ArtifactProblem]]:
        pending = deque([("", _reach(map(_first_step, self.unmatched)))])
        problems: dict[str, ArtifactProblem] = {}
        rest = _Fault(problem="missing", detail="no file matches")
        while pending and not self.tree.stop.is_set():
            folder, steps = pending.popleft()
            try:
                with self.tree.directory(folder) as parent:
                    pending.extend(self.visit(folder, parent, steps))
            except (_Fault, OSError) as error:
                problems[folder] = _problem(folder or ".", error)
                # Directories come in order of depth, so behind one that is too deep there are only others.
                if problems[folder].problem == "too_many" or len(problems) >= _MAX_PATHS:
                    rest = _Fault(problem="too_many", detail="no file matched before the search was given up")
                    break
        return self.paths, problems | {pattern: _problem(pattern, rest) for pattern in self.unmatched}

    def visit(self, folder: str, parent: int, steps: set[_Step]) -> Iterator[tuple[str, set[_Step]]]:
        """Note what matches in a directory, and yield the directories in it that are to be visited."""
        prefix = f"{folder}/" if folder else ""
        for name, kind in _entries(parent, {step.part for step in steps}):
            self.charge(len(steps))
            if kind == stat.S_IFDIR:
                if below := _reach(step if step.part == "**" else step.then for step in steps if step.fits(name)):
                    yield prefix + name, below
                continue
            # A link where a directory is needed is named as well: silence would say that nothing was there.
            is_link = kind == stat.S_IFLNK
            for step in steps:
                if (step.then is None or (is_link and step.part != "**")) and step.fits(name):
                    self.note(prefix + name, step.pattern)

    def charge(self, matches: int) -> None:
        self.entries += 1
        self.matches += matches
        if self.entries > _MAX_ENTRIES or self.matches > _MAX_MATCHES or self.tree.stop.is_set():
            raise _Fault(problem="too_many", detail=f"the search was given up here, after {self.entries - 1} entries")

    def note(self, path: str, pattern: str) -> None:
        if len(self.paths) >= _MAX_PATHS and path not in self.paths:
            raise _Fault(problem="too_many", detail=f"more than {_MAX_PATHS} paths match; the rest was left out")
        self.paths.add(path)
        self.unmatched.discard(pattern)


def _entries(folder: int, parts: set[str]) -> list[tuple[str, int]]:
    """Name and type of what may match. A directory is listed only where a component has magic."""
    if not any(map(_MAGIC.search, parts)):
        return [(part, kind) for part in parts if (kind := _kind(part, folder))]
    with os.scandir(folder) as entries:
        return [(entry.name, _kind_listed(entry)) for entry in itertools.islice(entries, _MAX_ENTRIES + 1)]


def _kind(name: str, folder: int) -> int:
    try:
        return stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode)
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise


def _kind_listed(entry: os.DirEntry[str]) -> int:
    """The type as the directory tells it; whatever is neither directory nor link is looked at later."""
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFLNK if entry.is_symlink() else stat.S_IFREG
