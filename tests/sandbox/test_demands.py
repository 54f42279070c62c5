"""
What users of the three shell tools ask for again and again, twelve demands, each in real containers.

The numbers are those of the contracts' research, section E.4.
"""

import asyncio
import time

import pytest

from provider import Provider, Settings
from provider.approval import Answer
from provider.dialects import all_tools
from provider.dialects.helix import Shell
from provider.errors import CallError

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"
DEFAULT = "sandbox-provider/default"
ALLOWED = {"allowed_commands": ["cat", "sleep", "env", "pwd", "echo"]}


def opened(workspace, image=MINIMAL, **tables):
    tools = {"workspace_run": ALLOWED, **tables}
    return Provider(workspace, image=image, settings=Settings(tools=tools))


async def shell(provider, command, **options):
    return (await provider.call("run_shell_command", {"command": command}, **options)).content


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is in a container
            await asyncio.sleep(0.01)


async def test_1_total_and_inactivity_time_outs_differ_from_a_cancel(workspace):
    """Three ways to end a command early have three answers, and what it wrote is kept in each."""
    async with opened(workspace, run_shell_command={"timeout": 1.0, "inactivity_timeout": 0}) as provider:
        total = await shell(provider, "echo begun; sleep 300")
    async with opened(workspace, run_shell_command={"timeout": 0, "inactivity_timeout": 0.5}) as provider:
        busy = await shell(provider, "for i in 1 2 3 4; do echo $i; sleep 0.3; done")
        idle = await shell(provider, "echo begun; sleep 300")
        running = asyncio.create_task(shell(provider, "echo begun; while sleep 0.1; do echo .; done", session="s"))
        await until(lambda: provider.runs("s"))
        await provider.stop(session="s")
        canceled = await running
    assert busy["exitCode"] == 0
    assert "timed out after" in total["message"]
    assert "without output" in idle["message"]
    assert "cancelled by user" in canceled["message"]
    assert total["stdout"] == idle["stdout"] == "begun\n"


STUBBORN = "trap '' TERM HUP; (trap '' TERM HUP; while :; do echo x >> beat; sleep 0.02; done) & "


@pytest.mark.parametrize("path", ["timeout", "cancel", "stop"])
async def test_2_every_way_to_end_kills_everything(workspace, path):
    """Children that ignore TERM do not survive a time-out, a cancel or a stop of the session."""
    beat = workspace / "beat"
    async with opened(workspace) as provider:
        limit = 1.0 if path == "timeout" else None
        command = STUBBORN + "wait"
        running = asyncio.create_task(provider.run(command, run_id="r", session="s", timeout=limit))
        await until(beat.exists)
        if path == "cancel":
            await provider.cancel("r")
        if path == "stop":
            await provider.stop(session="s")
        outcome = await running
        size = beat.stat().st_size
        await asyncio.sleep(0.2)
        assert beat.stat().st_size == size
        assert outcome.status == ("timed_out" if path == "timeout" else "canceled")


async def test_3_a_background_child_does_not_hold_the_answer(workspace):
    """`sleep 300 & echo hi` is answered when its shell ends, though the child has the pipe."""
    async with opened(workspace) as provider:
        began = time.monotonic()
        reply = await shell(provider, "sleep 300 & echo hi")
        assert time.monotonic() - began < 5
    assert (reply["stdout"], reply["exitCode"], len(reply["backgroundPids"])) == ("hi\n", 0, 1)


async def test_4_nothing_waits_for_input(workspace):
    """Under each contract a command that reads stdin finds its end."""
    async with opened(workspace) as provider:
        calls = {
            "shell_cmd": {"command": "cat"},
            "run_shell_command": {"command": "cat; read x || echo nothing"},
            "workspace_run": {"command": "cat"},
        }
        for tool, payload in calls.items():
            async with asyncio.timeout(10):
                assert (await provider.call(tool, payload)).success, tool


async def test_5_output_is_bounded_with_head_and_tail(workspace):
    """A model sees the beginning and the end, is told how much is missing, and can have it all from a file."""
    async with opened(workspace) as provider:
        reply = await shell(provider, "seq 1 100000")
        assert reply["stdout"].startswith("1\n2\n")
        assert reply["stdout"].endswith("99999\n100000\n")
        assert len(reply["stdout"]) < 50_000
        assert "omitted" in reply["message"]
        await shell(provider, "seq 1 100000 > all")
    assert (workspace / "all").read_text().count("\n") == 100_000


async def test_6_a_refusal_names_the_part_and_the_way(workspace):
    """Mistakes are replies that say what, where and what instead; none is a crash, and nothing ran."""
    async with opened(workspace) as provider:
        command = (await provider.call("shell_cmd", {"command": "ls && pwd"})).content
        substitution = await shell(provider, "echo $(id)")
        listed = (await provider.call("workspace_run", {"command": "curl x"})).content
        assert provider.runs() == ()
    assert "`parameters`" in command
    assert substitution["error"]
    assert "curl" in str(listed)
    assert "allowedCommands" in str(listed)


