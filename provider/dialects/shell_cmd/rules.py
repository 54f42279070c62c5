"""
What the contract turns away before anything is asked or run: shell syntax, inline program text, paths out of scope.

Two guards are wider than the original's, which were easy to walk around: program text is looked for in every layer of
a command and in every spelling that `provider.policy.known` has, and paths are found and followed by
`provider.policy.scope`, through links and whether they exist or not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provider.dialects.contract import Rejected
from provider.dialects.shell_cmd import words
from provider.dialects.shell_cmd.layers import Layer
from provider.policy.scope import Located, Scope, locate, path_tokens

_CONTROL: Final = ("&&", "||", "|", ";", ">", "<", "$(", "`", "&", "\n", "\r")
"""By substring, in quotes too, as the contract has it. No shell would see them; a model that writes them thinks so."""


def has_shell_syntax(text: str) -> bool:
    return any(mark in text for mark in _CONTROL)


# The command.

_TOKEN: Final = re.compile(r'"[^"]*"|\'[^\']*\'|[^\s]+')


def executable(command: str) -> str:
    """
    Give the one token that a command is.

    Raises:
        Rejected: it is something else.
    """
    if not command.strip():
        raise Rejected(words.BLANK)
    if has_shell_syntax(command):
        raise Rejected(words.COMMAND_SYNTAX)
    tokens = [unquoted(token) for token in _TOKEN.findall(command)]
    found = [token for token in tokens if token]
    if len(found) != 1:
        raise Rejected(words.COMMAND_EXECUTABLE if len(tokens) == 1 else words.COMMAND_FORMAT)
    if re.search(r"\s", found[0]):
        raise Rejected(words.COMMAND_EXECUTABLE)
    if "\0" in found[0]:
        raise Rejected(words.COMMAND_NUL)
    return found[0]


def unquoted(text: str) -> str:
    """Take one pair of wrapping quotes off."""
    is_quoted = len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]
    return text[1:-1] if is_quoted else text


def check_parameters(parameters: Sequence[str]) -> None:
    """Raises Rejected."""
    for parameter in parameters:
        if has_shell_syntax(parameter):
            raise Rejected(words.parameter_syntax(parameter))
        if "\0" in parameter:
            raise Rejected(words.parameter_nul(parameter))


# Program text in arguments.

_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "cmd"})
_FLAGS: Final = {
    **dict.fromkeys(_SHELLS, ("-c", "/c", "/k")),
    **dict.fromkeys(("powershell", "pwsh"), ("-c", "-command")),
    **dict.fromkeys(("node", "deno", "python", "python3"), ("-c", "-e", "--eval")),
    **dict.fromkeys(("perl", "ruby", "php"), ("-e", "-r")),
}
"""The contract's own table."""
_EVALUATORS: Final = re.compile(
    r"(?:ba|da|a|k|mk|rba|z|ya|hu|c|tc|fi|)sh|cmd|powershell|pwsh|nu|elvish|xonsh|busybox|toybox|eval"
    r"|(?:python|pypy|perl|ruby|php|lua|luajit|tclsh|wish)[0-9.-]*w?|py|jruby|truffleruby|node|nodejs|iojs|bun|deno|tsx"
    r"|ts-node|esno|rscript|r|osascript|expect|ghci|irb|jshell|scala|groovy|clojure|bb|guile|sbcl|julia|octave|elixir|erl"
)
_FROM_STDIN: Final = "from its input"


def inline_text(layer: Layer) -> str:
    """Name the program and the option by which a layer evaluates text of its arguments; empty when it does not."""
    return _flagged(layer) or (_spelled_otherwise(layer) if evaluates(layer) else "")


def evaluates(layer: Layer) -> bool:
    """Whether what is opaque about this layer is program text, and not a program that it names, or the like."""
    opened = layer.opened
    if opened.inline.endswith(_FROM_STDIN):
        return False  # which is at its end
    return bool(opened.scripts) or (bool(opened.inline) and bool(_EVALUATORS.fullmatch(layer.program)))


def _flagged(layer: Layer) -> str:
    flags = _FLAGS.get(layer.program, ())
    for word in layer.argv[1:]:
        if word is None or not word.startswith(("-", "/") if layer.program == "cmd" else "-"):
            return ""  # a script, whose options are its own
        if flag := next((flag for flag in flags if word.lower().startswith(flag)), ""):
            return f"{layer.program} {flag}"
    return ""


