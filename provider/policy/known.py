"""
Programs that run what they are given: wrappers, shells, interpreters, and options that name a program.

`unwrap` takes one layer off. It is generous in what it calls inline evaluation: a missed one runs unseen, a false one
costs a question. What is in no table here is taken for a program that does its own work.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from provider.policy.script import Dynamic, Word

Argv = Sequence[str | None]
"""None is a word that only the shell knows, and that may become several, or an option."""

ELLIPSIS = "…"
"""Stands for the unknown rest of an argument whose beginning is known."""


class Unwrapped(NamedTuple):
    commands: tuple[tuple[str | None, ...], ...] = ()
    """Commands that it runs, as argument lists."""
    scripts: tuple[str, ...] = ()
    """Shell texts that it runs."""
    inline: str = ""
    """Why it runs program text that stands in its arguments or comes from its input; empty when it does not."""
    transparent: bool = False
    """It does nothing but run its commands."""


NOTHING = Unwrapped()


def argument(word: Word) -> str | None:
    """Return what a program may be sure to see of a word: all of it, its beginning, or None."""
    if word.literal is not None:
        return word.literal
    first = word.parts[0]
    if first.dynamic or any(part.dynamic in _SPLITTING and not part.quoted for part in word.parts):
        return None
    known = _PATTERN.split(first.text, maxsplit=1)[0]  # a pattern's own letters are no beginning
    if not known or (known.startswith("-") and "=" not in known):
        return None
    return known + ELLIPSIS


_SPLITTING = {Dynamic.PARAMETER, Dynamic.COMMAND}
_PATTERN = re.compile(r"[\[{]")


@functools.lru_cache(maxsize=4096)
def base_name(program: str) -> str:
    """`/usr/bin/Git.exe` -> `git`: the name that tables and rules know."""
    name = program.rstrip("/").rpartition("/")[2].lower()
    return name.removesuffix(".exe")


def unwrap(argv: Argv) -> Unwrapped:
    """Take one layer off: `sudo sh -c ls` -> `sh -c ls` -> the script `ls`."""
    first = argv[0] if argv else None
    if first is None or ELLIPSIS in first:
        return NOTHING
    name = base_name(first)
    return opener(name)(name, argv[1:])


Opener = Callable[[str, Argv], Unwrapped]


@functools.lru_cache(maxsize=4096)
def opener(name: str) -> Opener:
    """What knows how to open a program of this name."""
    if name in _WRAPPERS:
        return functools.partial(_wrapped, _WRAPPERS[name])
    if form := next((form for pattern, form in _INTERPRETERS if pattern.fullmatch(name)), None):
        return functools.partial(_interpreter, form)
    named: Mapping[str, Opener] = _SPECIAL
    return named.get(name, _naming if name in _NAMING else _ordinary)


def _ordinary(_name: str, _rest: Argv) -> Unwrapped:
    return NOTHING


def _unclear(name: str) -> Unwrapped:
    return Unwrapped(inline=f"{name} with words that only the shell knows")


@functools.cache
def _split(words: str) -> frozenset[str]:
    """The words of a table below."""
    return frozenset(words.split())


# Wrappers: options, then perhaps some words of their own, then a command.


class _Wrapper(NamedTuple):
    flags: str = ""
    """Options without a value, separated by blanks."""
    values: str = ""
    """Options with a value in the next word."""
    own: int = 0
    """Words of its own before the command."""
    assigns: bool = False
    """NAME=value may stand before the command."""
    script: str = ""
    """Options whose value is shell text."""
    adds: bool = False
    """The command gets further arguments from elsewhere."""
    transparent: bool = True


_WRAPPERS = {
    "env": _Wrapper(
        "-i - --ignore-environment -0 --null -v --debug",
        "-u --unset -C --chdir",
        assigns=True,
        script="-S --split-string",
    ),
    "sudo": _Wrapper(
        "-A -b -E -H -k -K -n -P -S -i -s -v -l", "-u -g -h -p -C -D -R -T -U -r -t", assigns=True, transparent=False
    ),
    "doas": _Wrapper("-n -s -L", "-u -C", transparent=False),
    "xargs": _Wrapper(
        "-0 -r -t -p -x -o --null --no-run-if-empty --verbose --interactive --exit --open-tty",
        "-I -n -P -L -s -d -E -a --max-args --max-procs --max-lines --replace --delimiter --arg-file --eof",
        adds=True,
    ),
    "nice": _Wrapper("", "-n --adjustment"),
    "ionice": _Wrapper("-t --ignore", "-c -n --class --classdata"),
    "timeout": _Wrapper("--foreground --preserve-status -v --verbose", "-k -s --kill-after --signal", own=1),
    "nohup": _Wrapper(),
    "setsid": _Wrapper("-c -f -w --ctty --fork --wait"),
    "stdbuf": _Wrapper("", "-i -o -e --input --output --error"),
    "time": _Wrapper("-p -v -a -q --portability --verbose --append --quiet", "-f -o --format --output"),
    "command": _Wrapper("-p"),
    "builtin": _Wrapper(),
    "exec": _Wrapper("-c -l", "-a"),
    "busybox": _Wrapper(),
    "toybox": _Wrapper(),
    "chroot": _Wrapper("--skip-chdir", "--userspec --groups", own=1, transparent=False),
    "flock": _Wrapper("-s -x -e -u -n -o -F -v", "-w -E --timeout", own=1, script="-c --command"),
    "chrt": _Wrapper("-a -b -f -i -m -o -r -R -v", "-T -P -D", own=1),
    "taskset": _Wrapper("-a -c", "", own=1),
    "setarch": _Wrapper("-R -B -F -I -L -S -T -X -Z -3 -v", "", own=1),
    "linux32": _Wrapper("-R"),
    "linux64": _Wrapper("-R"),
    "unshare": _Wrapper(
        "-i -m -n -p -u -U -C -T -f -r -c --fork --map-root-user --net --mount --pid --user",
        "-R -w -S -G",
        transparent=False,
    ),
    "setpriv": _Wrapper("--no-new-privs --clear-groups --reset-env", "--reuid --regid --groups", transparent=False),
    "strace": _Wrapper(
        "-f -ff -q -qq -c -C -i -k -r -t -tt -ttt -T -v -x -y -yy",
        "-e -o -s -p -E -a -b -I -O -S -u -P",
        transparent=False,
    ),
    "ltrace": _Wrapper("-f -c -C -i -r -S -t -T", "-e -o -s -p -a -l -n -u -x", transparent=False),
    "dbus-run-session": _Wrapper(),
    "runuser": _Wrapper(
        "- -l -m -p --login", "-u -g -G -s --user --group --shell", script="-c --command", transparent=False
    ),
    "su": _Wrapper("- -l -m -p --login", "-g -G -s --group --shell", own=1, script="-c --command", transparent=False),
    "fakeroot": _Wrapper("", "-l -s -i -b"),
    "catchsegv": _Wrapper(),
    "tini": _Wrapper("-s -g -v", "-p -e"),
    "dumb-init": _Wrapper("-c -v", "-r"),
}
# Programs of their own whose first words make them wrappers.
_SUBCOMMANDS = {
    **dict.fromkeys(("uv", "poetry", "pipenv", "pdm", "rye", "hatch", "conda"), ("run",)),
    **dict.fromkeys(("bundle", "mise", "direnv"), ("exec",)),
    **dict.fromkeys(("uvx", "npx", "bunx", "pnpx"), ()),
}
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def _wrapped(wrapper: _Wrapper, name: str, rest: Argv) -> Unwrapped:
    at, own = 0, wrapper.own
    while at < len(rest):
        word = rest[at]
        if word is None or ELLIPSIS in word[:2]:
            return _unclear(name)
        if word == "--":
            at += 1
            break
        is_option = word.startswith("-") and (word != "-" or "-" in _split(wrapper.flags))
        if is_option:
            length = _length(wrapper, name, word)
            if not length:
                return _odd_option(wrapper, name, rest[at:])
            at += length
        elif wrapper.assigns and _ASSIGNED.match(word):
            at += 1
        elif own:
            own, at = own - 1, at + 1
        else:
            break
    inner = tuple(rest[at + own :])
    if not inner:
        return NOTHING
    if wrapper.adds:
        mark = _replaced(rest[:at])
        inner = (*(None if word is None or (mark and mark in word) else word for word in inner), None)
    return Unwrapped((inner,), transparent=wrapper.transparent)


def _odd_option(wrapper: _Wrapper, name: str, words: Argv) -> Unwrapped:
    word = words[0] or ""
    text = _script_of(wrapper, words)
    if text is not None:
        return Unwrapped(scripts=text, inline=f"{name} {word} runs shell text")
    only_says_where = name == "command" and set(word[1:]) <= set("pvV")
    return NOTHING if only_says_where else Unwrapped(inline=f"{name} {word}, an option not known here")


def _script_of(wrapper: _Wrapper, words: Argv) -> tuple[str, ...] | None:
    """Return the shell text that an option brings along, () when only the shell knows it, None when it brings none."""
    word = words[0] or ""
    option, equals, value = word.partition("=")
    options = _split(wrapper.script)
    if equals and option in options:
        text: str | None = value
    elif word in options:
        text = words[1] if len(words) > 1 else ""
    elif word[:2] in options and not word.startswith("--"):
        text = word[2:]
    else:
        return None
    return () if text is None or ELLIPSIS in text else (text,)


def _length(wrapper: _Wrapper, name: str, word: str) -> int:
    """How many words an option takes; 0 when it is not known."""
    flags, values = _split(wrapper.flags), _split(wrapper.values)
    option, equals, _ = word.partition("=")
    if word in values:
        return 2
    if word in flags or (equals and option in values) or (name == "nice" and word.strip("-+").isdecimal()):
        return 1
    letters = "" if word.startswith("--") else word[1:]
    for index, letter in enumerate(letters, 1):  # -0n1, -0n 1
        if f"-{letter}" in values:
            return 1 if letters[index:] else 2
        if f"-{letter}" not in flags:
            return 0
    return 1 if letters else 0


def _replaced(options: Argv) -> str:
    """What xargs replaces with its input, wherever it stands."""
    for index, word in enumerate(options):
        if word and (word.startswith(("-I", "-i")) or word.partition("=")[0] == "--replace"):
            attached = word.partition("=")[2] if word.startswith("--") else word[2:]
            following = options[index + 1] if word == "-I" and index + 1 < len(options) else None
            return attached or following or "{}"
    return ""


# Shells.

_SHELL_FILES = {"--rcfile", "--init-file"}
_SHELL_ENDS = {"--help", "--version"}


def _shell(name: str, rest: Argv) -> Unwrapped:
    at, letters = 0, ""
    while at < len(rest):
        word = rest[at]
        if word is None or ELLIPSIS in word[:1]:
            return _unclear(name)
        if word in _SHELL_ENDS:
            return NOTHING
        if word in _SHELL_FILES:
            return Unwrapped(inline=f"{name} {word}")
        if word in {"--", "-"} or not word.startswith(("-", "+")):
            at += word in {"--", "-"}
            break
        if not word.startswith(("--", "+")):
            letters += word[1:]
        at += 2 if word[-1] in "oO" and not word.startswith("--") else 1
    text = rest[at] if at < len(rest) else ""
    if "c" in letters:
        readable = () if text is None or ELLIPSIS in text else (text,)
        return Unwrapped(scripts=readable, inline=f"{name} -{letters}")
    if "s" in letters or at >= len(rest):
        return Unwrapped(inline=f"{name} reads commands from its input")
    return _unclear(name) if text is None else _of_file(name, text)


def _of_file(name: str, path: str) -> Unwrapped:
    """A file is its own business; one such as /dev/stdin is whatever is fed to it."""
    climbs = path.startswith("/") or ".." in path
    is_fed = climbs and re.search(r"(?:^|/)(?:dev|proc)/", posixpath.normpath(path))
    return Unwrapped(inline=f"{name} runs what {path} gives it") if is_fed else NOTHING


def _foreign_shell(name: str, rest: Argv) -> Unwrapped:
    """One whose text is not bash's: -c in any cluster; /c and /k; any beginning of -Command and -EncodedCommand."""
    evaluates = {"cmd": r"/[ckr].*", "powershell": r"[-/]+[ce].*|-", "pwsh": r"[-/]+[ce].*|-"}.get(
        name, r"-\w*c.*|--c.*"
    )
    for word in rest:
        if word is None or re.fullmatch(evaluates, word.lower(), re.DOTALL):
            return Unwrapped(inline=f"{name} {word}") if word else _unclear(name)
        if not word.startswith(("-", "/")):
            return NOTHING
    return Unwrapped(inline=f"{name} reads commands from its input")


