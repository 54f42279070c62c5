"""
Group C: using up what the host has. Each is bounded by itself as well, so that a provider that does not hold cannot
take the machine along; each is judged by its outcome and by what the host saw.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import signal
import subprocess
import sys

from attacks.case import (
    Attack,
    Input,
    Judge,
    Seen,
    ends,
    never_says,
    others_go_on,
    python,
    rss_below,
    says,
    shell,
    within,
)
from attacks.names import OWNER

from provider.model import MIB, Limits, State

MOMENTS = 8.0
"""What another request has, on a machine that is busy with more than this suite."""


def at_most(name: str, most: int) -> Judge:
    """A number that the attack tells is not larger, and not nothing."""

    def judge(seen: Seen) -> None:
        found = re.search(rf"(?m)^{name} (\d+)$", seen.stdout)
        assert found, seen.said[-2000:]
        assert 0 < int(found[1]) <= most, found[0]

    return judge


def holds_quota(cpus: float) -> Judge:
    """Processor time is within the quota, by the kernel's own count and a tenth."""

    def judge(seen: Seen) -> None:
        usage = seen.ran.usage
        assert usage is not None
        used = usage.cpu_user_seconds + usage.cpu_system_seconds
        # A period of 100 ms may have begun before, and another end after.
        assert 0 < used <= 1.05 * cpus * seen.ran.duration_ms / 1000 + 0.2 * cpus, (used, seen.ran.duration_ms)

    return judge


def whole_streams(seen: Seen) -> None:
    expected = "".join(f"{at}\n" for at in range(20_000)).encode()
    assert seen.ran.stdout == expected
    assert seen.ran.stderr == expected


def coalesced(writes: int) -> Judge:
    def judge(seen: Seen) -> None:
        assert seen.ran.stdout_bytes == writes
        assert 0 < seen.chunks < writes / 20, seen.chunks

    return judge


def odd_names(seen: Seen) -> None:
    """Each is there once, with its own bytes, and in a form that is text."""
    hashed = {artifact.path: artifact.sha256 for artifact in seen.ran.artifacts}
    written = [b"\n" * 255, b"\xff" * 200, b"a\nb", b"caf\xc3\xa9", b"\xed\xa0\x80"]
    assert {hashlib.sha256(name).hexdigest() for name in written} <= set(hashed.values())
    assert len(hashed) == len(written) + 1  # and the attack's own file
    assert "\n".join(hashed).encode()  # no lone surrogate


def _receipt_counts_oom(seen: Seen) -> None:
    assert seen.ran.receipt["ending"]["oom_kills"] >= 1


def _killed_or_at_most(seen: Seen, most: int) -> None:
    if not seen.ran.oom_killed:
        at_most("held", most)(seen)


def _kept(seen: Seen, size: int) -> None:
    assert len(seen.ran.stdout) == size < seen.ran.stdout_bytes


def _sizes(seen: Seen, most: int) -> None:
    assert seen.outcome is not None
    assert [path.name for path in seen.workspace.iterdir() if path.lstat().st_size > most] == []


def _too_many(seen: Seen, *, listed: int) -> None:
    assert "too_many" in seen.problems.values(), seen.ran.artifact_problems[:3]
    assert len(seen.ran.artifacts) + len(seen.ran.artifact_problems) <= listed + 3


def _not_hashed(seen: Seen, path: str, problem: str) -> None:
    assert seen.problems == {path: problem}
    assert seen.ran.artifacts == ()


def _one_left_behind(seen: Seen) -> None:
    assert len(seen.ran.background_pids) == 1


def _inotify_is_left(seen: Seen) -> None:
    """As whom the sandbox ran, a process of the host gets an instance again; only root can ask as somebody else."""
    if os.geteuid() == 0:
        ask = f"import ctypes, os; os.setgid({OWNER}); os.setuid({OWNER}); assert ctypes.CDLL(None).inotify_init() >= 0"
        subprocess.run([sys.executable, "-c", ask], check=True, timeout=10)
    else:
        descriptor = ctypes.CDLL(None).inotify_init()
        assert descriptor >= 0
        os.close(descriptor)


