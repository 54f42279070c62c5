"""A command under pid 1, from the first frame to the ending."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from provider.engine import wire
from provider.model import Begun, Ending, ExecPlan

PLENTY = 16 * 2**20
SECONDS = 5.0

# Before the command.


def test_it_runs_only_as_pid_1(program: Path):
    """Anywhere else its kill would reach every process of the user, so it refuses."""
    done = subprocess.run([program], input=b"", capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"pid 1" in done.stderr


async def test_hello_tells_its_confinement(init):
    """Protocol, ids, privileges, capabilities and interfaces are told as the kernel shows them."""
    expected = {"protocol": "2", "no_new_privs": "1", "seccomp": "0", "cap_eff": "0" * 16, "cap_bnd": "0" * 16}
    expected |= dict.fromkeys(("uid", "gid"), "65534" if os.geteuid() == 0 else "0")
    expected["interfaces"] = ",".join(name for _, name in socket.if_nameindex())
    expected["cpus"] = str(len(os.sched_getaffinity(0)))
    assert {name: value for name, value in init.hello.items() if name != "inode"} == expected


async def test_nothing_runs_before_the_word(init, shared: Path):
    """A provider that goes away in the middle of a command has not run it."""
    os.mkfifo(shared / "ran")
    command = wire.command(
        ExecPlan(
            argv=("/bin/sh", "-c", f"rm {shared}/ran"), env=(), cwd="/", timeout=None, grace=0, tty=None, artifacts=()
        ),
        stdin=False,
        credit=0,
    )
    assert init.process.stdin
    init.process.stdin.write(command[:-1])
    assert (await init.leave())[0] == 0
    assert (shared / "ran").exists()


MALFORMED = {
    "an unknown frame": wire.frame(b"?"),
    "a list before its time": wire.frame(b"Q"),
    "a frame too long": struct.pack(">BI", ord("S"), 65_537),
    "a frame of 4 GiB": struct.pack(">BI", ord("S"), 2**32 - 1),
    "credit before its time": wire.frame(b"C", b"\0\0\0\1"),
    "stdin before its time": wire.frame(b"I", b"x"),
    "a kill before its time": wire.frame(b"T", b"c"),
    "no program": wire.frame(b"X"),
    "an X with a payload": wire.frame(b"X", b"x"),
    "a cut record": wire.frame(b"S", b"a\0\0") + wire.frame(b"X"),
    "a record past its end": wire.frame(b"S", b"a\0\0\0\x09/bin/tru") + wire.frame(b"X"),
    "a record of 4 GiB": wire.frame(b"S", b"a\xff\xff\xff\xff") + wire.frame(b"X"),
    "a NUL": wire.frame(b"S", b"a\0\0\0\3a\0b") + wire.frame(b"X"),
    "an unknown record": wire.frame(b"S", b"z\0\0\0\0") + wire.frame(b"X"),
    "a short deadline": wire.frame(b"S", b"t\0\0\0\4\0\0\0\1") + wire.frame(b"X"),
    "a short lease": wire.frame(b"S", b"k\0\0\0\4\0\0\0\1") + wire.frame(b"X"),
    "a watch with a value": wire.frame(b"S", b"w\0\0\0\1x") + wire.frame(b"X"),
    "a scrub with a value": wire.frame(b"S", b"r\0\0\0\1x") + wire.frame(b"X"),
    "both kept and scrubbed": wire.frame(b"S", b"a\0\0\0\1xr\0\0\0\0k\0\0\0\x08" + bytes(8)) + wire.frame(b"X"),
    "no processor": wire.frame(b"S", b"n\0\0\0\0") + wire.frame(b"X"),
    "half a processor": wire.frame(b"S", b"n\0\0\0\3\0\1\0") + wire.frame(b"X"),
    "a stdin with a value": wire.frame(b"S", b"i\0\0\0\1x") + wire.frame(b"X"),
    "more than 4 MiB": wire.frame(b"S", bytes(65_536)) * 65,
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_not_of_the_protocol_ends_everything(init, data: bytes):
    """It gives up with status 2 and one line that says why, without waiting for more."""
    assert init.process.stdin
    init.process.stdin.write(data)
    async with asyncio.timeout(SECONDS):
        assert await init.process.wait() == 2
    assert (await init.leave())[1].startswith(b"sandbox-init: ")


RUNNING = {
    "a second command": wire.frame(b"S", b"x"),
    "a second X": wire.frame(b"X"),
    "credit of 3 bytes": wire.frame(b"C", b"\0\0\1"),
    "a signal of 2 bytes": wire.frame(b"K", b"\0\1"),
    "signal 65": wire.frame(b"K", b"\x41"),
    "signal 255": wire.frame(b"K", b"\xff"),
    "a signal with half a pid": wire.frame(b"K", b"\x0f\0\0"),
    "signal 65 for one": wire.frame(b"K", b"\x41\0\0\0\2"),
    "a list with a payload": wire.frame(b"Q", b"x"),
    "a size of 2 bytes": wire.frame(b"W", b"\0\1"),
    "a kill without a reason": wire.frame(b"T"),
    "stdin past its credit": wire.frame(b"I", bytes(65_536)) * 12,
}


@pytest.mark.parametrize("data", RUNNING.values(), ids=RUNNING.keys())
async def test_a_broken_conversation_ends_the_command(init, held, data: bytes):
    """In the middle of a run too: pid 1 leaves, and the kernel ends everything with it."""
    init.run(f"exec 9>{held}; echo ready; sleep 60", stdin=True)
    await init.heard(b"ready")
    assert init.process.stdin
    init.process.stdin.write(data)
    async with asyncio.timeout(SECONDS):
        assert await init.process.wait() == 2
    await held.released()


# Endings.


@pytest.mark.parametrize("code", [0, 1, 42, 126, 127, 255])
async def test_an_exit_code_is_told(init, code: int):
    """Exactly as the command gave it, with its pid, and it is the last word."""
    init.run(f"exit {code}")
    begun = await init.message()
    ending = await init.ending()
    assert isinstance(begun, Begun)
    assert (ending.reason, ending.exit_code, ending.pid) == ("exited", code, begun.pid)
    assert ending.usage
    assert ending.usage.max_rss_bytes > 0
    async with asyncio.timeout(SECONDS):
        assert await init.process.wait() == 0


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM", "ABRT", "PIPE", "USR1"])
async def test_a_signal_is_told(init, name: str):
    """A command that was killed has no exit code, not even 128 and something."""
    init.run(f"kill -{name} $$")
    ending = await init.ending()
    assert (ending.reason, ending.exit_code, ending.signal) == ("exited", None, signal.Signals[f"SIG{name}"])


def make(path: Path, text: str = "", mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("no-such-program-anywhere", errno.ENOENT),
        ("/no/such/program", errno.ENOENT),
        ("/etc", errno.EACCES),
        ("{shared}/not-executable", errno.EACCES),
        ("{shared}/no-interpreter-line", errno.ENOEXEC),
        ("{shared}/other-interpreter", errno.ENOENT),
        ("/dev/null/x", errno.ENOTDIR),
    ],
)
async def test_a_program_that_cannot_be_started_says_why(init, shared: Path, name: str, number: int):
    """The kernel's own number, and neither pid, exit code, output nor a detour through a shell."""
    make(shared / "not-executable", mode=0o644)
    make(shared / "no-interpreter-line", "echo run by a shell")
    make(shared / "other-interpreter", "#!/no/such/interpreter\n")
    init.run(name.format(shared=shared), "argument")
    ending = await init.message()
    assert isinstance(ending, Ending)
    assert (ending.error_number, ending.pid, ending.exit_code, ending.signal) == (number, None, None, None)
    assert ending.error == f"program: {os.strerror(number)}"


