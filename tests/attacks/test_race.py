"""
Hashing against somebody who changes everything all the while.

A container swaps files, directories, links and pipes as fast as it can; on the host, `collect` is asked for digests of
the same names. 2,000 attempts in the ordinary run, 100,000 with ATTACKS=long. After every one: no digest but of what
the container wrote itself, no byte of the host, no more read than was allowed, no waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from attacks.case import HERE
from attacks.names import IMAGES, OWNER

from provider import Limits, Provider, Settings
from provider.artifacts import collect
from provider.model import MIB, Artifact
from provider.workspace import check_workspace

LONG = os.environ.get("ATTACKS") == "long"
ATTEMPTS = 100_000 if LONG else 2_000
MOST_BYTES = MIB
SLOWEST = 10.0
"""Seconds for one attempt, on a machine that is busy with more than this."""
SECRET = b"a secret of the host\n"
FORBIDDEN = hashlib.sha256(SECRET).hexdigest()
SWAPPED = ("out/file", "out/link", "out/pipe", "dir/secret", "dir-link/secret", "deep/dir/secret", "deep/link/secret")
OWN = {hashlib.sha256(content).hexdigest() for content in (b"own content\n",)}
OWN_TIMES = {hashlib.sha256(b"own content %d\n" % digit).hexdigest() for digit in range(10)}
PATTERNS = (
    (*SWAPPED, "grows", "cut", "times"),
    ("**",),
    ("*/secret", "out/*", "*/*/secret"),
    ("dir/secret", "out/file"),
)

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600 if LONG else 120)]


@pytest.fixture
async def swapped(
    runtime: str, compiled: Callable[[Path], Path], workspace: Path, tmp_path: Path, no_container_is_left: None
) -> AsyncIterator[Path]:
    """A workspace in which nothing stays what it is."""
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "secret").write_bytes(SECRET)
    folder = workspace / "w"
    folder.mkdir()
    os.chown(folder, OWNER, OWNER)
    shutil.copy(compiled(HERE / "swap.c"), folder / "swap")
    ready = asyncio.Event()

    async def begun(_: bytes) -> None:
        ready.set()

    limits = Limits(cpus=1, file_bytes=64 * MIB)
    async with Provider(folder, image=IMAGES["minimal"], runtime=runtime, settings=Settings(spares=0)) as provider:
        run = asyncio.ensure_future(
            provider.run(
                ["/workspace/swap", str(tmp_path / "host" / "secret"), str(tmp_path / "host")],
                limits=limits,
                on_stdout=begun,
            )
        )
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield folder
            assert not run.done(), run
        finally:
            await provider.close()
    assert (await run).status == "canceled"
    assert (tmp_path / "host" / "secret").read_bytes() == SECRET


@pytest.mark.attack("D9", "D10", "D11", "D12", "D13")
async def test_no_attempt_reads_a_byte_of_the_host(swapped: Path) -> None:
    """However often it is tried, and whatever a name is at the moment, only the container's own bytes are hashed."""
    workspace = check_workspace(swapped)
    seen: Counter[str] = Counter()
    read_before, slowest = bytes_read(), 0.0
    for attempt in range(ATTEMPTS):
        began = time.monotonic()
        artifacts, problems = await asyncio.wait_for(
            collect(workspace, PATTERNS[attempt % len(PATTERNS)], max_file_bytes=MOST_BYTES), SLOWEST
        )
        slowest = max(slowest, time.monotonic() - began)
        for artifact in artifacts:
            seen[fault(artifact)] += 1
        seen.update(problem.problem for problem in problems)
    read = bytes_read() - read_before
    assert seen["a byte of the host"] == seen["somebody else's"] == seen["too much"] == 0, seen
    # It was a race: names were found as file, as link and as something that changed.
    assert min(seen["own"], seen["symlink"]) > ATTEMPTS / 100, seen
    assert seen["unstable"] > 0, seen
    # Three files may be as large as is allowed; what is beyond is the process's other reading.
    assert read < ATTEMPTS * 3 * MOST_BYTES + 64 * MIB
    assert slowest < SLOWEST


def fault(artifact: Artifact) -> str:
    """What is wrong with a digest, if anything."""
    if artifact.sha256 == FORBIDDEN:
        return "a byte of the host"
    if artifact.bytes > MOST_BYTES:
        return "too much"
    name = artifact.path
    if name in {"grows", "cut", "swap"}:
        return "own"  # of any content that it had
    return "own" if artifact.sha256 in (OWN_TIMES if name == "times" else OWN) else "somebody else's"


def bytes_read() -> int:
    """By this process, from anything."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise AssertionError


def look_then_open(folder: Path, attempts: int) -> int:
    leaked = 0
    for _ in range(attempts):
        for name in ("file", "link"):
            path = folder / name
            with contextlib.suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                    leaked += os.read(descriptor, 100) == SECRET
                    os.close(descriptor)
    return leaked


if LONG:

    async def test_whoever_looks_first_and_opens_then_loses_this_race(swapped: Path) -> None:
        """The attacker is one worth having: to look at a name and to open it afterwards reads the host in the end."""
        leaked = 0
        until = time.monotonic() + 120
        while leaked == 0 and time.monotonic() < until:
            leaked = await asyncio.to_thread(look_then_open, swapped / "out", 20_000)
        assert leaked > 0
