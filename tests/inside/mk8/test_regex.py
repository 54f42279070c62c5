"""What `regex` and `child` promise: an answer, or an end after the limit, and never a process left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from provider.inside.mk8 import child, regex
from provider.inside.mk8.errors import StepFailure, TimedOut

FOREVER = float("inf")
SLOW = (
    (r"(a+)+$", "a" * 60 + "b"),
    (r"(?:a|a)*c", "a" * 60),
    (r"a*b", "a" * 500_000),
    (r"(.*)*x", "y" * 60),
    (r"(x+x+)+y", "x" * 60),
)


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.mark.parametrize(("pattern", "text"), SLOW, ids=[pattern for pattern, _ in SLOW])
def test_the_limit_holds_in_the_middle_of_c_code(pattern: str, text: str, monkeypatch: pytest.MonkeyPatch):
    """Patterns that would take from minutes to ages end with the limit, and their process with them."""
    monkeypatch.setattr(regex, "SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(TimedOut, match=r"took more than 0.3 s"):
        regex.search(pattern, text, FOREVER)
    assert time.monotonic() - began < 2
    assert children() == []


def test_the_step_s_deadline_comes_first():
    """Where the step has less time than a pattern, the step's time counts."""
    began = time.monotonic()
    with pytest.raises(TimedOut, match="stepTimeout"):
        regex.search(*SLOW[0], began + 0.2)
    assert time.monotonic() - began < 1.5
    assert children() == []


def test_each_line_has_the_whole_limit(monkeypatch: pytest.MonkeyPatch):
    """A file of many lines takes as long as it takes; only one line must not."""
    monkeypatch.setattr(regex, "SECONDS", 0.5)

    def slow():
        for number in range(1, 5):
            time.sleep(0.2)
            yield number, "line"

    assert len(regex.lines("line", slow(), 10, FOREVER)) == 4
    with pytest.raises(TimedOut):
        regex.lines(SLOW[0][0], [(1, "a"), (2, SLOW[0][1])], 10, FOREVER)


def test_large_answers_arrive_whole():
    """More than a pipe holds at a time."""
    assert regex.values("a", "a" * 300_000, FOREVER) == ["a"] * 300_000


def test_what_the_child_raises_is_a_failure_in_its_words():
    """Also when it is killed, or says more than anybody wants to hear."""

    def broken(_: child.Again) -> bytes:
        raise ValueError("such and such")

    def killed(_: child.Again) -> bytes:
        os.kill(os.getpid(), 9)
        return b""

    for work, says in ((broken, "such and such"), (killed, "came to no end")):
        with pytest.raises(StepFailure, match=says):
            child.ask(work, seconds=5, deadline=FOREVER, what="it")
    assert children() == []


def test_too_much_is_not_listened_to(monkeypatch: pytest.MonkeyPatch):
    """The memory of the parent is not the child's to fill."""
    monkeypatch.setattr(child, "MOST_BYTES", 100_000)
    with pytest.raises(StepFailure, match="more than 100000 bytes"):
        child.ask(lambda _: b"x" * 10_000_000, seconds=5, deadline=FOREVER, what="it")
    assert children() == []


def test_descriptors_are_given_back():
    """A thousand patterns cost no descriptor."""
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(5):
        regex.search("a", "a", FOREVER)
    assert set(os.listdir("/proc/self/fd")) == before
