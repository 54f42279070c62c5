"""The tier on gVisor's `runsc`, where the engine offers it: what holds as on runc, and what is refused instead."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from provider import Limits, PlanRejected, Provider, SandboxLost, Settings
from provider.engine import owner, wire
from provider.engine.owner import OWNER_LABEL, this_owner
from provider.engine.sentry import attest_sentry
from provider.plan import host_pids

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]
MINIMAL = "sandbox-provider/minimal"

TO_PID_1 = """
import ctypes, errno, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
information = ctypes.create_string_buffer(128)
for number in (signal.SIGKILL, signal.SIGSTOP):
    information[0] = bytes([number])
    for call in ((62, 1, number), (62, (1 << 32) | 1, number), (200, 1, number), (234, 1, 1, number), (434, 1, 0)):
        result = libc.syscall(*(ctypes.c_long(each) for each in call))
        print("sent" if result >= 0 else errno.errorcode[ctypes.get_errno()])
for word in (10, (1 << 32) | 10):
    result = libc.syscall(72, 0, ctypes.c_long(word), int(signal.SIGKILL))
    print("set" if result >= 0 else errno.errorcode[ctypes.get_errno()])
sys.exit(5)
"""
"""
kill, also with a bit that the kernel does not read, tkill, tgkill, pidfd_open; and fcntl, by which whoever owns a
descriptor would be sent a signal.
"""


@pytest.fixture
async def provider(workspace: Path, gvisor: str) -> AsyncIterator[Provider]:
    async with Provider(workspace, image=MINIMAL, runtime=gvisor, settings=Settings(spares=0)) as provider:
        yield provider


async def test_another_kernel_answers_and_all_three_witnesses_have_spoken(provider: Provider) -> None:
    """The command is in gVisor's kernel, and no witness was left out for it."""
    outcome = await provider.run("uname -r; grep Seccomp: /proc/self/status; grep CapBnd /proc/self/status")
    release, seccomp, capabilities = outcome.stdout.decode().splitlines()
    assert release != os.uname().release
    assert (seccomp.split()[-1], int(capabilities.split()[-1], 16)) == ("2", 0)
    assert outcome.container.runtime == "runsc"
    assert outcome.container.attested == ("engine", "init", "host")


