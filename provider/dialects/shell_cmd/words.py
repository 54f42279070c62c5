"""The contract's own words for everything that goes wrong. Programs compare them; each stands here once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# The payload.


def invalid(message: str) -> str:
    return f"Tool parameter validation failed for shell_cmd: {message}"


def not_an_object(kind: str) -> str:
    return invalid(f"Tool arguments must be an object, got: {kind}")


def missing(name: str) -> str:
    return f"Required parameter '{name}' is missing or empty"


def unknown(name: object) -> str:
    return f"Unknown parameter '{name}' is not allowed"


def no_text(name: str) -> str:
    return f"Parameter '{name}' holds a lone surrogate, which is no character"


def wrong_type(name: str, wanted: str, kind: str) -> str:
    return f"Parameter '{name}' must be {wanted}, got: {kind}"


# The command and its arguments.

BLANK: Final = "Invalid command: command must be a non-empty string."
COMMAND_SYNTAX: Final = (
    "Invalid command: shell control syntax is not allowed (`&&`, `||`, `|`, `;`, redirects, command substitution, "
    "backgrounding). Provide a single executable in `command` and pass arguments via `parameters`."
)
COMMAND_FORMAT: Final = (
    "Invalid command format: provide a single executable in `command` and pass all arguments as separate `parameters` "
    "tokens."
)
COMMAND_EXECUTABLE: Final = "Invalid command executable: `command` must be a single token without whitespace."
COMMAND_NUL: Final = "Invalid command: a NUL character is not allowed in `command`."


def parameter_syntax(parameter: str) -> str:
    return f'Invalid parameter: shell control syntax is not allowed in parameters (received "{parameter}").'


def parameter_nul(parameter: str) -> str:
    return f'Invalid parameter: a NUL character is not allowed in parameters (received "{parameter}").'


def too_many_paths(most: int) -> str:
    return f"Invalid parameter: more than {most} possible paths in parameters; put them into a file."


def inline(text: str, trusted: Path) -> str:
    return (
        f'Working directory mismatch: inline script execution "{text}" is not allowed. Use direct command + parameters '
        f'inside world working directory "{trusted}".'
    )


# Places.


def outside(what: str, path: str, trusted: Path) -> str:
    return f'Working directory mismatch: {what} "{path}" is outside world working directory "{trusted}".'


def directory_outside(path: str, trusted: Path) -> str:
    return f"{outside('requested directory', path, trusted)} Update world working_directory first."


def no_directory(path: str, trusted: Path) -> str:
    return (
        f'Working directory mismatch: requested directory "{path}" is not a directory of world working directory '
        f'"{trusted}".'
    )


def artifact_missing(path: str, why: str = "") -> str:
    return f'Artifact not found: "{path}"{f" ({why})" if why else ""}'


def artifact_no_file(path: str) -> str:
    return f'Artifact path is not a file: "{path}"'


# Risk, permission, approval.

READ_ONLY: Final = "shell_cmd is blocked by the current permission level (read)."
ASK_REASON: Final = 'world permission level is "ask"'


def blocked(reason: str) -> str:
    return f"Blocked dangerous operation: {reason}. This shell command cannot be executed."


def nobody_to_ask(reason: str) -> str:
    """`ASK_REASON` is the one reason that is no risk."""
    if reason == ASK_REASON:
        return 'Approval required: world-level permission is "ask" but HITL approval context is unavailable.'
    return f"Approval required: command classified as {reason}. HITL approval context is unavailable."


def not_approved(reason: str, why: str) -> str:
    if reason == ASK_REASON:
        return f'Command not executed: world permission is "ask" and the request was not approved ({why}).'
    return f"Command not executed: approval required for {reason} and request was not approved ({why})."


# Endings, and failures of our own side.

CANCELED: Final = "Command execution canceled by user"


def timed_out(milliseconds: str) -> str:
    return f"Command execution timed out after {milliseconds}ms"


def exited(code: int | None) -> str:
    return f"Command exited with code {'null' if code is None else code}"


def not_started(command: str, error: str) -> str:
    return f"spawn {command}: {error}"


def not_run(what: str) -> str:
    """The contract has no words for this; these are in none of its other texts, so nobody mistakes it for them."""
    return f"Shell command could not be run: {what}"
