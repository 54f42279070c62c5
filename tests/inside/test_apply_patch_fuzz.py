"""
Patches from a generator, on a tree full of traps: none writes outside of the workspace, none makes the reader fail, and
all of it or nothing of it is done, also when a call to the system fails or the process dies at any of them.

A few thousand each time; `FUZZ_PATCHES=100000` runs that many, `FUZZ_SEED` others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from provider.inside.apply_patch import (
    PatchError,
    Root,
    apply,
    command,
    compute,
    journal,
    read_patch,
    recover,
    upstream,
)
from provider.inside.apply_patch import tree as tree_module

PATCHES = int(os.environ.get("FUZZ_PATCHES", "2000"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
LONG, TOO_LONG = "l" * 255, "l" * 256
FILES = {
    "f": b"a\nb\nc\n",
    "a": b"a\nb\n\n",
    "deep/a": b"one\ntwo\nthree\nfour\n",
    "deep/er/x": b"  a  \n\tb\n",
    "crlf": b"a\r\nb\r\nc",
    "bom": b"\xef\xbb\xbfa\nb\n",
    "binary": b"a\n\xff\xfe\0\nb\n",
    "empty": b"",
    "é": "“a”\n—b\n".encode(),
    LONG: b"a\n",
    "run": b"#!/bin/sh\na\n",
}
LINKS = {
    "folder": "../outside",
    "file": "../outside/secret",
    "inner": "deep",
    "loose": "../outside/none",
    "loop": "loop",
    "up": "..",
    "deep/out": "../../outside",
}
MADE = ("deep", "deep/er", "void")
PIPES = ("pipe", "deep/pipe")
HARD = "hard"
"""A second name of a file outside."""
NAMES = [
    *("f", "a", "deep", "er", "x", "crlf", "bom", "binary", "empty", "é", "run", "folder", "file", "inner", "loose"),
    *("loop", "up", "out", "void", "pipe", HARD, "secret", "new", "n2", "..", ".", "", "...", LONG, TOO_LONG, "a\0b"),
    *("\ud800", "\udcff", "x y", "-", "*** End Patch", ".apply_patch.journal", ".apply_patch.done", "~", "$HOME"),
    f".apply_patch-{'0' * 16}.0.old",
]
USUAL = ["f", "a", "deep/a", "deep/er/x", "crlf", "bom", "é", "run", "empty", "binary", HARD, LONG]
NEW = ["new", "deep/new", "new/new", "n2/x", "void/x", "deep/er/y"]
TEXTS = [
    "a",
    "b",
    "c",
    "one",
    "",
    "  a",
    "a  ",
    '"a"',
    "-b",
    "é",
    "\u2003a",
    "x\r",
    "\0",
    "\x1c",
    "*** End Patch",
    "@@",
]
CALLS = ("open", "close", "read", "write", "mkdir", "rmdir", "rename", "link", "unlink", "fchmod", "stat", "fstat")

Tree = dict[str, tuple[int, bytes | str | None]]


class Died(BaseException):
    """Stands for SIGKILL: nothing that the process does after it comes to pass."""


class Faults:
    """The module `os`, of which a call can be made to fail; and after a death every one fails."""

    def __init__(self) -> None:
        self.calls, self.left, self.error, self.opened = 0, 0, BaseException(), set[int]()
        self.os: Any = SimpleNamespace(**{**vars(os), **{name: self._wrapped(name) for name in CALLS}})

    def _wrapped(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.left:
                self.left -= 1
                if not self.left:
                    self.left = 1 if isinstance(self.error, Died) else 0
                    if name == "close" and not self.left:
                        real(*arguments)  # it says so, and is closed
                        self.opened.discard(arguments[0])
                    raise self.error
            result = real(*arguments, **options)
            if name == "open":
                self.opened.add(result)
            elif name == "close":
                self.opened.discard(arguments[0])
            return result

        return call

    def arm(self, left: int, error: BaseException) -> None:
        self.left, self.error = left, error

    def disarm(self) -> None:
        """A process that dies closes its files; and whoever fails otherwise has closed them."""
        self.left = 0
        leaked, self.opened = self.opened, set()
        for descriptor in leaked:
            os.close(descriptor)
        assert not leaked or isinstance(self.error, Died), "descriptors were left open"


def snapshot(folder: str) -> Tree:
    found: Tree = {}
    todo = [folder]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                content: bytes | str | None = None
                if stat.S_ISDIR(mode):
                    todo.append(entry.path)
                elif stat.S_ISLNK(mode):
                    content = str(Path(entry.path).readlink())
                elif stat.S_ISREG(mode):
                    content = Path(entry.path).read_bytes()
                found[entry.path[len(folder) + 1 :]] = mode, content
    return found


def build(base: Path) -> None:
    work, outside = base / "work", base / "outside"
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir()
    (outside / "secret").write_text("a\nb\n")
    (outside / HARD).write_text("a\nb\n")
    (outside / "sub").mkdir()
    work.mkdir()
    for name in MADE:
        (work / name).mkdir()
    for name, content in FILES.items():
        (work / name).write_bytes(content)
    (work / "run").chmod(0o755)
    for name, to in LINKS.items():
        (work / name).symlink_to(to)
    for name in PIPES:
        os.mkfifo(work / name)
    (work / HARD).hardlink_to(outside / HARD)


class Generator:
    def __init__(self, seed: int, base: Path) -> None:
        self.chance = random.Random(seed)
        self.likely = False
        """Patches that mostly fit; with every second one there is more to see when it is killed."""
        self._absolute = [
            f"{base}/outside/secret",
            f"{base}/work/f",
            f"{base}/work/../outside/x",
            "/none-of-ours/x",
            "/",
        ]

    def path(self) -> str:
        chance = self.chance
        kind = chance.random() * (0.7 if self.likely else 1)
        if kind < 0.55:
            return chance.choice(USUAL)
        if kind < 0.7:
            return chance.choice(NEW)
        if kind < 0.75:
            return chance.choice(self._absolute)
        if kind < 0.76:
            return "/".join(["d"] * 3000)
        return "/".join(chance.choice(NAMES) for _ in range(chance.randint(1, 4)))

    def text(self) -> str:
        chance = self.chance
        if self.likely or chance.random() < 0.9:
            return chance.choice(TEXTS)
        return "".join(
            chr(chance.choice([32, 65, 0xE9, 0x2014, 0xD800, 0x1F600, 9, 0])) for _ in range(chance.randint(1, 5))
        )

    def chunk(self, path: str) -> list[str]:
        chance = self.chance
        lines = [[], [], ["@@"], ["@@"] if self.likely else [f"@@ {self.text()}"]][chance.randint(0, 3)]
        there = FILES.get(path, b"a\nb\n").decode(errors="replace").splitlines()
        if there and (self.likely or chance.random() < 0.8):  # what the file has, so that many fit
            start = chance.randrange(len(there))
            for line in there[start : start + chance.randint(1, 3)]:
                lines.append(chance.choice(" -") + line)
                if chance.random() < 0.4:
                    lines.append(f"+{self.text()}")
        else:
            lines += [chance.choice([" ", "+", "-", "+", ""]) + self.text() for _ in range(chance.randint(0, 4))]
        return lines + ["*** End of File"] * (chance.random() < 0.1)

    def operation(self) -> list[str]:
        chance, path = self.chance, self.path()
        kind = chance.random()
        if kind < 0.3:
            return [f"*** Add File: {path}", *(f"+{self.text()}" for _ in range(chance.randint(0, 3)))]
        if kind < 0.45:
            return [f"*** Delete File: {path}"]
        move = [f"*** Move to: {self.path()}"] if kind < 0.6 else []
        chunks = [line for _ in range(1 if self.likely else chance.randint(1, 2)) for line in self.chunk(path)]
        return [f"*** Update File: {path}", *move, *chunks]

    def patch(self) -> str:
        chance = self.chance
        self.likely = chance.random() < 0.5
        lines = [line for _ in range(chance.choice([0, 1, 1, 1, 2, 2, 3, 4])) for line in self.operation()]
        lines = ["*** Begin Patch", *lines, "*** End Patch"]
        if not self.likely and chance.random() < 0.2:  # a line that is lost, twice there, or something else
            at = chance.randrange(len(lines))
            lines[at : at + 1] = chance.choice([[], [lines[at]] * 2, [self.text()], [lines[at][1:]], [f" {lines[at]}"]])
        return chance.choice(["\n", "\n", "\n", "\n", "\r\n"]).join(lines)

    def plant(self, work: Path) -> None:
        """Something hostile in the journal's place."""
        chance = self.chance
        place = work / chance.choice([journal.JOURNAL, journal.DONE])
        kind = chance.random()
        if kind < 0.2:
            place.symlink_to(chance.choice(["../outside/secret", "../outside/none", ".", "loop"]))
        elif kind < 0.3:
            os.mkfifo(place)
        elif kind < 0.4:
            place.mkdir()
        elif kind < 0.5:
            place.write_bytes(chance.randbytes(40))
        else:
            entries = [
                chance.choice("=+-/?") + "/".join(chance.choice(NAMES) for _ in range(chance.randint(1, 3)))
                for _ in range(chance.randint(0, 4))
            ]
            body = "\0".join(["0" * 16, *entries]).encode(errors="surrogatepass")
            staged = "\n".join(chance.choice(["", "1 2 3", "x", "1 2"]) for _ in entries)
            whole = journal._framed(body) + journal._framed(staged.encode()) * chance.randint(0, 2)
            place.write_bytes(whole[: chance.choice([len(whole), chance.randint(0, len(whole))])])


