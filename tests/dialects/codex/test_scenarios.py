"""
Patches on trees of files: `scenarios/<name>/` has `patch.txt`, `input/`, `expected/`, and `expected_error.txt` if it
fails. Both modes are held to the same, unless `expected.compat/` or `expected_error.compat.txt` (empty: no error) say
otherwise.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from provider.inside.apply_patch import PatchError, Root, apply

SCENARIOS = sorted(path for path in (Path(__file__).parent / "scenarios").iterdir() if path.is_dir())


def files(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: files with their bytes, folders with None; a missing folder is an empty one."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("mode", ["default", "compat"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_scenario(scenario: Path, mode: str, tmp_path: Path):
    """The tree afterwards and the message are as written, in both modes."""
    work = tmp_path / "work"
    shutil.copytree(scenario / "input", work) if (scenario / "input").exists() else work.mkdir()
    beside = [scenario / "expected_error.txt", scenario / "expected"]
    if mode == "compat":
        others = [scenario / "expected_error.compat.txt", scenario / "expected.compat"]
        beside = [other if other.exists() else path for path, other in zip(beside, others, strict=True)]
    error, expected = beside

    said = ""
    root = os.open(work, os.O_RDONLY)
    try:
        text = (scenario / "patch.txt").read_bytes().decode()
        assert apply(text, Root(root, str(work)), compat=mode == "compat").startswith("Success. Updated the following")
    except PatchError as failure:
        said = f"{failure}\n"
    finally:
        os.close(root)

    assert said == (error.read_text() if error.exists() else "")
    assert files(work) == files(expected)
    assert {path.name for path in tmp_path.iterdir()} == {"work"}


def test_there_are_enough():
    """The issue asks for sixty."""
    assert len(SCENARIOS) >= 60
