"""Spares of a real engine."""

import asyncio
import os
import shutil

import pytest

from provider import Provider, Settings
from provider.engine.owner import OWNER_LABEL, this_owner

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"


@pytest.fixture
async def provider(workspace):
    async with Provider(workspace, image=MINIMAL, settings=Settings()) as provider:
        yield provider


def waiting(client):
    return client.containers(filters={"label": f"{OWNER_LABEL}={this_owner()}"})


async def test_a_prewarmed_request_is_warm_attested_and_single_use(provider):
    """A spare serves as a fresh container does, with the same attestation, and its /tmp is nobody's."""
    await provider.prewarm(2)
    first = await provider.run("echo canary > /tmp/c; echo hi")
    second = await provider.run("ls /tmp ~ /run; echo $$")
    assert first.container.warm
    assert second.container.warm
    assert first.container.id != second.container.id
    assert first.container.attested == ("engine", "init", "host")
    assert b"c\n" not in second.stdout


async def test_a_spare_is_made_behind_a_cold_request(provider):
    """The first request is cold, the next is warm."""
    cold = await provider.run(["true"])
    async with asyncio.timeout(20):
        while not any(shelf.ready for shelf in provider._runner._pool._shelves.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    warm = await provider.run(["true"])
    assert (cold.container.warm, warm.container.warm) == (False, True)


async def test_a_replaced_workspace_is_not_served_by_an_old_spare(provider, workspace):
    """After rm and mkdir of the workspace, a command sees the new one."""
    await provider.prewarm()
    owner = workspace.stat()
    shutil.rmtree(workspace)
    workspace.mkdir()
    os.chown(workspace, owner.st_uid, owner.st_gid)
    (workspace / "new").touch()
    outcome = await provider.run(["ls"])
    assert outcome.stdout == b"new\n"


async def test_a_moved_tag_is_not_served_by_an_old_spare(workspace, engine_client):
    """When a name is given to another image, the next request runs in that one."""
    tag = "sandbox-provider-test/moved"
    engine_client.tag(MINIMAL, tag)
    try:
        async with Provider(workspace, image=tag, settings=Settings()) as provider:
            await provider.prewarm()
            engine_client.tag("sandbox-provider/default", tag)
            outcome = await provider.run(["bash", "-c", "echo $BASH_VERSION"])
            assert outcome.exit_code == 0
            assert not outcome.container.warm
    finally:
        engine_client.remove_image(tag)


async def test_a_spare_killed_from_outside_is_dropped(provider, engine_client):
    """A request whose spare was killed is served all the same."""
    await provider.prewarm()
    (spare,) = waiting(engine_client)
    await asyncio.to_thread(engine_client.kill, spare["Id"])
    await asyncio.to_thread(until_gone, engine_client, spare["Id"])
    outcome = await provider.run(["echo", "hi"])
    assert outcome.stdout == b"hi\n"


def until_gone(client, container):
    while any(found["Id"] == container for found in client.containers(all=True)):
        pass


async def test_idle_spares_go(workspace, engine_client):
    """A spare that nobody comes for is gone after its time."""
    async with Provider(workspace, image=MINIMAL, settings=Settings(spares_idle=0.2)) as provider:
        await provider.prewarm()
        (spare,) = waiting(engine_client)
        await asyncio.wait_for(asyncio.to_thread(until_gone, engine_client, spare["Id"]), 20)


async def test_leaving_the_provider_removes_the_spares(workspace, engine_client):
    """After the provider is left, no spare exists."""
    async with Provider(workspace, image=MINIMAL, settings=Settings()) as provider:
        await provider.prewarm(3)
        assert len(waiting(engine_client)) == 3
    assert waiting(engine_client) == []
