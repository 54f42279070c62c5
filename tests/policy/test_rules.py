"""What `provider.policy.rules` promises: the strictest rule wins, every segment is judged, a bad file is not loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from provider.errors import ConfigError
from provider.model import Decision
from provider.policy.rules import load_policy, parse_policy, segments, segments_of

ALLOW, ASK, REFUSE = Decision

# The policy of security.md E: git status, echo, ls, cat and npm test are allowed; curl and rm are refused.
POLICY = """
default = "ask"

[[rule]]
name = "reading"
decision = "allow"
because = "it only reads"
program = ["echo", "ls", "cat", "wc", "head", "true"]
matches = ["ls -la", "cat x | wc -l", "timeout 5 ls"]
not_matches = ["rm x"]

[[rule]]
name = "git status"
decision = "allow"
because = "it only reads"
program = "git"
prefix = ["status"]
matches = ["git status -s", "/usr/bin/git status"]
not_matches = ["git push", "git -C x status", "git $x"]

[[rule]]
name = "npm test"
decision = "allow"
because = "the project's own tests"
program = "npm"
prefix = [["test", "t"]]
matches = ["npm test", "npm t"]
not_matches = ["npm install"]

[[rule]]
name = "finding"
decision = "allow"
because = "it only reads"
program = "find"
unless = ["-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprintf", "-fls"]
matches = ["find . -name x"]
not_matches = ["find . -delete", "find . $x"]

[[rule]]
name = "no curl"
decision = "refuse"
because = "nothing is fetched"
program = ["curl", "wget"]
matches = ["curl x", "sudo curl x", "echo $(curl x)"]
not_matches = ["echo curl"]

[[rule]]
name = "no rm"
decision = "refuse"
because = "nothing is deleted"
program = "rm"
matches = ["rm x", "/bin/rm x", "./rm x", '\\rm x', "r''m x", "find . -exec rm {} +", "bash -lc 'ls; rm x'"]
not_matches = ["echo rm", "'rm x'"]

