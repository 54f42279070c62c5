"""What `open` promises: no link leads out of the workspace, at no moment, and no file is ever half written."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from provider.inside.mk8 import open as files
from provider.inside.mk8.errors import Mk8Error, PathViolation, StepFailure, TimedOut

FOREVER = float("inf")
SECRET = "secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text(SECRET)
    return folder


def read(root: Path, name: str) -> bytes:
    return files.content(str(root), f"{root}/{name}", 1000)


def swap(monkeypatch: pytest.MonkeyPatch, path: Path, target: str) -> None:
    """Put a link in a path's place after the links have been looked at and before the opening."""
    place = files.place

    def looked(*args, **options):
        found = place(*args, **options)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(target)
        return found

    monkeypatch.setattr(files, "place", looked)


ACTS = {
    "content": lambda root, path: files.content(root, path, 100),
    "replace": lambda root, path: files.replace("FileWrite", root, path, [b"x"]),
    "append": lambda root, path: files.append("FileAppend", root, path, b"x"),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_link_swapped_in_for_a_file_is_not_followed(act: str, root: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever replaces the file by a link between the check and the opening gets nothing read or written outside."""
    (root / "file").write_text("ours")
    swap(monkeypatch, root / "file", "../outside/file")
    with pytest.raises(StepFailure):
        ACTS[act](str(root), f"{root}/file")
    assert (root.parent / "outside/file").read_text() == SECRET


@pytest.mark.parametrize("act", [*ACTS, "remove", "make_folder", "entries"])
def test_a_link_swapped_in_for_a_folder_is_not_followed(act: str, root: Path, monkeypatch: pytest.MonkeyPatch):
    """The same for a folder on the way."""
    (root / "folder").mkdir()
    swap(monkeypatch, root / "folder", "../outside")
    acts = ACTS | {
        "remove": lambda root, path: files.remove("FileDelete", root, path),
        "make_folder": lambda root, path: files.make_folder("DirCreate", root, f"{path}/new"),
        "entries": lambda root, path: files.entries(root, path.removesuffix("/file")),
    }
    with pytest.raises(StepFailure):
        acts[act](str(root), f"{root}/folder/file")
    assert [path.name for path in (root.parent / "outside").iterdir()] == ["file"]
    assert (root.parent / "outside/file").read_text() == SECRET


def test_a_link_swapped_in_at_the_last_moment_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Also not between the look at a file and its opening."""
    (root / "file").write_text("ours")
    regular = files._regular

    def looked(path: str, info: os.stat_result) -> None:
        regular(path, info)
        (root / "file").unlink(missing_ok=True)
        (root / "file").symlink_to("../outside/file")

    monkeypatch.setattr(files, "_regular", looked)
    with pytest.raises(StepFailure, match="has become a link"):
        read(root, "file")


def test_links_swapped_all_the_time_never_lead_out(root: Path):
    """Against a thread that exchanges folder and link as fast as it can, no read ever gives what is outside."""
    (root / "real").mkdir()
    (root / "real/file").write_text("ours")
    (root / "folder").symlink_to("real")
    over = threading.Event()

    def exchange() -> None:
        number = 0
        while not over.is_set():
            number += 1
            fresh = root / f"new{number % 8}"
            fresh.symlink_to(("real", "../outside")[number % 2])
            fresh.rename(root / "folder")

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        seen = set()
        for _ in range(2000):
            try:
                seen.add(read(root, "folder/file"))
            except Mk8Error:
                seen.add(b"refused")
    finally:
        over.set()
        thread.join()
    assert seen <= {b"ours", b"refused"}


def test_links_within_the_workspace_are_followed(root: Path):
    """A chain of links, relative and absolute, leads to the file, as long as it stays inside."""
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("x")
    (root / "one").symlink_to(root / "two")
    (root / "two").symlink_to("a/b/../b")
    assert read(root, "one/file") == b"x"


def test_a_root_behind_a_link_is_still_the_root(root: Path):
    """Where the workspace itself is reached by a link, paths are those of the link."""
    named = root.parent / "named"
    named.symlink_to(root)
    (root / "file").write_text("x")
    assert read(named, "file") == b"x"
    files.replace("FileWrite", str(named), f"{named}/new", [b"y"])
    assert (root / "new").read_bytes() == b"y"


def test_what_a_link_leads_to_is_held_against_the_rules_for_writing(root: Path):
    """A harmless name that leads to git's own files is as little written as their own."""
    (root / ".git").mkdir()
    (root / "notes").symlink_to(".git")
    with pytest.raises(Mk8Error, match="write-protected"):
        files.replace("FileWrite", str(root), f"{root}/notes/config", [b"x"])
    with pytest.raises(PathViolation):
        files.place(str(root), f"{root}/../outside")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(root: Path):
    """What is written comes from somewhere that can fail; then nothing has happened."""

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise StepFailure("no more")

    (root / "file").write_text("old")
    with pytest.raises(StepFailure, match="no more"):
        files.replace("FileWrite", str(root), f"{root}/file", broken())
    assert {path.name: path.read_text() for path in root.iterdir()} == {"file": "old"}


def test_permissions_stay(root: Path):
    """A script that was executable is so afterwards; a new file is nobody's to execute."""
    (root / "old").write_text("x")
    (root / "old").chmod(0o755)
    files.replace("FileWrite", str(root), f"{root}/old", [b"y"])
    files.replace("FileWrite", str(root), f"{root}/new", [b"y"])
    assert [(root / name).stat().st_mode & 0o777 for name in ("old", "new")] == [0o755, 0o644]


def test_another_name_of_a_file_is_not_written_along(root: Path):
    """A file is replaced and not overwritten, so a hard link to it keeps what it had."""
    (root / "one").write_text("old")
    (root / "other").hardlink_to(root / "one")
    files.replace("FileWrite", str(root), f"{root}/one", [b"new"])
    assert (root / "other").read_text() == "old"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("act", ACTS)
def test_a_pipe_holds_nobody_up(act: str, root: Path):
    """What is no regular file is not opened, since that alone would wait for somebody at the other end."""
    os.mkfifo(root / "pipe")
    with pytest.raises(StepFailure, match="no regular file"):
        ACTS[act](str(root), f"{root}/pipe")


def test_a_walk_says_where_it_may_not_look(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder that cannot be opened is an entry of its own, and the rest is seen."""
    for name in ("a/x", "b/y"):
        (root / name).parent.mkdir()
        (root / name).write_text("")
    opened = os.open

    def denied(path, flags, mode=0o777, *, dir_fd=None):
        if path == "a":
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", denied)
    found = [(entry.path, entry.kind) for entry in files.walk(str(root), str(root), deadline=FOREVER)]
    assert found == [("a", "denied"), ("b", "folder"), ("b/y", "file")]


def test_a_deep_tree_is_refused_and_still_deleted_level_by_level(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither the stack nor the descriptors are used up by nesting."""
    path = root
    for _ in range(150):
        path = path / "d"
        path.mkdir()
    with pytest.raises(StepFailure, match="nested more than 128"):
        list(files.walk(str(root), str(root), deadline=FOREVER))
    monkeypatch.setattr(files, "MOST_DEPTH", 1000)
    files.remove_folder("DirDelete", str(root), f"{root}/d", FOREVER)
    assert list(root.iterdir()) == []


def test_too_many_entries_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder that would fill the memory with names says so."""
    monkeypatch.setattr(files, "MOST_ENTRIES", 3)
    for name in "abcd":
        (root / name).write_text("")
    with pytest.raises(StepFailure, match="more than 3 entries"):
        files.entries(str(root), str(root))


def test_loops_end_with_the_deadline(root: Path):
    """Every loop looks at the clock."""
    (root / "a").mkdir()
    (root / "a/file").write_text("x\n" * 10)
    with pytest.raises(TimedOut):
        list(files.walk(str(root), str(root), deadline=0))
    with pytest.raises(TimedOut):
        files.remove_folder("DirDelete", str(root), f"{root}/a", 0)
    with files.reading(str(root), f"{root}/a/file") as file, pytest.raises(TimedOut):
        list(files.pieces(file, 0))
    with files.reading(str(root), f"{root}/a/file") as file, pytest.raises(TimedOut):
        list(files.text_lines("file", file, 0))
    assert (root / "a/file").exists()


def test_no_descriptor_is_left_open(root: Path):
    """Whatever is asked, and however it ends."""
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("x")
    before = set(os.listdir("/proc/self/fd"))
    for name in ("a/b/file", "a/no", "a/b", "a/b/file/x"):
        for act in ACTS.values():
            with contextlib.suppress(Mk8Error):
                act(str(root), f"{root}/{name}")
    list(files.walk(str(root), str(root), deadline=FOREVER, sizes=True))
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_root_is_never_removed(root: Path):
    """Neither by its name nor through a link to it."""
    (root / "file").write_text("x")
    (root / "here").symlink_to(".")
    for name in (str(root), f"{root}/here"):
        with pytest.raises(StepFailure):
            files.remove_folder("DirDelete", str(root), name, FOREVER)
    assert (root / "file").exists()
