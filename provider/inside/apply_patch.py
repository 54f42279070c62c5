"""
apply_patch: reads a patch, finds its places in the files, and changes all of them or none.

Runs inside a sandbox as a program of its own (`python3 apply_patch.py [--compat] [--check] [--directory=SUB] [PATCH]`,
the patch on stdin or as the one argument, the workspace as working directory). The host imports it to read patches.

    read_patch     text -> operations                                  pure
    resolve        a path as written -> a place below the root         pure
    new_content    a file's bytes and an update -> its new bytes       pure
    compute        operations -> changes, by reading                   no side effects
    commit         changes -> files, all or none
    apply_each     operations -> files one after the other, as upstream does it (`--compat`)

No link is ever followed: every folder is opened relative to the descriptor of the one above it. Only regular files are
read, replaced or removed. A file is replaced by a rename in its own folder, and the old one is kept beside it until
the last rename is through. What ends the program for good between two renames (SIGKILL) can leave a patch of several
files half done, with the old files beside the new ones; other signals wait.

Compatibility mode is upstream's: in place, LF for what is replaced, a newline at the end, context lines in the patch's
spelling, UTF-8 only. The default keeps each file's terminators, BOM, last newline, mode, context lines and odd bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal, NoReturn, TextIO

MAX_PATCH: Final = 16 * 1024 * 1024
MAX_OPERATIONS: Final = 5_000
MAX_FILE: Final = 64 * 1024 * 1024

# Unicode White_Space, which is what upstream trims; Python's strip() would also take U+001C to U+001F.
WHITE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_PUNCTUATION: Final = {
    **dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-"),
    **dict.fromkeys(range(0x2018, 0x201C), "'"),
    **dict.fromkeys(range(0x201C, 0x2020), '"'),
    **dict.fromkeys([0xA0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000], " "),
}
# In this order, each over the whole file; the first that finds the lines wins.
PASSES: Final[tuple[Callable[[str], str], ...]] = (
    lambda line: line,
    lambda line: line.rstrip(WHITE),
    lambda line: line.strip(WHITE),
    lambda line: line.strip(WHITE).translate(_PUNCTUATION),
)

BEGIN, END = "*** Begin Patch", "*** End Patch"
ADD, DELETE, UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
MOVE, END_OF_FILE = "*** Move to: ", "*** End of File"
WRAPPERS = frozenset({"<<EOF", "<<'EOF'", '<<"EOF"'})
WRAPPED_LINES = 4  # the wrapper's two and the markers

FIRST_LINE = f"The first line of the patch must be '{BEGIN}'"
LAST_LINE = f"The last line of the patch must be '{END}'"
NOT_A_HEADER = (
    "'{}' is not a valid hunk header. Valid hunk headers: '*** Add File: {{path}}', '*** Delete File: {{path}}', "
    "'*** Update File: {{path}}'"
)
NO_LINES = "Update hunk does not contain any lines"
UNEXPECTED = (
    "Unexpected line found in update hunk: '{}'. Every line should start with ' ' (context line), '+' (added line), "
    "or '-' (removed line)"
)
NOTHING = "No files were modified."
OUTSIDE = "patch rejected: writing outside of the project; rejected by user approval settings"
USAGE = "Usage: apply_patch 'PATCH'\n       echo 'PATCH' | apply-patch"
ONE_ARGUMENT = "Error: apply_patch accepts exactly one argument."
NOT_UTF8 = "Error: apply_patch requires a UTF-8 PATCH argument."

_BOM = "\ufeff"
_TERMINATOR = re.compile(r"(\r\n|\n|\r)")
_CLOSED = os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _CLOSED
_READ = os.O_RDONLY | os.O_NONBLOCK | _CLOSED  # NONBLOCK: a pipe in the file's place must not hold us up
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | _CLOSED
_STAGE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSED
_HELD = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class PatchError(Exception):
    """It cannot be read or applied; `str()` of it is what the program says."""

    verified: str
    """The same, worded as verification has it."""


class ParseError(PatchError):
    """The text is no patch."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.message, self.line = message, line
        if line is None:
            super().__init__(f"Invalid patch: {message}")
            self.verified = f"invalid patch: {message}"
        else:
            super().__init__(f"Invalid patch hunk on line {line}: {message}")
            self.verified = f"invalid hunk at line {line}, {message}"


