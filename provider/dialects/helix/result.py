"""
What a command's run comes to in this contract: bytes, one number, a duration; and callback errors where there were any.

The exit code is the command's own, or: 128 + n when signal n ended it; 127 when there is no such program, 126 when it
cannot be started; 124 when its time was over, whatever it did when told so; -1 when it was ended before it exited, by
an abort or for writing without end. Where the number alone does not tell, `note` does; like `callbackErrors` it is
absent on the common path.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provider.model import Outcome, State

KILLED, TIMED_OUT, CANNOT_START, NOT_FOUND, SIGNALED = -1, 124, 126, 127, 128

_NAMES = {
    "stdout": "stdout",
    "stderr": "stderr",
    "exitCode": "exit_code",
    "durationMs": "duration_ms",
    "callbackErrors": "callback_errors",
    "note": "note",
}
_RARE = {"callbackErrors", "note"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunResult(Mapping[str, Any]):
    """A mapping in the contract's words, `result["exitCode"]`, with the same as attributes in Python's."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    duration_ms: int
    callback_errors: tuple[BaseException, ...] = ()
    note: str = ""

    def __getitem__(self, name: str) -> Any:
        if name not in _NAMES or (name in _RARE and not getattr(self, _NAMES[name])):
            raise KeyError(name)
        return getattr(self, _NAMES[name])

    def __iter__(self) -> Iterator[str]:
        return (name for name in _NAMES if name not in _RARE or getattr(self, _NAMES[name]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def run_succeeded(result: Mapping[str, Any]) -> bool:
    """Whether the command exited with 0 and no callback raised."""
    return result["exitCode"] == 0 and not result.get("callbackErrors")


def exit_code(outcome: Outcome) -> int:
    if outcome.timed_out:
        return TIMED_OUT
    if outcome.status is State.CANCELED or outcome.output_limited or outcome.over_quota:
        return KILLED
    if outcome.error is not None:
        return NOT_FOUND if outcome.ending.error_number == errno.ENOENT else CANNOT_START
    if outcome.signal is not None:
        return SIGNALED + outcome.signal
    assert outcome.exit_code is not None, "an ending has an exit code, a signal or an error"
    return outcome.exit_code


def note(outcome: Outcome) -> str:
    return "; ".join(_notes(outcome))


def _notes(outcome: Outcome) -> Iterator[str]:
    if outcome.timed_out:
        yield f"timed out after {outcome.duration_ms} ms"
    elif outcome.status is State.CANCELED:
        yield "canceled"
    elif outcome.output_limited:
        yield "ended for writing too much output"
    elif outcome.over_quota:
        yield f"ended: {outcome.over_quota}"
    elif outcome.error is not None:
        yield f"could not be started: {outcome.error}"
    if outcome.oom_killed:
        yield "a process was killed for want of memory"
    for name in ("stdout", "stderr"):
        if getattr(outcome, f"{name}_truncated"):
            yield f"{name} was longer than can be kept: {getattr(outcome, f'{name}_bytes')} bytes"


def callback_note(errors: Sequence[BaseException]) -> str:
    return (
        f"{len(errors)} callback error{'s' * (len(errors) > 1)}, the first: {type(errors[0]).__name__}"
        if errors
        else ""
    )
