"""
What became of a script, read from the lines that its sandbox writes, and told in the contract's two forms: text, JSON.

The sandbox may have been taken over by what ran in it, so its lines are believed only as far as they fit the script
that was sent: known shapes, bounded sizes, every step once and in its turn. At the first line that does not fit,
reading ends; what was told until then is kept, and the result is a failure that says so. The same goes for a sandbox
that went away in the middle.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from provider.dialects.mk8.errors import ContainerError
from provider.inside.mk8.compiled import Compiled, Step
from provider.inside.mk8.errors import Mk8Error
from provider.inside.mk8.execute import RESULT_BYTES
from provider.inside.mk8.record import make_record, timespan

LINE_BYTES: Final = RESULT_BYTES + 8 * 2**20
"""The last line has all texts once more, and a thousand steps around them."""
FAILED: Final = "mk8.shell script execution failed"
_TIMESPAN: Final = r"(?:(\d{1,4})\.)?(\d{2}):(\d{2}):(\d{2})\.(\d{7})"

Duration = Annotated[str, Field(pattern=f"^{_TIMESPAN}$")]
Count = Annotated[int, Field(ge=0, le=100_000)]
Category = Literal[
    "Compile",
    "PathViolation",
    "UrlViolation",
    "GigaBlacklist",
    "InvalidArgument",
    "Container",
    "StepFailure",
    "Timeout",
]


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class StepResult(_Told):
    """A step, in the contract's own names."""

    stepIndex: Count  # noqa: N815
    verb: str
    status: Literal["Succeeded", "Failed", "Skipped"]
    success: bool
    output: str | None
    error: str | None
    errorCategory: Category | None  # noqa: N815
    exitCode: Annotated[int, Field(ge=-(2**31), le=2**32)] | None  # noqa: N815
    attempts: Count
    duration: Duration
    cleanup: bool
    label: str | None


class ScriptResult(_Told):
    allSucceeded: bool  # noqa: N815
    totalDuration: Duration  # noqa: N815
    steps: tuple[StepResult, ...]
    error: str | None = None
    """Why there is no more than this, where the sandbox did not come to the end. It never says so itself."""

    def to_json(self) -> dict[str, Any]:
        data = self.model_dump(mode="json")
        return data if self.error is not None else {name: data[name] for name in data if name != "error"}


class _Started(_Told):
    event: Literal["step_started"]
    stepIndex: Count  # noqa: N815
    cleanup: bool
    total: Count
    verb: str
    label: str | None


class _Progress(_Told):
    event: Literal["progress"]
    stepIndex: Count  # noqa: N815
    cleanup: bool
    total: Count
    attempt: Count
    error: str
    retryIn: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]  # noqa: N815


class _Finished(_Told):
    event: Literal["step_finished"]
    step: StepResult
    total: Count


class _Over(_Told):
    event: Literal["result"]
    result: ScriptResult


_EVENT: Final[TypeAdapter[_Started | _Progress | _Finished | _Over]] = TypeAdapter(
    Annotated[_Started | _Progress | _Finished | _Over, Field(discriminator="event")]
)


class _Unfit(Exception):
    """A line that this script's sandbox would not have written."""


