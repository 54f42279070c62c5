"""
A compiled script, step by step: guards, substitution, the checks once more with real values, attempts under a time
limit, jumps, failure modes and cleanup.

The only state is that of one script: `$PREV`, captures, and the records of its steps. Every step of the script has a
record in the end; one that did not run is `Skipped`. A verb can fail in any way it likes: what the agent reads of it is
a category and one text, never a traceback.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .alarm import within
from .check import check_path, check_step
from .compiled import Compiled, Guard, Step
from .environment import visible
from .errors import CompileError, Mk8Error, StepFailure, TimedOut
from .guards import Seen, holds
from .record import Status, cut, fit, make_record, tail, timespan
from .variables import expand
from .verb import Done, Verb, World
from .verbs import VERBS

Emit = Callable[[Mapping[str, Any]], None]
Check = Callable[..., Sequence[str | None]]
"""As `check.check_step`."""

CLEANUP_SECONDS: Final = 30.0
"""All of cleanup together, whatever was left of the script's own time."""
RESULT_BYTES: Final = 16 * 2**20
"""Output and error texts of all steps together, as JSON: a thousand steps with a megabyte each would fit nowhere."""
SLACK_SECONDS: Final = 0.1
"""The alarm rings so much after the deadline: a verb that looks at the clock ends first, and keeps its output."""
_ONE_LINE: Final = 300


@dataclass(slots=True)
class _Script:
    """One run of one script."""

    compiled: Compiled
    emit: Emit
    verbs: Mapping[str, Verb]
    check: Check
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    environment: Mapping[str, str]
    previous: str = ""
    captures: dict[str, str] = field(default_factory=dict)
    """By name in upper case."""
    answers: dict[int, bool] = field(default_factory=dict)
    """Of guards that several steps share, by their number."""
    records: list[dict[str, Any]] = field(default_factory=list)
    left: int = RESULT_BYTES


@dataclass(frozen=True, slots=True)
class _Span:
    """The time that a list of steps has together."""

    end: float
    over: str
    """What is said of a step when it has passed."""


def execute(
    compiled: Compiled,
    emit: Emit,
    *,
    verbs: Mapping[str, Verb] = VERBS,
    check: Check = check_step,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run it and give its result; `emit` is told of steps as they begin, wait and end. In the main thread only."""
    script = _Script(
        compiled=compiled,
        emit=emit,
        verbs=verbs,
        check=check,
        clock=clock,
        sleep=sleep,
        environment=visible(os.environ if environ is None else environ, compiled),
    )
    began = clock()
    seconds = compiled.script_timeout
    over = f"the script's time of {seconds:g} s is over (scriptTimeout)"
    if _run_steps(script, _Span(began + seconds, over)) and compiled.failure_mode == "StopAndCleanup":
        over = f"the {CLEANUP_SECONDS:g} s that cleanup has are over"
        _run_cleanup(script, _Span(clock() + CLEANUP_SECONDS, over))
    return {
        "allSucceeded": all(record["success"] for record in script.records if not record["cleanup"]),
        "totalDuration": timespan(clock() - began),
        "steps": script.records,
    }


def _run_steps(script: _Script, span: _Span) -> bool:
    """Whether a failure stopped them."""
    steps = script.compiled.steps
    labels = {step.label.casefold(): place for place, step in enumerate(steps) if step.label}
    index = 0
    while index < len(steps):
        step = steps[index]
        index += 1
        if _run_step(script, step, span):
            continue
        target = labels.get(step.on_failure.casefold(), -1) if step.on_failure else -1
        if script.clock() >= span.end:
            break
        if target >= index:  # forward only, so that every script comes to an end
            _skip(script, steps[index:target])
            index = target
        elif script.compiled.failure_mode != "ContinueOnError":
            break
    else:
        return False
    _skip(script, steps[index:])
    return True


def _run_cleanup(script: _Script, span: _Span) -> None:
    """As far as it goes: a step that fails stops no other, only the time does."""
    steps = script.compiled.cleanup
    for place, step in enumerate(steps, start=1):
        if not _run_step(script, step, span) and script.clock() >= span.end:
            _skip(script, steps[place:])
            return


def _skip(script: _Script, steps: Sequence[Step]) -> None:
    for step in steps:
        _finish(script, step, "Skipped")


# One step.


def _run_step(script: _Script, step: Step, span: _Span) -> bool:
    """Whether it went well, or was not to be run."""
    began = script.clock()
    attempts = 0
    done: Done | None = None
    error: Mk8Error | None = None
    try:
        if began >= span.end:
            raise TimedOut(span.over)
        with _failures():
            wanted = all(_lets(script, guard, span) for guard in step.guards)
        if not wanted:
            _finish(script, step, "Skipped")
            return True
        script.emit({"event": "step_started", **_place(script), "verb": step.verb, "label": step.label})
        for attempts, delay in enumerate(_delays(script, step), start=1):
            try:
                done = _attempt(script, step, span)
                break
            except Mk8Error as failure:
                error = failure
            if delay is None or not error.retried or script.clock() >= span.end:
                break
            _wait(script, span, delay, attempts=attempts, error=error)
    except Mk8Error as failure:
        error = failure
    status: Status = "Failed" if done is None else "Succeeded"
    _finish(script, step, status, done=done, error=error, attempts=attempts, seconds=script.clock() - began)
    return done is not None


def _delays(script: _Script, step: Step) -> Iterator[float | None]:
    """For each attempt, how long to wait after it; None after the last."""
    yield from (script.compiled.retry_delay * 2**retry for retry in range(step.retries))
    yield None


def _wait(script: _Script, span: _Span, delay: float, *, attempts: int, error: Mk8Error) -> None:
    script.emit(
        {
            "event": "progress",
            **_place(script),
            "attempt": attempts,
            "error": tail(str(error), script.compiled.error_bytes),
            "retryIn": delay,
        }
    )
    left = span.end - script.clock()
    if delay >= left:
        script.sleep(max(0.0, left))
        text = f"{span.over}, before attempt {attempts + 1}; attempt {attempts}: {error}"
        raise TimedOut(text, output=error.output)
    script.sleep(delay)


def _attempt(script: _Script, step: Step, span: _Span) -> Done:
    compiled = script.compiled
    left = span.end - script.clock()
    if left <= 0:
        raise TimedOut(span.over)
    seconds = min(step.timeout, left)
    late = span.over if left <= step.timeout else f"the step took longer than its {step.timeout:g} s (stepTimeout)"
    verb = script.verbs.get(step.verb)
    if verb is None or verb.control:
        text = "not a verb that can be executed; Mk8Verbs lists them"
        raise CompileError(step.verb, text)

    def act() -> str | Done:
        filled = _filled(step, _values(script))
        arguments = script.check(filled, filled.args, compiled.rules, compiled.root, links=True)
        return verb.act(_world(script, filled, seconds), [value or "" for value in arguments])

    try:
        with _failures():
            given = within(seconds + SLACK_SECONDS, act, late)
    except TimedOut as error:
        if script.clock() < span.end or span.over in str(error):
            raise
        text = f"{span.over}: {error}"
        raise TimedOut(text, output=error.output, exit_code=error.exit_code) from None
    if isinstance(given, Done):
        return given
    if isinstance(given, str):
        return Done(output=given)
    text = f"{step.verb} gave {type(given).__name__} in place of text"  # type: ignore[unreachable]
    raise StepFailure(text)


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Make a failed step of everything that nobody thought of: a mistake in a verb is not the script's end."""
    try:
        yield
    except Mk8Error:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001
        raise StepFailure(_one_line(error)) from None


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename is not None else error.strerror
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_ONE_LINE] if text else type(error).__name__


