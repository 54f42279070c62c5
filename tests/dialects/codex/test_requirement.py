"""What `codex.requirement` promises: the contract's matrix, and no command that slips in beside an allowed one."""

from __future__ import annotations

import itertools

import pytest

from provider.dialects.codex.execrules import Rules, parse_rules
from provider.dialects.codex.requirement import (
    ASKED_BY_RULE,
    EMPTY_PATCH,
    FORBIDDEN_BY_RULE,
    PATCH_OUTSIDE,
    RETRY,
    AskForApproval,
    Forbidden,
    NeedsApproval,
    Requirement,
    SandboxPolicy,
    Setting,
    Skip,
    after_denial,
    command_key,
    default_requirement,
    escalation_guard,
    patch_key,
    patch_requirement,
    requirement,
)

UNTRUSTED, ON_FAILURE, ON_REQUEST, NEVER = AskForApproval
FULL, READ_ONLY, WRITE, EXTERNAL = SandboxPolicy
CONFINED = (READ_ONLY, WRITE)
ASK = NeedsApproval()


def bash(script: str) -> list[str]:
    return ["bash", "-lc", script]


def rules(*lines: str) -> Rules:
    return parse_rules("\n".join(f"prefix_rule({line})" for line in lines), name="test.rules")


WRITES = bash("echo hi > /outside/file")
FETCH = bash("curl http://127.0.0.1/")
SAFE = bash("echo x")

# Policies, sandboxes, command, escalated -> what is required first, and what before a retry. The number is the row.
COMMAND_ROWS = {
    1: ((ON_REQUEST, ON_FAILURE, NEVER), (FULL,), WRITES, False, Skip()),
    2: ((UNTRUSTED,), (FULL,), WRITES, False, ASK),
    3: ((UNTRUSTED, ON_REQUEST, NEVER), tuple(SandboxPolicy), SAFE, False, Skip()),
    4: ((ON_REQUEST,), CONFINED, WRITES, True, ASK),
    5: ((ON_REQUEST,), CONFINED, FETCH, False, Skip()),
    6: ((ON_REQUEST,), (READ_ONLY,), FETCH, True, ASK),
    7: ((ON_REQUEST,), (WRITE,), FETCH, False, Skip()),
    8: ((ON_FAILURE,), CONFINED, WRITES, False, Skip()),
    9: ((UNTRUSTED,), CONFINED, WRITES, False, ASK),
    10: ((NEVER,), CONFINED, WRITES, False, Skip()),
    15: ((ON_REQUEST,), (FULL,), ["git", "reset", "--hard"], False, ASK),
}
RETRIES = {5: None, 8: NeedsApproval(RETRY), 9: Skip(), 10: None}
PATCH_ROWS = {
    11: (UNTRUSTED, WRITE, True, ASK),
    12: (ON_REQUEST, FULL, False, Skip()),
    13: (ON_REQUEST, WRITE, False, ASK),
    14: (NEVER, WRITE, False, Forbidden(PATCH_OUTSIDE)),
}


@pytest.mark.parametrize("row", COMMAND_ROWS)
def test_matrix_of_commands(row: int):
    """What is asked before a command runs, for every combination that a row names."""
    policies, sandboxes, argv, escalated, expected = COMMAND_ROWS[row]
    for approval, sandbox in itertools.product(policies, sandboxes):
        assert requirement(argv, Setting(approval=approval, sandbox=sandbox), escalated=escalated) == expected


@pytest.mark.parametrize("row", RETRIES)
def test_matrix_of_retries(row: int):
    """What is asked once the sandbox has denied the command of a row."""
    policies, *_, expected = COMMAND_ROWS[row]
    assert after_denial(policies[0], approved=expected == ASK) == RETRIES[row]


@pytest.mark.parametrize("row", PATCH_ROWS)
def test_matrix_of_patches(row: int):
    """What is asked before a patch is applied."""
    approval, sandbox, inside, expected = PATCH_ROWS[row]
    assert patch_requirement(Setting(approval=approval, sandbox=sandbox), empty=False, inside=inside) == expected


def test_the_matrix_is_whole():
    """All fifteen rows of the contract are here."""
    assert sorted(COMMAND_ROWS | PATCH_ROWS) == list(range(1, 16))


@pytest.mark.parametrize(
    ("approval", "name"), [(UNTRUSTED, "UnlessTrusted"), (ON_FAILURE, "OnFailure"), (NEVER, "Never")]
)
def test_the_guard_says_its_sentence(approval: AskForApproval, name: str):
    """Wider permissions can be asked for under one policy; under the others nothing runs, not even what is safe."""
    sentence = (
        f"approval policy is {name}; reject command \u2014 you should not ask for escalated permissions "
        f"if the approval policy is {name}"
    )
    assert escalation_guard(approval, escalated=True) == sentence
    assert requirement(SAFE, Setting(approval=approval), escalated=True) == Forbidden(sentence)
    assert escalation_guard(approval, escalated=False) == ""


