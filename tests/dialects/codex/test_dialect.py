"""
What the Codex contract promises as a whole, over an engine without containers: order of events, approvals, escalation,
the one retry, serialisation, replies. What containers do is in tests/sandbox/test_codex.py.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from provider import Provider, Settings
from provider.approval import Answer, Question
from provider.dialects.contract import Reply
from provider.model import Begun, Chunk, Ending, Message
from provider.testing import PID, FakeEngine, FakeSandbox

OK = Ending(reason="exited", exit_code=0, pid=PID)
FAILS = Ending(reason="exited", exit_code=1, pid=PID)
GUARD = (
    "approval policy is {0}; reject command — you should not ask for escalated permissions "
    "if the approval policy is {0}"
)


def plays(*endings: Ending, output: bytes = b"") -> Any:
    """An engine script: each sandbox in turn ends its own way."""
    left = list(endings)

    async def play(sandbox: FakeSandbox) -> Any:
        yield Begun(PID)
        if output:
            yield Chunk("stdout", output)
        yield left.pop(0) if len(left) > 1 else left[0]

    return play


class Case:
    """Calls under one table, with everything that can be seen of them."""

    def __init__(self, workspace: Path, table: Mapping[str, Any] = {}, script: Any = None, answers: Sequence[str] = ()):
        self.engine = FakeEngine(script or plays(OK, output=b"hi\n"))
        self.events: list[dict[str, Any]] = []
        self.questions: list[Question] = []
        self.answers = list(answers)
        self.provider = Provider(
            workspace,
            engine=self.engine,
            settings=Settings(spares=0, tools={"codex": dict(table)}),
            approver=self.answer,
        )

    async def answer(self, question: Question) -> Answer:
        self.questions.append(question)
        return Answer(self.answers.pop(0))

    async def call(self, tool: str, payload: object, **options: Any) -> Reply:
        return await self.provider.call(tool, payload, session="s", call_id="c1", on_event=self.hear, **options)

    def hear(self, event: Mapping[str, Any]) -> None:
        self.events.append(dict(event))

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def boxes(self) -> list[tuple[str, bool]]:
        return [(sandbox.box.network, sandbox.box.read_only) for sandbox in self.engine.sandboxes]


def shell(*argv: str, **more: Any) -> dict[str, Any]:
    return {"command": list(argv), **more}


async def test_a_command_begins_tells_and_ends(workspace: Path):
    """The order is the contract's, and so are the fields."""
    case = Case(workspace)
    reply = await case.call("shell", shell("make", "all"))
    assert json.loads(reply.content)["output"] == "hi\n"
    assert reply.content.startswith('{"output":"hi\\n","metadata":{"exit_code":0,"duration_seconds":0.')
    assert case.types == ["exec_command_begin", "exec_command_output_delta", "exec_command_end"]
    begin, delta, end = case.events
    assert set(begin) == {"type", "call_id", "turn_id", "command", "cwd", "parsed_cmd", "source"}
    assert begin["parsed_cmd"] == [{"type": "unknown", "cmd": "make all"}]
    assert (begin["cwd"], begin["command"], begin["source"]) == ("/workspace", ["make", "all"], "agent")
    assert delta == {
        "type": "exec_command_output_delta",
        "call_id": "c1",
        "stream": "stdout",
        "chunk": base64.b64encode(b"hi\n").decode(),
    }
    assert set(end) - set(begin) == {
        "stdout",
        "stderr",
        "aggregated_output",
        "exit_code",
        "duration",
        "formatted_output",
    }
    assert (end["stdout"], end["exit_code"], end["formatted_output"]) == ("hi\n", 0, "hi\n")
    assert set(end["duration"]) == {"secs", "nanos"}


async def test_a_script_answers_in_lines(workspace: Path):
    """`shell_command` runs the image's login shell, and its reply is text."""
    case = Case(workspace)
    reply = await case.call("shell_command", {"command": "echo 'a  b'"})
    assert reply.content.startswith("Exit code: 0\nWall time: 0")
    assert reply.content.endswith(" seconds\nOutput:\nhi\n")
    assert case.engine.sandboxes[0].released.argv == ("bash", "-lc", "echo 'a  b'")  # type: ignore[union-attr]


