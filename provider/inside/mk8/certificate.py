"""
What an X.509 certificate says of itself, read from its DER bytes. The standard library tells it only of certificates
that it trusts, and NetTlsCert is mostly asked about the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_INTEGER, _OCTETS, _OID, _SEQUENCE = 0x02, 0x04, 0x06, 0x30
_UTC_TIME, _GENERAL_TIME = 0x17, 0x18
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
_LONG: Final = 0x80
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_ENCODINGS: Final = {0x0C: "utf-8", 0x1E: "utf-16-be", 0x1C: "utf-32-be", 0x14: "latin-1"}
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "1.2.840.113549.1.9.1": "E",
    "0.9.2342.19200300.100.1.25": "DC",
}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class NoCertificate(ValueError):
    """These bytes are none."""


@dataclass(frozen=True, slots=True)
class Certificate:
    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    serial: str
    names: tuple[str, ...]
    """Alternative ones: hosts and addresses."""


def read(data: bytes) -> Certificate:
    """Raises NoCertificate."""
    try:
        return _certificate(data)
    except (IndexError, ValueError, OverflowError) as error:
        message = f"the certificate cannot be read: {error}"
        raise NoCertificate(message) from error


def _certificate(data: bytes) -> Certificate:
    signed = _inner(_inner(data))
    fields = [field for field in _parts(signed) if field[0] != _VERSION]
    serial, _, issuer, validity, subject = (content for _, content in fields[:5])
    begins, ends = (_time(tag, content) for tag, content in _parts(validity))
    extensions = next((content for tag, content in fields if tag == _EXTENSIONS), None)
    names = _alternative_names(_inner(extensions)) if extensions is not None else ()
    return Certificate(_name(subject), _name(issuer), begins, ends, serial.hex().upper(), tuple(names))


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents, one after the other."""
    place = 0
    while place < len(data):
        tag, length, start = data[place], data[place + 1], place + 2
        if length >= _LONG:
            size = length - _LONG
            if not 1 <= size <= 4:  # noqa: PLR2004 - bytes of a length
                message = "a length in it is not right"
                raise ValueError(message)
            length, start = int.from_bytes(data[start : start + size], "big"), start + size
        place = start + length
        if place > len(data):
            message = "it is cut off"
            raise ValueError(message)
        yield tag, data[start:place]


def _inner(data: bytes) -> bytes:
    tag, content = list(_parts(data))[0]  # noqa: RUF015 - an empty list is an IndexError, which is caught
    if tag != _SEQUENCE:
        message = "it is not a sequence"
        raise ValueError(message)
    return content


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text  # RFC 5280
    elif tag != _GENERAL_TIME:
        message = "a time in it is not right"
        raise ValueError(message)
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _name(data: bytes) -> str:
    """As RFC 4514 writes it: the narrowest first."""
    said = []
    for _, group in _parts(data):
        for _, pair in _parts(group):
            (_, kind), (tag, value) = _parts(pair)
            text = value.decode(_ENCODINGS.get(tag, "ascii"), "replace")
            said.append(f"{_NAMES.get(_oid(kind), _oid(kind))}={_CONTROL.sub('�', text)}")
    return ", ".join(reversed(said))


def _oid(data: bytes) -> str:
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < _LONG:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _alternative_names(extensions: bytes) -> Iterator[str]:
    import ipaddress

    for _, extension in _parts(extensions):
        fields = list(_parts(extension))
        if _oid(fields[0][1]) != _ALTERNATIVE_NAMES or fields[-1][0] != _OCTETS:
            continue
        for tag, value in _parts(_inner(fields[-1][1])):
            if tag == _DNS_NAME:
                yield _CONTROL.sub("�", value.decode("ascii", "replace"))
            elif tag == _IP_ADDRESS and len(value) in {4, 16}:
                yield str(ipaddress.ip_address(value))