class EventReader:
    """Takes the sandbox's stdout as it comes, gives the events that fit, and makes the result in the end."""

    def __init__(self, compiled: Compiled, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._compiled = compiled
        self._all = (*compiled.steps, *compiled.cleanup)
        self._clock = clock
        self._began = clock()
        self._line = bytearray()
        self._steps: list[StepResult] = []
        self._started = False
        self._retries = 0
        self._result: ScriptResult | None = None
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why reading ended; the sandbox can be stopped then."""
        return self._problem

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Read some more. Gives the events in it, for whoever listens; the result itself is not one of them."""
        events: list[dict[str, Any]] = []
        *ended, rest = chunk.split(b"\n")
        try:
            for end in ended:
                self._add(end)
                line = bytes(self._line)
                self._line.clear()
                events += self._take(line)
            self._add(rest)
        except _Unfit as unfit:
            self._problem = self._problem or str(unfit)
            self._line.clear()
        return events

    def _add(self, piece: bytes) -> None:
        if self._problem is not None:
            raise _Unfit(self._problem)
        if len(self._line) + len(piece) > LINE_BYTES:
            message = f"a line of more than {LINE_BYTES} bytes came from the sandbox"
            raise _Unfit(message)
        self._line += piece

    def conclude(self, lost: Mk8Error | None = None, *, stands: bool = True) -> ScriptResult:
        """
        The result, whatever came.

        `lost` is what the caller knows of a sandbox that ended early, such as TimedOut or ContainerError. Unless it
        `stands`, a script that came to its end has failed by it all the same.
        """
        if self._line and self._problem is None:
            self._problem = "the last line from the sandbox has no end"
        if self._result is not None and self._problem is None and stands:
            return self._result
        return self._failed(lost)

    # Does it fit?

    def _take(self, line: bytes) -> list[dict[str, Any]]:
        try:
            event = _EVENT.validate_json(line)
        except ValidationError as error:
            # Not the whole message: names and values in it are the sandbox's own words.
            message = f"a line from the sandbox is no event ({error.errors()[0]['type']})"
            raise _Unfit(message) from None
        if self._result is not None:
            message = "the sandbox went on after its result"
            raise _Unfit(message)
        match event:
            case _Started():
                self._check_place(event.stepIndex, event.cleanup, event.verb, event.label)
                self._check(not self._started, "a step began twice")
                self._started, self._retries = True, 0
            case _Progress():
                self._check_place(event.stepIndex, event.cleanup)
                self._retries += 1
                self._check(self._started and event.attempt == self._retries, "an attempt is not in its turn")
                self._check(self._retries <= self._step.retries, "more attempts than the script has")
                self._check_length(event.error, self._compiled.error_bytes)
            case _Finished(step=step):
                self._check_step(step)
                self._steps.append(step)
                self._started = False
            case _Over(result=result):
                self._check_result(result)
                self._result = result
                return []
        return [event.model_dump(mode="json")]

    @property
    def _step(self) -> Step:
        return self._all[len(self._steps)]

    def _check(self, fits: bool, problem: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not fits:
            message = f"the sandbox's account of step {len(self._steps)} does not fit the script: {problem}"
            raise _Unfit(message)

    def _check_place(self, index: int, cleanup: bool, verb: str | None = None, label: str | None = None) -> None:  # noqa: FBT001
        self._check(len(self._steps) < len(self._all), "there are no more steps")
        self._check(index == len(self._steps), "it is not the next one")
        self._check(cleanup == (index >= len(self._compiled.steps)), "the wrong kind of step")
        if verb is not None:
            self._check((verb, label) == (self._step.verb, self._step.label), "another verb, or another label")

    def _check_step(self, step: StepResult) -> None:
        compiled = self._compiled
        self._check_place(step.stepIndex, step.cleanup, step.verb, step.label)
        self._check(step.success == (step.status != "Failed"), "success and status contradict each other")
        self._check((step.errorCategory is None) == step.success, "an error without its category, or the reverse")
        self._check(step.attempts <= self._step.retries + 1, "more attempts than the script has")
        self._check(self._started or step.attempts == 0, "it ended before it began")
        self._check(step.status != "Skipped" or (step.output, step.error, step.attempts) == (None, None, 0), "skipped")
        for text, limit in ((step.output, compiled.output_bytes), (step.error, compiled.error_bytes)):
            self._check_length(text, limit)

    def _check_length(self, text: str | None, limit: int) -> None:
        self._check(text is None or len(text.encode("utf-8", "replace")) <= limit, "more output than allowed")

    def _check_result(self, result: ScriptResult) -> None:
        least = len(self._compiled.steps)
        self._check(not self._started and len(self._steps) in {least, len(self._all)}, "the result came too early")
        self._check(result.steps == tuple(self._steps), "the result has other steps than were told")
        self._check(result.error is None, "the result has a field too many")
        self._check(result.allSucceeded == _succeeded(self._steps), "success and steps contradict each other")

    # What is told when it did not come to its end.

    def _failed(self, lost: Mk8Error | None) -> ScriptResult:
        if self._problem is not None:
            lost = ContainerError(self._problem)
        elif lost is None:
            lost = ContainerError("the sandbox ended before the script did")
        steps = list(self._steps)
        for place in range(len(steps), len(self._compiled.steps)):
            running = place == len(self._steps)
            record = make_record(
                self._all[place],
                "Failed" if running else "Skipped",
                index=place,
                cleanup=False,
                done=None,
                error=lost if running else None,
                attempts=self._retries + 1 if running and self._started else 0,
                seconds=0.0,
            )
            steps.append(StepResult.model_validate(record))
        return ScriptResult(
            allSucceeded=False,
            totalDuration=timespan(self._clock() - self._began),
            steps=tuple(steps),
            error=str(lost),
        )


def _succeeded(steps: list[StepResult]) -> bool:
    return all(step.success for step in steps if not step.cleanup)


# As text.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTexts:
    """What a job keeps of a script: one of the two."""

    result: str | None = None
    error: str | None = None


def job_texts(result: ScriptResult) -> JobTexts:
    text = "\n".join(_lines(result))
    return JobTexts(result=text) if result.allSucceeded else JobTexts(error=f"{FAILED}\n{text}")


_WORDS: Final[Mapping[str, str]] = {"Succeeded": "OK", "Failed": "FAIL", "Skipped": "SKIPPED"}


def _lines(result: ScriptResult) -> Iterator[str]:
    yield f"AllSucceeded: {result.allSucceeded}"
    yield f"Duration: {result.totalDuration}"
    yield f"Steps: {len(result.steps)}"
    if result.error is not None:
        yield from _indented("Error", result.error, "")
    for step in result.steps:
        took = f"{step.attempts} attempt(s), {milliseconds(step.duration)}ms"
        yield f"  [{step.stepIndex}] {step.verb} {_WORDS[step.status]} ({took})"
        yield from _indented("Output", step.output, "    ")
        yield from _indented("Error", step.error, "    ")


def _indented(name: str, text: str | None, indent: str) -> Iterator[str]:
    """Every line of it further in than a step's own line, so that no output can pretend to be one."""
    if text and text.strip():
        first, *rest = text.strip("\r\n").splitlines()
        yield f"{indent}{name}: {first}"
        yield from (f"{indent}  {line}" for line in rest)


def milliseconds(duration: str) -> int:
    match = re.fullmatch(_TIMESPAN, duration)
    assert match is not None
    days, hours, minutes, seconds, ticks = (int(part or 0) for part in match.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + round(ticks / 10_000)
