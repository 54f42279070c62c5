"""An approver that asks the person at the terminal."""

from __future__ import annotations

import asyncio

from provider.approval import Answer, Question
from provider.shown import show
from provider.worker import Raised, Worker

_ANSWERS = {"y": Answer.ONCE, "s": Answer.SESSION, "e": Answer.ALWAYS, "n": Answer.DENY, "a": Answer.ABORT}
_lock = asyncio.Lock()


async def ask_terminal(question: Question) -> Answer:
    """Show exactly what would run and take one letter; without a terminal, or with any other answer, it is a no."""
    async with _lock:  # two questions at once would share one answer
        worker = Worker()
        try:
            answer = await worker.call(_ask, question)
        finally:
            worker.close()
    return Answer.DENY if isinstance(answer, Raised) else answer


def _ask(question: Question) -> Answer:
    session = "[s] yes, for the session: " + ", ".join(map(show, question.remember)) if question.remember else ""
    forever = f"[e] yes, for ever: {show(question.forever)}" if question.forever else ""
    choices = "  ".join(filter(None, ["[y] yes, once", session, forever, "[n] no", "[a] no, and stop"]))
    # Not stdin and stdout: they carry the call and its reply.
    with open("/dev/tty", "r+b", buffering=0) as terminal:  # noqa: PTH123 - unbuffered and both ways
        terminal.write(f"\n{question.text}\n{choices}: ".encode())
        typed = terminal.readline().decode(errors="replace").strip().lower()
    return _ANSWERS.get(typed[:1], Answer.DENY)
