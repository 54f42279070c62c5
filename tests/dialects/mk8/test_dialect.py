"""The contract over an engine without containers: what is said, what is handed to a sandbox, and by whose leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pytest

from provider import Provider, Settings
from provider.dialects.contract import Reply
from provider.dialects.mk8 import Mk8
from provider.dialects.mk8.actions import ActionFailed
from provider.dialects.mk8.call import Call
from provider.dialects.mk8.perform import PROGRAM
from provider.dialects.mk8.registry import Registry
from provider.dialects.mk8.status import Status
from provider.dialects.mk8.table import container_id
from provider.errors import ConfigError
from provider.inside.mk8.compiled import Compiled
from provider.inside.mk8.execute import execute
from provider.model import Begun, Chunk, Ending, Message
from provider.testing import PID, FakeEngine, FakeSandbox

SCRIPT, SHELL, SPEECH = "execute_mk8_shell", "execute_dangerous_shell", "transcribe_from_audio_file"
USER, AUDIO, OTHER = (f"6d6b3800-0000-4000-8000-0000000000{end}" for end in ("aa", "bb", "cc"))
ENDED: Final = Ending(reason="exited", exit_code=0, pid=PID)
ECHO: Final = {"operations": [{"verb": "Echo", "args": ["hello $GREETING"]}]}
BASH: Final = {"resourceId": USER, "shellType": "Bash", "command": "echo hi"}


def grants(*pairs: tuple[str, int], **more: Any) -> dict[str, Any]:
    return {"grants": [{"action": action, "clearance": clearance} for action, clearance in pairs], **more}


async def executes(sandbox: FakeSandbox) -> AsyncIterator[Message]:
    """Plays the program that runs in the sandbox, on whatever script it was sent; any other command ends at once."""
    yield Begun(PID)
    if sandbox.released is None or sandbox.released.argv != PROGRAM:
        yield ENDED
        return
    await sandbox.stdin_closed.wait()
    lines: list[bytes] = []
    compiled = Compiled.from_json(json.loads(b"".join(sandbox.stdin)))
    result = execute(compiled, lambda event: lines.append(json.dumps(event).encode()))
    lines.append(json.dumps({"event": "result", "result": result}).encode())
    for line in lines:
        yield Chunk("stdout", line + b"\n")
    yield ENDED


class Desk:
    """A provider over a fake engine, with one registered sandbox."""

    def __init__(
        self, workspace: Path, script: Any = executes, *, rules: Path | None = None, nowhere: bool = False, **table: Any
    ) -> None:
        self.workspace = workspace
        self.home = workspace.parent / "home"
        self.engine = FakeEngine(script)
        known = {"system_users": [{"id": USER, "uid": 1234, "gid": 5678, "working_directory": "/workspace"}]}
        tools = {"mk8": {"home": self.home, **known, "audio": [{"id": AUDIO, "file": "a.wav"}], **table}}
        settings = Settings(spares=0, tools=tools, rules=rules)
        self.provider = Provider(None if nowhere else workspace, engine=self.engine, settings=settings)
        self.root = workspace.parent / "root"
        self.events: list[Mapping[str, Any]] = []
        if not self.home.exists():
            Registry(self.home).register("Box", self.root, {"GREETING": "you"})

    @property
    def mk8(self) -> Mk8:
        found = self.provider.dialect(SCRIPT)
        assert isinstance(found, Mk8)
        return found

    async def call(self, tool: str, payload: object, **more: Any) -> Reply:
        return await self.provider.call(tool, payload, session="s", on_event=self.events.append, **more)

    def check(self, tool: str, payload: object) -> tuple[str, str]:
        verdict = self.provider.check(tool, payload)
        return verdict.decision.name, "; ".join(verdict.reasons)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.provider.close()


Make = Callable[..., Desk]


@pytest.fixture
def make(workspace: Path, installed: None) -> Make:
    return lambda *script, **table: Desk(workspace, *script, **table)


# What is handed over.


async def test_a_script_is_sent_compiled_to_a_sandbox_over_its_own_root(make: Make):
    """Not over the caller's workspace; the reply is the contract's text, and events carry the JSON."""
    async with make(network="open", script_seconds=7) as desk:
        reply = await desk.call(SCRIPT, {"sandboxId": "box", "script": ECHO}, call_id="c")
    (sandbox,) = desk.engine.sandboxes
    assert sandbox.box.workspace.path == desk.root
    assert sandbox.box.network == "open"
    assert sandbox.released is not None
    assert sandbox.released.argv == PROGRAM
    compiled = Compiled.from_json(json.loads(b"".join(sandbox.stdin)))
    assert (compiled.root, compiled.script_timeout, compiled.network) == ("/workspace", 7, "open")
    lines = reply.content.splitlines()
    assert (reply.success, lines[0]) == (True, "status=Completed result=AllSucceeded: True")
    assert lines[-1] == "    Output: hello you"
    assert [event["type"] for event in desk.events] == ["mk8_step", "mk8_step", "mk8_result", "mk8_job"]
    assert {event["callId"] for event in desk.events} == {"c"}
    assert desk.events[2]["steps"][0]["output"] == "hello you"


async def test_a_dangerous_shell_is_released_as_its_system_user(make: Make):
    """With the uid, gid and directory of the resource, and no more time than the operator gives."""
    async with make([Begun(PID), ENDED], agent_permissions=grants((SHELL, 5)), dangerous_seconds=3) as desk:
        assert (await desk.call(SHELL, {**BASH, "shellType": "git", "command": "log  -n 1"})).success
    (sandbox,) = desk.engine.sandboxes
    assert (sandbox.box.uid, sandbox.box.gid, sandbox.box.workspace.path) == (1234, 5678, desk.workspace)
    assert sandbox.released is not None
    assert sandbox.released.argv == ("git", "log", "-n", "1")
    assert sandbox.released.timeout == 3
    assert ("GIT_TERMINAL_PROMPT", "0") in sandbox.released.env


async def test_transcription_has_its_own_image_and_cannot_write(make: Make):
    """The file is the device's, whatever the call says."""
    async with make([Begun(PID), Chunk("stdout", b"hello\n"), ENDED], agent_permissions=grants((SPEECH, 5))) as desk:
        reply = await desk.call(SPEECH, {"targetId": AUDIO})
    (sandbox,) = desk.engine.sandboxes
    assert reply.content == "status=Completed result=hello"
    assert (sandbox.box.image.name, sandbox.box.read_only) == ("sandbox-provider/speech", True)
    assert sandbox.released is not None
    assert "/workspace/a.wav" in sandbox.released.argv