# Interpreters.


class _Interpreter(NamedTuple):
    letters: str = ""
    """Short options, also inside a cluster, whose value is program text."""
    valued: str = ""
    """Short options that take the rest of the cluster, or the next word, as a value."""
    words: str = ""
    """Long options whose value is program text, and sub-commands that take it."""
    long_values: str = ""
    reads_input: bool = True
    """Without a file, the program comes from its input."""


_INTERPRETERS = tuple(
    (re.compile(pattern), interpreter)
    for pattern, interpreter in {
        r"(?:python|pypy|ipython)[0-9.]*w?|py": _Interpreter("c", "mWXQ"),
        r"node|nodejs|iojs": _Interpreter(
            "ep", "rC", "--eval --print", "--require --import --loader --experimental-loader --conditions"
        ),
        r"bun": _Interpreter("ep", "rc", "--eval --print repl", "--cwd --config --preload", reads_input=False),
        r"deno": _Interpreter("", "", "eval repl --eval", reads_input=False),
        r"tsx|ts-node|esno": _Interpreter("ep", "rPT", "--eval --print"),
        r"perl[0-9.]*": _Interpreter("eE", "IMmCDFilx0V"),
        r"ruby[0-9.]*|jruby|truffleruby": _Interpreter("e", "ICEFTWrKx0", "--eval"),
        r"php[0-9.]*": _Interpreter("rBREF", "cdfStz", "--run --process-begin --process-code --process-end"),
        r"lua[0-9.]*|luajit[0-9.-]*": _Interpreter("e", "l"),
        r"rscript|r": _Interpreter("e", "gf", "--eval"),
        r"osascript": _Interpreter("e", "l"),
        r"tclsh[0-9.]*|wish[0-9.]*|expect|ghci|irb|jshell|scala|groovy|clojure|bb|guile|sbcl|julia|octave|elixir|erl": (
            _Interpreter("ceE", "", "--eval -eval --execute --run --command")
        ),
    }.items()
)
_ENDS = {"--version", "--help", "-v", "-V", "-h"}