[[rule]]
name = "writing"
decision = "ask"
because = "it writes a file"
redirects = "*"
matches = ["ls > x", "ls >> x", "(ls) &> x"]
not_matches = ["ls < x", "ls 2>&1", "ls 2>&-"]
"""
RULES = parse_policy(POLICY)

# security.md E1 to E38, as far as they are texts.
ESCAPES = (
    ("echo x && curl e", REFUSE), ("echo x; curl e", REFUSE), ("echo x | curl e", REFUSE), ("echo x || curl e",
    REFUSE),
    ("echo x & curl e", REFUSE), ("echo x\ncurl e", REFUSE), ("echo x\rcurl e", ASK), ("echo x \\\n; curl e", REFUSE),
    ("echo $(curl e)", REFUSE), ("echo `curl e`", REFUSE), ("cat <(curl e)", REFUSE), ("echo hi > >(rm x)", REFUSE),
    ("cat < <(curl e)", REFUSE), ("cat <<EOF | curl\nx\nEOF", REFUSE), ("cat <<EOF\n$(curl e)\nEOF", REFUSE),
    ("echo $[ x='a[$(touch FLAG)]', x ]", ASK), ("echo ${x@P}", ASK), ("cat${IFS}/etc/passwd", ASK),
    ("find . -{delete,print}", ASK), ("l* -l", ASK), ("/bin/c?rl", ASK), (r"find . -de\lete", ASK), ('c"ur"l e',
    REFUSE),
    (r"$'\x63url' e", ASK), ("rg --pre{=,=sh} p f", ASK), ("LD_PRELOAD=x ls", ASK), ("env curl", REFUSE),
    ("command curl", REFUSE), ("exec curl", REFUSE), ("builtin curl", REFUSE), ("nice curl", REFUSE),
    ("timeout 1 curl", REFUSE),
    ("xargs curl", REFUSE), ("busybox wget", REFUSE), ("export PAGER='sh -c x'; git status", ASK),
    ("declare -x PAGER=x", ASK),
    ("typeset PAGER=x", ASK), ("readonly PAGER=x", ASK), ("set -a", ASK), ("alias ls=curl\nls", ASK),
    ("ls() { curl e; }; ls", REFUSE),
    ("function ls { curl e; }; ls", ASK), ("true; " * 51 + "curl e", REFUSE), ("true;" * 600 + "curl e", ASK),
    ("echo x" + " " * 20_000 + "; curl e", REFUSE), ("git -c core.pager=x status", ASK), ("git status --output=x",
    ALLOW),
    ("find . -exec curl {} \\;", REFUSE), ("find . -fprintf x y", ASK), ("sed e", ASK), ("awk 'BEGIN{system(1)}'",
    ASK),
    ("\u0441url e", ASK), ("ls\u00a0; curl e", REFUSE), ("echo \0", ASK), ("./git status", ASK), ("python -c 1",
    ASK),
    ("(curl e)", REFUSE), ("! curl e", REFUSE), ("time curl e", REFUSE), ("if true; then curl e; fi", REFUSE),
    ("FOO=1 curl e", REFUSE),
    ("eval curl e", REFUSE), ("eval 'cu'rl e", REFUSE), ("sh -c 'curl e'", REFUSE),
    ("bash -c \"bash -c 'curl e'\"", REFUSE),
    ("trap 'curl e' EXIT", REFUSE), ('echo "$(echo "$(curl e)")"', REFUSE), ("$(echo curl) e", ASK),
    ("x=curl; $x e", ASK),
    ("echo ((((", ASK), ("sudo sudo sudo curl e", REFUSE), ("env env env env env env env env env env curl e", ASK),
    ("xargs -I{} sh -c 'curl {}'", ASK), ("for i in a; do curl e; done", REFUSE), ("case a in b) curl e;; esac",
    REFUSE),
    ("while true; do curl e; done", REFUSE), ("curl e &", REFUSE), ("find . -type f | xargs rm", REFUSE),
)  # fmt: skip


@pytest.mark.parametrize(("text", "decision"), ESCAPES)
def test_no_escape_is_allowed(text: str, decision: Decision):
    """Split and refused, or asked about; the one that is allowed runs what its rule says."""
    assert RULES.judge_text(text).decision is decision


@pytest.mark.parametrize(
    "text",
    [
        "for PATH in .; do ls; done",
        "read PATH < x",
        "printf -v PATH .",
        "printf -vPATH .",
        "mapfile PATH < x",
        "getopts a PATH",
    ],
)
def test_a_variable_that_steers_is_asked_about_however_it_is_set(text: str):
    """A loop or a builtin sets it as an assignment does, also where everything is allowed."""
    assert parse_policy('default = "allow"').judge_text(text).decision is ASK


@pytest.mark.parametrize(
    "text", ["./ls", "bin/ls", "/tmp/ls", "./env ls", "./timeout 5 ls", "./sh -c ls", "./busybox ls"]
)
def test_a_file_of_the_workspace_is_not_the_program_of_that_name(text: str):
    """An allow rule means the image's, and a wrapper of the workspace's own is judged by itself."""
    assert RULES.judge_text(text).decision is ASK


def test_a_file_of_the_workspace_can_be_allowed_by_its_path():
    """As it is written in the rule, and in no other way."""
    rule = 'name = "b"\ndecision = "allow"\nbecause = "x"\nprogram = "./build"\nmatches = "./build x"'
    rules = parse_policy(f'default = "ask"\n[[rule]]\n{rule}')
    assert rules.judge_text("./build x").decision is ALLOW
    assert [rules.judge_text(text).decision for text in ("build", "bin/build", "/usr/bin/build")] == [ASK] * 3


ALLOWED = (
    "ls", "ls -la | wc -l", "git status", "git status && ls; cat x", "npm test", "echo 'a; rm x'", "echo $HOME",
    "ls *.py", "find . -name '*.py'",
    "timeout 5 cat x", "env A=b ls", "if ls; then cat x; fi", "ls 2>&1 | head", "cat <<'EOF'\n$(rm x)\nEOF",
    "bash -c 'ls; cat x'", "# nothing\nls",
    "nice -n 5 ls", "ls < x", "A=1 ls",
)  # fmt: skip


@pytest.mark.parametrize("text", ALLOWED)
def test_daily_work_is_allowed(text: str):
    """Without a question, and without a reason."""
    verdict = RULES.judge_text(text).verdict()
    assert (verdict.decision, verdict.reasons) == (ALLOW, ())


def test_the_strictest_wins_and_is_named():
    """Every finding is kept, and the reasons are those that decided."""
    ruling = RULES.judge_text("ls && rm x > y && unheard")
    assert ruling.decision is REFUSE
    assert [(one.decision, one.rule) for one in ruling.findings] == [
        (REFUSE, "no rm"), (ASK, "writing"), (ASK, "default"), (ALLOW, "reading"),
    ]  # fmt: skip
    assert ruling.verdict().reasons == ("no rm: nothing is deleted: rm x > y",)


def test_a_list_of_words_is_judged_without_a_shell():
    """Quotes and operators in an argument are not syntax, but a wrapper is still a wrapper."""
    assert RULES.judge_argv(["echo", "a; rm x", "$(curl e)"]).decision is ALLOW
    assert RULES.judge_argv(["sudo", "rm", "x"]).decision is REFUSE
    assert RULES.judge_argv(["sh", "-c", "ls; rm x"]).decision is REFUSE
    assert RULES.judge_argv(["/bin/rm"]).decision is REFUSE
    assert RULES.judge_argv([]).decision is ASK


def test_unclear_words_are_asked_about():
    """An option that may come out of an expansion is neither refused nor allowed."""
    rules = parse_policy(
        'default = "allow"\n[[rule]]\nname = "forced"\ndecision = "refuse"\nbecause = "no"\n'
        'program = "rm"\noptions = ["-f", "--force"]\n'
        'matches = ["rm -f x", "rm -rf x", "rm --forc x"]\nnot_matches = ["rm x", "rm -r x", "rm -- -f", "rm $x"]\n'
    )
    assert rules.judge_text("rm x").decision is ALLOW
    assert rules.judge_text("rm $x").decision is ASK
    assert rules.judge_text('rm "./$x"').decision is ALLOW
    assert rules.judge_text("rm -f $x").decision is REFUSE


CONDITIONS = (
    ('program = "x"', "x y", "y x"),
    ('program = ["x", "y"]', "y", "z"),
    ('prefix = ["a", ["b", "c"]]\nprogram = "x"', "x a c d", "x a d"),
    ('options = "-f"', "x -af", "x --f"),
    ('options = "--force"', "x --force=1", "x --g"),
    ('options = "-delete"', "x -delete", "x -d"),
    ('arguments = "of=/dev/*"', "dd of=/dev/sda", "dd of=x"),
    ('dynamic = "glob"', "x *", "x '*'"),
    ('dynamic = ["command substitution", "process substitution"]', "x <(y)", "x $y"),
    ('redirects = ">>"', "x >> y", "x > y"),
    ('assigns = "LD_*"', "LD_X=1 y", "X=1 y"),
    ('assigns = "PAGER"', "export PAGER=x", "export X=PAGER"),
    ('keyword = "function"', "f() { x; }", "f"),
    ('place = "substitution"', "x $(y)", "x"),
    ("background = true", "x &", "x"),
    ("inline = true", "python3 -c 1", "python3 x.py"),
    ("unknown = true", "echo $((x))", "echo x"),
)


@pytest.mark.parametrize(("condition", "match", "other"), CONDITIONS)
def test_every_condition_can_be_written(condition: str, match: str, other: str):
    """Program, words, options, arguments, expansions, redirections, assignments, places, unknown syntax."""
    rule = f'name = "r"\ndecision = "refuse"\nbecause = "b"\n{condition}\n'
    examples = f'matches = ["""{match}"""]\nnot_matches = ["""{other}"""]\n'
    rules = parse_policy(f'default = "allow"\n[[rule]]\n{rule}{examples}')
    assert rules.judge_text(match).decision is REFUSE
    assert rules.judge_text(other).decision is not REFUSE


GOOD = 'default = "ask"\n[[rule]]\nname = "r"\ndecision = "allow"\nbecause = "b"\nprogram = "x"\nmatches = ["x"]\n'
BAD = (
    ("not toml at all", ["not TOML"]),
    (GOOD.replace('default = "ask"\n', ""), ["default"]),
    (GOOD.replace('"ask"', '"maybe"'), ["default"]),
    (GOOD.replace('"allow"', '"permit"'), ["rule 'r'", "decision"]),
    (GOOD.replace('because = "b"\n', ""), ["rule 'r'", "because"]),
    (GOOD.replace('because = "b"', 'because = ""'), ["rule 'r'", "because"]),
    (GOOD.replace('program = "x"', 'programs = "x"'), ["rule 'r'", "programs"]),
    (GOOD.replace('program = "x"\n', ""), ["rule 'r'", "condition"]),
    (GOOD.replace('matches = ["x"]\n', ""), ["rule 'r'", "matches"]),
    (GOOD.replace('matches = ["x"]', "matches = []"), ["rule 'r'", "matches"]),
    (GOOD.replace('matches = ["x"]', 'matches = ["y"]'), ["rule 'r'", "example", "'y'"]),
    (GOOD + 'not_matches = ["sudo x"]\n', ["rule 'r'", "counterexample", "'sudo x'"]),
    (GOOD.replace('program = "x"', 'program = "x"\nprefix = [[]]'), ["rule 'r'", "prefix"]),
    (GOOD.replace('program = "x"', "unknown = true"), ["rule 'r'", "never allowed"]),
    (GOOD.replace('program = "x"', 'dynamic = "star"'), ["rule 'r'", "dynamic"]),
    (GOOD + GOOD.partition("\n")[2], ["two rules", "'r'"]),
    (GOOD.replace('name = "r"\n', ""), ["rule 'number 1'", "name"]),
    (GOOD + "extra = 1\n", ["rule 'r'", "extra"]),
    ("rule = 3\ndefault = 'ask'", ["rule"]),
)


@pytest.mark.parametrize(("text", "pieces"), BAD)
def test_a_bad_file_is_not_loaded(tmp_path: Path, text: str, pieces: list[str]):
    """The error names the file, the rule and the example."""
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    for piece in (str(path), *pieces):
        assert piece in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    """Is an error of the configuration as well."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy(tmp_path / "none.toml")