# Sandboxes that do not come to their end.

LOST: Final = {
    "timed out": (Ending(reason="timed_out", signal=9, pid=PID), "its time was over"),
    "no python": (Ending(reason="exited", error="python3: No such file", error_number=2), "needs python3 in the image"),
    "no memory": (Ending(reason="exited", signal=9, pid=PID, oom_kills=1), "for want of memory"),
    "silent": (ENDED, "the sandbox ended before the script did"),
}


@pytest.mark.parametrize("name", LOST)
async def test_a_lost_sandbox_is_a_failed_script(make: Make, name: str):
    """With a reason; and the step that was to run is the one that failed."""
    ending, says = LOST[name]
    async with make([Begun(PID), ending] if ending.pid else [ending]) as desk:
        reply = await desk.call(SCRIPT, {"sandboxId": "box", "script": ECHO})
    assert reply.content.startswith("status=Failed error=mk8.shell script execution failed\n")
    assert says in reply.content
    assert "[0] Echo FAIL" in reply.content


async def test_a_sandbox_that_lies_is_not_believed(make: Make):
    """A result without the steps that it would need is none."""
    lie = json.dumps(
        {"event": "result", "result": {"allSucceeded": True, "totalDuration": "00:00:00.0000000", "steps": []}}
    )
    async with make([Begun(PID), Chunk("stdout", lie.encode() + b"\n"), ENDED]) as desk:
        reply = await desk.call(SCRIPT, {"sandboxId": "box", "script": ECHO})
    assert not reply.success
    assert "mk8.shell container error: " in reply.content


# What would be said.

