"""What a command leaves behind and may keep: its lease, its list, its signals."""

from __future__ import annotations

import asyncio
import signal
import struct

import pytest

from provider.engine import wire
from provider.model import Begun

PLENTY = 16 * 2**20
SECONDS = 5.0
# The exit itself is not told until the linger time is over; but the shell's pid is free once it was reaped.
ORPHAN = "(while kill -0 $$ 2> /dev/null; do sleep 0.01; done; echo orphan; sleep 60)"


def to_one(number: int, pid: int) -> bytes:
    return struct.pack(">BI", number, pid)


# The lease.


async def test_what_a_command_leaves_behind_lives_on(init):
    """Its ending is told with whom it left; they are heard on, until they are ended."""
    init.run("exec 3<&0; (read x <&3; echo more; exec sleep 60) & echo $!; exit 3", lease=30, stdin=True)
    lease = await init.leased()
    assert (lease.reason, lease.exit_code) == ("exited", 3)
    assert lease.background_pids == (int(init.output["stdout"]),)
    init.send(b"I", b"\n")
    await init.heard(b"more")
    init.send(b"T", b"c")
    ending = await init.ending()
    assert (ending.reason, ending.exit_code, ending.pid) == ("canceled", 3, lease.pid)
    assert ending.background_pids == lease.background_pids


async def test_they_may_end_by_themselves(init):
    """Then nobody has ended them, and all that they used is told."""
    busy = "i=0; while [ $i -lt 99999 ]; do i=$((i + 1)); done"
    init.run(f"exec 3<&0; (read x <&3; {busy}) & exit 4", lease=30, stdin=True)
    lease = await init.leased()
    init.send(b"I", b"\n")
    ending = await init.ending()
    assert (ending.reason, ending.exit_code) == ("exited", 4)
    assert ending.usage.cpu_user_seconds > lease.usage.cpu_user_seconds


async def test_a_lease_begins_with_all_that_the_command_has_written(init):
    """By credit as always; the ending waits for it, and not for what others go on writing."""
    init.run("yes b & seq 1 20000 >&2; exit 5", lease=30, credit=0)
    assert isinstance(await init.message(), Begun)
    init.grant(PLENTY)
    assert (await init.leased()).exit_code == 5
    assert init.output["stderr"] == b"".join(b"%d\n" % number for number in range(1, 20_001))
    init.send(b"T", b"c")
    await init.ending()


async def test_a_lease_on_a_terminal_begins_with_all_that_the_command_has_written(
    init, held, monkeypatch: pytest.MonkeyPatch
):
    """There too, though a terminal cannot tell how much it holds."""
    monkeypatch.setattr(wire, "LINGER_MS", 0)
    watching = "while kill -0 $$ 2> /dev/null; do sleep 0.01; done; exec 9>&-; sleep 60"
    init.run(f"trap '' HUP; exec 9>{held}; ({watching}) & seq 1 1500; exit 5", lease=30, tty=(24, 80), credit=1)
    await held.released()
    init.grant(PLENTY)
    assert (await init.leased()).exit_code == 5
    assert init.output["stdout"] == b"".join(b"%d\r\n" % number for number in range(1, 1501))
    init.send(b"T", b"c")
    await init.ending()


async def test_a_lease_ends(init, held):
    """By pid 1's own clock: TERM, and KILL for those who do not heed it."""
    init.run(f"(trap '' TERM; exec 9>{held}; sleep 60) & exit 6", lease=0.1, grace=0.1)
    assert (await init.leased()).exit_code == 6
    ending = await init.ending()
    assert (ending.reason, ending.exit_code) == ("timed_out", 6)
    await held.released()


async def test_a_lease_ends_without_credit(init, held):
    """Also before it could be told; then only the ending is."""
    init.run(f"(exec 9>{held}; sleep 60) & echo unheard; exit 6", lease=0.1, credit=0)
    await held.released()
    init.grant(PLENTY)
    ending = await init.ending()
    assert (ending.reason, ending.exit_code, init.output["stdout"]) == ("timed_out", 6, b"unheard\n")
    assert len(ending.background_pids) >= 1


async def test_the_commands_own_deadline_is_over_with_it(init):
    """A lease outlives it."""
    init.run("(sleep 0.5; echo alive; sleep 60) & exit 0", timeout=0.3, lease=30)
    await init.leased()
    await init.heard(b"alive")
    init.send(b"T", b"o")
    assert (await init.ending()).reason == "output_limit"


@pytest.mark.parametrize("argv", [("true & exit 7",), ("no-such-program-anywhere", "x")])
async def test_nobody_left_is_no_lease(init, argv: tuple[str, ...]):
    """Nor is a command that could not be started."""
    init.run(*argv, lease=30)
    ending = await init.ending()
    assert (ending.exit_code, ending.error_number, ending.background_pids) in {(7, None, ()), (None, 2, ())}


async def test_a_command_that_is_ended_leaves_no_lease(init, held):
    """Its deadline is for all."""
    init.run(f"(trap '' TERM; exec 9>{held}; sleep 60) & sleep 60", lease=30, timeout=0.1, grace=0.1)
    assert (await init.ending()).reason == "timed_out"
    await held.released()


