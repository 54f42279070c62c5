"""Nothing is left behind, not after a run, not after a crash of the provider; and what is another's stays."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import docker.errors
import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from provider import Provider, run_sync
from provider.engine.owner import OWNER_LABEL, this_owner

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"
DEFAULT = "sandbox-provider/default"

VICTIM = """
import sys
from provider import run_sync
up = lambda _: print("up", flush=True)
run_sync("echo started; sleep 300", sys.argv[1], image="sandbox-provider/minimal", on_stdout=up)
"""


def ours(client, owner=None):
    wanted = f"{OWNER_LABEL}={owner}" if owner else OWNER_LABEL
    return client.containers(all=True, filters={"label": wanted})


def gone_within(seconds, client, owner):
    deadline = time.monotonic() + seconds
    while ours(client, owner):
        if time.monotonic() > deadline:
            return False
    return True


def test_no_container_is_left_after_a_run(workspace, engine_client):
    """When run_sync returns, its container does not exist any more."""
    run_sync(["true"], workspace, image=MINIMAL)
    assert ours(engine_client, this_owner()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_provider_leaves_nothing(workspace, engine_client, number):
    """After kill -9 of the provider its container is gone within 2 s, though nobody cleans up."""
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(workspace)], stdout=subprocess.PIPE)
    with victim:
        assert victim.stdout.readline() == b"up\n"
        (container,) = [c for c in ours(engine_client) if f"/{victim.pid}/" in c["Labels"][OWNER_LABEL]]
        victim.send_signal(number)
    assert gone_within(2, engine_client, container["Labels"][OWNER_LABEL])


def test_prune_removes_what_the_dead_left_and_nothing_of_the_living(workspace, engine_client):
    """A container of a dead owner goes; one of a living owner, and one of nobody we know, stay."""
    boot, namespace, _, _ = this_owner().split("/")
    made = {
        name: engine_client.create_container(MINIMAL, ["sleep", "60"], labels={OWNER_LABEL: owner})["Id"]
        for name, owner in {
            "dead": f"{boot}/{namespace}/4194300/1",
            "reused": f"{boot}/{namespace}/{os.getpid()}/1",
            "living": this_owner(),
            "elsewhere": f"another-boot/{namespace}/4194300/1",
        }.items()
    }
    try:
        result = subprocess.run([sys.executable, "-m", "provider", "prune"], capture_output=True, text=True, check=True)
        assert set(result.stdout.split()) == {made["dead"], made["reused"]}
        left = {container["Id"] for container in ours(engine_client)}
        assert left & set(made.values()) == {made["living"], made["elsewhere"]}
    finally:
        for container in made.values():
            with contextlib.suppress(docker.errors.NotFound):
                engine_client.remove_container(container, force=True, v=True)


def test_the_next_provider_tidies_up_after_one_killed_before_the_start(workspace, engine_client):
    """A container that was created and never started, by an owner that is dead, goes with the next run."""
    boot, namespace, _, _ = this_owner().split("/")
    labels = {OWNER_LABEL: f"{boot}/{namespace}/4194300/1"}
    left = engine_client.create_container(MINIMAL, ["true"], labels=labels)["Id"]
    run_sync(["true"], workspace, image=MINIMAL)
    assert left not in {container["Id"] for container in ours(engine_client)}


async def test_leaving_the_provider_ends_what_still_runs(workspace, engine_client):
    """Runs under way when the provider is left end as canceled, and their containers are gone."""
    started = asyncio.Event()

    async def on_stdout(_):
        started.set()

    async with Provider(workspace, image=MINIMAL) as provider:
        task = asyncio.ensure_future(provider.run("echo; sleep 300", on_stdout=on_stdout))
        await started.wait()
    assert (await task).status == "canceled"
    assert ours(engine_client, this_owner()) == []


async def test_a_cancel_at_any_moment_of_the_start_leaves_nothing(workspace, engine_client):
    """Cancelled while its container is made, attached or started, a run leaves no container."""
    async with Provider(workspace, image=MINIMAL) as provider:
        for step in range(12):
            task = asyncio.ensure_future(provider.run(["sleep", "300"]))
            await asyncio.sleep(0.02 * step)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert ours(engine_client, this_owner()) == []


async def test_many_runs_leave_no_descriptors(workspace):
    """Descriptors and threads do not grow with the number of runs."""
    async with Provider(workspace, image=MINIMAL) as provider:
        counts = []
        for _ in range(3):
            await asyncio.gather(*(provider.run("echo x; head -c 2000000 /dev/zero") for _ in range(6)))
            counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0] + 4
    assert len(os.listdir("/proc/self/fd")) < counts[0]


def test_a_receipt_is_written_in_one_move(workspace, tmp_path):
    """The receipt in the file is the one of the outcome, and beside it lies nothing half-written."""
    path = tmp_path / "receipts" / "r.json"
    path.parent.mkdir()
    outcome = run_sync("echo hi > a", workspace, image=MINIMAL, artifacts=["a"], receipt=path)
    written = json.loads(path.read_bytes())
    assert written == json.loads(json.dumps(outcome.receipt))
    assert written["artifacts"][0]["sha256"] == outcome.artifacts[0].sha256
    assert written["plan"]["image"]["id"] == outcome.container.image_id
    assert os.listdir(path.parent) == ["r.json"]


def test_a_symlink_to_a_host_file_is_reported_and_not_read(workspace, tmp_path):
    """A command cannot have a host file hashed for it."""
    secret = tmp_path / "secret"
    secret.write_text("canary")
    outcome = run_sync(
        f"ln -s {secret} link; echo x > real", workspace, image=MINIMAL, artifacts=["link", "real", "gone"]
    )
    assert [artifact.path for artifact in outcome.artifacts] == ["real"]
    assert {(p.path, p.problem) for p in outcome.artifact_problems} == {("link", "symlink"), ("gone", "missing")}


def test_the_open_network_reaches_a_neighbour_and_none_does_not(workspace, monkeypatch):
    """With network open a server on the bridge answers; with none the same address is unreachable."""
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    serve = "mkdir /tmp/w; echo neighbour > /tmp/w/page; cd /tmp/w; exec python3 -m http.server 80"
    server = DockerContainer(DEFAULT).with_command(["sh", "-c", serve])
    with server:
        inspected = server.get_wrapped_container()
        inspected.reload()
        address = inspected.attrs["NetworkSettings"]["IPAddress"]
        fetch = ["curl", "-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", f"http://{address}/page"]
        assert run_sync(fetch, workspace, network="open", timeout=30).stdout == b"neighbour\n"
        closed = run_sync(fetch, workspace, network="none", timeout=30)
        assert (closed.stdout, closed.exit_code) == (b"", 7)
