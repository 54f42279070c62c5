"""What `helix.allowlist` promises: one listed program, the words that were read, and nothing else."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.helix import allowlist
from provider.dialects.helix.allowlist import admit
from provider.dialects.helix.config import ShellConfig
from provider.errors import CallError, PolicyRefused

NAMES = ("ls", "cat", "grep", "echo", "find", "git", "./build.sh", "printf")
PLAIN = ShellConfig(allowed_commands=NAMES)
GLOB = ShellConfig(allowed_commands=NAMES, glob=True)

ALWAYS = [
    # Another command beside it.
    "ls; id",
    "ls ;id",
    "ls;id",
    "ls && id",
    "ls || id",
    "ls & id",
    "ls &",
    "ls | sh",
    "ls |& sh",
    "ls\nid",
    "ls\rid",
    "ls\r\nid",
    "ls -la\n",
    "ls \\\n-la",
    "ls; ",
    "ls 'a;b'",
    'ls "a|b"',
    # Another command inside it.
    "ls $(id)",
    "ls `id`",
    'ls "$(id)"',
    'ls "`id`"',
    "ls '$(id)'",
    "ls ${x:-$(id)}",
    "ls ${HOME}",
    "ls $((1+1))",
    "ls $[1+1]",
    "ls <(id)",
    "ls >(id)",
    "cat <<EOF",
    "cat <<< x",
    # Files.
    "ls > out",
    "ls >> out",
    "ls 2>&1",
    "ls >| out",
    "ls &> out",
    "cat < in",
    "cat <> in",
    "cat 0<in",
    "cat</etc/passwd",
    # Another program, by another way of writing it.
    "curl x",
    " ls",
    "\tls",
    "LS",
    "/bin/ls",
    "./ls",
    "../bin/ls",
    "'ls'",
    '"ls"',
    "l\\s",
    "\\ls",
    "l''s",
    "ls''",
    'ls"" -la',
    "FOO=1 ls",
    "LD_PRELOAD=x ls",
    "env ls",
    "sudo ls",
    "sh -c ls",
    "bash -lc ls",
    "exec ls",
    "eval ls",
    "command ls",
    ". ls",
    "! ls",
    "time ls",
    "{ ls",
    "(ls)",
    "ls()",
    "ls ()",
    "ls\u00a0-la",
    "ls\u3000id",
    "ls\u2028id",
    "\ufeffls",
    "\u200bls",
    "ls\u200b",
    "l\u0455",  # a Cyrillic s
    "lsx",
    "ls-la",
    "ls=1",
    # What bash would compute.
    "ls $HOME",
    'ls "$HOME"',
    "ls $1",
    "ls $@",
    "ls $$",
    "ls $?",
    "ls a$IFS",
    "ls $'\\x3b'",
    'ls $"x"',
    "$SHELL",
    "$ls",
    # What nobody can read alike.
    "ls 'x",
    'ls "x',
    "ls x\\",
    "ls (x)",
    "ls x)",
    "ls \x00",
    "ls\x0bid",
    "ls\x0cid",
    "ls \x1b[2J",
    "ls \x7f",
    "ls \x08\x08id",
    "ls \udcff",
    "if true",
    "coproc ls",
    "function ls",
    # Nothing.
    "",
    " ",
    "\t",
]
ONLY_WITHOUT_GLOB = [
    "cat *",
    "cat *.txt",
    "cat '*.txt'",
    'grep "a.*b" x',
    "ls ?",
    "ls a?",
    "ls [a]",
    "ls ]",
    "ls {a,b}",
    "ls }",
    "ls {1..3}",
    "ls ~",
    "ls ~root",
    "ls a~",
    "ls \\*",
]
PASS = {
    "ls": ("ls",),
    "ls ": ("ls",),
    "ls -la": ("ls", "-la"),
    "ls\t-la": ("ls", "-la"),
    "ls   -l    -a": ("ls", "-l", "-a"),
    'grep "two words" file': ("grep", "two words", "file"),
    "grep 'two words' file": ("grep", "two words", "file"),
    "grep two\\ words file": ("grep", "two words", "file"),
    "grep 'it'\\''s' file": ("grep", "it's", "file"),
    "grep '$HOME' file": ("grep", "$HOME", "file"),
    "grep 'x$' file": ("grep", "x$", "file"),
    "grep x$ file": ("grep", "x$", "file"),
    "echo ''": ("echo", ""),
    'echo "" a': ("echo", "", "a"),
    'echo a"b c"d': ("echo", "ab cd"),
    "cat -- -x": ("cat", "--", "-x"),
    "cat a/b ../c /etc/hostname": ("cat", "a/b", "../c", "/etc/hostname"),
    "echo a=b --x=y @z %1 +2 :3 ,4 ^5": ("echo", "a=b", "--x=y", "@z", "%1", "+2", ":3", ",4", "^5"),
    "echo a#b !x a!b": ("echo", "a#b", "!x", "a!b"),
    "git commit -m 'fix (all) of it!'": ("git", "commit", "-m", "fix (all) of it!"),
    "./build.sh --fast": ("./build.sh", "--fast"),
    "echo é 漢字 'x\u00a0y'": ("echo", "é", "漢字", "x\u00a0y"),
    "echo \"a\\\\b\" 'c\\d' e\\\\f": ("echo", "a\\b", "c\\d", "e\\f"),
    "printf '%s\\n' x": ("printf", "%s\\n", "x"),
    "ls -la # all of them": ("ls", "-la"),
    "echo if then ls eval": ("echo", "if", "then", "ls", "eval"),
}
EXPANDED = {
    "cat *.txt": "exec cat *.txt",
    "ls a?": "exec ls a?",
    "ls [a-c]x [!x] [[:alpha:]]": "exec ls [a-c]x [!x] [[:alpha:]]",
    "ls ~": "exec ls ~",
    "ls ~/x": "exec ls ~/x",
    "ls /tmp/{a,b}/*": "exec ls /tmp/a/* /tmp/b/*",
    "ls {1..3}": "exec ls 1 2 3",
    "ls *'; id'": "",
    "ls 'a b'* 'c d'": "exec ls 'a b'* 'c d'",
    "ls * '$HOME' \"\\$x\"": "exec ls * '$HOME' '$x'",
    "ls * ''": "exec ls * ''",
    'ls "*"*': 'exec ls "*"*',
    "ls * # and more": "exec ls *",
    "ls {a,#}": "exec ls a \\#",
}


def refused(command: str, config: ShellConfig) -> bool:
    try:
        admit(command, config)
    except (CallError, PolicyRefused):
        return True
    return False


def test_there_are_enough_of_them():
    """The suite is as large as it was meant to be."""
    assert len(set(ALWAYS)) >= 60
    assert len(PASS) >= 20


@pytest.mark.parametrize("command", ALWAYS, ids=ascii)
@pytest.mark.parametrize("config", [PLAIN, GLOB], ids=["plain", "glob"])
def test_refused_with_globs_and_without(command: str, config: ShellConfig):
    """What is more than one listed program with its words is refused, whether globs are on or not."""
    assert refused(command, config)


@pytest.mark.parametrize("command", ONLY_WITHOUT_GLOB, ids=ascii)
def test_glob_characters_are_refused_unless_opted_in(command: str):
    """The check is of raw characters, quoted or not; with glob on, the same commands pass."""
    with pytest.raises(PolicyRefused, match="a glob character"):
        admit(command, PLAIN)
    assert not refused(command, GLOB)


@pytest.mark.parametrize(("command", "argv"), PASS.items(), ids=map(ascii, PASS))
@pytest.mark.parametrize("config", [PLAIN, GLOB], ids=["plain", "glob"])
def test_passed_as_the_words_that_bash_reads(command: str, argv: tuple[str, ...], config: ShellConfig):
    """Quotes group words, nothing is expanded, no shell is started."""
    assert admit(command, config) == argv


@pytest.mark.parametrize("command", [command for command in PASS if "#" not in command], ids=ascii)
def test_python_splits_them_alike(command: str):
    """A second splitter, Python's own, sees the same words; only comments are beyond it."""
    assert shlex.split(command) == list(PASS[command])


