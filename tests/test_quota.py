"""What `provider.quota` promises: a run that adds too much to its workspace is seen, and nobody else's writing is."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from provider import Limits, Provider, Settings, State, quota
from provider.model import Begun, Ending, Growth, Leased, Message, Workspace
from provider.quota import Pair, Room, Watch
from provider.testing import PID, FakeEngine, FakeSandbox

KIB, MIB = 1024, 1024 * 1024
EXITED = Ending(reason="exited", exit_code=0, pid=PID)
FEW = Limits(workspace_bytes=MIB, workspace_files=10)


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


@pytest.fixture
def aged(workspace: Path) -> Callable[[], None]:
    """Wait until what was written before is older than a run that begins now, by the clock that dates files."""

    def wait() -> None:
        probe = workspace.parent / "probe"
        until = time.time_ns() + 2 * quota._SLACK_NS
        while True:
            probe.write_bytes(b"")
            if probe.stat().st_ctime_ns > until:
                return
            probe.unlink()

    return wait


@pytest.fixture
def filesystem(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A filesystem whose figures the test sets; `free` falls by what is taken."""
    figures: dict[str, Any] = {"free": Pair(1000 * MIB, 100_000), "total": Pair(1000 * MIB, 100_000), "at": 0.0}
    monkeypatch.setattr(quota, "look", lambda _: Room(figures["free"], figures["total"], figures["at"]))
    return figures


def take(figures: dict[str, Any], size: int = 0, files: int = 0) -> None:
    figures["free"] -= Pair(size, files)


async def judged(watch: Watch) -> Growth | None:
    return (await watch.judge(EXITED)).growth


async def test_what_a_run_adds_is_counted_when_it_ends(workspace: Path, pinned: Workspace):
    """A command that was faster than any look has failed, with figures, though it exited with 0."""
    watch = Watch(pinned, FEW)
    write(workspace / "a/b/big", 2 * MIB)
    ending = await watch.judge(EXITED)
    assert (ending.reason, ending.exit_code) == ("workspace_quota", 0)
    assert ending.growth
    assert 2 * MIB <= ending.growth.bytes < 2 * MIB + 64 * KIB
    assert (ending.growth.files, ending.growth.max_bytes, ending.growth.max_files) == (3, MIB, 10)
    assert f"{ending.growth.bytes:,} bytes and 3 files" in str(ending.growth)
    assert "no more than 1,048,576 bytes may be" in str(ending.growth)


async def test_files_are_limited_too(workspace: Path, pinned: Workspace, filesystem: dict[str, Any]):
    """Eleven empty files are more than ten; directories and links count as well."""
    watch = Watch(pinned, FEW)
    for number in range(9):
        (workspace / f"f{number}").touch()
    (workspace / "folder").mkdir()
    take(filesystem, files=10)
    assert await judged(watch) is None
    (workspace / "link").symlink_to("/etc")
    take(filesystem, files=1)
    growth = await judged(watch)
    assert growth
    assert (growth.files, growth.counted) == (11, "tree")


async def test_a_quota_that_is_kept_is_no_matter(workspace: Path, pinned: Workspace):
    """Up to the limit nothing is said, even where the tree had to be walked for it."""
    watch = Watch(pinned, Limits(workspace_bytes=4 * MIB, workspace_files=10))
    write(workspace / "big", 3 * MIB)
    assert await watch.judge(EXITED) is EXITED


async def test_zero_is_no_limit(workspace: Path, pinned: Workspace, monkeypatch: pytest.MonkeyPatch):
    """With neither limit the filesystem is not even asked."""
    monkeypatch.setattr(quota, "look", None)
    watch = Watch(pinned, Limits(workspace_bytes=0, workspace_files=0))
    write(workspace / "big", 2 * MIB)
    with watch.telling(pytest.fail):
        assert await watch.judge(EXITED) is EXITED


