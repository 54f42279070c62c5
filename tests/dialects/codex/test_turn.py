"""What `codex.turn` promises: one diff of all that patches changed since the turn began."""

from __future__ import annotations

from provider.dialects.codex.diff import File
from provider.dialects.codex.turn import MAX_TURNS, Turn, Turns

ONE, TWO, THREE = File(b"1\n"), File(b"2\n"), File(b"3\n")


def test_a_file_is_compared_with_what_it_was_at_first():
    """However often it was changed in between."""
    turn = Turn()
    turn.changed([("a", ONE, TWO)])
    turn.changed([("a", TWO, THREE)])
    assert "-1\n+3\n" in turn.diff
    turn.changed([("a", THREE, ONE)])
    assert turn.diff == ""


def test_a_file_that_came_and_went_is_no_difference():
    """Added and deleted within the turn."""
    turn = Turn()
    turn.changed([("a", None, ONE)])
    turn.changed([("a", ONE, None)])
    assert turn.diff == ""


def test_a_moved_file_is_told_as_one_difference():
    """Also when it moved twice; and not at all when only its name changed."""
    turn = Turn()
    turn.changed([("a", ONE, None), ("b", None, ONE)], moved=("a", "b"))
    assert turn.diff == ""
    turn.changed([("b", ONE, None), ("c", None, TWO)], moved=("b", "c"))
    assert turn.diff.startswith("diff --git a/a b/c\n")


def test_sessions_have_their_own_turns_and_the_oldest_gives_way():
    """What nobody has used for longest is forgotten."""
    turns = Turns()
    first = turns.of("first")
    assert turns.of("first") is first
    for number in range(MAX_TURNS):
        turns.of(f"s{number}")
    assert turns.of("first") is not first
    assert turns.begin("s7").id != turns.begin("s7").id
