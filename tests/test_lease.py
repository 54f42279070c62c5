"""What `provider.lease` promises: what a command leaves running is kept for its time, within its cap, and then gone."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from provider import Provider
from provider import lease as lease_module
from provider.errors import CallError, DisposeFailed, EngineUnavailable, SandboxLost
from provider.events import StateChanged, StepFinished
from provider.lease import Lease
from provider.model import Begun, Chunk, Ending, Leased, Limits, Outcome, Process, State
from provider.settings import Settings
from provider.testing import PID, FakeEngine, FakeSandbox

SETTINGS = Settings(grace=0.01, spares=0, leases=2)
LEFT = Ending(reason="exited", exit_code=0, pid=PID, background_pids=(8, 9))
LEAVES = (Begun(PID), Chunk("stdout", b"before"), Leased(LEFT))
"""A command that ends at once; what it left behind lives until it is ended."""
OVER = Ending(reason="exited", exit_code=0, pid=PID)

Made = Callable[..., Provider]


pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture
def made(workspace: Path) -> Made:
    def make(engine: FakeEngine, **options: Any) -> Provider:
        return Provider(workspace, **{"settings": SETTINGS, "engine": engine, **options})

    return make


async def leave(provider: Provider, **options: Any) -> Outcome:
    return await asyncio.wait_for(provider.run(["x"], background="keep", **options), 5)


async def leased(provider: Provider, **options: Any) -> Lease:
    outcome = await leave(provider, **options)
    assert outcome.lease
    lease = provider.lease(outcome.lease)
    assert lease
    return lease


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def gone(engine: FakeEngine) -> list[bool]:
    return [sandbox.disposals > 0 for sandbox in engine.sandboxes]


# While it lasts.


async def test_an_outcome_names_its_lease(made: Made):
    """The command is over with its own ending and output; what it left is found under its name, and lives."""
    engine = FakeEngine(LEAVES)
    async with made(engine) as provider:
        outcome = await leave(provider, run_id="r", session="s", lease=60.0)
        assert (outcome.lease, outcome.status, outcome.stdout) == ("r", State.COMPLETED, b"before")
        assert outcome.background_pids == (8, 9)
        lease = provider.lease("r")
        assert lease
        assert (lease.session, lease.pids, lease.command) == ("s", (8, 9), ("x",))
        assert lease.container == outcome.container
        assert 50 < lease.seconds_left <= 60
        assert not lease.is_over
        assert provider.leases("s") == provider.leases() == (lease,)
        assert provider.leases("other") == ()
        assert provider.runs() == ()
        await provider.settle()
        assert gone(engine) == [False]
    assert gone(engine) == [True]


async def test_a_command_that_leaves_nothing_has_no_lease(made: Made):
    """Asking for one is not having one: the container is gone as always."""
    engine = FakeEngine([Begun(PID), OVER])
    async with made(engine) as provider:
        assert (await leave(provider)).lease is None
        assert provider.leases() == ()
        await provider.settle()
        assert gone(engine) == [True]


async def test_output_after_the_command_is_the_leases(made: Made):
    """It can be read while it lasts, is credited back, and neither adds to nor takes from the command's own."""
    go_on = asyncio.Event()

    async def script(_: FakeSandbox) -> AsyncIterator[Any]:
        for message in LEAVES:
            yield message
        await go_on.wait()
        yield Chunk("stdout", b"listening")
        yield Chunk("stderr", b"warning")
        await asyncio.Event().wait()

    engine = FakeEngine(script)
    async with made(engine) as provider:
        outcome = await leave(provider)
        lease = provider.lease(outcome.run_id)
        assert lease
        assert lease.stdout.read() == b""
        go_on.set()
        await until(lambda: lease.stderr.total_bytes)
        assert (lease.stdout.read(), lease.stderr.read()) == (b"listening", b"warning")
        assert outcome.stdout == b"before"
        assert sum(engine.sandboxes[0].granted) == len(b"before" + b"listening" + b"warning")


async def test_processes_and_signals(made: Made):
    """Both go to the sandbox of this lease; a number that is no signal is the caller's mistake and goes nowhere."""
    engine = FakeEngine(LEAVES)
    async with made(engine) as provider:
        lease = await leased(provider)
        engine.sandboxes[0].running = (Process(8, "server"),)
        assert await lease.processes() == (Process(8, "server"),)
        lease.signal(signal.SIGHUP)
        lease.signal(signal.SIGINT, 8)
        for number in (-1, 65, 256):
            with pytest.raises(CallError):
                lease.signal(number)
        assert engine.sandboxes[0].signals == [(signal.SIGHUP, 0), (signal.SIGINT, 8)]


async def test_a_run_id_is_taken_while_its_lease_can_be_asked_for(made: Made):
    """A second run under that name could not be told from it, also when it is over but readable."""
    async with made(FakeEngine(LEAVES)) as provider:
        lease = await leased(provider, run_id="r")
        with pytest.raises(CallError, match="'r' is taken"):
            await leave(provider, run_id="r")
        await lease.stop()
        with pytest.raises(CallError, match="'r' is taken"):
            await leave(provider, run_id="r")
        assert provider.lease("r") is lease


