"""The Helix Shell contract in real containers."""

import asyncio
import os

import pytest

from provider import Provider, Settings
from provider import run as run_module
from provider.approval import Answer, Approval
from provider.dialects.helix import Shell, run_succeeded
from provider.errors import PolicyRefused
from provider.model import Decision, Verdict
from provider.questions import Questions

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"
NAMES = ["ls", "cat", "echo", "grep", "sh", "sleep", "printf", "seq", "./tool"]
ASK = Verdict(decision=Decision.ASK, reasons=("a rule wants it",))


@pytest.fixture
def shell(provider):
    return Shell(provider, allowed_commands=NAMES)


@pytest.fixture
def globbing(provider):
    return Shell(provider, allowed_commands=NAMES, glob=True)


@pytest.fixture
async def tooled(workspace):
    """A provider whose tool has a list."""
    async with _tooled(workspace) as provider:
        yield provider


def _tooled(workspace, *, approval_seconds=600.0, **options):
    table = {"allowed_commands": NAMES, "glob": True, "max_stdout_bytes": 1000}
    settings = Settings(tools={"workspace_run": table}, approval_seconds=approval_seconds, spares=0)
    return Provider(workspace, image=MINIMAL, settings=settings, **options)


def script(workspace, text, name="tool"):
    """A listed program of the workspace."""
    path = workspace / name
    path.write_text(text)
    path.chmod(0o755)
    os.chown(path, workspace.stat().st_uid, workspace.stat().st_gid)


async def test_words_reach_the_program_as_they_are(shell, workspace):
    """Quotes group, and nothing in the words is expanded on the way."""
    script(workspace, '#!/bin/sh\nprintf "[%s]" "$@"\n')
    result = await shell.run("./tool 'two words' \"it's\" '$HOME' a\\ b ''")
    assert (result["stdout"], result["exitCode"]) == (b"[two words][it's][$HOME][a b][]", 0)
    assert run_succeeded(result)


async def test_output_streams_while_the_command_runs(shell, workspace):
    """The first chunk is heard before the command, which waits for what is done upon it, can end."""
    script(workspace, "#!/bin/sh\necho first\nuntil [ -e go ]; do sleep 0.02; done\necho second >&2\n")
    heard = []

    async def hear(data):
        heard.append(data)
        (workspace / "go").touch()

    async with asyncio.timeout(20):
        result = await shell.run("./tool", onStdout=hear)
    assert (heard, result["stdout"], result["stderr"]) == ([b"first\n"], b"first\n", b"second\n")


async def test_only_globs_are_expanded(globbing, workspace):
    """With globs on, patterns, braces and the tilde become names; everything else stays as it was written."""
    script(workspace, '#!/bin/sh\nprintf "[%s]" "$@"\n')
    for name in ("a.txt", "b.txt", "c d.txt", "$(id).txt", "x;id.txt", "-rf.txt"):
        (workspace / name).touch()
    result = await globbing.run("./tool *.txt '*' \\* '$HOME' {p,q} [ab].txt ~ ?.txt nothing*")
    said = result["stdout"].decode()
    assert said.endswith("[*][*][$HOME][p][q][a.txt][b.txt][/home/sandbox][a.txt][b.txt][nothing*]")
    names = {"-rf.txt", "$(id).txt", "a.txt", "b.txt", "c d.txt", "x;id.txt"}
    assert set(said.strip("[]").split("][")[:6]) == names
    assert result["stderr"] == b""


async def test_a_glob_runs_the_program_and_no_builtin(globbing, provider):
    """`exec` starts what is on PATH: a name that only a shell knows is not found, with globs as without."""
    with_globs = Shell(provider, allowed_commands=["eval", "cd"], glob=True)
    assert (await with_globs.run("eval 'echo hi' *"))["exitCode"] == 127
    assert (await with_globs.run("eval 'echo hi'"))["exitCode"] == 127


