"""What the network verbs promise, against real servers on this machine that a resolver gives public addresses to."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provider.inside.mk8 import connect, ping
from provider.inside.mk8.errors import Mk8Error, StepFailure, TimedOut, UrlViolation
from provider.inside.mk8.exchange import exchange
from provider.inside.mk8.verb import World
from provider.inside.mk8.verbs import VERBS

EXAMPLE = Path(__file__).parent / "example.pem"
PUBLIC = "93.184.216.34"
MEGABYTE = 1024 * 1024


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        told = (self.command, self.path, self.headers["Host"], str(self.headers.get("Content-Type")), body.decode())
        said = " ".join(told).encode()
        self.server.seen.append(said.decode())
        if self.path.startswith("/to/"):
            status, _, target = self.path[4:].partition("/")
            self.send_response(int(status))
            self.send_header("Location", target)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer  # noqa: N815 - the library's names

    def log_message(self, *_: object) -> None: ...


class Internet:
    """Names and addresses that lead to servers of this test, and who was connected to."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {"example.com": [PUBLIC]}
        self.ports: dict[tuple[str, int], int] = {}
        self.dialled: list[tuple[str, int]] = []
        self.lookups: list[str] = []

    def resolve(self, host: str, deadline: float) -> list[str]:
        self.lookups.append(host)
        return self.names[host]

    def dial(self, address: str, port: int, seconds: float) -> socket.socket:
        self.dialled.append((address, port))
        if (address, port) not in self.ports:
            raise ConnectionRefusedError(111, "Connection refused")
        return socket.create_connection(("127.0.0.1", self.ports[address, port]), seconds)


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    ours = Internet()
    monkeypatch.setattr(connect, "resolve", ours.resolve)
    monkeypatch.setattr(connect, "dial", ours.dial)
    return ours


@pytest.fixture
def server(internet: Internet) -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.seen = []
        internet.ports[PUBLIC, 80] = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def secure_server(internet: Internet) -> Iterator[http.server.ThreadingHTTPServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(EXAMPLE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.seen, server.handle_error = [], lambda *_: None
        server.socket = context.wrap_socket(server.socket, server_side=True)
        internet.ports[PUBLIC, 443] = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def talker(internet: Internet) -> Iterator[Callable[[Callable[[socket.socket], None]], None]]:
    """A server that says what it is told, to whoever comes first."""
    threads: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0))
    internet.ports[PUBLIC, 80] = listener.getsockname()[1]

    def start(talk: Callable[[socket.socket], None]) -> None:
        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):  # the other side had enough
                talk(connection)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(10)
    listener.close()


def world(**options) -> World:
    return World(root="/workspace", cwd="/workspace", network="open", **options)


def act(verb: str, *args: str, **options) -> str:
    given = VERBS[verb].act(world(**options), args)
    assert isinstance(given, str)
    return given


URL = "http://example.com"
JSON = "application/json; charset=utf-8"


@pytest.mark.parametrize(
    ("verb", "args", "gives"),
    [
        ("HttpGet", (f"{URL}/a?b=c",), "GET /a?b=c example.com None "),
        ("HttpDelete", (f"{URL}/a",), "DELETE /a example.com None "),
        ("HttpPost", (f"{URL}/a", '{"é":1}'), f'POST /a example.com {JSON} {{"é":1}}'),
        ("HttpPost", (f"{URL}/a",), f"POST /a example.com {JSON} "),
        ("HttpPut", (f"{URL}/a", "x"), f"PUT /a example.com {JSON} x"),
        ("HttpGet", (f"{URL}/to/302//b",), "GET /b example.com None "),
        ("HttpPost", (f"{URL}/to/302//b", "x"), "GET /b example.com None "),
        ("HttpPost", (f"{URL}/to/303//b", "x"), "GET /b example.com None "),
        ("HttpPost", (f"{URL}/to/307//b", "x"), f"POST /b example.com {JSON} x"),
        ("HttpPut", (f"{URL}/to/308//b", "x"), f"PUT /b example.com {JSON} x"),
    ],
)
@pytest.mark.usefixtures("server")
def test_requests_and_redirects(verb: str, args: tuple[str, ...], gives: str):
    """Methods, headers and bodies arrive as they should, also after a redirect."""
    assert act(verb, *args) == gives


