"""From payload to `Asked`: every check of the contract, in its order. Only files' names are looked at; nothing runs."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from provider.dialects.contract import Asked, Context, Rejected
from provider.dialects.shell_cmd import rules, words
from provider.dialects.shell_cmd.call import Call, read_call
from provider.dialects.shell_cmd.layers import layers
from provider.dialects.shell_cmd.risk import LOW, Risk, Tier, assess
from provider.model import Decision, Verdict
from provider.policy.scope import Scope

Permission = Literal["read", "ask", "auto"]
ASK_TAG: Final = "ask-permission"
AI_COMMANDS: Final = frozenset({"gemini", "copilot", "codex"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A call and what was found out about it."""

    call: Call
    trusted: Path
    directory: str = "."
    risk: Risk = LOW
    by_permission: bool = False
    """Somebody is asked because the permission level says so, and not for a risk."""
    artifacts: tuple[tuple[str, str], ...] = ()
    """Each as it was given, and relative to the trusted directory."""

    @property
    def reason(self) -> str:
        """Why somebody is asked, or why nobody is."""
        return words.ASK_REASON if self.by_permission else self.risk.reason

    @property
    def is_ai(self) -> bool:
        """An assistant of its own, whose answer is worth more than a report about it."""
        return self.program_word in AI_COMMANDS

    @property
    def program_word(self) -> str:
        return next(iter(self.call.command.lower().split()), "")


def parse(payload: object, context: Context, permission: Permission = "auto") -> Asked:
    """
    Read a call and judge it.

    Raises:
        Rejected: the contract turns it away.
    """
    return judge(read_call(payload), context, permission)


def judge(call: Call, context: Context, permission: Permission) -> Asked:
    """Raises Rejected."""
    trusted = Path(os.path.realpath(context.workspace))
    # The tier comes first, so that no other refusal hides it; the command may still be anything here.
    tokens = [rules.unquoted(token) for token in call.command.split()]
    _assess((*tokens, *call.parameters), trusted)
    directory = rules.check_directory(call.directory, trusted)
    scope = rules.scope_of(trusted, directory)
    if len(tokens) == 1:
        rules.check_relative_executable(tokens[0], scope, trusted)
    program = rules.executable(call.command)
    rules.check_parameters(call.parameters)
    rules.check_inline(list(layers((program, *call.parameters))), trusted)
    rules.check_absolute_executable(program, scope, trusted)
    rules.check_paths(call.parameters, scope, trusted)
    artifacts = rules.check_artifacts(call.artifact_paths, trusted)
    if permission == "read":
        raise Rejected(words.READ_ONLY)
    risk = _assess((program, *call.parameters), trusted)
    case = Case(
        call=call,
        trusted=trusted,
        directory=directory,
        risk=risk,
        by_permission=permission == "ask" and risk.tier is Tier.ALLOW,
        artifacts=artifacts,
    )
    return Asked(
        argv=tuple(rules.translated(word, scope) for word in (program, *call.parameters)),
        wishes={
            "cwd": directory,
            "timeout": call.timeout_ms / 1000,
            "artifacts": tuple(dict.fromkeys(glob.escape(path) for _, path in artifacts)),
        },
        judged=_verdict(case),
        call=case,
    )


def _assess(argv: Sequence[str], trusted: Path) -> Risk:
    """Raises Rejected for what nobody may approve."""
    risk = assess(list(layers(argv)), (trusted, Path(Scope(root=trusted).mount)))
    if risk.tier is Tier.BLOCK:
        raise Rejected(words.blocked(risk.reason))
    return risk


def _verdict(case: Case) -> Verdict:
    asks = case.by_permission or case.risk.tier is Tier.HITL_REQUIRED
    return Verdict(decision=Decision.ASK if asks else Decision.ALLOW, reasons=(case.reason,))
