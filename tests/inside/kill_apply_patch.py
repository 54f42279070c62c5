"""
Kills patches at every call to the system, one after the other, and looks at what is left after recovery.

A program of its own, since it forks: `kill_apply_patch.py KIND` with one of `VARIANTS`. Says nothing, or what is wrong.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provider.inside.apply_patch import Root, apply, recover

CALLS = ("open", "close", "read", "write", "mkdir", "rmdir", "rename", "link", "unlink", "fchmod", "stat", "fstat")
BEFORE = {
    "a": b"a\n",
    "b": b"b\n",
    "c": b"c\n",
    "crlf": b"x\r\ny\r\n",
    "d/e": b"e\n",
    "d/gone": b"gone\n",
    "d/moved": b"moved\n",
    "d/over": b"over\n",
    "run": b"#!/bin/sh\n",
}
PATCH = "\n".join(
    [
        "*** Begin Patch",
        *("*** Add File: x/y/z", "+z", "*** Add File: x/w", "+w", "*** Update File: a", "-a", "+A"),
        *("*** Delete File: b", "*** Update File: c", "*** Move to: m/n/c", "-c", "+C", "*** Add File: d/e", "+new"),
        *("*** Update File: crlf", " x", "+between", "*** Delete File: d/gone"),
        *("*** Update File: d/moved", "*** Move to: d/over", "-moved", "+Moved"),
        *("*** Update File: run", " #!/bin/sh", "+true", "*** Add File: d/added", "+added"),
        "*** End Patch",
    ]
)
AFTER = {
    "a": b"A\n",
    "crlf": b"x\r\nbetween\r\ny\r\n",
    "d/added": b"added\n",
    "d/e": b"new\n",
    "d/over": b"Moved\n",
    "m/n/c": b"C\n",
    "run": b"#!/bin/sh\ntrue\n",
    "x/w": b"w\n",
    "x/y/z": b"z\n",
}
EXECUTABLE = "run"
VARIANTS = ("before", "torn", "without-links", "recovery")


def build(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "d").mkdir(parents=True)
    for name, content in BEFORE.items():
        (folder / name).write_bytes(content)
    (folder / EXECUTABLE).chmod(0o750)


def tree(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
    }


def expected(files: dict[str, bytes]) -> dict[str, tuple[int, bytes | None]]:
    folders = {str(above) for name in files for above in Path(name).parents} - {"."}
    there: dict[str, tuple[int, bytes | None]] = dict.fromkeys(folders, (stat.S_IFDIR | 0o755, None))
    for name, content in files.items():
        there[name] = (stat.S_IFREG | (0o750 if name == EXECUTABLE else 0o644), content)
    return there


def deadly(number: int, *, torn: bool, links: bool) -> None:
    """From now on, the call with this number is the last: not made any more or, torn, a write that is half done."""
    left = number

    def wrapped(module: Any, name: str) -> Callable[..., Any]:
        real = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if torn and name == "write":
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "link" and not links:
                raise PermissionError(1, "no links here")
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, wrapped(os, name))
    fcntl.flock = wrapped(fcntl, "flock")


def survives(work: Callable[[], object], number: int, *, torn: bool = False, links: bool = True) -> bool:
    """Do it in a process that is killed at that call; tells whether it came to its end before."""
    child = os.fork()
    if not child:
        status = 1
        try:
            deadly(number, torn=torn, links=links)
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, f"failed at call {number}"
        return True
    assert os.WTERMSIG(status) == signal.SIGKILL
    return False


def in_root(folder: Path, work: Callable[[Root], object]) -> object:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return work(Root(descriptor, str(folder)))
    finally:
        os.close(descriptor)


def applied(folder: Path) -> object:
    return in_root(folder, lambda root: apply(PATCH, root))


def recovered(folder: Path) -> object:
    return in_root(folder, recover)


def verdict(folder: Path, where: str) -> bool:
    """Tells whether the tree is the new one; it is the old one otherwise, or that is said."""
    there = tree(folder)
    assert there in (expected(BEFORE), expected(AFTER)), f"{where}: {there}"
    return there == expected(AFTER)


def every_point(folder: Path, *, torn: bool, links: bool) -> None:
    verdicts: list[bool] = []
    done = False
    while not done:
        build(folder)
        number = len(verdicts) + 1
        done = survives(lambda: applied(folder), number, torn=torn, links=links)
        recovered(folder)
        verdicts.append(verdict(folder, f"killed at call {number}"))
    assert len(verdicts) > 100, verdicts
    # One moment parts the old from the new.
    assert verdicts == sorted(verdicts), verdicts
    assert False in verdicts
    assert verdicts[-1]


def every_point_of_recovery(folder: Path, step: int) -> None:
    number, done = 1, False
    while not done:
        point, first = 1, None
        while True:
            build(folder)
            done = survives(lambda: applied(folder), number)
            finished = survives(lambda: recovered(folder), point)
            recovered(folder)
            now = verdict(folder, f"killed at call {number}, and its recovery at {point}")
            first = now if first is None else first
            assert now == first, "recovery made up its mind anew"
            if finished:
                break
            point += 1
        number += step


def main(kind: str) -> None:
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "work")
        if kind == "recovery":
            every_point_of_recovery(folder, step=23)
        else:
            every_point(folder, torn=kind == "torn", links=kind != "without-links")


if __name__ == "__main__":
    main(sys.argv[1])
