"""A program that is allowed for reading is not allowed, for that, to run other programs. No engine is needed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from attacks.cases.programs import ALLOWED_BY, ALONE, PROGRAMS

from provider.dialects.codex.execrules import PrefixRule
from provider.dialects.codex.requirement import AskForApproval, NeedsApproval, Setting, Skip, requirement
from provider.dialects.codex.safety import is_known_safe
from provider.dialects.contract import Context, Rejected
from provider.dialects.helix.allowlist import admit
from provider.dialects.helix.config import ShellConfig
from provider.dialects.run_shell_command.lists import Lists, Prefix, judge
from provider.dialects.shell_cmd.parse import parse
from provider.model import Decision
from provider.policy.rules import Rules, parse_policy

RUNS = [text for program in PROGRAMS for text in program.runs]
WRITES = [text for program in PROGRAMS for text in program.writes]
PLAIN = [program.plain for program in PROGRAMS]
WANTED = 120

pytestmark = pytest.mark.attack("E31")


def first(text: str) -> str:
    return shlex.split(text)[0]


def rules_for(text: str) -> Rules:
    """An operator's rule that allows the program, by its name and whatever its options."""
    rule = {
        "name": "reading",
        "decision": "allow",
        "because": "it reads",
        "program": first(text),
        "matches": f"{first(text)} x",
    }
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in rule.items())
    return parse_policy(f'default = "ask"\n[[rule]]\n{lines}')


def test_the_table_is_long_enough_to_mean_something() -> None:
    """And no row stands in it twice."""
    assert len(RUNS) == len(set(RUNS)) >= WANTED
    assert set(RUNS) >= ALONE
    assert all(ALLOWED_BY.values())


@pytest.mark.parametrize("text", RUNS)
def test_rules_ask(text: str) -> None:
    """A rule that allows a program says nothing of the programs that this one is told to run."""
    assert rules_for(text).judge_text(text).decision is Decision.ASK
    assert rules_for(text).judge_argv(shlex.split(text)).decision is Decision.ASK


@pytest.mark.parametrize("text", RUNS)
def test_lists_ask(text: str) -> None:
    """Nor does an allow list of one word, in `run_shell_command`."""
    assert judge(text, Lists(allow=(Prefix((first(text),)),))).verdict.decision is Decision.ASK


@pytest.mark.parametrize("text", RUNS)
def test_shell_cmd_asks_or_refuses(text: str, tmp_path: Path) -> None:
    """It runs single commands by themselves, but not what runs something that cannot be read."""
    command, *parameters = shlex.split(text)
    try:
        asked = parse({"command": command, "parameters": parameters}, Context(workspace=tmp_path))
    except Rejected:
        assert text not in ALONE
        return
    assert asked.judged
    assert (asked.judged.decision is Decision.ALLOW) == (text in ALONE)


@pytest.mark.parametrize("text", [*RUNS, *WRITES])
def test_codex_does_not_know_it_to_be_safe(text: str) -> None:
    """Neither what runs something nor what writes a file is among the commands that only look."""
    words = shlex.split(text)
    assert not is_known_safe(words)
    assert not is_known_safe(("bash", "-lc", text))
    assert isinstance(requirement(words, Setting(approval=AskForApproval.UNTRUSTED)), NeedsApproval)


@pytest.mark.parametrize("text", PLAIN)
def test_the_plain_program_is_allowed(text: str) -> None:
    """Which is what makes the rows above mean something."""
    assert rules_for(text).judge_text(text).decision is Decision.ALLOW
    assert judge(text, Lists(allow=(Prefix((first(text),)),))).verdict.decision is Decision.ALLOW


def test_what_contracts_let_pass_by_their_own_words() -> None:
    """As `ALLOWED_BY` says; were one to become stricter, this would be the place to say so."""
    assert admit("git -c core.pager=sh log", ShellConfig(allowed_commands=("git",)))
    setting = Setting(approval=AskForApproval.UNTRUSTED, rules=(PrefixRule(pattern=(("git",),)),))
    assert isinstance(requirement(("git", "-c", "core.pager=sh", "log"), setting), Skip)
    assert rules_for("sort -o x f").judge_text("sort -o x f").decision is Decision.ALLOW
    assert rules_for("make test").judge_text("make test").decision is Decision.ALLOW
