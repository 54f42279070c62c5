"""Tool calls of mk8 in real containers: dangerous shells, approvals, transcription, and a whole conversation."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import docker
import pytest

from provider import Provider, Settings
from provider.dialects.mk8 import Mk8
from provider.dialects.mk8.registry import Registry
from provider.dialects.mk8.status import Status

pytestmark = pytest.mark.docker
IMAGE = "sandbox-provider/default"
SPEECH = "sandbox-provider/speech"
SHELL = "execute_dangerous_shell"
USER, AUDIO = "6d6b3800-0000-4000-8000-0000000000aa", "6d6b3800-0000-4000-8000-0000000000bb"
UID = 1234
GOLDEN = Path(__file__).parents[1] / "dialects" / "golden" / "mk8" / "conversation.txt"
ALONE = {"agent_permissions": {"grants": [{"action": SHELL, "clearance": 5}]}}


class Desk:
    """A provider under one table, and what is told."""

    def __init__(self, workspace: Path, *, rules: Path | None = None, **table: Any) -> None:
        users = [{"id": USER, "uid": UID, "gid": UID}]
        tables = {"mk8": {"home": workspace.parent / "home", "system_users": users, **table}}
        self.settings = Settings(spares=0, tools=tables, rules=rules)
        self.provider = Provider(workspace, image=IMAGE, settings=self.settings)
        self.events: list[dict[str, Any]] = []

    @property
    def mk8(self) -> Mk8:
        found = self.provider.dialect(SHELL)
        assert isinstance(found, Mk8)
        return found

    async def shell(self, command: str, kind: str = "Bash") -> str:
        payload = {"resourceId": USER, "shellType": kind, "command": command}
        reply = await self.provider.call(SHELL, payload, session="s", on_event=self.events.append)
        assert reply.success == reply.content.startswith("status=Completed")
        return str(reply.content)

    def waiting(self) -> str:
        """The one job that awaits approval."""
        (job,) = self.mk8.foreman.jobs.list(status=Status.AWAITING_APPROVAL)
        return job.id

    async def __aenter__(self) -> Self:
        await self.provider.__aenter__()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.provider.close()


@pytest.fixture
async def alone(workspace: Path) -> AsyncIterator[Desk]:
    """An agent that needs nobody's approval."""
    async with Desk(workspace, **ALONE) as desk:
        yield desk


# Dangerous shells.


async def test_bash_runs_as_the_system_user(alone: Desk, workspace: Path):
    """In the workspace, as the uid and gid of the resource, without the host; each call in a container of its own."""
    said = await alone.shell("id -u; id -g; pwd; touch /tmp/left; hostname; ls /tmp; cat /proc/1/comm")
    assert said == f"status=Completed result={UID}\n{UID}\n/workspace\nsandbox\nleft\n.sandbox-init\n"
    assert await alone.shell("ls /tmp; exit 0") == "status=Completed result=(no output)"
    written = await alone.shell("touch new")  # the workspace is its owner's, who is another
    assert written.startswith("status=Failed error=exit code 1; ")
    assert "Permission denied" in written
    assert list(workspace.iterdir()) == []
    outputs = [event for event in alone.events if event["type"] == "mk8_output"]
    assert outputs[0]["text"].startswith(f"{UID}\n")
    assert "Permission denied" in outputs[-1]["text"]


async def test_git_takes_words_and_no_shell(alone: Desk):
    """Split on spaces: what a shell would read is a word like any other."""
    assert (await alone.shell("--version", "Git")).startswith("status=Completed result=git version ")
    said = await alone.shell("status; id", "Git")
    assert said.startswith("status=Failed error=exit code 1; git: 'status;' is not a git command")


async def test_shells_that_are_not_there_say_so(alone: Desk):
    """CommandPrompt never is; PowerShell is where the image has it."""
    said = await alone.shell("dir", "CommandPrompt")
    assert said == (
        "status=Failed error=CommandPrompt is Windows' cmd.exe, and sandboxes here are Linux; use shellType Bash"
    )
    assert await alone.shell("Get-Date", "PowerShell") == "status=Failed error=PowerShell is not in this image"


