"""Samples taken in turns, so that whatever else the machine does falls on every contender alike; and what they say."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import ECHO, IMAGE, PEERS
from provider import Outcome, Provider, Settings

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Ours against a peer: a ratio of medians. Where either side was not measured, `note` says why."""

    name: str
    peer: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float]
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return median(self.ours) / median(self.theirs) if self.ours and self.theirs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim that issue 3 makes, and whether this run bears it out; None where it could not be measured."""

    claim: str
    held: bool | None
    figures: str


@dataclass(slots=True)
class Report:
    """All that one run of the benchmark found."""

    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    peers: dict[str, str] = field(default_factory=dict)
    """Their versions, or why they could not be measured."""

    def row(
        self, name: str, peer: str, unit: str, ours: Sequence[float], theirs: Sequence[float], note: str = ""
    ) -> None:
        self.rows.append(Row(name=name, peer=peer, unit=unit, ours=ours, theirs=theirs, note=note))

    def check(self, claim: str, *, held: bool | None, figures: str) -> None:
        self.checks.append(Check(claim=claim, held=held, figures=figures))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every group of rows is given."""

    workspace: Path
    quick: bool
    report: Report

    def times(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def median(samples: Iterable[float]) -> float:
    return statistics.median(samples)


def percentiles(samples: Sequence[float]) -> tuple[float, float, float]:
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]


class PeerFailed(Exception):
    """A peer cannot be installed, started, or asked; the table says why."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When the first and the last byte came and when all was over, in seconds from the request; and how many bytes."""

    first: float
    last: float
    seconds: float
    size: int


class Peer:
    """A peer in its own process. `reason` says why there is none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = PEERS[name].title
        self.version = self.reason = ""
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        python = ROOT / "bench" / ".venv" / PEERS[self.name].environment / "bin" / "python"
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            self._process = await asyncio.create_subprocess_exec(
                python, "-m", "bench.peers", self.name, stdin=pipe, stdout=pipe, stderr=nothing, cwd=ROOT, limit=2**24
            )
            self.version = (await self._answer())["version"]
        except (OSError, PeerFailed) as error:
            self.reason = str(error)

    async def one(self, argv: Sequence[str] = ECHO) -> Timing:
        return Timing(**await self._ask(argv=argv))

    async def many(self, callers: int, total: int) -> tuple[float, list[float]]:
        """Seconds for all, and for each."""
        answer = await self._ask(argv=ECHO, callers=callers, total=total)
        return answer["seconds"], answer["each"]

    async def stop(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()
            await self._process.wait()

    async def _ask(self, **order: Any) -> dict[str, Any]:
        if self.reason or self._process is None or self._process.stdin is None:
            raise PeerFailed(self.reason)
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        try:
            return await self._answer()
        except PeerFailed as error:
            self.reason = str(error)
            raise

    async def _answer(self) -> dict[str, Any]:
        assert self._process
        assert self._process.stdout
        line = await self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process ended"}
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer


@asynccontextmanager
async def peers(bench: Bench, *names: str) -> AsyncIterator[dict[str, Peer]]:
    async with AsyncExitStack() as stack:
        found = {name: Peer(name) for name in names}
        for peer in found.values():
            stack.push_async_callback(peer.stop)
            await peer.start()
            bench.report.peers[peer.title] = peer.version or peer.reason
        yield found


Contender = Callable[[], Awaitable[float]]
"""Does the work once and tells what it measured; what it does after the measuring is nobody's time."""


async def in_turns(rounds: int, contenders: Mapping[str, Contender], *, unpaid: int = 1) -> dict[str, list[float]]:
    """
    Rounds that do not count, then `rounds` that do, each contender once a round and each first in its turn.

    Every peer and provider has served one request before that. A peer that fails has no samples.
    """
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    out: set[str] = set()
    for turn in range(rounds + unpaid):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            if name in out:
                continue
            try:
                value = await contenders[name]()
            except PeerFailed:
                out.add(name)
                samples[name].clear()
                continue
            if turn >= unpaid:
                samples[name].append(value)
    return samples


SPARES = 4
"""What the provider keeps by default."""


@asynccontextmanager
async def a_provider(bench: Bench, *, spares: int = SPARES, **options: Any) -> AsyncIterator[Provider]:
    async with Provider(bench.workspace, image=IMAGE, settings=Settings(spares=spares), **options) as provider:
        await provider.run(ECHO)
        await ready(provider)
        yield provider


async def ready(provider: Provider, count: int = 1) -> None:
    """What has served is gone, and spares wait: the state in which every warm request begins."""
    await provider.settle()
    await provider.prewarm(count)
    await provider.settle()


async def ask(provider: Provider, argv: Sequence[str] = ECHO, **options: Any) -> tuple[float, Outcome]:
    """Seconds of one request, and its outcome."""
    began = time.perf_counter()
    outcome = await provider.run(argv, **options)
    seconds = time.perf_counter() - began
    assert outcome.succeeded, outcome
    return seconds, outcome


async def heard(provider: Provider, argv: Sequence[str] = ECHO, **options: Any) -> Timing:
    """One request with somebody listening."""
    first = last = 0.0
    size = 0
    began = time.perf_counter()

    async def on_stdout(data: bytes) -> None:
        nonlocal first, last, size
        last = time.perf_counter() - began
        first = first or last
        size += len(data)

    seconds, _ = await ask(provider, argv, on_stdout=on_stdout, **options)
    return Timing(first, last, seconds, size)


def machine() -> dict[str, str]:
    told = subprocess.run(["docker", "info", "--format", "{{json .}}"], check=True, capture_output=True, text=True)
    engine = json.loads(told.stdout)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{engine['MemTotal'] / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "engine": f"Docker {engine['ServerVersion']}",
        "storage": engine["Driver"],
        "cgroup": f"v{engine.get('CgroupVersion', '1')}",
        "python": platform.python_version(),
        "image": IMAGE,
        "command": " ".join(ECHO),
    }
