"""Many runs, at once and after each other."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults.engine import SecondEngine
from faults.names import HOURS, LONG, SOAK

from provider import Provider
from provider.daemon import give_memory_back

pytestmark = [pytest.mark.docker, pytest.mark.timeout(HOURS if LONG or SOAK > 60 else 120)]

AT_ONCE = 200 if LONG else 40
CALLERS = 4
WARM_UP = 16 if SOAK <= 60 else 200
RSS_GROWTH = 8 * 2**20
FEW = 12
"""Connections and threads that are made when first needed, and kept. One for every run would be five times as many."""

Made = Callable[..., tuple[Provider, Any]]


async def test_many_at_once_do_not_mix(engine: SecondEngine, provider_on: Made, say: Callable[[str], None]):
    """Runs side by side over one workspace each get their own container, input, output and ending."""
    provider, _ = provider_on()
    began = time.monotonic()
    outcomes = await asyncio.gather(
        *(provider.run(f"cat; echo {at} >&2; exit {at % 100}", stdin=str(at).encode() * 1000) for at in range(AT_ONCE))
    )
    seconds = time.monotonic() - began
    await provider.close()
    assert [outcome.exit_code for outcome in outcomes] == [at % 100 for at in range(AT_ONCE)]
    assert [outcome.stdout for outcome in outcomes] == [str(at).encode() * 1000 for at in range(AT_ONCE)]
    assert [outcome.stderr for outcome in outcomes] == [f"{at}\n".encode() for at in range(AT_ONCE)]
    assert len({outcome.container.id for outcome in outcomes}) == AT_ONCE
    if LONG:
        say(f"{AT_ONCE} runs at once in {seconds:.1f} s")


def held(engine: SecondEngine) -> dict[str, int]:
    """What this process, and the engine for it, hold."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "rss": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024,
        "containers": len(engine.containers()),
        "mounts": len(engine.mounts()),
        "processes": len(engine.processes()),
    }


async def test_soak(engine: SecondEngine, provider_on: Made, say: Callable[[str], None]):
    """Run after run, nothing grows: descriptors, threads, memory, containers, mounts, processes."""
    give_memory_back()  # for the rest of this process, as the daemon does
    provider, _ = provider_on(spares=2, spares_idle=0.5)
    commands = ["echo hi", "head -c 2000000 /dev/zero", "false", "sleep 0.05 & exit 3", "cat", "echo $RANDOM > f"]

    async def work(runs: range) -> None:
        for at in runs:
            text = commands[at % len(commands)]
            options = {"reuse": "scrub", "session": "s"} if at % 3 == 0 else {}
            await provider.run(text, stdin=b"x" * 100_000 if text == "cat" else None, artifacts=["f"], **options)

    async def runs(count: int) -> dict[str, int]:
        await asyncio.gather(*(work(range(caller, count, CALLERS)) for caller in range(CALLERS)))
        await provider.stop(session="s")
        await provider.settle()
        await asyncio.to_thread(engine.left_after, 10)  # spares that nobody comes for go by themselves
        return await asyncio.to_thread(held, engine)

    before = await runs(WARM_UP)
    began = time.monotonic()
    after = await runs(SOAK)
    seconds = time.monotonic() - began
    await provider.close()
    assert {name: after[name] for name in ("containers", "mounts", "processes")} == dict.fromkeys(
        ("containers", "mounts", "processes"), 0
    )
    assert after["descriptors"] <= before["descriptors"] + FEW
    assert after["threads"] <= before["threads"] + FEW
    assert after["rss"] <= before["rss"] + RSS_GROWTH
    if SOAK > 60:
        say(f"{SOAK} runs in {seconds:.0f} s; before {before}, after {after}")
