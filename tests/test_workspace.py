"""What `provider.workspace` promises: the wrong directory is refused, and the right one is pinned."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from provider import workspace as workspace_module
from provider.errors import CallError
from provider.model import Workspace
from provider.workspace import check_workspace, find_socket, open_workspace, working_directory


def test_a_directory_is_pinned_by_inode(tmp_path: Path):
    """A validated workspace is known by device, inode and owner."""
    status = tmp_path.stat()
    assert check_workspace(tmp_path) == Workspace(
        path=tmp_path, device=status.st_dev, inode=status.st_ino, uid=status.st_uid, gid=status.st_gid
    )


def test_a_relative_name_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The engine knows nothing of our working directory."""
    monkeypatch.chdir(tmp_path)
    assert check_workspace(".").path == tmp_path


@pytest.mark.parametrize(
    "path",
    ["/", "//", "/etc", "/usr", "/home", "/root", "/tmp", "/var", "/proc", "/proc/self", "/sys", "/sys/kernel", "/dev"],
)
def test_system_directories_are_refused(path: str):
    """Nobody means to give away the machine itself, by whatever spelling."""
    with pytest.raises(CallError, match="workspace"):
        check_workspace(path)


@pytest.mark.parametrize("below", ["", "volumes", "volumes/x/_data"])
def test_an_engines_own_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str):
    """Whoever writes there owns every container; so does whoever holds the folder above."""
    engine = tmp_path / "lib/docker"
    (engine / below).mkdir(parents=True)
    monkeypatch.setattr(workspace_module, "_ENGINE_FOLDERS", (engine,))
    for path in (engine / below, engine.parent):
        with pytest.raises(CallError, match="engine"):
            check_workspace(path)


def test_known_engine_folders_are_listed():
    """Docker's, containerd's and Podman's folders are those that are meant."""
    listed = {str(path) for path in workspace_module._ENGINE_FOLDERS}
    assert {"/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/run/docker", "/run/containerd"} <= listed


def test_a_home_folder_and_what_holds_it_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Keys and start-up files of a person are not for a sandbox; a directory inside is."""
    home = tmp_path / "people/ann"
    (home / "project").mkdir(parents=True)
    monkeypatch.setattr(workspace_module, "_homes", lambda: frozenset({home}))
    for path in (home, home.parent, tmp_path):
        with pytest.raises(CallError, match="home folder"):
            check_workspace(path)
    assert check_workspace(home / "project").path == home / "project"


def test_own_home_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The home of whoever runs the provider counts, wherever it is."""
    workspace_module._homes.cache_clear()
    monkeypatch.setenv("HOME", str(tmp_path))
    try:
        with pytest.raises(CallError, match="home folder"):
            check_workspace(tmp_path)
    finally:
        workspace_module._homes.cache_clear()


def test_a_symbolic_link_is_refused(tmp_path: Path):
    """A link can be turned after the check; the message names where it leads."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(CallError, match=str(tmp_path / "real")):
        check_workspace(tmp_path / "link")


def test_a_link_above_the_workspace_is_resolved(tmp_path: Path):
    """What is pinned is the real path, so that a turned parent is seen."""
    (tmp_path / "real/work").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    assert check_workspace(tmp_path / "link/work").path == tmp_path / "real/work"


def test_a_link_above_cannot_hide_a_system_directory(tmp_path: Path):
    """The real path is what is judged."""
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(CallError, match="system directory"):
        check_workspace(tmp_path / "link/etc")


@pytest.mark.parametrize("name", ["missing", "file", "fifo", "x" * 300, "a\0b", "loop", "\ud800"])
def test_what_is_no_directory_is_the_callers_mistake(tmp_path: Path, name: str):
    """Missing, of another kind, not even a possible name: always the same kind of error."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CallError, match="workspace"):
        check_workspace(tmp_path / name)


# The working directory.


