"""
What is known not to hold. Not collected but with ATTACKS=holes: a suite that is red tells nobody anything new.

Each of these was found by this suite, fails today, and says in its docstring what should hold. When one passes, it
belongs among the others: in `cases/`, or beside what mends it. None can harm the machine: whatever is started ends by
itself within seconds.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest
from attacks.names import IMAGES, OWNER

from provider import Provider, Settings

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]


@pytest.fixture
async def provider(workspace: Path, runtime: str, no_container_is_left: None) -> AsyncIterator[Provider]:
    async with Provider(workspace, image=IMAGES["default"], runtime=runtime, settings=Settings(spares=0)) as own:
        yield own


class Held:
    """A command that runs until it is let go, once it has said something."""

    def __init__(self, provider: Provider, source: str, **wishes: object) -> None:
        self._over, self._said = asyncio.Event(), asyncio.Event()
        self.said = b""
        self._run = asyncio.ensure_future(
            provider.run(["python3", "-c", source], stdin=self._stdin(), on_stdout=self._hear, **wishes)
        )

    async def _stdin(self) -> AsyncIterator[bytes]:
        await self._over.wait()
        yield b"\n"

    async def _hear(self, data: bytes) -> None:
        self.said += data
        self._said.set()

    async def __aenter__(self) -> Self:
        await asyncio.wait_for(self._said.wait(), 60)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._run


async def test_one_sandbox_cannot_take_all_terminals(provider: Provider) -> None:
    """
    Another request gets a terminal.

    All devpts instances share `kernel.pty.max` less the host's reserve, 3,072 here; one sandbox may have 4,096 files
    open, and so may each of its processes.
    """
    source = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
try:
    for at in range(4000): os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
except OSError as error:
    print(at, error, flush=True)
print("held", flush=True)
sys.stdin.read()
"""
    async with Held(provider, source):
        outcome = await provider.run("tty", tty=(24, 80))
    assert outcome.error is None
    assert outcome.exit_code == 0


async def test_one_sandbox_cannot_take_all_of_its_users_inotify(provider: Provider) -> None:
    """
    The owner of the workspace, and whoever else has that uid in a sandbox, can still watch files.

    The kernel counts inotify instances (128), watches, pipe pages and pending signals by uid over the whole machine.
    """
    source = """
import ctypes, sys
libc = ctypes.CDLL(None)
count = 0
while libc.inotify_init() >= 0: count += 1
print(count, flush=True)
sys.stdin.read()
"""
    async with Held(provider, source):
        other = await provider.run(["python3", "-c", "import ctypes; print(ctypes.CDLL(None).inotify_init())"])
        ask = f"import ctypes, os; os.geteuid() or (os.setgid({OWNER}), os.setuid({OWNER}));"
        ask += " raise SystemExit(ctypes.CDLL(None).inotify_init() < 0)"
        host = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", ask], timeout=20, check=False)
    assert int(other.stdout) >= 0
    assert host.returncode == 0


async def test_uid_0_writes_nowhere_but_in_its_own_places(provider: Provider, workspace: Path) -> None:
    """The root is read-only for uid 0 as well: it can put programs into /dev, 64 MiB of them, and remove /dev/null."""
    workspace.chmod(0o777)
    outcome = await provider.run(
        "cp /bin/true /dev/x && /dev/x && echo BREACH; rm /dev/null && echo BREACH", user="0:0"
    )
    assert outcome.stdout == b""


async def test_tenants_with_the_open_network_do_not_reach_each_other(provider: Provider) -> None:
    """A server of one sandbox is not to be reached from another: all open ones are on one bridge."""
    source = """
import socket, sys, threading
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.connect(("1.1.1.1", 53))
server = socket.create_server(("0.0.0.0", 8000))
print(probe.getsockname()[0], flush=True)
threading.Thread(target=lambda: server.accept()[0].sendall(b"secret"), daemon=True).start()
sys.stdin.read()
"""
    async with Held(provider, source, network="open") as server:
        dial = "import socket, sys; print(socket.create_connection((sys.argv[1], 8000), 5).recv(9))"
        outcome = await provider.run(["python3", "-c", dial, server.said.decode().strip()], network="open", timeout=20)
    assert b"secret" not in outcome.stdout
