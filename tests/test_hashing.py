"""What `provider.hashing` promises: a second process finds what the first would; when it is ended, nothing is lost."""

from __future__ import annotations

import asyncio
import hashlib
import marshal
import os
from pathlib import Path

import pytest

from provider import artifacts
from provider.artifacts import collect
from provider.hashing import Tree, answer
from provider.model import Workspace

MANY = 2_400


@pytest.fixture
def filled(workspace: Path) -> Path:
    """Many small files with every kind of thing between them."""
    for number in range(MANY):
        (workspace / f"{number:04}").write_text(str(number))
    (workspace / "0500").unlink()
    (workspace / "0500").symlink_to("/etc/hostname")
    (workspace / "2300").unlink()
    os.mkfifo(workspace / "2300")
    (workspace / "2301").write_bytes(b"x" * 100_000)
    (workspace / os.fsdecode(b"\xff\xfe")).write_text("odd")
    return workspace


async def test_two_processes_find_what_one_does(filled: Path, pinned: Workspace, monkeypatch: pytest.MonkeyPatch):
    """Hashes, links, pipes, large files and names that are no text, in both halves."""
    together = await collect(pinned, ["**"], max_file_bytes=50_000)
    monkeypatch.setattr(artifacts, "_MANY", 10**9)
    assert together == await collect(pinned, ["**"], max_file_bytes=50_000)
    hashes, problems = together
    assert {problem.path: problem.problem for problem in problems} == {
        "0500": "symlink",
        "2300": "fifo",
        "2301": "too_large",
    }
    assert len(hashes) == MANY - 3 + 1
    assert next(item for item in hashes if item.path == "2399").sha256 == hashlib.sha256(b"2399").hexdigest()


@pytest.mark.parametrize("program", ["import sys; sys.exit(3)", "print('{}')", "import os; os.kill(os.getpid(), 9)"])
async def test_a_second_process_that_fails_is_made_up_for(
    filled: Path, pinned: Workspace, monkeypatch: pytest.MonkeyPatch, program: str
):
    """Its part is done here, and nobody notices but by the time."""
    expected = await collect(pinned, ["**"], max_file_bytes=50_000)
    monkeypatch.setattr(artifacts, "_SECOND", (*artifacts._SECOND[:-1], program))
    assert await collect(pinned, ["**"], max_file_bytes=50_000) == expected


async def test_a_cancelled_collection_ends_its_second_process(
    filled: Path, pinned: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """However long that would have taken."""
    os.mkfifo(tmp_path / "begun")
    program = f"open({str(tmp_path / 'begun')!r}, 'w').write('x'); import time; time.sleep(600)"
    monkeypatch.setattr(artifacts, "_SECOND", (*artifacts._SECOND[:-1], program))
    work = asyncio.ensure_future(collect(pinned, ["**"], max_file_bytes=50_000))
    await asyncio.to_thread((tmp_path / "begun").read_text)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(work, 20)


def test_half_an_answer_is_none():
    """Where the second process was ended while it spoke, what it said counts for nothing."""
    whole = marshal.dumps(([("a", 1, "0" * 64)], [], []))
    assert answer(whole).hashed == [("a", 1, "0" * 64)]
    for size in range(len(whole)):
        with pytest.raises((ValueError, EOFError, TypeError)):
            answer(whole[:size])


async def test_a_file_that_became_something_else_since_it_was_listed_is_told_as_that(workspace: Path):
    """What a directory called a file may be a pipe by the time it is opened: no wait, and no hash."""
    os.mkfifo(workspace / "pipe")
    (workspace / "link").symlink_to("/etc/hostname")
    root = os.open(workspace, os.O_RDONLY)
    try:
        tree = Tree(root, os.fstat(root).st_dev, 100, lambda: False)
        found = tree.hash_batch(["link", "pipe"], look=False)
    finally:
        os.close(root)
    assert found.hashed == []
    assert {path: problem for path, problem, _ in found.faults} == {"link": "unstable", "pipe": "fifo"}
