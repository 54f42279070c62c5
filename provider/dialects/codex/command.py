"""
One command: begin, decide, run, perhaps once more in a wider container, end, reply.

That the sandbox has denied something is told by pid 1 and the kernel, never by words of the output: the filter's
signal, a program that may not be executed, writes to a workspace that can only be read, packets without a network.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import posixpath
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from provider.approval import Answer
from provider.dialects.codex import events
from provider.dialects.codex.aggregate import Aggregate
from provider.dialects.codex.call import Call
from provider.dialects.codex.environment import environment
from provider.dialects.codex.execrules import is_too_broad, remember, rule_line
from provider.dialects.codex.profile import Profile, usual, wider
from provider.dialects.codex.requirement import (
    AskForApproval,
    Forbidden,
    NeedsApproval,
    Requirement,
    Setting,
    Skip,
    after_denial,
    command_key,
    requirement,
)
from provider.dialects.codex.safety import plain_commands, script_of
from provider.dialects.codex.table import Table
from provider.dialects.codex.truncation import Ran, formatted, preview
from provider.dialects.contract import Context, Host, Rejected, Reply, Teller
from provider.errors import ApprovalRefused, ConfigError, PolicyRefused, ProviderError
from provider.events import ApprovalRequested, Event, OutputArrived
from provider.model import Decision, Outcome, Stream, Verdict
from provider.plan import WORKSPACE

log = logging.getLogger(__name__)

REJECTED: Final = "exec command rejected by user"
EXECUTION_ERROR: Final = "execution error: "
MAX_EVENT_BYTES: Final = 2**20
"""Of each stream, in the event at the end."""
_DEFAULT_RULES = "default.rules"
_SIGNALED = 128

Render = Callable[[Ran], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command as it would run, before anybody has decided."""

    argv: tuple[str, ...]
    cwd: str
    """In the sandbox, absolute."""
    timeout: float
    call: Call

    @property
    def script(self) -> str:
        """The shell text, where there is one: the operator's rules read it and not the wrapper."""
        return script_of(self.argv) or ""


def prepare(call: Call, table: Table, context: Context) -> Asked:
    """Raises Rejected."""
    login = table.login if call.login is None else call.login
    argv = (table.shell, "-lc" if login else "-c", call.command) if isinstance(call.command, str) else call.command
    wanted = table.default_timeout_ms if call.timeout_ms is None else call.timeout_ms
    milliseconds = min(max(wanted, 1), table.max_timeout_ms)
    return Asked(argv=argv, cwd=directory(call.workdir, context), timeout=milliseconds / 1000, call=call)


def directory(workdir: str | None, context: Context) -> str:
    """Join like the original, then hold it in the workspace. Raises Rejected."""
    wanted, host = workdir or "", str(context.workspace)
    if wanted == host or wanted.startswith(f"{host}/"):  # who calls from the host may know no other name for it
        wanted = WORKSPACE + wanted.removeprefix(host)
    joined = posixpath.normpath(posixpath.join(WORKSPACE, wanted))
    if joined != WORKSPACE and not joined.startswith(f"{WORKSPACE}/"):
        message = f"workdir {workdir!r} is outside of the workspace; name a directory below it, or leave it out"
        raise Rejected(message)
    return joined


def verdict(needed: Requirement, profile: Profile, justification: str, *, widened: bool) -> Verdict:
    """As the provider takes it, with what a person has to know: why, what for, and in which container."""
    match needed:
        case Skip():
            return Verdict(decision=Decision.ALLOW)
        case Forbidden(reason):
            return Verdict(decision=Decision.REFUSE, reasons=(reason,))
        case NeedsApproval(reason):
            said = f"the model says: {justification}" if justification else ""
            where = f"it would run in the container profile {profile}" if widened else ""
            reasons = tuple(filter(None, (reason, said, where)))
            return Verdict(decision=Decision.ASK, reasons=reasons or ("the approval policy asks about this command",))