def test_a_good_file_is_loaded(tmp_path: Path):
    """And judges."""
    path = tmp_path / "rules.toml"
    path.write_text(GOOD)
    assert load_policy(path).judge_text("x").decision is ALLOW


def test_inline_evaluation_can_be_allowed_by_name():
    """Only by a rule that says so in as many words."""
    plain = GOOD.replace('"x"', '"python3"')
    assert parse_policy(plain).judge_text("python3 -c 1").decision is ASK
    said = plain.replace('program = "python3"', 'program = "python3"\ninline = true').replace(
        '["python3"]', '["python3 -c 1"]'
    )
    assert parse_policy(said).judge_text("python3 -c 1").decision is ALLOW


def test_segments_of_a_text():
    """Each command, then what it wraps, in the order of the text."""
    assert [one.argv for one in segments("sudo sh -c 'a; b' && c $(d)")] == [
        ("sudo", "sh", "-c", "a; b"), ("sh", "-c", "a; b"), ("a",), ("b",), ("c", None), ("d",),
    ]  # fmt: skip
    assert [one.program for one in segments_of(["nice", "/bin/ls"])] == ["nice", "ls"]


def test_an_empty_text_is_the_default():
    """Nothing is neither allowed nor refused by any rule."""
    assert RULES.judge_text("").decision is ASK
    assert RULES.judge_text("# only a comment").decision is ASK
