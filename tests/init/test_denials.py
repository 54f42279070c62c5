"""What the sandbox refused to a command is counted, and counting changes nothing for anybody."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

PYTHON = "/python/bin/python3"
MOUNTED = "/run/inner/mounted"  # the workspace again, read-only


def python(text: str, *arguments: str) -> tuple[str, ...]:
    return PYTHON, "-I", "-S", "-B", "-c", textwrap.dedent(text), *arguments


async def denied(box, *argv: str, **parts: Any) -> int | None:
    """Run a command that ends well, and tell what was counted."""
    box.run(*argv, watch_writes=True, **parts)
    ending = await box.ending()
    assert (ending.reason, ending.exit_code) == ("exited", 0), box.output
    return ending.denied_writes


# Writes.

# Every way to write by path, on every kind of path. It tells what the kernel answered with EROFS.
TRY_ALL = """
import errno, os, sys

DEEDS = {
    "open": lambda p: os.close(os.open(p, FLAGS | os.O_NONBLOCK, 0o600)),
    "openat": lambda p: os.close(os.open(p, FLAGS | os.O_NONBLOCK, 0o600, dir_fd=HERE)),
    "mkdir": os.mkdir,
    "mkdirat": lambda p: os.mkdir(p, dir_fd=HERE),
    "mkfifo": os.mkfifo,
    "symlink": lambda p: os.symlink("target", p),
    "symlinkat": lambda p: os.symlink("target", p, dir_fd=HERE),
    "link": lambda p: os.link("file", p),
    "unlink": os.unlink,
    "unlinkat": lambda p: os.unlink(p, dir_fd=HERE),
    "rmdir": os.rmdir,
    "rename": lambda p: os.rename(p, "renamed"),
    "rename into": lambda p: os.rename("file", p),
    "renameat": lambda p: os.rename(p, "renamed", src_dir_fd=HERE, dst_dir_fd=HERE),
    "truncate": lambda p: os.truncate(p, 0),
    "chmod": lambda p: os.chmod(p, 0o777),
    "chown": lambda p: os.chown(p, -1, -1),
    "lchown": lambda p: os.lchown(p, -1, -1),
    "chownat": lambda p: os.chown(p, -1, -1, dir_fd=HERE, follow_symlinks=False),
    "utime": os.utime,
    "lutime": lambda p: os.utime(p, follow_symlinks=False),
    "setxattr": lambda p: os.setxattr(p, "user.x", b"x"),
    "lsetxattr": lambda p: os.setxattr(p, "user.x", b"x", follow_symlinks=False),
    "removexattr": lambda p: os.removexattr(p, "user.x"),
    "lremovexattr": lambda p: os.removexattr(p, "user.x", follow_symlinks=False),
}
name, FLAGS, mounted, *elsewhere = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
NAMES = '''file mine dir pipe link lost away back missing dir/missing missing/x file/x file/ dir/ missing/ link/ lost/
           . .. dir/.. dir/. ./file ./missing //missing ../mounted/missing /dev/fd/9
           /proc/self/fd/1 /proc/self/fd/8 /proc/self/cwd/missing'''.split()
paths = NAMES + ["", "x" * 300, "./" * 2000 + "missing", "/." * 2040 + "/missing", "./" * 3000, *elsewhere]
paths += [f"{mounted}/{each}" for each in NAMES] + [f"/workspace/{each}" for each in NAMES[:10]]
removes = name.startswith(("unlink", "rmdir", "rename"))
for here, where in {mounted: mounted, "/": "/workspace", "/usr": "/", "/workspace": mounted}.items():
    if name.startswith("rename") and here == "/usr":
        continue  # it may be on the same file system as the other mounts
    os.chdir(here)
    HERE = os.open(where, os.O_RDONLY)
    os.dup2(os.open(mounted, os.O_RDONLY), 8)
    for path in paths:
        found = True
        if removes:
            try:
                os.stat("file" if name == "rename into" else path, dir_fd=HERE if name.endswith("at") else None,
                        follow_symlinks=False)
            except (OSError, ValueError):
                found = False
        try:
            DEEDS[name](path)
        except OSError as error:
            if error.errno == errno.EROFS and found:
                print(here, path[:60])
    os.closerange(3, 9)
