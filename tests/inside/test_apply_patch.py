"""What `inside.apply_patch` promises beyond the scenarios: every message, every pass, containment, all or nothing."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provider.inside import apply_patch
from provider.inside.apply_patch import (
    ONE_ARGUMENT,
    OUTSIDE,
    USAGE,
    WHITE,
    Add,
    ApplyError,
    Chunk,
    Delete,
    ParseError,
    PatchError,
    Root,
    Update,
    apply,
    command,
    compute,
    grammar,
    journal,
    main,
    new_content,
    read_patch,
    recover,
    resolve,
    tree,
    upstream,
)

INSIDE = Path(apply_patch.__file__).parent.parent
BOOT = f"import sys; sys.path.insert(0, {str(INSIDE)!r}); from apply_patch import program; sys.exit(program())"
PROGRAM = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", BOOT]
HEADERS = "Valid hunk headers: '*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"
SIGNS = "Every line should start with ' ' (context line), '+' (added line), or '-' (removed line)"
MODES = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


@contextlib.contextmanager
def rooted(folder: Path, directory: str = "") -> Iterator[Root]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield Root(descriptor, str(folder), directory)
    finally:
        os.close(descriptor)


def tree_of(folder: Path) -> dict[str, bytes | str | None]:
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


def edit(before: str, *lines: str, compat: bool = False) -> str:
    (update,) = read_patch(patch("*** Update File: f", *lines))
    assert isinstance(update, Update)
    target = resolve("f", Root(-1, "/w"))
    return new_content(before.encode(), update, target, compat=compat).decode()


def test_whole_grammar():
    """Every form, in one patch."""
    text = patch(
        "*** Add File: a",
        "+x",
        "*** Delete File: d",
        "  *** Update File: u  ",
        "*** Move to: m",
        " first",
        "@@ context",
        "-old",
        "+new",
        "",
        "*** End of File",
        "*** Update File: v",
        "@@",
        "+only",
    )
    assert read_patch(text) == (
        Add("a", "x\n"),
        Delete("d"),
        Update(
            "u",
            "m",
            (
                Chunk(None, ((" ", "first"),)),
                Chunk("context", (("-", "old"), ("+", "new"), (" ", "")), at_end=True),
            ),
        ),
        Update("v", None, (Chunk(None, (("+", "only"),)),)),
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "The last line of the patch must be '*** End Patch'"),
        ("bad", None, "The first line of the patch must be '*** Begin Patch'"),
        ("*** Begin Patch\nbad", None, "The last line of the patch must be '*** End Patch'"),
        ("*** Begin Patch", None, "The last line of the patch must be '*** End Patch'"),
        ("*** End Patch", None, "The first line of the patch must be '*** Begin Patch'"),
        ("<<EOF\n*** Begin Patch\nEOF", None, "The first line of the patch must be '*** Begin Patch'"),
        ("<<EOF\n*** Begin Patch\n+\nEOF", None, "The last line of the patch must be '*** End Patch'"),
        (patch("bad"), 2, f"'bad' is not a valid hunk header. {HEADERS}"),
        (patch("*** Add File: "), 2, f"'*** Add File:' is not a valid hunk header. {HEADERS}"),
        (patch("*** Add File: a", "+x", "", "*** Delete File: b"), 4, f"'' is not a valid hunk header. {HEADERS}"),
        (patch("*** Delete File: a", " *** Move to: b"), 3, f"'*** Move to: b' is not a valid hunk header. {HEADERS}"),
        (patch("*** Update File: f"), 2, "Update file hunk for path 'f' is empty"),
        (patch("*** Delete File: a", "*** Update File: f", "", " "), 3, "Update file hunk for path 'f' is empty"),
        (patch("*** Update File: f", "*** Move to: g"), 2, "Update file hunk for path 'f' is empty"),
        (
            patch("*** Update File: f", "@@", "-a", "bad"),
            5,
            "Expected update hunk to start with a @@ context marker, got: 'bad'",
        ),
        (
            patch("*** Update File: f", " a", "@@x"),
            4,
            "Expected update hunk to start with a @@ context marker, got: '@@x'",
        ),
        (patch("*** Update File: f", "@@"), 4, "Update hunk does not contain any lines"),
        (patch("*** Update File: f", "@@ x", "*** End of File"), 4, "Update hunk does not contain any lines"),
        (patch("*** Update File: f", "@@", "bad"), 4, f"Unexpected line found in update hunk: 'bad'. {SIGNS}"),
        (patch("*** Update File: f", "bad {x}"), 4, f"Unexpected line found in update hunk: 'bad {{x}}'. {SIGNS}"),
    ],
)
def test_parse_errors(text: str, line: int | None, message: str):
    """Each is told with its line, in both renderings."""
    with pytest.raises(ParseError) as raised:
        read_patch(text)
    assert (raised.value.line, raised.value.message) == (line, message)
    if line is None:
        assert (str(raised.value), raised.value.verified) == (f"Invalid patch: {message}", f"invalid patch: {message}")
    else:
        assert str(raised.value) == f"Invalid patch hunk on line {line}: {message}"
        assert raised.value.verified == f"invalid hunk at line {line}, {message}"


def test_bounds(monkeypatch: pytest.MonkeyPatch):
    """What is too much is refused before any work."""
    monkeypatch.setattr(grammar, "MAX_OPERATIONS", 2)
    assert len(read_patch(patch("*** Delete File: a", "*** Delete File: b"))) == 2
    with pytest.raises(ParseError, match="more than 2 operations"):
        read_patch(patch("*** Delete File: a", "*** Delete File: b", "*** Delete File: c"))
    monkeypatch.setattr(grammar, "MAX_PATCH", 40)
    with pytest.raises(ParseError, match="longer than 40 characters"):
        read_patch(patch("*** Delete File: abcdefgh"))


@MODES
@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        *((chr(dash), "-") for dash in (*range(0x2010, 0x2016), 0x2212)),
        *((chr(quote), "'") for quote in range(0x2018, 0x201C)),
        *((chr(quote), '"') for quote in range(0x201C, 0x2020)),
        *((chr(space), " ") for space in (0xA0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000)),
    ],
)
def test_punctuation(there: str, wanted: str, compat: bool):
    """Each look-alike is found under its plain spelling, and the other way round."""
    assert edit(f"x{there}y\n", f"-x{wanted}y", "+z", compat=compat) == "z\n"
    assert edit(f"x{wanted}y\n", f"-x{there}y", "+z", compat=compat) == "z\n"


@MODES
@pytest.mark.parametrize("there", ["\u200b", "\u2016", "\u2017", "\u2000", "\u00b4", "\x1c", "\ufeff"])
def test_not_punctuation(there: str, compat: bool):
    """Nothing else is taken for something that it is not."""
    for wanted in "-'\" ":
        with pytest.raises(ApplyError):
            edit(f"x{there}y\n", f"-x{wanted}y", "+z", compat=compat)


@MODES
@pytest.mark.parametrize("white", [character for character in WHITE if character not in "\n\r"])
def test_trimming_is_unicode_white_space(white: str, compat: bool):
    """Every White_Space character is trimmed on both sides; U+001C, which Python also strips, is not."""
    assert edit(f"{white}a{white}\n", "-a", "+z", compat=compat) == "z\n"
    with pytest.raises(ApplyError):
        edit("\x1ca\n", "-a", "+z", compat=compat)


@MODES
def test_a_stricter_pass_goes_first(compat: bool):
    """All places are tried with one pass before any with the next."""
    lines = ["\u2003“a”", '  "a"', '"a" ', '"a"']
    for kept in range(4, 0, -1):
        before = "".join(f"{line}\n" for line in lines[:kept])
        expected = "".join(f"{line}\n" for line in lines[: kept - 1]) + "z\n"
        assert edit(before, '-"a"', "+z", compat=compat) == expected


@MODES
def test_messages_of_matching(compat: bool):
    """What was not found is quoted; verification names the absolute path."""
    with pytest.raises(ApplyError) as raised:
        edit("a\n", "@@ b", "-a", compat=compat)
    assert str(raised.value) == "Failed to find context 'b' in f"
    assert raised.value.verified == "Failed to find context 'b' in /w/f"
    with pytest.raises(ApplyError) as raised:
        edit("a\n", "-x", "-y", "+z", compat=compat)
    assert str(raised.value) == "Failed to find expected lines in f:\nx\ny"
    assert raised.value.verified == "Failed to find expected lines in /w/f:\nx\ny"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("last", [True, False])
@given(data=st.data())
@settings(max_examples=20)
def test_edits_keep_everything_else(end: str, bom: str, last: bool, data: st.DataObject):
    """Whatever is edited where, the file is as if its owner had done it."""
    lines = [f"line {number}" for number in range(data.draw(st.integers(1, 12)))]
    edits = data.draw(st.lists(st.sampled_from(["keep", "drop", "swap", "grow"]), min_size=len(lines), max_size=12))
    shown: list[str] = []
    after: list[str] = []
    for line, action in zip(lines, edits, strict=False):
        shown.append(f" {line}" if action in {"keep", "grow"} else f"-{line}")
        after += [line] if action in {"keep", "grow"} else []
        if action in {"swap", "grow"}:
            shown.append(f"+new {line}")
            after.append(f"new {line}")
    before = bom + end.join(lines) + (end if last else "")
    # A file of one line and no end has none to go by.
    between = end if last or len(lines) > 1 else "\n"
    expected = bom + between.join(after) + (between if last and after else "")
    assert edit(before, "@@", *shown) == expected


@pytest.mark.parametrize(
    ("written", "directory", "parts"),
    [
        ("f", "", ("f",)),
        ("./a//b/", "", ("a", "b")),
        ("a/../b", "", ("b",)),
        ("../f", "sub", ("f",)),
        ("f", "/w/r/sub", ("sub", "f")),
        ("/w/r/f", "sub", ("f",)),
        ("../r/f", "", ("f",)),
        ("...", "", ("...",)),
        ("..", "", None),
        (".", "", None),
        ("", "", None),
        ("../f", "", None),
        ("/f", "", None),
        ("/w/rr/f", "", None),
        ("/w/r", "", None),
        ("../../../../../f", "", None),
        ("a\0b", "", None),
        ("f", "..", None),
    ],
)
def test_paths(written: str, directory: str, parts: tuple[str, ...] | None):
    """A path is what its letters say, and below the root."""
    root = Root(-1, "/w/r", directory)
    if parts is None:
        with pytest.raises(ApplyError) as raised:
            resolve(written, root)
        assert str(raised.value) == OUTSIDE
    else:
        assert resolve(written, root).parts == parts


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with links that lead out, and what they lead to beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    (work / "f").write_text("a\n")
    (work / "folder").symlink_to("../outside")
    (work / "file").symlink_to("../outside/secret")
    (work / "inner").symlink_to("real")
    (work / "loose").symlink_to("../outside/none")
    os.mkfifo(work / "pipe")
    return work


@MODES
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["*** Add File: folder/x", "+x"], "Failed to create parent directories for folder/x"),
        (["*** Add File: inner/x", "+x"], "Failed to create parent directories for inner/x"),
        (["*** Add File: file", "+x"], "Failed to write file file"),
        (["*** Add File: loose", "+x"], "Failed to write file loose"),
        (["*** Add File: pipe", "+x"], "Failed to write file pipe"),
        (["*** Delete File: folder/secret"], "Failed to delete file folder/secret"),
        (["*** Delete File: file"], "Failed to delete file file"),
        (["*** Delete File: pipe"], "Failed to delete file pipe"),
        (
            ["*** Update File: file", "-secret", "+x"],
            "Failed to read file to update file: Too many levels of symbolic links (os error 40)",
        ),
        (
            ["*** Update File: folder/secret", "-secret", "+x"],
            "Failed to read file to update folder/secret: Not a directory (os error 20)",
        ),
        (
            ["*** Update File: pipe", "-secret", "+x"],
            "Failed to read file to update pipe: Invalid argument (os error 22)",
        ),
        (["*** Update File: f", "*** Move to: file", "-a", "+b"], "Failed to write file file"),
        (
            ["*** Update File: f", "*** Move to: folder/f", "-a", "+b"],
            "Failed to create parent directories for folder/f",
        ),
    ],
)
def test_links_and_pipes(work: Path, lines: list[str], message: str, compat: bool):
    """No link is followed, and nothing but a regular file is read, replaced or removed."""
    with rooted(work) as root, pytest.raises(ApplyError) as raised:
        apply(patch(*lines), root, compat=compat)
    assert str(raised.value) == message
    assert tree_of(work.parent / "outside") == {"secret": b"secret\n"}
    assert (work / "f").read_text() == "a\n"
    assert not [name for name in os.listdir(work) if name.startswith(".")]


def test_mode_bits(tmp_path: Path):
    """An edited, overwritten or moved file keeps its mode; a new one has what the umask gives."""
    for name in ("edited", "moved", "over"):
        (tmp_path / name).write_text("a\n")
        (tmp_path / name).chmod(0o750)
    text = patch(
        *("*** Update File: edited", "-a", "+b"),
        *("*** Update File: moved", "*** Move to: there", "-a", "+b"),
        *("*** Add File: over", "+b", "*** Add File: new", "+b"),
    )
    umask = os.umask(0o027)
    try:
        with rooted(tmp_path) as root:
            assert apply(text, root) == "Success. Updated the following files:\nA over\nA new\nM edited\nM there\n"
    finally:
        os.umask(umask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"edited": 0o750, "there": 0o750, "over": 0o750, "new": 0o640}


def test_a_file_changed_meanwhile_is_not_overwritten(tmp_path: Path):
    """What was not read is not replaced."""
    (tmp_path / "f").write_text("a\n")
    with rooted(tmp_path) as root:
        changes = compute(read_patch(patch("*** Add File: g", "+g", "*** Update File: f", "-a", "+b")), root)
        (tmp_path / "f").write_text("other\n")
        with tree.Folders(root) as folders, pytest.raises(ApplyError, match="Failed to write file f"):
            journal.commit(changes, folders)
    assert tree_of(tmp_path) == {"f": b"other\n"}


@contextlib.contextmanager
def instead_of_os(fake: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module in (command, journal, tree, upstream):
            stack.enter_context(mock.patch.object(module, "os", fake))
        yield


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
@pytest.mark.parametrize(
    "lines", [["*** Update File: f", "-a", "+b"], ["*** Delete File: f"]], ids=["update", "delete"]
)
def test_a_file_that_is_none_any_more_stays(tmp_path: Path, kind: str, lines: list[str]):
    """Whatever has taken a file's place since it was read is not replaced, and keeps its name."""
    (tmp_path / "f").write_text("a\n")
    with rooted(tmp_path) as root:
        changes = compute(read_patch(patch("*** Add File: g", "+g", *lines)), root)
        (tmp_path / "f").unlink()
        match kind:
            case "folder":
                (tmp_path / "f" / "x").mkdir(parents=True)
            case "pipe":
                os.mkfifo(tmp_path / "f")
            case _:
                (tmp_path / "f").symlink_to("x")
        before = sorted(tree_of(tmp_path))
        with tree.Folders(root) as folders, pytest.raises(ApplyError):
            journal.commit(changes, folders)
    assert sorted(tree_of(tmp_path)) == before


