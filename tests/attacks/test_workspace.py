"""Attacks on what is limited and protected in a workspace; more of them are in tests/sandbox."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from attacks.names import IMAGES

from provider import CallError, Limits, Settings, run_sync

pytestmark = pytest.mark.docker
ALONE = Settings(spares=0)
TWINS = (".GIT", ".Git", ".git ", ".git.", ".g\u200cit", unicodedata.normalize("NFD", ".gít"), ".git\\", "git~1")


def write(path: Path, text: str = "good\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.chown(path, 1000, 1000)
    os.chown(path.parent, 1000, 1000)


@pytest.mark.attack("C14")
def test_many_large_files_are_stopped(workspace: Path) -> None:
    """A thousand files, each below the cap of one, end at the quota of the whole, which is told with figures."""
    limits = Limits(workspace_bytes=2**27)
    script = "for i in $(seq 1000); do head -c 30000000 /dev/zero > f$i; done"
    outcome = run_sync(script, workspace, image=IMAGES["minimal"], settings=ALONE, limits=limits, timeout=120)
    assert outcome.ending.reason == "workspace_quota"
    assert outcome.ending.growth
    assert 2**27 < outcome.ending.growth.bytes < 2**30


@pytest.mark.attack("C15a")
def test_a_million_empty_files_are_stopped(workspace: Path) -> None:
    """Inodes have a quota of their own."""
    limits = Limits(workspace_files=5_000)
    script = "i=0; while [ $i -lt 1000000 ]; do : > f$i; i=$((i+1)); done"
    outcome = run_sync(script, workspace, image=IMAGES["minimal"], settings=ALONE, limits=limits, timeout=120)
    assert outcome.ending.reason == "workspace_quota"
    assert outcome.ending.growth
    assert 5_000 < outcome.ending.growth.files < 1_000_000


@pytest.mark.attack("D21")
@pytest.mark.parametrize("twin", TWINS, ids=ascii)
def test_no_other_spelling_leads_to_a_protected_name(workspace: Path, twin: str) -> None:
    """Where the filesystem takes two names for one they are one mount; where it does not, they are two files."""
    write(workspace / ".git/config")
    argv = ["sh", "-c", 'mkdir -p "$1"; echo evil > "$1/config"; mv -T "$1" .git; ls -a', "sh", twin]
    outcome = run_sync(argv, workspace, image=IMAGES["minimal"], settings=ALONE, protect=[".git"])
    assert outcome.stdout
    assert (workspace / ".git/config").read_text() == "good\n"
    assert [path.name for path in (workspace / ".git").iterdir()] == ["config"]


@pytest.mark.attack("D22")
def test_a_pointer_in_place_of_a_repository_is_protected_or_refused(workspace: Path) -> None:
    """`.git` as a file cannot be rewritten; one that leads to a folder which a run could write is not run with."""
    write(workspace / ".git", "gitdir: ../../elsewhere\n")
    script = "echo 'gitdir: evil' > .git; rm -f .git; mv .git x; ln -sf evil .git; cat .git"
    outcome = run_sync(script, workspace, image=IMAGES["minimal"], settings=ALONE, protect=[".git"])
    assert outcome.stdout == b"gitdir: ../../elsewhere\n"
    write(workspace / "real/config")
    write(workspace / ".git", "gitdir: real\n")
    with pytest.raises(CallError, match="leads to"):
        run_sync("true", workspace, image=IMAGES["minimal"], settings=ALONE, protect=[".git"])


@pytest.mark.attack("CVE-2026-25725")
@pytest.mark.parametrize("name", [".git", ".codex", ".agents", ".vscode", ".envrc"])
def test_a_protected_name_that_is_missing_cannot_be_made(workspace: Path, name: str) -> None:
    """Neither as a folder nor as a file nor as a link, and nothing of it is left on the host."""
    script = f"mkdir -p {name}/hooks; echo evil > {name}; rmdir {name}; mv {name} x; ln -s /tmp {name}; ls -A {name}"
    outcome = run_sync(script, workspace, image=IMAGES["minimal"], settings=ALONE, protect=[name])
    assert outcome.stdout == b""
    assert list(workspace.iterdir()) == []
