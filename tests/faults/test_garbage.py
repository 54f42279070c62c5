"""
An engine that answers anything at all: one of our errors or an outcome, in bounded time, in bounded memory.

It needs no Docker: the engine is `garbage.py`, sound but for the answer that is damaged.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from faults.garbage import FLOOD, STALL, STEPS, STREAMED, Damage, answer, garbage, good, multiplexed
from faults.names import HOURS, LONG
from hypothesis import strategies as st

import provider.engine.docker as docker_engine
import provider.stream as stream_module
from provider import Outcome, Provider, ProviderError, SandboxError, Settings
from provider.assets import Assets
from provider.engine import wire
from provider.engine.ask import MAX_ANSWER
from provider.engine.attach import WINDOW

pytestmark = [
    pytest.mark.usefixtures("installed", "hurried"),
    pytest.mark.timeout(HOURS if LONG else 120),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket:ResourceWarning"),  # the SDK's, when an answer is none
    pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning"),
]

ANSWER_SECONDS = 0.2
SECONDS = 20.0
"""In which a run, and the closing after it, are over. Alone they take one or two; here many go on at once."""
AT_ONCE = 16

BEFORE: Mapping[str, Mapping[str, Damage]] = {
    "kill": {"speech": lambda _: [STALL], "wait": lambda _: [answer(500, {"message": "x"})]},
    "remove": {"start": lambda _: []},
}
"""What else has to go wrong for a step to be reached."""


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are patience with sound engines, and this is none."""
    for name in ("_PATIENT_SECONDS", "_REMOVE_SECONDS", "_WAIT_SECONDS", "_DOUBT_SECONDS"):
        monkeypatch.setattr(docker_engine, name, ANSWER_SECONDS)
    monkeypatch.setattr(stream_module, "SECOND_LINE_SECONDS", ANSWER_SECONDS)


@dataclass
class Ended:
    """How a run over such an engine ended."""

    result: Outcome | Exception
    closing: Exception | None
    seconds: float
    reached: bool
    sent: int

    @property
    def is_typed(self) -> bool:
        return isinstance(self.result, (Outcome, SandboxError)) and isinstance(self.closing, ProviderError | None)


async def ran(step: str, damage: Damage, assets: Assets, workspace: Path, **options: Any) -> Ended:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    began = time.monotonic()
    async with garbage({**BEFORE.get(step, {}), step: damage}) as engine:
        docker = docker_engine.DockerEngine(engine.endpoint, assets, timeout=ANSWER_SECONDS)
        provider = Provider(workspace, image="x", settings=Settings(spares=0, grace=0.05), engine=docker)
        result, closing = await tried(provider.run("x", timeout=0.5, **options)), await tried(provider.close())
        seconds = time.monotonic() - began
    assert complaints == [], (step, complaints)
    return Ended(result, closing, seconds, step in engine.reached, engine.sent)


async def tried(work: Any) -> Any:
    try:
        async with asyncio.timeout(2 * SECONDS):
            return await work
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
        return error


async def all_of(cases: Iterable[tuple[str, Damage]], assets: Assets, workspace: Path) -> list[tuple[Any, Ended]]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(step: str, damage: Damage) -> Ended:
        async with slots:
            return await ran(step, damage, assets, workspace)

    wanted = list(cases)
    return list(zip(wanted, await asyncio.gather(*(one(*case) for case in wanted)), strict=True))


def headed(*headers: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"Content-Type: application/json", *headers, b"", body])


def resized(said: bytes, size: bytes) -> bytes:
    return re.sub(rb"Content-Length: \d+", b"Content-Length: " + size, said)


