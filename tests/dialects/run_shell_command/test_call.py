"""From a payload to what is asked of the provider."""

from __future__ import annotations

import json

import pytest

from provider.dialects.contract import Rejected
from provider.dialects.run_shell_command.call import (
    EITHER_SHELL,
    ENVIRONMENT,
    find_directory,
    parse,
    shell,
    strip_wrapper,
)
from provider.dialects.run_shell_command.table import Table
from provider.model import Decision

LISTED = Table.model_validate({"core_tools": ["run_shell_command(ls)"]})


def rejected(payload, workspace, table=None):
    with pytest.raises(Rejected) as caught:
        parse(payload, table or Table(), workspace)
    return caught.value


def test_a_call_becomes_a_request(workspace):
    """The command is one argument of its own, limits are the table's, and the environment waits for nobody."""
    asked = parse({"command": "ls | wc -l"}, Table(), workspace)
    assert asked.argv == ("sh", "-c", EITHER_SHELL, "ls | wc -l")
    assert asked.wishes == {"cwd": ".", "env": ENVIRONMENT, "background": "keep", "lease": 600.0, "timeout": 120.0}
    assert (asked.judged.decision, asked.remember) == (Decision.ALLOW, ())
    assert (ENVIRONMENT["ASIMI_CLI"], ENVIRONMENT["PAGER"], ENVIRONMENT["GIT_TERMINAL_PROMPT"]) == ("1", "cat", "0")


def test_parse_is_deterministic(workspace):
    """The same payload, the same request."""
    payload = {"command": "git log", "description": "d", "directory": "."}
    assert parse(payload, LISTED, workspace) == parse(payload, LISTED, workspace)


def test_no_time_limit(workspace):
    """0 in the table is no deadline."""
    assert "timeout" not in parse({"command": "ls"}, Table(timeout=0), workspace).wishes


def test_a_payload_may_be_json_text(workspace):
    """The specification's tool is called with a text."""
    assert parse(json.dumps({"command": "ls"}), Table(), workspace).call.command == "ls"


def test_unknown_fields_are_left_aside(workspace):
    """As the specification's own reader does."""
    assert parse({"command": "ls", "colour": "red"}, Table(), workspace) == parse({"command": "ls"}, Table(), workspace)


@pytest.mark.parametrize("name", ["dir_path", "is_background", "delay_ms", "additional_permissions", "timeout"])
def test_fields_of_newer_forms_are_refused_by_name(name, workspace):
    """To drop one would run something else than was meant; the error says what to write instead."""
    error = rejected({"command": "ls", name: True}, workspace)
    assert (error.kind, f"`{name}`" in error.text) == ("INVALID_TOOL_PARAMS", True)


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (None, "object"),
        ([], "object"),
        ("{", "JSON"),
        ('"ls"', "object"),
        ({}, "`command`"),
        ({"command": 1}, "`command`"),
        ({"command": ["ls"]}, "`command`"),
        ({"command": "ls", "directory": 1}, "`directory`"),
        ({"command": "ls", "description": 1}, "`description`"),
        ({"command": "ls\0"}, "NUL"),
        ({"command": ""}, "empty"),
        ({"command": "\n\t"}, "empty"),
        ({"command": "bash -c ''"}, "empty"),
    ],
)
def test_a_payload_that_is_no_call_is_named(payload, named, workspace):
    """One clear error; nothing is judged."""
    error = rejected(payload, workspace)
    assert (error.kind, named in error.text) == ("INVALID_TOOL_PARAMS", True)


def test_the_description_is_shown_to_the_approver(workspace):
    """On one line, with nothing hidden in it; and only where somebody is asked."""
    call = {"command": "git log", "description": "reads\nthe log\x1b[2J"}
    assert parse(call, LISTED, workspace).judged.reasons[-1] == "described by the caller as: reads the log\\u{1b}[2J"
    assert parse(call, Table(), workspace).judged.reasons == ()


