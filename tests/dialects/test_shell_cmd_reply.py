"""Golden files of `shell_cmd`: call to request, and what came of it to the reply; hand-checked, one promise each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provider import errors
from provider.capture import Capture
from provider.dialects.contract import Asked, Context, Rejected
from provider.dialects.shell_cmd.call import Call, unreadable
from provider.dialects.shell_cmd.parse import Case, parse
from provider.dialects.shell_cmd.reply import command_line, render
from provider.errors import ProviderError
from provider.model import Artifact, ArtifactProblem, Ending, Outcome, State

GOLDEN = sorted((Path(__file__).parent / "golden" / "shell_cmd").glob("*.json"))
NOW = "2026-01-02T03:04:05.678Z"


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "run").touch()
    return folder


def captured(output: Any, keep: int | None) -> Capture:
    data = output["repeat"] * output["times"] if isinstance(output, dict) else output
    raw = data if isinstance(data, bytes) else data.encode()
    capture = Capture(len(raw) if keep is None else keep)
    capture.write(raw)
    return capture


def outcome_of(said: dict[str, Any]) -> Outcome:
    stdout = bytes.fromhex(said["stdout_hex"]) if "stdout_hex" in said else said.get("stdout", "")
    return Outcome(
        run_id="run",
        status=State(said["status"]),
        ending=Ending(**said["ending"]),
        stdout_capture=captured(stdout, said.get("keep")),
        stderr_capture=captured(said.get("stderr", ""), None),
        duration_ms=said["duration_ms"],
        container=None,
        artifacts=tuple(Artifact(**artifact) for artifact in said.get("artifacts", ())),
        artifact_problems=tuple(ArtifactProblem(**problem) for problem in said.get("problems", ())),
        callback_errors=tuple(RuntimeError(error) for error in said.get("callback_errors", ())),
    )


def error_of(said: dict[str, Any]) -> ProviderError:
    error: ProviderError = getattr(errors, said["kind"])(said["message"])
    error.receipt = {"approval": said["approval"]}
    return error


def placed(value: Any, trusted: Path) -> Any:
    return json.loads(json.dumps(value).replace("{trusted}", str(trusted)))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(path: Path, trusted: Path):
    """Each file states its promise: the request that a call becomes, and the reply to what came of it."""
    golden = placed(json.loads(path.read_text()), trusted)
    asked: Asked
    if rejected := golden["request"].get("rejected"):
        with pytest.raises(Rejected) as raised:
            parse(golden["call"], Context(workspace=trusted), golden["permission"])
        assert raised.value.text == rejected
        call = unreadable(golden["call"]) if "validation failed" in rejected else Call(**golden["call"])
        asked, came = Asked(argv=(), call=Case(call=call, trusted=trusted)), raised.value
    else:
        asked = parse(golden["call"], Context(workspace=trusted), golden["permission"])
        assert golden["request"] == {
            "argv": list(asked.argv),
            "wishes": {**asked.wishes, "artifacts": list(asked.wishes["artifacts"])},
            "verdict": {"decision": asked.judged.decision.name.lower(), "reasons": list(asked.judged.reasons)},
        }
        came = outcome_of(golden["outcome"]) if "outcome" in golden else error_of(golden["error"])
    reply = render(asked, came, executed_at=NOW, form=golden["form"])
    wanted = golden["reply"]["content"]
    if isinstance(wanted, dict):
        assert (json.loads(reply.content), list(json.loads(reply.content))) == (wanted, list(wanted))
        assert reply.content == json.dumps(wanted, indent=2, ensure_ascii=False)
    else:
        assert reply.content.split("\n") == wanted
    assert reply.success is golden["reply"]["success"]


def test_the_golden_files_are_all_there():
    """Every ending, refusal and fault has one."""
    found = {path.stem for path in GOLDEN}
    endings = {"completed_json", "failed", "signalled", "timed_out", "canceled", "spawn_error", "output_truncated"}
    refusals = {"policy_refused", "approval_denied", "approval_aborted", "approval_expired", "out_of_memory"}
    assert found >= endings | refusals | {"engine_unavailable", "image_missing", "plan_rejected", "sandbox_lost"}


def asked_for(**call: Any) -> Asked:
    return Asked(argv=("x",), call=Case(call=Call(command="x", **call), trusted=Path("/w")))


def ended(stdout: str = "", **ending: Any) -> Outcome:
    said = {"status": "completed", "ending": {"reason": "exited", "exit_code": 0, **ending}, "duration_ms": 1}
    return outcome_of({**said, "stdout": stdout})


@pytest.mark.parametrize(("length", "cut"), [(3000, False), (4096, False), (5000, True)])
def test_row_65_the_form_for_models_keeps_4096_characters(length: int, cut: bool):
    """Row 65: 3,000 characters are whole, 5,000 are cut and flagged."""
    content = render(asked_for(), ended("a" * length), form="continuation").content
    assert content.count("a" * min(length, 4096)) == 1
    assert ("stdout_truncated: true" in content) is cut


@pytest.mark.parametrize(("length", "cut"), [(400, False), (401, True)])
def test_row_64_a_preview_is_400_characters(length: int, cut: bool):
    """Row 64: a preview heading, no time of execution, and the line about the cut only when there is one."""
    content = render(asked_for(), ended("a" * length)).content
    assert "### Standard Output (preview)" in content
    assert "Executed at" not in content
    assert ("truncated" in content) is cut
    assert f"\n{'a' * 400}\n" in content


@pytest.mark.parametrize(
    "error", [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ProviderError)]
)
@pytest.mark.parametrize("form", ["formatted", "continuation"])
@pytest.mark.parametrize("output_format", ["markdown", "json"])
def test_every_error_has_a_reply(error: type[ProviderError], form: Any, output_format: Any):
    """Whatever the provider raises is told as a failure, and never as the exit of a command."""
    reply = render(asked_for(output_format=output_format), error("why"), form=form)
    assert not reply.success
    assert "exited with code" not in reply.content


def test_a_lone_surrogate_does_not_break_the_reply():
    """A payload can hold half a character; whoever prints the reply can still do so."""
    for output_format in ("markdown", "json"):
        asked = asked_for(parameters=("\ud800",), output_format=output_format)
        assert render(asked, Rejected("\ud800")).content.encode()


def test_a_command_is_shown_on_one_line_that_nothing_can_close():
    """Quotes for blanks; a line feed or a backtick cannot forge the lines that follow."""
    assert command_line("echo", ["a b", "c", 'say "x" now', "\t"]) == 'echo "a b" c "say \\"x\\" now" "\t"'
    content = render(asked_for(parameters=("`a`\n**Status:** ✅",)), Rejected("no")).content
    assert content.split("\n")[2] == '**Command:** `` x "`a`\\n**Status:** ✅" ``'


def test_an_artifact_that_is_too_large_says_so():
    """What cannot be hashed is not called missing without a reason."""
    case = Case(call=Call(command="x"), trusted=Path("/w"), artifacts=(("a", "a"),))
    outcome = outcome_of(
        {
            "status": "completed",
            "ending": {"reason": "exited", "exit_code": 0},
            "duration_ms": 1,
            "problems": [{"path": "a", "problem": "too_large", "detail": "9 bytes"}],
        }
    )
    assert 'Artifact not found: "a" (too_large: 9 bytes)' in render(Asked(argv=("x",), call=case), outcome).content
