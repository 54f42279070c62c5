"""What `provider.daemon` promises: it serves its user's command lines as they would serve themselves, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from provider import Provider, client
from provider import daemon as daemon_module
from provider.assets import load_assets
from provider.cli import parse
from provider.daemon import _Daemon, serve
from provider.errors import ConfigError
from provider.model import Begun, Chunk, Ending, Leased
from provider.settings import load_settings
from provider.testing import COMPLETES, PID, FakeEngine, FakeSandbox

SANDBOX = [sys.executable, "-m", "provider"]
WAITS = (Begun(PID), Chunk("stdout", b"begun\n"))


pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture(autouse=True)
def complaints() -> Any:
    """Nothing that a client does is an error of the daemon's that nobody handles."""
    complaints: list[Any] = []

    def install() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    yield install
    assert complaints == []


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def is_up() -> bool:
    path = client.socket_path()
    return path.exists() and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.fixture
def up(home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, complaints: Callable[[], None]) -> Any:
    """Runs a daemon over an engine of the test's own, in this very loop, from the folder of the workspace."""
    monkeypatch.chdir(workspace)

    @contextlib.asynccontextmanager
    async def run(
        engine: FakeEngine, *, idle: float = 60, everybody_reads: bool = True
    ) -> AsyncIterator[tuple[_Daemon, Provider]]:
        complaints()
        settings = load_settings()
        with daemon_module._only_one() as alone:
            assert alone
            async with Provider(settings=settings, engine=engine) as provider, asyncio.timeout(30):
                daemon = _Daemon(settings, parse, idle)
                serving = asyncio.ensure_future(daemon.serve(provider))
                await until(lambda: is_up() or serving.done())
                try:
                    yield daemon, provider
                finally:
                    daemon.down.set()
                    await serving
                # Clients have their status before the provider is closed, and the loop with it.
                assert not (everybody_reads and daemon._conversations)
        assert not client.socket_path().exists()

    return run


