"""
Whether a call runs, is asked about, or is refused: the contract's decisions as pure functions.

Rules come first, then what is known of the command, then the approval policy. Of several commands in one script the
strictest decision holds, so a command that a rule allows does not carry along one that no rule speaks of. A known-safe
command with wider permissions is asked about like any other.

Rules that restrict are held against everything a script would run, inside wrappers, loops and substitutions too. Where
only the shell knows whether one of them applies, or where the text cannot be read, it is a question.

Nothing here leads to the host. What the contract calls running without a sandbox is a wider profile of a container, and
`external-sandbox` has wider ones: there, other than in the contract, asking for more is a question as well.
"""

from __future__ import annotations

import enum
import itertools
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from provider.dialects.codex.execrules import Match, Rules, evaluate
from provider.dialects.codex.safety import is_dangerous, is_known_safe, plain_commands, program, script_of
from provider.model import Decision
from provider.policy.rules import Segment, segments_of

FORBIDDEN_BY_RULE: Final = "execpolicy forbids this command"
ASKED_BY_RULE: Final = "execpolicy requires approval for this command"
RETRY: Final = "command failed; retry without sandbox?"
EMPTY_PATCH: Final = "patch rejected: empty patch"
PATCH_OUTSIDE: Final = "patch rejected: writing outside of the project; rejected by user approval settings"


class AskForApproval(enum.StrEnum):
    UNTRUSTED = "untrusted"
    """Ask about everything that is not known to be safe."""
    ON_FAILURE = "on-failure"
    """Ask once the sandbox has denied something."""
    ON_REQUEST = "on-request"
    """Ask when the model wants more, and about what is dangerous."""
    NEVER = "never"

    @property
    def debug_name(self) -> str:
        """As the contract's messages have it."""
        return "UnlessTrusted" if self is AskForApproval.UNTRUSTED else self.value.title().replace("-", "")


class SandboxPolicy(enum.StrEnum):
    FULL_ACCESS = "danger-full-access"
    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    EXTERNAL = "external-sandbox"


@dataclass(frozen=True, slots=True)
class Skip:
    """Nobody is asked."""


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    reason: str = ""
    """Empty where the policy alone asks; the question then shows the model's own justification."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    reason: str
    """Goes to the model as it is."""


Requirement = Skip | NeedsApproval | Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the operator has decided for a turn."""

    approval: AskForApproval = AskForApproval.ON_REQUEST
    sandbox: SandboxPolicy = SandboxPolicy.WORKSPACE_WRITE
    rules: Rules = ()


def escalation_guard(approval: AskForApproval, *, escalated: bool) -> str:
    """Return why a call may not ask for wider permissions; empty when it may. Comes before everything else."""
    if not escalated or approval is AskForApproval.ON_REQUEST:
        return ""
    name = approval.debug_name
    return (
        f"approval policy is {name}; reject command — you should not ask for escalated permissions "
        f"if the approval policy is {name}"
    )


# Commands.


def requirement(argv: Sequence[str], setting: Setting, *, escalated: bool = False) -> Requirement:
    """What has to happen before a command runs."""
    if sentence := escalation_guard(setting.approval, escalated=escalated):
        return Forbidden(sentence)
    plain = plain_commands(argv)
    commands = plain or (tuple(argv),)
    # The shell around a script of plain commands is no command of its own, as the contract has it.
    inside = segments_of(argv)[1 if plain else 0 :]
    ruled = _ruled(commands, inside, setting)
    if ruled is not None:
        return ruled
    # Every command that no rule speaks of is judged by what is known of it. Those that a rule allows are done with.
    left = [command for command in commands if evaluate(setting.rules, [command]).decision is None]
    asks = any(_asks(command, setting, escalated=escalated) for command in left)
    return NeedsApproval() if asks else Skip()


def _ruled(commands: Sequence[Sequence[str]], inside: Sequence[Segment], setting: Setting) -> Requirement | None:
    """What the rules say where they restrict; None where they are silent or allow."""
    restricting = tuple(rule for rule in setting.rules if rule.decision is not Decision.ALLOW)
    if not restricting:
        return None
    found = evaluate(restricting, [*commands, *_known(inside)])
    match found.decision, found.decisive:
        case Decision.REFUSE, Match() as match:
            return Forbidden(_because(match, "rejected") or FORBIDDEN_BY_RULE)
        case Decision.ASK, Match() as match:
            return _question(_because(match, "requires approval") or ASKED_BY_RULE, setting)
        case _:
            return _question(ASKED_BY_RULE, setting) if _may_apply(restricting, inside) else None


