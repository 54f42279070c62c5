"""What `codex.diff` promises: diffs that git reads, of any content, in bounded time."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provider.dialects.codex import diff
from provider.dialects.codex.diff import File, turn_diff, unified

GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="git is not installed")
LINK = stat.S_IFLNK | 0o777
ZEROS = "0" * 40
OPEN = "\\ No newline at end of file\n"
A = "78981922613b2afb6025042ff6bd878ac1994e85"
"""Of the blob "a\\n"."""
B = "61780798228d17af2d34fce4cfbdf35556832472"
"""Of the blob "b\\n"."""
TO, FF = "788636ffba34694361f7d7ee1970d96fb92c3168", "ce542efaa5124a0437f0c4db329d7ec4b7ba70a7"
"""Of "to", and of the one byte 255."""


def git(*arguments: str, folder: Path, stdin: str = "") -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, input=stdin.encode(), env=environment, capture_output=True, check=False
    )
    assert done.returncode in {0, 1}, done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return done.stdout.decode()


def test_an_update():
    """Header, blobs, names, hunks with three lines around them."""
    before = "".join(f"{number}\n" for number in range(1, 21))
    after = before.replace("10\n", "ten\n")
    old, new = File(before.encode()), File(after.encode())
    assert turn_diff({"x/f": old}, {"x/f": new}) == (
        f"diff --git a/x/f b/x/f\nindex {old.blob}..{new.blob}\n--- a/x/f\n+++ b/x/f\n"
        "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, None, ""),
        (File(b"a\n"), File(b"a\n"), ""),
        (
            None,
            File(b"a\n"),
            f"new file mode 100644\nindex {ZEROS}..{A}\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n",
        ),
        (
            File(b"a\n", 0o755),
            None,
            f"deleted file mode 100755\nindex {A}..{ZEROS}\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        ),
        (File(b"a\n"), File(b"a\n", 0o700), "old mode 100644\nnew mode 100755\n"),
        (
            File(b"a\n", 0o755),
            File(b"b\n", 0o600),
            f"old mode 100755\nnew mode 100644\nindex {A}..{B}\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n",
        ),
        (
            None,
            File(b"to", LINK),
            f"new file mode 120000\nindex {ZEROS}..{TO}\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+to\n{OPEN}",
        ),
        (
            File(b"a\n"),
            File(b"\xff"),
            f"index {A}..{FF}\n--- a/f\n+++ b/f\nBinary files differ\n",
        ),
        (
            None,
            File(b"\xff"),
            f"new file mode 100644\nindex {ZEROS}..{FF}\n--- /dev/null\n+++ b/f\nBinary files differ\n",
        ),
        (None, File(b""), f"new file mode 100644\nindex {ZEROS}..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"),
    ],
)
def test_one_file(old: File | None, new: File | None, expected: str):
    """Each kind of change has its header."""
    assert turn_diff({"f": old}, {"f": new}) == (f"diff --git a/f b/f\n{expected}" if expected else "")


def test_paths_are_sorted():
    """Files come by their paths, and one that is missing on a side is absent there."""
    text = turn_diff({"b": File(b"a\n"), "z": None}, {"a/x": File(b"a\nb\n"), "c": File(b"b\n")})
    assert [line for line in text.splitlines() if line.startswith("diff")] == [
        "diff --git a/a/x b/a/x",
        "diff --git a/b b/b",
        "diff --git a/c b/c",
    ]


def test_a_pure_rename_is_nothing():
    """Whether anybody says that it was one or not; only empty files are no proof."""
    before, after = {"a": File(b"a\n"), "b": None}, {"a": None, "b": File(b"a\n")}
    assert turn_diff(before, after) == ""
    assert turn_diff(before, after, {"a": "b"}) == ""
    assert turn_diff({"a": File(b"")}, {"b": File(b"")}).count("diff --git") == 2
    assert turn_diff({"a": File(b"")}, {"b": File(b"")}, {"a": "b"}) == ""
    twice = turn_diff({"a": File(b"a\n")}, {"b": File(b"a\n"), "c": File(b"a\n")})
    assert [line for line in twice.splitlines() if line.startswith("diff")] == ["diff --git a/c b/c"]


def test_a_move_with_a_change():
    """It is one difference, from the old path to the new, where it is known to be a move."""
    before, after = {"a": File(b"a\n"), "b": None}, {"a": None, "b": File(b"b\n")}
    moved = turn_diff(before, after, {"a": "b"})
    assert moved == f"diff --git a/a b/b\nindex {A}..{B}\n--- a/a\n+++ b/b\n@@ -1 +1 @@\n-a\n+b\n"
    assert turn_diff(before, after).count("diff --git") == 2
    # Onto a file that was there: that one has changed, and the other has gone.
    over = turn_diff({**before, "b": File(b"x\n")}, after, {"a": "b"})
    assert [line for line in over.splitlines() if line.startswith("diff")] == [
        "diff --git a/a b/a",
        "diff --git a/b b/b",
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", ""),
        ("a\n", "a\n", ""),
        ("a\nb\nc\nd\n", "a\nb\nC\nd\n", "@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\nb", "A\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No newline at end of file\n"),
        ("", "a\n", "@@ -0,0 +1 @@\n+a\n"),
        ("a\n", "", "@@ -1 +0,0 @@\n-a\n"),
        ("a\nb\n", "a\nx\nb\n", "@@ -1,2 +1,3 @@\n a\n+x\n b\n"),
        ("a\r\nb\r\n", "a\r\nc\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n"),
        ("a\x0bb\u2028c\n", "a\x0bb\u2028d\n", "@@ -1 +1 @@\n-a\x0bb\u2028c\n+a\x0bb\u2028d\n"),
        ("1\n2\n3\n4\n", "x\n2\n3\ny\n", "@@ -1,4 +1,4 @@\n-1\n+x\n 2\n 3\n-4\n+y\n"),
        ("1\n2\n3\n4\n5\n", "x\n2\n3\n4\ny\n", "@@ -1,2 +1,2 @@\n-1\n+x\n 2\n@@ -4,2 +4,2 @@\n 4\n-5\n+y\n"),
    ],
)
def test_hunks(before: str, after: str, expected: str):
    """One line around each change; changes that are near to each other are one hunk."""
    assert unified(before, after) == expected


def ended(text: str) -> list[str]:
    return [line for line in text.replace("\n", "\n\0").split("\0") if line]


def patched(before: str, hunks: str) -> str:
    """A reader of unified diffs, as simple as can be, that believes every number."""
    old, out, at = ended(before), list[str](), 0
    for line in ended(hunks.replace(f"\n{OPEN}", "\0").replace("\0", "\x01\n")):
        sign, text = line[0], line[1:].replace("\x01\n", "")
        if sign == "@":
            start, length = [*map(int, line.split()[1][1:].split(",")), 1][:2]
            first = start - 1 if length else start
            assert first >= at
            out += old[at:first]
            at = first
        elif sign == "+":
            out.append(text)
        else:
            assert old[at] == text
            out += [text] if sign == " " else []
            at += 1
    return "".join([*out, *old[at:]])


TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", " ", "x" * 5, "é"]), max_size=14).map("\n".join)


@given(TEXTS, TEXTS, st.booleans(), st.integers(0, 3))
@settings(max_examples=500)
def test_any_two_texts(before: str, after: str, closed: bool, context: int):
    """What the diff says of the one gives the other."""
    before, after = (f"{text}\n" if closed else text for text in (before, after))
    assert patched(before, unified(before, after, context)) == after


@given(TEXTS, TEXTS, st.integers(0, 60))
@settings(max_examples=300)
def test_whatever_the_budget(before: str, after: str, budget: int):
    """A diff that ran out of it is longer, and as right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "BUDGET", budget)
        assert patched(f"{before}\n", unified(f"{before}\n", f"{after}\n")) == f"{after}\n"


