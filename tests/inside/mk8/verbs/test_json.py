"""What the JSON verbs promise: paths as python-jsonpath reads them, values as the standard library does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import hypothesis
import jsonpath
import pytest
from hypothesis import strategies

sys.path.insert(0, str(Path(__file__).parent))
from rows_json import MISSES, PATHS, STORE, WRONG

from provider.inside.mk8.errors import CompileError, StepFailure
from provider.inside.mk8.verb import World
from provider.inside.mk8.verbs import VERBS

WORLD = World(root="/workspace", cwd="/workspace")
LETTERS = strategies.characters(codec="utf-8")
VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.text(LETTERS, max_size=5),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(strategies.text(LETTERS, max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


def ask(verb: str, *args: str) -> str:
    VERBS[verb].check(args)
    given = VERBS[verb].act(WORLD, args)
    assert isinstance(given, str)
    return given


def plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("path", PATHS)
def test_a_library_finds_the_same(path: str):
    """Every path of the table gives one value, the same as python-jsonpath gives."""
    found = jsonpath.findall(path, json.loads(STORE))
    assert len(found) == 1
    assert (
        json.loads(ask("JsonQuery", STORE, path)) == found[0]
        if not isinstance(found[0], str)
        else ask("JsonQuery", STORE, path) == found[0]
    )


@pytest.mark.parametrize("path", MISSES)
def test_a_library_misses_the_same(path: str):
    """Where python-jsonpath finds nothing, the step fails."""
    assert jsonpath.findall(path, json.loads(STORE)) == []
    with pytest.raises(StepFailure):
        ask("JsonQuery", STORE, path)


@pytest.mark.parametrize("path", WRONG)
def test_paths_beyond_the_subset_are_refused_before_the_run(path: str):
    """Filters, wildcards and slices, and what is no path at all."""
    with pytest.raises(CompileError, match=r"\$\.name"):
        VERBS["JsonQuery"].check([None, path])


def locations(value: Any, path: str = "$") -> list[tuple[str, Any]]:
    """Every value in a document, by its path in the spelling of RFC 9535's normalised paths."""
    found = [(path, value)]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += locations(inner, f"{path}[{json.dumps(key)}]")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += locations(inner, f"{path}[{index}]")
    return found


@hypothesis.given(VALUES)
def test_every_value_of_a_document_is_found_by_its_path(value: Any):
    """Whatever the keys are."""
    text = json.dumps(value)
    for path, wanted in locations(value):
        assert ask("JsonQuery", text, path) == plain(wanted)
        assert jsonpath.findall(path, text) == [
            wanted
        ]  # the text: of a value that is one, the library reads the inside


@hypothesis.given(VALUES)
def test_values_stay_what_they_were(value: Any):
    """Indented and compact say the same as the standard library's."""
    text = json.dumps(value)
    assert ask("JsonParse", text) == json.dumps(value, indent=2, ensure_ascii=False)
    assert ask("JsonCompact", text) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert json.loads(ask("JsonStringify", text)) == text


@hypothesis.given(strategies.text(max_size=30))
def test_any_path_is_read_or_refused(path: str):
    """No text is anything but a path or a compile error, and what is a JSONPath to us is one to the library."""
    try:
        VERBS["JsonQuery"].check([None, path])
    except CompileError:
        return
    if path.startswith("$"):
        jsonpath.compile(path)
