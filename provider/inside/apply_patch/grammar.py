"""Text of a patch -> operations. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc are five milliseconds of every start
    from typing import Final

MAX_PATCH: Final = 16 * 1024 * 1024
MAX_OPERATIONS: Final = 5_000

# Unicode White_Space, which is what upstream trims; Python's strip() would also take U+001C to U+001F.
WHITE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

BEGIN, END = "*** Begin Patch", "*** End Patch"
ADD, DELETE, UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
MOVE, END_OF_FILE = "*** Move to: ", "*** End of File"
WRAPPERS = frozenset({"<<EOF", "<<'EOF'", '<<"EOF"'})
WRAPPED_LINES = 4  # the wrapper's two and the markers

FIRST_LINE = f"The first line of the patch must be '{BEGIN}'"
LAST_LINE = f"The last line of the patch must be '{END}'"
NOT_TEXT = "The patch is not valid UTF-8"
NOT_A_HEADER = (
    "'{}' is not a valid hunk header. Valid hunk headers: '*** Add File: {{path}}', '*** Delete File: {{path}}', "
    "'*** Update File: {{path}}'"
)
NO_LINES = "Update hunk does not contain any lines"
UNEXPECTED = (
    "Unexpected line found in update hunk: '{}'. Every line should start with ' ' (context line), '+' (added line), "
    "or '-' (removed line)"
)


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


class Value:
    """Equal to another of its kind with equal fields; dataclasses would be ten milliseconds of every start."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class Chunk(Value):
    __slots__ = ("at_end", "context", "lines")

    def __init__(self, context: str | None, lines: tuple[tuple[str, str], ...], *, at_end: bool = False) -> None:
        self.context, self.at_end = context, at_end
        self.lines = lines
        """Sign (space, `+`, `-`) and text."""

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "-"]


class Add(Value):
    __slots__ = ("content", "path")

    def __init__(self, path: str, content: str) -> None:
        self.path, self.content = path, content


class Delete(Value):
    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class Update(Value):
    __slots__ = ("chunks", "move_to", "path")

    def __init__(self, path: str, move_to: str | None, chunks: tuple[Chunk, ...]) -> None:
        self.path, self.move_to, self.chunks = path, move_to, chunks


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
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair, as JSON can have it
        raise ParseError(NOT_TEXT) from None
    lines = text.strip(WHITE).split("\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    lines = _unwrapped(lines)
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
        return Add(header.removeprefix(ADD), "".join([f"{line[1:]}\n" for line in lines[at + 1 : end]])), end
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
