"""Verbs about files: read, write, compare, search, hash, fill in and patch."""

from __future__ import annotations

import itertools
import os
import re
import stat
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from .. import open as files
from .. import regex
from ..dates import show
from ..encoding import LONGEST_MARK, from_bytes, mark, shown, to_bytes
from ..errors import StepFailure
from ..paths import resolve_read
from ..verb import NAME_PATTERN, READ, TEXT, WRITE, Verb, World
from .limits import LARGEST_TEXT, algorithm, in_size, joined, whole
from .names import fits

MOST_FOUND: Final = 500
MOST_GLOBBED: Final = 1000
MOST_LINES: Final = 1000
MOST_DEPTH: Final = 10
USUAL_LINES, USUAL_DEPTH = 10, 5

_SNIFFED: Final = 8192
_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"%PDF", "application/pdf"),
    (b"RIFF", "image/webp"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x7fELF", "application/x-elf"),
    (b"MZ", "application/x-msdownload"),
)
_NOT_IN_TEXT: Final = frozenset({*range(0x09), *range(0x0E, 0x20)} - {0x1B})
_ENCODINGS: Final = {b"\xef\xbb\xbf": "utf-8-bom"}


def hash_file(world: World, path: str, name: str) -> str:
    """Lowercase hex. `name` is one of limits.ALGORITHMS, in any case."""
    import hashlib

    digest = hashlib.new(name.lower(), usedforsecurity=False)
    with files.reading(world.root, path) as file:
        for piece in files.pieces(file, world.deadline):
            digest.update(piece)
    return digest.hexdigest()


def _lines(world: World, path: str) -> Generator[str, None, None]:
    with files.reading(world.root, path) as file:
        yield from files.text_lines(path, file, world.deadline)


def _read(world: World, arguments: Sequence[str]) -> str:
    return from_bytes(files.content(world.root, arguments[0], LARGEST_TEXT))


def _write(world: World, arguments: Sequence[str]) -> str:
    path, text = arguments
    files.replace("FileWrite", world.root, path, [to_bytes(text)])
    return f"Written {len(text)} chars to {path}"


def _append(world: World, arguments: Sequence[str]) -> str:
    path, text = arguments
    files.append("FileAppend", world.root, path, to_bytes(text))
    return f"Appended {len(text)} chars to {path}"


def _delete(world: World, arguments: Sequence[str]) -> str:
    files.remove("FileDelete", world.root, arguments[0])
    return f"Deleted {arguments[0]}"


def _is_file(world: World, path: str) -> bool:
    info = files.status(world.root, path)
    return info is not None and stat.S_ISREG(info.st_mode)


def _exists(world: World, arguments: Sequence[str]) -> str:
    return str(_is_file(world, arguments[0]))


def _list(world: World, arguments: Sequence[str]) -> str:
    folder = arguments[0]
    is_wanted = fits(arguments[1] if len(arguments) > 1 else "*")
    found = files.entries(world.root, folder)
    return joined(shown(f"{folder}/{one.name}") for one in found if one.kind == "file" and is_wanted(one.name))


def _copy(world: World, arguments: Sequence[str]) -> str:
    source, target = arguments
    with files.reading(world.root, source) as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        files.replace("FileCopy", world.root, target, files.pieces(file, world.deadline), mode=mode)
    return f"Copied {source} → {target}"


def _move(world: World, arguments: Sequence[str]) -> str:
    source, target = arguments
    files.move("FileMove", world.root, source, target)
    return f"Moved {source} → {target}"


def _status(world: World, path: str) -> os.stat_result:
    with files.reading(world.root, path) as file:
        return os.fstat(file.fileno())


def _info(world: World, arguments: Sequence[str]) -> str:
    info = _status(world, arguments[0])
    # The standard library does not tell when a file was made; the older of these is no later than that.
    created = min(info.st_ctime_ns, info.st_mtime_ns)
    flags = [] if info.st_mode & 0o222 else ["ReadOnly"]
    flags += ["Hidden"] if arguments[0].rpartition("/")[2].startswith(".") else []
    return joined(
        (
            f"Size: {info.st_size} bytes",
            f"Created: {show(created, _ROUND_TRIP)}",
            f"Modified: {show(info.st_mtime_ns, _ROUND_TRIP)}",
            f"Attributes: {', '.join(flags) or 'Normal'}",
        )
    )


