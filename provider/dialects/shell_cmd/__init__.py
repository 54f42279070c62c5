"""
`shell_cmd`: one executable with its arguments, in the trusted directory of a chat; from agent-world.

The contract is section A of shell-tools.md: seven parameters, single commands only, risk tiers and permission levels, a
person's approval, streams, a registry of executions, markdown or JSON. Where ours differs from the original, in short:

- arguments go to the program as they are, no shell reads them; stdin is at its end; `directory` is where it runs;
- program text, paths and risks are found in every disguise that the original overlooked, absolute programs included;
- an option that belongs to a script (`python3 a.py -c x`) is not taken for inline text;
- a backslash separates no path here, and a path below the trusted directory is written as the sandbox has it;
- refusals are replies with a reason, not exceptions; so is a canceled run, and one whose artifact is missing;
- what runs something unreadable (`watch`, `git -c`, an unknown option of `sudo`) is asked about: `indirect_execution`;
- `wget` and `find -delete` are asked about whatever their other options are.

A provider's session stands for the contract's world and chat: `world/chat`, see `registry.session_of`.
"""

from __future__ import annotations

import codecs
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from provider.dialects.contract import Asked, Context, Host, Rejected, Reply, Teller, Tool
from provider.dialects.shell_cmd import events, words
from provider.dialects.shell_cmd.call import NAME, Call, read_call, unreadable
from provider.dialects.shell_cmd.parse import Case, Permission, judge, parse
from provider.dialects.shell_cmd.registry import Canceled, Deletion, Registry, now
from provider.dialects.shell_cmd.reply import Came, Form, Result, conclude, tool_text, written
from provider.dialects.tables import read_table
from provider.errors import ProviderError
from provider.events import Event, StateChanged
from provider.model import Decision, Outcome, State, Stream, Verdict

TOOLS: Final = (
    Tool(
        name=NAME,
        description=(
            "Run one command in the trusted working directory, when the user asks for it. `command` is a single "
            "executable; every argument is an item of `parameters` and reaches the program as it is: no shell, so no "
            "pipes, redirects, chaining, substitution, variables or wildcards, and no inline scripts such as `sh -c` "
            "or `python -c` (write a file and run it). Paths must stay inside the working directory. Calls share "
            "nothing but files: `cd` does not last, use `directory`. stdin is empty."
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "One executable, such as ls, npm or ./build.sh."},
                "parameters": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Its arguments, one an item.",
                },
                "directory": {
                    "type": "string",
                    "description": "Where it runs, relative to the working directory and inside it.",
                },
                "timeout": {"type": "number", "description": "Milliseconds until it is ended; 600000 unless given."},
                "output_format": {"type": "string", "enum": ["markdown", "json"]},
                "output_detail": {
                    "type": "string",
                    "enum": ["minimal", "full"],
                    "description": "minimal shows the first 400 characters of each stream; full shows all.",
                },
                "artifact_paths": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Files inside the working directory to be reported with size and sha256.",
                },
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    ),
)


class Table(BaseModel):
    """`[tools.shell_cmd]` of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    permission: Permission = "auto"
    """`read` runs nothing, `ask` asks about every call, `auto` about risky ones."""
    reply: Form = "formatted"
    """`formatted` is markdown or JSON as the call wishes, `continuation` the short form for a model's next turn."""


def dialect(host: Host, tables: Mapping[str, Mapping[str, Any]]) -> ShellCmd:
    """Raises ConfigError."""
    return ShellCmd(host, read_table(Table, tables, NAME))


