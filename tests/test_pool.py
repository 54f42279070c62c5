"""Spares: how many, for whom, for how long. Against an engine without containers."""

import asyncio
from dataclasses import replace

import pytest

from provider.engine import pool as pool_module
from provider.engine.pool import SPARE_BYTES, Pool, PoolLimits
from provider.errors import DisposeFailed, EngineUnavailable
from provider.testing import FakeEngine

LIMITS = PoolLimits(per_box=2, total=3, memory_bytes=10 * SPARE_BYTES, idle_seconds=60)


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(pool_module, "BREATH_SECONDS", 0.001)


@pytest.fixture
def box(planned):
    return planned().box


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def made(engine):
    return len(engine.sandboxes)


async def test_the_first_is_served_directly_and_a_spare_is_made_behind_it(box):
    """Nobody waits for a spare; the second request finds one."""
    engine = FakeEngine()
    pool = Pool(engine, LIMITS)
    first = await pool.open(box)
    assert made(engine) == 1
    assert not first.container.warm
    await until(lambda: made(engine) == 2)
    second = await pool.open(box)
    assert second is engine.sandboxes[1]
    assert second.container.warm
    await pool.close()


async def test_a_spare_serves_once(box):
    """No sandbox is handed out twice."""
    engine = FakeEngine()
    pool = Pool(engine, LIMITS)
    handed = []
    for _ in range(10):
        handed.append(await pool.open(box))
        await asyncio.sleep(0.003)
    assert len(set(map(id, handed))) == 10
    await pool.close()


async def test_the_number_follows_demand_up_to_its_limit(box):
    """One request wants one spare, many want as many as the limit allows."""
    engine = FakeEngine()
    pool = Pool(engine, LIMITS)
    await pool.open(box)
    await until(lambda: made(engine) == 2)
    await asyncio.gather(*(pool.open(box) for _ in range(6)))
    await until(lambda: sum(shelf.spares for shelf in pool._shelves.values()) == 2)
    await asyncio.sleep(0.01)
    assert len(pool._shelves[box].ready) == 2
    await pool.close()


async def test_another_box_is_another_shelf(box):
    """Whatever differs in the box, another inode say, is never served by the spare of this one."""
    engine = FakeEngine()
    pool = Pool(engine, LIMITS)
    await pool.prewarm(box, 1)
    moved = replace(box, workspace=replace(box.workspace, inode=box.workspace.inode + 1))
    other = await pool.open(moved)
    assert other.box == moved
    assert not other.container.warm
    await pool.close()


async def test_a_dead_spare_is_dropped_and_the_request_goes_on(box):
    """What died while it waited is disposed of; the request is served by another."""
    engine = FakeEngine()
    pool = Pool(engine, LIMITS)
    await pool.prewarm(box, 2)
    engine.sandboxes[0].terminate("canceled")
    assert await pool.open(box) is engine.sandboxes[1]
    await pool.close()
    assert engine.sandboxes[0].disposals == 1


async def test_the_box_asked_for_longest_ago_gives_way(planned):
    """Past the total, a new box takes the place of the oldest."""
    engine = FakeEngine()
    pool = Pool(engine, LIMITS)
    boxes = [planned(network=network, seccomp=tier).box for network in ("none", "open") for tier in ("default", "unix")]
    for box in boxes:
        await pool.prewarm(box, 1)
    assert [len(pool._shelves[box].ready) for box in boxes] == [0, 1, 1, 1]
    await pool.close()


async def test_memory_is_a_limit_of_its_own(box):
    """However high the count may be, no more spares than their memory allows."""
    pool = Pool(FakeEngine(), replace(LIMITS, per_box=9, total=9, memory_bytes=2 * SPARE_BYTES))
    await pool.prewarm(box, 9)
    assert len(pool._shelves[box].ready) == 2
    await pool.close()


async def test_an_idle_spare_expires(box):
    """A spare that nobody comes for is disposed of, and its shelf is forgotten."""
    engine = FakeEngine()
    pool = Pool(engine, replace(LIMITS, idle_seconds=0.01))
    await pool.prewarm(box, 1)
    await until(lambda: engine.sandboxes[0].disposals == 1)
    assert pool._shelves == {}
    await pool.close()


async def test_no_spares_is_no_pool(box):
    """With a limit of 0 every request is served directly and nothing is made ahead."""
    engine = FakeEngine()
    pool = Pool(engine, replace(LIMITS, per_box=0))
    await pool.open(box)
    await pool.close()
    assert made(engine) == 1


async def test_closing_disposes_of_spares_also_of_those_in_the_making(box):
    """After close, whatever was made and not handed out is gone."""
    gate = asyncio.Event()
    engine = FakeEngine(open_gate=gate)
    pool = Pool(engine, LIMITS)
    making = asyncio.ensure_future(pool.prewarm(box, 2))
    await engine.opening.wait()
    closing = asyncio.ensure_future(pool.close())
    await asyncio.sleep(0)
    gate.set()
    await making
    await closing
    assert [sandbox.disposals for sandbox in engine.sandboxes] == [1, 1]
    assert engine.closed


async def test_a_spare_that_cannot_be_made_harms_nobody(box):
    """The failure is the background's; the request that caused it has its sandbox."""

    class Fails(FakeEngine):
        async def open(self, box):
            if self.sandboxes:
                raise EngineUnavailable("no")
            return await super().open(box)

    engine = Fails()
    pool = Pool(engine, LIMITS)
    assert await pool.open(box) is engine.sandboxes[0]
    await pool.close()


async def test_prewarming_tells_what_went_wrong(box):
    """Whoever asks for spares is told when there can be none."""
    pool = Pool(FakeEngine(open_error=EngineUnavailable("no")), LIMITS)
    with pytest.raises(EngineUnavailable):
        await pool.prewarm(box, 1)
    await pool.close()


async def test_a_spare_that_may_be_left_surfaces_at_close(box):
    """What could not be removed is not passed over in silence."""
    pool = Pool(FakeEngine(dispose_error=DisposeFailed("left")), LIMITS)
    await pool.prewarm(box, 1)
    with pytest.raises(DisposeFailed, match="left"):
        await pool.close()