_ROUND_TRIP: Final = "yyyy-MM-ddTHH:mm:ss.fffffffZ"


def _hash(world: World, arguments: Sequence[str]) -> str:
    return hash_file(world, arguments[0], arguments[1] if len(arguments) > 1 else "sha256")


def _line_count(world: World, arguments: Sequence[str]) -> str:
    return str(sum(1 for _ in _lines(world, arguments[0])))


def _within_size(lines: Iterator[str]) -> Iterator[str]:
    """Stop before what is kept of a file is too much."""
    length = 0
    for line in lines:
        length += len(line) + 1
        in_size(length, "the output")
        yield line


def _head(world: World, arguments: Sequence[str]) -> str:
    count = int(arguments[1]) if len(arguments) > 1 else USUAL_LINES
    return joined(_within_size(itertools.islice(_lines(world, arguments[0]), count)))


def _tail(world: World, arguments: Sequence[str]) -> str:
    from collections import deque

    count = int(arguments[1]) if len(arguments) > 1 else USUAL_LINES
    kept: deque[str] = deque()
    length = 0
    for line in _lines(world, arguments[0]):
        kept.append(line)
        length += len(line) + 1
        # The tail is what an output keeps anyway, so lines too many for the memory go as those too many for the count.
        while len(kept) > count or (length > LARGEST_TEXT and len(kept) > 1):
            length -= len(kept.popleft()) + 1
    return joined(kept)


def _matches(found: list[tuple[int, str]]) -> str:
    """`found` has one more than MOST_FOUND where there are too many."""
    if not found:
        return "No matches found."
    kept = found[:MOST_FOUND]
    in_size(sum(len(line) for _, line in kept), "the output")
    more = [f"... (truncated at {MOST_FOUND} matches)"] if len(found) > MOST_FOUND else []
    return joined((f"{len(kept)} match(es):", *(f"{number}: {line}" for number, line in kept), *more))


def _search(world: World, arguments: Sequence[str]) -> str:
    path, wanted = arguments
    numbered = enumerate(_lines(world, path), start=1)
    hits = ((number, line) for number, line in numbered if wanted in line)
    return _matches(list(itertools.islice(hits, MOST_FOUND + 1)))


def _search_regex(world: World, arguments: Sequence[str]) -> str:
    path, pattern = arguments
    with files.reading(world.root, path) as file:
        numbered = enumerate(files.text_lines(path, file, world.deadline), start=1)
        return _matches(regex.lines(pattern, numbered, MOST_FOUND + 1, world.deadline))


def _glob(world: World, arguments: Sequence[str]) -> str:
    folder, pattern = arguments[:2]
    depth = int(arguments[2]) if len(arguments) > 2 else USUAL_DEPTH  # noqa: PLR2004 - the third
    is_wanted = fits(pattern)
    walked = files.walk(world.root, folder, deadline=world.deadline, depth=depth + 1, hidden=False)
    hits = (f"{folder}/{entry.path}" for entry in walked if entry.kind == "file" and is_wanted(entry.name))
    found = sorted(itertools.islice(hits, MOST_GLOBBED))
    return joined((f"{len(found)} file(s):", *map(shown, found))) if found else "No matching files found."


def _diff(world: World, arguments: Sequence[str]) -> str:
    first, second = (_lines(world, path) for path in arguments)
    said: list[str] = []
    count = length = 0
    for number, (old, new) in enumerate(itertools.zip_longest(first, second), start=1):
        if old == new:
            continue
        count += 1
        if count > MOST_FOUND:
            said.append(f"... (truncated at {MOST_FOUND} differences)")
            break
        if old is None:
            said.append(f"{number}a: +{new}")
        elif new is None:
            said.append(f"{number}d: -{old}")
        else:
            said += [f"{number}c: -{old}", f"{number}c: +{new}"]
        length += len(old or "") + len(new or "")
        in_size(length, "the output")
    first.close()
    second.close()
    return joined((f"{count} difference(s):", *said)) if count else "Files are identical."


