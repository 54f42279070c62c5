"""
Small questions to the engine over one kept connection.

Every request looks its image up, so that a tag which was moved a moment ago is seen. Through the SDK, with its threads
and layers, that took two of a warm request's seven milliseconds; the engine itself needs a third of one.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from provider.engine.attach import dial
from provider.errors import EngineUnavailable
from provider.settings import Endpoint

MAX_ANSWER = 16 * 2**20
_MAX_HEAD = 64 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Line:
    """A connection to the engine; one question at a time, in the order in which they come."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._kept: Streams | None = None
        self._turn = asyncio.Lock()

    async def get(self, path: str) -> tuple[int, Any]:
        """
        Give status and JSON of the engine's answer.

        Raises:
            EngineUnavailable: it cannot be reached, or does not answer in HTTP and JSON.
        """
        async with self._turn:
            if self._kept:
                try:
                    return await self._ask(self._kept, path)
                except EngineUnavailable:
                    pass  # the engine closes what was idle for long; a question may be asked twice
            return await self._ask(await self._connect(), path)

    def close(self) -> None:
        if self._kept:
            self._kept[1].close()
            self._kept = None

    async def _ask(self, streams: Streams, path: str) -> tuple[int, Any]:
        reader, writer = streams
        self._kept = None  # until it is known to be in order
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: docker\r\n\r\n".encode())
            status, body = await _answer(reader)
            value = json.loads(body)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, RecursionError) as error:
            writer.close()
            message = f"the engine at {self._endpoint.url} did not answer as one: {error}"
            raise EngineUnavailable(message) from error
        except BaseException:
            writer.close()  # half an answer may still be on its way
            raise
        self._kept = streams
        return status, value

    async def _connect(self) -> Streams:
        reader = asyncio.StreamReader(_MAX_HEAD)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport = await dial(self._endpoint, protocol)
        except OSError as error:
            message = f"cannot reach a Docker engine at {self._endpoint.url} ({self._endpoint.source}): {error}"
            raise EngineUnavailable(message) from error
        return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one response. Raises ValueError for what is not HTTP."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, status, *_ = first.split(" ")
    if not version.startswith("HTTP/1."):
        message = f"{first[:80]!r} is not HTTP"
        raise ValueError(message)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return int(status), await _chunks(reader)
    return int(status), await reader.readexactly(_size(headers.get("content-length", "0"), 10))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := _size((await reader.readuntil(b"\r\n")).decode("latin-1").partition(";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
        _size(str(len(body)), 10)
    await reader.readuntil(b"\r\n")
    return bytes(body)


def _size(text: str, base: int) -> int:
    size = int(text, base)
    if not 0 <= size <= MAX_ANSWER:
        message = f"an answer of {size} bytes"
        raise ValueError(message)
    return size
