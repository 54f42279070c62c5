"""The payload of `shell_cmd`: what is corrected, what is tolerated, what is an error, in the contract's words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from provider.dialects.contract import Rejected
from provider.dialects.shell_cmd.call import Call, read_call, unreadable

FAILED = "Tool parameter validation failed for shell_cmd: "


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("ls", "Tool arguments must be an object, got: string"),
        (7, "Tool arguments must be an object, got: number"),
        (None, "Tool arguments must be an object, got: null"),
        ([], "Tool arguments must be an object, got: array"),
        ({}, "Required parameter 'command' is missing or empty"),
        ({"command": None}, "Required parameter 'command' is missing or empty"),
        ({"command": ""}, "Required parameter 'command' is missing or empty"),
        ({"command": 5}, "Parameter 'command' must be a string, got: number"),
        ({"command": ["ls"]}, "Parameter 'command' must be a string, got: array"),
        ({"command": "ls", "args": []}, "Unknown parameter 'args' is not allowed"),
        (
            {"cmd": "ls", "x": 1},
            (
                "Required parameter 'command' is missing or empty; Unknown parameter 'cmd' is not allowed; "
                "Unknown parameter 'x' is not allowed"
            ),
        ),
        ({"command": "ls", "timeout": "soon"}, "Parameter 'timeout' must be a number, got: string"),
        ({"command": "ls", "timeout": True}, "Parameter 'timeout' must be a number, got: boolean"),
        ({"command": "ls", "timeout": -1}, "Parameter 'timeout' must be a positive number of milliseconds, got: -1"),
        (
            {"command": "ls", "timeout": 10**400},
            "Parameter 'timeout' must be a positive number of milliseconds, got: inf",
        ),
        (
            {"command": "ls", "parameters": ["\ud800"]},
            "Parameter 'parameters' holds a lone surrogate, which is no character",
        ),
    ],
    ids=lambda value: str(value)[:50].encode("ascii", "replace").decode(),
)
def test_a_payload_that_is_no_call_is_told_every_fault(payload: Any, text: str):
    """One text names all that is wrong, and where."""
    with pytest.raises(Rejected) as raised:
        read_call(payload)
    assert (raised.value.text, raised.value.kind) == (FAILED + text, "validation_error")


@pytest.mark.parametrize(
    ("given", "expected", "note"),
    [
        ({"workingDirectory": "/"}, {}, "workingDirectory stripped (system context field, not a tool parameter)"),
        ({"working_directory": "/"}, {}, "working_directory stripped (system context field, not a tool parameter)"),
        ({"parameters": "-la"}, {"parameters": ("-la",)}, "parameters: string -> array"),
        ({"artifact_paths": "a"}, {"artifact_paths": ("a",)}, "artifact_paths: string -> array"),
        ({"parameters": None}, {}, "parameters: null/undefined omitted (optional parameter)"),
        ({"timeout": None}, {}, "timeout: null/undefined omitted (optional parameter)"),
        ({"timeout": "900ms"}, {"timeout_ms": 900.0}, 'timeout: "900ms" -> 900'),
        ({"timeout": " 1.5e3"}, {"timeout_ms": 1500.0}, 'timeout: " 1.5e3" -> 1500'),
        ({"parameters": ["a", 5, None, "b"]}, {"parameters": ("a", "b")}, "parameters: 2 non-string items dropped"),
    ],
)
def test_what_can_be_put_right_is_put_right_and_noted(given: Any, expected: dict[str, Any], note: str):
    """The contract's corrections, with its notes."""
    assert read_call({"command": "ls", **given}) == Call(command="ls", **expected, corrections=(note,))


@pytest.mark.parametrize(
    "given",
    [
        {"parameters": 7},
        {"parameters": ""},
        {"parameters": {}},
        {"directory": 7},
        {"directory": " \t"},
        {"timeout": 0},
        {"timeout": ""},
        {"timeout": math.nan},
        {"output_format": "xml"},
        {"output_format": 7},
        {"output_detail": "some"},
        {"artifact_paths": 7},
    ],
)
def test_what_the_contract_tolerates_is_as_good_as_absent(given: dict[str, Any]):
    """Values that say nothing change nothing; the time-out is ten minutes."""
    call = read_call({"command": "ls", **given})
    assert call == Call(command="ls")
    assert call.timeout_ms == 600_000


def test_all_seven_parameters_are_read():
    """Each reaches the call."""
    payload = {
        "command": "npm",
        "parameters": ["run", "build"],
        "directory": "sub",
        "timeout": 1.5,
        "output_format": "json",
        "output_detail": "full",
        "artifact_paths": ["a"],
    }
    assert read_call(payload) == Call(
        command="npm",
        parameters=("run", "build"),
        directory="sub",
        timeout_ms=1.5,
        output_format="json",
        output_detail="full",
        artifact_paths=("a",),
    )


def test_times_are_shown_as_they_were_given():
    """A whole number of milliseconds has no point in it."""
    assert [Call(command="x", timeout_ms=ms).timeout_text for ms in (50, 50.0, 0.5)] == ["50", "50", "0.5"]


def test_an_unreadable_payload_still_says_how_to_answer():
    """The reply repeats the command, and has the form that was wished for."""
    assert unreadable({"command": "ls", "x": 1, "output_format": "json"}) == Call(command="ls", output_format="json")
    assert [unreadable(payload).command for payload in (None, {}, {"command": 5}, {"command": " "})] == [
        "<invalid>"
    ] * 4
