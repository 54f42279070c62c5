"""What `provider.policy.known` promises: whatever runs something else is seen to do so."""

from __future__ import annotations

import shlex

import pytest

from provider.policy.known import NOTHING, argument, base_name, unwrap
from provider.policy.syntax import read

COMMANDS = (
    ("env curl x", "curl x"),
    ("env -i A=b curl x", "curl x"),
    ("env -u A -C /x B=c curl", "curl"),
    ("env --unset=A -- curl", "curl"),
    ("sudo rm x", "rm x"),
    ("sudo -n -u bob A=1 rm x", "rm x"),
    ("sudo -nu bob rm x", "rm x"),
    ("nice rm x", "rm x"),
    ("nice -n 5 rm x", "rm x"),
    ("nice -5 rm x", "rm x"),
    ("nice -n5 rm x", "rm x"),
    ("timeout 5 rm x", "rm x"),
    ("timeout -k 1 --signal=KILL 5s rm -f x", "rm -f x"),
    ("timeout -- 5 rm", "rm"),
    ("nohup rm x", "rm x"),
    ("setsid -f rm x", "rm x"),
    ("stdbuf -oL rm x", "rm x"),
    ("stdbuf -o L -e 0 rm x", "rm x"),
    ("time -p rm x", "rm x"),
    ("command rm x", "rm x"),
    ("command -p rm x", "rm x"),
    ("builtin rm", "rm"),
    ("exec rm x", "rm x"),
    ("exec -a n rm x", "rm x"),
    ("busybox rm x", "rm x"),
    ("/bin/busybox sh -c ls", "sh -c ls"),
    ("chroot /x rm y", "rm y"),
    ("flock /l rm x", "rm x"),
    ("ionice -c 3 rm x", "rm x"),
    ("taskset 1 rm x", "rm x"),
    ("strace -f -o o rm x", "rm x"),
    ("uv run rm x", "rm x"),
    ("npx rm x", "rm x"),
    ("bundle exec rm x", "rm x"),
    ("/usr/bin/ENV.exe rm x", "rm x"),
)

SCRIPTS = (
    ("sh -c ls", "ls"),
    ("bash -c 'ls; rm x'", "ls; rm x"),
    ("bash -lc 'rm x'", "rm x"),
    ("bash -ec 'rm x'", "rm x"),
    ("bash -c -e 'rm x'", "rm x"),
    ("bash -o pipefail -c 'rm x' a b", "rm x"),
    ("bash -eo pipefail -c 'rm x'", "rm x"),
    ("bash --norc -c ls", "ls"),
    ("/bin/dash -c ls", "ls"),
    ("zsh -c ls", "ls"),
    ("eval rm x", "rm x"),
    ("eval 'rm x' y", "rm x y"),
    ("trap 'rm x' EXIT", "rm x"),
    ("su -c 'rm x'", "rm x"),
    ("su bob -c 'rm x'", "rm x"),
    ("runuser -u bob --command='rm x'", "rm x"),
    ("flock /l -c 'rm x'", "rm x"),
    ("env -S 'rm x'", "rm x"),
    ("env '--split-string=rm x'", "rm x"),
)