def _interpreter(form: _Interpreter, name: str, rest: Argv) -> Unwrapped:
    words, long_values = _split(form.words), _split(form.long_values)
    at = 0
    while at < len(rest):
        word = rest[at]
        if word is None or ELLIPSIS in word[:1]:
            return _unclear(name)
        option = word.partition("=")[0]
        if option in words or _begins(option, form.words):
            return Unwrapped(inline=f"{name} {option}")
        if word in _ENDS or not word.startswith("-"):
            return _of_file(name, word)  # or a sub-command: the rest is its business
        at += 1
        if word in {"-", "--"}:
            break
        if word.startswith("--"):
            at += word in long_values
        else:
            found, takes_next = _cluster(form, name, word, rest[at:])
            if found is not None:
                return found
            at += takes_next
    if not form.reads_input or (at < len(rest) and rest[at - 1] == "--"):
        return _of_file(name, rest[at] or "") if at < len(rest) else NOTHING
    return Unwrapped(inline=f"{name} reads a program from its input")


def _cluster(form: _Interpreter, name: str, word: str, following: Argv) -> tuple[Unwrapped | None, bool]:
    """Go through `-Iuc`; also tell whether the next word is a value."""
    for index, letter in enumerate(word[1:], 1):
        if letter in form.letters:
            return Unwrapped(inline=f"{name} {word[: index + 1]}"), False
        if letter in form.valued:
            value = word[index + 1 :]
            if letter in "mM" and name.startswith("p"):
                return _module(name, letter, value or (following[0] if following else "")), False
            # perl's -i, -l and -0 have their value attached or none at all.
            return None, not value and not (name.startswith(("perl", "ruby")) and letter in "il0x")
    return None, False


