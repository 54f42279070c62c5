"""approve(): a yes bound to one plan. Approvers are async functions; the default one, for headless runs, refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from provider.errors import ApprovalRefused, PolicyRefused
from provider.model import Approval, Decision, Plan, Verdict

Approver = Callable[[Plan, Verdict], Awaitable[bool]]


async def refuse_all(plan: Plan, verdict: Verdict) -> bool:  # noqa: ARG001 - the shape of an approver
    return False


async def approve(approver: Approver, plan: Plan, verdict: Verdict) -> Approval:
    """
    Ask where the verdict says so.

    Raises:
        PolicyRefused: the verdict is no; nobody is asked.
        ApprovalRefused: the approver said no.
    """
    because = "; ".join(verdict.reasons)
    if verdict.decision is Decision.REFUSE:
        raise PolicyRefused(because)
    if verdict.decision is Decision.ALLOW:
        return Approval(by="policy", plan_digest=plan.digest)
    if not await approver(plan, verdict):
        message = f"not approved: {because}"
        raise ApprovalRefused(message)
    return Approval(by=getattr(approver, "__name__", "approver"), plan_digest=plan.digest)