@pytest.mark.parametrize(
    ("cwd", "number"), [("/no/such/folder", errno.ENOENT), ("/etc/passwd", errno.ENOTDIR), ("/root", errno.EACCES)]
)
async def test_a_working_directory_that_cannot_be_entered_says_why(init, cwd: str, number: int):
    """It is told apart from a missing program."""
    if number == errno.EACCES and os.geteuid() != 0:
        pytest.skip("/root may be one's own")
    init.run("pwd", cwd=cwd)
    ending = await init.ending()
    assert (ending.error, ending.error_number) == (f"working directory: {os.strerror(number)}", number)


# Start.


async def test_arguments_arrive_byte_for_byte(init):
    """Empty ones, odd bytes and newlines too."""
    arguments = ["", "a b", "new\nline", "\udcff\udcfe", "ü", "-n", "x" * 100_000]
    init.run("/usr/bin/printf", "%s\\0", *arguments)
    await init.ending()
    assert init.output["stdout"] == b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


async def test_the_environment_is_what_was_sent_and_nothing_else(init):
    """Not even pid 1's own variables are inherited."""
    init.run("/usr/bin/env", "-0", env={"A": "1", "B": "new\nline", "C": "\udcff", "D": ""})
    await init.ending()
    assert init.output["stdout"] == b"A=1\0B=new\nline\0C=\xff\0D=\0"


