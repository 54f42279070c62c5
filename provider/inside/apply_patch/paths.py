"""A path as written -> a place below the root, by its letters alone. Pure."""

from __future__ import annotations

import errno
import os

from .grammar import PatchError, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

OUTSIDE = "patch rejected: writing outside of the project; rejected by user approval settings"
JOURNAL, DONE = ".apply_patch.journal", ".apply_patch.done"
"""Our own files in the root, while a patch is under way."""
BESIDE = ".apply_patch-"
"""How the names begin of those beside the files that are changed."""


class ApplyError(PatchError):
    """The patch does not fit the files, or they cannot be changed."""

    def __init__(self, message: str, verified: str | None = None) -> None:
        self.verified = message if verified is None else verified
        super().__init__(message)


class Root:
    """Where paths begin, and what they cannot leave."""

    __slots__ = ("base", "descriptor", "directory", "path", "top")

    def __init__(self, descriptor: int, path: str, directory: str = "") -> None:
        self.descriptor = descriptor
        self.path = path
        """Absolute; only for reading absolute paths in patches, and for messages."""
        self.directory = directory
        """Relative paths begin here; itself relative to the root, or absolute."""
        self.top = _normal([], path)
        self.base = _normal(self.top, directory)


class Target(Value):
    __slots__ = ("absolute", "parts", "written")

    def __init__(self, written: str, parts: tuple[str, ...], absolute: str) -> None:
        self.written, self.absolute = written, absolute
        self.parts = parts
        """From the root, without `.` and `..`; never empty."""

    @property
    def relative(self) -> str:
        return "/".join(self.parts)


def resolve(written: str, root: Root) -> Target:
    """
    Find the place of a path by its letters alone.

    Raises:
        ApplyError: it is not below the root, or one of our own files.
    """
    top = root.top
    parts = _normal(root.base, written)
    if parts[: len(top)] != top or len(parts) == len(top) or "\0" in written:
        raise ApplyError(OUTSIDE)
    target = Target(written, tuple(parts[len(top) :]), "/" + "/".join(parts))
    if target.parts[-1].startswith(BESIDE) or target.parts[0] in {JOURNAL, DONE}:
        does_not_fit("Failed to write file ", target)
    return target


def _normal(start: list[str], path: str) -> list[str]:
    parts = [] if path.startswith("/") else list(start)
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return parts


def does_not_fit(before: str, target: Target, after: str = "") -> NoReturn:
    message = f"{before}{target.written}{after}"
    raise ApplyError(message, f"{before}{target.absolute}{after}")


def os_error(error: OSError) -> str:
    return f"{os.strerror(error.errno)} (os error {error.errno})" if error.errno else str(error)


def too_large() -> OSError:
    return OSError(errno.EFBIG, os.strerror(errno.EFBIG))
