"""When an attempt is over, by time.monotonic(): what loops and waits ask. The alarm is the second line."""

from __future__ import annotations

import time

from .errors import TimedOut


def look(deadline: float) -> None:
    """Raise TimedOut once the deadline has passed."""
    left(deadline)


def left(deadline: float, most: float = float("inf")) -> float:
    """Give the seconds that are left, at most `most`. Raises TimedOut when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        message = "the step took longer than its stepTimeout (00:00:30 unless set); give it more, or less to do"
        raise TimedOut(message)
    return min(seconds, most)
