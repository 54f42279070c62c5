"""What `provider.engine.wire` promises: the same bytes mean the same, in any division."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provider.engine import wire
from provider.engine.wire import MAX_PAYLOAD, Reassembler, WireError
from provider.model import Begun, Chunk, Ending, ExecPlan, Leased, Process, Usage

# From pid 1, through the engine.


def wrapped(data: bytes, stream: int = 1) -> bytes:
    """One piece of the engine's own framing."""
    return struct.pack(">BxxxI", stream, len(data)) + data


def fed(reassembler: Reassembler, pieces: list[bytes]) -> list[tuple[int, bytes]]:
    return [frame for piece in pieces for frame in reassembler.feed(memoryview(piece))]


def divided(data: bytes, cuts: list[int]) -> list[bytes]:
    """The same bytes in pieces."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


frames = st.lists(st.tuples(st.sampled_from(b"HBOEcZ"), st.binary(max_size=40)))
cuts = st.lists(st.integers(0, 2000), max_size=20)


@given(frames, cuts, cuts, st.lists(st.binary(max_size=10), max_size=5))
def test_any_division_gives_the_same_frames(
    said: list[tuple[int, bytes]], engine_cuts: list[int], socket_cuts: list[int], complaints: list[bytes]
):
    """Neither the engine's pieces nor the socket's show in what is read, and stderr between them does not disturb."""
    inner = b"".join(wire.frame(bytes([kind]), payload) for kind, payload in said)
    pieces = [wrapped(piece) for piece in divided(inner, engine_cuts)]
    for at, complaint in enumerate(complaints):
        pieces.insert(at * 2, wrapped(complaint, stream=2))
    reassembler = Reassembler()
    assert fed(reassembler, divided(b"".join(pieces), socket_cuts)) == said
    assert reassembler.diagnosis == b"".join(complaints)


def test_every_division_in_two_gives_the_same_frames():
    """A cut at any single byte is no different."""
    said = [(ord("H"), b"a=1\n"), (ord("O"), b""), (ord("E"), b"xyz"), (ord("Z"), b"")]
    data = b"".join(wrapped(wire.frame(bytes([kind]), payload)) for kind, payload in said)
    for cut in range(len(data) + 1):
        assert fed(Reassembler(), [data[:cut], data[cut:]]) == said


@given(st.binary(), cuts)
@example(b"\x01\0\0\0\xff\xff\xff\xffO\xff\xff\xff\xff", [])
@example(b"\x00\0\0\0\0\0\0\0", [])
def test_garbage_is_an_error_of_its_own(data: bytes, where: list[int]):
    """Whatever comes, it is a frame, a wait for more, or a WireError."""
    try:
        read = fed(Reassembler(), divided(data, where))
    except WireError:
        return
    assert sum(len(payload) for _, payload in read) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        wrapped(b"X\0\0\0\0"),
        wrapped(b"O\0\1\0\1"),
        wrapped(b"O\xff\xff\xff\xff"),
        wrapped(b"HTTP/1.1 200 OK\r\n\r\n"),
        wrapped(b"", stream=0),
        wrapped(b"", stream=3),
    ],
    ids=["unknown type", "65,537 bytes", "4 GiB", "HTTP", "stdin", "stream 3"],
)
def test_what_pid_1_never_sends_is_an_error(data: bytes):
    """A far side that says anything else is not our program any more."""
    with pytest.raises(WireError):
        fed(Reassembler(), [data])


def test_the_largest_frame_is_read():
    """65,536 bytes are a frame."""
    assert fed(Reassembler(), [wrapped(wire.frame(b"O", bytes(MAX_PAYLOAD)))]) == [(ord("O"), bytes(MAX_PAYLOAD))]


@pytest.mark.parametrize("piece", [wrapped(b"x" * 65_536, stream=2), wrapped(b"O\0\1\0\0" + bytes(65_536))])
def test_memory_is_bounded(piece: bytes):
    """However much comes, no more than a frame and a short diagnosis are kept."""
    reassembler = Reassembler()
    tracemalloc.start()
    try:
        for _ in range(200):
            for _frame in reassembler.feed(memoryview(piece)):
                pass
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_PAYLOAD
    finally:
        tracemalloc.stop()
    assert len(reassembler.diagnosis) <= wire.MAX_DIAGNOSIS


# Meanings.

TOLD = {
    "reason": "exited",
    "pid": "7",
    "exit": "0",
    "background": "",
    "oom": "0",
    "user_us": "1500000",
    "system_us": "250000",
    "max_rss_kb": "2048",
}
USED = Usage(cpu_user_seconds=1.5, cpu_system_seconds=0.25, max_rss_bytes=2048 * 1024, memory_peak_bytes=None)


def said(*without: str, **changed: str) -> bytes:
    parts = {name: value for name, value in {**TOLD, **changed}.items() if name not in without}
    return "".join(f"{name}={value}\n" for name, value in parts.items()).encode()


ENDINGS: list[tuple[bytes, dict[str, Any]]] = [
    (said(), {"reason": "exited", "exit_code": 0}),
    (said(exit="255"), {"reason": "exited", "exit_code": 255}),
    (said("exit", signal="11"), {"reason": "exited", "signal": 11}),
    (said("exit", signal="9", reason="timed_out"), {"reason": "timed_out", "signal": 9}),
    (said(reason="canceled", exit="3"), {"reason": "canceled", "exit_code": 3}),
    (said("exit", signal="15", reason="output_limit"), {"reason": "output_limit", "signal": 15}),
    (said("exit", signal="9", oom="2"), {"reason": "exited", "signal": 9, "oom_kills": 2}),
    (said(denied_writes="3"), {"reason": "exited", "exit_code": 0, "denied_writes": 3}),
    (
        said(denied_network="0", refused_datagrams="4", denied_writes="0"),
        {"reason": "exited", "exit_code": 0, "denied_writes": 0, "denied_network": 0, "refused_datagrams": 4},
    ),
    (said(background="8,9"), {"reason": "exited", "exit_code": 0, "background_pids": (8, 9)}),
]


@pytest.mark.parametrize(("payload", "parts"), ENDINGS)
def test_an_ending_is_read_as_it_was_told(payload: bytes, parts: dict[str, Any]):
    """Exit code or signal, reason, pids left behind and usage are taken over one by one."""
    assert wire.message(ord("Z"), payload) == Ending(pid=7, usage=USED, **parts)


def test_what_pid_1_did_not_count_is_not_none():
    """A pid 1 that says nothing of denials, or could not see them, leaves them unknown."""
    ending = wire.message(ord("Z"), said())
    assert isinstance(ending, Ending)
    assert (ending.denied_writes, ending.denied_network, ending.refused_datagrams) == (None, None, None)


def test_a_memory_peak_is_read_where_the_kernel_tells():
    """The peak of the whole container is kept apart from that of one process."""
    ending = wire.message(ord("Z"), said(peak="4096"))
    assert isinstance(ending, Ending)
    assert ending.usage
    assert ending.usage.memory_peak_bytes == 4096


@pytest.mark.parametrize(
    ("stage", "number", "text"),
    [
        ("exec", errno.ENOENT, "program: No such file or directory"),
        ("exec", errno.EACCES, "program: Permission denied"),
        ("cwd", errno.ENOTDIR, "working directory: Not a directory"),
        ("pty", errno.ENOSPC, "terminal: No space left on device"),
        ("fork", errno.EAGAIN, "process: Resource temporarily unavailable"),
    ],
)
def test_a_command_that_could_not_be_started_says_why(stage: str, number: int, text: str):
    """There is neither exit code, signal nor pid, but a text and the kernel's number."""
    ending = wire.message(ord("Z"), said("exit", errno=str(number), stage=stage))
    assert ending == Ending(reason="exited", error=text, error_number=number, usage=USED)


