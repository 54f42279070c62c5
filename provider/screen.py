"""Mode and size of a terminal. Imports next to nothing: the daemon's client waits for it."""

from __future__ import annotations

import contextlib
import os
import termios
import tty
from collections.abc import Iterator


@contextlib.contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Pass every key on as it is, and put the terminal back on any way out."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        with contextlib.suppress(termios.error):  # it is gone; so is whoever would mind
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def size(descriptor: int) -> tuple[int, int]:
    """Rows and columns."""
    columns, rows = os.get_terminal_size(descriptor)
    return rows, columns
