"""What happens while a command runs: output as it comes, slow listeners, stdin, terminals, cancellation."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from provider import Limits, State

pytestmark = pytest.mark.docker


async def test_output_arrives_while_the_command_runs(provider):
    """The first line is heard before the command has ended, which waits for the answer to it."""
    heard = asyncio.Event()
    answer = asyncio.Queue()

    async def answers():
        while (piece := await answer.get()) is not None:
            yield piece

    async def on_stdout(data):
        if data.startswith(b"question"):
            heard.set()
            await answer.put(b"answer\n")
            await answer.put(None)

    outcome = await provider.run("echo question; read reply; echo got $reply", stdin=answers(), on_stdout=on_stdout)
    assert heard.is_set()
    assert outcome.stdout == b"question\ngot answer\n"


async def test_streams_are_told_apart(provider):
    """What goes to stderr is heard as stderr."""
    heard = []
    await provider.run(
        "echo out; echo err >&2",
        on_stdout=lambda data: heard.append(("out", data)),
        on_stderr=lambda data: heard.append(("err", data)),
    )
    assert sorted(heard) == [("err", b"err\n"), ("out", b"out\n")]


async def test_stdin_is_at_its_end_unless_given(provider):
    """A command that reads stdin does not wait for what will never come."""
    assert (await provider.run(["cat"], timeout=10)).exit_code == 0


async def test_a_large_stdin_arrives_whole(provider):
    """More stdin than any buffer on the way holds arrives whole."""
    outcome = await provider.run(["wc", "-c"], stdin=b"x" * 5_000_000)
    assert outcome.stdout.strip() == b"5000000"


async def test_a_command_that_does_not_read_its_stdin_ends_all_the_same(provider):
    """Unread stdin holds nothing up."""
    assert (await provider.run(["true"], stdin=b"x" * 5_000_000)).exit_code == 0


async def test_a_terminal_has_its_size(provider):
    """On a terminal, the command sees one, of the size that was asked for."""
    outcome = await provider.run("tty; stty size; [ -t 0 ] && [ -t 1 ] && echo yes", tty=(33, 101))
    assert outcome.stdout == b"/dev/pts/0\r\n33 101\r\nyes\r\n"


async def test_cancel_by_session_leaves_other_sessions_alone(provider):
    """Stopping one session ends its runs, as canceled, and no other's."""
    ready = {name: asyncio.Event() for name in ("a", "b")}
    runs = {
        name: asyncio.ensure_future(
            provider.run(
                "echo ready; read _; echo done", stdin=_until(release), session=name, on_stdout=_setter(ready[name])
            )
        )
        for name, release in (("a", asyncio.Event()), ("b", ready["a"]))
    }
    await asyncio.gather(*(event.wait() for event in ready.values()))
    assert await provider.stop(session="a") == 1
    a, b = await asyncio.gather(*runs.values())
    assert (a.status, a.stdout) == (State.CANCELED, b"ready\n")
    assert (b.status, b.stdout) == (State.COMPLETED, b"ready\ndone\n")


def _setter(event):
    async def on_stdout(_):
        event.set()

    return on_stdout


async def _until(event):
    await event.wait()
    yield b"\n"


async def test_cancelling_the_task_ends_the_command(provider, workspace):
    """Asyncio's own cancel ends the command: it writes no more."""
    started = asyncio.Event()
    task = asyncio.ensure_future(provider.run("echo; while :; do date > tick; done", on_stdout=_setter(started)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await provider.close()
    before = (workspace / "tick").stat().st_mtime_ns
    assert (await asyncio.to_thread(_unchanged_for, workspace / "tick", before, 0.3)) is True


def _unchanged_for(path, mtime, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.stat().st_mtime_ns != mtime:
            return False
    return True


async def test_a_stalled_consumer_costs_no_memory_and_cannot_hold_up_a_cancel(provider):
    """While a listener is stuck and the command floods, memory stays flat, and a cancel ends it within a second."""
    stuck = asyncio.Event()

    async def on_stdout(_):
        stuck.set()
        await asyncio.Event().wait()

    before = _rss_bytes()
    task = asyncio.ensure_future(provider.run(["yes"], on_stdout=on_stdout, run_id="flood"))
    await stuck.wait()
    highest = 0
    for _ in range(30):  # 3 s; the window is full after the first few milliseconds
        await asyncio.sleep(0.1)
        highest = max(highest, _rss_bytes())
    began = time.monotonic()
    await provider.cancel("flood")
    outcome = await task
    assert time.monotonic() - began < 1
    assert outcome.status is State.CANCELED
    assert highest - before < 32 * 2**20
    assert len(outcome.stdout) > 0
    assert isinstance(outcome.callback_errors[0], TimeoutError)


def _rss_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_deadline_does_not_wait_for_a_stuck_listener(provider):
    """A blocking listener, sync or not, cannot make a run outlive its deadline by more than the grace and a little."""
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_stdout(_):
        asyncio.run_coroutine_threadsafe(done.wait(), loop).result()

    began = time.monotonic()
    outcome = await provider.run(["yes"], on_stdout=on_stdout, timeout=1)
    took = time.monotonic() - began
    done.set()
    assert outcome.timed_out
    assert took < 4


async def test_a_raising_listener_is_recorded_and_the_run_goes_on(provider):
    """What a listener raises is in the outcome; the command does not notice."""

    def on_stdout(_):
        raise ValueError("no")

    outcome = await provider.run("echo a; echo b", on_stdout=on_stdout)
    assert outcome.exit_code == 0
    assert outcome.stdout == b"a\nb\n"
    assert {type(error) for error in outcome.callback_errors} == {ValueError}


async def test_a_slow_listener_slows_the_command(provider, workspace):
    """A command cannot run ahead of its listener by more than the window and the pipes on the way."""
    written = workspace / "written"
    heard = 0
    lead = []

    async def on_stdout(data):
        nonlocal heard
        heard += len(data)
        await asyncio.sleep(0.01)
        if written.exists() and (text := written.read_text().strip()):
            lead.append(int(text) * 65536 - heard)

    script = "i=0; while [ $i -lt 100 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > written; done"
    outcome = await provider.run(script, on_stdout=on_stdout, limits=Limits(cpus=2))
    assert outcome.stdout_bytes == 100 * 65536
    assert max(lead) < 2.5 * 2**20
