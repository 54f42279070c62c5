"""What `codex.execrules` promises: one form and no other, examples that hold, and additions that are whole."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.codex.execrules import (
    PrefixRule,
    Rules,
    evaluate,
    is_too_broad,
    load_rules,
    parse_rules,
    remember,
    rule_line,
)
from provider.errors import ConfigError
from provider.model import Decision

FILE = """
# What we think of git.
prefix_rule(
    pattern = ["git", ["push", "fetch"]],
    decision = "prompt",
    match = ["git push origin", ["git", "fetch"]],
    not_match = ["git status", ["git"]],
    justification = "the remote is shared",
)
prefix_rule(pattern=["git", "push", "--force"], decision="forbidden")
prefix_rule(pattern=[["ls", "cat"]])
"""


def parsed(text: str) -> Rules:
    return parse_rules(text, name="x.rules")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return str(caught.value)


def decision(text: str, *commands: str) -> Decision | None:
    return evaluate(parsed(text), [command.split() for command in commands]).decision


def test_a_file_of_rules():
    """Choices of the first word are rules of their own; later ones stay choices; allow is the default."""
    assert parsed(FILE) == (
        PrefixRule(pattern=(("git",), ("push", "fetch")), decision=Decision.ASK, justification="the remote is shared"),
        PrefixRule(pattern=(("git",), ("push",), ("--force",)), decision=Decision.REFUSE),
        PrefixRule(pattern=(("ls",),)),
        PrefixRule(pattern=(("cat",),)),
    )
    assert parsed("") == ()
    assert parsed("# nothing\n") == ()


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (["git push"], Decision.ASK),
        (["git fetch --all"], Decision.ASK),
        (["git push --force"], Decision.REFUSE),
        (["git push origin --force"], Decision.ASK),
        (["git"], None),
        (["git status"], None),
        (["gitpush"], None),
        (["cat x"], Decision.ALLOW),
        (["cat x", "git push"], Decision.ASK),
        (["cat x", "git push --force", "ls"], Decision.REFUSE),
        (["cat x", "make"], Decision.ALLOW),
        (["/usr/bin/git push"], Decision.ASK),
        (["./cat x"], None),
        (["/bin/ls"], None),
        ([], None),
    ],
)
def test_the_strictest_wins(commands: list[str], expected: Decision | None):
    """Across rules and commands; a rule that restricts follows the program, one that allows does not."""
    assert expected is decision(FILE, *commands)


def test_evaluation_as_json():
    """The contract's shape, with the words of the command."""
    rules = parsed(FILE)
    assert evaluate(rules, [["make"]]).as_json() == {"noMatch": {}}
    found = evaluate(rules, [["git", "push", "--force", "x"]]).as_json()
    expected = {
        "match": {
            "decision": "forbidden",
            "matchedRules": [
                {"prefixRuleMatch": {"matchedPrefix": ["git", "push"], "decision": "prompt"}},
                {"prefixRuleMatch": {"matchedPrefix": ["git", "push", "--force"], "decision": "forbidden"}},
            ],
        }
    }
    assert json.dumps(found) == json.dumps(expected)


def test_the_longest_of_the_strictest_is_decisive():
    """Its justification is the one that is told."""
    rules = parsed(
        'prefix_rule(pattern=["a"], decision="prompt", justification="short")\n'
        'prefix_rule(pattern=["a", "b"], decision="prompt", justification="long")\n'
        'prefix_rule(pattern=["a", "b", "c"], justification="allowed")\n'
    )
    match = evaluate(rules, [["a", "b", "c"]]).decisive
    assert match is not None
    assert match.rule.justification == "long"
    assert evaluate(rules, [["z"]]).decisive is None


