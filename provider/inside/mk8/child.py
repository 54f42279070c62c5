"""
A forked copy of this program that does one thing which cannot be interrupted here, such as a regular expression or a
look-up of a name, and tells what it found.

Its time limit is the kernel's (SIGALRM with its default action), so that it holds in the middle of C code as well. That
this program is small and has one thread is what makes a fork cheap and safe.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Final, NoReturn

from .deadline import left
from .errors import StepFailure, TimedOut

MOST_BYTES: Final = 64 * 1024 * 1024
_PIECE: Final = 65_536
_FOUND, _FAILED, _LATE = b"+", b"-", b"!"

Again = Callable[[], None]
"""Called by the work: its next piece has the whole limit again."""


def ask(work: Callable[[Again], bytes], *, seconds: float, deadline: float, what: str) -> bytes:
    """
    Do the work apart, and give what it gives.

    Raises:
        TimedOut: a piece of it took longer than `seconds`, or all of it went on past `deadline`.
        StepFailure: it raised, in the words of what it raised.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _work(work, seconds, writer)
    try:
        os.close(writer)
        said = _listen(reader, deadline, what)
        status = os.waitpid(child, 0)[1]
        child = 0
    finally:
        os.close(reader)
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        message = f"{what} took more than {seconds:g} s"
        raise TimedOut(message)
    if status != 0 or not said:
        message = f"{what} came to no end; it may have used too much memory"
        raise StepFailure(message)
    if said[:1] != _FOUND:
        why = said[1:].decode("utf-8", "replace")
        raise TimedOut(why) if said[:1] == _LATE else StepFailure(why)
    return bytes(said[1:])


def _listen(reader: int, deadline: float, what: str) -> bytearray:
    said = bytearray()
    while True:
        ready, _, _ = select.select([reader], [], [], left(deadline, 3600))
        if not ready:
            continue
        piece = os.read(reader, _PIECE)
        if not piece:
            return said
        said += piece
        if len(said) > MOST_BYTES:
            message = f"{what} gave more than {MOST_BYTES} bytes"
            raise StepFailure(message)


def _work(work: Callable[[Again], bytes], seconds: float, writer: int) -> NoReturn:
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

        def again() -> None:
            signal.setitimer(signal.ITIMER_REAL, seconds)

        again()
        try:
            told = _FOUND + work(again)
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent tells it
            told = _LATE if isinstance(error, TimedOut) else _FAILED
            told += (str(error) or type(error).__name__).encode("utf-8", "replace")
        signal.setitimer(signal.ITIMER_REAL, 0)
        left_to_say = memoryview(told)
        while left_to_say:
            left_to_say = left_to_say[os.write(writer, left_to_say) :]
        os._exit(0)
    finally:
        os._exit(1)
