"""What `codex.truncation` promises: the contract's vectors, both ends, and nothing that is not UTF-8."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.codex.truncation import (
    CODEX_MODELS,
    DEFAULT,
    PREVIEW_NOTICE,
    Budget,
    Ran,
    Unit,
    count_lines,
    formatted,
    freeform,
    preview,
    structured,
    truncate,
)

LONG = "this is an example of a long output that should be truncated"
FACES = "😀" * 10 + "\nsecond line with text\n"
ONE = "Total output lines: 1\n\n"


def tokens(amount: int) -> Budget:
    return Budget(amount, Unit.TOKENS)


@pytest.mark.parametrize(
    ("text", "budget", "expected"),
    [
        ("example output", Budget(1), ONE + "…13 chars truncated…t"),
        ("example output", tokens(1), ONE + "ex…3 tokens truncated…ut"),
        (LONG, tokens(5), ONE + "this is an…10 tokens truncated… truncated"),
        (LONG, Budget(30), ONE + "this is an exam…30 chars truncated…ld be truncated"),
        (LONG, Budget(len(LONG)), LONG),
        ("", Budget(0), ""),
        ("a\nb\r\nc\n", Budget(2), "Total output lines: 3\n\na…5 chars truncated…\n"),
    ],
)
def test_formatted_vectors(text: str, budget: Budget, expected: str):
    """Cut text has its number of lines in front; text within the budget is left alone."""
    assert expected == formatted(text, budget)


@pytest.mark.parametrize(
    ("text", "budget", "expected"),
    [
        (FACES, tokens(8), "😀😀😀😀…8 tokens truncated… line with text\n"),
        (FACES, Budget(20), "😀😀…21 chars truncated…with text\n"),
        ("abcdef", tokens(0), "…2 tokens truncated…"),
        ("abcdef", Budget(0), "…6 chars truncated…"),
        ("", tokens(0), ""),
        ("abcdef", Budget(6), "abcdef"),
        ("abcdef", Budget(5), "ab…1 chars truncated…def"),
        ("😀😀", Budget(2), "…2 chars truncated…"),
        ("é" * 3, Budget(3), "…2 chars truncated…é"),
    ],
)
def test_plain_vectors(text: str, budget: Budget, expected: str):
    """Head, marker and tail, without newlines of our own."""
    assert expected == truncate(text, budget)


@given(st.text(), st.integers(0, 60), st.sampled_from(Unit))
def test_the_ends_are_ends_of_the_text(text: str, amount: int, unit: Unit):
    """What is kept stands in the text at its two ends, within the budget, and chars are counted exactly."""
    budget = Budget(amount, unit)
    cut = truncate(text, budget)
    if len(text.encode()) <= budget.size:
        assert cut == text
        return
    marks = list(re.finditer(rf"…(\d+) {unit} truncated…", cut))
    fitting = [
        mark
        for mark in marks
        if text.startswith(cut[: mark.start()])
        and text.endswith(cut[mark.end() :])
        and len((cut[: mark.start()] + cut[mark.end() :]).encode()) <= budget.size
    ]
    assert fitting
    if unit is Unit.BYTES and len(marks) == 1:
        assert int(marks[0][1]) == len(text) - marks[0].start() - (len(cut) - marks[0].end())


def test_half_a_surrogate_pair_is_no_crash():
    """Text that cannot be UTF-8 is shown with a question mark."""
    assert truncate("a\udc80b", Budget(10)) == "a?b"
    assert json.loads(structured(Ran(output="\ud800", exit_code=0, seconds=0)))["output"] == "?"


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", 0), ("a", 1), ("a\n", 1), ("\n", 1), ("a\nb", 2), ("a\r\nb\r\n", 2), ("a\u2028b\x0bc\rd", 1), ("\n\n", 2)],
)
def test_only_newlines_end_lines(text: str, lines: int):
    """A trailing newline begins no line, and no other separator ends one."""
    assert lines == count_lines(text)


@pytest.mark.parametrize(
    ("seconds", "number", "text"),
    [
        *((0.0, "0.0", "0"), (0.04, "0.0", "0"), (0.1, "0.1", "0.1"), (1.0, "1.0", "1"), (1.5, "1.5", "1.5")),
        *((0.25, "0.3", "0.3"), (59.96, "60.0", "60")),
    ],
)
def test_wall_time(seconds: float, number: str, text: str):
    """JSON always has a fraction, the freeform text only where there is one."""
    ran = Ran(output="hi ☃\n", exit_code=3, seconds=seconds)
    expected = f'{{"output":"hi ☃\\n","metadata":{{"exit_code":3,"duration_seconds":{number}}}}}'
    assert expected == structured(ran)
    assert freeform(ran) == f"Exit code: 3\nWall time: {text} seconds\nOutput:\nhi ☃\n"


def test_a_timeout_is_said_in_both_forms():
    """124, a sentence before the output, and the output that there was."""
    ran = Ran(output="partial", exit_code=-1, seconds=1.0005, timed_out=True)
    body = "command timed out after 1000 milliseconds\npartial"
    assert json.loads(structured(ran)) == {"output": body, "metadata": {"exit_code": 124, "duration_seconds": 1.0}}
    assert freeform(ran) == f"Exit code: 124\nWall time: 1 seconds\nOutput:\n{body}"


def test_freeform_says_the_total_only_when_lines_are_missing():
    """A single line that was cut has no total; many lines do."""
    one = freeform(Ran(output="x" * 50, exit_code=0, seconds=0), Budget(10))
    assert one == "Exit code: 0\nWall time: 0 seconds\nOutput:\nxxxxx…40 chars truncated…xxxxx"
    many = freeform(Ran(output="x\n" * 50, exit_code=0, seconds=0), Budget(10))
    expected = "Total output lines: 50\nOutput:\nx\nx\nx…90 chars truncated…\nx\nx\n"
    assert many == "Exit code: 0\nWall time: 0 seconds\n" + expected


@pytest.mark.parametrize("budget", [DEFAULT, CODEX_MODELS], ids=lambda budget: budget.unit)
def test_history_keeps_one_marker(budget: Budget):
    """Text that was cut for the reply goes through the second pass unchanged."""
    once = formatted("line of output\n" * 10_000, budget)
    assert once.count("truncated…") == 1
    assert truncate(once, budget.in_history) == once


def test_history_has_a_fifth_more():
    """Rounded up."""
    assert [Budget(amount).in_history.amount for amount in (0, 1, 5, 10_000)] == [0, 2, 6, 12_000]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("short\n", "short\n"),
        ("a\n" * 64, "a\n" * 64),
        ("a\n" * 65, "a\n" * 64 + PREVIEW_NOTICE),
        ("\n" * 70, "\n" * 64 + PREVIEW_NOTICE),
        ("x" * 2048, "x" * 2048),
        ("x" * 2049, "x" * 2048 + "\n" + PREVIEW_NOTICE),
        ("x" * 2047 + "é", "x" * 2047 + "\n" + PREVIEW_NOTICE),
        ("x" * 2047 + "\nmore", "x" * 2047 + "\n" + PREVIEW_NOTICE),
    ],
)
def test_preview(text: str, expected: str):
    """Logs see 2,048 bytes and 64 lines, whole characters, and that there was more."""
    assert expected == preview(text)


def test_negative_budgets_are_mistakes():
    """A budget below nothing is refused where it is made."""
    with pytest.raises(ValueError, match="0 or more"):
        Budget(-1)


def test_time_is_linear():
    """Four million bytes of four-byte characters are cut in well under a second."""
    text = "😀" * 1_000_000
    begun = time.monotonic()
    assert truncate(text, DEFAULT).count("😀") == 2500
    assert time.monotonic() - begun < 2