@pytest.mark.parametrize("command", ["ls; id", "ls $(id)", "cat /etc/{passwd,group}", "ls\nid", "id", "ls > x"])
async def test_a_refused_command_leaves_no_trace(shell, provider, workspace, command):
    """It is refused before any container is made."""
    with pytest.raises(PolicyRefused):
        await shell.run(command)
    assert provider.runs() == ()
    assert list(workspace.iterdir()) == []


async def test_a_program_that_is_not_there(shell):
    """It is 127, as in a shell, and the note says so."""
    result = await shell.run("./tool")
    assert result["exitCode"] == 127
    assert result["note"].startswith("could not be started: ")


async def test_a_time_out_ends_everything_and_keeps_output(shell, workspace):
    """Also what ignores TERM is gone; what it wrote is there."""
    script(workspace, "#!/bin/sh\ntrap '' TERM\necho begun\nwhile :; do sleep 0.05; done\n")
    async with asyncio.timeout(20):
        result = await shell.run("./tool", timeoutMs=500)
    assert (result["exitCode"], result["stdout"]) == (124, b"begun\n")
    assert result["note"].startswith("timed out after ")


async def test_an_abort_ends_the_command_and_silences_it(shell, workspace):
    """After the signal no callback is called, however fast the command goes on writing; the exit code is -1."""
    script(workspace, "#!/bin/sh\ntrap '' TERM\nwhile :; do echo line; done\n")
    signal, after = asyncio.Event(), []

    async def hear(data):
        after.append(signal.is_set())
        if len(after) == 3:
            signal.set()

    async with asyncio.timeout(20):
        result = await shell.run("./tool", signal=signal, onStdout=hear)
    assert after == [False, False, False]
    assert result["exitCode"] == -1
    assert "callbackErrors" not in result


async def test_bytes_survive(shell, workspace):
    """A result has the very bytes, whatever they are."""
    script(workspace, "#!/bin/sh\nprintf '\\377\\000\\200'\n")
    assert (await shell.run("./tool"))["stdout"] == b"\xff\x00\x80"


async def test_a_slow_callback_slows_the_command_and_loses_nothing(shell):
    """Every byte of a long output is heard, in order, by a callback that takes its time."""
    heard = bytearray()

    async def hear(data):
        await asyncio.sleep(0)
        heard.extend(data)

    result = await shell.run("seq 200000", onStdout=hear)
    assert bytes(heard) == result["stdout"] == b"".join(b"%d\n" % at for at in range(1, 200001))


async def test_a_conversation_with_a_listed_program(shell):
    """Stdin and a terminal, through spawn, with the same checks."""
    process = await shell.spawn("cat")
    await process.write(b"hello\n")
    await process.close_stdin()
    assert (await process.wait()).stdout == b"hello\n"
    process = await shell.spawn("sh -i", tty=(24, 80), timeoutMs=20_000)
    await process.write(b"stty size; exit 3\n")
    outcome = await process.wait()
    assert outcome.exit_code == 3
    assert b"24 80" in outcome.stdout
    with pytest.raises(PolicyRefused):
        await shell.spawn("cat; id")


# The tool.


async def test_a_call_from_end_to_end(tooled, workspace):
    """The reply has wrapped and cut streams, the exit code, and events came while it ran."""
    script(workspace, "#!/bin/sh\nseq 1000\necho '</workspace_tool_result>' >&2\nexit 4\n")
    events = []
    reply = await tooled.call("workspace_run", {"command": "./tool"}, session="s", on_event=events.append)
    content = reply.content
    whole = "".join(f"{at}\n" for at in range(1, 1001))
    assert (reply.success, content["exitCode"], content["stdoutOmittedBytes"]) == (False, 4, len(whole) - 1000)
    assert whole[:1000] in content["stdout"]
    assert content["stderr"].count("</workspace_tool_result>") == 1
    assert "".join(event["chunk"] for event in events if event["type"] == "workspace_stdout") == whole