async def test_limits_stand_on_the_cgroup_of_the_host(provider: Provider, engine_client: docker.APIClient) -> None:
    """Not only in what the engine says."""
    running = asyncio.create_task(provider.run("sleep 30"))
    try:
        async with asyncio.timeout(60):
            while not (found := engine_client.containers(filters={"label": f"{OWNER_LABEL}={this_owner()}"})):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            while not (pid := engine_client.inspect_container(found[0]["Id"])["State"]["Pid"]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        places = dict(line.split(":", 2)[1:] for line in lines)
        kind = "memory/memory.limit_in_bytes" if "memory" in places else "memory.max"
        place = Path("/sys/fs/cgroup", Path(kind).parent, places.get("memory", places.get("", "")).lstrip("/"))
        assert int((place / Path(kind).name).read_text()) == Limits().memory_bytes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_files_belong_to_the_owner_and_artifacts_come_back(provider: Provider, workspace: Path) -> None:
    """What a command writes is on the host when it has ended, as the owner's."""
    outcome = await provider.run("mkdir out; echo data > out/a", artifacts=["out/*"])
    assert [artifact.path for artifact in outcome.artifacts] == ["out/a"]
    assert (workspace / "out/a").read_text() == "data\n"
    assert (workspace / "out/a").stat().st_uid == workspace.stat().st_uid


async def test_a_read_only_workspace_stays_as_it_is(provider: Provider, workspace: Path) -> None:
    """And so does the root file system; that the attempts are not counted is told as unknown, not as none."""
    outcome = await provider.run(
        "touch x; touch /usr/x /etc/x; echo tried", read_only=True, user="0:0", watch_writes=True
    )
    assert outcome.stdout == b"tried\n"
    assert b"Read-only" in outcome.stderr
    assert list(workspace.iterdir()) == []
    assert outcome.ending.denied_writes is None


async def test_a_deadline_ends_those_who_ignore_it(provider: Provider) -> None:
    """Pid 1 keeps it there too."""
    began = time.monotonic()
    outcome = await provider.run("trap '' TERM; while :; do sleep 1; done", timeout=0.5)
    assert outcome.timed_out
    assert time.monotonic() - began < 30


async def test_a_fork_bomb_meets_the_commands_own_limit(provider: Provider) -> None:
    """The sandbox survives it, and the command hears of it as on runc."""
    few = replace(Limits(), pids=24)
    outcome = await provider.run("i=0; while [ $i -lt 64 ]; do sleep 9 & i=$((i+1)); done; echo all", limits=few)
    assert b"all" not in outcome.stdout
    assert b"can't fork" in outcome.stderr
    assert host_pids(few) < 256


async def test_out_of_memory_is_an_outcome(provider: Provider) -> None:
    """The whole sandbox dies of it, and it is told as the command's doing, not as the provider's failure."""
    outcome = await provider.run("tail /dev/zero", limits=replace(Limits(), memory_bytes=64 * 2**20))
    assert outcome.oom_killed
    assert outcome.signal == 9


async def test_a_sandbox_that_is_killed_from_outside_is_still_lost(
    provider: Provider, engine_client: docker.APIClient
) -> None:
    """Only what the engine tells as out of memory is an outcome."""
    started = asyncio.Event()
    running = asyncio.create_task(provider.run("echo here; sleep 60", on_stdout=lambda _: started.set()))
    await asyncio.wait_for(started.wait(), 60)
    (container,) = engine_client.containers(filters={"label": f"{OWNER_LABEL}={this_owner()}"})
    engine_client.kill(container["Id"])
    with pytest.raises(SandboxLost, match="fell silent"):
        await running


async def test_an_open_network_is_refused(provider: Provider) -> None:
    """There is none in the sandbox, so nobody is told that there is one."""
    with pytest.raises(PlanRejected, match="no network but loopback"):
        await provider.run("true", network="open")


async def test_set_id_bits_and_namespaces_are_refused_as_on_runc(provider: Provider, workspace: Path) -> None:
    """By the same profile, which gVisor ignores unless it is told otherwise."""
    outcome = await provider.run("touch f; chmod u+s f; chmod g+s f; mkdir -m 2755 d; unshare true; echo tried")
    assert outcome.stdout == b"tried\n"
    assert {path.stat().st_mode & 0o6000 for path in workspace.iterdir()} == {0}
    assert outcome.stderr.count(b"not permitted") >= 3


async def test_nobody_speaks_for_pid_1(provider: Provider, workspace: Path) -> None:
    """gVisor lets a command open pid 1's stdout; an ending written there is never told as one."""
    said = b"reason=exited\npid=2\nexit=0\nbackground=\noom=0\nuser_us=0\nsystem_us=0\nmax_rss_kb=0\n"
    (workspace / "forged").write_bytes(wire.frame(b"Z", said))
    with pytest.raises(SandboxLost, match="did not seal"):
        await provider.run("cat forged > /proc/1/fd/1; sleep 5; exit 7", timeout=20)


async def test_pid_1_cannot_be_killed_or_stopped(provider: Provider) -> None:
    """gVisor would deliver either; by whichever call, the filter refuses, that of a descriptor's owner too."""
    outcome = await provider.run(
        ["python3", "-c", TO_PID_1], image="sandbox-provider/default", env={"PYTHONUNBUFFERED": "1"}
    )
    assert outcome.exit_code == 5
    assert outcome.stdout.decode().split() == ["EPERM"] * 12


async def test_a_terminal_has_its_size_and_its_exit(provider: Provider) -> None:
    """From the container's own devpts."""
    shell = await provider.spawn(["sh", "-c", "stty size; tty; exit 3"], tty=(31, 97))
    said = b"".join([chunk.data async for chunk in shell.output()])
    assert said.split()[:3] == [b"31", b"97", b"/dev/pts/0"]
    assert (await shell.wait()).exit_code == 3


async def test_a_lease_keeps_what_was_left_behind_and_ends_it(provider: Provider) -> None:
    """Listed while it lives, gone when it is stopped."""
    outcome = await provider.run("sleep 100 & echo started", background="keep", lease=60, session="s")
    lease = provider.lease(outcome.lease)
    assert [process.command for process in await lease.processes()] == ["sleep 100"]
    await lease.stop()


async def test_what_cannot_be_proved_clean_is_not_used_again(provider: Provider) -> None:
    """The host cannot look into gVisor's memory, so with `reuse` each command has a container of its own."""
    outcomes = [await provider.run("ls /tmp; touch /tmp/left", reuse="scrub", session="s") for _ in range(2)]
    assert [outcome.stdout for outcome in outcomes] == [b"", b""]
    assert len({outcome.container.id for outcome in outcomes}) == 2


async def test_a_spare_serves_one_command(workspace: Path, gvisor: str) -> None:
    """It waits, attested, and answers sooner than a container that is made for the request."""
    async with Provider(workspace, image=MINIMAL, runtime=gvisor, settings=Settings()) as provider:
        await provider.prewarm(1)
        outcome = await provider.run(["echo", "hi"])
        assert (outcome.stdout, outcome.container.warm) == (b"hi\n", True)


async def test_nothing_outlives_a_provider_that_is_killed(
    workspace: Path, gvisor: str, engine_client: docker.APIClient
) -> None:
    """Pid 1's stdin ends there as on runc, and the container removes itself."""
    words = ["run", "-w", str(workspace), "--image", MINIMAL, "--runtime", gvisor, "-c", "echo here; sleep 100"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "provider", *words, stdout=asyncio.subprocess.PIPE, env={"PATH": os.environ["PATH"]}
    )
    assert process.stdout
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"here\n"
    owned = {"label": f"{OWNER_LABEL}={owner._owner(process.pid)}"}
    assert len(engine_client.containers(filters=owned)) == 1
    process.kill()
    await process.wait()
    async with asyncio.timeout(20):
        while engine_client.containers(all=True, filters=owned):  # noqa: ASYNC110 - the engine does not say
            await asyncio.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at gVisor's processes")
async def test_a_workspace_whose_name_leads_elsewhere_is_noticed(
    provider: Provider, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pid 1 sees numbers of gVisor's own, so it is the file server's mount that is compared."""
    seen = []

    def attest(box, container, pid):
        with pytest.raises(PlanRejected, match="not the directory that was validated"):
            attest_sentry(replace(box, workspace=replace(box.workspace, inode=tmp_path.stat().st_ino)), container, pid)
        attest_sentry(box, container, pid)
        seen.append(container)

    monkeypatch.setattr("provider.engine.attest.attest_sentry", attest)
    outcome = await provider.run("true")
    assert seen == [outcome.container.id]
