"""
ArchiveExtract: a zip or a gzipped tar, all of it or nothing.

It is gone through twice. First every entry is held against the rules and read to its end, so that what counts is what
comes out and not what a header claims; only then the second pass writes, under the same limits once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

from .. import open as files
from ..deadline import look
from ..errors import PathViolation, StepFailure
from ..paths import resolve_write
from ..tar import Entry, entries
from ..verb import READ, WRITE, Arguments, Verb, World
from .limits import at, brief, refuse

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

MOST_BYTES: Final = 256 * 1024 * 1024
MOST_ENTRIES: Final = 10_000
EXTENSIONS: Final = (".zip", ".tar.gz", ".tgz")

_MOST_DIRECTORY: Final = 16 * 1024 * 1024
_END_OF_ZIP: Final = b"PK\x05\x06"
_ZIP64: Final = b"PK\x06\x07"
_END_BYTES: Final = 22
_LONGEST_COMMENT: Final = 65_535
_ENCRYPTED: Final = 0x1
_SPECIAL: Final = 0o170000
_PIECE: Final = 1024 * 1024


def _extract(world: World, arguments: Sequence[str]) -> str:
    archive, folder = arguments
    count = 0
    with files.reading(world.root, archive) as file:
        for entry, _ in _checked(world, archive, folder, file):
            for _ in entry.content:
                look(world.deadline)
        file.seek(0)
        files.make_folder("ArchiveExtract", world.root, folder)
        for entry, target in _checked(world, archive, folder, file):
            if entry.kind == "folder":
                files.make_folder("ArchiveExtract", world.root, target)
            else:
                files.replace("ArchiveExtract", world.root, target, _watched(entry, world.deadline))
                count += 1
    return f"Extracted {count} files to {folder}"


def _watched(entry: Entry, deadline: float) -> Iterator[bytes]:
    for piece in entry.content:
        look(deadline)
        yield piece


def _checked(world: World, archive: str, folder: str, file: BinaryIO) -> Iterator[tuple[Entry, str]]:
    """The entries with the places where they go, as far as all is right; raises at the first that is not."""
    read = _zip_entries if archive.lower().endswith(".zip") else entries
    seen: dict[str, str] = {}
    total = number = 0
    for entry in read(file):
        number += 1
        if number > MOST_ENTRIES:
            message = f"{archive} has more than {MOST_ENTRIES} entries; nothing was extracted"
            raise StepFailure(message)
        look(world.deadline)
        target = _target(world, folder, entry)
        if target == folder and entry.kind == "folder":
            continue
        _check_conflict(seen, target, entry)

        def counted(entry: Entry = entry) -> Iterator[bytes]:
            nonlocal total
            for piece in entry.content:
                total += len(piece)
                if total > MOST_BYTES:
                    message = f"{archive} holds more than {MOST_BYTES} bytes; nothing was extracted"
                    raise StepFailure(message)
                yield piece

        yield Entry(entry.name, entry.kind, entry.size, counted()), target


def _target(world: World, folder: str, entry: Entry) -> str:
    """Where an entry goes. Raises for one that may not go there."""
    name = entry.name
    if entry.kind == "other":
        message = f"the entry {brief(name)} is no plain file or directory, but a link, a device, encrypted or the like"
        raise StepFailure(f"{message}; nothing was extracted")  # noqa: EM102 - in two lines
    if name.startswith("/") or "\\" in name or ".." in name.split("/"):
        message = f"the archive's entry {brief(name)} leads out of {folder}; nothing was extracted"
        raise PathViolation(message)
    target = resolve_write("ArchiveExtract", f"{folder}/{name}", world.root)
    files.place(world.root, target, verb="ArchiveExtract")
    return target


def _check_conflict(seen: dict[str, str], target: str, entry: Entry) -> None:
    """Refuse a file where a folder is needed, which would be found out only half way through the writing."""
    parts = target.split("/")
    above = ["/".join(parts[:depth]) for depth in range(2, len(parts))]
    file_above = next((path for path in above if seen.get(path) == "file"), None)
    if file_above or seen.get(target, entry.kind) != entry.kind:
        message = (
            f"the entry {brief(entry.name)} needs a directory where another entry is a file; nothing was extracted"
        )
        raise StepFailure(message)
    seen.update(dict.fromkeys(above, "folder"))
    seen[target] = entry.kind


def _zip_entries(file: BinaryIO) -> Iterator[Entry]:
    import zipfile

    _check_directory(file)
    with _reading_zip():
        archive = zipfile.ZipFile(file)
    with archive:
        for info in archive.infolist():
            yield Entry(info.filename, _zip_kind(info), info.file_size, _zip_content(archive, info))


@contextlib.contextmanager
def _reading_zip() -> Iterator[None]:
    import struct
    import zipfile
    import zlib

    try:
        yield
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, OverflowError, RuntimeError) as error:
        message = f"the archive is damaged, or no zip: {error}"
        raise StepFailure(message) from error


def _check_directory(file: BinaryIO) -> None:
    """Refuse a table of contents that is too much to read; the library reads all of it whatever it is."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_BYTES - _LONGEST_COMMENT - 20))
    tail = file.read()
    end = tail.rfind(_END_OF_ZIP)
    file.seek(0)
    if end < 0:
        message = "the archive is damaged, or no zip: it has no table of contents"
        raise StepFailure(message)
    if int.from_bytes(tail[end + 12 : end + 16], "little") > _MOST_DIRECTORY or _ZIP64 in tail[max(0, end - 20) : end]:
        message = f"the archive's table of contents is too long for {MOST_ENTRIES} entries; nothing was extracted"
        raise StepFailure(message)


def _zip_kind(info: ZipInfo) -> str:
    special = info.external_attr >> 16 & _SPECIAL
    if info.flag_bits & _ENCRYPTED or info.compress_type not in {0, 8} or special not in {0, 0o100000, 0o040000}:
        return "other"
    return "folder" if info.is_dir() else "file"


def _zip_content(archive: ZipFile, info: ZipInfo) -> Iterator[bytes]:
    if info.is_dir():
        return
    with _reading_zip():
        content = archive.open(info)
    with content:
        while True:
            with _reading_zip():
                piece = content.read(_PIECE)
            if not piece:
                return
            yield piece


def _known_kind(arguments: Arguments) -> None:
    path = at(arguments, 0)
    if path is not None and not path.lower().endswith(EXTENSIONS):
        refuse("ArchiveExtract", f"{brief(path)} is none of the archives that are read: *{', *'.join(EXTENSIONS)}")


VERBS: Final = (
    Verb(
        name="ArchiveExtract",
        least=2,
        most=2,
        kinds=(READ, WRITE),
        describe="archive (.zip, .tar.gz, .tgz), directory",
        act=_extract,
        check=_known_kind,
    ),
)
