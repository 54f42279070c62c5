"""
What the engine says of its images by itself, so that what was looked up stays true until then.

Every request pins its image's name to content. To ask the engine each time is a tenth of a warm request; so the answer
is kept, and the engine's own events, over a connection of their own, say when it no longer holds. While that connection
is not there, nothing is kept.
"""

from __future__ import annotations

import asyncio
import time

from provider.engine.attach import dial
from provider.errors import EngineUnavailable
from provider.model import Image
from provider.settings import Endpoint

_PATH = "/events?filters=%7B%22type%22%3A%5B%22image%22%5D%7D"  # {"type":["image"]}
_OVERLAP_SECONDS = 60
"""The engine begins to answer before it begins to listen; what it is told to repeat does no harm."""
_MAX_HEAD = 64 * 1024


class News(asyncio.Protocol):
    """Images by name, for as long as the engine has not said that any has changed."""

    def __init__(self, endpoint: Endpoint, *, timeout: float = 30.0) -> None:
        self._endpoint, self._timeout = endpoint, timeout
        self._transport: asyncio.BaseTransport | None = None
        self._dials = asyncio.Lock()
        self._head = b""
        self._listens = False
        self._refused = False
        self._known: dict[str, Image] = {}
        self._changes = 0

    async def known(self, name: str) -> Image | None:
        """Give what is known of a name, when all that the engine has said by now is taken into account."""
        if not self._listens:
            async with self._dials:
                await self._begin()
            return None
        # The first turn of the loop finds what has arrived, the second has read it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self._known.get(name)

    @property
    def mark(self) -> int:
        """Taken before a question, and given back with its answer."""
        return self._changes

    def keep(self, image: Image, mark: int) -> None:
        if self._listens and mark == self._changes:
            self._known[image.name] = image

    def close(self) -> None:
        if self._transport:
            self._transport.close()

    async def _begin(self) -> None:
        if self._transport or self._refused:
            return
        self._head = b""
        try:
            async with asyncio.timeout(self._timeout):
                self._transport = transport = await dial(self._endpoint, self)
        except (OSError, EngineUnavailable):  # a TimeoutError is one
            return  # whoever asks the engine itself will say so
        since = f"&since={time.time() - _OVERLAP_SECONDS:.0f}"
        transport.write(f"GET {_PATH}{since} HTTP/1.1\r\nHost: docker\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self._forget()
        if self._listens:
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._listens = self._head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 "))
            self._refused = not self._listens
        elif len(self._head) > _MAX_HEAD:
            self._refused = True
        if self._refused:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the reason
        self._listens, self._transport = False, None
        self._forget()

    def _forget(self) -> None:
        self._changes += 1
        self._known.clear()