@contextlib.asynccontextmanager
async def running(*words: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(*SANDBOX, *words, **{**pipes, **options})
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def sandbox(*words: str, typed: bytes = b"", **options: Any) -> tuple[int, bytes, bytes]:
    async with running(*words, **options) as process:
        out, err = await process.communicate(typed)
        assert process.returncode is not None
        return process.returncode, out, err


def asked(**changes: Any) -> bytes:
    wish = {
        "argv": ["run", "-c", "x"],
        "folder": str(Path.cwd()),
        "terminal": None,
        "surroundings": client.surroundings(),
        "fingerprint": client.fingerprint(),
        "until": time.monotonic() + 60,
    }
    text = json.dumps({**wish, **changes}).encode()
    return client.frame(b"A", text) + client.frame(b"A")


class Caller:
    """A client of a few lines, which can misbehave."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def call(cls) -> Caller:
        return cls(*await asyncio.open_unix_connection(client.socket_path()))

    async def hear(self) -> tuple[bytes, bytes]:
        async with asyncio.timeout(10):
            kind, size = client.HEADER.unpack(await self.reader.readexactly(client.HEADER.size))
            return bytes([kind]), await self.reader.readexactly(size)

    async def ask(self, **changes: Any) -> bytes:
        self.writer.write(asked(**changes))
        return (await self.hear())[0]

    async def hang_up(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def is_hung_up_on(self) -> None:
        """Read to the end."""
        async with asyncio.timeout(10):
            with contextlib.suppress(OSError):
                await self.reader.read()
        await self.hang_up()


# Serving.


async def test_a_command_line_is_served_as_it_would_serve_itself(up: Any, workspace: Path):
    """Words, folder, output, remarks and status are those of a run without a daemon; the container may be a spare."""
    ending = Ending(reason="exited", exit_code=3, pid=PID, background_pids=(9,))
    engine = FakeEngine([Begun(PID), Chunk("stdout", b"out\n"), Chunk("stderr", b"err\n"), ending])
    (workspace / "sub").mkdir()
    (workspace / "made").write_bytes(b"x")
    words = ["run", "-e", "A=1", "--cwd", "sub", "--artifact", "made", "--receipt", "r.json", "--", "prog", "arg"]
    async with up(engine):
        status, out, err = await sandbox(*words)
    assert (status, out) == (3, b"out\n")
    assert err.startswith(b"err\nsandbox: left behind and ended: pids 9\n")
    assert b"artifact made" in err
    released = engine.sandboxes[0].released
    assert released
    assert (released.argv, released.cwd, dict(released.env)["A"]) == (("prog", "arg"), "/workspace/sub", "1")
    assert engine.sandboxes[0].box.workspace.path == workspace
    assert json.loads((workspace / "r.json").read_text())["status"] == "failed"


async def test_several_are_served_at_once(up: Any):
    """Each gets its own, and a command that waits holds nobody up."""

    async def script(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        await sandbox.stdin_closed.wait()
        yield Chunk("stdout", b"".join(sandbox.stdin))
        yield COMPLETES[-1]

    async with up(FakeEngine(script)), running("run", "-i", "-c", "first") as first:
        results = await asyncio.gather(*(sandbox("run", "-i", "-c", "x", typed=b"%d" % at) for at in range(5)))
        assert first.returncode is None
        assert results == [(0, b"%d" % at, b"") for at in range(5)]
        assert (await first.communicate(b"last"))[0] == b"last"


async def test_big_output_is_whole_through_all_the_layers(up: Any):
    """From the sandbox to the client's stdout not a byte is lost, doubled or moved."""
    pieces = [os.urandom(150_000) for _ in range(20)]
    engine = FakeEngine([Begun(PID), *(Chunk("stdout", piece) for piece in pieces), COMPLETES[-1]])
    async with up(engine):
        assert await sandbox("run", "-c", "x") == (0, b"".join(pieces), b"")


async def test_a_reader_that_went_away_ends_the_command(up: Any):
    """As `yes | head -1` does: the run is canceled, and the status is 141."""

    async def yes(_: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        while True:
            yield Chunk("stdout", b"y\n" * 1000)
            await asyncio.sleep(0)

    engine = FakeEngine(yes)
    async with up(engine), running("run", "-c", "yes") as process:
        assert process.stdout
        await process.stdout.readline()
        process._transport.get_pipe_transport(1).close()
        assert await asyncio.wait_for(process.wait(), 10) == 141
    assert engine.sandboxes[0].terminated[0] == "canceled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_the_command(up: Any, number: int):
    """Its sandbox is terminated, and the status says by which signal."""
    engine = FakeEngine(WAITS)
    async with up(engine) as (_, provider), running("run", "-c", "x") as process:
        assert process.stdout
        await process.stdout.readline()
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 10) == 128 + number
        assert provider.runs() == ()
    assert engine.sandboxes[0].terminated == ["canceled"]


async def test_a_client_that_is_killed_ends_the_command(up: Any):
    """Nothing runs on for somebody who is gone."""
    engine = FakeEngine(WAITS)
    async with up(engine) as (_, provider), running("run", "-c", "x") as process:
        assert process.stdout
        await process.stdout.readline()
        process.kill()
        await until(lambda: not provider.runs())
    assert engine.sandboxes[0].terminated == ["canceled"]


async def test_a_client_that_goes_while_its_sandbox_opens_ends_the_run(up: Any):
    """Whoever leaves at the very first moment is not forgotten either."""
    engine = FakeEngine(WAITS, open_gate=asyncio.Event())
    async with up(engine) as (_, provider):
        caller = await Caller.call()
        assert await caller.ask() == b"Y"
        await engine.opening.wait()
        await caller.hang_up()
        await until(lambda: not provider.runs())
    assert engine.sandboxes == []


async def test_a_client_that_is_gone_before_it_is_taken_runs_nothing(up: Any):
    """Its command line may be running elsewhere by then."""
    engine = FakeEngine()
    async with up(engine) as (daemon, provider):
        caller = await Caller.call()
        caller.writer.write(asked())
        await caller.hang_up()
        await until(lambda: daemon._conversations)
        await until(lambda: not daemon._conversations and not provider.runs())
    assert all(sandbox.released is None or sandbox.terminated for sandbox in engine.sandboxes)


async def test_stdin_is_asked_for_only_with_i(up: Any):
    """Without -i not even one piece is wanted, and the command finds the end."""
    engine = FakeEngine()
    async with up(engine):
        caller = await Caller.call()
        assert await caller.ask() == b"Y"
        assert await caller.hear() == (b"Z", b"\0")
        await caller.is_hung_up_on()
    assert not engine.sandboxes[0].has_stdin


async def test_a_terminal_is_lent_for_a_shell(up: Any):
    """It is made raw before anything else, has the client's size, and follows it, also while the sandbox opens."""
    gate = asyncio.Event()
    engine = FakeEngine(WAITS, open_gate=gate)
    async with up(engine):
        caller = await Caller.call()
        assert await caller.ask(argv=["shell"], terminal=[24, 80]) == b"Y"
        assert await caller.hear() == (b"T", b"")
        caller.writer.write(client.frame(b"W", b"\0\x1e\0\x64"))
        await engine.opening.wait()
        await asyncio.sleep(0)
        caller.writer.write(client.frame(b"W", b"\0\x1f\0\x64"))
        await caller.writer.drain()
        for _ in range(20):  # the daemon is in this very loop: it has read by then
            await asyncio.sleep(0)
        gate.set()
        assert {await caller.hear(), await caller.hear()} == {(b"I", b""), (b"O", b"begun\n")}
        caller.writer.write(client.frame(b"W", b"\0\x20\0\x64") + client.frame(b"K", b"\x0f"))
        assert await caller.hear() == (b"Z", bytes([128 + signal.SIGTERM]))
        await caller.is_hung_up_on()
    released = engine.sandboxes[0].released
    assert released
    assert [released.tty, *engine.sandboxes[0].sizes][-1] == (32, 100)
    assert (31, 100) in [released.tty, *engine.sandboxes[0].sizes]


# Declining.


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "/elsewhere 1"},
        {"surroundings": {}},
        {"surroundings": {"HOME": "/elsewhere"}},
        {"argv": ["run"]},
        {"argv": ["run", "--no-such-option", "-c", "x"]},
        {"argv": ["run", "-c", "x", "--", "y"]},
        {"argv": ["run", "-e", "PATH", "-c", "x"]},
        {"argv": ["run", "--timeout", "soon", "-c", "x"]},
        {"argv": ["run", "--help"]},
        {"argv": ["doctor"]},
        {"argv": ["down"]},
        {"argv": []},
        {"argv": [5]},
        {"argv": "run"},
        {"argv": ["run", "-c", "x", "--config", "other.toml"]},
        {"argv": ["run", "-c", "x", "--config", "broken.toml"]},
        {"argv": ["run", "-c", "x", "--config", "missing.toml"]},
        {"until": 0},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())),
)
async def test_what_it_would_not_serve_alike_it_declines(up: Any, workspace: Path, changes: dict[str, Any]):
    """Other code, another environment, other settings, a mistake, or too late: the client goes on alone."""
    (workspace / "other.toml").write_text("grace = 3")
    (workspace / "broken.toml").write_text("grace = ")
    engine = FakeEngine()
    async with up(engine) as (_, provider):
        caller = await Caller.call()
        assert await caller.ask(**changes) == b"N"
        await caller.is_hung_up_on()
        assert provider.runs() == ()
    assert engine.sandboxes == []


