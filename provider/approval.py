"""
A yes to exactly one plan: who is asked, what the answer covers, and for how long.

Approvers are async functions from a question to an answer. The default one, for programs without a person, refuses. A
yes for the session covers what the tool contract says is remembered (a command's root, say), and only that; everything
else is asked again. Whatever is decided, the receipt has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from provider.errors import ApprovalAborted, ApprovalRefused, PolicyRefused
from provider.model import Approval, Decision, Plan, Verdict
from provider.shown import show, show_plan


class Answer(enum.StrEnum):
    """What an approver may say."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    """For the session, and the contract is to write it into the operator's rules."""
    DENY = "deny"
    ABORT = "abort"
    """No, and stop what led to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Exactly what will run, and why somebody is asked."""

    run_id: str
    session: str
    plan: Plan
    verdict: Verdict
    remember: tuple[str, ...] = ()
    """What a yes for the session would cover; where it is empty, that answer counts once."""
    forever: str = ""
    """What a yes for ever would add to the operator's rules; where it is empty, that answer counts for the session."""

    @property
    def text(self) -> str:
        """For people: the real characters, nothing hidden."""
        why = "; ".join(map(show, self.verdict.reasons))  # they may quote the command
        return f"{show_plan(self.plan)}\nasked because: {why}"


NOBODY_IN_TIME = "nobody, in time"
"""Whose decision it is when an approver has not answered."""

Approver = Callable[[Question], Awaitable[Answer]]


async def refuse_all(question: Question) -> Answer:  # noqa: ARG001 - the shape of an approver
    """Say no: there is nobody to ask."""
    return Answer.DENY


async def allow_all(question: Question) -> Answer:  # noqa: ARG001 - the shape of an approver
    """Say yes once to whatever the policy asks about; what it refuses stays refused."""
    return Answer.ONCE


def allow_if(rule: Callable[[Question], bool], otherwise: Approver = refuse_all) -> Approver:
    """An approver that says yes, once, where a rule does."""

    async def allow_by_rule(question: Question) -> Answer:
        return Answer.ONCE if rule(question) else await otherwise(question)

    return allow_by_rule


_instead: ContextVar[Approver | None] = ContextVar("approver_instead", default=None)


@contextlib.contextmanager
def asked_instead(approver: Approver | None) -> Iterator[None]:
    """Whoever is asked within this context; it goes with a call through its contract, which need not know of it."""
    mark = _instead.set(approver)
    try:
        yield
    finally:
        _instead.reset(mark)


class Grants:
    """What sessions have been allowed until they end, or for as long as a grant lasts."""

    def __init__(self, *, seconds: float = math.inf) -> None:
        self._seconds = seconds
        self._until: dict[str, dict[str, float]] = {}

    def cover(self, question: Question) -> bool:
        """Whether all that would be remembered is remembered."""
        granted, now = self._until.get(question.session, {}), time.monotonic()
        return bool(question.remember) and all(granted.get(item, 0.0) > now for item in question.remember)

    def add(self, question: Question) -> None:
        until = time.monotonic() + self._seconds
        self._until.setdefault(question.session, {}).update(dict.fromkeys(question.remember, until))

    def drop(self, session: str) -> None:
        self._until.pop(session, None)


async def unheard(question: Question) -> None:  # noqa: ARG001 - nobody listens
    return


def check_verdict(verdict: Verdict) -> None:
    """Raises PolicyRefused where the verdict is no: nothing else need be looked at, and nobody is asked."""
    if verdict.decision is Decision.REFUSE:
        raise PolicyRefused("; ".join(verdict.reasons))


async def decide(
    approver: Approver,
    question: Question,
    grants: Grants,
    *,
    seconds: float,
    asking: Callable[[Question], Awaitable[None]] = unheard,
) -> Approval:
    """
    Ask where the verdict says so, and nowhere else. The approval may be a no; `check` tells.

    `asking` is told before somebody is asked.

    Raises:
        PolicyRefused: the verdict is no; nobody is asked.
    """
    plan, verdict = question.plan, question.verdict
    check_verdict(verdict)
    if verdict.decision is Decision.ALLOW:
        return Approval(by="policy", answer=Answer.ONCE, plan_digest=plan.digest)
    if grants.cover(question):
        return Approval(by="session", answer=Answer.SESSION, plan_digest=plan.digest, remembered=question.remember)
    approver = _instead.get() or approver
    by = getattr(approver, "__name__", type(approver).__name__)
    await asking(question)
    try:
        answer = Answer(await asyncio.wait_for(approver(question), seconds))
    except TimeoutError:
        return Approval(by=NOBODY_IN_TIME, answer=Answer.DENY, plan_digest=plan.digest)
    if answer is Answer.ALWAYS and not question.forever:
        answer = Answer.SESSION
    lasts = answer in {Answer.SESSION, Answer.ALWAYS}
    if lasts:
        grants.add(question)
    remembered = question.remember if lasts else ()
    return Approval(by=by, answer=answer, plan_digest=plan.digest, remembered=remembered)


def check(approval: Approval, plan: Plan, verdict: Verdict) -> None:
    """
    See that an approval is a yes, and to this plan.

    Raises:
        ApprovalRefused: it is not.
        ApprovalAborted: it is a no to everything that led here.
    """
    because = "; ".join(verdict.reasons)
    if approval.answer == Answer.ABORT:
        message = f"aborted: {because}"
        raise ApprovalAborted(message)
    if approval.answer == Answer.DENY:
        message = f"not approved: {because}"
        raise ApprovalRefused(message)
    if approval.plan_digest != plan.digest:
        message = f"the approval is for plan {approval.plan_digest[:12]}, not for {plan.digest[:12]}"
        raise ApprovalRefused(message)
