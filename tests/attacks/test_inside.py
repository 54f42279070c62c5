"""What verdicts say, in real containers: where something was refused nothing was made, and what ran, ran inside."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest
from attacks.names import IMAGES

from provider import Provider, Settings
from provider.engine.owner import OWNER_LABEL, this_owner

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]
SETTINGS = Settings(
    spares=0,
    tools={
        "run_shell_command": {"core_tools": [f"run_shell_command({name})" for name in ("git status", "npm test", "ls")]}
    },
)


@pytest.fixture
async def provider(workspace: Path, no_container_is_left: None) -> AsyncIterator[Provider]:
    async with Provider(workspace, image=IMAGES["default"], settings=SETTINGS) as own:
        yield own


async def text_of(provider: Provider, command: str) -> dict[str, object]:
    reply = await provider.call("run_shell_command", {"command": command}, session="s")
    content = reply.content if isinstance(reply.content, dict) else json.loads(reply.content)
    return {**content, "success": reply.success}


POISON = r"""
set -e
git init -q . && git config core.fsmonitor ./poison && git config core.hooksPath hooks && mkdir hooks
printf '#!/bin/sh\ntouch FLAG\nhostname >WHERE\nls /host-root /var/run/docker.sock >>WHERE 2>&1\n' > poison
cp poison hooks/post-index-change; chmod +x poison hooks/post-index-change
echo x > f; git add f 2>/dev/null || true
rm -f FLAG WHERE; touch f g
printf '{"scripts": {"test": "./poison"}}' > package.json
"""


FILTER = "echo '* filter=x' > .gitattributes; git config filter.x.clean ./poison; sleep 0.01; echo y > f; rm -f FLAG"


@pytest.mark.attack("E33")
async def test_a_poisoned_workspace_runs_its_code_inside(provider: Provider, workspace: Path, tmp_path: Path) -> None:
    """
    Allowed `git status` runs neither a repository's monitor nor its hooks; its filters run, and `npm test` is its own.

    Whatever of it runs, runs in a sandbox: it finds the sandbox's name, and neither host nor engine.
    """
    made, flag = await provider.run(POISON), workspace / "FLAG"
    assert made.exit_code == 0, made.stderr
    status = await text_of(provider, "git status")
    assert (status["exitCode"], flag.exists()) == (0, False), status
    await provider.run(["git", "status"])
    assert flag.exists(), "the monitor is no danger: without the contract's variables it is not run either"
    await provider.run(FILTER)
    for command in ("git status", "npm test"):
        flag.unlink(missing_ok=True)
        await text_of(provider, command)
        assert flag.exists(), f"the poison is none for {command}"
        said = (workspace / "WHERE").read_text()
        assert said.startswith("sandbox\n")
        assert "docker.sock: No such file" in said or "cannot access '/var/run/docker.sock'" in said, said
        assert not (tmp_path / "FLAG").exists()


REFUSED = (
    "ls >&'$(touch FLAG)'", "ls; touch FLAG", "ls $(touch FLAG)", "RANDOM='x[$(touch FLAG)]'; ls",
    "for PATH in .; do ls; done",
    "declare -a 'x=($(touch FLAG))'; ls", "time ls[ # ]; touch FLAG", "ls <(touch FLAG)",
    "git -c core.fsmonitor=./x status",
)  # fmt: skip


@pytest.mark.attack("E9", "E9a", "E16a", "E26")
async def test_what_is_refused_has_no_container(
    provider: Provider, workspace: Path, engine_client: docker.APIClient
) -> None:
    """The engine has heard of none, by its own record of what was made; one that is allowed is in that record."""
    began = time.time()
    for text in REFUSED:
        assert (await text_of(provider, text))["success"] is False, text
    assert not (workspace / "FLAG").exists()
    assert _made(engine_client, began) == 0
    assert (await text_of(provider, "ls"))["success"] is True
    assert _made(engine_client, began) == 1


@pytest.mark.attack("E9a")
async def test_the_danger_is_real(provider: Provider, workspace: Path) -> None:
    """Bash in the image does what these texts are refused for; were it to stop, they could be allowed."""
    for number, text in enumerate(
        ("ls >&'$(touch FLAG)'", "RANDOM='x[$(touch FLAG)]'", "declare -a 'x=($(touch FLAG))'")
    ):
        (workspace / "FLAG").unlink(missing_ok=True)
        await provider.run(["bash", "-c", text])
        assert (workspace / "FLAG").exists(), number


@pytest.mark.attack("F3", "F12")
async def test_the_environment_is_the_provider_s(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH, HOME and TMPDIR are the sandbox's, and nothing of this process is there."""
    monkeypatch.setenv("CANARY_SECRET_TOKEN", "ghp_canary")
    outcome = await provider.run(["env"])
    said = outcome.stdout.decode()
    assert "canary" not in said.lower()
    assert "HOME=/home/sandbox\n" in said
    assert f"PATH={os.environ['PATH']}\n" not in said


def _made(client: docker.APIClient, since: float) -> int:
    filters = {"event": "create", "type": "container", "label": f"{OWNER_LABEL}={this_owner()}"}
    with contextlib.closing(client.events(since=f"{since:.9f}", until=f"{time.time():.9f}", filters=filters)) as events:
        return sum(1 for _ in events)
