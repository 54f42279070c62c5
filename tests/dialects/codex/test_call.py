"""What `codex.call` promises: the contract's fields, aliases and defaults, and its texts for what cannot be decoded."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.codex.call import Call, decode
from provider.dialects.codex.command import directory, prepare
from provider.dialects.codex.table import Table
from provider.dialects.contract import Context, Rejected

HERE = Context(workspace=Path("/home/me/project"))

GOOD = {
    "words": ("shell", {"command": ["ls", "-l"]}, Call(command=("ls", "-l"))),
    "as JSON text": ("shell", '{"command":["ls"]}', Call(command=("ls",))),
    "under the other name": ("container.exec", {"command": ["ls"]}, Call(command=("ls",))),
    "all fields": (
        "shell",
        {"command": ["a"], "workdir": "d", "timeout_ms": 5, "with_escalated_permissions": True, "justification": "j"},
        Call(command=("a",), workdir="d", timeout_ms=5, escalated=True, justification="j"),
    ),
    "timeout": ("shell", {"command": ["a"], "timeout": 7}, Call(command=("a",), timeout_ms=7)),
    "nulls": (
        "shell",
        {"command": ["a"], "workdir": None, "timeout_ms": None, "with_escalated_permissions": None},
        Call(command=("a",)),
    ),
    "unknown keys": ("shell", {"command": ["a"], "shell": "zsh"}, Call(command=("a",))),
    "the later word": (
        "shell",
        {"command": ["a"], "sandbox_permissions": "require_escalated"},
        Call(command=("a",), escalated=True),
    ),
    "a proposed rule": (
        "shell",
        {"command": ["a", "b"], "prefix_rule": ["a"]},
        Call(command=("a", "b"), prefix=("a",)),
    ),
    "a script": ("shell_command", {"command": "ls && pwd"}, Call(command="ls && pwd")),
    "not a login shell": ("shell_command", {"command": "ls", "login": False}, Call(command="ls", login=False)),
    "an action alone": ("local_shell", {"type": "exec", "command": ["ls"]}, Call(command=("ls",))),
    "an item": (
        "local_shell",
        {
            "type": "local_shell_call",
            "call_id": "c1",
            "id": "i1",
            "action": {"type": "exec", "command": ["ls"], "working_directory": "d", "timeout_ms": 9},
        },
        Call(command=("ls",), workdir="d", timeout_ms=9, call_id="c1"),
    ),
    "an item with an id": (
        "local_shell",
        {"id": "i1", "action": {"command": ["ls"]}},
        Call(command=("ls",), call_id="i1"),
    ),
    "env and user are dropped, escalation is none": (
        "local_shell",
        {
            "id": "i",
            "action": {"command": ["ls"], "env": {"A": "1"}, "user": "root", "with_escalated_permissions": True},
        },
        Call(command=("ls",), call_id="i"),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_call_is_read(name: str):
    """Fields, aliases and defaults are the contract's."""
    tool, payload, expected = GOOD[name]
    assert decode(tool, payload) == expected


