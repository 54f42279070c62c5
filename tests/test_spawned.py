"""What `provider.spawned` promises: a conversation whose output is whole and in order, and that nobody can hang."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from provider import Provider
from provider.errors import CallError, EngineUnavailable, SandboxLost
from provider.events import StateChanged, StepFinished
from provider.model import Begun, Chunk, Ending, State
from provider.settings import Settings
from provider.spawned import Spawned
from provider.testing import COMPLETES, PID, FakeEngine, FakeSandbox

SETTINGS = Settings(grace=0.05, spares=0)
WAITS = (Begun(PID), Chunk("stdout", b"partial"))
MANY = [Chunk("stderr" if at % 3 == 0 else "stdout", b"%d," % at) for at in range(50)]
TALKATIVE = [Begun(PID), *MANY, COMPLETES[-1]]

Made = Callable[..., Provider]


pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture
def made(workspace: Path) -> Made:
    def make(engine: FakeEngine, **options: Any) -> Provider:
        return Provider(workspace, **{"settings": SETTINGS, "engine": engine, **options})

    return make


def within(seconds: float = 5) -> asyncio.Timeout:
    """A hang is a failure, not the end of the test run."""
    return asyncio.timeout(seconds)


async def turns(count: int = 20) -> None:
    """Let everything happen that can happen without anybody's doing."""
    for _ in range(count):
        await asyncio.sleep(0)


async def read_all(process: Spawned) -> list[Chunk]:
    return [chunk async for chunk in process.output()]


def joined(chunks: list[Chunk], stream: str) -> bytes:
    return b"".join(chunk.data for chunk in chunks if chunk.stream == stream)


# Output.


async def test_a_slow_reader_gets_everything_in_order(made: Made):
    """Both streams arrive piece by piece as they were written, however long the reader takes over each."""
    engine = FakeEngine(TALKATIVE)
    async with made(engine) as provider, within():
        process = await provider.spawn(["x"])
        heard = []
        async for chunk in process.output():
            await turns(5)
            heard.append(chunk)
        outcome = await process.wait()
    assert heard == MANY
    assert (outcome.stdout, outcome.stderr) == (joined(MANY, "stdout"), joined(MANY, "stderr"))


async def test_a_reader_that_does_not_read_holds_the_command_up(made: Made):
    """Credit for a piece is given back only when the piece before it was taken: memory stays bounded."""
    engine = FakeEngine(TALKATIVE)
    async with made(engine) as provider, within():
        process = await provider.spawn(["x"])
        await turns(200)
        assert len(engine.sandboxes[0].granted) <= 2
        assert process.state is State.RUNNING
        assert await read_all(process) == MANY
        assert len(engine.sandboxes[0].granted) == len(MANY)


async def test_waiting_without_reading_is_enough(made: Made):
    """Nobody has to read: the outcome has it all."""
    async with made(FakeEngine(TALKATIVE)) as provider, within():
        process = await provider.spawn(["x"])
        await turns()  # so that a listener is waiting with the second piece in its hand
        outcome = await process.wait()
    assert outcome.stdout == joined(MANY, "stdout")
    assert outcome.callback_errors == ()


async def test_reading_after_the_end_gives_what_was_left(made: Made):
    """The last piece waits for its reader when the command is over already; then the iteration ends, also again."""
    async with made(FakeEngine([Begun(PID), Chunk("stdout", b"x"), COMPLETES[-1]])) as provider, within():
        process = await provider.spawn(["x"])
        while process.state is not State.COMPLETED:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await turns()
        assert await read_all(process) == [Chunk("stdout", b"x")]
        assert await read_all(process) == []
        assert (await process.wait()).stdout == b"x"