def _mime_type(world: World, arguments: Sequence[str]) -> str:
    with files.reading(world.root, arguments[0]) as file:
        data = file.read(16)
    known = next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), None)
    return known or ("text/plain" if _NOT_IN_TEXT.isdisjoint(data) else "application/octet-stream")


def _encoding(world: World, arguments: Sequence[str]) -> str:
    import codecs

    with files.reading(world.root, arguments[0]) as file:
        data = file.read(_SNIFFED)
        more = bool(file.read(1))
    found, encoding = mark(data[:LONGEST_MARK])
    if found:
        return _ENCODINGS.get(found, encoding)
    if data.isascii():
        return "ascii"
    try:
        # The last character may be cut off where only the beginning was read.
        codecs.getincrementaldecoder("utf-8")().decode(data, final=not more)
    except UnicodeDecodeError:
        return "unknown"
    return "utf-8"


def _equal(world: World, arguments: Sequence[str]) -> str:
    if not all(_is_file(world, path) for path in arguments):
        return "False"
    with ExitStack() as stack:
        one, other = (stack.enter_context(files.reading(world.root, path)) for path in arguments)
        pairs = itertools.zip_longest(files.pieces(one, world.deadline), files.pieces(other, world.deadline))
        return str(all(first == second for first, second in pairs))


def _checksum(world: World, arguments: Sequence[str]) -> str:
    name = arguments[2] if len(arguments) > 2 else "sha256"  # noqa: PLR2004 - the third
    return str(hash_file(world, arguments[0], name) == arguments[1].strip().lower())


def _seconds_old(info: os.stat_result) -> int:
    return max(0, int(time.time() - info.st_mtime))


def _age(world: World, arguments: Sequence[str]) -> str:
    return str(_seconds_old(_status(world, arguments[0])))


def _newer_than(world: World, arguments: Sequence[str]) -> str:
    path, seconds = arguments
    return str(_is_file(world, path) and _seconds_old(_status(world, path)) <= int(seconds))


def _template(world: World, arguments: Sequence[str]) -> str:
    target = arguments[0]
    source = resolve_read(world.source, world.root)
    keys = {f"{{{{{key}}}}}": value for key, value in (world.template or {}).items()}
    text = from_bytes(files.content(world.root, source, LARGEST_TEXT))
    if keys:
        # In one pass, so that a value is never taken for a place to fill in.
        placeholder = re.compile("|".join(map(re.escape, keys)))
        in_size(len(text) + sum(len(keys[found]) for found in placeholder.findall(text)), "the file")
        text = placeholder.sub(lambda found: keys[found[0]], text)
    files.replace("FileTemplate", world.root, target, [to_bytes(text)])
    return f"FileTemplate: {source} → {target} ({len(keys)} replacement(s))"


def _patch(world: World, arguments: Sequence[str]) -> str:
    path = arguments[0]
    data = files.content(world.root, path, LARGEST_TEXT)
    found, encoding = mark(data)
    # UTF-8 is patched as bytes, so that what is not valid in it stays as it is; UTF-16 bytes could match out of step.
    as_bytes = encoding == "utf-8"
    text = data[len(found) :].decode("latin-1" if as_bytes else encoding, "replace")
    for index, (find, replacement) in enumerate(world.patches, start=1):
        old, new = (to_bytes(half).decode("latin-1" if as_bytes else "utf-8") for half in (find, replacement))
        count = text.count(old) if old else 0
        if not count:
            message = f"patch {index} of {len(world.patches)}: {find[:80]!r} is not in {path}; nothing was changed"
            raise StepFailure(message)
        in_size(len(text) + count * (len(new) - len(old)), "the file")
        text = text.replace(old, new)
    files.replace("FilePatch", world.root, path, [found, text.encode("latin-1" if as_bytes else encoding)])
    return f"FilePatch: applied {len(world.patches)} patch(es) to {path}"


