"""
The sealed record of one run, whatever became of it: canonical JSON, digests instead of contents, written in one move.

Keys are for machines, except `error`, `reasons` and `notes`. `sha256` is over the canonical form of all the others.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provider.canonical import canonical, digest, plain
from provider.model import Approval, Outcome, Plan, Request, Verdict

FORMAT = "sandbox-provider/receipt/1"


def seal(
    *,
    run_id: str,
    request: Request,
    verdict: Verdict | None,
    plan: Plan | None,
    approval: Approval | None,
    outcome: Outcome | None,
    error: BaseException | None,
    timings: Mapping[str, float],
) -> dict[str, Any]:
    """Put down everything that is known of a run. Parts that were never reached are null."""
    record: dict[str, Any] = {
        "format": FORMAT,
        "run_id": run_id,
        "session": request.session,
        "sealed_at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        "status": _status(outcome, error),
        "request": {"sha256": digest(request)},
        "verdict": verdict and {"decision": verdict.decision.name.lower(), "reasons": list(verdict.reasons)},
        "plan": plan and _plan(plan),
        "approval": approval,
        "ending": outcome and outcome.ending,
        "output": outcome and {name: _stream(outcome, name) for name in ("stdout", "stderr")},
        "artifacts": outcome and outcome.artifacts,
        "artifact_problems": outcome and outcome.artifact_problems,
        "control_changes": outcome and outcome.control_changes,
        "container": outcome and outcome.container,
        "lease": outcome and outcome.lease,
        "notes": list(outcome.notes) if outcome else [],
        "error": error and {"kind": type(error).__name__, "message": str(error)},
        "timings_ms": {step: round(seconds * 1000, 3) for step, seconds in timings.items()},
    }
    record = plain(record)
    return record | {"sha256": hashlib.sha256(canonical(record)).hexdigest()}


def _status(outcome: Outcome | None, error: BaseException | None) -> str:
    if outcome:
        return outcome.status.value
    return "canceled" if isinstance(error, asyncio.CancelledError) else "error"


def _plan(plan: Plan) -> dict[str, Any]:
    box = plan.box
    return {
        "sha256": plan.digest,
        "image": {"name": box.image.name, "id": box.image.id},
        "seccomp": {"tier": box.seccomp, "sha256": box.seccomp_sha256},
        "init": {"sha256": box.init_sha256},
        "user": f"{box.uid}:{box.gid}",
        "network": box.network,
        "runtime": box.runtime,
        "limits": box.limits,
        "protected": [held.name for held in box.protected],
        "lease": plan.exec.lease,
        "reuse": plan.exec.reuse,
    }


def _stream(outcome: Outcome, name: str) -> dict[str, Any]:
    capture = outcome.stdout_capture if name == "stdout" else outcome.stderr_capture
    return {"sha256": capture.sha256, "bytes": capture.total_bytes, "truncated": capture.truncated}


def write(receipt: Mapping[str, Any], path: Path) -> None:
    """Write beside the target and move into place, so that nobody ever reads half of one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(canonical(dict(receipt)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
