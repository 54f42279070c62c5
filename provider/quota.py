"""
What a run may add to its workspace, in bytes and files: a bind mount has no quota of its own, and one on the host's
filesystem takes its administrator.

Three looks, each only where the one before gives reason. A timer asks the filesystem how much is free: nothing is
counted, two microseconds. When that has fallen by half of what is left of the quota, the tree is walked, by descriptor,
in a thread, within bounds, and what is younger than the run is counted as the disk counts it: blocks, not lengths;
an inode once, whatever its names. When the command has ended, both are done once more: one that was faster than the
timer is not ended by us, but has failed.

An inode born since the start is the run's, and counts in full. One that is older and was changed may have grown by any
part of what it has; such count only as far as the filesystem has lost as much. So others who write to the same
filesystem do no harm. What is freed between two looks, by others or by the run itself, hides as much of what is added
between them, and no more: the filesystem's free space never falls by more than the quota without a walk. Whoever writes
into the workspace from elsewhere while a run lasts is taken for the run. Another filesystem that is mounted within the
workspace is not watched.

What the tree does not show (too many entries, too deep, closed to us) is counted as what the filesystem has lost. So
is what exceeds the quota and is in no file at all, deleted and still open, but only when the filesystem is in its last
tenth: others write there too, and until then they are the likelier ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

from provider.hashing import Fault, Tree
from provider.model import Ending, Growth, Limits, Workspace
from provider.workspace import open_workspace

LOOK_SECONDS = 0.1
_FINEST = 16
"""The last walks before the quota is reached are a sixteenth of it apart."""
_REST = 20
"""A walk is followed by a rest of so many times its own length: a twentieth of one processor at the most."""
_MAX_ENTRIES = 4_000_000
_WALK_SECONDS = 10.0
_LAST_WALK_SECONDS = 5.0
_FILES_A_SECOND, _BYTES_A_SECOND = 500_000, 2**34
"""More is not made by anybody; for filesystems that do not count."""
_SLACK_NS = 10_000_000
"""The kernel dates files by a clock that may be a tick behind."""
_BLOCK = 512
_NEARLY_FULL = 10
_BETWEEN_LOOKS = 256

# Not the loop's default executor: a walk there would hold up whatever else waits for a thread.
_THREADS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="quota")


@dataclass(frozen=True, slots=True)
class Pair:
    """Bytes and files."""

    bytes: int
    files: int

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.bytes + other.bytes, self.files + other.files)

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.bytes - other.bytes, self.files - other.files)

    def least(self, other: Pair) -> Pair:
        return Pair(min(self.bytes, other.bytes), min(self.files, other.files))

    def most(self, other: Pair) -> Pair:
        return Pair(max(self.bytes, other.bytes), max(self.files, other.files))

    def exceeds(self, limit: Pair) -> bool:
        """Where the limit is 0 there is none."""
        return 0 < limit.bytes < self.bytes or 0 < limit.files < self.files


NOTHING = Pair(0, 0)


@dataclass(frozen=True, slots=True)
class Room:
    """What a filesystem has free, of how much, and when it was asked. One that does not count has 0 in all."""

    free: Pair
    total: Pair
    at: float

    def lost_since(self, before: Room) -> Pair:
        lost = before.free - self.free
        return Pair(lost.bytes if self.total.bytes else 0, lost.files if self.total.files else 0)

    def may_have_lost_since(self, before: Room) -> Pair:
        """Where the filesystem does not count: what somebody could have written meanwhile."""
        was, now, seconds = before.free, self.free, self.at - before.at
        return Pair(
            was.bytes - now.bytes if self.total.bytes else round(seconds * _BYTES_A_SECOND),
            was.files - now.files if self.total.files else round(seconds * _FILES_A_SECOND),
        )

    @property
    def is_nearly_full(self) -> bool:
        free, total = self.free, self.total
        return total.bytes > free.bytes * _NEARLY_FULL or total.files > free.files * _NEARLY_FULL


@dataclass(frozen=True, slots=True)
class Seen:
    """What a walk has found to be younger than the run."""

    born: Pair = NOTHING
    """Made since the start."""
    changed: Pair = NOTHING
    """All of what is older, but was changed since. Where nobody knows when it was made, it may be a new file too."""
    is_whole: bool = True


def look(workspace: Workspace) -> Room:
    """Ask the filesystem. Raises OSError."""
    found = os.statvfs(workspace.path)
    return Room(
        Pair(found.f_bfree * found.f_frsize, found.f_ffree),
        Pair(found.f_blocks * found.f_frsize, found.f_files),
        time.monotonic(),
    )


class Watch:
    """One run over one workspace, from the moment that this is made."""

    def __init__(self, workspace: Workspace, limits: Limits) -> None:
        self._workspace = workspace
        self._limit = Pair(limits.workspace_bytes, limits.workspace_files)
        self._real, self._monotonic = time.time_ns(), time.monotonic_ns()
        self._growth: Growth | None = None
        self._over: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stop: threading.Event | None = None
        """Of the walk that is under way."""
        self._rest_until = 0.0
        self._step = _next_step(self._limit, NOTHING)
        self._start = self._base = self._look() if self._limit != NOTHING else None

    @contextlib.contextmanager
    def telling(self, over: Callable[[], None]) -> Iterator[None]:
        """Have `over` called, once, when the workspace has grown by too much. Makes no task where a run is short."""
        if self._start is None:
            yield
            return
        self._over = over
        self._wait()
        try:
            yield
        finally:
            self._over = None
            if self._timer:
                self._timer.cancel()
            if self._stop:
                self._stop.set()

    async def judge(self, ending: Ending) -> Ending:
        """Look a last time, when the command has ended; one that was over its quota by then has not just exited."""
        if self._start is None:
            return ending
        room = self._look()
        if room is None or not (self._growth or self._is_suspicious(room)):
            return ending
        stop = threading.Event()
        walk = asyncio.get_running_loop().run_in_executor(
            _THREADS, _walk, self._workspace, self._since, NOTHING, _LAST_WALK_SECONDS, stop
        )
        try:
            growth = _growth(await walk, self._limit, room, self._start) or self._growth
        finally:
            stop.set()
        if growth is None:
            return ending
        return replace(ending, growth=growth, reason="workspace_quota" if ending.reason == "exited" else ending.reason)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._tick)

    def _tick(self) -> None:
        room = self._look()
        if self._over is None:
            return
        if room is None or not self._is_suspicious(room) or self._is_resting(room):
            self._wait()
            return
        self._stop = stop = threading.Event()
        walk = asyncio.get_running_loop().run_in_executor(
            _THREADS, _walk, self._workspace, self._since, self._limit, _WALK_SECONDS, stop
        )
        walk.add_done_callback(lambda done: self._walked(room, done, stop))

    def _walked(self, room: Room, walk: asyncio.Future[Seen], stop: threading.Event) -> None:
        if walk.cancelled() or stop.is_set() or self._over is None or self._start is None:
            return  # what was stopped on its way has not seen enough to judge by
        seen = walk.result()
        now = time.monotonic()
        self._rest_until = now + _REST * (now - room.at)
        self._base, self._step = room, _next_step(self._limit, seen.born + seen.changed)
        self._growth = _growth(seen, self._limit, room, self._start)
        if self._growth:
            self._over()
        else:
            self._wait()

    def _is_suspicious(self, room: Room) -> bool:
        if self._base is None or self._start is None:
            return False
        if room.is_nearly_full and room.lost_since(self._start).exceeds(self._limit):
            return True
        if room.free.bytes > self._base.free.bytes or room.free.files > self._base.free.files:
            # What others free before the run takes it hides nothing.
            self._base = replace(self._base, free=self._base.free.most(room.free))
        return room.may_have_lost_since(self._base).exceeds(self._step)

    def _is_resting(self, room: Room) -> bool:
        """Not when as much is gone again as may be: a tree that takes long to walk would be worth its while."""
        return (
            self._base is not None
            and room.at < self._rest_until
            and not room.lost_since(self._base).exceeds(self._limit)
        )

    def _look(self) -> Room | None:
        try:
            return look(self._workspace)
        except OSError:
            return None  # it was taken away under the run, on the host

    @property
    def _since(self) -> int:
        """The start by the clock that dates files, which somebody may have set back."""
        passed = time.time_ns() - self._real
        return self._real + min(0, passed - (time.monotonic_ns() - self._monotonic)) - _SLACK_NS


def _next_step(limit: Pair, found: Pair) -> Pair:
    """How much the filesystem has to lose before a walk: half of what is left. 0 where there is no limit."""
    left = limit - found
    return Pair(
        limit.bytes and max(1, limit.bytes // _FINEST, left.bytes // 2),
        limit.files and max(1, limit.files // _FINEST, left.files // 2),
    )


def _growth(seen: Seen, limit: Pair, room: Room, start: Room) -> Growth | None:
    lost = room.lost_since(start)
    unexplained = (room.may_have_lost_since(start) - seen.born).most(NOTHING)
    added = seen.born + seen.changed.least(unexplained)
    if added.exceeds(limit):
        return _too_much(added, limit, "tree")
    hidden = lost if not seen.is_whole else lost - added if room.is_nearly_full else NOTHING
    return _too_much(lost.most(added), limit, "filesystem") if hidden.exceeds(limit) else None


def _too_much(added: Pair, limit: Pair, counted: Literal["tree", "filesystem"]) -> Growth:
    return Growth(bytes=added.bytes, files=added.files, max_bytes=limit.bytes, max_files=limit.files, counted=counted)


def _walk(workspace: Workspace, since: int, enough: Pair, seconds: float, stop: threading.Event) -> Seen:
    """Count what is younger than `since`, until that is more than `enough`."""
    try:
        root = open_workspace(workspace)
    except OSError:
        return Seen(is_whole=False)
    try:
        return _Walk(Tree(root, workspace.device, 0, stop.is_set), since, enough, time.monotonic() + seconds).count()
    finally:
        os.close(root)


class _Walk:
    def __init__(self, tree: Tree, since: int, enough: Pair, until: float) -> None:
        self.tree, self.since, self.enough, self.until = tree, since, enough, until
        self.born = self.changed = NOTHING
        self.linked: set[int] = set()
        self.entries = 0

    def count(self) -> Seen:
        pending, is_whole = [""], True
        while pending and not self.born.exceeds(self.enough):
            folder = pending.pop()
            try:
                with self.tree.directory(folder) as parent, os.scandir(parent) as entries:
                    if not self.visit(folder, parent, entries, pending):
                        return Seen(self.born, self.changed, is_whole=False)
            except FileNotFoundError:
                continue  # gone since it was listed
            except Fault as fault:
                # Too deep; else it is no directory any more, or on another filesystem.
                is_whole = is_whole and fault.problem != "too_many"
            except OSError:
                is_whole = False  # closed to us
        return Seen(self.born, self.changed, is_whole)

    def visit(self, folder: str, parent: int, entries: Iterator[os.DirEntry[str]], pending: list[str]) -> bool:
        """Count one directory; False when the whole has become too much."""
        prefix = f"{folder}/" if folder else ""
        for entry in entries:
            self.entries += 1
            if self.entries % _BETWEEN_LOOKS == 0 and self.is_too_much():
                return False
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            is_directory = stat.S_ISDIR(info.st_mode)
            if is_directory:
                pending.append(prefix + entry.name)
            if info.st_ctime_ns < self.since or info.st_dev != self.tree.device:
                continue
            if info.st_nlink > 1 and not is_directory:
                if info.st_ino in self.linked:
                    continue
                self.linked.add(info.st_ino)
            self.note(info.st_blocks * _BLOCK, _birth(entry.name, parent))
        return True

    def note(self, size: int, birth: int | None) -> None:
        if birth is not None and birth >= self.since:
            self.born += Pair(size, 1)
        else:
            self.changed += Pair(size, 1 if birth is None else 0)

    def is_too_much(self) -> bool:
        return self.entries > _MAX_ENTRIES or time.monotonic() > self.until or self.tree.stopped()


# Python tells an inode's birth only on other systems than Linux.
_STATX = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
_NO_FOLLOW, _BIRTH, _BIRTH_AT, _STATX_BYTES = 0x100, 0x800, 80, 256


def _birth(name: str, parent: int) -> int | None:
    """When an inode was made, in nanoseconds; None where nobody tells."""
    if _STATX is None:
        return None
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if _STATX(parent, os.fsencode(name), _NO_FOLLOW, _BIRTH, found) != 0:
        return None
    known, seconds, nanoseconds = *struct.unpack_from("=I", found), *struct.unpack_from("=qI", found, _BIRTH_AT)
    return seconds * 10**9 + nanoseconds if known & _BIRTH else None