"""
ELSEWHERE = ("/", "/x", "/etc/passwd", "/etc/missing", "/usr", "/usr/bin/env", "/dev/null", "/tmp", "/tmp/x")
FLAGS = {
    "write": os.O_WRONLY,
    "read and write": os.O_RDWR,
    "append": os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    "make": os.O_WRONLY | os.O_CREAT,
    "make and read": os.O_RDONLY | os.O_CREAT,
    "make anew": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "make exclusively": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "truncate": os.O_WRONLY | os.O_TRUNC,
    "read and truncate": os.O_RDONLY | os.O_TRUNC,
    "not through links": os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW,
    "read": os.O_RDONLY,
    "a path only": os.O_PATH | os.O_WRONLY,
    "without a name": os.O_TMPFILE | os.O_WRONLY,
    "directory": os.O_RDONLY | os.O_DIRECTORY,
}
DEEDS = """mkdir,mkdirat,mkfifo,symlink,symlinkat,link,unlink,unlinkat,rmdir,rename,rename into,renameat,truncate,\
chmod,chown,lchown,chownat,utime,lutime,setxattr,lsetxattr,removexattr,lremovexattr"""


@pytest.fixture
def furnished(shared: Path) -> Path:
    """A workspace with one of each kind."""
    for name in ("file", "mine"):
        (shared / name).write_text("x")
    (shared / "mine").chmod(0o600 if os.geteuid() == 0 else 0o400)
    (shared / "file").chmod(0o666)
    (shared / "dir").mkdir(mode=0o777)
    os.mkfifo(shared / "pipe")
    for name, target in {"link": "file", "lost": "nowhere", "away": f"{MOUNTED}/new", "back": "/workspace/new"}.items():
        (shared / name).symlink_to(target)
    return shared


CASES = {name: (name, 0) for name in DEEDS.split(",")}
CASES |= {f"open to {name}": ("open", flags) for name, flags in FLAGS.items()}
CASES |= {"open at": ("openat", FLAGS["make anew"])}


@pytest.mark.parametrize(("name", "flags"), CASES.values(), ids=CASES.keys())
async def test_exactly_what_the_kernel_calls_read_only_is_counted(furnished: Path, box, name: str, flags: int):
    """Whatever it is done to, and from wherever: as many as were answered with EROFS, and no other error."""
    found = await denied(box, *python(TRY_ALL, name, str(flags), MOUNTED, *(() if "rename" in name else ELSEWHERE)))
    assert found == box.output["stdout"].count(b"\n"), box.output["stdout"].decode()
    assert bool(found) == (name != "open" or flags not in {os.O_RDONLY, os.O_PATH | os.O_WRONLY, FLAGS["directory"]})


async def test_nothing_is_counted_unless_asked_for(box):
    """Without the wish there is no number, rather than none."""
    assert (await box.ran("! touch /x")).denied_writes is None
    await box.answer(b"R")
    assert (await box.ran("! touch /x", watch_writes=True)).denied_writes == 1
    await box.answer(b"R")
    assert (await box.ran("! touch /x")).denied_writes is None
    await box.answer(b"R")


@pytest.mark.parametrize(
    ("script", "number"),
    [
        ("true", 0),
        ("! (echo x > /x)", 1),
        ("! cp /bin/true /usr/bin/mine", 1),
        ("! mkdir -p /usr/a/b/c", 1),
        ("mkdir -p /usr/bin /tmp/a/b; echo x > /dev/null; rm -r /tmp/a; ls -l / > /tmp/ls; [ ! -w / ]", 0),
        ("cd /tmp; ln -s /usr/new n; ! (echo x > n)", 1),
        ("cd /tmp; mkdir d; cd d; rmdir ../d; ! touch x", 0),
        ("! touch /proc/sys/x /root/x /nowhere/x /etc/passwd/x", 0),
        ("(sh -c 'touch /x; exec touch /y' & wait) 2>&1 | cat; ! touch /z", 3),
        ("rm -f /nowhere /usr/nowhere", 0),
    ],
)
async def test_what_shells_do_is_counted(box, script: str, number: int):
    """By the command and by everyone it starts; neither what succeeds nor what fails for other reasons."""
    assert await denied(box, script) == number


async def test_a_full_file_system_is_no_denial(start, boxed, shared: Path):
    """ENOSPC, EDQUOT and the like are the command's own affair."""
    init = await start(boxed(shared, "mount -t tmpfs -o size=4k,nr_inodes=3,mode=777 small mnt"))
    await init.frame()
    script = "cd /mnt; ! dd if=/dev/zero of=a bs=1k count=9; ! touch b c d; ! touch /x"
    assert await denied(init, f"{script}; true") == 1
    await init.leave()