class ApplyError(PatchError):
    """The patch does not fit the files, or they cannot be changed."""

    def __init__(self, message: str, verified: str | None = None) -> None:
        self.verified = message if verified is None else verified
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Chunk:
    context: str | None
    lines: tuple[tuple[str, str], ...]
    """Sign (space, `+`, `-`) and text."""
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "-"]


@dataclass(frozen=True, slots=True)
class Add:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Delete:
    path: str


@dataclass(frozen=True, slots=True)
class Update:
    path: str
    move_to: str | None
    chunks: tuple[Chunk, ...]


Operation = Add | Delete | Update


def read_patch(text: str) -> tuple[Operation, ...]:
    """
    Read a patch.

    Raises:
        ParseError: it is none, or too large.
    """
    if len(text) > MAX_PATCH:
        message = f"The patch is longer than {MAX_PATCH} characters"
        raise ParseError(message)
    lines = _unwrapped([line.removesuffix("\r") for line in text.strip(WHITE).split("\n")])
    last = len(lines) - 1
    operations: list[Operation] = []
    at = 1
    while at < last:
        if len(operations) == MAX_OPERATIONS:
            message = f"The patch has more than {MAX_OPERATIONS} operations"
            raise ParseError(message)
        operation, at = _read_operation(lines, at, last)
        operations.append(operation)
    return tuple(operations)


def _unwrapped(lines: list[str]) -> list[str]:
    """Check the markers; a here-document that a model has left around them is taken off."""
    complaint = _complaint(lines)
    if complaint and len(lines) >= WRAPPED_LINES and lines[0] in WRAPPERS and lines[-1].endswith("EOF"):
        lines = lines[1:-1]
        complaint = _complaint(lines)
    if complaint:
        raise ParseError(complaint)
    return lines


def _complaint(lines: list[str]) -> str | None:
    first, last = lines[0].strip(WHITE), lines[-1].strip(WHITE)
    # Upstream finds no first line in an empty text, and so complains about the last.
    if first != BEGIN and lines != [""]:
        return FIRST_LINE
    return None if last == END and len(lines) > 1 else LAST_LINE


def _read_operation(lines: list[str], at: int, last: int) -> tuple[Operation, int]:
    """Read the operation whose header is `lines[at]`; also gives the index after it. Line `i` is number `i + 1`."""
    header = lines[at].strip(WHITE)
    if header.startswith(ADD):
        end = at + 1
        while end < last and lines[end].startswith("+"):
            end += 1
        return Add(header.removeprefix(ADD), "".join(f"{line[1:]}\n" for line in lines[at + 1 : end])), end
    if header.startswith(DELETE):
        return Delete(header.removeprefix(DELETE)), at + 1
    if header.startswith(UPDATE):
        return _read_update(header.removeprefix(UPDATE), lines, at, last)
    raise ParseError(NOT_A_HEADER.format(header), at + 1)


def _read_update(path: str, lines: list[str], header: int, last: int) -> tuple[Update, int]:
    at = header + 1
    move_to = None
    if at < last and lines[at].startswith(MOVE):
        move_to = lines[at].removeprefix(MOVE)
        at += 1
    chunks: list[Chunk] = []
    while at < last and not lines[at].startswith("***"):
        if lines[at].strip(WHITE):
            chunk, at = _read_chunk(lines, at, last, first=not chunks)
            chunks.append(chunk)
        else:
            at += 1
    if not chunks:
        message = f"Update file hunk for path '{path}' is empty"
        raise ParseError(message, header + 1)
    return Update(path, move_to, tuple(chunks)), at


