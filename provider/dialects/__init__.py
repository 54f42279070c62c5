"""
Tool contracts: each turns its own calls into requests and outcomes into its own replies. The core knows none of them.

`DIALECTS` is all there is: the name of a tool, and where its contract lives. Modules are imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from provider.dialects.contract import Dialect, Host, Tool
from provider.errors import CallError, ConfigError

_MK8 = (
    *("tool_calls", "execute_mk8_shell", "execute_dangerous_shell"),
    *("transcribe_from_audio_device", "transcribe_from_audio_stream", "transcribe_from_audio_file"),
    *("create_sub_agent", "create_container", "register_info_store", "edit_any_task", "access_local_info_store"),
    *("access_external_info_store", "access_website", "query_search_engine", "access_container", "manage_agent"),
    *("edit_task", "access_skill"),
)
DIALECTS = {
    "shell_cmd": "provider.dialects.shell_cmd",
    "run_shell_command": "provider.dialects.run_shell_command",
    "list_background_processes": "provider.dialects.run_shell_command",
    "stop_background_process": "provider.dialects.run_shell_command",
    "workspace_run": "provider.dialects.helix",
    "shell": "provider.dialects.codex",
    "container.exec": "provider.dialects.codex",
    "local_shell": "provider.dialects.codex",
    "shell_command": "provider.dialects.codex",
    "apply_patch": "provider.dialects.codex",
    **dict.fromkeys(_MK8, "provider.dialects.mk8"),
}
"""Tool name to the module that has `TOOLS` and `dialect(host, tables)`."""
TABLES = frozenset({"shell_cmd", "run_shell_command", "workspace_run", "codex", "mk8"})
"""The `[tools.NAME]` tables that settings may have."""


def open_dialect(name: str, host: Host, tables: Mapping[str, Mapping[str, Any]]) -> Dialect:
    """
    Give the contract of a tool, for one provider; it finds its own table among those of the settings.

    Raises:
        CallError: there is no such tool.
        ConfigError: the settings do not fit.
    """
    if unknown := sorted(tables.keys() - TABLES):
        message = f"settings: [tools.{unknown[0]}] is the table of no tool; there are {', '.join(sorted(TABLES))}"
        raise ConfigError(message)
    opened: Dialect = import_module(home(name)).dialect(host, tables)
    return opened


def home(name: str) -> str:
    """Where a tool's contract lives. Raises CallError."""
    if re.fullmatch(r"workspace__\w+__run", name):  # one workspace among several has its name in that of its tool
        name = "workspace_run"
    if name not in DIALECTS:
        message = f"there is no tool {name!r}; there are {', '.join(sorted(DIALECTS))}"
        raise CallError(message)
    return DIALECTS[name]


def all_tools() -> tuple[Tool, ...]:
    """Every tool, with its schema."""
    modules = dict.fromkeys(DIALECTS.values())
    return tuple(tool for module in modules for tool in import_module(module).TOOLS)