@pytest.mark.parametrize(
    ("argv", "fits"),
    [
        (["git", "push"], True),
        (["git", None], None),
        ([None, "push"], None),
        (["ls", None], False),
        (["git", "pu…"], None),
        (["git"], False),
        (["git", "pull", None], False),
    ],
)
def test_unknown_words_are_neither_yes_nor_no(argv: list[str | None], fits: bool | None):
    """Where only the shell knows a word that the rule is about, so is the answer."""
    assert fits is PrefixRule(pattern=(("git",), ("push",)), decision=Decision.REFUSE).fits(argv)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("pattern=[]", "invalid pattern element: pattern cannot be empty"),
        ("pattern=['a', []]", "invalid pattern element: pattern alternatives cannot be empty"),
        ("pattern=['a', [1]]", "invalid pattern element: pattern alternative must be a string (got int)"),
        ("pattern=['a', ['b', ['c']]]", "pattern alternative must be a string (got list)"),
        ("pattern=[1]", "invalid pattern element: pattern element must be a string or list of strings (got int)"),
        ("pattern=[None]", "pattern element must be a string or list of strings (got NoneType)"),
        ("pattern=[b'a']", "pattern element must be a string or list of strings (got bytes)"),
        ("pattern=['a'], decision='deny'", "invalid decision: deny; it must be one of allow, prompt, forbidden"),
        ("pattern=['a'], decision=1", "decision must be a string (got int)"),
        ("pattern=['a'], justification='  '", "invalid justification"),
        ("pattern=['a'], match=['b']", "unmatched examples: b"),
        ("pattern=['a'], match=['a', 'b c', ['d e']]", "rules: a (allow); unmatched examples: b c, 'd e'"),
        ("pattern=['a'], not_match=['a b']", "expected example to not match rule `a (allow)`: a b"),
        ("pattern=['a'], match=['']", "invalid example"),
        ("pattern=['a'], match=[[]]", "invalid example"),
        ("pattern=['a'], match=['a \"']", "invalid example"),
        ("pattern=['a'], match='a'", "invalid example: examples must be a list (got str)"),
        ("pattern=['a'], match=[1]", "invalid example"),
        ("pattern=['a'], match=[[1]]", "invalid example: a word must be a string (got int)"),
        ("decision='allow'", "missing `pattern`"),
        ("pattern=['a'], pattern=['b']", "`pattern` is given twice"),
        ("pattern=['a'], because='x'", "`because` is not one of pattern, decision"),
        ("**{'pattern': ['a']}", "argument `**`"),
        ("pattern='a'", "pattern must be a list (got str)"),
        ("pattern=('a',)", "pattern must be a list (got tuple)"),
        ("pattern=['a' + 'b']", "(got binop)"),
        ("pattern=[x]", "(got name)"),
        ("pattern=[f'{x}']", "(got joinedstr)"),
        ("pattern=[x for x in 'a']", "pattern must be a list (got listcomp)"),
        ("pattern=[*['a']]", "(got starred)"),
        ("pattern=[open('/etc/passwd').read()]", "(got call)"),
        ("pattern=['\\d']", "invalid escape sequence"),
    ],
)
def test_bad_rules_are_refused(arguments: str, said: str):
    """With the file, the line, and the contract's words."""
    text = refusal(f"# first\nprefix_rule(\n{arguments})\n")
    assert said in text
    assert text.startswith("failed to parse execpolicy file x.rules: line ")


@pytest.mark.parametrize(
    "statement",
    [
        "import os",
        "x = 1",
        "'text'",
        "prefix_rule",
        "prefix_rule(['a'])",
        "prefix_rule(['a'], decision='allow')",
        "network_rule(host='a', protocol='http', decision='allow')",
        "host_executable(name='git', paths=[])",
        "x.prefix_rule(pattern=['a'])",
        "prefix_rule(pattern=['a'])(pattern=['b'])",
        "[prefix_rule(pattern=['a'])]",
        "def f(): pass",
        "for x in ['a']: prefix_rule(pattern=['a'])",
        "if True: prefix_rule(pattern=['a'])",
        "lambda: prefix_rule(pattern=['a'])",
        "load('x', 'y')",
        "await prefix_rule(pattern=['a'])",
        "__import__('os').system('touch executed')",
    ],
)
def test_everything_else_is_refused(statement: str):
    """Nothing but the one call form is accepted, and the second line is named."""
    text = refusal(f"prefix_rule(pattern=['a'])\n{statement}\n")
    assert "x.rules: line 2: " in text
    assert 'prefix_rule(pattern=["git", "push"]' in text


@pytest.mark.parametrize("text", ["prefix_rule(", "prefix_rule(pattern=['a'])\0", "(" * 5000, "x" * 1_100_000, "\t x"])
def test_what_python_cannot_read_is_refused(text: str):
    """Never a crash."""
    assert refusal(text).startswith("failed to parse execpolicy file x.rules: ")


@given(st.text(max_size=60))
def test_no_text_crashes_the_reader(text: str):
    """Whatever a file has in it: rules, or a ConfigError."""
    try:
        parsed(text)
    except ConfigError:
        return