MUTATIONS = ("open", "mkdir", "write", "rename", "link", "unlink", "fchmod", "stat", "fstat", "dup")


def failing_at(number: int, error: BaseException) -> Any:
    """The module `os`, of which one call fails; what comes after it works again."""
    left = [number]

    def wrapped(name: str) -> Any:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise error
            return real(*arguments, **options)

        return call

    return SimpleNamespace(**{**vars(os), **{name: wrapped(name) for name in MUTATIONS}}), left


BEFORE: dict[str, bytes | str | None] = {"a": b"a\n", "b": b"b\n", "c": b"c\n", "d": None, "d/e": b"e\n"}
AFTER: dict[str, bytes | str | None] = {
    "a": b"A\n",
    "d": None,
    "d/e": b"new\n",
    "m": None,
    "m/n": None,
    "m/n/c": b"C\n",
    "x": None,
    "x/y": None,
    "x/y/z": b"z\n",
}
EVERYTHING = patch(
    *("*** Add File: x/y/z", "+z", "*** Update File: a", "-a", "+A", "*** Delete File: b"),
    *("*** Update File: c", "*** Move to: m/n/c", "-c", "+C", "*** Add File: d/e", "+new"),
)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full", "interrupted"])
def test_all_or_nothing_wherever_it_fails(error: BaseException):
    """Each of the calls to the system fails once; the tree is the old one or, when told so, the new one."""
    descriptors = len(os.listdir("/proc/self/fd"))
    number, left = 0, [0]
    outcomes = set()
    while left[0] <= 0:
        number += 1
        with tempfile.TemporaryDirectory() as name, rooted(folder := Path(name)) as root:
            for path, content in BEFORE.items():
                (folder / path).write_bytes(content) if isinstance(content, bytes) else (folder / path).mkdir()
            fake, left = failing_at(number, error)
            told = False
            with instead_of_os(fake), contextlib.suppress(PatchError, KeyboardInterrupt):
                told = bool(apply(EVERYTHING, root))
            at_once = tree_of(folder)
            recover(root)
            now = tree_of(folder)
        outcomes.add(told)
        # An interrupt while the old files are cleared away comes when all is done.
        assert now == (AFTER if told or (now == AFTER and isinstance(error, KeyboardInterrupt)) else BEFORE)
        assert at_once == now or now == AFTER
    assert outcomes == {True, False}
    assert number > 50
    assert len(os.listdir("/proc/self/fd")) == descriptors


