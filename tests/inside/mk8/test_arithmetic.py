"""What `arithmetic` promises: the grammar, exactly, and a message for everything else."""

from __future__ import annotations

import contextlib
import re
from fractions import Fraction

import hypothesis
from hypothesis import strategies

from provider.inside.mk8.arithmetic import evaluate, what_is_wrong
from provider.inside.mk8.errors import StepFailure

OPERATORS = strategies.sampled_from(["+", "-", "*", "/", " + ", " - "])


def grown(inner: strategies.SearchStrategy[str]) -> strategies.SearchStrategy[str]:
    """Chains, since what is left and what is right shows only in three of a kind; in parentheses, or with a sign."""
    links = strategies.lists(strategies.tuples(OPERATORS, inner).map("".join), min_size=1, max_size=4).map("".join)
    chains = strategies.tuples(inner, links).map("".join)
    return chains | chains.map(lambda text: f"({text})") | chains.map(lambda text: f"-({text})")


EXPRESSIONS = strategies.recursive(strategies.integers(0, 99).map(str), grown, max_leaves=12)


def by_python(text: str) -> Fraction:
    """The same by Python's own parser, with numbers that do not round."""
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})


@hypothesis.given(EXPRESSIONS.filter(lambda text: len(text) <= 256))
def test_python_calculates_the_same(text: str):
    """Precedence, associativity and signs are those of every language."""
    assert what_is_wrong(text) is None
    try:
        wanted = by_python(text)
    except ZeroDivisionError:
        return
    given = Fraction(evaluate(text))
    assert given == wanted if wanted.denominator == 1 else abs(given - wanted) <= abs(wanted) / 10**15


@hypothesis.given(strategies.text(alphabet="0123456789.+-*/%() ", max_size=256))
def test_any_text_is_calculated_or_refused(text: str):
    """What is not refused has a result, or divides by zero."""
    if what_is_wrong(text) is None:
        with contextlib.suppress(StepFailure):
            Fraction(evaluate(text))


@hypothesis.given(strategies.text(max_size=300))
def test_no_other_text_is_calculated(text: str):
    """Letters, names and lines are refused with a message."""
    if not set(text) <= set("0123456789.+-*/%() "):
        assert what_is_wrong(text)
