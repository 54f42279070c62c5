"""What `provider.engine.covers` promises: a protected name that is not covered as planned is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from provider.engine.attest import attest_init
from provider.engine.covers import seen_differences, told_differences
from provider.errors import PlanRejected
from provider.model import BoxPlan, Plan

NAME = "odd \\ näme"


@pytest.fixture
def box(planned: Callable[..., Plan], workspace: Path) -> BoxPlan:
    (workspace / NAME).mkdir()
    (workspace / ".git").mkdir()
    return planned(protect=(".git", NAME)).box


def hello(box: BoxPlan, **changed: str) -> dict[str, str]:
    """What pid 1 says when all is well, but for what a test changes."""
    git, odd = (str(held.inode) for held in box.protected)
    return {"mount0": f"ro {git} .git", "mount1": f"ro {odd} odd \\x5c n\\xc3\\xa4me", **changed}


def test_covered_as_planned(box: BoxPlan):
    """Names are compared as bytes; other mounts are nobody's business here."""
    assert list(told_differences(box, hello(box, mount2="rw 5 other"))) == []


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ({"mount0": "rw {inode} .git"}, ".git of the workspace is rw, not read-only"),
        ({"mount0": "ro 1 .git"}, ".git of the workspace is not the one that was validated"),
        ({"mount0": "ro {inode} .gitx"}, ".git of the workspace is not mounted, not read-only"),
        ({"mount0": "nonsense"}, ".git of the workspace is not mounted, not read-only"),
        ({"mount9": "rw {inode} .git"}, ".git of the workspace is rw, not read-only"),
    ],
)
def test_every_other_cover_is_told(box: BoxPlan, told: dict[str, str], wrong: str):
    """Written, another, none, unreadable, or covered again by one that can be written."""
    said = {key: value.format(inode=box.protected[0].inode) for key, value in told.items()}
    assert list(told_differences(box, hello(box, **said))) == [wrong]


def test_nothing_runs_without_its_cover(box: BoxPlan):
    """It is a part of attestation."""
    facts = {"protocol": "2", "uid": str(box.uid), "gid": str(box.gid), "no_new_privs": "1", "seccomp": "2"}
    facts |= {"cap_eff": "0", "cap_bnd": "0", "inode": str(box.workspace.inode)}
    attest_init(box, facts | hello(box))
    with pytest.raises(PlanRejected, match=r"\.git of the workspace is rw"):
        attest_init(box, facts | hello(box, mount9="rw 5 .git"))


def test_the_host_sees_for_itself(box: BoxPlan, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """Another inode, a missing name, or a mount that can be written is told."""
    assert list(seen_differences(box, workspace)) == [
        ".git of the workspace can be written",
        f"{NAME} of the workspace can be written",
    ]
    real = os.statvfs(workspace)
    read_only = os.statvfs_result((*real[:8], real.f_flag | os.ST_RDONLY, *real[9:]))
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    assert list(seen_differences(box, workspace)) == []
    (workspace / ".git").rmdir()
    assert list(seen_differences(box, workspace)) == [".git of the workspace is not there"]
    (workspace / ".git").symlink_to("/")
    assert list(seen_differences(box, workspace)) == [".git of the workspace is not the one that was validated"]
