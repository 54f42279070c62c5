"""Whatever becomes of the engine, at whatever step: a typed end in bounded time, nothing left, the next is served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults.engine import MINIMAL, SecondEngine
from faults.names import LONG
from faults.steps import SteppedEngine

import provider.engine.docker as docker_engine
import provider.stream as stream_module
from provider import DisposeFailed, Outcome, Provider, ProviderError, SandboxError
from provider.events import Event, StepFinished

pytestmark = [
    pytest.mark.docker,
    pytest.mark.filterwarnings("ignore:.*unclosed <socket:ResourceWarning"),  # the SDK's, where nobody listens
    pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE = 0.4
"""What the engine has for an answer once something was done to it."""
SECONDS = 8.0
"""In which a run has its end: three tries at a look-up with their pauses, or the deadline, grace and second line."""

FAULTS: dict[str, Callable[[SecondEngine], Any]] = {
    "killed": SecondEngine.kill,
    "paused": SecondEngine.pause,
    "restarted": lambda engine: (engine.kill(), engine.begin()),
    "without-containerd": SecondEngine.pause_containerd,
    "stopped": SecondEngine.stop,
    "full": SecondEngine.fill_disk,
}
STEPS = ("image", "create", "attach", "start", "attest", "run", "collect", "dispose")
MOMENTS = ("before", "during", "after")
QUICK = {"image", "attest"}
"""Steps that are over before anything can be done during them."""
LISTENED = {"run", "collect"}
"""Steps that are reached through a listener, so there is one moment."""
AFTER = {"collect", "dispose"}
"""Steps behind the command's ending: its outcome is not lost any more."""
SHORT = {
    "killed": STEPS,
    "paused": STEPS,
    "restarted": STEPS,
    "without-containerd": ("create", "start", "dispose"),
    "stopped": ("run",),
    "full": ("create", "start", "dispose"),
}

Made = Callable[..., tuple[Provider, SteppedEngine]]


def cases() -> Iterator[Any]:
    for fault in FAULTS:
        for step in STEPS if LONG else SHORT[fault]:
            for moment in MOMENTS if LONG and step not in LISTENED else ("before" if step in QUICK else "during",):
                yield pytest.param(fault, step, moment, id=f"{fault}-{moment}-{step}")


@pytest.mark.parametrize(("fault", "step", "moment"), list(cases()))
async def test_at_every_step(
    fault: str, step: str, moment: str, engine: SecondEngine, provider_on: Made, monkeypatch: pytest.MonkeyPatch
):
    """A run whose engine fails it ends in time with an outcome or one of our errors; the provider goes on as before."""
    monkeypatch.setattr(stream_module, "SECOND_LINE_SECONDS", 0.5)
    provider, stepped = provider_on()
    stepped.at(step, moment, lambda: FAULTS[fault](engine), patience=PATIENCE)
    began = time.monotonic()
    result = await outcome_of(provider, stepped, step)
    assert time.monotonic() - began < SECONDS
    await stepped.acted(SECONDS)
    assert result.receipt is not None
    if step in AFTER:
        assert isinstance(result, Outcome), repr(result)
        assert (result.exit_code, result.stdout, [item.path for item in result.artifacts]) == (0, b"up\ndown\n", ["a"])
    await healed(engine, stepped)
    assert (await provider.run(["echo", "next"])).stdout == b"next\n"
    async with asyncio.timeout(40):
        await provider.close()
    assert await asyncio.to_thread(engine.left_after, 3) == []


async def outcome_of(provider: Provider, stepped: SteppedEngine, step: str) -> Outcome | SandboxError:
    async def on_stdout(_: bytes) -> None:
        if step == "run":
            await stepped.act()

    async def on_event(event: Event) -> None:
        if step == "collect" and isinstance(event, StepFinished) and event.step == "run":
            await stepped.act()

    listeners = {} if step not in LISTENED else {"on_stdout": on_stdout, "on_event": on_event}
    if step in LISTENED:
        stepped._at = ("", "")
    try:
        return await provider.run("echo up | tee a; sleep 0.1; echo down", timeout=1.0, artifacts=["a"], **listeners)
    except SandboxError as error:
        return error


async def healed(engine: SecondEngine, stepped: SteppedEngine) -> None:
    await asyncio.to_thread(engine.heal)
    stepped.give(30)


