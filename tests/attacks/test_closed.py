"""Holes that this suite has found and that are closed: each is tried again for ever."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from attacks.names import IMAGES

from provider import Limits, Provider, Settings
from provider.errors import CallError

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]


@pytest.fixture
async def provider(workspace: Path, runtime: str, no_container_is_left: None) -> AsyncIterator[Provider]:
    async with Provider(workspace, image=IMAGES["default"], runtime=runtime, settings=Settings(spares=0)) as own:
        yield own


@pytest.mark.parametrize(
    "how", ["os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))", "os.setpriority(0, 1, 19)"]
)
async def test_pid_1_cannot_be_starved(provider: Provider, how: str) -> None:
    """
    A deadline ends a command whatever it did to pid 1.

    Pid 1 has the command's uid, so the command may give it the lowest priority there is; with a few busy processes in
    the same cgroup it then never runs. It keeps no deadline, and neither the engine's kill nor the provider's death
    ends it: a killed pid 1 has to run in order to die. With endless loops the container stays for ever.
    """
    source = f"""
import os, time
try: {how}
except OSError: pass
end = time.time() + 12
for at in range(40):
    if os.fork() == 0:
        break
print("begun", flush=True)
while time.time() < end: pass
"""
    began = time.monotonic()
    outcome = await provider.run(["python3", "-c", source], timeout=1, limits=Limits(cpus=0.3))
    assert outcome.timed_out
    assert time.monotonic() - began < 5


async def test_a_cancel_ends_the_hashing_too(provider: Provider) -> None:
    """
    A run that is cancelled, or past its deadline, is over soon.

    Files of nothing cost a command no time and no disk, up to 1 GiB each and 10,000 of them; the provider hashes them
    all, after the deadline, and neither `cancel` nor `stop` nor `close` ends it.
    """
    run = asyncio.ensure_future(
        provider.run("for i in 1 2 3 4 5 6; do truncate -s 1G f$i; done", artifacts=["f*"], timeout=2, run_id="sparse")
    )
    await asyncio.sleep(2)
    began = time.monotonic()
    assert run.done() or await provider.cancel("sparse")
    await run
    assert time.monotonic() - began < 2


async def test_a_deep_tree_does_not_break_the_search_for_sockets(provider: Provider) -> None:
    """A tree deeper than Python's stack is searched, or refused with CallError. It is a RecursionError."""
    made = await provider.run(["python3", "-c", "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')"])
    assert made.exit_code == 0
    with contextlib.suppress(CallError):
        await provider.run("true", seccomp="unix")
    await provider.run("rm -rf d")


async def test_the_search_for_sockets_holds_nobody_up(provider: Provider) -> None:
    """Other runs go on while a large workspace is searched: it is done in the event loop, 1 s for 60,000 files."""
    made = await provider.run(["python3", "-c", "for at in range(60_000): open(f'f{at}', 'w').close()"])
    assert made.exit_code == 0
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - began)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0.1)
    longest = 0.0
    await provider.run("true", seccomp="unix")
    watching.cancel()
    assert longest < 0.1


async def test_two_files_never_have_the_same_name_in_the_manifest(provider: Provider) -> None:
    r"""The file named by the byte 0xFF and the file named by the six characters `\udcff` are told apart."""
    source = r"open(b'\xff', 'w').write('one'); open('\\udcff', 'w').write('two')"
    outcome = await provider.run(["python3", "-c", source], artifacts=["*"])
    assert len({artifact.path for artifact in outcome.artifacts}) == 2


def test_a_file_name_cannot_write_to_the_terminal(workspace: Path) -> None:
    """The command line shows names of artifacts as text: no escape code is sent, no newline forges a line."""
    source = r"open('x\x1b]0;owned\x07\nsandbox: forged', 'w')"
    command = [Path(sys.executable).parent / "sandbox", "run", "-w", workspace, "--image", IMAGES["default"]]
    said = subprocess.run(
        [*command, "--artifact", "*", "--", "python3", "-c", source], capture_output=True, timeout=60, check=False
    )
    assert said.returncode == 0
    assert b"\x1b" not in said.stderr
    assert not re.search(rb"(?m)^sandbox: forged", said.stderr)


async def test_long_paths_cost_the_provider_little_memory(provider: Provider) -> None:
    """What a command leaves is listed within 64 MiB: 3,000 files under 62 directories with long names took 140."""
    source = """
import os
for _ in range(62): os.mkdir("d" * 250); os.chdir("d" * 250)
for at in range(3000): open(f"{at:0250}", "w").close()
"""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    outcome = await provider.run(["python3", "-c", source], artifacts=["**"])
    assert 100 < len(outcome.artifacts) < 1000, outcome.stderr
    assert "characters together" in outcome.artifact_problems[0].detail
    grown = memory("VmHWM") - before
    await provider.run("rm -rf d*")
    assert grown < 64 * 2**20


def memory(name: str) -> int:
    return int(re.search(rf"(?m)^{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
