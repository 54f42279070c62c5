"""
300 MB of output from a container. Against reading the engine's attach stream as fast as a socket gives it, with
no sense made of it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import docker
from docker.types import LogConfig

from bench.cold import IMAGE
from bench.measure import Row
from provider import Limits, Provider
from provider.settings import find_endpoint

SIZE = 300_000_000
COMMAND = ["head", "-c", str(SIZE), "/dev/zero"]


async def rows(workspace: Path, rounds: int = 5) -> list[Row]:
    ours: list[float] = []
    raw: list[float] = []
    async with Provider(workspace, image=IMAGE, limits=Limits(cpus=2)) as provider:
        for _ in range(rounds):
            ours.append(await _ours(provider))
            raw.append(await asyncio.to_thread(_raw_attach))
    return [Row(name="stream of 300 MB", peer="raw attach read", unit="MB/s", ours=ours, theirs=raw, bound=">= 0.8")]


async def _ours(provider: Provider) -> float:
    heard = 0

    async def on_stdout(data: bytes) -> None:
        nonlocal heard
        heard += len(data)

    outcome = await provider.run(COMMAND, on_stdout=on_stdout)
    assert heard == outcome.stdout_bytes == SIZE
    return SIZE / 1e6 / (outcome.duration_ms / 1000)


def _raw_attach() -> float:
    client = docker.APIClient(base_url=find_endpoint().url, version="auto")
    try:
        config = client.create_host_config(log_config=LogConfig(type="none"), network_mode="none")
        container = client.create_container(IMAGE, COMMAND, host_config=config)["Id"]
        stream = client.attach_socket(container, params={"stdout": 1, "stderr": 1, "stream": 1})
        client.start(container)
        buffer = bytearray(256 * 1024)
        began = time.perf_counter()
        total = 0
        while size := stream._sock.recv_into(buffer):  # noqa: SLF001 - the SDK wraps the socket in a slower reader
            total += size
        seconds = time.perf_counter() - began
        assert total > SIZE
        client.remove_container(container, force=True)
        return SIZE / 1e6 / seconds
    finally:
        client.close()
