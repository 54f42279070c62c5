"""
The one connection to a container: an HTTP request that the engine turns into a raw, two-way stream.

Our own because every client library reads ahead or waits for its consumer. This one never waits: whatever
arrives is taken off the socket at once, for a stalled attach reader makes a container unkillable (moby #41827,
measured: minutes). Memory stays bounded all the same, since pid 1 sends no more output than it was granted.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

from provider.engine import wire
from provider.errors import EngineUnavailable, SandboxLost
from provider.model import Begun, Chunk, Ending, ExecPlan, Message, Process
from provider.settings import Endpoint

WINDOW = 1024 * 1024
"""Bytes of output that may be on their way; what a stalled consumer costs in memory."""
_RECEIVE_BUFFER = 256 * 1024
_LARGEST_CHUNK = 192 * 1024
_BUSY = 24 * 1024
_MOMENT = 0.001
_MAX_RESPONSE_HEAD = 16 * 1024


class Attachment(asyncio.BufferedProtocol):
    """A conversation with pid 1."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._buffer = bytearray(_RECEIVE_BUFFER)
        self._head = bytearray()
        self._reassembler = wire.Reassembler()
        self._messages: deque[Message] = deque()
        self._transport: asyncio.Transport | None = None
        self._news = asyncio.Event()
        self._lost: Exception | None = None
        self._stdin_credit = wire.STDIN_WINDOW
        self._credit = WINDOW
        self._granted = 0
        self._seal = b""
        self._listing: asyncio.Future[bytes] | None = None
        self._scrubbed: asyncio.Future[dict[str, str]] | None = None
        self._on_begun: Callable[[tuple[int, ...]], None] | None = None
        loop = asyncio.get_running_loop()
        self.upgraded: asyncio.Future[None] = loop.create_future()
        self.hello: asyncio.Future[dict[str, str]] = loop.create_future()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = memoryview(self._buffer)[:nbytes]
        try:
            if not self.upgraded.done():
                data = self._read_response_head(data)
            for kind, payload in self._reassembler.feed(data):
                self._take(kind, payload)
            if nbytes >= _BUSY:
                self._pause()
        except (SandboxLost, EngineUnavailable) as error:
            self._lose(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        said = self._reassembler.diagnosis.decode("utf-8", "replace").strip()
        because = said or (str(exc) if exc else "the engine closed the connection")
        if self.upgraded.done():
            self._lose(SandboxLost(f"pid 1 of the sandbox fell silent: {because}"))
        else:
            self._lose(EngineUnavailable(f"the engine did not attach: {because}"))

    # What the sandbox calls.

    async def messages(self) -> AsyncIterator[Message]:
        """
        Yield what pid 1 says, up to and including the ending.

        Raises:
            SandboxLost: it fell silent, or did not speak the protocol.
        """
        while True:
            while self._messages:
                message = self._next()
                yield message
                if isinstance(message, Ending):
                    return
            if self._lost:
                raise self._lost
            self._news.clear()
            await self._news.wait()

    def release(
        self,
        plan: ExecPlan,
        *,
        stdin: bool,
        processors: wire.Offer | None = None,
        on_begun: Callable[[tuple[int, ...]], None] | None = None,
        sealed: bool = False,
    ) -> None:
        """
        Send a command, on a conversation that is as good as new; sealed where others could speak for pid 1.

        `on_begun` is told which processors it has.
        """
        self._on_begun = on_begun
        self._seal = secrets.token_bytes(wire.SEAL) if sealed else b""
        self._stdin_credit = wire.STDIN_WINDOW
        self._credit = WINDOW
        self._granted = 0
        self._scrubbed = self._expect() if plan.reuse == "scrub" else None
        self.send_raw(wire.command(plan, stdin=stdin, credit=WINDOW, processors=processors, seal=self._seal))

    async def processes(self) -> tuple[Process, ...]:
        if self._listing is None or self._listing.done():
            self._listing = self._expect()
            self.send(b"Q")
        return wire.processes(await asyncio.shield(self._listing))

    async def scrubbed(self) -> dict[str, str]:
        """What pid 1 reports when it has scrubbed after the ending of a command with `reuse`."""
        assert self._scrubbed is not None
        return await self._scrubbed

    async def write_stdin(self, data: bytes) -> None:
        """Send stdin within pid 1's credit. Empty bytes close it. Silently dropped when the connection is gone."""
        view = memoryview(data)
        while view and not self._lost:
            if self._stdin_credit == 0:
                self._news.clear()
                await self._news.wait()
                continue
            piece = view[: min(self._stdin_credit, wire.MAX_PAYLOAD)]
            self._stdin_credit -= len(piece)
            self.send(b"I", bytes(piece))
            view = view[len(piece) :]
        if not data:
            self.send(b"I")

    def grant(self, size: int) -> None:
        """Return credit, in few frames: pid 1 still has three quarters of its window when one is due."""
        self._granted += size
        if self._granted >= WINDOW // 4:
            self.send(b"C", struct.pack(">I", self._granted))
            self._credit += self._granted
            self._granted = 0

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self.send_raw(wire.frame(kind, payload))

    def send_raw(self, data: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_open(self) -> bool:
        return self._lost is None

    def close(self) -> None:
        """End pid 1's stdin, and with it everything in the container."""
        if self._transport:
            self._transport.abort()

    # Within.

    def _pause(self) -> None:
        """In a flood, let a moment's worth gather in the socket: a wake-up a piece costs more than the pieces."""
        assert self._transport is not None
        if self._transport.is_reading():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(_MOMENT, self._transport.resume_reading)

    def _next(self) -> Message:
        """The next message; pieces of one stream that have piled up behind a slow listener come as one."""
        first = self._messages.popleft()
        if not isinstance(first, Chunk):
            return first
        pieces = [first.data]
        size = len(first.data)
        while self._messages and size < _LARGEST_CHUNK:
            following = self._messages[0]
            if not isinstance(following, Chunk) or following.stream != first.stream:
                break
            pieces.append(following.data)
            size += len(following.data)
            self._messages.popleft()
        return Chunk(first.stream, b"".join(pieces))

    def _read_response_head(self, data: memoryview) -> memoryview:
        before = len(self._head)
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            if len(self._head) > _MAX_RESPONSE_HEAD:
                message = "the engine's answer to attach has no end"
                raise EngineUnavailable(message)
            return data[:0]
        status = bytes(self._head[:end]).split(b"\r\n", 1)[0].split(b" ", 2)
        if len(status) < 2 or status[1] not in {b"101", b"200"}:  # noqa: PLR2004
            message = f"the engine refused to attach: {bytes(self._head[:500])!r}"
            raise EngineUnavailable(message)
        if not self.upgraded.done():
            self.upgraded.set_result(None)
        return data[end + 4 - before :]

    def _take(self, kind: int, payload: bytes) -> None:
        message = wire.message(kind, payload, self._seal)
        if message is not None:
            self._messages.append(message)
            if isinstance(message, Chunk):
                self._spend(len(payload))
            if isinstance(message, Begun) and self._on_begun:
                self._on_begun(wire.processors(payload))
            if isinstance(message, Ending):
                _answer(self._listing, b"")  # nothing runs, and a question that pid 1 had not read gets no answer
        elif kind == ord("c"):
            self._stdin_credit += wire.u32(payload)
        elif kind == ord("P"):
            _answer(self._listing, payload)
        elif kind == ord("R"):
            report = wire.lines(payload)
            wire.check_seal(report, self._seal)
            _answer(self._scrubbed, report)
        else:
            _answer(self.hello, wire.lines(payload))
        self._news.set()

    def _spend(self, size: int) -> None:
        """Nobody but pid 1's program keeps to the credit, and what fills our memory is that program no more."""
        self._credit -= size
        if self._credit < 0:
            message = f"{-self._credit} bytes of output more than were granted"
            raise wire.WireError(message)

    def _expect(self) -> asyncio.Future[Any]:
        answer = asyncio.get_running_loop().create_future()
        if self._lost:
            _fail(answer, self._lost)
        return answer

    def _lose(self, error: Exception) -> None:
        self._lost = self._lost or error
        for future in (self.upgraded, self.hello, self._listing, self._scrubbed):
            if future and not future.done():
                _fail(future, self._lost)
        self._news.set()


def _answer(question: asyncio.Future[Any] | None, value: Any) -> None:
    if question and not question.done():
        question.set_result(value)


def _fail(question: asyncio.Future[Any], error: Exception) -> None:
    question.set_exception(error)
    question.exception()  # seen: nobody may be waiting for it


async def attach(endpoint: Endpoint, api_version: str, container: str) -> Attachment:
    """
    Open the stream of a container that was created and not yet started; attached later, its first bytes could be lost.

    Raises:
        EngineUnavailable: the engine cannot be reached, or will not attach.
    """
    request = (
        f"POST /v{api_version}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
        "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
    ).encode()
    attachment = Attachment(request)
    try:
        await dial(endpoint, attachment)
        await attachment.upgraded
    except OSError as error:
        message = f"cannot attach over {endpoint.url}: {error}"
        raise EngineUnavailable(message) from error
    except BaseException:
        attachment.close()
        raise
    return attachment


async def dial(endpoint: Endpoint, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
    """Connect to the engine. Raises OSError, and EngineUnavailable for an address of a kind that we do not speak."""
    loop = asyncio.get_running_loop()
    parts = urlsplit(endpoint.url)
    if parts.scheme == "unix":
        return (await loop.create_unix_connection(lambda: protocol, parts.path))[0]
    if parts.scheme in {"tcp", "http", "https"}:
        secured = _tls(endpoint)
        port = parts.port or (2376 if secured else 2375)
        return (await loop.create_connection(lambda: protocol, parts.hostname or "", port, ssl=secured))[0]
    message = f"engine address {endpoint.url}: only unix:// and tcp:// are supported"
    raise EngineUnavailable(message)


def _tls(endpoint: Endpoint) -> ssl.SSLContext | None:
    if endpoint.tls is None:
        return None
    context = ssl.create_default_context(cafile=str(endpoint.tls / "ca.pem"))
    context.load_cert_chain(str(endpoint.tls / "cert.pem"), str(endpoint.tls / "key.pem"))
    return context