async def test_a_time_out_keeps_its_output(workspace: Path):
    """Exit code 124, a sentence in front, and no success."""
    late = Ending(reason="timed_out", signal=15, pid=PID)
    case = Case(workspace, script=plays(late, output=b"so far\n"))
    reply = await case.call("shell_command", {"command": "sleep 99"})
    assert reply.content.startswith("Exit code: 124\n")
    assert "command timed out after " in reply.content
    assert reply.content.endswith("milliseconds\nso far\n")
    assert not reply.success


async def test_a_killed_command_keeps_its_output(workspace: Path):
    """The original drops it; here the signal and what was written are both told."""
    killed = Ending(reason="exited", signal=9, pid=PID, oom_kills=1)
    reply = await Case(workspace, script=plays(killed, output=b"so far\n")).call("shell", shell("hog"))
    said = json.loads(reply.content)
    assert said["output"] == "command killed by signal 9, out of memory\nso far\n"
    assert said["metadata"]["exit_code"] == 137


@pytest.mark.parametrize(
    ("policy", "name"), [("untrusted", "UnlessTrusted"), ("on-failure", "OnFailure"), ("never", "Never")]
)
async def test_the_escalation_guard_comes_before_everything(workspace: Path, policy: str, name: str):
    """Its sentence, no event, no question, no container; for a patch in a shell too."""
    case = Case(workspace, {"approval_policy": policy})
    for argv in (["ls"], ["apply_patch", "*** Begin Patch\n*** Delete File: a\n*** End Patch"]):
        reply = await case.call("shell", {"command": argv, "with_escalated_permissions": True})
        assert reply.content == GUARD.format(name)
    assert (case.events, case.questions, case.engine.sandboxes) == ([], [], [])


async def test_escalation_is_a_wider_container_that_the_question_names(workspace: Path):
    """With network and memory, as the operator has set it, and with the model's own reason."""
    case = Case(workspace, {"escalated": {"name": "online", "memory": "1g", "seccomp": "debug"}}, answers=["once"])
    wish = shell("pip", "install", "x", with_escalated_permissions=True, justification="needs the index")
    assert (await case.call("shell", wish)).success
    (question,) = case.questions
    profile = "online (the workspace can be written, network open, seccomp debug, 1024 MiB)"
    assert f"it would run in the container profile {profile}" in question.text
    assert "the model says: needs the index" in question.text
    assert case.types[:2] == ["exec_command_begin", "exec_approval_request"]
    assert case.events[1]["reason"].startswith("the model says: needs the index")
    box = case.engine.sandboxes[0].box
    assert (box.network, box.seccomp, box.limits.memory_bytes) == ("open", "debug", 2**30)


@pytest.mark.parametrize("answer", ["deny", "abort"])
async def test_a_no_is_said_in_the_contracts_words(workspace: Path, answer: str):
    """Begin, question, end with -1; nothing runs."""
    case = Case(workspace, {"approval_policy": "untrusted"}, answers=[answer])
    reply = await case.call("shell", shell("make"))
    assert (reply.content, reply.success) == ("exec command rejected by user", False)
    assert case.types == ["exec_command_begin", "exec_approval_request", "exec_command_end"]
    end = case.events[-1]
    assert (end["exit_code"], end["stderr"], end["duration"]) == (-1, reply.content, {"secs": 0, "nanos": 0})
    assert case.engine.sandboxes == []


async def test_a_yes_for_the_session_covers_the_same_command_there(workspace: Path):
    """In whichever shell it is wrapped, but not in another directory, nor wider."""
    (workspace / "sub").mkdir()
    case = Case(workspace, {"approval_policy": "untrusted"}, answers=["session", "once"])
    await case.call("shell", shell("bash", "-lc", "make all"))
    await case.call("shell", shell("/bin/bash", "-lc", "make all"))
    await case.call("shell_command", {"command": "make all"})
    assert len(case.questions) == 1
    await case.call("shell", shell("bash", "-lc", "make all", workdir="sub"))
    assert len(case.questions) == 2