def _read_chunk(lines: list[str], start: int, last: int, *, first: bool) -> tuple[Chunk, int]:
    at = start + 1
    context = None
    if lines[start].startswith("@@ "):
        context = lines[start][3:]
    elif lines[start] != "@@":
        if not first:
            message = f"Expected update hunk to start with a @@ context marker, got: '{lines[start]}'"
            raise ParseError(message, start + 1)
        at = start
    read: list[tuple[str, str]] = []
    while at < last and lines[at] != END_OF_FILE:
        line = lines[at]
        if line and line[0] not in " +-":
            if not read:
                raise ParseError(UNEXPECTED.format(line), start + 2)
            return Chunk(context, tuple(read)), at
        read.append((line[:1] or " ", line[1:]))
        at += 1
    if not read:
        raise ParseError(NO_LINES, start + 2)
    return Chunk(context, tuple(read), at_end=at < last), min(at + 1, last)


@dataclass(frozen=True, slots=True)
class Root:
    """Where paths begin, and what they cannot leave."""

    descriptor: int
    path: str
    """Absolute; only for reading absolute paths in patches, and for messages."""
    directory: str = ""
    """Relative paths begin here; itself relative to the root, or absolute."""


@dataclass(frozen=True, slots=True)
class Target:
    written: str
    parts: tuple[str, ...]
    """From the root, without `.` and `..`; never empty."""
    absolute: str


def resolve(written: str, root: Root) -> Target:
    """
    Find the place of a path by its letters alone.

    Raises:
        ApplyError: it is not below the root.
    """
    top = _normal([], root.path)
    parts = _normal(_normal(top, root.directory), written)
    if parts[: len(top)] != top or len(parts) == len(top) or "\0" in written:
        raise ApplyError(OUTSIDE)
    return Target(written, tuple(parts[len(top) :]), "/" + "/".join(parts))


def _normal(start: list[str], path: str) -> list[str]:
    parts = [] if path.startswith("/") else list(start)
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return parts


class _Index:
    """
    A file's lines, findable in linear time.

    For each pass every distinct line gets a character of its own, and the file becomes one string of them: looking for
    lines is then `str.find`, which is never quadratic.
    """

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._passes: list[tuple[dict[str, str], str]] = []

    def find(self, wanted: list[str], start: int, *, at_end: bool, overlap: bool) -> int | None:
        if not wanted:
            return start
        if len(wanted) > len(self.lines):
            return None
        tail = len(self.lines) - len(wanted)
        if at_end and tail < start and not overlap:
            return None
        for number, normal in enumerate(PASSES):
            letters, text = self._pass(number)
            spelled = [letters.get(normal(line)) for line in wanted]
            if None in spelled:
                continue
            word = "".join(letter for letter in spelled if letter)
            found = text.find(word, tail if at_end else start)
            if found >= 0:
                return found
        return None

    def _pass(self, number: int) -> tuple[dict[str, str], str]:
        while len(self._passes) <= number:
            normal = PASSES[len(self._passes)]
            letters: dict[str, str] = {}
            text = "".join([letters.setdefault(normal(line), chr(len(letters))) for line in self.lines])
            self._passes.append((letters, text))
        return self._passes[number]


@dataclass(frozen=True, slots=True)
class _Match:
    """A chunk's place: `length` lines from `start` are what its lines without `+` say."""

    start: int
    length: int
    chunk: Chunk
    dropped: bool = False
    """Its last old line, an empty one, is not in the file."""


def _matches(index: _Index, update: Update, target: Target, *, compat: bool) -> list[_Match]:
    cursor = 0
    found: list[_Match] = []
    for chunk in update.chunks:
        if chunk.context is not None:
            place = index.find([chunk.context], cursor, at_end=False, overlap=compat)
            if place is None:
                _does_not_fit(f"Failed to find context '{chunk.context}' in ", target)
            cursor = place + 1
        old = chunk.old
        if not old:
            end = len(index.lines)
            found.append(_Match(end - 1 if end and not index.lines[-1] else end, 0, chunk))
            continue
        place = index.find(old, cursor, at_end=chunk.at_end, overlap=compat)
        length = len(old)
        if place is None and not old[-1]:
            length -= 1
            place = index.find(old[:-1], cursor, at_end=chunk.at_end, overlap=compat)
        if place is None:
            _does_not_fit("Failed to find expected lines in ", target, ":\n" + "\n".join(old))
        found.append(_Match(place, length, chunk, dropped=length < len(old)))
        cursor = place + length
    # Additions at the end may come before replacements further up; stable, so that several keep their order.
    return sorted(found, key=lambda match: match.start)