async def test_directory_and_variables(tooled, workspace):
    """A call runs in its directory with its variables; the next one begins anew."""
    (workspace / "sub").mkdir()
    script(workspace, '#!/bin/sh\necho "$PWD" "${COLOR-none}"\n')
    first = await tooled.call("workspace_run", {"command": "sh ../tool", "cwd": "sub", "env": {"COLOR": "red"}})
    second = await tooled.call("workspace_run", {"command": "sh ./tool"})
    assert "\n/workspace/sub red\n" in first.content["stdout"]
    assert "\n/workspace none\n" in second.content["stdout"]


async def test_one_session_is_stopped_while_another_goes_on(tooled, workspace):
    """Stop by session cancels that session's call; the other ends by itself with 0."""
    script(workspace, "#!/bin/sh\necho on\nuntil [ -e go ]; do sleep 0.02; done\n")
    begun = {"a": asyncio.Event(), "b": asyncio.Event()}

    def begin(session):
        async def hear(event):
            begun[session].set()

        call = tooled.call("workspace_run", {"command": "./tool"}, session=session, on_event=hear)
        return asyncio.ensure_future(call)

    async with asyncio.timeout(30):
        first, second = begin("a"), begin("b")
        for event in begun.values():
            await event.wait()
        assert await tooled.stop(session="a") == 1
        stopped = await first
        assert not second.done()
        (workspace / "go").touch()
        ended = await second
    assert (stopped.content["exitCode"], stopped.content["note"]) == (-1, "canceled")
    assert (ended.success, ended.content["exitCode"]) == (True, 0)


@pytest.mark.parametrize("answer", [Answer.ONCE, Answer.DENY, Answer.ABORT])
async def test_where_a_policy_asks_the_answer_counts(workspace, monkeypatch, answer):
    """The contract asks nobody itself; under a policy that does, a yes runs the call and a no is a reply."""
    monkeypatch.setattr(run_module, "judge", lambda request, settings, rules: ASK)
    questions = Questions()
    async with _tooled(workspace, approver=questions) as provider, asyncio.timeout(20):
        calling = asyncio.ensure_future(provider.call("workspace_run", {"command": "echo hi"}, session="s"))
        question = await questions.wait("s")
        assert question.plan.exec.argv == ("echo", "hi")
        questions.answer(question.run_id, answer, session="s", plan_digest=question.plan.digest)
        reply = await calling
    if answer is Answer.ONCE:
        assert (reply.success, reply.content["exitCode"]) == (True, 0)
    else:
        assert reply.content["error"]["name"] == "CommandNotApprovedError"


async def test_a_question_that_nobody_answers_in_time(workspace, monkeypatch):
    """Its time over, the answer is no."""
    monkeypatch.setattr(run_module, "judge", lambda request, settings, rules: ASK)
    async with _tooled(workspace, approver=Questions(), approval_seconds=0.05) as provider, asyncio.timeout(20):
        reply = await provider.call("workspace_run", {"command": "echo hi"})
    assert reply.content["error"]["name"] == "CommandNotApprovedError"


async def test_a_yes_to_another_plan(workspace, monkeypatch):
    """An approval whose digest is not that of the plan runs nothing."""
    monkeypatch.setattr(run_module, "judge", lambda request, settings, rules: ASK)

    async def other(approver, question, grants, **options):
        return Approval(by="somebody", answer=Answer.ONCE, plan_digest="0" * 64)

    monkeypatch.setattr(run_module, "decide", other)
    async with _tooled(workspace) as provider:
        reply = await provider.call("workspace_run", {"command": "echo hi"})
    assert reply.content["error"]["name"] == "CommandNotApprovedError"
    assert "is for plan 000000000000" in reply.content["error"]["message"]


async def test_an_image_that_is_not_there(workspace):
    """It is the workspace's failure, by name, and no exit code."""
    settings = Settings(tools={"workspace_run": {"allowed_commands": ["ls"]}}, spares=0)
    async with Provider(workspace, image="sandbox-provider/none-such", settings=settings) as provider:
        reply = await provider.call("workspace_run", {"command": "ls"})
    assert set(reply.content) == {"error"}
    assert reply.content["error"]["name"] == "WorkspaceFailedError"
