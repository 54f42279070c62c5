"""
Output while it comes: 300 MB in one go, and 10,000 small writes, each from the first byte to the last.

Against reading the engine's attach stream as fast as a socket gives it, with no sense made of it, and against the
docker client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.measure import Bench, Contender, Peer, Timing, a_provider, heard, in_turns, peers, ready
from provider import Limits

WRITES = 10_000
SMALL = ("sh", "-c", f"i=0; while [ $i -lt {WRITES} ]; do echo 0123456; i=$((i+1)); done")


async def measure(bench: Bench) -> None:
    def throughput(timing: Timing) -> float:
        return timing.size / 1e6 / (timing.last - timing.first)

    def milliseconds(timing: Timing) -> float:
        return (timing.last - timing.first) * 1000

    size = bench.times(300, 60) * 1_000_000
    flood = ("head", "-c", str(size), "/dev/zero")
    await _streamed(bench, f"stream of {size // 1_000_000} MB", flood, size, "MB/s", throughput, bench.times(4, 1))
    await _streamed(bench, "10,000 small writes", SMALL, WRITES * 8, "ms", milliseconds, bench.times(10, 2))


async def _streamed(
    bench: Bench,
    name: str,
    argv: Sequence[str],
    size: int,
    unit: str,
    value: Callable[[Timing], float],
    rounds: int,
) -> None:
    async with a_provider(bench, limits=Limits(cpus=2)) as provider, peers(bench, "attach", "run_bare") as others:

        async def ours() -> float:
            timing = await heard(provider, argv)
            assert timing.size == size
            await ready(provider)
            return value(timing)

        def theirs(peer: Peer) -> Contender:
            async def request() -> float:
                timing = await peer.one(argv)
                assert timing.size >= size  # the attach stream has headers between
                return value(timing)

            return request

        contenders: dict[str, Contender] = {"ours": ours, **{key: theirs(peer) for key, peer in others.items()}}
        samples = await in_turns(rounds, contenders)
    for key, peer in others.items():
        bench.report.row(name, peer.title, unit, samples["ours"], samples[key], peer.reason)
