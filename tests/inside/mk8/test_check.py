"""A step held against everything, as the host does it and as the sandbox does it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from provider.inside.mk8 import blacklist, words
from provider.inside.mk8.check import check_guard, check_path, check_step
from provider.inside.mk8.compiled import Guard, Rules, Step
from provider.inside.mk8.errors import (
    Blacklisted,
    CompileError,
    InvalidArgument,
    Mk8Error,
    PathViolation,
    UrlViolation,
)
from provider.inside.mk8.verb import HOST, NAME_PATTERN, READ, URL, WRITE
from provider.inside.mk8.verbs import VERBS

ROOT = "/workspace"
RULES = Rules(blacklist=blacklist.effective(), words=words.merged())


def checked(verb: str, *args: str | None, root: str = ROOT, rules: Rules = RULES, links: bool = False, **fields):
    written = fields.pop("written", tuple(arg or "$X" for arg in args))
    step = Step(verb=verb, args=written, retries=0, timeout=1, **fields)
    return check_step(step, args, rules, root, links=links)


def test_there_are_159_verbs():
    """153 that can be executed, and 6 that are written out at compile time."""
    assert len(VERBS) == 159
    assert sorted(name for name, verb in VERBS.items() if verb.control) == [
        *("FileCopyMany", "FileDeleteMany", "FileWriteMany", "ForEach", "If", "Include"),
    ]


@pytest.mark.parametrize("name", sorted(set(VERBS) - {"ForEach", "If", "Include"}))  # never handed on
def test_counts_hold_for_every_verb(name):
    """One argument too few or too many is refused, in the contract's words."""
    verb = VERBS[name]
    for count in {verb.least - 1, verb.most + 1} - {-1}:
        with pytest.raises(CompileError, match=rf"expected {verb.least}.*arguments .*, got {count}"):
            checked(name, *([None] * count), written=("",) * count)


@pytest.mark.parametrize(
    ("verb", "args", "resolved"),
    [
        ("FileWrite", ("a.txt", "a.txt"), ("/workspace/a.txt", "a.txt")),
        ("FileCopy", ("$WORKSPACE", "x"), ("/workspace/$WORKSPACE", "/workspace/x")),
        ("FileList", (".", "*.txt"), ("/workspace", "*.txt")),
        ("HttpGet", ("https://Example.com",), ("https://example.com/",)),
        ("NetDns", ("Example.com.",), ("example.com",)),
        ("FileRead", (None,), (None,)),
        ("ProcRun", ("cat", "a.txt"), ("cat", "./a.txt")),
        ("SysDate", (), ()),
    ],
)
def test_what_a_verb_gets(verb, args, resolved):
    """Paths absolute, URLs and hosts in their normal form, texts untouched, and None where nobody knows yet."""
    assert checked(verb, *args) == resolved


@pytest.mark.parametrize(
    ("verb", "args", "error", "says"),
    [
        ("Nothing", (), CompileError, "no such verb"),
        ("FileRead", ("../x",), PathViolation, r"\(argument 1\)"),
        ("FileWrite", ("ok", "$(reboot)"), Blacklisted, r"\(argument 2\)"),
        ("FileWrite", ("a.js", "x"), CompileError, r"write-protected.*\(argument 1\)"),
        ("FileCopy", ("a.js", "b.js"), CompileError, r"write-protected.*\(argument 2\)"),
        ("FileRead", ("\t",), InvalidArgument, "is blank"),
        ("FileGlob", (".", "../*"), CompileError, r"no pattern.*\(argument 2\)"),
        ("HttpGet", ("http://localhost/",), UrlViolation, r"\(argument 1\)"),
        ("NetPing", ("10.0.0.1",), UrlViolation, "is an address"),
        ("FileHash", ("a", "crc32"), CompileError, "argument 2"),
        ("ProcRun", ("bash", "-c", "x"), CompileError, "never run"),
        ("ProcRun", ("git", "status; halt"), Blacklisted, r"halt.*\(argument 2\)"),
    ],
)
def test_every_check_is_made(verb, args, error, says):
    """Each has its category, and names the argument."""
    with pytest.raises(error, match=says) as caught:
        checked(verb, *args)
    assert type(caught.value) is error


def test_the_blacklist_comes_before_paths_and_paths_before_the_count():
    """The order decides which of several mistakes is told."""
    with pytest.raises(Blacklisted):
        checked("FileRead", "../halt", "x", "y")
    with pytest.raises(PathViolation):
        checked("FileRead", "../x", "y")


@pytest.mark.parametrize(
    "fields",
    [
        {"template": {"A": "x halt x"}, "source": "s"},
        {"template": {"halt": "x"}, "source": "s"},
        {"source": "halt/a", "template": {}},
        {"cwd": "a/halt"},
        {"patches": (("a", "b"), ("halt", "x"))},
        {"patches": (("a", "$(x)"),)},
    ],
)
def test_9_19_what_stands_beside_the_arguments_meets_the_blacklist(fields):
    """Section 9, item 19: template values, keys and source, patches, and the working directory."""
    with pytest.raises(Blacklisted, match="beside the arguments"):
        checked("FilePatch", "a.txt", **fields)


