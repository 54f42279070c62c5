"""Following a command: events in the contract's shape, and the inactivity clock."""

from __future__ import annotations

import asyncio

from provider.dialects.run_shell_command.watch import Watch
from provider.events import OutputArrived, StateChanged
from provider.model import State

RUNNING = StateChanged(run_id="r", session="", state=State.RUNNING)


class Ear:
    def __init__(self):
        self.events = []
        self.cancelled = asyncio.Event()

    async def emit(self, event):
        self.events.append(dict(event))

    async def cancel(self):
        self.cancelled.set()

    def watch(self, seconds=0.0):
        return Watch(self.emit, "call", seconds=seconds, cancel=self.cancel)


async def heard(*chunks, stream="stdout"):
    ear = Ear()
    watch = ear.watch()
    for data in chunks:
        await watch.hear(OutputArrived(stream=stream, data=data))
    await watch.close(0, None)
    return [{key: value for key, value in event.items() if key != "callId"} for event in ear.events]


async def test_output_comes_as_text():
    """Each chunk with its stream, terminal codes taken out, and the end last."""
    assert await heard(b"\x1b[1mhi\x1b[0m", b"there", stream="stderr") == [
        {"type": "data", "stream": "stderr", "chunk": "hi"},
        {"type": "data", "stream": "stderr", "chunk": "there"},
        {"type": "exit", "exitCode": 0, "signal": None},
    ]


async def test_no_character_is_cut_in_two():
    """The halves of a character wait for each other; what never comes is replaced at the end."""
    assert [event.get("chunk") for event in await heard(b"a\xc3", b"\xa9b", b"\xe2\x82")] == ["a", "éb", "\ufffd", None]


async def test_binary_output_is_not_streamed():
    """It is detected once, and then only counted."""
    assert await heard(b"\x7fELF\0", b"more") == [
        {"type": "binary_detected", "stream": "stdout"},
        {"type": "binary_progress", "stream": "stdout", "bytesReceived": 5},
        {"type": "binary_progress", "stream": "stdout", "bytesReceived": 9},
        {"type": "exit", "exitCode": 0, "signal": None},
    ]
    assert [event["type"] for event in await heard(b"x" * 511, b"x\0")] == ["data", "data", "exit"]


async def test_silence_cancels():
    """After so many seconds without output."""
    ear = Ear()
    watch = ear.watch(0.01)
    async with watch.clock():
        await watch.hear(RUNNING)
        await asyncio.wait_for(ear.cancelled.wait(), 5)
    assert watch.is_expired


async def test_the_clock_begins_with_the_command():
    """Waiting for an approval or a sandbox is no inactivity."""
    ear = Ear()
    watch = ear.watch(0.01)
    async with watch.clock():
        await asyncio.sleep(0.05)
    assert not watch.is_expired


async def test_output_resets_the_clock():
    """A command that keeps writing may go on for ever."""
    ear = Ear()
    watch = ear.watch(0.2)
    async with watch.clock():
        await watch.hear(RUNNING)
        for _ in range(10):
            await asyncio.sleep(0.05)  # together more than the limit
            await watch.hear(OutputArrived(stream="stdout", data=b"."))
        assert not watch.is_expired
        await asyncio.wait_for(ear.cancelled.wait(), 5)


async def test_a_slow_listener_is_no_silence():
    """While somebody takes their time over the output, the command is not to blame."""
    ear = Ear()
    gate = asyncio.Event()

    async def slow(event):
        await gate.wait()

    watch = Watch(slow, "call", seconds=0.01, cancel=ear.cancel)
    async with watch.clock():
        await watch.hear(RUNNING)
        hearing = asyncio.ensure_future(watch.hear(OutputArrived(stream="stdout", data=b"x")))
        await asyncio.sleep(0.05)
        assert not watch.is_expired
        gate.set()
        await hearing
        await asyncio.wait_for(ear.cancelled.wait(), 5)


async def test_0_is_no_clock():
    """The limit can be turned off."""
    ear = Ear()
    watch = ear.watch(0)
    async with watch.clock():
        await watch.hear(RUNNING)
        await asyncio.sleep(0.02)
    assert not watch.is_expired
