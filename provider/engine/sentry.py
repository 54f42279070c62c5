"""
The host kernel's word on a container of gVisor's. What the engine calls its first process is the sentry, gVisor's
kernel; what runs inside is not to be seen from the host.

So the host is asked about the sentry itself: that it is confined as gVisor means it to be, that no flag takes away what
it is there for, that the limits are on its cgroup, and that its file server holds the workspace that was validated.
Pid 1 cannot vouch for the last, for gVisor numbers inodes itself. What cannot be seen is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from provider.engine.covers import seen_differences
from provider.errors import PlanRejected
from provider.model import BoxPlan, Limits
from provider.plan import host_pids

_CGROUPS = Path("/sys/fs/cgroup")
_FLAGS: Mapping[str, frozenset[str] | None] = {
    "network": frozenset({"none", "sandbox"}),  # with `host` the host's kernel would serve every socket call
    "oci-seccomp": frozenset({"true"}),
    "platform": None,
    "platform_device_path": None,
    "directfs": None,
    "systemd-cgroup": None,
    "root": None,
    "log": None,
    "log-fd": None,
    "log-format": None,
    "debug-log-fd": None,
    "panic-log-fd": None,
}
"""What a sentry may be started with, and as what; any other flag may open a door that this program knows nothing of."""
_PERIOD = 100_000


def attest_sentry(box: BoxPlan, container: str, pid: int, proc: Path = Path("/proc")) -> None:
    """
    Ask this machine's kernel about the sentry of a container.

    Raises:
        PlanRejected: it does not confirm the plan, or cannot be asked.
    """
    sentry = proc / str(pid)
    try:
        if container not in (sentry / "cgroup").read_text():
            raise FileNotFoundError(pid)  # that is another process's number
        wrong = [*_sentry(sentry), *_limits(box.limits, sentry), *_workspace(box, container, sentry)]
    except (OSError, ValueError, LookupError) as error:
        message = f"gVisor's processes cannot be looked at, which takes root on the engine's own machine: {error!r}"
        raise PlanRejected(message) from error
    if wrong:
        message = "the host kernel does not confirm the plan: " + "; ".join(wrong)
        raise PlanRejected(message)


def _sentry(sentry: Path) -> Iterator[str]:
    words = _words(sentry)
    if words[0] != "runsc-sandbox" or "boot" not in words:
        yield f"its process is {words[0]!r}, not gVisor's"
        return
    for word in words[1 : words.index("boot")]:
        name, _, value = word.lstrip("-").partition("=")
        allowed = _FLAGS.get(name, frozenset())
        if allowed is not None and value not in allowed:
            yield f"gVisor was started with {word}"
    if "--oci-seccomp=true" not in words:
        yield "gVisor was started without --oci-seccomp"
    status = _status(sentry)
    for name, wanted in {"NoNewPrivs": "1", "Seccomp": "2"}.items():
        if status.get(name) != wanted:
            yield f"{name} of gVisor's process is {status.get(name)!r}"
    if (sentry / "ns/user").readlink() == Path("/proc/self/ns/user").readlink():
        yield "gVisor's process is in the host's user namespace"


def _limits(limits: Limits, sentry: Path) -> Iterator[str]:
    """The engine says what it was told; on the cgroup stands what holds."""
    places = dict(line.split(":", 2)[1:] for line in (sentry / "cgroup").read_text().splitlines())
    memory, pids, cpus = limits.memory_bytes, host_pids(limits), round(limits.cpus * _PERIOD)
    if "memory" in places:  # version 1, a tree for each kind
        quota = next(name for name in places if "cpu" in name.split(","))
        expected = {
            _CGROUPS / "memory" / places["memory"].lstrip("/") / "memory.limit_in_bytes": str(memory),
            _CGROUPS / "pids" / places["pids"].lstrip("/") / "pids.max": str(pids),
            _CGROUPS / quota / places[quota].lstrip("/") / "cpu.cfs_quota_us": str(cpus),
        }
    else:
        place = _CGROUPS / places[""].lstrip("/")
        expected = {
            place / "memory.max": str(memory),
            place / "pids.max": str(pids),
            place / "cpu.max": f"{cpus} {_PERIOD}",
        }
    for path, wanted in expected.items():
        if (found := path.read_text().strip()) != wanted:
            yield f"{path.name} is {found}, not {wanted}"


def _workspace(box: BoxPlan, container: str, sentry: Path) -> Iterator[str]:
    """Of the file server, which has the container's mounts and hands the sentry descriptors of them."""
    found = [server for server in _siblings(sentry) if _words(server)[:1] == ["runsc-gofer"]]
    found = [server for server in found if container in (server / "cgroup").read_text()]
    if len(found) != 1:
        yield f"{len(found)} file servers of gVisor's are to be seen, not one"
        return
    mounted = (found[0] / "root/workspace").stat()
    if (mounted.st_dev, mounted.st_ino) != (box.workspace.device, box.workspace.inode):
        yield "/workspace is not the directory that was validated; its name now leads elsewhere"
    yield from seen_differences(box, found[0] / "root/workspace")


def _siblings(process: Path) -> Iterator[Path]:
    parent = process.parent / _status(process)["PPid"]
    for task in (parent / "task").iterdir():
        for pid in (task / "children").read_text().split():
            yield process.parent / pid


def _status(process: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)


def _words(process: Path) -> list[str]:
    return (process / "cmdline").read_text().removesuffix("\0").split("\0")