# The directory.


@pytest.fixture
def tree(workspace):
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "file").touch()
    (workspace / "in").symlink_to("a/b")
    (workspace / "out").symlink_to("/etc")
    (workspace / "up").symlink_to("..")
    (workspace / "loop").symlink_to("loop")
    (workspace / "mount").symlink_to("/workspace/a")
    return workspace


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", "."),
        (".", "."),
        ("a", "a"),
        ("a/b/", "a/b"),
        ("./a/../a/b", "a/b"),
        ("in", "a/b"),
        ("in/..", "a"),
        ("mount", "a"),
    ],
)
def test_a_directory_of_the_project(wanted, found, tree):
    """Relative to the root, links resolved."""
    assert find_directory(wanted, tree) == found


@pytest.mark.parametrize(
    "wanted", ["/", "/etc", "/workspace", "..", "a/../..", "out", "out/ssl", "up", "loop", "~", "~root", "a\0"]
)
def test_a_directory_outside_is_refused(wanted, tree):
    """Absolute, above the root, or through a link that leads out."""
    with pytest.raises(Rejected) as caught:
        find_directory(wanted, tree)
    assert caught.value.kind == "PATH_NOT_IN_WORKSPACE"


@pytest.mark.parametrize("wanted", ["missing", "file", "a/missing", "file/x"])
def test_a_directory_must_exist(wanted, tree):
    """The text is the contract's, with what would be right."""
    with pytest.raises(Rejected, match=f"^Directory '{wanted}' is not a registered workspace directory. It must exist"):
        find_directory(wanted, tree)


def test_an_absolute_directory_has_its_own_text(tree):
    """It says what to write instead."""
    with pytest.raises(Rejected, match=r"^Directory cannot be absolute\. .* relative to the project root"):
        find_directory("/etc", tree)


# The shell.


@pytest.mark.parametrize(
    ("command", "stripped"),
    [
        ('bash -c "ls -l"', "ls -l"),
        ("sh -c 'a && b'", "a && b"),
        ("/bin/bash -c 'ls'", "ls"),
        ("zsh -c ls", "ls"),
        ('bash -c "a" && rm "b"', 'bash -c "a" && rm "b"'),
        ("bash -lc 'ls'", "bash -lc 'ls'"),
        ("bash -c 'ls' x", "bash -c 'ls' x"),
        ("bash -c 'ls' > f", "bash -c 'ls' > f"),
        ("A=1 bash -c 'ls'", "A=1 bash -c 'ls'"),
        ("bash -c 'ls' &", "bash -c 'ls' &"),
        ("! bash -c 'ls'", "! bash -c 'ls'"),
        ("(bash -c 'ls')", "(bash -c 'ls')"),
        ('bash -c "echo $HOME"', 'bash -c "echo $HOME"'),
        ("bash -c 'ls", "bash -c 'ls"),
        ("mybash -c 'ls'", "mybash -c 'ls'"),
    ],
)
def test_a_wrapper_is_taken_off_only_when_it_is_all_there_is(command, stripped):
    """One layer; whatever stands beside it would become part of another text."""
    assert strip_wrapper(command) == stripped


@pytest.mark.parametrize(
    ("command", "program"),
    [("ls", "sh"), ("[[ a && b ]]", "bash"), ("echo $'\\''", "bash"), ("cat <<< x", "bash"), ("echo $((x))", "sh")],
)
def test_what_other_shells_read_otherwise_is_for_bash_alone(command, program):
    """It was judged as bash reads it; elsewhere `[[ a && b ]]` runs b."""
    assert shell(command)[0] == program


def test_the_text_is_never_changed(workspace):
    """Trailing blanks, newlines and here-documents reach the shell as they are."""
    for command in ("cat <<E\nx\nE\n", "echo a\\ ", "  ls  ", "echo 'a\tb'  # c\n"):
        assert parse({"command": command}, Table(), workspace).argv[-1] == command
