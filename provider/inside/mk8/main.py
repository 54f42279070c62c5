"""
The program in the sandbox: a compiled script on stdin, one line of JSON for each event on stdout, the result last.

Nothing else can get onto stdout by accident: the descriptor is moved away before anything runs. Exit status: 0 when all
steps went well, 1 when not, 2 when the input is no compiled script (said in one line on stderr).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from .compiled import Compiled
from .execute import execute

INPUT_BYTES: Final = 64 * 2**20
"""More than any script that the host lets through becomes."""
SUCCEEDED, FAILED, BROKEN = 0, 1, 2


def program() -> int:
    """Everything from stdin to the exit status; for `sys.exit`."""
    events = os.dup(1)  # not inherited by processes
    os.dup2(2, 1)
    try:
        return run(_read(0), lambda line: _write(events, line))
    except BrokenPipeError:  # nobody listens any more, so nobody is to be told
        return FAILED


def run(data: bytes, write: Callable[[bytes], None]) -> int:
    """Execute what the data says, and write the events."""
    try:
        if len(data) > INPUT_BYTES:
            message = f"more than {INPUT_BYTES} bytes"
            raise ValueError(message)
        compiled = Compiled.from_json(json.loads(data))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        sys.stderr.write(f"mk8: stdin is no compiled script: {type(error).__name__}: {error}\n")
        return BROKEN

    def emit(event: Mapping[str, Any]) -> None:
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        write(text.encode("utf-8", "backslashreplace") + b"\n")  # which is how JSON spells half a surrogate pair, too

    if any(step.verb == "ProcRun" for step in (*compiled.steps, *compiled.cleanup)):
        from .process import adopt_orphans

        adopt_orphans()
    result = execute(compiled, emit)
    emit({"event": "result", "result": result})
    return SUCCEEDED if result["allSucceeded"] else FAILED


def _read(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    while sum(map(len, pieces)) <= INPUT_BYTES and (piece := os.read(descriptor, 2**20)):
        pieces.append(piece)
    return b"".join(pieces)


def _write(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