RULES: Final = """
default = "allow"
[[rule]]
name = "no scripts"
decision = "refuse"
because = "not here"
program = ["mk8.shell", "mk8.transcribe", "git"]
matches = ["mk8.shell", "git x", "mk8.transcribe"]
"""
PAID: Final = {"sandboxId": "box", "script": ECHO}
CHECKS: Final[dict[str, tuple[dict[str, Any], str, object, str, str]]] = {
    "a script that compiles": ({}, SCRIPT, PAID, "ALLOW", ""),
    "by its resource": ({}, SCRIPT, {"resourceId": container_id("box"), "script": ECHO}, "ALLOW", ""),
    "another sandbox's resource": (
        {},
        SCRIPT,
        {**PAID, "sandboxId": "web", "resourceId": container_id("box")},
        "REFUSE",
        "has the sandbox 'Box', not 'web'",
    ),
    "a script that does not compile": (
        {},
        SCRIPT,
        {"sandboxId": "box", "script": {"operations": [{"verb": "Nope", "args": []}]}},
        "REFUSE",
        "mk8.shell compile error [Nope]",
    ),
    "an unknown sandbox": (
        {},
        SCRIPT,
        {**PAID, "sandboxId": "web"},
        "REFUSE",
        "no container has the mk8.shell sandbox",
    ),
    "no sandbox at all": ({}, SCRIPT, {"script": ECHO}, "REFUSE", "resourceId is required"),
    "a default resource": (
        {"channel_permissions": {"default_resources": {SCRIPT: container_id("box")}}},
        SCRIPT,
        {"script": ECHO},
        "ALLOW",
        "",
    ),
    "no call": ({}, SCRIPT, {}, "REFUSE", "malformed arguments"),
    "a dangerous shell": ({}, SHELL, BASH, "ASK", "needs the approval of a user who holds the same grant"),
    "one that is granted": ({"agent_permissions": grants((SHELL, 5))}, SHELL, BASH, "ALLOW", ""),
    "one that nobody may approve": ({"agent_permissions": grants((SHELL, 3))}, SHELL, BASH, "ASK", "another agent"),
    "one that the channel lets through": ({"channel_permissions": grants((SHELL, 0))}, SHELL, BASH, "ALLOW", ""),
    "one that was never granted": ({"agent_permissions": grants()}, SHELL, BASH, "REFUSE", "has no grant for"),
    "CommandPrompt": ({}, SHELL, {**BASH, "shellType": "CommandPrompt"}, "REFUSE", "use shellType Bash"),
    "no SystemUser": ({}, SHELL, {**BASH, "resourceId": OTHER}, "REFUSE", "is no SystemUser"),
    "transcription": ({}, SPEECH, {"targetId": AUDIO}, "REFUSE", "has no grant for"),
    "no audio": ({"agent_permissions": grants((SPEECH, 5))}, SPEECH, {"targetId": OTHER}, "REFUSE", "is no audio"),
    "no such model": (
        {"agent_permissions": grants((SPEECH, 5))},
        SPEECH,
        {"targetId": AUDIO, "transcriptionModelId": OTHER},
        "REFUSE",
        "there is no transcription model",
    ),
    "an action": ({"agent_permissions": grants(("create_sub_agent", 5))}, "create_sub_agent", {}, "ALLOW", ""),
    "a text": ({}, "tool_calls", f"[TOOL_CALL:1] {json.dumps(PAID)}", "ALLOW", ""),
    "a text as JSON": ({}, "tool_calls", {"text": f"[TOOL_CALL:1] {json.dumps(PAID)}"}, "ALLOW", ""),
    "a text with two": (
        {},
        "tool_calls",
        f"[TOOL_CALL:1] {json.dumps(PAID)}\n[TOOL_CALL:2] {json.dumps(BASH)}",
        "ASK",
        "needs the approval",
    ),
    "a text without a call": ({}, "tool_calls", "hello", "REFUSE", "there is no [TOOL_CALL:id] in the text"),
    "no text": ({}, "tool_calls", 7, "REFUSE", "there is no [TOOL_CALL:id] in the text"),
}


