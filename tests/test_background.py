"""Work that nobody waits for until the end."""

import asyncio

import pytest

from provider.background import Background
from provider.errors import DisposeFailed, EngineUnavailable


async def test_settling_waits_for_all_also_for_what_comes_later():
    """Work that adds work is waited for to the last."""
    background = Background()
    done = []

    async def work(depth):
        await asyncio.sleep(0)
        done.append(depth)
        if depth:
            background.add(work(depth - 1))

    background.add(work(3))
    await background.settle()
    assert done == [3, 2, 1, 0]


async def fails(error):
    raise error


async def test_every_leak_is_told_at_close():
    """Containers that may be left are all named, once; a spare that could not be made is no leak."""
    background = Background()
    for error in (DisposeFailed("one"), EngineUnavailable("no"), DisposeFailed("two")):
        background.add(fails(error))
    with pytest.raises(DisposeFailed, match="one; two"):
        await background.close()
    await background.close()


async def test_a_bug_is_shown_to_the_event_loop():
    """An error that is none of ours is not passed over in silence."""
    shown = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: shown.append(context["exception"]))
    background = Background()
    background.add(fails(ZeroDivisionError()))
    await background.settle()
    await asyncio.sleep(0)
    assert [type(error) for error in shown] == [ZeroDivisionError]
