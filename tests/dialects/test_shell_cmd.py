"""The `shell_cmd` contract over a provider whose engine makes no containers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from provider import Provider
from provider.approval import Answer, Question
from provider.dialects.contract import Context
from provider.dialects.shell_cmd import TOOLS, ShellCmd, dialect
from provider.dialects.shell_cmd.registry import Record
from provider.errors import ConfigError, EngineUnavailable
from provider.model import Begun, Chunk, Decision, Ending, State
from provider.questions import Questions
from provider.settings import Settings
from provider.testing import PID, FakeEngine, FakeSandbox

SETTINGS = Settings(grace=0.05, spares=0)
WAITS = (Begun(PID), Chunk("stdout", b"partial"))
DONE = Ending(reason="exited", exit_code=0, pid=PID)

Events = list[Mapping[str, Any]]


pytestmark = pytest.mark.usefixtures("installed")


class Setup:
    """One contract over one provider, with what it emits."""

    def __init__(self, provider: Provider, engine: FakeEngine, workspace: Path, table: dict[str, Any]) -> None:
        self.provider, self.engine, self.workspace = provider, engine, workspace
        self.shell: ShellCmd = dialect(provider, {"shell_cmd": table})
        self.events: Events = []
        self.streamed = asyncio.Event()
        self.reached: dict[State, asyncio.Event] = {state: asyncio.Event() for state in State}
        self.shell.registry.listen(self._note)

    def _note(self, record: Record) -> None:
        self.reached[record.status].set()

    async def emit(self, event: Mapping[str, Any]) -> None:
        json.dumps(event)  # whoever listens may write it down
        self.events.append(event)
        if event["type"] == "tool-stream":
            self.streamed.set()

    def context(self, session: str = "world/chat", **parts: Any) -> Context:
        return Context(workspace=self.workspace, session=session, call_id="call-1", emit=self.emit, **parts)

    def call(self, command: str, *parameters: str, session: str = "world/chat", **more: Any) -> asyncio.Task[Any]:
        payload = {"command": command, "parameters": list(parameters), **more}
        return asyncio.ensure_future(self.shell.call("shell_cmd", payload, self.context(session)))

    async def until(self, state: State) -> None:
        await asyncio.wait_for(self.reached[state].wait(), 5)

    def of(self, *kinds: str) -> Events:
        return [event for event in self.events if event["type"] in kinds]


Made = Callable[..., Setup]


@pytest.fixture
async def made(workspace: Path) -> AsyncIterator[Made]:
    """Makes a contract over an engine that plays a script."""
    providers: list[Provider] = []

    def make(script: Any = None, *, table: dict[str, Any] | None = None, engine: Any = None, **options: Any) -> Setup:
        engine = engine or FakeEngine(script or [Begun(PID), DONE])
        provider = Provider(workspace, **{"settings": SETTINGS, "engine": engine, **options})
        providers.append(provider)
        return Setup(provider, engine, workspace, table or {})

    yield make
    for provider in providers:
        await provider.close()


def says(*chunks: Chunk, exit_code: int = 0) -> list[Any]:
    return [Begun(PID), *chunks, Ending(reason="exited", exit_code=exit_code, pid=PID)]


# A call that goes well.


async def test_a_call_is_answered(made: Made):
    """The command runs as argv, without stdin, in its directory; the reply is the contract's markdown."""
    setup = made(says(Chunk("stdout", b"hi\n")))
    (setup.workspace / "sub").mkdir()
    reply = await setup.call("echo", "$HOME", "a b", "*", directory="sub")
    released = setup.engine.sandboxes[0].released
    assert (released.argv, released.cwd, released.timeout) == (("echo", "$HOME", "a b", "*"), "/workspace/sub", 600.0)
    assert not setup.engine.sandboxes[0].has_stdin
    assert reply.success
    assert reply.content.startswith('### Command Execution\n\n**Command:** `echo $HOME "a b" *`\n**Duration:** ')


async def test_the_provider_finds_the_contract_by_its_name(made: Made):
    """`Provider.call` and `Provider.check` answer for `shell_cmd`."""
    setup = made(says(Chunk("stdout", b"hi\n")))
    events: Events = []
    reply = await setup.provider.call("shell_cmd", {"command": "ls"}, session="w/c", on_event=events.append)
    assert reply.success
    assert [event["chatId"] for event in events if event["type"] == "tool-stream"] == ["c"]
    assert setup.provider.check("shell_cmd", {"command": "rm", "parameters": ["x"]}).decision is Decision.ASK


