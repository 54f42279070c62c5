"""
The Codex contract: `shell`, `container.exec`, `local_shell`, `shell_command` and `apply_patch`.

The path of a call: `call.decode` reads it; the escalation guard comes before everything else; a patch is taken out of
it before any shell sees it (`patch`, `patching`); everything else is a command (`command`), decided about by
`requirement` with the operator's rule files (`execrules`) and lists (`safety`), run in the container of its `profile`,
told in `events`, and shown to the model by `truncation`. Calls of one session share a `turn`.

Where this differs from the original, the tests have the list with reasons; first of all, there is no way to the host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from provider.dialects.codex import call as calls
from provider.dialects.codex import events
from provider.dialects.codex.call import APPLY_PATCH, CONTAINER_EXEC, LOCAL_SHELL, SHELL, SHELL_COMMAND
from provider.dialects.codex.command import Asked, CommandRun, prepare, verdict
from provider.dialects.codex.parsed_cmd import parsed
from provider.dialects.codex.patch import Patch, from_tool, recognise
from provider.dialects.codex.patch import Rejected as NoPatch
from provider.dialects.codex.patching import PatchAsked, PatchRun, decide
from provider.dialects.codex.profile import usual, wider
from provider.dialects.codex.requirement import Setting, escalation_guard, requirement
from provider.dialects.codex.safety import is_known_safe
from provider.dialects.codex.table import Table, load_table
from provider.dialects.codex.truncation import Ran, freeform, structured
from provider.dialects.codex.turn import Turns
from provider.dialects.contract import Context, Host, Rejected, Reply, Teller, Tool
from provider.errors import ConfigError
from provider.model import Decision, Verdict
from provider.plan import WORKSPACE

_ESCALATION: Final = {
    "with_escalated_permissions": {
        "type": "boolean",
        "description": "Whether to ask for a wider sandbox, one with a network, say. Only where policy is on-request.",
    },
    "justification": {
        "type": "string",
        "description": "Only with wider permissions: one sentence on why they are needed, shown to who is asked.",
    },
}
_WHERE: Final = {"type": "string", "description": "The directory to run it in, relative to the workspace or below it."}
_HOW_LONG: Final = {"type": "number", "description": "Milliseconds until it is ended; 10000 unless given."}


def _parameters(command: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = {"command": command, "workdir": _WHERE, "timeout_ms": _HOW_LONG, **_ESCALATION}
    return {"type": "object", "properties": properties, "required": ["command"], "additionalProperties": False}


_WORDS: Final = {"type": "array", "items": {"type": "string"}, "description": "Program and arguments; no shell."}
_WORDS_TOOL: Final = (
    "Runs a program with its arguments in a sandbox on the workspace and returns its output. For shell syntax, give "
    '["bash", "-lc", "..."]. Set `workdir` rather than using `cd`.'
)
TOOLS = (
    Tool(name=SHELL, description=_WORDS_TOOL, parameters=_parameters(_WORDS)),
    Tool(name=CONTAINER_EXEC, description=f"The same as `{SHELL}`. {_WORDS_TOOL}", parameters=_parameters(_WORDS)),
    Tool(
        name=LOCAL_SHELL,
        description="Runs the action of a `local_shell_call` item in a sandbox on the workspace.",
        parameters={
            "type": "object",
            "properties": {
                "call_id": {"type": "string"},
                "id": {"type": "string"},
                "action": {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "enum": ["exec"]},
                        "command": _WORDS,
                        "timeout_ms": _HOW_LONG,
                        "working_directory": _WHERE,
                    },
                    "required": ["type", "command"],
                },
            },
            "required": ["action"],
        },
    ),
    Tool(
        name=SHELL_COMMAND,
        description=(
            "Runs a shell script in a login shell in a sandbox on the workspace and returns its output. Set `workdir` "
            "rather than using `cd`."
        ),
        parameters=_parameters({"type": "string", "description": "The script."}),
    ),
    Tool(
        name=APPLY_PATCH,
        description=(
            "Changes files of the workspace by a patch: `*** Begin Patch`, then `*** Add File: path`, `*** Update "
            "File: path` (with `*** Move to: path`, `@@ context`, and lines that begin with a space, `-` or `+`) or "
            "`*** Delete File: path`, then `*** End Patch`. All files are changed, or none."
        ),
        parameters={
            "type": "object",
            "properties": {"input": {"type": "string", "description": "The whole patch."}},
            "required": ["input"],
            "additionalProperties": False,
        },
    ),
)


def dialect(host: Host, tables: Mapping[str, Mapping[str, Any]]) -> Codex:
    """Raises ConfigError when `[tools.codex]` or one of its rule files does not fit."""
    return Codex(host, load_table(tables))


class Codex:
    """The contract for one provider, with the turn of each session."""

    def __init__(self, host: Host, table: Table) -> None:
        self._host, self._table = host, table
        self._turns = Turns()

    def begin_turn(self, session: str) -> str:
        """Begin a new turn: a new id for its events, and an empty diff."""
        return self._turns.begin(session).id

    async def call(self, tool: str, payload: object, context: Context) -> Reply:
        try:
            setting = self._table.setting()
            found = self._read(tool, payload, context, setting)
        except Rejected as rejection:
            return Reply(content=rejection.text, success=False)
        except ConfigError as error:  # a rule file was broken since; nothing runs by half of the rules
            return Reply(content=f"execution error: {error}", success=False)
        turn, tell = self._turns.of(context.session), Teller(context.emit)
        if isinstance(found, PatchAsked):
            source = events.Source(call_id=found.call_id or context.call_id, turn_id=turn.id)
            patch = PatchRun(self._host, self._table, context, tell, source, turn, setting, found)
            async with turn.changing:
                return await patch.reply()
        source = events.Source(call_id=found.call.call_id or context.call_id, turn_id=turn.id)
        shown = events.Command(source=source, argv=found.argv, cwd=found.cwd, parsed_cmd=parsed(found.argv))
        command = CommandRun(self._host, self._table, context, tell, shown, found, setting)
        # What only looks at things need not wait for what changes them.
        async with contextlib.nullcontext() if is_known_safe(found.argv) else turn.changing:
            return await command.reply(self._freeform if tool == SHELL_COMMAND else self._structured)

    def check(self, tool: str, payload: object, context: Context) -> Verdict:
        try:
            setting = self._table.setting()
            found = self._read(tool, payload, context, setting)
        except (Rejected, ConfigError) as refusal:
            return Verdict(decision=Decision.REFUSE, reasons=(str(refusal),))
        if isinstance(found, PatchAsked):
            if found.objection:
                return Verdict(decision=Decision.REFUSE, reasons=(found.objection,))
            needed, profile = decide(setting, self._table)
            judged = verdict(needed, profile, "", widened=profile != usual(self._table))
            return self._host.judge((APPLY_PATCH,), judged, script=APPLY_PATCH)
        escalated = found.call.escalated
        profile = wider(self._table) if escalated else usual(self._table)
        needed = requirement(found.argv, setting, escalated=escalated)
        judged = verdict(needed, profile, found.call.justification, widened=escalated)
        return self._host.judge(found.argv, judged, script=found.script)

    def _read(self, tool: str, payload: object, context: Context, setting: Setting) -> Asked | PatchAsked:
        """Raises Rejected."""
        if tool == APPLY_PATCH:
            seconds = self._table.default_timeout_ms / 1000
            return PatchAsked(patch=_patch(from_tool(payload)), cwd=WORKSPACE, timeout=seconds)
        call = calls.decode(tool, payload)
        asked = prepare(call, self._table, context)
        if sentence := escalation_guard(setting.approval, escalated=call.escalated):
            raise Rejected(sentence)
        if found := recognise(asked.argv):
            return PatchAsked(patch=_patch(found), cwd=asked.cwd, timeout=asked.timeout, call_id=call.call_id)
        return asked

    def _structured(self, ran: Ran) -> str:
        return structured(ran, self._table.budget)

    def _freeform(self, ran: Ran) -> str:
        return freeform(ran, self._table.budget)


def _patch(found: Patch | NoPatch) -> Patch:
    """Raises Rejected for what is meant as a patch and cannot be one."""
    if isinstance(found, NoPatch):
        raise Rejected(found.message)
    return found