def _does_not_fit(before: str, target: Target, after: str = "") -> NoReturn:
    message = f"{before}{target.written}{after}"
    raise ApplyError(message, f"{before}{target.absolute}{after}")


def new_content(before: bytes, update: Update, target: Target, *, compat: bool = False) -> bytes:
    """
    Give a file's bytes after an update.

    Raises:
        ApplyError: the file does not have the lines that the patch expects.
    """
    return _upstream_content(before, update, target) if compat else _kept_content(before, update, target)


def _upstream_content(before: bytes, update: Update, target: Target) -> bytes:
    try:
        lines = before.decode().split("\n")
    except UnicodeDecodeError:
        _does_not_fit("Failed to read file to update ", target, ": stream did not contain valid UTF-8")
    if not lines[-1]:
        lines.pop()
    _check_count(lines, target)
    for match in reversed(_matches(_Index(lines), update, target, compat=True)):
        new = match.chunk.new
        if match.dropped and new and not new[-1]:
            new.pop()
        lines[match.start : match.start + match.length] = new
    if not lines or lines[-1]:
        lines.append("")
    return "\n".join(lines).encode()


def _kept_content(before: bytes, update: Update, target: Target) -> bytes:
    text = before.decode(errors="surrogateescape")
    bom = _BOM if text.startswith(_BOM) else ""
    pieces = _TERMINATOR.split(text.removeprefix(_BOM))
    lines, ends = pieces[::2], pieces[1::2]
    if lines[-1]:
        ends.append("")
    else:
        lines.pop()
    _check_count(lines, target)
    newline = ends[0] if ends and ends[0] else "\n"
    unended = bool(ends) and not ends[-1]
    out: list[str] = []
    cursor = 0
    for match in _matches(_Index(lines), update, target, compat=False):
        for at in range(cursor, match.start):
            out += (lines[at], ends[at])
        cursor = match.start
        for sign, added in _shown_lines(match):
            if sign == "+":
                out += (added, newline)
            else:
                if sign == " ":
                    out += (lines[cursor], ends[cursor])
                cursor += 1
    for at in range(cursor, len(lines)):
        out += (lines[at], ends[at])
    # Only the line that was the last can be without an end; it may not be the last any more.
    for at in range(1, len(out) - 1, 2):
        out[at] = out[at] or newline
    if out:
        out[-1] = "" if unended else out[-1] or newline
    return (bom + "".join(out)).encode(errors="surrogateescape")


def _shown_lines(match: _Match) -> list[tuple[str, str]]:
    """Give a chunk's lines as far as the file has them."""
    lines = list(match.chunk.lines)
    if match.dropped:
        last = max(at for at, (sign, _) in enumerate(lines) if sign != "+")
        removed, _ = lines.pop(last)
        if removed == "-" and lines and lines[-1] == ("+", ""):
            lines.pop()
    return lines


def _check_count(lines: list[str], target: Target) -> None:
    if len(lines) > sys.maxunicode:
        _does_not_fit("Failed to read file to update ", target, f": {_os_error(OSError(errno.EFBIG, ''))}")


def _os_error(error: OSError) -> str:
    return f"{os.strerror(error.errno)} (os error {error.errno})" if error.errno else str(error)


@dataclass(frozen=True, slots=True)
class Change:
    """What one operation comes to. `before` and `after` are None where there is no file, or nobody asked."""

    kind: Literal["add", "delete", "update"]
    target: Target
    move_to: Target | None = None
    before: bytes | None = None
    after: bytes | None = None
    seen: os.stat_result | None = None
    """The file as it was read."""

    @property
    def destination(self) -> Target:
        return self.move_to or self.target