@given(TEXTS, TEXTS)
def test_what_is_not_compared(before: str, after: str):
    """Nor is the diff wrong of files with too many lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "MAX_LINES", 0)
        assert patched(before, unified(before, after)) == after


@needs_git
@pytest.mark.parametrize("seed", range(12))
def test_git_reads_it(tmp_path: Path, seed: int):
    """Of random trees: git takes the diff, comes to the same files, and names the same blobs."""
    chance = random.Random(seed)

    def text() -> bytes:
        body = "\n".join(chance.choice(["a", "b", "", "c d", "é", "-", "+", "@@ -1 +1 @@"]) for _ in range(30))
        return (body + chance.choice(["", "\n"])).encode()

    def edited(content: bytes) -> bytes:
        lines = content.split(b"\n")
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(lines))
            lines[at : at + 1] = chance.choice([[], [b"new"], [lines[at], b"more"]])
        return b"\n".join(lines)

    names = ["plain", "with space", "é/ü", 'quo"te', "back\\slash", "tab\there", "deep/er/x", "new\nline"]
    before: dict[str, File | None] = {name: chance.choice([None, File(text())]) for name in names}
    after: dict[str, File | None] = {}
    for name, file in before.items():
        content = edited(file.content) if file and chance.random() < 0.7 else text()
        after[name] = chance.choice([File(content, chance.choice([0o644, 0o755])), File(content), None])
    for name, file in before.items():
        if file:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(file.content)
    difference = turn_diff(before, after)
    git("init", "-q", folder=tmp_path)
    git("apply", "-", folder=tmp_path, stdin=difference)
    shutil.rmtree(tmp_path / ".git")
    there = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in there.items()} == {
        name: file.content for name, file in after.items() if file
    }
    for name, path in there.items():
        file = after[name]
        assert file
        assert git("hash-object", str(path), folder=tmp_path).strip() == file.blob


@needs_git
def test_as_git_writes_it(tmp_path: Path):
    """Where there is one shortest way, git's own diff is the same to the letter, but for the length of its names."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    lines = [f"line {number}" for number in range(200)]
    changed = list(lines)
    changed[20] = "changed"
    changed[100:103] = []
    changed[150:150] = ["new 1", "new 2"]
    before = {"f": File("\n".join(lines).encode() + b"\n"), "gone": File(b"x\ny"), "new": None}
    after = {"f": File("\n".join(changed).encode()), "gone": None, "new": File(b"z\n")}
    for side, files in (("a", before), ("b", after)):
        for name, file in files.items():
            if file:
                (tmp_path / side / name).write_bytes(file.content)
    theirs = git("diff", "--no-index", "--no-prefix", "--full-index", "--no-renames", "a", "b", folder=tmp_path)
    ours = turn_diff(before, after)
    kept = [line for line in ours.splitlines() if not line.startswith(("index", "diff", "@@"))]
    assert kept == [line for line in theirs.splitlines() if not line.startswith(("index", "diff", "@@"))]
    # What stands after the numbers is git's guess of the function that the lines are in.
    spans = [" ".join(line.split()[:4]) for line in theirs.splitlines() if line.startswith("@@")]
    assert spans == [line for line in ours.splitlines() if line.startswith("@@")]


