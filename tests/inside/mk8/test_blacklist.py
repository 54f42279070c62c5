"""Terms that no argument may have."""

from __future__ import annotations

import pytest

from provider.inside.mk8 import blacklist
from provider.inside.mk8.errors import Blacklisted


def test_there_are_92_hard_coded_terms_and_4_own_files():
    """The contract counts them."""
    assert (len(set(blacklist.HARD_CODED)), len(set(blacklist.OWN_FILES))) == (92, 4)


@pytest.mark.parametrize("term", [*blacklist.OWN_FILES, *blacklist.HARD_CODED])
def test_every_term_is_found_in_any_case_inside_a_text(term):
    """A substring is enough, in capitals too."""
    for text in (term, f"xx{term}xx", f"xx{term.upper()}xx"):
        with pytest.raises(Blacklisted, match=r"^Gigablacklisted term not allowed: \["):
            blacklist.check(text, blacklist.effective())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "a|b",
        "a | b"[:2],
        "rm -rf x",
        "passwd",
        "shred",
        "dism",
        "net user",
        "/dev/null",
        "a & b",
        "$HOME",
        "init 5",
    ],
)
def test_what_only_looks_alike_passes(text):
    """Spaces in a term are significant."""
    blacklist.check(text, blacklist.effective())


@pytest.mark.parametrize(
    ("switches", "hard_coded", "own"),
    [
        ({}, True, True),
        ({"without_hard_coded": True}, False, True),
        ({"without_own_files": True}, True, True),  # does nothing alone
        ({"without_hard_coded": True, "without_own_files": True}, False, False),
    ],
)
def test_the_two_switches(switches, hard_coded, own):
    """The second switch works only with the first."""
    terms = blacklist.effective(**switches)
    assert ("halt" in terms, "mk8.shell.key" in terms) == (hard_coded, own)


def test_custom_terms_are_added_trimmed_and_not_too_short():
    """They are compared in any case; a single character would end most scripts."""
    terms = blacklist.effective(["  Secret Project ", "x", " ", "", "ab"])
    assert terms[-2:] == ("secret project", "ab")
    with pytest.raises(Blacklisted, match="secret project"):
        blacklist.check("the SECRET PROJECT plan", terms)
    blacklist.check("x", terms)


ROOT = "/srv/asphalt/box"


@pytest.mark.parametrize("text", [ROOT, f"{ROOT}/a.txt", f"in {ROOT}, see {ROOT}/b", f"{ROOT}'s"])
def test_the_root_s_own_path_does_not_count(text):
    """A sandbox below a path with a term in it is not dead."""
    blacklist.check(text, blacklist.effective(), ROOT)


@pytest.mark.parametrize(
    "text",
    [
        f"{ROOT}/halt",
        f"halt {ROOT}",
        "/srv/asphalt",
        "/srv/asphalt/boxes",  # another folder
        f"/srv/asphalt/b {ROOT}",
        f"{ROOT.upper()}/a",  # another one on Linux
        f"İ halt {ROOT}",  # lower case is longer
        f"rm -rf {ROOT}",  # the term goes beyond the root's path
    ],
)
def test_terms_outside_of_the_root_s_path_count(text):
    """Only what is wholly inside an occurrence of the root is let through."""
    with pytest.raises(Blacklisted):
        blacklist.check(text, blacklist.effective(), ROOT)
