"""What `provider.engine.attach` promises, against an engine of a few lines that can misbehave."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from provider.engine import wire
from provider.engine.attach import WINDOW, Attachment, attach
from provider.errors import EngineUnavailable, SandboxLost
from provider.model import Begun, Chunk, Ending, ExecPlan, Leased, Process
from provider.settings import Endpoint

UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\n\r\n"
HELLO = wire.frame(b"H", b"protocol=2\nuid=1000\n")
ENDING = wire.frame(b"Z", b"reason=exited\nexit=0\npid=7\nbackground=\noom=0\nuser_us=1\nsystem_us=1\nmax_rss_kb=1\n")
CONVERSATION = [HELLO, wire.frame(b"B", b"\0\0\0\7"), wire.frame(b"O", b"out"), wire.frame(b"E", b"err"), ENDING]

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def wrapped(data: bytes, stream: int = 1) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


class Server:
    """An engine on a unix socket, which does one thing with whoever attaches."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s"
        self.endpoint = Endpoint(url=f"unix://{self.path}", source="test")
        self.request = b""
        self.handler: Handler = self.hold
        self.over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.request = await reader.readuntil(b"\r\n\r\n")
            await self.handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left, as some of them should
        finally:
            writer.close()
            self.over.set()

    async def hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Stay until the client goes."""
        await reader.read()

    def says(self, *parts: bytes, then: Handler | None = None) -> None:
        """Let the server answer with these bytes, then close, or do something else."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for part in parts:
                writer.write(part)
                await writer.drain()
            if then:
                await then(reader, writer)

        self.handler = answer

    async def attach(self) -> Attachment:
        return await asyncio.wait_for(attach(self.endpoint, "1.41", "a-name"), 5)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    listening = await asyncio.start_unix_server(server.serve, server.path)
    yield server
    listening.close()


async def heard(attachment: Attachment) -> list[Any]:
    async with asyncio.timeout(5):
        return [message async for message in attachment.messages()]


async def frame_from(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one frame of the provider's."""
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(int.from_bytes(head[1:], "big"))


# A good engine.


async def test_a_conversation_is_heard_to_its_end(engine: Server):
    """The hello, the begin, both streams in order and the ending arrive; the request is one that engines know."""
    engine.says(UPGRADED, *map(wrapped, CONVERSATION))
    attachment = await engine.attach()
    assert await attachment.hello == {"protocol": "2", "uid": "1000"}
    *messages, ending = await heard(attachment)
    assert messages == [Begun(7), Chunk("stdout", b"out"), Chunk("stderr", b"err")]
    assert isinstance(ending, Ending)
    assert ending.exit_code == 0
    line, *headers = engine.request.decode().split("\r\n")
    assert line == "POST /v1.41/containers/a-name/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1"
    assert {"Connection: Upgrade", "Upgrade: tcp"} <= set(headers)
    attachment.close()


async def test_an_old_engine_answers_200(engine: Server):
    """Without an upgrade the stream is the same."""
    engine.says(b"HTTP/1.1 200 OK\r\n\r\n", wrapped(HELLO), then=engine.hold)
    attachment = await engine.attach()
    assert (await attachment.hello)["uid"] == "1000"
    attachment.close()


async def test_any_division_is_heard_alike():
    """A cut at any byte of the head, of the engine's frames or of pid 1's changes nothing."""
    data = UPGRADED + b"".join(map(wrapped, CONVERSATION))
    whole = None
    for cut in range(len(data) + 1):
        attachment = Attachment(b"")
        for piece in (data[:cut], data[cut:]):
            attachment.get_buffer(-1)[: len(piece)] = piece
            if piece:
                attachment.buffer_updated(len(piece))
        messages = await heard(attachment)
        assert attachment.hello.result()["uid"] == "1000"
        whole = whole or messages
        assert messages == whole


async def test_bytes_one_by_one_are_heard_alike(engine: Server):
    """The slowest of all engines is understood too."""
    data = UPGRADED + b"".join(map(wrapped, CONVERSATION))
    engine.says(*(data[at : at + 1] for at in range(len(data))))
    attachment = await engine.attach()
    assert len(await heard(attachment)) == 4


async def test_an_engine_over_tcp_is_the_same():
    """The endpoint may be an address."""
    server = Server(Path("/"))
    server.says(UPGRADED, *map(wrapped, CONVERSATION))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        endpoint = Endpoint(url=f"tcp://127.0.0.1:{port}", source="test")
        attachment = await asyncio.wait_for(attach(endpoint, "1.41", "c"), 5)
        assert len(await heard(attachment)) == 4
        attachment.close()


# An engine that will not.


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 404 Not Found\r\nContent-Length: 35\r\n\r\n{"message":"No such container: c"}\n',
        b"HTTP/1.1 409 Conflict\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
        b"garbage\r\n\r\n",
        b"\x00\xff\x01 \xfe\r\n\r\n",
    ],
)
async def test_any_other_answer_is_a_refusal(engine: Server, answer: bytes):
    """An engine that does not upgrade is one that cannot be used; the answer is in the message."""
    engine.says(answer, then=engine.hold)
    with pytest.raises(EngineUnavailable, match="refused to attach"):
        await engine.attach()
    await asyncio.wait_for(engine.over.wait(), 5)  # and the connection is given up


