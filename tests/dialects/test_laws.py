"""
The laws that every tool contract keeps, whatever its words are.

A new contract is added to `TOOLS`, and has to hold against all of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provider import Provider, Settings
from provider.approval import Answer, Approver, Question
from provider.dialects import DIALECTS, all_tools
from provider.dialects.contract import Reply
from provider.errors import DisposeFailed, EngineUnavailable, ImageMissing, PlanRejected, ProviderError, SandboxLost
from provider.model import Begun, Chunk, Ending, Growth, Usage
from provider.testing import PID, FakeEngine


@dataclass(frozen=True)
class Tool:
    """One contract: a call that runs, one that it refuses, and words that are nobody else's."""

    name: str
    call: Mapping[str, Any]
    refused: Mapping[str, Any]
    words: tuple[str, ...]
    asks: Mapping[str, Any] = field(default_factory=dict)
    """Settings under which the call is asked about, if the contract has such."""
    takes_unknown_fields: bool = False


SYSTEM_USER = "6d6b3800-0000-4000-8000-00000000000a"
TOOLS = [
    Tool(
        name="shell_cmd",
        call={"command": "echo", "parameters": ["hi"]},
        refused={"command": "echo hi && id"},
        words=("Working directory mismatch", "### Command Execution", "shell_cmd"),
        asks={"shell_cmd": {"permission": "ask"}},
    ),
    Tool(
        name="run_shell_command",
        call={"command": "echo hi"},
        refused={"command": "echo $(id)"},
        words=("backgroundPids", "run_shell_command", "list_background_processes"),
        asks={"run_shell_command": {"confirm": True}},
        takes_unknown_fields=True,
    ),
    Tool(
        name="workspace_run",
        call={"command": "echo hi"},
        refused={"command": "echo hi; id"},
        words=("workspace_tool_result", "allowedCommands", "stdoutOmittedBytes"),
    ),
    Tool(
        name="shell_command",
        call={"command": "echo hi > x"},
        refused={"command": "echo hi", "workdir": "/etc"},
        words=("Wall time: ", "Total output lines", "exec command rejected by user"),
        asks={"codex": {"approval_policy": "untrusted"}},
        takes_unknown_fields=True,
    ),
    Tool(
        name="execute_dangerous_shell",
        call={"resourceId": SYSTEM_USER, "shellType": "Bash", "command": "echo hi"},
        refused={"resourceId": SYSTEM_USER, "shellType": "CommandPrompt", "command": "echo hi"},
        words=("status=Completed", "status=Failed", "(no output)", "SystemUser"),
        takes_unknown_fields=True,
    ),
]
TABLES: dict[str, dict[str, Any]] = {
    "workspace_run": {"allowed_commands": ["echo"]},
    "mk8": {
        "agent_permissions": {"grants": [{"action": "execute_dangerous_shell", "clearance": 5}]},
        "system_users": [{"id": SYSTEM_USER, "uid": 1000, "gid": 1000}],
    },
}
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)

ENDINGS = {
    "exit 0": Ending(reason="exited", exit_code=0, pid=PID),
    "exit 1": Ending(reason="exited", exit_code=1, pid=PID),
    "exit 255": Ending(reason="exited", exit_code=255, pid=PID),
    "signal": Ending(reason="exited", signal=9, pid=PID),
    "not found": Ending(reason="exited", error="program: No such file or directory", error_number=2),
    "timed out": Ending(reason="timed_out", signal=15, pid=PID),
    "timed out, exit 0": Ending(reason="timed_out", exit_code=0, pid=PID),
    "canceled": Ending(reason="canceled", exit_code=0, pid=PID),
    "flood": Ending(reason="output_limit", signal=15, pid=PID),
    "quota": Ending(reason="workspace_quota", signal=15, pid=PID),
    "quota, exit 0": Ending(
        reason="workspace_quota",
        exit_code=0,
        pid=PID,
        growth=Growth(bytes=2_000_000, files=3, max_bytes=1_000_000, max_files=0),
    ),
    "oom": Ending(reason="exited", signal=9, pid=PID, oom_kills=1),
    "left behind": Ending(reason="exited", exit_code=0, pid=PID, background_pids=(8, 9)),
    "usage": Ending(
        reason="exited",
        exit_code=0,
        pid=PID,
        usage=Usage(cpu_user_seconds=1, cpu_system_seconds=1, max_rss_bytes=1, memory_peak_bytes=None),
    ),
}
FAULTS = [EngineUnavailable("e"), ImageMissing("i"), PlanRejected("p"), SandboxLost("s"), DisposeFailed("d")]
REALLY_WELL = {"exit 0", "left behind", "usage"}


