"""
What a command looks like to a person: reading a file, listing files, searching, or something else. Best effort, for
display only: nothing is decided by it.
"""

from __future__ import annotations

import itertools
import posixpath
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from provider.dialects.codex.safety import plain_commands, program

Parsed = dict[str, Any]

# What only passes text on, or says where: between commands that do something it is not shown.
_FORMATTERS: Final = frozenset({"wc", "tr", "cut", "sort", "uniq", "tee", "column", "yes", "printf", "awk", "xargs"})
_SILENT: Final = frozenset({"cd", "echo", "true", "pwd"})
_SKIPS_VALUE: Final = {
    "head": frozenset({"-n", "-c", "--lines", "--bytes"}),
    "tail": frozenset({"-n", "-c", "--lines", "--bytes"}),
    "rg": frozenset({"-g", "--glob", "-t", "--type", "-A", "-B", "-C", "-m", "-e", "-f", "--max-count", "--context"}),
    "grep": frozenset({"-A", "-B", "-C", "-m", "-e", "-f", "--include", "--exclude", "--exclude-dir"}),
    "ls": frozenset({"-I", "-w", "--ignore", "--width"}),
    "nl": frozenset({"-s", "-w", "-v", "-i", "-b"}),
    "tree": frozenset({"-L", "-P", "-I", "--filelimit"}),
    "fd": frozenset({"-t", "--type", "-e", "--extension", "-E", "--exclude", "--max-depth", "-d"}),
}


def parsed(argv: Sequence[str]) -> list[Parsed]:
    """One item for each command that says something; those that are equal and follow each other are one."""
    commands = plain_commands(argv)
    if commands is None:
        text = argv[2] if len(argv) == 3 and argv[1] in {"-c", "-lc"} else shlex.join(argv)  # noqa: PLR2004
        return [{"type": "unknown", "cmd": text}]
    told = [command for command in commands if program(command) not in _SILENT | _FORMATTERS] or list(commands[:1])
    items: list[Parsed] = []
    for item in map(_parsed, told):
        if not items or items[-1] != item:
            items.append(item)
    return items


def _parsed(argv: Sequence[str]) -> Parsed:
    read = _KINDS.get(program(argv))
    found = read(argv) if read else None
    return {**(found or {"type": "unknown"}), "cmd": shlex.join(argv)}


def _reads(argv: Sequence[str]) -> Parsed | None:
    """`cat FILE`, `head -n 5 FILE`: one file, by its name."""
    files = list(_operands(argv))
    return _read(files[0]) if len(files) == 1 else None


def _sed(argv: Sequence[str]) -> Parsed | None:
    match argv[1:]:
        case ["-n", _, file]:
            return _read(file)
        case _:
            return None


def _read(path: str) -> Parsed:
    return {"type": "read", "name": posixpath.basename(path.rstrip("/")), "path": path}


def _lists(argv: Sequence[str]) -> Parsed:
    return _with_path({"type": "list_files"}, list(_operands(argv))[:1])


def _git(argv: Sequence[str]) -> Parsed | None:
    match list(_operands(argv)):
        case ["grep", query, *paths]:
            return _with_path({"type": "search", "query": query}, paths)
        case ["ls-files", *paths]:
            return _with_path({"type": "list_files"}, paths)
        case _:
            return None


def _rg(argv: Sequence[str]) -> Parsed:
    operands = list(_operands(argv))
    if "--files" in argv:
        return _with_path({"type": "list_files"}, operands)
    return _with_path({"type": "search", "query": operands[0] if operands else None}, operands[1:])


def _grep(argv: Sequence[str]) -> Parsed:
    operands = list(_operands(argv))
    return _with_path({"type": "search", "query": operands[0] if operands else None}, operands[1:])


def _find(argv: Sequence[str]) -> Parsed:
    paths = [word for word in argv[1:2] if not word.startswith("-")]
    names = [value for word, value in itertools.pairwise(argv) if word in {"-name", "-iname", "-path"}]
    kind = {"type": "search", "query": names[0]} if names else {"type": "list_files"}
    return _with_path(kind, paths)


def _fd(argv: Sequence[str]) -> Parsed:
    match list(_operands(argv)):
        case [query, *paths]:
            return _with_path({"type": "search", "query": query}, paths)
        case _:
            return {"type": "list_files"}


def _with_path(item: Parsed, paths: Sequence[str]) -> Parsed:
    return item | ({"path": paths[0]} if paths else {})


def _operands(argv: Sequence[str]) -> Iterator[str]:
    skipping, values, after = False, _SKIPS_VALUE.get(program(argv), frozenset()), False
    for word in argv[1:]:
        if skipping:
            skipping = False
        elif after or not word.startswith("-") or word == "-":
            yield word
        elif word == "--":
            after = True
        else:
            skipping = word in values


_KINDS: Final[dict[str, Callable[[Sequence[str]], Parsed | None]]] = {
    **dict.fromkeys(("cat", "bat", "less", "more", "head", "tail", "nl"), _reads),
    **dict.fromkeys(("ls", "tree", "eza", "exa", "du"), _lists),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _grep),
    **dict.fromkeys(("rg", "ag", "ack"), _rg),
    "sed": _sed,
    "git": _git,
    "find": _find,
    "fd": _fd,
}
