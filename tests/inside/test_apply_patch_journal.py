"""What `inside.apply_patch.journal` promises: all or nothing after a kill, one patch at a time, no forged journals."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from provider.inside import apply_patch
from provider.inside.apply_patch import ApplyError, Root, apply, journal, main, recover
from provider.inside.apply_patch.journal import (
    DONE,
    JOURNAL,
    MAX_JOURNAL,
    UNDER_WAY,
    Journal,
    NotRecovered,
    Recovered,
)
from provider.inside.apply_patch.tree import Folders

HERE = Path(__file__).parent
INSIDE = Path(apply_patch.__file__).parent.parent
BOOT = f"import sys; sys.path.insert(0, {str(INSIDE)!r}); from apply_patch import program; sys.exit(program())"
PROGRAM = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", BOOT]
TOKEN = "0123456789abcdef"
OLD, NEW = f".apply_patch-{TOKEN}.0.old", f".apply_patch-{TOKEN}.0.new"
ADD_G = "*** Begin Patch\n*** Add File: g\n+g\n*** End Patch"


@contextlib.contextmanager
def rooted(folder: Path) -> Iterator[Root]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield Root(descriptor, str(folder))
    finally:
        os.close(descriptor)


def tree(folder: Path) -> dict[str, bytes | str | None]:
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


def recovered(found: Any, **paths: list[str]) -> Recovered:
    told = Recovered(found)
    for name, value in paths.items():
        setattr(told, name, value)
    return told


def forged(*entries: str, staged: str | None = None, token: str = TOKEN) -> bytes:
    body = os.fsencode("\0".join([token, *entries]))
    return journal._framed(body) + (b"" if staged is None else journal._framed(staged.encode()))


def identity(path: Path) -> str:
    seen = path.lstat()
    return f"{seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"


@pytest.mark.parametrize("kind", ["before", "torn", "without-links", "recovery"])
def test_killed_at_every_call(kind: str):
    """After SIGKILL at any call to the system, and recovery, the tree is the old one or the new one to the letter."""
    command = [sys.executable, str(HERE / "kill_apply_patch.py"), kind]
    environment = {**os.environ, "PYTHONPATH": str(INSIDE.parent.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_killed_at_any_time(tmp_path: Path):
    """The program itself, killed by the clock in the middle of three hundred files."""
    chance = random.Random(5)
    lines = ["*** Begin Patch"]
    (tmp_path / "d").mkdir()
    for number in range(300):
        lines += [f"*** Update File: d/{number}", "-a", "+b"] if number % 3 else [f"*** Add File: n/{number}", "+b"]
    text = "\n".join([*lines, "*** End Patch"]).encode()
    old = {f"d/{number}": b"a\n" for number in range(300) if number % 3}
    new = {**dict.fromkeys(old, b"b\n"), **{f"n/{number}": b"b\n" for number in range(0, 300, 3)}}
    for _ in range(12):
        for name, content in old.items():
            (tmp_path / name).write_bytes(content)
        process = subprocess.Popen([*PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=tmp_path)
        assert process.stdin
        process.stdin.write(text)
        process.stdin.close()
        time.sleep(chance.uniform(0.01, 0.2))
        process.kill()
        process.wait()
        told = subprocess.run([*PROGRAM, "--recover"], cwd=tmp_path, capture_output=True, check=True)
        assert json.loads(told.stdout)["ok"]
        now = {name: content for name, content in tree(tmp_path).items() if content is not None}
        assert now in (old, new)
        for name in set(now) - set(old):
            (tmp_path / name).unlink()
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / "n").rmdir()


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """A folder with a patch that was killed after its first file: `f` is new, `g` is still the old one."""
    (tmp_path / "f").write_bytes(b"new\n")
    (tmp_path / OLD).write_bytes(b"old\n")
    (tmp_path / "g").write_bytes(b"g\n")
    (tmp_path / f".apply_patch-{TOKEN}.1.new").write_bytes(b"G\n")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "h").write_bytes(b"h\n")
    staged = [identity(tmp_path / "f"), identity(tmp_path / f".apply_patch-{TOKEN}.1.new"), ""]
    staged.append(identity(tmp_path / "made" / "h"))
    (tmp_path / JOURNAL).write_bytes(forged("=f", "=g", "/made", "+made/h", staged="\n".join(staged)))
    return tmp_path


UNDONE: dict[str, bytes | str | None] = {"f": b"old\n", "g": b"g\n"}


def test_recovery_undoes(half_done: Path):
    """Old files come back, new ones go, and so do the folders made for them; told, and only once."""
    with rooted(half_done) as root:
        assert recover(root) == recovered("undone", restored=["f"], removed=["made/h"])
        assert tree(half_done) == UNDONE
        assert recover(root) == recovered("nothing")


@pytest.mark.parametrize("flags", [[], ["--check"], ["--compat"]])
def test_every_call_begins_with_recovery(half_done: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]):
    """A patch is read, verified and applied against the files as they were before the one that was killed."""
    monkeypatch.chdir(half_done)
    text = "*** Begin Patch\n*** Update File: f\n-old\n+newer\n*** End Patch"
    out = io.StringIO()
    assert main(["--json", *flags, text], io.BytesIO(), out, io.StringIO()) == 0
    told = json.loads(out.getvalue())["recovered"]
    assert told == {"found": "undone", "restored": ["f"], "removed": ["made/h"], "kept": []}
    assert tree(half_done) == {**UNDONE, "f": b"old\n" if flags == ["--check"] else b"newer\n"}


def test_what_somebody_changed_since_is_kept(half_done: Path):
    """Neither an edit of a new file nor one of an added file is thrown away; a folder with something in it stays."""
    (half_done / "f").write_bytes(b"edited\n")
    (half_done / "made" / "h").write_bytes(b"edited\n")
    with rooted(half_done) as root:
        assert recover(root) == recovered("undone", kept=["f"])
    assert tree(half_done) == {"f": b"edited\n", "g": b"g\n", "made": None, "made/h": b"edited\n"}


def test_a_finished_patch_is_only_cleared_away(tmp_path: Path):
    """Under its second name the journal says that all is done."""
    (tmp_path / "f").write_bytes(b"new\n")
    (tmp_path / OLD).write_bytes(b"old\n")
    (tmp_path / DONE).write_bytes(forged("=f", staged=identity(tmp_path / "f")))
    with rooted(tmp_path) as root:
        assert recover(root) == recovered("finished")
    assert tree(tmp_path) == {"f": b"new\n"}


def test_what_cannot_be_cleared_away_is_tried_again(tmp_path: Path):
    """A patch is a fact once its journal has its second name; old files that would not go then go with the next."""
    (tmp_path / "f").write_bytes(b"a\n")
    real = os.unlink

    def unlink(name: str, **options: Any) -> None:
        if name.endswith(".old"):
            raise OSError(errno.EIO, "broken")
        real(name, **options)

    text = "*** Begin Patch\n*** Update File: f\n-a\n+b\n*** End Patch"
    with rooted(tmp_path) as root:
        with mock.patch.object(os, "unlink", unlink):
            assert apply(text, root).endswith("M f\n")
        assert {"f", DONE} < set(tree(tmp_path))
        assert recover(root) == recovered("finished")
    assert tree(tmp_path) == {"f": b"b\n"}


def test_what_cannot_be_undone_now_waits(half_done: Path, monkeypatch: pytest.MonkeyPatch):
    """Where nothing can be written, the journal stays, nothing else is done, and it is told apart."""
    monkeypatch.chdir(half_done)
    before = tree(half_done)
    out = io.StringIO()
    broken = OSError(errno.EROFS, "read-only")
    with mock.patch.object(os, "rename", side_effect=broken), mock.patch.object(os, "unlink", side_effect=broken):
        assert main(["--check", "--json", ADD_G], io.BytesIO(), out, io.StringIO()) == 1
        with rooted(half_done) as root, pytest.raises(NotRecovered):
            recover(root)
    told = json.loads(out.getvalue())
    why = "Failed to undo an earlier patch that was killed: Read-only file system (os error 30)\n"
    assert (told["ok"], told["stderr"], told["recovered"]["found"], told["changes"]) == (False, why, "waiting", [])
    assert tree(half_done) == before
    with rooted(half_done) as root:
        recover(root)
    assert tree(half_done) == UNDONE


def test_one_at_a_time(half_done: Path, monkeypatch: pytest.MonkeyPatch):
    """While a patch is under way, another waits, then is refused; and nobody undoes it."""
    before = tree(half_done)
    monkeypatch.setattr(journal, "WAIT", 0.05)
    with rooted(half_done) as other, rooted(half_done) as root:
        journal.lock(other)
        for act in (lambda: apply(ADD_G, root), lambda: recover(root)):
            with pytest.raises(ApplyError) as raised:
                act()
            assert str(raised.value) == UNDER_WAY
        assert tree(half_done) == before
        journal.unlock(other)
        recover(root)
    assert tree(half_done) == UNDONE


def test_many_at_once(tmp_path: Path):
    """Programs that patch one file at the same time do it one after the other."""
    (tmp_path / "f").write_text("0\n")
    text = "*** Begin Patch\n*** Update File: f\n 0\n+{}\n*** Add File: new/{}\n+x\n*** End Patch"
    started = [
        subprocess.Popen([*PROGRAM, text.replace("{}", str(number))], cwd=tmp_path, stdout=subprocess.DEVNULL)
        for number in range(1, 7)
    ]
    assert [process.wait() for process in started] == [0] * 6
    assert sorted((tmp_path / "f").read_text().split()) == list("0123456")
    assert sorted(tree(tmp_path)) == ["f", "new", *(f"new/{number}" for number in range(1, 7))]


def test_a_folder_that_cannot_be_locked(tmp_path: Path):
    """It is said, and nothing is done."""
    with (
        rooted(tmp_path) as root,
        mock.patch.object(fcntl, "flock", side_effect=OSError(errno.ENOLCK, "none")),
        pytest.raises(ApplyError, match="Failed to lock the workspace: No locks available"),
    ):
        apply(ADD_G, root)
    assert tree(tmp_path) == {}


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A workspace with links that lead out, and what they lead to beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    (tmp_path / "outside" / OLD).write_text("planted\n")
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    (work / "f").write_text("f\n")
    (work / OLD).write_text("planted\n")
    (work / "link").symlink_to("../outside")
    return work


OUTSIDE: dict[str, bytes | str | None] = {"secret": b"secret\n", OLD: b"planted\n"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"\0" * 1000,
        forged("=f")[:-1],
        forged("=f") + b"x",
        forged("=f", token="../../../outside"),
        forged("=f", token="0123456789ABCDEF"),
        forged("=../outside/secret"),
        forged("=link/../../outside/secret"),
        forged("=/etc/passwd"),
        forged("=" + "../" * 9 + "etc/passwd"),
        forged("="),
        forged(""),
        forged("=./f"),
        forged("?f"),
        forged("f"),
        forged(*["=f"] * 100_001),
        forged("=f", staged=""),
        forged("=f", staged="1 2"),
        forged("=f", staged="1 2 3\n1 2 3"),
        forged("=f", staged=f"{'9' * 10_000} 2 3"),
        forged("=f", staged="1 2 -3"),
        forged("=link/secret", "=link/none", "-link/secret", "+link/secret", "/link/x", "/link"),
        forged("=real", "-real", "+real", "=link", "-link", "+link"),
        forged("=f/f", "+f/f", "/f/f", "/f"),
        forged("=" + "x" * 300, "=" + "/".join(["x"] * 3000), "/" + "y" * 300),
        forged("+f"),
        forged("+f", staged="1 2 3"),
        forged("/none", "=caf\udce9"),
    ],
)
@pytest.mark.parametrize("name", [JOURNAL, DONE])
def test_forged_journals(hostile: Path, name: str, content: bytes):
    """Whatever one says, nothing outside is touched, no file of others is lost, and it goes."""
    (hostile / name).write_bytes(content)
    with rooted(hostile) as root:
        recover(root)
    assert tree(hostile.parent / "outside") == OUTSIDE
    left = tree(hostile)
    left.pop(OLD, None)
    assert left == {"f": b"f\n", "link": "../outside", "real": None}
    assert {path.name for path in hostile.parent.iterdir()} == {"outside", "work"}


@pytest.mark.parametrize("name", [JOURNAL, DONE])
@pytest.mark.parametrize("kind", ["link", "loose", "pipe", "folder", "large", "shut"])
def test_what_lies_in_a_journals_place(hostile: Path, name: str, kind: str):
    """A link is not followed, a pipe does not hold anybody up, and whatever it is makes way."""
    match kind:
        case "link":
            (hostile / name).symlink_to("../outside/secret")
        case "loose":
            (hostile / name).symlink_to("../outside/none")
        case "pipe":
            os.mkfifo(hostile / name)
        case "folder":
            (hostile / name).mkdir()
        case "large":
            with (hostile / name).open("wb") as file:
                file.truncate(MAX_JOURNAL + 1)
        case _:
            (hostile / name).write_bytes(b"")
            (hostile / name).chmod(0)
    with rooted(hostile) as root:
        assert recover(root) == recovered("odd")
        apply(ADD_G, root)
    assert tree(hostile.parent / "outside") == OUTSIDE
    assert set(tree(hostile)) == {"f", "g", OLD, "link", "real"}


def test_a_folder_in_a_journals_place(hostile: Path):
    """One with something in it stays, and no patch is applied where it could not be undone."""
    (hostile / JOURNAL / "x").mkdir(parents=True)
    before = tree(hostile)
    with rooted(hostile) as root, pytest.raises(NotRecovered, match="Directory not empty"):
        apply(ADD_G, root)
    assert tree(hostile) == before


@pytest.mark.parametrize("name", [JOURNAL, DONE, f"{DONE}/x", OLD, f"sub/{NEW}"])
@pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
def test_our_own_names_are_not_for_patches(tmp_path: Path, name: str, compat: bool):
    """A patch that is about our own files would undo itself."""
    text = f"*** Begin Patch\n*** Add File: {name}\n+x\n*** End Patch"
    with rooted(tmp_path) as root, pytest.raises(ApplyError, match="Failed to write file"):
        apply(text, root, compat=compat)
    assert tree(tmp_path) == {}


def test_too_many_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What recovery would not read is not begun."""
    monkeypatch.setattr(journal, "MAX_ENTRIES", 3)
    with rooted(tmp_path) as root, pytest.raises(ApplyError, match="Failed to write file a/b/c/d"):
        apply("*** Begin Patch\n*** Add File: a/b/c/d\n+x\n*** End Patch", root)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("path", ["new/" + "l" * 256, "l" * 256 + "/new", "new/" + "l" * 256 + "/x"])
