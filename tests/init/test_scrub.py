"""What is left of a command for the next one in the same container: nothing, or it is told."""

from __future__ import annotations

import asyncio
import os
import struct
import textwrap
from pathlib import Path

import pytest

from provider.engine import wire

SECONDS = 5.0
CLEAN = {"clean": "1", "processes": "0", "files": "0", "ipc": "0", "sockets": "0"}
LOOK = "find /tmp /home/sandbox /run /dev -printf '%p %y %m %U %G %i\\n' | sort; cat /proc/sysvipc/*; ps -e -o args="
PYTHON = "/python/bin/python3"


def python(text: str) -> tuple[str, ...]:
    return PYTHON, "-I", "-S", "-c", textwrap.dedent(text)


async def look(box) -> bytes:
    """What a command sees that is there, besides itself."""
    assert (await box.ran(LOOK)).exit_code == 0
    seen = box.output["stdout"]
    assert (await box.answer(b"R")).items() >= CLEAN.items()
    assert seen.count(b"\n") > 10
    return seen


LEFT = {
    "nothing": "true",
    "files": "echo x > /tmp/x; echo y > ~/.profile; : > /run/z; : > /dev/shm/s; ln /tmp/x /tmp/y",
    "odd names": "cd /tmp; touch -- -r '*' ' ' \"$(printf 'a\\nb')\" \"$(printf '\\377')\" $(printf 'n%.s' $(seq 255))",
    "folders": "mkdir -p /tmp/a/b/c/d ~/e/f /dev/shm/g; touch /tmp/a/b/c/d/x /tmp/a/b/x",
    "names like its own": "cd /tmp; for i in $(seq 99); do mkdir -p .scrub-$i/.scrub-0/.scrub-1; done; : > .scrub-100",
    "links": "ln -s / /tmp/root; ln -s /workspace/kept ~/kept; mkdir /tmp/d; ln -s /workspace /tmp/d/w",
    "closed folders": "mkdir -p /tmp/a/b/c ~/d; touch /tmp/a/b/c/x; chmod 0 /tmp/a/b/c /tmp/a/b /tmp/a ~/d",
    "closed folders in open ones": "mkdir -p /tmp/a/b/c; chmod 0 /tmp/a/b/c /tmp/a/b",
    "folders that cannot be written": "mkdir -p /tmp/a/b/c; touch /tmp/a/b/c/x; chmod 500 /tmp/a/b/c /tmp/a/b /tmp/a",
    "a closed home": "mkdir ~/x; chmod 0 ~",
    "an open home": "chmod 777 ~",
    "queues and pipes": "mkfifo /tmp/p; mkfifo /run/p",
    "a wide folder": "mkdir /tmp/a; cd /tmp/a; seq 1000 | xargs mkdir; seq 1001 2000 | xargs touch",
    "a working directory that is gone": "mkdir /tmp/a; cd /tmp/a; rmdir ../a; exec 3> /tmp/open; sleep 60 &",
    "processes that write": "for i in 1 2 3 4; do (while :; do echo x > /tmp/$i.$((n += 1)); done) & done; sleep 0.1",
    "folders that come and go": "(trap '' TERM; while :; do mkdir -p /tmp/a/b; rmdir /tmp/a/b; done) & sleep 0.1",
    "a folder 1,000 deep": python("""
        import os
        os.chdir("/tmp")
        for _ in range(1000):
            os.mkdir("d" * 255)
            os.chdir("d" * 255)
            open("file", "w").close()
    """),
    "a tree that is closed from below": python("""
        import os
        for top in "abc":
            os.mkdir("/tmp/" + top)
            os.chdir("/tmp/" + top)
            for depth in range(100):
                for name in "xyz":
                    os.mkdir(name)
                os.chmod("y", 0)
                os.chmod("z", 0o300)
                os.chdir("x")
            while os.getcwd() != "/tmp":
                os.chdir("..")
                if os.path.isdir("x"):
                    os.chmod("x", 0)
            os.chmod(top, 0)
    """),
    "sockets that are files": python("""
        import socket
        for path in ("/tmp/s", "/run/s", "/home/sandbox/s"):
            socket.socket(socket.AF_UNIX).bind(path)
        socket.socket(socket.AF_UNIX).bind("\\0abstract")
    """),
    "message queues": python("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        for number in range(3):
            assert libc.mq_open(b"/queue%d" % number, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0, ctypes.get_errno()
    """),
    "shared memory, semaphores and messages": python("""
        import ctypes
        libc = ctypes.CDLL(None)
        for number in range(300):
            assert libc.shmget(number, 4096, 0o1600) >= 0
            assert libc.semget(number, 1, 0o1600) >= 0
            assert libc.msgget(number, 0o1600) >= 0
        libc.shmat.restype = ctypes.c_void_p
        libc.shmat(libc.shmget(1, 0, 0), None, 0)
    """),
    "ports": python("""
        import socket
        server = socket.create_server(("127.0.0.1", 8000))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(("127.0.0.1", 8000))
    """),
    "signals for pid 1": python("""
        import os
        for number in (1, 2, 10, 15, *range(34, 65)):
            for _ in range(20):
                os.kill(1, number)
    """),
    "a priority of its own": python("import os; os.nice(5); os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"),
}  # fmt: skip


@pytest.mark.parametrize("argv", LEFT.values(), ids=LEFT.keys())
async def test_nothing_is_left(box, shared: Path, argv: str | tuple[str, ...]):
    """The next command finds the container as the first one found it, and the workspace as the last one left it."""
    (shared / "kept").write_text("kept")
    before = await look(box)
    argv = (argv,) if isinstance(argv, str) else argv
    ending = await box.ran(*argv, env={"HOME": "/home/sandbox", "PATH": "/usr/bin:/usr/sbin"})
    assert (ending.exit_code, box.output["stderr"]) == (0, b"")
    report = await box.answer(b"R")
    assert report.items() >= CLEAN.items(), report
    assert await look(box) == before
    await box.ran("grep -c '^ShdPnd:.*0000000000000000$' /proc/1/status; cat /workspace/kept /run/inner/mounted/kept")
    assert box.output["stdout"] == b"1\nkeptkept"


UNCLEAN = {
    "the priority of pid 1": ("pid 1: nice", "renice -n 3 -p 1"),
    "the processors of pid 1": ("pid 1: cpus", python("import os; os.sched_setaffinity(1, {0})")),
    "the scheduler of pid 1": (
        "pid 1: scheduling", python("import os; os.sched_setscheduler(1, os.SCHED_BATCH, os.sched_param(0))"),
    ),
    "the disk priority of pid 1": ("pid 1: io_priority", "ionice -c 3 -p 1"),
    "an address in use": ("sockets", python("""
        import socket
        server = socket.create_server(("127.0.0.1", 8000))
        there = socket.create_connection(("127.0.0.1", 8000))
        here, _ = server.accept()
        here.close()
        assert there.recv(1) == b""
        there.close()
    """)),
    "an IPv6 address in use": ("sockets", python("""
        import socket
        server = socket.create_server(("::1", 8000), family=socket.AF_INET6)
        there = socket.create_connection(("::1", 8000))
        here, _ = server.accept()
        here.close()
        assert there.recv(1) == b""
        there.close()
    """)),
    "an attribute": ("/home/sandbox: changed", python("import os; os.setxattr('/home/sandbox', 'user.x', b'x')")),
    "a flag": ("/home/sandbox: changed", python("""
        import fcntl, os, struct
        home = os.open("/home/sandbox", os.O_RDONLY)
        fcntl.ioctl(home, 0x40086602, struct.pack("i", 0x40))
    """)),
    "more than can be removed": ("too much to remove", python("""
        import os
        os.chdir("/tmp")
        for number in range(120_000):
            os.link("x", str(number)) if number else open("x", "w").close()
    """)),
}  # fmt: skip


@pytest.mark.parametrize(("left", "argv"), UNCLEAN.values(), ids=UNCLEAN.keys())
async def test_what_cannot_be_scrubbed_is_told(box, left: str, argv: str | tuple[str, ...]):
    """The first such thing is named, and pid 1 leaves: nothing else runs there."""
    ending = await box.ran(*((argv,) if isinstance(argv, str) else argv))
    if b"not supported" in box.output["stderr"] or b"nappropriate ioctl" in box.output["stderr"]:
        pytest.skip("this kernel's tmpfs has no such thing")
    assert (ending.exit_code, box.output["stderr"]) == (0, b"")
    report = await box.answer(b"R")
    assert (report["clean"], report["left"]) == ("0", left)
    async with asyncio.timeout(SECONDS):
        assert await box.process.wait() == 0


async def test_a_mount_that_keeps_what_is_written_is_never_clean(start, boxed, shared: Path):
    """Nor is anything removed then: it may be no container at all."""
    init = await start(boxed(shared, "mount --bind $workspace mnt"))
    await init.ran("touch /tmp/x /mnt/y")
    assert (await init.answer(b"R"))["left"] == "/mnt: a writable mount"
    assert (await init.leave())[0] == 0
    assert (shared / "y").exists()


async def test_outside_a_container_nothing_is_removed(init, shared: Path):
    """On a writable root, as here, it says so and touches nothing."""
    await init.ran(f"touch {shared}/x; ls -a /dev/shm > {shared}/before; touch /dev/shm/{shared.name}")
    report = await init.answer(b"R")
    Path("/dev/shm", shared.name).unlink()
    assert (report["clean"], report["left"], report["scrubbed"]) == ("0", "/: a writable mount", "0")


async def test_a_file_that_was_there_is_never_clean(start, boxed, shared: Path):
    """It could be changed through a mapping, which leaves no trace."""
    init = await start(boxed(shared, "touch run/inner/file"))
    await init.ran("true")
    assert (await init.answer(b"R"))["left"] == "/run/inner: holds a file"
    await init.leave()


CHANGES = {
    "removed": "rm /run/mine/link",
    "replaced": "rm /run/mine/link; ln -s a /run/mine/link",
    "closed": "chmod 600 /run/mine/pipe",
    "linked": "ln /run/mine/pipe /tmp/x 2> /dev/null; ln /run/mine/pipe /run/x; rm /run/x",
    "moved": "mv /run/mine /run/x",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_what_was_there_stays_as_it_was(start, boxed, shared: Path, change: str):
    """A command may own what it finds; what it does to it is seen."""
    more = "mkdir run/mine; ln -s a run/mine/link; mkfifo run/mine/pipe; chown -Rh $uid:$uid run/mine"
    init = await start(boxed(shared, more))
    await init.ran("mkdir /run/mine/x; touch /run/mine/x/y")
    assert (await init.answer(b"R"))["clean"] == "1"
    assert (await init.ran(change)).exit_code == 0
    report = await init.answer(b"R")
    assert report["clean"] == "0"
    assert report["left"].startswith("/run/")
    assert report["left"].endswith(": changed")
    assert (await init.leave())[0] == 0


# The next command.


async def test_a_command_knows_nothing_of_the_last_one(box):
    """Not its stdin, its credit, its environment, its reason, its terminal nor its usage."""
    box.run(
        "i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done; echo ready; sleep 60",
        stdin=True,
        reuse="scrub",
        env={"A": "1"},
        credit=6,
    )
    await box.heard(b"ready")
    for _ in range(4):
        box.send(b"I", b"secret" * 10_000)
    box.send(b"W", struct.pack(">HH", 30, 100))
    box.send(b"T", b"c")
    first = await box.ending()
    assert first.reason == "canceled"
    assert (await box.answer(b"R"))["clean"] == "1"

    data = os.urandom(wire.STDIN_WINDOW)
    box.run("stty size; env; cat", stdin=True, reuse="scrub", env={"PATH": "/bin"}, credit=0)
    for at in range(0, len(data), 65_536):
        box.send(b"I", data[at : at + 65_536])
    box.send(b"I")
    box.grant(2**20)
    second = await box.ending()
    assert (second.reason, second.exit_code, second.background_pids) == ("exited", 0, ())
    assert box.output["stdout"] == b"PATH=/bin\nPWD=/\n" + data
    assert b"not a tty" in box.output["stderr"] or b"Inappropriate" in box.output["stderr"]
    assert second.usage.cpu_user_seconds < first.usage.cpu_user_seconds
    assert (first.usage.memory_peak_bytes, second.usage.memory_peak_bytes) == (12_345, None)


async def test_it_serves_many_commands(start, boxed, shared: Path):
    """With descriptors for only a few: none is left open by any kind of ending."""
    init = await start(boxed(shared, prefix=("prlimit", "--nofile=40:40")))
    for turn in range(30):
        await init.ran("echo x; yes >&2 | head -c 9", tty=(24, 80), stdin=True, timeout=0.01, grace=0)
        assert (await init.answer(b"R"))["clean"] == "1", turn
        assert (await init.ran("no-such-program-anywhere", "x", stdin=True)).error_number == 2
        assert (await init.answer(b"R"))["clean"] == "1", turn
        assert (await init.ran("echo x; exit 9", stdin=True)).exit_code == 9
        assert (await init.answer(b"R"))["clean"] == "1", turn
        assert init.output["stdout"] == b"x\n"
    assert (await init.leave())[0] == 0


LATE = {
    "credit": (b"C", b"\0\0\0\1"),
    "stdin": (b"I", bytes(65_536)),
    "the end of stdin": (b"I", b""),
    "a signal": (b"K", b"\x0f"),
    "a signal to one": (b"K", b"\x0f\0\0\0\0"),
    "a size": (b"W", bytes(4)),
    "a kill": (b"T", b"c"),
    "a question": (b"Q", b""),
}


@pytest.mark.parametrize(("kind", "payload"), LATE.values(), ids=LATE.keys())
async def test_what_comes_late_for_a_command_is_not_for_the_next(box, kind: bytes, payload: bytes):
    """Sent before its ending was seen, before or after the report on the scrub, it is ignored."""
    await box.ran("true")
    for _ in range(6):
        box.send(kind, payload)
    assert (await box.answer(b"R"))["clean"] == "1"
    for _ in range(6):
        box.send(kind, payload)
    ending = await box.ran("echo x; cat", stdin=True, timeout=0.1)
    assert (ending.reason, box.output["stdout"]) == ("timed_out", b"x\n")


async def test_a_command_that_does_not_wait_for_the_report_runs_in_no_dirty_container(box, shared: Path):
    """Sent with the ending of the last one, it is not run unless that one left nothing."""
    await box.ran("renice -n 3 -p 1")
    box.run("touch /workspace/ran", reuse="scrub")
    assert (await box.leave())[0] in {0, 2}
    assert not (shared / "ran").exists()


async def test_nothing_else_is_taken_for_late(box):
    """Between two commands, a frame of unknown type ends everything as ever."""
    await box.ran("true")
    await box.answer(b"R")
    box.send(b"?")
    async with asyncio.timeout(SECONDS):
        assert await box.process.wait() == 2


async def test_credit_before_a_command_is_out_of_form_once_it_has_begun(box):
    """What is late comes before the first piece of the next command, never in it."""
    await box.ran("true")
    await box.answer(b"R")
    box.send(b"S", b"a\0\0\0\4true")
    box.send(b"C", bytes(4))
    async with asyncio.timeout(SECONDS):
        assert await box.process.wait() == 2


async def test_the_end_of_stdin_ends_a_scrub(box):
    """When the provider dies there is nobody left to scrub for."""
    await box.ran("seq 60000 | (cd /tmp && xargs touch)")
    assert (await box.leave())[0] == 0
