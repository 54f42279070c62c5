"""
Who is told about a run: output and events, one call at a time, each awaited, so that a slow listener slows the
command.

What a listener raises is kept and ends nothing. A run that is over waits for nobody: once hurried, each
listener has a little time left, and one that uses it up is dropped. Sync listeners run in a thread of their own
run: one that blocks holds up neither the event loop, which somebody needs for cancelling the run, nor the
listeners of other runs, nor the interpreter's exit.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from provider.events import Event, OutputArrived
from provider.model import Stream
from provider.worker import Raised, Worker

PATIENCE_SECONDS = 0.3
"""What each listener has, in all, once a run is to end: enough for a healthy one, unnoticed after a cancel."""

Callback = Callable[[Any], Any]


class Listeners:
    """The callbacks of one run."""

    def __init__(
        self,
        on_stdout: Callable[[bytes], Any] | None = None,
        on_stderr: Callable[[bytes], Any] | None = None,
        on_event: Callable[[Event], Any] | None = None,
    ) -> None:
        self._on_output = {"stdout": on_stdout, "stderr": on_stderr}
        self._on_event = on_event
        self._hurried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left: dict[int, float] = {}
        self._patience = PATIENCE_SECONDS
        self._worker: Worker | None = None
        self.errors: list[BaseException] = []

    async def hear(self, stream: Stream, data: bytes) -> None:
        if callback := self._on_output[stream]:
            await self._call(callback, data)
        if self._on_event:
            await self._call(self._on_event, OutputArrived(stream=stream, data=data))

    async def tell(self, event: Event) -> None:
        if self._on_event:
            await self._call(self._on_event, event)

    def hurry(self) -> None:
        """From now on, wait for each of them only a little longer."""
        if not self._hurried.done():
            self._hurried.set_result(None)

    def give_up(self) -> None:
        """From now on, wait for nobody."""
        self._patience = 0
        self.hurry()

    def close(self) -> None:
        self.give_up()
        if self._worker:
            self._worker.close()

    async def _call(self, callback: Callback, value: Any) -> None:
        if self._hurried.done() and self._time_left(callback) <= 0:
            return
        work = asyncio.ensure_future(self._outcome(callback, value))
        either: set[asyncio.Future[Any]] = {work, self._hurried}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await self._wait_a_little(callback, work)
            error = (
                work.result()
                if work.done()
                else TimeoutError(f"{_name(callback)} was still busy when the run was over")
            )
            if error:
                self.errors.append(error)
        finally:
            work.cancel()

    async def _wait_a_little(self, callback: Callback, work: asyncio.Future[Any]) -> None:
        loop = asyncio.get_running_loop()
        left, began = self._time_left(callback), loop.time()
        await asyncio.wait({work}, timeout=left)
        self._left[id(callback)] = left - (loop.time() - began) if work.done() else 0

    def _time_left(self, callback: Callback) -> float:
        return min(self._patience, self._left.get(id(callback), self._patience))

    async def _outcome(self, callback: Callback, value: Any) -> BaseException | None:
        try:
            if not inspect.iscoroutinefunction(callback):
                self._worker = self._worker or Worker()
                value = await self._worker.call(callback, value)
                if isinstance(value, Raised):
                    return value.error
                if inspect.isawaitable(value):
                    await value
            else:
                await callback(value)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is the listener's
            return error
        return None


def _name(callback: object) -> str:
    return getattr(callback, "__name__", type(callback).__name__)
