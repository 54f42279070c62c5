"""`shell_cmd` in real containers: arguments, places, streams, endings, chats and approvals."""

import asyncio
import hashlib
import json

import pytest

from provider import Provider, Settings
from provider.dialects.contract import Context
from provider.dialects.shell_cmd import dialect
from provider.errors import CallError
from provider.model import State
from provider.questions import Questions

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"


class Chat:
    """Calls of one chat, with what it hears."""

    def __init__(self, shell, workspace, session="world/chat"):
        self.shell, self.workspace, self.session = shell, workspace, session
        self.events = []
        self.heard = asyncio.Event()

    async def emit(self, event):
        self.events.append(event)
        if event["type"] == "tool-stream":
            self.heard.set()

    async def call(self, command, *parameters, **more):
        payload = {"command": command, "parameters": list(parameters), "output_format": "json", **more}
        context = Context(workspace=self.workspace, session=self.session, call_id="call", emit=self.emit)
        reply = await self.shell.call("shell_cmd", payload, context)
        return json.loads(reply.content), reply.success

    async def until_heard(self):
        async with asyncio.timeout(30):
            await self.heard.wait()


def script(workspace, name, text):
    """A program of the workspace: inline text is what this contract refuses."""
    path = workspace / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return f"./{name}"


@pytest.fixture
def chat(provider, workspace):
    return Chat(dialect(provider, {}), workspace)


async def test_arguments_reach_the_program_exactly(chat, workspace):
    """Spaces, quotes, dollars, stars, backslashes and empty texts are the program's own."""
    show = script(workspace, "show", 'for word; do printf "[%s]" "$word"; done')
    words = ["a b", "'q'", '"', "$HOME", "${PATH}", "*", "~x"[1:], "\\n", "", "--", "ünï", "#", "{a,b}", "!"]
    data, success = await chat.call(show, *words)
    assert success
    assert data["stdout"] == "".join(f"[{word}]" for word in words)


async def test_the_directory_is_where_it_runs(chat, workspace):
    """Unlike in the original; the trusted directory goes by its own name, too."""
    (workspace / "sub").mkdir()
    (workspace / "sub" / "x").write_text("here")
    data, _ = await chat.call("pwd", directory="sub")
    assert data["stdout"] == "/workspace/sub\n"
    data, _ = await chat.call("cat", f"{workspace}/sub/x", directory=f"{workspace}/sub")
    assert data["stdout"] == "here"


async def test_stdin_is_at_its_end(chat):
    """A program that reads finds nothing, and does not wait for the time-out."""
    data, success = await chat.call("cat", timeout=20_000)
    assert (data["stdout"], data["timed_out"], success) == ("", False, True)


