r"""
Sha256 of what a run left in its workspace: by descriptor, never by name.

Untrusted code wrote the tree: a name in it may be a link to a host file, a pipe that never opens, a terabyte of
nothing, or one of these a moment later. One mechanism stands against all of it. Each component is opened with
O_NOFOLLOW relative to its parent's descriptor, beginning at a workspace whose device and inode are the validated ones,
and must lie on that device; `..` is refused before. openat2 says the same in one call, but Python reaches it only by
ctypes and only Linux has it, so all this would have to stay as its fallback: two mechanisms where one is enough.

`_Walk` turns patterns into paths, `hashing.Tree` says of each path what it is; one that changes in between is judged as
what it has become. Patterns match one component at a time, by the standard fnmatch, whose expressions do not backtrack.
One expression for whole paths does: with four `**`, wcmatch 11.2 held the GIL for 0.15 s over a path of 64 components.
A name that is not UTF-8 is reported with `\udcXX` for each byte that is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import itertools
import operator
import os
import re
import stat
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from provider.errors import CallError, SandboxLost
from provider.hashing import SMALL_BYTES, Fault, Found, Tree, answer, is_absent, order, told
from provider.model import Artifact, ArtifactFault, ArtifactProblem, Workspace
from provider.workspace import open_workspace

_MOUNT = "workspace"
_MAX_PATTERNS = 1_000
_MAX_PATTERN_BYTES = 4_096  # PATH_MAX
_MAX_ENTRIES = 100_000
_MAX_MATCHES = 5_000_000  # names times patterns, seconds of work; 1,000 patterns over all entries would be minutes
_MAX_PATHS = 10_000
_MAX_CHARACTERS = 4 * 2**20  # of all paths: one may have 16,000, and goes into outcome and receipt
_BATCH = 16  # large files; enough to make the hand-over to a thread cheap, few enough to share evenly
_MAGIC = re.compile(r"[*?\[]")

_SURROGATE = re.compile("[\ud800-\udfff]")  # stands for a byte that is not UTF-8
_MANY = 2_000
"""Small files for which a second process is worth its start, which is that of some thousand files."""
_OWN_SHARE = 0.55
_LOOK_SECONDS = 0.05
"""How often it is looked whether the work is still wanted, once our own share is done."""
_SECOND = (
    # Isolated, and without site: that is most of a start. Our folder comes last, so that it hides nothing.
    *(sys.executable, "-I", "-S", "-B", "-c"),
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import hashing; hashing.program()",
)

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
        root = open_workspace(workspace)
    except OSError as error:
        message = f"workspace {workspace.path}: {error.strerror}; nothing in it was read"
        raise SandboxLost(message) from error
    try:
        tree = Tree(root, workspace.device, max_file_bytes, stop.is_set)
        walk = _Walk(tree, patterns)
        problems = walk.find()
        found = _hash_all(tree, walk.paths - problems.keys(), walk.files)
    finally:
        os.close(root)
    artifacts = [Artifact(path=_shown(path), sha256=sha256, bytes=size) for path, size, sha256 in found.hashed]
    faults = [_problem(path, problem, detail) for path, problem, detail in found.faults]
    by_path = operator.attrgetter("path")
    return tuple(sorted(artifacts, key=by_path)), tuple(sorted([*faults, *problems.values()], key=by_path))


def _hash_all(tree: Tree, paths: set[str], files: set[str]) -> Found:
    # A small file is mostly system calls, and threads pass the GIL round at each: two took 0.30 s for 10,000 files of
    # 4 KiB, one 0.17 s. With files of 256 KiB two are 1.9 times as fast as one.
    found = _hash_small(tree, sorted(paths & files))
    found.add(tree.hash_batch(sorted(paths - files), SMALL_BYTES))
    large, cores = found.large, os.cpu_count() or 1
    size = max(1, min(_BATCH, len(large) // cores))
    batches = [large[start : start + size] for start in range(0, len(large), size)]
    if len(batches) <= 1:
        found.add(tree.hash_batch(large))
        return found
    with ThreadPoolExecutor(cores, thread_name_prefix="sha256") as pool:
        for other in pool.map(tree.hash_batch, batches):
            found.add(other)
    return found


def _hash_small(tree: Tree, paths: list[str]) -> Found:
    """Hash what is small; where there is much of it, with a second process on another core."""
    if len(paths) < _MANY or (os.cpu_count() or 1) == 1:
        return tree.hash_batch(paths, SMALL_BYTES, look=False)
    share = round(len(paths) * _OWN_SHARE)
    ours, theirs = paths[:share], paths[share:]
    with tempfile.TemporaryFile() as wanted, tempfile.TemporaryFile() as said:
        wanted.write(order(tree, theirs, SMALL_BYTES))
        wanted.seek(0)
        second = subprocess.Popen(  # noqa: S603 - ourselves
            _SECOND, stdin=wanted, stdout=said, stderr=subprocess.DEVNULL, env={}, pass_fds=[tree.root]
        )
        try:
            found = tree.hash_batch(ours, SMALL_BYTES, look=False)
            while second.poll() is None and not tree.stopped():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    second.wait(_LOOK_SECONDS)
        finally:
            second.kill()
            second.wait()
        said.seek(0)
        try:
            found.add(answer(said.read()))
        except (ValueError, EOFError, TypeError):  # it was ended, by us or for want of memory
            found.add(tree.hash_batch(theirs, SMALL_BYTES, look=False))
    return found


def _problem(path: str, problem: str, detail: str) -> ArtifactProblem:
    return ArtifactProblem(path=_shown(path), problem=cast("ArtifactFault", problem), detail=_shown(detail))


def _shown(text: str) -> str:
    r"""A name as text. One that holds `\ud` has its backslashes doubled: no name looks like another's escape."""
    if text.isascii() and r"\ud" not in text:
        return text
    if r"\ud" in text or _SURROGATE.search(text):
        text = text.replace("\\", "\\\\")
    return text.encode("utf-8", "backslashreplace").decode()


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

    def __init__(self, tree: Tree, patterns: tuple[str, ...]) -> None:
        self.tree = tree
        self.paths = {pattern for pattern in patterns if not _MAGIC.search(pattern) or self.exists(pattern)}
        self.files: set[str] = set()
        """Those that their directory calls files."""
        self.unmatched = set(patterns) - self.paths
        self.entries = self.matches = self.characters = 0

    def exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        try:
            with self.tree.directory(folder) as parent:
                os.lstat(name, dir_fd=parent)
        except (Fault, OSError) as error:
            return told(error)[0] != "missing"
        return True

    def find(self) -> dict[str, ArtifactProblem]:
        """Fill `paths` and `files`; return why there may be more."""
        pending = deque([("", _reach(map(_first_step, self.unmatched)))])
        problems: dict[str, ArtifactProblem] = {}
        rest = ("missing", "no file matches")
        while pending and not self.tree.stopped():
            folder, steps = pending.popleft()
            try:
                with self.tree.directory(folder) as parent:
                    pending.extend(self.visit(folder, parent, steps))
            except (Fault, OSError) as error:
                problems[folder] = _problem(folder or ".", *told(error))
                # Directories come in order of depth, so behind one that is too deep there are only others.
                if problems[folder].problem == "too_many" or len(problems) >= _MAX_PATHS:
                    rest = ("too_many", "no file matched before the search was given up")
                    break
        return problems | {pattern: _problem(pattern, *rest) for pattern in self.unmatched}

    def visit(self, folder: str, parent: int, steps: set[_Step]) -> Iterator[tuple[str, set[_Step]]]:
        """Note what matches in a directory, and yield the directories in it that are to be visited."""
        prefix = f"{folder}/" if folder else ""
        for name, kind in _entries(parent, {step.part for step in steps}):
            self.charge(len(steps))
            if kind == stat.S_IFDIR:
                if below := _reach(step if step.part == "**" else step.then for step in steps if step.fits(name)):
                    yield self.hold(prefix + name), below
                continue
            # A link where a directory is needed is named as well: silence would say that nothing was there.
            is_link = kind == stat.S_IFLNK
            for step in steps:
                if (step.then is None or (is_link and step.part != "**")) and step.fits(name):
                    path = self.hold(prefix + name)
                    self.note(path, step.pattern)
                    if kind == stat.S_IFREG:
                        self.files.add(path)

    def charge(self, matches: int) -> None:
        self.entries += 1
        self.matches += matches
        if self.entries > _MAX_ENTRIES or self.matches > _MAX_MATCHES or self.tree.stopped():
            detail = f"the search was given up here, after {self.entries - 1} entries"
            raise Fault("too_many", detail)  # noqa: EM101

    def hold(self, path: str) -> str:
        self.characters += len(path)
        if self.characters > _MAX_CHARACTERS:
            detail = f"the search was given up here: its paths have more than {_MAX_CHARACTERS} characters together"
            raise Fault("too_many", detail)  # noqa: EM101
        return path

    def note(self, path: str, pattern: str) -> None:
        if len(self.paths) >= _MAX_PATHS and path not in self.paths:
            detail = f"more than {_MAX_PATHS} paths match; the rest was left out"
            raise Fault("too_many", detail)  # noqa: EM101
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
        if is_absent(error):
            return 0
        raise


def _kind_listed(entry: os.DirEntry[str]) -> int:
    """The type as the directory tells it, or 0 for what must be looked at later."""
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFLNK if entry.is_symlink() else 0