async def test_what_others_write_elsewhere_is_not_the_runs(
    workspace: Path, pinned: Workspace, filesystem: dict[str, Any]
):
    """A filesystem that loses any amount to others ends nobody's run."""
    write(workspace / "small", 10 * KIB)
    watch = Watch(pinned, FEW)
    take(filesystem, 500 * MIB, 50_000)
    assert await judged(watch) is None


async def test_old_files_that_are_only_touched_are_not_growth(
    workspace: Path, pinned: Workspace, aged: Callable[[], None], filesystem: dict[str, Any]
):
    """A change of mode, a new name, a rewrite in place: what the filesystem did not lose was not added."""
    for number in range(20):
        write(workspace / f"old{number}", 256 * KIB)
    aged()
    watch = Watch(pinned, FEW)
    for number in range(20):
        (workspace / f"old{number}").chmod(0o600)
        (workspace / f"old{number}").rename(workspace / f"new{number}")
    take(filesystem, 600 * KIB)  # enough to look
    assert await judged(watch) is None


async def test_old_files_that_grow_are(
    workspace: Path, pinned: Workspace, aged: Callable[[], None], filesystem: dict[str, Any]
):
    """Appended to an old file, bytes count as far as the filesystem has lost them."""
    write(workspace / "old", 64 * KIB)
    aged()
    watch = Watch(pinned, FEW)
    with (workspace / "old").open("ab") as file:
        file.write(b"x" * 2 * MIB)
    take(filesystem, 2 * MIB)
    growth = await judged(watch)
    assert growth
    assert (growth.bytes, growth.files) == (2 * MIB, 0)


async def test_what_others_free_hides_no_new_file(workspace: Path, pinned: Workspace, filesystem: dict[str, Any]):
    """Freed before the run writes, it raises the mark from which losses are seen."""
    filesystem["free"] = Pair(100 * MIB, 50_000)
    watch = Watch(pinned, FEW)
    take(filesystem, -50 * MIB)
    assert await judged(watch) is None
    write(workspace / "big", 2 * MIB)
    take(filesystem, 2 * MIB)
    growth = await judged(watch)
    assert growth
    assert growth.bytes >= 2 * MIB


async def test_an_inode_counts_once_and_holes_not_at_all(workspace: Path, pinned: Workspace):
    """Hard links and sparse files are what the disk says, not what their names and lengths say."""
    watch = Watch(pinned, Limits(workspace_bytes=2 * MIB, workspace_files=3))
    write(workspace / "one", MIB)
    for number in range(20):
        os.link(workspace / "one", workspace / f"link{number}")
    with (workspace / "sparse").open("wb") as file:
        file.truncate(2**40)
    walked = quota._walk(pinned, watch._since, quota.NOTHING, 10, threading.Event())
    assert walked.born.files == 2
    assert MIB <= walked.born.bytes < MIB + 64 * KIB
    assert walked.is_whole


async def test_a_link_leads_nowhere(workspace: Path, pinned: Workspace, tmp_path: Path):
    """What is behind a link is not the workspace's."""
    watch = Watch(pinned, FEW)
    (workspace / "out").symlink_to(tmp_path / "outside")
    write(tmp_path / "outside/big", 4 * MIB)
    assert await judged(watch) is None


@pytest.mark.parametrize("how", ["too deep", "closed", "too many"])
async def test_what_cannot_be_looked_into_is_counted_by_the_filesystem(
    workspace: Path, pinned: Workspace, filesystem: dict[str, Any], how: str, monkeypatch: pytest.MonkeyPatch
):
    """Hiding a tree from the walk is no way round the limit."""
    watch = Watch(pinned, Limits(workspace_bytes=MIB, workspace_files=0))
    if how == "too deep":
        folder = workspace
        for _ in range(70):
            folder /= "d"
        write(folder / "big", 2 * MIB)
    elif how == "closed":
        write(workspace / "closed/big", 2 * MIB)
        real = os.scandir

        def scandir(path: int) -> Any:
            if Path(f"/proc/self/fd/{path}").readlink().name == "closed":
                raise PermissionError
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)  # root, who runs these tests, may look anywhere
    else:
        monkeypatch.setattr(quota, "_MAX_ENTRIES", 2)
        monkeypatch.setattr(quota, "_BETWEEN_LOOKS", 1)
        for number in range(5):
            write(workspace / f"f{number}", 400 * KIB)
    take(filesystem, 2 * MIB + 100)
    growth = await judged(watch)
    assert growth
    assert growth.counted == "filesystem"
    assert growth.bytes == 2 * MIB + 100


