"""
Open questions, for an interface that answers later: a web page, a chat, another process.

The queue is an approver. Each question is answered once, by whoever speaks for its session, for the plan that was
shown; every other answer is refused, changes nothing, and is logged.
"""

from __future__ import annotations

import asyncio
import logging

from provider.approval import Answer, Question
from provider.errors import CallError

log = logging.getLogger(__name__)


class Questions:
    """A queue of questions with list, answer and wait."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Question, asyncio.Future[Answer]]] = {}
        self._news = asyncio.Condition()

    async def __call__(self, question: Question) -> Answer:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[question.run_id] = question, answered
        async with self._news:
            self._news.notify_all()
        try:
            return await answered
        finally:
            del self._open[question.run_id]  # also when the run was cancelled, or its time is over

    def list(self, session: str | None = None) -> tuple[Question, ...]:
        """Those that wait for an answer, oldest first."""
        waiting = (question for question, answered in self._open.values() if not answered.done())
        return tuple(question for question in waiting if session in {None, question.session})

    async def wait(self, session: str | None = None) -> Question:
        """Give the oldest that waits, as soon as there is one."""
        async with self._news:
            await self._news.wait_for(lambda: self.list(session))
            return self.list(session)[0]

    def answer(self, run_id: str, answer: Answer | str, *, session: str, plan_digest: str) -> None:
        """
        Answer a question.

        Raises:
            CallError: nobody asks that, or not any more, or not this session, or it is about another plan.
        """
        try:
            self._answer(run_id, Answer(answer), session, plan_digest)
        except ValueError as error:
            choices = ", ".join(Answer)
            message = f"answer {answer!r} must be one of {choices}"
            raise CallError(message) from error
        except CallError as refusal:
            log.warning("answer refused: %s", refusal)
            raise

    def _answer(self, run_id: str, answer: Answer, session: str, plan_digest: str) -> None:
        question, answered = self._open.get(run_id, (None, None))
        # One text for a run that is not there and for one of another session: a stranger learns nothing.
        if question is None or answered is None or question.session != session:
            message = f"no question of run {run_id!r} waits for an answer"
            raise CallError(message)
        if answered.done():
            message = f"the question of run {run_id!r} was answered already"
            raise CallError(message)
        if question.plan.digest != plan_digest:
            message = f"run {run_id!r} asks about plan {question.plan.digest[:12]}, not about {plan_digest[:12]}"
            raise CallError(message)
        answered.set_result(answer)
