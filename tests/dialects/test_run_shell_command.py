"""The dialect as a whole, over an engine without containers."""

from __future__ import annotations

import asyncio

import pytest

from provider import Provider
from provider.approval import Answer
from provider.dialects.run_shell_command import TOOLS
from provider.errors import ConfigError, EngineUnavailable, ImageMissing, PlanRejected, SandboxLost
from provider.model import Begun, Chunk, Decision, Ending
from provider.questions import Questions
from provider.settings import Settings
from provider.testing import PID, FakeEngine

RUN = "run_shell_command"
WAITS = [Begun(PID), Chunk("stdout", b"partial")]
LISTED = {"core_tools": ["run_shell_command(ls)"]}


pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture
def made(workspace):
    def make(engine=None, *, table=None, **options):
        wanted = {"grace": 0.05, "spares": 0, "tools": {RUN: table or {}}} | options.pop("settings", {})
        return Provider(workspace, engine=engine or FakeEngine(), settings=Settings(**wanted), **options)

    return make


def heard(events):
    started = asyncio.Event()

    async def listen(event):
        events.append(dict(event))
        started.set()

    return listen, started


def test_the_tools():
    """Their names, and that the model is told of what surprises models."""
    assert [tool.name for tool in TOOLS] == [RUN, "list_background_processes", "stop_background_process"]
    assert list(TOOLS[0].parameters["properties"]) == ["command", "description", "directory"]
    assert TOOLS[0].parameters["required"] == ["command"]
    for word in ("independent", "cd", "directory", "$()", "backticks", "&"):
        assert word in TOOLS[0].description


async def test_a_command_runs(made, workspace):
    """Its text reaches the shell whole, in its directory, with the contract's environment."""
    (workspace / "sub").mkdir()
    engine = FakeEngine()
    async with made(engine) as provider:
        reply = await provider.call(RUN, {"command": "ls | wc", "directory": "sub"}, session="s")
    plan = engine.sandboxes[0].released
    assert (plan.argv[-1], plan.cwd, plan.timeout, plan.lease) == ("ls | wc", "/workspace/sub", 120, 600)
    assert dict(plan.env)["ASIMI_CLI"] == "1"
    assert engine.sandboxes[0].has_stdin is False
    assert reply.success


async def test_output_is_streamed(made):
    """In the contract's events, with the id of the call."""
    events = []
    listen, _ = heard(events)
    engine = FakeEngine([Begun(PID), Chunk("stdout", b"hi"), Ending(reason="exited", exit_code=3, pid=PID)])
    async with made(engine) as provider:
        await provider.call(RUN, {"command": "ls"}, call_id="c", on_event=listen)
    assert events == [
        {"callId": "c", "type": "data", "stream": "stdout", "chunk": "hi"},
        {"callId": "c", "type": "exit", "exitCode": 3, "signal": None},
    ]


@pytest.mark.parametrize("fails_at", ["data", "exit"])
async def test_a_listener_that_fails_is_no_success(fails_at, made):
    """Exit 0 reads as success only when everybody who listens has held."""

    def listen(event):
        if event["type"] == fails_at:
            raise OSError

    engine = FakeEngine([Begun(PID), Chunk("stdout", b"hi"), Ending(reason="exited", exit_code=0, pid=PID)])
    async with made(engine) as provider:
        reply = await provider.call(RUN, {"command": "ls"}, on_event=listen)
    assert (reply.success, reply.content["exitCode"], reply.content["stdout"]) == (False, 0, "hi")


# Ends.


async def test_inactivity_is_not_a_cancel(made):
    """The clock ends a silent command, and the reply says that it was the clock."""
    async with made(FakeEngine(WAITS), table={"inactivity_timeout": 0.03}) as provider:
        reply = await asyncio.wait_for(provider.call(RUN, {"command": "sleep 9"}), 5)
    text = "Command was automatically cancelled because it exceeded the timeout of 0.0 minutes without output."
    assert (reply.success, reply.content["message"], reply.content["stdout"]) == (False, text, "partial")


async def test_a_cancel_is_not_inactivity(made):
    """Ending the session ends its command and no other's."""
    events = []
    listen, started = heard(events)
    async with made(FakeEngine(WAITS)) as provider:
        mine = asyncio.ensure_future(provider.call(RUN, {"command": "sleep 9"}, session="mine", on_event=listen))
        theirs = asyncio.ensure_future(provider.call(RUN, {"command": "sleep 9"}, session="theirs"))
        await asyncio.wait_for(started.wait(), 5)
        assert await provider.stop(session="mine") == 1
        reply = await asyncio.wait_for(mine, 5)
        assert not theirs.done()
        await provider.stop(session="theirs")
        await asyncio.wait_for(theirs, 5)
    assert reply.content["message"] == "Command was cancelled by user before it could complete."
    assert (reply.content["exitCode"], reply.content["signal"]) == (None, 15)


@pytest.mark.parametrize("error", [EngineUnavailable, ImageMissing, PlanRejected, SandboxLost])
async def test_a_fault_is_no_outcome(error, made):
    """Each has its own type and text, and no exit code."""
    async with made(FakeEngine(open_error=error("because"))) as provider:
        reply = await provider.call(RUN, {"command": "ls"})
    assert (reply.success, reply.content["exitCode"], reply.content["pid"]) == (False, None, None)
    assert reply.content["errorType"].startswith("SANDBOX_")
    assert reply.content["error"].endswith("because")


