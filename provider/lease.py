"""
Processes that outlived their command, kept for a while: a server started with `&`, say.

Their container lives on, with the same limits and what is left of the workspace's quota, until the lease ends: at its
time (kept by pid 1, the engine being the second line), when somebody stops it, when the last process is gone, or with
the provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time

from provider.capture import Capture
from provider.errors import DisposeFailed, ProviderError, SandboxError
from provider.model import Begun, Chunk, Container, Ending, Leased, Output, Plan, Process, Sandbox
from provider.plan import check_signal
from provider.quota import Watch
from provider.stream import SECOND_LINE_SECONDS


class Lease:
    """One sandbox whose command has ended. Output is kept as that of a command is, from the command's end on."""

    def __init__(
        self, sandbox: Sandbox, plan: Plan, watch: Watch, *, run_id: str, session: str, pids: tuple[int, ...]
    ) -> None:
        assert plan.exec.lease is not None
        self.id = run_id
        self.session = session
        self.command = plan.exec.argv
        self.pids = pids
        """Those that the command left; `processes` tells which live now."""
        self.until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=plan.exec.lease)
        """For people; what counts is `seconds_left`, which no change of the clock moves."""
        self._ends = time.monotonic() + plan.exec.lease
        self.ending: Ending | None = None
        """How it ended; None while it lasts, and when its sandbox was lost."""
        self._sandbox = sandbox
        self._watch = watch
        self._seconds = plan.exec.lease
        self._grace = plan.exec.grace
        self._flood_bytes = plan.box.limits.flood_bytes
        self._captures = {name: Capture(plan.box.limits.output_bytes) for name in ("stdout", "stderr")}
        self._over = asyncio.Event()

    @property
    def container(self) -> Container:
        return self._sandbox.container

    @property
    def stdout(self) -> Output:
        """Standard output so far."""
        return self._captures["stdout"]

    @property
    def stderr(self) -> Output:
        return self._captures["stderr"]

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._ends - time.monotonic())

    async def processes(self) -> tuple[Process, ...]:
        """
        List what runs now; nothing when the lease is over.

        Raises:
            SandboxError: nobody answers, though it is not over.
        """
        try:
            return () if self.is_over else await self._sandbox.processes()
        except SandboxError:
            if self._sandbox.is_alive:
                raise
            return ()  # it ended while we asked

    def signal(self, number: int, pid: int = 0) -> None:
        """
        Send a signal to one process, or with 0 to all of them.

        Raises:
            CallError: there is no such signal.
        """
        check_signal(number)
        if not self.is_over:
            self._sandbox.signal(number, pid)

    async def stop(self) -> None:
        """End every process, and wait until it is done."""
        if not self.is_over:
            self._sandbox.terminate("canceled")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), self._grace + SECOND_LINE_SECONDS)
        if self.ending is None:
            with contextlib.suppress(DisposeFailed):  # for `serve` to tell, which ends by this
                await self._sandbox.dispose(stuck=True)
            await self._over.wait()

    async def wait(self) -> Ending | None:
        """Wait for the end of the lease."""
        await self._over.wait()
        return self.ending

    async def serve(self) -> None:
        """
        Follow it to its end, and dispose of its sandbox; the provider does this.

        Raises:
            DisposeFailed: the container may be left.
        """
        stuck = False
        try:
            with self._watch.telling(lambda: self._sandbox.terminate("workspace_quota")):
                async with asyncio.timeout(self._seconds + self._grace + SECOND_LINE_SECONDS):
                    ending = await self._follow()
            self.ending = await self._watch.judge(ending)
        except TimeoutError:
            stuck = True  # pid 1 had its time
        except ProviderError:
            pass  # lost: its stdin has ended, and by that it ends
        finally:
            try:
                await self._sandbox.dispose(stuck=stuck)
            finally:
                self._over.set()

    async def _follow(self) -> Ending:
        async for message in self._sandbox.messages():
            match message:
                case Chunk(name, data):
                    self._captures[name].write(data)
                    if sum(capture.total_bytes for capture in self._captures.values()) > self._flood_bytes:
                        self._sandbox.terminate("output_limit")
                    self._sandbox.grant(len(data))
                case Ending():
                    return message
                case Begun() | Leased():
                    pass  # said already
        raise AssertionError  # messages() ends with an ending or an error
