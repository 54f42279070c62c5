"""
`run_shell_command`: the asimi specification, with the behaviour of gemini-cli where it is silent.

The path of a call: `call.parse` reads it, `lists.judge` says what the operator's lists make of it, the provider runs
it, `watch.Watch` follows it, `reply.render` answers. Background processes live on under a lease and are reached by two
further tools, `background.py`.

Where this differs from the originals: `$((…))` and quoted here-documents are no substitution, `>()` is one; every part
of a chain is judged, newlines, subshells and wrappers included, and `2>&1` is none; a deny rule counts under any path;
`directory` is any real directory of the project; `exitCode` is null after a signal or a time-out, never 124; nothing is
routed to the host. The tests have the list with reasons.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from provider.dialects.contract import Asked, Context, Host, Rejected, Reply, Tool
from provider.dialects.run_shell_command.background import Leases, list_processes, parse_stop, stop_process
from provider.dialects.run_shell_command.call import parse
from provider.dialects.run_shell_command.reply import render
from provider.dialects.run_shell_command.table import Table, load_table
from provider.dialects.run_shell_command.watch import Watch
from provider.errors import ProviderError, SandboxLost
from provider.model import Decision, Outcome, Verdict

RUN, LIST, STOP = "run_shell_command", "list_background_processes", "stop_background_process"
LAST_WORD_SECONDS = 1.0
"""How long a listener may take over the last events of a run that is over."""

TOOLS = (
    Tool(
        name=RUN,
        description=(
            "Executes a shell command as `bash -c <command>` in a sandbox on the project, and returns stdout, stderr, "
            "exitCode (null when a signal ended it), signal, error, pid and backgroundPids. Every call is independent: "
            "`cd`, variables and background jobs of one call are not there in the next; use `directory` instead. "
            "Pipes, redirections, `&&`, `||`, `;` and `&` work; $(), backticks, <() and >() are refused. Nothing can "
            "be typed into a command, so use options that do not ask. A process started with `&` keeps running for a "
            f"while; see {LIST} and {STOP}."
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The literal command text, as for `bash -c`."},
                "description": {
                    "type": "string",
                    "description": (
                        "What the command does, in at most three sentences. Shown to whoever is asked for permission."
                    ),
                },
                "directory": {
                    "type": "string",
                    "description": (
                        "Where to run it, relative to the project root, which is the default. It must exist; absolute "
                        "paths are not permitted."
                    ),
                },
            },
            "required": ["command"],
        },
    ),
    Tool(
        name=LIST,
        description=(
            f"Lists what earlier calls of {RUN} left running in the background, with process ids, the command, what "
            "it has written so far, and the lease under which it runs."
        ),
        parameters={"type": "object", "properties": {}},
    ),
    Tool(
        name=STOP,
        description=(
            f"Stops a background process that {LIST} shows: one by `pid`, or all that one command left running by "
            "`lease`. It is asked to end, and killed when it does not."
        ),
        parameters={
            "type": "object",
            "properties": {
                "pid": {"type": "integer", "description": "The id of one process."},
                "lease": {"type": "string", "description": "Everything that one command left running."},
            },
        },
    ),
)


def dialect(host: Host, tables: Mapping[str, Mapping[str, Any]]) -> RunShellCommand:
    """Raises ConfigError when `[tools.run_shell_command]` does not fit."""
    return RunShellCommand(host, load_table(tables))


class RunShellCommand:
    """The three tools, for one provider."""

    def __init__(self, host: Host, table: Table) -> None:
        self._host, self._table = host, table
        self._leases = Leases(host)

    async def call(self, tool: str, payload: object, context: Context) -> Reply:
        asked: Asked | None = None
        try:
            if tool == LIST:
                return await list_processes(self._leases.of(context.session), self._table)
            if tool == STOP:
                return await stop_process(parse_stop(payload), self._leases.of(context.session))
            asked = parse(payload, self._table, context.workspace)
            return await self._run(asked, context)
        except (Rejected, ProviderError) as error:
            return render(asked, error, self._table)

    def check(self, tool: str, payload: object, context: Context) -> Verdict:
        try:
            if tool == STOP:
                parse_stop(payload)
            if tool != RUN:
                return Verdict(decision=Decision.ALLOW)
            asked = parse(payload, self._table, context.workspace)
            return self._host.judge(asked.argv, asked.judged, script=asked.call.command)
        except Rejected as rejection:
            return Verdict(decision=Decision.REFUSE, reasons=(rejection.text,))

    async def _run(self, asked: Asked, context: Context) -> Reply:
        try:
            return await self._run_once(asked, context)
        except SandboxLost as lost:
            if "run" in (lost.receipt or {}).get("timings_ms", {}):
                raise  # it may have done something, and must not do it twice
            return await self._run_once(asked, context)

    async def _run_once(self, asked: Asked, context: Context) -> Reply:
        run_id = uuid.uuid4().hex
        watch = Watch(
            context.emit,
            context.call_id,
            seconds=self._table.inactivity_timeout,
            cancel=lambda: self._host.cancel(run_id),
        )
        async with watch.clock():
            outcome = await self._host.run(
                asked.argv,
                workspace=context.workspace,
                session=context.session,
                judged=asked.judged,
                remember=asked.remember,
                script=asked.call.command,
                run_id=run_id,
                on_event=watch.hear,
                **asked.wishes,
            )
        if outcome.lease:
            self._leases.add(context.session, outcome.lease)
        outcome = await _told(watch, outcome)
        return render(asked, outcome, self._table, inactive=watch.is_expired)


async def _told(watch: Watch, outcome: Outcome) -> Outcome:
    """Tell listeners of the end; that they fail is no reason to keep the reply back."""
    try:
        await asyncio.wait_for(watch.close(outcome.exit_code, outcome.signal), LAST_WORD_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the listener's
        return replace(outcome, callback_errors=(*outcome.callback_errors, error))
    return outcome
