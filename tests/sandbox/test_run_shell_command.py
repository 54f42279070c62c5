"""`run_shell_command` in real containers."""

from __future__ import annotations

import asyncio
import json

import pytest

from provider import Provider, Settings
from provider.approval import Answer
from provider.questions import Questions

pytestmark = pytest.mark.docker
MINIMAL, DEFAULT = "sandbox-provider/minimal", "sandbox-provider/default"
RUN, LIST, STOP = "run_shell_command", "list_background_processes", "stop_background_process"
IMAGES = pytest.mark.parametrize("image", [MINIMAL, DEFAULT], ids=["no-bash", "bash"])


def made(workspace, *, image=MINIMAL, table=None, **options):
    settings = Settings(tools={RUN: table or {}}, **options.pop("settings", {}))
    return Provider(workspace, image=image, settings=settings, **options)


@pytest.fixture
async def provider(workspace):
    async with made(workspace) as provider:
        yield provider


@pytest.fixture
async def full(workspace):
    async with made(workspace, image=DEFAULT) as provider:
        yield provider


async def ran(provider, command, **more):
    return (await provider.call(RUN, {"command": command, **more})).content


class Heard:
    """Keeps events, and lets a test wait until some output has come."""

    def __init__(self):
        self.text = ""
        self.events = []
        self._news = asyncio.Event()

    async def __call__(self, event):
        self.events.append(dict(event))
        self.text += event.get("chunk", "")
        self._news.set()

    async def until(self, text):
        async with asyncio.timeout(20):
            while text not in self.text:
                self._news.clear()
                await self._news.wait()


@IMAGES
async def test_shell_text_runs_as_it_is(image, workspace):
    """Pipes, redirections, chaining, here-documents, quotes, `exit`, trailing comments and newlines."""
    async with made(workspace, image=image) as provider:
        for command, stdout, code in (
            ("echo a b | tr a c && echo $((1+2))", "c b\n3\n", 0),
            ("echo out; echo err >&2; exit 7", "out\n", 7),
            ("false || echo no", "no\n", 0),
            ("cat <<'EOF'\n$(x) `y`\nEOF\n", "$(x) `y`\n", 0),
            ("cat <<\\EOF\n$(x)\nEOF", "$(x)\n", 0),
            ("echo 'a  \"b\"' # comment", 'a  "b"\n', 0),
            ("echo hi > f; cat < f; echo more >> f; wc -l < f", "hi\n2\n", 0),
            ("(cd / && pwd); pwd", "/\n/workspace\n", 0),
            ("i=1; i=$((i+1)); echo $i", "2\n", 0),
        ):
            content = await ran(provider, command)
            assert (content["stdout"], content["exitCode"]) == (stdout, code), command
    assert (workspace / "f").read_text() == "hi\nmore\n"


@IMAGES
async def test_the_shell_is_bash_where_there_is_one(image, workspace):
    """And the image's own sh where there is none; a text for bash alone then fails to start, and says so."""
    async with made(workspace, image=image) as provider:
        content = await ran(provider, "echo ${BASH_VERSION:+bash}")
        array = await ran(provider, "x=(a b); echo ${x[1]}")
    if image == DEFAULT:
        assert (content["stdout"], array["stdout"]) == ("bash\n", "b\n")
    else:
        assert content["stdout"] == "\n"
        assert (array["errorType"], array["exitCode"]) == ("SHELL_EXECUTE_ERROR", None)
        assert "No such file" in array["error"]


async def test_results_have_every_field(provider):
    """Exit code, signal, pid and both streams, with nulls written out, as JSON."""
    content = json.loads(json.dumps(await ran(provider, "echo out; echo err >&2; exit 3")))
    assert content.pop("pid") > 1
    assert content == {
        "stdout": "out\n",
        "stderr": "err\n",
        "exitCode": 3,
        "signal": None,
        "error": None,
        "backgroundPids": [],
        "errorType": None,
        "message": "Command exited with code: 3",
    }
    content = await ran(provider, "kill -9 $$")
    assert (content["exitCode"], content["signal"], content["error"]) == (None, 9, None)


async def test_the_environment(full, monkeypatch):
    """The contract's variables, nothing of the host's, and no prompt that waits."""
    monkeypatch.setenv("SECRET_OF_HOST", "x")
    content = await ran(full, "env")
    lines = content["stdout"].splitlines()
    assert {"ASIMI_CLI=1", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "TERM=xterm-256color"} <= set(lines)
    assert not any("SECRET_OF_HOST" in line for line in lines)
    content = await ran(
        full,
        "git init -q . && git -c user.email=a@b -c user.name=n commit -q --allow-empty -m x && git log --oneline",
    )
    assert (content["exitCode"], content["stderr"]) == (0, "")
    content = await ran(
        full, "git -c user.email=a@b -c user.name=n commit --amend --allow-empty && git diff && read x; echo $?"
    )
    assert content["stdout"].endswith("1\n")


