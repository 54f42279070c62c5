"""ICMP echo over the kernel's unprivileged ping sockets, which number the echo themselves and give back only ours."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Final

SECONDS: Final = 5.0
_IP_RECVTTL: Final = 12
_IPV6_RECVHOPLIMIT, _IPV6_HOPLIMIT = 51, 52
_ECHO, _ECHO_6 = 8, 128


@dataclass(frozen=True, slots=True)
class Reply:
    milliseconds: int
    ttl: int | None


def ping(address: str, number: int, seconds: float) -> Reply | None:
    """Ask once and give the reply; None when there is none in time. Raises OSError."""
    is_six = ":" in address
    family, protocol = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if is_six else (socket.AF_INET, socket.IPPROTO_ICMP)
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as asking:
        asking.settimeout(seconds)
        level, option = (socket.IPPROTO_IPV6, _IPV6_RECVHOPLIMIT) if is_six else (socket.IPPROTO_IP, _IP_RECVTTL)
        asking.setsockopt(level, option, 1)
        began = time.monotonic()
        # The kernel fills in the identifier and the checksum.
        asking.sendto(struct.pack("!BBHHH", _ECHO_6 if is_six else _ECHO, 0, 0, 0, number) + b"mk8.shell", (address, 0))
        try:
            _, ancillary, _, _ = asking.recvmsg(1024, 64)
        except TimeoutError:
            return None
        took = round((time.monotonic() - began) * 1000)
    ttl = next((struct.unpack("i", data[:4])[0] for _, kind, data in ancillary if kind in {2, _IPV6_HOPLIMIT}), None)
    return Reply(took, ttl)
