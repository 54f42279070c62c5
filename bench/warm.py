"""
A request for which a spare is ready.

Against the whole way (`docker run --rm`), a container that is kept and used again (`docker exec`), and no container at
all (a subprocess of this machine): what isolation costs once the waiting is over.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.cold import IMAGE, docker_run
from bench.measure import Row, milliseconds_in_turns
from provider import Provider

SUBPROCESS_MARGIN_MS = 5.0


async def rows(workspace: Path, rounds: int = 40) -> list[Row]:
    kept = (await _said("docker", "run", "-d", "--rm", "--network", "none", IMAGE, "sleep", "600")).decode().strip()
    try:
        async with Provider(workspace, image=IMAGE) as provider:

            async def ours() -> None:
                outcome = await provider.run(["echo", "hi"])
                assert outcome.stdout == b"hi\n"
                assert outcome.container
                assert outcome.container.warm

            async def docker_exec() -> None:
                assert await _said("docker", "exec", kept, "echo", "hi") == b"hi\n"

            async def subprocess() -> None:
                assert await _said("echo", "hi") == b"hi\n"

            async def order() -> None:
                await provider.settle()
                await provider.prewarm()

            await order()
            contenders = {"ours": ours, "run": docker_run, "exec": docker_exec, "subprocess": subprocess}
            samples = await milliseconds_in_turns(rounds, contenders, between=order)
    finally:
        await _said("docker", "rm", "-f", kept)
    mine = samples["ours"]
    allowed = [value + SUBPROCESS_MARGIN_MS for value in samples["subprocess"]]
    return [
        Row(name="warm request", peer="docker run --rm", unit="ms", ours=mine, theirs=samples["run"], bound="<= 0.02"),
        Row(name="warm request", peer="docker exec", unit="ms", ours=mine, theirs=samples["exec"], bound="<= 0.1"),
        Row(name="warm request", peer="subprocess + 5 ms", unit="ms", ours=mine, theirs=allowed, bound="<= 1.0"),
    ]


async def _said(*command: str) -> bytes:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said