def test_the_guard_lets_requests_through():
    """On request is the policy that escalation is for."""
    assert escalation_guard(ON_REQUEST, escalated=True) == ""
    assert ON_REQUEST.debug_name == "OnRequest"


@pytest.mark.parametrize(
    ("argv", "sandbox", "escalated", "expected"),
    [
        (["make"], WRITE, False, Skip()),
        (["make"], WRITE, True, ASK),
        (["make"], FULL, True, Skip()),
        (["make"], EXTERNAL, True, ASK),
        (["make"], EXTERNAL, False, Skip()),
        (["rm", "-rf", "x"], WRITE, False, ASK),
        (["rm", "-rf", "x"], FULL, False, ASK),
        (["rm", "-rf", "x"], EXTERNAL, False, ASK),
        (bash("ls && rm -fr x"), WRITE, False, ASK),
        (bash("for i in a; do rm -rf $i; done"), WRITE, False, ASK),
        (["ls"], WRITE, False, Skip()),
        (["ls"], WRITE, True, ASK),  # the first version asked nothing
        (bash("ls | wc -l"), READ_ONLY, True, ASK),
        (["ls"], FULL, True, Skip()),
    ],
)
def test_on_request(argv: list[str], sandbox: SandboxPolicy, escalated: bool, expected: Requirement):
    """Asked about: what is dangerous, and what would widen the sandbox, however safe it looks."""
    assert expected == requirement(argv, Setting(sandbox=sandbox), escalated=escalated)


@pytest.mark.parametrize("approval", [NEVER, ON_FAILURE])
def test_dangerous_commands_run_where_nobody_is_asked(approval: AskForApproval):
    """In the sandbox, as the contract has it."""
    assert requirement(["rm", "-rf", "x"], Setting(approval=approval)) == Skip()


PUSH = 'pattern=["git", "push"], decision="{}"'
RULED = rules(
    'pattern=["make"]',
    PUSH.format("prompt"),
    'pattern=["git", "push", "--force"], decision="forbidden"',
    'pattern=["deploy"], decision="forbidden", justification="use the pipeline"',
    'pattern=["publish"], decision="prompt", justification="it is public"',
)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["make", "all"], Skip()),
        (["git", "push"], NeedsApproval(ASKED_BY_RULE)),
        (["git", "push", "--force"], Forbidden(FORBIDDEN_BY_RULE)),
        (["deploy", "a b"], Forbidden("`deploy 'a b'` rejected: use the pipeline")),
        (["publish"], NeedsApproval("`publish` requires approval: it is public")),
        (bash("make && git push"), NeedsApproval(ASKED_BY_RULE)),
        (bash("git push && deploy"), Forbidden("`deploy` rejected: use the pipeline")),
        # An allowed command does not carry along what no rule speaks of.
        (bash("make && touch x"), ASK),
        (bash("make && ls"), Skip()),
        (bash("make; make x"), Skip()),
        (["touch", "x"], ASK),
        # Rules that restrict are held against everything that would run.
        (["/usr/bin/git", "push"], NeedsApproval(ASKED_BY_RULE)),
        (["sudo", "deploy"], Forbidden("`deploy` rejected: use the pipeline")),
        (bash("make > log; deploy"), Forbidden("`deploy` rejected: use the pipeline")),
        (bash("for i in 1 2; do deploy; done"), Forbidden("`deploy` rejected: use the pipeline")),
        (bash("echo $(deploy)"), Forbidden("`deploy` rejected: use the pipeline")),
        (bash("sh -c 'deploy'"), Forbidden("`deploy` rejected: use the pipeline")),
        (bash("deploy $X"), Forbidden("`deploy` rejected: use the pipeline")),
        # Where only the shell knows, it is a question.
        (bash("git $X"), NeedsApproval(ASKED_BY_RULE)),
        (bash("$X y"), NeedsApproval(ASKED_BY_RULE)),
        (bash("ls; if"), NeedsApproval(ASKED_BY_RULE)),
        # An allow rule is about the program as it is written, and not about what is inside a wrapper.
        (["./make"], ASK),
        (["sudo", "make"], ASK),
        (bash("make > log"), ASK),
    ],
)
def test_rules_under_untrusted(argv: list[str], expected: Requirement):
    """The strictest decision over every command, with a reason where a rule is the cause."""
    assert expected == requirement(argv, Setting(approval=UNTRUSTED, rules=RULED))


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["git", "push"], Forbidden(ASKED_BY_RULE)),
        (["publish"], Forbidden("`publish` requires approval: it is public")),
        (["deploy"], Forbidden("`deploy` rejected: use the pipeline")),
        (["make"], Skip()),
        (["touch", "x"], Skip()),
        (bash("$X"), Forbidden(ASKED_BY_RULE)),
    ],
)
def test_rules_under_never(argv: list[str], expected: Requirement):
    """A question that nobody may be asked is a no."""
    assert expected == requirement(argv, Setting(approval=NEVER, rules=RULED))


