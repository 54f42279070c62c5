"""
Replies, in the contract's own words: an object as the specification has it, nulls written out, or the lines of text
that its predecessor gave.

`error` is set when no command ran: a mistake in the call, a refusal, a program that could not be started, a sandbox
that failed; `errorType` says which. Once a command ran, `error` is null, however it ended, and `message` says what is
remarkable about the ending.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provider.approval import NOBODY_IN_TIME
from provider.dialects.contract import Asked, Rejected, Reply
from provider.dialects.run_shell_command.call import BAD_CALL, DESCRIBED
from provider.dialects.run_shell_command.output import Shown, shown
from provider.dialects.run_shell_command.substitution import DISPLAY, REFUSED
from provider.dialects.run_shell_command.table import Table
from provider.errors import (
    ApprovalAborted,
    ApprovalRefused,
    CallError,
    EngineUnavailable,
    ImageMissing,
    PlanRejected,
    PolicyRefused,
    ProviderError,
    SandboxLost,
)
from provider.model import Outcome, State

Result = Outcome | ProviderError | Rejected

SPAWN_FAILED = "SHELL_EXECUTE_ERROR"
REFUSED_BY_RULE = "POLICY_VIOLATION"
NOT_APPROVED = "EXECUTION_DENIED"
_FAULTS: dict[type[ProviderError], tuple[str, str]] = {
    EngineUnavailable: ("SANDBOX_UNAVAILABLE", "The container engine does not answer, so the command was not run"),
    ImageMissing: ("SANDBOX_IMAGE_MISSING", "Sandbox container image is missing, so the command was not run"),
    PlanRejected: ("SANDBOX_REJECTED", "The engine would not confine the command as planned, so it was not run"),
    SandboxLost: ("SANDBOX_LOST", "The sandbox container died"),
}
_OTHER_FAULT = ("SANDBOX_FAILED", "The sandbox failed")


def render(asked: Asked | None, result: Result, table: Table, *, inactive: bool = False) -> Reply:
    """
    Answer a call: `asked` is None when it was not understood.

    `inactive` tells that it was the inactivity clock that ended the command.
    """
    match result:
        case Outcome():
            return _ran(result, table, inactive=inactive)
        case Rejected():
            return _not_run(result.text, result.kind, result.text, table)
        case _:
            kind, text, message = _why(asked, result)
            return _not_run(text, kind, message, table)


# A command that ran, or could not be started.


def _ran(outcome: Outcome, table: Table, *, inactive: bool) -> Reply:
    limit = table.output_characters
    stdout = shown(outcome.stdout, total=outcome.stdout_bytes, characters=limit)
    stderr = shown(outcome.stderr, total=outcome.stderr_bytes, characters=limit)
    was_canceled = outcome.status is State.CANCELED
    error = None if was_canceled else outcome.error
    content = {
        "stdout": stdout.text,
        "stderr": stderr.text,
        "exitCode": outcome.exit_code,
        "signal": outcome.signal,
        "error": error,
        "pid": outcome.pid,
        "backgroundPids": list(outcome.background_pids),
        "errorType": None if error is None else SPAWN_FAILED,
        "message": "\n".join(_remarks(outcome, table, stdout, stderr, inactive=inactive)) or None,
    }
    content |= {f"{name}Base64": one.base64 for name, one in (("stdout", stdout), ("stderr", stderr)) if one.base64}
    return _reply(content, table, success=outcome.succeeded and not outcome.callback_errors)


def _remarks(outcome: Outcome, table: Table, stdout: Shown, stderr: Shown, *, inactive: bool) -> Iterator[str]:
    yield from _ending(outcome, table, inactive=inactive)
    if outcome.oom_killed:
        yield "It ran out of memory, and the kernel killed it or a process of it."
    if outcome.output_limited:
        yield "It was ended because it wrote too much."
    if outcome.over_quota:
        yield f"It was ended: {outcome.over_quota}."
    if omitted := stdout.omitted + stderr.omitted:
        yield f"Output too large: {omitted} characters omitted. To read all of it, write it to a file and read that."
    if outcome.lease:
        pids = ", ".join(map(str, outcome.background_pids))
        yield (
            f"Command is running in background. PID: {pids}. It is ended {table.lease:g} s after its command; "
            "see list_background_processes and stop_background_process."
        )
    elif outcome.background_pids:
        yield "The processes that it left in the background were ended with it."
    if outcome.callback_errors:
        yield "Not everybody who follows its output has received all of it."


def _ending(outcome: Outcome, table: Table, *, inactive: bool) -> Iterator[str]:
    if outcome.status is State.CANCELED:
        if inactive:
            yield (
                "Command was automatically cancelled because it exceeded the timeout of "
                f"{table.inactivity_timeout / 60:.1f} minutes without output."
            )
        else:
            when = "start" if outcome.container is None else "complete"
            was_silent = when == "complete" and not (outcome.stdout_bytes or outcome.stderr_bytes)
            silence = " There was no output before it was cancelled." if was_silent else ""
            yield f"Command was cancelled by user before it could {when}.{silence}"
    elif outcome.status is State.TIMED_OUT:
        yield f"Command timed out after {_duration(table.timeout)}"
    elif outcome.error is not None:
        yield f"Command failed: {outcome.error}"
    elif outcome.signal is not None:
        yield f"Command terminated by signal: {outcome.signal}"
    elif outcome.exit_code:
        yield f"Command exited with code: {outcome.exit_code}"


def _duration(seconds: float) -> str:
    """120 -> `2m0s`, as the specification's language writes it."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    shown_hours = f"{hours}h" if hours else ""
    return f"{shown_hours}{minutes}m{rest:g}s" if hours or minutes else f"{rest:g}s"