class DiesOnce(FakeEngine):
    """The first container is lost before its command."""

    opened = 0

    async def open(self, box):
        self.opened += 1
        if self.opened == 1:
            raise SandboxLost("gone")
        return await super().open(box)


async def test_a_container_lost_before_the_command_is_replaced_once(made):
    """The caller does not notice."""
    engine = DiesOnce()
    async with made(engine) as provider:
        reply = await provider.call(RUN, {"command": "ls"})
    assert (reply.success, engine.opened) == (True, 2)


async def test_a_command_that_may_have_run_is_not_run_again(made):
    """What it did is not done twice."""
    engine = FakeEngine([Begun(PID), SandboxLost("pid 1 fell silent")])
    async with made(engine) as provider:
        reply = await provider.call(RUN, {"command": "ls"})
    assert (len(engine.sandboxes), reply.content["errorType"]) == (1, "SANDBOX_LOST")
    assert "not undone" in reply.content["error"]


# Refusals.


@pytest.mark.parametrize(
    ("table", "payload"),
    [
        ({}, {"command": "echo $(id)"}),
        ({}, {"command": " "}),
        ({}, {"command": "ls", "directory": "/etc"}),
        ({}, {}),
        ({"exclude_tools": [RUN]}, {"command": "ls"}),
        ({"exclude_tools": [f"{RUN}(rm)"]}, {"command": "ls; rm x"}),
        (LISTED, {"command": "git status"}),
        (LISTED, {"command": "ls > x"}),
    ],
)
async def test_a_refused_call_creates_no_container(table, payload, made):
    """And has a reply with an error and no exit code."""
    engine = FakeEngine()
    async with made(engine, table=table) as provider:
        reply = await provider.call(RUN, payload)
        decision = provider.check(RUN, payload).decision
    assert (engine.sandboxes, reply.success, reply.content["exitCode"]) == ([], False, None)
    assert reply.content["error"]
    assert decision >= Decision.ASK


async def test_check_creates_nothing_and_asks_nobody(made):
    """It tells what would be said."""
    engine = FakeEngine()

    async def never(question):
        raise AssertionError

    async with made(engine, table=LISTED, approver=never) as provider:
        assert provider.check(RUN, {"command": "ls"}).decision is Decision.ALLOW
        assert provider.check(RUN, {"command": "git status"}).decision is Decision.ASK
        assert provider.check(RUN, {"command": "ls `x`"}).decision is Decision.REFUSE
        assert provider.check("list_background_processes", {}).decision is Decision.ALLOW
    assert engine.sandboxes == []


async def test_settings_that_do_not_fit(made):
    """They are told at the first call, and nothing runs."""
    async with made(table={"core_tools": ["git"]}) as provider:
        with pytest.raises(ConfigError, match="core_tools"):
            await provider.call(RUN, {"command": "ls"})


# Approval.


async def test_a_soft_denial_is_a_question(made):
    """Said yes to once, it runs, and the next time it is asked again."""
    questions = Questions()
    engine = FakeEngine()
    async with made(engine, table=LISTED, approver=questions) as provider:
        for _ in range(2):
            call = asyncio.ensure_future(provider.call(RUN, {"command": "git status"}, session="s"))
            question = await asyncio.wait_for(questions.wait(), 5)
            assert question.remember == ("run_shell_command(git)",)
            questions.answer(question.run_id, "once", session="s", plan_digest=question.plan.digest)
            assert (await asyncio.wait_for(call, 5)).success
    assert len(engine.sandboxes) == 2


async def test_always_covers_the_roots_for_the_session(made):
    """A command of the same programs is not asked about again; another program is, and so is another session."""
    asked = []

    async def always(question):
        asked.append(question.plan.exec.argv[-1])
        return Answer.SESSION

    async with made(table=LISTED, approver=always) as provider:
        for command, session in (
            ("git status", "s"),
            ("git log | git shortlog", "s"),
            ("git log > x", "s"),
            ("git log; make", "s"),
            ("git log", "t"),
        ):
            assert (await provider.call(RUN, {"command": command}, session=session)).success
    assert asked == ["git status", "git log > x", "git log; make", "git log"]


async def test_a_hard_denial_is_never_a_question(made):
    """Not for the deny list, and not for a substitution."""

    async def never(question):
        raise AssertionError

    async with made(table={"exclude_tools": [f"{RUN}(rm)"]}, approver=never) as provider:
        for command in ("rm x", "echo $(id)"):
            reply = await provider.call(RUN, {"command": command})
            assert reply.content["errorType"] == "POLICY_VIOLATION"


@pytest.mark.parametrize(
    ("answer", "text"), [(Answer.DENY, "The user did not approve it."), (Answer.ABORT, "wants no further commands.")]
)
async def test_a_no_is_told(answer, text, made):
    """With what was asked about."""

    async def no(question):
        return answer

    engine = FakeEngine()
    async with made(engine, table=LISTED, approver=no) as provider:
        reply = await provider.call(RUN, {"command": "git status"})
    assert (reply.content["errorType"], engine.sandboxes) == ("EXECUTION_DENIED", [])
    assert reply.content["error"].startswith("Command(s) not in the allowed commands list.")
    assert text in reply.content["error"]


async def test_no_answer_in_time_is_a_no(made):
    """And is told apart from one."""
    async with made(table=LISTED, approver=Questions(), settings={"approval_seconds": 0.02}) as provider:
        reply = await asyncio.wait_for(provider.call(RUN, {"command": "git status"}), 5)
    assert "Nobody approved it in time." in reply.content["error"]
