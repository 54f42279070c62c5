"""
Whether an agent may do what it asks for, and who may say yes to it. Pure: no clock, no store.

An agent needs a grant for the action and the resource, its own or that of the wildcard; without one the answer is
Denied. The grant's clearance says whose yes it takes:

    0 Unset              what the permission set has as its default, or else 1
    1 same-level user    a user who holds the same grant
    2 whitelisted user   a user on the set's list, or one who holds the same grant
    3 permitted agent    another agent that holds the same grant; no user
    4 whitelisted agent  an agent on the set's list, or whoever would do for 1, 2 or 3
    5 Independent        nobody's

The contract does not say whether an agent can approve its own job. Here it cannot: it always holds the grant that it
asks by, so levels 3 and 4 would ask nobody.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

WILDCARD: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Stands for every resource, in a grant; a call that names it names nothing."""


class Clearance(enum.IntEnum):
    UNSET = 0
    SAME_LEVEL_USER = 1
    WHITELISTED_USER = 2
    PERMITTED_AGENT = 3
    WHITELISTED_AGENT = 4
    INDEPENDENT = 5


class Verdict(enum.Enum):
    APPROVED = "approved"
    PENDING = "pending"
    """Somebody must say yes."""
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    action: str
    resource: str | None = None
    """A GUID in lower case, or WILDCARD; None for a global action."""
    clearance: Clearance = Clearance.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionSet:
    """What a role may do: an agent's, a user's, a channel's or a context's."""

    grants: tuple[Grant, ...] = ()
    """At most one for each action and resource."""
    default_clearance: Clearance = Clearance.UNSET
    """For grants that have none of their own."""
    users: frozenset[str] = frozenset()
    """Whitelisted, by id."""
    agents: frozenset[str] = frozenset()
    default_resources: Mapping[str, str] = field(default_factory=dict)
    """What an action is done to where a call names no resource."""

    def __post_init__(self) -> None:
        names = [(grant.action, grant.resource) for grant in self.grants]
        if double := next((name for name in names if names.count(name) > 1), None):
            message = f"two grants for {double[0]} on {double[1] or 'no resource'}; which clearance would hold?"
            raise ValueError(message)

    def find(self, action: str, resource: str | None) -> Grant | None:
        """The grant for a resource; its own one comes before the wildcard's."""
        if resource == WILDCARD:
            return None
        wanted = (resource,) if resource is None else (resource, WILDCARD)
        held = {grant.resource: grant for grant in self.grants if grant.action == action}
        return next((held[name] for name in wanted if name in held), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, or who says yes. Trusted: the host program knows who it is."""

    kind: Literal["user", "agent"]
    id: str
    permissions: PermissionSet = field(default_factory=PermissionSet)
    """Its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What several channels have in common."""

    id: str
    permissions: PermissionSet = field(default_factory=PermissionSet)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Where a conversation takes place."""

    id: str
    permissions: PermissionSet = field(default_factory=PermissionSet)
    context: Context | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    verdict: Verdict
    clearance: Clearance
    """The effective one; Unset where there is no grant."""
    reason: str


def evaluate(agent: Caller, action: str, resource: str | None, caller: Caller | None) -> Evaluation:
    """What is said to an agent that asks, where `caller` is the one who could say yes."""
    grant = agent.permissions.find(action, resource)
    if grant is None:
        on = f"resource {resource}" if resource else "no resource"
        reason = f"agent {agent.id} has no grant for {action} on {on}; an administrator can give it one"
        return Evaluation(verdict=Verdict.DENIED, clearance=Clearance.UNSET, reason=reason)
    clearance = effective(grant, agent.permissions)
    if clearance is Clearance.INDEPENDENT:
        return Evaluation(verdict=Verdict.APPROVED, clearance=clearance, reason="the grant needs nobody's approval")
    if caller is not None and _is_enough(clearance, agent, action, resource, caller):
        reason = f"{caller.kind} {caller.id} may approve it"
        return Evaluation(verdict=Verdict.APPROVED, clearance=clearance, reason=reason)
    whose = f"{caller.kind} {caller.id} does not suffice" if caller else "nobody has spoken for it"
    reason = f"{action} needs the approval of {_WHOSE[clearance]}; {whose}"
    return Evaluation(verdict=Verdict.PENDING, clearance=clearance, reason=reason)


def effective(grant: Grant, permissions: PermissionSet) -> Clearance:
    return grant.clearance or permissions.default_clearance or Clearance.SAME_LEVEL_USER


def preauthorised(
    clearance: Clearance, action: str, resource: str | None, channel: Channel, user: Caller | None
) -> str | None:
    """Name the channel or context whose grant stands for an approval, or None. `user` is the session's."""
    given = next((name for name, held in _grants_around(channel) if held.find(action, resource)), None)
    match clearance:
        case Clearance.WHITELISTED_USER | Clearance.WHITELISTED_AGENT:
            return given
        case Clearance.SAME_LEVEL_USER:
            return given if user and user.kind == "user" and user.permissions.find(action, resource) else None
        case _:
            return None


def default_resource(action: str, channel: Channel, agent: Caller) -> str | None:
    """The channel's, else its context's, else the agent's own."""
    sets = (*(held for _, held in _grants_around(channel)), agent.permissions)
    return next((held.default_resources[action] for held in sets if action in held.default_resources), None)


def _grants_around(channel: Channel) -> tuple[tuple[str, PermissionSet], ...]:
    own = (f"channel {channel.id}", channel.permissions)
    return (own, (f"context {channel.context.id}", channel.context.permissions)) if channel.context else (own,)


_WHOSE: Final[Mapping[Clearance, str]] = {
    Clearance.SAME_LEVEL_USER: "a user who holds the same grant",
    Clearance.WHITELISTED_USER: "a whitelisted user, or one who holds the same grant",
    Clearance.PERMITTED_AGENT: "another agent that holds the same grant",
    Clearance.WHITELISTED_AGENT: "a whitelisted agent or user, or one that holds the same grant",
}


def _is_enough(clearance: Clearance, agent: Caller, action: str, resource: str | None, caller: Caller) -> bool:
    holds = caller.permissions.find(action, resource) is not None
    if caller.kind == "agent":
        if caller.id == agent.id:
            return False
        listed = clearance is Clearance.WHITELISTED_AGENT and caller.id in agent.permissions.agents
        return listed or (holds and clearance in {Clearance.PERMITTED_AGENT, Clearance.WHITELISTED_AGENT})
    listed = clearance is not Clearance.SAME_LEVEL_USER and caller.id in agent.permissions.users
    return (listed or holds) and clearance is not Clearance.PERMITTED_AGENT
