"""What a command leaves running, in real containers: ended with it, or kept under a lease."""

import asyncio
import datetime as dt
import signal

import pytest

from provider import Provider, Settings

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"
SERVER = "(while :; do echo tick; echo tock >&2; sleep 0.02; done) & echo started"


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - output comes when it comes
            await asyncio.sleep(0.01)


async def test_by_default_nothing_is_kept(provider):
    """What is left behind is listed and ended; there is no lease."""
    outcome = await provider.run("sleep 300 & echo started")
    assert (outcome.stdout, len(outcome.background_pids), outcome.lease) == (b"started\n", 1, None)
    assert provider.leases() == ()


async def test_a_lease_keeps_what_was_left_behind(provider):
    """The command's outcome comes at once; the process goes on, is listed, and its output can be read."""
    outcome = await provider.run(SERVER, background="keep", lease=60, session="chat")
    assert (outcome.exit_code, outcome.status) == (0, "completed")
    assert outcome.stdout.startswith(b"started\n") or b"started\n" in outcome.stdout
    lease = provider.lease(outcome.lease)
    assert provider.leases("chat") == (lease,)
    assert set(outcome.background_pids) <= {process.pid for process in await lease.processes()} | set(lease.pids)
    await until(lambda: lease.stdout.read().count(b"tick") > 3 and b"tock" in lease.stderr.read())
    await lease.stop()
    assert (lease.is_over, lease.ending.reason, await lease.processes()) == (True, "canceled", ())
    assert provider.lease(outcome.lease) is lease
    assert provider.leases() == ()


async def test_a_command_that_leaves_nothing_has_no_lease(provider):
    """`background="keep"` costs nothing where nothing is kept."""
    outcome = await provider.run("echo hi", background="keep")
    assert (outcome.stdout, outcome.lease, outcome.background_pids) == (b"hi\n", None, ())


async def test_all_output_of_the_command_is_in_its_outcome(provider):
    """However much it wrote just before it ended, and whatever is left behind holds its pipe."""
    outcome = await provider.run("sleep 300 & yes | head -c 1000000", background="keep")
    assert outcome.stdout_bytes == 1_000_000
    await provider.lease(outcome.lease).stop()


async def test_a_lease_ends_in_time(provider):
    """At its time every process is ended, and the container is gone."""
    outcome = await provider.run("sleep 300 &", background="keep", lease=0.5)
    lease = provider.lease(outcome.lease)
    assert lease.until - dt.datetime.now(dt.UTC) <= dt.timedelta(seconds=0.5)
    ending = await asyncio.wait_for(lease.wait(), 10)
    assert ending.reason == "timed_out"


async def test_a_lease_ends_with_its_last_process(provider):
    """When the process ends by itself, so does the lease, and what it wrote can still be read."""
    outcome = await provider.run("(sleep 0.2; echo done) &", background="keep", lease=60)
    lease = provider.lease(outcome.lease)
    ending = await asyncio.wait_for(lease.wait(), 10)
    assert (ending.reason, lease.stdout.read()) == ("exited", b"done\n")


async def test_one_process_can_be_signalled(provider):
    """A signal reaches the process that it names, and no other."""
    waiter = "(trap 'echo {}' USR1; while :; do sleep 0.05; done) & "
    outcome = await provider.run(
        waiter.format("first") + waiter.format("second") + "echo $!", background="keep", lease=60
    )
    lease = provider.lease(outcome.lease)
    lease.signal(signal.SIGUSR1, int(outcome.stdout))
    await until(lease.stdout.read)
    lease.signal(signal.SIGKILL)
    assert (await asyncio.wait_for(lease.wait(), 10)).reason == "exited"
    assert lease.stdout.read() == b"second\n"


async def test_a_lease_is_within_the_same_limits(provider):
    """Processes that live on have no more memory, network or privilege than their command had."""
    script = "(sleep 0.2; grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status; ls /sys/class/net 2>/dev/null) &"
    outcome = await provider.run(script, background="keep", lease=60)
    lease = provider.lease(outcome.lease)
    await asyncio.wait_for(lease.wait(), 10)
    assert lease.stdout.read().split() == [b"CapEff:", b"0000000000000000", b"NoNewPrivs:", b"1", b"Seccomp:", b"2"]


async def test_session_stop_ends_its_leases_and_no_other(provider):
    """The other session's server goes on."""
    kept = {
        name: (await provider.run("sleep 300 &", background="keep", session=name)).lease for name in ("mine", "theirs")
    }
    assert await provider.stop(session="mine") == 1
    assert [lease.id for lease in provider.leases()] == [kept["theirs"]]


async def test_a_session_may_keep_only_so_many(workspace):
    """Past the cap what is left behind is ended as by default, and the outcome says so."""
    async with Provider(workspace, image=MINIMAL, settings=Settings(leases=1)) as provider:
        first = await provider.run("sleep 300 &", background="keep", session="s")
        second = await provider.run("sleep 300 &", background="keep", session="s")
        other = await provider.run("sleep 300 &", background="keep", session="t")
        assert (first.lease is None, second.lease, other.lease is None) == (False, None, False)
        assert any("leases" in note for note in second.notes)


async def test_nothing_of_a_lease_outlives_the_provider(workspace, engine_client):
    """Closing the provider ends them, and their containers are gone."""
    async with Provider(workspace, image=MINIMAL) as provider:
        outcome = await provider.run("sleep 300 &", background="keep", lease=3600)
        container = outcome.container.id
        assert engine_client.containers(filters={"id": container})
    assert not engine_client.containers(all=True, filters={"id": container})


async def test_a_flood_in_the_background_ends(workspace):
    """What lives on may not write for ever, either."""
    from provider import Limits

    async with Provider(workspace, image=MINIMAL, limits=Limits(flood_bytes=3_000_000)) as provider:
        outcome = await provider.run("(sleep 0.2; exec yes) &", background="keep", lease=60)
        ending = await asyncio.wait_for(provider.lease(outcome.lease).wait(), 20)
        assert ending.reason == "output_limit"


async def test_a_lease_on_a_terminal(provider):
    """What ignores the hang-up of its terminal is kept, too."""
    outcome = await provider.run(
        "trap '' HUP; (sleep 0.3; echo still here) & echo started", tty=(24, 80), background="keep"
    )
    lease = provider.lease(outcome.lease)
    await asyncio.wait_for(lease.wait(), 10)
    assert b"still here" in lease.stdout.read()
