"""What `provider.screen` promises: a terminal is left as it was found, and its size is told rows first."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator

import pytest

from provider import screen


@pytest.fixture
def tty() -> Iterator[tuple[int, int]]:
    """A terminal: the side of its user, and the side of its programs."""
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("error", [None, KeyError, asyncio.CancelledError])
def test_a_raw_terminal_is_put_back(tty: tuple[int, int], error: type[BaseException] | None):
    """Keys go through as they are while it lasts, and on any way out the terminal is as it was."""
    _, side = tty
    before = termios.tcgetattr(side)
    with pytest.raises(error) if error else contextlib.nullcontext(), screen.raw(side):
        assert not termios.tcgetattr(side)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
        if error:
            raise error
    assert termios.tcgetattr(side) == before


def test_a_size_is_rows_then_columns(tty: tuple[int, int]):
    """As everywhere in the package, rows come first."""
    fcntl.ioctl(tty[1], termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    assert screen.size(tty[1]) == (24, 80)


def test_a_terminal_that_went_away_is_no_error():
    """Whoever closes the window while it is raw gets the status of the run, not a complaint about the terminal."""
    user, side = pty.openpty()
    with screen.raw(side):
        os.close(user)
        os.close(side)
