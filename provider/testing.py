"""
An engine without containers, for tests of whatever is built on this package.

Its sandboxes say what they were told to say: a list of messages, in which an exception is raised where it stands, or an
async generator function that is given the sandbox, and so can wait for its stdin, say. A script that stops without an
Ending leaves the command running until it is terminated. What is asked of them is kept, in public attributes.
"""

from __future__ import annotations

import asyncio
import signal as signals
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from provider.errors import ProviderError, SandboxLost
from provider.model import (
    Begun,
    BoxPlan,
    Container,
    Ending,
    EndReason,
    ExecPlan,
    Image,
    Message,
    Process,
)

Script = Sequence[Message | Exception] | Callable[["FakeSandbox"], AsyncIterator[Message]]

PID = 7
COMPLETES = (Begun(PID), Ending(reason="exited", exit_code=0, pid=PID))


class FakeSandbox:
    """A sandbox that plays its script. `deaf`, it does not mind being terminated."""

    def __init__(self, box: BoxPlan, script: Script, *, deaf: bool, dispose_error: ProviderError | None) -> None:
        self.box = box
        self.container = Container.planned(box, f"fake-{id(self):x}")
        self.released: ExecPlan | None = None
        self.has_stdin = False
        self.granted: list[int] = []
        self.stdin: list[bytes] = []
        self.stdin_closed = asyncio.Event()
        self.sizes: list[tuple[int, int]] = []
        self.signals: list[int | tuple[int, int]] = []
        self.running: tuple[Process, ...] = ()
        self.terminated: list[EndReason] = []
        self.unclean = ""
        """What a renewal finds."""
        self.disposals = 0
        self.stuck = False
        self._said: AsyncIterator[Message] | None = None
        self._script, self._deaf, self._dispose_error = script, deaf, dispose_error
        self._over = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        return not self._over.is_set()

    def mark_warm(self) -> None:
        self.container = replace(self.container, warm=True)

    async def release(self, plan: ExecPlan, *, stdin: bool) -> None:
        assert self.released is None, "a sandbox serves one command, unless it is renewed"
        self.released, self.has_stdin = plan, stdin

    async def messages(self) -> AsyncIterator[Message]:
        script = self._said = self._said or self._play()
        over = asyncio.ensure_future(self._over.wait())
        message: Message | None = None
        try:
            while not isinstance(message, Ending):
                step = asyncio.ensure_future(anext(script))
                try:
                    await asyncio.wait({step, over}, return_when=asyncio.FIRST_COMPLETED)
                    message = step.result() if step.done() and not self._over.is_set() else self._last_word()
                finally:
                    step.cancel()
                yield message
        finally:
            over.cancel()

    async def _play(self) -> AsyncIterator[Message]:
        if callable(self._script):
            async for message in self._script(self):
                yield message
        else:
            for item in self._script:
                if isinstance(item, Exception):
                    raise item
                yield item
        await asyncio.Event().wait()  # no ending: the command lives until it is terminated

    def _last_word(self) -> Ending:
        if not self.terminated:
            raise SandboxLost("disposed of under its command")  # noqa: EM101
        return Ending(reason=self.terminated[0], signal=signals.SIGTERM, pid=PID)

    def grant(self, size: int) -> None:
        self.granted.append(size)

    async def write_stdin(self, data: bytes) -> None:
        self.stdin.append(data)
        if not data:
            self.stdin_closed.set()

    def resize(self, rows: int, columns: int) -> None:
        self.sizes.append((rows, columns))

    def signal(self, number: int, pid: int | None = None) -> None:
        self.signals.append(number if pid is None else (number, pid))

    async def processes(self) -> tuple[Process, ...]:
        return self.running

    async def renew(self) -> None:
        if self.unclean:
            raise SandboxLost(self.unclean)
        assert self.released is not None
        assert self.released.reuse == "scrub", "its command had no leave to be followed by another"
        self.released, self._said = None, None
        self.stdin, self.stdin_closed = [], asyncio.Event()
        self.container = replace(self.container, served=self.container.served + 1)

    def terminate(self, reason: EndReason) -> None:
        self.terminated.append(reason)
        if not self._deaf:
            self._over.set()

    async def dispose(self, *, stuck: bool = False) -> None:
        self.disposals += 1
        self.stuck = stuck
        self._over.set()
        if self._dispose_error:
            raise self._dispose_error


class FakeEngine:
    """Makes fake sandboxes, and keeps every one it has made."""

    def __init__(
        self,
        script: Script = COMPLETES,
        *,
        open_error: ProviderError | None = None,
        open_gate: asyncio.Event | None = None,
        dispose_error: ProviderError | None = None,
        deaf: bool = False,
    ) -> None:
        """Set up what goes wrong: the errors are raised by open and dispose; open waits for the gate, set or not."""
        self.sandboxes: list[FakeSandbox] = []
        self.opening = asyncio.Event()
        self.closed = False
        self._script, self._deaf = script, deaf
        self._open_error, self._open_gate, self._dispose_error = open_error, open_gate, dispose_error

    async def image(self, name: str) -> Image:
        return Image(name=name, id="sha256:" + "0" * 64)

    async def open(self, box: BoxPlan) -> FakeSandbox:
        self.opening.set()
        if self._open_gate:
            await self._open_gate.wait()
        if self._open_error:
            raise self._open_error
        sandbox = FakeSandbox(box, self._script, deaf=self._deaf, dispose_error=self._dispose_error)
        self.sandboxes.append(sandbox)
        return sandbox

    async def sweep(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        self.closed = True