async def test_the_working_directory_is_entered(init, shared: Path):
    """By its absolute name."""
    init.run("/bin/pwd", "-P", cwd=str(shared))
    await init.ending()
    assert init.output["stdout"] == os.fsencode(shared) + b"\n"


async def test_programs_are_looked_up_on_the_commands_own_path(init, shared: Path):
    """In its order; what cannot be executed is passed over."""
    for folder, mode in (("a", 0o644), ("b", 0o755), ("c", 0o755)):
        (shared / folder).mkdir()
        make(shared / folder / "prog", f"#!/bin/sh\necho {folder}\n", mode)
    init.run("prog", "x", env={"PATH": f"{shared}/missing:{shared}/a:{shared}/b:{shared}/c"})
    await init.ending()
    assert init.output["stdout"] == b"b\n"


async def test_an_empty_part_of_the_path_is_the_working_directory(init, shared: Path):
    """As shells have it."""
    make(shared / "prog", "#!/bin/sh\necho here\n")
    init.run("prog", "x", env={"PATH": "/missing:"}, cwd=str(shared))
    await init.ending()
    assert init.output["stdout"] == b"here\n"


async def test_a_program_without_permission_is_told_so(init, shared: Path):
    """Found but not executable is another answer than not found."""
    make(shared / "prog", mode=0o644)
    init.run("prog", "x", env={"PATH": f"{shared}:/missing"})
    assert (await init.ending()).error_number == errno.EACCES


async def test_without_a_path_there_is_a_default(init):
    """A command without any variable still finds the usual programs."""
    init.run("echo", "found", env={})
    await init.ending()
    assert init.output["stdout"] == b"found\n"


async def test_a_command_starts_clean(init):
    """No signal is blocked or ignored, and no descriptor of pid 1 is open but the three."""
    init.run("grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd")
    await init.ending()
    lines = init.output["stdout"].decode().split("\n")
    assert [line.split("\t")[1] for line in lines[:2]] == ["0" * 16] * 2
    assert lines[3:-1] == ["0", "1", "2", "3"]  # 3 is the folder that ls reads


async def test_a_command_leads_its_own_session(init):
    """Signals for its group reach its children and not pid 1."""
    init.run("cut -d' ' -f1,5,6 /proc/self/stat; echo $$")
    await init.ending()
    (_, group, session), (shell,) = (line.split() for line in init.output["stdout"].splitlines())
    assert group == session == shell


OURS = sorted(os.sched_getaffinity(0))
LAST = len(OURS) - 1


@pytest.mark.parametrize(
    ("places", "found"),
    [
        (None, OURS),
        (wire.Offer(1, (0,)), OURS[:1]),
        (wire.Offer(1, (LAST, 9999)), OURS[-1:]),
        (wire.Offer(2, (9999, 0, 0, LAST)), [OURS[0], OURS[-1]]),
        (wire.Offer(1, (9999,)), OURS),
        (wire.Offer(1, ()), OURS),
        (wire.Offer(9999, tuple(range(len(OURS)))), OURS),
    ],
    ids=["all", "the first", "the last", "those that are there", "none that is there", "none", "as many as there are"],
)
async def test_a_command_finds_the_processors_that_it_was_given(init, places: wire.Offer | None, found: list[int]):
    """They are counted among pid 1's own, which itself stays on all of them; where none is left it may use all."""
    init.run(LOOK, processors=places)
    await init.ending()
    assert masks(init) == [sum(1 << cpu for cpu in set(cpus)) for cpus in (found, OURS)]


