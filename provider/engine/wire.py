"""
The bytes between the provider and pid 1: `images/init/PROTOCOL.md` in Python. Pure; no I/O.

Two framings lie on top of each other. The engine multiplexes the container's stdout and stderr (8-byte header,
pieces of at most 32 KiB); inside its stdout are the frames of pid 1. Both decoders take bytes as they come, in
any division. Everything is bounded, and anything out of form is a WireError: the far side is our own program,
so a malformed frame means that it is not our program any more.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from provider.errors import SandboxLost
from provider.model import Begun, Chunk, Ending, EndReason, ExecPlan, Leased, Message, Process, Usage

MAX_PAYLOAD = 65_536
MAX_SPEC = 4 * 2**20
STDIN_WINDOW = 262_144
"""Bytes of stdin that may be sent before pid 1 grants more."""
LINGER_MS = 50
"""What a process left behind has to end by itself: enough for `tee >(cat)` to finish, too little to be noticed."""
MAX_DIAGNOSIS = 4096

_HEADER = struct.Struct(">BI")
_ENGINE_HEADER = struct.Struct(">BxxxI")
SEAL = 16
_FROM_INIT = frozenset(b"HBOEcLPRZ")


class Offer(NamedTuple):
    """How many processors a command gets, and of which places among pid 1's, in order of preference."""

    wanted: int
    places: tuple[int, ...]


class WireError(SandboxLost):
    """Bytes that are not of the protocol."""


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return _HEADER.pack(kind[0], len(payload)) + payload


def command(plan: ExecPlan, *, stdin: bool, credit: int, processors: Offer | None = None, seal: bytes = b"") -> bytes:
    """Encode a whole command: the spec in pieces, then the word to run it. Without `processors`, it may use all."""
    records = [_record(b"a", os.fsencode(argument)) for argument in plan.argv]
    records += [_record(b"e", os.fsencode(f"{name}={value}")) for name, value in plan.env]
    records.append(_record(b"d", os.fsencode(plan.cwd)))
    records.append(_record(b"g", struct.pack(">I", round(plan.grace * 1000))))
    records.append(_record(b"l", struct.pack(">I", LINGER_MS)))
    records.append(_record(b"c", struct.pack(">I", credit)))
    if plan.timeout is not None:
        records.append(_record(b"t", struct.pack(">Q", max(1, round(plan.timeout * 1000)))))
    if stdin:
        records.append(_record(b"i", b""))
    if plan.tty is not None:
        records.append(_record(b"p", struct.pack(">HH", *plan.tty)))
    if plan.lease is not None:
        records.append(_record(b"k", struct.pack(">Q", max(1, round(plan.lease * 1000)))))
    if plan.reuse == "scrub":
        records.append(_record(b"r", b""))
    if plan.watch_writes:
        records.append(_record(b"w", b""))
    if processors:
        numbers = (processors.wanted, *processors.places)
        records.append(_record(b"n", struct.pack(f">{len(numbers)}H", *numbers)))
    if seal:
        records.append(_record(b"s", seal))
    spec = b"".join(records)
    pieces = [frame(b"S", spec[at : at + MAX_PAYLOAD]) for at in range(0, len(spec), MAX_PAYLOAD)]
    return b"".join(pieces) + frame(b"X")


def _record(tag: bytes, value: bytes) -> bytes:
    return _HEADER.pack(tag[0], len(value)) + value


class Reassembler:
    """Turns any division of the engine's stream into the frames of pid 1."""

    def __init__(self) -> None:
        self._engine_header = bytearray()
        self._engine_stream = 0
        self._engine_left = 0
        self._header = bytearray()
        self._payload = bytearray()
        self._filled = 0
        self._in_payload = False
        self.diagnosis = b""
        """What pid 1 wrote to its stderr before it gave up."""

    def feed(self, data: memoryview) -> Iterator[tuple[int, bytes]]:
        """
        Yield (type, payload) for each frame that is complete.

        Raises:
            WireError: the bytes are not of the protocol.
        """
        while data:
            if self._engine_left == 0:
                data = self._read_engine_header(data)
                continue
            piece, data = data[: self._engine_left], data[self._engine_left :]
            self._engine_left -= len(piece)
            if self._engine_stream == 1:
                yield from self._frames(piece)
            else:
                self.diagnosis = (self.diagnosis + bytes(piece))[:MAX_DIAGNOSIS]

    def _read_engine_header(self, data: memoryview) -> memoryview:
        missing = _ENGINE_HEADER.size - len(self._engine_header)
        self._engine_header += data[:missing]
        if len(self._engine_header) == _ENGINE_HEADER.size:
            self._engine_stream, self._engine_left = _ENGINE_HEADER.unpack(self._engine_header)
            self._engine_header.clear()
            if self._engine_stream not in {1, 2}:
                message = f"the engine named stream {self._engine_stream}; there are only 1 and 2"
                raise WireError(message)
        return data[missing:]

    def _frames(self, data: memoryview) -> Iterator[tuple[int, bytes]]:
        while data or (self._in_payload and self._filled == len(self._payload)):
            if self._in_payload:
                size = min(len(data), len(self._payload) - self._filled)
                self._payload[self._filled : self._filled + size] = data[:size]
                self._filled += size
                data = data[size:]
                if self._filled == len(self._payload):
                    self._in_payload = False
                    yield self._header[0], bytes(self._payload)
                    self._header.clear()
                continue
            missing = _HEADER.size - len(self._header)
            self._header += data[:missing]
            data = data[missing:]
            if len(self._header) == _HEADER.size:
                kind, size = _HEADER.unpack(self._header)
                if kind not in _FROM_INIT or size > MAX_PAYLOAD:
                    message = f"frame of type {kind} with {size} bytes; pid 1 sends none such"
                    raise WireError(message)
                self._payload, self._filled, self._in_payload = bytearray(size), 0, True


