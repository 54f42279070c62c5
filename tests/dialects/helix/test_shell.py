"""What `helix.shell` promises to Python users: the same checks whoever calls, exact endings, aborts that hold."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from provider import Provider
from provider.dialects.helix import RunResult, Shell, run_succeeded
from provider.errors import CallError, ConfigError, EngineUnavailable, PolicyRefused
from provider.model import Begun, Chunk, Ending, State
from provider.settings import Settings
from provider.testing import COMPLETES, PID, FakeEngine, FakeSandbox

WAITS = (Begun(PID), Chunk("stdout", b"partial"))
Made = Callable[..., Provider]


pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture
def made(workspace: Path) -> Made:
    def make(engine: FakeEngine) -> Provider:
        return Provider(workspace, settings=Settings(grace=0.05, spares=0), engine=engine)

    return make


def ends(**ending: Any) -> FakeEngine:
    return FakeEngine([Begun(PID), Chunk("stdout", b"\xff"), Ending(pid=PID, **{"reason": "exited", **ending})])


@pytest.mark.parametrize(
    ("ending", "code", "note"),
    [
        ({"exit_code": 0}, 0, ""),
        ({"exit_code": 3}, 3, ""),
        ({"signal": 11}, 139, ""),
        ({"signal": 9, "oom_kills": 1}, 137, "a process was killed for want of memory"),
        ({"error": "no ls", "error_number": 2}, 127, "could not be started: no ls"),
        ({"error": "no ls", "error_number": 13}, 126, "could not be started: no ls"),
        ({"error": "no ls"}, 126, "could not be started: no ls"),
        ({"reason": "timed_out", "exit_code": 0}, 124, "timed out after 0 ms"),
        ({"reason": "timed_out", "signal": 9}, 124, "timed out after 0 ms"),
        ({"reason": "canceled", "exit_code": 0}, -1, "canceled"),
        ({"reason": "output_limit", "signal": 15}, -1, "ended for writing too much output"),
    ],
    ids=str,
)
async def test_every_ending_is_one_number(made: Made, ending: dict[str, Any], code: int, note: str):
    """Exit codes are the command's own, or say by a shell's numbers what became of it; only 0 is success."""
    async with made(ends(**ending)) as provider:
        result = await Shell(provider, allowedCommands=["ls"]).run("ls")
    assert (result.exit_code, result["exitCode"]) == (code, code)
    assert result.note.replace(f"{result.duration_ms} ms", "0 ms") == note
    assert ("note" in result) is bool(note)
    assert result.stdout == b"\xff"
    assert run_succeeded(result) is (code == 0)


async def test_a_result_is_a_mapping_in_the_contracts_words():
    """It compares, lists and looks up like an object of the original; what is absent is not there."""
    result = RunResult(stdout=b"a", stderr=b"", exit_code=0, duration_ms=5)
    assert result == {"stdout": b"a", "stderr": b"", "exitCode": 0, "durationMs": 5}
    assert len(result) == 4
    with pytest.raises(KeyError):
        result["callbackErrors"]
    with pytest.raises(KeyError):
        result["exit_code"]


@pytest.mark.parametrize("names", ["camel", "snake"])
async def test_options_have_both_spellings(made: Made, names: str, workspace: Path):
    """`timeoutMs` and `timeout_ms` mean the same; so do the others."""
    (workspace / "sub").mkdir()
    engine, heard = ends(exit_code=0), []
    options = {"timeoutMs": 1500, "onStdout": heard.append, "onStderr": heard.append}
    if names == "snake":
        options = {"timeout_ms": 1500, "on_stdout": heard.append, "on_stderr": heard.append}
    async with made(engine) as provider:
        await Shell(provider, allowed_commands=["ls"]).run("ls", cwd="sub", env={"A": "b"}, **options)
    plan = engine.sandboxes[0].released
    assert plan is not None
    assert (plan.timeout, plan.cwd, heard) == (1.5, "/workspace/sub", [b"\xff"])


@pytest.mark.parametrize(
    ("config", "seconds"), [({}, 600.0), ({"max_duration_ms": 50}, 0.05), ({"max_duration_ms": None}, None)]
)
async def test_the_default_time_is_the_configured_one(made: Made, config: dict[str, Any], seconds: float | None):
    """Without timeoutMs a command has maxDurationMs; a caller in Python may ask for more."""
    engine = FakeEngine()
    async with made(engine) as provider:
        shell = Shell(provider, allowed_commands=["ls"], **config)
        await shell.run("ls")
        await shell.run("ls", timeoutMs=700_000)
    assert [sandbox.released and sandbox.released.timeout for sandbox in engine.sandboxes] == [seconds, 700.0]


@pytest.mark.parametrize(
    ("cmd", "options", "error", "fault"),
    [
        ("id", {}, PolicyRefused, "'id' is not in allowedCommands"),
        ("ls; id", {}, PolicyRefused, "metacharacter"),
        ("ls *", {}, PolicyRefused, "glob"),
        ("", {}, CallError, "non-empty"),
        (["ls"], {}, CallError, "non-empty"),
        ("ls", {"env": {"BASH_ENV": "x"}}, CallError, "BASH_ENV"),
        ("ls", {"env": {"BASH_FUNC_ls%%": "() { id; }"}}, CallError, "BASH_FUNC_ls"),
        ("ls", {"env": {"PATH": "/workspace"}}, CallError, "PATH"),
        ("ls", {"env": {"GIT_CONFIG_KEY_0": "x"}}, CallError, "GIT_CONFIG_KEY_0"),
        ("ls", {"env": {"A B": "x"}}, CallError, "A B"),
        ("ls", {"env": {"A": "\0"}}, CallError, "NUL"),
        ("ls", {"timeoutMs": 0}, CallError, "timeoutMs: .*greater than 0"),
        ("ls", {"timeoutMs": -5}, CallError, "timeoutMs"),
        ("ls", {"timeoutMs": float("inf")}, CallError, "timeoutMs"),
        ("ls", {"timeoutMs": 10**12}, CallError, "timeoutMs"),
        ("ls", {"timeoutMs": 5, "timeout_ms": 6}, CallError, "timeout_ms"),
        ("ls", {"onStdout": "show"}, CallError, "onStdout"),
        ("ls", {"signal": True}, CallError, "signal"),
        pytest.param("ls", {"signal": threading.Event()}, CallError, "signal: .*asyncio.Event", id="of threads"),
        ("ls", {"stdin": b"x"}, CallError, "stdin"),
        ("ls", {"cwd": "gone"}, CallError, "gone"),
    ],
    ids=str,
)
async def test_direct_calls_are_checked_as_well(
    made: Made, cmd: Any, options: dict[str, Any], error: type[Exception], fault: str
):
    """Whoever uses the Shell past the tool meets the same rules; nothing is created."""
    engine = FakeEngine()
    async with made(engine) as provider:
        shell = Shell(provider, allowed_commands=["ls"])
        with pytest.raises(error, match=fault):
            await shell.run(cmd, **options)
        if "stdin" not in options:
            with pytest.raises(CallError if error is CallError else error):
                await shell.spawn(cmd, **options)
    assert engine.sandboxes == []


@pytest.mark.parametrize("name", ["PYTHONUNBUFFERED", "NODE_ENV", "LD_PRELOAD_FOO", "GIT_AUTHOR_NAME", "CI", "HOME"])
async def test_harmless_variables_pass(made: Made, name: str):
    """The denylist has names, not families of look-alikes."""
    async with made(FakeEngine()) as provider:
        assert run_succeeded(await Shell(provider, allowed_commands=["ls"]).run("ls", env={name: "1"}))


def test_a_shell_with_a_mistake_in_its_configuration():
    """A list with a command line in it is refused when the Shell is made."""
    with pytest.raises(ConfigError, match=r"Shell: allowed_commands.*'ls -la' must be a program"):
        Shell(None, allowed_commands=["ls -la"])  # type: ignore[arg-type]


async def test_a_fault_is_raised(made: Made):
    """The provider's own failure is an exception, never a result."""
    async with made(FakeEngine(open_error=EngineUnavailable("no engine"))) as provider:
        with pytest.raises(EngineUnavailable):
            await Shell(provider, allowed_commands=["ls"]).run("ls")