LOOK = "grep -h Cpus_allowed: /proc/self/status /proc/1/status"


def masks(init) -> list[int]:
    return [int(line.split()[1].replace(b",", b""), 16) for line in init.output["stdout"].splitlines()]


@pytest.mark.skipif(LAST == 0, reason="one processor is all there is")
async def test_pid_1_tells_which_processor_the_command_has_taken(init):
    """Of an offer of all it takes one, and the word that it has begun names that one's place."""
    init.run(LOOK, processors=wire.Offer(1, tuple(range(len(OURS)))))
    while (said := await init.frame())[0] != ord("B"):
        pass
    [place] = wire.processors(said[1])
    await init.ending()
    assert masks(init)[0] == 1 << OURS[place]


async def test_pid_1_is_closed_to_the_command(init):
    """Of the same uid, it can neither look into pid 1, write results in its name, trace, kill nor stop it."""
    init.run(
        "ls /proc/1/fd; cat /proc/1/environ; echo Z > /proc/1/fd/1; cat < /proc/1/fd/0;"
        "readlink /proc/1/exe; readlink /proc/1/cwd; kill -KILL 1; kill -STOP 1; kill -TERM 1; echo alive"
    )
    ending = await init.ending()
    assert (ending.exit_code, init.output["stdout"]) == (0, b"alive\n")
    assert init.output["stderr"].count(b"Permission denied") >= 3


# Output.


async def test_output_is_whole_and_in_order(init):
    """A megabyte on each stream arrives to the byte."""
    lines = b"".join(b"%d\n" % number for number in range(1, 170_001))
    init.run("seq 1 170000; seq 1 170000 >&2")
    ending = await init.ending()
    assert ending.exit_code == 0
    assert len(lines) > 2**20
    assert init.output == {"stdout": lines, "stderr": lines}


async def test_streams_at_the_same_time_are_each_in_order(init):
    """Neither stream holds up or mixes with the other."""
    lines = b"".join(b"%d\n" % number for number in range(1, 50_001))
    init.run("seq 1 50000 & seq 1 50000 >&2; wait")
    await init.ending()
    assert init.output == {"stdout": lines, "stderr": lines}


@pytest.mark.parametrize("first", [0, 1, 1000, 65_536, 100_000])
async def test_credit_is_never_exceeded(init, first: int):
    """Not one byte more than was granted, and all of that, again and again."""
    init.run("yes & yes >&2", credit=first)
    for more in (1, 7, 65_536, 65_537, 200_000):
        while init.received < init.granted:
            await init.message()
        init.grant(more)
    while init.received < init.granted:
        await init.message()
    init.send(b"T", b"c")
    init.grant(PLENTY)
    assert (await init.ending()).reason == "canceled"


async def test_without_credit_the_command_waits_and_loses_nothing(init):
    """Output that is not asked for blocks its writer, also past its exit."""
    init.run("seq 1 10000; echo end", credit=0)
    assert isinstance(await init.message(), Begun)
    while not init.output["stdout"].endswith(b"end\n"):
        init.grant(999)
        while init.received < init.granted and not init.output["stdout"].endswith(b"end\n"):
            await init.message()
    assert init.output["stdout"] == b"".join(b"%d\n" % number for number in range(1, 10_001)) + b"end\n"
    assert (await init.ending()).exit_code == 0


@pytest.mark.parametrize(("text", "credit"), [("exit 4", 0), ("printf abc; exit 4", 3)])
async def test_an_ending_needs_no_credit(init, text: str, credit: int):
    """When there is nothing more to send, the ending is told, though the credit is used up."""
    init.run(text, credit=credit)
    assert (await init.ending()).exit_code == 4
    assert init.received == credit


