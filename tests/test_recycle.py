"""What `provider.engine.recycle` promises: clean or gone, for one session alone, and nothing is ever left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from provider.engine.recycle import Recycler
from provider.errors import DisposeFailed, EngineUnavailable
from provider.model import BoxPlan, ExecPlan, Plan
from provider.testing import COMPLETES, FakeSandbox

Served = Callable[..., FakeSandbox]


class Gated(FakeSandbox):
    """One whose scrub takes as long as the test wants."""

    def __init__(self, box: BoxPlan) -> None:
        super().__init__(box, COMPLETES, deaf=False, dispose_error=None)
        self.gate = asyncio.Event()
        self.renewing = asyncio.Event()

    async def renew(self) -> None:
        self.renewing.set()
        await self.gate.wait()
        await super().renew()


@pytest.fixture
def plan(planned: Callable[..., Plan]) -> Plan:
    return planned(reuse="scrub")


@pytest.fixture
def box(plan: Plan) -> BoxPlan:
    return plan.box


@pytest.fixture
def execution(plan: Plan) -> ExecPlan:
    return plan.exec


@pytest.fixture
def served(box: BoxPlan, execution: ExecPlan) -> Served:
    """Makes a sandbox whose command has ended."""

    def make(*, dispose_error: DisposeFailed | None = None) -> FakeSandbox:
        sandbox = FakeSandbox(box, COMPLETES, deaf=False, dispose_error=dispose_error)
        sandbox.released = execution
        return sandbox

    return make


@pytest.fixture
def gated(box: BoxPlan, execution: ExecPlan) -> Gated:
    sandbox = Gated(box)
    sandbox.released = execution
    return sandbox


@pytest.fixture
async def recycler() -> AsyncIterator[Recycler]:
    recycler = Recycler(most=3, idle_seconds=60)
    yield recycler
    async with asyncio.timeout(5):
        await recycler.close()
    assert recycler._background._tasks == set()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


# Taking.


async def test_one_that_is_proved_clean_serves_again(recycler: Recycler, box: BoxPlan, served: Served):
    """The session's next command gets it, as good as new, and it is not handed out a second time meanwhile."""
    sandbox = served()
    recycler.give_back(box, "s", sandbox)
    assert await recycler.take(box, "s") is sandbox
    assert (sandbox.released, sandbox.container.served, sandbox.disposals) == (None, 1, 0)
    assert await recycler.take(box, "s") is None
    await sandbox.dispose()


async def test_where_there_is_none_there_is_none(recycler: Recycler, box: BoxPlan):
    """The first command of a session waits for nothing, and nothing is remembered of it."""
    assert await recycler.take(box, "s") is None
    assert recycler._shelves == {}


async def test_two_sessions_never_share(recycler: Recycler, box: BoxPlan, served: Served):
    """Whatever they are called, one session's sandbox never serves another."""
    sandbox = served()
    recycler.give_back(box, "a", sandbox)
    for other in ("b", "", "A", "a "):
        assert await recycler.take(box, other) is None
    assert await recycler.take(box, "a") is sandbox
    await sandbox.dispose()


async def test_another_box_is_another_sandbox(recycler: Recycler, box: BoxPlan, served: Served):
    """A swapped workspace, an image's new content, a limit: none of them is served by what was made for another."""
    recycler.give_back(box, "s", served())
    others = [
        replace(box, workspace=replace(box.workspace, inode=box.workspace.inode + 1)),
        replace(box, image=replace(box.image, id="sha256:" + "b" * 64)),
        replace(box, limits=replace(box.limits, pids=3)),
        replace(box, network="open"),
    ]
    assert [await recycler.take(other, "s") for other in others] == [None] * 4


async def test_one_in_work_is_waited_for(recycler: Recycler, box: BoxPlan, gated: Gated):
    """The command that comes a moment too early gets the sandbox, not another."""
    recycler.give_back(box, "s", gated)
    taking = asyncio.ensure_future(recycler.take(box, "s"))
    await gated.renewing.wait()
    assert not taking.done()
    gated.gate.set()
    assert await asyncio.wait_for(taking, 5) is gated
    await gated.dispose()


async def test_a_scrub_that_takes_long_holds_nobody_up(recycler: Recycler, box: BoxPlan, gated: Gated):
    """What the last command left behind may be slow to clear away; the next one does not wait for that."""
    recycler.give_back(box, "s", gated)
    assert await asyncio.wait_for(recycler.take(box, "s"), 5) is None
    gated.gate.set()
    await until(lambda: gated.container.served)
    assert await recycler.take(box, "s") is gated
    await gated.dispose()


