"""
Which processors a command is shown: as many as its limit is worth, those that fewest of our own commands have.

The quota of the cgroup is the limit, and it hides nothing: a pool that counts processors would start one worker for
each that the machine has. So pid 1 narrows the command's affinity, which is what `nproc` and its kind read. Processors
are named by their place among those that pid 1 may use; the engine's machine need not be ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

_MOST = 8192
"""What the kernel, and so pid 1, can count to."""


def count(hello: Mapping[str, str]) -> int:
    """How many pid 1 says that it may use; 0 where it does not know."""
    said = hello.get("cpus", "")
    return min(int(said), _MOST) if said.isdecimal() and len(said) <= len(str(_MOST)) else 0


class Processors:
    """Those of one engine, and how many running commands were given each."""

    def __init__(self) -> None:
        self._given: dict[int, int] = {}
        self._next = random.randrange(_MOST)  # noqa: S311 - so that several providers do not all begin with the first

    def take(self, cpus: float, there: int) -> tuple[int, ...]:
        """Choose for a command that may use `cpus`, out of so many; none where it may use them all."""
        wanted = math.ceil(round(cpus, 9))  # the engine counts in billionths
        if wanted >= there:
            return ()
        start = self._next % there
        in_turn = [*range(start, there), *range(start)]
        taken = tuple(sorted(in_turn, key=lambda place: self._given.get(place, 0))[:wanted])
        self._next = taken[-1] + 1
        for place in taken:
            self._given[place] = self._given.get(place, 0) + 1
        return taken

    def leave(self, taken: tuple[int, ...]) -> None:
        for place in taken:
            self._given[place] -= 1
