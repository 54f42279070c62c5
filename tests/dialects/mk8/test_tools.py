"""What `mk8.tools` promises: a schema for every action, and a call for every payload that fits it."""

from __future__ import annotations

from typing import Any

import pytest

from provider.dialects.contract import Tool
from provider.dialects.mk8.call import Call
from provider.dialects.mk8.kinds import ACTIONS, Kind, Shell
from provider.dialects.mk8.protocol import native_call
from provider.dialects.mk8.tools import TOOLS

GUID = "0e984725-c51c-4bf4-9960-e1c80e27aba0"
SAMPLES: dict[str, Any] = {
    "script": {"operations": [{"verb": "SysPwd", "args": []}]},
    "resourceId": GUID,
    "targetId": GUID,
    "transcriptionModelId": GUID,
    "sandboxId": "box",
    "shellType": "Bash",
    "command": "ls",
    "language": "en",
}


def test_every_action_has_its_tool():
    """Once, under its name."""
    assert [tool.name for tool in TOOLS] == list(ACTIONS)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_what_fits_the_schema_is_a_call(tool: Tool):
    """With all properties, and with those that are required; none of them is unknown to the reader of payloads."""
    properties = tool.parameters["properties"]
    assert properties.keys() <= SAMPLES.keys()
    assert set(tool.parameters["required"]) <= properties.keys()
    assert tool.parameters["additionalProperties"] is False
    for names in (properties, tool.parameters["required"]):
        call = native_call("1", tool.name, {name: SAMPLES[name] for name in names})
        assert isinstance(call, Call), call
        assert call.action == tool.name
        assert (call.resource == GUID) == bool({"resourceId", "targetId"} & set(names))


def test_global_actions_take_nothing_and_others_their_resource():
    """As the seed has them."""
    for tool in TOOLS:
        expected = {Kind.GLOBAL: set(), Kind.RESOURCE: {"targetId"}}.get(ACTIONS[tool.name])
        assert expected is None or set(tool.parameters["properties"]) == expected


def test_the_shells_are_named_as_the_contract_names_them():
    """The schema has every shellType, the refused one as well: a model that asks for it is told why not."""
    dangerous = next(tool for tool in TOOLS if tool.name == "execute_dangerous_shell")
    assert dangerous.parameters["properties"]["shellType"]["enum"] == ["Bash", "PowerShell", "CommandPrompt", "Git"]
    assert list(Shell) == ["Bash", "PowerShell", "CommandPrompt", "Git"]
