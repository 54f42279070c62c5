"""Follows one command: its output as events in the contract's shape, and a clock that runs while it writes nothing."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from provider.dialects.contract import Emit
from provider.dialects.run_shell_command.output import SNIFFED, is_binary, strip_ansi
from provider.events import Event, OutputArrived, StateChanged
from provider.model import State, Stream


class Watch:
    """The ear of one run."""

    def __init__(self, emit: Emit, call_id: str, *, seconds: float, cancel: Callable[[], Awaitable[Any]]) -> None:
        """After `seconds` without output it cancels; 0 or less is never."""
        self._emit, self._call_id = emit, call_id
        self._seconds, self._cancel = seconds, cancel
        self._last = math.inf
        self._running = asyncio.Event()
        self._streams: dict[Stream, _Stream] = {"stdout": _Stream(), "stderr": _Stream()}
        self.is_expired = False
        """Whether the clock has cancelled it."""

    @contextlib.asynccontextmanager
    async def clock(self) -> AsyncIterator[None]:
        """Keep the clock while the command runs."""
        clock = asyncio.ensure_future(self._tick()) if self._seconds > 0 else None
        try:
            yield
        finally:
            if clock:
                clock.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await clock

    async def _tick(self) -> None:
        await self._running.wait()
        loop = asyncio.get_running_loop()
        while (left := self._last + self._seconds - loop.time()) > 0:  # noqa: ASYNC110 - a clock
            # While a listener is busy there is no last output, and nothing to wait for but the next look.
            await asyncio.sleep(min(left, self._seconds))
        self.is_expired = True
        await self._cancel()

    async def hear(self, event: Event) -> None:
        """Take an event of the run."""
        match event:
            case StateChanged(state=State.RUNNING):
                self._last = asyncio.get_running_loop().time()
                self._running.set()
            case OutputArrived(stream=stream, data=data):
                self._last = math.inf
                try:
                    await self._tell(stream, data)
                finally:
                    self._last = asyncio.get_running_loop().time()
            case _:
                pass

    async def close(self, exit_code: int | None, signal: int | None) -> None:
        """Tell of what was held back, and of the end."""
        for name, stream in self._streams.items():
            if rest := stream.take(b"", final=True):
                await self._say(type="data", stream=name, chunk=rest)
        await self._say(type="exit", exitCode=exit_code, signal=signal)

    async def _tell(self, name: Stream, data: bytes) -> None:
        stream = self._streams[name]
        was_binary = stream.is_binary
        text = stream.take(data)
        if stream.is_binary:
            if not was_binary:
                await self._say(type="binary_detected", stream=name)
            await self._say(type="binary_progress", stream=name, bytesReceived=stream.received)
        elif text:
            await self._say(type="data", stream=name, chunk=text)

    async def _say(self, **event: Any) -> None:
        await self._emit({"callId": self._call_id, **event})


class _Stream:
    def __init__(self) -> None:
        self.received = 0
        self.is_binary = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def take(self, data: bytes, *, final: bool = False) -> str:
        """Return the text so far that is whole: no character is cut in two."""
        if self.received < SNIFFED:
            self.is_binary = self.is_binary or is_binary(data[: SNIFFED - self.received])
        self.received += len(data)
        return "" if self.is_binary else strip_ansi(self._decoder.decode(data, final))
