"""
What became of a call, in the contract's words: markdown, JSON, and the short form for a model's next turn.

A command that failed says `Command exited with code …`, a command that somebody stopped says so, a call that was turned
away carries the rule's own text, and where our side failed the text says `Shell command could not be run`. A reply in
JSON has `error` and `reason` besides the six fields of the contract whenever the exit code does not tell it all.
"""

from __future__ import annotations

import json
import re
import signal as signals
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from provider.approval import NOBODY_IN_TIME, Answer, refuse_all
from provider.dialects.contract import Asked, Rejected, Reply
from provider.dialects.shell_cmd import words
from provider.dialects.shell_cmd.call import Call
from provider.dialects.shell_cmd.parse import Case
from provider.errors import (
    ApprovalRefused,
    CallError,
    ConfigError,
    EngineUnavailable,
    ImageMissing,
    PlanRejected,
    ProviderError,
    Refused,
    SandboxLost,
)
from provider.model import Artifact, Outcome, Output, State

PREVIEW: Final = 400
MODEL_PREVIEW: Final = 4_096

Reason = Literal["timeout", "canceled", "approval_denied", "validation_error", "non_zero_exit", "execution_error"]
Form = Literal["formatted", "continuation"]
Came = Outcome | ProviderError | Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One stream."""

    text: str = ""
    missing: str = ""
    """What is said about output that was never kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a reply is made of, in any of its forms."""

    call: Call
    exit_code: int | None = None
    signal: str | None = None
    stdout: Text = Text()
    stderr: Text = Text()
    timed_out: bool = False
    canceled: bool = False
    duration_ms: int = 0
    executed_at: str = ""
    error: str | None = None
    reason: Reason | None = None
    artifacts: tuple[Artifact, ...] = ()
    listener_errors: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and self.error is None and not self.listener_errors

    @property
    def size(self) -> int:
        return len(self.stdout.text) + len(self.stderr.text)


def render(asked: Asked, came: Came, *, executed_at: str = "", form: Form = "formatted") -> Reply:
    """Answer a call, whatever came of it."""
    result = conclude(asked, came, executed_at=executed_at)
    return Reply(content=written(result, form=form, is_ai=asked.call.is_ai), success=result.succeeded)


def written(result: Result, *, form: Form = "formatted", is_ai: bool = False) -> str:
    """The text of a reply. An AI command that succeeded speaks for itself."""
    if is_ai:
        return _clean(assistant_text(result))
    return tool_text(result, form=form)


def assistant_text(result: Result) -> str:
    return (result.stdout.text or "(No output)") if result.succeeded else _markdown(result)


def tool_text(result: Result, *, form: Form = "formatted") -> str:
    if form == "continuation":
        return _clean("\n".join(_continuation(result)))
    return _clean(_json(result) if result.call.output_format == "json" else _markdown(result))


def _clean(text: str) -> str:
    """A lone surrogate, which a payload can have, would break whoever prints the reply."""
    return text.encode("utf-8", "backslashreplace").decode()


# What came of it.


def conclude(asked: Asked, came: Came, *, executed_at: str = "") -> Result:
    case: Case = asked.call
    match came:
        case Outcome():
            return _ended(case, came, executed_at)
        case Rejected():
            canceled = came.kind == "canceled"
            reason: Reason = "canceled" if canceled else "validation_error"
            return Result(call=case.call, error=came.text, reason=reason, canceled=canceled, executed_at=executed_at)
        case _:
            error, reason = _not_run(case, came)
            return Result(call=case.call, error=error, reason=reason, executed_at=executed_at)


def _ended(case: Case, outcome: Outcome, executed_at: str) -> Result:
    error, reason = _failure(case.call, outcome)
    artifacts, problem = _artifacts(case, outcome)
    if problem and error is None:
        error, reason = problem, "execution_error"
    return Result(
        call=case.call,
        exit_code=outcome.exit_code,
        signal=None if outcome.signal is None else _signal_name(outcome.signal),
        stdout=_text(outcome.stdout_capture),
        stderr=_text(outcome.stderr_capture),
        timed_out=outcome.timed_out,
        canceled=outcome.status is State.CANCELED,
        duration_ms=outcome.duration_ms,
        executed_at=executed_at,
        error=error,
        reason=reason,
        artifacts=artifacts,
        listener_errors=tuple(str(one) or type(one).__name__ for one in outcome.callback_errors),
    )


def _failure(call: Call, outcome: Outcome) -> tuple[str | None, Reason | None]:
    if outcome.timed_out:
        return words.timed_out(call.timeout_text), "timeout"
    if outcome.status is State.CANCELED:
        return words.CANCELED, "canceled"
    if outcome.error is not None:
        return words.not_started(call.command, outcome.error), "execution_error"
    if outcome.status is State.COMPLETED and outcome.exit_code == 0:
        return None, None
    why = "; ".join(_circumstances(outcome))
    return f"{words.exited(outcome.exit_code)}{f' ({why})' if why else ''}", "non_zero_exit"


def _circumstances(outcome: Outcome) -> Iterator[str]:
    if outcome.signal is not None:
        yield f"signal {_signal_name(outcome.signal)}"
    if outcome.oom_killed:
        yield "out of memory"
    if outcome.output_limited:
        yield "it wrote more than the output limit"
    if outcome.over_quota:
        yield outcome.over_quota


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _artifacts(case: Case, outcome: Outcome) -> tuple[tuple[Artifact, ...], str | None]:
    """In the order of the call; the first that is not there is the error."""
    found = {artifact.path: artifact for artifact in outcome.artifacts}
    problems = {problem.path: problem for problem in outcome.artifact_problems}
    hashed = tuple(found[path] for _, path in case.artifacts if path in found)
    for given, path in case.artifacts:
        if path in found:
            continue
        problem = problems.get(path)
        if problem is None or problem.problem == "missing":
            return hashed, words.artifact_missing(given)
        if problem.problem in {"symlink", "directory", "fifo", "socket", "device"}:
            return hashed, words.artifact_no_file(given)
        return hashed, words.artifact_missing(given, f"{problem.problem}: {problem.detail}")
    return hashed, None


def _text(output: Output) -> Text:
    kept = output.read()
    missing = f"{len(kept)} of {output.total_bytes} bytes were kept" if output.truncated else ""
    return Text(text=kept.decode("utf-8", "replace"), missing=missing)


_FAULTS: Final = {
    EngineUnavailable: "the sandbox engine is unavailable",
    ImageMissing: "the sandbox image is missing",
    PlanRejected: "the sandbox is not as planned",
    SandboxLost: "the sandbox was lost before the command had ended",
    ConfigError: "the provider is not set up",
}


def _not_run(case: Case, error: ProviderError) -> tuple[str, Reason]:
    if isinstance(error, ApprovalRefused):
        return _not_approved(case, error), "approval_denied"
    if isinstance(error, Refused):
        return words.blocked(str(error)), "validation_error"
    if isinstance(error, CallError):
        return words.invalid(str(error)), "validation_error"
    what = _FAULTS.get(type(error))
    return words.not_run(f"{what}: {error}" if what else str(error)), "execution_error"


def _not_approved(case: Case, error: ApprovalRefused) -> str:
    """Who said no, as the receipt has it: nobody was there to ask, nobody answered, or somebody did."""
    approval = (error.receipt or {}).get("approval") or {}
    if approval.get("by") == refuse_all.__name__:
        return words.nobody_to_ask(case.reason)
    if approval.get("by") == NOBODY_IN_TIME:
        return words.not_approved(case.reason, "timeout")
    said_yes = approval.get("answer") in {Answer.ONCE, Answer.SESSION, Answer.ALWAYS}
    return words.not_approved(case.reason, "plan_mismatch" if said_yes else "user_denied")


# For people.


def command_line(command: str, parameters: Sequence[str]) -> str:
    return " ".join((command, *(_quoted(parameter) for parameter in parameters)))


def _quoted(parameter: str) -> str:
    if not re.search(r"[ \t\n]", parameter):
        return parameter
    escaped = parameter.replace('"', '\\"')
    return f'"{escaped}"'


def _markdown(result: Result) -> str:
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    full = result.call.output_detail == "full"
    yield "### Command Execution"
    yield ""
    line = command_line(result.call.command, result.call.parameters)
    yield f"**Command:** {_code(line)}"
    yield f"**Duration:** {result.duration_ms}ms"
    if full:
        yield f"**Executed at:** {result.executed_at}"
    if result.error is not None:
        yield "**Status:** ❌ Error"
        yield f"**Error:** {result.error}"
    else:
        yield f"**Status:** {'✅' if result.succeeded else '⚠️'} Exit code {result.exit_code}"
    for error in result.listener_errors:
        yield f"*(A listener of the output failed: {error})*"
    yield from _section("Standard Output", "Output", result.stdout, full=full)
    yield from _section("Standard Error", "Error output", result.stderr, full=full)
    if not result.stdout.text and not result.stderr.text and result.error is None:
        yield ""
        yield "*(No output)*"


def _code(text: str) -> str:
    """On one line, and with more backticks around it than in it."""
    line = text.replace("\r", "\\r").replace("\n", "\\n")
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def _section(title: str, what: str, stream: Text, *, full: bool) -> Iterator[str]:
    if not stream.text:
        return
    shown = stream.text if full else stream.text[:PREVIEW]
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`{3,}", shown)), default=0))
    yield ""
    yield f"### {title}" if full else f"### {title} (preview)"
    yield ""
    yield fence
    yield shown.removesuffix("\n")
    yield fence
    if len(shown) < len(stream.text):
        yield (f'*({what} truncated to minimum necessary preview. Use `output_detail: "full"` for full output.)*')
    elif stream.missing:
        yield f"*({what} truncated: {stream.missing}.)*"


# For programs.


def _json(result: Result) -> str:
    full = result.call.output_detail == "full"
    stdout, stderr = (stream.text if full else stream.text[:PREVIEW] for stream in (result.stdout, result.stderr))
    data: dict[str, Any] = {
        "exit_code": result.exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "timed_out": result.timed_out,
        "duration_ms": result.duration_ms,
        "artifacts": [
            {"path": artifact.path, "sha256": artifact.sha256, "bytes": artifact.bytes} for artifact in result.artifacts
        ],
    }
    for name, shown, stream in (("stdout", stdout, result.stdout), ("stderr", stderr, result.stderr)):
        if stream.missing or len(shown) < len(stream.text):
            data[f"{name}_truncated"] = True
    if result.error is not None and result.error != words.exited(result.exit_code):
        data |= {"error": result.error, "reason": result.reason}
    if result.listener_errors:
        data["listener_errors"] = list(result.listener_errors)
    return json.dumps(data, indent=2, ensure_ascii=False)


# For a model's next turn.

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC, DCS and their kin, where they end
    r"|[@-Z\\-_])"  # Fe
)
_IMAGE: Final = re.compile(r"data:image/[^;,\s]{1,100};base64,")


def _continuation(result: Result) -> Iterator[str]:
    yield f"status: {'success' if result.succeeded else 'failed'}"
    yield f"exit_code: {'null' if result.exit_code is None else result.exit_code}"
    yield f"timed_out: {str(result.timed_out).lower()}"
    yield f"canceled: {str(result.canceled).lower()}"
    if result.reason:
        yield f"reason: {result.reason}"
    yield from _preview("stdout", result.stdout)
    stderr = result.stderr if result.stderr.text or result.error is None else Text(text=result.error)
    yield from _preview("stderr", stderr)


def _preview(name: str, stream: Text) -> Iterator[str]:
    if not stream.text:
        return
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"\r\n?", "\n", _ESCAPES.sub("", stream.text)))
    redacted = bool(_IMAGE.search(text))
    if redacted:
        text = f"omitted from LLM context (contains image data URI output; {len(stream.text)} chars)."
    yield f"{name}_preview:"
    yield text[:MODEL_PREVIEW]
    if stream.missing or len(text) > MODEL_PREVIEW:
        yield f"{name}_truncated: true"
    if redacted:
        yield f"{name}_redacted: true"