async def test_a_descriptor_names_the_place(box):
    """A relative path begins where its descriptor leads, in threads, in children and in a child that shares memory."""
    program = """
        import os, threading
        usr, tmp = os.open("/usr", os.O_RDONLY), os.open("/tmp", os.O_RDONLY)
        def tries(fd):
            try:
                os.close(os.open("x", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
            except OSError:
                pass
        for fd in (usr, tmp):
            thread = threading.Thread(target=tries, args=(fd,))
            thread.start()
            thread.join()
            if os.fork() == 0:
                tries(fd)
                os._exit(0)
            os.wait()
        for path in ("/tmp/x", "/usr/x", "/x"):
            try:
                actions = [(os.POSIX_SPAWN_OPEN, 1, path, os.O_WRONLY | os.O_CREAT, 0o600)]
                os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "echo > /y"], {}, file_actions=actions), 0)
            except OSError:
                pass
    """
    assert await denied(box, *python(program)) == 2 + 2 + 1


async def test_a_terminal_is_no_different(box):
    """Nor is a command with a stdin."""
    assert await denied(box, "! touch /x", tty=(24, 80)) == 1


@pytest.mark.parametrize(("argv", "cwd"), [(("/missing", "x"), "/"), (("true", "x"), "/missing"), (("/etc", "x"), "/")])
async def test_what_could_not_be_started_is_told_as_ever(box, argv: tuple[str, ...], cwd: str):
    """The error is that of the start, whoever watches."""
    told = []
    for watch_writes in (True, False):
        box.run(*argv, cwd=cwd, watch_writes=watch_writes, reuse="scrub")
        told.append(await box.ending())
        assert (await box.answer(b"R"))["clean"] == "1"
    assert told[0].error == told[1].error is not None


async def test_what_is_left_behind_is_still_counted(box):
    """The ending of a lease has what was refused after the command's own."""
    script = "trap 'touch /y /z; exit' TERM; touch /x; sleep 60 & wait"
    box.run(f"({script}) 2>&- & sleep 0.2", watch_writes=True, lease=30.0)
    assert (await box.leased()).denied_writes == 1
    box.send(b"K", b"\x0f" + bytes(4))
    assert (await box.ending()).denied_writes == 3


async def test_a_number_is_of_one_command(box):
    """The next one in the same container begins at none, and the container is clean."""
    for number in (2, 0, 1):
        script = "".join(f"touch /{n}; " for n in range(number)) + "true"
        assert (await box.ran(script, watch_writes=True)).denied_writes == number
        assert (await box.answer(b"R"))["clean"] == "1"


# Without the means.

REFUSES = """
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (6, 0, 0, 0x00050000 | 22), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, program) == 0, ctypes.get_errno()
os.execvp(sys.argv[2], sys.argv[2:])
"""
SECCOMP = {"x86_64": 317, "aarch64": 277}


