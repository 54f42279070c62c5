"""What `provider.receipt` promises: a dull, exact record of a run, whatever became of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from provider.capture import Capture
from provider.errors import PolicyRefused
from provider.model import Approval, Artifact, Decision, Ending, Outcome, Plan, Request, State, Verdict
from provider.receipt import seal, write

REQUEST = Request(
    argv=("cat", "s3cret-argument"), env={"TOKEN": "s3cret-value"}, session="chat-1", image="i", user="1:1"
)
NOTHING: dict[str, Any] = {
    "run_id": "r",
    "request": REQUEST,
    "verdict": None,
    "plan": None,
    "approval": None,
    "outcome": None,
    "error": None,
    "timings": {},
}


@pytest.fixture
def outcome() -> Outcome:
    stdout, stderr = Capture(4), Capture(4)
    stdout.write(b"s3cret-output")
    return Outcome(
        run_id="r",
        status=State.FAILED,
        ending=Ending(reason="exited", exit_code=3, pid=7),
        stdout_capture=stdout,
        stderr_capture=stderr,
        duration_ms=5,
        container=None,
        artifacts=(Artifact(path="a\udcff", sha256="0" * 64, bytes=2**60),),
        notes=("a note",),
    )


def is_sealed(receipt: dict[str, Any]) -> bool:
    """Recompute the digest from the receipt alone, as anybody can."""
    rest = {name: value for name, value in receipt.items() if name != "sha256"}
    return hashlib.sha256(rfc8785.dumps(rest)).hexdigest() == receipt["sha256"]


def test_a_whole_run_is_put_down(outcome: Outcome, planned: Callable[..., Plan]):
    """Every part that was reached is in the record, by digest where it is content."""
    plan = planned()
    receipt = seal(
        run_id="r",
        request=REQUEST,
        verdict=Verdict(decision=Decision.ASK, reasons=("because",)),
        plan=plan,
        approval=Approval(by="ann", answer="once", plan_digest=plan.digest),
        outcome=outcome,
        error=None,
        timings={"open": 0.0123456},
    )
    assert receipt["status"] == "failed"
    assert receipt["session"] == "chat-1"
    assert receipt["verdict"] == {"decision": "ask", "reasons": ["because"]}
    assert receipt["plan"]["sha256"] == receipt["approval"]["plan_digest"] == plan.digest
    assert receipt["ending"]["exit_code"] == 3
    assert receipt["output"]["stdout"] == {
        "sha256": hashlib.sha256(b"s3cret-output").hexdigest(),
        "bytes": 13,
        "truncated": True,
    }
    assert receipt["notes"] == ["a note"]
    assert receipt["timings_ms"] == {"open": 12.346}
    assert is_sealed(receipt)


def test_contents_are_not_in_it(outcome: Outcome, planned: Callable[..., Plan]):
    """A receipt can be shown around: arguments, variables and output are there only as digests."""
    plan = planned(argv=REQUEST.argv, env=REQUEST.env)
    assert "s3cret" not in json.dumps(seal(**{**NOTHING, "plan": plan, "outcome": outcome}))


@pytest.mark.parametrize(
    ("error", "status"),
    [(PolicyRefused("no"), "error"), (asyncio.CancelledError(), "canceled"), (OSError("x"), "error")],
)
def test_a_run_without_an_outcome_says_why(error: BaseException, status: str):
    """Parts that were never reached are null, and the error is named."""
    receipt = seal(**{**NOTHING, "error": error})
    assert receipt["status"] == status
    assert receipt["error"] == {"kind": type(error).__name__, "message": str(error)}
    assert [receipt[part] for part in ("verdict", "plan", "approval", "ending", "output")] == [None] * 5
    assert is_sealed(receipt)


def test_any_change_breaks_the_seal(outcome: Outcome):
    """One changed field is seen by whoever recomputes the digest."""
    receipt = seal(**{**NOTHING, "outcome": outcome})
    for name in receipt.keys() - {"sha256"}:
        assert not is_sealed(receipt | {name: "changed"})


@pytest.mark.parametrize("timeout", [float("nan"), float("inf")])
def test_an_impossible_request_has_a_receipt(timeout: float):
    """What was refused for a number that JSON lacks is put down like anything else."""
    request = Request(argv=("true",), timeout=timeout, image="i", user="1:1")
    assert is_sealed(seal(**{**NOTHING, "request": request, "error": PolicyRefused("no")}))


def test_a_written_receipt_is_canonical_and_private(tmp_path: Path, outcome: Outcome):
    """The file is one line of canonical JSON that says the same, for its owner's eyes, with nothing beside it."""
    receipt = seal(**{**NOTHING, "outcome": outcome})
    write(receipt, tmp_path / "receipt.json")
    text = (tmp_path / "receipt.json").read_bytes()
    assert text == rfc8785.dumps(receipt) + b"\n"
    assert is_sealed(json.loads(text))
    assert stat.S_IMODE((tmp_path / "receipt.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["receipt.json"]


def test_a_receipt_replaces_another_in_one_move(tmp_path: Path):
    """Whoever has the old one open keeps all of it; nobody ever reads half of one."""
    path = tmp_path / "receipt.json"
    path.write_text("old")
    with path.open() as before:
        write(seal(**NOTHING), path)
        assert before.read() == "old"
    assert json.loads(path.read_text())["run_id"] == "r"


def test_a_receipt_does_not_follow_a_link(tmp_path: Path):
    """A link under that name is replaced; what it pointed to is untouched."""
    (tmp_path / "target").write_text("theirs")
    (tmp_path / "receipt.json").symlink_to("target")
    write(seal(**NOTHING), tmp_path / "receipt.json")
    assert (tmp_path / "target").read_text() == "theirs"
    assert not (tmp_path / "receipt.json").is_symlink()


def test_a_failed_write_leaves_nothing(tmp_path: Path):
    """Where the move cannot be made, no temporary file is left."""
    (tmp_path / "receipt.json").mkdir()
    with pytest.raises(OSError, match="receipt"):
        write(seal(**NOTHING), tmp_path / "receipt.json")
    assert [path.name for path in tmp_path.iterdir()] == ["receipt.json"]