def test_unreadable_text_without_restricting_rules():
    """It is the sandbox's business, unless the policy trusts nothing."""
    allow = rules('pattern=["make"]')
    assert requirement(bash("if; $X"), Setting(rules=allow)) == Skip()
    assert requirement(bash("if; $X"), Setting(approval=UNTRUSTED, rules=allow)) == ASK


def test_a_rule_about_the_shell_is_not_about_plain_scripts():
    """Otherwise `bash` could not be named in a rule without stopping every script."""
    setting = Setting(rules=rules('pattern=["bash"], decision="forbidden"'))
    assert requirement(bash("ls"), setting) == Skip()
    assert requirement(bash("ls > x"), setting) == Forbidden(FORBIDDEN_BY_RULE)
    assert requirement(bash("bash x.sh"), setting) == Forbidden(FORBIDDEN_BY_RULE)


def test_an_allow_rule_covers_wider_permissions():
    """Where every command has one; a known-safe command beside it is asked about."""
    setting = Setting(rules=rules('pattern=["make"]'))
    assert requirement(["make"], setting, escalated=True) == Skip()
    assert requirement(bash("make && ls"), setting, escalated=True) == ASK


def test_a_dangerous_command_can_be_allowed():
    """Who writes the rule knows what it says."""
    setting = Setting(rules=rules('pattern=["rm", "-rf", "build"]'))
    assert requirement(["rm", "-rf", "build"], setting) == Skip()
    assert requirement(bash("rm -rf build; rm -rf src"), setting) == ASK


@pytest.mark.parametrize(
    ("approval", "approved", "patch", "expected"),
    [
        (NEVER, True, False, None),
        (ON_REQUEST, True, False, None),
        (ON_FAILURE, False, False, NeedsApproval(RETRY)),
        (ON_FAILURE, True, False, Skip()),
        (UNTRUSTED, True, False, Skip()),
        (UNTRUSTED, False, False, NeedsApproval(RETRY)),
        (NEVER, True, True, None),
        (ON_REQUEST, False, True, NeedsApproval(RETRY)),
        (ON_REQUEST, True, True, Skip()),
    ],
)
def test_after_denial(approval: AskForApproval, approved: bool, patch: bool, expected: Requirement | None):
    """A retry only under the policies that allow it, and not without a yes."""
    assert expected == after_denial(approval, approved=approved, patch=patch)


@pytest.mark.parametrize(
    ("approval", "sandbox", "expected"),
    [
        (NEVER, WRITE, Skip()),
        (ON_FAILURE, READ_ONLY, Skip()),
        (ON_REQUEST, FULL, Skip()),
        (ON_REQUEST, WRITE, ASK),
        (UNTRUSTED, FULL, ASK),
    ],
)
def test_default_requirement(approval: AskForApproval, sandbox: SandboxPolicy, expected: Requirement):
    """For tools without a decision of their own."""
    assert expected == default_requirement(Setting(approval=approval, sandbox=sandbox))


@pytest.mark.parametrize(
    ("approval", "empty", "inside", "expected"),
    [
        (NEVER, True, True, Forbidden(EMPTY_PATCH)),
        (UNTRUSTED, True, True, Forbidden(EMPTY_PATCH)),
        (ON_FAILURE, False, False, Skip()),
        (ON_REQUEST, False, True, Skip()),
        (NEVER, False, True, Skip()),
    ],
)
def test_patches(approval: AskForApproval, empty: bool, inside: bool, expected: Requirement):
    """Nothing is asked where the patch stays inside, unless nothing is trusted."""
    assert expected == patch_requirement(Setting(approval=approval), empty=empty, inside=inside)


def key(*argv: str, cwd: str = "/workspace", escalated: bool = False) -> str:
    return command_key(argv, cwd, escalated=escalated)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (key("bash", "-lc", "make x"), key("/bin/bash", "-lc", "make x")),
        (key("bash", "-lc", "make x"), key("make", "x")),
        (key("bash", "-lc", "make 'x'"), key("sh", "-c", "make x")),
        (key("bash", "-lc", "a && b"), key("/usr/bin/bash", "-lc", "a && b")),
    ],
)
def test_one_yes_covers_the_same_command(one: str, other: str):
    """In whichever shell it was wrapped, and however it was quoted."""
    assert one == other


@pytest.mark.parametrize(
    "other",
    [
        key("bash", "-lc", "a && c"),
        key("bash", "-c", "a && b"),
        key("sh", "-lc", "a && b"),
        key("./bash", "-lc", "a && b"),
        key("bash", "-lc", "a && b", cwd="/workspace/x"),
        key("bash", "-lc", "a && b", escalated=True),
        key("script", "bash", "-lc", "a && b"),
        key("a"),
        patch_key("a && b", "/workspace"),
    ],
)
def test_one_yes_covers_nothing_else(other: str):
    """Another text, shell, flag, folder or permission is another question."""
    assert key("bash", "-lc", "a && b") != other


def test_patch_keys():
    """A patch is the same in the same folder only."""
    assert patch_key("p", "/a") == patch_key("p", "/a")
    assert len({patch_key("p", "/a"), patch_key("p", "/b"), patch_key("q", "/a")}) == 3
