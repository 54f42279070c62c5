"""What `provider.stream` promises: output is kept, shown and credited, and nobody can keep a run from ending."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from provider import stream as stream_module
from provider.errors import DisposeFailed, ProviderError, SandboxLost
from provider.events import OutputArrived, StateChanged
from provider.model import Begun, Chunk, Ending, Limits, Plan, State
from provider.stream import Listeners, Stop, Streamed, stream
from provider.testing import COMPLETES, PID, FakeEngine, FakeSandbox, Script

Planned = Callable[..., Plan]
EXITED = COMPLETES[-1]
OUTPUT = (Begun(PID), Chunk("stdout", b"one"), Chunk("stderr", b"two"), Chunk("stdout", b"three"), EXITED)


class Streaming:
    """One sandbox and everything that is needed to follow its command."""

    def __init__(self, plan: Plan, script: Script, *, deaf: bool = False, dispose_error: ProviderError | None = None):
        self.plan = plan
        self.engine = FakeEngine(script, deaf=deaf, dispose_error=dispose_error)
        self.stop = Stop()
        self.begun = 0

    async def follow(self, listeners: Listeners | None = None, stdin: Any = None) -> Streamed:
        sandbox = await self.engine.open(self.plan.box)

        async def begun() -> None:
            self.begun += 1

        return await stream(
            sandbox, self.plan, stdin=stdin, listeners=listeners or Listeners(), stop=self.stop, begun=begun
        )

    @property
    def sandbox(self) -> FakeSandbox:
        return self.engine.sandboxes[0]


async def never(_: object) -> None:
    await asyncio.Event().wait()


# Output.


async def test_output_is_captured_by_stream(planned: Planned):
    """Each stream is kept whole, and the ending is pid 1's own."""
    run = Streaming(planned(), OUTPUT)
    streamed = await run.follow()
    assert (streamed.stdout.read(), streamed.stderr.read(), streamed.ending) == (b"onethree", b"two", EXITED)
    assert run.begun == 1
    assert run.sandbox.released == run.plan.exec
    assert streamed.seconds >= 0


async def test_credit_equals_bytes(planned: Planned):
    """For every byte that was taken one more is granted, no more and no fewer."""
    run = Streaming(planned(), OUTPUT)
    await run.follow()
    assert run.sandbox.granted == [3, 3, 5]


async def test_credit_is_granted_only_when_a_listener_is_done(planned: Planned):
    """A slow listener slows the command."""
    run = Streaming(planned(), OUTPUT)
    entered, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: bytes) -> None:
        entered.set()
        await may_go_on.wait()

    following = asyncio.create_task(run.follow(Listeners(on_stdout=slow)))
    await entered.wait()
    assert run.sandbox.granted == []
    may_go_on.set()
    await following
    assert sum(run.sandbox.granted) == 11


async def test_kept_output_is_capped_and_all_is_credited(planned: Planned):
    """What is over the cap is counted and dropped, and the command is not held up by it."""
    run = Streaming(planned(limits=Limits(output_bytes=4)), OUTPUT)
    streamed = await run.follow()
    assert (streamed.stdout.read(), streamed.stdout.truncated, streamed.stdout.total_bytes) == (b"onet", True, 8)
    assert (streamed.stderr.read(), streamed.stderr.truncated) == (b"two", False)
    assert sum(run.sandbox.granted) == 11


