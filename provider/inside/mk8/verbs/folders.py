"""Verbs about directories: make, delete, list, compare, hash."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterable, Sequence
from typing import Final

from .. import open as files
from ..encoding import shown
from ..verb import NAME_PATTERN, READ, TEXT, WRITE, Verb, World
from .files import hash_file
from .limits import algorithm, joined, whole
from .names import fits

MOST_DEPTH, USUAL_DEPTH = 5, 3
MOST_HASHED: Final = 500
MOST_COMPARED: Final = 200


def _create(world: World, arguments: Sequence[str]) -> str:
    files.make_folder("DirCreate", world.root, arguments[0])
    return f"Created directory {arguments[0]}"


def _delete(world: World, arguments: Sequence[str]) -> str:
    files.remove_folder("DirDelete", world.root, arguments[0], world.deadline)
    return f"Deleted directory {arguments[0]}"


def _list(world: World, arguments: Sequence[str]) -> str:
    return joined(shown(f"{arguments[0]}/{entry.name}") for entry in files.entries(world.root, arguments[0]))


def _is_folder(world: World, path: str) -> bool:
    info = files.status(world.root, path)
    return info is not None and stat.S_ISDIR(info.st_mode)


def _exists(world: World, arguments: Sequence[str]) -> str:
    return str(_is_folder(world, arguments[0]))


def _tree(world: World, arguments: Sequence[str]) -> str:
    depth = int(arguments[1]) if len(arguments) > 1 else USUAL_DEPTH
    said = []
    for entry in files.walk(world.root, arguments[0], deadline=world.deadline, depth=depth):
        indent = "  " * entry.depth
        said.append(f"{indent}{'[D] ' if entry.kind in {'folder', 'denied'} else ''}{shown(entry.name)}")
        if entry.kind == "denied":
            said.append(f"{indent}  [access denied]")
    return joined(said)


def _file_count(world: World, arguments: Sequence[str]) -> str:
    is_wanted = fits(arguments[1] if len(arguments) > 1 else "*")
    found = files.entries(world.root, arguments[0])
    return str(sum(1 for entry in found if entry.kind == "file" and is_wanted(entry.name)))


def _empty(world: World, arguments: Sequence[str]) -> str:
    return str(not files.entries(world.root, arguments[0]))


def _names(world: World, path: str) -> dict[str, str]:
    """The files below, by their relative name without its case."""
    if not _is_folder(world, path):
        return {}
    walked = files.walk(world.root, path, deadline=world.deadline)
    return {entry.path.lower(): entry.path for entry in walked if entry.kind in {"file", "link"}}


def _compare(world: World, arguments: Sequence[str]) -> str:
    first, second = (_names(world, path) for path in arguments)
    one, other = (path.rpartition("/")[2] for path in arguments)
    return joined(
        (
            *_section(f"Only in {one}", (first[key] for key in first.keys() - second.keys())),
            *_section(f"Only in {other}", (second[key] for key in second.keys() - first.keys())),
            *_section("Common", (first[key] for key in first.keys() & second.keys())),
        )
    )


def _section(title: str, paths: Iterable[str]) -> Iterable[str]:
    found = sorted(paths)
    yield f"{title} ({len(found)}):"
    yield from (f"  {shown(path)}" for path in found[:MOST_COMPARED])
    if len(found) > MOST_COMPARED:
        yield f"  ... ({len(found) - MOST_COMPARED} more)"


def _hash(world: World, arguments: Sequence[str]) -> str:
    path, name, pattern = (*arguments, *("", "sha256", "*")[len(arguments) :])
    is_wanted = fits(pattern)
    walked = files.walk(world.root, path, deadline=world.deadline)
    found = sorted(entry.path for entry in walked if entry.kind == "file" and is_wanted(entry.name))
    kept = list(itertools.islice(found, MOST_HASHED))
    hashes = [f"{hash_file(world, f'{path}/{one}', name)}  {shown(one)}" for one in kept]
    return joined((f"{len(kept)} file(s):", *hashes))


VERBS: Final = (
    Verb(name="DirCreate", least=1, most=1, kinds=(WRITE,), describe="path", act=_create),
    Verb(name="DirDelete", least=1, most=1, kinds=(WRITE,), describe="path", act=_delete),
    Verb(name="DirList", least=1, most=1, kinds=(READ,), describe="path", act=_list),
    Verb(name="DirExists", least=1, most=1, kinds=(READ,), describe="path", act=_exists),
    Verb(
        name="DirTree",
        least=1,
        most=2,
        kinds=(READ, TEXT),
        describe=f"path, [depth 1-{MOST_DEPTH}, default {USUAL_DEPTH}]",
        act=_tree,
        check=whole("DirTree", 1, "the depth", 1, MOST_DEPTH),
    ),
    Verb(
        name="DirFileCount",
        least=1,
        most=2,
        kinds=(READ, NAME_PATTERN),
        describe="path, [name pattern, default *]",
        act=_file_count,
    ),
    Verb(name="DirEmpty", least=1, most=1, kinds=(READ,), describe="path", act=_empty),
    Verb(name="DirCompare", least=2, most=2, kinds=(READ, READ), describe="path, path", act=_compare),
    Verb(
        name="DirHash",
        least=1,
        most=3,
        kinds=(READ, TEXT, NAME_PATTERN),
        describe="path, [sha256|sha512|md5], [name pattern, default *]",
        act=_hash,
        check=algorithm("DirHash", 1),
    ),
)