STATUSES = (200, 201, 204, 304, 404, 409, 500) if LONG else (200, 404, 500)
VALUES = (
    "{}",
    "[]",
    "null",
    '[{"Id": 1}]',
    *(('"x"', "1e999", '{"message": null}', '{"message": []}') if LONG else ()),
)
CHUNKED = b"Transfer-Encoding: chunked"
DAMAGES: dict[str, Damage] = {
    "hangs up": lambda _: [],
    "says nothing": lambda _: [STALL],
    "half a head": lambda said: [said[:20], STALL],
    "half an answer": lambda said: [said[: len(said) // 2]],
    "half an answer, then nothing": lambda said: [said[: len(said) // 2], STALL],
    "twice": lambda said: [said, said],
    "500, empty": lambda _: [answer(500, raw=b"")],
    "500, no text": lambda _: [answer(500, raw=b"\xff\xfe\x00")],
    **{
        f"{status} {shape}": (lambda _, s=status, v=shape: [answer(s, raw=v.encode())])
        for status in STATUSES
        for shape in VALUES
    },
    "deep": lambda _: [answer(200, raw=b"[" * 200_000)],
    "too short a length": lambda said: [resized(said, b"3")],
    "too long a length": lambda said: [resized(said, b"99999"), STALL],
    "negative length": lambda said: [resized(said, b"-3")],
    "no number of a length": lambda said: [resized(said, b"zz")],
    "length beyond measure": lambda said: [resized(said, b"9" * 40)],
    "chunks without a size": lambda _: [headed(CHUNKED, body=b"zz\r\n{}")],
    "chunks cut short": lambda _: [headed(CHUNKED, body=b"5\r\n{}")],
    "chunks of a negative size": lambda _: [headed(CHUNKED, body=b"-5\r\n{}\r\n0\r\n\r\n")],
    "not compressed": lambda _: [headed(b"Content-Encoding: gzip", b"Content-Length: 4", body=b"nope")],
    "another protocol": lambda _: [b"SSH-2.0-OpenSSH_9.2\r\n"],
    "no status": lambda _: [b"HTTP/1.1\r\n\r\n"],
    "elsewhere": lambda _: [b"HTTP/1.1 302 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"],
    "interim for ever": lambda _: [b"HTTP/1.1 100 Continue\r\n\r\n" * 200],
}
FLOODS: dict[str, Damage] = {
    "a long body": lambda _: [
        headed(b"Content-Length: 99999999999", body=b"[" + b"1," * 32_000),
        b"1," * 32_000,
        FLOOD,
    ],
    "chunks for ever": lambda _: [headed(CHUNKED), b"10000\r\n" + b"x" * 65_536 + b"\r\n", FLOOD],
    "a body until it hangs up": lambda _: [headed(), b"x" * 65_536, FLOOD],
    "a line of a head": lambda _: [b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65_536, FLOOD],
    "lines of a head": lambda _: [b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10_000, FLOOD],
}
SHAPES = ("Config", "HostConfig", "Mounts", "NetworkSettings", "State", "Id", "Image", "Labels", "Warnings")


@pytest.mark.parametrize("step", STEPS)
async def test_every_damage_at_every_step(step: str, assets: Assets, workspace: Path):
    """Cut, stalled, of the wrong length, shape, status or protocol: it is an error of ours, or it does no harm."""
    found = await all_of([(step, damage) for damage in DAMAGES.values()], assets, workspace)
    for name, (_, ended) in zip(DAMAGES, found, strict=True):
        assert ended.is_typed, (name, ended)
        assert ended.seconds < SECONDS, (name, ended)
    assert sum(ended.reached for _, ended in found) > len(found) // 2


@pytest.mark.parametrize("step", ["image", "create", "inspect", "wait"])
async def test_every_member_of_another_kind(step: str, assets: Assets, workspace: Path):
    """A list where a text belongs, and its like, is an error of ours, or it does no harm."""
    wrong = [(name, value) for name in SHAPES for value in ([], {"x": []}, 1)]
    cases = [(step, lambda said, name=name, value=value: [with_part(said, name, value)]) for name, value in wrong]
    for told, (_, ended) in zip(wrong, await all_of(cases, assets, workspace), strict=True):
        assert ended.is_typed, (told, ended)
        assert ended.reached


@pytest.mark.parametrize("step", [step for step in STEPS if step not in STREAMED])
async def test_no_answer_fills_the_memory(step: str, assets: Assets, workspace: Path):
    """Of an answer without an end, no more is taken than a real one could have, at each of a few tries."""
    found = await all_of([(step, damage) for damage in FLOODS.values()], assets, workspace)
    for name, (_, ended) in zip(FLOODS, found, strict=True):
        assert ended.is_typed, (name, ended)
        assert ended.seconds < SECONDS, (name, ended)
        assert ended.sent < 12 * MAX_ANSWER, (name, ended)


@pytest.mark.parametrize("stream", [b"O", b"E"])
async def test_a_flood_without_credit_fills_no_memory(stream: bytes, assets: Assets, workspace: Path):
    """Pid 1 that sends more than it was granted, at a listener that takes nothing, is cut off at the window."""
    flood = multiplexed(wire.frame(stream, bytes(60_000)))
    begins = multiplexed(wire.frame(b"B", b"\0\0\0\7"))

    async def stuck(_: bytes) -> None:
        await asyncio.Event().wait()

    ended = await ran("speech", lambda _: [begins, flood, FLOOD], assets, workspace, on_stdout=stuck, on_stderr=stuck)
    assert ended.is_typed, ended
    assert ended.reached
    assert ended.sent < 4 * WINDOW  # with what the two sockets hold


@pytest.mark.parametrize("ends", ["stalls", "hangs up"])
async def test_at_every_byte(ends: str, assets: Assets, workspace: Path, say: Callable[[str], None]):
    """An answer that stops at any byte, for ever or for good, is an error of ours, or was long enough."""
    places = [(step, at) for step in STEPS for at in range(len(good(step)))]
    chosen = places if LONG else random.Random(7).sample(places, 60)
    tail = [STALL] if ends == "stalls" else []
    found = await all_of([(step, lambda said, at=at: [said[:at], *tail]) for step, at in chosen], assets, workspace)
    for place, (_, ended) in zip(chosen, found, strict=True):
        assert ended.is_typed, (place, ended)
        assert ended.seconds < SECONDS, (place, ended)
    if LONG:
        say(f"{len(chosen)} answers that stop, one at each byte")


# At random.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(SHAPES) | st.text(max_size=5), inner),
    max_leaves=12,
)


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, str, Damage]:
    """A step, what is done to its answer in words, and the doing."""
    step = draw(st.sampled_from(STEPS))
    tail = draw(st.sampled_from([[], [STALL]]))
    match draw(st.sampled_from(["bytes", "cut", "changed", "value", "part", "status"])):
        case "bytes":
            data = draw(st.binary(max_size=200))
            return step, f"{data!r} {tail}", lambda _: [data, *tail]
        case "cut":
            at = draw(st.integers(0, 400))
            return step, f"cut at {at} {tail}", lambda said: [said[:at], *tail]
        case "changed":
            at, to = draw(st.integers(0, 400)), draw(st.binary(min_size=1, max_size=4))
            return step, f"{to!r} at {at} {tail}", lambda said: [said[:at] + to + said[at + len(to) :], *tail]
        case "value":
            value = draw(json_values)
            return step, f"{value!r}", lambda _: [answer(200, value)]
        case "part":
            name, value = draw(st.sampled_from(SHAPES)), draw(json_values)
            return step, f"{name} is {value!r}", lambda said: [with_part(said, name, value)]
        case _:
            status, value = draw(st.integers(100, 599)), draw(json_values)
            return step, f"{status} {value!r}", lambda _: [answer(status, value)]


def with_part(said: bytes, name: str, value: Any) -> bytes:
    """The same answer, but for one member of its JSON."""
    try:
        whole = json.loads(said.partition(b"\r\n\r\n")[2])
    except ValueError:
        return said
    return answer(200, {**whole, name: value}) if isinstance(whole, dict) else said


@hypothesis.seed(7)
@hypothesis.settings(
    max_examples=400 if LONG else 4,
    suppress_health_check=list(hypothesis.HealthCheck),
    print_blob=False,
)
@hypothesis.given(st.lists(damages(), min_size=AT_ONCE, max_size=AT_ONCE))
def test_anything_at_all(assets: Assets, workspace: Path, cases: list[tuple[str, str, Damage]]):
    """Bytes, values and members that nobody thought of."""
    found = asyncio.run(all_of([(step, damage) for step, _, damage in cases], assets, workspace))
    for (step, words, _), (_, ended) in zip(cases, found, strict=True):
        assert ended.is_typed, (step, words, ended)
        assert ended.seconds < SECONDS, (step, words, ended)
