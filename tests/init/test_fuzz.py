"""Whatever pid 1 is told: it ends when its stdin does, and no sanitizer has anything to say."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from provider.engine import wire
from provider.model import ExecPlan

PLENTY = 16 * 2**20
CASES = 400
AT_ONCE = 4
LEAVES = ("/bin/sh", "-c", "exec 3<&0; for i in 1 2 3; do (cat <&3; sleep 0.02) & done; echo left")
TYPES = b"SXCIKWTQ"


def conversation(chance: random.Random) -> list[tuple[bytes, bytes]]:
    """The frames of a valid one, with a harmless command."""
    argv = chance.choice(
        [("/bin/true",), ("/bin/echo", "x" * 3000), ("/bin/cat",), ("/bin/cat",), ("/bin/sleep", "1"), LEAVES]
    )
    plan = ExecPlan(
        argv=argv,
        env=(("PATH", "/bin"),) * chance.randrange(3),
        cwd=chance.choice(["/", "/", "/", "/missing"]),
        timeout=chance.choice([None, None, 0.001, 0.02]),
        grace=chance.choice([0, 0.001, 0.01]),
        tty=chance.choice([None, None, (24, 80), (0, 0)]),
        artifacts=(),
        watch_writes=chance.random() < 0.3,
        **chance.choice([{}, {"lease": chance.choice([0.001, 0.02, 30])}, {"reuse": "scrub"}]),
    )
    command = wire.command(plan, stdin=chance.random() < 0.7, credit=chance.choice([0, 1, 100, PLENTY]))
    frames = [(b"S", command[5:-5]), (b"X", b"")]
    for _ in range(chance.randrange(10)):
        kind = chance.choice("CIKWTQ")
        payloads = {
            "C": struct.pack(">I", chance.choice([0, 1, 1000, 2**32 - 1])),
            "I": bytes(chance.choice([0, 1, 5000, 65_536])),
            "K": bytes([chance.choice([0, 1, 2, 9, 15, 18, 19, 28, 64])])
            + chance.choice([b"", struct.pack(">I", chance.choice([0, 1, 2, 3, 99, 2**31, 2**32 - 1]))]),
            "W": struct.pack(">HH", chance.randrange(65_536), chance.randrange(65_536)),
            "T": chance.choice([b"c", b"o", b"t"]),
            "Q": b"",
        }
        frames.append((kind.encode(), payloads[kind]))
    return frames


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The same with a few bytes changed, dropped, doubled or put in."""
    changed = bytearray(data)
    at = chance.randrange(len(changed) + 1)
    match chance.randrange(4):
        case 0:
            changed[at : at + 1] = chance.randbytes(1)
        case 1:
            del changed[at : at + chance.choice([1, 4, 100])]
        case 2:
            changed[at:at] = changed[at : at + chance.choice([1, 5, 50])]
        case _:
            changed[at:at] = chance.randbytes(chance.choice([1, 4, 30]))
    return bytes(changed)


def pieces(seed: int) -> list[bytes]:
    """What one case sends: something almost right, frames of chance, or nothing of the kind."""
    chance = random.Random(seed)
    frames = conversation(chance)
    at = chance.randrange(len(frames))
    match chance.randrange(12):
        case 0:
            return [chance.randbytes(chance.randrange(200))]
        case 1:
            return [
                wire.frame(bytes([chance.choice(TYPES)]), chance.randbytes(chance.choice([0, 1, 4, 5, 60])))
                for _ in range(chance.randrange(1, 12))
            ]
        case 2 | 3 | 4:  # a frame that is well-formed around a payload that is not
            frames[at] = (frames[at][0], mutated(chance, frames[at][1])[:65_536])
        case 5:
            frames[0] = (b"S", mutated(chance, frames[0][1]))
        case 6 | 7:
            frames.insert(at, frames[chance.randrange(len(frames))])
        case 8:
            chance.shuffle(frames[2:])
            del frames[at]
        case 9:
            return [mutated(chance, b"".join(wire.frame(*frame) for frame in frames))]
        case _:  # in good form, but cut anywhere
            data = b"".join(wire.frame(*frame) for frame in frames)
            return [data[:at], data[at:-at] if at else data]
    return [wire.frame(*frame) for frame in frames]


async def survives(init: Any, seed: int) -> None:
    assert init.process.stdin
    assert init.process.stdout
    listening = asyncio.ensure_future(init.process.stdout.read()) if seed % 4 else None  # some are not listened to
    for piece in pieces(seed):
        if not init.process.stdin.is_closing():
            init.process.stdin.write(piece)
        await asyncio.sleep(0.004 * (seed % 3))  # so that it is seen in more than one state
    await ends(init, seed, listening)


async def ends(init: Any, seed: int, listening: Awaitable[bytes] | None = None) -> None:
    try:
        status, complaint = await init.leave(listening)
    except TimeoutError:
        init.process.kill()
        pytest.fail(f"case {seed}: it does not end")
    assert status in {0, 2}, f"case {seed}: status {status}, {complaint.decode(errors='replace')}"


async def all_of(cases: int, one: Callable[[int], Awaitable[None]]) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(seed: int) -> None:
        async with turns:
            await one(seed)

    async with asyncio.TaskGroup() as group:
        for seed in range(cases):
            group.create_task(in_turn(seed))


async def test_no_conversation_breaks_it(start, as_pid_1: list[str]):
    """Whatever it is told, it ends when its stdin does, with 0 or 2, and no sanitizer has anything to say."""

    async def one(seed: int) -> None:
        await survives(await start(as_pid_1), seed)

    await all_of(CASES, one)


async def test_no_conversation_breaks_it_between_commands(start, boxed, shared: Path):
    """Nor does it after a scrub, where what is told late is for a command that is over."""

    async def one(seed: int) -> None:
        chance = random.Random(seed)
        init = await start(boxed(shared))
        try:
            while chance.random() < 0.8:
                await init.ran(
                    chance.choice(["true", "cat", "seq 1000 > /tmp/x; mkdir -p /run/a/b; cat", "yes | head -c 99999"]),
                    stdin=True,
                    timeout=0.02,
                    grace=0.001,
                    tty=chance.choice([None, None, (24, 80)]),
                    watch_writes=chance.random() < 0.3,
                )
                for kind, payload in conversation(chance)[2:]:
                    init.send(kind, payload)
                report = await init.answer(b"R")
                assert report["clean"] == "1", f"case {seed}: {report}"
            for piece in pieces(seed):
                init.process.stdin.write(piece)
        finally:
            await ends(init, seed)

    await all_of(CASES // 8, one)