@pytest.mark.parametrize("name", CHECKS)
async def test_check_says_what_would_be_said(make: Make, name: str):
    """Neither a container nor a job comes of it, and the call itself goes as was said."""
    table, tool, payload, decision, says = CHECKS[name]
    async with make(**table) as desk:
        got, reasons = desk.check(tool, payload)
        assert (got, says in reasons) == (decision, True), reasons
        assert (desk.engine.sandboxes, (desk.home / "jobs.sqlite").exists()) == ([], False)
        reply = await desk.call(tool, payload)
        assert ("status=AwaitingApproval" in reply.content) == (decision == "ASK")
        if decision == "REFUSE":
            assert (reply.success, desk.engine.sandboxes) == (False, [])
            assert says in reply.content


@pytest.mark.parametrize(
    ("tool", "payload", "table"),
    [
        (SCRIPT, PAID, {}),
        (SHELL, {**BASH, "command": "true && git push"}, {}),
        (SHELL, {**BASH, "shellType": "Git", "command": "push"}, {}),
        (SPEECH, {"targetId": AUDIO}, {"agent_permissions": grants((SPEECH, 5))}),
    ],
)
async def test_the_operators_rules_are_stricter_than_any_grant(
    make: Make, tmp_path: Path, tool: str, payload: Mapping[str, Any], table: dict[str, Any]
):
    """A rule refuses what permissions allow or would ask about, in check and in the call, approved or not."""
    (tmp_path / "rules.toml").write_text(RULES)
    async with make(rules=tmp_path / "rules.toml", **table) as desk:
        got, reasons = desk.check(tool, payload)
        assert (got, "no scripts: not here" in reasons) == ("REFUSE", True)
        reply = await desk.call(tool, payload)
        if "AwaitingApproval" in reply.content:
            job = await desk.mk8.approve(desk.events[-1]["jobId"])
            assert job.status is Status.FAILED
            reply = Reply(content=str(job.error), success=False)
        assert "no scripts: not here" in reply.content
        assert (reply.success, desk.engine.sandboxes) == (False, [])


# Approvals, handlers, and the end.


async def test_an_approval_can_come_from_another_process_and_place(make: Make):
    """Another provider, without a workspace, runs the job where it was asked for."""
    async with make([Begun(PID), ENDED]) as desk:
        assert (await desk.call(SHELL, BASH)).content == "status=AwaitingApproval"
        job = desk.events[-1]["jobId"]
    async with make([Begun(PID), Chunk("stdout", b"done"), ENDED], nowhere=True) as other:
        assert (await other.mk8.approve(job)).result == "done"
    assert desk.engine.sandboxes == []
    assert other.engine.sandboxes[0].box.workspace.path == desk.workspace


async def test_what_can_never_run_is_not_put_to_anybody(make: Make):
    """A person would be asked about nothing."""
    table = {"agent_permissions": grants((SCRIPT, 1), (SHELL, 1))}
    async with make(**table) as desk:
        for tool, payload in ((SHELL, {**BASH, "shellType": "CommandPrompt"}), (SCRIPT, {**PAID, "script": {}})):
            assert (await desk.call(tool, payload)).content.startswith("status=Failed error=")
        assert [job.status for job in desk.mk8.foreman.jobs.list()] == [Status.FAILED, Status.FAILED]


async def test_the_host_programs_handlers_answer_actions(make: Make):
    """Also transcription, where one is registered; without one the reply says that nothing was done."""
    async with make(agent_permissions=grants(("access_website", 5), (SPEECH, 5))) as desk:
        reply = await desk.call("access_website", {"targetId": OTHER})
        assert reply.content.startswith(
            f"status=Completed result=access_website on resource {OTHER} was permitted, but"
        )

        async def handle(call: Call) -> str:
            if call.resource != OTHER:
                raise ActionFailed("no such site")
            return f"{call.action} done"

        for action in ("access_website", SPEECH):
            desk.mk8.actions.register(action, handle)
        assert (await desk.call(SPEECH, {"targetId": OTHER})).content == f"status=Completed result={SPEECH} done"
        reply = await desk.call("access_website", {"targetId": AUDIO})
        assert (reply.success, reply.content) == (False, "status=Failed error=no such site")
    assert desk.engine.sandboxes == []


