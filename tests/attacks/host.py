"""What the host says of itself before and after an attack: facts that nothing in a sandbox may change, and gauges."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

_FIXED = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/overcommit_memory",
    "/sys/fs/cgroup/memory/release_agent",
    "/sys/kernel/uevent_helper",
)
_FILES = ("/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/ld.so.preload", "/etc/crontab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    fixed: tuple[tuple[str, object], ...]
    """The same before and after, or somebody got out."""
    rss: int
    rss_peak: int
    """Since the facts before."""


def facts(watched: tuple[Path, ...], *, begin: bool) -> Facts:
    if begin:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    usage = _status("VmRSS"), _status("VmHWM")
    return Facts(
        fixed=tuple(_fixed(watched)),
        rss=usage[0],
        rss_peak=usage[1],
    )


def _fixed(watched: tuple[Path, ...]) -> list[tuple[str, object]]:
    told: list[tuple[str, object]] = []
    for name in _FIXED:
        try:
            told.append((name, Path(name).read_text()))
        except OSError:
            continue  # not on this machine, or not for us
    for path in (*map(Path, _FILES), *watched):
        try:
            info = path.stat()
        except OSError:
            told.append((str(path), None))
        else:
            told.append((str(path), (info.st_ino, info.st_size, info.st_mode, info.st_mtime_ns, info.st_ctime_ns)))
    return told


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def digests(paths: tuple[Path, ...]) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def left_of(container: str) -> list[str]:
    """Processes of this machine that are in a cgroup of that name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if container in (folder / "cgroup").read_text():
                found.append(folder.name)
        except OSError:
            continue
    return found
