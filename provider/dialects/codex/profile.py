"""
Which container a call gets. What the contract calls a sandbox policy is one container; what it calls running without a
sandbox is another, wider one with a name, and never the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from provider.dialects.codex.requirement import SandboxPolicy
from provider.dialects.codex.table import Table
from provider.model import Limits, Network, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    network: Network = "none"
    seccomp: Tier | None = None
    """None is that of every other sandbox."""
    memory_bytes: int | None = None
    read_only: bool = False

    def wishes(self, limits: Limits) -> dict[str, Any]:
        """As options of `Provider.run`."""
        wanted: dict[str, Any] = {"network": self.network, "read_only": self.read_only, "seccomp": self.seccomp}
        if self.memory_bytes is not None:
            wanted["limits"] = replace(limits, memory_bytes=self.memory_bytes)
        return wanted

    def __str__(self) -> str:
        workspace = "can be read" if self.read_only else "can be written"
        memory = f", {self.memory_bytes // 2**20} MiB" if self.memory_bytes else ""
        seccomp = f", seccomp {self.seccomp}" if self.seccomp else ""
        return f"{self.name} (the workspace {workspace}, network {self.network}{seccomp}{memory})"


def usual(table: Table) -> Profile:
    """The container of the sandbox policy."""
    policy = table.sandbox_mode
    if policy is SandboxPolicy.FULL_ACCESS:
        return wider(table)
    network: Network = "open" if table.network_access and policy is not SandboxPolicy.READ_ONLY else "none"
    return Profile(name=policy.value, network=network, read_only=policy is SandboxPolicy.READ_ONLY)


def wider(table: Table) -> Profile:
    """What an escalated call gets, and the one retry after a denial."""
    chosen = table.escalated
    return Profile(name=chosen.name, network=chosen.network, seccomp=chosen.seccomp, memory_bytes=chosen.memory)