def test_heads(server: http.server.ThreadingHTTPServer):
    """NetHttpStatus and HttpLatency ask for no body."""
    assert act("NetHttpStatus", f"{URL}/x").startswith("Status: 200 OK\nServer: ")
    assert act("HttpLatency", f"{URL}/x", "2").startswith(f"URL: {URL}/x\nRequests: 2\n  #1: ")
    assert [said.split()[0] for said in server.seen] == ["HEAD"] * 3


def test_the_connection_goes_to_the_address_that_was_checked(
    internet: Internet, server: http.server.ThreadingHTTPServer
):
    """A name is looked up once for each connection; who changes it afterwards changes nothing."""
    act("HttpGet", f"{URL}/a")
    assert internet.lookups == ["example.com"]
    assert internet.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "fd00::1",
        "100.64.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "4000::1",
    ],
)
def test_one_private_address_is_enough_to_refuse(address: str, internet: Internet):
    """Whoever owns a name can give it a public and a private address; nobody is connected to."""
    internet.names["example.com"] = [PUBLIC, address]
    for verb, args in {
        "HttpGet": (f"{URL}/",),
        "NetTlsCert": ("example.com",),
        "NetTcpConnect": ("example.com", "80"),
    }.items():
        with pytest.raises(UrlViolation, match="private or reserved"):
            act(verb, *args)
    assert internet.dialled == []


@pytest.mark.parametrize(
    "target", ["http://inside.example/", "http://127.0.0.1/", "http://example.com:8080/", "http://user@example.com/"]
)
def test_redirects_are_held_against_the_same_rules(
    target: str, internet: Internet, server: http.server.ThreadingHTTPServer
):
    """Neither by name nor by address does a redirect lead where the first URL may not."""
    internet.names["inside.example"] = ["10.0.0.1"]
    with pytest.raises(UrlViolation):
        act("HttpGet", f"{URL}/to/302/{target}")
    assert len(internet.dialled) == 1


def test_redirects_come_to_an_end(internet: Internet, server: http.server.ThreadingHTTPServer):
    """After five of them."""
    with pytest.raises(StepFailure, match="more than 5 redirects"):
        act("HttpGet", f"{URL}/to/302/again")
    assert len(internet.dialled) == 6


@pytest.mark.usefixtures("secure_server")
def test_tls_demands_a_certificate_of_the_host(internet: Internet, monkeypatch: pytest.MonkeyPatch):
    """One that nobody trusts is refused, one that is trusted is not, and one for another name is again."""
    with pytest.raises(StepFailure, match="CERTIFICATE_VERIFY_FAILED"):
        act("HttpGet", "https://example.com/")
    monkeypatch.setattr(ssl, "create_default_context", trusting)
    assert act("HttpGet", "https://example.com/x") == "GET /x example.com None "
    internet.names["other.com"] = [PUBLIC]
    with pytest.raises(StepFailure, match="CERTIFICATE_VERIFY_FAILED"):
        act("HttpGet", "https://other.com/")


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(EXAMPLE)
    return context


@pytest.mark.usefixtures("secure_server")
def test_a_certificate_is_told_without_being_trusted():
    """NetTlsCert is mostly asked about what is wrong with one."""
    assert "Subject: CN=example.com, O=Test Org, C=DE\n" in act("NetTlsCert", "example.com")


def test_tls_to_somebody_who_speaks_none(talker, internet: Internet):
    """It is a failure that says so."""
    talker(lambda connection: connection.sendall(b"hello\n" * 100))
    internet.ports[PUBLIC, 443] = internet.ports[PUBLIC, 80]
    with pytest.raises(StepFailure, match="TLS"):
        act("NetTlsCert", "example.com")