PARSE = "failed to parse function arguments: "
BAD: dict[str, tuple[str, Any, str]] = {
    "no command": ("shell", {}, PARSE + 'Error("missing field `command`", line: 0, column: 0)'),
    "a text": (
        "shell",
        {"command": "ls"},
        PARSE + 'Error("invalid type: string \\"ls\\", expected a sequence", line: 0',
    ),
    "words": (
        "shell_command",
        {"command": ["ls"]},
        PARSE + 'Error("invalid type: sequence, expected a string", line: 0',
    ),
    "a number": ("shell", {"command": ["ls", 1]}, PARSE + 'Error("invalid type: integer `1`, expected a string"'),
    "nothing": ("shell", {"command": []}, "command args are empty"),
    "no script": ("shell_command", {"command": ""}, "command args are empty"),
    "negative": (
        "shell",
        {"command": ["a"], "timeout_ms": -1},
        PARSE + 'Error("invalid value: integer `-1`, expected u64"',
    ),
    "a fraction": (
        "shell",
        {"command": ["a"], "timeout_ms": 1.5},
        PARSE + 'Error("invalid type: floating point `1.5`, expected u64"',
    ),
    "too large": ("shell", {"command": ["a"], "timeout_ms": 2**64}, PARSE + 'Error("invalid value: integer'),
    "two names": (
        "shell",
        {"command": ["a"], "timeout_ms": 1, "timeout": 1},
        PARSE + 'Error("duplicate field `timeout_ms`"',
    ),
    "a flag": (
        "shell",
        {"command": ["a"], "with_escalated_permissions": "yes"},
        PARSE + 'Error("invalid type: string \\"yes\\", expected a boolean"',
    ),
    "a word": ("shell", {"command": ["a"], "sandbox_permissions": "all"}, PARSE + 'Error("unknown variant `all`'),
    "no JSON": ("shell", "{", PARSE + "Error("),
    "JSON of another kind": ("shell", "[]", PARSE + 'Error("invalid type: sequence, expected an object", line: 1'),
    "another kind": ("shell", 7, "unsupported payload for shell handler: shell"),
    "under its name": ("container.exec", None, "unsupported payload for shell handler: container.exec"),
    "for a script": ("shell_command", [], "unsupported payload for shell_command handler: shell_command"),
    "no id": ("local_shell", {"action": {"type": "exec", "command": ["a"]}}, "LocalShellCall without call_id or id"),
    "no exec": (
        "local_shell",
        {"id": "i", "action": {"type": "open", "command": ["a"]}},
        PARSE + 'Error("unknown variant',
    ),
    "a NUL": ("shell", {"command": ["a\0b"]}, "`command` holds a NUL byte"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_call_is_said_in_the_contracts_words(name: str):
    """Nothing is guessed: the reply names the field, what was found and what would be right."""
    tool, payload, expected = BAD[name]
    with pytest.raises(Rejected) as caught:
        decode(tool, payload)
    assert caught.value.text.startswith(expected)


@given(
    st.text(max_size=40)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["command", "action", "id", "type"]), inner)
        ),
        max_leaves=8,
    )
)
def test_any_payload_is_a_call_or_a_rejection(payload: object):
    """No payload breaks the decoder, as data or as text."""
    for tool in ("shell", "local_shell", "shell_command"):
        for form in (payload, json.dumps(payload)):
            with contextlib.suppress(Rejected):
                assert decode(tool, form).command


@pytest.mark.parametrize(
    ("workdir", "where"),
    [
        (None, "/workspace"),
        ("", "/workspace"),
        (".", "/workspace"),
        ("sub", "/workspace/sub"),
        ("a/../b", "/workspace/b"),
        ("/workspace/x", "/workspace/x"),
        ("/home/me/project", "/workspace"),
        ("/home/me/project/src", "/workspace/src"),
    ],
)
def test_a_working_directory_is_joined(workdir: str | None, where: str):
    """Relative to the workspace, absolute in the sandbox, or as the host calls it."""
    assert directory(workdir, HERE) == where


@pytest.mark.parametrize("workdir", ["..", "/", "/etc", "a/../..", "/workspace/..", "/workspacex", "/home/me/projectx"])
def test_a_working_directory_outside_is_refused(workdir: str):
    """It is said before anything runs, and names what would be right."""
    with pytest.raises(Rejected, match="outside of the workspace; name a directory below it"):
        directory(workdir, HERE)


@pytest.mark.parametrize(
    ("table", "call", "argv", "seconds"),
    [
        ({}, Call(command="a  b"), ("bash", "-lc", "a  b"), 10),
        ({"login": False}, Call(command="x"), ("bash", "-c", "x"), 10),
        ({"shell": "/bin/zsh"}, Call(command="x", login=False), ("/bin/zsh", "-c", "x"), 10),
        ({}, Call(command=("x", "y")), ("x", "y"), 10),
        ({"default_timeout_ms": 60_000}, Call(command=("x",)), ("x",), 60),
        ({}, Call(command=("x",), timeout_ms=2500), ("x",), 2.5),
        ({"max_timeout_ms": 1000}, Call(command=("x",), timeout_ms=2500), ("x",), 1),
        ({}, Call(command=("x",), timeout_ms=0), ("x",), 0.001),
    ],
)
def test_a_call_becomes_a_command(table: dict[str, Any], call: Call, argv: tuple[str, ...], seconds: float):
    """A script is one argument of the shell; time limits are the operator's within the call's."""
    asked = prepare(call, Table.model_validate(table), HERE)
    assert (asked.argv, asked.timeout) == (argv, seconds)
