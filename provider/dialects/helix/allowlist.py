"""
Which commands may run, and as which argv. Pure.

In this order: a list with something in it, no metacharacter, no glob unless opted in, a first token that is
on the list. All four look at the raw text and know no quotes, as the contract has it. What passes is read once more as
bash reads it (`provider.policy.syntax`), for its quotes: it must be one plain command whose program is the very token
that was compared. No shell runs it; its words are the argv.

Only globs need a shell. Then braces are expanded here, for not every sh knows them, every other word is quoted anew,
and `sh -c` is given `exec WORD…`; that text is read again, and nothing but patterns and tildes may be left in it for
the shell to do. `exec` starts a program and no builtin, so both ways run the same thing.

The metacharacters are all that join commands (`;` `&` `|`, line ends), compute text (`` ` `` `$(` `${` `$[`), or open
files (`<` `>`). `<` is among them, though the original once recommended it for stdin: without a shell nobody would
obey it, `<>` creates files, `<(` runs programs, and stdin is offered by `Shell.spawn`. `$NAME`, `$'…'` and `$"…"` are
refused where bash would expand them and pass in single quotes: `grep '^$HOME' x` works, and no variable is ever
expanded behind an allowlist's back.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from provider.dialects.helix.braces import check_count, expand_braces
from provider.dialects.helix.config import ShellConfig
from provider.errors import CallError, PolicyRefused
from provider.policy.script import Command, Dynamic, Word
from provider.policy.syntax import read

_METACHARACTERS = re.compile(r"\$[({\[]|[;&|`<>\x00-\x08\x0a-\x1f\x7f]")
"""Every control character but the tab: line ends are separators, and the others are for hiding text from readers."""
_GLOB = re.compile(r"[{}*?\[\]~]")
_BLANK = re.compile(r"\s+")
_SHOWN = 80
_LEFT_TO_SHELL = frozenset({Dynamic.GLOB, Dynamic.BRACE, Dynamic.TILDE})
_SIGNS = {Dynamic.PARAMETER: "a variable", Dynamic.ANSI_C: "$'' quoting"}


def admit(command: object, config: ShellConfig) -> tuple[str, ...]:
    """
    Give the argv of a command that may run.

    Raises:
        CallError: it is no command, or not one that can be read.
        PolicyRefused: the list, or what keeps it from being got around, says no.
    """
    if not isinstance(command, str) or not command.strip():
        message = "Command must be a non-empty string"
        raise CallError(message)
    if not config.allowed_commands:
        message = "no commands are allowed: allowedCommands is empty; the operator must list what may run"
        raise PolicyRefused(message)
    if found := _METACHARACTERS.search(command):
        message = (
            f"Command contains {found[0]!r}, a shell metacharacter; send one command by itself, without chaining, "
        )
        message += "substitution or redirection (quotes do not help)"
        raise PolicyRefused(message)
    if not config.glob and (found := _GLOB.search(command)):
        message = f"Command contains {found[0]!r}, a glob character (glob is off); name each file"
        raise PolicyRefused(message)
    token = _BLANK.split(command)[0]
    if token not in config.allowed_commands:
        listed = ", ".join(config.allowed_commands)
        message = f"Command '{_short(token)}' is not in allowedCommands; there are {_short(listed, 500)}"
        raise PolicyRefused(message)
    words = _words(command, token)
    if all(word.literal is not None for word in words):
        return tuple(word.literal or "" for word in words)
    return "sh", "-c", _script(words)


def _words(command: str, token: str) -> tuple[Word, ...]:
    """Read it as bash would, and see that it is one command, of the program that was compared."""
    script = read(command)
    if script.unknown is not None:
        message = f"Command cannot be read: {script.unknown}; write one command with closed quotes"
        raise CallError(message)
    if len(script.commands) != 1 or not _is_plain(script.commands[0]):
        message = f"Command '{_short(command)}' is more than one plain command"
        raise PolicyRefused(message)
    words = script.commands[0].words
    if words[0].literal != token:
        message = f"Command '{_short(words[0].source)}' is not in allowedCommands; it only begins like '{token}'"
        raise PolicyRefused(message)
    for word in words:
        if expanded := word.dynamic - _LEFT_TO_SHELL:
            what = _SIGNS.get(min(expanded), min(expanded).value)
            message = f"Command contains {what} in {_short(word.source)}, which is not expanded here; "
            message += "put it in single quotes to pass it as it is"
            raise PolicyRefused(message)
    return words


def _is_plain(command: Command, words: int | None = None) -> bool:
    extras = (command.assignments, command.redirections, command.places, command.keyword, command.joined_by)
    counted = words is None or len(command.words) == words
    return command.program is not None and counted and not (any(extras) or command.background or command.negated)


def _script(words: tuple[Word, ...]) -> str:
    """Write what `sh` is given: every word quoted but those with a pattern or a tilde."""
    texts = ["exec"]
    for word in words:
        texts.extend(_texts(word))
        check_count(len(texts))
    script = " ".join(texts)
    again = read(script)
    match again.commands:
        case [command] if again.unknown is None and again.portable and _is_plain(command, words=len(texts)):
            left = frozenset(kind for word in command.words for kind in word.dynamic)
        case _:
            left = frozenset(Dynamic)
    if left - {Dynamic.GLOB, Dynamic.TILDE}:
        message = f"Command cannot be expanded safely: {again.unknown or _short(script)}; name each file"
        raise PolicyRefused(message)
    return script


def _texts(word: Word) -> Iterator[str]:
    if word.literal is not None:
        yield shlex.quote(word.literal)
    elif Dynamic.BRACE in word.dynamic:
        for text in expand_braces(word.source):
            yield f"\\{text}" if text.startswith("#") else text  # not a comment, for bash expands braces after those
    else:
        yield word.source


def _short(text: str, most: int = _SHOWN) -> str:
    """Show text of a model: printable, and not more than a line of it."""
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= most else f"{shown[:most]}…"