async def test_a_yes_for_ever_becomes_a_rule(workspace: Path, tmp_path: Path):
    """The question shows the very line; it is in the file afterwards, and nobody is asked again, in any session."""
    case = Case(workspace, {"approval_policy": "untrusted", "rules": str(tmp_path / "rules")}, answers=["always"])
    await case.call("shell", shell("make", "all"))
    line = 'prefix_rule(pattern=["make", "all"], decision="allow")'
    assert case.questions[0].forever == line
    assert (tmp_path / "rules" / "default.rules").read_text() == line + "\n"
    await case.provider.stop(session="s")
    assert (await case.call("shell", shell("make", "all"))).success
    assert len(case.questions) == 1


async def test_what_would_allow_anything_is_not_offered_for_ever(workspace: Path, tmp_path: Path):
    """An interpreter's name alone is no rule; such a yes counts for the session."""
    case = Case(workspace, {"approval_policy": "untrusted", "rules": str(tmp_path)}, answers=["always"])
    await case.call("shell", shell("python3", prefix_rule=["python3"]))
    assert case.questions[0].forever == ""
    assert list(tmp_path.glob("*.rules")) == []


async def test_a_rule_forbids(workspace: Path, tmp_path: Path):
    """Begin and end, the rule's reason as the reply, and nothing runs."""
    (tmp_path / "a.rules").write_text('prefix_rule(pattern=["curl"], decision="forbidden", justification="no network")')
    case = Case(workspace, {"rules": str(tmp_path)})
    reply = await case.call("shell", shell("bash", "-lc", "ls && curl x"))
    assert reply.content == "`curl x` rejected: no network"
    assert case.types == ["exec_command_begin", "exec_command_end"]
    assert case.engine.sandboxes == []
    assert case.provider.check("shell", shell("curl", "x")).reasons == (reply.content,)


async def test_rules_that_broke_stop_everything(workspace: Path, tmp_path: Path):
    """A file that no longer loads could be the one that forbids."""
    case = Case(workspace, {"rules": str(tmp_path)})
    await case.call("shell", shell("ls"))
    (tmp_path / "a.rules").write_text("prefix_rule(")
    reply = await case.call("shell", shell("ls"))
    assert "a.rules" in reply.content
    assert (reply.success, len(case.engine.sandboxes)) == (False, 1)


DENIALS: dict[str, tuple[str, Ending]] = {
    "the filter's signal": ("workspace-write", Ending(reason="exited", signal=31, pid=PID)),
    "the filter's signal, told by a shell": ("workspace-write", Ending(reason="exited", exit_code=159, pid=PID)),
    "a program that may not be run": ("workspace-write", Ending(reason="exited", error="x: no", error_number=1)),
    "writes": ("read-only", Ending(reason="exited", exit_code=1, pid=PID, denied_writes=1)),
    "network": ("workspace-write", Ending(reason="exited", exit_code=6, pid=PID, denied_network=2)),
    "a name": ("workspace-write", Ending(reason="exited", exit_code=6, pid=PID, refused_datagrams=2)),
}
NO_DENIALS: dict[str, tuple[str, Ending]] = {
    "a failure alone": ("read-only", FAILS),
    "words": ("workspace-write", Ending(reason="exited", exit_code=126, pid=PID)),
    "writes that did not matter": ("read-only", Ending(reason="exited", exit_code=0, pid=PID, denied_writes=1)),
    "writes elsewhere": ("workspace-write", Ending(reason="exited", exit_code=1, pid=PID, denied_writes=1)),
    "a time-out": ("workspace-write", Ending(reason="timed_out", signal=9, pid=PID, denied_network=1)),
    "another signal": ("workspace-write", Ending(reason="exited", signal=11, pid=PID)),
}


@pytest.mark.parametrize("name", DENIALS)
async def test_a_denial_is_tried_once_more_wider_if_somebody_agrees(workspace: Path, name: str):
    """Under on-failure: the question has the contract's words, and the second result is the result."""
    mode, ending = DENIALS[name]
    case = Case(
        workspace, {"approval_policy": "on-failure", "sandbox_mode": mode}, plays(ending, OK, output=b"out\n"), ["once"]
    )
    reply = await case.call("shell", shell("make"))
    assert json.loads(reply.content)["output"] == "out\n"
    assert reply.success
    assert case.questions[0].verdict.reasons[0] == "command failed; retry without sandbox?"
    assert case.boxes == [("none", mode == "read-only"), ("open", False)]
    assert case.types.count("exec_command_begin") == case.types.count("exec_command_end") == 1