@contextlib.contextmanager
def rooted(folder: Path) -> Iterator[Root]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield Root(descriptor, str(folder))
    finally:
        os.close(descriptor)


class Case:
    """One patch on the tree of traps, with all that must hold after it."""

    def __init__(self, base: Path, generator: Generator, faults: Faults) -> None:
        self.base, self.work = base, base / "work"
        self.generator, self.faults = generator, faults
        build(base)
        self.untouched, self.outside = snapshot(str(self.work)), snapshot(str(base / "outside"))
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        chance = self.generator.chance
        text = self.generator.patch()
        if chance.random() < 0.04:
            return self.planted(text)
        mode = chance.random()
        with rooted(self.work) as root:
            if mode < 0.15:
                self.compat(text, root)
            elif mode < 0.55:
                self.whole(text, root)
            elif mode < 0.75:
                error = OSError(chance.choice([errno.EIO, errno.ENOSPC, errno.EPERM, errno.EROFS]), "broken")
                self.whole(text, root, chance.randint(1, 60), error)
            else:
                self.killed(text, root)
        return None

    def attempt(self, text: str, root: Root, *, compat: bool = False) -> bool:
        try:
            apply(text, root, compat=compat)
        except PatchError:
            return False
        finally:
            self.faults.disarm()
        return True

    def whole(self, text: str, root: Root, at: int = 0, error: BaseException | None = None) -> None:
        expected = None
        if not error:
            with contextlib.suppress(PatchError):
                expected = compute(read_patch(text), root)
        if error:
            self.faults.arm(at, error)
        done = self.attempt(text, root)
        self.seen["applied" if done else "refused"] += 1
        if error:
            recover(root)  # what could not be cleared away
        now = self.holds(done=done)
        if done and expected:
            for change in expected:
                there = now.get(change.destination.relative)
                assert (there and there[1]) == change.after, change.destination

    def killed(self, text: str, root: Root) -> None:
        """Once to its end, to see what that is and how many calls it takes; then once more, to one of them."""
        self.faults.calls = 0
        done = self.attempt(text, root)
        calls, finished = self.faults.calls, self.holds(done=done)
        if not done:
            return
        with rooted(self.work) as fresh:
            self.faults.arm(self.generator.chance.randint(1, calls), Died())
            with pytest.raises(Died):
                self.attempt(text, fresh)
            journal.unlock(fresh)
            recover(fresh)
        now = snapshot(str(self.work))
        self.nothing_outside()
        assert now in (self.untouched, finished)
        self.seen["killed before" if now == self.untouched else "killed after"] += 1
        build(self.base)

    def compat(self, text: str, root: Root) -> None:
        (self.work / HARD).unlink()  # written in place, like any other, whatever other names it has
        done = self.attempt(text, root, compat=True)
        self.seen["compat applied" if done else "compat refused"] += 1
        self.nothing_outside()
        build(self.base)

    def planted(self, text: str) -> None:
        self.generator.plant(self.work)
        with rooted(self.work) as root:
            with contextlib.suppress(PatchError):
                recover(root)
            self.attempt(text, root)
        self.seen["planted"] += 1
        self.nothing_outside()
        build(self.base)

    def holds(self, *, done: bool) -> Tree:
        self.nothing_outside()
        now = snapshot(str(self.work))
        if not done:
            assert now == self.untouched
        elif now != self.untouched:
            files = [name for name, (_, content) in now.items() if isinstance(content, bytes)]
            assert not {journal.JOURNAL, journal.DONE} & set(files)
            assert not [name for name in files if name.rpartition("/")[2].startswith(".apply_patch-")]
            build(self.base)
        return now

    def nothing_outside(self) -> None:
        assert snapshot(str(self.base / "outside")) == self.outside
        assert set(os.listdir(self.base)) == {"outside", "work"}
        assert not os.path.lexists("/none-of-ours")


@pytest.mark.timeout(120 + PATCHES // 50)
def test_generated_patches():
    """Nothing outside, no error but ours, and all or nothing; each kind of case has come up."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    faults = Faults()
    descriptors = len(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory(dir=memory) as name, contextlib.ExitStack() as stack:
        for module in (command, journal, tree_module, upstream):
            stack.enter_context(mock.patch.object(module, "os", faults.os))
        base = Path(name)
        case = Case(base, Generator(0, base), faults)
        for number in range(PATCHES):
            seed = SEED + number
            case.generator.chance.seed(seed)
            try:
                case.run()
            except BaseException as error:
                error.add_note(f"FUZZ_SEED={seed} FUZZ_PATCHES=1\n{Generator.patch(reseeded(case.generator, seed))!r}")
                raise
    assert len(os.listdir("/proc/self/fd")) == descriptors
    kinds = ("applied", "refused", "killed before", "killed after", "compat applied", "compat refused", "planted")
    assert PATCHES < 2000 or all(case.seen[kind] > PATCHES / 200 for kind in kinds), case.seen


def reseeded(generator: Generator, seed: int) -> Generator:
    generator.chance.seed(seed)
    return generator
