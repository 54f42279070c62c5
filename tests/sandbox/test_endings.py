"""How a command ended is told exactly, from a real container."""

import asyncio
import hashlib
import signal

import pytest

from provider import Limits, State

pytestmark = pytest.mark.docker


async def test_every_exit_code_passes_through(provider):
    """All 256 exit codes arrive as they are, and only 0 is completed."""
    outcomes = [await provider.run(["sh", "-c", f"exit {code}"], reuse="scrub") for code in range(256)]
    assert [outcome.exit_code for outcome in outcomes] == list(range(256))
    assert [outcome.status for outcome in outcomes] == [State.COMPLETED] + [State.FAILED] * 255
    assert {outcome.signal for outcome in outcomes} == {None}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_signal_is_not_an_exit_code(provider, number):
    """A command ended by a signal has that signal and no exit code."""
    outcome = await provider.run(f"kill -{number} $$")
    assert (number, None, None) == (outcome.signal, outcome.exit_code, outcome.error)
    assert outcome.status is State.FAILED


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["no-such-program"], "program: No such file"),
        (["/workspace/nothing"], "program: No such file"),
        (["/workspace"], "program: Permission denied"),
    ],
)
async def test_what_cannot_be_started_is_an_error_not_an_exit(provider, argv, words):
    """A program that is not there has an error and neither an exit code nor a signal."""
    outcome = await provider.run(argv)
    assert words in outcome.error
    assert (outcome.exit_code, outcome.signal, outcome.pid) == (None, None, None)


async def test_a_timeout_ends_everything_and_keeps_what_was_written(provider):
    """At its deadline a command and its children are gone, and its partial output is here."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    outcome = await provider.run("echo before; sleep 30 & sleep 30", timeout=1)
    assert loop.time() - began < 3
    assert outcome.status is State.TIMED_OUT
    assert outcome.timed_out
    assert outcome.stdout == b"before\n"


async def test_a_command_that_ignores_term_is_killed(provider):
    """TERM can be ignored, KILL cannot."""
    outcome = await provider.run("trap '' TERM; echo ready; while :; do sleep 1; done", timeout=0.5)
    assert (outcome.status, outcome.signal) == (State.TIMED_OUT, signal.SIGKILL)
    assert outcome.stdout == b"ready\n"


async def test_a_stopped_command_is_killed_in_time(provider):
    """A command that stops itself cannot outlive its deadline."""
    outcome = await provider.run("kill -STOP $$", timeout=0.5)
    assert outcome.timed_out


async def test_background_processes_are_listed_and_do_not_hold_the_call(provider):
    """The call ends with the command, though a process it left behind holds its output."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    outcome = await provider.run("sleep 60 & echo $!")
    assert loop.time() - began < 5
    assert outcome.exit_code == 0
    assert outcome.background_pids == (int(outcome.stdout),)


async def test_what_ends_by_itself_in_a_moment_is_not_cut_off(provider):
    """A process that the command did not wait for may finish its last line."""
    outcome = await provider.run("(usleep 20000; echo late) & echo early")
    assert outcome.stdout == b"early\nlate\n"
    assert outcome.background_pids == ()


async def test_fifty_megabytes_arrive_whole(provider):
    """Not a byte of a large binary output is lost, and its digest is in the receipt."""
    outcome = await provider.run("head -c 50000000 /dev/urandom | tee copy", limits=Limits(cpus=2))
    copy = await provider.run(["sha256sum", "copy"])
    assert len(outcome.stdout) == outcome.stdout_bytes == 50_000_000
    assert hashlib.sha256(outcome.stdout).hexdigest() == copy.stdout.decode().split()[0]
    assert outcome.receipt["output"]["stdout"]["sha256"] == copy.stdout.decode().split()[0]


async def test_output_past_the_cap_is_counted_and_flagged(provider):
    """What is kept ends exactly at the cap; the true count goes on."""
    outcome = await provider.run("head -c 3000000 /dev/zero; echo e >&2", limits=Limits(output_bytes=2_000_000))
    assert len(outcome.stdout) == 2_000_000
    assert (outcome.stdout_bytes, outcome.stdout_truncated) == (3_000_000, True)
    assert (outcome.stderr_bytes, outcome.stderr_truncated) == (2, False)
    assert outcome.exit_code == 0


async def test_a_flood_is_ended(provider):
    """A command that writes without end is ended, and the outcome says why."""
    outcome = await provider.run(["yes"], limits=Limits(flood_bytes=5_000_000, output_bytes=1000), timeout=60)
    assert outcome.output_limited
    assert outcome.status is State.FAILED
    assert len(outcome.stdout) == 1000


async def test_out_of_memory_is_told(provider):
    """A command that the kernel killed for want of memory says so."""
    outcome = await provider.run("tail /dev/zero", limits=Limits(memory_bytes=32 * 2**20))
    assert outcome.oom_killed
    assert outcome.signal == signal.SIGKILL


async def test_out_of_memory_of_a_child_is_told_though_the_exit_code_is_zero(provider):
    """Success by exit code does not hide a child that was killed for want of memory."""
    outcome = await provider.run("tail /dev/zero; exit 0", limits=Limits(memory_bytes=32 * 2**20))
    assert outcome.exit_code == 0
    assert outcome.oom_killed


async def test_usage_is_measured(provider):
    """Processor time and memory of what ran are in the outcome."""
    outcome = await provider.run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    assert 0 < outcome.usage.cpu_user_seconds < 60
    assert outcome.usage.max_rss_bytes > 100_000
    assert outcome.duration_ms > 0


async def test_a_fork_bomb_is_contained(provider):
    """A fork bomb meets its limit, ends at its deadline and leaves nothing."""
    outcome = await provider.run("bomb() { bomb | bomb & }; bomb; sleep 30", timeout=2, limits=Limits(pids=64))
    assert outcome.status in {State.TIMED_OUT, State.FAILED, State.COMPLETED}
    assert b"can't fork" in outcome.stderr
