"""
`workspace_stdout` and `workspace_stderr`: output as it comes, for whoever watches the agent.

{type, workspace, toolCallId, stream, chunk, seq} and the base fields of the stream protocol: agentId is the session;
agentType and step are the framework's to fill in. `chunk` is text; a character that arrives in two pieces is in the
later event, and bytes that are not UTF-8 are in `chunkBase64` beside it.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable
from typing import Any

from provider.dialects.contract import Context
from provider.dialects.helix.text import whole_characters
from provider.model import Stream


class OutputEvents:
    """The events of one call."""

    def __init__(self, context: Context, workspace: str) -> None:
        self._context = context
        self._workspace = workspace
        self._seq = 0
        self._held: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}

    def listener(self, stream: Stream) -> Callable[[bytes], Awaitable[None]]:
        async def hear(data: bytes) -> None:
            data = self._held[stream] + data
            whole = whole_characters(data)
            self._held[stream] = data[whole:]
            if whole:
                await self._emit(stream, data[:whole])

        return hear

    async def finish(self) -> None:
        """Tell of a character that never became whole."""
        for stream, data in self._held.items():
            if data:
                self._held[stream] = b""
                await self._emit(stream, data)

    async def _emit(self, stream: Stream, data: bytes) -> None:
        text = data.decode(errors="replace")
        raw = {} if text.encode() == data else {"chunkBase64": base64.b64encode(data).decode()}
        event: dict[str, Any] = {
            "type": f"workspace_{stream}",
            "agentId": self._context.session,
            "agentType": "",
            "timestamp": round(time.time() * 1000),
            "step": 0,
            "workspace": self._workspace,
            "toolCallId": self._context.call_id,
            "stream": stream,
            "chunk": text,
            **raw,
            "seq": self._seq,
        }
        self._seq += 1
        await self._context.emit(event)