async def test_many_takers_get_one_each(recycler: Recycler, box: BoxPlan, served: Served):
    """Of five that wait for three, three get one, all different, and two get none."""
    sandboxes = [served() for _ in range(3)]
    for sandbox in sandboxes:
        recycler.give_back(box, "s", sandbox)
    taken = await asyncio.wait_for(asyncio.gather(*(recycler.take(box, "s") for _ in range(5))), 5)
    assert {id(sandbox) for sandbox in taken if sandbox} == {id(sandbox) for sandbox in sandboxes}
    assert taken.count(None) == 2
    for sandbox in sandboxes:
        await sandbox.dispose()


async def test_a_taker_that_gives_up_loses_nothing(recycler: Recycler, box: BoxPlan, gated: Gated):
    """A canceled run leaves the sandbox that it waited for to the next one."""
    recycler.give_back(box, "s", gated)
    for turn in range(3):  # at any moment, also at the one at which it would have been handed over
        taking = asyncio.ensure_future(recycler.take(box, "s"))
        await gated.renewing.wait()
        if turn:
            gated.gate.set()
        for _ in range(turn):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait({taking})
        if not taking.cancelled():  # it had it already
            assert taking.result() is gated
            gated.released = replace(gated.released or EXECUTION, reuse="scrub")
            recycler.give_back(box, "s", gated)
    assert await asyncio.wait_for(recycler.take(box, "s"), 5) is gated
    await gated.dispose()


EXECUTION = ExecPlan(
    argv=("x",), env=(), cwd="/workspace", timeout=None, grace=0, tty=None, artifacts=(), reuse="scrub"
)


async def test_a_dead_one_is_disposed_of(recycler: Recycler, box: BoxPlan, served: Served):
    """What died while it waited is never handed out; another that lives is."""
    living, dead = served(), served()
    recycler.give_back(box, "s", living)
    recycler.give_back(box, "s", dead)
    await until(lambda: dead.container.served and living.container.served)
    dead.terminate("canceled")
    assert await recycler.take(box, "s") is living
    await until(lambda: dead.disposals == 1)
    await living.dispose()


# Not clean.


async def test_one_that_is_not_clean_is_disposed_of_and_nobody_hears_of_it(
    recycler: Recycler, box: BoxPlan, served: Served
):
    """Whoever waits for it gets none, and no shelf is kept for it."""
    sandbox = served()
    sandbox.unclean = "a process is left"
    recycler.give_back(box, "s", sandbox)
    assert await asyncio.wait_for(recycler.take(box, "s"), 5) is None
    await until(lambda: sandbox.disposals == 1)
    await until(lambda: not recycler._shelves)


async def test_silence_is_not_clean(recycler: Recycler, box: BoxPlan, gated: Gated, monkeypatch: pytest.MonkeyPatch):
    """An engine that does not answer has proved nothing."""

    async def no_answer() -> None:
        raise EngineUnavailable("no answer")

    monkeypatch.setattr(gated, "renew", no_answer)
    recycler.give_back(box, "s", gated)
    await until(lambda: gated.disposals == 1)
    assert await recycler.take(box, "s") is None


async def test_a_fault_of_our_own_leaves_no_sandbox(box: BoxPlan, gated: Gated, monkeypatch: pytest.MonkeyPatch):
    """Also when proving fails in a way that nobody thought of, the sandbox is disposed of, and the fault is shown."""
    shown: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: shown.append(context["exception"]))

    async def break_down() -> None:
        raise KeyError

    monkeypatch.setattr(gated, "renew", break_down)
    recycler = Recycler(most=3, idle_seconds=60)
    recycler.give_back(box, "s", gated)
    await until(lambda: gated.disposals == 1)
    await recycler.close()
    assert [type(error) for error in shown] == [KeyError]


async def test_one_that_may_be_left_surfaces_at_close(box: BoxPlan, served: Served):
    """What could not be removed is not passed over in silence."""
    recycler = Recycler(most=3, idle_seconds=60)
    recycler.give_back(box, "s", served(dispose_error=DisposeFailed("left")))
    with pytest.raises(DisposeFailed, match="left"):
        await recycler.close()


# Limits.


async def test_no_more_wait_than_may(recycler: Recycler, box: BoxPlan, served: Served):
    """Over all sessions together; those past it are disposed of."""
    sandboxes = [served() for _ in range(5)]
    for at, sandbox in enumerate(sandboxes):
        recycler.give_back(box, f"session {at}", sandbox)
    await until(lambda: sum(sandbox.disposals for sandbox in sandboxes) == 2)
    assert sum(len(shelf.clean) for shelf in recycler._shelves.values()) == 3