def chosen(workspace: Path, tables: Mapping[str, Any] = TABLES, **more: Any) -> Settings:
    """Settings under which every tool can run its call, and keeps what it has to beside the workspace."""
    homes = {"mk8": {**tables.get("mk8", {}), "home": workspace.parent / "mk8"}}
    return Settings(spares=0, tools={**tables, **homes}, **more)


async def call(
    tool: Tool,
    payload: object,
    workspace: Path,
    engine: FakeEngine | None = None,
    *,
    tables: Mapping[str, Any] = TABLES,
    approver: Approver | None = None,
    on_event: Any = None,
) -> Reply:
    async with Provider(workspace, engine=engine or FakeEngine(), settings=chosen(workspace, tables)) as provider:
        return await provider.call(tool.name, payload, session="s", approver=approver, on_event=on_event)


def text(reply: Reply) -> str:
    return reply.content if isinstance(reply.content, str) else json.dumps(reply.content, ensure_ascii=False)


def script(ending: Ending, *chunks: Chunk) -> list[Any]:
    return [Begun(PID), *chunks, ending] if ending.pid else [ending]


def test_every_contract_is_held_to_the_laws():
    """Whatever `DIALECTS` has is in `TOOLS` here, by one of its names."""
    assert {DIALECTS[tool.name] for tool in TOOLS} == set(DIALECTS.values())


def test_every_tool_tells_its_schema():
    """Each name has one description and one schema, an object, that JSON can carry."""
    tools = all_tools()
    assert sorted(tool.name for tool in tools) == sorted(DIALECTS)
    for tool in tools:
        assert tool.description
        assert json.loads(json.dumps(tool.parameters))["type"] == "object"


@each_tool
async def test_unknown_fields_are_as_the_contract_says(tool: Tool, workspace: Path):
    """Refused without a container, or ignored; never passed on."""
    engine = FakeEngine()
    reply = await call(tool, {**tool.call, "surprise": "x"}, workspace, engine)
    assert reply.success == bool(engine.sandboxes) == tool.takes_unknown_fields
    if engine.sandboxes:
        assert "surprise" not in repr(engine.sandboxes[0].released)


@each_tool
async def test_the_same_call_is_the_same_command(tool: Tool, workspace: Path):
    """Parsing is deterministic: what is released to pid 1 is equal, and so is the verdict."""
    engine = FakeEngine()
    for _ in range(2):
        await call(tool, tool.call, workspace, engine)
    first, second = (sandbox.released for sandbox in engine.sandboxes)
    assert first == second
    async with Provider(workspace, engine=engine, settings=chosen(workspace)) as provider:
        assert provider.check(tool.name, tool.call) == provider.check(tool.name, tool.call)


@each_tool
@pytest.mark.parametrize("name", ENDINGS)
async def test_every_ending_has_a_reply(tool: Tool, name: str, workspace: Path):
    """Only a command that exited with 0 by itself reads as success, and every reply can be sent."""
    out = Chunk("stdout", b"some output\n")
    reply = await call(tool, tool.call, workspace, FakeEngine(script(ENDINGS[name], out)))
    assert json.dumps(reply.content)
    assert reply.success == (name in REALLY_WELL)


@each_tool
async def test_a_quota_is_told_with_its_figures(tool: Tool, workspace: Path):
    """Whoever called reads what was added, and what may be."""
    reply = await call(tool, tool.call, workspace, FakeEngine(script(ENDINGS["quota, exit 0"])))
    assert "2,000,000 bytes and 3 files" in text(reply)
    assert "1,000,000 bytes" in text(reply)


@each_tool
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_every_fault_has_a_reply_that_is_no_outcome(tool: Tool, fault: ProviderError, workspace: Path):
    """A provider that fails is no success, and claims no exit code for a command that never ran."""
    reply = await call(tool, tool.call, workspace, FakeEngine(open_error=fault))
    assert not reply.success
    content = reply.content if isinstance(reply.content, dict) else {}
    assert content.get("exitCode") is None
    assert content.get("exit_code") is None
    assert "Exit code 0" not in text(reply)