@pytest.mark.parametrize("name", DENIALS)
@pytest.mark.parametrize("policy", ["on-request", "never"])
async def test_a_denial_is_final_where_the_policy_says_so(workspace: Path, name: str, policy: str):
    """One attempt, no question."""
    mode, ending = DENIALS[name]
    case = Case(workspace, {"approval_policy": policy, "sandbox_mode": mode}, plays(ending))
    assert not (await case.call("shell", shell("make"))).success
    assert (len(case.engine.sandboxes), case.questions) == (1, [])


@pytest.mark.parametrize("name", NO_DENIALS)
async def test_what_is_no_denial_is_not_tried_again(workspace: Path, name: str):
    """Words of the output prove nothing; neither does a failure in a narrow container."""
    mode, ending = NO_DENIALS[name]
    output = b"Permission denied: read-only file system (sandbox)\n"
    case = Case(workspace, {"approval_policy": "on-failure", "sandbox_mode": mode}, plays(ending, output=output))
    await case.call("shell", shell("make"))
    assert (len(case.engine.sandboxes), case.questions) == (1, [])


async def test_a_denied_retry_is_a_rejection(workspace: Path):
    """What the first attempt wrote is in the events; the reply is the contract's."""
    case = Case(
        workspace,
        {"approval_policy": "on-failure"},
        plays(Ending(reason="exited", exit_code=1, pid=PID, denied_network=1)),
        ["deny"],
    )
    assert (await case.call("shell", shell("make"))).content == "exec command rejected by user"


async def test_who_has_agreed_is_not_asked_again_for_the_retry(workspace: Path):
    """Under untrusted the first yes covers the retry, exactly one."""
    denied = Ending(reason="exited", exit_code=1, pid=PID, denied_network=1)
    case = Case(workspace, {"approval_policy": "untrusted"}, plays(denied), ["once"])
    assert not (await case.call("shell", shell("make"))).success
    assert (len(case.questions), len(case.engine.sandboxes)) == (1, 2)


@pytest.mark.parametrize(
    ("table", "box"),
    [
        ({}, ("none", False)),
        ({"network_access": True}, ("open", False)),
        ({"sandbox_mode": "read-only"}, ("none", True)),
        ({"sandbox_mode": "read-only", "network_access": True}, ("none", True)),
        ({"sandbox_mode": "danger-full-access"}, ("open", False)),
        ({"sandbox_mode": "external-sandbox"}, ("none", False)),
        ({"sandbox_mode": "danger-full-access", "escalated": {"network": "none"}}, ("none", False)),
    ],
)
async def test_a_sandbox_policy_is_a_container(workspace: Path, table: dict[str, Any], box: tuple[str, bool]):
    """None of them is the host."""
    case = Case(workspace, table)
    await case.call("shell", shell("ls"))
    assert case.boxes == [box]
    environment = dict(case.engine.sandboxes[0].released.env)  # type: ignore[union-attr]
    assert ("CODEX_SANDBOX_NETWORK_DISABLED" in environment) == (box[0] == "none")


