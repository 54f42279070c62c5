"""What `mk8.jobs` promises: a job moves one legal step at a time, outlives the program, and is its owner's alone."""

from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from provider.dialects.mk8.call import Call
from provider.dialects.mk8.jobs import Job, JobStore
from provider.dialects.mk8.kinds import Shell
from provider.dialects.mk8.permissions import Clearance
from provider.dialects.mk8.status import TRANSITIONS, Status
from provider.errors import ConfigError, SandboxError

CALL = Call(
    id="1", action="execute_mk8_shell", resource="r", sandbox="box", script={"operations": [{"verb": "SysPwd"}]}
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "jobs.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[JobStore]:
    with JobStore(path) as opened:
        yield opened


def queued(store: JobStore, call: Call = CALL) -> Job:
    return store.create(call, channel="c", agent="a", clearance=Clearance.WHITELISTED_USER)


ROUTES = {
    Status.QUEUED: (),
    Status.EXECUTING: (Status.EXECUTING,),
    Status.AWAITING_APPROVAL: (Status.AWAITING_APPROVAL,),
    Status.COMPLETED: (Status.EXECUTING, Status.COMPLETED),
    Status.FAILED: (Status.EXECUTING, Status.FAILED),
    Status.DENIED: (Status.DENIED,),
    Status.CANCELLED: (Status.CANCELLED,),
}


def job_in(store: JobStore, status: Status) -> Job:
    job = queued(store)
    for was, to in itertools.pairwise((Status.QUEUED, *ROUTES[status])):
        assert store.move(job.id, was, to, message="on its way")
    return store.find(job.id)


LEGAL = {(was, to) for was, targets in TRANSITIONS.items() for to in targets}


def test_the_numbers_and_words_are_the_contracts():
    """0 to 6; four are final."""
    words = ["Queued", "Executing", "AwaitingApproval", "Completed", "Failed", "Denied", "Cancelled"]
    assert [status.word for status in Status] == words
    assert [int(status) for status in Status] == list(range(7))
    assert [status for status in Status if status.is_final] == [3, 4, 5, 6]


@pytest.mark.parametrize(("was", "to"), list(itertools.product(Status, Status)))
def test_only_legal_steps_are_taken(store: JobStore, was: Status, to: Status):
    """Every pair of statuses: one of the table's moves the job, any other raises and leaves it."""
    job = job_in(store, was)
    if (was, to) in LEGAL:
        assert store.move(job.id, was, to, message="go", result="r", error="e")
        after = store.find(job.id)
        assert (after.status, after.result, after.error) == (to, "r", "e")
        assert after.logs[-1].message == "go"
        assert (after.completed is not None) == to.is_final
        assert (after.started is not None) == (Status.EXECUTING in {was, to})
    else:
        with pytest.raises(ValueError, match="does not go from"):
            store.move(job.id, was, to, message="go")
        assert store.find(job.id) == job


@pytest.mark.parametrize("status", Status)
def test_a_job_that_is_elsewhere_is_not_moved(store: JobStore, status: Status):
    """The step is taken from the status that was seen, or not at all, and leaves no trace in the log."""
    job = job_in(store, status)
    for was, to in LEGAL:
        if was is not status:
            assert not store.move(job.id, was, to, message="go")
    assert store.find(job.id) == job


def test_of_many_approvals_at_once_one_wins(store: JobStore, path: Path):
    """Eight threads with stores of their own move the same job; the comparison and the change are one step."""
    job = job_in(store, Status.AWAITING_APPROVAL)
    start, won = threading.Barrier(8), []

    def approve(name: int) -> None:
        with JobStore(path) as mine:
            start.wait(30)
            if mine.move(job.id, Status.AWAITING_APPROVAL, Status.EXECUTING, message=f"approved by {name}"):
                won.append(name)
                assert mine.move(job.id, Status.EXECUTING, Status.COMPLETED, message="done")

    threads = [threading.Thread(target=approve, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(won) == 1
    said = [line.message for line in store.find(job.id).logs]
    assert [line for line in said if line.startswith("approved")] == [f"approved by {won[0]}"]


def test_a_record_has_the_contracts_fields(store: JobStore):
    """Names, numbers and the log, for a script and for a command."""
    job = queued(store)
    store.move(job.id, Status.QUEUED, Status.EXECUTING, message="go")
    store.note(job.id, "careful", "warning")
    store.move(job.id, Status.EXECUTING, Status.COMPLETED, message="done", result="out")
    record = store.find(job.id).record()
    assert list(record) == [
        *("id", "channelId", "agentId", "actionType", "resourceId", "status", "effectiveClearance", "resultData"),
        *("errorLog", "logs", "createdAt", "startedAt", "completedAt"),
        *("dangerousShellType", "safeShellType", "scriptJson"),
    ]
    assert record["status"] == 3
    assert record["effectiveClearance"] == 2
    assert record["resultData"] == "out"
    assert [(line["message"], line["level"]) for line in record["logs"]] == [
        ("execute_mk8_shell was asked for by agent a", "info"),
        ("go", "info"),
        ("careful", "warning"),
        ("done", "info"),
    ]
    assert record["createdAt"] <= record["startedAt"] <= record["completedAt"]
    assert (record["safeShellType"], record["dangerousShellType"]) == ("Mk8Shell", None)
    assert record["scriptJson"] == '{"operations": [{"verb": "SysPwd"}]}'
    raw = Call(id="2", action="execute_dangerous_shell", shell=Shell.GIT, command="status")
    record = queued(store, raw).record()
    assert (record["safeShellType"], record["dangerousShellType"], record["scriptJson"]) == (None, "Git", "status")


def test_what_was_asked_for_comes_back_as_it_was(store: JobStore, path: Path):
    """Whoever approves later runs the same call, whatever is in it."""
    call = Call(
        id="ö", action="execute_dangerous_shell", resource="r", shell=Shell.BASH, command="a\0b'\"\u2028", language="en"
    )
    job = queued(store, call)
    with JobStore(path) as other:
        assert other.find(job.id) == job
        assert other.find(job.id).call == call


def test_output_that_is_no_text_is_kept_as_far_as_it_is(store: JobStore):
    """A lone surrogate becomes a question mark; it does not lose the job its end."""
    job = job_in(store, Status.EXECUTING)
    assert store.move(job.id, Status.EXECUTING, Status.COMPLETED, message="\udcff", result="a\udcffb\0c")
    assert store.find(job.id).result == "a?b\0c"


def test_jobs_are_listed_by_channel_and_status_newest_first(store: JobStore):
    """Nothing given is everything, up to the limit."""
    first = store.create(CALL, channel="one", agent="a")
    second = store.create(CALL, channel="two", agent="a")
    store.move(second.id, Status.QUEUED, Status.DENIED, message="no")
    assert [job.id for job in store.list()] == [second.id, first.id]
    assert [job.id for job in store.list(channel="one")] == [first.id]
    assert [job.id for job in store.list(status=Status.DENIED)] == [second.id]
    assert store.list(channel="one", status=Status.DENIED) == ()
    assert len(store.list(limit=1)) == 1
    assert store.get("nothing") is None
    with pytest.raises(LookupError, match="no job 'nothing'"):
        store.find("nothing")


def test_a_job_that_awaits_approval_is_there_after_a_restart(path: Path):
    """Closed and opened again, it waits with its whole log."""
    with JobStore(path) as store:
        job = job_in(store, Status.AWAITING_APPROVAL)
    with JobStore(path) as store:
        assert store.list(status=Status.AWAITING_APPROVAL) == (job,)


PROGRAM = """
import os, sys
from pathlib import Path
from provider.dialects.mk8.call import Call
from provider.dialects.mk8.jobs import JobStore
from provider.dialects.mk8.status import Status
store = JobStore(Path(sys.argv[1]))
for status in map(Status, map(int, sys.argv[2:])):
    job = store.create(Call(id="1", action="edit_any_task"), channel="c", agent="a")
    if status:
        store.move(job.id, Status.QUEUED, status, message="go")
    print(job.id, flush=True)
sys.stdin.read()
os._exit(9)  # as if it were killed: nothing is closed
"""


def test_only_what_a_dead_program_had_under_way_fails(path: Path):
    """A process dies: its Queued and Executing jobs fail with a line that says so; a living one's go on."""
    living = JobStore(path)
    mine = job_in(living, Status.EXECUTING)
    wanted = [Status.QUEUED, Status.EXECUTING, Status.AWAITING_APPROVAL, Status.DENIED]
    command = [sys.executable, "-c", PROGRAM, str(path), *(str(int(status)) for status in wanted)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        theirs = [program.stdout.readline().strip() for _ in wanted]
        with JobStore(path) as third:
            assert [third.find(job).status for job in theirs] == wanted, "both programs live"
        program.stdin.close()
        assert program.wait(30) == 9
    with JobStore(path) as third:
        found = [third.find(job) for job in theirs]
        assert [job.status for job in found] == [4, 4, 2, 5]
        assert "ended while it was Queued" in (found[0].error or "")
        assert "ended while it was Executing" in found[1].logs[-1].message
        assert found[1].logs[-1].level == "error"
        assert found[1].completed is not None
        assert third.find(mine.id) == mine
    assert living.move(mine.id, Status.EXECUTING, Status.COMPLETED, message="done")
    living.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name], "nothing is left beside it"


def test_the_database_is_its_owners_alone(store: JobStore, path: Path):
    """Scripts and output are in there: every file has mode 0600, in a folder of mode 0700."""
    queued(store)
    modes = {file.name.partition(".owner-")[0]: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys([path.name, f"{path.name}-wal", f"{path.name}-shm"], "0o600")
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_a_database_that_others_can_use_is_refused(path: Path, mode: int):
    """Nothing is run weaker: the message has the mode that would be right."""
    JobStore(path).close()
    path.chmod(mode)
    with pytest.raises(ConfigError, match="mode 0600"):
        JobStore(path)


@pytest.mark.parametrize("content", [b"", b"not a database" * 100])
def test_what_is_no_job_store_is_refused(path: Path, content: bytes):
    """It is neither used nor overwritten."""
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError):
        JobStore(path)
    assert path.read_bytes() == content


def test_a_link_is_not_followed(path: Path, tmp_path: Path):
    """Not even to a file of our own."""
    JobStore(tmp_path / "real").close()
    path.parent.mkdir()
    path.symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="mode 0600"):
        JobStore(path)


def test_a_store_of_another_version_is_refused(path: Path):
    """A newer program's file is left to it."""
    JobStore(path).close()
    with sqlite3.connect(path) as sql:
        sql.execute("PRAGMA user_version = 9")
    sql.close()
    with pytest.raises(ConfigError, match="version 1"):
        JobStore(path)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path):
    """The message has the path, and nothing of sqlite's."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be opened"):
        JobStore(tmp_path / "file" / "jobs.sqlite3")


def test_a_store_that_another_holds_is_our_sides_failure(store: JobStore, path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is waited for, then said; the job is as it was."""
    job = queued(store)
    monkeypatch.setattr("provider.dialects.mk8.jobs._BUSY_SECONDS", 0.01)
    other = JobStore(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(SandboxError, match="locked"):
        other.move(job.id, Status.QUEUED, Status.DENIED, message="no")
    assert other.find(job.id) == job, "reading goes on meanwhile"
    holder.close()
    assert other.move(job.id, Status.QUEUED, Status.DENIED, message="no")
    other.close()


def test_a_step_and_its_log_line_are_one(store: JobStore, monkeypatch: pytest.MonkeyPatch):
    """A step whose line cannot be written is not taken, and the next one can be."""
    job = queued(store)
    with monkeypatch.context() as broken:
        broken.setattr(store, "_note", lambda *line: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.move(job.id, Status.QUEUED, Status.EXECUTING, message="go")
    assert store.find(job.id) == job
    assert store.move(job.id, Status.QUEUED, Status.EXECUTING, message="go")


def test_many_open_it_at_once_and_find_one_store(path: Path):
    """Whoever comes first makes it; nobody finds half of one."""
    start, failures = threading.Barrier(8), []

    def open_it() -> None:
        start.wait(30)
        try:
            with JobStore(path) as store:
                queued(store)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    with JobStore(path) as store:
        assert len(store.list()) == 8
    assert os.listdir(path.parent) == [path.name]