INLINE = (
    "bash /dev/stdin", "sh -- /proc/self/fd/0", "python3 /dev/fd/3", "perl ../dev/stdin", ". /dev/../dev/stdin",
    "compgen -W x", "sed 'sxaxbxe' f", "sed 's1a1b1e' f", "sed -f x f", "awk -f x", "tar xIf sh a", "tar -xIsh -f a",
    "rg -nz x", "git config core.pager sh", "git grep -Osh x", "git clone ext::sh x", "sqlite3 x '.sh id'",
    "psql -c '\\! id'",
    # the holes of shell_cmd's original, shell-tools.md D.4
    "bash -lc x", "perl -ne x", "perl -pe x", "perl -i -pe x", "perl -Mx -e y", "node -p 1", "node -pe 1",
    "node --print 1", "python3.11 -c 1",
    "bun -e 1", "deno eval 1", "powershell -EncodedCommand x", "powershell -enc x", "pwsh -c x", "env -S x",
    # and what is like them
    "python -c 1", "python3 -Ic 1", "python3 -uc 1", "python3 -W ignore -c 1", "python3 -", "python3",
    "pypy3 -c 1", "py -c 1",
    "python3 -m timeit x", "node -e 1", "node --eval=1", "node --ev 1", "node", "node -r x -e 1", "nodejs -e 1",
    "ruby -e 1", "ruby -ne 1",
    "ruby", "perl -e 1", "perl -E 1", "perl -Mstrict -e1", "perl", "php -r 1", "php --run 1", "lua -e 1",
    "Rscript -e 1", "osascript -e 1",
    "cmd /c dir", "cmd /K dir", "cmd.exe /cdir", "fish -c ls", "tcsh -c ls", "fish", "sh", "bash", "bash -s",
    "bash -s x", "bash -i",
    "bash --rcfile x", "julia -e 1", "elixir -e 1", "guile -c 1", "ts-node -e 1", "tsx -e 1",
    "awk 'BEGIN{system(1)}'", "awk '{print | \"sh\"}'", "gawk -e 1", "awk -v a=1 '{system($0)}'", "gawk -i x 1",
    "sed e", "sed '1e ls'", "sed 's/a/b/e'", "sed 's|a|b|ge'", "sed -n 's/a/b/w f'", "sed -e 's/a/b/e' f",
    "sed 'w f'", "sed --expression=e",
    "git -c core.pager=x log", "git -c core.fsmonitor=x status", "git --config-env=a=b status",
    "git --exec-path=x status",
    "git grep --open-files-in-pager x", "git grep -O x", "git clone -u x y", "git fetch --upload-pack=x",
    "git rebase --exec x",
    "git rebase -x ls", "git bisect run x", "git submodule foreach x", "git difftool", "git diff --ext-diff",
    "git log --textconv",
    "git -C x -c a=b log", "git grep --open x",
    "sort --compress-program=x", "sort --comp=x", "tar --to-command=x", "tar --checkpoint-action=exec=x",
    "tar -I x", "rg --pre x y",
    "rg --hostname-bin x", "man -H x", "man --html=x y", "go test -exec x", "make --eval x", "make SHELL=x",
    "npm --script-shell x", "npm exec x",
    "rsync -e x", "rsync --rsh=x", "ssh -oProxyCommand=x h", "ssh h ls", "zip -TT x", "vim -c x", "vim +x",
    "emacs --eval x", "split --filter=x",
    "less +x", "curl -K x", "wget -e x", "fd -x rm", "fd --exec rm", "gdb -ex x", "watch ls", "parallel ls",
    "script -c x", "at now", "crontab x",
    "tcpdump -z x", "sqlite3 .shell", "docker run x", "let x=1", "read 'a[$(x)]'", "unset 'a[$(x)]'",
    "test -v 'a[$(x)]'", "printf -v 'a[`x`]' y",
    "mapfile -C x y", "source /dev/stdin", ". /dev/fd/3", "sudo --weird rm", "env --weird rm", "xargs --weird rm",
    "timeout --weird 5 rm",
)  # fmt: skip

ORDINARY = (
    "bash dev/x.sh", "bash ./dev/x.sh", "python3 proc/x.py", "tar -xf a", "tar tf a", "git config --get x",
    "git config -l",
    "sqlite3 x .schema", "sqlite3 ./x 'select 1'", "psql -c 'select 1'", "dc -e '1 2+p'", "rg -n x", "jobs -l",
    "ls", "ls -la", "cat x", "bash script.sh", "bash -x script.sh", "sh ./x -c", "python3 -m http.server",
    "python3 x.py -c", "python3 -V", "python x.py",
    "python3 -m pytest -c x", "node x.js -e", "node --version", "ruby a.rb", "ruby -rjson a.rb", "perl x.pl -e",
    "php x.php", "awk '/x/'",
    "awk '{print $1}' f", "awk -F: '{print $1}'", "sed 's/a/b/' f", "sed -n '1,5p' f",
    "sed '/start/,/end/p' f", "sed 's/e/w/g'",
    "sed -i 's/were/ewe/' f", "git status", "git log --oneline", "git -C x status", "git commit -m x",
    "git diff -- -x", "find . -name x", "tar xf x",
    "rg x", "sort x", "make all", "npm test", "npm install", "curl https://x", "go test ./...", "vim x",
    "command -v ls", "command -V ls", "trap - EXIT",
    "trap", "env", "env A=b", "sudo", "xargs", "timeout 5", "source x.sh", ". ./x", "export A=b", "test -f x",
    "[ -n x ]", "printf x", "read x",
    "deno run x.ts", "bun run x", "uv pip install x", "echo -c", "bash --version", "pwsh x.ps1", "cmd", "less x",
)  # fmt: skip


