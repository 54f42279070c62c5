"""What `provider.job` promises: one command on a console, and an exit status that tells its endings apart."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from provider import Provider
from provider import job as job_module
from provider import run as run_module
from provider.assets import Assets
from provider.errors import EngineUnavailable, PolicyRefused, SandboxLost
from provider.job import RunJob, perform
from provider.model import Begun, Chunk, Ending, Stream
from provider.settings import Settings
from provider.testing import COMPLETES, PID, FakeEngine, FakeSandbox

WAITS = (Begun(PID), Chunk("stdout", b"begun"))
SETTINGS = Settings(grace=0.01, spares=0)


class FakeConsole:
    """Keeps what it is shown. What is typed is what the test puts in."""

    def __init__(self, *typed: bytes, size: tuple[int, int] | None = None) -> None:
        self.shown = {"stdout": b"", "stderr": b""}
        self.size = size
        self.modes: list[str] = []
        self.asked = 0
        self.resized: Callable[[int, int], None] | None = None
        self.told: Callable[[int], None] | None = None
        self.heard = asyncio.Event()
        self._typed = typed

    async def stdin(self) -> AsyncIterator[bytes]:
        for piece in self._typed:
            self.asked += 1
            yield piece

    async def write(self, stream: Stream, data: bytes) -> None:
        self.shown[stream] += data
        self.heard.set()

    @contextlib.contextmanager
    def raw(self, resized: Callable[[int, int], None]) -> Iterator[None]:
        self.resized = resized
        self.modes.append("raw")
        try:
            yield
        finally:
            self.modes.append("as before")

    def on_signal(self, told: Callable[[int], None]) -> None:
        self.told = told

    def signal(self, number: int) -> None:
        assert self.told
        self.told(number)


class Broken(FakeConsole):
    """Nobody reads it."""

    async def write(self, stream: Stream, data: bytes) -> None:
        raise BrokenPipeError


class Stuck(FakeConsole):
    """Somebody has stopped reading it."""

    async def write(self, stream: Stream, data: bytes) -> None:
        self.heard.set()
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, assets: Assets, home: Path) -> None:
    monkeypatch.setattr(run_module, "load_assets", lambda: assets)


Performed = Callable[..., Any]


@pytest.fixture
def performed(workspace: Path) -> Performed:
    """Performs a job on a console; gives the exit status."""

    async def perform_it(engine: FakeEngine, console: FakeConsole, **parts: Any) -> int:
        job = RunJob(**{"command": "x", "workspace": Path(workspace.name), **parts})
        async with Provider(settings=SETTINGS, engine=engine) as provider:
            return await asyncio.wait_for(perform(job, console, folder=workspace.parent, provider=provider), 10)

    return perform_it


# Endings.


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (Ending(reason="exited", exit_code=0), 0),
        (Ending(reason="exited", exit_code=255), 255),
        (Ending(reason="exited", signal=signal.SIGSEGV), 139),
        (Ending(reason="timed_out", signal=signal.SIGTERM), 124),
        (Ending(reason="timed_out", exit_code=0), 124),
        (Ending(reason="exited", error="program: no", error_number=errno.ENOENT), 127),
        (Ending(reason="exited", error="program: no", error_number=errno.EACCES), 126),
        (Ending(reason="output_limit", signal=signal.SIGTERM), 143),
        (Ending(reason="canceled", signal=signal.SIGKILL), 137),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
async def test_every_ending_has_its_exit_status(performed: Performed, ending: Ending, status: int, as_json: bool):
    """The same on a terminal and for a program."""
    assert await performed(FakeEngine([Begun(PID), ending]), FakeConsole(), as_json=as_json) == status


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("error", "status"), [(EngineUnavailable("no engine"), 125), (SandboxLost("gone"), 125), (PolicyRefused("no"), 126)]
)
async def test_a_provider_that_fails_is_no_command_that_fails(
    performed: Performed, error: Exception, status: int, as_json: bool
):
    """Its own status, its own key, and a line that says why."""
    console = FakeConsole()
    assert await performed(FakeEngine(open_error=error), console, as_json=as_json) == status
    if as_json:
        said = json.loads(console.shown["stdout"])
        assert said == {"provider_error": {"kind": type(error).__name__, "message": str(error)}}
        assert console.shown["stderr"] == b""
    else:
        assert console.shown == {"stdout": b"", "stderr": f"sandbox: {error}\n".encode()}


async def test_a_mistake_is_told_before_anything_is_opened(performed: Performed, workspace: Path):
    """Limits, settings, workspace and terminal are checked, each with a line that says what is wrong."""
    engine = FakeEngine()
    for parts, word in (
        ({"limits": {"memory": "lots"}}, b"memory"),
        ({"config": Path("none.toml")}, b"none.toml"),
        ({"workspace": Path("none")}, b"none"),
        ({"tty": True, "stdin": True}, b"-t needs a terminal"),
        ({"receipt": Path("none/r.json")}, b"receipt"),
        ({"options": {"network": "host"}}, b"network"),
    ):
        console = FakeConsole()
        assert await performed(engine, console, **parts) == 125
        assert word in console.shown["stderr"]
        assert console.modes == []
    assert engine.sandboxes == []


# What is shown.


async def test_output_is_shown_as_it_is(performed: Performed):
    """Each stream on its own, in order, and nothing else when there is nothing to say."""
    pieces = [Chunk("stdout" if at % 2 else "stderr", b"%d\xff" % at) for at in range(20)]
    console = FakeConsole()
    await performed(FakeEngine([Begun(PID), *pieces, COMPLETES[-1]]), console)
    for name, shown in console.shown.items():
        assert shown == b"".join(piece.data for piece in pieces if piece.stream == name)


async def test_json_is_one_object_and_bytes_are_kept(performed: Performed, workspace: Path):
    """Output that is no text comes as base64, beside what can be shown of it; nothing is on stderr."""
    (workspace / "a").write_bytes(b"x")
    console = FakeConsole()
    script = [Begun(PID), Chunk("stdout", b"\xff\x00"), Chunk("stderr", "ü".encode()), COMPLETES[-1]]
    assert await performed(FakeEngine(script), console, as_json=True, options={"artifacts": ["a"]}) == 0
    said = json.loads(console.shown["stdout"])
    assert base64.b64decode(said["stdout_base64"]) == b"\xff\x00"
    assert said["stderr"] == "ü"
    assert "stderr_base64" not in said
    assert [artifact["path"] for artifact in said["artifacts"]] == ["a"]
    assert said["container"]["id"]
    assert console.shown["stderr"] == b""


async def test_what_the_status_does_not_say_is_said(performed: Performed):
    """Time-out, memory, pids left behind: a line each, on stderr."""
    ending = Ending(reason="timed_out", signal=9, pid=PID, background_pids=(8, 9), oom_kills=1)
    console = FakeConsole()
    await performed(FakeEngine([Begun(PID), ending]), console)
    said = console.shown["stderr"].decode().splitlines()
    assert all(line.startswith("sandbox: ") for line in said)
    assert [word for word in ("timed out", "memory", "pids 8, 9") if not any(word in line for line in said)] == []


async def test_a_reader_that_went_away_ends_the_command(performed: Performed):
    """As SIGPIPE would, were the command here."""
    engine = FakeEngine(WAITS)
    assert await performed(engine, Broken()) == 128 + signal.SIGPIPE
    assert engine.sandboxes[0].terminated == ["canceled"]


@pytest.mark.parametrize("as_json", [True, False])
async def test_a_command_that_is_over_has_its_own_status_though_nobody_reads(performed: Performed, as_json: bool):
    """What was done was done."""
    assert await performed(FakeEngine([Begun(PID), COMPLETES[-1]]), Broken(), as_json=as_json) == 0


# Signals.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("console", [FakeConsole, Stuck])
async def test_a_signal_ends_it(performed: Performed, number: int, console: type[FakeConsole]):
    """Also when the console takes nothing any more; any further signal changes nothing."""
    engine = FakeEngine(WAITS)
    place = console()
    running = asyncio.ensure_future(performed(engine, place, options={"artifacts": ["one to remark on"]}))
    await asyncio.wait_for(place.heard.wait(), 5)
    place.signal(number)
    place.signal(signal.SIGKILL)
    assert await asyncio.wait_for(running, 5) == 128 + number
    assert engine.sandboxes[0].terminated == ["canceled"]


async def test_a_signal_from_before_the_run_ends_it(performed: Performed):
    """A client that is gone while its command line was read does not get it run."""

    class Hasty(FakeConsole):
        def on_signal(self, told: Callable[[int], None]) -> None:
            told(signal.SIGHUP)

    engine = FakeEngine(WAITS)
    assert await performed(engine, Hasty()) == 128 + signal.SIGHUP
    assert all(sandbox.released is None or sandbox.terminated for sandbox in engine.sandboxes)


async def test_a_signal_while_the_sandbox_opens_ends_it(performed: Performed):
    """Nobody waits for an engine that hangs."""
    engine = FakeEngine(WAITS, open_gate=asyncio.Event())
    console = FakeConsole()
    running = asyncio.ensure_future(performed(engine, console))
    await engine.opening.wait()
    console.signal(signal.SIGINT)
    assert await asyncio.wait_for(running, 5) == 128 + signal.SIGINT


async def test_a_signal_that_comes_too_late_changes_nothing(
    performed: Performed, monkeypatch: pytest.MonkeyPatch, workspace: Path
):
    """A command that has ended by itself has its own status."""
    console = FakeConsole()

    async def script(_: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        console.signal(signal.SIGINT)
        yield Ending(reason="exited", exit_code=4, pid=PID)

    assert await performed(FakeEngine(script), console) == 4


# Input and terminals.


async def test_stdin_is_passed_on_only_when_it_was_asked_for(performed: Performed):
    """With it, whole and to its end; without it, not a byte is taken from the console."""

    async def script(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        if sandbox.has_stdin:
            await sandbox.stdin_closed.wait()
        yield COMPLETES[-1]

    for wanted in (True, False):
        engine, console = FakeEngine(script), FakeConsole(b"a", b"b")
        assert await performed(engine, console, stdin=wanted) == 0
        assert engine.sandboxes[0].has_stdin == wanted
        assert b"".join(engine.sandboxes[0].stdin) == (b"ab" if wanted else b"")
        assert console.asked == (2 if wanted else 0)


async def test_a_terminal_is_raw_for_the_run_and_follows_its_size(performed: Performed):
    """Also a size that changes while the sandbox opens reaches the command."""
    gate = asyncio.Event()
    engine = FakeEngine(WAITS, open_gate=gate)
    console = FakeConsole(size=(24, 80))
    running = asyncio.ensure_future(performed(engine, console, tty=True))
    await engine.opening.wait()
    assert console.modes == ["raw"]
    assert console.resized
    console.size = (30, 100)
    console.resized(30, 100)
    gate.set()
    await asyncio.wait_for(console.heard.wait(), 5)
    console.resized(31, 100)
    console.signal(signal.SIGHUP)
    await asyncio.wait_for(running, 5)
    assert engine.sandboxes[0].released
    assert engine.sandboxes[0].released.tty == (24, 80)
    assert engine.sandboxes[0].sizes == [(30, 100), (31, 100)]
    assert console.modes == ["raw", "as before"]


async def test_a_terminal_is_put_back_when_the_sandbox_fails(performed: Performed):
    """The error is told on a terminal that shows it."""
    console = FakeConsole(size=(24, 80))
    assert await performed(FakeEngine(open_error=EngineUnavailable("no")), console, tty=True) == 125
    assert console.modes == ["raw", "as before"]


async def test_without_a_provider_it_has_its_own_and_leaves_nothing(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, home: Path
):
    """It is closed before the status is told, and makes no spares that would serve nobody."""
    engine = FakeEngine()
    made: list[Settings] = []

    def make(*, settings: Settings) -> Provider:
        made.append(settings)
        return Provider(settings=settings, engine=engine)

    monkeypatch.setattr(job_module, "Provider", make)
    job = RunJob(command=("true",), workspace=Path())
    assert await asyncio.wait_for(perform(job, FakeConsole(), folder=workspace), 5) == 0
    assert [settings.spares for settings in made] == [0]
    assert [sandbox.disposals for sandbox in engine.sandboxes] == [1]
    assert engine.closed
