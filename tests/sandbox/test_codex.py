"""The Codex contract in real containers: the decision matrix, patches, and a whole conversation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import docker
import pytest

from provider import Provider, Settings
from provider.approval import Answer, Question

pytestmark = pytest.mark.docker
IMAGE = "sandbox-provider/default"
GOLDEN = Path(__file__).parents[1] / "dialects" / "golden" / "codex" / "conversation.json"
RETRY = "command failed; retry without sandbox?"
REJECTED = "exec command rejected by user"


class Talk:
    """A provider under one table, who is asked, and what is told."""

    def __init__(self, workspace: Path, answers: list[str] | None = None, **table: Any) -> None:
        self.workspace = workspace
        self.questions: list[Question] = []
        self.events: list[dict[str, Any]] = []
        self._answers = answers or []
        settings = Settings(spares=0, tools={"codex": table})
        self.provider = Provider(workspace, image=IMAGE, settings=settings, approver=self._answer)

    async def _answer(self, question: Question) -> Answer:
        self.questions.append(question)
        return Answer(self._answers.pop(0)) if self._answers else Answer.DENY

    async def call(self, tool: str, payload: object) -> str:
        reply = await self.provider.call(tool, payload, session="s", call_id="c", on_event=self._hear)
        return str(reply.content)

    async def script(self, text: str, **more: Any) -> str:
        return await self.call("shell_command", {"command": text, "login": False, "timeout_ms": 30_000, **more})

    def _hear(self, event: Mapping[str, Any]) -> None:
        self.events.append(dict(event))

    async def __aenter__(self) -> Self:
        await self.provider.__aenter__()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.provider.close()


@contextlib.contextmanager
def neighbour() -> Iterator[str]:
    """A server on the engine's own bridge: there only for containers with a network."""
    client = docker.from_env()
    serve = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000, bind='0.0.0.0')"
    container = client.containers.run(IMAGE, ["python3", "-c", serve], detach=True, remove=True, working_dir="/usr")
    try:
        container.reload()
        yield f"http://{container.attrs['NetworkSettings']['IPAddress']}:8000/"
    finally:
        container.kill()


FETCH = """python3 -c "
import time, urllib.request as u
for n in range(50):
    try:
        print(u.urlopen('{}', timeout=5).status)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
"
"""
ELSEWHERE = "http://192.0.2.1/"
WRITE = "echo x > file"


@pytest.mark.parametrize("policy", ["on-request", "on-failure", "never"])
async def test_row_1_full_access_writes_without_a_question(workspace: Path, policy: str):
    """The wide container, and still nothing but the workspace."""
    async with Talk(workspace, approval_policy=policy, sandbox_mode="danger-full-access") as talk:
        assert (await talk.script(WRITE)).startswith("Exit code: 0")
    assert (workspace / "file").read_text() == "x\n"
    assert talk.questions == []


async def test_row_2_untrusted_asks_even_with_full_access(workspace: Path):
    """One question, without a rule's reason, then it runs."""
    async with Talk(workspace, ["once"], approval_policy="untrusted", sandbox_mode="danger-full-access") as talk:
        assert (await talk.script(WRITE)).startswith("Exit code: 0")
    assert len(talk.questions) == 1


@pytest.mark.parametrize("policy", ["untrusted", "on-request", "never"])
@pytest.mark.parametrize("mode", ["read-only", "workspace-write", "danger-full-access"])
async def test_row_3_a_known_safe_command_runs(workspace: Path, policy: str, mode: str):
    """`echo x` asks nobody anywhere."""
    async with Talk(workspace, approval_policy=policy, sandbox_mode=mode) as talk:
        assert (await talk.script("echo x")).endswith("Output:\nx\n")
    assert talk.questions == []


