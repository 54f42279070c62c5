"""
The Helix Shell module: `Shell` for programs, and the tool `workspace_run` for models.

Where this differs from the original, it is stricter, or says what the original left open (tests/dialects/test_helix.py
has the list with reasons): no shell reads a command without globs; `<` and `$NAME` are refused; variables that
steer listed programs are denied beyond the eight; `maxDurationMs` is also the most a model can ask for, and has a
default; a time-out is exit code 124 and an abort -1; output cannot close its tags. New: `Shell.spawn`.
"""

from provider.dialects.helix.allowlist import admit
from provider.dialects.helix.config import ShellConfig
from provider.dialects.helix.result import RunResult, run_succeeded
from provider.dialects.helix.shell import Shell, Signal
from provider.dialects.helix.tool import Helix, dialect, parse, tool_for

TOOLS = (tool_for(),)

__all__ = [
    "TOOLS",
    "Helix",
    "RunResult",
    "Shell",
    "ShellConfig",
    "Signal",
    "admit",
    "dialect",
    "parse",
    "run_succeeded",
    "tool_for",
]
