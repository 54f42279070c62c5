"""What `provider.protection` promises: a name is protected as it is meant, or refused."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from provider import Provider, Settings
from provider.errors import CallError
from provider.model import Protected, Workspace
from provider.protection import MAX_NAMES, Placeholders, find_protected
from provider.testing import FakeEngine


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_and_folders_are_pinned(workspace: Path, pinned: Workspace):
    """By device and inode, in the order of their names, each once."""
    write(workspace / ".git/config")
    write(workspace / ".envrc")
    found = find_protected(pinned, [".git", ".envrc", ".git"])
    status = (workspace / ".envrc").stat(), (workspace / ".git").stat()
    assert found == tuple(
        Protected(name=name, device=one.st_dev, inode=one.st_ino)
        for name, one in zip([".envrc", ".git"], status, strict=True)
    )


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/etc", ".git/hooks", "a\0b", "n" * 256, "\ud800", ".git/", "../x"]
)
def test_only_names_of_the_first_level_are_taken(pinned: Workspace, name: str):
    """The parent of a deeper one could be renamed."""
    with pytest.raises(CallError, match="first level"):
        find_protected(pinned, [name])
    with pytest.raises(CallError, match="first level"):
        Placeholders().make(pinned, [name])


@pytest.mark.parametrize("names", [".git", [f"n{number}" for number in range(MAX_NAMES + 1)]])
def test_a_list_of_names_is_wanted(pinned: Workspace, names: list[str] | str):
    """Neither one text nor any number."""
    with pytest.raises(CallError, match="list"):
        find_protected(pinned, names)


def test_a_link_is_refused(workspace: Path, pinned: Workspace):
    """The mount would be on what it leads to, and the link could be replaced."""
    (workspace / "real").mkdir()
    (workspace / ".git").symlink_to("real")
    with pytest.raises(CallError, match="symbolic link"):
        find_protected(pinned, [".git"])


def test_a_link_to_nowhere_is_refused_too(workspace: Path, pinned: Workspace):
    """It is there, so it gets no placeholder, and it is no file."""
    (workspace / ".git").symlink_to("nowhere")
    Placeholders().make(pinned, [".git"])
    with pytest.raises(CallError, match="symbolic link"):
        find_protected(pinned, [".git"])


def test_a_file_with_a_second_name_is_refused(workspace: Path, pinned: Workspace):
    """It could be written by the other."""
    write(workspace / ".envrc")
    os.link(workspace / ".envrc", workspace / "other")
    with pytest.raises(CallError, match="2 names"):
        find_protected(pinned, [".envrc"])


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_what_is_neither_file_nor_folder_is_refused(
    workspace: Path, pinned: Workspace, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """Nothing is opened for it."""
    monkeypatch.chdir(workspace)
    if kind == "fifo":
        os.mkfifo(".git")
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(".git")
    with pytest.raises(CallError, match="neither"):
        find_protected(pinned, [".git"])


POINTERS = {
    "a folder beside it": ("real.git", None),
    "a folder further down": ("sub/real.git", None),
    "an absolute path": ("{workspace}/real.git", None),
    "the workspace itself": (".", None),
    "a round-about way": ("../workspace/real.git", None),
    "a folder by a link": ("link", None),
    "out, and in again by a link": ("../back/real.git", None),
    "a second pointer": (None, "../real.git"),
}


@pytest.mark.parametrize("case", POINTERS)
def test_a_pointer_into_the_workspace_is_refused(workspace: Path, pinned: Workspace, case: str):
    """`.git` as a file, or its `commondir`, must not lead git to a folder that a run can write."""
    gitdir, commondir = POINTERS[case]
    write(workspace / "real.git/config")
    (workspace / "link").symlink_to("real.git")
    (workspace.parent / "back").symlink_to(workspace)
    if gitdir:
        write(workspace / ".git", f"gitdir: {gitdir.format(workspace=workspace)}\n")
    else:
        write(workspace / ".git/commondir", f"{commondir}\n")
    with pytest.raises(CallError, match=r"leads to .* protect its first name too"):
        find_protected(pinned, [".git"])


def test_a_pointer_to_what_is_protected_as_well_is_taken(workspace: Path, pinned: Workspace):
    """A worktree of a repository in the same folder, with both names protected."""
    write(workspace / ".bare/worktrees/x/commondir", "../..\n")
    write(workspace / ".git", "gitdir: .bare/worktrees/x\n")
    assert [held.name for held in find_protected(pinned, [".git", ".bare"])] == [".bare", ".git"]


def test_a_pointer_out_of_the_workspace_is_taken(workspace: Path, pinned: Workspace, tmp_path: Path):
    """No run reaches what is not mounted."""
    write(tmp_path / "elsewhere/config")
    write(workspace / ".git", "gitdir: ../elsewhere\n")
    assert [held.name for held in find_protected(pinned, [".git"])] == [".git"]


def test_a_pointer_to_a_pointer_is_followed(workspace: Path, pinned: Workspace, tmp_path: Path):
    """A repository outside whose `commondir` leads back in is refused."""
    write(workspace / "real.git/config")
    write(tmp_path / "elsewhere/commondir", f"{workspace}/real.git\n")
    write(workspace / ".git", "gitdir: ../elsewhere\n")
    with pytest.raises(CallError, match="leads to"):
        find_protected(pinned, [".git"])


async def test_a_missing_name_gets_a_placeholder_which_goes_again(workspace: Path, pinned: Workspace):
    """An empty directory of the workspace's owner, removed at the close."""
    placeholders = Placeholders()
    placeholders.make(pinned, [".git"])
    status = (workspace / ".git").stat()
    assert (list((workspace / ".git").iterdir()), status.st_uid) == ([], pinned.uid)
    assert [held.name for held in find_protected(pinned, [".git"])] == [".git"]
    await placeholders.close()
    assert list(workspace.iterdir()) == []


