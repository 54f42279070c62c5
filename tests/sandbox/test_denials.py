"""What a real sandbox refused to a command is counted by pid 1, whatever the command says about it."""

import asyncio
import textwrap

import pytest

from provider import Limits

pytestmark = pytest.mark.docker

DEFAULT = "sandbox-provider/default"


def python(text, *arguments):
    return ["python3", "-I", "-S", "-B", "-c", textwrap.dedent(text), *arguments]


# Writes.


@pytest.mark.parametrize("tier", ["default", "unix", "debug"])
@pytest.mark.parametrize("user", ["", "0:0"])
async def test_a_write_to_the_root_is_counted_in_every_tier(provider, tier, user):
    """The profiles let pid 1 watch, as the owner of the workspace and as root."""
    wishes = {"seccomp": tier} | ({"user": user} if user else {})
    outcome = await provider.run("touch /x", watch_writes=True, **wishes)
    assert (outcome.exit_code, outcome.ending.denied_writes) == (1, 1)
    assert b"Read-only" in outcome.stderr


@pytest.mark.parametrize(
    ("script", "number"),
    [
        ("echo x > /x", 1),
        ("cd /usr/bin && touch x; rm -f env; mv env vne; ln -s a b; mkdir c", 5),
        ("echo x > /etc/hostname; mkdir -p /usr/a/b", 2),
        ("touch x /tmp/x ~/x /run/x /dev/shm/x; echo x > /dev/null; ls / > /dev/stdout; rm x", 0),
        ("mkdir d; chmod 500 d; touch d/x; touch /nowhere/x; cat /nowhere; cat > /tmp", 0),
        ("cd /run; i=0; while touch $i; do i=$((i + 1)); done", 0),
    ],
)
async def test_only_what_is_read_only_is_counted(provider, script, number):
    """By shell, by redirection, by tools; not what succeeds, what is forbidden, missing or full."""
    outcome = await provider.run(script, watch_writes=True)
    assert outcome.ending.denied_writes == number, outcome.stderr


async def test_a_workspace_that_can_only_be_read_is_no_exception(provider, workspace):
    """Its files and folders are refused as any other, and what is writable beside it is not."""
    (workspace / "file").write_text("x")
    script = "touch new; echo x > file; mkdir d; rm -f file; mv file f; rm -f new; echo x > /tmp/x; cat file"
    outcome = await provider.run(script, read_only=True, user="0:0", watch_writes=True)
    assert (outcome.exit_code, outcome.ending.denied_writes) == (0, 5), outcome.stderr


async def test_other_programs_are_no_different(provider):
    """Interpreters and compilers with other system calls of the same meaning."""
    script = """
        python3 -B -c 'open("/x", "w")'
        perl -e 'open(F, ">", "/x") or die $!'
        node -e 'require("fs").writeFileSync("/x", "x")'
        git init -q /y
        echo 'int main(void) { return 0; }' | gcc -xc -o /z -
        gcc --version > version
    """
    outcome = await provider.run(script, image=DEFAULT, watch_writes=True, timeout=60)
    assert outcome.ending.denied_writes == 5, outcome.stderr


async def test_words_are_no_evidence(provider):
    """A command can print what it likes."""
    outcome = await provider.run("echo 'touch: /x: Read-only file system' >&2; exit 1", watch_writes=True)
    assert (outcome.exit_code, outcome.ending.denied_writes, outcome.ending.denied_network) == (1, 0, 0)


async def test_unasked_there_is_no_number(provider):
    """Nobody is watched who need not be."""
    outcome = await provider.run("touch /x")
    assert (outcome.exit_code, outcome.ending.denied_writes) == (1, None)


async def test_the_receipt_has_the_numbers(provider):
    """Evidence is worth what it is written on."""
    outcome = await provider.run("touch /x /y", watch_writes=True)
    ending = outcome.receipt["ending"]
    assert [ending[name] for name in ("denied_writes", "denied_network", "refused_datagrams")] == [2, 0, 0]


