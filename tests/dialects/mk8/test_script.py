"""What is a script at all: shape, names in any case, durations, and where a mistake is."""

from __future__ import annotations

import json

import pytest

from provider.dialects.mk8.script import Script, parse_fragment, parse_script
from provider.inside.mk8.errors import CompileError, Mk8Error

ECHO = {"verb": "Echo", "args": ["x"]}


def parsed(operation: dict | None = None, **top) -> Script:
    return parse_script({"operations": [{**ECHO, **(operation or {})}], **top})


def test_names_are_taken_in_any_case_and_unknown_ones_ignored():
    """Also those of enumerations; keys of a template stay as they are."""
    script = parse_script(
        json.dumps(
            {
                "OPERATIONS": [
                    {
                        "Verb": "FileTemplate",
                        "ARGS": ["a"],
                        "MaxRetries": 3,
                        "STEPTIMEOUT": "00:00:01",
                        "CaptureAs": "x",
                        "Template": {"SOURCE": "s", "Values": {"Key": "v"}},
                        "comment": {"anything": [1, 2]},
                    },
                    {"verb": "If", "IF": {"Predicate": {"KIND": "prevempty"}, "Then": ECHO}},
                ],
                "Options": {"FAILUREMODE": "stopandcleanup", "PipeStepOutput": True, "other": 1},
                "version": 2,
            }
        )
    )
    first, second = script.operations
    assert (first.max_retries, first.step_timeout, first.capture_as) == (3, 1.0, "x")
    assert first.template is not None
    assert first.template.values == {"Key": "v"}
    assert second.if_ is not None
    assert second.if_.predicate.kind == "PrevEmpty"
    assert (script.options.failure_mode, script.options.pipe_step_output) == ("StopAndCleanup", True)


