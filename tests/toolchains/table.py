"""
What an agent does all day, as a list of promises: each a folder of `cases`, whose script `run` becomes the workspace's.

`needs` are system calls without which it does not work, the most telling first. A tool needs many more, but these are
what distinguishes it, and what a tightened profile may take away. `link|linkat` is the first on x86_64, and on machines
whose kernel never had it the second.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from provider.model import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    name: str
    """Also of its folder."""
    promise: str
    needs: tuple[str, ...]
    """See `calls`."""
    says: str
    """What its script prints when all is well."""
    tier: Tier = "default"

    @property
    def calls(self) -> tuple[str, ...]:
        """What it needs, as this machine calls it."""
        which = 0 if platform.machine() == "x86_64" else -1
        return tuple(need.split("|")[which] for need in self.needs)


BASIC = {"clone", "fcntl", "getdents64", "openat"}
"""Without these there is no sandbox, so nobody can tell what else would fail."""

TOOLCHAINS = (
    Toolchain(
        name="git",
        promise="git makes commits, clones by hard links, keeps worktrees, merges, pushes and packs",
        needs=("link|linkat", "rename|renameat", "chmod|fchmodat", "fsync", "vfork|clone"),
        says="2 two one",
    ),
    Toolchain(
        name="python",
        promise="a virtual environment is made without a network, and pytest in it runs pools of processes",
        needs=("symlink|symlinkat", "link|linkat", "rename|renameat", "ftruncate", "umask", "utimensat"),
        says="4 passed",
    ),
    Toolchain(
        name="node",
        promise="npm test runs threads, children with a channel, a server and a watch on files",
        needs=("socketpair", "eventfd2", "epoll_create1", "epoll_ctl", "inotify_init1", "socket", "accept4"),
        says="# tests 4 # pass 4 # fail 0",
    ),
    Toolchain(
        name="c",
        promise="make builds libraries and programs with threads, in parallel jobs",
        needs=("pselect6", "vfork|clone", "chmod|fchmodat", "umask", "setresuid"),
        says="5050 5050",
    ),
    Toolchain(
        name="sqlite",
        promise="sqlite takes two writers at once on a write-ahead log",
        needs=("pwrite64", "fdatasync", "ftruncate", "fcntl"),
        says="wal ok 200|1100 110100",
    ),
    Toolchain(
        name="archives",
        promise="tar, in three compressions, and zip give back names, contents, permissions, links and times",
        needs=("utimensat", "fchmodat", "fchmod", "mkdirat", "symlink|symlinkat"),
        says="tar.gz tar.xz tar.bz2 zip",
    ),
    Toolchain(
        name="loopback",
        promise="a server on loopback is reached by its client, over IPv4 and IPv6, without a network",
        needs=("socket", "bind", "listen", "accept4", "setsockopt", "getsockname", "sendto", "recvfrom"),
        says="page page",
    ),
    Toolchain(
        name="search",
        promise="ripgrep finds three of ten thousand files, and leaves out what is ignored",
        needs=("mkdir|mkdirat", "getdents64", "openat"),
        says="10000 tree/42/50.txt tree/7/50.txt tree/99/50.txt 4",
    ),
    Toolchain(
        name="strace",
        promise="strace follows a program and its child",
        needs=("ptrace",),
        says='out 2 write(1, "out\\n", 4)',
        tier="debug",
    ),
    Toolchain(
        name="gdb",
        promise="gdb stops at a breakpoint, shows frames and values, and finds the place of a crash",
        needs=("ptrace",),
        says="#0 inner in main $1 = 41 received signal SIGSEGV #0 in inner",
        tier="debug",
    ),
    Toolchain(
        name="leaks",
        promise="LeakSanitizer finds a leak, its size and its line",
        needs=("ptrace",),
        says="status 23 123 byte(s) leaked in 1 allocation(s) in lose /workspace/leaky.c:6",
        tier="debug",
    ),
)