async def test_a_client_that_was_declined_says_nothing_of_it(up: Any):
    """The mistake is told once, as always."""
    engine = FakeEngine()
    async with up(engine):
        status, out, err = await sandbox("run")
        assert (status, out) == (125, b"")
        assert err.count(b"give either") == 1
        _, _, err = await sandbox("run", "-c", "x", env={**os.environ, "SANDBOX_GRACE": "7"})
        assert b"cannot reach a Docker engine" in err
    assert engine.sandboxes == []


async def test_settings_that_are_the_same_are_served(up: Any, workspace: Path):
    """A file that says what holds anyway is no reason to decline; a limit is the run's own."""
    (workspace / "same.toml").write_text("grace = 0.5")
    engine = FakeEngine()
    async with up(engine):
        assert await sandbox("run", "--config", "same.toml", "--pids", "9", "-c", "x") == (0, b"", b"")
    assert engine.sandboxes[0].box.limits.pids == 9


def test_mistakes_are_not_printed_by_the_daemon(capfd: pytest.CaptureFixture[str]):
    """What is no job leaves no trace on its terminal, nor in its log."""
    for words in (["run"], ["run", "--nonsense"], ["run", "--help"], ["run", "-e", "PATH", "-c", "x"]):
        assert parse(words) is None
    assert capfd.readouterr() == ("", "")


