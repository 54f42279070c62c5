"""What `codex.safety` promises: nothing that writes is known safe, and nothing forced hides behind a wrapper."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.codex.safety import is_dangerous, is_known_safe, plain_commands
from provider.policy.syntax import read


def bash(script: str) -> list[str]:
    return ["bash", "-lc", script]


PLAIN = {
    "ls && pwd; echo 'hi there' | wc -l": [["ls"], ["pwd"], ["echo", "hi there"], ["wc", "-l"]],
    "ls": [["ls"]],
    "ls;": [["ls"]],
    "\nls\n\npwd\n": [["ls"], ["pwd"]],
    "a || b": [["a"], ["b"]],
    'echo "x y" 1': [["echo", "x y", "1"]],
    'echo ""': [["echo", ""]],
    'rg -g"*.py" x': [["rg", "-g*.py", "x"]],
    "echo 'a # b'": [["echo", "a # b"]],
    'echo "a\\nb"': [["echo", "a\\nb"]],
    "sed -n '1,5p' file.txt": [["sed", "-n", "1,5p", "file.txt"]],
    "ls é": [["ls", "é"]],
}
NOT_PLAIN = [
    *("(ls)", "{ ls; }", "ls || (pwd && echo hi)", "ls > out.txt", "ls 2>&1", "cat <<E\nx\nE", "cat <<< x"),
    *("ls &", "ls & pwd", "ls |& wc", "! ls", "ls # comment", "# comment\nls", "FOO=bar ls", "FOO=bar"),
    *("echo $X", "echo $(ls)", "echo `ls`", "cat <(ls)", "echo ${X}", 'echo "$X"', 'echo "`ls`"', "echo $'x'"),
    *("for i in a; do ls; done", "if ls; then ls; fi", "while ls; do ls; done", "case x in x) ls;; esac"),
    *("f() { ls; }", "[ -f x ]", "[[ -f x ]]", "ls &&", "&& ls", "ls ;; pwd", "ls | | wc", "ls ||", "| ls", "; ls"),
    *("'git status'", '"ls"', "l's'", "", "  ", "\n", "find . -{delete,print}", "find . -del*", "find . -de\\lete"),
    *("echo ~", "echo a#b", "=ls", "echo =ls", "echo x^y", "echo [a]", "echo a?", 'echo "a\\$b"', 'echo "a\\"b"'),
    *('echo "a\\\nb"', 'echo "a\\\\b"', "echo 'x", "alias ls=rm; ls", "ls\x00", "echo 'a\rb'"),
]


@pytest.mark.parametrize("script", PLAIN)
def test_plain_scripts_are_read(script: str):
    """Commands come out in the order of the text, with their words as the program will see them."""
    assert plain_commands(bash(script)) == tuple(map(tuple, PLAIN[script]))


@pytest.mark.parametrize("script", NOT_PLAIN, ids=ascii)
def test_other_scripts_are_not_plain(script: str):
    """Whatever has more to it than plain commands is not taken for plain, nor for safe."""
    assert plain_commands(bash(script)) is None
    assert not is_known_safe(bash(script))


@pytest.mark.parametrize("shell", ["bash", "zsh", "sh", "/bin/bash", "/usr/bin/zsh", "/usr/local/bin/sh"])
@pytest.mark.parametrize("flag", ["-c", "-lc"])
def test_forms_of_a_shell(shell: str, flag: str):
    """Three shells, two flags, bare or in a system folder."""
    assert plain_commands([shell, flag, "ls"]) == (("ls",),)
    assert is_known_safe([shell, flag, "ls"])


@pytest.mark.parametrize(
    "argv",
    [
        *(["bash", "-lc"], ["bash", "-lc", "ls", "x"], ["bash", "-x", "ls"], ["fish", "-c", "ls"]),
        *(["./bash", "-c", "ls"], ["bash", "-cl", "ls"], ["bash"], ["ls"], []),
    ],
)
def test_other_forms_are_no_script(argv: list[str]):
    """More or fewer elements, other flags and other shells are not read."""
    assert plain_commands(argv) is None


LOOKS = "cat cd echo false grep head ls nl pwd tail true wc which"
LOOKS += " cut expr id paste rev seq stat tr uname uniq whoami numfmt tac"
FIND_ACTS = "-exec -execdir -ok -okdir -fls -fprint -fprint0 -fprintf"
SAFE = [
    *(bash(script) for script in ("ls && pwd", "echo 'hi' ; ls", "ls | wc -l", 'grep -R "Cargo.toml" -n || true')),
    *(bash(script) for script in ("sed -n '1,5p' file.txt", "cat a\nhead -1 b", "cd x && find . -name '*.py'")),
    ["nl", "-nrz", "Cargo.toml"],
    ["/usr/bin/ls", "-la"],
    ["/bin/cat", "x"],
    *([name] for name in LOOKS.split()),
    ["base64", "-d", "x"],
    ["base64", "--decode", "x"],
    ["find", ".", "-name", "file.txt"],
    ["rg", "-n", "--hidden", "x"],
    ["rg", "--pretty", "x"],
    ["sed", "-n", "5p", "f"],
    ["sed", "-n", "1,5p"],
    ["uniq", "-c", "f"],
    ["echo", "rm -rf /"],
    ["echo", "zsh"],
]
NOT_SAFE = [
    [],
    [""],
    ["bash", "-lc", "git", "status"],
    *(bash(script) for script in ("'git status'", "ls && rm -rf /", "(ls)", "ls || (pwd && echo hi)", "ls > out.txt")),
    ["find", ".", "-name", "file.txt", "-delete"],
    *(["find", ".", act, "x"] for act in FIND_ACTS.split()),
    ["sed", "-n", "xp", "f"],
    ["sed", "-n", "1p\n", "f"],
    ["sed", "-n", "\u0661p", "f"],
    ["sed", "-n", "1p", "a", "b"],
    ["sed", "-n", "1p", "-fscript"],
    ["sed", "1p", "f"],
    ["sed", "-i", "1p", "f"],
    ["sed", "-n"],
    ["sed", "-n", "1,2,3p"],
    ["rg", "--pre=x", "y"],
    ["rg", "--pre", "x", "y"],
    ["rg", "--hostname-bin=x", "y"],
    ["rg", "--search-zip", "y"],
    ["rg", "-z", "y"],
    ["rg", "-iz", "y"],
    ["rg", "--search-zi", "y"],
    *(["base64", word, "f"] for word in ("-o", "--output", "--output=f", "-of", "-do", "--out")),
    # The gaps of the first version.
    *(shlex.split(f"git {words}") for words in ("status", "log", "diff --output=f", "branch -D x", "-c a.b=c log")),
    ["git", "show", "--ext-diff"],
    ["cargo", "check"],
    # What the file name alone would let through.
    ["./ls"],
    ["/workspace/bin/cat", "x"],
    ["../ls"],
    ["LS"],
    ["uniq", "in", "out"],
    ["uniq", "--", "-a", "-b"],
    ["uniq", "-", "out"],
    ["env", "ls"],
    ["sudo", "ls"],
    ["rm", "x"],
    ["touch", "x"],
    ["zsh"],
    bash("zsh"),
    bash("bash -lc ls"),
    bash("ls && ./ls"),
    bash("git status"),
]


@pytest.mark.parametrize("argv", SAFE, ids=ascii)
def test_known_safe(argv: list[str]):
    """Commands that only look at things are nobody's question."""
    assert is_known_safe(argv)


