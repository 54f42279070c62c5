"""Samples taken in turns, so that whatever else the machine does falls on every contender alike."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Contender = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One claim: ours against a peer, a ratio of medians, and the bound it must keep."""

    name: str
    peer: str
    unit: str
    ours: list[float]
    theirs: list[float]
    bound: str
    """`<= 0.6` or `>= 0.8`."""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def holds(self) -> bool:
        sign, value = self.bound.split()
        return self.ratio <= float(value) if sign == "<=" else self.ratio >= float(value)


def percentiles(samples: list[float]) -> tuple[float, float, float]:
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]


async def milliseconds_in_turns(
    rounds: int, contenders: Mapping[str, Contender], *, between: Contender
) -> dict[str, list[float]]:
    """One untimed round, then `rounds` timed ones, each contender once a round; `between` puts things in order."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, contender in contenders.items():
            began = time.perf_counter()
            await contender()
            if turn:
                samples[name].append((time.perf_counter() - began) * 1000)
            await between()
    return samples


def machine() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": str(len(models) or "unknown"),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