def test_what_is_known_of_an_open_argument_meets_the_blacklist():
    """`rm -rf / $PREV` needs no value to be refused; the name of a variable is no text of the script."""
    with pytest.raises(Blacklisted, match=r"\(argument 1\)"):
        checked("Echo", None, written=("rm -rf / $PREV",))
    rules = Rules(blacklist=blacklist.effective(["prev"]))
    assert checked("Echo", None, written=("x $PREV",), rules=rules) == (None,)
    with pytest.raises(Blacklisted):
        checked("Echo", "the previous one", rules=rules)


@pytest.mark.parametrize(("verb", "rest"), [("FileDelete", ()), ("FileMove", ("b",)), ("DirDelete", ())])
def test_9_16_the_root_and_git_are_neither_deleted_nor_moved(verb, rest, tmp_path):
    """Section 9, item 16: by their names, and through a link."""
    for path in (".", "/workspace", "./"):
        with pytest.raises(CompileError, match="workspace itself"):
            checked(verb, path, *rest)
    for path in (".git", "sub/.git", ".git/config"):
        with pytest.raises(CompileError, match="write-protected"):
            checked(verb, path, *rest)
    with pytest.raises(PathViolation):
        checked(verb, "mk8.shell.signed.env", *rest, rules=Rules())  # also without the blacklist
    (tmp_path / "self").symlink_to(".")
    with pytest.raises(CompileError, match="workspace itself"):
        checked(verb, "self", *rest, root=str(tmp_path), links=True)
    assert checked(verb, "a", *rest)


def test_a_folder_of_git_is_not_made():
    """DirCreate is under the rules for writing; the root exists already, and extracting into it is fine."""
    with pytest.raises(CompileError, match="write-protected"):
        checked("DirCreate", ".git/x")
    assert checked("ArchiveExtract", "a.zip", ".") == ("/workspace/a.zip", "/workspace")


PATH_KINDS = {
    **dict.fromkeys(("FileDelete", "DirCreate", "DirDelete", "FileAppend", "FileTemplate", "FilePatch"), (WRITE,)),
    "FileMove": (WRITE, WRITE),
    "FileCopy": (READ, WRITE),
    "ArchiveExtract": (READ, WRITE),
    "FileGlob": (READ, NAME_PATTERN),
    "DirFileCount": (READ, NAME_PATTERN),
    "DirHash": (READ, "text", NAME_PATTERN),
    "FileList": (READ, NAME_PATTERN),
    "NetHttpStatus": (URL,),
    "NetTlsCert": (HOST,),
}


@pytest.mark.parametrize("verb", sorted(PATH_KINDS))
def test_the_kinds_that_safety_hangs_on(verb):
    """What is written, deleted, matched or connected to is of the kind that is checked so."""
    assert VERBS[verb].kinds[: len(PATH_KINDS[verb])] == PATH_KINDS[verb]


def test_links_are_followed_in_the_sandbox(tmp_path: Path):
    """The same step that the host let through by its text is refused where the link is."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").symlink_to("/etc")
    root = str(tmp_path / "root")
    assert checked("FileRead", "out/hostname", root=root) == (f"{root}/out/hostname",)
    for verb, args in (("FileRead", ("out/hostname",)), ("ProcRun", ("cat", "out/hostname")), ("DirList", ("out",))):
        with pytest.raises(PathViolation, match="through a link"):
            checked(verb, *args, root=root, links=True)


def test_in_a_working_directory_programs_get_whole_paths():
    """A path is relative to the workspace, wherever the program starts."""
    assert checked("ProcRun", "cat", "a.txt", cwd="sub") == ("cat", "/workspace/a.txt")


def test_a_root_with_a_term_in_its_path_is_not_dead(tmp_path: Path):
    """Terms inside the root's own path do not count, also for paths as the variables fill them in."""
    root = tmp_path / "asphalt"
    root.mkdir()
    assert checked("FileWrite", f"{root}/a.txt", f"see {root}", root=str(root), links=True)
    assert check_path(f"{root}/a.txt", RULES, str(root)) == f"{root}/a.txt"


def test_paths_of_guards_and_sources():
    """They are only read, and under all rules for reading."""
    assert check_path("a.tmpl", RULES, ROOT) == "/workspace/a.tmpl"
    assert check_guard(Guard(kind="FileExists", args=("a",)), ["a"], RULES, ROOT) == ("/workspace/a",)
    assert check_guard(Guard(kind="FileExists", args=("$X",)), [None], RULES, ROOT) == (None,)
    assert check_guard(Guard(kind="PrevContains", args=("..",)), [".."], RULES, ROOT) == ("..",)
    for wrong in ("../a", "halt", ""):
        with pytest.raises(Mk8Error):
            check_guard(Guard(kind="DirExists", args=(wrong,)), [wrong], RULES, ROOT)
        with pytest.raises(Mk8Error):
            check_path(wrong, RULES, ROOT)