@pytest.mark.parametrize("script", [TALKATIVE, [Begun(PID), *MANY, SandboxLost("gone")]])
async def test_the_end_can_be_awaited_beside_a_reader(made: Made, script: list[Any]):
    """Whoever waits for the end alone takes nothing from whoever reads, and hears of no error."""
    async with made(FakeEngine(script)) as provider, within():
        process = await provider.spawn(["x"])
        ending = asyncio.ensure_future(process.over())
        await turns()
        assert not ending.done()
        assert await read_all(process) == MANY
        await ending
        with contextlib.suppress(SandboxLost):
            await process.wait()


async def test_whoever_waits_wants_no_more_output(made: Made):
    """A reader beside it is not held up: its iteration ends with the run."""
    async with made(FakeEngine(TALKATIVE)) as provider, within():
        process = await provider.spawn(["x"])
        output = process.output()
        first = await anext(output)
        outcome = await process.wait()
        heard = [first] + [chunk async for chunk in output]
    assert heard == MANY[: len(heard)]
    assert outcome.stdout == joined(MANY, "stdout")


@pytest.mark.parametrize("how", ["left", "dropped unread", "kept", "failed", "left while somebody waits"])
async def test_an_abandoned_iterator_does_not_hold_up_whoever_waits(made: Made, how: str):
    """Output that nobody reads any more goes to the outcome alone."""
    async with made(FakeEngine(TALKATIVE)) as provider, within():
        process = await provider.spawn(["x"])

        async def read_one() -> None:
            async for _ in process.output():
                if how == "failed":
                    raise KeyError
                break

        if how == "dropped unread":
            process.output()
        elif how == "kept":
            output = process.output()
            await anext(output)
        elif how == "left while somebody waits":
            reading = asyncio.ensure_future(read_one())
            outcome = await process.wait()
            await reading
        else:
            with contextlib.suppress(KeyError):
                await read_one()
        outcome = await process.wait()
    assert outcome.stdout == joined(MANY, "stdout")