# Its end.


async def test_it_ends_with_its_last_process(made: Made):
    """Nobody has to stop it: its sandbox is disposed of, and how it ended can be read."""
    go_on = asyncio.Event()

    async def script(_: FakeSandbox) -> AsyncIterator[Any]:
        for message in LEAVES:
            yield message
        await go_on.wait()
        yield Chunk("stdout", b"bye")
        yield OVER

    engine = FakeEngine(script)
    async with made(engine) as provider:
        lease = await leased(provider)
        go_on.set()
        assert await asyncio.wait_for(lease.wait(), 5) == OVER
        assert lease.is_over
        assert provider.leases() == ()
        assert engine.sandboxes[0].disposals == 1
        assert engine.sandboxes[0].terminated == []


async def test_what_it_wrote_can_be_read_when_it_is_over(made: Made):
    """For as long as it could have lasted it is found under its name; after that it is forgotten, and the name free."""
    async with made(FakeEngine([*LEAVES, Chunk("stdout", b"bye"), OVER])) as provider:
        lease = await leased(provider, run_id="r", lease=0.1)
        await asyncio.wait_for(lease.wait(), 5)
        assert provider.lease("r") is lease
        assert lease.stdout.read() == b"bye"
        assert await lease.processes() == ()
        lease.signal(signal.SIGTERM)  # to nobody
        await until(lambda: provider.lease("r") is None)
        assert lease.stdout.read() == b"bye"
        await leave(provider, run_id="r")


async def test_stopping_ends_it_once(made: Made):
    """It waits until the sandbox is gone; any number of stops, at once or one after the other, is one."""
    engine = FakeEngine(LEAVES)
    async with made(engine) as provider:
        lease = await leased(provider)
        await asyncio.wait_for(asyncio.gather(lease.stop(), lease.stop()), 5)
        await asyncio.wait_for(lease.stop(), 5)
        assert lease.is_over
        assert lease.ending
        assert lease.ending.reason == "canceled"
        assert gone(engine) == [True]
        assert set(engine.sandboxes[0].terminated) == {"canceled"}


@pytest.mark.parametrize("who", ["stop", "time"])
async def test_the_engine_is_the_second_line(made: Made, monkeypatch: pytest.MonkeyPatch, who: str):
    """Where pid 1 neither keeps the time nor listens, the container is removed under it."""
    monkeypatch.setattr(lease_module, "SECOND_LINE_SECONDS", 0.01)
    engine = FakeEngine(LEAVES, deaf=True)
    async with made(engine) as provider:
        lease = await leased(provider, lease=60.0 if who == "stop" else 0.01)
        await asyncio.wait_for(lease.stop() if who == "stop" else lease.wait(), 5)
        assert lease.is_over
        assert gone(engine) == [True]


async def test_a_container_that_cannot_be_removed_surfaces_at_close(made: Made, monkeypatch: pytest.MonkeyPatch):
    """Not at whoever stops the lease; and close goes on to dispose of everything else."""
    monkeypatch.setattr(lease_module, "SECOND_LINE_SECONDS", 0.01)
    engine = FakeEngine(LEAVES, deaf=True, dispose_error=DisposeFailed("container c may still exist"))
    provider = made(engine)
    lease = await leased(provider)
    other = await leased(provider)
    await asyncio.wait_for(lease.stop(), 5)
    with pytest.raises(DisposeFailed, match="container c"):
        await asyncio.wait_for(provider.close(), 5)
    assert other.is_over
    assert engine.closed


async def test_a_lost_sandbox_ends_the_lease(made: Made):
    """Nobody waits for one that is gone; there is no ending that could be told."""
    engine = FakeEngine([*LEAVES, Chunk("stdout", b"x"), SandboxLost("gone")])
    async with made(engine) as provider:
        lease = await leased(provider)
        assert await asyncio.wait_for(lease.wait(), 5) is None
        assert lease.stdout.read() == b"x"
        assert gone(engine) == [True]
        await asyncio.wait_for(lease.stop(), 5)


async def test_a_question_that_the_end_overtakes_is_answered_with_nothing(made: Made):
    """Whoever asks what runs while it ends is told that nothing does."""
    asked = asyncio.Event()

    class Engine(FakeEngine):
        async def open(self, box: Any) -> FakeSandbox:
            sandbox = await super().open(box)

            async def processes() -> tuple[Process, ...]:
                asked.set()
                while sandbox.is_alive:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                raise SandboxLost("gone")

            sandbox.processes = processes
            return sandbox

    async with made(Engine(LEAVES)) as provider:
        lease = await leased(provider)
        asking = asyncio.ensure_future(lease.processes())
        await asked.wait()
        await asyncio.wait_for(lease.stop(), 5)
        assert await asyncio.wait_for(asking, 5) == ()