async def test_a_dangerous_shell_ends_in_time(workspace: Path):
    """What it wrote until then is in the reply."""
    async with Desk(workspace, dangerous_seconds=1, **ALONE) as desk:
        said = await desk.shell("echo begun; sleep 60")
    assert re.fullmatch(r"status=Failed result=begun\n error=timed out after \d+ s", said)


async def test_output_is_capped_at_its_end(alone: Desk):
    """The last mebibyte, and said so."""
    said = await alone.shell("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    assert said.startswith("status=Completed result=(cut: the last 1048576 bytes)\nxxx")
    assert said.endswith("xxxend\n")
    assert len(said) < 1_048_576 + 100


RULES = """
default = "allow"
[[rule]]
name = "no force"
decision = "refuse"
because = "history is kept"
program = "git"
options = ["--force"]
matches = ["git push --force"]
"""


async def test_the_operators_rules_hold_for_dangerous_commands(workspace: Path, tmp_path: Path):
    """Also for a command that a user has approved, in either shell."""
    (tmp_path / "rules.toml").write_text(RULES)
    async with Desk(workspace, rules=tmp_path / "rules.toml") as desk:
        for command, kind in (("true && git push --force", "Bash"), ("push --force", "Git")):
            assert await desk.shell(command, kind) == "status=AwaitingApproval"
            job = await desk.mk8.approve(desk.waiting())
            assert job.status is Status.FAILED
            assert "no force: history is kept" in str(job.error)


# Approvals.


async def test_an_agent_without_a_grant_is_denied(workspace: Path):
    """And nothing waits for anybody."""
    async with Desk(workspace, agent_permissions={"grants": []}) as desk:
        said = await desk.shell("touch /tmp/x")
        assert said.startswith(f"status=Denied error=agent agent has no grant for {SHELL} on resource {USER}")
        assert desk.mk8.foreman.jobs.list(status=Status.AWAITING_APPROVAL) == ()


async def test_a_yes_runs_it_and_a_no_does_not(workspace: Path):
    """Once: a second yes changes nothing; a job that was cancelled cannot be approved any more."""
    workspace.chmod(0o777)
    async with Desk(workspace) as desk:
        assert await desk.shell("echo ran >> log") == "status=AwaitingApproval"
        assert desk.events[-1]["status"] == "AwaitingApproval"
        assert not (workspace / "log").exists()
        name = desk.waiting()
        assert desk.events[-1]["jobId"] == name
        assert (await desk.mk8.approve(name)).status is Status.COMPLETED
        assert (await desk.mk8.approve(name)).status is Status.COMPLETED
        assert (workspace / "log").read_text() == "ran\n"

        assert await desk.shell("echo ran >> log") == "status=AwaitingApproval"
        name = desk.waiting()
        assert desk.mk8.cancel(name).status is Status.CANCELLED
        assert (await desk.mk8.approve(name)).status is Status.CANCELLED
        assert (workspace / "log").read_text() == "ran\n"


async def test_a_job_that_runs_can_be_cancelled(alone: Desk):
    """Its container ends, and the call is answered as Cancelled."""
    up = asyncio.Event()

    def hear(event: Mapping[str, Any]) -> None:
        if event["type"] == "mk8_output":
            up.set()

    payload = {"resourceId": USER, "shellType": "Bash", "command": "echo up; sleep 300"}
    call = asyncio.ensure_future(alone.provider.call(SHELL, payload, on_event=hear))
    await asyncio.wait_for(up.wait(), 30)
    (job,) = alone.mk8.foreman.jobs.list(status=Status.EXECUTING)
    alone.mk8.cancel(job.id)
    reply = await asyncio.wait_for(call, 30)
    assert (reply.success, reply.content) == (False, "status=Cancelled error=cancelled by user user")


async def test_who_may_not_say_yes_does_not(workspace: Path):
    """A user without the grant leaves the job where it is."""
    async with Desk(workspace, user_permissions={"grants": []}) as desk:
        await desk.shell("true")
        job = await desk.mk8.approve(desk.waiting())
        assert job.status is Status.AWAITING_APPROVAL
        assert "cannot approve it" in job.logs[-1].message


# Transcription.


async def test_speech_becomes_text(workspace: Path, engine_client: docker.APIClient, unavailable: Any):
    """What espeak-ng says, pocketsphinx hears, in a sandbox that cannot write to the workspace."""
    if not engine_client.images(SPEECH):
        unavailable(f"no image {SPEECH}; run `make speech`")
    grants = {"grants": [{"action": "transcribe_from_audio_file", "clearance": 5}]}
    async with Desk(workspace, agent_permissions=grants, audio=[{"id": AUDIO, "file": "x.wav"}]) as desk:
        speak = ["espeak-ng", "-v", "en-us+klatt4", "-s", "110", "-w", "x.wav", "this is a test"]
        assert (await desk.provider.run(speak, image=SPEECH)).exit_code == 0
        call = {"targetId": AUDIO, "language": "en"}
        reply = await desk.provider.call("transcribe_from_audio_file", call, session="s")
        assert reply.content == "status=Completed result=this is a test"
        (workspace / "x.wav").write_bytes(b"RIFF no sound")
        reply = await desk.provider.call("transcribe_from_audio_file", call, session="s")
        assert reply.content.startswith("status=Failed error=transcription ended with exit code ")
        reply = await desk.provider.call("transcribe_from_audio_file", {**call, "language": "de"})
        assert "knows en-US, not de" in reply.content
    assert {path.name for path in workspace.iterdir()} == {"x.wav"}


# A conversation, each turn in a process of its own.


def sections(path: Path) -> list[tuple[str, str]]:
    """Who speaks, and what, in order."""
    parts = re.split(r"^=== (.+)\n", path.read_text(), flags=re.MULTILINE)
    return [(who, text) for who, text in zip(parts[1::2], parts[2::2], strict=True)]


class Machine:
    """The command line of one user, whose processes share nothing but files."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "config.toml"
        self.workspace = folder / "workspace"
        self.job = ""
        self.config.write_text(
            f'spares = 0\nimage = "{IMAGE}"\n[tools.mk8]\nhome = "{folder}/home"\n'
            f'[[tools.mk8.system_users]]\nid = "{USER}"\nuid = {self.workspace.stat().st_uid}\n'
            f"gid = {self.workspace.stat().st_gid}\n"
        )

    def sandbox(self, *arguments: str, stdin: str = "") -> str:
        command = [sys.executable, "-m", "provider", *arguments, "--config", str(self.config)]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=60, cwd=self.workspace, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answer(self, who: str, model: str) -> str:
        """What comes after the name of a section that is not the model's."""
        match who:
            case "results":
                return self.sandbox("tool", "tool_calls", stdin=model)
            case "waiting":
                said = self.sandbox("mk8", "jobs", "--waiting")
                (self.job,) = (line.split()[0] for line in said.splitlines())
                return said
            case "approved":
                return self.sandbox("mk8", "approve", self.job)
            case "for the model":
                return self.sandbox("mk8", "job", "--result", self.job)
        message = f"there is no section {who!r}"
        raise AssertionError(message)


def steady(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"^[0-9a-f-]{36}(?=  )|(?<=\"id\": \")[0-9a-f-]{36}", "JOB", text, flags=re.MULTILINE)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "TIME", text)
    text = re.sub(r"\d\d:\d\d:\d\d\.\d{7}", "00:00:00.0000000", text)
    return re.sub(r"\d+ms\)", "0ms)", text)


def test_a_conversation_with_an_approval_across_a_restart_is_as_recorded(workspace: Path):
    """Asked in one process, approved in a second, gone on in a third. UPDATE_GOLDEN=1 writes the answers anew."""
    machine = Machine(workspace.parent)
    Registry(workspace.parent / "home").register("web", workspace, {"GREETING": "hello"})
    recorded, model = "", ""
    for who, text in sections(GOLDEN):
        model = text if who == "model" else model
        said = text if who == "model" else steady(machine.answer(who, model))
        recorded += f"=== {who}\n{said}"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(recorded)
    assert recorded == GOLDEN.read_text()
    assert (workspace / "deployed.txt").read_text() == "hello"