async def test_calls_are_independent(provider, workspace):
    """Neither directory, variables nor /tmp of one call are there in the next; files of the project are."""
    (workspace / "sub").mkdir(mode=0o777)
    await ran(provider, "cd /tmp; export A=1; touch /tmp/x; touch /workspace/y")
    assert (await ran(provider, "pwd; echo $A; ls /tmp; ls"))["stdout"] == "/workspace\n\nsub\ny\n"
    assert (await ran(provider, "pwd", directory="sub"))["stdout"] == "/workspace/sub\n"


async def test_a_link_out_of_the_project_is_no_directory(provider, workspace):
    """Nothing runs."""
    (workspace / "out").symlink_to("/etc")
    assert (await ran(provider, "pwd", directory="out"))["errorType"] == "PATH_NOT_IN_WORKSPACE"


async def test_output_is_streamed_while_the_command_runs(provider, workspace):
    """A line is heard before the next is written."""
    heard = Heard()
    command = "echo one; until [ -e go ]; do sleep 0.01; done; echo two"
    call = asyncio.ensure_future(provider.call(RUN, {"command": command}, on_event=heard))
    await heard.until("one")
    assert not call.done()
    (workspace / "go").touch()
    reply = await asyncio.wait_for(call, 20)
    assert (reply.content["stdout"], heard.text) == ("one\ntwo\n", "one\ntwo\n")
    assert heard.events[-1]["type"] == "exit"


async def test_cancel_by_session_while_another_goes_on(provider, workspace):
    """Every process of the one is gone; the other ends by itself."""
    mine, theirs = Heard(), Heard()
    first = asyncio.ensure_future(
        provider.call(RUN, {"command": "echo up; sleep 300 | sleep 300"}, session="mine", on_event=mine)
    )
    second = asyncio.ensure_future(
        provider.call(
            RUN,
            {"command": "echo up; until [ -e go ]; do sleep 0.01; done; echo done"},
            session="theirs",
            on_event=theirs,
        )
    )
    await mine.until("up")
    await theirs.until("up")
    assert await provider.stop(session="mine") == 1
    content = (await asyncio.wait_for(first, 20)).content
    assert content["message"] == "Command was cancelled by user before it could complete."
    assert (content["exitCode"], content["stdout"]) == (None, "up\n")
    (workspace / "go").touch()
    assert (await asyncio.wait_for(second, 20)).content["stdout"] == "up\ndone\n"


async def test_total_and_inactivity_time_out(workspace):
    """Two different sentences, neither of them a cancel; what was written is kept."""
    async with made(workspace, table={"timeout": 0.5}) as provider:
        content = await ran(provider, "while :; do echo x; sleep 0.05; done")
        assert content["message"] == "Command timed out after 0.5s"
        assert (content["exitCode"], content["stdout"][:2]) == (None, "x\n")
    async with made(workspace, table={"inactivity_timeout": 0.5}) as provider:
        content = await ran(provider, "for i in 1 2 3 4; do echo x; sleep 0.2; done; sleep 300")
        assert content["message"].startswith(
            "Command was automatically cancelled because it exceeded the timeout of 0.0"
        )
        assert (content["exitCode"], content["stdout"]) == (None, "x\n" * 4)


async def test_output_is_bounded_with_head_and_tail(provider):
    """The model sees both ends, and how much is missing."""
    content = await ran(provider, "seq 1 100000")
    assert content["stdout"].startswith("1\n2\n")
    assert content["stdout"].endswith("99999\n100000\n")
    assert "... [548895 characters omitted] ..." in content["stdout"]
    assert (content["exitCode"], "548895" in content["message"]) == (0, True)


async def test_bytes(provider):
    """What is no text arrives in base64, and a binary output is said to be one."""
    content = await ran(provider, "printf 'a\\377b'")
    assert (content["stdout"], content["stdoutBase64"]) == ("a\ufffdb", "Yf9i")
    content = await ran(provider, "printf 'a\\000b'; printf '\\033[31mred\\033[0m' >&2")
    assert content["stdout"].startswith("[Binary output detected. Halting stream...]")
    assert content["stderr"] == "red"


