"""
Every attack of the table, against a provider. By default that is ours, on each runtime that the engine offers;
ATTACKS_ENGINE=module:function scores another `Engine`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from attacks import gvisor
from attacks.canaries import Canaries
from attacks.case import Attack, Runs, Seen
from attacks.host import digests
from attacks.names import IMAGES
from attacks.range import Range, attempt
from attacks.table import ATTACKS

from provider import Provider, Settings
from provider.gvisor import GVISOR

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

AT_ONCE = 3


def provider_under_attack(workspace: Path, runtime: str) -> Provider:
    engine = None
    if named := os.environ.get("ATTACKS_ENGINE"):
        module, _, function = named.partition(":")
        engine = getattr(importlib.import_module(module), function)()
    return Provider(workspace, runtime=runtime, settings=Settings(spares=0), engine=engine)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacked(
    runtime: str,
    canaries: Canaries,
    watched: tuple[Path, ...],
    compiled: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
    no_container_is_left: None,
) -> AsyncIterator[Range]:
    folder = tmp_path_factory.mktemp("attacks")
    before = digests(watched)
    async with (
        provider_under_attack(canaries.tenant, runtime) as neighbour,
        provider_under_attack(canaries.tenant, runtime) as provider,
        tenant_at_work(neighbour, canaries),
    ):
        yield Range(
            provider=provider,
            neighbour=neighbour,
            canaries=canaries,
            watched=watched,
            compiled=compiled,
            folder=folder,
        )
    # A tree of any depth, unlike shutil's.
    await asyncio.to_thread(subprocess.run, ["rm", "-rf", folder], check=True, timeout=120)
    assert digests(watched) == before, "a program of the host was changed"


@contextlib.asynccontextmanager
async def tenant_at_work(provider: Runs, canaries: Canaries) -> AsyncIterator[None]:
    """A second tenant, whose sandbox runs all the while and holds its secrets in every place that there is."""
    over, ready = asyncio.Event(), asyncio.Event()

    async def stdin() -> AsyncIterator[bytes]:
        await over.wait()
        yield b"\n"

    async def begun(_: bytes) -> None:
        ready.set()

    text = f"echo {canaries.token('tenant')} | tee /tmp/s /dev/shm/s ~/s >/dev/null; echo ready; read _ # "
    run = asyncio.ensure_future(
        provider.run(
            text + canaries.token("tenant"),
            image=IMAGES["minimal"],
            env={"TENANT": canaries.token("tenant")},
            stdin=stdin(),
            on_stdout=begun,
        )
    )
    try:
        await asyncio.wait_for(ready.wait(), 60)
        yield
        assert not run.done(), "the other tenant's command did not survive"
    finally:
        over.set()
        outcome = await run
    assert outcome.exit_code == 0


def same_run(attack: Attack, user: str) -> tuple[object, ...]:
    """Equal for attacks that one run can serve: those with the same input, and nothing else to them."""
    if attack.artifacts or attack.wishes or attack.beside:
        return attack.id, user
    return id(attack.input), user, attack.tier, attack.network, attack.limits, attack.canaries


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attempts(attacked: Range, request: pytest.FixtureRequest) -> dict[tuple[object, ...], Seen | Exception]:
    """What came of every attack that was selected: a few at a time, then one by one those that have to be alone."""
    selected = [
        item.callspec.params for item in request.session.items if "attempts" in getattr(item, "fixturenames", ())
    ]
    wanted = {same_run(made["attack"], made["user"]): (made["attack"], made["user"]) for made in selected}
    found: dict[tuple[object, ...], Seen | Exception] = {}
    slots = asyncio.Semaphore(AT_ONCE)

    async def make(key: tuple[object, ...]) -> None:
        async with slots:
            try:
                found[key] = await attempt(attacked, *wanted[key])
            except Exception as error:  # noqa: BLE001 - told by the test of that attack
                found[key] = error

    alone = {key for key, (attack, _) in wanted.items() if attack.alone}
    await asyncio.gather(*(make(key) for key in wanted if key not in alone))
    for key in alone:
        await make(key)
    return found


@pytest.mark.parametrize(
    ("attack", "user"),
    [
        pytest.param(attack, user, id=f"{attack.id}-{user}" if user else attack.id, marks=pytest.mark.attack(attack.id))
        for attack in ATTACKS
        for user in attack.users
    ],
)
async def test_attack(
    attempts: dict[tuple[object, ...], Seen | Exception], attack: Attack, user: str, runtime: str
) -> None:
    """The attack's own promise holds, and so do the laws; on gVisor the laws at least, where `gvisor.py` says so."""
    seen = attempts[same_run(attack, user)]
    if isinstance(seen, Exception):
        raise seen
    assert seen.broken == ()
    if runtime == GVISOR and attack.id in gvisor.NOT_TRIED:
        pytest.skip(gvisor.NOT_TRIED[attack.id])
    try:
        for judge in attack.judge:
            judge(replace(seen, attack=attack))
    except AssertionError:
        if runtime == GVISOR and attack.id in gvisor.NOT_HELD:
            pytest.xfail(gvisor.NOT_HELD[attack.id])
        raise
    assert runtime != GVISOR or attack.id not in gvisor.NOT_HELD, "it holds; strike it off in gvisor.py"
