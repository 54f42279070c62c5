"""What `sandbox tool` and `sandbox check` were asked for, and what becomes of it on a console."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from provider.approval import Approver, allow_all, refuse_all
from provider.client import SIGNALED
from provider.dialects.contract import Reply
from provider.errors import CallError
from provider.prompt import ask_terminal
from provider.provider import Provider
from provider.terminal import Console

Approve = Literal["ask", "never", "always"]
APPROVERS: dict[str, Approver] = {"ask": ask_terminal, "never": refuse_all, "always": allow_all}
MAX_PAYLOAD = 64 * 2**20
RAW_TEXT = frozenset({"tool_calls"})
"""Tools whose payload is text, not JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolJob:
    """One call of a tool; with `check`, only what would be said to it."""

    tool: str
    workspace: Path
    config: Path | None = None
    approve: Approve = "never"
    events: Path | None = None
    session: str = ""
    check: bool = False


async def perform_tool(job: ToolJob, console: Console, provider: Provider, folder: Path) -> int:
    """
    Take the payload from stdin, put the reply on stdout, and give the exit status: 0, or 128+n after signal n.

    Raises:
        CallError, ConfigError: there is nothing to call.
    """
    received: list[int] = []
    answering = asyncio.ensure_future(_answer(job, console, provider, folder))

    def stop(number: int) -> None:
        received.append(number)
        answering.cancel()

    console.on_signal(stop)
    try:
        await answering
    except asyncio.CancelledError:
        if not received:
            raise
        return SIGNALED + received[0]
    finally:
        answering.cancel()
    return 0


async def _answer(job: ToolJob, console: Console, provider: Provider, folder: Path) -> None:
    payload = _payload(job.tool, await _read(console))
    workspace = folder / job.workspace
    if job.check:
        verdict = provider.check(job.tool, payload, workspace=workspace, session=job.session)
        answer = {"decision": verdict.decision.name.lower(), "reasons": list(verdict.reasons)}
        await console.write("stdout", json_line(answer))
        return
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / job.events).open("ab")) if job.events else None

        def note(event: Mapping[str, Any]) -> None:
            if log:
                log.write(json_line(event))
                log.flush()

        reply = await provider.call(
            job.tool, payload, workspace=workspace, session=job.session, on_event=note, approver=APPROVERS[job.approve]
        )
    await console.write("stdout", _rendered(reply))


async def _read(console: Console) -> bytes:
    pieces = bytearray()
    async for piece in console.stdin():
        pieces += piece
        if len(pieces) > MAX_PAYLOAD:
            message = f"the payload on stdin has more than {MAX_PAYLOAD:,} bytes"
            raise CallError(message)
    return bytes(pieces)


def _payload(tool: str, text: bytes) -> object:
    try:
        return text.decode() if tool in RAW_TEXT else json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"the payload on stdin must be the tool's call as JSON: {error}"
        raise CallError(message) from error


def _rendered(reply: Reply) -> bytes:
    if not isinstance(reply.content, str):
        return json_line(reply.content)
    return reply.content.encode("utf-8", "surrogateescape").removesuffix(b"\n") + b"\n"


def json_line(value: object) -> bytes:
    """One line of JSON. Bytes that are not UTF-8 may be in names; they were escaped there, and are never in text."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