async def test_streams_are_told_in_the_contracts_shape(made: Made):
    """One tool-stream event a chunk, between start and result; a split character is whole, half a one is not lost."""
    euro = "€".encode()
    chunks = (
        Chunk("stdout", b"a" + euro[:1]),
        Chunk("stderr", b"b"),
        Chunk("stdout", euro[1:]),
        Chunk("stdout", euro[:1]),
    )
    setup = made(says(*chunks))
    await setup.call("ls")
    assert [event["type"] for event in setup.events] == ["tool-start", *["tool-stream"] * 4, "tool-result"]
    assert setup.events[2] == {
        "type": "tool-stream",
        "toolName": "shell_cmd",
        "content": "b",
        "stream": "stderr",
        "messageId": "call-1",
        "agentName": "shell_cmd",
        "worldId": "world",
        "chatId": "chat",
    }
    stdout = [event["content"] for event in setup.of("tool-stream") if event["stream"] == "stdout"]
    assert stdout == ["a", "€", "\ufffd"]


async def test_the_start_and_the_end_are_told(made: Made):
    """With input, corrections, result, its size, duration and the record."""
    setup = made(says(Chunk("stdout", b"hi\n"), exit_code=3))
    context = setup.context()
    reply = await setup.shell.call("shell_cmd", {"command": "ls", "parameters": "-l"}, context)
    start, end = (event["toolExecution"] for event in setup.of("tool-start", "tool-error"))
    assert (start["toolName"], start["toolCallId"]) == ("shell_cmd", "call-1")
    assert (start["input"]["parameters"], start["metadata"]["corrections"]) == (["-l"], ["parameters: string -> array"])
    assert (end["result"], end["resultType"], end["resultSize"]) == (reply.content, "string", len(reply.content))
    assert (end["error"], end["metadata"]["reason"]) == ("Command exited with code 3", "non_zero_exit")
    assert end["metadata"]["execution"]["exitCode"] == 3
    assert end["metadata"]["executionId"] == start["metadata"]["executionId"]


async def test_row_66_a_listener_that_throws_ends_nothing(made: Made):
    """Row 66: the run completes with exit 0 and all of its output; yet it does not read as success."""
    setup = made(says(Chunk("stdout", b"one"), Chunk("stdout", b"two")))

    async def broken(event: Mapping[str, Any]) -> None:
        if event["type"] == "tool-stream":
            raise RuntimeError("screen gone")

    context = Context(workspace=setup.workspace, emit=broken)
    reply = await setup.shell.call("shell_cmd", {"command": "ls", "output_format": "json"}, context)
    data = json.loads(reply.content)
    assert (data["exit_code"], data["stdout"], reply.success) == (0, "onetwo", False)
    assert setup.shell.registry.list()[0].status is State.COMPLETED


async def test_a_listener_that_throws_at_the_end_is_not_forgotten(made: Made):
    """Also the last event counts: whoever records results has not recorded this one."""
    setup = made()

    async def broken(event: Mapping[str, Any]) -> None:
        if event["type"] == "tool-result":
            raise RuntimeError

    context = Context(workspace=setup.workspace, emit=broken)
    assert not (await setup.shell.call("shell_cmd", {"command": "ls"}, context)).success


