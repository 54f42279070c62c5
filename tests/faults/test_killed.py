"""A provider that is killed takes everything with it."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.engine import MINIMAL, SecondEngine
from faults.names import HOURS, LONG

pytestmark = [pytest.mark.docker, pytest.mark.timeout(HOURS if LONG else 120)]

KILLS = 200 if LONG else 15
SECONDS = 2.0
"""After which nothing of a killed provider is left."""
LATEST = 2.0 if LONG else 1.2
"""A victim is killed within this time of its first request: it opens, runs, streams, leases, scrubs and disposes."""

VICTIM = f"""
import asyncio, sys
from provider import Provider, Settings

COMMANDS = (
    ("true", {{}}),
    ("echo up; sleep 30", {{}}),
    ("head -c 3000000 /dev/zero", {{}}),
    ("sleep 30 & echo left", {{"background": "keep", "lease": 30.0}}),
    ("echo again", {{"reuse": "scrub", "session": "s"}}),
    ("echo a > a", {{"artifacts": ["a"]}}),
)

async def work(provider, at):
    while True:
        text, options = COMMANDS[at % len(COMMANDS)]
        await provider.run(text, **options)
        at += 5

async def main():
    async with Provider(sys.argv[1], image={MINIMAL!r}, settings=Settings(spares=2)) as provider:
        await asyncio.gather(*(work(provider, at) for at in range(4)))

print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""


@contextlib.contextmanager
def victims(engine: SecondEngine, workspace: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Gives one after the other, each started ahead of its time and waiting; none outlives the test."""
    ready: deque[subprocess.Popen[bytes]] = deque()
    environment = {**os.environ, "DOCKER_HOST": engine.endpoint.url}

    def start() -> None:
        command = [sys.executable, "-c", VICTIM, str(workspace)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        ready.append(subprocess.Popen(command, **pipes, env=environment, bufsize=0))

    def following() -> subprocess.Popen[bytes]:
        start()
        victim = ready.popleft()
        assert victim.stdout.readline() == b"ready\n"
        return victim

    start()
    try:
        yield following
    finally:
        for victim in ready:
            victim.kill()
            victim.communicate(timeout=10)


def test_killed_at_any_moment_it_leaves_nothing(engine: SecondEngine, workspace: Path, say: Callable[[str], None]):
    """2 s after SIGKILL no process, mount or started container is left; one not yet started goes with the next run."""
    moments = random.Random(7)
    busy = unstarted = 0
    slowest = 0.0

    def running() -> list[str]:
        return [found for found in engine.left() if not found.endswith(" is created")]

    with victims(engine, workspace) as following:
        for kill in range(KILLS):
            victim = following()
            victim.stdin.write(b"go\n")
            time.sleep(moments.uniform(0, LATEST))
            assert victim.poll() is None, f"victim {kill} ended by itself"
            busy += bool(engine.processes())
            victim.kill()
            victim.communicate(timeout=10)
            killed = time.monotonic()
            assert engine.left_after(SECONDS, running) == [], f"kill {kill} of {KILLS}"
            slowest = max(slowest, time.monotonic() - killed)
            unstarted += len(engine.left())
    tidied(engine, workspace)
    assert engine.left() == []
    assert busy >= KILLS // 5, "they were killed before they had begun"
    if LONG:
        say(
            f"{KILLS} kills, {busy} with containers running: gone after {slowest:.2f} s at the most; "
            f"{unstarted} were created and not started, and went with the next run"
        )


def tidied(engine: SecondEngine, workspace: Path) -> None:
    """The next provider's first run tidies up."""
    command = [sys.executable, "-m", "provider", "run", "-w", str(workspace), "--image", MINIMAL, "--", "true"]
    environment = {**os.environ, "DOCKER_HOST": engine.endpoint.url, "XDG_RUNTIME_DIR": str(engine.folder)}
    subprocess.run(command, env=environment, check=True, timeout=60)