ATTACKS = (
    Attack(
        id="C1",
        alone=True,
        title="A fork bomb meets its limit, is gone at its deadline, and others are served meanwhile.",
        input=shell("bomb() { bomb | bomb & }; bomb; sleep 30"),
        limits=Limits(pids=64, cpus=0.5),
        timeout=2,
        beside=True,
        judge=(says("can't fork"), within(6), others_go_on(MOMENTS)),
    ),
    Attack(
        id="C2",
        title="Threads count as processes: a thread bomb meets the same limit.",
        input=python("""
import threading
over = threading.Event()
count = 0
try:
    while count < 1000:
        threading.Thread(target=over.wait, daemon=True).start()
        count += 1
except RuntimeError as error:
    print("error", error)
print("threads", count, flush=True)
os._exit(0)
"""),
        limits=Limits(pids=48),
        judge=(says("^error "), at_most("threads", 48)),
    ),
    Attack(
        id="C3",
        title="Zombies are reaped: many more orphans than the limit come and go.",
        timeout=60,
        input=python("""
for at in range(400):
    if (child := os.fork()) == 0:
        if os.fork():
            os._exit(0)  # the grandchild is an orphan
        os._exit(0)
    os.waitpid(child, 0)
import time
time.sleep(0.2)
left = [pid for pid in os.listdir("/proc") if pid.isdigit()]
print("made", at + 1)
print("left", len(left))
"""),
        limits=Limits(pids=24),
        judge=(says("^made 400$"), at_most("left", 4), ends(exit_code=0)),
    ),
    Attack(
        id="C4",
        alone=True,
        title="Memory without end ends the command, which is told as out of memory.",
        input=shell("exec tail /dev/zero"),
        limits=Limits(memory_bytes=32 * MIB),
        judge=(ends(oom_killed=True, signal=signal.SIGKILL), rss_below(32)),
    ),
    Attack(
        id="C5",
        title="A child killed for want of memory is told, though its parent says that all went well.",
        input=shell("tail /dev/zero; echo parent; exit 0"),
        limits=Limits(memory_bytes=32 * MIB),
        judge=(
            ends(oom_killed=True, exit_code=0),
            says("^parent$"),
            _receipt_counts_oom,
        ),
    ),
    Attack(
        id="C6",
        title="/tmp, /dev/shm, HOME and /run are full at their size, in bytes and in files.",
        input=shell(
            'for f in /tmp /dev/shm ~ /run; do dd if=/dev/zero of=$f/x bs=1M count=80 && echo "BREACH $f";'
            " stat -c %s $f/x; rm $f/x; done; cd /tmp; seq 70000 | xargs touch 2>/dev/null; echo files $(ls | wc -l)"
        ),
        limits=Limits(tmp_bytes=8 * MIB),
        judge=(says(r"\A(\d+\n){4}"), never_says("BREACH"), at_most("files", 65538)),
    ),
    Attack(
        id="C7",
        title="Memory in memfds is charged to the sandbox as any other.",
        input=python("""
held = []
for at in range(200):
    held.append(os.memfd_create("x"))
    os.write(held[-1], b"x" * 2**20)
print("BREACH", flush=True)
"""),
        limits=Limits(memory_bytes=48 * MIB),
        judge=(ends(oom_killed=True), never_says("BREACH")),
    ),
    Attack(
        id="C7a",
        title="So is memory in pipes.",
        input=python("""
import fcntl
held = 0
for at in range(400):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        fcntl.fcntl(writing, 1031, 2**20)
    except PermissionError:
        pass  # past what an ordinary user may have in all pipes, a pipe stays small
    held += os.write(writing, b"x" * 2**20)
print("held", held // 2**20, flush=True)
"""),
        limits=Limits(memory_bytes=48 * MIB),
        judge=(lambda seen: _killed_or_at_most(seen, 48),),
    ),
    Attack(
        id="C8",
        alone=True,
        title="Reading much through a small memory does not hold others up.",
        input=shell(
            "head -c 90000000 /dev/zero > big; for i in 1 2 3 4; do cat big > /dev/null; done; stat -c %s big; rm big"
        ),
        limits=Limits(memory_bytes=48 * MIB),
        beside=True,
        judge=(says("^90000000$"), others_go_on(MOMENTS)),
    ),
    Attack(
        id="C9",
        alone=True,
        title="Endless output is cut, counted and ended, and the provider's memory does not grow.",
        input=Input(argv=("yes",)),
        limits=Limits(output_bytes=MIB, flood_bytes=60 * MIB),
        judge=(
            ends(output_limited=True, status=State.FAILED, stdout_truncated=True),
            lambda seen: _kept(seen, MIB),
            rss_below(32),
        ),
    ),
    Attack(
        id="C10",
        alone=True,
        title="A hundred megabytes without a line's end are counted exactly, in little memory.",
        input=shell("head -c 100000000 /dev/zero"),
        limits=Limits(output_bytes=MIB),
        judge=(ends(stdout_bytes=100_000_000, exit_code=0), rss_below(32)),
    ),
    Attack(
        id="C11",
        alone=True,
        title="A byte at a time, three hundred thousand times, arrives in far fewer pieces.",
        input=python("for at in range(300_000): os.write(1, b'x')"),
        judge=(coalesced(300_000), rss_below(32)),
    ),
    Attack(
        id="C12",
        title="Two streams written in turns arrive whole, each in its order.",
        input=python("""
out, err = open(1, "w", buffering=1), open(2, "w", buffering=1)
for at in range(20_000):
    print(at, file=out)
    print(at, file=err)
"""),
        judge=(whole_streams,),
    ),
    Attack(
        id="C13",
        title="A single file cannot grow past its limit; the write ends by signal.",
        input=shell("echo tried; exec dd if=/dev/zero of=big bs=1 count=1 seek=1073741824"),
        judge=(ends(signal=25), says("^tried$"), lambda seen: _sizes(seen, 2**30)),
    ),
    Attack(
        id="C15",
        title="Of very many files the first ten thousand are listed, and that there are more is said.",
        input=python("for at in range(10_050): open(f'f{at}', 'w').close()\nprint('made', at + 1)"),
        artifacts=("*",),
        judge=(
            says("^made 10050$"),
            lambda seen: _too_many(seen, listed=10_000),
            within(20),
        ),
    ),
    Attack(
        id="C16",
        title="A tree thousands of directories deep is given up at a depth, without recursion.",
        input=python("""
for at in range(4000):
    os.mkdir("d")
    os.chdir("d")
print("made", at + 1)
"""),
        artifacts=("**",),
        judge=(says("^made 4000$"), lambda seen: _too_many(seen, listed=1), within(15)),
    ),
    Attack(
        id="C17",
        title="File names of any bytes are kept apart and told as text.",
        input=python(r"""
for name in (b"\n" * 255, b"\xff" * 200, b"a\nb", b"caf\xc3\xa9", b"\xed\xa0\x80"):
    with open(name, "wb") as file:
        file.write(name)
"""),
        artifacts=("*",),
        judge=(ends(exit_code=0), odd_names),
    ),
    Attack(
        id="C18",
        title="A terabyte of nothing cannot be made, and where it may be, it is not hashed.",
        input=shell("truncate -s 1099511627776 huge; echo tried"),
        artifacts=("huge",),
        limits=Limits(file_bytes=2**41),
        judge=(says("^tried$"), lambda seen: _not_hashed(seen, "huge", "too_large"), within(10)),
    ),
    Attack(
        id="C18a",
        title="By default it cannot even be made.",
        input=shell("truncate -s 1099511627776 huge; echo status $?; echo tried"),
        judge=(says("^tried$"), never_says("^status 0$"), lambda seen: _sizes(seen, 2**30)),
    ),
    Attack(
        id="C19",
        title="A command that opens all it can meets its own limit, not the host's.",
        input=python("""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
count = 0
try:
    while count < 100_000:
        os.open("/dev/null", os.O_RDONLY)
        count += 1
except OSError as error:
    print("error", errno.errorcode[error.errno])
print("opened", count)
attempt("raise the limit", resource.setrlimit, resource.RLIMIT_NOFILE, (10**6, 10**6))
"""),
        judge=(says("^error EMFILE$", "^raise the limit\t(ValueError|EPERM)|ValueError"), at_most("opened", 4096)),
    ),
    Attack(
        id="C20",
        title="Inotify instances that a command used up are given back when it ends.",
        input=python("""
count = 0
while count < 1000 and _libc.inotify_init() >= 0:
    count += 1
print("instances", max(1, count))
"""),
        judge=(at_most("instances", 999), _inotify_is_left),
    ),
    Attack(
        id="C21",
        title="A command that stops itself does not outlive its deadline.",
        input=shell("echo ready; kill -STOP $$"),
        timeout=1.5,
        judge=(ends(timed_out=True), says("^ready$"), within(5)),
    ),
    Attack(
        id="C22",
        title="A command that ignores every signal is killed after the grace.",
        input=shell("trap '' TERM INT HUP QUIT; echo ready; while :; do sleep 1; done"),
        timeout=1.5,
        judge=(ends(timed_out=True, signal=signal.SIGKILL), says("^ready$"), within(5)),
    ),
    Attack(
        id="C23",
        title="A daemon that holds the output keeps neither the call nor the sandbox.",
        input=python("""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal, time
        for number in range(1, 32):
            if number not in (9, 19):
                signal.signal(number, signal.SIG_IGN)
        time.sleep(60)
    os._exit(0)
os.wait()
print("parent", flush=True)
"""),
        judge=(ends(exit_code=0), says("^parent$"), _one_left_behind, within(6)),
    ),
    Attack(
        id="C24",
        alone=True,
        title="Busy loops on all processors get what the plan gives them, and others go on.",
        input=shell("for i in 1 2 3 4 5 6; do while :; do :; done & done; echo begun; wait"),
        limits=Limits(cpus=0.5, pids=32),
        timeout=2,
        beside=True,
        judge=(ends(timed_out=True), says("^begun$"), holds_quota(0.5), others_go_on(MOMENTS), within(6)),
    ),
)