@dataclass(slots=True)
class CommandRun:
    """The path of one command."""

    host: Host
    table: Table
    context: Context
    tell: Teller
    shown: events.Command
    asked: Asked
    setting: Setting
    output: Aggregate = field(default_factory=Aggregate)
    sent: dict[Stream, int] = field(default_factory=lambda: {"stdout": 0, "stderr": 0})

    async def reply(self, render: Render) -> Reply:
        await self.tell(self.shown.begin())
        try:
            outcome = await self._outcome()
        except ProviderError as error:
            return await self._never_ran(refusal(error, rejected=REJECTED))
        if outcome.error:
            return await self._never_ran(EXECUTION_ERROR + outcome.error)
        if outcome.ending.reason == "canceled":
            return await self._never_ran(_aborted(outcome))
        return await self._ended(outcome, render)

    async def _outcome(self) -> Outcome:
        escalated = self.asked.call.escalated
        needed = requirement(self.asked.argv, self.setting, escalated=escalated)
        profile = wider(self.table) if escalated else usual(self.table)
        outcome = await self._attempt(needed, profile, escalated=escalated)
        if profile == wider(self.table) or not is_denied(outcome, profile):
            return outcome
        again = after_denial(self.setting.approval, approved=_was_asked(outcome))
        if again is None:
            return outcome
        self.output = Aggregate()  # the second attempt's result is the result
        return await self._attempt(again, wider(self.table), escalated=True)

    async def _attempt(self, needed: Requirement, profile: Profile, *, escalated: bool) -> Outcome:
        asked = self.asked
        prefix = self._prefix(needed)
        outcome = await self.host.run(
            asked.argv,
            workspace=self.context.workspace,
            session=self.context.session,
            cwd=asked.cwd,
            timeout=asked.timeout,
            env=self._environment(profile),
            judged=verdict(needed, profile, asked.call.justification, widened=escalated),
            remember=(command_key(asked.argv, asked.cwd, escalated=escalated),),
            forever=rule_line(prefix) if prefix else "",
            script=asked.script,
            watch_writes=profile.read_only and self.setting.approval in _RETRYING,
            on_event=self._hear,
            **profile.wishes(self.host.limits),
        )
        if prefix and outcome.receipt["approval"]["answer"] == Answer.ALWAYS:
            await self._remember(prefix)
        return outcome

    def _environment(self, profile: Profile) -> dict[str, str]:
        chosen = self.table.environment
        return environment(chosen.policy(), chosen.given, network=profile.network == "open")

    def _prefix(self, needed: Requirement) -> tuple[str, ...]:
        """What a yes for ever would allow: the beginning that the model proposes, or the whole of one plain command."""
        call, argv = self.asked.call, self.asked.argv
        commands = plain_commands(argv) or ((argv,) if script_of(argv) is None else ())
        if self.table.rules is None or needed != NeedsApproval() or call.escalated or len(commands) != 1:
            return ()
        proposed = call.prefix if call.prefix and commands[0][: len(call.prefix)] == call.prefix else commands[0]
        return () if is_too_broad(proposed) else proposed

    async def _remember(self, prefix: tuple[str, ...]) -> None:
        assert self.table.rules is not None
        try:
            await asyncio.to_thread(remember, self.table.rules / _DEFAULT_RULES, prefix)
        except ConfigError as error:  # the command has run; what is lost is a rule, and it is asked again
            log.warning("the rule was not written: %s", error)

    async def _hear(self, event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            await self.tell(self.shown.approval_request("; ".join(event.reasons)))
        if isinstance(event, OutputArrived):
            self.output.add(event.data)
            for piece in events.pieces(event.data):
                if self.sent[event.stream] < events.MAX_DELTAS:
                    self.sent[event.stream] += 1
                    await self.tell(self.shown.delta(event.stream, piece))

    async def _never_ran(self, message: str) -> Reply:
        await self.tell(self.shown.never_ran(message))
        return Reply(content=message, success=False)

    async def _ended(self, outcome: Outcome, render: Render) -> Reply:
        ran = _ran(outcome, self.output.text)
        await self.tell(
            self.shown.end(
                stdout=_text(outcome.stdout_capture.read(MAX_EVENT_BYTES)),
                stderr=_text(outcome.stderr_capture.read(MAX_EVENT_BYTES)),
                aggregated=ran.output,
                exit_code=ran.code,
                seconds=ran.seconds,
                formatted=formatted(ran.body, self.table.budget),
            )
        )
        log.debug("%s exited with %s: %s", self.shown.source.call_id, ran.code, preview(ran.body))
        heard = not outcome.callback_errors and not self.tell.errors
        return Reply(content=render(ran), success=ran.code == 0 and heard)


_RETRYING: Final = frozenset({AskForApproval.ON_FAILURE, AskForApproval.UNTRUSTED})
_MAY_NOT: Final = frozenset({errno.EPERM, errno.EROFS})


def is_denied(outcome: Outcome, profile: Profile) -> bool:
    """Whether a command failed, and the kernel or pid 1 tells that this container kept it from something."""
    ending = outcome.ending
    if ending.reason != "exited" or ending.exit_code == 0:
        return False
    filtered = signal.SIGSYS in {ending.signal, (ending.exit_code or 0) - _SIGNALED}
    unable = ending.error_number in _MAY_NOT
    unwritten = profile.read_only and bool(ending.denied_writes)
    # A name is looked up at 127.0.0.1, where nobody listens without a network.
    unsent = profile.network == "none" and bool(ending.denied_network or ending.refused_datagrams)
    return filtered or unable or unwritten or unsent


def _was_asked(outcome: Outcome) -> bool:
    approval: dict[str, Any] = outcome.receipt.get("approval") or {}
    return approval.get("by") != "policy"


def refusal(error: ProviderError, *, rejected: str) -> str:
    """What a model is told of a call that never ran."""
    match error:
        case ApprovalRefused():
            return rejected
        case PolicyRefused():
            return str(error)
        case _:
            return f"{EXECUTION_ERROR}{type(error).__name__}: {error}"


def _aborted(outcome: Outcome) -> str:
    return f"Wall time: {max(outcome.duration_ms / 1000, 0.1):.1f} seconds\naborted by user"


def _ran(outcome: Outcome, output: str) -> Ran:
    ending = outcome.ending
    code = ending.exit_code if ending.exit_code is not None else _SIGNALED + (ending.signal or 0)
    ran = Ran(output=output, exit_code=code, seconds=outcome.duration_ms / 1000, timed_out=outcome.timed_out)
    if outcome.output_limited:
        return replace(ran, exit_code=code or 1, remark="command ended: it wrote more than it may\n")
    if outcome.over_quota:
        return replace(ran, exit_code=code or 1, remark=f"command ended: {outcome.over_quota}\n")
    if ending.signal is not None and not outcome.timed_out:
        why = ", out of memory" if outcome.oom_killed else ""
        return replace(ran, remark=f"command killed by signal {ending.signal}{why}\n")
    return ran


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
