"""Listeners of a run that is over; those of one under way are in test_stream.py."""

import asyncio
import threading

from provider.events import StateChanged
from provider.listeners import PATIENCE_SECONDS, Listeners
from provider.model import State

ENDED = StateChanged(run_id="r", session="", state=State.CANCELED)


async def test_a_healthy_listener_hears_the_end_of_a_hurried_run():
    """Hurry drops those that hang, not those that listen."""
    heard = []
    listeners = Listeners(on_event=heard.append)
    listeners.hurry()
    await listeners.tell(ENDED)
    assert heard == [ENDED]
    assert listeners.errors == []


async def test_a_listener_that_hangs_is_waited_for_once():
    """It has its patience, is then dropped for good, and is named once."""
    calls = []

    async def hangs(event):
        calls.append(event)
        await asyncio.Event().wait()

    listeners = Listeners(on_event=hangs)
    listeners.hurry()
    began = asyncio.get_running_loop().time()
    for _ in range(5):
        await listeners.tell(ENDED)
    assert asyncio.get_running_loop().time() - began < 2 * PATIENCE_SECONDS
    assert len(calls) == len(listeners.errors) == 1


async def test_a_slow_listener_uses_its_patience_up():
    """Many short delays are one long one: a hurried run is not held up by their sum."""

    async def slow(_):
        await asyncio.sleep(PATIENCE_SECONDS / 4)

    listeners = Listeners(on_event=slow)
    listeners.hurry()
    began = asyncio.get_running_loop().time()
    for _ in range(40):
        await listeners.tell(ENDED)
    assert asyncio.get_running_loop().time() - began < 2 * PATIENCE_SECONDS


async def test_the_thread_of_sync_listeners_ends_with_them():
    """A closed run leaves no thread behind."""
    threads = []
    listeners = Listeners(on_event=lambda _: threads.append(threading.current_thread()))
    await listeners.tell(ENDED)
    listeners.close()
    threads[0].join(5)
    assert not threads[0].is_alive()