# Abort.


async def test_a_signal_that_is_set_already_creates_nothing(made: Made):
    """The result says that it never began."""
    engine, signal = FakeEngine(), asyncio.Event()
    signal.set()
    async with made(engine) as provider:
        result = await Shell(provider, allowed_commands=["ls"]).run("ls", signal=signal)
    assert (result.exit_code, result.note) == (-1, "aborted before it was started")
    assert engine.sandboxes == []


async def test_an_abort_while_the_sandbox_opens(made: Made):
    """Nothing has run, and nobody waits for the engine."""
    signal = asyncio.Event()
    engine = FakeEngine(open_gate=asyncio.Event())
    async with made(engine) as provider, asyncio.timeout(5):
        running = asyncio.ensure_future(Shell(provider, allowed_commands=["ls"]).run("ls", signal=signal))
        await engine.opening.wait()
        signal.set()
        assert (await running).exit_code == -1
    assert engine.sandboxes == []


async def test_an_abort_without_callbacks(made: Made):
    """What was written before it is in the result; the command is ended."""
    signal = asyncio.Event()

    async def script(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        yield Chunk("stdout", b"before")
        signal.set()
        yield Chunk("stdout", b"in flight")

    engine = FakeEngine(script)
    async with made(engine) as provider, asyncio.timeout(5):
        result = await Shell(provider, allowed_commands=["ls"]).run("ls", signal=signal)
    assert (result.stdout, result.exit_code) == (b"before", -1)


async def test_a_signal_that_is_never_set_changes_nothing(made: Made):
    """All output is there, and nothing waits for the signal any more."""
    chunks = [Chunk("stderr" if at % 2 else "stdout", b"%d" % at) for at in range(6)]
    before = asyncio.all_tasks()
    async with made(FakeEngine([Begun(PID), *chunks, COMPLETES[-1]])) as provider:
        result = await Shell(provider, allowed_commands=["ls"]).run("ls", signal=asyncio.Event())
    assert (result.stdout, result.stderr) == (b"024", b"135")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_callback_that_never_returns_does_not_hold_an_abort_up(made: Made):
    """The abort ends the run, and the callback is named among the errors."""
    signal = asyncio.Event()

    async def stuck(data: bytes) -> None:
        signal.set()
        await asyncio.Event().wait()

    async with made(FakeEngine(WAITS)) as provider, asyncio.timeout(5):
        result = await Shell(provider, allowed_commands=["ls"]).run("ls", signal=signal, onStdout=stuck)
    assert (result.exit_code, result.stdout, len(result["callbackErrors"])) == (-1, b"partial", 1)


async def test_cancelling_the_task_ends_the_command(made: Made):
    """Python's own way of stopping works as well, and leaves nothing."""
    engine, begun = FakeEngine(WAITS), asyncio.Event()

    async def hear(data: bytes) -> None:
        begun.set()

    async with made(engine) as provider, asyncio.timeout(5):
        shell = Shell(provider, allowed_commands=["ls"])
        running = asyncio.ensure_future(shell.run("ls", signal=asyncio.Event(), onStdout=hear))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert engine.sandboxes[0].disposals == 1


# Time.


async def test_a_time_out_keeps_what_was_written(made: Made):
    """Everything is ended, output so far is in the result, and the number is not that of an abort."""
    async with made(FakeEngine(WAITS)) as provider, asyncio.timeout(5):
        result = await Shell(provider, allowed_commands=["ls"]).run("ls", timeoutMs=10)
    assert (result.exit_code, result.stdout) == (124, b"partial")
    assert result.note.startswith("timed out after ")


async def test_a_signal_that_is_not_set_does_not_shorten_a_time_out(made: Made):
    """Output that came while a callback was stuck is in the result, though nobody heard it."""

    async def script(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        yield Chunk("stdout", b"heard")
        yield Chunk("stdout", b", not heard")
        yield Ending(reason="timed_out", signal=15, pid=PID)

    async def stuck(data: bytes) -> None:
        await asyncio.Event().wait()

    options = {"timeoutMs": 10, "signal": asyncio.Event(), "onStdout": stuck}
    async with made(FakeEngine(script, deaf=True)) as provider, asyncio.timeout(5):
        result = await Shell(provider, allowed_commands=["ls"]).run("ls", **options)
    assert (result.exit_code, result.stdout) == (124, b"heard, not heard")


# Spawn.


async def test_spawn_has_stdin_and_a_terminal(made: Made):
    """Bytes reach the command, a size its terminal; the allowlist holds as for run."""
    engine = FakeEngine(WAITS)
    async with made(engine) as provider, asyncio.timeout(5):
        process = await Shell(provider, allowed_commands=["cat"]).spawn("cat -n", tty=(24, 80), timeoutMs=9000)
        await process.write(b"hello")
        await process.close_stdin()
        process.resize(30, 100)
        await engine.sandboxes[0].stdin_closed.wait()
        process.cancel()
        assert (await process.wait()).status is State.CANCELED
    sandbox = engine.sandboxes[0]
    assert sandbox.released is not None
    assert (sandbox.released.argv, sandbox.released.tty, sandbox.released.timeout) == (("cat", "-n"), (24, 80), 9.0)
    assert (b"".join(sandbox.stdin), sandbox.sizes) == (b"hello", [(30, 100)])


async def test_spawn_takes_no_callbacks(made: Made):
    """It says where output and the end are to be had instead."""
    async with made(FakeEngine()) as provider:
        with pytest.raises(CallError, match=r"read output\(\)"):
            await Shell(provider, allowed_commands=["cat"]).spawn("cat", onStdout=print)
