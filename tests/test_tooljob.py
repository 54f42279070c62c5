"""What `provider.tooljob` promises: payload in, reply out, in the contract's own shape; a bad payload calls nothing."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from provider import dialects
from provider.dialects.contract import Context, Host, Reply
from provider.errors import CallError
from provider.model import Begun, Decision, Stream, Verdict
from provider.provider import Provider
from provider.settings import Settings
from provider.testing import FakeEngine
from provider.tooljob import ToolJob, perform_tool


class Console:
    """A console that was typed into already."""

    size = None

    def __init__(self, typed: bytes) -> None:
        self.typed = typed
        self.said: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}

    def on_signal(self, told: Callable[[int], None]) -> None:
        self.signal = told

    async def stdin(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self.typed), 7):
            yield self.typed[at : at + 7]

    async def write(self, stream: Stream, data: bytes) -> None:
        self.said[stream] += data


class Echo:
    """A contract that answers with what it was asked, having run it."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def call(self, tool: str, payload: object, context: Context) -> Reply:
        await context.emit({"type": "asked", "tool": tool})
        outcome = await self.host.run(
            ["x"], workspace=context.workspace, judged=Verdict(decision=Decision.ASK, reasons=("why",))
        )
        return Reply(content=payload, success=outcome.succeeded)

    def check(self, tool: str, payload: object, context: Context) -> Verdict:
        return Verdict(decision=Decision.REFUSE, reasons=(f"{tool} in {context.workspace.name}",))


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("echo_dialect")
    module.dialect = lambda host, tables: Echo(host)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "echo_dialect", module)
    monkeypatch.setitem(dialects.DIALECTS, "echo", "echo_dialect")
    monkeypatch.setitem(dialects.DIALECTS, "tool_calls", "echo_dialect")


async def perform(job: ToolJob, typed: bytes, folder: Path) -> Console:
    console = Console(typed)
    async with Provider(engine=FakeEngine(), settings=Settings(spares=0)) as provider:
        assert await perform_tool(job, console, provider, folder) == 0
    return console


@pytest.mark.parametrize("payload", [{"command": "ls", "x": [1, None, "é"]}, [], "text", 3])
async def test_a_reply_is_the_contracts_own(workspace: Path, payload: Any):
    """JSON data is one line of JSON, and a text is itself."""
    job = ToolJob(tool="echo", workspace=Path(workspace.name), approve="always")
    console = await perform(job, json.dumps(payload).encode(), workspace.parent)
    said = console.said["stdout"].decode()
    assert (said.removesuffix("\n") if isinstance(payload, str) else json.loads(said)) == payload
    assert said.count("\n") == 1


async def test_events_are_lines_of_json(workspace: Path, tmp_path: Path):
    """They are appended, one a line, to the file that was named."""
    job = ToolJob(tool="echo", workspace=workspace, approve="always", events=Path("events"))
    for _ in range(2):
        await perform(job, b"{}", tmp_path)
    lines = (tmp_path / "events").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"type": "asked", "tool": "echo"}] * 2


async def test_a_check_runs_nothing(workspace: Path):
    """The verdict comes with its reasons, and no container is made."""
    engine, console = FakeEngine(), Console(b"{}")
    async with Provider(engine=engine, settings=Settings(spares=0)) as provider:
        await perform_tool(ToolJob(tool="echo", workspace=workspace, check=True), console, provider, workspace)
    assert json.loads(console.said["stdout"]) == {"decision": "refuse", "reasons": [f"echo in {workspace.name}"]}
    assert engine.sandboxes == []


async def test_nobody_approves_unless_it_was_said(workspace: Path):
    """Without `--approve` a rule that asks is answered with no."""
    from provider.errors import ApprovalRefused

    with pytest.raises(ApprovalRefused):
        await perform(ToolJob(tool="echo", workspace=workspace), b"{}", workspace)


@pytest.mark.parametrize("typed", [b"", b"{", b"\xff", b"[" * 100_000])
async def test_what_is_no_json_is_no_call(workspace: Path, typed: bytes):
    """One clear error; nothing is called."""
    with pytest.raises(CallError, match="as JSON"):
        await perform(ToolJob(tool="echo", workspace=workspace, approve="always"), typed, workspace)


async def test_raw_text_is_taken_as_it_is(workspace: Path):
    """The tool that reads a model's own text gets that text."""
    job = ToolJob(tool="tool_calls", workspace=workspace, approve="always")
    assert (await perform(job, "[TOOL_CALL:é]\n".encode(), workspace)).said["stdout"].decode() == "[TOOL_CALL:é]\n"


async def test_a_signal_ends_the_call(workspace: Path):
    """Ctrl-C cancels what runs, leaves nothing, and is told as 128 and its number."""
    engine, console = FakeEngine([Begun(7)]), Console(b"{}")
    job = ToolJob(tool="echo", workspace=workspace, approve="always")
    async with Provider(engine=engine, settings=Settings(spares=0)) as provider:
        performing = asyncio.create_task(perform_tool(job, console, provider, workspace))
        while not engine.sandboxes:  # noqa: ASYNC110 - in this very loop
            await asyncio.sleep(0)
        console.signal(2)
        assert await performing == 130
        await provider.settle()
        assert provider.runs() == ()
    assert [sandbox.disposals > 0 for sandbox in engine.sandboxes] == [True]
    assert console.said["stdout"] == b""


async def test_an_unknown_tool_is_named(workspace: Path):
    """The error lists those that there are."""
    with pytest.raises(CallError, match=r"no tool 'nothing'.*shell_cmd"):
        await perform(ToolJob(tool="nothing", workspace=workspace), b"{}", workspace)
