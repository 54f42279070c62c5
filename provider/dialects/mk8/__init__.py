"""
mk8.shell and the TOOL_CALL protocol.

The path of a call: `protocol` finds it in a model's text, or `tools` has it as a tool of its own; `call` reads it;
`foreman` enters it as a job (`jobs`), asks `permissions`, and lets `perform` do it, or leaves it until somebody
approves. A script is read by `script`, written out by `expand`, checked and made flat by `compile`, with the rules of
`provider/inside/mk8`, which holds them against every step again in the sandbox.

Where this differs from the origin, the tests have the list with reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from provider.dialects.contract import Context, Host, Reply, Teller, Tool
from provider.dialects.mk8.actions import Actions
from provider.dialects.mk8.call import Call, Malformed, Result, failed
from provider.dialects.mk8.foreman import Foreman, Session, judged
from provider.dialects.mk8.jobs import Job, JobStore
from provider.dialects.mk8.perform import NOTHING_RUNS, Performer, called_from
from provider.dialects.mk8.permissions import Caller, preauthorised
from provider.dialects.mk8.permissions import Verdict as Said
from provider.dialects.mk8.protocol import find_calls, native_call, render_results, render_status
from provider.dialects.mk8.registry import Registry
from provider.dialects.mk8.resources import choose_resource
from provider.dialects.mk8.status import Status
from provider.dialects.mk8.table import Table, load_table
from provider.dialects.mk8.tools import TOOLS as ACTION_TOOLS
from provider.errors import ProviderError
from provider.model import Decision, Verdict

TOOL_CALLS: Final = "tool_calls"
TOOLS = (
    *ACTION_TOOLS,
    Tool(
        name=TOOL_CALLS,
        description=(
            "Answers all [TOOL_CALL:id] blocks in a model's text, in their order, with one [TOOL_RESULT:id] line each. "
            "Its payload is the text."
        ),
        parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    ),
)
NO_CALL: Final = "there is no [TOOL_CALL:id] in the text"
_JOBS: Final = "jobs.sqlite"


def dialect(host: Host, tables: Mapping[str, Mapping[str, Any]]) -> Mk8:
    """Raises ConfigError when `[tools.mk8]` does not fit."""
    return Mk8(host, load_table(tables))


class Mk8:
    """The contract for one provider: its registry, jobs and handlers."""

    def __init__(self, host: Host, table: Table) -> None:
        self._host, self._table = host, table
        self.actions = Actions()
        """For the host program to register handlers with."""
        self._performer = Performer(host, table, Registry(table.home), self.actions)
        self._foreman: Foreman | None = None

    @property
    def foreman(self) -> Foreman:
        """Opened on first use: a check needs no job. Raises ConfigError, SandboxError."""
        if self._foreman is None:
            self._foreman = Foreman(
                JobStore(self._table.home / _JOBS),
                self._performer,
                agents=self._table.the_agent,
                containers=self._performer.containers,
                flaw=self._performer.flaw,
            )
        return self._foreman

    async def close(self) -> None:
        if self._foreman is not None:
            await self._foreman.close()
            self._foreman = None

    def session(self) -> Session:
        return Session(agent=self._table.agent, channel=self._table.the_channel(), user=self._table.the_user())

    async def call(self, tool: str, payload: object, context: Context) -> Reply:
        with called_from(context) as tell:
            calls = _calls(tool, payload, context)
            results = [await self._answer(call, context, tell) for call in calls]
        if not results:
            return Reply(content=NO_CALL, success=False)
        content = render_results(results) if tool == TOOL_CALLS else render_status(results[0])
        succeeded = all(result.status is Status.COMPLETED for result in results)
        return Reply(content=content, success=succeeded and not tell.errors)

    async def approve(self, job_id: str, approver: Caller | None = None) -> Job:
        """Say yes to a job, as this machine's user unless somebody else is named. Raises LookupError."""
        return await self.foreman.approve(job_id, approver or self._table.the_user())

    def cancel(self, job_id: str, caller: Caller | None = None) -> Job:
        """Raises LookupError."""
        return self.foreman.cancel(job_id, caller or self._table.the_user())

    def check(self, tool: str, payload: object, context: Context) -> Verdict:
        verdicts = [self._verdict(call, context) for call in _calls(tool, payload, context)]
        if not verdicts:
            return _refused(NO_CALL)
        reasons = tuple(reason for verdict in verdicts for reason in verdict.reasons)
        return Verdict(decision=max(verdict.decision for verdict in verdicts), reasons=reasons)

    async def _answer(self, call: Call | Malformed, context: Context, tell: Teller) -> Result:
        if isinstance(call, Malformed):
            return failed(call, call.error)
        try:
            result = await self.foreman.submit(replace(call, workspace=str(context.workspace)), self.session())
        except (ProviderError, OSError) as error:
            return failed(call, str(error))
        await tell({"type": "mk8_job", "callId": call.id, "jobId": result.job, "status": result.status.word})
        return result

    def _verdict(self, call: Call | Malformed, context: Context) -> Verdict:
        """What would be said: by the permissions, by the compiler to a script, and by the operator's rules."""
        if isinstance(call, Malformed):
            return _refused(call.error)
        session = self.session()
        agent = self._table.the_agent(session.agent)
        assert agent is not None
        try:
            resource = choose_resource(call, self._performer.containers(), session.channel, agent)
            call = replace(call, resource=resource, workspace=str(context.workspace))
            said = judged(agent, call, None)
            if said.verdict is Said.DENIED:
                return _refused(said.reason)
            asked = self._performer.asked(call)
        except (*NOTHING_RUNS, OSError) as error:
            return _refused(str(error))
        given = preauthorised(said.clearance, call.action, resource, session.channel, session.user)
        waits = said.verdict is Said.PENDING and not given
        verdict = Verdict(decision=Decision.ASK, reasons=(said.reason,)) if waits else Verdict(decision=Decision.ALLOW)
        return self._host.judge(asked.argv, verdict, script=asked.wishes.get("script", "")) if asked else verdict


def _refused(reason: str) -> Verdict:
    return Verdict(decision=Decision.REFUSE, reasons=(reason,))


def _calls(tool: str, payload: object, context: Context) -> tuple[Call | Malformed, ...]:
    if tool != TOOL_CALLS:
        return (native_call(context.call_id, tool, payload),)
    text = payload.get("text") if isinstance(payload, Mapping) else payload
    return find_calls(text) if isinstance(text, str) else ()