async def test_a_kill_before_the_lease_is_told_comes_first(init, monkeypatch: pytest.MonkeyPatch):
    """Between the command's end and the lease it ends those who are left, and the command has exited all the same."""
    monkeypatch.setattr(wire, "LINGER_MS", 8000)
    init.run(f"{ORPHAN} & exit 5", lease=30)
    await init.heard(b"orphan")
    init.send(b"T", b"c")
    ending = await init.ending()
    assert (ending.reason, ending.exit_code) == ("canceled", 5)
    assert len(ending.background_pids) >= 1


# The list.


async def test_processes_are_listed(init):
    """With their arguments, in which nothing but printable ASCII is left as it is, and of which 256 bytes are told."""
    init.run("/bin/sh", "-c", "echo ready; read x; :", "a\nb\\", "\udcff", "x" * 300, stdin=True)
    begun = await init.message()
    await init.heard(b"ready")
    init.send(b"Q")
    listed = await init.answer(b"P")
    line = "/bin/sh -c echo ready; read x; : a\\x0ab\\x5c \\xff "
    assert listed == {str(begun.pid): line + "x" * (256 - len("/bin/sh -c echo ready; read x; : anb. . "))}


async def test_a_process_without_arguments_is_listed_by_its_name(box):
    """In brackets; and the dead are not listed."""
    box.run(
        "/python/bin/python3",
        "-c",
        "import ctypes, os\n"
        "if not os.fork(): os._exit(0)\n"  # a zombie: its parent does not wait
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).execv(b'/usr/bin/cat', (ctypes.c_char_p * 2)(b''))",
        stdin=True,
    )
    begun = await box.message()
    await box.heard(b"ready")
    listed: dict[str, str] = {}
    async with asyncio.timeout(SECONDS):
        while listed != {str(begun.pid): "[cat]"}:  # once it is so far
            box.send(b"Q")
            listed = await box.answer(b"P")


MANY = ("/bin/sh", "-c", "exec 3<&0; for i in $(seq 100); do (read x <&3) & done; yes", "\udcff" * 300)


async def test_a_list_that_is_too_long_is_counted(init):
    """It is one frame; how many more there are is told."""
    init.run(*MANY, stdin=True, credit=1)
    await init.heard(b"y")
    init.send(b"Q")
    listed = await init.answer(b"P")
    assert 60 < len(listed) < 100
    assert list(listed)[-1] == "more"
    assert len(listed) - 1 + int(listed["more"]) == 102
    init.send(b"T", b"c")


async def test_a_list_waits_for_room(init):
    """Asked for while nobody reads, it comes once somebody does, in the middle of output; one for all who asked."""
    init.run(*MANY, stdin=True, credit=2**30)
    await init.heard(b"y")
    for _ in range(3):
        await asyncio.sleep(0.1)  # nothing tells that a pipe that nobody reads is full
        init.send(b"Q")
    assert "more" in await init.answer(b"P")
    init.send(b"T", b"c")
    await init.ending()


# Signals to one.


async def test_a_signal_reaches_one_process(init):
    """It, and neither its parent nor its brothers."""
    child = "sh -c 'trap \"echo got $0; exit\" USR1; echo up; while :; do sleep 0.01; done' $i"
    init.run(f"for i in 1 2; do {child} & echo pid $!; done; wait")
    while init.output["stdout"].count(b"\n") < 4:  # two are up, two pids are told
        await init.message()
    second = int(init.output["stdout"].split(b"pid ")[2].split()[0])
    init.send(b"K", to_one(signal.SIGUSR1, second))
    await init.heard(b"got 2")
    init.send(b"T", b"c")
    await init.ending()
    assert b"got 1" not in init.output["stdout"]


async def test_pid_0_is_everyone(init):
    """What has a session of its own too."""
    init.run("setsid sh -c 'trap \"echo child; exit\" USR1; echo up; while :; do sleep 0.01; done' & wait")
    await init.heard(b"up")
    init.send(b"K", to_one(signal.SIGUSR1, 0))
    ending = await init.ending()
    assert ending.signal == signal.SIGUSR1
    assert b"child" in init.output["stdout"]


@pytest.mark.parametrize("pid", [1, 999_999, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1])
async def test_a_signal_to_nobody_reaches_nobody(init, pid: int):
    """Pid 1, who is not there, and numbers that the kernel would read as a group or as everyone."""
    init.run("read x; exit 8", stdin=True)
    init.send(b"K", to_one(signal.SIGKILL, pid))
    init.send(b"I", b"\n")
    assert (await init.ending()).exit_code == 8


async def test_a_signal_reaches_one_of_those_left(init):
    """During a lease, when the command itself is gone."""
    init.run("sleep 60 & echo $!; exit 0", lease=30)
    await init.leased()
    init.send(b"K", to_one(signal.SIGTERM, int(init.output["stdout"])))
    ending = await init.ending()
    assert (ending.reason, ending.exit_code) == ("exited", 0)


async def test_a_lease_ends_with_the_provider(init, held):
    """Nobody outlives the end of stdin."""
    init.run(f"(trap '' TERM HUP; exec 9>{held}; sleep 60) & exit 0", lease=60)
    await init.leased()
    assert (await init.leave())[0] == 0
    await held.released()