def test_names_that_nothing_can_have(tmp_path: Path, path: str):
    """They are refused before the journal, which would not be read again with one of them in it."""
    text = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    unwritten = mock.patch.object(os, "urandom", side_effect=AssertionError)
    with rooted(tmp_path) as root, unwritten, pytest.raises(ApplyError):
        apply(text, root)
    assert tree(tmp_path) == {}


def test_undo_that_fails_is_left_to_the_next(tmp_path: Path):
    """When not even undoing works, the journal stays until it does."""
    (tmp_path / "f").write_bytes(b"a\n")
    real, count = os.rename, 0

    def rename(*arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise OSError(errno.EIO, "broken")
        real(*arguments, **options)

    text = "*** Begin Patch\n*** Update File: f\n-a\n+b\n*** Delete File: f2\n*** End Patch"
    (tmp_path / "f2").write_bytes(b"a\n")
    with rooted(tmp_path) as root:
        with mock.patch.object(os, "rename", rename), pytest.raises(ApplyError, match="Failed to delete file f2"):
            apply(text, root)
        assert JOURNAL in tree(tmp_path)
        assert recover(root) == recovered("undone", restored=["f"])
    assert tree(tmp_path) == {"f": b"a\n", "f2": b"a\n"}


def test_few_descriptors(tmp_path: Path):
    """However many folders there are, few are open at a time."""
    text = "\n".join(
        ["*** Begin Patch", *(line for at in range(400) for line in (f"*** Add File: {at}/x/y", "+y")), "*** End Patch"]
    )
    opened = 0
    real = Folders.open

    def count(folders: Folders, parts: tuple[str, ...]) -> int:
        nonlocal opened
        opened = max(opened, len(folders._open))
        return real(folders, parts)

    with rooted(tmp_path) as root, mock.patch.object(Folders, "open", count):
        apply(text, root)
    assert 0 < opened <= 128
    assert len(tree(tmp_path)) == 1200


def test_journal_is_read_as_it_was_written():
    """Every kind of entry and any name survive; and half of it is nothing."""
    entries = [("/", ("a",)), ("+", ("a", "é\udcff\n x")), ("=", ("b",)), ("-", ("c", "d"))]
    body = os.fsencode("\0".join([TOKEN, *(kind + "/".join(parts) for kind, parts in entries)]))
    staged = [None, (1, 2, 3), (2**63, 0, 10**18), None]
    first, second = journal._framed(body), journal._framed(journal._spelled(staged))
    whole = journal._parsed(first + second)
    assert isinstance(whole, Journal)
    assert (whole.token, list(whole.entries), list(whole.staged)) == (TOKEN, entries, staged)
    for cut in range(len(first)):
        assert journal._parsed(first[:cut]) is None
    for cut in range(len(second)):
        part = journal._parsed(first + second[:cut])
        assert isinstance(part, Journal)
        assert list(part.staged) == []