@pytest.mark.parametrize("answer", ["once", "deny"])
async def test_row_4_an_escalated_write_is_asked_about(workspace: Path, answer: str):
    """A yes runs it in the wide container; a no writes nothing."""
    async with Talk(workspace, [answer], sandbox_mode="read-only") as talk:
        said = await talk.script(WRITE, with_escalated_permissions=True, justification="must write")
    assert (said == REJECTED) == (answer == "deny") == (not (workspace / "file").exists())
    assert len(talk.questions) == 1


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
async def test_row_5_without_network_a_fetch_fails_unasked(workspace: Path, mode: str):
    """Under on-request the failure is the result."""
    async with Talk(workspace, sandbox_mode=mode) as talk:
        assert (await talk.script(FETCH.format(ELSEWHERE))).startswith("Exit code: 1")
    assert talk.questions == []


async def test_rows_6_and_7_with_network_a_fetch_works(workspace: Path):
    """Escalated after a yes, or by the operator's setting without one."""
    with neighbour() as url:
        async with Talk(workspace, ["once"], sandbox_mode="read-only") as talk:
            assert (await talk.script(FETCH.format(url), with_escalated_permissions=True)).endswith("200\n")
        assert len(talk.questions) == 1
        async with Talk(workspace, network_access=True) as talk:
            assert (await talk.script(FETCH.format(url))).endswith("200\n")
        assert talk.questions == []


async def test_row_8_on_failure_a_denied_write_is_retried_after_a_yes(workspace: Path):
    """Pid 1 has seen the attempt; the retry writes."""
    async with Talk(workspace, ["once"], approval_policy="on-failure", sandbox_mode="read-only") as talk:
        assert (await talk.script(WRITE)).startswith("Exit code: 0")
    assert [question.verdict.reasons[0] for question in talk.questions] == [RETRY]
    assert (workspace / "file").read_text() == "x\n"


async def test_row_8_on_failure_a_denied_fetch_is_retried_after_a_yes(workspace: Path):
    """The kernel has counted packets without a way; with a network the same command works."""
    with neighbour() as url:
        async with Talk(workspace, ["once"], approval_policy="on-failure") as talk:
            assert (await talk.script(FETCH.format(url))).endswith("200\n")
    assert [question.verdict.reasons[0] for question in talk.questions] == [RETRY]


async def test_row_8_a_failure_that_nobody_denied_is_not_retried(workspace: Path):
    """Whatever its output says: words are no evidence."""
    async with Talk(workspace, approval_policy="on-failure", sandbox_mode="read-only") as talk:
        said = await talk.script("echo 'sandbox: Permission denied, Read-only file system' >&2; exit 1")
    assert said.startswith("Exit code: 1")
    assert talk.questions == []


async def test_row_9_untrusted_asks_before_a_write(workspace: Path):
    """And runs after the yes."""
    async with Talk(workspace, ["once"], approval_policy="untrusted") as talk:
        assert (await talk.script(WRITE)).startswith("Exit code: 0")
    assert len(talk.questions) == 1


async def test_row_10_never_lets_the_write_fail(workspace: Path):
    """No question; the command's own words are the result."""
    async with Talk(workspace, approval_policy="never", sandbox_mode="read-only") as talk:
        said = await talk.script(WRITE)
    assert "Read-only file system" in said
    assert talk.questions == []


ADD = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"
OUTSIDE = "*** Begin Patch\n*** Add File: ../new.txt\n+hello\n*** End Patch"
FORMS: dict[str, Any] = {
    "tool": ("apply_patch", {"input": ADD}),
    "shell": ("shell", {"command": ["apply_patch", ADD]}),
    "here-document": ("shell_command", {"command": f"apply_patch <<'EOF'\n{ADD}\nEOF\n"}),
    "local shell": ("local_shell", {"id": "i", "action": {"type": "exec", "command": ["applypatch", ADD]}}),
}


@pytest.mark.parametrize("form", FORMS)
async def test_row_11_untrusted_asks_about_a_patch(workspace: Path, form: str):
    """As a patch, in whichever form it comes; after the yes it is applied, once, and told in order."""
    async with Talk(workspace, ["once"], approval_policy="untrusted") as talk:
        said = json.loads(await talk.call(*FORMS[form]))
    assert said["output"] == "Success. Updated the following files:\nA new.txt\n"
    assert (workspace / "new.txt").read_text() == "hello\n"
    types = [event["type"] for event in talk.events]
    assert types == ["apply_patch_approval_request", "patch_apply_begin", "patch_apply_end", "turn_diff"]
    assert talk.events[1]["auto_approved"] is False
    assert ADD in talk.questions[0].verdict.reasons


