"""Work off a caller's path that is never forgotten: whoever closes waits for it, and hears what it left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from provider.errors import DisposeFailed, ProviderError


class Background:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaked: list[DisposeFailed] = []

    def add(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def settle(self) -> None:
        """Wait until nothing is under way, also of what is added meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """
        Settle, and tell.

        Raises:
            DisposeFailed: with every container that may be left.
        """
        await self.settle()
        if self._leaked:
            message = "; ".join(str(leak) for leak in self._leaked)
            self._leaked.clear()
            raise DisposeFailed(message)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DisposeFailed):
            self._leaked.append(error)
        elif error and not isinstance(error, ProviderError):
            raise error  # a bug, for the event loop's handler to show; our own kinds are nobody's loss here