def _module(name: str, letter: str, module: str | None) -> Unwrapped:
    """Of `python -m` a module runs; of `perl -M` a statement, which is code unless it is a plain name."""
    if module is None or (name.startswith("perl") and not re.fullmatch(r"[\w:]+(?:=[\w:,]*)?", module)):
        return Unwrapped(inline=f"{name} -{letter}")
    if name.startswith(("py", "python")) and module in {"timeit", "code", "pdb", "cProfile", "profile", "trace"}:
        return Unwrapped(inline=f"{name} -m {module}")
    # A perl one-liner has its -e after the module: `perl -MPOSIX -e …`.
    return Unwrapped(inline=f"{name} -{letter}") if name.startswith("perl") else NOTHING


def _begins(option: str, words: str) -> bool:
    """`--ev` is taken for `--eval`, as GNU programs do. The words are separated by blanks."""
    return option.startswith("--") and len(option) > len("--x") and f" {option}" in f" {words}"


# Programs with rules of their own.


def _find(name: str, rest: Argv) -> Unwrapped:
    commands, at = [], 0
    while at < len(rest):
        word = rest[at]
        if word is None:
            return _unclear(name)
        at += 1
        if word in {"-exec", "-execdir", "-ok", "-okdir"}:
            end = next((index for index in range(at, len(rest)) if rest[index] in {";", "+"}), len(rest))
            commands.append(tuple(None if inner is None or "{}" in inner else inner for inner in rest[at:end]))
            at = end + 1
    return Unwrapped(tuple(command for command in commands if command))


def _eval(name: str, rest: Argv) -> Unwrapped:
    if not rest:
        return NOTHING
    known = [word for word in rest if word is not None and ELLIPSIS not in word]
    return Unwrapped(scripts=(" ".join(known),) if len(known) == len(rest) else (), inline=name)


def _trap(name: str, rest: Argv) -> Unwrapped:
    words = rest[1:] if rest and rest[0] == "--" else rest
    if not words or (words[0] or "?") in {"-", "-l", "-p", ""} or len(words) == 1:
        return NOTHING if words and words[0] is not None else Unwrapped(inline=name) if words else NOTHING
    text = words[0]
    return Unwrapped(scripts=(text,) if text is not None and ELLIPSIS not in text else (), inline=name)


_AWK_RUNS = re.compile(r"\bsystem\b|\||\bgetline\b|@load|@include|\bexec\b")


_AWK_LOADS = "--file --include --load --exec --debug --source"


