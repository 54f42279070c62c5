"""What `provider.client` promises: a daemon is asked only where it is ours, and has our streams for a while, whole."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import sys
import termios
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from provider import client

COMMAND = [sys.executable, "-m", "provider", "run", "-c", "x"]
ALONE = b"cannot reach a Docker engine"
"""What `sandbox run` says when it was not served and goes on by itself."""


class Line:
    """The daemon's end of a conversation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def hear(self) -> tuple[bytes, bytes]:
        kind, size = client.HEADER.unpack(await self._reader.readexactly(client.HEADER.size))
        return bytes([kind]), await self._reader.readexactly(size)

    async def asked(self) -> dict[str, Any]:
        text = b""
        while (heard := await self.hear())[1]:
            assert heard[0] == b"A"
            text += heard[1]
        result: dict[str, Any] = json.loads(text)
        return result

    async def say(self, kind: bytes, payload: bytes = b"") -> None:
        self.writer.write(client.frame(kind, payload))
        await self.writer.drain()

    async def take(self) -> dict[str, Any]:
        asked = await self.asked()
        await self.say(b"Y")
        return asked


Talk = Callable[[Line], Awaitable[None]]


class Daemon:
    """Listens where a daemon would, and does with its client what the test says."""

    def __init__(self) -> None:
        self.talk: Talk = self._end
        self.served = 0
        self.errors: list[BaseException] = []
        self.over = asyncio.Event()

    async def _end(self, line: Line) -> None:
        await line.take()
        await line.say(b"Z", b"\0")

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served += 1
        try:
            await self.talk(Line(reader, writer))
        except (OSError, asyncio.IncompleteReadError, AssertionError) as error:
            self.errors.append(error)
        finally:
            writer.close()
            self.over.set()


@pytest.fixture
def folder(home: Path) -> Path:
    folder = home / "sandbox-provider"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
async def daemon(folder: Path) -> AsyncIterator[Daemon]:
    daemon = Daemon()
    server = await asyncio.start_unix_server(daemon.converse, folder / "daemon.sock")
    yield daemon
    server.close()


