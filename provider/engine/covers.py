"""Whether protected names of the workspace are covered as planned: by pid 1's word, and by the host kernel's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from provider.gvisor import GVISOR
from provider.model import BoxPlan


def told_differences(box: BoxPlan, hello: Mapping[str, str]) -> Iterator[str]:
    """Compare with what pid 1 has told of mounts over names of the workspace."""
    told = [value.split(" ", 2) for key, value in hello.items() if key.startswith("mount")]
    over = {name: (mode, inode) for mode, inode, name in (parts for parts in told if len(parts) == 3)}  # noqa: PLR2004
    for held in box.protected:
        mode, inode = over.get(_escaped(held.name), ("not mounted", ""))
        if mode != "ro":
            yield f"{held.name} of the workspace is {mode}, not read-only"
        elif inode != str(held.inode) and box.runtime != GVISOR:  # it numbers inodes itself
            yield f"{held.name} of the workspace is not the one that was validated"


def _escaped(name: str) -> str:
    return "".join(chr(byte) if _is_plain(byte) else f"\\x{byte:02x}" for byte in os.fsencode(name))


def _is_plain(byte: int) -> bool:
    return ord(" ") <= byte <= ord("~") and byte != ord("\\")


def seen_differences(box: BoxPlan, workspace: Path) -> Iterator[str]:
    """
    Look for oneself, through a process that has the container's mounts. What gVisor lets nobody write, its own kernel
    keeps; the host does not see that.

    Raises PermissionError.
    """
    for held in box.protected:
        try:
            status = (workspace / held.name).lstat()
        except FileNotFoundError:
            yield f"{held.name} of the workspace is not there"
            continue
        # A link may have got the inode of what it has replaced.
        if stat.S_ISLNK(status.st_mode) or (status.st_dev, status.st_ino) != (held.device, held.inode):
            yield f"{held.name} of the workspace is not the one that was validated"
        elif box.runtime != GVISOR and not os.statvfs(workspace / held.name).f_flag & os.ST_RDONLY:
            yield f"{held.name} of the workspace can be written"
