"""
The rounds of one user message: the model writes, its calls are run in order, their results go back to it as one message
of the user's, and so on until it writes without calling.

Any chat program can drive it. With `take` the loop awaits the calls itself; `read` and `answer` are its two halves, for
programs that run calls in their own way:

    loop = Loop()
    step = await loop.take(await model(messages), execute)
    while isinstance(step, Again):
        messages += [assistant(step.text), user(step.message)]
        step = await loop.take(await model(messages[-HISTORY:]), execute)
    show(step.text)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from provider.dialects.mk8.call import Call, Execute, Malformed, Result, failed
from provider.dialects.mk8.protocol import find_calls, render_results, strip_calls
from provider.dialects.mk8.status import Status

ROUNDS: Final = 10
HISTORY: Final = 50
"""How many messages a model is sent, by the contract; keeping them is the program's business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """The model is to go on."""

    text: str
    """What it wrote, calls and all, for the history."""
    message: str
    """What it is told next, as a message of the user's."""
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The answer to the user."""

    text: str
    """Without any call."""
    because: Literal["no calls", "approval", "rounds"]
    """Why it is the last: nothing is called, a job awaits approval, or there were rounds enough."""
    awaiting: tuple[str, ...] = ()
    """The jobs that somebody has to approve."""
    unrun: tuple[str, ...] = ()
    """The ids of calls that it had all the same, which nobody ran."""


class Loop:
    """One user message's worth of rounds; the next message takes a new one."""

    def __init__(self, *, rounds: int = ROUNDS) -> None:
        self._left = rounds
        self._awaiting: list[str] = []
        self._stopped = False
        self._read: tuple[Call | Malformed, ...] = ()
        self._text = ""

    async def take(self, text: str, execute: Execute) -> Again | Said:
        """What becomes of the model's text. Its calls are run one after the other, in their order."""
        found = self.read(text)
        if isinstance(found, Said):
            return found
        results = [await execute(call) if isinstance(call, Call) else failed(call, call.error) for call in found]
        return self.answer(results)

    def read(self, text: str) -> tuple[Call | Malformed, ...] | Said:
        """
        Give the calls that are to be answered now, or the end.

        Raises:
            RuntimeError: the calls before are not answered, or the loop has ended.
        """
        if self._read or self._stopped:
            message = "this loop has ended; begin a new one" if self._stopped else "the calls before have no answer yet"
            raise RuntimeError(message)
        calls = find_calls(text)
        if calls and self._left and not self._awaiting:
            self._left -= 1
            self._read, self._text = calls, text
            return calls
        self._stopped = True
        # The seed forbids calls while a job waits; whether there are any or not, this completion was the last.
        because: Literal["no calls", "approval", "rounds"]
        because = "approval" if self._awaiting else "rounds" if calls else "no calls"
        unrun = tuple(call.id for call in calls)
        return Said(text=strip_calls(text), because=because, awaiting=tuple(self._awaiting), unrun=unrun)

    def answer(self, results: Sequence[Result]) -> Again:
        """
        Take the results of all calls that `read` gave, in their order.

        Raises:
            ValueError: they are results of others.
        """
        if [result.id for result in results] != [call.id for call in self._read]:
            message = "there must be one result for each call that was read, in the same order"
            raise ValueError(message)
        self._read = ()
        waiting = [result for result in results if result.status is Status.AWAITING_APPROVAL]
        self._awaiting += [result.job or result.id for result in waiting]
        return Again(text=self._text, message=render_results(results), results=tuple(results))
