"""
The alarm that ends what takes too long, also when it hangs in a system call or in a regular expression.

One timer of the process (ITIMER_REAL) serves all limits, which may be nested: the handler raises in the main thread for
the outermost limit that has passed, and rings again should a verb have swallowed it. Whoever had the timer before gets
it back with what is left of its time. Works in the main thread only, since signals do.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from .errors import TimedOut

AGAIN_SECONDS: Final = 1.0
"""Between two rings: what a verb has for tidying up, before the alarm tells it again."""
_SOON: Final = 0.001  # zero would switch a timer off

Given = TypeVar("Given")


class Overtime(BaseException):
    """On its way from the alarm to the limit that it is for. No Exception, so that no verb takes it for a failure."""

    def __init__(self, limit: _Limit) -> None:
        super().__init__()
        self.limit = limit


class _Limit:
    __slots__ = ("deadline", "outer", "rung")

    def __init__(self, seconds: float, outer: _Limit | None) -> None:
        self.deadline = time.monotonic() + seconds
        self.outer = outer
        self.rung = False


class _Running:
    """The innermost limit, and what the timer was before the outermost. One, as there is one timer."""

    innermost: _Limit | None = None
    before: tuple[float, float] = (0.0, 0.0)
    handler: Any = None
    since: float = 0.0


def within(seconds: float, act: Callable[[], Given], late: str) -> Given:
    """
    Do it, and give what it gives.

    Raises:
        TimedOut: it took longer, in the words of `late`.
    """
    ours = _Limit(seconds, _Running.innermost)
    try:
        try:
            _begin(ours)
            given = act()
        finally:
            _end(ours)
    except Overtime as overtime:
        while _Running.innermost is ours:  # the alarm can have rung in the lines above as well, and here
            with contextlib.suppress(Overtime):
                _end(ours)
        if overtime.limit is not ours:
            raise
        raise TimedOut(late) from None
    if ours.rung:  # and somebody swallowed it
        raise TimedOut(late)
    return given


def _begin(limit: _Limit) -> None:
    if limit.outer is None:
        _Running.handler = signal.signal(signal.SIGALRM, _ring)
        _Running.since = time.monotonic()
        _Running.before = signal.setitimer(signal.ITIMER_REAL, 0)
    _Running.innermost = limit
    _set()


def _end(limit: _Limit) -> None:
    if _Running.innermost is limit:
        _Running.innermost = limit.outer
        _set()


def _set() -> None:
    deadlines = [limit.deadline for limit in _limits()]
    if deadlines:
        left = min(deadlines) - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, max(left, _SOON))
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, _Running.handler or signal.SIG_DFL)
    left, interval = _Running.before
    if left:
        left -= time.monotonic() - _Running.since
        signal.setitimer(signal.ITIMER_REAL, max(left, _SOON), interval)


def _limits() -> list[_Limit]:
    """From the innermost."""
    found, limit = [], _Running.innermost
    while limit is not None:
        found.append(limit)
        limit = limit.outer
    return found


def _ring(number: int, frame: object) -> None:  # noqa: ARG001 - the shape of a handler
    now = time.monotonic()
    passed = [limit for limit in _limits() if limit.deadline <= now]
    if passed:
        # From now, not from the deadline: after a long pause of the whole machine, the two would come as one.
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        passed[-1].rung = True
        raise Overtime(passed[-1])
    if _Running.innermost is not None:
        _set()  # a ring for a limit that has just ended