async def test_a_head_without_an_end_is_given_up(engine: Server):
    """No engine can fill our memory with headers."""

    async def for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"X-Header: " + b"x" * 1000 + b"\r\n")
            await writer.drain()

    engine.says(b"HTTP/1.1 101 UPGRADED\r\n", then=for_ever)
    with pytest.raises(EngineUnavailable, match="no end"):
        await engine.attach()
    await asyncio.wait_for(engine.over.wait(), 5)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101 UPGRADED\r\n"])
async def test_an_engine_that_hangs_up_is_unavailable(engine: Server, answer: bytes):
    """Closing before the answer is complete is the engine's fault: there was no sandbox yet that could be lost."""
    engine.says(answer)
    with pytest.raises(EngineUnavailable):
        await engine.attach()


@pytest.mark.parametrize("url", ["unix:///missing/socket", "tcp://127.0.0.1:1", "http://127.0.0.1:1"])
async def test_an_engine_that_is_not_there_is_unavailable(url: str):
    """The address is in the message."""
    with pytest.raises(EngineUnavailable, match=url):
        await attach(Endpoint(url=url, source="test"), "1.41", "c")


@pytest.mark.parametrize("url", ["ssh://host", "npipe:////./pipe/docker_engine", "fd://", ""])
async def test_other_ways_to_an_engine_are_refused(url: str):
    """What cannot be spoken is said at once."""
    with pytest.raises(EngineUnavailable, match=r"unix://.*tcp://"):
        await attach(Endpoint(url=url, source="test"), "1.41", "c")


async def test_giving_up_closes_the_connection(engine: Server):
    """A caller with a deadline leaves no socket behind."""
    attaching = asyncio.create_task(attach(engine.endpoint, "1.41", "c"))
    while not engine.request:  # noqa: ASYNC110 - the server is in this very loop
        await asyncio.sleep(0)
    attaching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attaching
    await asyncio.wait_for(engine.over.wait(), 5)


# A sandbox that falls silent.


async def test_a_sandbox_without_a_hello_is_lost(engine: Server):
    """Whoever waits for the hello is told when it cannot come any more."""
    engine.says(UPGRADED)
    attachment = await engine.attach()
    with pytest.raises(SandboxLost, match="fell silent"):
        await asyncio.wait_for(attachment.hello, 5)


async def test_a_lost_sandbox_says_what_pid_1_said_last(engine: Server):
    """Its own line on stderr is the best explanation that there is."""
    engine.says(UPGRADED, wrapped(b"sandbox-init: out of memory\n", stream=2))
    attachment = await engine.attach()
    with pytest.raises(SandboxLost, match="sandbox-init: out of memory"):
        await heard(attachment)