async def test_what_somebody_has_put_there_since_stays(workspace: Path, pinned: Workspace):
    """A placeholder that was filled or replaced on the host is no longer ours."""
    placeholders = Placeholders()
    placeholders.make(pinned, [".git", ".vscode", ".idea"])
    write(workspace / ".git/config")
    (workspace / ".vscode").rename(workspace / "old")
    (workspace / ".vscode").mkdir()
    await placeholders.close()
    assert sorted(path.name for path in workspace.iterdir()) == [".git", ".vscode", "old"]


@pytest.mark.parametrize("who", ["the maker", "the other"])
async def test_a_place_that_another_holds_is_left(workspace: Path, pinned: Workspace, who: str):
    """Whoever closes first removes nothing from under the other; the last removes it only if it is his."""
    maker, other = Placeholders(), Placeholders()
    maker.make(pinned, [".git"])
    other.make(pinned, [".git"])
    first, last = (maker, other) if who == "the maker" else (other, maker)
    await first.close()
    assert (workspace / ".git").is_dir()
    await last.close()
    assert (workspace / ".git").exists() == (who == "the maker")


async def test_a_place_that_is_gone_is_made_again(workspace: Path, pinned: Workspace):
    """Somebody on the host has removed it between two runs; descriptors are not used up by that."""
    placeholders = Placeholders()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        placeholders.make(pinned, [".git"])
        placeholders.make(pinned, [".git"])
        (workspace / ".git").rmdir()
    placeholders.make(pinned, [".git"])
    assert len(os.listdir("/proc/self/fd")) == before + 1
    await placeholders.close()
    assert list(workspace.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before


async def test_what_was_there_before_is_never_removed(workspace: Path, pinned: Workspace):
    """An empty folder of the user's stays."""
    (workspace / ".git").mkdir()
    placeholders = Placeholders()
    placeholders.make(pinned, [".git"])
    await placeholders.close()
    assert (workspace / ".git").is_dir()


def test_a_name_that_cannot_be_held_is_refused(pinned: Workspace, monkeypatch: pytest.MonkeyPatch):
    """Without a placeholder nothing is protected, so nothing runs."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(CallError, match="its place cannot be held: Permission denied"):
        Placeholders().make(pinned, [".git"])


async def test_settings_provider_and_run_add_up(workspace: Path):
    """Nobody's names take the place of another's; the box and the receipt have them all."""
    engine = FakeEngine()
    settings = Settings(spares=0, protect=(".git",))
    async with Provider(workspace, engine=engine, settings=settings, protect=[".vscode"]) as provider:
        outcome = await provider.run(["x"], protect=[".envrc"])
        names = [held.name for held in engine.sandboxes[0].box.protected]
        assert names == outcome.receipt["plan"]["protected"] == [".envrc", ".git", ".vscode"]
        assert (workspace / ".envrc").is_dir()
    assert list(workspace.iterdir()) == []


async def test_what_cannot_be_protected_is_never_run(workspace: Path):
    """A refusal, not a warning."""
    (workspace / ".git").symlink_to("elsewhere")
    engine = FakeEngine()
    async with Provider(workspace, engine=engine, settings=Settings(spares=0)) as provider:
        with pytest.raises(CallError, match="symbolic link"):
            await provider.run(["x"], protect=[".git"])
    assert engine.sandboxes == []