@contextlib.asynccontextmanager
async def running(*command: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """A client in a process of its own."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(*(command or COMMAND), **{**pipes, **options})
    try:
        async with asyncio.timeout(20):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ran(*command: str, **options: Any) -> tuple[int, bytes, bytes]:
    async with running(*command, **options) as process:
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out, err


@pytest.fixture
def tty() -> Iterator[tuple[int, int]]:
    """A terminal: the side of its user, and the side of its programs."""
    ends = pty.openpty()
    fcntl.ioctl(ends[1], termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    yield ends
    for end in ends:
        os.close(end)


def is_raw(side: int) -> bool:
    return not termios.tcgetattr(side)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)


# Whom it asks.


async def test_a_command_line_is_handed_over_with_its_surroundings(daemon: Daemon, folder: Path):
    """The daemon learns the words, the folder, and all that decides about engine and settings; nothing else."""
    heard: list[dict[str, Any]] = []

    async def talk(line: Line) -> None:
        heard.append(await line.take())
        await line.say(b"Z", b"\7")

    daemon.talk = talk
    words = ["run", "-c", "echo \udcff ü"]
    environment = {**os.environ, "SANDBOX_GRACE": "1", "SECRET": "s3cret"}
    command = [sys.executable, "-m", "provider", *words]
    assert await ran(*command, cwd=folder, env=environment) == (7, b"", b"")
    asked = heard[0]
    assert asked["argv"] == words
    assert Path(asked["folder"]) == folder
    assert asked["terminal"] is None
    assert asked["surroundings"] == {**client.surroundings(), "SANDBOX_GRACE": "1"}
    assert asked["fingerprint"] == client.fingerprint()
    assert "s3cret" not in json.dumps(asked)


async def test_a_long_command_line_arrives_whole(daemon: Daemon):
    """A text of the largest size that a plan allows is handed over in pieces."""
    heard: list[dict[str, Any]] = []

    async def talk(line: Line) -> None:
        heard.append(await line.take())
        await line.say(b"Z", b"\0")

    daemon.talk = talk
    text = "x" * 120_000
    status, _, _ = await ran(*COMMAND[:-1], text)
    assert (status, heard[0]["argv"][-1]) == (0, text)


@pytest.mark.parametrize("answer", [b"", client.frame(b"N"), b"\0", client.frame(b"Z", b"\0"), b"Y\0\0\0\1x"])
async def test_unless_it_is_taken_it_runs_here(daemon: Daemon, answer: bytes):
    """A daemon that declines, hangs up or talks nonsense is as good as none, and nobody hears of it."""

    async def talk(line: Line) -> None:
        await line.asked()
        line.writer.write(answer)

    daemon.talk = talk
    status, out, err = await ran()
    assert (status, out) == (client.LOST, b"")
    assert ALONE in err
    assert daemon.served == 1


async def test_without_a_daemon_it_runs_here(home: Path):
    """No folder, and no word about it."""
    _, _, err = await ran()
    assert ALONE in err
    assert b"daemon" not in err


@pytest.mark.parametrize("words", [[], ["--help"], ["doctor"], ["up"], ["down"], ["prune"]])
def test_only_what_is_served_is_asked_for(folder: Path, words: list[str]):
    """Other words do not even look for a daemon."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "daemon.sock"))
        listener.listen()
        listener.settimeout(0)
        assert client.ask(words) is None
        with pytest.raises(BlockingIOError):
            listener.accept()


def not_private(folder: Path) -> None:
    folder.chmod(0o750)


def for_all(folder: Path) -> None:
    folder.chmod(0o777)


def a_link(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to("real")


def a_link_to_the_socket(folder: Path) -> None:
    (folder / "daemon.sock").rename(folder / "real.sock")
    (folder / "daemon.sock").symlink_to("real.sock")


def of_another_user(folder: Path) -> None:
    os.chown(folder, 65534, 65534)


def a_socket_of_another_user(folder: Path) -> None:
    os.chown(folder / "daemon.sock", 65534, 65534)


@pytest.mark.parametrize(
    "change", [not_private, for_all, a_link, a_link_to_the_socket, of_another_user, a_socket_of_another_user]
)
def test_a_daemon_that_may_be_somebody_elses_is_not_asked(folder: Path, change: Callable[[Path], None]):
    """Whoever answers gets command lines and is believed; so only this user can have put it there."""
    if "another_user" in change.__name__ and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "daemon.sock"))
        listener.listen()
        listener.settimeout(0)
        assert client.is_ours(folder / "daemon.sock")
        change(folder)
        assert not client.is_ours(folder / "daemon.sock")
        assert client.connect() is None
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_what_is_no_socket_is_not_asked(folder: Path):
    """Neither a file nor a folder, nor the socket of a daemon that was killed."""
    assert client.connect() is None
    (folder / "daemon.sock").write_text("")
    assert client.connect() is None
    (folder / "daemon.sock").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "daemon.sock"))
    assert client.is_ours(folder / "daemon.sock")
    assert client.connect() is None