@pytest.mark.parametrize(("flood", "reason"), [(11, "exited"), (10, "output_limit")])
async def test_a_flood_is_ended(planned: Planned, flood: int, reason: str):
    """Both streams together may reach the limit exactly; one byte more ends the command."""

    async def script(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        for message in OUTPUT[:-1]:
            yield message
        if flood < 11:
            await asyncio.Event().wait()
        yield EXITED

    run = Streaming(planned(limits=Limits(flood_bytes=flood)), script)
    streamed = await asyncio.wait_for(run.follow(), 5)
    assert streamed.ending.reason == reason
    assert streamed.stdout.read() == b"onethree"
    assert run.sandbox.terminated == ([] if reason == "exited" else ["output_limit"])


# Listeners.


@pytest.mark.parametrize("kind", ["sync", "async", "sync that returns an awaitable", "object"])
async def test_listeners_hear_everything_in_order(planned: Planned, kind: str):
    """A callback may be of any kind; it gets each piece as it came, stream by stream."""
    heard: list[bytes] = []

    async def hear(data: bytes) -> None:
        await asyncio.sleep(0)
        heard.append(data)

    def hear_later(data: bytes) -> Coroutine[Any, Any, None]:
        return hear(data)

    class Hearing:
        def __call__(self, data: bytes) -> None:
            heard.append(data)

    callbacks: dict[str, Callable[[bytes], Any]] = {
        "sync": heard.append,
        "async": hear,
        "sync that returns an awaitable": hear_later,
        "object": Hearing(),
    }
    await Streaming(planned(), OUTPUT).follow(Listeners(on_stdout=callbacks[kind], on_stderr=callbacks[kind]))
    assert heard == [b"one", b"two", b"three"]


async def test_listeners_are_awaited_one_at_a_time(planned: Planned):
    """No callback is ever entered while another one is under way."""
    at_work = 0
    most = 0

    async def work(_: object) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.001)
        at_work -= 1

    await Streaming(planned(), OUTPUT).follow(Listeners(on_stdout=work, on_stderr=work, on_event=work))
    assert (at_work, most) == (0, 1)


async def test_events_carry_the_same_output(planned: Planned):
    """Whoever listens to events hears both streams, in the order in which they came."""
    events: list[object] = []
    await Streaming(planned(), OUTPUT).follow(Listeners(on_event=events.append))
    assert events == [OutputArrived(stream=part.stream, data=part.data) for part in OUTPUT if isinstance(part, Chunk)]