async def test_a_reader_that_was_canceled_can_be_followed_by_another(made: Made):
    """What one reader did not take, the next one gets."""
    go_on = asyncio.Event()

    async def script(_: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        await go_on.wait()
        for chunk in MANY:
            yield chunk
        yield COMPLETES[-1]

    async with made(FakeEngine(script)) as provider, within():
        process = await provider.spawn(["x"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(process.output()), 0.01)
        go_on.set()
        assert await read_all(process) == MANY


async def test_several_side_by_side_do_not_mix(made: Made):
    """Each has its own stdin, output and outcome."""

    async def echo(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        await sandbox.stdin_closed.wait()
        for piece in sandbox.stdin:
            yield Chunk("stdout", piece)
        yield COMPLETES[-1]

    async with made(FakeEngine(echo)) as provider, within():
        processes = [await provider.spawn(["x"]) for _ in range(10)]
        assert len({process.id for process in processes}) == 10
        for at, process in enumerate(processes):
            await process.write(b"%d" % at)
            await process.close_stdin()
        heard = await asyncio.gather(*map(read_all, processes))
        outcomes = await asyncio.gather(*(process.wait() for process in processes))
    expected = [b"%d" % at for at in range(10)]
    assert [joined(chunks, "stdout") for chunks in heard] == expected
    assert [outcome.stdout for outcome in outcomes] == expected


# Input.


async def test_stdin_arrives_in_order_and_ends(made: Made):
    """What is written is what arrives, empty writes are nothing, and only closing is the end."""
    engine = FakeEngine(WAITS)
    async with made(engine) as provider, within():
        process = await provider.spawn(["x"])
        for piece in (b"a", b"", b"b", b"c"):
            await process.write(piece)
        await turns()
        assert engine.sandboxes[0].stdin == [b"a", b"b", b"c"]
        await process.close_stdin()
        await engine.sandboxes[0].stdin_closed.wait()
        process.cancel()
        await process.wait()


async def test_without_stdin_the_command_has_none(made: Made):
    """It is told so before it starts, and never waits for any."""
    engine = FakeEngine()
    async with made(engine) as provider, within():
        process = await provider.spawn(["x"], stdin=False)
        await process.wait()
    assert not engine.sandboxes[0].has_stdin


async def test_a_write_that_is_never_read_ends_with_the_run(made: Made):
    """A command that does not read its stdin holds a writer up, and its end lets the writer go."""

    class Full(FakeSandbox):
        async def write_stdin(self, data: bytes) -> None:
            await asyncio.Event().wait()

    class Engine(FakeEngine):
        async def open(self, box: Any) -> FakeSandbox:
            sandbox = await super().open(box)
            sandbox.__class__ = Full
            return sandbox

    async with made(Engine(WAITS)) as provider, within():
        process = await provider.spawn(["x"])

        async def write_for_ever() -> None:
            for _ in range(10):
                await process.write(b"x")
            await process.close_stdin()

        writing = asyncio.ensure_future(write_for_ever())
        await turns()
        assert not writing.done()
        process.cancel()
        assert (await process.wait()).status is State.CANCELED
        await writing
        await process.write(b"too late")
        await process.close_stdin()


# Signals and sizes.


async def test_signals_and_sizes_reach_their_command_and_no_other(made: Made):
    """They go to the one they are sent to; what cannot be is the caller's mistake, and goes nowhere."""
    engine = FakeEngine(WAITS)
    async with made(engine) as provider, within():
        one, other = [await provider.spawn(["x"], tty=(24, 80)) for _ in range(2)]
        one.resize(30, 100)
        one.signal(signal.SIGINT)
        for number in (-1, 65, 256):
            with pytest.raises(CallError):
                one.signal(number)
        for size in ((-1, 80), (24, 65536)):
            with pytest.raises(CallError):
                one.resize(*size)
        one.cancel()
        other.cancel()
        await asyncio.gather(one.wait(), other.wait())
    assert [(sandbox.signals, sandbox.sizes) for sandbox in engine.sandboxes] == [
        ([signal.SIGINT], [(30, 100)]),
        ([], []),
    ]


async def test_a_command_that_is_over_gets_no_signal(made: Made):
    """Its sandbox may run the session's next command by then, which is not meant."""
    engine = FakeEngine()
    told = asyncio.Event()

    async def at_the_end(event: Any) -> None:
        if isinstance(event, StepFinished) and event.step == "collect":
            (run,) = provider.runs()
            run.signal(signal.SIGKILL)
            run.resize(1, 1)
            told.set()

    async with made(engine) as provider, within():
        process = await provider.spawn(["x"], session="s", reuse="scrub", on_event=at_the_end)
        await process.wait()
        again = await provider.spawn(["x"], session="s", reuse="scrub")
        process.signal(signal.SIGKILL)
        process.resize(1, 1)
        await again.wait()
    assert told.is_set()
    assert len(engine.sandboxes) == 1
    assert (engine.sandboxes[0].signals, engine.sandboxes[0].sizes) == ([], [])


# Beginning.


async def test_a_spawned_command_runs(made: Made):
    """What is given back is begun: a signal sent at once arrives."""
    engine = FakeEngine(WAITS)
    async with made(engine) as provider, within():
        process = await provider.spawn(["x"], run_id="mine")
        process.signal(signal.SIGTERM)
        assert process.id == "mine"
        assert [run.id for run in provider.runs()] == ["mine"]
        assert engine.sandboxes[0].signals == [signal.SIGTERM]


async def test_a_command_that_cannot_be_started_has_an_outcome(made: Made):
    """A program that is not there is the command's failure, not ours."""
    ending = Ending(reason="exited", error="program: No such file", error_number=2)
    async with made(FakeEngine([ending])) as provider, within():
        process = await provider.spawn(["none"])
        assert await read_all(process) == []
        assert (await process.wait()).error == "program: No such file"


@pytest.mark.parametrize("error", [EngineUnavailable("e"), SandboxLost("s")])
async def test_a_command_that_was_never_begun_is_an_error(made: Made, error: Exception):
    """It is raised by spawn, with its receipt, and no run is left."""
    async with made(FakeEngine(open_error=error)) as provider, within():
        with pytest.raises(type(error)) as caught:
            await provider.spawn(["x"])
        assert caught.value.receipt
        assert provider.runs() == ()


async def test_a_sandbox_lost_in_the_middle_is_told_to_readers_and_waiters(made: Made):
    """What came before is read, the iteration ends, and waiting raises, each time."""
    engine = FakeEngine([*WAITS, SandboxLost("gone")])
    async with made(engine) as provider, within():
        process = await provider.spawn(["x"])
        assert await read_all(process) == [Chunk("stdout", b"partial")]
        for _ in range(2):
            with pytest.raises(SandboxLost, match="gone"):
                await process.wait()
        await process.write(b"x")
        await process.write(b"x")
    assert engine.sandboxes[0].disposals == 1


@pytest.mark.parametrize("where", ["opening", "begun"])
async def test_canceling_spawn_itself_leaves_nothing(made: Made, where: str):
    """Whoever gives up while the sandbox opens, or right before it would be handed over, leaves no run."""
    gate = asyncio.Event()
    engine = FakeEngine(WAITS, open_gate=gate if where == "opening" else None)
    begun = asyncio.Event()

    async def stall(event: Any) -> None:
        if isinstance(event, StateChanged) and event.state is State.STARTING:
            begun.set()
            await asyncio.Event().wait()

    async with made(engine) as provider, within():
        spawning = asyncio.ensure_future(provider.spawn(["x"], on_event=stall if where == "begun" else None))
        await (engine.opening.wait() if where == "opening" else begun.wait())
        spawning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await spawning
        while provider.runs():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert [sandbox.disposals for sandbox in engine.sandboxes] == [1] * len(engine.sandboxes)


# Ending.


async def test_canceling_whoever_waits_does_not_cancel_the_run(made: Made):
    """A wait with a time limit may be given up and begun again."""
    async with made(FakeEngine(WAITS)) as provider, within():
        process = await provider.spawn(["x"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.01)
        assert process.state is State.RUNNING
        process.cancel()
        process.cancel()
        outcome = await process.wait()
    assert (outcome.status, outcome.stdout) == (State.CANCELED, b"partial")


async def test_a_canceled_run_ends_though_nobody_reads(made: Made):
    """Output that waits for a reader is given up; the outcome has it."""
    endless = FakeEngine([Begun(PID), *MANY])
    async with made(endless) as provider, within(2):
        process = await provider.spawn(["x"])
        output = process.output()
        await anext(output)
        process.cancel()
        assert (await process.wait()).status is State.CANCELED
        assert all(chunk in MANY for chunk in [chunk async for chunk in output])


async def test_closing_the_provider_ends_what_was_spawned(made: Made):
    """Readers, writers and waiters are let go, with a canceled outcome, and no sandbox is left."""
    engine = FakeEngine(WAITS)
    provider = made(engine)
    processes = [await provider.spawn(["x"]) for _ in range(3)]
    reading = asyncio.gather(*map(read_all, processes))
    waiting = asyncio.gather(*(process.over() for process in processes))
    await turns()
    async with within():
        await provider.close()
        await waiting
        assert [joined(chunks, "stdout") for chunks in await reading] == [b"partial"] * 3
        assert [(await process.wait()).status for process in processes] == [State.CANCELED] * 3
    assert [sandbox.disposals for sandbox in engine.sandboxes] == [1] * 3


async def test_a_handle_that_nobody_keeps_does_not_end_its_run(made: Made):
    """The run belongs to the provider: it goes on, and can be canceled by its id."""
    engine = FakeEngine(WAITS)
    async with made(engine) as provider, within():
        await provider.spawn(["x"], run_id="r")
        gc.collect()
        await turns()
        assert [run.id for run in provider.runs()] == ["r"]
        assert await provider.cancel("r")
    assert engine.sandboxes[0].terminated == ["canceled"]
