"""An engine of the provider's own kind that has something done to itself at one step of a request's path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import provider.engine.docker as docker_engine
from provider.assets import load_assets
from provider.settings import Endpoint

CALLS = {
    "create_container_from_config": "create",
    "start": "start",
    "inspect_container": "attest",
}
MOMENT = 0.004
"""Into a call: the engine has it, and has not answered. A look-up takes 1 ms, a create 20, a start 100."""


class SteppedEngine(docker_engine.DockerEngine):
    """Acts once, before, during or after a step; from then on the engine has only `patience` for an answer."""

    def __init__(self, endpoint: Endpoint, *, timeout: float = 30.0) -> None:
        super().__init__(endpoint, load_assets(), timeout=timeout)
        self._at: tuple[str, str] = ("", "")
        self._act: Callable[[], Any] = lambda: None
        self._patience = timeout
        self._acting: asyncio.Future[None] | None = None
        self._began = asyncio.Event()

    def at(self, step: str, moment: str, act: Callable[[], Any], *, patience: float) -> None:
        """Have `act` called then, in a thread."""
        self._at, self._act, self._patience = (step, moment), act, patience

    async def act(self) -> None:
        self._at = ("", "")
        self._timeout = self._patience
        self._acting = asyncio.ensure_future(asyncio.to_thread(self._act))
        self._began.set()
        await asyncio.shield(self._acting)

    async def acted(self, seconds: float) -> None:
        """Wait until it has, also when that was not on the path of whoever asks."""
        async with asyncio.timeout(seconds):
            await self._began.wait()
            await self._acting

    def give(self, patience: float) -> None:
        """Have it answer within that time from now on."""
        self._timeout = patience

    async def _step(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        moment = self._at[1] if self._at[0] == name else ""
        if moment == "before":
            await self.act()
        elif moment == "during":
            self._timeout = self._patience
        doing = asyncio.ensure_future(work())
        try:
            if moment == "during":
                await asyncio.sleep(MOMENT)
                await self.act()
            done = await doing
            if moment == "after":
                await self.act()
        finally:
            doing.cancel()
        return done

    async def _ask(self, path: str) -> Any:
        return await self._step("image", lambda: super(SteppedEngine, self)._ask(path))

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        call = super()._call
        return await self._step(CALLS.get(method, ""), lambda: call(method, *args, **options))

    async def _is_seen_to_go(self, container: str) -> bool:
        return await self._step("dispose", lambda: super(SteppedEngine, self)._is_seen_to_go(container))

    async def in_time(self, work: Awaitable[Any]) -> Any:
        name = "attach" if getattr(work, "__name__", "") == "attach" else ""
        return await self._step(name, lambda: super(SteppedEngine, self).in_time(work))