NAMES = st.sampled_from(["a", "b", "folder", "file", "inner", "deep", "..", ".", "", "é", "loose", "x y"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join) | st.sampled_from(
    ["/etc/x", "../outside/secret", "folder/secret", "/proc/self/cwd/../x", "inner/../../outside/secret", "f"]
)
TEXTS = st.sampled_from(["a", "b", "", "secret", "  a", "é"]) | st.text(max_size=4)
LINES = st.builds(lambda sign, text: sign + text, st.sampled_from([" ", "+", "-", "", "@@ ", "@@"]), TEXTS)
OPERATIONS = st.one_of(
    st.builds(lambda path, lines: [f"*** Add File: {path}", *(f"+{line}" for line in lines)], PATHS, st.lists(TEXTS)),
    PATHS.map(lambda path: [f"*** Delete File: {path}"]),
    st.builds(lambda path, lines: [f"*** Update File: {path}", *lines], PATHS, st.lists(LINES, max_size=5)),
    st.builds(
        lambda path, to, lines: [f"*** Update File: {path}", f"*** Move to: {to}", *lines],
        *(PATHS, PATHS, st.lists(LINES, max_size=5)),
    ),
)


@given(st.lists(OPERATIONS, max_size=5), st.booleans(), st.integers(0, 60))
@settings(max_examples=300)
def test_any_patch_stays_inside(operations: list[list[str]], compat: bool, fails_at: int):
    """No patch writes outside of the root; in default mode none is half done, also when a call to the system fails."""
    with tempfile.TemporaryDirectory() as name:
        outside, work = Path(name, "outside"), Path(name, "work")
        outside.mkdir()
        (outside / "secret").write_text("secret\n")
        (work / "deep").mkdir(parents=True)
        for file in ("a", "f", "deep/a"):
            (work / file).write_text("a\nb\n")
        (work / "folder").symlink_to("../outside")
        (work / "file").symlink_to("../outside/secret")
        (work / "inner").symlink_to("deep")
        (work / "loose").symlink_to("../outside/none")
        before = tree_of(work)
        fake, _ = failing_at(fails_at, OSError(errno.EIO, "broken"))
        done = False
        text = patch(*(line for operation in operations for line in operation))
        with rooted(work) as root, instead_of_os(fake), contextlib.suppress(PatchError):
            done = bool(apply(text, root, compat=compat))
        assert {path.name for path in Path(name).iterdir()} == {"outside", "work"}
        assert tree_of(outside) == {"secret": b"secret\n"}
        assert done or compat or tree_of(work) == before


MARKERS = st.sampled_from(
    [
        *("*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Delete File: b", "*** Update File: c"),
        *("*** Move to: d", "*** End of File", "@@", "@@ x", "+x", "-x", " x", "", "<<EOF", "EOF", "***", "\r"),
    ]
)


@given(st.text() | st.lists(MARKERS | st.text(max_size=5), max_size=15).map("\n".join))
@settings(max_examples=500)
def test_any_text_is_read_or_refused(text: str):
    """The reader gives operations or a ParseError, and knows no third way."""
    with contextlib.suppress(ParseError):
        read_patch(text)


def run(folder: Path, *arguments: str | bytes, stdin: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run([*PROGRAM, *arguments], input=stdin, cwd=folder, env={}, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_as_a_program(tmp_path: Path):
    """Alone, isolated, without a variable: patch on stdin or as the argument, summary in groups, exit status."""
    (tmp_path / "modify.txt").write_text("a\n")
    (tmp_path / "delete.txt").write_text("a\n")
    text = patch(
        *("*** Delete File: delete.txt", "*** Update File: modify.txt", "-a", "+é"),
        *("*** Add File: nested/né.txt", "+n"),
    ).encode()
    success = "Success. Updated the following files:\nA nested/né.txt\nM modify.txt\nD delete.txt\n"
    assert run(tmp_path, stdin=text) == (0, success, "")
    assert tree_of(tmp_path) == {"modify.txt": "é\n".encode(), "nested": None, "nested/né.txt": b"n\n"}
    missing = patch("*** Update File: modify.txt", "-missing", "+x")
    said = "Failed to find expected lines in modify.txt:\nmissing\n"
    assert run(tmp_path, missing) == (1, "", said)
    assert run(tmp_path, "--compat", missing) == (1, "", said)


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "said"),
    [
        ([], b"", 2, USAGE),
        ([""], b"", 2, USAGE),
        (["x", "y"], b"", 2, ONE_ARGUMENT),
        ([os.fsdecode(b"\xff")], b"", 1, "Error: apply_patch requires a UTF-8 PATCH argument."),
        ([patch()], b"", 1, "No files were modified."),
        ([], patch().encode(), 1, "No files were modified."),
        (["--check", patch()], b"", 1, "patch rejected: empty patch"),
        (["x"], b"", 1, "Invalid patch: The first line of the patch must be '*** Begin Patch'"),
        (["--check", "x"], b"", 1, "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ([patch("*** Delete File: no")], b"", 1, "Failed to delete file no"),
        (
            ["--check", patch("*** Delete File: no")],
            b"",
            1,
            "Failed to read {cwd}/no: No such file or directory (os error 2)",
        ),
        (
            ["--check", patch("*** Update File: no", "-a")],
            b"",
            1,
            "Failed to read file to update {cwd}/no: No such file or directory (os error 2)",
        ),
    ],
)
def test_what_the_program_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], stdin: bytes, status: int, said: str
):
    """Every way to call it wrongly has its words and its exit status."""
    monkeypatch.chdir(tmp_path)
    out, err = io.StringIO(), io.StringIO()
    assert main(arguments, io.BytesIO(stdin), out, err) == status
    assert (out.getvalue(), err.getvalue()) == ("", said.replace("{cwd}", str(tmp_path)) + "\n")


