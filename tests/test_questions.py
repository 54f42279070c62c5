"""What `provider.questions` promises: one answer a question, from its own session, to the plan that was shown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from provider.approval import Answer, Question
from provider.errors import CallError
from provider.model import Decision, Plan, Verdict
from provider.questions import Questions

ASK = Verdict(decision=Decision.ASK, reasons=("why",))


@pytest.fixture
async def asked(planned: Callable[..., Plan]) -> AsyncIterator[tuple[Questions, Question, asyncio.Task[Answer]]]:
    """A queue, the question in it, and whoever waits for its answer."""
    questions = Questions()
    question = Question(run_id="r", session="s", plan=planned(), verdict=ASK)
    waiting = asyncio.create_task(questions(question))
    assert await questions.wait("s") is question
    yield questions, question, waiting
    waiting.cancel()


Asked = tuple[Questions, Question, "asyncio.Task[Answer]"]


@pytest.mark.parametrize("answer", list(Answer))
async def test_an_answer_reaches_whoever_asked(asked: Asked, answer: Answer):
    """And the question is gone from the list."""
    questions, question, waiting = asked
    assert questions.list() == questions.list("s") == (question,)
    questions.answer("r", answer, session="s", plan_digest=question.plan.digest)
    assert questions.list() == ()
    assert await waiting is answer


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"run_id": "other"}, "no question"),
        ({"session": "another"}, "no question"),
        ({"plan_digest": "0" * 64}, "asks about plan"),
        ({"answer": "yes"}, "must be one of"),
    ],
)
async def test_a_wrong_answer_changes_nothing(asked: Asked, parts: dict[str, str], says: str):
    """Another run, session or plan, or no answer at all: refused, and the question still waits."""
    questions, question, waiting = asked
    right = {"run_id": "r", "answer": "once", "session": "s", "plan_digest": question.plan.digest}
    with pytest.raises(CallError, match=says):
        questions.answer(**{**right, **parts})
    assert questions.list() == (question,)
    assert not waiting.done()


async def test_the_first_answer_counts(asked: Asked, caplog: pytest.LogCaptureFixture):
    """A second one is refused, and logged, also before the first was heard."""
    questions, question, waiting = asked
    questions.answer("r", "deny", session="s", plan_digest=question.plan.digest)
    with caplog.at_level(logging.WARNING), pytest.raises(CallError, match="already"):
        questions.answer("r", "once", session="s", plan_digest=question.plan.digest)
    assert "answer refused" in caplog.text
    assert await waiting is Answer.DENY


async def test_an_answer_after_a_cancel_is_refused(asked: Asked):
    """Nobody waits any more."""
    questions, question, waiting = asked
    waiting.cancel()
    await asyncio.wait([waiting])
    assert questions.list() == ()
    with pytest.raises(CallError, match="no question"):
        questions.answer("r", "once", session="s", plan_digest=question.plan.digest)


async def test_sessions_see_their_own(asked: Asked):
    """The list and the wait of one session do not show another's."""
    questions, _, _ = asked
    assert questions.list("another") == ()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(questions.wait("another"), 0.01)
