"""What `inside.mk8.alarm` promises: whatever hangs is ended, by the limit that it is for."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time

import pytest

from provider.inside.mk8 import alarm
from provider.inside.mk8.alarm import within
from provider.inside.mk8.errors import TimedOut

SHORT = 0.05


@contextlib.contextmanager
def pipe():
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


def read_for_ever():
    with pipe() as reader:
        os.read(reader, 1)


def open_for_ever(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    path.open().close()


def receive_for_ever():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.recv(1)


def loop_for_ever():
    while True:
        pass


HANGING = {
    "sleep": lambda _: time.sleep(60),
    "read": lambda _: read_for_ever(),
    "open a fifo": open_for_ever,
    "receive": lambda _: receive_for_ever(),
    "loop": lambda _: loop_for_ever(),
    "regular expression": lambda _: re.search("(a|a)*b", "a" * 64),
    "lock": lambda _: signal.sigtimedwait([signal.SIGUSR2], 60),
}


@pytest.fixture(autouse=True)
def the_timer_is_given_back():
    """Whatever a test does, pytest's own alarm goes on after it."""
    before, handler = signal.getitimer(signal.ITIMER_REAL)[0], signal.getsignal(signal.SIGALRM)
    yield
    after = signal.getitimer(signal.ITIMER_REAL)[0]
    assert signal.getsignal(signal.SIGALRM) is handler
    assert bool(after) == bool(before)
    assert after <= before
    assert before - after < 30


@pytest.mark.parametrize("name", HANGING)
def test_what_hangs_is_ended(name, tmp_path):
    """A call that would never return ends soon after its limit, in the given words."""
    began = time.monotonic()
    with pytest.raises(TimedOut, match="too late"):
        within(SHORT, lambda: HANGING[name](tmp_path), "too late")
    assert SHORT <= time.monotonic() - began < 5


def test_what_is_in_time_gives_its_value():
    """Nothing else happens to a call that ends in time."""
    assert within(60, lambda: "value", "too late") == "value"
    with pytest.raises(KeyError):
        within(60, lambda: {}["missing"], "too late")


def test_the_inner_limit_ends_only_the_inner_call():
    """After an inner limit has passed, the outer one still holds, and holds later."""
    told = []

    def outer():
        with pytest.raises(TimedOut, match="inner"):
            within(SHORT, lambda: time.sleep(60), "inner")
        told.append("went on")
        time.sleep(60)

    with pytest.raises(TimedOut, match="outer"):
        within(4 * SHORT, outer, "outer")
    assert told == ["went on"]


def test_the_outer_limit_ends_the_inner_call_too():
    """A longer inner limit does not protect from the outer one."""
    with pytest.raises(TimedOut, match="outer"):
        within(SHORT, lambda: within(60, lambda: time.sleep(60), "inner"), "outer")


def test_no_except_exception_keeps_it_away():
    """A verb that takes every Exception for a failure of its own is ended all the same."""

    went_on = []

    def stubborn():
        with contextlib.suppress(Exception):
            time.sleep(60)
        went_on.append(1)

    with pytest.raises(TimedOut):
        within(SHORT, stubborn, "too late")
    assert went_on == []


def test_swallowed_it_rings_again(monkeypatch):
    """A bare `except` gets the alarm once more, and the call is late even if it returns."""
    monkeypatch.setattr(alarm, "AGAIN_SECONDS", SHORT)
    rung = []

    def swallow():
        for _ in range(3):
            try:
                time.sleep(60)
            except BaseException:  # noqa: BLE001
                rung.append(1)

    with pytest.raises(TimedOut):
        within(SHORT, swallow, "too late")
    assert len(rung) == 3


def test_a_limit_of_nothing_is_over_at_once():
    """Zero seconds are a limit, not no limit."""
    with pytest.raises(TimedOut):
        within(0, lambda: time.sleep(60), "too late")


def test_many_short_calls_leave_no_ring_behind():
    """The alarm never hits a call after the one that it was for, however near its end the ring comes."""
    late = 0
    for number in range(300):
        try:
            within(0.001, lambda seconds=number / 100_000: time.sleep(seconds), "too late")
        except TimedOut:
            late += 1
        time.sleep(0.0001)
    assert late


def test_rings_while_a_limit_ends_do_no_harm(monkeypatch):
    """The alarm can ring anywhere, also while the limit is being taken down, and again right after that."""
    end, rings = alarm._end, []

    def ring_and_end(limit):
        if len(rings) < 3:
            rings.append(1)
            signal.raise_signal(signal.SIGALRM)
        end(limit)

    monkeypatch.setattr(alarm, "_end", ring_and_end)
    with pytest.raises(TimedOut, match="too late"):
        within(SHORT, lambda: time.sleep(60), "too late")
    assert len(rings) == 3
    assert alarm._Running.innermost is None
