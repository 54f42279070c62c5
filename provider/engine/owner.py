"""Who a container belongs to: this process, told apart from any later one with the same number."""

from __future__ import annotations

import os
from pathlib import Path

OWNER_LABEL = "sandbox-provider.owner"


def this_owner() -> str:
    """`boot id/pid namespace/pid/start time`: numbers are re-used, the four together are not."""
    return _owner(os.getpid()) or f"unknown/unknown/{os.getpid()}/0"


def is_dead(owner: str) -> bool:
    """True only for an owner that certainly is: one of another boot or pid namespace cannot be judged from here."""
    try:
        boot, namespace, pid, _ = owner.split("/")
        if [boot, namespace] != this_owner().split("/")[:2] or boot == "unknown":
            return False
        return _owner(int(pid)) != owner
    except ValueError:
        return False


def _owner(pid: int) -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
        # Fields after the last parenthesis; the name before it may hold anything. The start time is the 22nd of all.
        start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
    return f"{boot}/{namespace}/{pid}/{start}"
