"""
Command, process and backtick substitution: refused, quote-aware, before anything runs, and nobody can approve it.

Where the policy's reader understands a text, its word counts: `$((1+2))`, single quotes, escapes and the bodies of
quoted here-documents hold no substitution, and the scripts inside `bash -c '…'` and `eval '…'` are read as well. A text
that it does not understand is scanned as the contract's newest form does, and whatever only looks quoted there is
doubtful: it may wake up, and is asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provider.policy.rules import Segment
from provider.policy.script import Command, Dynamic, Place, Word
from provider.policy.syntax import read

REFUSED = (
    "Command injection detected: command substitution syntax ($(), backticks, <() or >()) found in command arguments."
    " Command substitution using $(), <(), or >() is not allowed for security reasons."
)
DISPLAY = "Blocked: command substitution detected in shell command."

SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "rbash", "zsh", "yash", "hush"})
EVALUATORS = SHELLS | {
    *("eval", "trap", "source", ".", "let", "declare", "typeset", "local", "export", "readonly"),
    *("watch", "parallel", "sem", "script", "entr", "at", "batch", "tmux", "screen", "ssh"),
    *("test", "[", "unset", "read", "printf", "mapfile", "readarray", "getopts", "wait", "compgen", "complete", "bind"),
    *("find", "gfind"),  # `find {-exec,rm} x`: which command it runs, only the shell knows
}
"""Programs that read text as a shell does, or run what only a shell knows."""

_KINDS = {Dynamic.COMMAND, Dynamic.PROCESS}
_PLACES = {Place.SUBSTITUTION, Place.PROCESS}


@dataclass(frozen=True, slots=True)
class Substitutions:
    """What was found in a text."""

    live: tuple[str, ...] = ()
    """Sources of those that a shell would run."""
    doubtful: tuple[str, ...] = ()
    """Those that look quoted, in a text that something may read once more."""


def refusal(found: Substitutions) -> str:
    """Say no, name the place, and say what to do instead."""
    return (
        f"{REFUSED} Found: {found.live[0]}. Run the inner command by itself first and use what it prints, use a pipe "
        "or a file, or put the text in single quotes where it is meant literally."
    )


def find(text: str, parts: Sequence[Segment]) -> Substitutions:
    """Find every substitution; `parts` are the policy's segments of the same text."""
    live: dict[str, None] = {}
    doubtful: dict[str, None] = {}
    for part in parts:
        if part.command is not None:
            live.update(dict.fromkeys(_read(part.command, part.text)))
        if part.unknown:
            scanned = _scan(part.text)
            live.update(dict.fromkeys(scanned.live))
            doubtful.update(dict.fromkeys(scanned.doubtful))
        if part.inline and part.program in EVALUATORS:
            doubtful.update(dict.fromkeys(source for _, source, _ in _occurrences(text)))
            if "$'" in text:  # \x24( is a $( that nobody sees
                doubtful["$'"] = None
    return Substitutions(tuple(live), tuple(doubtful))


def with_quoted_delimiters(text: str) -> str:
    r"""Write `<<\END` as `<<'END'`, which every shell reads alike, wherever the reader says that a delimiter stands."""
    for _ in range(_MAX_DELIMITERS if "<<" in text else 0):
        script = read(text)
        if script.unknown is None or script.offset is None:
            break
        data = text.encode(errors="surrogateescape")
        escaped = _ESCAPED_DELIMITER.match(data, script.offset)
        if not escaped or not _HEREDOC_BEFORE.search(data[: script.offset]):
            break
        changed = data[: escaped.start()] + b"'" + escaped[1] + b"'" + data[escaped.end() :]
        text = changed.decode(errors="surrogateescape")
    return text


_MAX_DELIMITERS = 16
_ESCAPED_DELIMITER = re.compile(rb"\\([A-Za-z0-9_.-]+)(?=[ \t\n;&|)<>]|\Z)")
_HEREDOC_BEFORE = re.compile(rb"<<-?[ \t]*\Z")


def _read(command: Command, text: str) -> Iterator[str]:
    for word in _words(command):
        yield from (part.text for part in word.parts if part.dynamic in _KINDS)
    if _PLACES.intersection(command.places):  # should a word ever be overlooked above
        yield text


def _words(command: Command) -> Iterator[Word]:
    yield from command.words
    for assignment in command.assignments:
        yield from assignment.values
    for redirection in command.redirections:
        yield redirection.target
        if redirection.heredoc:
            yield redirection.heredoc.body


# For texts that cannot be read.

_ARITHMETIC = r"\$\(\((?:[^()$`'\"\\\n]|\$[A-Za-z_0-9]+|\([^()$`'\"\\\n]*\))*\)\)"
_SYNTAX = re.compile(rf"(?P<arithmetic>{_ARITHMETIC})|\$\(|[<>]\(|`|\$\{{[^{{}}$`]*@P\}}")
_SIGN = re.compile(r"[$<>`\\'\"]")  # whatever else there is means nothing here
_SHOWN = 40
_QUOTED_HEREDOC = re.compile(r"<<-?[ \t]*[\\'\"]")


def _scan(text: str) -> Substitutions:
    heredoc = _QUOTED_HEREDOC.search(text)
    body = heredoc.end() if heredoc else len(text)
    live: list[str] = []
    doubtful: list[str] = []
    for at, source, is_live in _occurrences(text):
        # After a quoted here-document quotes mean nothing for a while, and how long only a reader knows.
        (live if is_live and at < body else doubtful).append(source)
        if live:
            break  # one is enough to refuse, and a text can hold a hundred thousand
    return Substitutions(tuple(live), tuple(doubtful))


def _occurrences(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the place of every unescaped substitution syntax, its source, and whether the quotes leave it alive."""
    at, quote = 0, ""
    while (sign := _SIGN.search(text, at)) is not None:
        at = sign.start()
        found = _SYNTAX.match(text, at)
        if found and found["arithmetic"]:
            at = found.end()
            continue
        if found:
            passive = quote == "'" or (quote == '"' and found[0] in {"<(", ">("})
            yield at, text[at : at + _SHOWN].partition("\n")[0], not passive
        character = text[at]
        if character == "\\" and quote != "'":
            at += 1
        elif character in {"'", '"'}:
            if not quote:
                quote = character
            elif quote == character:
                quote = ""
        at += 1
