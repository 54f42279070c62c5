"""A call of `run_shell_command`, and what it asks the provider for. Pure but for a look at the directory it names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from provider.dialects.contract import Asked, Rejected
from provider.dialects.run_shell_command.lists import judge
from provider.dialects.run_shell_command.table import Table
from provider.model import Decision, Verdict
from provider.plan import MAX_ARGUMENT
from provider.policy.scope import Scope, locate
from provider.policy.syntax import read
from provider.shown import show

BAD_CALL = "INVALID_TOOL_PARAMS"
BAD_PATH = "PATH_NOT_IN_WORKSPACE"

DESCRIBED = "described by the caller as: "
"""Begins the reason that shows an approver the call's description."""

ENVIRONMENT = {
    "ASIMI_CLI": "1",
    "TERM": "xterm-256color",
    # Nothing may wait for a person: no pager, no prompt, no editor, no helper program.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "DISPLAY": "",
    "DBUS_SESSION_BUS_ADDRESS": "",
    "GH_PROMPT_DISABLED": "1",
    "GCM_INTERACTIVE": "never",
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "credential.helper",
    "GIT_CONFIG_VALUE_0": "",
    "GIT_CONFIG_KEY_1": "core.fsmonitor",
    "GIT_CONFIG_VALUE_1": "false",
    "GIT_CONFIG_KEY_2": "core.hooksPath",
    "GIT_CONFIG_VALUE_2": "/dev/null",
}

# An image need not have bash. `$0` is the command, so that it is never spliced into another text.
EITHER_SHELL = 'command -v bash >/dev/null 2>&1 && exec bash -c "$0"; exec sh -c "$0"'

# Newer forms of this tool have them. To drop one silently would run something else than was meant.
_OTHER_FIELDS = {
    "dir_path": "name the directory in `directory`, relative to the project root",
    "is_background": "end the command with `&`",
    "delay_ms": "end the command with `&`",
    "additional_permissions": "there is no way to ask for more",
    "timeout": "time limits are set by the operator",
}


class Call(BaseModel):
    """The payload. Fields that nobody knows are left aside, as the specification's own reader does."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, use_attribute_docstrings=True)

    command: str
    """The literal command text that `bash -c` is given. It may have pipes, redirections, `&&`, `||`, `;` and `&`."""
    description: str | None = None
    """What the command is meant to do, in at most three sentences. It is shown to whoever is asked for permission."""
    directory: str | None = Field(default=None)
    """Where to run it, relative to the project root, which is the default. Absolute paths are not permitted."""


def parse(payload: object, table: Table, workspace: Path) -> Asked:
    """
    Turn a payload into what is to be run, with the verdict of the contract's lists.

    Raises:
        Rejected: the payload is not a call, or names a directory that is none of the project.
    """
    call = _call(payload)
    command = strip_wrapper(call.command)
    if not command.strip():
        message = "Command cannot be empty."
        raise Rejected(message, kind=BAD_CALL)
    directory = find_directory(call.directory or "", workspace)
    verdict, remember = judge(command, table.lists)
    if verdict.decision is Decision.ASK and call.description:
        described = DESCRIBED + show(" ".join(call.description.split()))
        verdict = Verdict(decision=verdict.decision, reasons=(*verdict.reasons, described))
    wishes: dict[str, Any] = {"cwd": directory, "env": ENVIRONMENT, "background": "keep", "lease": table.lease}
    if table.timeout > 0:
        wishes["timeout"] = table.timeout
    return Asked(
        argv=shell(command),
        wishes=wishes,
        judged=verdict,
        remember=remember,
        call=call.model_copy(update={"command": command, "directory": directory}),
    )


def shell(command: str) -> tuple[str, ...]:
    """
    Return what runs a command text: bash, or the image's own sh where there is none.

    A text that other shells read otherwise is for bash alone: it was judged as bash reads it.
    """
    script = read(command)
    if script.unknown is None and not script.portable:
        return ("bash", "-c", command)
    return ("sh", "-c", EITHER_SHELL, command)


_WRAPPERS = {"sh", "bash", "zsh"}
_WRAPPER_LENGTH = 256


def strip_wrapper(command: str) -> str:
    """Take off one `bash -c "…"`, when that is all there is: the rest of `bash -c "a" && b` would be another text."""
    if " -c" not in " ".join(command[:_WRAPPER_LENGTH].split()):
        return command  # most are none, and reading costs most of a parse
    script = read(command)
    if script.unknown or len(script.commands) != 1:
        return command
    only = script.commands[0]
    if only.assignments or only.redirections or only.background or only.negated or only.places:
        return command
    match [word.literal for word in only.words]:
        case [str(program), "-c", str(text)] if program.rpartition("/")[2] in _WRAPPERS:
            return text
        case _:
            return command


def find_directory(wanted: str, workspace: Path) -> str:
    """Return a directory of the project relative to its root, links resolved. Raises Rejected."""
    if wanted.startswith("/"):
        message = (
            "Directory cannot be absolute. Please refer to workspace directories by their name, "
            f"relative to the project root: {wanted!r}"
        )
        raise Rejected(message, kind=BAD_PATH)
    if not wanted:
        return "."
    found = locate(wanted, Scope(root=workspace))
    if not found.inside:
        message = f"Path not in workspace. Directory {wanted!r}: {found.reason}."
        raise Rejected(message, kind=BAD_PATH)
    try:
        is_directory = (workspace / found.path).is_dir()
    except (OSError, ValueError):
        is_directory = False
    if not is_directory:
        message = f"Directory '{wanted}' is not a registered workspace directory. It must exist below the project root."
        raise Rejected(message, kind=BAD_PATH)
    return found.path


def _call(payload: object) -> Call:
    if isinstance(payload, str | bytes):  # the specification's tools are called with JSON text
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError) as error:
            message = f"invalid input: {error}; it must be a JSON object with `command`"
            raise Rejected(message, kind=BAD_CALL) from error
    if not isinstance(payload, Mapping):
        message = f"invalid input: {type(payload).__name__}; it must be an object with `command`"
        raise Rejected(message, kind=BAD_CALL)
    for name, instead in _OTHER_FIELDS.items():
        if name in payload:
            message = f"invalid input: there is no field `{name}`; {instead}"
            raise Rejected(message, kind=BAD_CALL)
    try:
        call = Call.model_validate(dict(payload))
    except ValidationError as error:
        faults = "; ".join(f"`{'.'.join(map(str, fault['loc']))}`: {fault['msg']}" for fault in error.errors())
        message = f"invalid input: {faults}"
        raise Rejected(message, kind=BAD_CALL) from error
    if "\0" in call.command:
        message = "invalid input: `command` holds a NUL byte; no program can be given one"
        raise Rejected(message, kind=BAD_CALL)
    # Before anything reads it: judging a megabyte takes a second.
    if (size := len(call.command.encode(errors="surrogatepass"))) >= MAX_ARGUMENT:
        message = f"invalid input: `command` has {size:,} bytes; a shell can be given fewer than {MAX_ARGUMENT:,}"
        raise Rejected(message, kind=BAD_CALL)
    return call
