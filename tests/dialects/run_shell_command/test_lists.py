"""Prefix rules, and what a yes for the session covers. The rows of the contract's tables are in test_verdicts.py."""

from __future__ import annotations

import pytest

from provider.dialects.run_shell_command.lists import Prefix, judge, parse_entry, parts
from provider.dialects.run_shell_command.table import Table
from provider.model import Decision

ALLOW, ASK, REFUSE = Decision.ALLOW, Decision.ASK, Decision.REFUSE


def entries(*prefixes):
    return [f"run_shell_command({prefix})" for prefix in prefixes]


def judged(command, **table):
    return judge(command, Table.model_validate(table).lists)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("run_shell_command", ()),
        (" ShellTool ", ()),
        ("run_shell_command(git)", ("git",)),
        ("ShellTool(git  push)", ("git", "push")),
        ("run_shell_command(git commit -m 'a b')", ("git", "commit", "-m", "a b")),
    ],
)
def test_entries(entry, words):
    """The tool under either name, alone or with a prefix."""
    assert parse_entry(entry) == Prefix(words)


@pytest.mark.parametrize(
    "entry", ["", "git", "run_shell_command()", "run_shell_command(git", "read_file", "run_shell_command(')"]
)
def test_an_entry_that_is_none_says_what_would_be_right(entry):
    """A rule that could never match is a mistake of the operator, and told at once."""
    with pytest.raises(ValueError, match=r"run_shell_command\(prefix\)"):
        parse_entry(entry)


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("git", ALLOW),
        ("git  status", ALLOW),
        ("gitk", ASK),
        ("git-shell", ASK),
        ("./git", ASK),
        ("/usr/bin/git log", ASK),
        ("g''it log", ALLOW),
        ("git log && git diff", ALLOW),
        ("time git log", ALLOW),
        ("timeout 5 git log", ALLOW),
        ("A=1 git log", ALLOW),
        ("PATH=. git log", ASK),
        ("GIT_PAGER='sh x' git log", ASK),
        ("LD_PRELOAD=./x git log", ASK),
        ("env LD_PRELOAD=./x git log", ASK),
        ("git -c core.pager=x log", ASK),
        ("git $x", ASK),
        ("git log > x", ASK),
        ("git log >> x", ASK),
        ("git log &> x", ASK),
        ("git log < x", ALLOW),
        ("git log 2>&1", ALLOW),
        ("> x", ASK),
        ("x=1", ALLOW),
        ("git log; $x", ASK),
        ("((1)); git log", ASK),
    ],
)
def test_allow_git(command, wanted):
    """A prefix covers whole words of the program as written, and nothing that rides along."""
    assert judged(command, core_tools=entries("git")).verdict.decision is wanted


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("git push", REFUSE),
        ("git  push  origin", REFUSE),
        ("/usr/bin/git push", REFUSE),
        ("git pushx", ALLOW),
        ("git pull", ALLOW),
        ("git $x", ASK),
        ('git "pu$x"', ASK),
        ('git "x$x"', ALLOW),
        ("xargs git", ASK),
        ("echo git push", ALLOW),
        ("echo 'git push'", ALLOW),
        ("git\npush", ALLOW),
    ],
)
def test_deny_git_push(command, wanted):
    """What only the shell knows may be the denied command, and is asked about."""
    assert judged(command, exclude_tools=entries("git push")).verdict.decision is wanted


@pytest.mark.parametrize(
    ("command", "wanted"),
    [("bash x.sh", ALLOW), ('bash -c "$x"', ASK), ("bash -c 'ls'", ASK), ("python3 -c '1'", ALLOW)],
)
def test_evaluation_needs_a_rule_of_its_own(command, wanted):
    """`(bash)` covers scripts, but not text that nobody can read; `(python3 -c)` says that text is wanted."""
    assert judged(command, core_tools=entries("bash", "python3 -c")).verdict.decision is wanted


def test_a_script_is_covered_by_an_allow_rule_under_a_deny_list():
    """Where everything but rm is allowed, a script is asked about unless it is named."""
    table = {"core_tools": ["run_shell_command", *entries("./configure")], "exclude_tools": entries("rm")}
    assert judged("./configure --x", **table).verdict.decision is ALLOW
    assert judged("./other", **table).verdict.decision is ASK
    assert judged("make", **table).verdict.decision is ALLOW


def test_confirm_asks_about_everything_that_is_not_listed():
    """Also without an allow list, in the contract's other words."""
    verdict = judged("git status | wc", confirm=True).verdict
    assert verdict.decision is ASK
    assert verdict.reasons == (
        'Command(s) not on the global or session allowlist. Disallowed commands: "git status", "wc"',
    )
    assert judged("ls", confirm=True, core_tools=["run_shell_command"]).verdict.decision is ALLOW


@pytest.mark.parametrize(
    ("command", "remember"),
    [
        ("git status && npm test", ("git", "npm")),
        ("git status; git log", ("git",)),
        ("echo a | tee x", ("tee",)),
        ("npm test > log", ("npm", "npm >")),
        ("python3 -c '1'", ("python3 -c", "python3")),
        ("bash x.sh", ("bash",)),
    ],
)
def test_always_covers_the_roots_that_were_asked_about(command, remember):
    """Redirection and evaluation are remembered separately from the program."""
    assert judged(command, core_tools=entries("echo")).remember == tuple(entries(*remember))


@pytest.mark.parametrize(
    "command", ["$x", "((i++))", 'eval "$x"', "PATH=. npm test", 'npm test; bash -c "$y"', "x='$(y)'; ((1))"]
)
def test_always_never_covers_what_cannot_be_read(command):
    """A yes to such a command counts once."""
    found = judged(command, core_tools=entries("echo"))
    assert (found.verdict.decision, found.remember) == (ASK, ())


def test_always_can_be_narrowed_to_the_very_command():
    """An operator who finds roots too coarse has it by the text."""
    table = {"core_tools": entries("echo"), "remember": "exact"}
    assert judged("git diff", **table).remember == ("run_shell_command(=git diff)",)
    assert judged("git diff", **table).remember != judged("git push", **table).remember


def test_a_maybe_of_the_deny_list_is_not_remembered():
    """`git $x` said yes to once must not open `git push` later."""
    assert judged("git $x", exclude_tools=entries("git push")).remember == ()


def test_parts_are_the_commands_that_count():
    """Wrappers are shown by what they run, keywords and assignments not at all."""
    assert parts("x=1; if true; then time ls -l; fi") == ("true", "ls -l")