def _awk(name: str, rest: Argv) -> Unwrapped:
    """Its program, also one in a file: whoever allows awk for reading has not read that."""
    at = 0
    while at < len(rest):
        word = rest[at]
        if word is None:
            return _unclear(name)
        if word.startswith(("-f", "-i", "-l", "-E", "-D", "-e")) or _begins(word.partition("=")[0], _AWK_LOADS):
            return Unwrapped(inline=f"{name} {word}")
        if not word.startswith("-") or word == "--":
            text = word if word != "--" else next(iter(rest[at + 1 :]), "")
            runs = text is None or ELLIPSIS in text or _AWK_RUNS.search(text)
            return Unwrapped(inline=f"{name} runs commands") if runs else NOTHING
        at += 2 if word in {"-F", "-v", "--assign", "--field-separator"} else 1
    return NOTHING


_SED_EXPRESSION = re.compile(r"^(?:-[nErsuz]*e|--e[a-z]*=)")
_SED_FILE = re.compile(r"-[nErsuz]*f|--f")
_SED_RUNS = re.compile(
    r"(?:^|[;{}\n])\s*(?:[0-9$~+,!\s]|/(?:\\.|[^/\\])*/[IM]?|\\(.)(?:\\.|.)*?\1)*[ewW](?:\s|$|[;}])"
    r"|s([^\w\s\\])(?:\\.|(?!\2).)*\2(?:\\.|(?!\2).)*\2[gpiImM0-9]*[ew]"
    # Any character can stand in place of the slashes; a letter is looked for only where a command begins.
    r"|(?:^|[;{}\n])[^a-zA-Z;{}\n]*s([\w ])(?:\\.|(?!\3).)*\3(?:\\.|(?!\3).)*\3[gpiImM0-9]*[ew]",
    re.DOTALL,
)


def _sed(name: str, rest: Argv) -> Unwrapped:
    for word in rest:
        if word is None:
            return _unclear(name)
        if _SED_FILE.match(word):
            return Unwrapped(inline=f"{name} {word}, which runs a file's commands")
        text = _SED_EXPRESSION.sub("", word)
        if (not text.startswith("-") or text != word) and _SED_RUNS.search(text):
            return Unwrapped(inline=f"{name} runs a command or writes a file")
    return NOTHING


_GIT_VALUES = {"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"}
_GIT_RUNS = (
    "--open-files-in-pager --upload-pack --receive-pack --exec --ext-diff --textconv --extcmd --tool --config "
    "--template --upload-archive --gpg-sign --sign --sendmail-cmd --smtp-server --to-cmd --cc-cmd --header-cmd "
    "--access-hook --browser"
)
_GIT_TAKES = {
    *(("bisect", "run"), ("submodule", "foreach"), ("filter-branch",), ("difftool",), ("mergetool",), ("hook", "run")),
    *(("for-each-repo",), ("daemon",), ("instaweb",), ("web--browse",), ("credential",)),
}
_GIT_NAMES = {"grep": "-O", "rebase": "-x", "difftool": "-x", "clone": "-uc", "fetch": "-u", "interpret-trailers": "-"}
"""Letters of options, by sub-command, that take a program; attached or not."""


def _git(name: str, rest: Argv) -> Unwrapped:
    at = 0
    while at < len(rest):
        word = rest[at]
        if word is None:
            return _unclear(name)
        if word.startswith(("-c", "--config-env", "--exec-path=")):
            return Unwrapped(inline=f"{name} {word}, which can name a program")
        if not word.startswith("-"):
            break
        at += 2 if word in _GIT_VALUES else 1
    words = rest[at:]
    for word in words:
        option = (word or "").partition("=")[0]
        if word == "--":
            break
        letters = _GIT_NAMES.get(words[0] or "", "-")[1:]
        if word is None or (word[:1] == "-" and word[1:2] in (*letters,)) or word.startswith("ext::"):
            return Unwrapped(inline=f"{name} {words[0]} {word or 'with words that only the shell knows'}")
        if _begins(option, _GIT_RUNS):
            return Unwrapped(inline=f"{name} {words[0]} {option}")
    if tuple(words[:1]) in _GIT_TAKES or tuple(words[:2]) in _GIT_TAKES or _configures(words):
        return Unwrapped(inline=f"{name} {words[0]}")
    return NOTHING


_CONFIG_READS = re.compile(r"-l|--list|--get.*|get.*|list")


def _configures(words: Argv) -> bool:
    """`git config KEY VALUE`: half of the keys name a program that git runs later."""
    if list(words[:1]) != ["config"] or any(_CONFIG_READS.fullmatch(word or "") for word in words[1:3]):
        return False
    return len([word for word in words[1:] if word is None or not word.startswith("-")]) > 1


_TAR_RUNS = "IF"
_TAR_VALUES = "fbCgHKLNTVX"


def _tar(name: str, rest: Argv) -> Unwrapped:
    """Options in a cluster, also in one without a dash, as its oldest form has them."""
    for at, word in enumerate(rest):
        old = at == 0 and word is not None and not word.startswith("-")
        if not word or not (old or (word.startswith("-") and not word.startswith("--"))):
            continue
        for letter in word.lstrip("-"):
            if letter in _TAR_RUNS:
                return Unwrapped(inline=f"{name} -{letter}, which can name a program")
            if letter in _TAR_VALUES and not old:
                break  # the rest is its value
    return _naming(name, rest)