async def test_row_12_full_access_applies_a_patch_unasked(workspace: Path):
    """On-request, and inside the workspace like every other."""
    async with Talk(workspace, sandbox_mode="danger-full-access") as talk:
        assert "Success" in await talk.call("apply_patch", {"input": ADD})
    assert talk.questions == []
    assert talk.events[0]["auto_approved"] is True


@pytest.mark.parametrize("policy", ["on-request", "never", "on-failure", "untrusted"])
async def test_rows_13_and_14_a_patch_outside_is_refused(workspace: Path, policy: str):
    """Nothing outside exists here, so nobody is asked."""
    async with Talk(workspace, approval_policy=policy) as talk:
        said = await talk.call("apply_patch", {"input": OUTSIDE})
    assert said == "patch rejected: writing outside of the project; rejected by user approval settings"
    assert (talk.questions, talk.events) == ([], [])
    assert not (workspace.parent / "new.txt").exists()


async def test_row_15_a_dangerous_command_is_asked_about(workspace: Path):
    """Also with full access; the no is the contract's."""
    async with Talk(workspace, sandbox_mode="danger-full-access") as talk:
        assert await talk.script("git reset --hard") == REJECTED
    assert len(talk.questions) == 1


async def test_a_patch_that_does_not_fit_changes_nothing(workspace: Path):
    """The contract's words, no event, no file touched."""
    (workspace / "a").write_text("one\n")
    patch = "*** Begin Patch\n*** Add File: b\n+x\n*** Update File: a\n@@\n-two\n+three\n*** End Patch"
    async with Talk(workspace) as talk:
        said = await talk.call("apply_patch", {"input": patch})
    assert said.startswith("apply_patch verification failed: Failed to find expected lines in ")
    assert talk.events == []
    assert {path.name for path in workspace.iterdir()} == {"a"}


async def test_a_link_in_the_workspace_leads_a_patch_nowhere(workspace: Path, tmp_path: Path):
    """Neither to the host nor to a file of the container."""
    secret = tmp_path / "secret"
    secret.write_text("host\n")
    (workspace / "link").symlink_to(secret)
    (workspace / "folder").symlink_to(tmp_path)
    async with Talk(workspace) as talk:
        for path in ("link", "folder/secret"):
            patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-host\n+owned\n*** End Patch"
            assert (await talk.call("apply_patch", {"input": patch})).startswith("apply_patch verification failed: ")
    assert secret.read_text() == "host\n"


async def test_a_turn_is_one_diff(workspace: Path):
    """Two patches of a file are told as one change since the turn began, as git would."""
    (workspace / "a").write_text("one\n")
    async with Talk(workspace) as talk:
        for old, new in (("one", "two"), ("two", "three")):
            patch = f"*** Begin Patch\n*** Update File: a\n@@\n-{old}\n+{new}\n*** End Patch"
            await talk.call("apply_patch", {"input": patch})
    diff = talk.events[-1]["unified_diff"]
    assert talk.events[-1]["type"] == "turn_diff"
    assert "-one\n+three\n" in diff
    (workspace / "a").write_text("one\n")
    git = ["git", "apply"]
    await asyncio.to_thread(subprocess.run, git, cwd=workspace, input=diff.encode(), check=True, capture_output=True)
    assert (workspace / "a").read_text() == "three\n"


async def test_an_image_without_python_says_what_is_missing(workspace: Path):
    """Commands run there; patches say why they cannot."""
    async with Provider(workspace, image="sandbox-provider/minimal", settings=Settings(spares=0)) as provider:
        reply = await provider.call("apply_patch", {"input": ADD})
    assert "apply_patch needs python3 in the image" in reply.content


