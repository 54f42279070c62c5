"""
Takes a call through its job: judged, then run, kept for approval or denied; and what people say to jobs that wait.

Whoever moves a job to Executing runs it, in its own process; everybody else only sees the record. What a job's end is
called is decided in the store, so a job that was cancelled while it ran stays Cancelled, whatever comes of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from provider.dialects.mk8.call import Call, Execute, Result
from provider.dialects.mk8.jobs import Job, JobStore, Level
from provider.dialects.mk8.kinds import Kind
from provider.dialects.mk8.permissions import Caller, Channel, Evaluation, Verdict, evaluate, preauthorised
from provider.dialects.mk8.resources import Container, choose_resource
from provider.dialects.mk8.status import Status
from provider.errors import ProviderError

Ask = Callable[[Job], Awaitable[bool]]
"""Puts a job to the session's user and gives the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Whose model it is that calls, and from where. Trusted."""

    agent: str
    channel: Channel
    user: Caller | None = None
    """Who sits at the other end. That alone approves nothing: it counts where channel or context pre-authorise, and
    where the user is asked."""
    caller: Caller | None = None
    """Who hands the call in on its own account, with a word to say as if it approved."""
    ask: Ask | None = None
    """For a stream with a person at it: pending jobs are put to the user at once, and cancelled where the user could
    not approve. Without it they wait."""


