"""
What the tool answers, for every way a call can end.

A command that ran, however it ended, has stdout, stderr, exitCode and durationMs. Where none ran there is `error` with
a name: ValidationError, CommandNotAllowedError and CommandNotApprovedError are about the call; WorkspaceFailedError is
the workspace's own failure, and says nothing about the command.
"""

from __future__ import annotations

from typing import Any

from provider.dialects.contract import Asked, Rejected, Reply
from provider.dialects.helix.config import ShellConfig
from provider.dialects.helix.result import callback_note, exit_code, note
from provider.dialects.helix.text import cut, wrapped
from provider.errors import ApprovalRefused, CallError, PolicyRefused, ProviderError
from provider.model import Outcome

INVALID, NOT_ALLOWED, NOT_APPROVED, FAILED = (
    "ValidationError",
    "CommandNotAllowedError",
    "CommandNotApprovedError",
    "WorkspaceFailedError",
)


def render(asked: Asked | None, came: Outcome | ProviderError | Rejected, config: ShellConfig) -> Reply:  # noqa: ARG001 - every contract's shape
    if isinstance(came, Outcome):
        return _ran(came, config)
    if isinstance(came, Rejected):
        return _error(came.kind, came.text)
    return _error(kind_of(came), str(came))


def kind_of(error: ProviderError) -> str:
    match error:
        case CallError():
            return INVALID
        case PolicyRefused():
            return NOT_ALLOWED
        case ApprovalRefused():
            return NOT_APPROVED
        case _:
            return FAILED


def _ran(outcome: Outcome, config: ShellConfig) -> Reply:
    content: dict[str, Any] = {}
    marks: dict[str, Any] = {}
    for name in ("stdout", "stderr"):
        written = getattr(outcome, f"{name}_bytes")
        text, omitted = cut(getattr(outcome, name), written, config.max_stdout_bytes)
        content[name] = wrapped(text)
        if omitted:
            marks |= {f"{name}Truncated": True, f"{name}OmittedBytes": omitted}
    content |= {"exitCode": exit_code(outcome), "durationMs": outcome.duration_ms, **marks}
    if said := "; ".join(filter(None, (note(outcome), callback_note(outcome.callback_errors)))):
        content["note"] = said
    return Reply(content=content, success=content["exitCode"] == 0 and not outcome.callback_errors)


def _error(name: str, message: str) -> Reply:
    return Reply(content={"error": {"name": name, "message": message}}, success=False)