class ShellCmd:
    """The contract for one provider, with the registry of what it ran."""

    def __init__(self, host: Host, table: Table | None = None) -> None:
        self.registry = Registry()
        self._host = host
        self._table = table or Table()

    def check(self, tool: str, payload: object, context: Context) -> Verdict:  # noqa: ARG002 - there is one
        try:
            asked = parse(payload, context, self._table.permission)
        except Rejected as refusal:
            return Verdict(decision=Decision.REFUSE, reasons=(refusal.text,))
        return self._host.judge(asked.argv, asked.judged)

    async def call(self, tool: str, payload: object, context: Context) -> Reply:  # noqa: ARG002
        tell = Teller(context.emit)
        try:
            call = read_call(payload)
        except Rejected as refusal:
            await tell(events.validation_failed(refusal.text, context))
            return await self._answer(_nothing(unreadable(payload), context), refusal, context, tell)
        try:
            asked = judge(call, context, self._table.permission)
        except Rejected as refusal:
            return await self._answer(_nothing(call, context), refusal, context, tell)
        return await self._run(asked, context, tell)

    async def cancel(self, execution_id: str) -> Canceled:
        """Ask for the end of one execution. What has no process yet is never given one."""
        record = self.registry.get(execution_id)
        if record is None:
            return "not_found"
        if not record.is_active:
            return "already_finished"
        self.registry.request_cancel(execution_id)
        return "cancel_requested" if await self._host.cancel(execution_id) else "not_cancellable"

    async def stop(self, world_id: str | None, chat_id: str | None) -> dict[Literal["killed"], int]:
        """End what one chat has running, and no other's."""
        active = self.registry.list(active_only=True, limit=len(self.registry))
        theirs = [record for record in active if (record.world_id, record.chat_id) == (world_id, chat_id)]
        ended = [await self.cancel(record.execution_id) for record in theirs]
        return {"killed": sum(outcome in {"cancel_requested", "not_cancellable"} for outcome in ended)}

    def delete(self, execution_id: str) -> Deletion:
        """Forget an execution that is over."""
        return self.registry.delete(execution_id)

    async def _run(self, asked: Asked, context: Context, tell: Teller) -> Reply:
        case: Case = asked.call
        execution_id = uuid.uuid4().hex
        self.registry.enter(
            execution_id,
            command=case.call.command,
            parameters=case.call.parameters,
            directory=str(case.trusted.joinpath(case.directory)),
            session=context.session,
        )
        try:
            await tell(events.tool_started(case, execution_id, context))
            if asked.judged and asked.judged.decision is Decision.ASK:
                await tell(events.approval_prompt(case, context))
            came = await self._outcome(asked, execution_id, context, tell)
        except BaseException:
            self.registry.move(execution_id, State.CANCELED, error=words.CANCELED)
            raise
        return await self._answer(asked, came, context, tell, execution_id)

    async def _outcome(self, asked: Asked, execution_id: str, context: Context, tell: Teller) -> Came:
        case: Case = asked.call
        record = self.registry.get(execution_id)
        if record is None or record.cancel_requested:
            return Rejected(words.CANCELED, kind="canceled")
        streams = {name: _Decoded(self._hearing(name, case, execution_id, context, tell)) for name in _STREAMS}

        async def on_event(event: Event) -> None:
            # How it ended is noted with the outcome, which knows more.
            if isinstance(event, StateChanged) and event.state in {State.STARTING, State.RUNNING}:
                self.registry.move(execution_id, event.state)

        try:
            outcome = await self._host.run(
                asked.argv,
                **asked.wishes,
                judged=asked.judged,
                remember=(),  # the contract has no yes for a session
                session=context.session,
                workspace=context.workspace,
                run_id=execution_id,
                on_stdout=streams["stdout"].hear,
                on_stderr=streams["stderr"].hear,
                on_event=on_event,
            )
        except ProviderError as error:
            return error
        for stream in streams.values():
            await stream.finish()
        return outcome

    def _hearing(
        self, name: Stream, case: Case, execution_id: str, context: Context, tell: Teller
    ) -> Callable[[str], Awaitable[None]]:
        async def hear(text: str) -> None:
            self.registry.wrote(execution_id, **{name: len(text)})
            await tell(events.stream_chunk(case, name, text, context))

        return hear

    async def _answer(
        self, asked: Asked, came: Came, context: Context, tell: Teller, execution_id: str | None = None
    ) -> Reply:
        case: Case = asked.call
        if isinstance(came, Outcome):
            came = replace(came, callback_errors=(*came.callback_errors, *tell.errors))
        result = conclude(asked, came, executed_at=now())
        record = self._note(execution_id, came, result)
        text = written(result, form=self._table.reply, is_ai=case.is_ai)
        reply = Reply(content=text, success=result.succeeded)
        await tell(
            events.tool_finished(
                case.call,
                Reply(content=tool_text(result, form=self._table.reply), success=result.succeeded),
                context,
                error=_said_of(case, result),
                duration_ms=result.duration_ms,
                metadata={"executionId": execution_id or "validation-error", "reason": result.reason, **record},
            )
        )
        if case.is_ai and execution_id and not result.canceled:
            await tell(events.message("tool", tool_text(result), context))
            await tell(events.message("assistant", text, context))
        return replace(reply, success=reply.success and not tell.errors)

    def _note(self, execution_id: str | None, came: Came, result: Result) -> dict[str, Any]:
        if execution_id is None:
            return {}
        status = came.status if isinstance(came, Outcome) else State.CANCELED if result.canceled else State.FAILED
        record = self.registry.move(
            execution_id,
            status,
            exit_code=result.exit_code,
            signal=result.signal,
            error=result.error,
            duration_ms=result.duration_ms,
        )
        self.registry.keep(execution_id, result)
        return {"execution": record.as_data()} if record else {}


_STREAMS: Final[tuple[Stream, ...]] = ("stdout", "stderr")


def _nothing(call: Call, context: Context) -> Asked:
    """A call that was turned away, for its reply."""
    return Asked(argv=(), call=Case(call=call, trusted=context.workspace))


def _said_of(case: Case, result: Result) -> str | None:
    if result.canceled:
        return "Tool execution canceled by user" if case.is_ai else "Shell command execution canceled by user"
    return result.error


class _Decoded:
    """One stream as text: a character whose bytes come in two pieces is not broken."""

    def __init__(self, told: Callable[[str], Awaitable[None]]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._told = told

    async def hear(self, data: bytes) -> None:
        await self._pass_on(self._decoder.decode(data))

    async def finish(self) -> None:
        await self._pass_on(self._decoder.decode(b"", final=True))

    async def _pass_on(self, text: str) -> None:
        if text:
            await self._told(text)