BROKEN = {
    "empty": b"",
    "no reason": said("reason"),
    "another reason": said(reason="bored"),
    "no ending": said("exit"),
    "two endings": said(signal="9"),
    "errno without stage": said("exit", errno="2"),
    "another stage": said("exit", errno="2", stage="lunch"),
    "errno too large": said("exit", errno=str(10**20), stage="exec"),
    "time too large": said(user_us="9" * 400),
    "number too long": said(user_us="9" * 5000),
    "not a number": said(exit="x"),
    "no number": said(exit=""),
    "not a count": said(denied_writes="some"),
    "not a pid": said(background="8,x"),
    "no usage": said("user_us"),
    "no separator": said() + b"garbage\n",
    "not ASCII": said() + b"x=\xff\n",
}


@pytest.mark.parametrize("payload", BROKEN.values(), ids=BROKEN.keys())
def test_an_ending_that_is_none_is_an_error(payload: bytes):
    """A result is never guessed."""
    with pytest.raises(WireError):
        wire.message(ord("Z"), payload)


lines = st.lists(
    st.tuples(
        st.sampled_from([*TOLD, "errno", "stage", "signal", "peak", "denied_writes"]),
        st.text(st.characters(codec="ascii")),
    )
)


@given(st.binary() | lines.map(lambda pairs: "".join(f"{name}={value}\n" for name, value in pairs).encode()))
def test_any_payload_has_a_meaning_or_is_an_error(payload: bytes):
    """No frame of any type raises anything but a WireError."""
    for read in (*(functools.partial(wire.message, kind) for kind in b"HBOEcLPRZ"), wire.lines, wire.processes):
        try:
            read(payload)
        except WireError:
            continue