# What only the run knows.


def _values(script: _Script) -> Mapping[str, str]:
    """Built-ins win over captures, which the compiler does not let have their names."""
    return {**script.captures, **script.compiled.variables, "PREV": script.previous}


def _filled(step: Step, values: Mapping[str, str]) -> Step:
    args = tuple(expand(text, values) for text in step.args)
    if step.source is None and step.cwd is None:
        return step if args == step.args else replace(step, args=args)
    source, cwd = (None if text is None else expand(text, values) for text in (step.source, step.cwd))
    return replace(step, args=args, source=source, cwd=cwd)


def _resolved(path: str | None, compiled: Compiled) -> str:
    return "" if path is None else check_path(path, compiled.rules, compiled.root, links=True)


def _world(script: _Script, step: Step, seconds: float) -> World:
    """What an attempt sees; the step's paths are filled in."""
    compiled = script.compiled
    return World(
        root=compiled.root,
        cwd=_resolved(step.cwd, compiled) or compiled.root,
        user=compiled.user,
        network=compiled.network,
        output_bytes=compiled.output_bytes,
        error_bytes=compiled.error_bytes,
        deadline=time.monotonic() + seconds,
        environment=script.environment,
        answers=compiled.answers,
        template=step.template,
        source=_resolved(step.source, compiled),
        patches=step.patches,
    )


def _lets(script: _Script, guard: Guard, span: _Span) -> bool:
    """Whether a guard lets its step run."""
    if guard.once is not None and guard.once in script.answers:
        return script.answers[guard.once]
    values = _values(script)
    seen = Seen(
        previous=script.previous,
        captures=script.captures,
        environment=script.environment,
        root=script.compiled.root,
        rules=script.compiled.rules,
        deadline=time.monotonic() + span.end - script.clock(),
    )
    answer = holds(guard.kind, [expand(text, values) for text in guard.args], seen)
    if guard.once is not None:
        script.answers[guard.once] = answer
    return answer


# What becomes of it.


def _place(script: _Script) -> dict[str, Any]:
    """Of the step that is next in the records."""
    index, steps = len(script.records), len(script.compiled.steps)
    cleanup = index >= steps
    return {
        "stepIndex": index,
        "cleanup": cleanup,
        "total": steps + len(script.compiled.cleanup) if cleanup else steps,
    }


def _finish(
    script: _Script,
    step: Step,
    status: Status,
    *,
    done: Done | None = None,
    error: Mk8Error | None = None,
    attempts: int = 0,
    seconds: float = 0.0,
) -> None:
    """Write the record, and set what later steps see of this one."""
    compiled = script.compiled
    place = _place(script)
    record = make_record(
        step,
        status,
        index=place["stepIndex"],
        cleanup=place["cleanup"],
        done=done,
        error=error,
        attempts=attempts,
        seconds=seconds,
    )
    cut(record, output_bytes=compiled.output_bytes, error_bytes=compiled.error_bytes)
    given = (record["output"] or "").strip() if status == "Succeeded" else ""
    if compiled.pipes and status != "Skipped":
        script.previous = given
    if step.capture:
        script.captures[step.capture.upper()] = given
    script.left = fit(record, script.left)
    script.records.append(record)
    script.emit({"event": "step_finished", "step": record, "total": place["total"]})
