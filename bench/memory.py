"""
What a waiting spare and an active run cost: in the provider's own process, and on the host for the container itself.

Measured in a fresh process (`python -m bench.memory WORKSPACE COUNT`), as the growth of its private memory. An active
run is held against one `docker run` client, which is what holds a run otherwise; a container against a kept one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from bench.measure import ROOT, Bench
from bench.peers import IMAGE
from provider import Limits, Provider, Settings, State
from provider.engine.owner import OWNER_LABEL, this_owner


async def measure(bench: Bench) -> None:
    count = bench.times(24, 6)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.memory", bench.workspace, str(count), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    said, _ = await process.communicate()
    ours = json.loads(said)
    client, kept = await asyncio.to_thread(_docker_run)
    bench.report.row("provider memory, a waiting spare", "a docker run client", "KiB", [ours["spare"]], [client])
    bench.report.row("provider memory, an active run", "a docker run client", "KiB", [ours["active"]], [client])
    bench.report.row("host memory, a spare's shim and pid 1", "a kept container's", "KiB", [ours["host"]], [kept])


async def _ours(workspace: str, count: int) -> dict[str, float]:
    settings = Settings(spares=count, spares_total=64, spares_memory=2**31)
    async with Provider(workspace, image=IMAGE, settings=settings) as provider:
        await asyncio.gather(*(provider.run(["true"]) for _ in range(8)))  # threads, pools and caches are there
        await provider.settle()
        base, before = _private("self"), _shims()
        await provider.prewarm(count, limits=Limits(pids=100))  # another kind, of which none waits yet
        spares = _shims() - before
        made = len(spares)  # and perhaps one or two of the first kind
        assert made >= count
        spare = (_private("self") - base) / made
        host = sum(_resident(pid) for pid in spares) / made
    async with Provider(workspace, image=IMAGE, settings=Settings(spares=0)) as provider:
        await provider.run(["true"])
        await provider.settle()
        base = _private("self")
        runs = [asyncio.ensure_future(provider.run(["cat"], stdin=_never())) for _ in range(count)]
        await asyncio.sleep(2 + count / 2)  # ample for that many to be made
        assert [run.state for run in provider.runs()] == [State.RUNNING] * count
        active = (_private("self") - base) / count
        for run in provider.runs():
            run.end()
        await asyncio.gather(*runs)
    return {"spare": max(1, spare), "active": max(1, active), "host": host}


async def _never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def _docker_run() -> tuple[float, float]:
    """The private memory of a client whose container runs, and what that container costs the host."""
    label = f"{OWNER_LABEL}={this_owner()}"
    with subprocess.Popen(
        ["docker", "run", "--rm", "-i", "--label", label, "--network=none", "--log-driver=none", IMAGE, "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"up\n")
        process.stdin.flush()
        process.stdout.readline()
        found = _private(str(process.pid)), sum(_resident(pid) for pid in _shims())
        process.stdin.close()
    return found


def _private(pid: str) -> float:
    gc.collect()
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("Private_"))


def _shims() -> set[int]:
    """The shim processes of this process's containers; each has its container's id among its arguments."""
    command = ["docker", "ps", "-q", "--no-trunc", f"--filter=label={OWNER_LABEL}={this_owner()}"]
    ids = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    arguments = {path: _read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    return {
        int(path.parent.name)
        for path, text in arguments.items()
        if "containerd-shim" in text and any(one in text for one in ids)
    }


def _resident(pid: int) -> float:
    """A shim's resident memory and that of its child, pid 1, in KiB; pages that several share are counted at each."""
    children = _read(Path(f"/proc/{pid}/task/{pid}/children")).split()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        children += [] if task.name == str(pid) else _read(task / "children").split()
    lines = [line for one in (str(pid), *children) for line in _read(Path(f"/proc/{one}/status")).splitlines()]
    return sum(float(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it ended meanwhile
        return ""


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_ours(sys.argv[1], int(sys.argv[2])))))
