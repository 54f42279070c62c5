"""
Jobs in one SQLite file, so that an approval can come after a restart, or from another process.

A job moves only along `TRANSITIONS`, and only from the status that whoever moves it has seen: the comparison is part of
the UPDATE, so of two approvals at once one wins. What moved it is logged in the same transaction.

Each opened store is an owner, known by a file beside the database on which it holds a lock as long as it lives; the
kernel lets go of it however the process ends, and no number can be taken for another's. Opening the store fails the
jobs that dead owners left in Queued or Executing, and no others.

Calls are short and made directly, on the caller's thread: one transaction each, half a millisecond with its fsync on
the machine where this was written. In a thread of their own they could be cancelled halfway, and a job would stand as
Executing with nobody executing it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import stat
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Self

from provider.dialects.mk8.call import Call, Result
from provider.dialects.mk8.kinds import Kind
from provider.dialects.mk8.permissions import Clearance
from provider.dialects.mk8.status import TRANSITIONS, Status
from provider.errors import ConfigError, SandboxError

Level = Literal["info", "warning", "error"]

_VERSION: Final = 1
_BUSY_SECONDS: Final = 5.0
"""How long another process may hold the file; it holds it for one transaction at a time."""
_TABLES: Final = f"""
    PRAGMA journal_mode = WAL;
    CREATE TABLE jobs (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, channel TEXT NOT NULL, agent TEXT NOT NULL,
        call TEXT NOT NULL, status INTEGER NOT NULL, clearance INTEGER NOT NULL, result TEXT, error TEXT,
        owner TEXT NOT NULL, created TEXT NOT NULL, started TEXT, completed TEXT
    );
    CREATE INDEX jobs_by_status ON jobs (status);
    CREATE INDEX jobs_by_channel ON jobs (channel);
    CREATE TABLE logs (
        number INTEGER PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs (id),
        message TEXT NOT NULL, level TEXT NOT NULL, at TEXT NOT NULL
    );
    CREATE INDEX logs_by_job ON logs (job);
    PRAGMA user_version = {_VERSION};
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    message: str
    level: Level
    timestamp: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A call on its way, as the store had it when it was asked."""

    id: str
    channel: str
    agent: str
    call: Call
    """With the resource that was found for it."""
    status: Status
    clearance: Clearance
    """The effective one."""
    result: str | None
    error: str | None
    logs: tuple[LogLine, ...]
    created: str
    started: str | None
    completed: str | None

    def answer(self) -> Result:
        """What the call is answered with, as things stand."""
        return Result(id=self.call.id, status=self.status, result=self.result, error=self.error, job=self.id)

    def record(self) -> dict[str, Any]:
        """The job in the contract's shape."""
        return {
            "id": self.id,
            "channelId": self.channel,
            "agentId": self.agent,
            "actionType": self.call.action,
            "resourceId": self.call.resource,
            "status": int(self.status),
            "effectiveClearance": int(self.clearance),
            "resultData": self.result,
            "errorLog": self.error,
            "logs": [{"message": line.message, "level": line.level, "timestamp": line.timestamp} for line in self.logs],
            "createdAt": self.created,
            "startedAt": self.started,
            "completedAt": self.completed,
            "dangerousShellType": self.call.shell if self.call.kind is Kind.DANGEROUS_SHELL else None,
            "safeShellType": "Mk8Shell" if self.call.kind is Kind.SAFE_SHELL else None,
            "scriptJson": self.call.payload_text,
        }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class JobStore:
    """Usable from the thread that opened it; other threads and processes open their own."""

    def __init__(self, path: Path, *, now: Callable[[], str] = _now) -> None:
        """
        Open the store, making it if need be, and fail what dead owners left behind.

        Raises:
            ConfigError: the file is not ours alone, or no job store.
            SandboxError: another process does not let go of it.
        """
        self.path = path
        self._now = now
        with contextlib.ExitStack() as opened:
            try:
                _ensure_file(path)
                self._owner = opened.enter_context(_entered_owner(path))
            except OSError as error:
                message = f"the job store {path} cannot be opened: {error}"
                raise ConfigError(message) from error
            self._sql = opened.enter_context(
                contextlib.closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None))
            )
            self._prepare()
            self._fail_abandoned()
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def create(self, call: Call, *, channel: str, agent: str, clearance: Clearance = Clearance.UNSET) -> Job:
        """A new job, Queued and this owner's."""
        job_id = str(uuid.uuid4())
        row = (job_id, channel, agent, json.dumps(call.to_json()), Status.QUEUED, clearance, self._owner, self._now())
        with self._transaction():
            self._sql.execute(
                "INSERT INTO jobs (id, channel, agent, call, status, clearance, owner, created)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            self._note(job_id, f"{call.action} was asked for by agent {agent}", "info")
        return self.find(job_id)

    def move(
        self,
        job_id: str,
        was: Status,
        to: Status,
        *,
        message: str,
        level: Level = "info",
        result: str | None = None,
        error: str | None = None,
    ) -> bool:
        """
        Take a job from one status to the next, unless it is no longer where it was: then nothing is changed.

        Raises:
            ValueError: no job may go from there to there.
        """
        if to not in TRANSITIONS[was]:
            wrong = f"a job does not go from {was.word} to {to.word}"
            raise ValueError(wrong)
        now = self._now()
        with self._transaction():
            moved = self._sql.execute(
                "UPDATE jobs SET status = :to, owner = :owner, result = :result, error = :error,"
                " started = coalesce(:started, started), completed = :completed WHERE id = :id AND status = :was",
                {
                    "id": job_id,
                    "was": was,
                    "to": to,
                    "owner": self._owner,
                    "result": _storable(result),
                    "error": _storable(error),
                    "started": now if to is Status.EXECUTING else None,
                    "completed": now if to.is_final else None,
                },
            ).rowcount
            if moved:
                self._note(job_id, message, level)
        return bool(moved)

    def note(self, job_id: str, message: str, level: Level = "info") -> None:
        """Add to a job's log, whatever its status."""
        with self._transaction():
            self._note(job_id, message, level)

    def get(self, job_id: str) -> Job | None:
        found = self._select("WHERE id = ?", (job_id,))
        return found[0] if found else None

    def find(self, job_id: str) -> Job:
        """Like `get`, for a job that is there. Raises LookupError."""
        if job := self.get(job_id):
            return job
        message = f"there is no job {job_id!r} in {self.path}"
        raise LookupError(message)

    def list(self, *, channel: str | None = None, status: Status | None = None, limit: int = 100) -> tuple[Job, ...]:
        """The newest first."""
        return self._select(
            "WHERE (?1 IS NULL OR channel = ?1) AND (?2 IS NULL OR status = ?2) ORDER BY number DESC LIMIT ?3",
            (channel, status, limit),
        )

    def _select(self, where: str, values: tuple[object, ...]) -> tuple[Job, ...]:
        columns = "id, channel, agent, call, status, clearance, result, error, created, started, completed"
        with self._transaction("DEFERRED"):  # a job and its log are of one moment
            rows = self._sql.execute(f"SELECT {columns} FROM jobs {where}", values).fetchall()  # noqa: S608 - our own words
            return tuple(self._job(dict(zip(columns.split(", "), row, strict=True))) for row in rows)

    def _job(self, row: dict[str, Any]) -> Job:
        lines = self._sql.execute("SELECT message, level, at FROM logs WHERE job = ? ORDER BY number", (row["id"],))
        logs = tuple(LogLine(message=message, level=level, timestamp=at) for message, level, at in lines)
        known = {
            "call": Call.from_json(json.loads(row["call"])),
            "status": Status(row["status"]),
            "clearance": Clearance(row["clearance"]),
        }
        return Job(**{**row, **known, "logs": logs})

    def _note(self, job_id: str, message: str, level: Level) -> None:
        line = (job_id, _storable(message), level, self._now())
        self._sql.execute("INSERT INTO logs (job, message, level, at) VALUES (?, ?, ?, ?)", line)

    def _prepare(self) -> None:
        with _translated(self.path):
            # In WAL, NORMAL may lose the last commits with the power: a job that was begun would stand as awaiting.
            self._sql.execute("PRAGMA synchronous = FULL")
            self._sql.execute("PRAGMA foreign_keys = ON")
            (version,) = self._sql.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            message = f"{self.path} is no job store of version {_VERSION}, the one that this program knows"
            raise ConfigError(message)

    def _fail_abandoned(self) -> None:
        with self._transaction():
            # Whoever owns a row has entered itself before: read after the file is ours, the list misses nobody.
            living = {*_living_owners(self.path), self._owner}
            for was in (Status.QUEUED, Status.EXECUTING):
                rows = self._sql.execute("SELECT id, owner FROM jobs WHERE status = ?", (was,)).fetchall()
                for job_id in (job_id for job_id, owner in rows if owner not in living):
                    self._abandon(job_id, was)

    def _abandon(self, job_id: str, was: Status) -> None:
        error = f"the program that had the job ended while it was {was.word}; how far it came is not known"
        self._sql.execute(
            "UPDATE jobs SET status = ?, error = ?, completed = ? WHERE id = ? AND status = ?",
            (Status.FAILED, error, self._now(), job_id, was),
        )
        self._note(job_id, error, "error")

    @contextlib.contextmanager
    def _transaction(self, mode: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE") -> Iterator[None]:
        with _translated(self.path):
            self._sql.execute(f"BEGIN {mode}")
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")
                raise


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.IntegrityError):
        raise  # a mistake of ours
    except sqlite3.OperationalError as error:
        message = f"the job store {path} cannot be used just now: {error}"
        raise SandboxError(message) from error
    except sqlite3.DatabaseError as error:
        message = f"{path} is not a job store, or damaged: {error}"
        raise ConfigError(message) from error


def _storable(text: str | None) -> str | None:
    """Output can hold what no UTF-8 has; SQLite would raise."""
    return text if text is None else text.encode("utf-8", "replace").decode()


def _ensure_file(path: Path) -> None:
    """
    Make the database under another name and link it into place, so that nobody finds half of one.

    It is never opened here but by SQLite: closing any descriptor of a file ends the process's locks on it, and with
    them those of another store on the same file. Scripts and their output are in there, so it is its owner's alone;
    SQLite gives its other files the same mode.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.path.lexists(path):
        fresh = path.with_name(f"{path.name}.new-{uuid.uuid4().hex}")
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with contextlib.closing(sqlite3.connect(fresh)) as sql:
                sql.executescript(_TABLES)
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(fresh)
        finally:
            fresh.unlink()
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        message = f"the job store {path} must be a file of uid {os.geteuid()} with mode 0600"
        raise ConfigError(message)


def _owner_file(path: Path, owner: str) -> Path:
    return path.with_name(f"{path.name}.owner-{owner}")


@contextlib.contextmanager
def _entered_owner(path: Path) -> Iterator[str]:
    """A name that is among the living until the end of this block, or of the process."""
    owner = uuid.uuid4().hex
    file = _owner_file(path, owner)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not os.fstat(descriptor).st_nlink:
            # Taken for a dead one's, and removed, before the lock was there.
            with _entered_owner(path) as another:
                yield another
            return
        yield owner
        file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _living_owners(path: Path) -> Iterator[str]:
    """Also removes what dead owners have left."""
    prefix = _owner_file(path, "").name
    for file in path.parent.iterdir():
        if not file.name.startswith(prefix):
            continue
        with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield file.name.removeprefix(prefix)
            else:
                file.unlink()
