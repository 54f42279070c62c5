"""
Connections to the public Internet and to nothing else.

A name is resolved once; when any of its addresses is private or reserved, none is used, since whoever owns the name
chooses which one comes first. The connection goes to an address that was looked at and not to the name again. There is
no proxy, and no variable of the environment has a say.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Final

from . import child
from .deadline import left, look
from .errors import StepFailure, UrlViolation
from .urls import is_private

if TYPE_CHECKING:
    import ssl

RESOLVE_SECONDS: Final = 10.0
_GIVEN_OUT: Final = ("2000::/3", "64:ff9b::/96")
"""Global unicast, and IPv4 behind a translator; is_private looks at the IPv4 address in it."""


def resolve(host: str, deadline: float) -> list[str]:
    """
    All addresses of a host, without checking them. Raises StepFailure when there are none.

    In a child: a resolver that waits for its server cannot be interrupted.
    """

    def work(_: child.Again) -> bytes:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return json.dumps(list(dict.fromkeys(str(address[4][0]) for address in found))).encode()

    try:
        said = child.ask(work, seconds=RESOLVE_SECONDS, deadline=deadline, what=f"the look-up of {host}")
    except StepFailure as error:
        message = f"the name {host} has no address: {error}"
        raise StepFailure(message) from error
    addresses: list[str] = json.loads(said)
    return addresses


def is_public(address: str) -> bool:
    """Whether it is of the public Internet: by our list, by the library's, and for IPv6 by what is given out."""
    import ipaddress

    if is_private(address):
        return False
    read = ipaddress.ip_address(address.partition("%")[0])
    given_out = isinstance(read, ipaddress.IPv4Address) or any(read in ipaddress.ip_network(one) for one in _GIVEN_OUT)
    return read.is_global and given_out


def public_addresses(host: str, deadline: float) -> list[str]:
    """Raises UrlViolation when one of the host's addresses is not public."""
    addresses = resolve(host.strip("[]"), deadline)
    if not all(map(is_public, addresses)):
        message = f"{host} leads to a private or reserved address; only public ones are allowed"
        raise UrlViolation(message)
    return addresses


def dial(address: str, port: int, seconds: float) -> socket.socket:
    """Connect to an address. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    dialled = socket.socket(family, socket.SOCK_STREAM)
    try:
        dialled.settimeout(seconds)
        dialled.connect((address, port))
    except BaseException:
        dialled.close()
        raise
    return dialled


def connect(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first address of a host that answers."""
    why: OSError | None = None
    for address in public_addresses(host, deadline):
        try:
            return dial(address, port, left(deadline, 3600))
        except OSError as error:
            why = error
    look(deadline)
    message = f"{host}:{port} cannot be reached: {why}"
    raise StepFailure(message)


def secure(plain: socket.socket, host: str, deadline: float, *, trusted: bool = True) -> ssl.SSLSocket:
    """Speak TLS; `trusted` demands a certificate that is valid for the host. Closes the connection when it fails."""
    context = tls_context(trusted=trusted)
    try:
        plain.settimeout(left(deadline, 3600))
        return context.wrap_socket(plain, server_hostname=host.strip("[]"))
    except OSError as error:
        plain.close()
        look(deadline)
        message = f"{host} and we find no way to speak TLS: {error}"
        raise StepFailure(message) from error


def tls_context(*, trusted: bool) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context()
    if not trusted:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