def hostile(kind: str) -> tuple[str, str]:
    chance = random.Random(1)
    size = 10_000
    match kind:
        case "two kinds of lines":
            one = [chance.choice("ab") for _ in range(size)]
            two = [chance.choice("ab") for _ in range(size)]
        case "one kind and some":
            one = ["x"] * size
            two = [line for number in range(size) for line in (["x", str(number)] if number % 3 else [])]
        case "turned round":
            one = [str(number) for number in range(size)]
            two = one[::-1]
        case "shuffled":
            one = [str(number) for number in range(size)]
            two = list(one)
            chance.shuffle(two)
        case "nothing in common":
            one, two = [f"a{number}" for number in range(size)], [f"b{number}" for number in range(size)]
        case "blank lines":
            one = [str(number) if number % 2 else "" for number in range(size)]
            two = ["" if number % 2 else str(-number) for number in range(size)]
        case "every tenth":
            one = [f"  value {number % 50}" for number in range(size)]
            two = [f"changed {number}" if number % 10 == 0 else line for number, line in enumerate(one)]
        case _:
            one = [str(number) for number in range(size)]
            two = ["new" if number % 7 == 0 else line for number, line in enumerate(one)]
    return "\n".join(one) + "\n", "\n".join(two) + "\n"


@pytest.mark.parametrize(
    "kind",
    [
        *("two kinds of lines", "one kind and some", "turned round", "shuffled", "nothing in common", "blank lines"),
        *("every tenth", "every seventh"),
    ],
)
def test_hostile_files_take_no_longer(kind: str):
    """Ten thousand lines, made to be hard: right, and well under a second."""
    before, after = hostile(kind)
    began = time.process_time()
    hunks = unified(before, after, 3)
    assert time.process_time() - began < 1
    assert patched(before, hunks) == after


def test_many_hostile_files_take_no_longer():
    """The budget is for all of them."""
    before, after = (text.encode() for text in hostile("two kinds of lines"))
    files = [str(number) for number in range(60)]
    began = time.process_time()
    difference = turn_diff(dict.fromkeys(files, File(before)), dict.fromkeys(files, File(after)))
    assert time.process_time() - began < 5
    assert difference.count("diff --git") == 60


def test_edits_far_apart_stay_small():
    """Many small changes in a long file are told as such, also when there are too many for the shortest way."""
    before, after = hostile("every seventh")
    removed = [line for line in unified(before, after, 0).splitlines() if line.startswith("-")]
    assert len(removed) == 1429


def test_millions_of_lines():
    """What is too long is replaced, at once."""
    before = "\n" * 3_000_000
    began = time.process_time()
    assert unified(before, before + "x").startswith("@@ -1,3000000 +1,3000001 @@\n-\n-\n")
    assert time.process_time() - began < 1
