"""What `provider.approval` promises: nobody is asked without need, and a yes is to one plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from provider.approval import Answer, Grants, Question, allow_all, allow_if, check, decide, refuse_all
from provider.errors import ApprovalAborted, ApprovalRefused, PolicyRefused
from provider.model import Approval, Decision, Plan, Verdict

ASK = Verdict(decision=Decision.ASK, reasons=("it writes", "it is new"))
Planned = Callable[..., Plan]


class Asked:
    """An approver with one answer, which remembers what it saw."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[Question] = []

    async def __call__(self, question: Question) -> Answer:
        self.seen.append(question)
        return self.answer


def about(plan: Plan, verdict: Verdict = ASK, **parts: object) -> Question:
    return Question(**{"run_id": "r", "session": "s", "plan": plan, "verdict": verdict, **parts})


async def test_an_allowed_plan_is_approved_by_policy(planned: Planned):
    """Where the policy says yes, nobody is asked, and the approval says whose it is."""
    approver, plan = Asked(Answer.DENY), planned()
    approval = await decide(approver, about(plan, Verdict(decision=Decision.ALLOW)), Grants(), seconds=1)
    assert (approval.by, approval.answer, approval.plan_digest, approver.seen) == ("policy", "once", plan.digest, [])


async def test_a_refused_plan_is_shown_to_nobody(planned: Planned):
    """No approver can overrule the policy, and the error says why it is no."""
    approver = Asked(Answer.ONCE)
    with pytest.raises(PolicyRefused, match="a; b"):
        await decide(
            approver, about(planned(), Verdict(decision=Decision.REFUSE, reasons=("a", "b"))), Grants(), seconds=1
        )
    assert approver.seen == []


async def test_an_approver_sees_exactly_what_will_run(planned: Planned):
    """The plan and the reasons for asking are put before it, and its yes names that plan's digest."""
    approver, plan = Asked(Answer.ONCE), planned(argv=("rm", "-r", "x"))
    approval = await decide(approver, about(plan), Grants(), seconds=1)
    assert [(question.plan, question.verdict) for question in approver.seen] == [(plan, ASK)]
    assert approval.plan_digest == plan.digest != planned(argv=("rm", "-r", "y")).digest
    assert plan.digest in approver.seen[0].text
    assert "it writes; it is new" in approver.seen[0].text


async def test_a_decision_carries_the_approvers_name(planned: Planned):
    """The receipt will say who."""

    async def ann(question: Question) -> Answer:
        return Answer.ONCE

    assert (await decide(ann, about(planned()), Grants(), seconds=1)).by == "ann"


@pytest.mark.parametrize("approver", [refuse_all, Asked(Answer.DENY), allow_if(lambda question: False)])
async def test_a_no_is_a_refusal(planned: Planned, approver: Asked):
    """Declined, or with nobody to ask: nothing runs, and the reasons are told."""
    plan = planned()
    approval = await decide(approver, about(plan), Grants(), seconds=1)
    with pytest.raises(ApprovalRefused, match="it writes; it is new"):
        check(approval, plan, ASK)


async def test_an_abort_is_more_than_a_no(planned: Planned):
    """Whoever drives the conversation can tell it from a no."""
    plan = planned()
    approval = await decide(Asked(Answer.ABORT), about(plan), Grants(), seconds=1)
    with pytest.raises(ApprovalAborted):
        check(approval, plan, ASK)


async def test_no_answer_in_time_is_a_no(planned: Planned):
    """An approver that went home does not hold a run up for ever."""

    async def asleep(question: Question) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    plan = planned()
    approval = await decide(asleep, about(plan), Grants(), seconds=0.01)
    assert (approval.by, approval.answer) == ("nobody, in time", "deny")


@pytest.mark.parametrize("answer", ["yes", True, None, ""])
async def test_what_is_no_answer_is_no_yes(planned: Planned, answer: object):
    """An approver with a mistake in it approves nothing."""
    with pytest.raises(ValueError, match="Answer"):
        await decide(Asked(answer), about(planned()), Grants(), seconds=1)


async def test_a_yes_to_one_plan_is_none_to_another(planned: Planned):
    """One changed byte after a yes is a no."""
    approval = await decide(allow_all, about(planned(argv=("rm", "a"))), Grants(), seconds=1)
    with pytest.raises(ApprovalRefused, match="not for"):
        check(approval, planned(argv=("rm", "b")), ASK)


async def test_a_rule_can_approve(planned: Planned):
    """Where it says yes nobody else is asked; where it does not, the next approver is."""
    other = Asked(Answer.DENY)
    approver = allow_if(lambda question: question.plan.exec.argv[0] == "ls", other)
    for program, answer in (("ls", "once"), ("rm", "deny")):
        assert (await decide(approver, about(planned(argv=(program,))), Grants(), seconds=1)).answer == answer
    assert len(other.seen) == 1


async def test_a_session_grant_covers_what_is_remembered(planned: Planned):
    """Only when all of it is, only in that session, and not once it is dropped."""
    grants, plan = Grants(), planned()
    first = await decide(Asked(Answer.SESSION), about(plan, remember=("git", "ls")), grants, seconds=1)
    assert first == Approval(by="Asked", answer="session", plan_digest=plan.digest, remembered=("git", "ls"))
    never = Asked(Answer.DENY)
    for parts, expected in [
        ({"remember": ("git",)}, "session"),
        ({"remember": ("git", "rm")}, "deny"),
        ({"remember": ()}, "deny"),
        ({"remember": ("git",), "session": "other"}, "deny"),
    ]:
        assert (await decide(never, about(plan, **parts), grants, seconds=1)).answer == expected
    grants.drop("s")
    assert (await decide(never, about(plan, remember=("git",)), grants, seconds=1)).answer == "deny"


async def test_a_session_grant_expires(planned: Planned):
    """A yes of this morning is none for tonight."""
    question = about(planned(), remember=("git",))
    for seconds, covers in ((3600.0, True), (0.0, False)):
        grants = Grants(seconds=seconds)
        await decide(Asked(Answer.SESSION), question, grants, seconds=1)
        assert grants.cover(question) == covers


async def test_a_single_yes_is_not_remembered(planned: Planned):
    """Once is once."""
    grants, question = Grants(), about(planned(), remember=("git",))
    await decide(Asked(Answer.ONCE), question, grants, seconds=1)
    assert not grants.cover(question)
    assert not grants.cover(replace(question, remember=()))