@pytest.mark.parametrize("argv", NOT_SAFE, ids=ascii)
def test_not_known_safe(argv: list[str]):
    """Commands that write, run others, or cannot be read are not known safe."""
    assert not is_known_safe(argv)


DANGEROUS = [
    "git reset --hard",
    "git rm x",
    "/usr/bin/git reset",
    "git -C dir reset --hard",
    "git -c a.b=c rm x",
    "rm -f x",
    "rm -rf x",
    "rm -fr x",
    "rm -r -f x",
    "rm x -f",
    "rm --force x",
    "rm --fo x",
    "rm --recursive --force x",
    "/bin/rm -rf x",
    "./rm -f x",
    "sudo rm -rf x",
    "sudo -u root rm -f x",
    "sudo git reset --hard",
    "env -i A=b rm -f x",
    "env --ignore-environment -- rm -f x",
    "trap 'rm -rf x' EXIT",
    "sh -c 'rm -f x'",
    "bash -c \"sh -c 'rm -f x'\"",
    "xargs rm -f",
    "find . -exec rm -f '{}' ';'",
    "timeout 5 rm -f x",
]
DANGEROUS_SCRIPTS = [
    *DANGEROUS,
    "ls && rm -rf x",
    "for i in a b; do rm -rf $i; done",
    "echo $(rm -rf x)",
    "rm -rf x > log 2>&1",
    "if true; then git reset --hard; fi",
    "(cd x && rm -fr y)",
    "ls; FOO=bar rm -f x",
    "rm -rf x\nif",  # bash runs the first line before it finds the error
]
NOT_DANGEROUS = [
    "rm -r x",
    "rm x",
    "rm -- -f",
    "rm -i -- --force",
    "echo 'rm -rf x'",
    "echo rm -rf x",
    "git status",
    "git log reset",
    "git checkout rm",
    "sudo ls",
    "env A=b ls",
    "trap - EXIT",
    "ls",
    "digit reset",
    "sh -c 'ls'",
]


