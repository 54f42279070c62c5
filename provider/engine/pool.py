"""
Warm spares: containers made before their request exists, each waiting for one command and serving no second one.

A pool is an engine in front of an engine. Spares are kept by box, the half of a plan that fixes the container: whatever
changes there (the workspace's inode, the image's content, a limit) is another box, so a spare can only serve the plan
it was attested for. A request never waits for a spare; where none is ready it is served directly.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from provider.background import Background
from provider.model import BoxPlan, Engine, Image, Sandbox

RECENT_SECONDS = 2.0
"""As many spares are wanted as there were requests in this time: about as long as making that many takes."""
BREATH_SECONDS = 0.02
"""Making a container takes a processor; a short command is through before its replacement is begun."""
SPARE_BYTES = 16 * 2**20
"""What a waiting spare costs the host: a shim process, pid 1 and the kernel's bookkeeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How many spares there may be, and for how long."""

    per_box: int
    total: int
    memory_bytes: int
    idle_seconds: float

    @property
    def most(self) -> int:
        return min(self.total, self.memory_bytes // SPARE_BYTES)


@dataclass(slots=True)
class _Shelf:
    """The spares of one box, and when it was asked for."""

    ready: deque[Sandbox] = field(default_factory=deque)
    makers: set[asyncio.Task[None]] = field(default_factory=set)
    asked: deque[float] = field(default_factory=deque)

    @property
    def spares(self) -> int:
        return len(self.ready) + len(self.makers)

    def note(self, now: float) -> None:
        self.asked.append(now)
        while now - self.asked[0] > RECENT_SECONDS:
            self.asked.popleft()


class Pool:
    """An engine that has sandboxes ready."""

    def __init__(self, engine: Engine, limits: PoolLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._shelves: OrderedDict[BoxPlan, _Shelf] = OrderedDict()
        """The one asked for longest ago comes first."""
        self._background = Background()
        self._closing = asyncio.Event()

    async def image(self, name: str) -> Image:
        return await self._engine.image(name)

    async def open(self, box: BoxPlan) -> Sandbox:
        """Hand out a spare, or open a sandbox where none is ready; either way the next request shall find one."""
        if spare := self.take(box):
            return spare
        shelf = self._shelf(box)
        shelf.note(asyncio.get_running_loop().time())
        sandbox = await self._engine.open(box)
        self._background.add(self._replenish(box, shelf))
        return sandbox

    def take(self, box: BoxPlan) -> Sandbox | None:
        """Hand out a spare if one is ready, and have the next made."""
        shelf = self._shelves.get(box)
        spare = self._take(shelf) if shelf else None
        if shelf and spare:
            self._shelves.move_to_end(box)
            shelf.note(asyncio.get_running_loop().time())
            self._background.add(self._replenish(box, shelf))
        return spare

    async def prewarm(self, box: BoxPlan, count: int) -> None:
        """
        Have `count` spares of a box ready, within the limits.

        Raises:
            SandboxError: one could not be made.
        """
        shelf = self._shelf(box)
        missing = min(count, self._limits.per_box) - shelf.spares
        for _ in range(missing):
            if self._has_room(box):
                self._begin(box, shelf)
        await asyncio.gather(*shelf.makers)

    async def sweep(self) -> tuple[str, ...]:
        return await self._engine.sweep()

    async def close(self) -> None:
        """
        Dispose of every spare, also of those in the making.

        Raises:
            DisposeFailed: one may be left.
        """
        self._closing.set()
        for shelf in self._shelves.values():
            while shelf.ready:
                self._background.add(shelf.ready.popleft().dispose())
        await self._background.settle()
        await self._engine.close()
        await self._background.close()

    def _shelf(self, box: BoxPlan) -> _Shelf:
        shelf = self._shelves.setdefault(box, _Shelf())
        self._shelves.move_to_end(box)
        return shelf

    def _take(self, shelf: _Shelf) -> Sandbox | None:
        while shelf.ready:
            spare = shelf.ready.popleft()
            if spare.is_alive:
                spare.mark_warm()
                return spare
            self._background.add(spare.dispose())
        return None

    async def _replenish(self, box: BoxPlan, shelf: _Shelf) -> None:
        await asyncio.wait([closing := asyncio.ensure_future(self._closing.wait())], timeout=BREATH_SECONDS)
        closing.cancel()
        wanted = min(self._limits.per_box, len(shelf.asked))
        while shelf.spares < wanted and not self._closing.is_set() and self._has_room(box):
            self._begin(box, shelf)

    def _has_room(self, box: BoxPlan) -> bool:
        """Whether one more fits; the box asked for longest ago gives way."""
        if sum(shelf.spares for shelf in self._shelves.values()) < self._limits.most:
            return True
        for other, shelf in self._shelves.items():
            if other != box and shelf.ready:
                self._background.add(shelf.ready.popleft().dispose())
                return True
        return False

    def _begin(self, box: BoxPlan, shelf: _Shelf) -> None:
        maker = self._background.add(self._make(box, shelf))
        shelf.makers.add(maker)
        maker.add_done_callback(shelf.makers.discard)

    async def _make(self, box: BoxPlan, shelf: _Shelf) -> None:
        spare = await self._engine.open(box)
        if self._closing.is_set():
            await spare.dispose()
            return
        shelf.ready.append(spare)
        asyncio.get_running_loop().call_later(self._limits.idle_seconds, self._expire, box, spare)

    def _expire(self, box: BoxPlan, spare: Sandbox) -> None:
        shelf = self._shelves.get(box)
        if shelf is None or spare not in shelf.ready:
            return
        shelf.ready.remove(spare)
        self._background.add(spare.dispose())
        if not shelf.spares:
            del self._shelves[box]