async def test_a_background_process_keeps_running(workspace):
    """The call returns at once; the process is listed, read, and stopped by its pid; the session's end takes all."""
    async with made(workspace) as provider:
        server = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.02; done & echo started"
        content = (await provider.call(RUN, {"command": server}, session="s")).content
        assert (content["exitCode"], "started" in content["stdout"]) == (0, True)
        assert content["backgroundPids"]
        assert "Command is running in background. PID: " in content["message"]
        async with asyncio.timeout(20):
            while True:
                (entry,) = (await provider.call(LIST, {}, session="s")).content["processes"]
                if "tick" in entry["stdout"]:
                    break
        assert (entry["status"], entry["command"]) == ("RUNNING", server)
        shell = min(entry["pids"])
        assert not (await provider.call(STOP, {"pid": shell}, session="other")).success
        reply = await provider.call(STOP, {"pid": shell}, session="s")
        assert (reply.success, shell in [one["pid"] for one in reply.content["processes"]]) == (True, False)
        await provider.stop(session="s")
        (entry,) = (await provider.call(LIST, {}, session="s")).content["processes"]
        assert entry["status"] == "EXITED"


async def test_a_stubborn_background_process_is_killed(workspace):
    """TERM is ignored; KILL is not."""
    async with made(workspace) as provider:
        command = "(trap '' TERM; while :; do sleep 0.05; done) & echo $!"
        content = (await provider.call(RUN, {"command": command}, session="s")).content
        reply = await provider.call(STOP, {"pid": int(content["stdout"])}, session="s")
        assert reply.success
        content = (await provider.call(RUN, {"command": command}, session="s")).content
        entry = (await provider.call(LIST, {}, session="s")).content["processes"][-1]
        reply = await provider.call(STOP, {"lease": entry["lease"]}, session="s")
        assert (reply.success, reply.content["processes"]) == (True, [])


async def test_a_lease_ends_in_time(workspace):
    """At the time that the operator set."""
    async with made(workspace, table={"lease": 0.4}) as provider:
        await provider.call(RUN, {"command": "sleep 300 &"}, session="s")
        (lease,) = provider.leases("s")
        assert (await asyncio.wait_for(lease.wait(), 20)).reason == "timed_out"


# Approval.

LISTED = {"core_tools": [f"{RUN}(ls)"], "exclude_tools": [f"{RUN}(rm)"]}


async def test_approval_asked_granted_denied(workspace, engine_client):
    """Asked about what is not listed; a yes runs it, a no creates no container, deny is never asked."""
    questions = Questions()
    async with made(workspace, table=LISTED, approver=questions, settings={"spares": 0}) as provider:
        assert (await ran(provider, "ls"))["exitCode"] == 0
        call = asyncio.ensure_future(provider.call(RUN, {"command": "echo hi"}, session="s"))
        question = await asyncio.wait_for(questions.wait(), 20)
        assert 'Disallowed commands: "echo hi"' in question.text
        questions.answer(question.run_id, "session", session="s", plan_digest=question.plan.digest)
        assert (await asyncio.wait_for(call, 20)).content["stdout"] == "hi\n"
        assert (await asyncio.wait_for(provider.call(RUN, {"command": "echo ho"}, session="s"), 20)).success
        call = asyncio.ensure_future(provider.call(RUN, {"command": "touch x"}, session="s"))
        question = await asyncio.wait_for(questions.wait(), 20)
        questions.answer(question.run_id, "deny", session="s", plan_digest=question.plan.digest)
        assert (await asyncio.wait_for(call, 20)).content["errorType"] == "EXECUTION_DENIED"
        reply = await provider.call(RUN, {"command": "ls; rm x"}, session="s")
        assert reply.content["error"] == "Command 'rm x' is blocked by configuration"
    assert not (workspace / "x").exists()


async def test_approval_expires(workspace):
    """Nobody answers in time: nothing runs."""
    settings = {"approval_seconds": 0.05}
    async with made(workspace, table=LISTED, approver=Questions(), settings=settings) as provider:
        content = await asyncio.wait_for(ran(provider, "touch x"), 20)
    assert "Nobody approved it in time." in content["error"]
    assert not (workspace / "x").exists()


async def test_an_approval_for_another_plan_is_none(workspace, monkeypatch):
    """One changed byte after a yes is a no."""
    from provider import run as run_module

    decide = run_module.decide

    async def other_plan(*arguments, **options):
        from dataclasses import replace

        return replace(await decide(*arguments, **options), plan_digest="0" * 64)

    async def yes(question):
        return Answer.ONCE

    monkeypatch.setattr(run_module, "decide", other_plan)
    async with made(workspace, table=LISTED, approver=yes) as provider:
        content = await ran(provider, "touch x")
    assert (content["errorType"], "The approval is for plan 000000000000" in content["error"]) == (
        "EXECUTION_DENIED",
        True,
    )
    assert not (workspace / "x").exists()