@pytest.mark.parametrize("count", range(len(CONVERSATION)))
async def test_silence_before_the_ending_is_a_loss(engine: Server, count: int):
    """However far it came: what was heard is heard, and then it is an error, never an ending."""
    engine.says(UPGRADED, *map(wrapped, CONVERSATION[:count]))
    attachment = await engine.attach()
    messages = attachment.messages()
    for _ in CONVERSATION[1:count]:
        await asyncio.wait_for(anext(messages), 5)
    with pytest.raises(SandboxLost):
        await asyncio.wait_for(anext(messages), 5)


@pytest.mark.parametrize(
    "garbage", [b"garbage!", wrapped(b"garbage"), wrapped(wire.frame(b"B", b"x")), wrapped(wire.frame(b"Z", b"x"))]
)
async def test_anything_else_than_the_protocol_is_a_loss(engine: Server, garbage: bytes):
    """A far side that does not speak it is cut off at once."""
    engine.says(UPGRADED, wrapped(HELLO), garbage, then=engine.hold)
    attachment = await engine.attach()
    with pytest.raises(SandboxLost):
        await heard(attachment)
    await asyncio.wait_for(engine.over.wait(), 5)


async def test_a_second_hello_changes_nothing(engine: Server):
    """What was attested stays what was said first."""
    engine.says(UPGRADED, wrapped(HELLO), wrapped(wire.frame(b"H", b"uid=0\n")), wrapped(ENDING))
    attachment = await engine.attach()
    await heard(attachment)
    assert attachment.hello.result()["uid"] == "1000"


async def test_nothing_is_sent_over_a_lost_connection(engine: Server):
    """Late credit, stdin, signals and a second close are dropped without a word, and nobody hangs."""
    engine.says(UPGRADED)
    attachment = await engine.attach()
    with pytest.raises(SandboxLost):
        await heard(attachment)
    attachment.grant(WINDOW)
    attachment.send(b"K", b"\x09")
    await asyncio.wait_for(attachment.write_stdin(bytes(10 * wire.STDIN_WINDOW)), 5)
    await asyncio.wait_for(attachment.write_stdin(b""), 5)
    attachment.close()
    attachment.close()


async def test_closing_ends_pid_1s_stdin(engine: Server):
    """The far side sees the end at once: that is what ends everything in the container."""
    engine.says(UPGRADED, wrapped(HELLO), then=engine.hold)
    attachment = await engine.attach()
    attachment.close()
    await asyncio.wait_for(engine.over.wait(), 5)


# Flow.


