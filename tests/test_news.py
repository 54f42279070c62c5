"""What `provider.engine.news` promises: an image's content is known until the engine says that any has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from provider.engine.news import News
from provider.model import Image
from provider.settings import Endpoint

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
EVENT = b'{"Type":"image","Action":"tag"}\n'
ONE = Image(name="one", id="sha256:1", volumes=())


class Speaker:
    """An engine that begins to answer with given bytes, and says more when it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first = OK
        self.asked: list[bytes] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.first)

    async def say(self, data: bytes) -> None:
        self._writers[-1].write(data)
        await self._writers[-1].drain()

    def hang_up(self) -> None:
        while self._writers:
            self._writers.pop().close()


@pytest.fixture
async def speaker(tmp_path: Path) -> AsyncIterator[Speaker]:
    speaker = Speaker(tmp_path / "engine.sock")
    server = await asyncio.start_unix_server(speaker.serve, speaker.path)
    yield speaker
    speaker.hang_up()
    server.close()


@pytest.fixture
async def news(speaker: Speaker) -> AsyncIterator[News]:
    news = News(Endpoint(url=f"unix://{speaker.path}", source="test"))
    yield news
    news.close()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(5):
        while not await holds():  # noqa: ASYNC110 - the other end is a socket
            await asyncio.sleep(0.001)


async def keep(news: News, image: Image) -> None:
    """Ask as the engine does, until the answer is kept."""

    async def kept() -> bool:
        if await news.known(image.name):
            return True
        news.keep(image, news.mark)
        return False

    await until(kept)


async def test_what_was_looked_up_is_known_until_the_engine_speaks(speaker: Speaker, news: News):
    """Once is enough; and after any event of an image, nothing is believed any more."""
    await keep(news, ONE)
    assert await news.known("one") == ONE
    assert await news.known("two") is None
    await speaker.say(EVENT)
    await until(lambda: _is_none(news))


async def _is_none(news: News) -> bool:
    return await news.known("one") is None


async def test_what_has_arrived_counts_before_what_is_known(speaker: Speaker, news: News):
    """An event in the socket's buffer is read first: a tag that was moved a moment ago is seen."""
    await keep(news, ONE)
    transport = news._transport
    assert isinstance(transport, asyncio.ReadTransport)
    transport.pause_reading()
    await speaker.say(EVENT)
    transport.resume_reading()
    assert await news.known("one") is None


async def test_an_answer_that_was_overtaken_is_not_kept(speaker: Speaker, news: News):
    """A tag moved between the question and its answer may have come too late for it."""
    await keep(news, ONE)
    mark = news.mark
    await speaker.say(EVENT)
    await until(lambda: _is_none(news))
    news.keep(ONE, mark)
    assert await news.known("one") is None


async def test_without_a_connection_nothing_is_known(speaker: Speaker, news: News):
    """An engine that went away may come back with other images; then it is listened to anew."""
    await keep(news, ONE)
    speaker.hang_up()
    await until(lambda: _is_none(news))
    news.keep(ONE, news.mark)
    await keep(news, ONE)
    assert len(speaker.asked) == 2


@pytest.mark.parametrize("first", [b"HTTP/1.1 403 Forbidden\r\n\r\n", b"x" * 70_000, b"SMTP ready\r\n\r\n"])
async def test_an_engine_that_tells_nothing_is_left_alone(speaker: Speaker, news: News, first: bytes):
    """It is asked for events once, and for its images each time."""
    speaker.first = first
    assert await news.known("one") is None

    async def refused() -> bool:
        news.keep(ONE, news.mark)
        return news._refused and await news.known("one") is None

    await until(refused)
    assert await news.known("one") is None
    assert len(speaker.asked) == 1


async def test_no_engine_is_nobodys_error_here():
    """Whoever asks it for the image itself says so."""
    news = News(Endpoint(url="unix:///no/such.sock", source="test"))
    assert await news.known("one") is None


async def test_many_at_once_make_one_connection(speaker: Speaker, news: News):
    await asyncio.gather(*(news.known("one") for _ in range(20)))
    await keep(news, ONE)
    assert len(speaker.asked) == 1
