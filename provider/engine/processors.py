"""
Which processors a command is shown: as many as its limit is worth, of those that fewest of our own commands have.

The quota of the cgroup is the limit, and it hides nothing: a pool that counts processors would start one worker for
each that the machine has. So pid 1 narrows the command's affinity, which is what `nproc` and its kind read. It is
offered the least used; among them it takes what the kernel chose, which sees more than we do, and tells us. Processors
are named by their place among those that pid 1 may use: the engine's machine need not be ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from provider.engine.wire import Offer

_MOST = 8192
"""What the kernel, and so pid 1, can count to."""


def count(hello: Mapping[str, str]) -> int:
    """How many pid 1 says that it may use; 0 where it does not know."""
    said = hello.get("cpus", "")
    return min(int(said), _MOST) if said.isdecimal() and len(said) <= len(str(_MOST)) else 0


class Processors:
    """Those of one engine, and how many running commands have each."""

    def __init__(self) -> None:
        self._commands: dict[int, int] = {}
        self._next = random.randrange(_MOST)  # noqa: S311 - so that several providers do not all begin with the first

    def offer(self, cpus: float, there: int) -> Offer | None:
        """Choose for a command that may use `cpus`, out of so many; nothing where it may use them all."""
        wanted = math.ceil(round(cpus, 9))  # the engine counts in billionths
        if wanted >= there:
            return None
        start = self._next % there
        self._next = start + wanted
        ranked = sorted([*range(start, there), *range(start)], key=self._load)
        most = self._load(ranked[wanted - 1])
        return Offer(wanted, tuple(place for place in ranked if self._load(place) <= most))

    def take(self, offer: Offer, places: tuple[int, ...]) -> tuple[int, ...]:
        """Note what pid 1 says was taken of an offer. Tells what is to be left again: nothing, if it cannot be so."""
        if len(places) != offer.wanted or not set(places) <= set(offer.places):
            return ()
        for place in places:
            self._commands[place] = self._load(place) + 1
        return places

    def leave(self, places: tuple[int, ...]) -> None:
        for place in places:
            self._commands[place] -= 1

    def _load(self, place: int) -> int:
        return self._commands.get(place, 0)
