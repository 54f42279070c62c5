"""What `inside.mk8.guards` promises: each predicate's yes and no, and that nothing an agent writes makes it raise."""

from __future__ import annotations

import time

import pytest

from provider.inside.mk8.compiled import Rules
from provider.inside.mk8.errors import Blacklisted, CompileError, InvalidArgument, PathViolation
from provider.inside.mk8.guards import PREDICATES, Seen, holds

TEXT = "Build succeeded\n0 Errors"


@pytest.fixture
def seen(tmp_path):
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "in").symlink_to("folder")

    def make(previous: str = TEXT) -> Seen:
        return Seen(
            previous=previous,
            captures={"A": "Some Value", "BLANK": "  ", "EMPTY": ""},
            environment={"LANG": "C.UTF-8", "MK8_SANDBOX_ID": "box"},
            root=str(tmp_path),
            rules=Rules(blacklist=("halt",)),
            deadline=time.monotonic() + 60,
        )

    return make


@pytest.mark.parametrize(
    ("kind", "args", "yes"),
    [
        ("PrevContains", ["BUILD SUCC"], True),
        ("PrevContains", ["failed"], False),
        ("PrevContains", [""], True),
        ("PrevEmpty", [], False),
        ("PrevStartsWith", ["build"], True),
        ("PrevStartsWith", ["succeeded"], False),
        ("PrevEndsWith", ["ERRORS"], True),
        ("PrevEndsWith", ["build"], False),
        ("PrevEquals", ["build SUCCEEDED\n0 errors"], True),
        ("PrevEquals", ["build"], False),
        ("PrevMatch", [r"^\d+ Err"], False),
        ("PrevMatch", [r"(?m)^\d+ Err"], True),
        ("PrevMatch", ["build"], False),
        ("PrevMatch", ["(?i)build"], True),
        ("PrevLineCount", ["eq", "2"], True),
        ("PrevLineCount", ["eq", "1"], False),
        ("PrevLineCount", ["gt", "1"], True),
        ("PrevLineCount", ["gt", "2"], False),
        ("PrevLineCount", ["lt", "3"], True),
        ("PrevLineCount", ["lt", "2"], False),
        ("PrevLineCount", ["gte", "2"], True),
        ("PrevLineCount", ["gte", "3"], False),
        ("PrevLineCount", ["lte", "2"], True),
        ("PrevLineCount", ["lte", "1"], False),
        ("PrevLineCount", ["GTE", " 2 "], True),
        ("CaptureEmpty", ["a"], False),
        ("CaptureEmpty", ["blank"], True),
        ("CaptureEmpty", ["EMPTY"], True),
        ("CaptureEmpty", ["unknown"], True),
        ("CaptureContains", ["a", "VALUE"], True),
        ("CaptureContains", ["a", "other"], False),
        ("CaptureContains", ["unknown", "x"], False),
        ("EnvEquals", ["lang", "c.utf-8"], True),
        ("EnvEquals", ["LANG", "de"], False),
        ("EnvEquals", ["TZ", ""], True),
        ("FileExists", ["file.txt"], True),
        ("FileExists", ["folder"], False),
        ("FileExists", ["none"], False),
        ("DirExists", ["folder"], True),
        ("DirExists", ["in"], True),
        ("DirExists", ["file.txt"], False),
        ("DirExists", ["."], True),
    ],
)
def test_predicates(seen, kind, args, yes):
    """Each says yes when the contract says so, whatever the case of letters."""
    assert holds(kind, args, seen()) is yes


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        *((kind, []) for kind, (least, _) in PREDICATES.items() if least),
        *((kind, ["A"]) for kind, (least, _) in PREDICATES.items() if least > 1),
        ("PrevLineCount", ["ne", "2"]),
        ("PrevLineCount", ["eq", "two"]),
        ("PrevLineCount", ["eq", "2.0"]),
        ("PrevLineCount", ["eq", "٢"]),
        ("PrevLineCount", ["eq", ""]),
        ("PrevLineCount", ["lt", "9" * 10_000]),
        ("PrevMatch", ["("]),
        ("PrevMatch", ["a{1,99999999999999999999}"]),
        ("PrevMatch", ["(" * 5000]),
        ("EnvEquals", ["MK8_SANDBOX_ID", "box"]),
        ("EnvEquals", ["SECRET_KEY", ""]),
    ],
)
def test_what_cannot_be_asked_is_a_no(seen, kind, args):
    """Too few arguments, bad numbers and patterns, and variables outside of the list are no errors."""
    assert holds(kind, args, seen()) is False


@pytest.mark.parametrize(("previous", "lines"), [("", 1), ("a", 1), ("a\nb", 2), ("a\n", 2), ("a\rb", 1)])
def test_lines_are_pieces_between_newlines(seen, previous, lines):
    """An empty text has one line."""
    assert holds("PrevLineCount", ["eq", str(lines)], seen(previous))


@pytest.mark.parametrize("previous", ["", " ", "\n\t"])
def test_blank_is_empty(seen, previous):
    """White space alone counts as nothing."""
    assert holds("PrevEmpty", [], seen(previous))


def test_a_pattern_without_an_end_is_a_no_in_two_seconds(seen):
    """A pattern that would take years says no."""
    began = time.monotonic()
    assert holds("PrevMatch", ["^(a|a)*b$"], seen("a" * 60)) is False
    assert 1.5 < time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/etc/passwd", PathViolation),
        ("../x", PathViolation),
        ("out/passwd", PathViolation),
        ("mk8.shell.env", PathViolation),
        ("halt.txt", Blacklisted),
        ("", InvalidArgument),
        ("a\0", InvalidArgument),
    ],
)
@pytest.mark.parametrize("kind", ["FileExists", "DirExists"])
def test_paths_are_held_to_the_rules_for_reading(seen, kind, path, error):
    """What may not be read may not be asked for either."""
    with pytest.raises(error):
        holds(kind, [path], seen())


def test_an_unknown_question_is_told_with_the_known_ones(seen):
    """Should one come through, it is named."""
    with pytest.raises(CompileError, match=r"unknown predicate 'Never'; there are PrevContains, .*DirExists"):
        holds("Never", [], seen())