async def test_deleted_files_that_are_still_open_count_when_the_disk_is_nearly_full(
    pinned: Workspace, filesystem: dict[str, Any]
):
    """They are in no tree; before the last tenth it is likelier somebody else's writing, after it the run is ended."""
    watch = Watch(pinned, FEW)
    take(filesystem, 890 * MIB)
    assert await judged(watch) is None
    take(filesystem, 20 * MIB)
    growth = await judged(watch)
    assert growth
    assert (growth.counted, growth.bytes) == ("filesystem", 910 * MIB)


async def test_a_filesystem_that_does_not_count_is_walked_by_the_clock(
    workspace: Path, pinned: Workspace, filesystem: dict[str, Any]
):
    """Where it has no figure for inodes, time is the reason to look."""
    filesystem["total"] = Pair(1000 * MIB, 0)
    filesystem["free"] = Pair(1000 * MIB, 0)
    watch = Watch(pinned, FEW)
    for number in range(11):
        (workspace / f"f{number}").touch()
    assert await judged(watch) is None  # in no time nothing can be made
    filesystem["at"] = 1.0
    growth = await judged(watch)
    assert growth
    assert growth.files == 11


async def test_a_clock_that_is_set_back_hides_nothing(
    workspace: Path, pinned: Workspace, monkeypatch: pytest.MonkeyPatch
):
    """Files dated before the start, by a clock that went back since, are still the run's."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
    watch = Watch(pinned, FEW)
    monkeypatch.setattr(time, "time_ns", real)
    write(workspace / "big", 2 * MIB)
    assert await judged(watch)


async def test_an_ending_of_another_kind_keeps_its_reason(workspace: Path, pinned: Workspace):
    """A run that timed out has timed out; the figures are told beside it."""
    watch = Watch(pinned, FEW)
    write(workspace / "big", 2 * MIB)
    ending = await watch.judge(Ending(reason="timed_out", signal=9, pid=PID))
    assert ending.reason == "timed_out"
    assert ending.growth


def grows(workspace: Path, *then: Message) -> Callable[[FakeSandbox], AsyncIterator[Message]]:
    async def script(_: FakeSandbox) -> AsyncIterator[Message]:
        yield Begun(PID)
        write(workspace / "big", 2 * MIB)
        for message in then:
            yield message

    return script


async def test_a_run_is_ended_while_it_writes(workspace: Path):
    """A command that would go on for ever is terminated for its quota, and outcome and receipt say so."""
    engine = FakeEngine(grows(workspace))
    async with Provider(workspace, engine=engine, settings=Settings(spares=0), limits=FEW) as provider:
        outcome = await provider.run(["x"])
    assert engine.sandboxes[0].terminated == ["workspace_quota"]
    assert (outcome.status, outcome.ending.reason) == (State.FAILED, "workspace_quota")
    assert outcome.over_quota == str(outcome.ending.growth)
    assert outcome.receipt["ending"]["reason"] == "workspace_quota"
    assert outcome.receipt["ending"]["growth"]["max_bytes"] == MIB
    assert outcome.receipt["ending"]["growth"]["bytes"] >= 2 * MIB


async def test_what_lives_on_under_a_lease_is_watched(workspace: Path):
    """Processes that a command left behind are ended when they add too much."""

    async def script(_: FakeSandbox) -> AsyncIterator[Message]:
        yield Begun(PID)
        yield Leased(Ending(reason="exited", exit_code=0, pid=PID, background_pids=(8,)))
        write(workspace / "big", 2 * MIB)

    engine = FakeEngine(script)
    async with Provider(workspace, engine=engine, settings=Settings(spares=0), limits=FEW) as provider:
        outcome = await provider.run(["x"], background="keep")
        assert outcome.succeeded
        lease = provider.lease(outcome.lease or "")
        assert lease
        ending = await asyncio.wait_for(lease.wait(), 10)
    assert ending
    assert (ending.reason, ending.growth is not None) == ("workspace_quota", True)


async def test_a_run_over_its_quota_leaves_no_lease(workspace: Path):
    """What it left behind is ended with it."""
    leased = Leased(Ending(reason="exited", exit_code=0, pid=PID, background_pids=(8,)))
    engine = FakeEngine(grows(workspace, leased))
    async with Provider(workspace, engine=engine, settings=Settings(spares=0), limits=FEW) as provider:
        outcome = await provider.run(["x"], background="keep")
        assert (outcome.lease, provider.leases()) == (None, ())
    assert outcome.over_quota
    assert outcome.notes == ()


async def test_a_short_run_starts_no_walk_and_leaves_no_timer(pinned: Workspace, monkeypatch: pytest.MonkeyPatch):
    """Where the filesystem lost nothing, nothing is walked, and no timer outlives the run."""
    monkeypatch.setattr(quota, "_walk", None)
    watch = Watch(pinned, Limits())
    with watch.telling(pytest.fail):
        pass
    assert await watch.judge(EXITED) is EXITED
    assert watch._timer
    assert watch._timer.cancelled()


async def test_a_tree_that_is_slow_to_walk_is_worth_nothing(
    pinned: Workspace, filesystem: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """After a long walk there is a rest, but not for one who uses it to write his quota again."""
    walks: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def walk(*_: object) -> quota.Seen:
        loop.call_soon_threadsafe(walks.put_nowait, None)
        return quota.Seen()

    monkeypatch.setattr(quota, "_walk", walk)
    monkeypatch.setattr(quota, "LOOK_SECONDS", 0.001)
    looks: asyncio.Queue[Room] = asyncio.Queue()
    look = quota.look
    monkeypatch.setattr(quota, "look", lambda of: (looks.put_nowait(look(of)), look(of))[1])
    with Watch(pinned, FEW).telling(pytest.fail):  # by the fixture's clock the first walk takes all the time there was
        take(filesystem, MIB * 3 // 4)
        await walks.get()
        take(filesystem, MIB * 3 // 4)
        while not looks.empty():
            looks.get_nowait()
        for _ in range(5):
            await looks.get()
        assert walks.empty()
        take(filesystem, MIB * 3 // 4)
        await asyncio.wait_for(walks.get(), 10)


async def test_a_walk_stops_when_it_is_not_wanted(workspace: Path, pinned: Workspace, monkeypatch: pytest.MonkeyPatch):
    """It gives up at the next look, and says that it has not seen the whole."""
    monkeypatch.setattr(quota, "_BETWEEN_LOOKS", 1)
    for number in range(5):
        (workspace / f"f{number}").touch()
    stop = threading.Event()
    stop.set()
    assert not quota._walk(pinned, 0, quota.NOTHING, 10, stop).is_whole
    assert not quota._walk(pinned, 0, quota.NOTHING, -1, threading.Event()).is_whole


async def test_a_workspace_that_was_replaced_is_not_walked(pinned: Workspace, workspace: Path):
    """Another directory under the same name is nobody's growth."""
    workspace.rename(workspace.parent / "moved")
    write(workspace / "big", 2 * MIB)
    walked = quota._walk(pinned, 0, quota.NOTHING, 10, threading.Event())
    assert (walked.born, walked.is_whole) == (quota.NOTHING, False)
