"""What a call can ask for: every action by its snake_case name, with its kind."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


class Kind(enum.Enum):
    SAFE_SHELL = "safe shell"
    DANGEROUS_SHELL = "dangerous shell"
    TRANSCRIPTION = "transcription"
    GLOBAL = "global action"
    """Asked of no resource."""
    RESOURCE = "per-resource action"


class Shell(enum.StrEnum):
    """What reads the command of a dangerous shell."""

    BASH = "Bash"
    POWERSHELL = "PowerShell"
    COMMAND_PROMPT = "CommandPrompt"
    GIT = "Git"


SAFE_SHELL: Final = "execute_mk8_shell"
DANGEROUS_SHELL: Final = "execute_dangerous_shell"
TRANSCRIPTION: Final = "transcribe_from_audio_device"

ACTIONS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        SAFE_SHELL: Kind.SAFE_SHELL,
        DANGEROUS_SHELL: Kind.DANGEROUS_SHELL,
        TRANSCRIPTION: Kind.TRANSCRIPTION,
        "transcribe_from_audio_stream": Kind.TRANSCRIPTION,
        "transcribe_from_audio_file": Kind.TRANSCRIPTION,
        "create_sub_agent": Kind.GLOBAL,
        "create_container": Kind.GLOBAL,
        "register_info_store": Kind.GLOBAL,
        "edit_any_task": Kind.GLOBAL,
        "access_local_info_store": Kind.RESOURCE,
        "access_external_info_store": Kind.RESOURCE,
        "access_website": Kind.RESOURCE,
        "query_search_engine": Kind.RESOURCE,
        "access_container": Kind.RESOURCE,
        "manage_agent": Kind.RESOURCE,
        "edit_task": Kind.RESOURCE,
        "access_skill": Kind.RESOURCE,
    }
)

_SHELLS: Final = {shell.casefold(): shell for shell in Shell}


def shell_named(name: str) -> Shell | None:
    """Any case will do."""
    return _SHELLS.get(name.strip().casefold())