async def test_a_container_that_serves_again_begins_at_none(provider):
    """Neither writes nor the network of the last command are told of the next."""
    numbers = []
    for script in ("touch /x; wget http://192.0.2.1/", "true", "touch /y /z"):
        outcome = await provider.run(script, watch_writes=True, reuse="scrub", session="one")
        numbers.append((outcome.ending.denied_writes, outcome.ending.denied_network, outcome.container.served))
    assert numbers == [(1, 1, 0), (0, 0, 1), (2, 0, 2)]


# The network.

CONNECTS = """
    import socket, sys
    for host in sys.argv[1:]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(family, kind) as one:
                try:
                    one.connect((host, 80))
                    print("connected")
                except OSError as error:
                    print(error.errno)
"""


async def test_without_a_network_every_attempt_is_counted(provider):
    """By IPv4 and IPv6, for connections and datagrams; loopback is a network."""
    outcome = await provider.run(python(CONNECTS, "192.0.2.1", "2001:db8::1"), image=DEFAULT)
    assert (outcome.stdout, outcome.ending.denied_network) == (b"101\n" * 4, 4)
    outcome = await provider.run(python(CONNECTS, "127.0.0.1", "::1"), image=DEFAULT)
    assert (outcome.stdout, outcome.ending.denied_network) == (b"111\nconnected\n" * 2, 0)


async def test_tools_that_want_a_network_leave_a_trace(provider):
    """curl to an address has no route, and a name is looked up where nobody listens."""
    outcome = await provider.run(["curl", "-sS", "http://192.0.2.1/"], image=DEFAULT)
    assert (outcome.exit_code, outcome.ending.denied_network, outcome.ending.refused_datagrams) == (7, 1, 0)
    outcome = await provider.run(["curl", "-sS", "http://example.com/"], image=DEFAULT)
    assert (outcome.exit_code, outcome.ending.denied_network) == (6, 0)
    assert outcome.ending.refused_datagrams > 0


# Hostile commands.

STORM = """
    import os, sys, threading, time
    def tries():
        mine = f"/tmp/{os.getpid()}-{threading.get_ident()}"
        while True:
            for path in ("/x", mine):
                try:
                    os.mkdir(path)
                    os.rmdir(path)
                except OSError:
                    pass
    for _ in range(int(sys.argv[1])):
        if os.fork() == 0:
            for _ in range(3):
                threading.Thread(target=tries, daemon=True).start()
            time.sleep(float(sys.argv[2]))
            os._exit(0)
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
"""


async def test_a_storm_is_ended_in_time(provider):
    """60 threads that all wait for pid 1 hold up neither the deadline nor the output."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    outcome = await provider.run(python(STORM, "20", "99"), image=DEFAULT, watch_writes=True, timeout=1)
    assert loop.time() - began < 8
    assert (outcome.timed_out, outcome.stdout) == (True, b"ready\n")
    assert outcome.ending.denied_writes


async def test_those_who_leave_hold_nobody_up(provider):
    """Processes that exit in the middle of a call are forgotten, and the command ends as it wants to."""
    outcome = await provider.run(python(STORM, "20", "0.2"), image=DEFAULT, watch_writes=True, timeout=30)
    assert (outcome.exit_code, outcome.stdout) == (0, b"ready\n")
    assert outcome.ending.denied_writes


async def test_out_of_memory_is_told_as_ever(provider):
    """A command that is killed in the middle of it has its count and its cause."""
    script = """
        import os
        hoard = []
        while True:
            hoard.append(bytearray(1 << 20))
            os.system("touch /x")
    """
    limits = Limits(memory_bytes=48 << 20)
    outcome = await provider.run(python(script), image=DEFAULT, watch_writes=True, limits=limits)
    assert outcome.oom_killed
    assert outcome.ending.denied_writes


async def test_a_lease_is_watched_to_its_end(provider):
    """What is left behind goes on writing, which without an answer it could not."""
    script = "(while :; do echo x > /tmp/x; touch /x; sleep 0.05; done) 2>/dev/null & sleep 0.2"
    outcome = await provider.run(script, watch_writes=True, background="keep", lease=30, session="kept")
    assert outcome.ending.denied_writes
    lease = provider.lease(outcome.lease)
    await asyncio.sleep(0.3)
    assert await lease.processes()
    await lease.stop()
