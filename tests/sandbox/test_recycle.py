"""Recycled sandboxes: what one command leaves, the next must not find, or it gets another container."""

import asyncio

import pytest

pytestmark = pytest.mark.docker


async def twice(provider, first, second, **options):
    """Run two commands of one session, and tell what the second found, and whether in the same container."""
    before = await provider.run(first, reuse="scrub", session="s", timeout=20, **options)
    after = await provider.run(second, reuse="scrub", session="s", timeout=20, **options)
    return after, before.container.id == after.container.id


LEFT = "find /tmp $HOME /dev/shm /dev/mqueue -mindepth 1 2>/dev/null; cat /proc/sysvipc/* | grep -v key; true"


async def test_a_container_serves_the_session_again(provider):
    """It is the same container, and the receipt says how many it has served."""
    after, same = await twice(provider, "echo one", "echo two")
    assert (same, after.container.served, after.stdout) == (True, 1, b"two\n")
    assert after.receipt["container"]["served"] == 1
    assert after.receipt["plan"]["reuse"] == "scrub"


async def test_it_is_never_the_default(provider):
    """Without the choice every command has a container of its own."""
    ids = {(await provider.run("true")).container.id for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize(
    "mess",
    [
        "echo x > /tmp/f; mkdir -p /tmp/a/b/c; echo y > $HOME/.profile; echo z > /dev/shm/s",
        "cd /tmp; i=0; while [ $i -lt 400 ]; do mkdir d; cd d; i=$((i+1)); done",
        "mkdir /tmp/locked; echo x > /tmp/locked/f; chmod 000 /tmp/locked",
        "ln -s /workspace /tmp/w; ln -s / $HOME/root; mkfifo /tmp/p; cd /tmp; ln p q",
        "(while :; do echo x > /tmp/$RANDOM$$; done) & (while :; do :; done) &",
        "setsid sleep 300 & trap '' TERM; sleep 0.1",
        "exec 9>/tmp/open; rm /tmp/open; sleep 300 &",
        "kill -9 $$",
        "yes > $HOME/full",
        "i=0; while [ $i -lt 3000 ]; do : > /tmp/$i; i=$((i+1)); done",
    ],
)
async def test_nothing_of_the_last_command_is_found(provider, mess):
    """Files, links, processes, whatever it is: gone, in the same container or by way of another."""
    after, _ = await twice(provider, mess, LEFT + "; ps -o pid= | wc -l", image="sandbox-provider/default")
    *found, processes = after.stdout.decode().split()
    assert found == []
    assert int(processes) <= 4  # sh, ps, wc and pid 1


async def test_what_cannot_be_scrubbed_is_disposed_of(provider):
    """A command that has pid 1 killed first when memory is short has spoilt the container; the next gets another."""
    # As root, whom the files of pid 1 in /proc belong to; anybody else can change nothing of it.
    spoils, looks = "echo 900 > /proc/1/oom_score_adj", "cat /proc/1/oom_score_adj"
    after, same = await twice(provider, spoils, looks, user="0:0")
    assert (same, after.stdout) == (False, b"500\n")


async def test_ipc_does_not_survive(provider):
    """Shared memory, semaphores and message queues of System V are removed."""
    after, _ = await twice(provider, "ipcmk -M 4096; ipcmk -S 3; ipcmk -Q", LEFT, image="sandbox-provider/default")
    assert after.stdout == b""


async def test_counters_begin_anew(provider):
    """Usage is the command's own, not that of those before it."""
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    after, same = await twice(provider, burn, "true")
    assert same
    assert after.usage.cpu_user_seconds < 0.05


async def test_sessions_do_not_share(provider):
    """Another session, or another plan, gets another container."""
    ids = [
        (await provider.run("true", reuse="scrub", **options)).container.id
        for options in ({"session": "a"}, {"session": "b"}, {"session": "a", "network": "open"}, {"session": "a"})
    ]
    assert ids[0] == ids[3]
    assert len(set(ids)) == 3


async def test_stdin_streams_and_signals_are_those_of_the_new_command(provider):
    """Nothing typed for the last command, and no late wish to end it, reaches the next."""
    for number in range(20):
        process = await provider.spawn("cat", reuse="scrub", session="s")
        await process.write(b"%d" % number)
        process.cancel() if number % 3 == 0 else await process.close_stdin()
        outcome = await process.wait()
        assert outcome.stdout in {b"%d" % number, b""}
        if number % 3:
            assert (outcome.stdout, outcome.exit_code) == (b"%d" % number, 0)


async def test_a_deadline_does_not_end_the_next_command(provider):
    """After a time-out the container is scrubbed like any other, and the next command has its own time."""
    late = await provider.run("sleep 300", reuse="scrub", session="s", timeout=0.3)
    after = await provider.run("sleep 0.5; echo on time", reuse="scrub", session="s", timeout=20)
    assert (late.timed_out, after.stdout) == (True, b"on time\n")


async def test_many_at_once_each_have_their_own(provider):
    """Commands that run at the same time are never in one container."""
    outcomes = await asyncio.gather(
        *(provider.run(f"echo {n} > /tmp/f; sleep 0.3; cat /tmp/f", reuse="scrub", session="s") for n in range(6))
    )
    assert [outcome.stdout for outcome in outcomes] == [b"%d\n" % number for number in range(6)]
    assert len({outcome.container.id for outcome in outcomes}) == 6
