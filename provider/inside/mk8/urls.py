"""
Which URLs and hosts a script may name, by their text alone, and which addresses are nobody's business.

A name says little about where it leads: whoever connects resolves it first, asks `is_private` about every address, and
connects to the address that was asked about. Redirects are URLs like any other.
"""

from __future__ import annotations

import re
from typing import Final

from .errors import UrlViolation

BLOCKED_HOSTS: Final = frozenset({"localhost", "metadata.google.internal", "metadata.internal", "169.254.169.254"})
PRIVATE_SUFFIXES: Final = (".internal", ".local", ".corp", ".lan", ".intranet", ".private", ".localhost")
PORTS: Final = {"": "", "80": "http", "443": "https"}
"""Those that may be named, with the scheme whose own they are."""
LONGEST_HOST: Final = 253
LONGEST_URL: Final = 8192

_URL: Final = re.compile(r"(https?)://([^/?#]*)([^#]*)(#.*)?", re.IGNORECASE | re.DOTALL)
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]*))?")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+")
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_NUMERIC: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_RIGHT_URL: Final = "http:// or https://, a public host, port 80, 443 or none, such as https://example.com/data.json"
_RIGHT_HOST: Final = "a public name, such as example.com"

# Reserved for something else than the public Internet, and so never what a script may talk to.
_PRIVATE_V4: Final = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("224.0.0.0/4", "240.0.0.0/4"),
)
_PRIVATE_V6: Final = (
    *("::/128", "::1/128", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16"),
    *("fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
)
_CARRIERS: Final = (("::ffff:0:0/96", 0), ("::/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
"""IPv6 networks whose addresses carry one of IPv4, this many bits from the right: that one counts."""


def check_url(text: str) -> str:
    """
    Give a URL in its normal form.

    Raises:
        UrlViolation: of another scheme, with a user's name, for a private host or an unusual port.
    """
    found = _URL.fullmatch(text) if len(text) <= LONGEST_URL and not _UNPRINTABLE.search(text) else None
    if not found:
        raise _refused(text, "is no URL that a script may use", _RIGHT_URL)
    scheme, authority, rest = found[1].lower(), found[2], found[3]
    parts = _AUTHORITY.fullmatch(authority)
    if not parts:
        why = "names a user" if "@" in authority else "has no plain host; a name beyond ASCII is written as xn--"
        raise _refused(text, why, _RIGHT_URL)
    host, port = parts[1].lower().removesuffix("."), (parts[2] or "").lstrip("0")
    if port not in PORTS:
        raise _refused(text, "is for another port", _RIGHT_URL)
    if host in BLOCKED_HOSTS or host.endswith(".localhost"):
        raise _refused(text, "is about this machine or its surroundings", _RIGHT_URL)
    if host.startswith("[") or _is_numeric(host):
        if is_private(host.strip("[]")):
            raise _refused(text, "has an address that is private, reserved, or not written in full", _RIGHT_URL)
    elif not _is_name(host):
        raise _refused(text, "has no name of a host", _RIGHT_URL)
    named = "" if PORTS[port] in {"", scheme} else f":{port}"
    path = rest if rest.startswith("/") else f"/{rest}"
    return f"{scheme}://{host}{named}{_in_ascii(path)}"


def check_host(text: str) -> str:
    """
    Give a host's name in lower case.

    Raises:
        UrlViolation: an address, a private name, or no name at all.
    """
    host = text.lower().removesuffix(".")
    if not _HOST.fullmatch(host) or not _is_name(host):
        raise _refused(text, "is no name of a host: up to 253 letters, digits, '-' and '.'", _RIGHT_HOST)
    if _is_numeric(host):
        raise _refused(text, "is an address", _RIGHT_HOST)
    if host in BLOCKED_HOSTS or host.endswith(PRIVATE_SUFFIXES):
        raise _refused(text, "is a private name", _RIGHT_HOST)
    return host


def is_private(address: str) -> bool:
    """Whether an address is private or reserved; one that cannot be read is taken to be."""
    import ipaddress  # late: most scripts have no URL, and the start of Python counts

    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    networks = _PRIVATE_V4 if read.version == 4 else _PRIVATE_V6  # noqa: PLR2004 - the protocol's number
    if any(read in ipaddress.ip_network(network) for network in networks):
        return True
    if read.version == 6:  # noqa: PLR2004
        for network, place in _CARRIERS:
            if read in ipaddress.ip_network(network):
                return is_private(str(ipaddress.IPv4Address((int(read) >> place) & 0xFFFFFFFF)))
    return False


def _is_numeric(host: str) -> bool:
    """Whether resolvers would take it for an address: 10.1, 0x7f.1 and 2130706433 are."""
    return bool(_NUMERIC.fullmatch(host.rpartition(".")[2]))


def _is_name(host: str) -> bool:
    return len(host) <= LONGEST_HOST and all(map(_LABEL.fullmatch, host.split(".")))


def _in_ascii(path: str) -> str:
    """The same, with a % before every byte of what is not ASCII."""
    pieces = (letter if letter.isascii() else "".join(f"%{byte:02X}" for byte in letter.encode()) for letter in path)
    return "".join(pieces)


def _refused(text: str, why: str, right: str) -> UrlViolation:
    return UrlViolation(f"{text[:200]!r} {why}. Right: {right}.")
