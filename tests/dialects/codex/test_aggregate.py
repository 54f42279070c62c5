"""What `codex.aggregate` promises: arrival order, and of a flood both ends with a count of what is between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.codex.aggregate import Aggregate


@given(st.lists(st.binary(max_size=20), max_size=30), st.integers(0, 40), st.integers(0, 40))
def test_both_ends_are_kept_and_the_rest_is_counted(pieces: list[bytes], head: int, tail: int):
    """Whatever the pieces are, nothing is lost without a number, and nothing comes twice."""
    aggregate, everything = Aggregate(head, tail), b"".join(pieces)
    for piece in pieces:
        aggregate.add(piece)
    if len(everything) <= head + tail:
        assert aggregate.text == everything.decode(errors="replace")
        return
    missing = len(everything) - head - tail
    kept = everything[:head].decode(errors="replace"), everything[len(everything) - tail :].decode(errors="replace")
    assert aggregate.text == f"{kept[0]}\n[... {missing} bytes were not kept ...]\n{kept[1]}"