async def test_the_socket_is_drained_while_nobody_listens(engine: Server):
    """A consumer that takes nothing never makes the engine wait: that would make a container unkillable."""
    chunk = wrapped(wire.frame(b"O", bytes(60_000)))
    written = asyncio.Event()

    async def done(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        written.set()
        await reader.read()

    pieces = WINDOW // 60_000  # all that pid 1 may send unasked, five times what a socket holds
    engine.says(UPGRADED, wrapped(HELLO), *([chunk] * pieces), wrapped(ENDING), then=done)
    attachment = await engine.attach()
    await asyncio.wait_for(written.wait(), 5)
    messages = await heard(attachment)
    assert sum(len(message.data) for message in messages if isinstance(message, Chunk)) == pieces * 60_000
    attachment.close()


async def test_output_that_has_piled_up_comes_in_large_pieces():
    """Behind a slow listener pieces of one stream are joined, in order, bounded, and never across the other stream."""
    kinds = b"OOOEOEE" + b"O" * 40
    attachment = Attachment(b"")
    for piece in (
        UPGRADED,
        *(wrapped(wire.frame(bytes([kind]), bytes([at]) * 10_000)) for at, kind in enumerate(kinds)),
    ):
        attachment.get_buffer(-1)[: len(piece)] = piece
        attachment.buffer_updated(len(piece))
    messages = attachment.messages()
    chunks = []
    while sum(len(chunk.data) for chunk in chunks) < 10_000 * len(kinds):
        chunks.append(await asyncio.wait_for(anext(messages), 5))
    assert len(chunks) < len(kinds) // 2
    assert max(len(chunk.data) for chunk in chunks) < 256 * 1024
    heard = [(chunk.stream, at) for chunk in chunks for at in chunk.data[::10_000]]
    assert heard == [("stdout" if kind == ord("O") else "stderr", at) for at, kind in enumerate(kinds)]


async def test_credit_is_returned_in_few_frames_and_to_the_byte(engine: Server):
    """A quarter of the window at a time; what was granted is what is sent, less at most that quarter."""
    sent: list[int] = []
    enough = asyncio.Event()

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while sum(sent) < WINDOW:
            kind, payload = await frame_from(reader)
            assert kind == b"C"
            sent.append(int.from_bytes(payload, "big"))
        enough.set()

    engine.says(UPGRADED, wrapped(HELLO), then=count)
    attachment = await engine.attach()
    for _ in range(WINDOW // 1024 + 1):
        attachment.grant(1024)
    await asyncio.wait_for(enough.wait(), 5)
    assert sent == [WINDOW // 4] * 4
    attachment.close()


async def test_stdin_keeps_within_pid_1s_credit(engine: Server):
    """The first window is free; after that not a byte is sent that was not granted, and all arrive in order."""
    data = bytes(range(256)) * 2048  # two windows
    received = bytearray()
    allowed = wire.STDIN_WINDOW
    closed = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal allowed
        while True:
            kind, payload = await frame_from(reader)
            assert kind == b"I"
            if not payload:
                closed.set()
                return
            received.extend(payload)
            assert len(received) <= allowed
            if len(received) == allowed:
                assert not reader._buffer  # nothing more has come
                allowed += 100_000
                writer.write(wrapped(wire.frame(b"c", (100_000).to_bytes(4, "big"))))

    engine.says(UPGRADED, wrapped(HELLO), then=take)
    attachment = await engine.attach()
    async with asyncio.timeout(5):
        await attachment.write_stdin(data)
        await attachment.write_stdin(b"")
        await closed.wait()
    assert bytes(received) == data
    attachment.close()


async def test_waiting_for_stdin_credit_does_not_keep_messages_back(engine: Server):
    """Output and ending are heard while a write waits, and the write ends with the connection."""
    engine.says(UPGRADED, *map(wrapped, CONVERSATION), then=engine.hold)
    attachment = await engine.attach()
    writing = asyncio.create_task(attachment.write_stdin(bytes(2 * wire.STDIN_WINDOW)))
    assert len(await heard(attachment)) == 4
    assert not writing.done()
    attachment.close()
    await asyncio.wait_for(writing, 5)


# Questions, leases, reuse.

LEASED = wire.frame(b"L", b"reason=exited\nexit=0\npid=7\nbackground=8\noom=0\nuser_us=1\nsystem_us=1\nmax_rss_kb=1\n")
PLAN = ExecPlan(argv=("x",), env=(), cwd="/workspace", timeout=None, grace=0, tty=None, artifacts=(), reuse="scrub")


async def test_a_conversation_goes_on_where_it_was_left(engine: Server):
    """Messages after a lease began are for whoever listens next; none is lost in between."""
    engine.says(UPGRADED, *map(wrapped, [*CONVERSATION[:3], LEASED, *CONVERSATION[2:]]))
    attachment = await engine.attach()
    async with asyncio.timeout(5):
        before = []
        async for message in attachment.messages():
            before.append(message)
            if isinstance(message, Leased):
                break
    assert before[:-1] == [Begun(7), Chunk("stdout", b"out")]
    assert before[-1].ending.background_pids == (8,)
    after = await heard(attachment)
    assert after[:-1] == [Chunk("stdout", b"out"), Chunk("stderr", b"err")]


async def test_processes_are_asked_for_once_at_a_time(engine: Server):
    """Those who ask together share an answer; who asks later gets another; who gives up spoils it for nobody."""
    questions = 0
    go_on = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal questions
        while True:
            assert await frame_from(reader) == (b"Q", b"")
            questions += 1
            await go_on.wait()
            writer.write(wrapped(wire.frame(b"P", b"%d=x\n" % questions)))

    engine.says(UPGRADED, wrapped(HELLO), then=answer)
    attachment = await engine.attach()
    async with asyncio.timeout(5):
        asking = [asyncio.ensure_future(attachment.processes()) for _ in range(3)]
        while not questions:  # noqa: ASYNC110 - the server is in this very loop
            await asyncio.sleep(0)
        asking[0].cancel()
        go_on.set()
        assert await asyncio.gather(*asking[1:]) == [(Process(1, "x"),)] * 2
        assert await attachment.processes() == (Process(2, "x"),)
    assert questions == 2
    attachment.close()


@pytest.mark.parametrize("end", [b"", b"garbage!", wrapped(wire.frame(b"P", b"x\n"))])
async def test_a_question_is_answered_or_lost(engine: Server, end: bytes):
    """Silence, garbage and a list that is none are errors, also for whoever asks afterwards."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await frame_from(reader)
        writer.write(end)

    engine.says(UPGRADED, wrapped(HELLO), then=answer)
    attachment = await engine.attach()
    for _ in range(2):
        with pytest.raises(SandboxLost):
            await asyncio.wait_for(attachment.processes(), 5)
    attachment.close()


async def test_a_scrub_is_reported_for_each_command(engine: Server):
    """Each command with `reuse` has a report of its own; that of the last one is never taken for the next one's."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for at in range(2):
            while (await frame_from(reader))[0] != b"X":
                pass
            writer.write(wrapped(ENDING) + wrapped(wire.frame(b"R", b"clean=%d\n" % at)))
        await reader.read()

    engine.says(UPGRADED, wrapped(HELLO), then=serve)
    attachment = await engine.attach()
    async with asyncio.timeout(5):
        for at in range(2):
            attachment.release(PLAN, stdin=False)
            assert len(await heard(attachment)) == 1
            assert await attachment.scrubbed() == {"clean": str(at)}
    attachment.close()


async def test_a_scrub_without_a_report_is_a_loss(engine: Server):
    """A pid 1 that dies while it scrubs has proved nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await frame_from(reader))[0] != b"X":
            pass
        writer.write(wrapped(ENDING))

    engine.says(UPGRADED, wrapped(HELLO), then=serve)
    attachment = await engine.attach()
    attachment.release(PLAN, stdin=False)
    await heard(attachment)
    with pytest.raises(SandboxLost):
        await asyncio.wait_for(attachment.scrubbed(), 5)
    attachment.release(PLAN, stdin=False)
    with pytest.raises(SandboxLost):
        await asyncio.wait_for(attachment.scrubbed(), 5)


async def test_each_command_begins_with_a_full_window_of_stdin(engine: Server):
    """What the last one used up is not missing from the next one."""
    received: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            while (await frame_from(reader))[0] != b"X":
                pass
            got = 0
            while got < wire.STDIN_WINDOW:
                got += len((await frame_from(reader))[1])
            received.append(got)
            writer.write(wrapped(ENDING) + wrapped(wire.frame(b"R", b"clean=1\n")))
        await reader.read()

    engine.says(UPGRADED, wrapped(HELLO), then=serve)
    attachment = await engine.attach()
    async with asyncio.timeout(5):
        for _ in range(2):
            attachment.release(PLAN, stdin=True)
            await attachment.write_stdin(bytes(wire.STDIN_WINDOW))
            await heard(attachment)
            await attachment.scrubbed()
    assert received == [wire.STDIN_WINDOW] * 2
    attachment.close()


@pytest.mark.parametrize("kind", [b"P", b"R"])
async def test_an_answer_that_nobody_asked_for_changes_nothing(engine: Server, kind: bytes):
    """It is neither output nor an ending, nor the answer to the next question."""
    engine.says(UPGRADED, wrapped(HELLO), wrapped(wire.frame(kind, b"1=x\n")), *map(wrapped, CONVERSATION[1:]))
    attachment = await engine.attach()
    assert len(await heard(attachment)) == 4
    attachment.close()
