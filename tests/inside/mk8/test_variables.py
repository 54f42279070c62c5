"""`$NAME`: what is one, what is filled in, and what is left alone."""

from __future__ import annotations

import pytest

from provider.inside.mk8.errors import InvalidArgument
from provider.inside.mk8.variables import MOST_CHARS, expand, literals, names

VALUES = {"A": "1", "LONG_NAME": "2", "_X9": "3", "EMPTY": "", "TRICK": "$A"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("no variable", "no variable"),
        ("$A", "1"),
        ("$a$A", "11"),
        ("$long_Name.txt", "2.txt"),
        ("$A/$_x9-$A", "1/3-1"),
        ("[$EMPTY]", "[]"),
        ("$UNKNOWN stays", "$UNKNOWN stays"),
        ("$AB is not $A", "$AB is not 1"),  # the longest name counts
        ("$1 $ $$A $-", "$1 $ $1 $-"),
        ("${A} $(A)", "${A} $(A)"),
        ("$TRICK", "$A"),  # one pass
        ("$Ä", "$Ä"),
    ],
)
def test_names_are_filled_in_once(text, expanded):
    """A token is filled in by name in any case, in one pass; unknown names and lone dollars stay."""
    assert expand(text, VALUES) == expanded


def test_names_are_told_in_upper_case_and_in_order():
    """`names` sees exactly the tokens that `expand` would look up."""
    assert names("$b x $A $b ${C} $9") == ("B", "A", "B")
    assert names("nothing") == ()


def test_what_stands_between_the_variables():
    """`literals` leaves out the tokens and nothing else."""
    assert literals("a $B c$D") == ["a ", " c", ""]
    assert literals("a") == ["a"]


def test_a_text_does_not_grow_beyond_measure():
    """A thousand times a long value is refused before it is made."""
    with pytest.raises(InvalidArgument, match=r"\$PREV filled in"):
        expand("$PREV" * 1000, {"PREV": "x" * (MOST_CHARS // 1000)})