def test_nothing_is_executed(tmp_path: Path):
    """Arguments that would do something do nothing."""
    marker = tmp_path / "executed"
    refusal(f"prefix_rule(pattern=[open({str(marker)!r}, 'w').name])")
    assert not marker.exists()


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path):
    """Both suffixes, regular files only; a folder that is not there has no rules."""
    (tmp_path / "b.rules").write_text('prefix_rule(pattern=["b"])')
    (tmp_path / "a.codexpolicy").write_text('prefix_rule(pattern=["a"])')
    (tmp_path / "c.txt").write_text("not a rule")
    (tmp_path / "d.rules").mkdir()
    assert [rule.pattern for rule in load_rules(tmp_path)] == [(("a",),), (("b",),)]
    assert load_rules(tmp_path / "missing") == ()


@pytest.mark.parametrize("content", [b"x = 1", b"\xff"])
def test_one_bad_file_loads_nothing(tmp_path: Path, content: bytes):
    """A rule that could not be read might be the one that forbids."""
    (tmp_path / "a.rules").write_text('prefix_rule(pattern=["a"])')
    (tmp_path / "b.rules").write_bytes(content)
    with pytest.raises(ConfigError, match=r"b\.rules"):
        load_rules(tmp_path)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_a_line_says_exactly_its_words(words: list[str]):
    """Whatever characters they have, the reader gets them back."""
    line = rule_line(words)
    assert "\n" not in line
    assert parsed(line) == (PrefixRule(pattern=tuple((word,) for word in words)),)


def test_remember_adds_one_line(tmp_path: Path):
    """In the contract's form, after what was there, and once."""
    path = tmp_path / "rules" / "default.rules"
    assert remember(path, ["git", "push"])
    assert path.read_text() == 'prefix_rule(pattern=["git", "push"], decision="allow")\n'
    assert not remember(path, ["git", "push"])
    path.write_text("# mine, without a newline")
    path.chmod(0o640)
    assert remember(path, ["make", "it"])
    assert path.read_text() == '# mine, without a newline\nprefix_rule(pattern=["make", "it"], decision="allow")\n'
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in path.parent.iterdir()] == ["default.rules"]


def test_remember_follows_a_link(tmp_path: Path):
    """A link to a file of rules is still a link afterwards."""
    real, link = tmp_path / "real.rules", tmp_path / "default.rules"
    real.write_text("")
    link.symlink_to(real)
    remember(link, ["make", "it"])
    assert link.is_symlink()
    assert "make" in real.read_text()


def test_remember_leaves_a_broken_file_alone(tmp_path: Path):
    """What does not load is not added to, and nothing is left beside it."""
    path = tmp_path / "default.rules"
    path.write_text("x = 1\n")
    with pytest.raises(ConfigError, match="line 1"):
        remember(path, ["make", "it"])
    assert path.read_text() == "x = 1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The old file is whole, and nothing is left beside it."""
    path = tmp_path / "default.rules"
    remember(path, ["make", "it"])
    before = path.read_text()

    def fail(self: Path, target: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ConfigError, match="no space left"):
        remember(path, ["make", "that"])
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_many_at_once_lose_nothing(tmp_path: Path):
    """Every rule of every thread is there, and the file loads."""
    path = tmp_path / "default.rules"

    def add(number: int) -> None:
        for index in range(5):
            remember(path, ["tool", f"{number}-{index}"])

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {rule.pattern[1][0] for rule in load_rules(tmp_path)} == {f"{a}-{b}" for a in range(6) for b in range(5)}


@pytest.mark.parametrize(
    "words",
    [
        *("bash", "/bin/bash", "python3", "git", "env", "sudo", "rm", "rm -rf", "npm run", "python -c", "bash -lc"),
        *("sudo bash", "env A=b", "env A=b python3", "timeout 5", "xargs", "node -e", ""),
    ],
)
def test_broad_prefixes_are_not_remembered(tmp_path: Path, words: str):
    """A yes to one command is not made a yes to anything."""
    assert is_too_broad(words.split())
    with pytest.raises(ConfigError, match="would allow anything"):
        remember(tmp_path / "default.rules", words.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["git push", "npm run build", "pytest", "cargo test", "sudo ls", "make test", "rm x"])
def test_narrow_prefixes_are(words: str):
    """Prefixes that say what runs are fine."""
    assert not is_too_broad(words.split())


def test_words_that_are_no_text_are_refused(tmp_path: Path):
    """Half a surrogate pair cannot be written down."""
    with pytest.raises(ConfigError):
        remember(tmp_path / "default.rules", ["tool", "\ud800"])
    assert list(tmp_path.iterdir()) == []