# Clients that are none.

NONSENSE = {
    "nothing": b"",
    "a piece of a header": b"A\0",
    "a piece of a frame": client.frame(b"A", b"x" * 100)[:50],
    "a frame too long": b"A\xff\xff\xff\xff",
    "another letter": client.frame(b"?", b"x"),
    "an HTTP request": b"GET / HTTP/1.1\r\n\r\n",
    "no JSON": client.frame(b"A", b"{") + client.frame(b"A"),
    "not UTF-8": client.frame(b"A", b"\xff\xfe") + client.frame(b"A"),
    "an empty object": client.frame(b"A", b"{}") + client.frame(b"A"),
    "a list": client.frame(b"A", b"[1]") + client.frame(b"A"),
    "a number": client.frame(b"A", b"1") + client.frame(b"A"),
    "too deep": client.frame(b"A", b"[" * 60_000) + client.frame(b"A"),
    "too much": client.frame(b"A", b" " * 65_536) * 200,
}


@pytest.mark.parametrize("said", NONSENSE.values(), ids=NONSENSE.keys())
async def test_nonsense_harms_nobody(up: Any, said: bytes):
    """Whatever somebody says, they are hung up on, nothing runs, and the next one is served."""
    engine = FakeEngine()
    async with up(engine) as (daemon, _):
        caller = await Caller.call()
        caller.writer.write(said)
        with contextlib.suppress(OSError):
            caller.writer.write_eof()
        await caller.is_hung_up_on()
        assert engine.sandboxes == []
        good = await Caller.call()
        assert await good.ask() == b"Y"
        assert await good.hear() == (b"Z", b"\0")
        await good.is_hung_up_on()
        await until(lambda: not daemon._conversations)


@pytest.mark.parametrize(
    "changes",
    [{"terminal": 5}, {"terminal": [1]}, {"terminal": ["a", "b"]}, {"folder": 5}, {"folder": "/missing"}],
    ids=str,
)
async def test_a_wish_of_the_wrong_form_harms_nobody(up: Any, changes: dict[str, Any]):
    """It is declined, fails by itself or is hung up on; the next one is served."""
    engine = FakeEngine()
    async with up(engine) as (daemon, provider):
        caller = await Caller.call()
        caller.writer.write(asked(argv=["run", "-t", "-c", "x"], **changes))
        await caller.is_hung_up_on()
        await until(lambda: not daemon._conversations and not provider.runs())
        good = await Caller.call()
        assert await good.ask() == b"Y"
        await good.is_hung_up_on()


@pytest.mark.parametrize(
    "said",
    [client.frame(b"?"), client.frame(b"W", b"x"), client.frame(b"K"), b"I\xff\xff\xff\xff", client.frame(b"A", b"x")],
    ids=["another letter", "no size", "no signal", "a frame too long", "a second wish"],
)
async def test_a_client_that_turns_to_nonsense_has_its_run_ended(up: Any, said: bytes):
    """One that nobody can listen to any more cannot say when it is gone."""
    engine = FakeEngine(WAITS)
    async with up(engine) as (daemon, provider):
        caller = await Caller.call()
        assert await caller.ask(argv=["run", "-t", "-c", "x"], terminal=[24, 80]) == b"Y"
        await until(lambda: engine.sandboxes and provider.runs() and provider.runs()[0].begun.is_set())
        caller.writer.write(said)
        await until(lambda: not provider.runs())
        await caller.is_hung_up_on()
        await until(lambda: not daemon._conversations)
    assert engine.sandboxes[0].terminated == ["canceled"]