def test_a_fingerprint_changes_with_any_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Code from before an update is other code, also when only a file of a folder within was touched."""
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/a.py").write_text("")
    monkeypatch.setattr(client, "__file__", str(tmp_path / "client.py"))
    before = client.fingerprint()
    assert client.fingerprint() == before
    os.utime(tmp_path / "engine/a.py", ns=(0, 2**62))
    assert client.fingerprint() != before


# Streams.


async def test_big_output_arrives_whole_and_in_order(daemon: Daemon):
    """Both streams, byte for byte, and then the status."""
    pieces = [os.urandom(50_000) for _ in range(60)]

    async def talk(line: Line) -> None:
        await line.take()
        for at, piece in enumerate(pieces):
            await line.say(b"E" if at % 5 == 0 else b"O", piece)
        await line.say(b"Z", b"\3")

    daemon.talk = talk
    status, out, err = await ran()
    assert status == 3
    assert out == b"".join(piece for at, piece in enumerate(pieces) if at % 5)
    assert err == b"".join(pieces[::5])


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_slow_reader_slows_the_daemon(daemon: Daemon, blocking: bool):
    """While nobody reads, no more is taken than buffers hold; what is taken arrives, whatever mode the pipe is in."""
    sent = 0
    piece = bytes(range(256)) * 250
    reader, writer = os.pipe()
    os.set_blocking(writer, blocking)

    async def talk(line: Line) -> None:
        nonlocal sent
        line.writer.transport.set_write_buffer_limits(0)
        await line.take()
        for _ in range(100):
            await line.say(b"O", piece)
            sent += len(piece)
        await line.say(b"Z", b"\0")

    daemon.talk = talk
    async with running(stdout=writer) as process:
        os.close(writer)
        before = -1
        while before != sent or not sent:  # until it stands still
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 2_000_000
        found = bytearray()
        loop = asyncio.get_running_loop()
        while data := await loop.run_in_executor(None, os.read, reader, 1_000_000):
            found += data
        await process.wait()
        assert process.returncode == 0
    os.close(reader)
    assert bytes(found) == piece * 100


def test_a_pipe_that_somebody_else_has_filled_is_not_one_that_nobody_reads(monkeypatch: pytest.MonkeyPatch):
    """Where several share a pipe that does not block, what it did not take is written again."""

    def full(_descriptor: int, _data: bytes) -> int:
        raise BlockingIOError

    loan = client._Loan.__new__(client._Loan)
    loan._output = deque([(1, memoryview(b"x"))])
    monkeypatch.setattr(os, "write", full)
    loan._write_some()
    assert [(descriptor, bytes(data)) for descriptor, data in loan._output] == [(1, b"x")]


async def test_stdin_is_left_alone_unless_it_is_wanted(daemon: Daemon):
    """What belongs to the next program of a script stays in the pipe."""
    reader, writer = os.pipe()
    os.write(writer, b"for the next program")
    assert (await ran(stdin=reader))[0] == 0
    assert os.read(reader, 100) == b"for the next program"
    os.close(reader)
    os.close(writer)


async def test_stdin_is_read_a_piece_at_a_time(daemon: Daemon):
    """Each wish is answered by one piece, at the most 64 KiB; the end is an empty one, each time."""
    heard: list[tuple[bytes, int]] = []
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 2**20)

    async def talk(line: Line) -> None:
        await line.take()
        for at in range(1, 3):
            await line.say(b"I")
            kind, piece = await line.hear()
            heard.append((kind, len(piece)))
            await line.say(b"O", b"x")
            assert process.stdout
            await process.stdout.readexactly(1)  # it has looked at all its streams again
            (left,) = struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4)))
            assert left == 200_000 - at * 65_536
        os.read(reader, 2**20)
        os.close(writer)
        for _ in range(2):
            await line.say(b"I")
            heard.append(await line.hear())
        await line.say(b"Z", b"\0")

    daemon.talk = talk
    os.write(writer, bytes(200_000))
    async with running(stdin=reader) as process:
        assert await process.wait() == 0
    assert daemon.errors == []
    assert heard == [(b"I", 65_536), (b"I", 65_536), (b"I", b""), (b"I", b"")]
    os.close(reader)


async def test_waiting_for_stdin_does_not_keep_output_back(daemon: Daemon):
    """A wish for stdin that nobody fulfils holds up neither output nor the end."""

    async def talk(line: Line) -> None:
        await line.take()
        await line.say(b"I")
        await line.say(b"O", b"prompt")
        await line.say(b"Z", b"\0")

    daemon.talk = talk
    async with running() as process:
        assert process.stdout
        assert await process.stdout.read() == b"prompt"
        assert await process.wait() == 0


async def test_a_reader_that_went_away_is_sigpipe(daemon: Daemon):
    """The daemon is told as the kernel would tell the command, and its status is passed on."""
    heard: list[tuple[bytes, bytes]] = []

    async def talk(line: Line) -> None:
        await line.take()
        await line.say(b"O", b"x")
        heard.append(await line.hear())
        await line.say(b"O", b"more that nobody reads")
        await line.say(b"Z", bytes([128 + signal.SIGPIPE]))

    daemon.talk = talk
    reader, writer = os.pipe()
    os.close(reader)
    assert await ran(stdout=writer) == (141, None, b"")
    os.close(writer)
    assert heard == [(b"K", bytes([signal.SIGPIPE]))]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_closed_streams_do_not_become_the_connection(daemon: Daemon, closed: str):
    """A program that is started without streams of its own does not speak to the daemon in the command's voice."""
    heard: list[tuple[bytes, bytes]] = []

    async def talk(line: Line) -> None:
        await line.take()
        await line.say(b"O", b"out")
        await line.say(b"E", b"err")
        await line.say(b"I")
        if "<" in closed:
            heard.append(await line.hear())
        await line.say(b"Z", b"\5")

    daemon.talk = talk
    status, _, _ = await ran("sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND)
    assert status == 5
    assert heard == ([(b"I", b"")] if "<" in closed else [])
    assert daemon.errors == []


# Signals and losses.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signals_are_passed_on(daemon: Daemon, number: int):
    """The daemon decides what becomes of it: its status is ours, and what the command says last is shown."""
    heard: list[tuple[bytes, bytes]] = []

    async def talk(line: Line) -> None:
        await line.take()
        await line.say(b"O", b"begun\n")
        heard.append(await line.hear())
        await line.say(b"O", b"last words\n")
        await line.say(b"Z", bytes([128 + number]))

    daemon.talk = talk
    async with running() as process:
        assert process.stdout
        assert await process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        assert await process.stdout.read() == b"last words\n"
        assert await process.wait() == 128 + number
        assert process.stderr
        assert await process.stderr.read() == b""
    assert heard == [(b"K", bytes([number]))]


async def test_a_signal_ends_it_though_nobody_reads(daemon: Daemon):
    """Output that stands in a full pipe does not keep Ctrl-C from ending it at once."""

    async def talk(line: Line) -> None:
        await line.take()
        for _ in range(4):
            await line.say(b"O", bytes(client.PIECE))
        assert await line.hear() == (b"K", bytes([signal.SIGINT]))
        await line.say(b"Z", bytes([130]))

    daemon.talk = talk
    begun = asyncio.Event()
    reader, writer = os.pipe()
    asyncio.get_running_loop().add_reader(reader, begun.set)
    async with running(stdout=writer) as process:
        os.close(writer)
        await begun.wait()
        asyncio.get_running_loop().remove_reader(reader)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    os.close(reader)


@pytest.mark.parametrize("farewell", [b"", b"O\0\0", client.frame(b"?"), client.frame(b"H", b"x") + bytes(100)])
async def test_a_daemon_that_goes_away_in_the_middle_is_told(daemon: Daemon, farewell: bytes):
    """What was shown is shown; the status is 125, for nobody knows what became of the command; it is not run again."""

    async def talk(line: Line) -> None:
        await line.take()
        await line.say(b"O", b"partial")
        line.writer.write(farewell)
        await line.writer.drain()
        if client.frame(b"?")[:1] in farewell or b"H" in farewell:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await line.hear()  # until it hangs up

    daemon.talk = talk
    assert await ran() == (client.LOST, b"partial", b"sandbox: the daemon went away\n")


# Terminals.


async def test_a_terminal_is_raw_while_it_is_lent_and_then_as_it_was(daemon: Daemon, tty: tuple[int, int]):
    """Its size is told at the beginning and whenever it changes; keys pass as they are; afterwards all is as before."""
    heard: list[Any] = []
    before = termios.tcgetattr(tty[1])

    async def talk(line: Line) -> None:
        heard.append((await line.take())["terminal"])
        await line.say(b"T")
        await line.say(b"I")
        async with asyncio.timeout(10):
            while not is_raw(tty[1]):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        os.write(tty[0], b"\x03")
        heard.append(await line.hear())
        fcntl.ioctl(tty[1], termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        process.send_signal(signal.SIGWINCH)
        heard.append(await line.hear())
        await line.say(b"Z", b"\0")

    daemon.talk = talk
    async with running(stdin=tty[1]) as process:
        assert await process.wait() == 0
    assert daemon.errors == []
    assert heard == [[24, 80], (b"I", b"\x03"), (b"W", struct.pack(">HH", 50, 120))]
    assert termios.tcgetattr(tty[1]) == before


@pytest.mark.parametrize("how", ["the daemon dies", "SIGTERM"])
async def test_a_terminal_is_put_back_on_any_way_out(daemon: Daemon, tty: tuple[int, int], how: str):
    """Nobody is left with a terminal that shows nothing."""
    before = termios.tcgetattr(tty[1])

    async def talk(line: Line) -> None:
        await line.take()
        await line.say(b"T")
        async with asyncio.timeout(10):
            while not is_raw(tty[1]):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
            await line.hear()
            await line.say(b"Z", b"\x8f")

    daemon.talk = talk
    async with running(stdin=tty[1]) as process:
        assert await process.wait() == (143 if how == "SIGTERM" else client.LOST)
    assert termios.tcgetattr(tty[1]) == before