async def test_credit_adds_up_without_overflow(init):
    """A provider that grants more than 4 GiB in all is not taken for one that grants nothing."""
    init.run("read x; seq 1 1000", credit=2**32 - 1, stdin=True)
    init.send(b"C", struct.pack(">I", 1))
    init.send(b"I", b"\n")
    await init.ending()
    assert init.output["stdout"].endswith(b"\n1000\n")


# What is left behind.


async def test_a_process_left_behind_is_listed_and_ended(init, held):
    """The command's exit ends the run, even while a child holds its output; the child does not live on."""
    init.run(f"sleep 60 9>{held} & echo $!; exit 3")
    ending = await init.ending()
    assert ending.exit_code == 3
    assert ending.background_pids == (int(init.output["stdout"]),)
    await held.released()


async def test_a_process_in_a_session_of_its_own_is_ended_too(init, held):
    """There is no way out by setsid, a double fork or ignored signals."""
    init.run(f"(setsid sh -c \"trap '' TERM HUP INT; exec 9>{held}; echo up; sleep 60\" &); read x", stdin=True)
    await init.heard(b"up")
    init.send(b"I", b"\n")
    ending = await init.ending()
    assert len(ending.background_pids) == 2
    await held.released()


async def test_a_process_that_ends_in_time_is_not_listed(init, monkeypatch: pytest.MonkeyPatch):
    """What ends by itself within the linger time is heard to its end."""
    monkeypatch.setattr(wire, "LINGER_MS", 8000)
    init.run("exec 3<&0; (read x <&3; echo late) & exit 0", stdin=True)
    assert isinstance(await init.message(), Begun)
    init.send(b"I", b"\n")
    ending = await init.ending()
    assert (ending.background_pids, init.output["stdout"]) == ((), b"late\n")


async def test_orphans_are_reaped(init):
    """Children that outlive their parent for a moment leave no zombie behind."""
    init.run(
        "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.01 &); done; read x; grep -ls '^State:.Z' /proc/[0-9]*/status; true",
        stdin=True,
    )
    assert isinstance(await init.message(), Begun)
    await asyncio.sleep(0.1)  # they are nobody's children here: nothing tells when they have ended
    init.send(b"I", b"\n")
    ending = await init.ending()
    assert (init.output["stdout"], ending.background_pids) == (b"", ())


async def test_hundreds_of_processes_are_ended(init):
    """While they still multiply, nobody is left when the ending is told."""
    # No more than 511: here no cgroup holds a real one, and root has no limit of its own.
    init.run("f() { [ $1 -gt 0 ] && { f $(($1 - 1)) & f $(($1 - 1)) & }; sleep 60; }; f 8", timeout=0.3, grace=0.1)
    ending = await init.ending()
    assert ending.reason == "timed_out"


# Deadlines and kills.


async def test_a_deadline_ends_the_command(init):
    """By TERM first, and the reason is told."""
    init.run("echo partial; exec sleep 60", timeout=0.1, grace=30)
    ending = await init.ending()
    assert (ending.reason, ending.signal, ending.exit_code) == ("timed_out", signal.SIGTERM, None)
    assert init.output["stdout"] == b"partial\n"


async def test_a_command_that_ignores_term_is_killed(init):
    """After the grace, with all its children."""
    init.run("trap '' TERM; while :; do sleep 1; done", timeout=0.1, grace=0.1)
    ending = await init.ending()
    assert (ending.reason, ending.signal) == ("timed_out", signal.SIGKILL)


async def test_a_command_may_use_its_grace(init):
    """What it does on TERM is heard, and its own exit code counts."""
    init.run("trap 'echo bye; exit 7' TERM; echo ready; sleep 60 & wait", timeout=0.2, grace=30)
    ending = await init.ending()
    assert (ending.reason, ending.exit_code) == ("timed_out", 7)
    assert init.output["stdout"] == b"ready\nbye\n"


async def test_a_stopped_command_is_ended(init):
    """It is continued, so that it can see the TERM."""
    init.run("echo ready; kill -STOP $$; echo on", timeout=0.2, grace=30)
    ending = await init.ending()
    assert (ending.reason, ending.signal) == ("timed_out", signal.SIGTERM)


