"""Rows of the verbs that talk to the Internet, which is written down here, and of ProcRun."""

from __future__ import annotations

import io
import ssl
from pathlib import Path

from rows import like, no, ok

from provider.inside.mk8.ping import Reply

FAILURE, URL = "StepFailure", "UrlViolation"
OPEN = {"network": "open"}
PUBLIC, PRIVATE = ["93.184.216.34"], ["93.184.216.34", "10.0.0.1"]
EXAMPLE = (Path(__file__).parent / "example.pem").read_text()
CERTIFICATE = (
    "Host: example.com:443\nSubject: CN=example.com, O=Test Org, C=DE\nIssuer: CN=example.com, O=Test Org, C=DE\n"
    "Not Before: 2020-01-01 00:00:00Z\nNot After: 2120-01-01 00:00:00Z\n"
    "Thumbprint: 6A79B18E1C3C3543EF3F6293168C2D4252FDC1AE\nSerial: 4004FD6B10C7B2AF\n"
    r"SANs: example.com, \*.example.com, 93.184.216.34\nDays until expiry: [0-9]+"
)


class Answering:
    """A connection to somebody who has already answered."""

    def __init__(self, said: bytes = b"", certificate: bytes = b"") -> None:
        self.said, self.certificate = io.BytesIO(said), certificate

    def settimeout(self, seconds: float) -> None: ...
    def sendall(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None: ...
    def recv_into(self, buffer: memoryview) -> int:
        return self.said.readinto(buffer)

    def getpeercert(self, *, binary_form: bool) -> bytes:
        return self.certificate


def http(body: str | bytes = "", status: str = "200 OK", *headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(data)}", "", "")).encode() + data


def answered(*answers: bytes) -> dict[str, object]:
    """Who connects gets the first answer, then the next, and the last for good."""
    said = list(answers)
    return {
        "connect.connect": lambda *_: Answering(said.pop(0) if len(said) > 1 else said[0]),
        "connect.secure": lambda plain, *_, **__: plain,
    }


def resolved(*addresses: str) -> dict[str, object]:
    return {"connect.resolve": lambda *_: list(addresses)}


def dialled(what: object) -> dict[str, object]:
    def dial(*_: object) -> object:
        if isinstance(what, Exception):
            raise what
        return what

    return {**resolved(*PUBLIC), "connect.dial": dial}


def failing(error: OSError):
    def ping(*_: object) -> None:
        raise error

    return ping


PAGE = "http://example.com/"
CERT_OF = {
    "connect.connect": lambda *_: Answering(),
    "connect.secure": lambda *_, **__: Answering(
        certificate=ssl.PEM_cert_to_DER_cert(EXAMPLE[EXAMPLE.index("-----") :].split("-----BEGIN PRIVATE")[0])
    ),
}
NO_CERT = {**CERT_OF, "connect.secure": lambda *_, **__: Answering(certificate=b"\x30\x03\x02\x01")}
PRIVATE_URLS = (
    "http://localhost/",
    "http://127.0.0.1/",
    "http://[::1]/",
    "http://169.254.169.254/latest",
    "http://10.1.2.3/",
    "http://2130706433/",
    "http://metadata.google.internal/",
    "http://[::ffff:10.0.0.1]/",
    "http://100.64.0.1/",
)
WRONG_URLS = (
    "ftp://example.com/",
    "example.com",
    "http://user@example.com/",
    "http://example.com:8080/",
    "file:///etc/passwd",
)
NEEDS_NETWORK = {
    "HttpGet": (PAGE,),
    "HttpPost": (PAGE, "{}"),
    "HttpPut": (PAGE, "{}"),
    "HttpDelete": (PAGE,),
    "HttpLatency": (PAGE,),
    "NetHttpStatus": (PAGE,),
    "NetPing": ("example.com",),
    "NetDns": ("example.com",),
    "NetTlsCert": ("example.com",),
    "NetTcpConnect": ("example.com", "80"),
}
WRONG_HOSTS = ("localhost", "127.0.0.1", "::1", "a.internal", "printer.local", "x.corp", "a b", "a/b", "-", "x" * 300)

ROWS = (
    *(no(verb, *args, fails=FAILURE, says="this sandbox has no network") for verb, args in NEEDS_NETWORK.items()),
    *(
        no("HttpGet", url, fails=URL, says="Right: http:// or https://", world=OPEN)
        for url in PRIVATE_URLS + WRONG_URLS
    ),
    *(
        no(verb, "http://127.0.0.1/", fails=URL, says="127.0.0.1", world=OPEN)
        for verb in ("HttpPost", "HttpPut", "HttpDelete", "NetHttpStatus", "HttpLatency", "OpenUrl")
    ),
    *(no("NetDns", host, fails=URL, says="Right: a public name", world=OPEN) for host in WRONG_HOSTS),
    *(
        no(verb, "10.0.0.1", *rest, fails=URL, says="is an address", world=OPEN)
        for verb, *rest in (("NetPing",), ("NetTlsCert",), ("NetTcpConnect", "80"))
    ),
    *(
        no(verb, *args, fails=URL, says="private or reserved", world=OPEN, patch=resolved(*PRIVATE))
        for verb, args in NEEDS_NETWORK.items()
        if verb not in {"NetPing", "NetDns"}
    ),
    ok("HttpGet", PAGE, gives="héllo", world=OPEN, patch=answered(http("héllo"))),
    ok("HttpGet", "https://example.com/x?y=1", gives="", world=OPEN, patch=answered(http("", "204 No Content"))),
    ok(
        "HttpGet",
        PAGE,
        gives="é",
        world=OPEN,
        patch=answered(http(b"\xe9", "200 OK", "Content-Type: text/plain; charset=ISO-8859-1")),
    ),
    ok(
        "HttpGet",
        PAGE,
        gives="�",
        world=OPEN,
        patch=answered(http(b"\xe9", "200 OK", "Content-Type: text/plain; charset=utf-99")),
    ),
    ok(
        "HttpGet",
        PAGE,
        gives="ab",
        world=OPEN,
        patch=answered(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
    ),
    ok(
        "HttpGet",
        PAGE,
        gives="there",
        world=OPEN,
        patch=answered(http("", "302 Found", "Location: /there"), http("there")),
    ),
    no("HttpGet", PAGE, fails=FAILURE, says="404 Not Found", world=OPEN, patch=answered(http("no", "404 Not Found"))),
    no("HttpGet", PAGE, fails=FAILURE, says="500", world=OPEN, patch=answered(http("no", "500 Oh"))),
    no(
        "HttpGet",
        PAGE,
        fails=FAILURE,
        says="more than 10 bytes",
        world={**OPEN, "output_bytes": 10},
        patch=answered(http("x" * 11)),
    ),
    no("HttpGet", PAGE, fails=FAILURE, says="no right answer", world=OPEN, patch=answered(b"nonsense\r\n\r\n")),
    no("HttpGet", PAGE, fails=FAILURE, says="no right answer", world=OPEN, patch=answered(http("abc")[:-1])),
    no(
        "HttpGet",
        PAGE,
        fails=FAILURE,
        says="more than 5 redirects",
        world=OPEN,
        patch=answered(http("", "302 Found", "Location: /again")),
    ),
    *(
        no(
            "HttpGet",
            PAGE,
            fails=URL,
            says="Right:",
            world=OPEN,
            patch=answered(http("", f"{status} X", f"Location: {to}"), http("secret")),
        )
        for status, to in (
            (301, "http://127.0.0.1/"),
            (302, "http://169.254.169.254/"),
            (303, "//localhost/"),
            (307, "ftp://example.com/"),
            (308, "http://example.com:22/"),
        )
    ),
    no(
        "HttpGet",
        "https://example.com/",
        fails=FAILURE,
        says="not encrypted",
        world=OPEN,
        patch=answered(http("", "302 Found", f"Location: {PAGE}"), http("x")),
    ),
    no(
        "HttpGet",
        PAGE,
        fails=FAILURE,
        says="cannot be reached",
        world=OPEN,
        patch=dialled(ConnectionRefusedError("refused")),
    ),
    ok("HttpPost", PAGE, '{"a":1}', gives="made", world=OPEN, patch=answered(http("made", "201 Created"))),
    ok("HttpPost", PAGE, gives="", world=OPEN, patch=answered(http())),
    no(
        "HttpPost",
        PAGE,
        "{}",
        fails=FAILURE,
        says="POST http://example.com/ was answered with 403",
        world=OPEN,
        patch=answered(http("", "403 Forbidden")),
    ),
    ok("HttpPut", PAGE, "{}", gives="ok", world=OPEN, patch=answered(http("ok"))),
    no("HttpPut", PAGE, fails=FAILURE, says="PUT", world=OPEN, patch=answered(http("", "409 Conflict"))),
    ok("HttpDelete", PAGE, gives="gone", world=OPEN, patch=answered(http("gone"))),
    no("HttpDelete", PAGE, fails=FAILURE, says="DELETE", world=OPEN, patch=answered(http("", "405 No"))),
    ok(
        "NetHttpStatus",
        PAGE,
        gives="Status: 404 Not Found\nA: 1, 2\nContent-Length: 0",
        world=OPEN,
        patch=answered(http("", "404 Not Found", "A: 1", "A: 2")),
    ),
    ok(
        "NetHttpStatus",
        PAGE,
        gives=like("(?s)Status: 200 OK.*"),
        world=OPEN,
        patch=answered(http("", "301 Moved", "Location: /x"), http()),
    ),
    ok(
        "HttpLatency",
        PAGE,
        gives=like(r"URL: http://example.com/\nRequests: 3\n(  #[123]: \d+ms\n){3}Min: \d+ms\nAvg: \d+ms\nMax: \d+ms"),
        world=OPEN,
        patch=answered(http()),
    ),
    ok("HttpLatency", PAGE, "1", gives=like(r"(?s).*Requests: 1\n  #1: .*"), world=OPEN, patch=answered(http())),
    no("HttpLatency", PAGE, "0", says="1 to 10"),
    no("HttpLatency", PAGE, "11", says="1 to 10"),
    ok(
        "NetPing",
        "example.com",
        "2",
        gives="Ping 1: Success 12ms ttl=57\nPing 2: Success 12ms ttl=57",
        world=OPEN,
        patch={**resolved(*PUBLIC), "ping.ping": lambda *_: Reply(12, 57)},
    ),
    ok(
        "NetPing",
        "example.com",
        gives="Ping 1: TimedOut",
        world=OPEN,
        patch={**resolved(*PUBLIC), "ping.ping": lambda *_: None},
    ),
    ok(
        "NetPing",
        "example.com",
        gives="Ping 1: Failed — Permission denied",
        world=OPEN,
        patch={**resolved(*PUBLIC), "ping.ping": failing(PermissionError(13, "Permission denied"))},
    ),
    ok(
        "NetPing",
        "example.com",
        gives="Ping 1: Refused (address hidden — private IP)",
        world=OPEN,
        patch=resolved(*PRIVATE),
    ),
    no("NetPing", "example.com", "0", says="1 to 10"),
    no("NetPing", "example.com", "11", says="1 to 10"),
    ok("NetDns", "EXAMPLE.com", gives="DNS: example.com\n93.184.216.34", world=OPEN, patch=resolved(*PRIVATE)),
    ok(
        "NetDns",
        "example.com",
        gives="DNS: example.com\nAll addresses are private or reserved (hidden).",
        world=OPEN,
        patch=resolved("127.0.0.1", "fd00::1"),
    ),
    ok("NetTlsCert", "example.com", gives=like(CERTIFICATE), world=OPEN, patch=CERT_OF),
    no("NetTlsCert", "example.com", fails=FAILURE, says="cannot be read", world=OPEN, patch=NO_CERT),
    no("NetTlsCert", "example.com", "0", says="1 to 65535"),
    no("NetTlsCert", "example.com", "65536", says="1 to 65535"),
    ok("NetTcpConnect", "example.com", "80", gives=like(r"Open \(\d+ms\)"), world=OPEN, patch=dialled(Answering())),
    ok(
        "NetTcpConnect",
        "example.com",
        "80",
        gives=like(r"Closed \(\d+ms\)"),
        world=OPEN,
        patch=dialled(ConnectionRefusedError()),
    ),
    ok(
        "NetTcpConnect",
        "example.com",
        "80",
        "7",
        gives="Closed (timeout 7s)",
        world=OPEN,
        patch=dialled(TimeoutError()),
    ),
    no("NetTcpConnect", "example.com", "0", says="1 to 65535"),
    no("NetTcpConnect", "example.com", "80", "0", says="1 to 30"),
    no("NetTcpConnect", "example.com", "80", "31", says="1 to 30"),
    ok("OpenUrl", "HTTPS://Example.com:443", gives="https://example.com/"),
    ok("OpenUrl", "https://example.com/a?b=c", gives="https://example.com/a?b=c"),
    no("OpenUrl", "http://example.com/", says="not encrypted"),
    no("OpenUrl", "javascript:alert(1)", fails=URL, says="no URL"),
    ok("ProcRun", "cat", "a.txt", gives="hello", files={"a.txt": "hello"}),
    ok("ProcRun", "wc", "-c", "a.txt", gives=like(r"\s*5 .*a.txt\n"), files={"a.txt": "hello"}),
    no("ProcRun", "cat", "no.txt", fails=FAILURE, says="cat exited with code 1"),
    no("ProcRun", "bash", "-c", "x", says="bash"),
    no("ProcRun", "cat", "/etc/passwd", fails="PathViolation", says="outside"),
)