@each_tool
async def test_a_refused_call_makes_no_container(tool: Tool, workspace: Path):
    """The verdict is no, the reply says so, and the engine was never asked for anything."""
    engine = FakeEngine()
    reply = await call(tool, tool.refused, workspace, engine)
    assert not reply.success
    assert engine.sandboxes == []
    async with Provider(workspace, engine=engine, settings=chosen(workspace)) as provider:
        assert provider.check(tool.name, tool.refused).decision.name == "REFUSE"
        assert provider.check(tool.name, tool.refused).reasons


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.asks], ids=lambda tool: tool.name)
@pytest.mark.parametrize("answer", list(Answer))
async def test_an_approver_decides(tool: Tool, answer: Answer, workspace: Path):
    """A yes runs it, a no does not, and the approver saw the very command that ran."""
    seen: list[Question] = []

    async def ann(question: Question) -> Answer:
        seen.append(question)
        return answer

    engine = FakeEngine()
    reply = await call(tool, tool.call, workspace, engine, tables=tool.asks, approver=ann)
    is_yes = answer in {Answer.ONCE, Answer.SESSION, Answer.ALWAYS}
    assert (reply.success, len(engine.sandboxes), len(seen)) == (is_yes, int(is_yes), 1)
    if is_yes:
        assert engine.sandboxes[0].released == seen[0].plan.exec


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.asks], ids=lambda tool: tool.name)
async def test_without_an_approver_nothing_is_approved(tool: Tool, workspace: Path):
    """Headless, a rule that asks is a no."""
    engine = FakeEngine()
    assert not (await call(tool, tool.call, workspace, engine, tables=tool.asks)).success
    assert engine.sandboxes == []


@each_tool
async def test_a_listener_that_fails_spoils_the_success(tool: Tool, workspace: Path):
    """Exit 0 with events that somebody did not get is not a success."""

    def broken(event: object) -> None:
        raise RuntimeError

    engine = FakeEngine(script(ENDINGS["exit 0"], Chunk("stdout", b"x")))
    assert not (await call(tool, tool.call, workspace, engine, on_event=broken)).success


@each_tool
async def test_bytes_that_are_no_text_survive(tool: Tool, workspace: Path):
    """They come as base64, or with the mark that stands for them; what is around them is whole."""
    data = b"before \xff\xfe\x80 after"
    events: list[Any] = []
    reply = await call(
        tool, tool.call, workspace, FakeEngine(script(ENDINGS["exit 0"], Chunk("stdout", data))), on_event=events.append
    )
    everything = text(reply) + json.dumps(events, ensure_ascii=False)
    assert base64.b64encode(data).decode() in everything or "\ufffd" in everything
    assert "before" in everything
    assert "after" in everything


@each_tool
async def test_no_reply_carries_another_contracts_words(tool: Tool, workspace: Path):
    """Over every ending, refusal and fault."""
    engines = [FakeEngine(script(ending, Chunk("stdout", b"out"))) for ending in ENDINGS.values()]
    replies = [await call(tool, tool.call, workspace, engine) for engine in engines]
    replies += [await call(tool, tool.call, workspace, FakeEngine(open_error=fault)) for fault in FAULTS]
    replies += [await call(tool, payload, workspace) for payload in (tool.refused, {}, [], None, "x")]
    foreign = [word for other in TOOLS if other is not tool for word in other.words]
    assert [(word, text(reply)) for reply in replies for word in foreign if word in text(reply)] == []


RULES = """
default = "allow"
[[rule]]
name = "no echo"
decision = "refuse"
because = "it is loud"
program = "echo"
matches = ["echo x"]
"""


@each_tool
async def test_the_users_rules_hold_under_every_contract(tool: Tool, workspace: Path, tmp_path: Path):
    """A rule file refuses what a contract would allow; check says which rule, and nothing runs."""
    (tmp_path / "rules.toml").write_text(RULES)
    engine = FakeEngine()
    ruled = chosen(workspace, rules=tmp_path / "rules.toml")
    async with Provider(workspace, engine=engine, settings=ruled) as provider:
        verdict = provider.check(tool.name, tool.call)
        reply = await provider.call(tool.name, tool.call)
    assert verdict.decision.name == "REFUSE"
    assert any("no echo: it is loud" in reason for reason in verdict.reasons)
    assert not reply.success
    assert engine.sandboxes == []


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@each_tool
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_whatever_is_called_is_answered(tool: Tool, workspace: Path, data: st.DataObject):
    """No payload raises, and none that is not a call of this contract makes a container."""
    fields = sorted({*tool.call, "command", "directory", "cwd", "env", "timeout", "parameters", "artifact_paths"})
    payload = data.draw(anything | st.dictionaries(st.sampled_from(fields), anything, max_size=5))
    engine = FakeEngine()
    reply = asyncio.run(call(tool, payload, workspace, engine))
    assert isinstance(reply, Reply)
    json.dumps(reply.content)
    assert not (reply.success and not engine.sandboxes)
    if not isinstance(payload, dict) or not isinstance(payload.get("command"), str):
        assert engine.sandboxes == []