class Foreman:
    def __init__(
        self,
        jobs: JobStore,
        execute: Execute,
        *,
        agents: Callable[[str], Caller | None],
        containers: Callable[[], Iterable[Container]] = tuple,
        flaw: Callable[[Call], str | None] = lambda _: None,
    ) -> None:
        """
        Make one for a store.

        `execute` does what was permitted, and says Completed, or Failed with its error; anything else counts as Failed.
        `agents` gives an agent with the permissions that it has now, or None if it is gone. `flaw` says why a call can
        never be run as it stands: people are not asked about such a one.
        """
        self.jobs = jobs
        self._execute = execute
        self._agents = agents
        self._containers = containers
        self._flaw = flaw
        self._running: dict[str, asyncio.Task[Result]] = {}

    async def submit(self, call: Call, session: Session) -> Result:
        """Answer a call. It is Completed, Failed, Denied or Cancelled, or it awaits somebody's approval."""
        agent = self._agent(session.agent)
        call = replace(call, resource=choose_resource(call, self._containers(), session.channel, agent))
        said = judged(agent, call, session.caller)
        job = self.jobs.create(call, channel=session.channel.id, agent=agent.id, clearance=said.clearance)
        match said.verdict:
            case Verdict.APPROVED:
                return (await self._run(job, said.reason)).answer()
            case Verdict.DENIED:
                return self._deny(job, said).answer()
            case Verdict.PENDING:
                grant = preauthorised(said.clearance, call.action, call.resource, session.channel, session.user)
                if grant:
                    return (await self._run(job, f"pre-authorised by {grant}")).answer()
                if flaw := self._flaw(call):
                    self.jobs.move(job.id, job.status, Status.FAILED, message=flaw, level="error", error=flaw)
                    return self.jobs.find(job.id).answer()
                self.jobs.move(job.id, job.status, Status.AWAITING_APPROVAL, message=said.reason)
                return (await self._put(job.id, session)).answer()

    async def approve(self, job_id: str, approver: Caller) -> Job:
        """
        Say yes to a job, which then runs if the approver may say so and the agent still has its right.

        Raises:
            LookupError: there is no such job.
        """
        job = self.jobs.find(job_id)
        who = f"{approver.kind} {approver.id}"
        if job.status is not Status.AWAITING_APPROVAL:
            return self._unchanged(job, f"{who} approved it, but it was {job.status.word} already")
        said = judged(self._agent(job.agent), job.call, approver)
        match said.verdict:
            case Verdict.APPROVED:
                return await self._run(job, f"approved by {who}")
            case Verdict.DENIED:
                return self._deny(job, said)
            case Verdict.PENDING:
                return self._unchanged(job, f"{who} cannot approve it: {said.reason}")

    def cancel(self, job_id: str, caller: Caller | None = None) -> Job:
        """
        End a job that has not ended. What runs in another process ends in the record, and there when it is done.

        Raises:
            LookupError: there is no such job.
        """
        who = f"{caller.kind} {caller.id}" if caller else "the program"
        while not (job := self.jobs.find(job_id)).status.is_final:
            said = f"cancelled by {who}"
            if self.jobs.move(job_id, job.status, Status.CANCELLED, message=said, level="warning", error=said):
                if task := self._running.get(job_id):
                    task.cancel()
                return self.jobs.find(job_id)
        return self._unchanged(job, f"{who} cancelled it, but it was {job.status.word} already")

    async def close(self) -> None:
        """End what runs here, and let go of the store. Jobs that wait for an approval go on waiting."""
        while self._running:
            for task in self._running.values():
                task.cancel()
            await asyncio.wait(self._running.values())
            await asyncio.sleep(0)  # whoever awaits them has still to enter how they ended
        self.jobs.close()

    async def _put(self, job_id: str, session: Session) -> Job:
        """Ask the user, where there is one to be asked."""
        job = self.jobs.find(job_id)
        if session.ask is None:
            return job
        said = judged(self._agent(job.agent), job.call, session.user)
        if session.user is None or said.verdict is not Verdict.APPROVED:
            self.jobs.note(job_id, "nobody here can approve it", "warning")
            return self.cancel(job_id)
        return await self.approve(job_id, session.user) if await session.ask(job) else self.cancel(job_id, session.user)

    async def _run(self, job: Job, why: str) -> Job:
        if not self.jobs.move(job.id, job.status, Status.EXECUTING, message=why):
            return self._unchanged(self.jobs.find(job.id), f"{why}, but somebody else was faster")
        task = asyncio.ensure_future(self._carried_out(job))
        self._running[job.id] = task
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                # Whoever waited for it waits no longer, and nothing goes on that nobody sees.
                task.cancel()
                await asyncio.wait({task})
            del self._running[job.id]
            self._finish(job, task)
        return self.jobs.find(job.id)

    async def _carried_out(self, job: Job) -> Result:
        try:
            return await self._execute(job.call)
        except ProviderError as error:
            return Result(id=job.call.id, status=Status.FAILED, error=str(error))
        except Exception as error:  # noqa: BLE001 - a handler's fault must not leave the job as Executing
            # What it says is for the log: to the model it would be an exception's dump.
            self.jobs.note(job.id, f"{type(error).__name__}: {error}", "error")
            said = f"{job.call.action} could not be carried out here ({type(error).__name__}); see the job's log"
            return Result(id=job.call.id, status=Status.FAILED, error=said)

    def _finish(self, job: Job, task: asyncio.Task[Result]) -> None:
        if task.cancelled():
            if self.jobs.find(job.id).status is Status.EXECUTING:  # ended from within, by nobody whom we know
                self.cancel(job.id)
            return
        result = task.result()
        to = Status.COMPLETED if result.status is Status.COMPLETED else Status.FAILED
        error = result.error or (None if to is Status.COMPLETED else "it failed and did not say why")
        level: Level = "info" if to is Status.COMPLETED else "error"
        said = f"ended as {to.word}"
        if not self.jobs.move(
            job.id, Status.EXECUTING, to, message=said, level=level, result=result.result, error=error
        ):
            self.jobs.note(job.id, f"the run {said} after all; its result is dropped", "warning")

    def _deny(self, job: Job, said: Evaluation) -> Job:
        self.jobs.move(job.id, job.status, Status.DENIED, message=said.reason, level="warning", error=said.reason)
        return self.jobs.find(job.id)

    def _unchanged(self, job: Job, why: str) -> Job:
        self.jobs.note(job.id, why, "warning")
        return self.jobs.find(job.id)

    def _agent(self, agent_id: str) -> Caller:
        """One that is gone holds nothing."""
        return self._agents(agent_id) or Caller(kind="agent", id=agent_id)


def judged(agent: Caller, call: Call, caller: Caller | None) -> Evaluation:
    """What permissions say to a call with its resource, where `caller` is the one who could say yes."""
    said = evaluate(agent, call.action, call.resource, caller)
    if call.resource is None and call.kind is not Kind.GLOBAL:
        reason = f"{call.action} needs a resource: resourceId is required, and there is no default for it here"
        if call.sandbox:
            reason = f"no container has the mk8.shell sandbox {call.sandbox!r}; the user can register it"
        return replace(said, verdict=Verdict.DENIED, reason=reason)
    return said
