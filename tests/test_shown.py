"""What `provider.shown` promises: an approver sees the real characters, and no two commands look alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.model import Plan
from provider.shown import show, show_plan


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -la", "ls -la"),
        ("a\nb", "a\\nb"),
        ("a\\nb", "a\\\\nb"),
        ("\x1b[2K\rls", "\\u{1b}[2K\\rls"),
        ("x" + " " * 300 + "; rm -rf .", "x\\x20{300}; rm -rf ."),
        ("p\u0430y", "p\\u{430}y"),
        ("\u202egnp.sh", "\\u{202e}gnp.sh"),
        ("\udcff", "\\xff"),
        ("\u200b", "\\u{200b}"),
        ("\0", "\\0"),
        ("ls ", "ls\\x20{1}"),
        (" ls", "\\x20{1}ls"),
        (" ", "\\x20{1}"),
    ],
)
def test_nothing_is_hidden(text: str, shown: str):
    """Control codes, look-alikes, turned lines, bytes and long gaps are all to be seen."""
    assert show(text) == shown


texts = st.text(st.sampled_from("ab \\nrtx0u{}123\n\r\t\x00\x1b\u0430\U0001f600\udcff"))


@given(texts | st.text(st.characters()))
def test_what_is_shown_is_one_line_of_printable_ascii(text: str):
    """A terminal shows it as it is."""
    assert all(" " <= character <= "~" for character in show(text))


@given(texts, texts)
def test_different_texts_look_different(one: str, other: str):
    """No command can be made to look like another."""
    assert (show(one) == show(other)) == (one == other)


def test_a_plan_is_shown_whole(planned: Callable[..., Plan]):
    """Every argument, the folder, the variables, the container's rights and the digest are there."""
    long = "y" * 5000
    plan = planned(argv=("sh", "-c", "a b", long), env={"A": "1"}, network="open", timeout=5.0, background="keep")
    text = show_plan(plan)
    for part in (
        "argv[0]  sh",
        "argv[2]  a b",
        long,
        "5,000 characters",
        "/workspace",
        "A=1",
        "network open",
        plan.digest,
    ):
        assert part in text
    assert "ended after 5 s" in text
    assert "kept for 600 s" in text
