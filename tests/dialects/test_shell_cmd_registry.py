"""The register of executions of `shell_cmd`: moves, filters, retention."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from provider.dialects.shell_cmd.call import Call
from provider.dialects.shell_cmd.registry import FINAL, MOVES, Deletion, Record, Registry, session_of, world_and_chat
from provider.dialects.shell_cmd.reply import Result, Text
from provider.errors import CallError
from provider.model import State


def enter(registry: Registry, name: str, session: str = "w/c") -> Record:
    return registry.enter(name, command="ls", parameters=("-l",), directory="/w", session=session)


def result(text: str = "") -> Result:
    return Result(call=Call(command="ls"), stdout=Text(text=text))


def reached(*states: State) -> tuple[Registry, Record | None]:
    registry = Registry()
    enter(registry, "1")
    for state in states:
        registry.move("1", state)
    return registry, registry.get("1")


def test_a_record_has_all_fields_of_the_contract():
    """From queued to completed, each with its time."""
    registry = Registry()
    enter(registry, "1", "world/chat/7")
    registry.move("1", State.STARTING)
    registry.move("1", State.RUNNING)
    registry.wrote("1", stdout=3)
    registry.wrote("1", stderr=4)
    registry.move("1", State.COMPLETED, exit_code=0, duration_ms=5)
    data = registry.get("1").as_data()
    times = {data.pop(name) for name in ("queuedAt", "startedAt", "finishedAt")}
    assert all(time.endswith("Z") and "T" in time for time in times)
    assert data == {
        "executionId": "1",
        "command": "ls",
        "parameters": ["-l"],
        "directory": "/w",
        "worldId": "world",
        "chatId": "chat/7",
        "status": "completed",
        "cancelRequested": False,
        "exitCode": 0,
        "signal": None,
        "stdoutLength": 3,
        "stderrLength": 4,
        "error": None,
        "durationMs": 5,
    }


@pytest.mark.parametrize("start", list(State))
@pytest.mark.parametrize("to", list(State))
def test_only_the_moves_of_the_contract_are_made(start: State, to: State, caplog: pytest.LogCaptureFixture):
    """An illegal move changes nothing, and is in the log."""
    paths: dict[State, tuple[State, ...]] = {
        State.QUEUED: (),
        State.STARTING: (State.STARTING,),
        State.RUNNING: (State.RUNNING,),
        **{state: (State.RUNNING, state) for state in FINAL},
    }
    registry, before = reached(*paths[start])
    with caplog.at_level(logging.WARNING):
        after = registry.move("1", to)
    assert after.status is (to if to in MOVES[start] else start)
    assert bool(caplog.records) is (to not in MOVES[start] and to is not start)
    if start in FINAL:
        assert after == before


def test_listeners_hear_of_every_move_and_of_a_wish_to_cancel():
    """Once each; a listener that fails, or has gone, disturbs nothing."""
    registry = Registry()
    heard: list[tuple[str, bool]] = []

    def broken(record: Record) -> None:
        raise RuntimeError

    registry.listen(broken)
    leave = registry.listen(lambda record: heard.append((record.status, record.cancel_requested)))
    enter(registry, "1")
    registry.move("1", State.RUNNING)
    registry.wrote("1", stdout=1)
    registry.request_cancel("1")
    registry.request_cancel("1")
    leave()
    registry.move("1", State.CANCELED)
    assert heard == [("queued", False), ("running", False), ("running", True)]


def test_lists_are_filtered_newest_first_and_limited():
    """By status, world, chat and activity; 100 unless told otherwise."""
    registry = Registry()
    for number in range(120):
        enter(registry, str(number), f"w{number % 2}/c{number % 3}")
    registry.move("119", State.FAILED)

    def names(**filters: Any) -> list[str]:
        return [record.execution_id for record in registry.list(**filters)]

    assert names() == [str(number) for number in range(119, 19, -1)]
    assert names(limit=2) == ["119", "118"]
    assert names(limit=0) == names(limit=-1) == []
    assert names(active_only=True, limit=1) == ["118"]
    assert names(statuses=["failed"]) == ["119"]
    assert names(world_id="w1", chat_id="c0", limit=2) == ["117", "111"]


def test_an_execution_is_deleted_only_when_it_is_over():
    """Row 62: a conflict while it is active, then deleted with its result, then not found."""
    registry = Registry()
    enter(registry, "1")
    assert registry.delete("1") == Deletion("active_process_conflict")
    registry.move("1", State.FAILED)
    registry.keep("1", result())
    assert registry.delete("1") == Deletion("deleted", 1)
    assert (registry.get("1"), registry.result("1")) == (None, None)
    assert registry.delete("1") == Deletion("not_found")


def test_old_records_go_but_never_active_ones():
    """2,000 are kept; what still runs is not forgotten."""
    registry = Registry(max_records=2)
    for name in ("1", "2", "3"):
        enter(registry, name)
    assert len(registry) == 3
    registry.move("2", State.FAILED)
    enter(registry, "4")
    assert [record.execution_id for record in registry.list()] == ["4", "3", "1"]
    assert len(Registry.__init__.__kwdefaults__) == 3
    assert Registry.__init__.__kwdefaults__["max_records"] == 2_000
    assert Registry.__init__.__kwdefaults__["max_results"] == 1_000


def test_old_results_go_by_number_and_by_size():
    """A flood of output does not fill the memory of whoever keeps results."""
    registry = Registry(max_results=2, max_characters=10)
    for name in ("1", "2", "3", "4"):
        enter(registry, name)
    for name in ("1", "2", "3"):
        registry.keep(name, result("a"))
    assert [registry.result(name) is not None for name in ("1", "2", "3")] == [False, True, True]
    registry.keep("4", result("a" * 10))
    assert [registry.result(name) is not None for name in ("2", "3", "4")] == [False, False, True]
    registry.keep("3", result("a" * 11))
    assert [registry.result(name) is not None for name in ("3", "4")] == [False, False]
    registry.keep("gone", result())
    assert registry.result("gone") is None


def test_what_is_unknown_is_left_alone():
    """A record that was deleted under its run is not made again."""
    registry = Registry()
    assert registry.move("1", State.RUNNING) is None
    registry.wrote("1", stdout=1)
    assert len(registry) == 0


@pytest.mark.parametrize(
    ("session", "expected"),
    [("w/c", ("w", "c")), ("c", (None, "c")), ("", (None, None)), ("w/", ("w", None)), ("w/a/b", ("w", "a/b"))],
)
def test_a_session_is_a_world_and_a_chat(session: str, expected: tuple[str | None, str | None]):
    """`world/chat`; a session without a slash is a chat of no world."""
    assert world_and_chat(session) == expected


def test_a_world_cannot_pose_as_another_chat():
    """A slash in a world's name is refused."""
    assert session_of("w", "a/b") == "w/a/b"
    with pytest.raises(CallError, match="world 'w/a'"):
        session_of("w/a", "b")