async def test_a_caller_that_says_nothing_is_hung_up_on(up: Any, monkeypatch: pytest.MonkeyPatch):
    """It does not keep the daemon from being idle for ever."""
    monkeypatch.setattr(daemon_module, "_ASK_SECONDS", 0.01)
    async with up(FakeEngine()) as (daemon, _):
        caller = await Caller.call()
        await caller.is_hung_up_on()
        await until(lambda: not daemon._conversations)


# Ending.


async def test_it_ends_when_it_is_asked_to(up: Any):
    """Its socket is gone at once, a command under way is canceled, and its client gets status and output, not 125."""
    engine = FakeEngine(WAITS)
    async with up(engine) as (daemon, provider), running("run", "-c", "x") as process:
        assert process.stdout
        await process.stdout.readline()
        caller = await Caller.call()
        caller.writer.write(client.frame(b"D"))
        await caller.is_hung_up_on()
        await until(daemon.down.is_set)
        await until(lambda: not client.socket_path().exists())
        assert await asyncio.wait_for(process.wait(), 10) == 128 + signal.SIGTERM
        assert provider.runs() == ()


async def test_its_clients_hear_how_their_commands_ended_before_it_is_gone(up: Any):
    """Whoever has a command under way gets its output and its status, and only then is the daemon gone."""
    async with up(FakeEngine(WAITS)):
        caller = await Caller.call()
        assert await caller.ask() == b"Y"
        assert await caller.hear() == (b"O", b"begun\n")
    assert await caller.hear() == (b"Z", bytes([128 + signal.SIGTERM]))
    await caller.is_hung_up_on()


async def test_nobody_is_taken_any_more_when_it_ends(up: Any):
    """Who is in the middle of asking is declined, and goes on alone."""
    engine = FakeEngine()
    async with up(engine) as (daemon, _):
        caller = await Caller.call()
        caller.writer.write(asked()[:100])
        await until(lambda: daemon._conversations)
        daemon.down.set()
        await until(lambda: not client.socket_path().exists())
        caller.writer.write(asked()[100:])
        with contextlib.suppress(asyncio.IncompleteReadError):
            assert (await caller.hear())[0] == b"N"
        await caller.is_hung_up_on()
    assert engine.sandboxes == []


async def test_a_client_that_reads_nothing_does_not_keep_it_from_ending(up: Any, monkeypatch: pytest.MonkeyPatch):
    """It has a moment; after that its daemon is gone."""
    monkeypatch.setattr(daemon_module, "_FAREWELL_SECONDS", 0.01)
    flood = [Chunk("stdout", bytes(100_000)) for _ in range(100)]
    async with up(FakeEngine([Begun(PID), *flood]), everybody_reads=False) as (daemon, _):
        caller = await Caller.call()
        caller.writer.write(asked())
        await until(lambda: daemon._conversations)
        daemon.down.set()
        await until(lambda: not client.socket_path().exists())
    await caller.hang_up()


async def test_it_ends_by_itself_when_it_is_idle(home: Path, complaints: Callable[[], None]):
    """A daemon that nobody needs goes away, with its socket."""
    complaints()
    settings = load_settings()
    with daemon_module._only_one():
        async with Provider(settings=settings, engine=FakeEngine()) as provider:
            await asyncio.wait_for(_Daemon(settings, parse, 0.01).serve(provider), 10)
    assert not client.socket_path().exists()


@pytest.mark.parametrize("busy", ["conversation", "lease"])
async def test_it_is_not_idle_while_something_runs(up: Any, workspace: Path, busy: str):
    """Neither a command without a word for long, nor what one has left running, is ended for being quiet."""
    left = Leased(Ending(reason="exited", exit_code=0, pid=PID, background_pids=(8,)))
    engine = FakeEngine(WAITS if busy == "conversation" else [Begun(PID), left])
    async with up(engine, idle=0.05) as (daemon, provider):
        caller = await Caller.call()
        if busy == "conversation":
            assert await caller.ask() == b"Y"
        else:
            await provider.run(["x"], workspace=workspace, background="keep")
            await caller.hang_up()
        looks: list[float] = []
        look = daemon._seconds_left

        def noted(provider: Provider) -> float:
            looks.append(look(provider))
            return looks[-1]

        daemon._seconds_left = noted
        await until(lambda: len(looks) > 2)
        assert min(looks) > 0
        assert is_up()
        await caller.hang_up()
        await provider.stop(session="")
        await until(lambda: not client.socket_path().exists())