@pytest.mark.parametrize(
    ("cwd", "inside"),
    [
        (".", "/workspace"),
        ("", "/workspace"),
        ("/workspace", "/workspace"),
        ("/workspace/", "/workspace"),
        ("sub", "/workspace/sub"),
        ("./sub/", "/workspace/sub"),
        ("/workspace/sub", "/workspace/sub"),
        ("/workspace//sub", "/workspace/sub"),
        ("sub/../sub", "/workspace/sub"),
        ("inner", "/workspace/sub"),
        ("sp ace\n", "/workspace/sp ace\n"),
    ],
)
def test_a_directory_of_the_workspace_can_be_the_working_directory(pinned: Workspace, cwd: str, inside: str):
    """Relative, or absolute as the command will see it; links that stay inside are followed."""
    (pinned.path / "sub").mkdir()
    (pinned.path / "sp ace\n").mkdir()
    (pinned.path / "inner").symlink_to("sub")
    assert working_directory(pinned, cwd) == inside


@pytest.mark.parametrize(
    "cwd",
    [
        "..",
        "../workspace2",
        "sub/../..",
        "/workspace/..",
        "/workspace/../etc",
        "/etc",
        "/workspacer",
        "/",
        "out",
        "out/sub",
        "missing",
        "file",
        "file/x",
        "x\0",
        "x" * 300,
        "loop",
        "\ud800",
    ],
)
def test_any_other_working_directory_is_refused(pinned: Workspace, tmp_path: Path, cwd: str):
    """Outside, missing, no directory, no possible name: the caller's mistake, told before anything is created."""
    (pinned.path / "sub").mkdir()
    (pinned.path / "file").touch()
    (pinned.path / "loop").symlink_to("loop")
    (tmp_path / "workspace2").mkdir()
    (tmp_path / "workspace2/sub").mkdir()
    (pinned.path / "out").symlink_to(tmp_path / "workspace2")
    with pytest.raises(CallError, match="cwd"):
        working_directory(pinned, cwd)


# Sockets.


def test_a_workspace_without_sockets_has_none(pinned: Workspace):
    """Files, folders, links and pipes are not taken for one."""
    (pinned.path / "sub").mkdir()
    (pinned.path / "sub/file").touch()
    (pinned.path / "link").symlink_to("sub")
    os.mkfifo(pinned.path / "pipe")
    assert find_socket(pinned) is None


@pytest.mark.parametrize("place", ["s", "deep/er/s"])
def test_a_socket_is_found_wherever_it_is(pinned: Workspace, place: str, monkeypatch: pytest.MonkeyPatch):
    """The scan goes to the bottom, and names what it finds."""
    (pinned.path / place).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir((pinned.path / place).parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
    assert find_socket(pinned) == place


def test_a_link_out_is_not_followed(pinned: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a link names outside is not there in the sandbox."""
    (tmp_path / "host").mkdir()
    monkeypatch.chdir(tmp_path / "host")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
    (pinned.path / "out").symlink_to(tmp_path / "host")
    (pinned.path / "direct").symlink_to(tmp_path / "host/s")
    assert find_socket(pinned) is None


def test_a_workspace_too_large_to_scan_is_refused(pinned: Workspace, monkeypatch: pytest.MonkeyPatch):
    """Not having looked is not the same as there being none."""
    monkeypatch.setattr(workspace_module, "_SCAN_ENTRIES", 3)
    for name in "abc":
        (pinned.path / name).touch()
    assert find_socket(pinned) is None
    (pinned.path / "d").touch()
    with pytest.raises(CallError, match="too many"):
        find_socket(pinned)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_a_folder_that_cannot_be_searched_is_not_taken_for_empty(pinned: Workspace):
    """Where a socket may hide, the tier that could reach it is refused."""
    closed = pinned.path / "closed"
    closed.mkdir(mode=0)
    with pytest.raises(CallError, match="closed"):
        find_socket(pinned)


def test_a_swapped_workspace_is_not_opened(pinned: Workspace):
    """What is opened is the directory that was validated, and no other that has its name since."""
    os.close(open_workspace(pinned))
    before = len(os.listdir("/proc/self/fd"))
    pinned.path.rename(pinned.path.with_name("away"))
    pinned.path.mkdir()
    with pytest.raises(OSError, match="no longer the directory"):
        open_workspace(pinned)
    assert len(os.listdir("/proc/self/fd")) == before