async def test_without_a_filter_the_command_runs_all_the_same(start, boxed, shared: Path):
    """On a kernel or under a profile that has none there is no number, and nothing else is missing."""
    number = SECCOMP[os.uname().machine]
    init = await start(boxed(shared, prefix=(PYTHON, "-I", "-S", "-B", "-c", REFUSES, str(number))))
    await init.frame()
    assert await denied(init, "! touch /x; touch /tmp/x && echo made") is None
    assert init.output["stdout"] == b"made\n"
    await init.leave()


NOT_DUMPABLE = """
import ctypes, os, sys
def tries(path):
    try:
        os.mkdir(path)
    except OSError:
        pass
for path in sys.argv[1:]:
    if path == "close":
        ctypes.CDLL(None).prctl(4, 0)
    else:
        tries(path)
"""


@pytest.mark.parametrize(
    ("paths", "number"),
    [(("close", "/x"), None), (("close", "/tmp/x"), None), (("/x", "close", "/y"), 1), (("close",), 0)],
)
async def test_what_cannot_be_seen_is_not_guessed(box, paths: tuple[str, ...], number: int | None):
    """Of a process that has closed its memory nothing is known: at least so many, or no number at all."""
    assert await denied(box, *python(NOT_DUMPABLE, *paths)) == number


# Hostile commands.


async def test_pointers_and_descriptors_may_be_anything(box):
    """What the kernel answers with EFAULT, EBADF or ENAMETOOLONG is nothing to us, and no harm."""
    program = """
        import ctypes, mmap, os, platform
        call = ctypes.CDLL(None).syscall
        call.argtypes = [ctypes.c_long] * 6
        opens, renames, utimes = {"x86_64": (257, 264, 280), "aarch64": (56, 38, 88)}[platform.machine()]
        page = mmap.mmap(-1, 2 * 4096)
        page.write(b"x" * 8192)
        at = ctypes.addressof(ctypes.c_char.from_buffer(page))
        text = ctypes.create_string_buffer(b"/x")
        good = ctypes.addressof(text)
        pointers = [0, 1, 4095, at, at + 4096, at + 8191, -1, -4096, 1 << 62, -(1 << 63), 0x7FFFFFFFF000, good + 1]
        descriptors = [-100, -1, -2, 0, 1, 999, 1 << 31, (1 << 32) - 100, -(1 << 63)]
        for pointer in pointers:
            for descriptor in descriptors:
                call(opens, descriptor, pointer, 0o101, 0o600, 0)
                call(opens, descriptor, pointer, -1, -1, -1)
                call(renames, descriptor, pointer, descriptor, good, 0)
                call(renames, descriptor, good, descriptor, pointer, 0)
                call(utimes, descriptor, pointer, 0, 0x100, 0)
        assert call(opens, -100, good, 0o101, 0o600, 0) == -1
    """
    assert await denied(box, *python(program), cwd="/tmp") == 1


STORM = """
import os, sys, threading, time

def tries(n):
    mine = f"/tmp/{os.getpid()}-{threading.get_ident()}"
    for _ in range(n):
        for path in ("/x", mine):
            try:
                os.mkdir(path)
                os.rmdir(path)
            except OSError:
                pass

then, processes, threads, n = sys.argv[1], *map(int, sys.argv[2:5])
children = []
for _ in range(processes):
    children.append(os.fork())
    if children[-1] == 0:
        started = [threading.Thread(target=tries, args=(n,), daemon=True) for _ in range(threads)]
        for thread in started:
            thread.start()
        if then == "wait":
            for thread in started:
                thread.join()
        else:
            time.sleep(0.003 if then == "leave" else 99)
        if _ % 2:
            os.execv("/bin/true", ["true"])
        os._exit(0)
print("ready", flush=True)
for child in children:
    if then == "leave" and child % 3 == 0:
        os.kill(child, 9)
    os.waitpid(child, 0)
tries(5)
"""


async def test_many_at_a_time_are_counted_exactly(box):
    """Every call of every thread of every process, and output streams on."""
    program = STORM + "for i in range(200):\n    print('x' * 9999)\n"
    assert await denied(box, *python(program, "wait", "8", "3", "40")) == 8 * 3 * 40 + 5
    assert len(box.output["stdout"]) == len("ready\n") + 200 * 10_000


