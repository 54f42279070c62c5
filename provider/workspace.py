"""
Which host directory may become a workspace. A sandbox can do with it what its owner can, so the wrong one is
refused here.

The directory is known from here on by device and inode: the engine resolves the path again when the container
starts, and a name swapped in between would mount another directory (measured on Docker 20.10).
`engine/attest.py` compares.
"""

from __future__ import annotations

import errno
import functools
import os
import pwd
import stat
from pathlib import Path

from provider.errors import CallError
from provider.model import Workspace

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SYSTEM = frozenset(
    Path("/", name)
    for name in [
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "media",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "tmp",
        "usr",
        "var",
    ]
) | {Path("/")}
_KERNEL = (Path("/proc"), Path("/sys"))
_ENGINE_FOLDERS = tuple(
    Path(name)
    for name in (
        "/var/lib/docker",
        "/var/lib/containerd",
        "/var/lib/containers",
        "/run/docker",
        "/run/containerd",
        "/run/containers",
    )
)
_FIRST_PERSON, _NOBODY = 1000, 65534
_SCAN_ENTRIES = 1_000_000
_NO_PATH = (OSError, ValueError, RuntimeError)
"""What pathlib raises for a name that is too long, holds a NUL or a lone surrogate, or is a loop of links."""


def check_workspace(path: str | os.PathLike[str]) -> Workspace:
    """
    Validate a directory and pin it.

    Raises:
        CallError: it does not exist, is a link, or is a directory that nobody means to give away.
    """
    given = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the link that we look for
    try:
        if given.is_symlink():
            message = f"workspace {given} is a symbolic link; name the directory itself: {given.resolve()}"
            raise CallError(message)
        real = given.resolve(strict=True)
        status = real.lstat()
    except _NO_PATH as error:
        message = f"workspace {str(given)!r}: {_why(error)}; it must be an existing directory"
        raise CallError(message) from error
    if not stat.S_ISDIR(status.st_mode):
        message = f"workspace {given} is not a directory"
        raise CallError(message)
    if reason := _why_not(real):
        message = f"workspace {given} is {reason}; use a directory made for the work"
        raise CallError(message)
    return Workspace(path=real, device=status.st_dev, inode=status.st_ino, uid=status.st_uid, gid=status.st_gid)


def open_workspace(workspace: Workspace) -> int:
    """Open the directory that was validated, never another that its name leads to by now. Raises OSError."""
    root = os.open(workspace.path, FOLDER)
    status = os.fstat(root)
    if (status.st_dev, status.st_ino) != (workspace.device, workspace.inode):
        os.close(root)
        raise OSError(errno.ESTALE, "it is no longer the directory that was validated", str(workspace.path))
    return root


@functools.lru_cache(maxsize=256)  # every request asks, and pathlib takes a quarter of a millisecond over it
def _why_not(path: Path) -> str | None:
    if path in _SYSTEM or any(path.is_relative_to(kernel) for kernel in _KERNEL):
        return "a system directory"
    if any(path.is_relative_to(folder) or folder.is_relative_to(path) for folder in _ENGINE_FOLDERS):
        return "a container engine's own folder, or holds one"
    for home in _homes():
        if path == home:
            return "a home folder"
        if home.is_relative_to(path):
            return f"a folder that holds the home folder {home}"
    return None


@functools.cache  # a directory service may take long to list its people
def _homes() -> frozenset[Path]:
    people = [entry for entry in pwd.getpwall() if entry.pw_uid == 0 or _FIRST_PERSON <= entry.pw_uid < _NOBODY]
    return frozenset({Path.home().resolve(), *(Path(person.pw_dir).resolve() for person in people)}) - {Path("/")}


def working_directory(workspace: Workspace, cwd: str) -> str:
    """
    Turn a request's cwd into an absolute path inside the container.

    Raises:
        CallError: it is not an existing directory of the workspace.
    """
    relative = cwd.removeprefix("/workspace").lstrip("/") if _is_below_mount(cwd) else cwd
    if "\0" in cwd or relative.startswith("/"):
        message = f"cwd {cwd!r} must be relative to the workspace, or below /workspace"
        raise CallError(message)
    try:
        real = (workspace.path / relative).resolve()
        is_directory = real.is_dir()
    except _NO_PATH as error:
        message = f"cwd {cwd!r}: {_why(error)}; it must be a directory of the workspace"
        raise CallError(message) from error
    if not real.is_relative_to(workspace.path):
        message = f"cwd {cwd!r} leads out of the workspace"
        raise CallError(message)
    if not is_directory:
        message = f"cwd {cwd!r} is not a directory of the workspace; it must exist before the run"
        raise CallError(message)
    return str(Path("/workspace", real.relative_to(workspace.path)))


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _is_below_mount(cwd: str) -> bool:
    return cwd == "/workspace" or cwd.startswith("/workspace/")


def find_socket(workspace: Workspace) -> str | None:
    """
    Find a socket below the workspace: with AF_UNIX allowed, whatever listens there is reachable from the sandbox.

    Raises:
        CallError: the workspace is too large to be sure that there is none.
    """
    seen = 0
    # Not os.walk, which recurses: a tree can be deeper than Python's stack.
    pending = [str(workspace.path)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _SCAN_ENTRIES:
                        message = (
                            f"over {_SCAN_ENTRIES:,} entries in the workspace, too many to rule out a socket; "
                            "use tier default"
                        )
                        raise CallError(message)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif _is_socket(entry):
                        return str(Path(entry.path).relative_to(workspace.path))
        except FileNotFoundError:
            continue  # gone since it was listed
        except OSError as error:
            message = (
                f"{error.filename} in the workspace cannot be read, so a socket in it cannot be ruled out; "
                "use tier default"
            )
            raise CallError(message) from error
    return None


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False  # gone since it was listed