async def test_no_answer_is_not_no_process(made: Made, monkeypatch: pytest.MonkeyPatch):
    """While it lasts, a pid 1 that does not answer is an error, never an empty list."""
    engine = FakeEngine(LEAVES)

    async def silence() -> tuple[Process, ...]:
        raise EngineUnavailable("no answer")

    async with made(engine) as provider:
        lease = await leased(provider)
        monkeypatch.setattr(engine.sandboxes[0], "processes", silence)
        with pytest.raises(EngineUnavailable):
            await lease.processes()


async def test_a_flood_ends_it_with_what_was_kept(made: Made):
    """Past the limit it is told to end; what is kept stays within its cap, and all is counted."""

    async def flood(_: FakeSandbox) -> AsyncIterator[Any]:
        for message in LEAVES:
            yield message
        while True:
            yield Chunk("stdout", b"x" * 100)
            await asyncio.sleep(0)

    engine = FakeEngine(flood)
    async with made(engine) as provider:
        lease = await leased(provider, limits=Limits(output_bytes=250, flood_bytes=1000))
        ending = await asyncio.wait_for(lease.wait(), 5)
        assert ending
        assert ending.reason == "output_limit"
        assert lease.stdout.read() == b"x" * 250
        assert lease.stdout.truncated
        assert lease.stdout.total_bytes > 1000


# How many, and whose.


async def test_a_session_has_as_many_as_it_may(made: Made):
    """One more is ended with its command, and the outcome says so; another session, or one that ended, makes room."""
    engine = FakeEngine(LEAVES)
    async with made(engine) as provider:
        first, _ = [await leased(provider, session="s") for _ in range(2)]
        refused = await leave(provider, session="s")
        assert refused.lease is None
        assert any("leases" in note for note in refused.notes)
        await provider.settle()
        assert gone(engine) == [False, False, True]
        assert (await leave(provider, session="other")).lease
        await first.stop()
        assert (await leave(provider, session="s")).lease


async def test_the_cap_holds_for_those_that_come_at_once(made: Made):
    """Ten commands that end in the same moment leave two leases."""
    engine = FakeEngine(LEAVES)
    async with made(engine) as provider:
        outcomes = await asyncio.gather(*(leave(provider, session="s") for _ in range(10)))
        assert len([outcome for outcome in outcomes if outcome.lease]) == 2
        assert len(provider.leases("s")) == 2
        await provider.settle()
        assert gone(engine).count(False) == 2


async def test_stopping_a_session_touches_only_its_own(made: Made):
    """Its leases end, another session's go on, and the count is told."""
    engine = FakeEngine(LEAVES)
    async with made(engine) as provider:
        own = [await leased(provider, session="a") for _ in range(2)]
        others = [await leased(provider, session=session) for session in ("b", "")]
        assert await asyncio.wait_for(provider.stop(session="a"), 5) == 2
        assert [lease.is_over for lease in own] == [True] * 2
        assert [lease.is_over for lease in others] == [False] * 2
        assert await provider.stop(session="a") == 0


@pytest.mark.parametrize("how", ["session", "id"])
async def test_a_run_that_is_stopped_while_it_ends_leaves_no_lease(made: Made, how: str):
    """A wish to end that comes when the command is over, but not yet its run, ends what it left behind."""
    engine = FakeEngine(LEAVES)

    async def stop(event: Any) -> None:
        if isinstance(event, StepFinished) and event.step == "run":
            await (provider.stop(session="s") if how == "session" else provider.cancel("r"))

    async with made(engine) as provider:
        outcome = await leave(provider, session="s", run_id="r", on_event=stop)
        assert outcome.callback_errors == ()
        assert (outcome.lease, provider.leases()) == (None, ())
        await provider.settle()
        assert gone(engine) == [True]


async def test_a_run_that_is_canceled_after_its_command_leaves_no_lease(made: Made):
    """Whoever gives up never learns the lease's name, so there is none."""
    engine = FakeEngine(LEAVES)
    ending = asyncio.Event()

    async def stall(event: Any) -> None:
        if isinstance(event, StateChanged) and event.state is State.COMPLETED:
            ending.set()
            await asyncio.Event().wait()

    async with made(engine) as provider:
        running = asyncio.ensure_future(provider.run(["x"], background="keep", on_event=stall))
        await asyncio.wait_for(ending.wait(), 5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await provider.settle()
        assert provider.leases() == ()
        assert gone(engine) == [True]


async def test_closing_the_provider_ends_every_lease(made: Made):
    """None is left, neither those that last nor those that are over, and nobody waits for their time."""
    engine = FakeEngine(LEAVES)
    provider = made(engine)
    leases = [await leased(provider, session=str(at), lease=3600.0) for at in range(3)]
    await leases[0].stop()
    waiting = asyncio.gather(*(lease.wait() for lease in leases))
    await asyncio.wait_for(provider.close(), 5)
    assert all(ending and ending.reason == "canceled" for ending in await asyncio.wait_for(waiting, 5))
    assert gone(engine) == [True] * 3
    assert provider.leases() == ()
    assert engine.closed