# One at a time, in a place of its own.


async def test_a_second_daemon_does_not_start(up: Any, monkeypatch: pytest.MonkeyPatch):
    """It leaves the first one, and its socket, alone."""
    engine = FakeEngine()
    async with up(engine):
        with monkeypatch.context() as patch:
            patch.setattr(daemon_module, "Provider", None)  # it would need one
            await asyncio.wait_for(serve(parse, config=None, idle=60), 10)
        caller = await Caller.call()
        assert await caller.ask() == b"Y"
        await caller.is_hung_up_on()


async def test_the_socket_of_a_daemon_that_was_killed_is_replaced(up: Any, home: Path):
    """What it left behind is in nobody's way."""
    folder = home / "sandbox-provider"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "daemon.sock"))
    async with up(FakeEngine()):
        caller = await Caller.call()
        assert await caller.ask() == b"Y"
        await caller.is_hung_up_on()


@pytest.mark.parametrize("place", ["others may look", "a link", "another user's"])
async def test_it_does_not_start_where_others_could_be(home: Path, place: str):
    """A folder that is not this user's alone is an error that says what to do."""
    folder = home / "sandbox-provider"
    folder.mkdir(mode=0o755 if place == "others may look" else 0o700)
    if place == "a link":
        folder.rename(home / "real")
        folder.symlink_to("real")
    if place == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(folder, 65534, 65534)
    with pytest.raises(ConfigError, match="XDG_RUNTIME_DIR"):
        await serve(parse, config=None, idle=60)


async def test_its_folder_is_private(home: Path):
    """It is made for this user alone, whatever the umask."""
    before = os.umask(0)
    try:
        with daemon_module._only_one() as alone:
            assert alone
            assert stat.S_IMODE((home / "sandbox-provider").stat().st_mode) == 0o700
    finally:
        os.umask(before)


# As its user types it.


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SANDBOX, *words], check=False, capture_output=True, text=True, timeout=60)


def test_up_and_down(home: Path, unavailable: Callable[[str], NoReturn]):
    """Each says what it found and did; down waits until it is gone; one killed without mercy is no obstacle."""
    try:
        load_assets()
    except ConfigError as error:
        unavailable(str(error))
    assert (typed("down").returncode, typed("down").stdout) == (0, "none was up\n")
    first = typed("up", "--idle", "60")
    assert first.stdout.startswith("up, pid "), first
    assert typed("up").stdout == "already up\n"
    pid = int(re.findall(r"\d+", first.stdout)[0])
    os.kill(pid, signal.SIGKILL)
    with (home / "sandbox-provider/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given when it is gone
    second = typed("up", "--idle", "60")
    assert second.stdout.startswith("up, pid "), second
    assert typed("down").stdout == "down\n"
    with (home / "sandbox-provider/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not (home / "sandbox-provider/daemon.sock").exists()


def test_a_daemon_that_cannot_come_up_says_why(home: Path):
    """What went wrong in the background is told in the foreground."""
    (home / "config.toml").write_text("grace = -1")
    result = typed("up", "--config", str(home / "config.toml"))
    assert result.returncode == 125
    assert "grace" in result.stderr


KEEPER = """
import os
from pathlib import Path
from provider.daemon import give_memory_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

give_memory_back()
del [bytes(4 * 2**20)][0]  # from here on glibc's own idea of large is 4 MiB
kept, outputs = [], []
before = resident()
for _ in range(20):
    outputs.append(b"x" * 2**20)
    kept.append(b"y" * 2**15)  # between two outputs, so that neither is at the end of the heap
outputs.clear()
print(resident() - before)
"""


def test_freed_outputs_go_back_to_the_system():
    """What 20 outputs of 1 MiB took is not kept by a daemon that still holds small things between them."""
    held = subprocess.run([sys.executable, "-c", KEEPER], check=True, capture_output=True, text=True)
    assert int(held.stdout) < 4 * 2**20
