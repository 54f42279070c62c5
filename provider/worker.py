"""
A thread of one's own for calls that may block, awaited one after the other.

A daemon: a call that never returns is left behind at exit, where a thread pool would be waited for, for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Raised:
    """An error carried as a value: futures do not take StopIteration, and take CancelledError for their own."""

    error: BaseException


class Worker:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[Callable[[Any], Any], Any, asyncio.Future[Any]] | None]
        self._work = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def call(self, function: Callable[[Any], Any], value: Any) -> asyncio.Future[Any]:
        """Give what `function(value)` returns, or what it Raised."""
        done = self._loop.create_future()
        self._work.put((function, value, done))
        return done

    def close(self) -> None:
        self._work.put(None)

    def _serve(self) -> None:
        while work := self._work.get():
            function, value, done = work
            try:
                result = function(value)
            except BaseException as error:  # noqa: BLE001 - whoever called decides
                result = Raised(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(_settle, done, result)


def _settle(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)