async def test_a_deadline_does_not_depend_on_credit_or_on_a_reader(init, held):
    """A command that nobody listens to is ended all the same, at once."""
    init.run(f"trap '' TERM; exec 9>{held}; yes", credit=0, timeout=0.1, grace=0.1)
    await held.released()
    init.grant(PLENTY)
    assert (await init.ending()).reason == "timed_out"


async def test_a_full_pipe_does_not_hold_up_a_deadline(init, held):
    """Nor does a provider that has stopped reading altogether."""
    init.run(f"trap '' TERM; exec 9>{held}; yes", credit=2**30, timeout=0.2, grace=0.1)
    await held.released()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"c", "canceled"),
        (b"o", "output_limit"),
        (b"t", "timed_out"),
        (b"w", "workspace_quota"),
        (b"?", "canceled"),
    ],
)
async def test_a_kill_frame_ends_the_command(init, payload: bytes, reason: str):
    """With the reason that it names; the first one counts."""
    init.run("echo ready; exec sleep 60", grace=30)
    await init.heard(b"ready")
    init.send(b"T", payload)
    init.send(b"T", b"c")
    ending = await init.ending()
    assert (ending.reason, ending.signal) == (reason, signal.SIGTERM)


async def test_a_kill_after_the_end_changes_nothing(init, monkeypatch: pytest.MonkeyPatch):
    """A command that has exited has exited."""
    monkeypatch.setattr(wire, "LINGER_MS", 300)
    init.run("sleep 60 & echo done; exit 5")
    await init.heard(b"done")
    await asyncio.sleep(0.1)  # the exit itself is not told until the linger time is over
    init.send(b"T", b"c")
    ending = await init.ending()
    assert (ending.reason, ending.exit_code) == ("exited", 5)


async def test_the_end_of_stdin_ends_everything(init, held):
    """When the provider dies nothing outlives it, not even what ignores every signal; no reaper is needed."""
    init.run(f"trap '' TERM HUP; exec 9>{held}; echo ready; setsid sleep 60 & sleep 60")
    await init.heard(b"ready")
    assert (await init.leave())[0] == 0
    await held.released()


# Stdin.


async def test_stdin_is_passed_on_within_its_credit(init):
    """A megabyte goes through, credit comes back for every byte, and its end is the command's."""
    data = os.urandom(2**20)
    init.run("cat", "-", stdin=True)
    sent, window = 0, wire.STDIN_WINDOW
    while sent < len(data):
        room = min(window + init.stdin_credit - sent, 50_000, len(data) - sent)
        if room:
            init.send(b"I", data[sent : sent + room])
            sent += room
        else:
            await init.message()
    init.send(b"I")
    ending = await init.ending()
    assert ending.exit_code == 0
    assert init.output["stdout"] == data
    assert init.stdin_credit >= len(data) - window


async def test_without_stdin_it_is_at_its_end(init):
    """A command that reads does not wait for ever, and what is sent all the same is dropped."""
    init.run("cat; echo end")
    init.send(b"I", b"nobody asked")
    await init.ending()
    assert init.output["stdout"] == b"end\n"


async def test_stdin_that_nobody_reads_is_dropped(init):
    """A command that closes its stdin is not ended by what comes after, and the credit comes back."""
    init.run("exec <&-; echo closed; sleep 60", stdin=True)
    await init.heard(b"closed")
    for _ in range(2):
        init.send(b"I", bytes(60_000))
    while init.stdin_credit < 120_000:
        kind, payload = await init.frame()
        if kind == ord("c"):
            init.stdin_credit += wire.u32(payload)
    init.send(b"T", b"c")
    assert (await init.ending()).reason == "canceled"


# Signals.


async def test_a_signal_reaches_the_process_group(init):
    """The command and its children get it, what has a session of its own does not."""
    init.run(
        "setsid sh -c 'echo apart; exec sleep 60' &"
        "sh -c 'trap \"echo child; exit\" USR1; echo ready; while :; do sleep 0.01; done'; echo end"
    )
    await init.heard(b"apart")
    await init.heard(b"ready")
    init.send(b"K", bytes([signal.SIGUSR1]))
    ending = await init.ending()
    assert ending.signal == signal.SIGUSR1  # the shell itself does not trap it
    assert len(ending.background_pids) >= 1


