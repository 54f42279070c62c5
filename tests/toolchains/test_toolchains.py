"""
The default image does an agent's daily work under the default plan, and under `debug` what needs to look into others.

A profile that was tightened too far fails here, by the name of the tool that it breaks and of the call that is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toolchains.table import BASIC, TOOLCHAINS, Toolchain

import provider.run as run_module
from provider import Outcome, Provider
from provider.assets import Profile, load_assets

CASES = Path(__file__).parent / "cases"
SECONDS = 60.0
UPTO = None if os.environ.get("TOOLCHAINS") == "long" else 1
"""How many needs of each are taken away in turn, and how many toolchains are tried under gVisor."""
each = pytest.mark.parametrize("tool", TOOLCHAINS, ids=lambda tool: tool.name)


def rules_without(names: Iterable[str], tier: str) -> dict[str, Any]:
    """A tier's profile, less the permission for some calls."""
    profile: dict[str, Any] = json.loads(load_assets().profiles[tier].text)
    allowed = [
        {**rule, "names": kept} if rule["action"] == "SCMP_ACT_ALLOW" else rule
        for rule in profile["syscalls"]
        if (kept := [name for name in rule["names"] if name not in names])
    ]
    return {**profile, "syscalls": allowed}


def refused(tool: Toolchain) -> list[str]:
    """What it needs and its tier does not allow on any condition."""
    rules = rules_without((), tool.tier)["syscalls"]
    allowed = {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    return [call for call in tool.calls if call not in allowed]


async def work(tool: Toolchain, workspace: Path, runtime: str = "") -> Outcome:
    """Do it in a workspace that belongs to a person."""
    shutil.copytree(CASES / tool.name, workspace, dirs_exist_ok=True)
    if os.geteuid() == 0:
        owner = workspace.stat()
        for path in workspace.rglob("*"):
            os.chown(path, owner.st_uid, owner.st_gid)
    async with Provider(workspace, image="sandbox-provider/default", runtime=runtime) as provider:
        return await provider.run(["bash", "-euo", "pipefail", "run"], timeout=SECONDS, seccomp=tool.tier)


@each
def test_its_profile_allows_what_it_needs(tool: Toolchain):
    """Each toolchain says which calls it cannot do without, and its tier has them."""
    assert refused(tool) == [], f"{tool.promise}; for that, tier {tool.tier} must allow them"


def test_every_folder_of_cases_has_its_line():
    """No script lies there unrun."""
    assert {path.name for path in CASES.iterdir()} == {tool.name for tool in TOOLCHAINS}


@pytest.mark.docker
@each
async def test_it_works(tool: Toolchain, workspace: Path):
    """Its script runs to its end, and prints what it should."""
    check(tool, await work(tool, workspace))


@pytest.mark.docker
@pytest.mark.parametrize("tool", TOOLCHAINS[:UPTO], ids=lambda tool: tool.name)
async def test_it_works_under_gvisor(tool: Toolchain, workspace: Path, gvisor: str):
    """On another kernel it prints the same."""
    check(tool, await work(tool, workspace, gvisor))


def check(tool: Toolchain, outcome: Outcome) -> None:
    said = " ".join(outcome.stdout.decode().split())
    assert (outcome.exit_code, said) == (0, tool.says), (
        f"no more in tier {tool.tier}: {tool.promise}. Of {', '.join(tool.calls)}, which it needs, the profile refuses "
        f"{', '.join(refused(tool)) or 'none'}. It {outcome.status}; stderr: {outcome.stderr.decode()[-2000:]}"
    )


NEEDS = [(tool, call) for tool in TOOLCHAINS for call in tool.calls[:UPTO] if call not in BASIC]


@pytest.mark.docker
@pytest.mark.parametrize(("tool", "call"), NEEDS, ids=[f"{tool.name}-{call}" for tool, call in NEEDS])
async def test_it_fails_without_what_it_needs(
    tool: Toolchain, call: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    """What a toolchain says it needs is true: with that call taken out of the profile, it does not work."""
    text = json.dumps(rules_without({call}, tool.tier))
    profile = Profile(text=text, sha256=hashlib.sha256(text.encode()).hexdigest())
    assets = load_assets()
    assets = replace(assets, profiles={**assets.profiles, tool.tier: profile})
    monkeypatch.setattr(run_module, "load_assets", lambda: assets)
    outcome = await work(tool, workspace)
    assert (outcome.exit_code, " ".join(outcome.stdout.decode().split())) != (0, tool.says)