CONVERSATION: list[tuple[str, Any]] = [
    ("shell", {"command": ["bash", "-c", "ls -a | sort"]}),
    (
        "apply_patch",
        {
            "input": "*** Begin Patch\n*** Add File: src/sum.py\n+def add(a, b):\n+    return a - b\n"
            "*** Add File: test_sum.py\n+from src.sum import add\n+\n+assert add(2, 3) == 5\n*** End Patch"
        },
    ),
    ("shell_command", {"command": "python3 -B test_sum.py 2>&1 | tail -n 1", "login": False}),
    (
        "shell_command",
        {
            "command": "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: src/sum.py\n@@ def add(a, b):\n"
            "-    return a - b\n+    return a + b\n*** End Patch\nEOF",
            "login": False,
        },
    ),
    ("shell", {"command": ["python3", "-B", "test_sum.py"]}),
    (
        "local_shell",
        {"call_id": "l1", "action": {"type": "exec", "command": ["cat", "src/sum.py"], "timeout_ms": 5000}},
    ),
    ("shell", {"command": ["sleep", "30"], "timeout_ms": 300}),
    (
        "shell",
        {"command": ["curl", "http://192.0.2.1/"], "with_escalated_permissions": True, "justification": "look it up"},
    ),
    ("shell_command", {"command": "rm -rf src", "login": False}),
    ("container.exec", {"command": ["bash", "-c", "exit 3"], "workdir": "src"}),
]


async def test_a_conversation_of_ten_calls_is_as_recorded(workspace: Path):
    """Replies and events, call by call; ids and times aside. UPDATE_GOLDEN=1 writes the file anew."""
    async with Talk(workspace) as talk:
        said = []
        for tool, payload in CONVERSATION:
            talk.events.clear()
            reply = await talk.call(tool, payload)
            said.append({"tool": tool, "payload": payload, "reply": reply, "events": list(talk.events)})
    recorded = json.loads(_steady(json.dumps(said, ensure_ascii=False)))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")
    assert recorded == json.loads(GOLDEN.read_text())


def _steady(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r'"turn_id": "[0-9a-f]{32}"', '"turn_id": "TURN"', text)
    text = re.sub(r'duration_seconds\\":[0-9.]+', r'duration_seconds\\":0.0', text)
    text = re.sub(r'"duration": {"secs": \d+, "nanos": \d+}', '"duration": {"secs": 0, "nanos": 0}', text)
    text = re.sub(r"Wall time: [0-9.]+ seconds", "Wall time: 0 seconds", text)
    return re.sub(r"timed out after \d+ milliseconds", "timed out after 300 milliseconds", text)


def sandbox(*words: str, stdin: object) -> str:
    command = [sys.executable, "-m", "provider", *words]
    return subprocess.run(
        command, input=json.dumps(stdin).encode(), check=True, capture_output=True, timeout=60
    ).stdout.decode()


def test_the_command_line_calls_all_four(workspace: Path):
    """`sandbox tool` and `sandbox check`, as a person would type them."""
    assert (
        json.loads(sandbox("tool", "shell", "-w", str(workspace), stdin={"command": ["echo", "a  b"]}))["output"]
        == "a  b\n"
    )
    assert "Output:\nhi\n" in sandbox("tool", "shell_command", "-w", str(workspace), stdin={"command": "echo hi"})
    item = {"id": "i", "action": {"type": "exec", "command": ["pwd"]}}
    assert json.loads(sandbox("tool", "local_shell", "-w", str(workspace), stdin=item))["output"] == "/workspace\n"
    assert "A new.txt" in sandbox("tool", "apply_patch", "-w", str(workspace), stdin={"input": ADD})
    assert (workspace / "new.txt").read_text() == "hello\n"
    judged = {
        "allow": ("shell", {"command": ["ls"]}),
        "ask": ("shell_command", {"command": "rm -rf x"}),
        "refuse": ("apply_patch", {"input": OUTSIDE}),
    }
    for decision, (tool, payload) in judged.items():
        assert json.loads(sandbox("check", tool, "-w", str(workspace), stdin=payload))["decision"] == decision
