"""What `provider.policy.scope` promises: a path is inside only when it leads inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from provider.policy.scope import Scope, locate, locate_all, outside, path_tokens
from provider.policy.syntax import read


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`sub/` with a file, and links of every kind; a sibling whose name begins with the root's."""
    root = tmp_path / "work"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "file").write_text("")
    (tmp_path / "workspace2").mkdir()
    links = {
        "link": "/etc",
        "up": "..",
        "sibling": "../workspace2",
        "inner": "sub",
        "mounted": "/workspace/sub",
        "mounted_out": "/workspace/../etc",
        "chain": "link",
        "inner_chain": "inner/deep/..",
        "loop": "loop",
        "dangling": "sub/none",
        "dangling_out": "/none",
        "sub/back": "..",
        "sub/out": "../../x",
        "host": str(root / "sub"),
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


INSIDE = (
    ".", "./", "sub", "sub/", "sub//file", "./sub/file", "sub/..", "sub/../sub", "sub/deep/../..", "none",
    "none/deeper", "none/../sub",
    "/workspace", "/workspace/", "//workspace//sub", "/workspace/./sub", "/workspace/sub/../none", "inner",
    "inner/file", "inner/none", "mounted",
    "mounted/none", "inner_chain", "inner_chain/file", "dangling", "sub/back", "sub/back/sub/file",
    "sub/back/none", "a b", "é", "...", "sub/...",
    "..a", "link2", "LINK", "Link/x", "a~", "HEAD~1",
)  # fmt: skip

OUTSIDE = (
    "..", "../", "../work", "../workspace2", "../*", "sub/../..", "./../../etc", "none/../..", "/", "//", "/etc",
    "/etc/passwd", "/workspace2",
    "/workspacex/y", "/workspace/..", "/workspace/../etc", "/workspace/../workspace", "/Workspace", "/work",
    "link", "link/", "link/newfile", "link/../x", "link/..",
    "chain", "chain/x", "up", "up/work", "sibling", "sibling/x", "mounted_out", "loop", "loop/x", "dangling_out",
    "sub/out", "sub/back/..",
    "host", "host/file", "~", "~/", "~/a", "~root/x", "~root", "~+", "a\0b", "\0", "/proc/self/cwd",
    "inner/../../x", "x" * 300, "\ud800",
)  # fmt: skip


@pytest.mark.parametrize("token", INSIDE)
def test_inside(root: Path, token: str):
    """Relative, or below the mount; through links that stay; whether it exists or not."""
    found = locate(token, Scope(root=root))
    assert found.inside, found


@pytest.mark.parametrize("token", OUTSIDE)
def test_outside(root: Path, token: str):
    """By going up, by a link anywhere on the way, by a similar name, by somebody's home; with a reason."""
    found = locate(token, Scope(root=root))
    assert not found.inside, found
    assert found.reason


def test_where_a_path_leads_is_told(root: Path):
    """Inside relative to the workspace, outside as far as it was followed."""
    assert locate("inner/deep/../file", Scope(root=root)).path == "sub/file"
    assert locate("/workspace", Scope(root=root)).path == "."
    assert locate("link/passwd", Scope(root=root)).path == "/etc"
    assert locate("/workspace/../etc", Scope(root=root)).path == "/etc"


def test_the_directory_of_the_call_counts(root: Path):
    """A relative path starts where the command runs."""
    scope = Scope(root=root, directory="sub/deep")
    assert locate("../file", scope).path == "sub/file"
    assert locate("../..", scope).inside
    assert not locate("../../..", scope).inside
    assert not locate("x", Scope(root=root, directory="link")).inside
    assert locate("/workspace/x", scope).path == "x"


def test_host_paths_where_a_contract_has_them(root: Path):
    """An absolute path below the root on the host is inside only where the contract says so, links to it included."""
    scope = Scope(root=root, host_paths=True)
    assert locate(f"{root}/sub/x", scope).path == "sub/x"
    assert locate("host/file", scope).path == "sub/file"
    assert not locate(f"{root}x", scope).inside
    assert not locate(f"{root}/..", scope).inside
    assert not locate(f"{root.parent}/workspace2", scope).inside
    assert not locate(f"{root}/sub/x", Scope(root=root)).inside


def test_another_mount(root: Path):
    """The mount is a parameter; nothing else of that name counts."""
    scope = Scope(root=root, mount="/tmp/project")
    assert locate("/tmp/project/sub/x", scope).inside
    assert not locate("/tmp/projectx", scope).inside
    assert not locate("/workspace", scope).inside


def test_home_and_others_where_they_are_allowed(root: Path):
    """A contract may count a home, /tmp or /dev/null as in scope."""
    scope = Scope(root=root, home="/workspace/sub", also=("/tmp", "/dev/null"))
    assert locate("~/x", scope).path == "sub/x"
    assert locate("/tmp/a", scope).inside
    assert locate("/dev/null", scope).inside
    assert not locate("/tmp/../etc", scope).inside
    assert not locate("/tmpx", scope).inside
    assert not locate("~/../../x", scope).inside
    assert not locate("~root", scope).inside


TOKENS = (
    ("-la", ["a"]),
    ("-I/x", ["/x"]),
    ("-I../x", ["../x"]),
    ("-isystem/x", ["/x"]),
    ("-Isub", ["sub"]),
    ("-o/etc/x", ["/etc/x"]),
    ("-C/", ["/"]),
    ("--file=/x", ["/x"]),
    ("--file=~/x", ["~/x"]),
    ("--git-dir=/x", ["/x"]),
    ("--verbose", []),
    ("-v", []),
    ("--", []),
    ("if=/x", ["if=/x", "/x", "if"]),
    ("@/x", ["@/x", "/x"]),
    ("key:/x", ["key:/x", "/x", "key"]),
    ("a:/x:b", ["a:/x:b", "/x:b", "/x", "b", "a"]),
    ("-Wl,-rpath,/x", ["l,-rpath,/x", "-rpath,/x", "-rpath", "/x"]),
    ("file:///x", ["/x"]),
    ("FILE:///x", ["/x"]),
    ("file://localhost/x", ["/x"]),
    ("file://host/x", ["//host/x"]),
    ("git+file:///x", ["/x"]),
    ("--url=file:///x", ["--url", "/x"]),
    ("https://example.com/a/b", []),
    ("--url=https://x/y", []),
    ("@scope/pkg", ["@scope/pkg", "scope/pkg"]),
    ("s/a/b/", ["s/a/b/"]),
    ("link", ["link"]),
    ("", []),
)


@pytest.mark.parametrize(("argument", "tokens"), TOKENS)
def test_what_may_be_a_path(argument: str, tokens: list[str]):
    """Attached to options, after `=`, `:`, `@` and `,`, and in file addresses."""
    found = list(path_tokens(argument))
    assert [token for token in found if not token.startswith("--")] == [
        one for one in tokens if not one.startswith("--")
    ]


# shell-tools.md D.2, rows about paths, and the escapes of D.4.
CONTRACT = (
    ("./", True), ("*", True), ("../*", False), ("./../../etc", False), ("/etc", False), ("~", False), ("~/",
    False), ("sub/..", True),
    ("/workspace/sub/x", True), ("/workspacex", False), ("--output=/tmp/outside", False), ("--output=sub/x", True),
    ("--file=~/a", False),
    ("-I/tmp/include", False), ("-Isub", True), ("https://example.com/a/b", True), ("@scope/pkg", True), ("s/a/b/",
    True),
    ("/start/,/end/p", False), ("~root/x", False), ("if=/etc/passwd", False), ("FOO=/etc/passwd", False),
    ("key:/etc/passwd", False),
    ("file:///etc/passwd", False), ("link", False), ("link/newfile", False), ("@/etc/passwd", False), ("-C/",
    False), ("-Ilink", False),
    ("--x=link", False), ("of=link/x", False), ("/workspace/../etc", False), ("a=b", True), ("-rf", True), ("1:2",
    True), ("%H:%s", True),
)  # fmt: skip


@pytest.mark.parametrize(("argument", "inside"), CONTRACT)
def test_arguments_of_the_contract(root: Path, argument: str, inside: bool):
    """Every row of the verdict table that is about a path."""
    assert (outside([argument], Scope(root=root)) == ()) is inside


WORDS = (
    ("cat $HOME/x", False), ("cat ${HOME}", False), ('cat "$HOME/.ssh"', False), ("cat ~/x", False), ("cat ~bob/x",
    False), ("ls *", True), ("ls sub/*", True),
    ("ls ../*", False), ("ls /etc/p*", False), ("ls /workspace/*", True), ("ls link/*", False),
    ("cat /etc/{passwd,group}", False), ("ls sub/*/../../..", False),
    ("ls {sub,none}/x", True), ("ls {..,x}/y", False), ("cat $x", False), ("cat $(x)", False), ("cat $PWD/sub",
    True), ("cat $PWD/../x", False),
    ("cat --file=$HOME/x", False), ("cat a$HOME", False), ("cat 'sub/$x'", True), ("cat sub/'file'", True),
    ("cat li''nk", False), ("cat /e\\tc", False),
)  # fmt: skip


@pytest.mark.parametrize(("text", "inside"), WORDS)
def test_words_of_a_shell_text(root: Path, text: str, inside: bool):
    """After quote removal; home and the current directory are known, other expansions are never inside."""
    assert (outside(read(text).commands[0].arguments, Scope(root=root)) == ()) is inside


def test_home_of_a_shell_text_where_it_is_allowed(root: Path):
    """`$HOME` is what `~` is."""
    scope = Scope(root=root, home="/workspace/sub")
    (word,) = read("cat $HOME/x").commands[0].arguments
    assert [one.path for one in locate_all(word, scope)] == ["sub/x"]


def test_a_file_that_cannot_be_looked_at_is_not_inside(root: Path, monkeypatch: pytest.MonkeyPatch):
    """When in doubt, out."""

    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "lstat", refuse)
    found = locate("sub/file", Scope(root=root))
    assert (found.inside, found.reason) == (False, "it cannot be looked at: Permission denied")