@pytest.mark.parametrize(
    "piece",
    [b"x", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"],
    ids=["nothing", "header", "body"],
)
def test_who_drips_is_not_waited_for(piece: bytes, talker):
    """The deadline is for all of an exchange, so a byte now and then does not keep it open."""
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(piece)
        while not over.wait(0.05):
            connection.sendall(b"x")

    talker(drip)
    began = time.monotonic()
    try:
        with pytest.raises(TimedOut):
            act("HttpGet", f"{URL}/", deadline=began + 0.6)
    finally:
        over.set()
    assert time.monotonic() - began < 5


def test_a_flood_is_cut_off(talker):
    """Of a body without end, no more is read than the output may have."""
    sent = []

    def flood(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(64):
            connection.sendall(b"x" * MEGABYTE)
            sent.append(MEGABYTE)

    talker(flood)
    with pytest.raises(StepFailure, match="more than 1000 bytes"):
        act("HttpGet", f"{URL}/", output_bytes=1000)
    assert sum(sent) < 32 * MEGABYTE


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00" * 100,
        b"HTTP/1.1 99999 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
    ],
)
def test_what_is_no_http_is_a_failure(junk: bytes, talker):
    """Also where the library would raise something of its own."""

    def say(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(junk)

    talker(say)
    with pytest.raises(StepFailure, match="no right answer"):
        act("HttpGet", f"{URL}/")


def test_ports(internet: Internet, server: http.server.ThreadingHTTPServer):
    """Open is who answers, closed who refuses."""
    assert act("NetTcpConnect", "example.com", "80").startswith("Open (")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        internet.ports[PUBLIC, 81] = unused.getsockname()[1]
    assert act("NetTcpConnect", "example.com", "81").startswith("Closed (")


def test_the_resolver_is_left_alone_after_the_deadline(monkeypatch: pytest.MonkeyPatch):
    """A resolver that waits for its server cannot be interrupted, but it can be left behind."""
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: never.wait())
    began = time.monotonic()
    with pytest.raises(TimedOut):
        connect.resolve("example.com", began + 0.3)
    assert time.monotonic() - began < 3


def test_the_real_resolver():
    """It gives what the system knows; a name that nobody has is a failure."""
    assert "127.0.0.1" in connect.resolve("localhost", time.monotonic() + 5)
    with pytest.raises((StepFailure, TimedOut)):
        connect.resolve("no-such-name.invalid", time.monotonic() + 5)


def test_the_real_dial():
    """It connects to an address; one that does not answer is an OSError."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connect.dial("127.0.0.1", listener.getsockname()[1], 5).close()
        port = listener.getsockname()[1]
    with pytest.raises(OSError):
        connect.dial("127.0.0.1", port, 5)


def test_a_real_ping():
    """To this machine it is answered, where the kernel lets this user ping at all."""
    try:
        reply = ping.ping("127.0.0.1", 1, 2)
    except PermissionError:
        pytest.skip("net.ipv4.ping_group_range does not have this group")
    assert reply is not None
    assert reply.ttl == 64


def test_without_a_network_nobody_is_asked(internet: Internet):
    """Not even a name is looked up."""
    offline = World(root="/workspace", cwd="/workspace", network="none")
    for verb in (name for name in VERBS if name.startswith(("Http", "Net"))):
        with pytest.raises(StepFailure, match="no network"):
            VERBS[verb].act(offline, [f"{URL}/", "80"])
    assert internet.lookups == []


@pytest.mark.usefixtures("internet")
def test_an_unreachable_host_says_why():
    """Neither a traceback nor a bare number."""
    with pytest.raises(Mk8Error, match=r"example\.com:80 cannot be reached"):
        exchange("GET", f"{URL}/", deadline=time.monotonic() + 5, most_bytes=10)
