"""Group I, the first half: what is no proper call is answered with a no, soon, and makes no container."""

from __future__ import annotations

import time
from typing import Any

import pytest
from attacks.trick import Came, put

from provider.model import MIB

WAYS = (
    *("shell_cmd", "run_shell_command", "workspace_run", "shell", "container.exec", "local_shell", "shell_command"),
    *("execute_dangerous_shell", "execute_mk8_shell"),
)
SECONDS = 0.5
"""Processor time of one no, the provider's own beginning included; a call alone takes milliseconds."""


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"command": value}
    return value


PAYLOADS: dict[str, dict[str, Any]] = {
    "I1": {"invalid": "{'command': 1", "text": "rm -rf /", "empty": "", "not UTF-8": b'{"command": "\xff"}'},
    "I2": {"truncated": '{"command": "ls"', "in a text": '{"command": "l'},
    "I3": {"20 MB that never end": '{"command": "' + "x" * (20 * MIB)},
    "I4": {"lists": "[" * 100_000, "objects": '{"command":' * 10_000 + "1" + "}" * 10_000, "decoded": deep(5_000)},
    "I6": {"NaN": '{"command": NaN}', "infinite": '{"command": 1e999}', "decoded": {"command": float("nan")}},
    "I7": {
        "as text": '{"command": ' + "9" * 5_000 + "}",
        "as a time": '{"command": ["ls"], "timeout_ms": ' + "9" * 5_000 + ', "parameters": 1}',
        "decoded": {"command": 10**5_000},
    },
    "I8": {"a byte order mark": '\ufeff{"command": "ls"}', "two": "\ufeff\ufeff{}"},
    "I9": {
        "null": None,
        "number": 3,
        "list": [],
        "command is a number": {"command": 1},
        "command is an object": {"command": {"ls": 1}},
        "a word is a number": {"command": ["ls", 1], "parameters": ["x", 1]},
        "a set": {"ls"},
    },
    "I11": {
        "NUL": {"command": "ls\0", "parameters": []},
        "NUL in a word": {"command": ["ls", "a\0b"]},
        "a lone surrogate": {"command": "ls \ud800"},
        "a lone surrogate in a word": {"command": ["ls", "\ud800"]},
        "131,072 bytes": {"command": "ls " + "x" * 131_072},
        "131,072 bytes in a word": {"command": ["ls", "x" * 131_072]},
        "2 MiB of words": {"command": ["ls", *["x" * 100_000] * 30]},
    },
}
CALLS = [
    pytest.param(way, payload, id=f"{number} {name}, {way}", marks=pytest.mark.attack(number))
    for number, kinds in PAYLOADS.items()
    for name, payload in kinds.items()
    for way in WAYS
]


def put_one(way: str, payload: Any) -> Came:
    return put(way, {"it": payload})["it"]


@pytest.mark.parametrize(("way", "payload"), CALLS)
def test_what_is_no_call_is_refused(way: str, payload: Any, installed: None) -> None:
    """With a reason; nothing is raised, nobody is asked, and no container is made."""
    began = time.process_time()
    came = put_one(way, payload)
    assert (came.said, came.containers) == ("refused", 0), came
    assert came.because.strip()
    assert time.process_time() - began < SECONDS


@pytest.mark.attack("I5")
@pytest.mark.parametrize("way", ["run_shell_command", "shell_command"])
def test_of_two_fields_of_one_name_the_one_that_is_judged_is_run(way: str, installed: None) -> None:
    """A text is decoded once, so there is no second reader that could have taken the other."""
    assert put_one(way, '{"command": "rm x", "command": "ls"}').said == "allowed"
    assert put_one(way, '{"command": "ls", "command": "rm x"}').said == "refused"


UNKNOWN = {"command": "ls", "privileged": True, "mounts": ["/:/host"], "env": {}, "user": "0:0", "image": "x"}
IGNORES = {
    "run_shell_command": "the specification's own reader leaves unknown fields aside; none of them has a meaning",
    "shell_command": "so does the original's",
}


@pytest.mark.attack("I10")
@pytest.mark.parametrize("way", ["shell_cmd", "run_shell_command", "workspace_run", "shell_command"])
def test_a_field_that_nobody_knows_changes_nothing(way: str, installed: None) -> None:
    """It is refused, or it is as if it were not there: the sandbox is given the same."""
    came, plain = put_one(way, UNKNOWN), put_one(way, {"command": "ls"})
    assert came.said == ("allowed" if way in IGNORES else "refused")
    if way in IGNORES:
        assert came.given == plain.given
        assert came.box == plain.box


TIMES = (-1, 0, -(10**18), float("nan"), float("inf"), float("-inf"), 10**18, "1", True, [1])
FIELDS = {"shell_cmd": "timeout", "workspace_run": "timeoutMs", "shell_command": "timeout_ms"}
LONGEST = 7 * 24 * 3600.0


@pytest.mark.attack("I13")
@pytest.mark.parametrize("value", TIMES, ids=repr)
@pytest.mark.parametrize("way", FIELDS)
def test_a_time_that_is_none_gives_no_longer_run(way: str, value: Any, installed: None) -> None:
    """It is refused, or the command has the time that it would have had, and never more than there is to have."""
    came = put_one(way, {"command": "ls", FIELDS[way]: value})
    assert came.said == "refused" or 0 < came.timeout <= LONGEST, came