_SQLITE_RUNS = re.compile(
    r"\.(?:sh|sy|lo|ou|on|im|re|ex|ar|w|cd|ed|ba|sa|cl)|(?i:.*\b(?:edit|load_extension|writefile)\s*\()"
)
_PSQL_RUNS = re.compile(r".*(?:\\[!oigws]|\bprogram\b)", re.DOTALL | re.IGNORECASE)
_MYSQL_RUNS = re.compile(r".*(?:\\[!TPe.]|\bsystem\b|\bsource\b|\boutfile\b)", re.DOTALL | re.IGNORECASE)
_TEXTS = {
    "sqlite3": _SQLITE_RUNS,
    **dict.fromkeys(("mysql", "mariadb"), _MYSQL_RUNS),
    "psql": _PSQL_RUNS,
    "dc": re.compile(r".*!", re.DOTALL),
}


def _worded(name: str, rest: Argv) -> Unwrapped:
    """Programs with a language of their own, in which some words run a program."""
    if any(word is not None and _TEXTS[name].match(word) for word in rest):
        return Unwrapped(inline=f"{name} runs a command, or writes a file")
    return _naming(name, rest)


def _subcommand(name: str, rest: Argv) -> Unwrapped:
    leading = _SUBCOMMANDS[name]
    words = list(rest)
    if leading:
        if not words or words[0] not in leading:
            return NOTHING
        words = words[1:]
    if words and words[0] == "--":
        words = words[1:]
    if not words or words[0] is None or words[0].startswith("-"):
        return Unwrapped(inline=f"{name} {words[0] if words else ''}".strip()) if words else NOTHING
    return Unwrapped((tuple(words),))


def _arithmetic(name: str, rest: Argv) -> Unwrapped:
    """`let` evaluates names, and the values of names, as arithmetic, which can hold substitutions."""
    return Unwrapped(inline=f"{name} evaluates arithmetic") if rest else NOTHING


_SUBSCRIPT = re.compile(r"\[.*[$`]", re.DOTALL)


def _names(name: str, rest: Argv) -> Unwrapped:
    """Builtins that take names: a subscript in a name is evaluated, also out of single quotes."""
    for word in rest:
        takes_names = name not in {"test", "[", "printf"} or "-v" in rest
        known, cut, _ = (word or "").partition(ELLIPSIS)
        if takes_names and (word is None or (cut and "=" not in known)):  # "a[$x]": the subscript is evaluated
            return _unclear(name)
        if word and _SUBSCRIPT.search(word):
            return Unwrapped(inline=f"{name} evaluates a subscript")
    if any((word or "").startswith(_CALLS.get(name, ("\0",))) for word in rest):
        return Unwrapped(inline=f"{name} runs or expands text")
    return NOTHING


# -W expands its words, and what is in them, as a shell does.
_CALLS = {"mapfile": ("-C",), "readarray": ("-C",), "complete": ("-C", "-W", "-F"), "compgen": ("-C", "-W", "-F")}
_CALLS["bind"] = ("-x",)


def _jobs(name: str, rest: Argv) -> Unwrapped:
    """`jobs -x` runs the words after it."""
    if rest and (rest[0] is None or rest[0].startswith("-x")):
        return Unwrapped((tuple(rest[1:]),)) if rest[0] == "-x" and rest[1:] else Unwrapped(inline=f"{name} -x")
    return NOTHING


def _file(name: str, rest: Argv) -> Unwrapped:
    """`source` of a file is as good as running it; of anything else it is evaluation."""
    words = rest[1:] if rest[:1] == ("--",) else rest
    if words and words[0] is not None and ELLIPSIS not in words[0]:
        return _of_file(name, words[0])
    return Unwrapped(inline=f"{name} of something that only the shell knows")


def _joined(name: str, rest: Argv) -> Unwrapped:
    """Programs that hand their words to a shell: watch, parallel, script -c, entr."""
    return Unwrapped(inline=f"{name} runs shell text") if rest else NOTHING


