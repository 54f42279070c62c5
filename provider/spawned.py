"""A command that one talks to while it runs: bytes in, bytes out, signals, a terminal's size; and then its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from provider.listeners import Listeners
from provider.model import Chunk, Outcome, State, Stream
from provider.underway import Run


class Conversation:
    """The two ends that a run is given in place of stdin and listeners. Holds one piece each way, and no more."""

    def __init__(self) -> None:
        self.typed: asyncio.Queue[bytes] = asyncio.Queue(1)
        self.heard: asyncio.Queue[Chunk] = asyncio.Queue(1)
        self.deaf = False
        """Nobody is going to read: output goes to the outcome alone, and holds nothing up."""

    async def stdin(self) -> AsyncIterator[bytes]:
        while piece := await self.typed.get():
            yield piece

    def listeners(self, on_event: Callable[[Any], Any] | None) -> Listeners:
        return Listeners(self._listener("stdout"), self._listener("stderr"), on_event)

    def _listener(self, stream: Stream) -> Callable[[bytes], Any]:
        async def hear(data: bytes) -> None:
            if not self.deaf:
                await self.heard.put(Chunk(stream, data))

        return hear


class Spawned:
    """
    The handle of a run that `Provider.spawn` began.

    Output must be read, or the command stops when a pipe's worth is written. Whoever wants no more of it calls `wait`.
    """

    def __init__(self, run: Run, talk: Conversation, task: asyncio.Task[Outcome]) -> None:
        self._run = run
        self._talk = talk
        self._task = task

    @property
    def id(self) -> str:
        return self._run.id

    @property
    def state(self) -> State:
        return self._run.state

    async def write(self, data: bytes) -> None:
        """Send bytes to stdin; waits while the command does not read. Dropped when it is over."""
        if data:
            await self._until_over(self._talk.typed.put(data))

    async def close_stdin(self) -> None:
        """End stdin; on a terminal, as Ctrl-D does."""
        await self._until_over(self._talk.typed.put(b""))

    async def output(self) -> AsyncIterator[Chunk]:
        """Yield output as it comes, until the command is over."""
        while arrived := await self._until_over(self._talk.heard.get()):
            yield arrived

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal a new size. Raises CallError for one that no terminal has."""
        self._run.resize(rows, columns)

    def signal(self, number: int) -> None:
        """Send a signal to it, on a terminal to the foreground. Raises CallError for a number that is none."""
        self._run.signal(number)

    def cancel(self) -> None:
        """End it; its outcome is then a canceled one."""
        self._run.end()

    async def over(self) -> None:
        """Wait for its end, and leave its output to whoever reads it."""
        await asyncio.wait({self._task})

    async def wait(self) -> Outcome:
        """
        Wait for its outcome, which has all its output; from now on nobody need read it.

        Raises:
            Whatever `Provider.run` does.
        """
        self._talk.deaf = True
        while not self._talk.heard.empty():
            self._talk.heard.get_nowait()  # lets go of a listener that waits to put
        return await asyncio.shield(self._task)

    async def _until_over(self, work: Any) -> Any:
        """What `work` gives, or None when the run is over first."""
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait({working, self._task}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