async def test_7_approval_has_three_widths_and_a_deny_wins(workspace):
    """Once; this command for the session; this program for the session; and what is denied is never asked about."""
    asked = []

    async def ann(question):
        asked.append(question.plan.exec.argv[-1])
        return answer

    for width, answer, expected in [
        ("root", Answer.ONCE, 3),
        ("exact", Answer.SESSION, 2),
        ("root", Answer.SESSION, 1),
    ]:
        asked.clear()
        table = {"confirm": True, "remember": width, "exclude_tools": ["run_shell_command(rm)"]}
        async with opened(workspace, run_shell_command=table) as provider:
            for command in ("echo a", "echo a", "echo b"):
                assert (await shell(provider, command, session="s", approver=ann))["exitCode"] == 0
            assert len(asked) == expected, (width, answer)
            denied = await shell(provider, "echo a && rm x", session="s", approver=ann)
            assert denied["exitCode"] is None
            assert len(asked) == expected


@pytest.mark.parametrize(
    "command",
    ["echo a; rm x", "echo a\nrm x", "echo a | rm x", "(rm x)", "if true; then rm x; fi", "FOO=1 rm x", "/bin/rm x"],
)
async def test_8_every_part_is_checked(workspace, command):
    """Chained, nested or on a new line, a denied program stops all of it."""
    (workspace / "x").write_text("")
    async with opened(workspace, run_shell_command={"exclude_tools": ["run_shell_command(rm)"]}) as provider:
        reply = await shell(provider, command)
    assert (reply["exitCode"], reply["stdout"]) == (None, "")
    assert (workspace / "x").exists()


async def test_9_what_failed_is_told_apart(workspace, engine_client, monkeypatch):
    """No engine, no image, and a container that died are three errors; the next call works again."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    async with opened(workspace) as provider:
        no_engine = await shell(provider, "true")
    monkeypatch.delenv("DOCKER_HOST")
    async with opened(workspace, image="no/such") as provider:
        no_image = await shell(provider, "true")
    async with opened(workspace) as provider:
        running = asyncio.create_task(shell(provider, "touch up; sleep 300"))
        await until((workspace / "up").exists)
        engine_client.kill(provider.runs()[0].sandbox.container.id)
        died = await running
        again = await shell(provider, "echo fine")
    kinds = [reply["errorType"] for reply in (no_engine, no_image, died)]
    assert kinds == ["SANDBOX_UNAVAILABLE", "SANDBOX_IMAGE_MISSING", "SANDBOX_LOST"]
    assert again["stdout"] == "fine\n"


@pytest.mark.parametrize("image", [MINIMAL, DEFAULT])
async def test_10_nothing_in_the_image_is_relied_upon(workspace, image):
    """With and without bash, pgrep and GNU tools: exit codes, background pids and time-outs are the same."""
    async with opened(workspace, image=image, run_shell_command={"timeout": 5}) as provider:
        reply = await shell(provider, "sleep 60 & sleep 60 & exit 7")
        assert (reply["exitCode"], len(reply["backgroundPids"])) == (7, 2)


async def test_11_the_environment_is_built_from_nothing(workspace, monkeypatch):
    """No variable of the host is there, and steering ones are denied at the tool and below it."""
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    async with opened(workspace) as provider:
        assert "SECRET" not in (await shell(provider, "env"))["stdout"]
        refused = await provider.call("workspace_run", {"command": "env", "env": {"LD_PRELOAD": "/x"}})
        assert not refused.success
        with pytest.raises(CallError, match="LD_PRELOAD"):
            await Shell(provider, **ALLOWED).run("env", env={"LD_PRELOAD": "/x"})


async def test_12_the_directory_is_honoured_and_nothing_is_remembered(workspace):
    """A real sub-directory is where it runs, `cd` does not last, and the model is told."""
    (workspace / "a" / "b").mkdir(parents=True)
    async with opened(workspace) as provider:
        deep = await provider.call("run_shell_command", {"command": "pwd; cd /tmp; export X=1", "directory": "a/b"})
        after = await shell(provider, "pwd; echo [$X]")
        there = await provider.call("shell_cmd", {"command": "pwd", "directory": "a/b", "output_format": "json"})
        also = await provider.call("workspace_run", {"command": "pwd", "cwd": "a/b"})
    assert deep.content["stdout"] == "/workspace/a/b\n"
    assert after["stdout"] == "/workspace\n[]\n"
    assert "/workspace/a/b" in str(there.content)
    assert "/workspace/a/b" in str(also.content)
    (told,) = [tool.description for tool in all_tools() if tool.name == "run_shell_command"]
    assert "independent" in told
