"""Operations -> files, one after the other and in place: what compatibility mode does, as upstream does it."""

from __future__ import annotations

import os

from .paths import ApplyError
from .tree import CLOSED, NOTHING, Failing, Folders, compute_one, is_there, make_folder, regular, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .grammar import Operation
    from .tree import Change

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | CLOSED


def apply_each(operations: Sequence[Operation], folders: Folders) -> Iterator[Change]:
    """
    Apply one operation after the other, and give each change when it is made.

    Raises:
        ApplyError: one could not be done; those before it are.
    """
    if not operations:
        raise ApplyError(NOTHING, "patch rejected: empty patch")
    for operation in operations:
        change = compute_one(operation, folders, compat=True)
        target = change.destination
        if change.after is not None:
            with Failing(f"Failed to create parent directories for {target.written}"):
                _make_folders(target.parts[:-1], folders)
            with Failing(f"Failed to write file {target.written}"):
                _overwrite(folders.open(target.parts[:-1]), target.parts[-1], change.after)
        # A move onto itself is no move here; upstream removes the file that it has just written.
        if change.after is None or target.parts != change.target.parts:
            verb = "Failed to delete file" if change.after is None else "Failed to remove original"
            with Failing(f"{verb} {change.target.written}"):
                os.unlink(change.target.parts[-1], dir_fd=folders.open(change.target.parts[:-1]))
        yield change


def _make_folders(parts: tuple[str, ...], folders: Folders) -> None:
    if not is_there(parts, folders):
        for depth in range(1, len(parts) + 1):
            make_folder(parts[:depth], folders)


def _overwrite(folder: int, name: str, content: bytes) -> None:
    descriptor = os.open(name, _WRITE, 0o666, dir_fd=folder)
    try:
        regular(os.fstat(descriptor))
        os.ftruncate(descriptor, 0)
        write_all(descriptor, content)
    finally:
        os.close(descriptor)