def compute(operations: Sequence[Operation], root: Root, *, compat: bool = False) -> list[Change]:
    """
    Find out what a patch comes to, against the files as they are; writes nothing.

    Raises:
        ParseError: two operations are about one path.
        ApplyError: one of them cannot be done.
    """
    if not operations:
        raise ApplyError(NOTHING, "patch rejected: empty patch")
    taken: set[tuple[str, ...]] = set()
    changes: list[Change] = []
    for operation in operations:
        change = _compute_one(operation, root, compat=compat)
        for target in {change.target.parts: change.target, change.destination.parts: change.destination}.values():
            if target.parts in taken and not compat:
                message = f"multiple operations target {target.written}"
                raise ParseError(message)
            taken.add(target.parts)
        changes.append(change)
    return changes


def _compute_one(operation: Operation, root: Root, *, compat: bool) -> Change:
    target = resolve(operation.path, root)
    if isinstance(operation, Add):
        return Change("add", target, after=operation.content.encode())
    try:
        # A file that goes may be of any size; what is shown of it has the same limit.
        before, seen = _read_file(root, target, float("inf") if isinstance(operation, Delete) else MAX_FILE)
    except OSError as error:
        why = _os_error(error)
        if isinstance(operation, Delete):
            message = f"Failed to delete file {target.written}"
            raise ApplyError(message, f"Failed to read {target.absolute}: {why}") from error
        _does_not_fit("Failed to read file to update ", target, f": {why}")
    if isinstance(operation, Delete):
        return Change("delete", target, before=before, seen=seen)
    move_to = None if operation.move_to is None else resolve(operation.move_to, root)
    after = new_content(before, operation, target, compat=compat)
    return Change("update", target, move_to, before, after, seen)


def _open_folder(root: Root, parts: Sequence[str], made: Callable[[tuple[str, ...]], None] | None = None) -> int:
    """Open a folder below the root, link by link of the chain; with `made`, missing ones are created and told."""
    folder = os.dup(root.descriptor)
    for depth, name in enumerate(parts, start=1):
        above = folder
        try:
            try:
                folder = os.open(name, _FOLDER, dir_fd=above)
            except FileNotFoundError:
                if made is None:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=above)
                    made(tuple(parts[:depth]))
                folder = os.open(name, _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    return folder


@contextlib.contextmanager
def _in_folder(root: Root, target: Target) -> Iterator[tuple[int, str]]:
    folder = _open_folder(root, target.parts[:-1])
    try:
        yield folder, target.parts[-1]
    finally:
        os.close(folder)


def _read_file(root: Root, target: Target, limit: float) -> tuple[bytes, os.stat_result]:
    with _in_folder(root, target) as (folder, name):
        descriptor = os.open(name, _READ, dir_fd=folder)
    try:
        seen = _regular(os.fstat(descriptor))
        if seen.st_size > limit:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FILE), seen  # never more, also of a file that grows
    finally:
        os.close(descriptor)


