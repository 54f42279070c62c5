"""
The dangerous shell: what to run for a command that nobody has read, and what its outcome is called.

Pure. The origin runs it on the machine itself, without an end; here it is one command in a sandbox of its own, under a
time-out and caps, as the uid of its SystemUser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from provider.dialects.contract import Rejected
from provider.dialects.mk8.call import Result
from provider.dialects.mk8.kinds import Shell
from provider.dialects.mk8.status import Status
from provider.model import Outcome, State

TIMEOUT: Final = 300.0
"""Seconds; the origin has none, its later versions give tools as much as this."""
OUTPUT_BYTES: Final = 1_048_576
ERROR_BYTES: Final = 262_144
"""What is kept of each stream, of its end; as much as a step of a script may give."""
NO_OUTPUT: Final = "(no output)"

_MAX_WORD: Final = 131_071
"""Bytes of one argument that Linux hands to a program: MAX_ARG_STRLEN less its NUL."""
_GIT: Final = {"GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}
"""Nobody is there to write a message or a password: without these, git waits until its time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemUser:
    """The resource that a dangerous shell runs as. Directories are those of the sandbox."""

    id: str
    """A GUID in lower case."""
    uid: int
    gid: int
    working_directory: str | None = None
    sandbox_root: str | None = None

    @property
    def directory(self) -> str | None:
        """Where commands begin; None leaves it to the provider, which begins at the workspace."""
        return self.working_directory or self.sandbox_root


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What to hand to the provider."""

    argv: tuple[str, ...]
    cwd: str | None
    user: str
    """`uid:gid`."""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = TIMEOUT


def run_for(shell: Shell, command: str, user: SystemUser) -> Run:
    """Raises Rejected: this shell, or this command, cannot be run."""
    argv = argv_for(shell, command)
    env = _GIT if shell is Shell.GIT else {}
    return Run(argv=argv, cwd=user.directory, user=f"{user.uid}:{user.gid}", env=env)


def argv_for(shell: Shell, command: str) -> tuple[str, ...]:
    """Raises Rejected."""
    if not command.strip() or "\0" in command:
        message = "command is blank, or has a NUL character; give the text that the shell is to read"
        raise Rejected(message)
    if len(command.encode("utf-8", "surrogateescape")) > _MAX_WORD:
        message = f"command is longer than {_MAX_WORD} bytes; write it to a file first and run that"
        raise Rejected(message)
    match shell:
        case Shell.BASH:
            return ("bash", "-c", command)
        case Shell.POWERSHELL:
            return ("pwsh", "-NoProfile", "-NonInteractive", "-Command", command)
        case Shell.GIT:
            # Split on spaces and nothing else, by the contract: quotes are letters here.
            return ("git", *filter(None, command.split(" ")))
        case Shell.COMMAND_PROMPT:
            message = "CommandPrompt is Windows' cmd.exe, and sandboxes here are Linux; use shellType Bash"
            raise Rejected(message)


def answer(call_id: str, shell: Shell, outcome: Outcome) -> Result:
    """Stdout if it went well; else how it ended, and stderr."""
    stdout = _tail(outcome.stdout, OUTPUT_BYTES, cut=outcome.stdout_truncated)
    if outcome.status is State.COMPLETED:
        return Result(id=call_id, status=Status.COMPLETED, result=stdout if stdout.strip() else NO_OUTPUT)
    stderr = _tail(outcome.stderr, ERROR_BYTES, cut=outcome.stderr_truncated).strip()
    error = "; ".join(filter(None, (_ending(shell, outcome), stderr)))
    # What was written before the failure is often the reason for it.
    return Result(id=call_id, status=Status.FAILED, result=stdout if stdout.strip() else None, error=error)


def _ending(shell: Shell, outcome: Outcome) -> str:
    """The first that holds."""
    endings = (
        (outcome.timed_out, f"timed out after {outcome.duration_ms / 1000:.0f} s"),
        (outcome.status is State.CANCELED, "cancelled"),
        (outcome.ending.error_number == _ENOENT, f"{shell} is not in this image"),
        (outcome.error is not None, f"{shell} could not be started: {outcome.error}"),
        (outcome.oom_killed, "ended for want of memory"),
        (outcome.output_limited, "ended because it wrote without end"),
        (outcome.over_quota != "", f"ended: {outcome.over_quota}"),
        (outcome.signal is not None, f"ended by signal {outcome.signal}"),
        (True, f"exit code {outcome.exit_code}"),
    )
    return next(text for holds, text in endings if holds)


_ENOENT: Final = 2  # Linux's, in the sandbox; whatever the host is


def _tail(data: bytes, most: int, *, cut: bool) -> str:
    """The last bytes, from a character on; said where something is missing."""
    kept = data[-most:]
    if len(kept) < len(data):
        kept = kept.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a character whose beginning is gone
    text = kept.decode("utf-8", "replace")
    if cut:
        return f"{text}\n(more was written than is kept)"
    return text if len(kept) == len(data) else f"(cut: the last {len(kept)} bytes)\n{text}"