@pytest.mark.parametrize(("text", "inner"), COMMANDS)
def test_a_wrapper_gives_its_command(text: str, inner: str):
    """Options, values, assignments and words of its own are taken off."""
    assert [list(command) for command in unwrap(shlex.split(text)).commands] == [shlex.split(inner)]


@pytest.mark.parametrize(("text", "script"), SCRIPTS)
def test_shell_text_is_handed_out(text: str, script: str):
    """It is evaluation all the same, for those who refuse that."""
    found = unwrap(shlex.split(text))
    assert found.scripts == (script,)
    assert found.inline


@pytest.mark.parametrize("text", INLINE)
def test_inline_evaluation_is_seen(text: str):
    """In clusters, abbreviations, attached values, versions and cases."""
    assert unwrap(shlex.split(text)).inline


@pytest.mark.parametrize("text", [text for text in ORDINARY if text != "cmd"])
def test_ordinary_commands_are_left_alone(text: str):
    """A false alarm costs a question; these are too common for one."""
    assert unwrap(shlex.split(text)) == NOTHING


@pytest.mark.parametrize(
    "wrapper",
    ["sudo", "xargs", "timeout 5", "nohup", "busybox", "env -i", "nice -n 3", "stdbuf -o0", "command", "exec"],
)
def test_no_wrapper_hides_an_evaluation(wrapper: str):
    """`sudo sh -c`, `xargs sh -c` and the others of D.4: one layer off, and there it is."""
    (inner,) = unwrap(shlex.split(f"{wrapper} sh -c 'rm x'")).commands
    assert inner[:3] == ("sh", "-c", "rm x")
    assert unwrap(inner).scripts == ("rm x",)


def test_find_gives_every_command():
    """Of -exec, -execdir, -ok and -okdir, up to `;` or `+`; what it fills in is not known."""
    found = unwrap(shlex.split(r"find . -exec rm -f {} \; -o -execdir sh -c 'ls {}' + -ok mv {}.a b \;"))
    assert found.commands == (("rm", "-f", None), ("sh", "-c", None), ("mv", None, "b"))
    assert not found.transparent


def test_xargs_adds_words():
    """Its input becomes arguments, and with -I any part of them."""
    assert unwrap(["xargs", "-0", "-n1", "rm", "-f"]).commands == (("rm", "-f", None),)
    assert unwrap(["xargs", "-I", "%", "sh", "-c", "rm %"]).commands == (("sh", "-c", None, None),)
    assert unwrap(["xargs", "-I{}", "echo", "a{}", "b"]).commands == (("echo", None, "b", None),)


@pytest.mark.parametrize(
    "name", ["env", "sudo", "find", "bash", "python3", "git", "tar", "rg", "sed", "awk", "xargs", "declare"]
)
def test_words_that_only_the_shell_knows_are_not_trusted(name: str):
    """`find . $x` may be `find . -delete`."""
    assert unwrap([name, None, "x"]).inline


def test_some_wrappers_do_nothing_else():
    """`timeout` needs no permission of its own; `sudo` and `find` do."""
    assert unwrap(["timeout", "5", "ls"]).transparent
    assert not unwrap(["sudo", "ls"]).transparent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x abc", "abc"),
        ("x 'a b'", "a b"),
        ("x $y", None),
        ('x "$y"', None),
        ("x a$y", None),
        ('x "a$y"', "a…"),
        ("x a*", "a…"),
        ("x *", None),
        ("x -{a,b}", None),
        ("x a{b,c}", "a…"),
        ("x {a,b}", None),
        ("x [-]a", None),
        ('x -I"$y"', None),
        ('x --file="$y"', "--file=…"),
        ("x ~/y", None),
        ("x <(y)", None),
    ],
)
def test_what_a_program_is_sure_to_see(text: str, expected: str | None):
    """All of a word, its beginning, or nothing, when it may become several words or an option."""
    assert argument(read(text).commands[0].arguments[0]) == expected


def test_names_are_base_names():
    """By path, in another case, with Windows' ending."""
    assert [base_name(name) for name in ("/bin/rm", "./rm", "RM", "rm.exe", "rm", "/", "a/b/")] == ["rm"] * 5 + [
        "",
        "b",
    ]