@pytest.mark.parametrize(("command", "script"), EXPANDED.items(), ids=map(ascii, EXPANDED))
def test_what_a_shell_is_given(command: str, script: str):
    """With globs, sh gets `exec`, quoted words, patterns and tildes."""
    if not script:
        assert refused(command, GLOB)
        return
    assert admit(command, GLOB) == ("sh", "-c", script)


@pytest.mark.parametrize("name", ["ls", "cat", "./build.sh"])
def test_the_program_that_runs_is_the_token_that_was_compared(name: str):
    """After quotes are removed, the first word is still the list's entry, in both ways of running."""
    assert admit(f"{name} 'a b'", PLAIN)[0] == name
    assert admit(f"{name} *", GLOB)[2].split()[:2] == ["exec", name]


@pytest.mark.parametrize("read_as", ["cat x", "'l' x", "ls; id", "A=1 ls", "! ls", "ls > x", "(ls)", "ls x &", "ls $X"])
def test_a_reading_that_is_not_the_compared_token_is_refused(monkeypatch: pytest.MonkeyPatch, read_as: str):
    """Were the raw checks to let something pass, the reading of the whole command would still stop it."""
    script = allowlist.read(read_as)
    monkeypatch.setattr(allowlist, "read", lambda text: script)
    with pytest.raises(PolicyRefused):
        admit("ls x", PLAIN)