@pytest.mark.parametrize(
    "error",
    [ValueError, asyncio.CancelledError, TimeoutError, StopIteration, StopAsyncIteration, SandboxLost],
    ids=lambda error: error.__name__,
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_what_a_listener_raises_is_kept_and_ends_nothing(planned: Planned, error: type[BaseException], kind: str):
    """A broken callback breaks neither the run nor the other callbacks, and its error is told."""
    heard: list[bytes] = []

    def fail(_: bytes) -> None:
        raise error

    async def fail_later(_: bytes) -> None:
        raise error

    listeners = Listeners(on_stdout=fail if kind == "sync" else fail_later, on_stderr=heard.append)
    streamed = await asyncio.wait_for(Streaming(planned(), OUTPUT).follow(listeners), 2)
    assert streamed.ending == EXITED
    assert streamed.stdout.read() == b"onethree"
    assert heard == [b"two"]
    assert len(listeners.errors) == 2


@pytest.mark.parametrize("reason", ["canceled", "output_limit"])
async def test_a_stalled_listener_is_given_up_on_cancel(planned: Planned, reason: Any):
    """A callback that never returns does not keep a canceled run alive for a second, and is reported."""
    run = Streaming(planned(grace=30), OUTPUT[:-1])
    listeners = Listeners(on_stdout=never)
    run.stop.request(reason)
    streamed = await asyncio.wait_for(run.follow(listeners), 1)
    assert streamed.ending.reason == reason


async def test_any_callable_can_be_given_up(planned: Planned):
    """Also one that cannot be hashed, as instances of dataclasses cannot."""

    @dataclass
    class Collector:
        entered: asyncio.Event

        async def __call__(self, data: bytes) -> None:
            self.entered.set()
            await asyncio.Event().wait()

    run = Streaming(planned(), OUTPUT[:-1])
    collector = Collector(asyncio.Event())
    following = asyncio.create_task(run.follow(Listeners(on_stdout=collector)))
    await collector.entered.wait()
    run.stop.request("canceled")
    assert (await asyncio.wait_for(following, 2)).ending.reason == "canceled"


async def test_a_stalled_listener_is_given_up_in_the_middle(planned: Planned):
    """So is one that stalls while the run goes on, and the error names it."""
    run = Streaming(planned(grace=30), OUTPUT[:-1])
    entered = asyncio.Event()

    async def stalls(_: bytes) -> None:
        entered.set()
        await asyncio.Event().wait()

    listeners = Listeners(on_stdout=stalls)
    following = asyncio.create_task(run.follow(listeners))
    await entered.wait()
    run.stop.request("canceled")
    streamed = await asyncio.wait_for(following, 1)
    assert streamed.ending.reason == "canceled"
    assert streamed.stdout.read() == b"one"
    assert [str(error) for error in listeners.errors] == ["stalls was still busy when the run was over"]


async def test_a_stalled_listener_is_given_up_at_the_deadline(planned: Planned):
    """A callback that never returns does not outlive deadline and grace."""
    run = Streaming(planned(timeout=0.02, grace=0.02), OUTPUT)
    listeners = Listeners(on_stderr=never)
    streamed = await asyncio.wait_for(run.follow(listeners), 1)
    assert streamed.ending.reason == "timed_out"
    assert isinstance(listeners.errors[0], TimeoutError)


async def test_a_listener_that_blocks_its_thread_does_not_block_the_loop(planned: Planned):
    """A sync callback that hangs can be given up like any other."""
    release = threading.Event()
    run = Streaming(planned(timeout=0.02, grace=0.02), OUTPUT)
    try:
        streamed = await asyncio.wait_for(run.follow(Listeners(on_stdout=lambda _: release.wait())), 1)
    finally:
        release.set()
    assert streamed.ending.reason == "timed_out"


async def test_blocked_threads_of_others_do_not_silence_a_listener(planned: Planned):
    """However many runs have a sync callback that hangs, the next run's callback is still called."""
    release = threading.Event()
    hanging = [Listeners(on_stdout=lambda _: release.wait()) for _ in range(40)]
    heard: list[bytes] = []
    try:
        calls = [asyncio.create_task(listeners.hear("stdout", b"x")) for listeners in hanging]
        await asyncio.wait(calls, timeout=0.05)
        for listeners in hanging:
            listeners.give_up()
        await asyncio.wait_for(asyncio.gather(*calls), 1)
        await asyncio.wait_for(Streaming(planned(), OUTPUT).follow(Listeners(on_stdout=heard.append)), 2)
    finally:
        release.set()
    assert heard == [b"one", b"three"]


async def test_after_being_given_up_nobody_is_called():
    """No callback is entered once the run is over."""
    calls: list[object] = []
    listeners = Listeners(on_stdout=calls.append, on_event=calls.append)
    listeners.give_up()
    await listeners.hear("stdout", b"x")
    await listeners.tell(StateChanged(run_id="r", session="", state=State.COMPLETED))
    assert calls == []


# Endings.


async def test_a_deadline_is_told_to_pid_1_and_keeps_partial_output(planned: Planned):
    """What came before the deadline is there."""
    run = Streaming(planned(timeout=0.02), OUTPUT[:-1])
    streamed = await asyncio.wait_for(run.follow(), 5)
    assert run.sandbox.terminated == ["timed_out"]
    assert streamed.ending.reason == "timed_out"
    assert streamed.stdout.read() == b"onethree"


async def test_the_first_wish_to_stop_counts(planned: Planned):
    """A run that was canceled is not called timed out later."""
    run = Streaming(planned(timeout=60), OUTPUT[:-1])
    run.stop.request("canceled")
    run.stop.request("output_limit")
    assert (await run.follow()).ending.reason == "canceled"


@pytest.mark.parametrize("by", ["deadline", "cancel"])
async def test_when_pid_1_never_reports_the_container_is_removed_under_it(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, by: str
):
    """The engine is the second line, and the reason for which it was needed is kept."""
    monkeypatch.setattr(stream_module, "SECOND_LINE_SECONDS", 0.02)
    run = Streaming(planned(timeout=0.02 if by == "deadline" else None, grace=0.01), OUTPUT[:-1], deaf=True)
    if by == "cancel":
        run.stop.request("canceled")
    streamed = await asyncio.wait_for(run.follow(), 5)
    reason = "timed_out" if by == "deadline" else "canceled"
    assert streamed.ending == Ending(reason=reason, signal=signal.SIGKILL, pid=PID)
    assert streamed.stdout.read() == b"onethree"
    assert run.sandbox.disposals == 1


async def test_a_container_that_cannot_be_removed_is_not_called_ended(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
):
    """While something may still write to the workspace there is no outcome."""
    monkeypatch.setattr(stream_module, "SECOND_LINE_SECONDS", 0.01)
    run = Streaming(planned(timeout=0.01, grace=0), OUTPUT[:-1], deaf=True, dispose_error=DisposeFailed("x"))
    with pytest.raises(DisposeFailed):
        await asyncio.wait_for(run.follow(), 5)


async def test_a_lost_sandbox_is_an_error(planned: Planned):
    """Pid 1 that falls silent in the middle is never a result."""
    with pytest.raises(SandboxLost, match="gone"):
        await Streaming(planned(), [*OUTPUT[:-1], SandboxLost("gone")]).follow()


async def test_being_canceled_from_outside_leaves_no_task(planned: Planned):
    """Whoever gives up on a run gets the loop back as it was."""
    before = asyncio.all_tasks()
    run = Streaming(planned(), OUTPUT[:-1])
    entered = asyncio.Event()

    async def stalls(_: bytes) -> None:
        entered.set()
        await asyncio.Event().wait()

    following = asyncio.create_task(run.follow(Listeners(on_stderr=stalls)))
    await entered.wait()
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    for _ in range(3):
        await asyncio.sleep(0)  # the fake's own helpers, canceled, need a turn to end
    assert asyncio.all_tasks() == before


# Stdin.


async def cat(sandbox: FakeSandbox) -> AsyncIterator[Any]:
    """A command that reads its stdin to the end."""
    yield Begun(PID)
    await sandbox.stdin_closed.wait()
    yield EXITED


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


@pytest.mark.parametrize(
    ("stdin", "written"),
    [
        (lambda: b"abc", [b"abc", b""]),
        (lambda: pieces(b"a", b"", b"bc"), [b"a", b"bc", b""]),
        (lambda: pieces(), [b""]),  # noqa: PLW0108 - a new one each time
    ],
    ids=["bytes", "pieces, one of them empty", "nothing"],
)
async def test_stdin_is_passed_on_and_closed(planned: Planned, stdin: Callable[[], Any], written: list[bytes]):
    """Whatever it is made of, it arrives in order, and its end is the end; an empty piece is not."""
    run = Streaming(planned(), cat)
    await asyncio.wait_for(run.follow(stdin=stdin()), 5)
    assert run.sandbox.has_stdin
    assert run.sandbox.stdin == written


async def test_empty_stdin_is_closed(planned: Planned):
    """No bytes are an end too."""
    run = Streaming(planned(), cat)
    await asyncio.wait_for(run.follow(stdin=b""), 5)
    assert set(run.sandbox.stdin) == {b""}


async def test_without_stdin_none_is_written(planned: Planned):
    """The command's stdin is at its end from the beginning."""
    run = Streaming(planned(), COMPLETES)
    await run.follow(stdin=None)
    assert (run.sandbox.has_stdin, run.sandbox.stdin) == (False, [])


async def test_a_command_that_does_not_read_its_stdin_can_end(planned: Planned):
    """A source that never ends does not keep the run alive."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)
            yield b"x"

    run = Streaming(planned(), COMPLETES)
    assert (await asyncio.wait_for(run.follow(stdin=endless()), 5)).ending == EXITED


async def test_a_source_of_stdin_that_fails_ends_the_stdin(planned: Planned):
    """A command does not wait for ever for what will never come, and the error is told."""

    async def fails() -> AsyncIterator[bytes]:
        yield b"a"
        raise ValueError

    run = Streaming(planned(), cat)
    listeners = Listeners()
    streamed = await asyncio.wait_for(run.follow(listeners, stdin=fails()), 2)
    assert streamed.ending == EXITED
    assert run.sandbox.stdin == [b"a", b""]
    assert [type(error) for error in listeners.errors] == [ValueError]
