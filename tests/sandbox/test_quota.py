"""The workspace's quota, against commands that try to pass it."""

import asyncio
import json
import os
import subprocess

import pytest

from provider import Limits, Provider, State, quota

pytestmark = pytest.mark.docker

MINIMAL = "sandbox-provider/minimal"
MIB = 1024 * 1024
FEW = Limits(workspace_bytes=64 * MIB, workspace_files=2000)
PATIENT = 60


async def test_many_files_below_the_cap_of_one_are_stopped(workspace):
    """A command that writes file after file is ended while it writes, near its quota, with figures."""
    script = "i=0; while :; do head -c 4194304 /dev/zero > f$i; i=$((i+1)); done"
    async with Provider(workspace, image=MINIMAL, limits=FEW) as provider:
        outcome = await provider.run(script, timeout=PATIENT)
    assert (outcome.status, outcome.ending.reason) == (State.FAILED, "workspace_quota")
    assert outcome.ending.growth.counted == "tree"
    assert outcome.ending.growth.bytes > 64 * MIB
    written = sum(path.stat().st_blocks * 512 for path in workspace.iterdir())
    assert abs(outcome.ending.growth.bytes - written) <= 4 * MIB
    assert outcome.receipt["ending"]["growth"]["max_bytes"] == 64 * MIB


async def test_gvisor_is_watched_too(workspace, gvisor):
    """The tree is the host's, whoever's kernel wrote it."""
    script = "i=0; while :; do head -c 4194304 /dev/zero > f$i; i=$((i+1)); done"
    async with Provider(workspace, image=MINIMAL, limits=FEW, runtime=gvisor) as provider:
        outcome = await provider.run(script, timeout=PATIENT)
    assert outcome.ending.reason == "workspace_quota"
    assert outcome.ending.growth.bytes > 64 * MIB


async def test_empty_files_are_stopped(workspace):
    """Inodes are limited by themselves."""
    script = "i=0; while :; do mkdir d$i; : > d$i/f; i=$((i+1)); done"
    async with Provider(workspace, image=MINIMAL, limits=FEW) as provider:
        outcome = await provider.run(script, timeout=PATIENT)
    assert outcome.ending.reason == "workspace_quota"
    assert outcome.ending.growth.files > 2000
    assert outcome.ending.growth.bytes < 64 * MIB


async def test_one_that_is_faster_than_the_watch_has_failed(workspace, monkeypatch):
    """What a command wrote that exits with 0 before anybody looked is found at its end."""
    monkeypatch.setattr(quota, "LOOK_SECONDS", PATIENT)
    async with Provider(workspace, image=MINIMAL, limits=FEW) as provider:
        outcome = await provider.run("head -c 70000000 /dev/zero > big")
    assert (outcome.status, outcome.ending.reason, outcome.exit_code) == (State.FAILED, "workspace_quota", 0)
    assert outcome.ending.growth.bytes >= 70_000_000


async def test_space_cannot_be_taken_without_writing_it(workspace):
    """With fallocate a disk would be full before anybody looks; programs that ask libc for it get it by writing."""
    libc = "python3 -c 'import os; os.posix_fallocate(os.open(\"f\", os.O_CREAT | os.O_RDWR), 0, 1 << 20)'"
    async with Provider(workspace, image="sandbox-provider/default", limits=FEW) as provider:
        outcome = await provider.run(f"fallocate -l 1G g; fallocate -n -l 1G g; {libc} && stat -c %b f g")
    assert outcome.stdout.split() == [b"2048", b"0"]
    assert b"not supported" in outcome.stderr


@pytest.mark.parametrize("hiding", ["mkdir -p $(printf 'd/%.0s' $(seq 80)); cd $(printf 'd/%.0s' $(seq 80))"])
async def test_a_deep_tree_hides_nothing(workspace, hiding):
    """Deeper than anybody walks, bytes are counted by what the filesystem lost."""
    script = f"{hiding}; i=0; while :; do head -c 4194304 /dev/zero > f$i; i=$((i+1)); done"
    async with Provider(workspace, image=MINIMAL, limits=FEW) as provider:
        outcome = await provider.run(script, timeout=PATIENT)
    assert outcome.ending.reason == "workspace_quota"
    assert outcome.ending.growth.counted == "filesystem"


async def test_a_lease_is_ended_for_what_it_writes(workspace):
    """A process left behind has what is left of its command's quota, and no more."""
    script = "(sleep 0.5; i=0; while :; do head -c 4194304 /dev/zero > f$i; i=$((i+1)); done) & echo"
    async with Provider(workspace, image=MINIMAL, limits=FEW) as provider:
        outcome = await provider.run(script, background="keep", lease=PATIENT)
        ending = await asyncio.wait_for(provider.lease(outcome.lease).wait(), PATIENT)
    assert (ending.reason, ending.growth.bytes > 64 * MIB) == ("workspace_quota", True)


async def test_the_command_line_limits_and_tells(workspace):
    """One object has the figures, one line the reason."""
    words = [".venv/bin/sandbox", "run", "--image", MINIMAL, "-w", str(workspace), "--workspace-limit", "1m"]
    words += ["--workspace-files", "100", "-c", "head -c 3000000 /dev/zero > $(mktemp -p .)"]
    (status, told), (_, shown) = [await _output(*words[:2], *more, *words[2:]) for more in (["--json"], [])]
    assert status != 0
    assert json.loads(told)["workspace_quota"]["max_bytes"] == MIB
    assert json.loads(told)["status"] == "failed"
    assert b"sandbox: failed: " in shown
    assert b"no more than 1,048,576 bytes may be" in shown


async def _output(*words):
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = await process.communicate()
    return process.returncode, output


async def test_old_files_may_be_touched_and_rewritten(workspace):
    """More than the quota in files that were there before is no growth."""
    for number in range(20):
        old = workspace / f"old{number}"
        old.write_bytes(b"x" * 4 * MIB)
        os.chown(old, workspace.stat().st_uid, workspace.stat().st_gid)
    async with Provider(workspace, image=MINIMAL, limits=FEW) as provider:
        outcome = await provider.run("chmod 600 *; for f in *; do mv $f new-$f; done; sleep 0.3; touch *")
    assert outcome.succeeded


@pytest.fixture
def small_disk(workspace, unavailable):
    """A workspace that is a filesystem of its own, of 200 MiB."""
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200m,uid=1000,gid=1000", "tmpfs", workspace], check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("only root can mount a small filesystem")
    yield workspace
    subprocess.run(["umount", "-l", workspace], check=True)


async def test_deleted_files_that_are_held_open_are_stopped_before_the_disk_is_full(small_disk):
    """They are in no listing; in the filesystem's last tenth they are counted all the same; the space comes back."""
    script = "exec 3>x; rm x; while :; do head -c 1048576 /dev/zero >&3 || exit 9; sleep 0.01; done"
    async with Provider(small_disk, image=MINIMAL, limits=FEW) as provider:
        outcome = await provider.run(script, timeout=PATIENT)
        assert outcome.ending.reason == "workspace_quota"
        assert outcome.ending.growth.counted == "filesystem"
        await provider.settle()
    left = os.statvfs(small_disk)
    assert left.f_bfree > 0.99 * left.f_blocks