@pytest.mark.parametrize(
    ("kind", "payload", "meaning"),
    [
        (b"O", b"out", Chunk("stdout", b"out")),
        (b"E", b"err", Chunk("stderr", b"err")),
        (b"B", b"\0\0\1\0", Begun(256)),
        (b"B", b"\0\0\1\0\0\3", Begun(256)),
        (b"H", b"uid=0\n", None),
        (b"c", b"\0\0\0\1", None),
        (b"P", b"8=sleep 60\n", None),
        (b"R", b"clean=1\n", None),
        (
            b"L",
            said(background="8"),
            Leased(Ending(reason="exited", exit_code=0, pid=7, background_pids=(8,), usage=USED)),
        ),
    ],
)
def test_frames_have_their_meaning(kind: bytes, payload: bytes, meaning: object):
    """Output, the begin and what concerns only the connection are told apart."""
    assert wire.message(kind[0], payload) == meaning


@pytest.mark.parametrize("payload", BROKEN.values(), ids=BROKEN.keys())
def test_a_lease_that_is_none_is_an_error(payload: bytes):
    """The ending that comes with a lease is held to the same form."""
    with pytest.raises(WireError):
        wire.message(ord("L"), payload)


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (b"", ()),
        (b"8=sleep 60\n", (Process(8, "sleep 60"),)),
        (b"8=a=b --c=d\n9=\n", (Process(8, "a=b --c=d"), Process(9, ""))),
        (b"8=x\nmore=120\n", (Process(8, "x"),)),
    ],
)
def test_a_list_of_processes_is_read(payload: bytes, found: tuple[Process, ...]):
    """Pids and what they run, which may hold any sign; a list that was cut short is a list."""
    assert wire.processes(payload) == found


@pytest.mark.parametrize("payload", [b"8\n", b"x=y\n", b"=x\n", b"8=\xff\n", b"8=x\n\n", b"9" * 5000 + b"=x\n"])
def test_a_list_that_is_none_is_an_error(payload: bytes):
    """No process is guessed."""
    with pytest.raises(WireError):
        wire.processes(payload)


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\0\0\0\0\0"])
def test_a_u32_has_four_bytes(payload: bytes):
    """A begin or a credit of another length is an error."""
    with pytest.raises(WireError):
        wire.message(ord("B"), payload)


@pytest.mark.parametrize(
    ("payload", "found"), [(b"\0\0\0\7", ()), (b"\0\0\0\7\0\3", (3,)), (b"\0\0\0\7\0\0\1\0", (0, 256))]
)
def test_the_processors_of_a_command_are_read(payload: bytes, found: tuple[int, ...]):
    """They stand behind the pid, as many as there are."""
    assert wire.processors(payload) == found


@pytest.mark.parametrize("payload", [b"", b"\0\0\0\7\0", b"\0\0\0\7\0\1\2"])
def test_half_a_processor_is_an_error(payload: bytes):
    """What is no pid with whole places behind it is not of the protocol."""
    with pytest.raises(WireError):
        wire.processors(payload)


def test_a_wire_error_is_a_lost_sandbox():
    """Whoever handles the one handles the other."""
    assert wire.WireError.__mro__[1].__name__ == "SandboxLost"


# To pid 1.


def decoded(data: bytes) -> dict[str, list[bytes]]:
    """Read a command as PROTOCOL.md says it is written: `S` pieces, then one empty `X`."""
    spec, at = b"", 0
    while data[at : at + 1] == b"S":
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        assert 0 < size <= 65536
        spec, at = spec + data[at + 5 : at + 5 + size], at + 5 + size
    assert data[at:] == b"X\0\0\0\0"
    records: dict[str, list[bytes]] = {}
    for tag, value in records_of(spec):
        records.setdefault(tag, []).append(value)
    return records


