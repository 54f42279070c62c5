"""Whatever becomes of the host meanwhile: its clock, its disk, the workspace, the image."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faults.engine import MINIMAL, SecondEngine

import provider.lease as lease_module
from provider import CallError, ImageMissing, Provider, SandboxError

pytestmark = pytest.mark.docker

DAY = 86_400
Made = Callable[..., tuple[Provider, Any]]


@pytest.fixture
def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each look the time of day is another: a day later, a day earlier."""
    jumps = itertools.cycle([DAY, -DAY, 0])
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))

    class Jumping(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime.now(tz) + dt.timedelta(seconds=next(jumps))

    monkeypatch.setattr(lease_module, "dt", SimpleNamespace(datetime=Jumping, timedelta=dt.timedelta, UTC=dt.UTC))


@pytest.mark.usefixtures("jumping_clock")
async def test_the_time_of_day_decides_nothing(engine: SecondEngine, provider_on: Made):
    """With a clock that jumps by days, deadlines, leases and spares last as long as they should."""
    provider, _ = provider_on(spares=1)
    began = time.monotonic()
    late = await provider.run(["sleep", "60"], timeout=0.5)
    assert late.timed_out
    assert 400 <= late.duration_ms < 5_000
    kept = await provider.run("sleep 60 & echo up", background="keep", lease=1.0)
    lease = provider.lease(kept.lease)
    assert 0 < lease.seconds_left <= 1
    assert (await asyncio.wait_for(lease.wait(), 8)).reason == "timed_out"
    assert (await provider.run(["echo", "hi"], timeout=5)).stdout == b"hi\n"
    assert time.monotonic() - began < 20
    await provider.close()


async def test_no_room_for_the_spool(
    engine: SecondEngine, provider_on: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """With a full temporary folder a command still runs to its end; what is not kept is counted, hashed and flagged."""
    monkeypatch.setattr(tempfile, "tempdir", str(engine.small))
    provider, _ = provider_on()
    outcome = await provider.run("head -c 6000000 /dev/zero; echo done >&2")
    assert (outcome.exit_code, outcome.stderr, outcome.stdout_bytes) == (0, b"done\n", 6_000_000)
    assert outcome.stdout_truncated
    assert outcome.stdout == bytes(len(outcome.stdout))
    assert outcome.receipt["output"]["stdout"]["sha256"] == hashlib.sha256(bytes(6_000_000)).hexdigest()
    del outcome
    filler = engine.small / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(3 * 2**20))
    noted = await provider.run(["echo", "hi"], receipt=engine.small / "receipt.json")
    filler.unlink()
    assert noted.stdout == b"hi\n"
    assert any("receipt could not be written" in note for note in noted.notes)
    await provider.close()


async def test_a_workspace_that_goes_during_the_run(engine: SecondEngine, provider_on: Made, workspace: Path):
    """The command ends as it ends; what was to be collected is our error, and the next request says what is wrong."""
    provider, _ = provider_on(spares=1)

    def gone(_: bytes) -> None:
        shutil.rmtree(workspace)

    outcome = await provider.run("echo up; sleep 0.2; ls -a", on_stdout=gone_once(gone))
    assert outcome.stdout.startswith(b"up\n")
    workspace.mkdir()
    os.chown(workspace, 1000, 1000)
    with pytest.raises(SandboxError, match="workspace"):
        await provider.run("echo up; sleep 0.2", artifacts=["a"], on_stdout=gone_once(gone))
    with pytest.raises(CallError, match="existing directory"):
        await provider.run(["true"])
    workspace.mkdir()
    os.chown(workspace, 1000, 1000)
    assert (await provider.run("touch new; ls")).stdout == b"new\n"
    await provider.close()


def gone_once(act: Callable[[bytes], None]) -> Callable[[bytes], None]:
    left = [act]

    def listener(data: bytes) -> None:
        while left:
            left.pop()(data)

    return listener


async def test_an_image_that_goes_while_spares_wait(engine: SecondEngine, provider_on: Made):
    """A spare of an image that is no longer on the engine serves nobody; with the image back, it does."""
    provider, _ = provider_on(spares=1)
    other = "sandbox-faults/other"
    with engine.client() as client:
        client.tag(MINIMAL, other)
        await provider.prewarm(1, image=other)
        client.remove_image(other, force=True)
        with pytest.raises(ImageMissing, match=other):
            await provider.run(["true"], image=other)
        client.tag(MINIMAL, other)
        outcome = await provider.run(["echo", "hi"], image=other)
        client.remove_image(other, force=True)
    assert (outcome.stdout, outcome.container.warm) == (b"hi\n", True)
    await provider.close()
