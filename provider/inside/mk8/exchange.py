"""
One HTTP request and its answer, following at most five redirects, each held against the same rules as the first URL.

The time limit holds for all of it together, however slowly the other side drips; the body is read up to its limit.
"""

from __future__ import annotations

import io
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from . import connect
from .deadline import left, look
from .errors import StepFailure
from .urls import check_url

if TYPE_CHECKING:
    from http.client import HTTPResponse

MOST_REDIRECTS: Final = 5
HEADERS: Final = {"User-Agent": "mk8.shell", "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}

_PORTS: Final = {"http": 80, "https": 443}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER: Final = 303
_CHARSET: Final = re.compile(
    r"charset=\"?((?:utf|iso-8859|windows-125|us-ascii|shift_jis|euc-|gb|big5|koi8)[a-z0-9_-]{0,10})", re.IGNORECASE
)
_MOVED: Final = frozenset({301, 302})


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 - HTTP's own

    @property
    def text(self) -> str:
        """The body as its header says it is encoded, if that is an encoding of text; otherwise as UTF-8."""
        kind = next((value for name, value in self.headers if name.lower() == "content-type"), "")
        found = _CHARSET.search(kind)
        try:
            return self.body.decode(found[1] if found else "utf-8", "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")


def exchange(method: str, url: str, *, deadline: float, most_bytes: int, body: bytes | None = None) -> Answer:
    """
    Ask for a URL that the rules have let through.

    Raises:
        UrlViolation: it, or what it redirects to, is not for scripts.
        StepFailure: it cannot be reached, does not speak HTTP, redirects too often, or says too much.
        TimedOut: at the deadline.
    """
    from urllib.parse import urljoin

    for _ in range(MOST_REDIRECTS + 1):
        answer = _ask(method, url, deadline=deadline, most_bytes=most_bytes, body=body)
        location = next((value for name, value in answer.headers if name.lower() == "location"), None)
        if answer.status not in _REDIRECTS or not location:
            return answer
        target = check_url(urljoin(url, location))
        if url.startswith("https:") and not target.startswith("https:"):
            message = f"{url} redirects to {target}, which is not encrypted; it is not followed"
            raise StepFailure(message)
        if (answer.status == _SEE_OTHER and method != "HEAD") or (answer.status in _MOVED and method == "POST"):
            method, body = "GET", None
        url = target
    message = f"{url} is where more than {MOST_REDIRECTS} redirects have led; they are not followed further"
    raise StepFailure(message)


def _ask(method: str, url: str, *, deadline: float, most_bytes: int, body: bytes | None) -> Answer:
    from http.client import HTTPConnection, HTTPException
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    plain = connect.connect(host, port, deadline)
    stream = connect.secure(plain, host, deadline) if parts.scheme == "https" else plain
    connection = HTTPConnection(host, port)
    connection.default_port = _PORTS[parts.scheme]  # what the Host header leaves out
    connection.sock = _Timed(stream, deadline)  # it has what the library uses of one
    headers = HEADERS if body is None else HEADERS | {"Content-Type": "application/json; charset=utf-8"}
    try:
        connection.request(method, f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}", body, headers)
        with connection.getresponse() as response:
            return _answer(url, response, most_bytes)
    except (HTTPException, OSError, ValueError) as error:
        look(deadline)
        message = f"{url} gave no right answer: {type(error).__name__}: {error}"
        raise StepFailure(message) from error
    finally:
        stream.close()


def _answer(url: str, response: HTTPResponse, most_bytes: int) -> Answer:
    body = response.read(most_bytes + 1)
    if len(body) > most_bytes:
        message = f"{url} answers with more than {most_bytes} bytes (maxOutputBytes)"
        raise StepFailure(message)
    if response.length:  # the library takes a body that was cut off for a whole one
        message = f"{url} gave no right answer: {response.length} bytes of it are missing"
        raise StepFailure(message)
    return Answer(response.status, response.reason, tuple(response.getheaders()), body)


class _Timed:
    """A connection of which every read and write ends with the deadline, however little comes at a time."""

    def __init__(self, stream: socket.socket, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def sendall(self, data: bytes) -> None:
        self._stream.settimeout(left(self._deadline, 3600))
        self._stream.sendall(data)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Raw(self._stream, self._deadline))

    def close(self) -> None:
        """Leave it to whoever opened the stream."""


class _Raw(io.RawIOBase):
    def __init__(self, stream: socket.socket, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what a BufferedReader gives
        self._stream.settimeout(left(self._deadline, 3600))
        return self._stream.recv_into(buffer)