def lines(payload: bytes) -> dict[str, str]:
    """Read the `name=value` lines of a hello or an ending."""
    try:
        pairs = [line.split("=", 1) for line in payload.decode("ascii").splitlines()]
        return {name: value for name, value in pairs}  # noqa: C416 - unpacking checks that each has both
    except ValueError as error:
        message = f"not lines of name=value: {payload[:80]!r}"
        raise WireError(message) from error


def message(kind: int, payload: bytes, seal: bytes = b"") -> Message | None:
    """
    Give a frame its meaning; None for those that are not about the command (hello, stdin credit, answers).

    Raises:
        WireError: it is not of its form, or is an ending without the command's seal.
    """
    match chr(kind):
        case "O":
            return Chunk("stdout", payload)
        case "E":
            return Chunk("stderr", payload)
        case "B":
            processors(payload)  # of their form, whoever reads them
            return Begun(u32(payload[:4]))
        case "L":
            return Leased(_ending(payload, seal))
        case "Z":
            return _ending(payload, seal)
        case _:
            return None


def processors(payload: bytes) -> tuple[int, ...]:
    """Read from the word that a command has begun which places it has."""
    try:
        return struct.unpack(f">{(len(payload) - 4) // 2}H", payload[4:])
    except struct.error as error:
        text = f"{len(payload)} bytes are no pid and places"
        raise WireError(text) from error


def processes(payload: bytes) -> tuple[Process, ...]:
    """Read pid 1's list of processes."""
    try:
        return tuple(Process(int(pid), command) for pid, command in lines(payload).items() if pid != "more")
    except ValueError as error:
        text = f"not a list of processes: {payload[:80]!r}"
        raise WireError(text) from error


def u32(payload: bytes) -> int:
    if len(payload) != 4:  # noqa: PLR2004
        text = f"{len(payload)} bytes where a u32 should be"
        raise WireError(text)
    return int.from_bytes(payload, "big")


_REASONS: dict[str, EndReason] = {
    "exited": "exited",
    "timed_out": "timed_out",
    "canceled": "canceled",
    "output_limit": "output_limit",
    "workspace_quota": "workspace_quota",
}


def check_seal(said: dict[str, str], seal: bytes) -> None:
    """Raises WireError for the word of somebody who does not know the seal."""
    if said.pop("seal", "") != seal.hex():
        text = "an ending that pid 1 did not seal"
        raise WireError(text)


def _ending(payload: bytes, seal: bytes) -> Ending:
    said = lines(payload)
    check_seal(said, seal)
    try:
        number = {name: int(value) for name, value in said.items() if name not in {"reason", "stage", "background"}}
        error = _spawn_error(number["errno"], said["stage"]) if "errno" in number else None
        result = Ending(
            reason=_REASONS[said["reason"]],
            exit_code=number.get("exit"),
            signal=number.get("signal"),
            error=error,
            error_number=number.get("errno"),
            pid=None if error else number["pid"] or None,
            background_pids=tuple(int(pid) for pid in said["background"].split(",") if pid),
            oom_kills=number["oom"],
            denied_writes=number.get("denied_writes"),
            denied_network=number.get("denied_network"),
            refused_datagrams=number.get("refused_datagrams"),
            usage=Usage(
                cpu_user_seconds=number["user_us"] / 1e6,
                cpu_system_seconds=number["system_us"] / 1e6,
                max_rss_bytes=number["max_rss_kb"] * 1024,
                memory_peak_bytes=number.get("peak"),
            ),
        )
    except (KeyError, ValueError, OverflowError) as problem:
        text = f"an ending that is none: {payload[:200]!r}"
        raise WireError(text) from problem
    if sum(part is not None for part in (result.exit_code, result.signal, result.error)) != 1:
        text = f"an ending needs exactly one of exit, signal and errno: {payload[:200]!r}"
        raise WireError(text)
    return result


def _spawn_error(number: int, stage: str) -> str:
    what = {"cwd": "working directory", "exec": "program", "pty": "terminal", "fork": "process"}[stage]
    return f"{what}: {os.strerror(number)}"