async def test_those_who_leave_while_they_wait_hold_nobody_up(box):
    """They exit, are killed, or start another program in the middle of a call; the others go on."""
    found = await denied(box, *python(STORM, "leave", "24", "3", "1000000000"))
    assert found
    assert found >= 5


async def test_a_deadline_holds_in_a_storm(box):
    """However many wait, the kill comes in time, and with it the end of all."""
    began = time.monotonic()
    box.run(*python(STORM, "stay", "12", "3", "1000000000"), watch_writes=True, timeout=0.5, grace=0.1)
    ending = await box.ending()
    assert ending.reason == "timed_out"
    assert time.monotonic() - began < 3
    assert ending.denied_writes


async def test_the_end_of_stdin_ends_a_storm(start, boxed, shared: Path, held):
    """When the provider dies, so does everyone who waits."""
    init = await start(boxed(shared))
    await init.frame()
    program = "held = open('/workspace/held', 'w')\n" + STORM
    init.run(*python(program, "stay", "10", "2", "1000000000"), watch_writes=True)
    await init.heard(b"ready")
    assert (await init.leave())[0] == 0
    await held.released()


LABYRINTH = """
import os
os.chdir("/tmp")
os.mkdir("d")
os.symlink("d/../" * 800 + "d", "l0")
for i in range(1, 38):
    os.symlink("d/../" * 790 + f"l{i - 1}", f"l{i}")
print("built", flush=True)
while True:
    try:
        os.mkdir("l37/missing/x")
    except OSError:
        pass
"""


async def test_long_ways_do_not_hold_up_a_deadline(box):
    """A path can be made as expensive to look up as the kernel allows; between two there is time for all else."""
    began = time.monotonic()
    box.run(*python(LABYRINTH), watch_writes=True, timeout=1)
    assert (await box.ending()).reason == "timed_out"
    assert box.output["stdout"] == b"built\n"
    assert time.monotonic() - began < 3


async def test_signals_do_not_break_calls_off(box):
    """A program that is interrupted all the time gets everything done, and each denial counts once."""
    program = """
        import os, signal
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for i in range(1500):
            os.close(os.open(f"/tmp/{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            try:
                os.close(os.open("/x", os.O_WRONLY | os.O_CREAT))
            except OSError as error:
                assert error.errno == 30, error
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(os.listdir("/tmp")) == 1500
    """
    assert await denied(box, *python(program)) == 1500


# The network.

NETWORK = """
import socket, sys
for what in sys.argv[1:]:
    kind, host = what.split("@")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if kind == "tcp":
            socket.socket(family).connect((host, 9))
        else:
            socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", (host, 9))
        print("sent")
    except OSError as error:
        print(error.errno)
"""


@pytest.mark.parametrize(
    ("attempts", "answers", "no_route", "no_port"),
    [
        ((), [], 0, 0),
        (("tcp@192.0.2.1",), ["101"], 1, 0),
        (("tcp@192.0.2.1", "tcp@2001:db8::1", "udp@192.0.2.1", "udp@2001:db8::1"), ["101"] * 4, 4, 0),
        (("tcp@127.0.0.1", "tcp@::1"), ["111"] * 2, 0, 0),
        (("udp@127.0.0.1", "udp@::1", "tcp@192.0.2.1"), ["sent", "sent", "101"], 1, 2),
    ],
)
async def test_what_found_no_network_is_counted(
    box, attempts: tuple[str, ...], answers: list[str], no_route: int, no_port: int
):
    """One for each that had no route, by IPv4 and IPv6, none for loopback; of this command, not of the one before."""
    for _ in range(2):
        ending = await box.ran(*python(NETWORK, *attempts))
        assert box.output["stdout"].decode().split() == answers
        assert (ending.denied_network, ending.refused_datagrams) == (no_route, no_port)
        await box.answer(b"R")
