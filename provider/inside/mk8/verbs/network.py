"""
Verbs that talk to the Internet, as far as the sandbox has one, and ProcRun.

What they use is imported late: most scripts run where there is no network, and each waits for its imports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ..dates import show
from ..deadline import left, look
from ..encoding import to_bytes
from ..errors import StepFailure
from ..verb import HOST, TEXT, URL, Arguments, Done, Verb, World
from .limits import at, every, joined, refuse, whole

if TYPE_CHECKING:
    from ..exchange import Answer

MOST_REQUESTS: Final = 10
MOST_PROCESS_ARGUMENTS: Final = 64
LAST_PORT: Final = 65_535
USUAL_REQUESTS, USUAL_PORT = 3, 443
USUAL_CONNECT_SECONDS, MOST_CONNECT_SECONDS = 5, 30
PAUSE_SECONDS: Final = 0.2
SOON_DAYS: Final = 30

Act = Callable[[World, Sequence[str]], str]


def _online(act: Act) -> Act:
    """Only where the sandbox has a network."""

    def run(world: World, arguments: Sequence[str]) -> str:
        if world.network == "none":
            message = (
                f"{arguments[0]} cannot be reached: this sandbox has no network. The workspace is all there is; what is"
                " needed from elsewhere has to be put there, or the administrator has to give the sandbox a network"
            )
            raise StepFailure(message)
        return act(world, arguments)

    return run


def _ask(world: World, method: str, url: str, body: bytes | None = None) -> Answer:
    from ..exchange import exchange

    return exchange(method, url, deadline=world.deadline, most_bytes=world.output_bytes, body=body)


def _http(method: str, *, with_body: bool = False) -> Act:
    def act(world: World, arguments: Sequence[str]) -> str:
        body = to_bytes(arguments[1] if len(arguments) > 1 else "") if with_body else None
        answer = _ask(world, method, arguments[0], body)
        if not answer.is_success:
            message = f"{method} {arguments[0]} was answered with {answer.status} {answer.reason}"
            raise StepFailure(message)
        return answer.text

    return _online(act)


def _http_status(world: World, arguments: Sequence[str]) -> str:
    answer = _ask(world, "HEAD", arguments[0])
    headers: dict[str, list[str]] = {}
    for name, value in answer.headers:
        headers.setdefault(name, []).append(value)
    return joined(
        (f"Status: {answer.status} {answer.reason}", *(f"{name}: {', '.join(headers[name])}" for name in headers))
    )


def _latency(world: World, arguments: Sequence[str]) -> str:
    url, count = arguments[0], int(arguments[1]) if len(arguments) > 1 else USUAL_REQUESTS
    times: list[int] = []
    for index in range(count):
        if index:
            time.sleep(left(world.deadline, PAUSE_SECONDS))
        began = time.monotonic()
        _ask(world, "HEAD", url)
        times.append(_milliseconds(began))
    return joined(
        (
            f"URL: {url}",
            f"Requests: {count}",
            *(f"  #{index}: {took}ms" for index, took in enumerate(times, start=1)),
            f"Min: {min(times)}ms",
            f"Avg: {round(sum(times) / count)}ms",
            f"Max: {max(times)}ms",
        )
    )


def _milliseconds(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _ping(world: World, arguments: Sequence[str]) -> str:
    from .. import connect, ping

    host, count = arguments[0], int(arguments[1]) if len(arguments) > 1 else 1
    try:
        addresses = connect.resolve(host, world.deadline)
    except StepFailure as error:
        return joined(f"Ping {number}: Failed — {error}" for number in range(1, count + 1))
    if not all(map(connect.is_public, addresses)):
        # Nothing is sent there: who answers, and how fast, is already something to know.
        return joined(f"Ping {number}: Refused (address hidden — private IP)" for number in range(1, count + 1))
    said = []
    for number in range(1, count + 1):
        try:
            reply = ping.ping(addresses[0], number, left(world.deadline, ping.SECONDS))
        except OSError as error:
            said.append(f"Ping {number}: Failed — {error.strerror or error}")
            continue
        look(world.deadline)
        if reply is None:
            said.append(f"Ping {number}: TimedOut")
        else:
            said.append(f"Ping {number}: Success {reply.milliseconds}ms ttl={'' if reply.ttl is None else reply.ttl}")
    return joined(said)


def _dns(world: World, arguments: Sequence[str]) -> str:
    from .. import connect

    host = arguments[0]
    public = [address for address in connect.resolve(host, world.deadline) if connect.is_public(address)]
    return joined((f"DNS: {host}", *(public or ["All addresses are private or reserved (hidden)."])))


def _tls_certificate(world: World, arguments: Sequence[str]) -> str:
    import hashlib

    from .. import certificate, connect

    host, port = arguments[0], int(arguments[1]) if len(arguments) > 1 else USUAL_PORT
    plain = connect.connect(host, port, world.deadline)
    with connect.secure(plain, host, world.deadline, trusted=False) as stream:
        data = stream.getpeercert(binary_form=True)
    try:
        found = certificate.read(data or b"")
    except certificate.NoCertificate as error:
        raise StepFailure(f"{host}:{port}: {error}") from error  # noqa: EM102 - the other half is its own
    days = (found.not_after - datetime.now(UTC)).days
    return joined(
        (
            f"Host: {host}:{port}",
            f"Subject: {found.subject}",
            f"Issuer: {found.issuer}",
            f"Not Before: {_date(found.not_before)}",
            f"Not After: {_date(found.not_after)}",
            f"Thumbprint: {hashlib.sha1(data or b'', usedforsecurity=False).hexdigest().upper()}",
            f"Serial: {found.serial}",
            *([f"SANs: {', '.join(found.names)}"] if found.names else []),
            f"Days until expiry: {days}{' ⚠' if days < SOON_DAYS else ''}",
        )
    )


def _date(moment: datetime) -> str:
    return show(int(moment.timestamp()) * 1_000_000_000, "yyyy-MM-dd HH:mm:ssZ")


def _tcp_connect(world: World, arguments: Sequence[str]) -> str:
    from .. import connect

    host, port = arguments[0], int(arguments[1])
    seconds = int(arguments[2]) if len(arguments) > 2 else USUAL_CONNECT_SECONDS  # noqa: PLR2004 - the third
    addresses = connect.public_addresses(host, world.deadline)
    began = time.monotonic()
    for address in addresses:
        try:
            rest = max(0.001, began + seconds - time.monotonic())
            connect.dial(address, port, left(world.deadline, rest)).close()
        except TimeoutError:
            look(world.deadline)
            return f"Closed (timeout {seconds}s)"
        except OSError:
            continue
        return f"Open ({_milliseconds(began)}ms)"
    return f"Closed ({_milliseconds(began)}ms)"


def _open_url(world: World, arguments: Sequence[str]) -> str:
    return arguments[0]


def _is_https(arguments: Arguments) -> None:
    url = at(arguments, 0)
    if url is not None and not url.lower().startswith("https://"):
        refuse("OpenUrl", f"{url[:200]!r} is not encrypted; right is a URL that begins with https://")


def _run(world: World, arguments: Sequence[str]) -> Done:
    from ..process import run_process

    return run_process(world, arguments)


VERBS: Final = (
    Verb(
        name="ProcRun",
        least=1,
        most=MOST_PROCESS_ARGUMENTS,
        kinds=(TEXT,),
        describe=f"program, argument... (1-{MOST_PROCESS_ARGUMENTS}; see Mk8Templates)",
        act=_run,
    ),
    Verb(name="HttpGet", least=1, most=1, kinds=(URL,), describe="url", act=_http("GET")),
    Verb(
        name="HttpPost",
        least=1,
        most=2,
        kinds=(URL, TEXT),
        describe="url, [JSON body]",
        act=_http("POST", with_body=True),
    ),
    Verb(
        name="HttpPut",
        least=1,
        most=2,
        kinds=(URL, TEXT),
        describe="url, [JSON body]",
        act=_http("PUT", with_body=True),
    ),
    Verb(name="HttpDelete", least=1, most=1, kinds=(URL,), describe="url", act=_http("DELETE")),
    Verb(
        name="HttpLatency",
        least=1,
        most=2,
        kinds=(URL, TEXT),
        describe=f"url, [requests 1-{MOST_REQUESTS}, default {USUAL_REQUESTS}]",
        act=_online(_latency),
        check=whole("HttpLatency", 1, "the number of requests", 1, MOST_REQUESTS),
    ),
    Verb(
        name="NetPing",
        least=1,
        most=2,
        kinds=(HOST, TEXT),
        describe=f"host, [count 1-{MOST_REQUESTS}, default 1]",
        act=_online(_ping),
        check=whole("NetPing", 1, "the count", 1, MOST_REQUESTS),
    ),
    Verb(name="NetDns", least=1, most=1, kinds=(HOST,), describe="host", act=_online(_dns)),
    Verb(
        name="NetTlsCert",
        least=1,
        most=2,
        kinds=(HOST, TEXT),
        describe=f"host, [port, default {USUAL_PORT}]",
        act=_online(_tls_certificate),
        check=whole("NetTlsCert", 1, "the port", 1, LAST_PORT),
    ),
    Verb(name="NetHttpStatus", least=1, most=1, kinds=(URL,), describe="url", act=_online(_http_status)),
    Verb(
        name="NetTcpConnect",
        least=2,
        most=3,
        kinds=(HOST, TEXT, TEXT),
        describe=f"host, port, [seconds 1-{MOST_CONNECT_SECONDS}, default {USUAL_CONNECT_SECONDS}]",
        act=_online(_tcp_connect),
        check=every(
            whole("NetTcpConnect", 1, "the port", 1, LAST_PORT),
            whole("NetTcpConnect", 2, "the number of seconds", 1, MOST_CONNECT_SECONDS),
        ),
    ),
    Verb(name="OpenUrl", least=1, most=1, kinds=(URL,), describe="https url", act=_open_url, check=_is_https),
)
