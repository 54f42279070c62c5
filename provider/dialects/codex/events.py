"""Events in the contract's shape: names, fields and their order, each output piece bounded."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from provider.dialects.codex.parsed_cmd import Parsed
from provider.model import Stream

Fields = dict[str, Any]

DELTA_BYTES: Final = 8192
MAX_DELTAS: Final = 10_000
"""Of each stream. The capture goes on after that."""
NEVER_RAN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What every event of one call says."""

    call_id: str
    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    source: Source
    argv: tuple[str, ...]
    cwd: str
    """In the sandbox."""
    parsed_cmd: Sequence[Parsed]
    """What it looks like to a person; every event of the call has it."""

    def begin(self) -> Fields:
        return {"type": "exec_command_begin", **self._fields()}

    def delta(self, stream: Stream, data: bytes) -> Fields:
        chunk = base64.b64encode(data).decode()
        return {
            "type": "exec_command_output_delta",
            "call_id": self.source.call_id,
            "stream": stream,
            "chunk": chunk,
        }

    def approval_request(self, reason: str) -> Fields:
        asked = {"command": list(self.argv), "cwd": self.cwd, "parsed_cmd": list(self.parsed_cmd)}
        return {"type": "exec_approval_request", **_of(self.source), **asked, **_reason(reason)}

    def end(
        self, *, stdout: str, stderr: str, aggregated: str, exit_code: int, seconds: float, formatted: str
    ) -> Fields:
        return {
            "type": "exec_command_end",
            **self._fields(),
            "stdout": stdout,
            "stderr": stderr,
            "aggregated_output": aggregated,
            "exit_code": exit_code,
            "duration": _duration(seconds),
            "formatted_output": formatted,
        }

    def never_ran(self, message: str) -> Fields:
        """A rejection, or a program that could not be started: the message is all there is."""
        return self.end(
            stdout="", stderr=message, aggregated=message, exit_code=NEVER_RAN, seconds=0, formatted=message
        )

    def _fields(self) -> Fields:
        about = {"command": list(self.argv), "cwd": self.cwd, "parsed_cmd": list(self.parsed_cmd)}
        return {**_of(self.source), **about, "source": "agent"}


def patch_approval_request(source: Source, changes: Mapping[str, Fields], reason: str) -> Fields:
    return {"type": "apply_patch_approval_request", **_of(source), "changes": dict(changes), **_reason(reason)}


def patch_begin(source: Source, changes: Mapping[str, Fields], *, asked: bool) -> Fields:
    return {"type": "patch_apply_begin", **_of(source), "auto_approved": not asked, "changes": dict(changes)}


def patch_end(source: Source, changes: Mapping[str, Fields], *, stdout: str, stderr: str, success: bool) -> Fields:
    said = {"stdout": stdout, "stderr": stderr, "success": success}
    return {"type": "patch_apply_end", **_of(source), **said, "changes": dict(changes)}


def turn_diff(unified_diff: str) -> Fields:
    return {"type": "turn_diff", "unified_diff": unified_diff}


def pieces(data: bytes) -> Sequence[bytes]:
    return [data[at : at + DELTA_BYTES] for at in range(0, len(data), DELTA_BYTES)]


def _of(source: Source) -> Fields:
    return {"call_id": source.call_id, "turn_id": source.turn_id}


def _reason(reason: str) -> Fields:
    return {"reason": reason} if reason else {}


def _duration(seconds: float) -> Fields:
    whole, rest = divmod(round(seconds * 1e9), 10**9)
    return {"secs": whole, "nanos": rest}
