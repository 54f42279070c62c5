"""
Golden files: a call and the request it becomes; an outcome, refusal or fault, and the reply it becomes.

In a file, EITHER_SHELL and ENVIRONMENT stand for what `call.py` has under these names.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from provider import errors
from provider.capture import Capture
from provider.dialects.contract import Rejected
from provider.dialects.run_shell_command.call import EITHER_SHELL, ENVIRONMENT, parse
from provider.dialects.run_shell_command.reply import render
from provider.dialects.run_shell_command.table import Table
from provider.model import Container, Ending, Outcome, State

GOLDEN = sorted((Path(__file__).parent.parent / "golden" / "run_shell_command").glob("*.json"))
FIELDS = ["stdout", "stderr", "exitCode", "signal", "error", "pid", "backgroundPids"]
CONTAINER = Container(
    id="box", image="i", image_id="sha256:0", runtime="", network="none", user="1:1", warm=False, attested=()
)


def captured(text: str, cap: int = 1_000_000) -> Capture:
    capture = Capture(cap)
    encoded = text.removeprefix("base64:")
    capture.write(base64.b64decode(encoded) if encoded != text else text.encode())
    return capture


def outcome(told: dict) -> Outcome:
    ending = told["ending"] | {"background_pids": tuple(told["ending"].get("background_pids", ()))}
    return Outcome(
        run_id="run",
        status=State(told["status"]),
        ending=Ending(**ending),
        stdout_capture=captured(told["stdout"], told.get("cap", 1_000_000)),
        stderr_capture=captured(told["stderr"]),
        duration_ms=1,
        container=CONTAINER if told.get("container", True) else None,
        callback_errors=tuple(OSError() for _ in range(told.get("callback_errors", 0))),
        lease=told.get("lease"),
    )


def error(told: dict) -> errors.ProviderError:
    made = getattr(errors, told["kind"])(told["message"])
    made.receipt = told.get("receipt")
    return made


def named(value):
    return {EITHER_SHELL: "EITHER_SHELL"}.get(value, value)


def load(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_file_holds(path, workspace):
    """The call becomes the request, or is rejected, and the result becomes the reply."""
    golden = load(path)
    (workspace / "src").mkdir()
    table = Table.model_validate(golden["table"])
    asked = None
    if "rejected" in golden:
        with pytest.raises(Rejected) as caught:
            parse(golden["call"], table, workspace)
        result = caught.value
        assert {"text": result.text, "kind": result.kind} == golden["rejected"]
    else:
        asked = parse(golden["call"], table, workspace)
        env = "ENVIRONMENT" if asked.wishes["env"] == ENVIRONMENT else asked.wishes["env"]
        assert {
            "argv": [named(part) for part in asked.argv],
            "wishes": {**asked.wishes, "env": env},
            "verdict": {"decision": asked.judged.decision.name.lower(), "reasons": list(asked.judged.reasons)},
            "remember": list(asked.remember),
        } == golden["request"]
        result = outcome(golden["outcome"]) if "outcome" in golden else error(golden["error"])
    reply = render(asked, result, table, inactive=golden.get("inactive", False))
    assert {"success": reply.success, "content": reply.content} == golden["reply"]


def test_golden_files_cover_every_ending_refusal_and_fault():
    """No way to end is without its reply."""
    files = [load(path) for path in GOLDEN]
    kinds = {file["error"]["kind"] for file in files if "error" in file}
    assert kinds >= {
        *("PolicyRefused", "ApprovalRefused", "ApprovalAborted", "CallError"),
        *("EngineUnavailable", "ImageMissing", "PlanRejected", "SandboxLost", "DisposeFailed"),
    }
    reasons = {file["outcome"]["ending"]["reason"] for file in files if "outcome" in file}
    assert reasons == {"exited", "timed_out", "canceled", "output_limit"}
    assert {file["outcome"]["status"] for file in files if "outcome" in file} == {
        *("completed", "failed", "canceled", "timed_out")
    }


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_field_of_the_specification_is_there(path):
    """Nulls are written out, and exactly one of exit code, signal and error is set once something ran or failed to."""
    content = load(path)["reply"]["content"]
    if isinstance(content, str):
        return
    assert list(content)[: len(FIELDS)] == FIELDS
    told = [content[name] is not None for name in ("exitCode", "signal", "error")]
    assert sum(told) == 1 or (sum(told) == 0 and content["message"].endswith("before it could start."))
    assert (content["errorType"] is None) is (content["error"] is None)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_only_exit_0_reads_as_success(path):
    """And not when somebody who listens has failed."""
    golden = load(path)
    told = golden.get("outcome", {})
    exited_0 = told.get("ending", {}).get("exit_code") == 0 and not told.get("callback_errors")
    assert golden["reply"]["success"] is exited_0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(120, "2m0s"), (90.5, "1m30.5s"), (5, "5s"), (0.25, "0.25s"), (3600, "1h0m0s"), (3725, "1h2m5s")],
)
def test_durations(seconds, text):
    """As the specification's language writes them."""
    told = {"status": "timed_out", "ending": {"reason": "timed_out", "signal": 15}, "stdout": "", "stderr": ""}
    reply = render(None, outcome(told), Table(timeout=seconds))
    assert reply.content["message"] == f"Command timed out after {text}"