def test_check_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With --check the changes are described, and not made; paths begin in the directory that is named."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "f").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    text = patch("*** Update File: ../f", "*** Move to: g", "-a", "+b", "*** Add File: h", "+h")
    out = io.StringIO()
    assert main(["--check", "--directory=sub", text], io.BytesIO(), out, io.StringIO()) == 0
    assert out.getvalue() == "The patch fits. It would update the following files:\nA h\nM g\n"
    assert tree_of(tmp_path) == {"f": b"a\n", "sub": None}
    assert main(["--directory=sub", text], io.BytesIO(), out, io.StringIO()) == 0
    assert tree_of(tmp_path) == {"sub": None, "sub/g": b"b\n", "sub/h": b"h\n"}


def test_signals_wait(tmp_path: Path):
    """One that comes between two renames is delivered when all are done."""
    seen: list[dict[str, bytes | str | None]] = []
    held = signal.signal(signal.SIGTERM, lambda *_: seen.append(tree_of(tmp_path)))
    real = os.rename

    def rename(*arguments: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGTERM)  # to this thread: others, of other tests, hold nothing back
        real(*arguments, **options)

    try:
        with rooted(tmp_path) as root, mock.patch.object(os, "rename", rename):
            apply(patch("*** Add File: a", "+a", "*** Add File: b", "+b"), root)
    finally:
        signal.signal(signal.SIGTERM, held)
    assert seen == [{"a": b"a\n", "b": b"b\n"}]


