"""One run under way: how far it has come, who listens, and how to end it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from provider.approval import Question
from provider.events import ApprovalRequested, StateChanged, StepFinished
from provider.listeners import Listeners
from provider.model import Approval, Plan, Request, Sandbox, State, Stdin, Verdict, Workspace
from provider.plan import check_signal, check_terminal
from provider.stream import Stop


@dataclass(slots=True, kw_only=True)
class Run:
    """An entry of the provider's register. What it has not reached yet is None."""

    id: str
    request: Request
    workspace: Workspace
    stdin: Stdin
    listeners: Listeners
    receipt: Path | None = None
    """Where to write it."""
    stop: Stop = field(default_factory=Stop)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    state: State = State.QUEUED
    timings: dict[str, float] = field(default_factory=dict)
    verdict: Verdict | None = None
    plan: Plan | None = None
    approval: Approval | None = None
    sandbox: Sandbox | None = None

    @property
    def session(self) -> str:
        return self.request.session

    def end(self) -> None:
        """Cancel it, wherever it is on its path."""
        self.stop.request("canceled")
        self.listeners.hurry()

    def resize(self, rows: int, columns: int) -> None:
        """Raises CallError for a size that no terminal has."""
        check_terminal(rows, columns)
        if self.sandbox and self._is_running:
            self.sandbox.resize(rows, columns)

    def signal(self, number: int) -> None:
        """Raises CallError for a number that is no signal."""
        check_signal(number)
        if self.sandbox and self._is_running:
            self.sandbox.signal(number)

    @property
    def _is_running(self) -> bool:
        """Whether its command does: before, pid 1 wants nothing but the command, and after, it may be another's."""
        return self.begun.is_set() and "run" not in self.timings

    async def begin(self) -> None:
        """Note that the command runs. Pid 1 takes anything that comes before that for a broken conversation."""
        self.begun.set()
        await self.reach(State.RUNNING)

    async def asking(self, question: Question) -> None:
        """Tell that an approver is about to be asked."""
        about = ApprovalRequested(
            run_id=self.id,
            session=self.session,
            plan_digest=question.plan.digest,
            reasons=question.verdict.reasons,
        )
        await self.listeners.tell(about)

    async def reach(self, state: State) -> None:
        self.state = state
        await self.listeners.tell(StateChanged(run_id=self.id, session=self.session, state=state))

    @contextlib.asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Time a step, and tell of it, however it ends."""
        began = time.monotonic()
        error: str | None = None
        try:
            yield
        except BaseException as problem:
            error = str(problem) or type(problem).__name__
            if isinstance(problem, asyncio.CancelledError):
                self.listeners.hurry()
            raise
        finally:
            self.timings[name] = time.monotonic() - began
            await self.listeners.tell(StepFinished(run_id=self.id, step=name, seconds=self.timings[name], error=error))
