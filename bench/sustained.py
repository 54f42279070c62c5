"""
Fresh containers a second, at 1, 4 and 16 callers; 100 requests at once; 500 requests over 5 workspaces.

A slice counts from its first request until every container that served is gone and as many spares wait as before: in
that time exactly as many containers were made and removed as requests were answered. The SDK's `containers.run` with
`remove=True` returns when the container is gone.
"""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bench.measure import SPARES, Bench, Contender, Peer, a_provider, ask, in_turns, median, peers, ready
from bench.peers import IMAGE
from provider import Provider
from provider.engine.owner import OWNER_LABEL, this_owner


async def measure(bench: Bench) -> None:
    async with a_provider(bench) as provider, peers(bench, "sdk", "sdk_offline") as others:
        sdk, offline = others["sdk"], others["sdk_offline"]
        for callers in (1, 4, 16):
            total = max(bench.times(20, 8), callers)

            async def ours(callers: int = callers, total: int = total) -> float:
                seconds, _ = await served(provider, callers, total)
                return total / seconds

            async def theirs(peer: Peer, callers: int = callers, total: int = total) -> float:
                seconds, _ = await peer.many(callers, total)
                return total / seconds

            contenders: dict[str, Contender] = {"ours": ours}
            contenders |= {peer.title: functools.partial(theirs, peer) for peer in (sdk, offline) if not peer.reason}
            samples = await in_turns(bench.times(4, 1), contenders, unpaid=0)
            mine, peer = samples["ours"], samples.get(sdk.title, [])
            for other in (sdk, offline):
                times = samples.get(other.title, [])
                bench.report.row(f"fresh containers, callers: {callers}", other.title, "/s", mine, times, other.reason)
            if callers == 4 and peer:
                ratio = median(mine) / median(peer)
                bench.report.check(
                    "fresh containers a second at 4 callers at least 1.6 x docker SDK",
                    held=ratio >= 1.6,
                    figures=f"{median(mine):.1f} / {median(peer):.1f} = {ratio:.2f}",
                )
        await at_once(bench, provider, sdk)
    await soak(bench)


async def served(provider: Provider, callers: int, total: int) -> tuple[float, list[float]]:
    """Seconds until `total` requests are answered and all is as it was before; and the seconds of each answer."""
    await ready(provider, SPARES)
    each: list[float] = []
    left = iter(range(total))

    async def call() -> None:
        for _ in left:
            seconds, _outcome = await ask(provider)
            each.append(seconds)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    await ready(provider, SPARES)
    return time.perf_counter() - began, each


async def at_once(bench: Bench, provider: Provider, sdk: Peer) -> None:
    count = bench.times(100, 20)
    answers: dict[str, list[float]] = {"ours": [], "theirs": []}

    async def ours() -> float:
        seconds, each = await served(provider, count, count)
        answers["ours"] += [value * 1000 for value in each]
        return seconds

    async def theirs() -> float:
        seconds, each = await sdk.many(count, count)
        answers["theirs"] += [value * 1000 for value in each]
        return seconds

    contenders: dict[str, Contender] = {"ours": ours, "theirs": theirs}
    samples = await in_turns(bench.times(2, 1), contenders, unpaid=0)
    name = f"{count} requests at once"
    bench.report.row(f"{name}, all gone", sdk.title, "s", samples["ours"], samples["theirs"], sdk.reason)
    bench.report.row(f"{name}, each answered", sdk.title, "ms", answers["ours"], answers["theirs"], sdk.reason)


async def soak(bench: Bench) -> None:
    """Many requests over several workspaces: every answer its own, and nothing left of any."""
    total, concurrency, places = bench.times(500, 25), bench.times(50, 10), 5
    folders = [bench.workspace / f"soak-{place}" for place in range(places)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "name").write_text(folder.name)
        os.chown(folder, *_owner(bench.workspace))
    await _storm(folders, places, places)  # what a process keeps for good, it has after the first
    before = _own()
    began = time.perf_counter()
    wrong = await _storm(folders, total, concurrency)
    seconds = time.perf_counter() - began
    await asyncio.sleep(0.5)  # threads that were told to end
    after = _own()
    left = await asyncio.to_thread(_left)
    bench.report.row(f"{total} requests at {concurrency}, {places} workspaces", "", "/s", [total / seconds], [])
    bench.report.check(
        f"{total} requests at {concurrency} callers over {places} workspaces: no failure, no cross-talk, nothing left",
        held=not wrong and not left and after[0] <= before[0] and after[1] <= before[1],
        figures=f"{wrong} wrong, {left} containers left, descriptors {before[0]} → {after[0]},"
        f" threads {before[1]} → {after[1]}",
    )


async def _storm(folders: list[Path], total: int, concurrency: int) -> int:
    """How many answers were not what they should be."""
    wrong = 0
    left = iter(range(total))
    async with AsyncExitStack() as stack:
        providers = [await stack.enter_async_context(Provider(folder, image=IMAGE)) for folder in folders]

        async def call() -> None:
            nonlocal wrong
            for number in left:
                place = number % len(folders)
                outcome = await providers[place].run(f"cat name; echo -n ' {number}'")
                wrong += outcome.stdout != f"{folders[place].name} {number}".encode()

        await asyncio.gather(*(call() for _ in range(concurrency)))
    return wrong


def _own() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def _left() -> int:
    """How many containers of this process are on the engine."""
    command = ["docker", "ps", "-aq", f"--filter=label={OWNER_LABEL}={this_owner()}"]
    return len(subprocess.run(command, check=True, capture_output=True).stdout.split())


def _owner(folder: Path) -> tuple[int, int]:
    info = folder.stat()
    return info.st_uid, info.st_gid
