"""
How long one request takes: `echo hi`, from the call to the answer. Cold with nothing prepared, warm when a spare
waits, recycled when a container is scrubbed and used again.

Whoever makes a fresh container is measured beside cold; whoever keeps one, and no container at all, beside warm.
"""

from __future__ import annotations

import time

from bench.measure import Bench, Contender, Peer, a_provider, ask, heard, in_turns, median, peers, percentiles, ready
from provider import Provider, ProviderError

SUBPROCESS_MARGIN_MS = 5.0


async def measure(bench: Bench) -> None:
    await cold(bench)
    await warm(bench)
    await recycled(bench)


async def cold(bench: Bench) -> None:
    fresh = ("run", "run_bare", "sdk", "sdk_offline", "testcontainers", "llm_fresh", "epicbox")
    async with a_provider(bench, spares=0) as provider, peers(bench, *fresh) as others:

        async def answered() -> float:
            seconds, _ = await ask(provider)
            await provider.settle()
            return seconds * 1000

        async def gone() -> float:
            began = time.perf_counter()
            await ask(provider)
            await provider.settle()
            return (time.perf_counter() - began) * 1000

        async def first() -> float:
            timing = await heard(provider)
            await provider.settle()
            return timing.first * 1000

        contenders: dict[str, Contender] = {"ours": answered, "gone": gone, "first": first}
        firsts: dict[str, list[float]] = {}
        contenders |= {name: _whole(peer, firsts.setdefault(name, [])) for name, peer in others.items()}
        samples = await in_turns(bench.times(30, 3), contenders)
    for name, peer in others.items():
        bench.report.row("cold request, answered", peer.title, "ms", samples["ours"], samples[name], peer.reason)
    for name, peer in others.items():
        bench.report.row("cold request, container gone", peer.title, "ms", samples["gone"], samples[name], peer.reason)
    for name in ("run", "run_bare"):
        bench.report.row("cold request, first byte", others[name].title, "ms", samples["first"], firsts[name][1:])
    _at_most(bench, "cold p50 at most 0.55 of docker run --rm", samples["ours"], samples["run"], 0.55)


async def warm(bench: Bench) -> None:
    kept = ("run", "exec", "llm_kept", "autogen", "host")
    async with a_provider(bench) as provider, peers(bench, *kept) as others:

        async def answered() -> float:
            seconds, outcome = await ask(provider)
            assert outcome.container
            assert outcome.container.warm
            await ready(provider)
            return seconds * 1000

        async def first() -> float:
            timing = await heard(provider)
            await ready(provider)
            return timing.first * 1000

        async def again() -> float:
            seconds, _ = await ask(provider, reuse="scrub", session="bench")
            await ready(provider)
            return seconds * 1000

        contenders: dict[str, Contender] = {"ours": answered, "first": first}
        why_not = await _why_not(bench, provider)
        await ready(provider)
        if not why_not:
            contenders["recycled"] = again
        firsts: dict[str, list[float]] = {}
        contenders |= {name: _whole(peer, firsts.setdefault(name, [])) for name, peer in others.items()}
        samples = await in_turns(bench.times(100, 5), contenders)
    for name, peer in others.items():
        bench.report.row("warm request, answered", peer.title, "ms", samples["ours"], samples[name], peer.reason)
    for name, peer in others.items():
        if not why_not:
            ours = samples["recycled"]
            bench.report.row("recycled request, answered", peer.title, "ms", ours, samples[name], peer.reason)
    for name in ("run", "exec", "host"):
        bench.report.row("warm request, first byte", others[name].title, "ms", samples["first"], firsts[name][1:])
    _at_most(bench, "warm p50 at most 1/50 of docker run --rm", samples["ours"], samples["run"], 1 / 50)
    _at_most(bench, "warm p50 at most 1/10 of docker exec", samples["ours"], samples["exec"], 1 / 10)
    p50, _, p99 = percentiles(samples["ours"])
    host = median(samples["host"])
    bench.report.check(
        "warm p50 at most a host subprocess + 5 ms",
        held=p50 <= host + SUBPROCESS_MARGIN_MS,
        figures=f"{p50:.1f} ms, subprocess {host:.1f} ms",
    )
    bench.report.check(
        "warm p99 at most 5 x p50", held=p99 <= 5 * p50, figures=f"{p99:.1f} / {p50:.1f} ms = {p99 / p50:.1f}"
    )


async def recycled(bench: Bench) -> None:
    """Commands a second from one caller, one after the other, the scrubbing between them included."""
    name, claim = "recycled, one caller", "recycled: at least 100 commands a second from one caller"
    async with a_provider(bench) as provider, peers(bench, "exec", "llm_kept", "autogen") as others:
        if why_not := await _why_not(bench, provider):
            bench.report.row(name, others["exec"].title, "/s", [], [], why_not)
            bench.report.check(claim, held=None, figures=why_not)
            return
        total = bench.times(100, 20)

        async def ours() -> float:
            began = time.perf_counter()
            for _ in range(total):
                await ask(provider, reuse="scrub", session="bench")
            return total / (time.perf_counter() - began)

        def theirs(peer: Peer) -> Contender:
            async def rate() -> float:
                seconds, _ = await peer.many(1, total // 10)
                return total // 10 / seconds

            return rate

        contenders: dict[str, Contender] = {"ours": ours, **{key: theirs(peer) for key, peer in others.items()}}
        samples = await in_turns(bench.times(7, 2), contenders)
    for key, peer in others.items():
        bench.report.row(name, peer.title, "/s", samples["ours"], samples[key], peer.reason)
    rate = median(samples["ours"])
    bench.report.check(claim, held=rate >= 100, figures=f"{rate:.0f} /s")


async def _why_not(bench: Bench, provider: Provider) -> str:
    """Why nothing can be recycled; empty when it can."""
    try:
        await provider.run(["true"], reuse="scrub", session="bench")
    except TypeError:
        return "reuse='scrub' is not there yet"
    except ProviderError as error:
        bench.report.failures.append(f"recycled: {error}")
        return f"reuse='scrub' fails: {error}"
    return ""


def _whole(peer: Peer, firsts: list[float]) -> Contender:
    """The peer's whole request; when its first byte came is put into `firsts` on the way."""

    async def request() -> float:
        timing = await peer.one()
        firsts.append(timing.first * 1000)
        return timing.seconds * 1000

    return request


def _at_most(bench: Bench, claim: str, ours: list[float], theirs: list[float], bound: float) -> None:
    if not theirs:
        bench.report.check(claim, held=None, figures="the peer could not be measured")
        return
    ratio = median(ours) / median(theirs)
    figures = f"{median(ours):.1f} / {median(theirs):.1f} ms = {ratio:.3f}"
    bench.report.check(claim, held=ratio <= bound, figures=figures)