@pytest.mark.parametrize("fault", ["killed", "paused", "restarted"])
async def test_spares_recover_by_themselves(fault: str, engine: SecondEngine, provider_on: Made):
    """Spares that went with their engine are dropped, and new ones made behind the next request."""
    provider, stepped = provider_on(spares=2)
    await provider.prewarm(2)
    await asyncio.to_thread(FAULTS[fault], engine)
    stepped.give(PATIENCE)
    if fault != "restarted":
        with pytest.raises(SandboxError):
            await asyncio.wait_for(provider.run(["true"]), SECONDS)
    await healed(engine, stepped)
    assert (await provider.run(["echo", "next"])).stdout == b"next\n"
    async with asyncio.timeout(20):
        while not (await provider.run(["sleep", "0.2"])).container.warm:
            pass
    await provider.close()
    assert await asyncio.to_thread(engine.left_after, 3) == []


@pytest.mark.parametrize("kind", ["lease", "recycled"])
async def test_what_lives_on_is_let_go_when_its_engine_dies(kind: str, engine: SecondEngine, provider_on: Made):
    """A lease is over, a sandbox kept for the session is replaced; neither holds anybody up."""
    provider, stepped = provider_on()
    options = {"background": "keep", "lease": 60.0} if kind == "lease" else {"reuse": "scrub"}
    first = await provider.run("sleep 60 & echo up" if kind == "lease" else "echo up", session="s", **options)
    assert first.stdout == b"up\n"
    await asyncio.to_thread(engine.kill)
    if kind == "lease":
        lease = provider.lease(first.lease)
        assert await lease.processes() == ()
        assert not provider.leases() or await asyncio.wait_for(lease.processes(), SECONDS) == ()
    await healed(engine, stepped)
    assert (await provider.run("echo next", session="s", **options)).stdout == b"next\n"
    async with asyncio.timeout(40):
        await provider.close()


async def test_a_full_disk_of_the_engine(engine: SecondEngine, provider_on: Made):
    """Spares serve all the same; without one there is an error that says what is wrong."""
    provider, _ = provider_on(spares=1)
    await provider.prewarm(1)
    await asyncio.to_thread(engine.fill_disk)
    assert (await provider.run(["echo", "warm"])).stdout == b"warm\n"
    with pytest.raises(SandboxError, match="no space left on device"):
        await asyncio.wait_for(provider.run(["true"]), SECONDS)
    await asyncio.to_thread(engine.empty_disk)
    await provider.close()


async def test_a_create_that_is_answered_too_late_leaves_nothing(engine: SecondEngine, provider_on: Made):
    """An engine that makes the container after we gave up on it does not keep it, also when nobody asks again."""
    provider, stepped = provider_on()
    await provider.run(["true"])
    stepped.at("create", "before", engine.pause, patience=PATIENCE)
    with pytest.raises(ProviderError):
        await asyncio.wait_for(provider.run(["true"]), SECONDS)
    closing = asyncio.ensure_future(provider.close())
    await asyncio.sleep(PATIENCE)
    await healed(engine, stepped)
    async with asyncio.timeout(40):
        await closing
    assert await asyncio.to_thread(engine.left_after, 1) == []


@pytest.mark.parametrize("fault", ["killed", "paused"])
async def test_closing_without_an_engine_ends(
    fault: str, engine: SecondEngine, provider_on: Made, monkeypatch: pytest.MonkeyPatch
):
    """A provider whose engine does not come back is closed in bounded time, and says what it may have left."""
    for name in ("_PATIENT_SECONDS", "_REMOVE_SECONDS", "_WAIT_SECONDS", "_DOUBT_SECONDS"):
        monkeypatch.setattr(docker_engine, name, PATIENCE)
    provider, stepped = provider_on(spares=1)
    await provider.prewarm(1)
    await asyncio.to_thread(FAULTS[fault], engine)
    stepped.give(PATIENCE)
    with pytest.raises(DisposeFailed, match="sandbox-"):
        await asyncio.wait_for(provider.close(), SECONDS)


async def test_an_image_that_goes_between_look_up_and_create(engine: SecondEngine, provider_on: Made):
    """It is not pulled, nor another taken: the run is refused."""
    provider, stepped = provider_on()
    stepped.at("image", "after", engine.unload, patience=30)
    with pytest.raises(SandboxError, match="No such image"):
        await provider.run(["true"])
    await asyncio.to_thread(engine.load)
    assert (await provider.run(["true"], image=MINIMAL)).exit_code == 0
    await provider.close()