async def test_artifacts_are_hashed_after_the_run(made: Made):
    """The file as the command left it; a path out of scope is refused before anything runs (row 67)."""

    async def build(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        (sandbox.box.workspace.path / "out[1].bin").write_bytes(b"new")
        yield DONE

    setup = made(build)
    (setup.workspace / "out[1].bin").write_bytes(b"old")
    reply = await setup.call("make", artifact_paths=["./out[1].bin"], output_format="json")
    sha256 = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"
    assert json.loads(reply.content)["artifacts"] == [{"path": "out[1].bin", "sha256": sha256, "bytes": 3}]
    refused = await setup.call("make", artifact_paths=["/etc/passwd"])
    assert "Working directory mismatch: artifact path" in refused.content
    assert len(setup.engine.sandboxes) == 1


# Refusals.


@pytest.mark.parametrize(
    "payload",
    [None, {}, {"command": "a b"}, {"command": "ls", "parameters": ["/etc"]}, {"command": "rm", "parameters": ["x"]}],
    ids=str,
)
async def test_a_refused_call_creates_no_container(made: Made, payload: Any):
    """Bad payloads, broken rules, and what nobody approved: a reply, an event, and nothing on the engine."""
    setup = made()
    reply = await setup.shell.call("shell_cmd", payload, setup.context())
    assert not reply.success
    assert "❌ Error" in reply.content
    assert setup.engine.sandboxes == []
    assert setup.events[-1]["type"] == "tool-error"


async def test_a_bad_payload_is_told_to_the_chat(made: Made):
    """As the contract's system event."""
    setup = made()
    await setup.shell.call("shell_cmd", {"command": "ls", "cmd": 1}, setup.context())
    assert setup.events[0] == {
        "type": "error",
        "eventType": "error",
        "message": "Tool parameter validation errors for shell_cmd: Unknown parameter 'cmd' is not allowed",
        "worldId": "world",
        "chatId": "chat",
    }
    assert setup.events[1]["toolExecution"]["metadata"]["executionId"] == "validation-error"
    assert len(setup.shell.registry) == 0


@pytest.mark.parametrize(
    ("permission", "command", "decision"),
    [
        ("read", "ls", Decision.REFUSE),
        ("ask", "ls", Decision.ASK),
        ("ask", "rm", Decision.ASK),
        ("auto", "ls", Decision.ALLOW),
        ("auto", "rm", Decision.ASK),
        ("auto", "mkfs", Decision.REFUSE),
    ],
)
async def test_permission_levels(made: Made, permission: str, command: str, decision: Decision):
    """Read runs nothing (row 68), ask asks about everything, auto about risks; blocked stays blocked."""
    setup = made(table={"permission": permission})
    assert setup.shell.check("shell_cmd", {"command": command}, setup.context()).decision is decision
    reply = await setup.call(command)
    assert reply.success is (decision is Decision.ALLOW)
    assert len(setup.engine.sandboxes) == (decision is Decision.ALLOW)
    if permission == "read":
        assert "permission level (read)" in reply.content


@pytest.mark.parametrize("table", [{"permission": "all"}, {"permissions": "ask"}, {"reply": 5}])
def test_a_table_that_does_not_fit_is_an_error(table: dict[str, Any], made: Made):
    """A misspelt setting is named, not ignored: it may be the one that was to protect."""
    with pytest.raises(ConfigError, match=r"\[tools\.shell_cmd\]"):
        made(table=table)


async def test_an_engine_that_is_down_is_not_a_failed_command(made: Made):
    """The reply says that our side failed; the record has no exit code."""
    setup = made(engine=FakeEngine(open_error=EngineUnavailable("no answer")))
    reply = await setup.call("ls", output_format="json")
    assert json.loads(reply.content)["error"].startswith("Shell command could not be run: the sandbox engine")
    record = setup.shell.registry.list()[0]
    assert (record.status, record.exit_code) == (State.FAILED, None)


# Approval.


async def test_the_prompt_has_the_contracts_shape(made: Made):
    """Title, four lines, two options, no way to allow more than this call."""
    setup = made()
    await setup.call("rm", "-rf", "./build")
    (prompt,) = (event["toolExecution"]["metadata"]["hitlPrompt"] for event in setup.of("tool-progress"))
    question = prompt["questions"][0]
    assert (prompt["requestId"], prompt["allowSkip"], prompt["chatId"]) == ("call-1::approval", False, "chat")
    assert question["header"] == "Approve risky shell command?"
    assert question["question"].split("\n") == [
        "Command: rm -rf ./build",
        "Risk: destructive_delete",
        f"Trusted directory: {setup.workspace}",
        "Proceed with this command?",
    ]
    assert [option["id"] for option in question["options"]] == ["approve", "deny"]
    assert prompt["metadata"] == {
        "tool": "shell_cmd",
        "riskTier": "hitl_required",
        "riskReason": "destructive_delete",
        "riskTags": ["risk:destructive", "risk:delete"],
        "command": "rm",
        "parameters": ["-rf", "./build"],
        "cwd": str(setup.workspace),
        "toolCallId": "call-1",
    }


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer.ONCE, None),
        (Answer.SESSION, None),
        (Answer.DENY, "approval required for destructive_delete and request was not approved (user_denied)."),
        (Answer.ABORT, "approval required for destructive_delete and request was not approved (user_denied)."),
    ],
)
async def test_a_person_decides(made: Made, answer: Answer, text: str | None):
    """Asked, then granted or denied; a yes for the session is a yes for once."""
    asked: list[Question] = []

    async def person(question: Question) -> Answer:
        asked.append(question)
        return answer

    setup = made(approver=person)
    for _ in range(2):
        reply = await setup.call("rm", "x", output_format="json")
        assert reply.success is (text is None)
        assert text is None or json.loads(reply.content)["error"] == f"Command not executed: {text}"
    assert len(asked) == 2
    assert "destructive_delete" in asked[0].text
    assert "argv[1]  x" in asked[0].text


