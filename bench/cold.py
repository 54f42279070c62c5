"""
A request with nothing prepared: a fresh container, `echo hi`, the answer. Against what the docker client takes
for the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.measure import Row, milliseconds_in_turns
from provider import Provider, Settings

IMAGE = "sandbox-provider/minimal"


async def rows(workspace: Path, rounds: int = 40) -> list[Row]:
    async with Provider(workspace, image=IMAGE, settings=Settings(spares=0)) as provider:

        async def ours() -> None:
            outcome = await provider.run(["echo", "hi"])
            assert outcome.stdout == b"hi\n"

        async def ours_gone() -> None:
            await ours()
            await provider.settle()

        contenders = {"ours": ours, "ours_gone": ours_gone, "docker_run": docker_run}
        samples = await milliseconds_in_turns(rounds, contenders, between=provider.settle)
    theirs = samples["docker_run"]
    peer = "docker run --rm"
    return [
        Row(name="cold request", peer=peer, unit="ms", ours=samples["ours"], theirs=theirs, bound="<= 0.6"),
        Row(name="… container gone", peer=peer, unit="ms", ours=samples["ours_gone"], theirs=theirs, bound="<= 0.8"),
    ]


async def docker_run() -> None:
    process = await asyncio.create_subprocess_exec(
        "docker", "run", "--rm", IMAGE, "echo", "hi", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert said == b"hi\n"
