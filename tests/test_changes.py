"""What `provider.changes` promises: what a run left for the host's programs to obey is told."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from provider import Provider, Settings, changes
from provider.changes import CONTROLS, Controls
from provider.model import Begun, Ending, Message, Workspace
from provider.testing import PID, FakeEngine, FakeSandbox


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def age(folder: Path) -> None:
    """Wait until its directories are old enough for their time of change to be trusted."""
    newest = max(path.lstat().st_ctime_ns for path in (folder, *folder.rglob("*")))
    while time.time_ns() < newest + 2 * changes._FRESH_NS:
        os.sched_yield()


def told(pinned: Workspace, act: Callable[[], object], controls: Controls | None = None) -> list[tuple[str, str]]:
    controls = controls or Controls()
    before = controls.look(pinned)
    act()
    return [(change.path, change.change) for change in controls.changes(pinned, before)]


@pytest.mark.parametrize("control", CONTROLS)
def test_every_control_file_is_told(workspace: Path, pinned: Workspace, control: str):
    """Created, changed and removed, each with its reason."""
    name = control.replace("*", "pre-commit")
    age(workspace)
    controls = Controls()
    assert told(pinned, lambda: write(workspace / name), controls) == [(name, "created")]
    age(workspace)
    assert told(pinned, lambda: write(workspace / name, "y"), controls) == [(name, "changed")]
    assert told(pinned, lambda: (workspace / name).chmod(0o700), controls) == [(name, "changed")]
    age(workspace)
    assert told(pinned, (workspace / name).unlink, controls) == [(name, "removed")]
    before = controls.look(pinned)
    write(workspace / name)
    assert [change.because for change in controls.changes(pinned, before)] == [CONTROLS[control]]


def test_other_files_are_nobodys_business(workspace: Path, pinned: Workspace):
    """The project's own files, git's examples, and names further down are not told."""

    def act() -> None:
        for name in ("Makefile", "src/main.py", ".git/hooks/pre-commit.sample", ".git/objects/x", "deep/.envrc"):
            write(workspace / name)

    assert told(pinned, act) == []


def test_a_change_that_keeps_size_and_time_of_content_is_told(workspace: Path, pinned: Workspace):
    """The time of change is the kernel's, whatever a command sets."""
    hook = workspace / ".git/hooks/post-checkout"
    write(hook, "good")
    age(workspace)
    status = hook.stat()

    def act() -> None:
        hook.write_text("evil")
        os.utime(hook, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert told(pinned, act) == [(".git/hooks/post-checkout", "changed")]


def test_a_folder_moved_into_place_is_told(workspace: Path, pinned: Workspace):
    """Files that are as old as the project become hooks by a new name of their folder."""
    write(workspace / "samples/post-checkout")
    (workspace / ".git").mkdir()
    age(workspace)
    act = (workspace / "samples").rename
    assert told(pinned, lambda: act(workspace / ".git/hooks")) == [(".git/hooks/post-checkout", "created")]


@pytest.mark.parametrize("name", [".git", ".git/hooks", ".vscode"])
def test_a_link_in_place_of_a_folder_is_told_and_not_followed(workspace: Path, pinned: Workspace, name: str):
    """It leads as far as the folder would; what it leads to is not looked at."""
    write(workspace / "evil/hooks/pre-commit")
    write(workspace / "evil/config")
    (workspace / name).parent.mkdir(exist_ok=True)
    age(workspace)
    assert told(pinned, lambda: (workspace / name).symlink_to(workspace / "evil")) == [(name, "created")]


def test_a_pointer_in_place_of_a_repository_is_told(workspace: Path, pinned: Workspace):
    """`.git` as a file leads git elsewhere."""
    assert told(pinned, lambda: write(workspace / ".git", "gitdir: evil")) == [(".git", "created")]


def test_names_are_not_looked_for_again_where_nothing_changed(
    workspace: Path, pinned: Workspace, monkeypatch: pytest.MonkeyPatch
):
    """A second look at an unchanged workspace asks only for what is there; a change is seen all the same."""
    write(workspace / ".git/hooks/pre-commit")
    age(workspace)
    controls = Controls()
    first = controls.look(pinned)
    with monkeypatch.context() as patch:
        patch.setattr(changes, "_is_there", pytest.fail)
        patch.setattr(changes, "_all_names", pytest.fail)
        assert controls.look(pinned) == first
    write(workspace / ".envrc")
    assert [change.path for change in controls.changes(pinned, first)] == [".envrc"]


def test_a_directory_that_was_just_changed_is_not_trusted(
    workspace: Path, pinned: Workspace, monkeypatch: pytest.MonkeyPatch
):
    """Two changes within one tick of the kernel's clock may leave the same time, so it is asked again."""
    controls = Controls()
    (workspace / "other").touch()
    monkeypatch.setattr(changes, "_FRESH_NS", 10**12)  # as if no time passed
    before = controls.look(pinned)
    asked: list[str] = []
    monkeypatch.setattr(changes, "_is_there", asked.append)
    assert controls.changes(pinned, before) == ()
    assert f"{workspace}/.envrc" in asked


def test_more_names_than_are_looked_at_are_told_as_a_whole(workspace: Path, pinned: Workspace):
    """A crowd of hooks does not hide one."""
    for number in range(changes._MOST_NAMES):
        write(workspace / f".git/hooks/h{number}")
    age(workspace)
    assert (".git/hooks/*", "changed") in told(pinned, lambda: write(workspace / ".git/hooks/one-more"))


def test_a_name_that_is_no_text_is_told(workspace: Path, pinned: Workspace):
    """Bytes that are not UTF-8 are written as escapes."""
    (workspace / ".husky").mkdir()
    assert told(pinned, (workspace / ".husky/\udcff").touch) == [(".husky/\\udcff", "created")]


async def test_outcome_and_receipt_tell(workspace: Path):
    """Who opens the folder later can read what was left for him."""

    async def script(_: FakeSandbox) -> AsyncIterator[Message]:
        yield Begun(PID)
        write(workspace / ".vscode/tasks.json")
        yield Ending(reason="exited", exit_code=0, pid=PID)

    async with Provider(workspace, engine=FakeEngine(script), settings=Settings(spares=0)) as provider:
        outcome = await provider.run(["x"])
    assert [(change.path, change.change) for change in outcome.control_changes] == [(".vscode/tasks.json", "created")]
    assert outcome.receipt["control_changes"] == [
        {"path": ".vscode/tasks.json", "change": "created", "because": changes.EDITOR}
    ]
