"""
A tool call in its own form, read from a payload that nobody vouches for, and what it is answered with.

A payload that is no call becomes `Malformed`, which is answered as Failed: silence would leave the model guessing. So
is one without anything to do, `{}` or `{"targetId"}`: without an `action` it could mean any of a dozen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from provider.dialects.mk8.kinds import ACTIONS, DANGEROUS_SHELL, SAFE_SHELL, TRANSCRIPTION, Kind, Shell, shell_named
from provider.dialects.mk8.status import Status

MAX_DEPTH: Final = 64
"""Of a payload. A script that compiles needs about a dozen levels."""
MAX_ID: Final = 128
UNKNOWN_ID: Final = "?"
"""Stands for an id that cannot be repeated."""

_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_FIELDS = frozenset({"resourceid", "targetid", "sandboxid", "script", "command", "shelltype", "action"})
_FIELDS |= {"transcriptionmodelid", "language"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    id: str
    action: str
    """A name of `ACTIONS`."""
    resource: str | None = None
    """A GUID in lower case; what is none counts as absent."""
    sandbox: str | None = None
    script: Any = None
    """JSON data, not looked into."""
    command: str | None = None
    shell: Shell | None = None
    model: str | None = None
    """The GUID of a transcription model."""
    language: str | None = None
    workspace: str | None = None
    """Where it was called from. Trusted, and never part of the payload: an approval may come from elsewhere."""

    @property
    def kind(self) -> Kind:
        return ACTIONS[self.action]

    @property
    def payload_text(self) -> str | None:
        """The script as JSON, or else the command."""
        return self.command if self.script is None else json.dumps(self.script, ensure_ascii=False)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads; a job keeps it until somebody approves."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Call:
        return cls(**{**data, "shell": Shell(data["shell"]) if data["shell"] else None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """What was meant as a call and is none."""

    id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer to one call."""

    id: str
    status: Status
    result: str | None = None
    error: str | None = None
    job: str | None = None
    """The id under which the job store has it; not part of what the model reads."""


Execute = Callable[[Call], Awaitable[Result]]
"""Answers a call."""


def failed(call: Call | Malformed, error: str) -> Result:
    return Result(id=call.id, status=Status.FAILED, error=error)


def read_call(call_id: str, payload: object, *, action: str | None = None) -> Call | Malformed:
    """Make a call of a payload. `action` is given where the tool's name has it already."""
    try:
        fields = _fields(payload)
        call = Call(
            id=call_id,
            action=_action(fields, action),
            resource=_resource(fields),
            sandbox=_text(fields, "sandboxId"),
            script=fields.get("script"),
            command=_text(fields, "command"),
            shell=_shell(fields),
            model=_guid(fields.get("transcriptionmodelid")),
            language=_text(fields, "language"),
        )
        return _complete(call)
    except _Fault as fault:
        return Malformed(id=call_id, error=str(fault))


class _Fault(Exception):
    """The text of a `Malformed`."""


def _fields(payload: object) -> dict[str, Any]:
    """The payload's fields that mean something, by name in lower case."""
    if not isinstance(payload, Mapping):
        message = f"the payload is {_named(payload)}; it must be a JSON object, such as {{}}"
        raise _Fault(message)
    if _is_deeper(payload, MAX_DEPTH):
        message = f"the payload is nested deeper than {MAX_DEPTH} levels"
        raise _Fault(message)
    try:
        json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:  # unpaired surrogates, NaN, numbers without end
        message = "the payload has text that is no Unicode, or a number that JSON does not have"
        raise _Fault(message) from error
    fields: dict[str, Any] = {}
    for name, value in payload.items():
        key = str(name).lower()
        if key not in _FIELDS or value is None:
            continue
        if key in fields:
            message = f"the payload has {name!r} twice, in different cases; give it once"
            raise _Fault(message)
        fields[key] = value
    return fields


def _is_deeper(value: object, most: int) -> bool:
    """Level by level, so that no nesting is too deep to be looked at."""
    level = [value]
    for _ in range(most):
        level = [
            item
            for holder in level
            if isinstance(holder, Mapping | list | tuple)
            for item in (holder.values() if isinstance(holder, Mapping) else holder)
        ]
        if not level:
            return False
    return any(isinstance(item, Mapping | list | tuple) for item in level)


def _action(fields: Mapping[str, Any], named: str | None) -> str:
    """The kind of a call by its fields, unless an `action` says it."""
    asked = fields.get("action") if named is None else named
    if asked is not None:
        action = asked.strip().lower() if isinstance(asked, str) else ""
        if action not in ACTIONS:
            message = f"there is no action {_named(asked)}; there are {', '.join(ACTIONS)}"
            raise _Fault(message)
        return action
    if _shell(fields):
        return DANGEROUS_SHELL
    if _guid(fields.get("transcriptionmodelid")):
        return TRANSCRIPTION
    return SAFE_SHELL


def _complete(call: Call) -> Call:
    """Whatever the kind cannot do without must be there."""
    if call.kind is Kind.DANGEROUS_SHELL:
        if call.shell is None:
            message = f"shellType is missing, or none of {', '.join(Shell)}"
            raise _Fault(message)
        if call.command is None:
            message = f"command is missing: the text that {call.shell} is to read"
            raise _Fault(message)
    if call.kind is Kind.SAFE_SHELL and call.script is None:
        return replace(call, script=_script_in(call.command), command=None)
    return call


def _script_in(command: str | None) -> Any:
    """By the contract a script may also come as the text of `command`."""
    if command is None:
        message = (
            'the payload names nothing to do: give a "script" (mk8.shell), a "shellType" and a "command", a '
            f'"transcriptionModelId", or an "action", one of {", ".join(ACTIONS)}'
        )
        raise _Fault(message)
    try:
        script = json.loads(command)
    except (ValueError, RecursionError):
        script = None
    if not isinstance(script, dict) or _is_deeper(script, MAX_DEPTH):
        shells = ", ".join(Shell)
        message = f'"command" comes without a valid shellType ({shells}) and is no mk8.shell script; give a "script"'
        raise _Fault(message)
    return script


def _resource(fields: Mapping[str, Any]) -> str | None:
    given = {guid for name in ("resourceid", "targetid") if (guid := _guid(fields.get(name)))}
    if len(given) > 1:
        message = "resourceId and targetId are two names for one thing and differ; give one of them"
        raise _Fault(message)
    return given.pop() if given else None


def _guid(value: object) -> str | None:
    guid = value.strip().lower() if isinstance(value, str) else ""
    return guid if _GUID.fullmatch(guid) else None


def _shell(fields: Mapping[str, Any]) -> Shell | None:
    value = fields.get("shelltype")
    return shell_named(value) if isinstance(value, str) else None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name.lower())
    if value is not None and not isinstance(value, str):
        message = f"{name} is {_named(value)}; it must be a string"
        raise _Fault(message)
    return value if value and value.strip() else None


def _named(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", list: "an array", dict: "an object"}
    if isinstance(value, str):
        return repr(value[:80])
    return "null" if value is None else kinds.get(type(value), "no JSON")
