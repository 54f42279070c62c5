"""
What listeners of a call are told, in the contract's shapes.

Streams have the older shape, one `tool-stream` event a chunk for both of them: the newer one gives stdout a messageId
and a type of its own, which no reader of the older can use, while a `chatId` more disturbs nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from provider.dialects.contract import Context, Reply
from provider.dialects.shell_cmd.call import NAME, Call
from provider.dialects.shell_cmd.parse import ASK_TAG, Case
from provider.dialects.shell_cmd.registry import world_and_chat
from provider.dialects.shell_cmd.reply import command_line
from provider.model import Stream

Event = dict[str, Any]


def _placed(event: Event, context: Context) -> Event:
    world, chat = world_and_chat(context.session)
    return {**event, **({"worldId": world} if world else {}), **({"chatId": chat} if chat else {})}


def stream_chunk(case: Case, stream: Stream, content: str, context: Context) -> Event:
    """One piece of output. An AI command speaks under its own name: a provider knows no agents."""
    speaker = case.program_word if case.is_ai else NAME
    event = {"type": "tool-stream", "toolName": NAME, "content": content, "stream": stream}
    return _placed({**event, "messageId": context.call_id, "agentName": speaker}, context)


def tool_started(case: Case, execution_id: str, context: Context) -> Event:
    metadata = {"executionId": execution_id, "corrections": list(case.call.corrections)}
    return _tool("tool-start", context, input=_input(case.call), metadata=metadata)


def tool_finished(
    call: Call, reply: Reply, context: Context, *, error: str | None, duration_ms: int, metadata: Mapping[str, Any]
) -> Event:
    content = str(reply.content)
    kind: Literal["tool-error", "tool-result"] = "tool-error" if error else "tool-result"
    parts: dict[str, Any] = {"input": _input(call), "duration": duration_ms, "metadata": dict(metadata)}
    parts |= {"result": content, "resultType": "string", "resultSize": len(content)}
    return _tool(kind, context, **parts, **({"error": error} if error else {}))


def _tool(kind: str, context: Context, **parts: Any) -> Event:
    execution = {"toolName": NAME, "toolCallId": context.call_id, **parts}
    return _placed({"type": kind, "messageId": context.call_id, "toolExecution": execution}, context)


def _input(call: Call) -> dict[str, Any]:
    return {
        "command": call.command,
        "parameters": list(call.parameters),
        "directory": call.directory,
        "timeout": call.timeout_ms,
        "output_format": call.output_format,
        "output_detail": call.output_detail,
        "artifact_paths": list(call.artifact_paths),
    }


def approval_prompt(case: Case, context: Context) -> Event:
    """The question, for whoever shows it. It is answered through the provider's approver, and only there."""
    lines = [
        f"Command: {command_line(case.call.command, case.call.parameters)}",
        f"Risk: {case.reason}",
        f"Trusted directory: {case.trusted}",
        "Proceed with this command?",
    ]
    options = [
        {"id": "approve", "label": "Approve", "description": "Run this command once."},
        {"id": "deny", "label": "Deny", "description": "Do not run this command."},
    ]
    metadata = {
        "tool": NAME,
        "riskTier": case.risk.tier.name.lower(),
        "riskReason": case.reason,
        "riskTags": [ASK_TAG] if case.by_permission else list(case.risk.tags),
        "command": case.call.command,
        "parameters": list(case.call.parameters),
        "cwd": str(case.trusted.joinpath(case.directory)),
        "toolCallId": context.call_id,
    }
    question = {
        "id": "question-1",
        "header": "Approve risky shell command?",
        "question": "\n".join(lines),
        "options": options,
    }
    prompt = {
        "requestId": f"{context.call_id}::approval",
        "type": "single-select",
        "allowSkip": False,
        "defaultOptionId": "deny",
        "questions": [question],
        "metadata": metadata,
        "agentName": NAME,
        "chatId": world_and_chat(context.session)[1],
        "toolCallId": context.call_id,
    }
    return _tool("tool-progress", context, metadata={"hitlPrompt": prompt})


def validation_failed(text: str, context: Context) -> Event:
    message = text.replace("validation failed for", "validation errors for", 1)
    return _placed({"type": "error", "eventType": "error", "message": message}, context)


def message(role: Literal["tool", "assistant"], content: str, context: Context) -> Event:
    """For the history of the chat: what an AI command said, and the tool result behind it."""
    event = {"type": "message", "role": role, "content": content, "messageId": context.call_id}
    return _placed({**event, "toolCallId": context.call_id} if role == "tool" else event, context)