async def test_an_answer_that_never_comes_is_a_no(made: Made):
    """After its time the question is over."""
    setup = made(approver=Questions(), settings=SETTINGS.model_copy(update={"approval_seconds": 0.01}))
    reply = await setup.call("rm", "x", output_format="json")
    assert json.loads(reply.content)["error"].endswith("was not approved (timeout).")
    assert setup.engine.sandboxes == []


async def test_a_question_can_be_canceled(made: Made):
    """While a person thinks, the execution is queued; canceled, it never starts."""
    questions = Questions()
    setup = made(approver=questions)
    task = setup.call("rm", "x")
    await questions.wait()
    (record,) = setup.shell.registry.list(active_only=True)
    assert record.status is State.QUEUED
    assert await setup.shell.cancel(record.execution_id) == "cancel_requested"
    reply = await task
    assert "**Error:** Command execution canceled by user" in reply.content
    assert setup.engine.sandboxes == []
    assert setup.shell.registry.get(record.execution_id).status is State.CANCELED


# Lifecycle.


async def test_states_are_reached_in_order(made: Made):
    """Queued, starting, running, completed; a listener sees each once."""
    setup = made(says(Chunk("stdout", "né".encode())))
    seen: list[str] = []
    setup.shell.registry.listen(lambda record: seen.append(record.status))
    await setup.call("ls")
    assert seen == ["queued", "starting", "running", "completed"]
    (record,) = setup.shell.registry.list()
    assert (record.world_id, record.chat_id, record.stdout_length, record.exit_code) == ("world", "chat", 2, 0)
    assert setup.shell.registry.result(record.execution_id).stdout.text == "né"


async def test_row_61_canceling_twice(made: Made):
    """Row 61: requested, then already finished; what is not there is not found."""
    setup = made(WAITS)
    task = setup.call("sleep", "60")
    await asyncio.wait_for(setup.streamed.wait(), 5)
    name = setup.shell.registry.list()[0].execution_id
    assert await setup.shell.cancel(name) == "cancel_requested"
    reply = await task
    assert await setup.shell.cancel(name) == "already_finished"
    assert await setup.shell.cancel("none") == "not_found"
    record = setup.shell.registry.get(name)
    assert (record.status, record.cancel_requested, record.signal) == (State.CANCELED, True, "SIGTERM")
    assert record.error == "Command execution canceled by user"
    assert "partial" in reply.content
    assert setup.events[-1]["toolExecution"]["error"] == "Shell command execution canceled by user"


async def test_what_has_no_process_yet_never_gets_one(made: Made):
    """Not cancellable, for there is nothing to end; but the wish is remembered, and nothing is started."""
    setup = made()
    outcomes: list[str] = []

    async def cancel_at_once(event: Mapping[str, Any]) -> None:
        if event["type"] == "tool-start":
            outcomes.append(await setup.shell.cancel(event["toolExecution"]["metadata"]["executionId"]))

    context = Context(workspace=setup.workspace, emit=cancel_at_once)
    reply = await setup.shell.call("shell_cmd", {"command": "ls"}, context)
    assert outcomes == ["not_cancellable"]
    assert not reply.success
    assert "canceled by user" in reply.content
    assert setup.engine.sandboxes == []


async def test_row_62_deleting(made: Made):
    """Row 62: a conflict while it runs, deleted afterwards."""
    setup = made(WAITS)
    task = setup.call("sleep", "60")
    await setup.until(State.RUNNING)
    name = setup.shell.registry.list()[0].execution_id
    assert setup.shell.delete(name).outcome == "active_process_conflict"
    await setup.shell.cancel(name)
    await task
    assert setup.shell.delete(name) == ("deleted", 1)
    assert setup.shell.delete(name).outcome == "not_found"