@pytest.mark.parametrize("character", [*";&|`<>", "$(", "${", "$["])
def test_a_refusal_names_the_character(character: str):
    """Whoever is refused is told which character it was and what would be right."""
    with pytest.raises(PolicyRefused, match="send one command by itself") as refusal:
        admit(f"ls x{character}y", GLOB)
    assert repr(character) in str(refusal.value)


def test_a_refusal_does_not_repeat_a_long_command():
    """What a model wrote comes back short, and printable."""
    with pytest.raises(PolicyRefused) as refusal:
        admit("\u202e" + "x" * 100_000, PLAIN)
    assert len(str(refusal.value)) < 400
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "command", ["ls " + "{" * 50_000, "ls " + "{1..4000} " * 10_000, "ls " + "{a,b}" * 99, "ls " + "*" * 100_000]
)
def test_no_command_takes_long_to_judge(command: str):
    """Braces that stand for millions of words are refused before there are any."""
    began = time.monotonic()
    refused(command, GLOB)
    assert time.monotonic() - began < 2


BASH = shutil.which("bash")
TEXT = st.text(alphabet=" \t'\"\\$#!()=~*?[]{}-,.abLS;|&<>`\n%é", max_size=24)


@pytest.mark.skipif(BASH is None, reason="bash is the judge")
@given(rest=TEXT, globs=st.booleans())
def test_bash_agrees(tmp_path_factory: pytest.TempPathFactory, rest: str, globs: bool):
    """
    What is allowed is, for bash, one call of the listed program with these words.

    The program is a function that prints its arguments; every other name would be an error message. Without
    files, a pattern stays as it is.
    """
    config = GLOB if globs else PLAIN
    command = f"ls {rest}"
    if refused(command, config):
        return
    argv = admit(command, config)
    assert BASH is not None
    empty = _empty(tmp_path_factory)
    show = 'ls() { printf \'%s\\0\' ls "$@"; }; exec() { "$@"; }; '
    text = argv[2] if argv[0] == "sh" else shlex.join(argv)
    theirs, ours = (
        subprocess.run(
            [BASH, "-c", f"{show}{shown}\n"], capture_output=True, cwd=empty, env={"HOME": "/h"}, check=False
        )
        for shown in (command, f"set +B; {text}")
    )
    assert (theirs.stderr, theirs.stdout) == (b"", ours.stdout)
    assert list(empty.iterdir()) == []


def _empty(factory: pytest.TempPathFactory) -> Path:
    folder = factory.getbasetemp() / "empty"
    folder.mkdir(exist_ok=True)
    return folder
