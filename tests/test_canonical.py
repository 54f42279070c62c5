"""What `provider.canonical` promises: equal values have one digest, different ones two, and the form is RFC 8785's."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from provider.canonical import canonical, digest, plain

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@given(anything)
def test_the_form_is_that_of_the_rfc(value: Any):
    """Byte for byte what an implementation of RFC 8785 writes, whatever the value."""
    assert canonical(plain(value)) == rfc8785.dumps(plain(value))


arguments = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]) | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
)


@given(arguments, arguments)
def test_digest_differs_for_any_two_commands(one: list[str], other: list[str]):
    """No two argument lists share a digest, however they are divided."""
    assert (digest(one) == digest(other)) == (one == other)


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**64 - 1])
def test_large_numbers_have_a_canonical_form(number: int):
    """Inode and device numbers are 64 bits wide; JSON's numbers are not."""
    assert digest({"inode": number}) != digest({"inode": number + 1})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_have_a_canonical_form(number: float):
    """A request that is refused for such a number still has a digest for its receipt."""
    assert digest(plain({"timeout": number}))


def test_lone_surrogates_have_a_canonical_form():
    """A request that is refused for such a text still has a digest for its receipt."""
    assert digest({"argv": ["\ud800"]})
