"""
From the command's release to its ending: output is captured, shown to whoever listens, and credited back.

Listeners are awaited one at a time, and only then is the command granted more output, so a slow listener slows
the command. It never blocks a kill: pid 1 keeps the deadline by itself, and from the deadline or a cancel on,
listeners have only a moment left. The engine is the second line: when pid 1 does not report an ending in
time, the container is removed under it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from provider.capture import Capture
from provider.listeners import Listeners
from provider.model import Begun, Chunk, Ending, EndReason, ExecPlan, Leased, Limits, Plan, Sandbox, Stdin

SECOND_LINE_SECONDS = 3.0
"""How long after deadline and grace pid 1 may take to report, before the container is removed under it."""


class Stop:
    """The wish to end a run before its command does so. The first counts; it may come before there is a command."""

    def __init__(self) -> None:
        self.wish: asyncio.Future[EndReason] = asyncio.get_running_loop().create_future()
        """For `asyncio.wait`, which cancels nothing; without a task for each that waits."""

    def request(self, reason: EndReason) -> None:
        if not self.wish.done():
            self.wish.set_result(reason)

    @property
    def is_requested(self) -> bool:
        return self.wish.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    stdout: Capture
    stderr: Capture
    ending: Ending
    leased: bool
    """Whether processes live on."""
    seconds: float


async def stream(
    sandbox: Sandbox,
    plan: Plan,
    *,
    stdin: Stdin,
    listeners: Listeners,
    stop: Stop,
    begun: Callable[[], Awaitable[None]],
) -> Streamed:
    """
    Release the command and follow it to its ending.

    Raises:
        SandboxLost: pid 1 fell silent without our doing.
    """
    loop = asyncio.get_running_loop()
    flow = _Flow(sandbox, plan.box.limits, listeners, stop)
    released = loop.time()
    await sandbox.release(plan.exec, stdin=stdin is not None)
    tasks: list[asyncio.Future[Any]] = [
        reading := asyncio.ensure_future(flow.follow(begun)),
        clock := asyncio.ensure_future(_end_in_time(flow, plan.exec, stop)),
    ]
    if stdin is not None:
        tasks.append(asyncio.ensure_future(_feed(sandbox, stdin, listeners)))
    try:
        await asyncio.wait({reading, clock}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            ending = reading.result()
        else:
            # Pid 1 had its time; nothing may live on when the caller looks at the workspace.
            await sandbox.dispose(stuck=True)
            ending = Ending(reason=clock.result(), signal=signal.SIGKILL, pid=flow.pid)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return Streamed(
        stdout=flow.stdout, stderr=flow.stderr, ending=ending, leased=flow.leased, seconds=loop.time() - released
    )


async def _feed(sandbox: Sandbox, stdin: bytes | AsyncIterable[bytes], listeners: Listeners) -> None:
    try:
        if isinstance(stdin, bytes):
            await sandbox.write_stdin(stdin)
        else:
            async for piece in stdin:
                if piece:  # empty would close it
                    await sandbox.write_stdin(piece)
    except Exception as error:  # noqa: BLE001 - the caller's source, like a listener, does not end the run
        listeners.errors.append(error)
    await sandbox.write_stdin(b"")


async def _end_in_time(flow: _Flow, plan: ExecPlan, stop: Stop) -> EndReason:
    """Return only when pid 1 has had its time: the reason for which it should have ended the command by then."""
    await asyncio.wait([stop.wish], timeout=plan.timeout)
    reason: EndReason = stop.wish.result() if stop.is_requested else "timed_out"
    flow.sandbox.terminate(reason)  # a deadline pid 1 keeps by itself; told twice it does nothing more
    if reason == "timed_out":
        await asyncio.sleep(plan.grace)  # listeners may finish what they have in hand
    flow.listeners.hurry()
    await asyncio.sleep(plan.grace + SECOND_LINE_SECONDS)
    return reason


class _Flow:
    """Chunks into captures and to listeners, credit back to pid 1."""

    def __init__(self, sandbox: Sandbox, limits: Limits, listeners: Listeners, stop: Stop) -> None:
        self.sandbox = sandbox
        self.listeners = listeners
        self.stdout = Capture(limits.output_bytes)
        self.stderr = Capture(limits.output_bytes)
        self.pid: int | None = None
        self.leased = False
        self._flood_bytes = limits.flood_bytes
        self._stop = stop

    async def follow(self, begun: Callable[[], Awaitable[None]]) -> Ending:
        async for message in self.sandbox.messages():
            match message:
                case Begun(pid):
                    self.pid = pid
                    await begun()
                case Chunk(name, data):
                    (self.stdout if name == "stdout" else self.stderr).write(data)
                    if self.stdout.total_bytes + self.stderr.total_bytes > self._flood_bytes:
                        self._stop.request("output_limit")
                    await self.listeners.hear(name, data)
                    self.sandbox.grant(len(data))
                case Leased(ending):
                    self.leased = True
                    return ending
                case Ending():
                    return message
        raise AssertionError  # messages() ends with an ending or an error
