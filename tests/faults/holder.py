"""
Holds the mount and network namespaces in which the second engine lives, and ends with all that lives there.

Started under `unshare --net --mount --propagation private`, so nothing that is mounted or configured here is seen by
the host. It waits for its stdin to end, which it does also when the tests are killed; then it kills every process of
these namespaces, and of the engine's own control group, and ends.

    holder.py FOLDER SIZE GROUP
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT = 10.0


def main(folder: str, size: str, group: str) -> None:
    forget_other_engines()
    # Shims keep their sockets in /run/containerd, whatever the engine is told.
    mount("tmpfs", "/run", "mode=755")
    mount("tmpfs", f"{folder}/data", f"size={size}")
    (Path(folder) / "small").mkdir()
    mount("tmpfs", f"{folder}/small", "size=1536k,mode=1777")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, timeout=LIMIT)
    os.write(1, b"ready\n")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    until = time.monotonic() + LIMIT
    while (left := [*neighbours(os.getpid()), *grouped(group)]) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for path in sorted(groups(group), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir()


def mount(kind: str, where: str, options: str) -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, kind, where], check=True, timeout=LIMIT)


def forget_other_engines() -> None:
    """What they have mounted came with the namespace, and would be held here after they have let it go."""
    found = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for where in reversed(found):
        if where.startswith(("/var/lib/docker/", "/run/docker/", "/var/run/docker/")):
            subprocess.run(["umount", "--lazy", where], check=False, stderr=subprocess.DEVNULL, timeout=LIMIT)


def neighbours(pid: int) -> Iterator[int]:
    """Every other process in a process's mount namespace: the engine, its containerd, the shims."""
    namespace = Path(f"/proc/{pid}/ns/mnt").readlink()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != pid:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{name}/ns/mnt").readlink() == namespace:
                    yield int(name)


def groups(group: str) -> list[Path]:
    """The engine's control group and those in it, in every hierarchy."""
    tops = [Path("/sys/fs/cgroup", group), *Path("/sys/fs/cgroup").glob(f"*/{group}")]
    return [Path(folder) for top in tops for folder, _, _ in os.walk(top)]


def grouped(group: str) -> set[int]:
    """The processes of the engine's containers."""
    found: set[int] = set()
    for path in groups(group):
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (path / "cgroup.procs").read_text().split()}
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
