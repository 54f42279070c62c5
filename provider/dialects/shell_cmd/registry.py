"""
What was run, what runs, and how far it has come: one record an execution, in memory, bounded.

Worlds and chats are the contract's; a provider knows sessions. The session of a chat is `world/chat`.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from provider.dialects.shell_cmd.reply import Result
from provider.errors import CallError
from provider.model import State

log = logging.getLogger(__name__)

MAX_RECORDS: Final = 2_000
MAX_RESULTS: Final = 1_000
MAX_RESULT_CHARACTERS: Final = 16 * 1024 * 1024
"""Of all results together; the contract has no such bound, and a machine has."""
DEFAULT_LIMIT: Final = 100

_Q, _S, _R = State.QUEUED, State.STARTING, State.RUNNING
FINAL: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELED, State.TIMED_OUT})
_EARLY_ENDS: Final = FINAL - {State.COMPLETED}
MOVES: Final = {
    _Q: frozenset({_S, _R}) | _EARLY_ENDS,
    _S: frozenset({_R}) | _EARLY_ENDS,
    _R: FINAL,
    **{state: frozenset({state}) for state in FINAL},
}

Canceled = Literal["cancel_requested", "already_finished", "not_found", "not_cancellable"]
Deleted = Literal["deleted", "not_found", "active_process_conflict"]


class Deletion(NamedTuple):
    outcome: Deleted
    removed_history_entries: int = 0


def session_of(world: str, chat: str) -> str:
    """Raises CallError for a world whose name could be taken for that of another world and chat."""
    if "/" in world:
        message = f"world {world!r} has a `/` in its name, which separates world and chat; use another name"
        raise CallError(message)
    return f"{world}/{chat}"


def world_and_chat(session: str) -> tuple[str | None, str | None]:
    """`world/chat`; what has no slash is a chat of no world."""
    world, slash, chat = session.partition("/")
    return (world or None, chat or None) if slash else (None, session or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    execution_id: str
    command: str
    parameters: tuple[str, ...]
    directory: str
    world_id: str | None
    chat_id: str | None
    queued_at: str
    status: State = State.QUEUED
    cancel_requested: bool = False
    started_at: str | None = None
    finished_at: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    stdout_length: int = 0
    stderr_length: int = 0
    error: str | None = None
    duration_ms: int | None = None

    @property
    def is_active(self) -> bool:
        return self.status not in FINAL

    def as_data(self) -> dict[str, Any]:
        """The contract's own names."""
        return {
            "executionId": self.execution_id,
            "command": self.command,
            "parameters": list(self.parameters),
            "directory": self.directory,
            "worldId": self.world_id,
            "chatId": self.chat_id,
            "status": self.status.value,
            "cancelRequested": self.cancel_requested,
            "queuedAt": self.queued_at,
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
            "exitCode": self.exit_code,
            "signal": self.signal,
            "stdoutLength": self.stdout_length,
            "stderrLength": self.stderr_length,
            "error": self.error,
            "durationMs": self.duration_ms,
        }


Listener = Callable[[Record], None]


class Registry:
    """Records by execution id, oldest first."""

    def __init__(
        self,
        *,
        max_records: int = MAX_RECORDS,
        max_results: int = MAX_RESULTS,
        max_characters: int = MAX_RESULT_CHARACTERS,
    ) -> None:
        self._records: dict[str, Record] = {}
        self._results: dict[str, Result] = {}
        self._listeners: list[Listener] = []
        self._max_records, self._max_results, self._max_characters = max_records, max_results, max_characters
        self._characters = 0

    def enter(
        self, execution_id: str, *, command: str, parameters: tuple[str, ...], directory: str, session: str
    ) -> Record:
        """Begin a record, as queued."""
        world, chat = world_and_chat(session)
        record = Record(
            execution_id=execution_id,
            command=command,
            parameters=parameters,
            directory=directory,
            world_id=world,
            chat_id=chat,
            queued_at=now(),
        )
        self._put(record)
        self._forget_records()
        return record

    def __len__(self) -> int:
        return len(self._records)

    def get(self, execution_id: str) -> Record | None:
        return self._records.get(execution_id)

    def result(self, execution_id: str) -> Result | None:
        """What it wrote and how it ended, whole, while it is kept."""
        return self._results.get(execution_id)

    def list(
        self,
        *,
        statuses: Collection[State | str] | None = None,
        world_id: str | None = None,
        chat_id: str | None = None,
        active_only: bool = False,
        limit: int = DEFAULT_LIMIT,
    ) -> tuple[Record, ...]:
        """The newest first."""
        found = (
            record
            for record in reversed(self._records.values())
            if (statuses is None or record.status in statuses)
            and world_id in {None, record.world_id}
            and chat_id in {None, record.chat_id}
            and (record.is_active or not active_only)
        )
        return tuple(itertools.islice(found, max(0, limit)))

    def move(self, execution_id: str, status: State, **facts: Any) -> Record | None:
        """Note that it has come further. A move that cannot be is ignored, with a warning."""
        record = self._records.get(execution_id)
        if record is None:
            return None
        if status not in MOVES[record.status] or (record.status in FINAL and status in FINAL):
            if status is not record.status:
                log.warning("execution %s cannot go from %s to %s", execution_id, record.status, status)
            return record
        if status is State.RUNNING:
            facts["started_at"] = now()
        if status in FINAL:
            facts["finished_at"] = now()
        return self._put(replace(record, status=status, **facts))

    def wrote(self, execution_id: str, *, stdout: int = 0, stderr: int = 0) -> None:
        """Count characters. Nobody is told: the stream itself is heard elsewhere."""
        if record := self._records.get(execution_id):
            self._records[execution_id] = replace(
                record, stdout_length=record.stdout_length + stdout, stderr_length=record.stderr_length + stderr
            )

    def request_cancel(self, execution_id: str) -> None:
        record = self._records[execution_id]
        if not record.cancel_requested:
            self._put(replace(record, cancel_requested=True))

    def keep(self, execution_id: str, result: Result) -> None:
        """Keep what it wrote; the oldest go when there are too many, or they are too large."""
        if execution_id not in self._records:
            return
        self._results[execution_id] = result
        self._characters += result.size
        while self._results and (len(self._results) > self._max_results or self._characters > self._max_characters):
            self._drop_result(next(iter(self._results)))

    def delete(self, execution_id: str) -> Deletion:
        record = self._records.get(execution_id)
        if record is None:
            return Deletion("not_found")
        if record.is_active:
            return Deletion("active_process_conflict")
        del self._records[execution_id]
        return Deletion("deleted", self._drop_result(execution_id))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have every change told, as the record that it led to. Gives the function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _put(self, record: Record) -> Record:
        self._records[record.execution_id] = record
        for listener in tuple(self._listeners):
            try:
                listener(record)
            except Exception:
                log.exception("a listener failed at execution %s", record.execution_id)
        return record

    def _forget_records(self) -> None:
        surplus = len(self._records) - self._max_records
        for execution_id in list(itertools.islice(self._over(), max(0, surplus))):
            del self._records[execution_id]
            self._drop_result(execution_id)

    def _over(self) -> Iterator[str]:
        return (execution_id for execution_id, record in self._records.items() if not record.is_active)

    def _drop_result(self, execution_id: str) -> int:
        dropped = self._results.pop(execution_id, None)
        if dropped is None:
            return 0
        self._characters -= dropped.size
        return 1


def now() -> str:
    """As the contract writes a time."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