def _known(inside: Sequence[Segment]) -> Iterator[tuple[str, ...]]:
    """Commands up to the first word that only the shell knows: enough for a rule about the words before it."""
    for segment in inside:
        known = itertools.takewhile(lambda word: word is not None, segment.argv)
        yield tuple(word for word in known if word is not None)


def _may_apply(rules: Rules, inside: Sequence[Segment]) -> bool:
    """Whether only the shell knows if one of these rules applies."""
    return any(
        bool(segment.unknown) or (bool(segment.argv) and rule.fits(segment.argv) is None)
        for segment in inside
        for rule in rules
    )


def _question(reason: str, setting: Setting) -> Requirement:
    """A rule's question, where nobody may be asked, is a no."""
    return Forbidden(reason) if setting.approval is AskForApproval.NEVER else NeedsApproval(reason)


def _because(match: Match, says: str) -> str:
    why = match.rule.justification
    return f"`{shlex.join(match.command)}` {says}: {why}" if why else ""


def _asks(command: Sequence[str], setting: Setting, *, escalated: bool) -> bool:
    """Whether the approval policy asks about a command that no rule speaks of."""
    widens = escalated and setting.sandbox is not SandboxPolicy.FULL_ACCESS
    if is_known_safe(command) and not widens:
        return False
    match setting.approval:
        case AskForApproval.NEVER | AskForApproval.ON_FAILURE:
            return False
        case AskForApproval.ON_REQUEST:
            return widens or is_dangerous(command)
        case AskForApproval.UNTRUSTED:
            return True


# After the sandbox has denied something.


def after_denial(approval: AskForApproval, *, approved: bool, patch: bool = False) -> Skip | NeedsApproval | None:
    """
    What has to happen before the one retry with a wider profile; None when there is none, and the denial is the result.

    `approved`: somebody has said yes to this call already.
    """
    final = {AskForApproval.NEVER} if patch else {AskForApproval.NEVER, AskForApproval.ON_REQUEST}
    if approval in final:
        return None
    return Skip() if approved else NeedsApproval(RETRY)


# Patches, and tools without a decision of their own.


def patch_requirement(setting: Setting, *, empty: bool, inside: bool) -> Requirement:
    """`inside`: every file it changes can be written under the sandbox policy."""
    if empty:
        return Forbidden(EMPTY_PATCH)
    if setting.approval is AskForApproval.UNTRUSTED:
        return NeedsApproval()
    writable = inside or setting.sandbox is SandboxPolicy.FULL_ACCESS
    if writable or setting.approval is AskForApproval.ON_FAILURE:
        return Skip()
    return Forbidden(PATCH_OUTSIDE) if setting.approval is AskForApproval.NEVER else NeedsApproval()


def default_requirement(setting: Setting) -> Requirement:
    """For tools that say nothing of themselves."""
    match setting.approval:
        case AskForApproval.NEVER | AskForApproval.ON_FAILURE:
            return Skip()
        case AskForApproval.ON_REQUEST:
            return Skip() if setting.sandbox is SandboxPolicy.FULL_ACCESS else NeedsApproval()
        case AskForApproval.UNTRUSTED:
            return NeedsApproval()


# What a yes for the session covers.


def command_key(argv: Sequence[str], cwd: str, *, escalated: bool) -> str:
    """
    The same for commands that are the same: one plain command is its words, in whichever shell it was wrapped.

    Any other script is its text, with the name of the shell but not its path, and the flag.
    """
    commands, text = plain_commands(argv), script_of(argv)
    if commands is not None and len(commands) == 1:
        command: Sequence[str] = ("argv", *commands[0])
    elif text is not None:
        command = ("script", program(argv), argv[1], text)
    else:
        command = ("argv", *argv)
    return _serialised({"command": list(command), "cwd": cwd, "escalated": escalated})


def patch_key(patch: str, cwd: str) -> str:
    return _serialised({"patch": patch, "cwd": cwd})


def _serialised(key: dict[str, object]) -> str:
    return json.dumps(key, sort_keys=True, separators=(",", ":"))