@pytest.mark.parametrize("number", [0, 64])
async def test_signals_at_the_borders_are_passed_on(init, number: int):
    """0 tests and does nothing, 64 is the last real-time signal."""
    init.run("echo ready; read x", stdin=True)
    await init.heard(b"ready")
    init.send(b"K", bytes([number]))
    init.send(b"I", b"\n")
    ending = await init.ending()
    assert (ending.signal, ending.exit_code) == ((None, 0) if number == 0 else (64, None))


# Terminals.


async def test_a_terminal_is_one_and_has_its_size(init):
    """All three descriptors are the same terminal, and it is the controlling one."""
    init.run("test -t 0 && test -t 1 && test -t 2 && stty size && : > /dev/tty && echo yes", tty=(24, 80))
    ending = await init.ending()
    assert (ending.exit_code, init.output) == (0, {"stdout": b"24 80\r\nyes\r\n", "stderr": b""})


async def test_a_new_size_is_told_to_the_command(init):
    """It gets SIGWINCH, and sees the new size."""
    init.run("trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done", tty=(24, 80))
    await init.heard(b"ready")
    init.send(b"W", struct.pack(">HH", 30, 100))
    await init.ending()
    assert init.output["stdout"] == b"ready\r\n30 100\r\n"


async def test_a_size_without_a_terminal_is_ignored(init):
    """Nothing is resized, and nothing breaks."""
    init.run("read x; echo end", stdin=True)
    init.send(b"W", struct.pack(">HH", 30, 100))
    init.send(b"I", b"\n")
    assert (await init.ending()).exit_code == 0


async def test_keys_are_typed_at_a_terminal(init):
    """They are echoed and edited as at any terminal, and the end of input is the terminal's own."""
    init.run("cat", "-", tty=(24, 80), stdin=True)
    init.send(b"I", b"onE\x7fe\n")
    init.send(b"I")
    ending = await init.ending()
    assert ending.exit_code == 0
    assert init.output["stdout"].endswith(b"\r\none\r\n")


async def test_the_end_of_input_comes_after_an_unfinished_line(init):
    """A terminal's end of input in the middle of a line only hands the line over; the command is told the end too."""
    init.run("cat", "-", tty=(24, 80), stdin=True)
    init.send(b"I", b"no newline")
    init.send(b"I")
    ending = await init.ending()
    assert ending.exit_code == 0
    assert init.output["stdout"].count(b"no newline") == 2


@pytest.mark.parametrize("how", ["key", "frame"])
async def test_an_interrupt_reaches_the_foreground(init, how: str):
    """By the key or by a frame, the foreground group gets SIGINT."""
    init.run("trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.01; done", tty=(24, 80), stdin=True)
    await init.heard(b"ready")
    if how == "key":
        init.send(b"I", b"\x03")
    else:
        init.send(b"K", bytes([signal.SIGINT]))
    ending = await init.ending()
    assert ending.exit_code == 9
    assert b"caught" in init.output["stdout"]


async def test_an_interactive_shell_is_ended(init):
    """Interactive shells ignore TERM; HUP ends them within the grace."""
    init.run("/bin/sh", "-i", tty=(24, 80), stdin=True, timeout=0.3, grace=30)
    assert (await init.ending()).reason == "timed_out"


async def test_all_output_of_a_terminal_arrives(init):
    """A terminal's last bytes are not lost with its last process."""
    init.run("seq 1 20000", tty=(24, 80))
    await init.ending()
    assert init.output["stdout"] == b"".join(b"%d\r\n" % number for number in range(1, 20_001))


async def test_an_ending_repeats_the_seal(init):
    """It came with the command, and nobody else in the sandbox knows it."""
    seal = bytes(range(wire.SEAL))
    plan = ExecPlan(argv=("/bin/true",), env=(), cwd="/", timeout=None, grace=0, tty=None, artifacts=())
    init.process.stdin.write(wire.command(plan, stdin=False, credit=PLENTY, seal=seal))
    while (frame := await init.frame())[0] != ord("Z"):
        pass
    assert wire.lines(frame[1])["seal"] == seal.hex()