async def test_results_of_a_text_are_in_order(make: Make):
    """One line for each call, also for one that cannot be read, and for one that was cut."""
    text = f'[TOOL_CALL:a] {json.dumps(PAID)}\n[TOOL_CALL:b] {{"x": 1}}\n[TOOL_CALL:c] {{"y":'
    async with make() as desk:
        reply = await desk.call("tool_calls", text)
    heads = [line.split()[:2] for line in reply.content.splitlines() if line.startswith("[TOOL_RESULT")]
    assert heads == [
        ["[TOOL_RESULT:a]", "status=Completed"],
        ["[TOOL_RESULT:b]", "status=Failed"],
        ["[TOOL_RESULT:c]", "status=Failed"],
    ]
    assert not reply.success


async def test_closing_the_provider_ends_its_jobs(make: Make):
    """What ran is Cancelled in the record, what waits goes on waiting, and the store is let go of."""
    running = asyncio.Event()

    async def hangs(sandbox: FakeSandbox) -> AsyncIterator[Message]:
        yield Begun(PID)
        running.set()
        await asyncio.Event().wait()

    desk = make(hangs)
    await desk.call(SHELL, BASH)
    call = asyncio.ensure_future(desk.call(SCRIPT, PAID))
    await asyncio.wait_for(running.wait(), 10)
    await desk.provider.close()
    assert not (await asyncio.wait_for(call, 10)).success
    assert sorted(path.name for path in desk.home.glob("jobs*")) == ["jobs.sqlite"]
    async with make() as later:
        statuses = [job.status for job in later.mk8.foreman.jobs.list()]
    assert statuses[0] in {Status.CANCELLED, Status.FAILED}
    assert statuses[1] is Status.AWAITING_APPROVAL


async def test_a_home_that_cannot_be_used_is_said(make: Make):
    """In the reply, as whatever goes wrong; and as a refusal in a check."""
    async with make() as desk:
        desk.home.chmod(0o777)
        assert "can be written by others" in (await desk.call(SCRIPT, PAID)).content
        assert desk.check(SCRIPT, PAID)[0] == "REFUSE"
        desk.home.chmod(0o700)


# Settings.

MISTAKES: Final[Iterable[tuple[dict[str, Any], str]]] = (
    ({"home": "relative"}, "home: "),
    ({"surprise": 1}, "surprise: "),
    ({"network": "host"}, "network: "),
    ({"script_seconds": 0}, "script_seconds: "),
    ({"dangerous_seconds": 3601}, "dangerous_seconds: "),
    ({"agent_permissions": grants(("nope", 5))}, "agent_permissions.grants.0.action: "),
    ({"agent_permissions": grants((SHELL, 6))}, "agent_permissions.grants.0.clearance: "),
    ({"agent_permissions": grants((SHELL, 1), (SHELL, 5))}, "agent_permissions: "),
    ({"context_permissions": grants((SHELL, 1), (SHELL, 5))}, "context_permissions: "),
    ({"user_permissions": {"grants": [{"action": SHELL, "resource": "x"}]}}, "user_permissions.grants.0.resource: "),
    ({"channel_permissions": {"default_resources": {"nope": USER}}}, "channel_permissions.default_resources.nope"),
    ({"system_users": [{"id": "x", "uid": 1, "gid": 1}]}, "system_users.0.id: "),
    ({"system_users": [{"id": USER, "uid": -1, "gid": 1}]}, "system_users.0.uid: "),
    ({"audio": [{"id": AUDIO}]}, "audio.0.file: "),
    ({"models": [{"id": AUDIO, "language": "de"}]}, "models.0.acoustic: "),
)


@pytest.mark.parametrize(("table", "says"), MISTAKES, ids=lambda value: value if isinstance(value, str) else "")
async def test_settings_that_do_not_fit_are_named_by_their_key(make: Make, table: dict[str, Any], says: str):
    """Before anything is called."""
    async with make(**table) as desk:
        with pytest.raises(ConfigError, match=r"settings: \[tools.mk8\] ") as caught:
            desk.check(SCRIPT, PAID)
    assert says in str(caught.value)