@pytest.mark.parametrize("text", DANGEROUS)
def test_dangerous_commands(text: str):
    """Forced deletion and git's own, in every form and behind every wrapper."""
    assert is_dangerous(shlex.split(text))


@pytest.mark.parametrize("text", DANGEROUS_SCRIPTS, ids=ascii)
def test_dangerous_scripts(text: str):
    """The same anywhere in a script, whatever else it has in it."""
    assert is_dangerous(bash(text))
    assert not is_known_safe(bash(text))


@pytest.mark.parametrize("text", NOT_DANGEROUS)
def test_not_dangerous(text: str):
    """Words that only look like it are not."""
    assert not is_dangerous(shlex.split(text))
    assert not is_dangerous(bash(text))


@pytest.mark.parametrize("text", ["cmd=rm; $cmd -rf x", "echo 'rm -rf x", "if ; rm -rf x"], ids=ascii)
def test_what_is_not_known_is_not_dangerous(text: str):
    """A program that only the shell knows, and what stands behind an error, are not on this list."""
    assert not is_dangerous(bash(text))


@pytest.mark.parametrize("depth", [3, 8, 9, 40])
def test_depth_does_not_hide(depth: int):
    """Past eight wrappers it is dangerous whatever is inside; before that it is looked at."""
    wrapped = ["sudo"] * depth
    assert is_dangerous([*wrapped, "rm", "-f", "x"])
    assert is_dangerous([*wrapped, "ls"]) is (depth > 8)


def test_nothing_is_not_dangerous():
    """An empty command is the caller's mistake, and no crash here."""
    assert not is_dangerous([])


@given(st.text(alphabet="ls x;&|'\"$(){}[]<>\n#=,.*\\", max_size=30))
def test_what_is_plain_is_plain_in_every_shell(script: str):
    """Text that shells read differently is not plain."""
    assert plain_commands(bash(script)) is None or read(script).portable


@given(st.lists(st.text(max_size=20), max_size=5))
def test_never_both(argv: list[str]):
    """Whatever the words: no crash, and nothing is both known safe and dangerous."""
    assert not (is_known_safe(argv) and is_dangerous(argv))


@given(st.text(alphabet="ls rm-f;&|'\"$(){}\n#g>\\", max_size=30))
def test_never_both_in_scripts(script: str):
    """The same for scripts."""
    assert not (is_known_safe(bash(script)) and is_dangerous(bash(script)))
