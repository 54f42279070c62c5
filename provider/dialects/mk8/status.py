"""Where a job is, and where it may go from there."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


class Status(enum.IntEnum):
    """The numbers are the contract's."""

    QUEUED = 0
    EXECUTING = 1
    AWAITING_APPROVAL = 2
    COMPLETED = 3
    FAILED = 4
    DENIED = 5
    CANCELLED = 6

    @property
    def word(self) -> str:
        """As result lines write it."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_final(self) -> bool:
        return not TRANSITIONS[self]


TRANSITIONS: Final[Mapping[Status, frozenset[Status]]] = MappingProxyType(
    {
        Status.QUEUED: frozenset(
            {Status.EXECUTING, Status.AWAITING_APPROVAL, Status.FAILED, Status.DENIED, Status.CANCELLED}
        ),
        Status.AWAITING_APPROVAL: frozenset({Status.EXECUTING, Status.DENIED, Status.CANCELLED}),
        Status.EXECUTING: frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED}),
        Status.COMPLETED: frozenset(),
        Status.FAILED: frozenset(),
        Status.DENIED: frozenset(),
        Status.CANCELLED: frozenset(),
    }
)
