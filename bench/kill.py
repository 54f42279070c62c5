"""
From a deadline to the death of every process of the command: a shell with children, one of them in a session of its
own, as the kernel tells it through their pidfds.

With nobody listening, and with a listener that never returns while the command floods it. Against the engine's own
kill of the same processes. The deadline counts from before the command is released, so our figure is never too good.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import docker

from bench.measure import Bench, Contender, a_provider, in_turns, percentiles, ready
from bench.peers import IMAGE
from provider import Provider
from provider.events import Event, StepFinished

TREE = "sleep 600 & (sleep 600 & sleep 600 & wait) & setsid sleep 600 & sleep 600"
FLOOD = f"yes & {TREE}"
PROCESSES = 6
DEADLINE = 0.25
BOUND_MS = 300.0


async def measure(bench: Bench) -> None:
    async def stalled(_: bytes) -> None:
        await asyncio.Event().wait()

    async with a_provider(bench) as provider:
        contenders: dict[str, Contender] = {
            "quiet": lambda: _ours(provider, TREE, None),
            "stalled": lambda: _ours(provider, FLOOD, stalled),
            "engine": lambda: asyncio.to_thread(_engine_kill),
        }
        samples = await in_turns(bench.times(40, 3), contenders)
    peer = "docker kill, by the SDK"
    for key, name in (("quiet", "deadline to all dead"), ("stalled", "the same, stalled listener")):
        bench.report.row(name, peer, "ms", samples[key], samples["engine"])
        p50, _, p99 = percentiles(samples[key])
        bench.report.check(
            f"kill latency p99 at most 300 ms{', stalled listener' if key == 'stalled' else ''}",
            held=p99 <= BOUND_MS,
            figures=f"p99 {p99:.0f} ms, p50 {p50:.0f} ms",
        )


async def _ours(provider: Provider, script: str, listener: Callable[[bytes], Awaitable[None]] | None) -> float:
    opened = 0.0

    async def on_event(event: Event) -> None:
        nonlocal opened
        if isinstance(event, StepFinished) and event.step == "open":
            opened = time.monotonic()

    running = asyncio.ensure_future(provider.run(script, timeout=DEADLINE, on_stdout=listener, on_event=on_event))
    await asyncio.sleep(DEADLINE / 2)
    (run,) = provider.runs()
    assert run.sandbox
    dead = await asyncio.to_thread(_seen_dead, _first_pid(run.sandbox.container.id))
    outcome = await running
    assert outcome.timed_out
    await ready(provider)
    return (dead - opened - DEADLINE) * 1000


def _engine_kill() -> float:
    client = docker.from_env()
    container = client.containers.run(IMAGE, ["sh", "-c", TREE], detach=True, network_mode="none", init=False)
    try:
        time.sleep(DEADLINE / 2)
        began = 0.0

        def kill() -> None:
            nonlocal began
            began = time.monotonic()
            container.kill()

        return (_seen_dead(_first_pid(str(container.id)), kill) - began) * 1000
    finally:
        container.remove(force=True)
        client.close()


def _first_pid(container: str) -> int:
    client = docker.from_env()
    try:
        return int(client.api.inspect_container(container)["State"]["Pid"])
    finally:
        client.close()


def _seen_dead(first: int, then: Callable[[], None] | None = None) -> float:
    """When the last descendant of a container's first process died; `then` is called once all are being watched."""
    with ExitStack() as stack:
        watch = select.poll()
        left = set()
        for pid in _descendants(first):
            descriptor = os.pidfd_open(pid)
            stack.callback(os.close, descriptor)
            watch.register(descriptor, select.POLLIN)
            left.add(descriptor)
        assert len(left) >= PROCESSES - 1, left
        if then:
            then()
        while left:
            for descriptor, _ in watch.poll():
                watch.unregister(descriptor)
                left.discard(descriptor)
    return time.monotonic()


def _descendants(first: int) -> set[int]:
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
    found: set[int] = set()
    new = {first}
    while new := {pid for pid, parent in parents.items() if parent in new}:
        found |= new
    return found
