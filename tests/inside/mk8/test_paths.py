"""Which paths are read and written: by their text, and by what they lead to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provider.inside.mk8.errors import CompileError, InvalidArgument, Mk8Error, PathViolation
from provider.inside.mk8.paths import (
    WRITE_BLOCKED_EXTENSIONS,
    WRITE_BLOCKED_NAMES,
    check_name_pattern,
    is_root,
    resolve_read,
    resolve_write,
    write_refusal,
)

ROOT = "/workspace"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a.txt", "/workspace/a.txt"),
        ("./a//b/./c", "/workspace/a/b/c"),
        (".", "/workspace"),
        ("/workspace", "/workspace"),
        ("/workspace/a", "/workspace/a"),
        ("/workspace/", "/workspace"),
        ("..a/b..", "/workspace/..a/b.."),
        ("a b\tc", "/workspace/a b\tc"),
        ("-rf", "/workspace/-rf"),
        ("~", "/workspace/~"),
        (".git/config", "/workspace/.git/config"),  # reading it is fine
        ("x.js", "/workspace/x.js"),
    ],
)
def test_where_a_path_lies(text, path):
    """A path is relative to the root, or absolute below it."""
    assert resolve_read(text, ROOT) == path


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", InvalidArgument),
        ("  \t", InvalidArgument),
        ("a\0b", InvalidArgument),
        ("a\nb", InvalidArgument),
        ("a\x7fb", InvalidArgument),
        ("a\x85b", InvalidArgument),
        ("a\ud800b", InvalidArgument),
        ("..", PathViolation),
        ("../a", PathViolation),
        ("a/../b", PathViolation),  # refused even where it stays inside
        ("/workspace/../etc", PathViolation),
        ("a\\..\\b", PathViolation),
        ("/", PathViolation),
        ("/etc/passwd", PathViolation),
        ("/workspaces/a", PathViolation),
        ("//workspace/a", PathViolation),
        ("/Workspace/a", PathViolation),
        ("mk8.shell.env", PathViolation),
        ("sub/MK8.Shell.Signed.Env", PathViolation),
        ("mk8.shell.env/x", PathViolation),
    ],
)
def test_paths_that_no_verb_uses(text, error):
    """Reading and writing refuse them alike, and say what would be right."""
    for resolve in (lambda: resolve_read(text, ROOT), lambda: resolve_write("FileWrite", text, ROOT)):
        with pytest.raises(error, match="Right: a path below the workspace"):
            resolve()


@pytest.mark.parametrize("extension", sorted(WRITE_BLOCKED_EXTENSIONS))
def test_no_file_that_a_tool_executes_is_written(extension):
    """Extensions are refused in any case, also as a whole name."""
    for name in (f"a{extension}", f"d/a{extension.upper()}", extension, f"a.txt{extension}"):
        with pytest.raises(CompileError, match="write-protected"):
            resolve_write("FileWrite", name, ROOT)
        assert resolve_read(name, ROOT)


@pytest.mark.parametrize("name", sorted(WRITE_BLOCKED_NAMES))
def test_no_file_that_steers_a_tool_is_written(name):
    """Names are refused in any case and any folder."""
    for path in (name, name.upper(), f"deep/down/{name}"):
        with pytest.raises(Mk8Error):
            resolve_write("FileWrite", path, ROOT)


def test_how_many_names_and_extensions_there_are():
    """The contract lists 29 extensions and 19 names."""
    assert (len(WRITE_BLOCKED_EXTENSIONS), len(WRITE_BLOCKED_NAMES)) == (29, 19)


@pytest.mark.parametrize(
    "path",
    [
        ".git",
        ".git/config",
        "sub/.git/hooks/pre-commit",
        ".GIT/config",
        "repository.git",
        ".git./config",  # the same folder on some file systems
        "lib/libc.so.6",
        "libx.so.1.2.3",
        "A.EXE ",
    ],
)
def test_git_s_own_files_and_versioned_libraries_are_not_written(path):
    """Section 9, item 16 and 18: .git is reached by git commands only."""
    assert write_refusal(path)
    with pytest.raises(CompileError, match="write-protected"):
        resolve_write("FileDelete", path, ROOT)


@pytest.mark.parametrize(
    "path",
    [
        *("a.sh", "a.py", "a.ps1", "x.service", "script", "a.so.txt", "gitignore", ".gitignore", "digit", "legit/x"),
        *("a.json", "my-package.json", "Makefile.txt", "js", "x.jsx", ".github/workflows/a.yml", "a.bin.txt", ""),
    ],
)
def test_what_may_be_written(path):
    """Scripts of blocked interpreters are allowed on purpose; names are compared as a whole."""
    assert write_refusal(path) is None


@pytest.mark.parametrize("pattern", ["*", "*.txt", "a?b*", "[x]", "...", ".*", "a..b"])
def test_patterns_of_names(pattern):
    """Wildcards stand for parts of a name."""
    assert check_name_pattern("FileList", pattern) == pattern


@pytest.mark.parametrize("pattern", ["", " ", ".", "..", "*/x", "../*", "/etc/*", "a\\b", "a\0", "a\nb"])
def test_9_15_patterns_do_not_leave_their_folder(pattern):
    """Section 9, item 15: a pattern with a folder in it is refused."""
    with pytest.raises(CompileError, match="no pattern"):
        check_name_pattern("FileList", pattern)


# What paths lead to.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    root = tmp_path / "root"
    (root / "sub" / ".git").mkdir(parents=True)
    (root / "a.txt").write_text("a")
    (root / "app.js").write_text("a")
    for name, target in (
        ("out", outside),
        ("file-out", outside / "secret"),
        ("up", ".."),
        ("dangling-out", tmp_path / "nothing"),
        ("in", "sub"),
        ("to-git", "sub/.git"),
        ("plain.txt", "app.js"),
        ("dangling.txt", "new.js"),
        ("own", "mk8.shell.env"),
        ("self", "."),
        ("loop", "loop"),
        ("sub/chain", "../out"),
    ):
        (root / name).symlink_to(target)
    return root


@pytest.mark.parametrize(
    "text", ["out", "out/secret", "file-out", "up", "up/root/a.txt", "dangling-out", "sub/chain/secret"]
)
def test_9_14_links_that_lead_out_are_refused(root, text):
    """Section 9, item 14: every link on the way is followed, for reading and for writing."""
    if text != "up/root/a.txt":  # comes back in
        with pytest.raises(PathViolation, match="through a link"):
            resolve_read(text, str(root), links=True)
        with pytest.raises(PathViolation, match="through a link"):
            resolve_write("FileWrite", text, str(root), links=True)
    else:
        assert resolve_read(text, str(root), links=True) == f"{root}/{text}"


@pytest.mark.parametrize("text", ["a.txt", "new/deep/b.txt", "in/x.txt", "self/a.txt", "loop", "."])
def test_links_that_stay_inside_are_followed(root, text):
    """What comes back is the path as it was written."""
    assert resolve_read(text, str(root), links=True) == os.path.normpath(root / text)


@pytest.mark.parametrize("text", ["to-git/config", "plain.txt", "dangling.txt", "to-git"])
def test_a_link_is_no_way_around_the_rules_for_writing(root, text):
    """Whatever a link leads to is held against the same rules; reading it is allowed."""
    with pytest.raises(CompileError, match="write-protected"):
        resolve_write("FileWrite", text, str(root), links=True)
    assert resolve_read(text, str(root), links=True)


def test_a_link_is_no_way_to_the_sandbox_s_own_files(root):
    """Neither to read nor to write."""
    for resolve in (
        lambda: resolve_read("own", str(root), links=True),
        lambda: resolve_write("X", "own", str(root), links=True),
    ):
        with pytest.raises(PathViolation, match="own configuration"):
            resolve()


def test_the_root_may_itself_be_behind_a_link(root, tmp_path):
    """Containment is about what the root leads to."""
    (tmp_path / "alias").symlink_to(root)
    alias = str(tmp_path / "alias")
    assert resolve_read("a.txt", alias, links=True) == f"{alias}/a.txt"
    with pytest.raises(PathViolation):
        resolve_read("out/secret", alias, links=True)


def test_what_is_the_root(root):
    """By its text, and through a link."""
    path = str(root)
    assert is_root(path, path)
    assert not is_root(f"{path}/self", path)
    assert is_root(f"{path}/self", path, links=True)
    assert not is_root(f"{path}/sub", path, links=True)
