"""
What models are told of the tools in native mode. Each is an action by its name; the result is the text protocol's,
without its marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from provider.dialects.contract import Tool
from provider.dialects.mk8.kinds import DANGEROUS_SHELL, SAFE_SHELL, TRANSCRIPTION, Shell

_RESOURCE: Final = {"type": "string", "format": "uuid"}


def _schema(required: tuple[str, ...] = (), /, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def _transcription(name: str, source: str) -> Tool:
    return Tool(
        name=name,
        description=f"Turn the speech of {source} into text.",
        parameters=_schema(
            ("targetId",),
            targetId={**_RESOURCE, "description": f"The resource: {source}."},
            transcriptionModelId={**_RESOURCE, "description": "The model; English unless given."},
            language={"type": "string", "description": "BCP-47 code of what is spoken, such as en."},
        ),
    )


_GLOBAL: Final = {
    "create_sub_agent": "Create an agent below this one.",
    "create_container": "Create a container resource.",
    "register_info_store": "Register a store of information.",
    "edit_any_task": "Edit a task, whosoever it is.",
}
_PER_RESOURCE: Final = {
    "access_local_info_store": "Use a store of information on this machine.",
    "access_external_info_store": "Use a store of information elsewhere.",
    "access_website": "Use a registered website.",
    "query_search_engine": "Ask a registered search engine.",
    "access_container": "Use a container resource.",
    "manage_agent": "Change another agent.",
    "edit_task": "Edit one task.",
    "access_skill": "Read a skill.",
}

TOOLS: Final = (
    Tool(
        name=SAFE_SHELL,
        description=(
            "Run an mk8.shell script: structured operations, no shell, inside one registered sandbox. Any mistake in "
            "it is found before anything runs. The verbs Mk8Verbs, Mk8Templates and Mk8Docs tell what there is."
        ),
        parameters=_schema(
            ("script",),
            resourceId={**_RESOURCE, "description": "The container resource; found by sandboxId unless given."},
            sandboxId={"type": "string", "description": "The registered name of the sandbox."},
            script={
                "type": "object",
                "description": "operations, options and cleanup, as the mk8.shell reference has them.",
                "properties": {
                    "operations": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["verb"]}},
                    "options": {"type": "object"},
                    "cleanup": {"type": "array", "items": {"type": "object", "required": ["verb"]}},
                },
                "required": ["operations"],
            },
        ),
    ),
    Tool(
        name=DANGEROUS_SHELL,
        description=(
            "Run a raw command as a SystemUser, in a container of its own. Nothing in it is checked: prefer "
            f"{SAFE_SHELL}. Git takes the words behind `git`, split on spaces; CommandPrompt is not available."
        ),
        parameters=_schema(
            ("resourceId", "shellType", "command"),
            resourceId={**_RESOURCE, "description": "The SystemUser resource to run as."},
            shellType={"type": "string", "enum": [str(shell) for shell in Shell]},
            command={"type": "string", "description": "The text that the interpreter is to read."},
        ),
    ),
    _transcription(TRANSCRIPTION, "an audio device"),
    _transcription("transcribe_from_audio_stream", "an audio stream"),
    _transcription("transcribe_from_audio_file", "an audio file"),
    *(Tool(name=name, description=text, parameters=_schema()) for name, text in _GLOBAL.items()),
    *(
        Tool(
            name=name,
            description=text,
            parameters=_schema(("targetId",), targetId={**_RESOURCE, "description": "The resource."}),
        )
        for name, text in _PER_RESOURCE.items()
    ),
)
