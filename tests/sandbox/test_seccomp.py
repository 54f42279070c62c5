"""What the seccomp tiers promise, tried by probe.c in real sandboxes; tests/test_seccomp.py reads it from the JSON."""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from provider import run_sync

pytestmark = pytest.mark.docker

HERE = Path(__file__).resolve().parent
PROFILES = HERE.parents[1] / "provider" / "data" / "seccomp"
MINIMAL = "sandbox-provider/minimal"
UIDS = (1000, 0) if os.geteuid() == 0 else (os.geteuid(),)  # a command runs as the owner of the workspace


def expect(**answers: str) -> dict[str, str]:
    """Attempts by answer, separated by semicolons, as a mapping from attempt to answer."""
    return {name.strip(): answer for answer, names in answers.items() for name in names.split(";")}


# In tier `default`, by promise.
FAMILIES = {f"family {number}": "ok" if number in {2, 10, 16} else "EPERM" for number in range(64)} | expect(
    EPERM="alg seqpacket; alg, high bit; vsock stream; packet raw; unix, high bit"
)
PROTOCOLS = expect(ok="tcp; tcp6; udp", EPERM="raw; sctp; dccp; mptcp; l2tp; udplite")
NETLINK = {f"netlink {number}": "EPERM" if number else "ok" for number in range(32)}
PAIRS = expect(ok="pair stream; pair seqpacket", EPERM="pair dgram; pair raw; pair tipc")
NAMESPACES = expect(
    EPERM="""clone 20000; clone 2000000; clone 4000000; clone 8000000; clone 10000000; clone 20000000; clone 40000000;
    unshare 20000; unshare 2000000; unshare 4000000; unshare 8000000; unshare 10000000; unshare 20000000;
    unshare 40000000; clone newuser; clone newuser, high bit; setns""",
    ENOSYS="clone3",
)
KERNEL = expect(
    EPERM="bpf; perf_event_open; keyctl; add_key; vmsplice; mount; name_to_handle_at; shmget",
    ENOSYS="io_uring_setup; io_uring_enter; io_uring_register; userfaultfd; memfd_secret; execveat",
    EINVAL="splice",
)
PERSONALITY = expect(
    ok="personality query; personality linux32",
    EPERM="""personality no randomize; personality read implies exec; personality read implies exec, high bit;
    personality mmap page zero""",
)
PROCESSES = expect(
    ok="pidfd_open; prlimit set; prlimit pid 1, read",
    EPERM="""ptrace; ptrace pid 1; process_vm_readv; process_vm_writev; kcmp; pidfd_getfd; prlimit pid 1, set""",
)
MODES = expect(
    ok="""fchmod; fchmodat sticky; openat; openat tmpfile; openat, garbage mode; openat directory, garbage mode;
    mkdirat; mknodat file; mknodat fifo""",
    EPERM="""fchmod setuid; fchmod setgid; fchmod setuid, junk; fchmodat setuid; fchmodat setgid; fchmodat setuid, junk;
    openat setuid; openat setgid; openat setuid, junk; openat setuid tmpfile; mkdirat setgid; mknodat setuid;
    mknodat setuid, no type; mknodat setuid, junk; mknodat setgid fifo; mknodat block device; mknodat char device;
    mknodat whiteout; mknodat socket""",
    ENOSYS="fchmodat2 setuid; openat2 setuid",
)
X86_64 = expect(
    ok="chmod; open; open, garbage mode; creat; mkdir; mknod fifo",
    EPERM="""chmod setuid; chmod setgid; chmod setuid, junk; open setuid; open setgid; open setuid, junk;
    open setuid tmpfile; creat setuid; mkdir setgid; mknod setuid; mknod whiteout; modify_ldt""",
    SIGSYS="x32; int 0x80",
)
TERMINALS = expect(
    ok="TIOCGETD; ioctl sweep",
    EPERM="""TIOCSTI; TIOCSTI, bit 32; TIOCSTI, bit 63; TIOCSTI, upper bits; TIOCLINUX; TIOCLINUX, bit 32; TIOCSETD;
    TIOCSETD, bit 32""",
)
UNIX = expect(ok="family 1; pair dgram; pair raw")
DEBUG = expect(ok="ptrace; process_vm_readv; process_vm_writev; kcmp; pidfd_getfd; personality no randomize")
ADDED = {"default": {}, "unix": UNIX, "debug": UNIX | DEBUG}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What one sandbox answered, and what it left."""

    tier: str
    workspace: Path
    answers: dict[str, str]

    def keeps(self, promise: dict[str, str]) -> bool:
        """Compare all at once, so that a failure shows every answer that is wrong."""
        expected = {name: ADDED[self.tier].get(name, answer) for name, answer in promise.items()}
        assert {name: self.answers.get(name) for name in promise} == expected
        return True


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("probe") / "probe"
    options = ["-static", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *options, "-o", program, HERE / "probe.c"], check=True)
    return program


@pytest.fixture(scope="module", params=itertools.product(ADDED, UIDS), ids=lambda param: "{}-uid{}".format(*param))
def probed(request: pytest.FixtureRequest, probe: Path, tmp_path_factory: pytest.TempPathFactory) -> Probed:
    tier, uid = request.param
    workspace = workspace_with(probe, tmp_path_factory.mktemp("workspace"), uid)
    return Probed(tier=tier, workspace=workspace, answers=run_probe(workspace, tier))


def workspace_with(probe: Path, workspace: Path, uid: int) -> Path:
    shutil.copy(probe, workspace)
    if uid != os.geteuid():
        os.chown(workspace, uid, uid)
    return workspace


def run_probe(workspace: Path, tier: str, *words: str) -> dict[str, str]:
    outcome = run_sync(["/workspace/probe", *words], workspace=workspace, image=MINIMAL, seccomp=tier)
    assert outcome.exit_code == 0, outcome
    return dict(line.split("\t") for line in outcome.stdout.decode().splitlines())


def test_every_answer_is_expected(probed: Probed) -> None:
    """The probe tries nothing that no promise below covers."""
    promises = [FAMILIES, PROTOCOLS, NETLINK, PAIRS, NAMESPACES, KERNEL, PERSONALITY, PROCESSES, MODES, TERMINALS]
    if platform.machine() == "x86_64":
        promises.append(X86_64)
    assert set(probed.answers) == {name for promise in promises for name in promise}


def test_socket_families(probed: Probed) -> None:
    """IPv4, IPv6 and netlink, AF_UNIX where the tier says so, and none of the other sixty: no AF_ALG, vsock, packet."""
    assert probed.keeps(FAMILIES)


def test_ip_protocols(probed: Probed) -> None:
    """TCP and UDP, and no protocol for which the kernel would load a module."""
    assert probed.keeps(PROTOCOLS)


def test_netlink_is_route_only(probed: Probed) -> None:
    """Interfaces can be listed; audit, netfilter, xfrm, uevents, generic netlink and the rest cannot be reached."""
    assert probed.keeps(NETLINK)


def test_socket_pairs(probed: Probed) -> None:
    """Pairs to talk to children work; a pair whose ends can be turned elsewhere needs tier `unix`."""
    assert probed.keeps(PAIRS)


def test_no_namespace_can_be_made(probed: Probed) -> None:
    """Neither clone nor unshare nor setns gets a namespace, and clone3 does not exist."""
    assert probed.keeps(NAMESPACES)


def test_rare_corners_of_the_kernel_are_closed(probed: Probed) -> None:
    """io_uring, userfaultfd, bpf, keys, mounts, file handles and System V memory are out of reach in every tier."""
    assert probed.keeps(KERNEL)


def test_personalities(probed: Probed) -> None:
    """No tier can make data executable or map page zero; `debug` can turn address randomisation off."""
    assert probed.keeps(PERSONALITY)


def test_other_processes(probed: Probed) -> None:
    """Only `debug` looks into processes, pid 1 stays closed to it too, and no tier changes the limits of pid 1."""
    assert probed.keeps(PROCESSES)


def test_file_modes(probed: Probed) -> None:
    """No set-id bit and no device, by any call or with junk in the register; ordinary files, folders and FIFOs work."""
    assert probed.keeps(MODES)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these entry points exist on x86_64 only")
def test_x86_64_entry_points(probed: Probed) -> None:
    """The old calls are filtered as their successors are, and a call by i386's or x32's door ends the process."""
    assert probed.keeps(X86_64)


def test_terminal_input_cannot_be_forged(probed: Probed) -> None:
    """TIOCSTI, TIOCLINUX and TIOCSETD are refused on a terminal of one's own, and no other ioctl is."""
    assert probed.keeps(TERMINALS)