_SPECIAL: dict[str, Opener] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "ksh", "mksh", "rbash", "zsh", "yash", "hush"), _shell),
    **dict.fromkeys(("fish", "csh", "tcsh", "cmd", "powershell", "pwsh", "nu", "elvish", "xonsh"), _foreign_shell),
    "find": _find,
    "gfind": _find,
    "eval": _eval,
    "trap": _trap,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
    "original-awk": _awk,
    "sed": _sed,
    "gsed": _sed,
    "git": _git,
    "let": _arithmetic,
    "jobs": _jobs,
    ".": _file,
    "source": _file,
    **dict.fromkeys(_SUBCOMMANDS, _subcommand),
    **dict.fromkeys(
        ["watch", "parallel", "sem", "script", "scriptreplay", "entr", "at", "batch", "crontab", "tmux", "screen"],
        _joined,
    ),
    "tar": _tar,
    "gtar": _tar,
    "bsdtar": _tar,
    **dict.fromkeys(("sqlite3", "mysql", "mariadb", "psql", "dc"), _worded),
    **dict.fromkeys(
        (
            *("pkexec", "capsh", "firejail", "bwrap", "proot", "valgrind", "perf", "logsave", "cpulimit", "softlimit"),
            *("torsocks", "torify", "proxychains", "proxychains4", "xvfb-run", "rlwrap", "unbuffer", "dtach", "abduco"),
            *(
                "ssh-agent",
                "gdbserver",
                "sshpass",
                "autossh",
                "start-stop-daemon",
                "run-parts",
                "multitime",
                "hyperfine",
            ),
            *("socat", "lxc", "lxc-execute", "ansible", "xdotool", "chronic", "ifne", "daemonize", "daemon", "chpst"),
            *("setuidgid", "envdir", "gosu", "su-exec", "faketime", "prlimit", "cgexec", "numactl", "eatmydata", "sg"),
            *("runcon", "systemd-inhibit", "choom", "red", "dbclient", "plink", "slogin", "jrunscript", "genie"),
        ),
        _joined,
    ),
    **dict.fromkeys(["ssh", "rsh", "mosh", "nsenter", "systemd-run", "gdb", "lldb", "ed", "ex"], _joined),
    **dict.fromkeys(
        ["test", "[", "printf", "read", "unset", "declare", "typeset", "local", "export", "readonly"], _names
    ),
    **dict.fromkeys(["mapfile", "readarray", "wait", "getopts", "complete", "compgen", "bind"], _names),
}

