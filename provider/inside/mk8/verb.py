"""What a verb is: how many arguments of which kind, what is checked before it runs, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Arguments = Sequence[str | None]
"""Of one step. None at compile time where only the run knows: whatever depends on it is checked again then."""

TEXT, READ, WRITE, URL, HOST, NAME_PATTERN = "text", "read", "write", "url", "host", "pattern"
"""Kinds of arguments. READ and WRITE are paths, under the rules for reading and for writing; NAME_PATTERN is `*`, `?`
and letters of a file's name, never a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What one attempt at one step may see and use, inside the sandbox."""

    root: str
    """The workspace, absolute: /workspace."""
    cwd: str
    """Where ProcRun begins; below the root."""
    user: str = ""
    network: str = "none"
    """`none` or `open`, as the plan has it."""
    output_bytes: int = 1_048_576
    error_bytes: int = 262_144
    deadline: float = float("inf")
    """By time.monotonic(): when the attempt is over. Verbs that loop or wait look at it and raise TimedOut."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What EnvGet may be asked for, already within the allowlist, and what ProcRun gives to its process."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What the introspection verbs answer, from the tables that enforce: by `Verb`, or `Verb argument`."""
    template: Mapping[str, str] | None = None
    """FileTemplate: what stands for each key; its source is in `source`."""
    source: str = ""
    patches: Sequence[tuple[str, str]] = ()
    """FilePatch: find and replace, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a step gave."""

    output: str
    error: str = ""
    """What ProcRun's process wrote to stderr, also on success."""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    name: str
    least: int
    most: int
    kinds: tuple[str, ...]
    """Of each argument in turn; the last one holds for all that follow."""
    describe: str
    """The arguments as the documentation names them, such as `path, [lines 1-1000]`."""
    act: Callable[[World, Sequence[str]], str | Done]
    """Do it and give the output. Paths are as the rules resolved them: absolute, below the root."""
    check: Callable[[Arguments], None] = lambda _: None
    """Whatever can be wrong beyond count and kind: raises CompileError. Skips what is None."""
    control: bool = False
    """ForEach, If, Include and the batch verbs: expanded at compile time, they never act."""