# No command ran.


def _why(asked: Asked | None, error: ProviderError) -> tuple[str, str, str]:
    """Return the kind of a refusal or fault, its text, and one line of it."""
    match error:
        case CallError():
            return BAD_CALL, f"invalid input: {error}", "Command could not be run as it stands."
        case PolicyRefused():
            text = str(error)
            return REFUSED_BY_RULE, text, DISPLAY if text.startswith(REFUSED) else text
        case ApprovalRefused():
            return NOT_APPROVED, _denial(asked, error), "Command was not approved."
        case _:
            kind, text = next((said for fault, said in _FAULTS.items() if isinstance(error, fault)), _OTHER_FAULT)
            if isinstance(error, SandboxLost):
                began = "run" in (error.receipt or {}).get("timings_ms", {})
                text += (
                    " while the command ran; what it did until then is not undone"
                    if began
                    else " before the command was started"
                )
            return kind, f"{text}: {error}", f"{text}."


def _denial(asked: Asked | None, error: ApprovalRefused) -> str:
    reasons = asked.judged.reasons if asked and asked.judged else ()
    because = "; ".join(reason for reason in reasons if not reason.startswith(DESCRIBED)) or str(error)
    approval: Mapping[str, Any] = (error.receipt or {}).get("approval") or {}
    if isinstance(error, ApprovalAborted):
        return f"{because}. The user did not approve it, and wants no further commands."
    if approval.get("answer") != "deny":
        return f"{because}. {str(error).capitalize()}."  # a yes to something else
    if approval.get("by") == NOBODY_IN_TIME:
        return f"{because}. Nobody approved it in time."
    return because if approval.get("by") == "refuse_all" else f"{because}. The user did not approve it."


def _not_run(text: str, kind: str, message: str, table: Table) -> Reply:
    content: dict[str, Any] = {
        "stdout": "",
        "stderr": "",
        "exitCode": None,
        "signal": None,
        "error": text,
        "pid": None,
        "backgroundPids": [],
        "errorType": kind,
        "message": message,
    }
    return _reply(content, table, success=False)


# The two formats.


def _reply(content: dict[str, Any], table: Table, *, success: bool) -> Reply:
    return Reply(content=content if table.format == "json" else _text(content), success=success)


CLOSING = "</untrusted_context>"


def _text(content: Mapping[str, Any]) -> str:
    """Lines, inside tags that what a command prints cannot close."""
    lines = "\n".join(_lines(content)).replace(CLOSING, CLOSING.replace("<", "&lt;").replace(">", "&gt;"))
    return f"<untrusted_context>\n{lines}\n{CLOSING}"


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    joined = "\n".join(text.strip() for text in (content["stdout"], content["stderr"]) if text.strip())
    message = content["message"]
    if content["error"] is None and message:
        yield message
    yield f"Output: {joined or '(empty)'}"
    if content["error"] is not None:
        yield f"Error: {content['error']}"
    if content["exitCode"]:
        yield f"Exit Code: {content['exitCode']}"
    if content["signal"] is not None:
        yield f"Signal: {content['signal']}"
    if content["backgroundPids"]:
        yield f"Background PIDs: {', '.join(map(str, content['backgroundPids']))}"
    if content["pid"] is not None:
        yield f"Process Group PGID: {content['pid']}"
