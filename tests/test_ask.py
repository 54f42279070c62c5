"""What `provider.engine.ask` promises: the engine's answers, whole; and anything else is one typed error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from provider.engine.ask import MAX_ANSWER, Line
from provider.errors import EngineUnavailable
from provider.settings import Endpoint

OK = b"HTTP/1.1 200 OK\r\n"
Says = Callable[..., Line]


@pytest.fixture
async def says(tmp_path: Path) -> AsyncIterator[Says]:
    """An engine that says given bytes, one answer a question, then closes; a new connection goes on with the next."""
    writers: list[asyncio.StreamWriter] = []
    answers: list[bytes | None] = []
    path = tmp_path / "engine.sock"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while answers:
                await reader.readuntil(b"\r\n\r\n")
                answer = answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    server = await asyncio.start_unix_server(serve, path)

    def say(*given: bytes | None) -> Line:
        answers.extend(given)
        return Line(Endpoint(url=f"unix://{path}", source="test"))

    yield say
    server.close()
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def sized(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def test_answers_of_both_forms_arrive_whole(says: Says):
    """With a length or in chunks, one after the other on one connection."""
    chunked = OK + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3;x=y\r\n:1}\r\n0\r\n\r\n'
    line = says(sized(b"{}"), chunked, b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n[]")
    assert [await line.get("/x") for _ in range(3)] == [(200, {}), (200, {"a": 1}), (404, [])]
    line.close()


async def test_a_connection_that_the_engine_closed_is_opened_again(says: Says):
    """Between two questions, or at the second, it is asked once more."""
    line = says(sized(b"1"), None, sized(b"2"))
    assert [(await line.get("/x"))[1] for _ in range(2)] == [1, 2]
    line.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 what\r\n\r\n",
        OK + b"Content-Length: 5\r\n\r\n{}",
        OK + b"Content-Length: -1\r\n\r\n{}",
        OK + b"Content-Length: %d\r\n\r\n" % (MAX_ANSWER + 1),
        OK + b"\r\n",
        sized(b"no json"),
        sized(b"[" * 200_000),
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        OK + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_answer_is_one_error(says: Says, answer: bytes):
    """Cut short, endless, of another protocol: the engine is not usable, and that is said."""
    line = says(answer)
    with pytest.raises(EngineUnavailable):
        await line.get("/x")


async def test_an_engine_that_is_not_there_is_named(tmp_path: Path):
    """Where it was looked for, and who said so."""
    with pytest.raises(EngineUnavailable, match=r"unix:///no/such.sock \(DOCKER_HOST\)"):
        await Line(Endpoint(url="unix:///no/such.sock", source="DOCKER_HOST")).get("/x")


async def test_who_gives_up_leaves_no_half_answer_to_the_next(says: Says):
    """A question that is cancelled takes its connection with it."""
    line = says(OK + b"Content-Length: 9\r\n\r\n{", sized(b"2"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(line.get("/x"), 0.1)
    assert await line.get("/x") == (200, 2)
    line.close()


async def test_many_questions_at_once_are_answered_in_turn(says: Says):
    """Each gets its own answer."""
    line = says(*(sized(b"%d" % number) for number in range(20)))
    found = await asyncio.gather(*(line.get("/x") for _ in range(20)))
    assert [value for _, value in found] == list(range(20))
    line.close()
