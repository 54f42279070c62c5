"""The `[tools.codex]` table of the settings: what the operator has decided for all four tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from provider.dialects.codex.environment import EnvironmentPolicy, Inherit
from provider.dialects.codex.execrules import Rules, load_rules
from provider.dialects.codex.requirement import AskForApproval, SandboxPolicy, Setting
from provider.dialects.codex.truncation import Budget, Unit
from provider.dialects.tables import read_table
from provider.model import Network, Tier
from provider.plan import MAX_TIMEOUT
from provider.settings import Size

TABLE = "codex"
DEFAULT_TIMEOUT_MS = 10_000


class Wider(BaseModel):
    """The container that stands for "without a sandbox": wider than the usual one, and never the host."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str = "wide"
    network: Network = "open"
    seccomp: Tier = "default"
    memory: Size | None = Field(default=2 * 2**30, ge=6 * 2**20)
    """None is the memory of every other sandbox."""


class Environment(BaseModel):
    """What there is to inherit, and the five steps that it goes through."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    given: dict[str, str] = Field(default_factory=dict)
    """What "all" is: the host's own variables are never looked at."""
    inherit: Inherit = Inherit.ALL
    ignore_default_excludes: bool = False
    exclude: tuple[str, ...] = ()
    set: dict[str, str] = Field(default_factory=dict)
    include_only: tuple[str, ...] = ()

    def policy(self) -> EnvironmentPolicy:
        """Raises ConfigError."""
        return EnvironmentPolicy(
            inherit=self.inherit,
            ignore_default_excludes=self.ignore_default_excludes,
            exclude=self.exclude,
            set=MappingProxyType(self.set),
            include_only=self.include_only,
        )


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    approval_policy: AskForApproval = AskForApproval.ON_REQUEST
    sandbox_mode: SandboxPolicy = SandboxPolicy.WORKSPACE_WRITE
    network_access: bool = False
    """Whether workspace-write and external-sandbox have a network."""
    escalated: Wider = Wider()
    rules: Path | None = None
    """A folder of *.rules and *.codexpolicy files; a yes for ever is written to default.rules in it."""
    environment: Environment = Environment()
    shell: str = "bash"
    """What runs the text of `shell_command`."""
    login: bool = True
    """Whether it is a login shell, which reads the image's profiles."""
    default_timeout_ms: int = Field(default=DEFAULT_TIMEOUT_MS, gt=0, le=int(MAX_TIMEOUT * 1000))
    max_timeout_ms: int = Field(default=int(MAX_TIMEOUT * 1000), gt=0, le=int(MAX_TIMEOUT * 1000))
    """What a model can ask for at the most."""
    output_limit: int = Field(default=10_000, ge=0)
    output_unit: Literal["bytes", "tokens"] = "bytes"
    compat: bool = False
    """Apply patches one file after the other, as the original does, and not all or none."""

    @property
    def budget(self) -> Budget:
        return Budget(self.output_limit, Unit.TOKENS if self.output_unit == "tokens" else Unit.BYTES)

    def setting(self) -> Setting:
        """Rules are read anew for each call: a yes for ever is among them. Raises ConfigError."""
        rules: Rules = load_rules(self.rules) if self.rules else ()
        return Setting(approval=self.approval_policy, sandbox=self.sandbox_mode, rules=rules)


def load_table(tables: Mapping[str, Mapping[str, Any]]) -> Table:
    """Raises ConfigError naming the key, or the rule file."""
    table = read_table(Table, tables, TABLE)
    table.environment.policy()
    table.setting()
    return table
