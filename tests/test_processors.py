"""What `provider.engine.processors` promises: as many as the limit is worth, of those that are least used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.engine.processors import Processors, count
from provider.engine.wire import Offer


def taken(processors: Processors, cpus: float, there: int, last: bool = False) -> tuple[int, ...]:
    """What a command takes of its offer, the first or, if the kernel would have it so, the last."""
    offer = processors.offer(cpus, there)
    return (
        processors.take(offer, offer.places[-offer.wanted :] if last else offer.places[: offer.wanted]) if offer else ()
    )


@pytest.mark.parametrize(
    ("cpus", "wanted"), [(0.01, 1), (0.5, 1), (1.0, 1), (1.0000000001, 1), (1.5, 2), (2.0, 2), (3.2, 4), (7.9, 8)]
)
def test_a_part_of_a_processor_is_shown_as_a_whole_one(cpus: float, wanted: int):
    """As many are wanted as the limit is worth, rounded up as the engine counts it, and where all are free of any."""
    offer = Processors().offer(cpus, 16)
    assert offer
    assert offer.wanted == wanted
    assert sorted(offer.places) == list(range(16))


@pytest.mark.parametrize(("cpus", "there"), [(1, 1), (2, 2), (1.5, 2), (8, 4), (1, 0)])
def test_a_limit_past_the_machine_offers_nothing(cpus: float, there: int):
    """Where a command may use all of them, or nobody knows how many there are, it is left alone."""
    assert Processors().offer(cpus, there) is None


@pytest.mark.parametrize("last", [False, True])
def test_commands_side_by_side_do_not_share(last: bool):
    """As long as there are free ones, nobody is offered a processor that another has."""
    processors = Processors()
    places = [place for _ in range(4) for place in taken(processors, 2, 8, last)]
    assert sorted(places) == list(range(8))


def test_the_least_used_make_up_what_the_free_ones_lack():
    """With one free and two wanted, the second is of those that one other has, and not of those that two have."""
    processors = Processors()
    processors.take(Offer(3, (0, 1, 2)), (0, 1, 2))
    processors.take(Offer(1, (0,)), (0,))
    offer = processors.offer(2, 4)
    assert offer
    assert offer.places[0] == 3
    assert sorted(offer.places) == [1, 2, 3]


def test_the_one_that_was_left_is_given_next():
    """A long command keeps its processor to itself while short ones come and go."""
    processors = Processors()
    kept = taken(processors, 1, 2)
    for _ in range(5):
        short = taken(processors, 1, 2)
        assert short != kept
        processors.leave(short)


def test_equally_free_ones_come_first_in_turn():
    """Where the kernel has no preference, none is worn alone."""
    processors = Processors()
    turn = []
    for _ in range(6):
        turn += (places := taken(processors, 1, 3))
        processors.leave(places)
    assert turn[:3] == turn[3:]
    assert set(turn) == {0, 1, 2}


@pytest.mark.parametrize("places", [(), (0, 1), (9,), (0, 0)])
def test_what_was_never_offered_is_not_counted(places: tuple[int, ...]):
    """A command may have moved before it was looked at; that shall not mislead the next offer."""
    processors = Processors()
    assert processors.take(Offer(1, (0, 1)), places) == ()
    offer = processors.offer(1, 2)
    assert offer
    assert sorted(offer.places) == [0, 1]


@given(st.lists(st.tuples(st.floats(0.01, 9), st.integers(0, 9), st.booleans(), st.booleans()), max_size=40))
def test_what_was_taken_can_be_left_in_any_order(steps: list[tuple[float, int, bool, bool]]):
    """Whoever comes and goes, every offer is within the machine and enough, and at the end nobody has any."""
    processors, held = Processors(), []
    for cpus, there, stays, last in steps:
        places = taken(processors, cpus, there, last)
        assert len(set(places)) == len(places)
        assert all(place < there for place in places)
        held.append(places)
        if not stays:
            processors.leave(held.pop(0))
    for places in held:
        processors.leave(places)
    assert not any(processors._commands.values())


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