def records_of(spec: bytes) -> Iterator[tuple[str, bytes]]:
    while spec:
        size = int.from_bytes(spec[1:5], "big")
        assert len(spec) >= 5 + size
        yield chr(spec[0]), spec[5 : 5 + size]
        spec = spec[5 + size :]


text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
)
plans = st.builds(
    ExecPlan,
    argv=st.lists(text, min_size=1).map(tuple),
    env=st.dictionaries(text, text).map(lambda env: tuple(sorted(env.items()))),
    cwd=text.map(lambda name: f"/workspace/{name}"),
    timeout=st.none() | st.floats(0.001, 604_800),
    grace=st.floats(0, 60),
    tty=st.none() | st.tuples(st.integers(0, 65535), st.integers(0, 65535)),
    artifacts=st.just(()),
    lease=st.none() | st.floats(0.001, 86_400),
    reuse=st.sampled_from(["never", "scrub"]),
    watch_writes=st.booleans(),
)


places = st.lists(st.integers(0, 8191)).map(tuple)
offers = st.none() | st.builds(wire.Offer, st.integers(1, 8191), places)


@given(plans, st.booleans(), st.integers(0, 2**32 - 1), offers)
def test_a_command_says_exactly_what_was_planned(plan: ExecPlan, stdin: bool, credit: int, offer: wire.Offer | None):
    """Every part of a plan arrives as its own record, byte for byte, and nothing else does."""
    expected = {
        "a": [os.fsencode(argument) for argument in plan.argv],
        "e": [os.fsencode(f"{name}={value}") for name, value in plan.env],
        "d": [os.fsencode(plan.cwd)],
        "g": [round(plan.grace * 1000).to_bytes(4, "big")],
        "l": [(50).to_bytes(4, "big")],
        "c": [credit.to_bytes(4, "big")],
        "t": [] if plan.timeout is None else [round(plan.timeout * 1000).to_bytes(8, "big")],
        "i": [b""] if stdin else [],
        "p": [] if plan.tty is None else [struct.pack(">HH", *plan.tty)],
        "k": [] if plan.lease is None else [round(plan.lease * 1000).to_bytes(8, "big")],
        "r": [b""] if plan.reuse == "scrub" else [],
        "w": [b""] if plan.watch_writes else [],
        "n": [b"".join(number.to_bytes(2, "big") for number in (offer.wanted, *offer.places))] if offer else [],
    }
    found = decoded(wire.command(plan, stdin=stdin, credit=credit, processors=offer))
    assert found == {tag: values for tag, values in expected.items() if values}


def test_a_deadline_never_rounds_to_none():
    """A millisecond at least: 0 would be no deadline at all."""
    plan = ExecPlan(argv=("x",), env=(), cwd="/", timeout=0.0001, grace=0, tty=None, artifacts=())
    assert decoded(wire.command(plan, stdin=False, credit=0))["t"] == [(1).to_bytes(8, "big")]


def test_a_lease_never_rounds_to_none():
    """A millisecond at least: 0 would be no end at all."""
    plan = ExecPlan(argv=("x",), env=(), cwd="/", timeout=None, grace=0, tty=None, artifacts=(), lease=0.0001)
    assert decoded(wire.command(plan, stdin=False, credit=0))["k"] == [(1).to_bytes(8, "big")]


def test_a_long_command_goes_in_pieces():
    """The largest command that a plan allows is within what pid 1 takes."""
    plan = ExecPlan(argv=("x" * 131_071,) * 15, env=(), cwd="/", timeout=None, grace=0, tty=None, artifacts=())
    found = decoded(wire.command(plan, stdin=False, credit=0))
    assert [len(argument) for argument in found["a"]] == [131_071] * 15
    assert sum(len(value) + 5 for values in found.values() for value in values) < wire.MAX_SPEC


@pytest.mark.parametrize("kind", ["Z", "L"])
@pytest.mark.parametrize("told", [None, "", "00" * 16, "AA" * 16, "aa" * 15])
def test_an_ending_without_the_seal_is_somebody_elses(kind: str, told: str | None):
    """Where others can write to pid 1's stdout, only who was given the seal with the command is believed."""
    seal = b"\xaa" * wire.SEAL
    wire.message(ord(kind), said(seal=seal.hex()), seal)
    forged = said() if told is None else said(seal=told)
    with pytest.raises(wire.WireError, match="did not seal"):
        wire.message(ord(kind), forged, seal)