async def test_row_63_stopping_a_chat_stops_no_other(made: Made):
    """Row 63: of two chats, one is stopped and the other comes to its end."""
    go_on = asyncio.Event()

    async def waits(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        await go_on.wait()
        yield DONE

    setup = made(waits)
    first = setup.call("sleep", session="world/a")
    await setup.until(State.RUNNING)
    setup.reached[State.RUNNING].clear()
    second = setup.call("sleep", session="world/b")
    await setup.until(State.RUNNING)
    assert await setup.shell.stop("world", "none") == {"killed": 0}
    assert await setup.shell.stop("world", "a") == {"killed": 1}
    assert "canceled" in (await first).content
    go_on.set()
    assert (await second).success
    assert [record.status for record in setup.shell.registry.list()] == [State.COMPLETED, State.CANCELED]


async def test_stopping_the_session_at_the_provider_is_the_same(made: Made):
    """`Provider.stop` ends the chat's runs, and the register knows."""
    setup = made(WAITS)
    task = setup.call("sleep")
    await setup.until(State.RUNNING)
    assert await setup.provider.stop(session="world/chat") == 1
    await task
    assert setup.shell.registry.list()[0].status is State.CANCELED


async def test_a_caller_that_gives_up_leaves_no_active_record(made: Made):
    """A cancelled task raises, and its execution is over."""
    setup = made(WAITS)
    task = setup.call("sleep")
    await setup.until(State.RUNNING)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setup.shell.registry.list()[0].status is State.CANCELED


async def test_row_60_a_time_out_is_a_state_of_its_own(made: Made):
    """Row 60: timed_out, with the time in the text."""
    setup = made([Begun(PID), Ending(reason="timed_out", signal=9, pid=PID)])
    reply = await setup.call("sleep", "2", timeout=50, output_format="json")
    data = json.loads(reply.content)
    assert (data["timed_out"], data["error"]) == (True, "Command execution timed out after 50ms")
    assert setup.shell.registry.list()[0].status is State.TIMED_OUT


# AI commands.


async def test_an_ai_command_speaks_as_an_assistant(made: Made):
    """Its words are the reply and a message of the chat; the tool result is kept beside them."""
    setup = made(says(Chunk("stdout", b"The answer is 42.\n"), Chunk("stderr", b"tokens: 7\n")))
    reply = await setup.call("codex", "exec", "what is it")
    assert (reply.content, reply.success) == ("The answer is 42.\n", True)
    tool, assistant = setup.of("message")
    assert (tool["role"], assistant["role"], assistant["content"]) == ("tool", "assistant", reply.content)
    assert tool["content"].startswith("### Command Execution")
    assert "tokens: 7" in tool["content"]
    assert setup.of("tool-result")[0]["toolExecution"]["result"] == tool["content"]
    assert {event["agentName"] for event in setup.of("tool-stream")} == {"codex"}


async def test_an_ai_command_that_fails_brings_its_context(made: Made):
    """The formatted report, for the chat as well as for the history."""
    setup = made(says(Chunk("stderr", b"no key\n"), exit_code=1))
    reply = await setup.call("gemini", "hello")
    assert "no key" in reply.content
    assert [message["content"] for message in setup.of("message")] == [reply.content] * 2


async def test_a_silent_ai_command_says_so(made: Made):
    """No output is a text, too."""
    assert (await made().call("copilot", "x")).content == "(No output)"


async def test_an_ai_command_that_is_stopped_says_nothing(made: Made):
    """No message of the chat, only the event that it was canceled."""
    setup = made(WAITS)
    task = setup.call("codex", "x")
    await setup.until(State.RUNNING)
    await setup.shell.stop("world", "chat")
    await task
    assert setup.of("message") == []
    assert setup.of("tool-error")[0]["toolExecution"]["error"] == "Tool execution canceled by user"


# For models.


async def test_the_short_form_can_be_chosen(made: Made):
    """`reply = "continuation"` is for hosts that feed the reply to the next turn."""
    reply = await made(says(Chunk("stdout", b"hi")), table={"reply": "continuation"}).call("ls")
    assert reply.content == "status: success\nexit_code: 0\ntimed_out: false\ncanceled: false\nstdout_preview:\nhi"


def test_the_tool_tells_models_its_seven_parameters():
    """The schema is closed, and says what the contract takes."""
    (tool,) = TOOLS
    assert tool.name == "shell_cmd"
    assert sorted(tool.parameters["properties"]) == sorted(
        ["command", "parameters", "directory", "timeout", "output_format", "output_detail", "artifact_paths"]
    )
    assert (tool.parameters["required"], tool.parameters["additionalProperties"]) == (["command"], False)