def test_defaults_hold_one_by_one():
    """A script that sets one option keeps the defaults of the others (section 9, item 8); null is as if not there."""
    options = parsed(options={"maxRetries": 1, "retryDelay": None}).options
    assert (options.max_retries, options.retry_delay, options.step_timeout, options.script_timeout) == (1, 2, 30, 300)
    assert (options.max_output_bytes, options.max_error_bytes) == (1_048_576, 262_144)
    assert (options.failure_mode, options.pipe_step_output) == ("StopOnFirstError", False)
    assert parsed({"label": None, "template": None}).operations[0].template is None
    assert parsed(options=None, cleanup=None).cleanup == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:00", 0),
        ("00:02:00", 120),
        ("23:59:59", 86399),
        ("1.00:00:01", 86401),
        ("00:00:00.5", 0.5),
        ("00:00:01.1234567", 1.1234567),
    ],
)
def test_durations(text, seconds):
    """[d.]hh:mm:ss[.fffffff]."""
    assert parsed({"stepTimeout": text}).operations[0].step_timeout == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "30",
            "30s",
            "0:30",
            "00:30",
            "24:00:00",
            "00:60:00",
            "00:00:60",
            "-00:00:01",
            "00:00:01.12345678",
            "1:00:00",
        ),
        *(
            " 00:00:01",
            "00:00:01 ",
            "1.1.00:00:01",
            "\u0660\u0660:\u0660\u0660:\u0660\u0661",
            30,
            1.5,
            True,
            ["00:00:01"],
            {},
        ),
    ],
)
def test_no_other_form_of_a_duration(value):
    """Anything else is refused, with the right form."""
    for place in (
        {"operations": [{**ECHO, "stepTimeout": value}]},
        {"operations": [ECHO], "options": {"retryDelay": value}},
    ):
        with pytest.raises(CompileError, match=r"(stepTimeout|retryDelay): Input should be a duration"):
            parse_script(place)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"operations": NaN}', "operations: Input should be a valid list, got a number"),
        ("[]", "should be an object"),
        ("null", "should be an object.* is null"),
        (None, "should be an object.* is null"),
        (b"\xff", "no JSON"),
        ({}, "operations: Field required"),
        ({"operations": {}}, "operations: Input should be a valid list, got an object"),
        ({"operations": "x"}, "operations: Input should be a valid list, got 'x'"),
        ({"operations": [1]}, r"operations\[0\]: .* got a number"),
        ({"operations": [ECHO, {}]}, r"operations\[1\]\.verb: Field required"),
        ({"operations": [{"verb": 7}]}, r"operations\[0\]\.verb: Input should be a valid string, got a number"),
        (
            {"operations": [{"verb": "Echo", "args": ["a", 1]}]},
            r"operations\[0\]\.args\[1\]: .*valid string, got a number",
        ),
        ({"operations": [{"verb": "Echo", "args": [None]}]}, r"args\[0\]: .*got null"),
        ({"operations": [{"verb": "Echo", "args": "x"}]}, r"args: Input should be a valid list, got 'x'"),
        (
            {"operations": [ECHO], "cleanup": [{"verb": "Echo", "args": [[]]}]},
            r"cleanup\[0\]\.args\[0\]: .*got an array",
        ),
        ({"operations": [{**ECHO, "maxRetries": -1}]}, r"maxRetries: .*greater than or equal to 0"),
        ({"operations": [{**ECHO, "maxRetries": 1.0}]}, r"maxRetries: .*valid integer"),
        ({"operations": [{**ECHO, "maxRetries": "1"}]}, r"maxRetries: .*valid integer"),
        ({"operations": [{**ECHO, "maxRetries": True}]}, r"maxRetries: .*valid integer"),
        ({"operations": [{**ECHO, "label": 1}]}, r"label: .*valid string"),
        ({"operations": [{**ECHO, "template": {"values": {}}}]}, r"template\.source: Field required"),
        ({"operations": [{**ECHO, "template": {"source": "a", "values": {"k": 1}}}]}, r"template\.values\.k: .*string"),
        ({"operations": [{**ECHO, "patches": [{"find": "a"}]}]}, r"patches\[0\]\.replace: Field required"),
        ({"operations": [{"verb": "ForEach", "forEach": {"items": ["a"]}}]}, r"forEach\.body: Field required"),
        (
            {"operations": [{"verb": "If", "if": {"predicate": {"kind": "PrevIs"}, "then": ECHO}}]},
            r"kind: .*one of PrevContains",
        ),
        (
            {"operations": [{"verb": "If", "if": {"predicate": {"kind": 0}, "then": ECHO}}]},
            r"kind: .*one of .*got a number",
        ),
        ({"operations": [ECHO], "options": []}, "options: .*got an array"),
        (
            {"operations": [ECHO], "options": {"failureMode": 1}},
            "failureMode: .*one of StopOnFirstError, .*got a number",
        ),
        ({"operations": [ECHO], "options": {"failureMode": "Stop"}}, "failureMode: .*got 'Stop'"),
        ({"operations": [ECHO], "options": {"maxOutputBytes": 0}}, "maxOutputBytes: .*greater than or equal to 1"),
        ({"operations": [ECHO], "options": {"pipeStepOutput": "yes"}}, "pipeStepOutput: .*boolean"),
        ({"operations": [ECHO], "options": {"pipeStepOutput": 1}}, "pipeStepOutput: .*boolean"),
        ({"operations": [ECHO] * 1025}, "operations has 1025 operations; 1024 is the most"),
        ({"operations": [ECHO], "cleanup": [ECHO] * 1025}, "cleanup has 1025 operations"),
    ],
)
def test_where_a_mistake_is(data, says):
    """Every refusal names the place, what should be there, and what is."""
    with pytest.raises(CompileError, match=says) as caught:
        parse_script(data)
    assert str(caught.value).startswith("mk8.shell compile error [Script]: ")
    assert caught.value.category == "Compile"


def test_deep_nesting_is_an_error_and_no_crash():
    """A thousand Ifs inside each other."""
    operation: dict = ECHO
    for _ in range(3000):
        operation = {"verb": "If", "if": {"predicate": {"kind": "PrevEmpty"}, "then": operation}}
    with pytest.raises(Mk8Error) as caught:
        parse_script({"operations": [operation]})
    assert len(str(caught.value)) < 500


def test_fragments_are_read_like_scripts():
    """A mistake in one is told with its name."""
    assert parse_fragment("build", [ECHO])[0].verb == "Echo"
    with pytest.raises(CompileError, match=r"fragment 'build': .*\[0\]\.verb"):
        parse_fragment("build", [{"verb": 1}])
