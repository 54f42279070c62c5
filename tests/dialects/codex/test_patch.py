"""What `codex.patch` promises: which calls are patches, which are not, and what is said to those that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.dialects.codex.patch import (
    EMPTY,
    FAILED,
    IMPLICIT,
    UNSUPPORTED_PAYLOAD,
    Patch,
    Rejected,
    from_tool,
    objection,
    parse,
    recognise,
)
from provider.inside.apply_patch import OUTSIDE, Add, Operation

BODY = "*** Begin Patch\n*** Add File: foo\n+hi\n*** End Patch"
OPERATIONS: tuple[Operation, ...] = (Add("foo", "hi\n"),)


def script(head: str, delimiter: str = "EOF", tail: str = "") -> str:
    return f"{head}\n{BODY}\n{delimiter}{tail}"


@pytest.mark.parametrize(
    ("argv", "directory"),
    [
        (["apply_patch", BODY], ""),
        (["applypatch", BODY], ""),
        (["bash", "-lc", script("apply_patch <<'EOF'")], ""),
        (["bash", "-c", script("apply_patch <<'EOF'")], ""),
        (["/usr/bin/zsh", "-lc", script("apply_patch <<'EOF'")], ""),
        (["sh", "-lc", script("applypatch <<'EOF'")], ""),
        (["bash", "-lc", script("apply_patch <<EOF")], ""),
        (["bash", "-lc", script('apply_patch <<"EOF"')], ""),
        (["bash", "-lc", script("apply_patch << 'EOF'")], ""),
        (["bash", "-lc", script("apply_patch<<EOF", tail="\n")], ""),
        (["bash", "-lc", script("apply_patch <<-EOF", "\tEOF")], ""),
        (["bash", "-lc", script("apply_patch <<'END OF IT'", "END OF IT")], ""),
        (["bash", "-lc", script("apply_patch <<PATCH_1", "PATCH_1", "\n\n")], ""),
        (["bash", "-lc", "\n  " + script("apply_patch <<'EOF'")], ""),
        (["bash", "-lc", script("cd foo && apply_patch <<'EOF'")], "foo"),
        (["bash", "-lc", script("cd foo/bar&&applypatch <<EOF")], "foo/bar"),
        (["bash", "-lc", script("cd 'foo bar' && apply_patch <<'EOF'")], "foo bar"),
        (["bash", "-lc", script("cd \"foo bar\" && apply_patch <<'EOF'")], "foo bar"),
        (["bash", "-lc", script("cd /abs/path && apply_patch <<'EOF'")], "/abs/path"),
        (["bash", "-lc", script("cd .. && apply_patch <<'EOF'")], ".."),
    ],
)
def test_recognised(argv: list[str], directory: str):
    """These are patches, with the directory that the script changes to."""
    assert recognise(argv) == Patch(BODY, OPERATIONS, directory)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["ls"],
        ["apply_patch"],
        ["apply_patch", BODY, "more"],
        ["/usr/bin/apply_patch", BODY],
        ["./apply_patch", BODY],
        ["bash", "apply_patch", BODY],
        ["bash", "-lc", "apply_patch"],
        ["bash", "-x", script("apply_patch <<'EOF'")],
        ["fish", "-c", script("apply_patch <<'EOF'")],
        ["bash", "-lc", script("apply_patch <<'EOF'"), "more"],
        ["bash", "-lc", f"apply_patch '{BODY}'"],
        *(
            ["bash", "-lc", script(f"{head} <<'EOF'")]
            for head in (
                "cd foo; apply_patch",
                "cd foo || apply_patch",
                "cd foo | apply_patch",
                "cd foo & apply_patch",
                "echo foo && apply_patch",
                "echo foo; apply_patch",
                "cd foo && cd bar && apply_patch",
                "cd foo bar && apply_patch",
                "cd && apply_patch",
                "cd - && apply_patch",
                "cd -P foo && apply_patch",
                "cd $HOME && apply_patch",
                'cd "$HOME" && apply_patch',
                "cd ~ && apply_patch",
                "cd fo* && apply_patch",
                "cd {a,b} && apply_patch",
                "cd 'foo'bar && apply_patch",
                "cd foo\\ bar && apply_patch",
                "cd `pwd` && apply_patch",
                "cd foo >out && apply_patch",
                "cd foo && apply_patch foo",
                "apply_patch foo",
                "'apply_patch'",
                "! apply_patch",
                "FOO=1 apply_patch",
                "(apply_patch",
                "sudo apply_patch",
                "cat",
                "apply_patch 3",
                "apply_patch 3<x",
                "apply_patch >out",
                "# apply_patch",
            )
        ),
        ["bash", "-lc", script("apply_patch <<'EOF' && echo done")],
        ["bash", "-lc", script("apply_patch <<'EOF' | cat")],
        ["bash", "-lc", script("apply_patch <<'EOF' >out")],
        ["bash", "-lc", script("apply_patch 3<<'EOF'")],
        ["bash", "-lc", script("apply_patch <<<'EOF'")],
        ["bash", "-lc", script("apply_patch <<'EOF'", tail=" && echo done")],
        ["bash", "-lc", script("apply_patch <<'EOF'", tail="\necho done")],
        ["bash", "-lc", script("apply_patch <<'EOF'", "EOG")],
        ["bash", "-lc", script("apply_patch <<'EOF'", " EOF")],
        ["bash", "-lc", "apply_patch <<EOF"],
        ["bash", "-lc", "<" * 200_000],
    ],
)
def test_not_recognised(argv: list[str]):
    """These run as the commands that they are."""
    assert recognise(argv) is None


@pytest.mark.parametrize("argv", [[BODY], ["bash", "-lc", BODY], ["sh", "-c", f"<<'EOF'\n{BODY}\nEOF"]])
def test_a_patch_without_a_call(argv: list[str]):
    """A patch in the place of a command is answered with how to call it."""
    assert recognise(argv) == Rejected(f"{FAILED}{IMPLICIT}")


def test_a_call_without_a_patch():
    """A recognised call with something else in it fails as a whole, and says where."""
    assert recognise(["apply_patch", "x"]) == Rejected(
        "apply_patch verification failed: invalid patch: The first line of the patch must be '*** Begin Patch'"
    )
    bad = "*** Begin Patch\n*** Update File: f\n*** End Patch"
    assert recognise(["bash", "-lc", f"apply_patch <<EOF\n{bad}\nEOF\n"]) == Rejected(
        "apply_patch verification failed: invalid hunk at line 2, Update file hunk for path 'f' is empty"
    )


def test_unquoted_body_is_not_expanded():
    """Dollars, backticks and backslashes reach the file as they are in the call, whatever the delimiter."""
    body = "*** Begin Patch\n*** Add File: f\n+$HOME `id` $(id) \\\\ ${x\n*** End Patch"
    found = recognise(["bash", "-lc", f"apply_patch <<EOF\n{body}\nEOF"])
    assert isinstance(found, Patch)
    assert found.operations == (Add("f", "$HOME `id` $(id) \\\\ ${x\n"),)


def test_long_patches_are_recognised():
    """A patch may be longer than the shell text that the policy reads."""
    body = "*** Begin Patch\n*** Add File: f\n" + "+x\n" * 100_000 + "*** End Patch"
    assert isinstance(recognise(["bash", "-lc", f"cd a && apply_patch <<'EOF'\n{body}\nEOF\n"]), Patch)


@pytest.mark.parametrize("payload", [BODY, {"input": BODY}])
def test_tool_payload(payload: object):
    """The tool takes text, or an object with it."""
    assert from_tool(payload) == Patch(BODY, OPERATIONS)


@pytest.mark.parametrize("payload", [None, 1, [], {}, {"input": 1}, {"patch": BODY}, {"input": BODY, "x": 1}])
def test_tool_payload_of_another_kind(payload: object):
    """Everything else is refused with the contract's words."""
    assert from_tool(payload) == Rejected(UNSUPPORTED_PAYLOAD)