# Options whose value is a program to run, by program. Long ones also in any shorter form that GNU would take.
_NAMING = {
    "sort": ("--compress-program",),
    "tar": (
        "--to-command",
        "--checkpoint-action",
        "--use-compress-program",
        "-I",
        "--rsh-command",
        "--info-script",
        "-F",
        "--new-volume-script",
        "--files-from",  # whose lines may be options
        "-T",
    ),
    "rg": ("--pre", "--hostname-bin", "--search-zip", "-z"),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "man": ("-H", "--html", "-P", "--pager", "-C", "--config-file"),
    "go": ("-exec", "-toolexec", "-vettool", "-overlay", "run", "generate", "-w"),
    "make": ("--eval", "-E", "SHELL=", ".SHELLFLAGS=", "-f", "--file", "--makefile"),
    "gmake": ("--eval", "-E", "SHELL=", ".SHELLFLAGS=", "-f", "--file", "--makefile"),
    "npm": ("--script-shell", "--node-options", "exec", "x", "explore", "init", "create", "edit", "set"),
    "pnpm": ("--script-shell", "exec", "dlx", "create"),
    "yarn": ("--script-shell", "exec", "dlx", "node", "create"),
    "pipx": ("run",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "scp": ("-S", "-o", "-F", "-D"),
    "sftp": ("-S", "-o", "-F", "-D", "-b"),
    "ssh-keygen": ("-D", "-w"),
    "ssh-add": ("-s", "-S"),
    "zip": ("-TT", "--unzip-command"),
    **dict.fromkeys(
        ("vim", "vi", "view", "ex", "rvim", "rview", "vimdiff", "gvim", "gview", "gvimdiff", "nvim", "nvimdiff"),
        ("-c", "--cmd", "-S", "+", "-s", "-u", "-l"),
    ),
    "emacs": ("--eval", "-eval", "--execute", "--load", "-l", "--batch", "-f", "--funcall", "--script", "-script"),
    "emacsclient": ("-e", "--eval"),
    **dict.fromkeys(("nano", "pico", "rnano"), ("-s", "--speller", "--rcfile", "-f")),
    "less": ("+", "-k", "--lesskey", "--lesskey-file", "--lesskey-src", "--lesskey-content"),
    "more": ("+",),
    "curl": ("-K", "--config"),
    "wget": ("--use-askpass", "--config", "-e", "--execute"),
    "split": ("--filter",),
    "cargo": ("--config",),
    "gcc": ("-wrapper", "-fplugin", "-specs", "-B", "@"),
    "cc": ("-wrapper", "-fplugin", "-specs", "-B", "@"),
    "g++": ("-wrapper", "-fplugin", "-specs", "-B", "@"),
    "clang": ("-fplugin", "-Xclang", "-B", "@"),
    "ld": ("-plugin", "--plugin", "@"),
    "as": ("@",),
    "java": ("-javaagent", "-agentlib", "-agentpath", "-XX:OnError", "-XX:OnOutOfMemoryError", "@"),
    "cmake": ("-P", "-E"),
    "ctest": ("-S", "-SP", "--build-and-test", "--script"),
    "ninja": ("-f",),
    "bazel": ("run", "--run_under"),
    "mvn": ("exec:exec", "exec:java"),
    "gradle": ("-I", "--init-script", "-b", "--build-file"),
    "rpm": ("--eval", "-E", "--pipe"),
    **dict.fromkeys(("apt", "apt-get", "aptitude", "apt-cache"), ("-o", "--option", "-c", "--config-file")),
    **dict.fromkeys(
        ("latex", "pdflatex", "xelatex", "lualatex", "tex", "pdftex", "luatex"),
        ("--shell-escape", "-shell-escape", "--enable-write18", "-enable-write18"),
    ),
    "latexmk": ("-e", "-r", "-pdflatex", "-latex", "-shell-escape"),
    "dvips": ("-R0",),
    "gs": ("-dNOSAFER", "-dDELAYSAFER"),
    "chromium": ("--renderer-cmd-prefix", "--utility-cmd-prefix", "--gpu-launcher", "--browser-subprocess-path"),
    "fzf": ("--preview", "--bind", "--with-shell"),
    **dict.fromkeys(("bat", "batcat", "delta"), ("--pager",)),
    "gh": ("alias", "extension", "ext"),
    "hg": ("--config", "-R", "--repository"),
    "svn": ("--editor-cmd", "--diff-cmd", "--diff3-cmd", "--merge-cmd", "--config-option"),
    "cvs": ("-e", "-d"),
    "aria2c": (
        *("--on-download-complete", "--on-download-start", "--on-download-error", "--on-download-stop"),
        *("--on-download-pause", "--on-bt-download-complete", "--conf-path", "--input-file", "-i"),
    ),
    "ctags": ("--options",),
    "restic": ("--password-command", "-o", "--option"),
    "borg": ("--rsh", "--remote-path"),
    "lynx": ("-editor", "-cfg", "-lss"),
    "ranger": ("--cmd", "--confdir"),
    "cowsay": ("-f",),
    **dict.fromkeys(("nc", "ncat", "netcat"), ("-e", "-c", "--exec", "--sh-exec", "--lua-exec")),
    "puppet": ("-e", "--execute"),
    "crystal": ("eval", "run"),
    "gimp": ("-b", "--batch"),
    "blender": ("-P", "--python", "--python-expr", "--python-text"),
    "inkscape": ("--actions", "--action-list", "--shell"),
    "mutt": ("-e", "-F"),
    "elinks": ("-eval", "-config-file"),
    "slsh": ("-e",),
    "rc": ("-c",),
    "mysql": ("--pager", "--init-command", "--defaults-file", "--defaults-extra-file", "--plugin-dir"),
    "mariadb": ("--pager", "--init-command", "--defaults-file", "--defaults-extra-file", "--plugin-dir"),
    "psql": ("-f", "--file", "-o", "--output", "-L"),
    "dc": ("-f", "--file"),
    "gem": ("exec",),
    "docker": ("run", "exec"),
    "podman": ("run", "exec"),
    "kubectl": ("run", "exec", "debug"),
    "sqlite3": ("-cmd", "-init"),
    "nmap": ("--script",),
    "openssl": ("-engine", "-provider"),
    "ip": ("netns", "-b", "-batch"),
    "tcpdump": ("-z",),
}


# Of these a letter may stand in a cluster: `rg -nz`, `rsync -ae sh`. Others have options of several letters.
_CLUSTERS = frozenset({"rg", "fd", "fdfind", "curl", "rsync", "zip", "man", "wget", "tcpdump", "less"})
_NAMING_STARTS = {name: ("--", *options) for name, options in _NAMING.items()}
_NAMING_LONG = {name: " ".join(("", *options)) for name, options in _NAMING.items()}


def _clustered(word: str, options: Sequence[str]) -> bool:
    """Whether one of these short options may be inside; a value that only looks like one costs a question."""
    is_cluster = word.startswith("-") and not word.startswith("--")
    return is_cluster and any(option[1:] in word[1:] for option in options if _SHORT.fullmatch(option))


_SHORT = re.compile(r"-[A-Za-z]{1,2}")


def _naming(name: str, rest: Argv) -> Unwrapped:
    for word in rest:
        if word is None:
            return _unclear(name)
        if word == "--":
            break
        if name in _CLUSTERS and _clustered(word, _NAMING[name]):
            return Unwrapped(inline=f"{name} {word}, which can name a program")
        if not word.startswith(_NAMING_STARTS[name]):  # as most words do not, which saves the rest
            continue
        given, is_long = word.partition("=")[0], word.startswith("--")
        if is_long and f" {given}" not in _NAMING_LONG[name]:  # the same for long ones
            continue
        for option in _NAMING[name]:
            attached = not is_long and word.startswith(option) and (len(option) <= len("-x") or option.endswith("="))
            if attached or option in (word, given) or (is_long and _begins(given, option)):
                return Unwrapped(inline=f"{name} {option}, which can name a program")
    return NOTHING
