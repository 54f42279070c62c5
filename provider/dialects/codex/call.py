"""
Calls of `shell`, `container.exec`, `local_shell` and `shell_command`, decoded. Pure.

Texts of errors are those of the original's decoder, as far as they can be known here: an object that arrives decoded
has no line and column, and the original says 0 for both then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from provider.dialects.contract import Rejected

SHELL, CONTAINER_EXEC, LOCAL_SHELL, SHELL_COMMAND, APPLY_PATCH = (
    "shell",
    "container.exec",
    "local_shell",
    "shell_command",
    "apply_patch",
)
NO_COMMAND = "command args are empty"
NO_CALL_ID = "LocalShellCall without call_id or id"
_LARGEST = 2**64 - 1
_SHOWN_BITS = 1024
_NAMES = {SHELL: "shell", CONTAINER_EXEC: "shell", LOCAL_SHELL: "shell", SHELL_COMMAND: "shell_command"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    command: tuple[str, ...] | str
    """Words, or the text of `shell_command`."""
    workdir: str | None = None
    timeout_ms: int | None = None
    escalated: bool = False
    justification: str = ""
    prefix: tuple[str, ...] = ()
    """The beginning of the command that a yes for ever would cover, if the model proposes one."""
    login: bool | None = None
    call_id: str = ""


def decode(tool: str, payload: object) -> Call:
    """Raises Rejected with the original's text."""
    if tool == LOCAL_SHELL:
        return _local(payload)
    fields = _object(tool, payload)
    return _call(fields, words=tool != SHELL_COMMAND)


def _object(tool: str, payload: object) -> Mapping[str, Any]:
    if isinstance(payload, str):
        try:
            payload = json.loads(payload)
        except json.JSONDecodeError as error:
            _fail(error.msg, error.lineno, error.colno)
        except RecursionError:
            _fail("recursion limit exceeded")
        except ValueError:  # an integer of more digits than Python takes
            _fail("number out of range")
        if not isinstance(payload, Mapping):
            _fail(_invalid_type(payload, "an object"), 1, 0)
    if not isinstance(payload, Mapping):
        _reject(f"unsupported payload for {_NAMES[tool]} handler: {tool}")
    return payload


def _call(fields: Mapping[str, Any], *, words: bool) -> Call:
    if "command" not in fields:
        _fail("missing field `command`")
    command = fields["command"]
    checked = _words(command) if words else _text("command", command)
    if not checked:
        _reject(NO_COMMAND)
    return Call(
        command=checked,
        workdir=_optional("workdir", fields),
        timeout_ms=_timeout(fields),
        escalated=_escalated(fields),
        justification=_optional("justification", fields) or "",
        prefix=_words(fields["prefix_rule"]) if fields.get("prefix_rule") is not None else (),
        login=None if words else _flag("login", fields),
    )


def _local(payload: object) -> Call:
    """An item of type `local_shell_call`, or its action alone. `env` and `user` are dropped, as the contract has it."""
    item = _object(LOCAL_SHELL, payload)
    action, call_id = item, ""
    if "action" in item:
        call_id = next((item[name] for name in ("call_id", "id") if isinstance(item.get(name), str)), "")
        if not call_id:
            _reject(NO_CALL_ID)
        action = item["action"]
        if not isinstance(action, Mapping):
            _fail(_invalid_type(action, "internally tagged enum LocalShellAction"))
    if action.get("type", "exec") != "exec":
        _fail(f"unknown variant `{action['type']}`, expected `exec`")
    command = _words(action["command"]) if "command" in action else None
    if command is None:
        _fail("missing field `command`")
    if not command:
        _reject(NO_COMMAND)
    return Call(
        command=command,
        workdir=_optional("working_directory", action),
        timeout_ms=_timeout({"timeout_ms": action.get("timeout_ms")}),
        call_id=call_id,
    )


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        _fail(_invalid_type(value, "a sequence"))
    return tuple(_text("command", word) for word in value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        _fail(_invalid_type(value, "a string"))
    if "\0" in value:
        _reject(f"`{name}` holds a NUL byte; no program can be given one")
    return value


def _optional(name: str, fields: Mapping[str, Any]) -> str | None:
    value = fields.get(name)
    return None if value is None else _text(name, value)


def _flag(name: str, fields: Mapping[str, Any]) -> bool | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        _fail(_invalid_type(value, "a boolean"))
    return value


def _timeout(fields: Mapping[str, Any]) -> int | None:
    if "timeout" in fields and "timeout_ms" in fields:
        _fail("duplicate field `timeout_ms`")
    value = fields.get("timeout_ms", fields.get("timeout"))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        _fail(_invalid_type(value, "u64"))
    if not 0 <= value <= _LARGEST:
        _fail(f"invalid value: integer `{_shown(value)}`, expected u64")
    return value


_PERMISSIONS = {"use_default": False, "require_escalated": True}


def _escalated(fields: Mapping[str, Any]) -> bool:
    """By the flag, or by the word that a later version has in its place."""
    word = fields.get("sandbox_permissions")
    if word is not None and (not isinstance(word, str) or word not in _PERMISSIONS):
        _fail(f"unknown variant `{word}`, expected `use_default` or `require_escalated`")
    return bool(_flag("with_escalated_permissions", fields)) or (word is not None and _PERMISSIONS[word])


def _shown(number: int) -> str:
    """One of thousands of digits cannot even be written."""
    return str(number) if number.bit_length() <= _SHOWN_BITS else "…"


def _invalid_type(value: object, expected: str) -> str:
    match value:
        case None:
            found = "null"
        case bool():
            found = f"boolean `{str(value).lower()}`"
        case int():
            found = f"integer `{_shown(value)}`"
        case float():
            found = f"floating point `{value}`"
        case str():
            found = f"string {json.dumps(value[:80], ensure_ascii=False)}"
        case Mapping():
            found = "map"
        case _:
            found = "sequence"
    return f"invalid type: {found}, expected {expected}"


def _fail(reason: str, line: int = 0, column: int = 0) -> NoReturn:
    shown = json.dumps(reason, ensure_ascii=False)
    _reject(f"failed to parse function arguments: Error({shown}, line: {line}, column: {column})")


def _reject(text: str) -> NoReturn:
    raise Rejected(text)