@pytest.mark.parametrize(
    ("path", "directory", "cwd", "answer"),
    [
        ("f", "", "/w", None),
        ("../f", "sub", "/w", None),
        ("../f", "", "/w/sub", None),
        ("../f", "", "sub", None),
        ("/w/f", "", "/w", None),
        ("f", "/w/sub", "/w", None),
        ("../f", "", "/w", OUTSIDE),
        ("f", "..", "/w", OUTSIDE),
        ("f", "/etc", "/w", OUTSIDE),
        ("/etc/passwd", "", "/w", OUTSIDE),
        ("/workspace/f", "", "/w", OUTSIDE),
        ("../../f", "sub", "/w", OUTSIDE),
    ],
)
def test_objection(path: str, directory: str, cwd: str, answer: str | None):
    """A path is judged from where it begins, by its letters; so is the target of a move."""
    added = parse(f"*** Begin Patch\n*** Add File: {path}\n*** End Patch", directory)
    moved = parse(f"*** Begin Patch\n*** Update File: /w/x\n*** Move to: {path}\n x\n*** End Patch", directory)
    assert isinstance(added, Patch)
    assert isinstance(moved, Patch)
    assert objection(added, "/w", cwd) == answer
    assert objection(moved, "/w", cwd) == answer


def test_objection_to_nothing():
    """A patch that does nothing is refused."""
    nothing = parse("*** Begin Patch\n*** End Patch")
    assert isinstance(nothing, Patch)
    assert objection(nothing, "/w", "/w") == EMPTY


PIECES = st.sampled_from(
    ["apply_patch", "cd x", " && ", " <<", "'EOF'", "EOF", "\n", BODY, ";", "|", "$", "`", "'", '"', "\\", " ", "#"]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=60))
def test_any_text_is_answered(text: str):
    """No script makes the reader fail."""
    recognise(["bash", "-lc", text])
    recognise([text])
    recognise(["apply_patch", text])