async def test_none_wait_where_none_may(box: BoxPlan, served: Served):
    """With a limit of 0 nothing is ever reused."""
    recycler = Recycler(most=0, idle_seconds=60)
    sandbox = served()
    recycler.give_back(box, "s", sandbox)
    assert await recycler.take(box, "s") is None
    await recycler.close()
    assert sandbox.disposals == 1


async def test_an_idle_one_expires(box: BoxPlan, served: Served):
    """One that nobody comes for is disposed of once, and its shelf is forgotten."""
    recycler = Recycler(most=3, idle_seconds=0.01)
    sandboxes = [served(), served()]
    for sandbox in sandboxes:
        recycler.give_back(box, "s", sandbox)
    await until(lambda: all(sandbox.disposals for sandbox in sandboxes))
    assert recycler._shelves == {}
    assert await recycler.take(box, "s") is None
    await recycler.close()
    assert [sandbox.disposals for sandbox in sandboxes] == [1, 1]


async def test_one_that_was_taken_does_not_expire(box: BoxPlan, served: Served):
    """The clock of the shelf is stopped when the sandbox leaves it."""
    shown: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: shown.append(context))
    recycler = Recycler(most=3, idle_seconds=0.01)
    sandbox = served()
    recycler.give_back(box, "s", sandbox)
    assert await recycler.take(box, "s") is sandbox
    expired = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, expired.set)  # after the shelf's own
    await expired.wait()
    assert (sandbox.disposals, shown) == (0, [])
    await recycler.close()


async def test_sessions_that_are_over_leave_no_trace(recycler: Recycler, box: BoxPlan, served: Served):
    """A provider that lives long sees many sessions; it does not keep a shelf for each."""
    for at in range(100):
        recycler.give_back(box, f"session {at}", sandbox := served())
        assert await recycler.take(box, f"session {at}") is sandbox
    await until(lambda: not recycler._shelves)


# Dropping and closing.


async def test_dropping_a_session_touches_no_other(recycler: Recycler, box: BoxPlan, served: Served):
    """Its own are disposed of, those of others serve on."""
    own, other = served(), served()
    recycler.give_back(box, "a", own)
    recycler.give_back(box, "b", other)
    await until(lambda: own.container.served and other.container.served)
    recycler.drop("a")
    recycler.drop("none")
    await until(lambda: own.disposals == 1)
    assert await recycler.take(box, "a") is None
    assert await recycler.take(box, "b") is other
    await other.dispose()


async def test_dropping_a_session_includes_what_is_in_work(recycler: Recycler, box: BoxPlan, gated: Gated):
    """One that comes clean afterwards is disposed of, and whoever waited for it gets none."""
    recycler.give_back(box, "s", gated)
    taking = asyncio.ensure_future(recycler.take(box, "s"))
    await gated.renewing.wait()
    recycler.drop("s")
    gated.gate.set()
    assert await asyncio.wait_for(taking, 5) is None
    await until(lambda: gated.disposals == 1)


async def test_a_dropped_session_can_begin_again(recycler: Recycler, box: BoxPlan, gated: Gated, served: Served):
    """What it gives back later is kept; what was in work before stays dropped."""
    recycler.give_back(box, "s", gated)
    await gated.renewing.wait()
    recycler.drop("s")
    later = served()
    recycler.give_back(box, "s", later)
    gated.gate.set()
    await until(lambda: gated.disposals == 1)
    assert await recycler.take(box, "s") is later
    await later.dispose()


async def test_closing_disposes_of_all_also_of_those_in_work(box: BoxPlan, gated: Gated, served: Served):
    """Close waits for what is in work, and leaves neither that nor what waited."""
    recycler = Recycler(most=3, idle_seconds=60)
    waiting = served()
    recycler.give_back(box, "s", waiting)
    await until(lambda: waiting.container.served)
    recycler.give_back(box, "s", gated)
    await gated.renewing.wait()
    closing = asyncio.ensure_future(recycler.close())
    await until(lambda: waiting.disposals == 1)
    assert not closing.done()
    gated.gate.set()
    await asyncio.wait_for(closing, 5)
    assert (waiting.disposals, gated.disposals) == (1, 1)


async def test_one_that_comes_back_after_closing_is_disposed_of(box: BoxPlan, served: Served):
    """A run that ends late leaves nothing either."""
    recycler = Recycler(most=3, idle_seconds=60)
    await recycler.close()
    late = served()
    recycler.give_back(box, "s", late)
    await until(lambda: late.disposals == 1)
    assert await recycler.take(box, "s") is None
