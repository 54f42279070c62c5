"""What `inside.apply_patch.command` promises: one JSON object, whatever happens; and nothing slow is imported."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provider.inside import apply_patch
from provider.inside.apply_patch import ONE_ARGUMENT, USAGE, command, main, tree

INSIDE = Path(apply_patch.__file__).parent.parent
BOOT = f"import sys; sys.path.insert(0, {str(INSIDE)!r}); from apply_patch import program; sys.exit(program())"
PROGRAM = [sys.executable, "-I", "-S", "-B", "-X", "utf8"]
NOTHING = {"found": "nothing", "restored": [], "removed": [], "kept": []}
HEAVY = {"re", "enum", "typing", "collections", "dataclasses", "contextlib", "functools", "json", "hashlib", "signal"}
HEAVY |= {"inspect", "pathlib", "tempfile", "subprocess", "base64", "types", "site"}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def asked(*arguments: str, stdin: bytes = b"") -> tuple[int, Any]:
    out, err = io.StringIO(), io.StringIO()
    status = main(["--json", *arguments], io.BytesIO(stdin), out, err)
    assert err.getvalue() == ""
    assert out.getvalue().count("\n") == 1
    return status, json.loads(out.getvalue())


def in64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def change(kind: str, path: str, **fields: Any) -> dict[str, Any]:
    contents = {name: in64(fields.pop(name, None)) for name in ("before", "after", "over")}
    modes = {name: fields.pop(name, None) for name in ("mode_before", "mode_after", "mode_over")}
    return {"path": path, "kind": kind, "move_to": fields.pop("move_to", None), **contents, **modes}


EVERYTHING = patch(
    *("*** Add File: new/é", "+x", "*** Add File: there", "+new", "*** Delete File: gone"),
    *("*** Update File: run", " a", "+b", "*** Update File: from", "*** Move to: sub/to", "-a", "+b"),
    *("*** Update File: from2", "*** Move to: sub/over", "-a", "+b"),
)
SUMMARY = "A new/é\nA there\nM run\nM sub/to\nM sub/over\nD gone\n"


def fill(work: Path) -> None:
    (work / "sub").mkdir()
    for name in ("there", "gone", "run", "from", "from2", "sub/over"):
        (work / name).write_bytes(b"a\n")
        (work / name).chmod(0o644)
    (work / "gone").write_bytes(b"\xff\0\r\n")
    (work / "run").chmod(0o750)
    (work / "from").chmod(0o700)
    (work / "sub" / "over").chmod(0o600)


@pytest.mark.parametrize("check", [False, True], ids=["apply", "check"])
@pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
def test_every_change(work: Path, check: bool, compat: bool):
    """Each with its path in the workspace, all contents and modes; a check says the same, and nothing has happened."""
    fill(work)
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    umask = os.umask(0o027)
    try:
        flags = ["--check"] * check + ["--compat"] * compat
        status, told = asked(*flags, EVERYTHING)
    finally:
        os.umask(umask)
    words = "The patch fits. It would update" if check else "Success. Updated"
    assert status == 0
    assert told.pop("changes") == [
        change("add", "new/é", after=b"x\n", mode_after=0o640),
        change("add", "there", before=b"a\n", after=b"new\n", mode_before=0o644, mode_after=0o644),
        change("delete", "gone", before=b"\xff\0\r\n", mode_before=0o644),
        change("update", "run", before=b"a\n", after=b"a\nb\n", mode_before=0o750, mode_after=0o750),
        {
            **change("update", "from", move_to="sub/to", before=b"a\n", after=b"b\n", mode_before=0o700),
            "mode_after": 0o640 if compat else 0o700,
        },
        {
            **change("update", "from2", move_to="sub/over", before=b"a\n", after=b"b\n", over=b"a\n"),
            "mode_before": 0o644,
            "mode_after": 0o600 if compat else 0o644,
            "mode_over": 0o600,
        },
    ]
    assert told == {
        "ok": True,
        "stdout": f"{words} the following files:\n{SUMMARY}",
        "stderr": "",
        "contents": True,
        "recovered": NOTHING,
    }
    after = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    assert (after == before) == check


def test_modes_are_what_is_told(work: Path):
    """What is said of modes afterwards is so."""
    fill(work)
    _, told = asked(EVERYTHING)
    for one in told["changes"]:
        if one["after"] is not None:
            path = work / (one["move_to"] or one["path"])
            assert path.stat().st_mode & 0o777 == one["mode_after"], path
            assert path.read_bytes() == base64.b64decode(one["after"])


@pytest.mark.parametrize(
    ("arguments", "status", "stderr"),
    [
        (["x", "y"], 2, f"{ONE_ARGUMENT}\n"),
        ([], 2, f"{USAGE}\n"),
        ([os.fsdecode(b"\xff")], 1, "Error: apply_patch requires a UTF-8 PATCH argument.\n"),
        (["x"], 1, "Invalid patch: The first line of the patch must be '*** Begin Patch'\n"),
        (["--check", "x"], 1, "invalid patch: The first line of the patch must be '*** Begin Patch'\n"),
        ([patch()], 1, "No files were modified.\n"),
        ([patch('*** Update File: \x01"\\é\u2028', "-a")], 1, None),
        (["--check", patch("*** Delete File: no")], 1, None),
        (["--recover", "x"], 2, f"{ONE_ARGUMENT}\n"),
    ],
)
def test_failures(work: Path, arguments: list[str], status: int, stderr: str | None):
    """They are JSON as well, with the exit status and the words of the plain program."""
    told = asked(*arguments)
    out, err = io.StringIO(), io.StringIO()
    assert told[0] == status
    assert stderr in {None, told[1]["stderr"]}
    if "--recover" not in arguments:
        assert main(arguments, io.BytesIO(), out, err) == status
        assert told[1]["stderr"] == err.getvalue()
    words = told[1].pop("stderr")
    assert words.endswith("\n")
    assert told[1] == {"ok": False, "stdout": "", "contents": True, "changes": [], "recovered": NOTHING}


def test_half_of_a_patch_is_told(work: Path):
    """Compatibility mode stops where it fails; the changes are those that it has made."""
    text = patch("*** Add File: a", "+a", "*** Update File: no", "-a", "*** Add File: b", "+b")
    status, told = asked("--compat", text)
    assert (status, told["ok"], [one["path"] for one in told["changes"]]) == (1, False, ["a"])
    status, told = asked(text)
    assert (status, told["ok"], told["changes"]) == (1, False, [])


def test_contents_are_bounded(work: Path, monkeypatch: pytest.MonkeyPatch):
    """Above the bound there are none, of any file, and that is said; the patch is applied all the same."""
    monkeypatch.setattr(command, "MAX_SHOWN", 10)
    monkeypatch.setattr(tree, "MAX_SHOWN", 10)
    (work / "f").write_bytes(b"12345678\n")
    (work / "g").write_bytes(b"1\n")
    text = patch("*** Delete File: f", "*** Update File: g", "-1", "+2")
    for flags in (["--check"], []):
        status, told = asked(*flags, text)
        assert (status, told["ok"], told["contents"]) == (0, True, False)
        assert told["changes"] == [
            change("delete", "f", mode_before=0o644),
            change("update", "g", mode_before=0o644, mode_after=0o644),
        ]
    assert {path.name: path.read_bytes() for path in work.iterdir()} == {"g": b"2\n"}


def test_a_large_file_goes_without_being_read(work: Path):
    """A file that is deleted may be larger than anything that is read or shown."""
    with (work / "f").open("wb") as file:
        file.truncate(tree.MAX_FILE * 10)
    status, told = asked(patch("*** Delete File: f"))
    assert (status, told["contents"], told["changes"]) == (0, False, [change("delete", "f", mode_before=0o644)])
    assert list(work.iterdir()) == []


def test_digest(work: Path):
    """A patch that is not the one that was announced is not even read."""
    text = patch("*** Add File: f", "+f").encode()
    other = hashlib.sha256(b"").hexdigest()
    status, told = asked(f"--sha256={other}", stdin=text)
    assert (status, told["stderr"]) == (1, "Error: the patch does not have the digest that was named.\n")
    assert list(work.iterdir()) == []
    assert asked(f"--sha256={hashlib.sha256(text).hexdigest()}", stdin=text)[0] == 0


def test_odd_names(work: Path):
    """Any bytes in the name of a directory come through, as json.loads and os.fsencode have them."""
    odd = os.fsdecode(b'caf\xe9 "x"\\\n\x01')
    (work / odd).mkdir()
    status, told = asked(f"--directory={odd}", patch("*** Add File: é", "+x"))
    assert (status, told["changes"][0]["path"]) == (0, f"{odd}/é")
    assert (work / odd / "é").read_bytes() == b"x\n"


def test_as_a_program(tmp_path: Path):
    """With the command line that the host uses; exit status and output as in the process."""
    text = patch("*** Add File: né", "+é").encode()
    command = [*PROGRAM, "-c", BOOT, "--json", f"--sha256={hashlib.sha256(text).hexdigest()}"]
    done = subprocess.run(command, input=text, cwd=tmp_path, env={}, capture_output=True, check=True)
    assert json.loads(done.stdout)["stdout"] == "Success. Updated the following files:\nA né\n"
    done = subprocess.run(command, input=text + b" ", cwd=tmp_path, env={}, capture_output=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["ok"], done.stderr) == (1, False, b"")
    done = subprocess.run([*PROGRAM, "-c", BOOT, "--recover"], cwd=tmp_path, env={}, capture_output=True, check=True)
    assert json.loads(done.stdout)["recovered"] == NOTHING


def test_what_is_imported(tmp_path: Path):
    """Nothing that takes longer than the patch: most of its time is the start of the interpreter."""
    text = patch("*** Add File: f", "+f")
    command = [
        *PROGRAM,
        "-X",
        "importtime",
        "-c",
        BOOT,
        "--json",
        f"--sha256={hashlib.sha256(text.encode()).hexdigest()}",
    ]
    done = subprocess.run(command, input=text, cwd=tmp_path, capture_output=True, text=True, check=True)
    modules = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "apply_patch.journal" in modules
    assert modules & HEAVY == set()