def test_nothing_in_the_workspace_has_a_set_id_bit(probed: Probed) -> None:
    """After all attempts the workspace holds what they were allowed to make, and none of it is set-id or a device."""
    left = {path.name: path.lstat().st_mode for path in probed.workspace.rglob("*")}
    assert {"victim", "openat", "mkdirat", "mknodat.fifo"} <= set(left)
    assert {name: oct(mode) for name, mode in left.items() if mode & 0o6000} == {}
    assert {name for name in left if name.partition(".")[2] in {"block", "char", "white", "socket"}} == set()


def test_every_call_that_is_not_allowed_is_refused(probed: Probed) -> None:
    """Each system call that this machine's headers name and the tier does not allow answers as the profile says."""
    rules = json.loads((PROFILES / f"{probed.tier}.json").read_text())["syscalls"]
    allowed = {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    other = {name: rule["errnoRet"] for rule in rules if "errnoRet" in rule for name in rule["names"]}
    named = {1: "EPERM", 22: "EINVAL", 38: "ENOSYS", 95: "EOPNOTSUPP"}
    refused = {name: number for name, number in calls_of_this_machine() if name not in allowed}
    assert len(refused) > 50
    answers = run_probe(probed.workspace, probed.tier, "call", *refused.values())
    # ENOSYS is as good: runc says it for what is younger than its libseccomp.
    wrong = {n: answers[refused[n]] for n in refused if answers[refused[n]] not in (named[other.get(n, 1)], "ENOSYS")}
    assert wrong == {}


def calls_of_this_machine() -> Iterator[tuple[str, str]]:
    macros = ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"]
    for line in subprocess.run(macros, check=True, capture_output=True, text=True).stdout.splitlines():
        _, name, *number = line.split()
        if name.startswith("__NR_") and number and number[0].isdigit():
            yield name.removeprefix("__NR_"), number[0]


@pytest.mark.parametrize("uid", UIDS)
def test_sockets_of_the_host_are_out_of_reach(
    probe: Path, tmp_path: Path, uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `default` a host daemon whose socket lies in the workspace hears nothing, not even by way of a socket pair."""
    monkeypatch.chdir(workspace_with(probe, tmp_path, uid))  # a socket's address is 107 bytes at most
    kinds = {"stream": socket.SOCK_STREAM, "seqpacket": socket.SOCK_SEQPACKET, "dgram": socket.SOCK_DGRAM}
    daemons = []
    for name, kind in kinds.items():
        daemons.append(daemon := socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK))
        daemon.bind(f"host.{name}")
        Path(f"host.{name}").chmod(0o777)
        if name != "dgram":
            daemon.listen()
    try:
        assert run_probe(tmp_path, "default", "host") == expect(
            EPERM="stream; dgram pair; raw pair", EISCONN="stream pair; seqpacket pair"
        )
        for daemon in daemons[:2]:
            with pytest.raises(BlockingIOError):
                daemon.accept()
        with pytest.raises(BlockingIOError):
            daemons[2].recv(1)
    finally:
        for daemon in daemons:
            daemon.close()


PYTHON = """
import asyncio, multiprocessing, os, pty, shutil, socket, sqlite3, subprocess, tempfile
from concurrent.futures import ProcessPoolExecutor

async def serve():
    server = await asyncio.start_server(lambda reader, writer: (writer.write(b"x"), writer.close()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b"x"
    child = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    assert await child.communicate() == (b"hi\\n", None)

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(abs, [-3])) == [3]
    asyncio.run(serve())
    database = sqlite3.connect("x.db")
    database.execute("pragma journal_mode=wal")
    database.execute("create table t(a)")
    database.commit()
    assert pty.spawn(["test", "-t", "0"]) == 0
    tempfile.TemporaryFile().write(b"x")
    shutil.copytree("/usr/lib/python3", tempfile.mkdtemp() + "/copy")
    assert socket.if_nameindex()
"""
NODE = """
const assert = require("assert"), { execSync, fork } = require("child_process"), http = require("http");
if (process.send) { process.send("hi"); return; }
assert.equal(execSync("echo hi"), "hi\\n");
fork(__filename).on("message", (text) => assert.equal(text, "hi"));
new (require("worker_threads").Worker)("1", { eval: true });
require("fs").copyFileSync(__filename, "copy.js");
const server = http.createServer((_, reply) => reply.end("x")).listen(0, "127.0.0.1", () => {
  const request = http.get({ host: "127.0.0.1", port: server.address().port });
  request.on("response", (reply) => reply.resume().on("end", () => server.close()));
});
"""
C = """
#include <pthread.h>
#include <stdio.h>
static void *nothing(void *x) { return x; }
int main(void) { pthread_t t; pthread_create(&t, 0, nothing, 0); pthread_join(t, 0); return puts("hi") < 0; }
"""
TOOLS = {
    "git": """
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
        git init -q r; echo x > r/f; git -C r add f; git -C r commit -qm m; git clone -q --no-local r c
        git -C c fetch -q; git -C r gc -q; git -C r fsck""",
    "python": "python3 work.py && python3 -m venv v && v/bin/pip --version",
    "node": "node work.js",
    "npm": "npm init -y && npm pkg set scripts.test='echo tested' && npm test && npm pack",
    "gcc": "printf 'work: work.c\\n\\tgcc -pipe -O2 -pthread -o work work.c\\n' > Makefile; make -j2; ./work",
    "tar": "mkdir d; mkfifo d/fifo; cp work.c d; chmod 1755 d; tar czpf t d; rm -r d; tar xzpf t; test -p d/fifo",
    "coreutils": """
        cp -a work.c a; install -m 755 a b; ln -s a l; ln a h; touch -d yesterday b; truncate -s 1M b; mktemp -d
        dd if=/dev/zero of=z bs=1M count=2 conv=fsync; split -n 2 z; seq 100000 | sort -R | tail -n 1; timeout 5 true
        nice true; nohup true; sync z; df .; stat z; ulimit -n 512; setsid true; flock z true""",
    "http": """
        python3 -m http.server --bind 127.0.0.1 8000 & sleep 1; curl -sf http://127.0.0.1:8000/work.c | cmp - work.c
        kill $!""",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_work_in_default(tool: str, tmp_path: Path) -> None:
    """What an agent works with all day runs in the narrowest tier."""
    for name, text in {"work.py": PYTHON, "work.js": NODE, "work.c": C}.items():
        (tmp_path / name).write_text(text)
    outcome = run_sync(["bash", "-euc", TOOLS[tool]], workspace=tmp_path, seccomp="default", timeout=90)
    assert outcome.exit_code == 0, outcome.stderr.decode()


@pytest.mark.parametrize(("tier", "works"), [("default", False), ("unix", False), ("debug", True)])
def test_leak_checker_needs_debug(tier: str, works: bool, tmp_path: Path) -> None:
    """LeakSanitizer, which stops its own process by ptrace, works in `debug` and fails loudly elsewhere."""
    (tmp_path / "work.c").write_text(C)
    script = "gcc -fsanitize=address -pthread -o work work.c && ./work"
    outcome = run_sync(["bash", "-euc", script], workspace=tmp_path, seccomp=tier, timeout=90)
    assert (outcome.exit_code == 0) == works
    assert works or b"LeakSanitizer has encountered a fatal error" in outcome.stderr