async def test_the_environment_policy_holds(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """What the operator gives goes through the five steps; the host's own variables are not there."""
    monkeypatch.setenv("HOSTS_OWN", "x")
    given = {"A": "1", "MY_TOKEN": "2", "B": "3"}
    case = Case(workspace, {"environment": {"given": given, "exclude": ["B"], "set": {"C": "4"}}})
    await case.call("shell", shell("env"))
    environment = dict(case.engine.sandboxes[0].released.env)  # type: ignore[union-attr]
    assert {name: environment.get(name) for name in ("A", "MY_TOKEN", "B", "C", "HOSTS_OWN")} == {
        "A": "1",
        "MY_TOKEN": None,
        "B": None,
        "C": "4",
        "HOSTS_OWN": None,
    }


async def test_calls_that_may_change_something_go_one_after_the_other(workspace: Path):
    """A known-safe one does not wait for them."""
    running, most = 0, 0
    gate, both = asyncio.Event(), asyncio.Event()

    async def play(sandbox: FakeSandbox) -> Any:
        nonlocal running, most
        yield Begun(PID)
        running += 1
        most = max(most, running)
        if sandbox.released and sandbox.released.argv == ("ls",):
            both.set()
        await gate.wait()
        running -= 1
        yield OK

    case = Case(workspace, script=play)
    changing = [asyncio.ensure_future(case.call("shell", shell("make"))) for _ in range(3)]
    looking = asyncio.ensure_future(case.call("shell", shell("ls")))
    await asyncio.wait_for(both.wait(), 20)
    gate.set()
    replies = await asyncio.gather(*changing, looking)
    assert all(reply.success for reply in replies)
    assert most == 2


async def test_deltas_are_bounded(workspace: Path):
    """Pieces of 8,192 bytes at the most, 10,000 of a stream; the capture goes on."""
    many: list[Message] = [
        Begun(PID),
        *[Chunk("stdout", b"x") for _ in range(10_100)],
        Chunk("stderr", b"y" * 20_000),
        OK,
    ]
    case = Case(workspace, script=many)
    await case.call("shell", shell("yes"))
    sizes = {stream: [] for stream in ("stdout", "stderr")}
    for event in case.events:
        if event["type"] == "exec_command_output_delta":
            sizes[event["stream"]].append(len(base64.b64decode(event["chunk"])))
    assert (len(sizes["stdout"]), sizes["stderr"]) == (10_000, [8192, 8192, 3616])
    assert len(case.events[-1]["aggregated_output"]) == 30_100


async def test_output_is_cut_for_the_model_and_not_for_the_event(workspace: Path):
    """Head, marker and tail, by the operator's budget."""
    case = Case(workspace, {"output_limit": 10}, plays(OK, output=b"0123456789abcdef\n"))
    reply = await case.call("shell", shell("x"))
    assert json.loads(reply.content)["output"] == "Total output lines: 1\n\n01234…7 chars truncated…cdef\n"
    assert case.events[-1]["aggregated_output"] == "0123456789abcdef\n"


async def test_a_call_id_of_an_item_is_the_events(workspace: Path):
    """`local_shell` brings its own."""
    case = Case(workspace)
    await case.call("local_shell", {"id": "i9", "action": {"type": "exec", "command": ["ls"]}})
    assert {event["call_id"] for event in case.events} == {"i9"}


async def test_a_turn_has_its_own_id(workspace: Path):
    """Calls of a session share it until another turn begins."""
    case = Case(workspace)
    dialect: Any = case.provider.dialect("shell")
    await case.call("shell", shell("ls"))
    await case.call("shell", shell("ls"))
    assert len({event["turn_id"] for event in case.events if "turn_id" in event}) == 1
    began = dialect.begin_turn("s")
    await case.call("shell", shell("ls"))
    assert case.events[-1]["turn_id"] == began
    assert len({event["turn_id"] for event in case.events if "turn_id" in event}) == 2


async def test_a_missing_program_is_an_execution_error(workspace: Path):
    """Not an exit code of something that never ran."""
    missing = Ending(reason="exited", error="nope: No such file or directory", error_number=2)
    case = Case(workspace, script=[missing])
    reply = await case.call("shell", shell("nope"))
    assert reply.content == "execution error: nope: No such file or directory"
    assert case.events[-1]["exit_code"] == -1


async def test_an_aborted_command_says_so(workspace: Path):
    """In the contract's words, with the wall time."""
    case = Case(workspace, script=plays(Ending(reason="canceled", signal=15, pid=PID)))
    assert (await case.call("shell", shell("make"))).content == "Wall time: 0.1 seconds\naborted by user"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"approval": "never"}, "Extra inputs"),
        ({"approval_policy": "sometimes"}, "approval_policy"),
        ({"sandbox_mode": "host"}, "sandbox_mode"),
        ({"environment": {"set": {"LD_PRELOAD": "x"}}}, "LD_PRELOAD"),
        ({"escalated": {"network": "host"}}, "network"),
    ],
)
def test_settings_that_do_not_fit_are_named(workspace: Path, table: dict[str, Any], problem: str):
    """One error with the key, before any call."""
    with pytest.raises(Exception, match=problem):
        Case(workspace, table).provider.dialect("shell")
