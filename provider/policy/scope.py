"""
Which words of a command are paths, and whether they lie in the workspace.

A command sees the workspace at its mount; the files are looked at on the host, by lstat and readlink of one name at a
time, so that a link is seen before it is followed. What is decided here can be changed by the next command: it is an
early, readable no. That nothing outside can be reached is the container's work.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from provider.policy.script import Dynamic, Word

MAX_LINKS: Final = 40  # as the kernel has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    root: Path
    """The workspace on the host, free of links."""
    mount: str = "/workspace"
    """Where the command sees it."""
    directory: str = "."
    """Where the command runs, relative to the workspace."""
    host_paths: bool = False
    """Also take an absolute path below `root`: contracts that never speak of a mount."""
    home: str | None = None
    """What `~` and `$HOME` are; None when a home is out of scope, wherever it is."""
    also: tuple[str, ...] = ()
    """Absolute paths of the container that count as inside, such as /tmp and /dev/null."""


class Located(NamedTuple):
    token: str
    """The path as it stands in the command."""
    inside: bool
    path: str
    """Relative to the workspace when inside; otherwise where it leads, as far as it was followed."""
    reason: str = ""


def outside(arguments: Iterable[str | Word], scope: Scope) -> tuple[Located, ...]:
    """Return every path in these arguments that is not in scope; a word that only the shell knows is not, either."""
    return tuple(found for argument in arguments for found in locate_all(argument, scope) if not found.inside)


def locate_all(argument: str | Word, scope: Scope) -> tuple[Located, ...]:
    """Return the paths in one argument, with where they are."""
    if isinstance(argument, str):
        return tuple(locate(token, scope) for token in path_tokens(argument))
    if argument.literal is not None:
        return tuple(locate(token, scope) for token in path_tokens(argument.literal))
    return tuple(_expanded(argument, scope))


# Which parts of an argument may be paths.

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_MAX_SCHEME = 64
_ATTACHED = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]*?(?=[/~]|\.\.?(?:/|$))")  # -I/x, -isystem../x
_SEPARATORS = re.compile(r"[=:@,]")
_MAX_PATH = 4096  # no program can open a longer one
_MANY = 16


def path_tokens(argument: str) -> tuple[str, ...]:
    """
    Return every part of an argument that a program may take for a path.

    A bare name is one as well: it may be a link. So is what follows `=`, `:`, `@` and `,`, and what is attached to an
    option. An address with a scheme is none, but for `file:`.
    """
    if url := _url(argument):
        start, scheme, rest = url
        before = path_tokens(argument[:start].rstrip("=:@,")) if start else ()
        return (*before, *_url_tokens(scheme, rest))
    tokens: dict[str, None] = {}
    if not argument.startswith("-"):
        tokens[argument] = None
    elif attached := _ATTACHED.match(argument):
        tokens[argument[attached.end() :]] = None
    elif not argument.startswith("--") and len(argument) > len("-x"):
        tokens[argument[2:]] = None
    separators = [separator.start() for separator in _SEPARATORS.finditer(argument)]
    for index, at in enumerate(separators, 1):
        # All that follows may be one path; of a long list of things, only what is short enough to be one.
        if index <= _MANY or len(argument) - at <= _MAX_PATH:
            tokens[argument[at + 1 :]] = None
        # `/a:/b` is two paths.
        if index < len(separators):
            tokens[argument[at + 1 : separators[index]]] = None
    if separators and not argument.startswith("-"):
        tokens[argument[: separators[0]]] = None
    return tuple(token for token in tokens if token)


def _url(argument: str) -> tuple[int, str, str] | None:
    """Where an address begins, its scheme, and what follows `://`. In linear time, unlike one expression for it all."""
    at = argument.find("://")
    while at >= 0:
        if scheme := _SCHEME.search(argument, max(0, at - _MAX_SCHEME), at):
            return scheme.start(), scheme[0], argument[at + len("://") :]
        at = argument.find("://", at + 1)
    return None


def _url_tokens(scheme: str, rest: str) -> Iterator[str]:
    if scheme.lower().rpartition("+")[2] == "file":
        host, slash, path = rest.partition("/")
        yield slash + path if host.lower() in {"", "localhost"} else "//" + rest


# Words with something dynamic in them.

_HOME = {"$HOME", "${HOME}"}
_HERE = {"$PWD", "${PWD}"}


def _expanded(word: Word, scope: Scope) -> Iterator[Located]:
    """Tell what can be told: home, the current directory, and that a pattern stays below its fixed beginning."""
    text, pattern = "", False
    for part in word.parts:
        if part.dynamic is None or part.dynamic is Dynamic.TILDE:
            text += part.text
        elif part.dynamic is Dynamic.PARAMETER and part.text in _HOME:
            text += "~" if not text or text[-1] in "=:@," else "\0"
        elif part.dynamic is Dynamic.PARAMETER and part.text in _HERE:
            text += "."
        elif part.dynamic in {Dynamic.GLOB, Dynamic.BRACE}:
            text += part.text
            pattern = True
        else:
            yield Located(word.source, inside=False, path=word.source, reason="only the shell knows what it comes to")
            return
    for token in path_tokens(text):
        located = locate(_fixed(token) if pattern else token, scope)
        if located.inside and pattern and ".." in token:
            located = Located(token, inside=False, path=token, reason="a pattern with ..")
        yield located._replace(token=word.source if pattern else located.token)


def _fixed(pattern: str) -> str:
    """`/etc/p*` -> `/etc/`: a pattern finds nothing above its first wildcard."""
    start = re.search(r"[*?\[{]", pattern)
    if start is None:
        return pattern
    folder, slash, _ = pattern[: start.start()].rpartition("/")
    return folder + slash or "."


# Where a path leads.


def locate(token: str, scope: Scope) -> Located:
    """Return where a path leads, through links, whether it exists or not."""
    if "\0" in token:
        return Located(token, inside=False, path=token, reason="a NUL, or a variable inside a name")
    path = token
    if token.startswith("~"):
        name, _, rest = token[1:].partition("/")
        if name:
            return _named_home(token)
        if scope.home is None:
            return Located(token, inside=False, path=token, reason="a home directory")
        path = f"{scope.home}/{rest}"
    start, parts = _start(path, scope)
    if start is None:
        if any(_below(_normal(path), one) for one in scope.also):
            return Located(token, inside=True, path=_normal(path), reason="allowed besides the workspace")
        return Located(token, inside=False, path=_normal(path), reason="an absolute path outside the workspace")
    return _follow(token, start, parts, scope)


def _named_home(token: str) -> Located:
    # `~x` is a home only where a shell expands it, and there is no telling whose that is.
    return Located(token, inside=False, path=token, reason="somebody's home directory")


def _start(path: str, scope: Scope) -> tuple[list[str] | None, list[str]]:
    """Where to begin, as names below the root, and the names to go from there."""
    if not path.startswith("/"):
        here = [name for name in scope.directory.split("/") if name not in {"", "."}]
        return [], [*here, *path.split("/")]
    for base in (scope.mount, *([str(scope.root)] if scope.host_paths else [])):
        rest = _beneath(path, base)
        if rest is not None:
            return [], rest
    return None, []


def _beneath(path: str, base: str) -> list[str] | None:
    """
    Return the names below `base`, or None.

    Only names before the first `..` count: whoever goes up is followed name by name, and `/workspace/../etc` leaves.
    """
    names = [name for name in path.split("/") if name not in {"", "."}]
    wanted = [name for name in base.split("/") if name]
    if names[: len(wanted)] != wanted:
        return None
    return names[len(wanted) :]


def _below(path: str, base: str) -> bool:
    return path == base or path.startswith(base.rstrip("/") + "/")


def _normal(path: str) -> str:
    return os.path.normpath(re.sub(r"^/+", "/", path))


def _follow(token: str, start: list[str], names: list[str], scope: Scope) -> Located:
    """Walk from the root, one name at a time, with links taken into account as the kernel would."""
    at, todo, links = list(start), list(reversed(names)), 0
    there = len(at)  # how many of these names may exist; below one that does not there is no link

    def not_inside(reason: str, path: str = "") -> Located:
        return Located(token, inside=False, path=path or "/".join(at), reason=reason)

    while todo:
        name = todo.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            if not at:
                return not_inside("it leaves the workspace", _normal("/".join([scope.mount, "..", *reversed(todo)])))
            at.pop()
            there = min(there, len(at))
            continue
        try:
            target = _link(scope.root.joinpath(*at, name)) if there == len(at) else None
        except (OSError, UnicodeEncodeError) as error:
            return not_inside(f"it cannot be looked at: {getattr(error, 'strerror', None) or 'no file has this name'}")
        if not target:
            there += target is not None
            at.append(name)
            continue
        links += 1
        base, rest = ([*at], target.split("/")) if not target.startswith("/") else _start(target, scope)
        if base is None or links > MAX_LINKS:
            return not_inside(f"the link {name} leads out of the workspace", _normal(target))
        at, there = base, len(base)
        todo.extend(reversed(rest))
    return Located(token, inside=True, path="/".join(at) or ".")


def _link(path: Path) -> str | None:
    """Where a link points; empty for anything else, and None for what is not there."""
    try:
        return str(path.readlink()) if stat.S_ISLNK(path.lstat().st_mode) else ""
    except (FileNotFoundError, NotADirectoryError):
        return None
