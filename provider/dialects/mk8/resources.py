"""Which resource a call is about, where it does not say so itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from provider.dialects.mk8.call import Call
from provider.dialects.mk8.kinds import Kind
from provider.dialects.mk8.permissions import Caller, Channel, default_resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A resource in which safe shell scripts run."""

    id: str
    """A GUID in lower case."""
    sandbox: str
    """The mk8.shell sandbox that is its own, by its registered name."""


class Mismatch(Exception):
    """A safe shell call whose resource does not fit; the text goes to the model."""


def choose_resource(call: Call, containers: Iterable[Container], channel: Channel, agent: Caller) -> str | None:
    """
    The resource of a call: its own, else the container with its sandbox, else the default around it.

    None for global actions, and where there is none; the caller says Denied to the latter.
    """
    if call.kind is Kind.GLOBAL:
        return None
    if call.resource:
        return call.resource
    if call.kind is Kind.SAFE_SHELL and call.sandbox:
        # A name that no container has does not fall back to another sandbox: the script was written for that one.
        return next((container.id for container in containers if _same(container.sandbox, call.sandbox)), None)
    return default_resource(call.action, channel, agent)


def sandbox_of(call: Call, containers: Iterable[Container]) -> str:
    """
    Name the sandbox that a permitted safe shell call runs in.

    Raises:
        Mismatch: the resource is no container, or that of another sandbox than the call names.
    """
    container = next((container for container in containers if container.id == call.resource), None)
    if container is None:
        message = f"resource {call.resource} is no mk8.shell container; give the id of one, or a sandboxId"
        raise Mismatch(message)
    if call.sandbox and not _same(container.sandbox, call.sandbox):
        message = (
            f"resource {call.resource} has the sandbox {container.sandbox!r}, not {call.sandbox!r}; "
            "leave sandboxId out, or give the container of that sandbox"
        )
        raise Mismatch(message)
    return container.sandbox


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.strip().casefold()
