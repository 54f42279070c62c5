"""
Known-safe commands, which nobody is asked about, and dangerous ones, which somebody always is. Pure.

Both lists say what is wanted, not what is possible; the container is the boundary. They err on different sides. Known
safe is only what can be read in full: plain commands, joined by `;`, `&&`, `||`, `|` or newlines, with words that are
what they look like. Dangerous is whatever turns up anywhere, in a loop, a substitution or a wrapper.

Where the contract's first version was too kind, this one is not: git runs helpers that a repository's configuration
names, and cargo runs build scripts, so neither is safe; `uniq` has an output file; a program counts under its bare name
or in a system folder, since `./ls` is whatever the workspace says.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Final

from provider.policy.known import NOTHING, unwrap
from provider.policy.rules import Segment, segments_of
from provider.policy.script import Command, Word
from provider.policy.syntax import read

Argv = Sequence[str]

SHELLS: Final = frozenset({"bash", "zsh", "sh"})
_FLAGS: Final = frozenset({"-lc", "-c"})
_SYSTEM_FOLDERS: Final = frozenset(f"{root}/{kind}" for root in ("", "/usr", "/usr/local") for kind in ("bin", "sbin"))


def program(argv: Argv) -> str:
    """The name that the lists know; empty for a file that only looks like one of theirs."""
    folder, name = posixpath.split(argv[0]) if argv else ("", "")
    return name if not folder or folder in _SYSTEM_FOLDERS else ""


# Scripts of plain commands.


def script_of(argv: Argv) -> str | None:
    """Return the text of `bash -lc TEXT`: three elements, no more."""
    match argv:
        case [_, flag, text] if flag in _FLAGS and program(argv) in SHELLS:
            return text
        case _:
            return None


def plain_commands(argv: Argv) -> tuple[tuple[str, ...], ...] | None:
    """
    Return the commands of `bash -lc "a && b"` in order, or None when it is more than plain commands.

    None also for whatever is no such script at all; the caller then has one command, the argv.
    """
    text = script_of(argv)
    script = None if text is None else read(text)
    if script is None or script.unknown or not script.commands:
        return None
    if script.commented or not all(map(_is_plain, script.commands)):
        return None
    return tuple(tuple(word.literal or "" for word in command.words) for command in script.commands)


# Nothing that bash has and other shells do not is plain, so one reading is good for all three.
_JOINTS = frozenset({"", ";", "\n", "&&", "||", "|"})


def _is_plain(command: Command) -> bool:
    bare = command.program is not None and _BARE.fullmatch(command.program.source) is not None
    decorated = command.keyword or command.assignments or command.redirections or command.places
    loose = command.background or command.negated or command.joined_by not in _JOINTS
    return bare and not decorated and not loose and all(map(_is_plain_word, command.arguments))


# The reader knows what bash makes of a word. This asks for less: nothing that another shell could make something else
# of (zsh expands `=ls` and `^x`), and no escapes, so that a person sees the same word as the program.
_UNQUOTED = r"[^\s'\"{}*?\[\]\\~^#$`]"
_BARE = re.compile(rf"(?!=){_UNQUOTED}+")
_PLAIN_WORD = re.compile(rf"""(?!=)(?:{_UNQUOTED}|'[^']*'|"(?:[^"\\$`]|\\[^"\\$`\n])*")+""")


def _is_plain_word(word: Word) -> bool:
    return word.literal is not None and _PLAIN_WORD.fullmatch(word.source) is not None


# Known-safe commands.


def is_known_safe(argv: Argv) -> bool:
    """Whether a command, or every command of its script, only looks at things."""
    commands = (tuple(argv),) if script_of(argv) is None else plain_commands(argv)
    return commands is not None and all(map(_is_safe, commands))


def _is_safe(argv: Argv) -> bool:
    rule = _SAFE.get(program(argv))
    # Whatever else the rules say: a command that runs another one is not known to only look at things.
    return rule is not None and unwrap(argv) == NOTHING and rule(argv[1:])


def _always(_arguments: Argv) -> bool:
    return True


def _base64(arguments: Argv) -> bool:
    """Without an output file, also as `-do FILE` and in any shorter form of --output."""
    return not any(word.startswith("--o") or (_is_cluster(word) and "o" in word) for word in arguments)


_FIND_ACTS = "-exec -execdir -ok -okdir -delete -fls -fprint -fprint0 -fprintf"


def _find(arguments: Argv) -> bool:
    return set(_FIND_ACTS.split()).isdisjoint(arguments)


_RG_RUNS = frozenset({"--search-zip", "--pre", "--hostname-bin"})


def _rg(arguments: Argv) -> bool:
    """Without the options that start programs, -z in a cluster included."""
    runs = (word.partition("=")[0] in _RG_RUNS or (_is_cluster(word) and "z" in word) for word in arguments)
    return not any(runs)


_SED_PRINTS = re.compile(r"(?:[0-9]+,)?[0-9]+p")


def _sed(arguments: Argv) -> bool:
    """`sed -n 1,5p [FILE]`; a file that begins with a dash could be `-fSCRIPT`."""
    match arguments:
        case ["-n", prints, *files] if len(files) <= 1:
            return _SED_PRINTS.fullmatch(prints) is not None and not any(name.startswith("-") for name in files)
        case _:
            return False


def _uniq(arguments: Argv) -> bool:
    """Its second operand is a file to write. Values of options are counted as operands; that costs a question."""
    operands = [word for word in arguments if word == "-" or not word.startswith("-")]
    return "--" not in arguments and len(operands) <= 1


def _is_cluster(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--")


_LOOKS = "cat cd echo false grep head ls nl pwd tail true wc which"
_LOOKS_TOO = "cut expr id numfmt paste rev seq stat tac tr uname whoami"  # of a later version
_SAFE: dict[str, Callable[[Argv], bool]] = {
    **dict.fromkeys((*_LOOKS.split(), *_LOOKS_TOO.split()), _always),
    "base64": _base64,
    "find": _find,
    "rg": _rg,
    "sed": _sed,
    "uniq": _uniq,
}


# Dangerous commands.


def is_dangerous(argv: Argv) -> bool:
    """
    Whether `rm -f`, `git reset` or `git rm` is in it, in whatever form and behind whatever wrapper.

    Of a text that cannot be read to its end, the part before counts, other than in the contract: bash runs the lines
    before an error.
    """
    return any(map(_endangers, segments_of(argv)))


def _endangers(segment: Segment) -> bool:
    words, inner = segment.argv[1:], unwrap(segment.argv)
    if segment.inline and (inner.commands or inner.scripts):
        return True  # the policy gave up on taking wrappers off
    if segment.program == "rm":
        return _forces(words)
    return segment.program == "git" and _git_command(words) in {"reset", "rm"}


def _forces(words: Sequence[str | None]) -> bool:
    """`-f` in any cluster, or --force in any shorter form that GNU takes, before `--`."""
    for word in words:
        if word == "--":
            return False
        if word and ((_is_cluster(word) and "f" in word) or (len(word) > len("--") and "--force".startswith(word))):
            return True
    return False


_GIT_VALUES = "-C -c --git-dir --work-tree --namespace --super-prefix --config-env --attr-source"


def _git_command(words: Sequence[str | None]) -> str:
    """The first word that is neither an option of git itself nor its value."""
    at = 0
    while at < len(words):
        word = words[at]
        if word is None or not word.startswith("-"):
            return word or ""
        at += 2 if word in _GIT_VALUES.split() else 1
    return ""