async def test_output_is_heard_while_the_command_runs(chat, workspace):
    """The first line comes before the command can have ended: it waits for the listener's answer."""
    task = asyncio.ensure_future(
        chat.call(script(workspace, "talk", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two >&2"))
    )
    await chat.until_heard()
    assert not task.done()
    (workspace / "go").touch()
    data, _ = await task
    heard = [(event["stream"], event["content"]) for event in chat.events if event["type"] == "tool-stream"]
    assert heard == [("stdout", "one\n"), ("stderr", "two\n")]
    assert (data["stdout"], data["stderr"]) == ("one\n", "two\n")


async def test_a_time_out_keeps_what_was_written(chat, workspace):
    """Row 60, with a real clock: ended with everything it had started, and told as such."""
    data, success = await chat.call(script(workspace, "slow", "echo begun; sleep 300 & sleep 300"), timeout=700)
    assert (data["timed_out"], data["stdout"], success) == (True, "begun\n", False)
    assert data["error"] == "Command execution timed out after 700ms"
    assert chat.shell.registry.list()[0].status is State.TIMED_OUT


async def test_stopping_one_chat_leaves_the_other_alone(provider, workspace):
    """Row 63: A is canceled with all of its processes, B comes to exit 0."""
    shell = dialect(provider, {})
    a, b = Chat(shell, workspace, "world/a"), Chat(shell, workspace, "world/b")
    waits = script(workspace, "waits", "echo up; while [ ! -e go ]; do sleep 0.02; done; echo over")
    tasks = [asyncio.ensure_future(chat.call(waits)) for chat in (a, b)]
    await a.until_heard()
    await b.until_heard()
    assert await shell.stop("world", "a") == {"killed": 1}
    data, success = await tasks[0]
    assert (data["reason"], data["stdout"], success) == ("canceled", "up\n", False)
    assert not tasks[1].done()
    (workspace / "go").touch()
    data, success = await tasks[1]
    assert (data["exit_code"], data["stdout"], success) == (0, "up\nover\n", True)
    assert [record.status for record in shell.registry.list()] == [State.COMPLETED, State.CANCELED]


async def test_cancel_by_execution(chat, workspace):
    """Rows 61 and 62: requested, then already finished; a conflict, then deleted."""
    task = asyncio.ensure_future(chat.call(script(workspace, "waits", "echo up; sleep 300")))
    await chat.until_heard()
    name = chat.shell.registry.list(active_only=True)[0].execution_id
    assert chat.shell.delete(name).outcome == "active_process_conflict"
    assert await chat.shell.cancel(name) == "cancel_requested"
    await task
    assert await chat.shell.cancel(name) == "already_finished"
    assert chat.shell.delete(name) == ("deleted", 1)


async def test_artifacts_come_back_hashed(chat, workspace):
    """As the command left them; a link that it put there is no file."""
    build = script(workspace, "build", "mkdir dist; printf built > dist/app.js; ln -s /etc/passwd dist/leak")
    data, success = await chat.call(build, artifact_paths=["dist/app.js"])
    sha256 = hashlib.sha256(b"built").hexdigest()
    assert success
    assert data["artifacts"] == [{"path": "dist/app.js", "sha256": sha256, "bytes": 5}]
    (workspace / "dist" / "leak").unlink()
    data, success = await chat.call("ln", "-s", "nowhere", "dist/leak", artifact_paths=["dist/leak"])
    assert (data["error"], success) == ('Artifact path is not a file: "dist/leak"', False)


async def test_what_is_not_there_is_not_started(chat):
    """A program that does not exist has no exit code; the provider is not to blame."""
    data, success = await chat.call("no-such-program")
    assert (data["exit_code"], data["reason"], success) == (None, "execution_error", False)
    assert data["error"].startswith("spawn no-such-program: ")


async def test_approval_is_asked_granted_and_bound_to_the_plan(workspace):
    """An answer for another plan or session changes nothing; the right one lets exactly this command run."""
    questions = Questions()
    (workspace / "old").touch()
    async with Provider(workspace, image=MINIMAL, approver=questions) as provider:
        chat = Chat(dialect(provider, {}), workspace)
        task = asyncio.ensure_future(chat.call("rm", "old"))
        question = await questions.wait("world/chat")
        assert question.plan.exec.argv == ("rm", "old")
        assert question.remember == ()
        for session, digest in (("world/chat", "0" * 64), ("world/other", question.plan.digest)):
            with pytest.raises(CallError):
                questions.answer(question.run_id, "once", session=session, plan_digest=digest)
        assert (workspace / "old").exists()
        questions.answer(question.run_id, "once", session="world/chat", plan_digest=question.plan.digest)
        _, success = await task
        assert success
        assert not (workspace / "old").exists()


async def test_approval_denied_or_expired_runs_nothing(workspace):
    """The file is still there, and the text says who did not say yes."""
    questions = Questions()
    (workspace / "old").touch()
    async with Provider(workspace, image=MINIMAL, approver=questions) as provider:
        chat = Chat(dialect(provider, {}), workspace)
        task = asyncio.ensure_future(chat.call("rm", "old"))
        question = await questions.wait()
        questions.answer(question.run_id, "deny", session="world/chat", plan_digest=question.plan.digest)
        data, _ = await task
        assert data["error"].endswith("was not approved (user_denied).")
    async with Provider(
        workspace, image=MINIMAL, approver=questions, settings=Settings(approval_seconds=0.05, spares=0)
    ) as provider:
        data, _ = await Chat(dialect(provider, {}), workspace).call("rm", "old")
        assert data["error"].endswith("was not approved (timeout).")
    assert (workspace / "old").exists()
    assert questions.list() == ()


async def test_a_call_by_name(provider):
    """As programs make it: through the provider, in markdown."""
    reply = await provider.call("shell_cmd", {"command": "echo", "parameters": ["hi"]}, session="world/chat")
    assert reply.success
    assert reply.content.splitlines()[-3:] == ["```", "hi", "```"]
