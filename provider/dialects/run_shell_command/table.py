"""The `[tools.run_shell_command]` table of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from provider.dialects.run_shell_command.lists import TOOL, Lists, Prefix, Width, parse_entry
from provider.dialects.tables import read_table


def _entries(value: object) -> object:
    if isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value):
        return tuple(parse_entry(entry) for entry in value)
    message = "must be a list of texts"
    raise ValueError(message)


Entries = Annotated[tuple[Prefix, ...], BeforeValidator(_entries)]


class Table(BaseModel):
    """What an operator may set."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    core_tools: Entries = ()
    """The allow list: `run_shell_command` for everything, `run_shell_command(prefix)` for some commands."""
    exclude_tools: Entries = ()
    """The deny list. It wins over the other."""
    confirm: bool = False
    """Ask about every command that is not allowed, also without an allow list."""
    allow_redirection: bool = False
    """Under an allow list, do not ask about files that a command writes by `>`."""
    remember: Width = "root"
    """What `always` covers: every command of the same program, or exactly this command."""
    timeout: float = Field(default=120.0, le=7 * 24 * 3600)
    """Seconds that a command has in all; 0 or less is no limit."""
    inactivity_timeout: float = Field(default=300.0, le=7 * 24 * 3600)
    """Seconds that it has without writing anything; 0 or less is no limit."""
    lease: float = Field(default=600.0, gt=0, le=24 * 3600)
    """Seconds that background processes go on after their command."""
    output_characters: int = Field(default=40_000, ge=10)
    """What a model is shown of each stream."""
    format: Literal["json", "text"] = "json"
    """The reply: an object as the specification has it, or lines of text."""

    @property
    def lists(self) -> Lists:
        return Lists(
            allow=self.core_tools,
            deny=self.exclude_tools,
            confirm=self.confirm,
            allow_redirection=self.allow_redirection,
            remember=self.remember,
        )


def load_table(tables: Mapping[str, Mapping[str, Any]]) -> Table:
    """Raises ConfigError naming the key."""
    return read_table(Table, tables, TOOL)
