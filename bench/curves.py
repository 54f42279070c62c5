"""Cost as concurrency and output grow. Curves, not points: a bend shows where a queue or a copy begins to matter."""

from __future__ import annotations

from bench.measure import Bench, Contender, Peer, a_provider, ask, in_turns, median, peers, ready
from bench.sustained import served
from provider import Limits, Provider


async def measure(bench: Bench) -> None:
    await concurrency(bench)
    await output(bench)


async def concurrency(bench: Bench) -> None:
    """Milliseconds of machine time a request: all of a slice, until the last container is gone, over its requests."""
    curves: dict[str, list[tuple[float, float]]] = {"sandbox-provider": []}
    async with a_provider(bench) as provider, peers(bench, "sdk") as others:
        sdk = others["sdk"]
        for callers in (1, 4, 16) if bench.quick else (1, 2, 4, 8, 16, 32, 64):
            total = max(callers, bench.times(16, 4))
            mine, _ = await served(provider, callers, total)
            curves["sandbox-provider"].append((callers, mine / total * 1000))
            if not sdk.reason:
                theirs, _ = await sdk.many(callers, total)
                curves.setdefault(sdk.title, []).append((callers, theirs / total * 1000))
    bench.report.curves["ms a request, by callers"] = curves


async def output(bench: Bench) -> None:
    """Milliseconds of one request, by the bytes that it says."""
    sizes = [2**power for power in ((10, 16, 22) if bench.quick else (10, 13, 16, 18, 20, 22, 24, 26))]
    limits = Limits(cpus=2)
    async with a_provider(bench, limits=limits) as provider, peers(bench, "run_bare", "exec", "host") as others:
        curves: dict[str, list[tuple[float, float]]] = {}
        for size in sizes:
            contenders: dict[str, Contender] = {"sandbox-provider": _ours(provider, size)}
            contenders |= {peer.title: _theirs(peer, size) for peer in others.values()}
            for title, samples in (await in_turns(bench.times(3, 1), contenders)).items():
                if samples:
                    curves.setdefault(title, []).append((size, median(samples)))
    bench.report.curves["ms a request, by bytes of output"] = curves


def _command(size: int) -> list[str]:
    return ["head", "-c", str(size), "/dev/zero"]


def _ours(provider: Provider, size: int) -> Contender:
    async def request() -> float:
        seconds, outcome = await ask(provider, _command(size))
        assert outcome.stdout_bytes == size
        await ready(provider)
        return seconds * 1000

    return request


def _theirs(peer: Peer, size: int) -> Contender:
    async def request() -> float:
        timing = await peer.one(_command(size))
        assert timing.size == size
        return timing.seconds * 1000

    return request
