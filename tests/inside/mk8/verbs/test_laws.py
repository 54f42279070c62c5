"""What holds for every verb about text, JSON and values: any strings give an output or an error of ours, and soon."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from provider.inside.mk8.errors import Mk8Error
from provider.inside.mk8.verb import World
from provider.inside.mk8.verbs import VERBS, json_, text, values

INSIDE = Path(__file__).parents[4] / "provider/inside"
PURE = sorted(verb.name for table in (text, json_, values) for verb in table.VERBS if verb.name != "Sleep")
REGEX = {"TextRegex", "TextMatch", "TextRegexGroups"}
HEAVY = (
    "asyncio",
    "ssl",
    "http",
    "urllib",
    "email",
    "zipfile",
    "tarfile",
    "gzip",
    "hashlib",
    "subprocess",
    "ipaddress",
)
HEAVY += ("random", "fractions", "decimal", "tempfile", "shutil", "logging", "threading", "ctypes")

WORDS = strategies.sampled_from(
    [
        "",
        "0",
        "1",
        "-1",
        "7",
        "10",
        "16",
        "256",
        "1e9",
        "nan",
        "sha256",
        "asc",
        "numeric",
        ",",
        "\n",
        "o",
        "yyyy",
        "$.a",
        "/0",
        "{}",
        "[1]",
        '{"a":[]}',
        "1.2.3",
    ]
)
STRINGS = strategies.text(max_size=200) | WORDS | strategies.integers().map(str) | strategies.floats().map(str)
LONG = strategies.tuples(STRINGS, strategies.integers(1, 2000)).map(lambda pair: pair[0] * pair[1])
LARGE = (
    "a b\n" * 262_144,
    "9" * 1_048_576,
    '["' + 'x",\n"' * 200_000 + '"]',
    "é" * 524_288,
    "[" * 1_048_576,
    "7" * 262_144 + "\n" * 524_288,  # one row of many columns, and many rows
)
WORLD = World(root="/workspace", cwd="/workspace")


@pytest.mark.parametrize("name", PURE)
@hypothesis.given(data=strategies.data())
@hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))
def test_any_strings_give_an_output_or_an_error_of_ours(name: str, data: strategies.DataObject):
    """Nothing but Mk8Error is ever raised, nothing but text is given, and a second is enough."""
    verb = VERBS[name]
    count = data.draw(strategies.integers(verb.least, min(verb.most, verb.least + 3)))
    arguments = data.draw(
        strategies.lists(STRINGS if name in REGEX else STRINGS | LONG, min_size=count, max_size=count)
    )
    began = time.process_time()
    try:
        verb.check(arguments)
        said = verb.act(WORLD, arguments)
        most = 17 * 1024 * 1024
    except Mk8Error as error:
        said, most = str(error), 2000
    assert isinstance(said, str)
    assert len(said) <= most or name in {"Fail", "Assert"}
    if name not in REGEX:  # theirs is two seconds
        assert time.process_time() - began < 1


@pytest.mark.parametrize("name", sorted(set(PURE) - REGEX))
def test_the_largest_arguments_take_no_more_than_they_are_long(name: str):
    """A megabyte, which is as much as one step hands to the next, is no reason to wait: nothing is quadratic."""
    verb = VERBS[name]
    for large in LARGE:
        arguments = [large, "7", "1"][: verb.most] if verb.least <= 3 else [large] * verb.least
        arguments += ["1"] * (verb.least - len(arguments))
        began = time.process_time()
        try:
            verb.check(arguments)
            verb.act(WORLD, arguments)
        except Mk8Error:
            pass
        assert time.process_time() - began < 2


def test_the_start_is_light():
    """Importing all verbs imports none of what only a few of them need: each script starts a Python of its own."""
    code = f"import sys; sys.path.insert(0, {str(INSIDE)!r}); import mk8.verbs; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-B", "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.split()
    assert [name for name in HEAVY if name in loaded] == []
    assert "mk8.verbs.files" in loaded
