"""
Global and per-resource actions: handlers that the host program registers, by name.

Where none is registered the action completes with a sentence that says so: the permission system has let it through,
and that is all that happened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from provider.dialects.mk8.call import Call, Result, failed
from provider.dialects.mk8.kinds import ACTIONS, DANGEROUS_SHELL, SAFE_SHELL
from provider.dialects.mk8.status import Status

Handler = Callable[[Call], Awaitable[str]]
"""Does what was asked, which somebody entitled to has approved, and gives the text of the result."""

REGISTRABLE: Final = tuple(name for name in ACTIONS if name not in {SAFE_SHELL, DANGEROUS_SHELL})
"""All but the shells, which the provider runs itself."""


class ActionFailed(Exception):
    """A handler could not do it; the text goes to the model as it is."""


class Actions:
    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def register(self, name: str, handler: Handler) -> None:
        """
        Let `handler` answer all calls of an action.

        Raises:
            ValueError: there is no such action, or it has a handler.
        """
        if name not in REGISTRABLE:
            message = f"there is no action {name!r} to register; there are {', '.join(REGISTRABLE)}"
            raise ValueError(message)
        if name in self._handlers:
            message = f"the action {name!r} has a handler already"
            raise ValueError(message)
        self._handlers[name] = handler

    def has(self, name: str) -> bool:
        return name in self._handlers

    async def perform(self, call: Call) -> Result:
        """Whatever else a handler raises than ActionFailed goes through: it is a fault of the program's."""
        handler = self._handlers.get(call.action)
        if handler is None:
            return Result(id=call.id, status=Status.COMPLETED, result=not_registered(call))
        try:
            return Result(id=call.id, status=Status.COMPLETED, result=await handler(call))
        except ActionFailed as error:
            return failed(call, str(error))


def not_registered(call: Call) -> str:
    return (
        f"{call.action} on resource {call.resource or 'n/a'} was permitted, but this program has nothing registered "
        "that carries it out: nothing was done."
    )
