"""
What a tool contract is, seen from the core: parse a call, judge it by its own rules, run it, render the reply.

A contract is one module with `TOOLS` and `dialect(host, tables)`, which gives an object with `call` and `check`. What
the payload says is untrusted; what the context says is not. A call that the contract itself turns away (`Rejected`)
never reaches the provider; whatever comes back from there, an outcome or an error, has a reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from provider.lease import Lease
from provider.model import Limits, Outcome, Verdict
from provider.spawned import Spawned

Emit = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Takes one event in the contract's own shape."""


async def emit_nothing(event: Mapping[str, Any]) -> None:  # noqa: ARG001 - nobody listens
    return


@dataclass(slots=True)
class Teller:
    """Sends events. What a listener raises is kept, and ends nothing."""

    emit: Emit
    errors: list[Exception] = field(default_factory=list)

    async def __call__(self, event: Mapping[str, Any]) -> None:
        try:
            await self.emit(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the listener's
            self.errors.append(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What a model is told of a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who calls, and from where. Trusted."""

    workspace: Path
    """The project root, on the host; /workspace in the sandbox."""
    session: str = ""
    call_id: str = ""
    emit: Emit = emit_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that was understood: what to run, and what the contract's rules say of it."""

    argv: Sequence[str] | str
    wishes: Mapping[str, Any] = field(default_factory=dict)
    """Further options of `Provider.run`, such as cwd, env, timeout, artifacts, background."""
    judged: Verdict | None = None
    remember: tuple[str, ...] = ()
    """What a yes for the session would cover."""
    call: Any = None
    """The call itself, in the contract's own form, for the reply."""


class Rejected(Exception):
    """The contract turns the call away: a mistake in it, or a rule of its own. Nothing is judged, nothing runs."""

    def __init__(self, text: str, *, kind: str = "validation_error") -> None:
        super().__init__(text)
        self.text = text
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer in the contract's own shape."""

    content: Any
    """Text, or JSON data."""
    success: bool
    """Only a command that exited with 0, whose listeners all held, reads as success."""


class Host(Protocol):
    """The provider, as far as contracts use it."""

    @property
    def limits(self) -> Limits:
        """What a sandbox may use unless a call says otherwise."""

    async def run(self, argv: Sequence[str] | str, **options: Any) -> Outcome: ...

    async def spawn(self, argv: Sequence[str] | str, **options: Any) -> Spawned: ...

    def judge(self, argv: Sequence[str] | str, judged: Verdict | None, *, script: str = "") -> Verdict:
        """The contract's own verdict with what rules and settings add to it."""

    async def cancel(self, run_id: str) -> bool: ...

    async def stop(self, *, session: str) -> int: ...

    def leases(self, session: str | None = None) -> tuple[Lease, ...]: ...

    def lease(self, name: str) -> Lease | None: ...


class Dialect(Protocol):
    """One contract, for one provider, with whatever it remembers between calls."""

    async def call(self, tool: str, payload: object, context: Context) -> Reply:
        """Answer a call. Whatever goes wrong, there is a reply; only a cancelled task raises."""

    def check(self, tool: str, payload: object, context: Context) -> Verdict:
        """What would be said to this call. No container, no approver."""


@runtime_checkable
class Closing(Protocol):
    """A contract that keeps something open for as long as its provider is."""

    async def close(self) -> None: ...
