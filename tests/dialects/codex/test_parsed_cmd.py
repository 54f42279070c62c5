"""What `codex.parsed_cmd` promises: a person sees what a command is about, and what cannot be read as it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.codex.parsed_cmd import parsed

ROWS: list[tuple[str, list[dict[str, Any]]]] = [
    ("cat a/b.txt", [{"type": "read", "name": "b.txt", "path": "a/b.txt", "cmd": "cat a/b.txt"}]),
    ("head -n 5 x", [{"type": "read", "name": "x", "path": "x", "cmd": "head -n 5 x"}]),
    ("sed -n 1,5p x", [{"type": "read", "name": "x", "path": "x", "cmd": "sed -n 1,5p x"}]),
    ("cat a b", [{"type": "unknown", "cmd": "cat a b"}]),
    ("ls", [{"type": "list_files", "cmd": "ls"}]),
    ("ls -la src", [{"type": "list_files", "path": "src", "cmd": "ls -la src"}]),
    ("rg --files src", [{"type": "list_files", "path": "src", "cmd": "rg --files src"}]),
    ("rg -n TODO src", [{"type": "search", "query": "TODO", "path": "src", "cmd": "rg -n TODO src"}]),
    ("grep -R x .", [{"type": "search", "query": "x", "path": ".", "cmd": "grep -R x ."}]),
    ("git grep x", [{"type": "search", "query": "x", "cmd": "git grep x"}]),
    ("find . -name f", [{"type": "search", "query": "f", "path": ".", "cmd": "find . -name f"}]),
    ("find src -type f", [{"type": "list_files", "path": "src", "cmd": "find src -type f"}]),
    ("cd src && cat x | wc -l", [{"type": "read", "name": "x", "path": "x", "cmd": "cat x"}]),
    ("ls; ls", [{"type": "list_files", "cmd": "ls"}]),
    ("npm test", [{"type": "unknown", "cmd": "npm test"}]),
    ("echo hi", [{"type": "unknown", "cmd": "echo hi"}]),
    ("x=$(y)", [{"type": "unknown", "cmd": "x=$(y)"}]),
]


@pytest.mark.parametrize(("script", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_a_script_is_told(script: str, expected: list[dict[str, Any]]):
    """Reading, listing and searching are told with their objects, everything else as unknown."""
    assert parsed(["bash", "-lc", script]) == expected


def test_words_are_told_as_they_are():
    """What is no script of plain commands is shown quoted."""
    assert parsed(["python3", "-c", "print(1)"]) == [{"type": "unknown", "cmd": "print(1)"}]
    assert parsed(["make", "all it"]) == [{"type": "unknown", "cmd": "make 'all it'"}]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5))
def test_there_is_always_something_to_show(argv: list[str]):
    """At least one item, whatever the command."""
    assert parsed(argv)
    assert parsed(["bash", "-lc", " ".join(argv)])
