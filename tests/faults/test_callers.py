"""Whatever becomes of the caller, its listeners and its connection: the run keeps its deadline, and leaves nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.engine import MINIMAL, SecondEngine

from provider import Provider
from provider.client import frame

pytestmark = pytest.mark.docker

FLOOD = "head -c 5000000 /dev/zero"
TIMEOUT = 1.0
SECONDS = 4.0
"""Deadline, grace, and what listeners have left after it."""

Made = Callable[..., tuple[Provider, Any]]


class Hanging:
    """Listeners that do not return while the test lasts."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def blocking(self, _: bytes) -> None:
        self.over.wait(60)

    async def waiting(self, _: bytes) -> None:
        await asyncio.Event().wait()


def slow(_: bytes) -> None:
    time.sleep(0.3)


async def slow_async(_: bytes) -> None:
    await asyncio.sleep(0.3)


def raising(error: BaseException) -> Callable[[bytes], None]:
    def listener(_: bytes) -> None:
        raise error

    return listener


hanging = Hanging()

LISTENERS: dict[str, tuple[Callable[[bytes], Any], str]] = {
    "slow": (slow, "timed_out"),
    "slow, async": (slow_async, "timed_out"),
    "hangs": (hanging.blocking, "timed_out"),
    "hangs, async": (hanging.waiting, "timed_out"),
    "raises": (raising(RuntimeError("x")), "completed"),
    "stops an iteration": (raising(StopIteration()), "completed"),
    "cancels": (raising(asyncio.CancelledError()), "completed"),
    "exits": (raising(SystemExit(3)), "completed"),
    "cannot be called": (7, "completed"),  # type: ignore[dict-item]
}


async def test_listeners_of_every_kind(engine: SecondEngine, provider_on: Made):
    """One that is slow or hangs slows its command and no deadline; one that raises ends nothing, and is told of."""
    provider, _ = provider_on()

    async def heard(listener: Callable[[bytes], Any]) -> tuple[Any, float]:
        began = time.monotonic()
        outcome = await provider.run(FLOOD, timeout=TIMEOUT, on_stdout=listener)
        return outcome, time.monotonic() - began

    try:
        outcomes = await asyncio.gather(*(heard(listener) for listener, _ in LISTENERS.values()))
    finally:
        hanging.over.set()
        await provider.close()
    found = {name: outcome.status for name, (outcome, _) in zip(LISTENERS, outcomes, strict=True)}
    assert found == {name: status for name, (_, status) in LISTENERS.items()}
    for name, (outcome, seconds) in zip(LISTENERS, outcomes, strict=True):
        assert seconds < SECONDS + 6, name  # nine at once on two cores; none alone takes the 6
        assert outcome.callback_errors or name.startswith("slow"), name


async def test_a_stuck_listener_holds_up_nobody_else(engine: SecondEngine, provider_on: Made):
    """While one run's listener hangs, other runs of the provider come and go."""
    provider, _ = provider_on()
    stuck = Hanging()
    held = asyncio.ensure_future(provider.run(FLOOD, timeout=8, on_stdout=stuck.blocking))
    try:
        outcomes = [await asyncio.wait_for(provider.run(["echo", "hi"]), 8) for _ in range(3)]
        assert [outcome.stdout for outcome in outcomes] == [b"hi\n"] * 3
        assert not held.done()
    finally:
        stuck.over.set()
        assert (await held).stdout_bytes == 5_000_000
        await provider.close()


async def test_a_caller_that_gives_up_at_any_moment(engine: SecondEngine, provider_on: Made):
    """A run that is cancelled while it opens, runs or collects leaves nothing."""
    provider, _ = provider_on(spares=1)
    for step in range(8):
        task = asyncio.ensure_future(provider.run("echo a > a; sleep 0.05", artifacts=["a"]))
        await asyncio.sleep(0.05 * step)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert (await provider.run(["echo", "next"])).stdout == b"next\n"
    await provider.close()
    assert await asyncio.to_thread(engine.left_after, 2) == []


# Clients of the daemon.


@pytest.fixture
def daemon(engine: SecondEngine, home: Path, workspace: Path) -> Iterator[dict[str, str]]:
    """`sandbox up` over the second engine, in a home of its own; gives the environment of its clients."""
    environment = {**os.environ, "DOCKER_HOST": engine.endpoint.url, "SANDBOX_SPARES": "0", "SANDBOX_IMAGE": MINIMAL}
    up = [sys.executable, "-m", "provider", "up", "--foreground", "--idle", "60"]
    process = subprocess.Popen(up, env=environment, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 30
        while not (home / "sandbox-provider" / "daemon.sock").exists() and time.monotonic() < until:
            time.sleep(0.02)
        yield environment
        assert process.poll() is None, "a client has ended it"
    finally:
        process.terminate()
        complaints = process.communicate(timeout=30)[1]
        assert complaints == b""


def client(environment: dict[str, str], workspace: Path, text: str, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "provider", "run", "-w", str(workspace), *words, "-c", text]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def test_clients_that_go_or_stall(daemon: dict[str, str], engine: SecondEngine, home: Path, workspace: Path):
    """A client that is killed ends its run; one that takes nothing has its run ended in time; the daemon stays."""
    with client(daemon, workspace, "echo up; sleep 300") as killed:
        assert killed.stdout.readline() == b"up\n"
        killed.kill()
    assert engine.left_after(3) == []
    with client(daemon, workspace, "echo up; cat /dev/zero", "--timeout", "1") as stalled:
        assert stalled.stdout.readline() == b"up\n"
        stalled.send_signal(signal.SIGSTOP)
        assert engine.left_after(6) == []
        stalled.kill()
    for rudeness in (b"", b"A", frame(b"A", b'{"argv":')[:-3], frame(b"A", b"[]") + frame(b"A"), b"\xff" * 40):
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(home / "sandbox-provider" / "daemon.sock"))
            rude.sendall(rudeness)
    with client(daemon, workspace, "echo next") as following:
        assert following.communicate(timeout=30)[0] == b"next\n"
    assert engine.left_after(3) == []
