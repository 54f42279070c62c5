"""What `helix.braces` promises: bash's words, in bash's order, and not too many."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.helix.braces import MAX_WORDS, expand_braces
from provider.errors import CallError

BASH = shutil.which("bash")
LISTS = st.recursive(
    st.text(alphabet="ab1-.", max_size=3) | st.sampled_from(["{1..3}", "{c..a}", "{09..11}", "\\,", "'{,}'"]),
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "{" + ",".join(parts) + "}")
        | st.lists(inner, max_size=3).map("".join)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("a", ["a"]),
        ("{a,b}", ["a", "b"]),
        ("x{a,b}y{c,d}z", ["xaycz", "xaydz", "xbycz", "xbydz"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"]),
        ("{a,}x", ["ax", "x"]),
        ("{,x}", ["x"]),
        ("'{a,b}'", ["'{a,b}'"]),
        ("{'a,b',c}", ["'a,b'", "c"]),
        ('{"}",c}', ['"}"', "c"]),
        ('{"\\"}",c}', ['"\\"}"', "c"]),
        ("{a\\,b,c}", ["a\\,b", "c"]),
        ("\\{a{b,c}", ["\\{ab", "\\{ac"]),
        ("{../a,../b}", ["../a", "../b"]),
        ("{1..3}", ["1", "2", "3"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{1..7..3}", ["1", "4", "7"]),
        ("{7..1..-3}", ["7", "4", "1"]),
        ("{08..10}", ["08", "09", "10"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{a..e..2}", ["a", "c", "e"]),
        ("{C..A}", ["C", "B", "A"]),
        ("{1..3..0}", ["1", "2", "3"]),
    ],
)
def test_words(word: str, words: list[str]):
    """Each example is expanded as written here, which is as bash does."""
    assert expand_braces(word) == words


@pytest.mark.parametrize(
    "word",
    [
        "{}",
        "{a}",
        "{a,b",
        "{{a,b}",
        "{a,b}}",
        "\\{a,b}",
        "{1..x}",
        "{Z..a}",
        "{a..Z}",
        "{A..z..2}",
        "{../a}",
        "{a,{b}}",
    ],
)
def test_braces_that_surprise_are_refused(word: str):
    """Neither a list nor a range, or without a partner; between Z and a there are a backslash and a backquote."""
    with pytest.raises(CallError, match="must be a list such as"):
        expand_braces(word)


@pytest.mark.parametrize("word", ["{1..999999999}", "{a,b}" * 13, "{{1..4000},{1..4000}}x{1..2}", "{" * 101])
def test_too_many_are_refused(word: str):
    """The number is known before the words are made."""
    with pytest.raises(CallError, match=f"at most {MAX_WORDS}|more than 100 braces"):
        expand_braces(word)


@pytest.mark.skipif(BASH is None, reason="bash is the judge")
@given(st.text(alphabet="{},ab.1-\\", max_size=14) | LISTS)
def test_bash_expands_alike(text: str):
    """For any braces, commas and dots, bash makes the same words."""
    if len(text) - len(text.rstrip("\\")) & 1:
        return  # it would escape what comes after
    try:
        ours = expand_braces(text)
    except CallError:
        return
    assert BASH is not None
    script = f"printf '%s\\n' start {text}\necho ==\nset +B\nprintf '%s\\n' start {' '.join(ours)}"
    said = subprocess.run([BASH, "-c", script], capture_output=True, check=True, text=True).stdout
    theirs, _, again = said.partition("==\n")
    assert theirs == again
