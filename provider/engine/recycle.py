"""
Recycled sandboxes: the one exception to "a container serves one command", for callers who chose it.

Between two commands of one session, over one workspace and one plan, pid 1 kills every process, empties every tmpfs and
removes what is left of IPC; the engine's side then sees for itself. One that is not proved clean is disposed of, and
the next command gets another sandbox; it never hears of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from provider.background import Background
from provider.errors import SandboxError
from provider.model import BoxPlan, Sandbox

PATIENCE_SECONDS = 0.1
"""What a scrub that the next command waits for may take: a hundred times the usual."""

Key = tuple[BoxPlan, str]
"""Box and session: the trust domain."""


@dataclass(slots=True)
class _Shelf:
    clean: dict[Sandbox, asyncio.TimerHandle] = field(default_factory=dict)
    in_work: set[asyncio.Task[None]] = field(default_factory=set)


class Recycler:
    """Sandboxes between two commands."""

    def __init__(self, *, most: int, idle_seconds: float) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._shelves: dict[Key, _Shelf] = {}
        """Those that hold something; one that is taken away gets nothing back."""
        self._background = Background()
        self._closing = False

    async def take(self, box: BoxPlan, session: str) -> Sandbox | None:
        """Hand out a clean one; one that is being scrubbed is waited for, which takes a millisecond."""
        until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while shelf := self._shelves.get((box, session)):
            while shelf.clean:
                sandbox, timer = shelf.clean.popitem()
                timer.cancel()
                self._forget_if_empty((box, session))
                if sandbox.is_alive:
                    return sandbox
                self._background.add(sandbox.dispose())
            left = until - asyncio.get_running_loop().time()
            if not shelf.in_work or left <= 0:
                break
            await asyncio.wait(shelf.in_work, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return None

    def give_back(self, box: BoxPlan, session: str, sandbox: Sandbox) -> None:
        """Take back one whose command has ended."""
        key = (box, session)
        shelf = self._shelves.setdefault(key, _Shelf())
        task = self._background.add(self._renew(key, shelf, sandbox))
        shelf.in_work.add(task)

        def done(task: asyncio.Task[None]) -> None:
            shelf.in_work.discard(task)
            self._forget_if_empty(key)

        task.add_done_callback(done)

    def drop(self, session: str) -> None:
        """Dispose of a session's."""
        for key in [key for key in self._shelves if key[1] == session]:
            self._empty(self._shelves.pop(key))

    async def close(self) -> None:
        """
        Dispose of all.

        Raises:
            DisposeFailed: one may be left.
        """
        self._closing = True
        for shelf in self._shelves.values():
            self._empty(shelf)
        await self._background.close()

    async def _renew(self, key: Key, shelf: _Shelf, sandbox: Sandbox) -> None:
        stays = False
        try:
            await sandbox.renew()
            stays = self._shelves.get(key) is shelf and self._has_room()
        except SandboxError:
            pass  # not proved clean
        finally:
            if not stays:
                await sandbox.dispose()
        if stays:
            timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._expire, key, sandbox)
            shelf.clean[sandbox] = timer

    def _has_room(self) -> bool:
        return not self._closing and sum(len(shelf.clean) for shelf in self._shelves.values()) < self._most

    def _expire(self, key: Key, sandbox: Sandbox) -> None:
        del self._shelves[key].clean[sandbox]
        self._background.add(sandbox.dispose())
        self._forget_if_empty(key)

    def _forget_if_empty(self, key: Key) -> None:
        shelf = self._shelves.get(key)
        if shelf and not shelf.clean and not shelf.in_work:
            del self._shelves[key]

    def _empty(self, shelf: _Shelf) -> None:
        while shelf.clean:
            sandbox, timer = shelf.clean.popitem()
            timer.cancel()
            self._background.add(sandbox.dispose())