def _spelled_otherwise(layer: Layer) -> str:
    return layer.opened.inline.removesuffix(" runs shell text")


def check_inline(found: Sequence[Layer], trusted: Path) -> None:
    """Raises Rejected."""
    for layer in found:
        if text := inline_text(layer):
            raise Rejected(words.inline(text, trusted))


# Scope. `trusted` is a path free of links.


def scope_of(trusted: Path, directory: str = ".") -> Scope:
    """The trusted directory, under its name on the host as well as under that of its mount; a home is never in it."""
    return Scope(root=trusted, directory=directory, host_paths=True)


def check_directory(directory: str | None, trusted: Path) -> str:
    """Give the place where a call runs, relative to the trusted directory. Raises Rejected."""
    if directory is None:
        return "."
    found = locate(unquoted(directory.strip()), scope_of(trusted))
    if not found.inside:
        raise Rejected(words.directory_outside(directory, trusted))
    if not trusted.joinpath(found.path).is_dir():
        raise Rejected(words.no_directory(directory, trusted))
    return found.path


def check_relative_executable(command: str, scope: Scope, trusted: Path) -> None:
    """Raises Rejected."""
    if not command.startswith("/") and (command.startswith("~") or "/" in command):
        _check_executable(command, scope, trusted)


def check_absolute_executable(command: str, scope: Scope, trusted: Path) -> None:
    """
    Raises Rejected.

    `/bin/cat` of the container would do no harm, but nothing outside the trusted directory is in scope, and a rule with
    an exception is one that somebody walks through. `cat` says the same.
    """
    if command.startswith("/"):
        _check_executable(command, scope, trusted)


def _check_executable(command: str, scope: Scope, trusted: Path) -> None:
    if not locate(command, scope).inside:
        raise Rejected(words.outside("command", command, trusted))


MAX_PATHS: Final = 10_000
"""Each is looked at on the disk; a call may not take seconds to be judged."""
_HOME: Final = re.compile(r"\$(?:HOME|\{HOME\})/")


def check_paths(parameters: Sequence[str], scope: Scope, trusted: Path) -> None:
    """Raises Rejected."""
    found = dict.fromkeys(token for parameter in parameters for token in path_tokens(unquoted(parameter)))
    if len(found) > MAX_PATHS:
        raise Rejected(words.too_many_paths(MAX_PATHS))
    for token in found:
        # Nobody expands $HOME, so it would be a file of that name; whoever writes it means a home.
        if _HOME.match(token) or not locate(_without_sentences(token), scope).inside:
            raise Rejected(words.outside("path", token, trusted))


_MAX_NAME: Final = 255  # bytes, as every file system has it


def _without_sentences(token: str) -> str:
    """Cut names short that are too long for any file: a message is no path, and cannot be looked at as one."""
    if len(token) <= _MAX_NAME // 4:
        return token
    names = (name if len(os.fsencode(name)) <= _MAX_NAME else f"{name[:9]}…" for name in token.split("/"))
    return "/".join(names)


def check_artifacts(paths: Sequence[str], trusted: Path) -> tuple[tuple[str, str], ...]:
    """Give each path as it was given and relative to the trusted directory. Raises Rejected."""
    wanted = [(path, locate(unquoted(path), scope_of(trusted))) for path in map(str.strip, paths) if unquoted(path)]
    for path, found in wanted:
        if not found.inside:
            raise Rejected(words.outside("artifact path", path, trusted))
        if found.path == ".":
            raise Rejected(words.artifact_no_file(path))
    return tuple((path, found.path) for path, found in wanted)


# The trusted directory as the command sees it.


def translated(argument: str, scope: Scope) -> str:
    """
    Write a path below the trusted directory as the sandbox has it.

    It is mounted under another name there; everything else of an argument stays as it was given. What does not name a
    file, nor a place for one, is text, and stays as well.
    """
    root = re.escape(str(scope.root))
    before = r"(^|^-[A-Za-z]|[=:@,]|file://)"

    def moved(found: re.Match[str]) -> str:
        return found[0] if not _is_place(found[2], scope) else f"{found[1]}{scope.mount}{found[3]}"

    return re.sub(rf"{before}({root}((?:/[^:,]*)?))(?=$|[:,])", moved, argument)


def _is_place(path: str, scope: Scope) -> bool:
    located: Located = locate(path, scope)
    here = scope.root.joinpath(located.path)
    try:
        return here.exists() or (here.parent.is_dir() and not re.search(r"\s", path))
    except (OSError, ValueError):
        return False
