"""
Artifacts: one file of 1 GB, 10,000 small files, and 1,000 of middle size, from the end of the command to the list of
hashes. Against coreutils' `sha256sum` over the same files, on one core and on all; and against `openssl dgst`, since
the sha256sum of some systems (Debian 12) does not use the processor's own instructions and is no hard peer.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

from bench.measure import Bench, Contender, a_provider, in_turns, median, percentiles
from provider import Provider
from provider.events import Event, StepFinished

KINDS = (
    # name, files, bytes each, the claim about it, times as fast as one sha256sum
    ("one file of 1 GB", 1, 1_000_000_000, "hashing at least 0.9 of sha256sum: one file", 0.9),
    ("10,000 files of 4 KiB", 10_000, 4096, "hashing 1.7 x sha256sum over two cores: 10,000 small files", 1.7),
    ("1,000 files of 256 KiB", 1000, 2**18, "hashing 1.7 x sha256sum over two cores: 1,000 files of 256 KiB", 1.7),
)


async def measure(bench: Bench) -> None:
    # Without spares: the next one would be made while ours hashes, and not while the others do.
    async with a_provider(bench, spares=0) as provider:
        for name, files, size, claim, bound in KINDS:
            folder = bench.workspace / "artifacts"
            if bench.quick and files == 1:
                name, size = "one file of 0.1 GB", size // 10  # noqa: PLW2901 - a tenth of it, and said so
            _fill(folder, files, size)
            try:
                await _compare(bench, provider, name, files, claim, bound)
            finally:
                shutil.rmtree(folder)


async def _compare(bench: Bench, provider: Provider, name: str, files: int, claim: str, bound: float) -> None:
    folder = bench.workspace / "artifacts"

    async def ours() -> float:
        seconds = 0.0

        async def on_event(event: Event) -> None:
            nonlocal seconds
            if isinstance(event, StepFinished) and event.step == "collect":
                seconds = event.seconds

        outcome = await provider.run(["true"], artifacts=["artifacts/**"], on_event=on_event)
        assert len(outcome.artifacts) == files, outcome.artifact_problems[:3]
        await provider.settle()
        return seconds * 1000

    contenders: dict[str, Contender] = {
        "ours": ours,
        "one": lambda: asyncio.to_thread(_hash, ["sha256sum"], folder, files, 1),
    }
    if files > 1:
        contenders["all"] = lambda: asyncio.to_thread(_hash, ["sha256sum"], folder, files, os.cpu_count() or 1)
    if shutil.which("openssl"):
        contenders["openssl"] = lambda: asyncio.to_thread(_hash, ["openssl", "dgst", "-sha256"], folder, files, 1)
    samples = await in_turns(bench.times(4 if files == 1 else 12, 1), contenders)
    bench.report.row(f"artifacts: {name}", "sha256sum", "ms", samples["ours"], samples["one"])
    if files > 1:
        bench.report.row(f"artifacts: {name}", "sha256sum on all cores", "ms", samples["ours"], samples["all"])
    why = "not installed"
    bench.report.row(f"artifacts: {name}", "openssl dgst", "ms", samples["ours"], samples.get("openssl", []), why)
    mine, one = median(samples["ours"]), median(samples["one"])
    p99 = percentiles(samples["ours"])[2]
    figures = f"{one:.0f} / {mine:.0f} ms = {one / mine:.2f} x (p99 {p99:.0f} ms)"
    if files > 1:
        figures += f"; sha256sum on all cores {one / median(samples['all']):.2f} x"
    bench.report.check(claim, held=one / mine >= bound, figures=figures)


def _fill(folder: Path, files: int, size: int) -> None:
    """Content that nobody can guess, already in the page cache when it is hashed."""
    block = os.urandom(min(size, 2**20))
    folder.mkdir()
    for number in range(files):
        with (folder / f"{number:05}").open("wb") as file:
            file.write(number.to_bytes(8) if size > 8 else b"")
            left = size - 8
            while left > 0:
                left -= file.write(block[:left])


def _hash(program: list[str], folder: Path, files: int, cores: int) -> float:
    batch = files if cores == 1 else -(-files // (cores * 4))
    names = b"\0".join(bytes(path) for path in sorted(folder.iterdir()))
    began = time.perf_counter()
    command = ["xargs", "-0", f"-P{cores}", f"-n{batch}", *program]
    done = subprocess.run(command, input=names, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    assert done.stdout.count(b"\n") == files
    return seconds * 1000
