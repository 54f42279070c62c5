"""
judge(): may this request run at all? Pure.

An intent filter with a reason for every no; the container is the boundary. The strictest rule wins.

`rules.py` judges commands by rule files; it stands on `syntax.py` (shell text to commands, by `reader.py` and a second
opinion) and `known.py` (what runs something else). `scope.py` is about paths, `env.py` about variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from provider.model import Decision, Request, Verdict
from provider.settings import Settings

if TYPE_CHECKING:
    from provider.policy.rules import Rules


def judge(request: Request, settings: Settings, rules: Rules | None = None) -> Verdict:
    asked = request.judged.decision if request.judged else Decision.ALLOW
    findings = list(_findings(request, settings))
    if rules:
        ruling = rules.judge_text(request.script) if request.script else rules.judge_argv(request.argv)
        findings += [(ruling.decision, reason) for reason in ruling.verdict().reasons]
    return Verdict(
        decision=max([asked, *(decision for decision, _ in findings)]),
        reasons=tuple(reason for _, reason in findings),
    )


def _findings(request: Request, settings: Settings) -> Iterator[tuple[Decision, str]]:
    if request.judged:
        yield from ((request.judged.decision, reason) for reason in request.judged.reasons)
    uid = request.user.partition(":")[0]
    if uid.isdecimal() and not any(map(int, uid)) and not settings.allow_root:  # 00 is root as well
        reason = "it would run as uid 0, and allow_root is off; give the workspace to a user, or name one as uid:gid"
        yield Decision.REFUSE, reason
