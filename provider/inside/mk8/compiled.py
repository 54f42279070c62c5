"""
A compiled script, as the host hands it to the sandbox: flat steps with everything decided that can be, and the rules by
which the rest is checked again once its values are known. Plain JSON, so that both sides read the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """An `If`: looked at right before its step."""

    kind: str
    args: tuple[str, ...]
    once: int | None = None
    """Steps that come from one `If`, such as a batch, share this number: it is looked at before the first of them that
    is reached, and the answer holds for the others, since `$PREV` is another one by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    verb: str
    args: tuple[str, ...]
    """As written, with `$NAME` where only the run knows the value."""
    retries: int
    timeout: float
    """Seconds of one attempt."""
    label: str | None = None
    on_failure: str | None = None
    """The label of a later step."""
    capture: str | None = None
    guards: tuple[Guard, ...] = ()
    """All of them must hold."""
    cwd: str | None = None
    source: str | None = None
    template: Mapping[str, str] | None = None
    patches: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a step is held against, at compile time and again at run time."""

    blacklist: tuple[str, ...] = ()
    """Effective patterns, in lower case."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Word lists of the templates, by name, with what configuration and sandbox add."""
    freetext: Mapping[str, Any] = field(default_factory=dict)
    """{"enabled": bool, "maxLength": int, "perVerb": {"git commit": {"enabled": bool, "maxLength": int}}}"""
    project_bases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    root: str
    user: str
    network: str
    steps: tuple[Step, ...]
    cleanup: tuple[Step, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """Built in (WORKSPACE, CWD, USER) and of the signed environment; names in upper case."""
    rules: Rules = field(default_factory=Rules)
    answers: Mapping[str, str] = field(default_factory=dict)
    failure_mode: str = "StopOnFirstError"
    retry_delay: float = 2.0
    script_timeout: float = 300.0
    output_bytes: int = 1_048_576
    error_bytes: int = 262_144
    pipes: bool = False
    """Whether `$PREV` is the output of the step before."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Compiled:
        rules = Rules(
            blacklist=tuple(data["rules"]["blacklist"]),
            words={name: tuple(words) for name, words in data["rules"]["words"].items()},
            freetext=data["rules"]["freetext"],
            project_bases=tuple(data["rules"]["project_bases"]),
        )
        lists = {name: tuple(map(_step, data[name])) for name in ("steps", "cleanup")}
        return cls(**{**data, "rules": rules, **lists})


def _step(data: Mapping[str, Any]) -> Step:
    guards = tuple(Guard(**{**guard, "args": tuple(guard["args"])}) for guard in data["guards"])
    patches = tuple((find, replace) for find, replace in data["patches"])
    return Step(**{**data, "args": tuple(data["args"]), "guards": guards, "patches": patches})