VERBS: Final = (
    Verb(name="FileRead", least=1, most=1, kinds=(READ,), describe="path", act=_read),
    Verb(name="FileWrite", least=2, most=2, kinds=(WRITE, TEXT), describe="path, content", act=_write),
    Verb(name="FileAppend", least=2, most=2, kinds=(WRITE, TEXT), describe="path, content", act=_append),
    Verb(name="FileDelete", least=1, most=1, kinds=(WRITE,), describe="path", act=_delete),
    Verb(name="FileExists", least=1, most=1, kinds=(READ,), describe="path", act=_exists),
    Verb(
        name="FileList",
        least=1,
        most=2,
        kinds=(READ, NAME_PATTERN),
        describe="directory, [name pattern, default *]",
        act=_list,
    ),
    Verb(name="FileCopy", least=2, most=2, kinds=(READ, WRITE), describe="from, to", act=_copy),
    Verb(name="FileMove", least=2, most=2, kinds=(WRITE, WRITE), describe="from, to", act=_move),
    Verb(name="FileInfo", least=1, most=1, kinds=(READ,), describe="path", act=_info),
    Verb(
        name="FileHash",
        least=1,
        most=2,
        kinds=(READ, TEXT),
        describe="path, [sha256|sha512|md5]",
        act=_hash,
        check=algorithm("FileHash", 1),
    ),
    Verb(name="FileLineCount", least=1, most=1, kinds=(READ,), describe="path", act=_line_count),
    Verb(
        name="FileHead",
        least=1,
        most=2,
        kinds=(READ, TEXT),
        describe=f"path, [lines 1-{MOST_LINES}, default {USUAL_LINES}]",
        act=_head,
        check=whole("FileHead", 1, "the number of lines", 1, MOST_LINES),
    ),
    Verb(
        name="FileTail",
        least=1,
        most=2,
        kinds=(READ, TEXT),
        describe=f"path, [lines 1-{MOST_LINES}, default {USUAL_LINES}]",
        act=_tail,
        check=whole("FileTail", 1, "the number of lines", 1, MOST_LINES),
    ),
    Verb(name="FileSearch", least=2, most=2, kinds=(READ, TEXT), describe="path, literal text", act=_search),
    Verb(
        name="FileSearchRegex",
        least=2,
        most=2,
        kinds=(READ, TEXT),
        describe="path, regular expression",
        act=_search_regex,
    ),
    Verb(
        name="FileGlob",
        least=2,
        most=3,
        kinds=(READ, NAME_PATTERN, TEXT),
        describe=f"directory, name pattern, [depth 1-{MOST_DEPTH}, default {USUAL_DEPTH}]",
        act=_glob,
        check=whole("FileGlob", 2, "the depth", 1, MOST_DEPTH),
    ),
    Verb(name="FileDiff", least=2, most=2, kinds=(READ, READ), describe="path, path", act=_diff),
    Verb(name="FileMimeType", least=1, most=1, kinds=(READ,), describe="path", act=_mime_type),
    Verb(name="FileEncoding", least=1, most=1, kinds=(READ,), describe="path", act=_encoding),
    Verb(name="FileEqual", least=2, most=2, kinds=(READ, READ), describe="path, path", act=_equal),
    Verb(
        name="FileChecksum",
        least=2,
        most=3,
        kinds=(READ, TEXT, TEXT),
        describe="path, expected hex, [sha256|sha512|md5]",
        act=_checksum,
        check=algorithm("FileChecksum", 2),
    ),
    Verb(name="FileAge", least=1, most=1, kinds=(READ,), describe="path", act=_age),
    Verb(
        name="FileNewerThan",
        least=2,
        most=2,
        kinds=(READ, TEXT),
        describe="path, seconds",
        act=_newer_than,
        check=whole("FileNewerThan", 1, "the number of seconds", 0),
    ),
    Verb(
        name="FileTemplate",
        least=1,
        most=1,
        kinds=(WRITE,),
        describe="output path; with template: {source, values}",
        act=_template,
    ),
    Verb(
        name="FilePatch",
        least=1,
        most=1,
        kinds=(WRITE,),
        describe="path; with patches: [{find, replace}]",
        act=_patch,
    ),
)
