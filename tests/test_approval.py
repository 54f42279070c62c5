"""What `provider.approval` promises: nobody is asked without need, and a yes is to one plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provider.approval import approve, refuse_all
from provider.errors import ApprovalRefused, PolicyRefused
from provider.model import Decision, Plan, Verdict

ASK = Verdict(decision=Decision.ASK, reasons=("it writes", "it is new"))
Planned = Callable[..., Plan]


class Asked:
    """An approver with one answer, which remembers what it saw."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.seen: list[tuple[Plan, Verdict]] = []

    async def __call__(self, plan: Plan, verdict: Verdict) -> bool:
        self.seen.append((plan, verdict))
        return self.answer


async def test_an_allowed_plan_is_approved_by_policy(planned: Planned):
    """Where the policy says yes, nobody is asked, and the approval says whose it is."""
    approver, plan = Asked(answer=False), planned()
    approval = await approve(approver, plan, Verdict(decision=Decision.ALLOW))
    assert (approval.by, approval.plan_digest, approver.seen) == ("policy", plan.digest, [])


async def test_a_refused_plan_is_shown_to_nobody(planned: Planned):
    """No approver can overrule the policy, and the error says why it is no."""
    approver = Asked(answer=True)
    with pytest.raises(PolicyRefused, match="a; b"):
        await approve(approver, planned(), Verdict(decision=Decision.REFUSE, reasons=("a", "b")))
    assert approver.seen == []


async def test_an_approver_sees_exactly_what_will_run(planned: Planned):
    """The plan and the reasons for asking are put before it, and its yes names that plan's digest."""
    approver, plan = Asked(answer=True), planned(argv=("rm", "-r", "x"))
    approval = await approve(approver, plan, ASK)
    assert approver.seen == [(plan, ASK)]
    assert approval.plan_digest == plan.digest != planned(argv=("rm", "-r", "y")).digest


async def test_a_yes_carries_the_approvers_name(planned: Planned):
    """The receipt will say who."""

    async def ann(plan: Plan, verdict: Verdict) -> bool:
        return True

    assert (await approve(ann, planned(), ASK)).by == "ann"


@pytest.mark.parametrize("approver", [refuse_all, Asked(answer=False)])
async def test_a_no_is_a_refusal(planned: Planned, approver: Asked):
    """Declined, or with nobody to ask: nothing runs, and the reasons are told."""
    with pytest.raises(ApprovalRefused, match="it writes; it is new"):
        await approve(approver, planned(), ASK)