def test_large_patches_are_fast(tmp_path: Path):
    """A thousand places in ten thousand like lines, and five hundred files: far from quadratic."""
    lines = [f"  value {number % 50}" if number % 10 else f"fn f{number}" for number in range(10_000)]
    (tmp_path / "big").write_text("\n".join(lines) + "\n")
    chunks = [line for at in range(0, 10_000, 10) for line in (f"@@ fn f{at}", f"- value {(at + 1) % 50}", "+ changed")]
    files = [line for at in range(500) for line in (f"*** Add File: many/{at % 20}/{at}", "+x")]
    began = time.process_time()
    with rooted(tmp_path) as root:
        apply(patch("*** Update File: big", *chunks, *files), root)
    assert time.process_time() - began < 5
    assert (tmp_path / "big").read_text().count(" changed\n") == 1_000
    assert len(list((tmp_path / "many").rglob("*"))) == 520


def test_repetitive_lines_are_fast():
    """The worst case of a plain search: all lines the same but the last."""
    before = "x\n" * 100_000
    began = time.process_time()
    with pytest.raises(ApplyError):
        edit(before, *["-x"] * 50_000, "-y", *["-x"] * 10)
    with pytest.raises(ApplyError):
        edit(before + "y\n", *["-x"] * 50_000, "-y", "-x")
    assert time.process_time() - began < 5