def _regular(seen: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(seen.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(seen.st_mode) else errno.EINVAL
        raise OSError(number, os.strerror(number))
    return seen


def _existing(folder: int, name: str) -> os.stat_result | None:
    try:
        return _regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def commit(changes: Sequence[Change], root: Root) -> None:
    """
    Make the changes, all or none.

    Raises:
        ApplyError: one could not be made; the files are as they were.
    """
    undo: list[Callable[[], None]] = []
    backups: list[tuple[Target, str]] = []
    try:
        staged = [_stage(change, root, undo) if change.after is not None else "" for change in changes]
        for change, temporary in zip(changes, staged, strict=True):
            if temporary:
                _replace(change, temporary, root, undo, backups)
            if change.after is None or change.destination.parts != change.target.parts:
                _remove(change, root, undo, backups)
    except BaseException:
        for step in reversed(undo):
            with contextlib.suppress(OSError):
                step()
        raise
    for target, backup in backups:
        with contextlib.suppress(OSError), _in_folder(root, target) as (folder, _):
            os.unlink(backup, dir_fd=folder)


def _temporary() -> str:
    return f".apply_patch-{os.urandom(8).hex()}"


def _stage(change: Change, root: Root, undo: list[Callable[[], None]]) -> str:
    """Write the new content beside its destination; gives its name there."""
    target = change.destination
    made = _undone_by(root, undo)
    with _failing(f"Failed to create parent directories for {target.written}"):
        folder = _open_folder(root, target.parts[:-1], made)
    try:
        with _failing(f"Failed to write file {target.written}"):
            kept = change.seen or _existing(folder, target.parts[-1])
            temporary = _temporary()
            descriptor = os.open(temporary, _STAGE, 0o666, dir_fd=folder)
            undo.append(lambda: _unlink(root, target, temporary))
            try:
                if kept:
                    os.fchmod(descriptor, kept.st_mode & 0o777)
                _write_all(descriptor, change.after or b"")
            finally:
                os.close(descriptor)
    finally:
        os.close(folder)
    return temporary


def _replace(
    change: Change, temporary: str, root: Root, undo: list[Callable[[], None]], backups: list[tuple[Target, str]]
) -> None:
    target = change.destination
    with _failing(f"Failed to write file {target.written}"), _in_folder(root, target) as (folder, name):
        if _existing(folder, name):
            seen = change.seen if target.parts == change.target.parts else None
            _set_aside(target, seen, root, undo, backups, keep=True)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            undo.append(lambda: _unlink(root, target, name))


def _remove(change: Change, root: Root, undo: list[Callable[[], None]], backups: list[tuple[Target, str]]) -> None:
    written = change.target.written
    with _failing(
        f"Failed to delete file {written}" if change.after is None else f"Failed to remove original {written}"
    ):
        _set_aside(change.target, change.seen, root, undo, backups, keep=False)


def _set_aside(
    target: Target,
    seen: os.stat_result | None,
    root: Root,
    undo: list[Callable[[], None]],
    backups: list[tuple[Target, str]],
    *,
    keep: bool,
) -> None:
    """Give the file a second name beside its own, or, without `keep`, in place of it."""
    backup = _temporary()
    with _in_folder(root, target) as (folder, name):
        undo.append(lambda: _put_back(root, target, backup))
        try:
            if not keep:
                raise OSError(errno.EPERM, "")
            os.link(name, backup, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError:  # not every filesystem has links; then the name is free for a moment
            os.rename(name, backup, src_dir_fd=folder, dst_dir_fd=folder)
        backups.append((target, backup))
        now = _regular(os.stat(backup, dir_fd=folder, follow_symlinks=False))
        if seen and (now.st_ino, now.st_size, now.st_mtime_ns) != (seen.st_ino, seen.st_size, seen.st_mtime_ns):
            raise OSError(errno.ESTALE, "changed since it was read")


def _put_back(root: Root, target: Target, backup: str) -> None:
    with _in_folder(root, target) as (folder, name):
        os.rename(backup, name, src_dir_fd=folder, dst_dir_fd=folder)
        # Two names of one file: rename does nothing then, and succeeds.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(backup, dir_fd=folder)


def _unlink(root: Root, target: Target, name: str) -> None:
    with _in_folder(root, target) as (folder, _):
        os.unlink(name, dir_fd=folder)


def _undone_by(root: Root, undo: list[Callable[[], None]]) -> Callable[[tuple[str, ...]], None]:
    def remove(parts: tuple[str, ...]) -> None:
        above = _open_folder(root, parts[:-1])
        try:
            os.rmdir(parts[-1], dir_fd=above)
        finally:
            os.close(above)

    return lambda parts: undo.append(lambda: remove(parts))


@contextlib.contextmanager
def _failing(message: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ApplyError(message) from error


def apply_each(operations: Sequence[Operation], root: Root) -> list[Change]:
    """
    Apply one operation after the other, in place, as upstream does.

    Raises:
        ApplyError: one could not be done; those before it are.
    """
    if not operations:
        raise ApplyError(NOTHING, "patch rejected: empty patch")
    changes: list[Change] = []
    for operation in operations:
        change = _compute_one(operation, root, compat=True)
        target = change.destination
        if change.after is not None:
            with _failing(f"Failed to create parent directories for {target.written}"):
                folder = _open_folder(root, target.parts[:-1], lambda _: None)
            try:
                with _failing(f"Failed to write file {target.written}"):
                    _overwrite(folder, target.parts[-1], change.after)
            finally:
                os.close(folder)
        # A move onto itself is no move here; upstream removes the file that it has just written.
        if change.after is None or target.parts != change.target.parts:
            verb = "Failed to delete file" if change.after is None else "Failed to remove original"
            with _failing(f"{verb} {change.target.written}"):
                _unlink(root, change.target, change.target.parts[-1])
        changes.append(change)
    return changes


def _overwrite(folder: int, name: str, content: bytes) -> None:
    descriptor = os.open(name, _WRITE, 0o666, dir_fd=folder)
    try:
        _regular(os.fstat(descriptor))
        os.ftruncate(descriptor, 0)
        _write_all(descriptor, content)
    finally:
        os.close(descriptor)


def summary(changes: Sequence[Change]) -> str:
    letters = {"add": "A", "update": "M", "delete": "D"}
    lines = [
        f"{letter} {change.destination.written}\n"
        for kind, letter in letters.items()
        for change in changes
        if change.kind == kind
    ]
    return "Success. Updated the following files:\n" + "".join(lines)


def described(changes: Sequence[Change]) -> str:
    """Changes as a line of JSON, for who verifies; bytes that are no UTF-8 are replaced there."""
    import json  # five milliseconds, and seldom needed

    return json.dumps(
        [
            {
                "type": change.kind,
                "path": change.target.absolute,
                "move_path": change.move_to and change.move_to.absolute,
                "before": None if change.before is None else change.before.decode(errors="replace"),
                "after": None if change.after is None else change.after.decode(errors="replace"),
            }
            for change in changes
        ]
    )


def apply(text: str, root: Root, *, compat: bool = False) -> str:
    """
    Apply a patch and give the summary.

    Raises:
        PatchError: it was not applied, or, with `compat`, not wholly.
    """
    operations = read_patch(text)
    if compat:
        return summary(apply_each(operations, root))
    changes = compute(operations, root)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        commit(changes, root)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return summary(changes)


def main(arguments: Sequence[str], stdin: BinaryIO, stdout: TextIO, stderr: TextIO) -> int:
    """Run as a program in the working directory; gives the exit status."""
    options = [argument for argument in arguments if argument in {"--compat", "--check"} or _is_directory(argument)]
    patches = [argument for argument in arguments if argument not in options]
    if len(patches) > 1:
        stderr.write(f"{ONE_ARGUMENT}\n")
        return 2
    given = os.fsencode(patches[0]) if patches else stdin.read(4 * MAX_PATCH + 1)
    if not given:
        stderr.write(f"{USAGE}\n")
        return 2
    try:
        text = given.decode()
    except UnicodeDecodeError:
        stderr.write(f"{NOT_UTF8}\n")
        return 1
    directory = next((option.partition("=")[2] for option in options if _is_directory(option)), "")
    descriptor = os.open(".", _FOLDER)
    try:
        root = Root(descriptor, os.getcwd(), directory)  # noqa: PTH109 - os is all that is used here
        if "--check" in options:
            stdout.write(described(compute(read_patch(text), root, compat="--compat" in options)) + "\n")
        else:
            stdout.write(apply(text, root, compat="--compat" in options))
    except PatchError as error:
        stderr.write(f"{error.verified if '--check' in options else error}\n")
        return 1
    finally:
        os.close(descriptor)
    return 0


def _is_directory(argument: str) -> bool:
    return argument.startswith("--directory=")


if __name__ == "__main__":
    # Whatever the image's locale says: paths and messages are UTF-8.
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    sys.stderr.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:], sys.stdin.buffer, sys.stdout, sys.stderr))
