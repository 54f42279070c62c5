"""The word lists."""

from __future__ import annotations

import pytest

from provider.inside.mk8 import words
from provider.inside.mk8.words import BUILT_IN, entry, merged, not_in


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("BlameLineRanges", 7),
        ("BranchNames", 66),
        ("DotnetTemplates", 17),
        ("MigrationNames", 74),
        ("ProjectSuffixes", 27),
        ("RemoteNames", 5),
        ("TagNames", 39),
    ],
)
def test_how_many_words(name, count):
    """As many as the contract says, none twice."""
    assert len(BUILT_IN[name]) == len({word.lower() for word in BUILT_IN[name]}) == count


def test_our_own_commit_words():
    """About 270, none twice, each one word."""
    found = BUILT_IN["CommitWords"]
    assert 260 <= len(found) == len({word.lower() for word in found}) <= 280
    assert all(word.isalnum() for word in found)


@pytest.mark.parametrize(
    "message",
    [
        *("Fix build errors", "Fix auth errors", "Add auth middleware", "Refactor agent handler A", "WIP"),
        *("Add authentication module", "Initial commit", "Add API module", "Merge API into auth"),
    ],
)
def test_messages_that_are_accepted(message):
    """The contract's examples."""
    assert not not_in(BUILT_IN["CommitWords"], message.split())


@pytest.mark.parametrize("message", ["I hacked the mainframe", "Api123", "Fix2", "fix-build"])
def test_messages_that_are_refused(message):
    """The contract's counterexamples, and words glued together."""
    assert not_in(BUILT_IN["CommitWords"], message.split())


def test_vocabularies_are_added_and_never_taken_away():
    """Lists grow, new ones can be made, names of lists are taken in any case."""
    lists = merged(
        {"branchnames": ["feature/x ", "A", ""]},
        {"GitCloneUrls": ["https://example.com/a.git"]},
        {"GITCLONEURLS": ["b"]},
    )
    assert lists["BranchNames"][:66] == BUILT_IN["BranchNames"]
    assert lists["BranchNames"][66:] == ("feature/x",)
    assert lists["GitCloneUrls"] == ("https://example.com/a.git", "b")
    assert "branchnames" not in lists
    assert words.BUILT_IN["BranchNames"] == BUILT_IN["BranchNames"]


def test_an_entry_is_found_in_any_case():
    """The exact spelling wins, otherwise the list's own comes back."""
    assert entry(("Alpha", "beta", "ALPHA"), "ALPHA") == "ALPHA"
    assert entry(("Alpha", "beta", "ALPHA"), "alpha") == "Alpha"
    assert entry(("Alpha",), "Alph") is None
