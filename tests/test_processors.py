"""What `provider.engine.processors` promises: as many as the limit is worth, and those that are least used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.engine.processors import Processors, count


@pytest.mark.parametrize(
    ("cpus", "wanted"), [(0.01, 1), (0.5, 1), (1.0, 1), (1.0000000001, 1), (1.5, 2), (2.0, 2), (3.2, 4), (7.9, 8)]
)
def test_a_part_of_a_processor_is_shown_as_a_whole_one(cpus: float, wanted: int):
    """As many are taken as the limit is worth, rounded up as the engine counts it, each once."""
    taken = Processors().take(cpus, 16)
    assert len(set(taken)) == len(taken) == wanted
    assert set(taken) <= set(range(16))


@pytest.mark.parametrize(("cpus", "there"), [(1, 1), (2, 2), (1.5, 2), (8, 4), (1, 0)])
def test_a_limit_past_the_machine_chooses_nothing(cpus: float, there: int):
    """Where a command may use all of them, or nobody knows how many there are, it is left alone."""
    assert Processors().take(cpus, there) == ()


def test_commands_side_by_side_do_not_share():
    """As long as there are free ones, nobody is given a processor that another has."""
    processors = Processors()
    taken = [place for _ in range(4) for place in processors.take(2, 8)]
    assert sorted(taken) == list(range(8))


def test_the_one_that_was_left_is_given_next():
    """A long command keeps its processor to itself while short ones come and go."""
    processors = Processors()
    kept = processors.take(1, 2)
    for _ in range(5):
        short = processors.take(1, 2)
        assert short != kept
        processors.leave(short)


def test_one_after_the_other_goes_round():
    """Equally free ones are given in turn, so that none is worn alone."""
    processors = Processors()
    turn = []
    for _ in range(6):
        turn += (taken := processors.take(1, 3))
        processors.leave(taken)
    assert turn[:3] == turn[3:]
    assert set(turn) == {0, 1, 2}


@given(st.lists(st.tuples(st.floats(0.01, 9), st.integers(0, 9), st.booleans()), max_size=40))
def test_what_was_taken_can_be_left_in_any_order(steps: list[tuple[float, int, bool]]):
    """Whoever comes and goes, every choice is within the machine, and at the end nobody has any."""
    processors, held = Processors(), []
    for cpus, there, stays in steps:
        taken = processors.take(cpus, there)
        assert all(place < there for place in taken)
        held.append(taken)
        if not stays:
            processors.leave(held.pop(0))
    for taken in held:
        processors.leave(taken)
    assert not any(processors._given.values())


@pytest.mark.parametrize(
    ("hello", "there"),
    [
        ({"cpus": "2"}, 2),
        ({}, 0),
        ({"cpus": ""}, 0),
        ({"cpus": "-2"}, 0),
        ({"cpus": "many"}, 0),
        ({"cpus": "9" * 9}, 0),
    ],
)
def test_pid_1_tells_how_many_there_are(hello: dict[str, str], there: int):
    """What is no number of processors is none."""
    assert count(hello) == there
