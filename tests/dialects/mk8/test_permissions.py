"""What `mk8.permissions` promises: who may say yes to what, level by level and caller by caller."""

from __future__ import annotations

import pytest

from provider.dialects.mk8.permissions import (
    WILDCARD,
    Caller,
    Channel,
    Clearance,
    Context,
    Grant,
    PermissionSet,
    Verdict,
    default_resource,
    effective,
    evaluate,
    preauthorised,
)

ACTION = "execute_dangerous_shell"
ONE = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
HOLDS = PermissionSet(grants=(Grant(action=ACTION, resource=ONE),))
YES, ASK, NO = Verdict.APPROVED, Verdict.PENDING, Verdict.DENIED


def agent(clearance: Clearance, default: Clearance = Clearance.UNSET) -> Caller:
    grants = (Grant(action=ACTION, resource=ONE, clearance=clearance),)
    return Caller(
        kind="agent",
        id="asker",
        permissions=PermissionSet(
            grants=grants, default_clearance=default, users=frozenset({"listed"}), agents=frozenset({"listed", "asker"})
        ),
    )


CALLERS = {
    "nobody": None,
    "user": Caller(kind="user", id="somebody"),
    "same-level user": Caller(kind="user", id="peer", permissions=HOLDS),
    "whitelisted user": Caller(kind="user", id="listed"),
    "whitelisted same-level user": Caller(kind="user", id="listed", permissions=HOLDS),
    "agent": Caller(kind="agent", id="somebody"),
    "permitted agent": Caller(kind="agent", id="peer", permissions=HOLDS),
    "whitelisted agent": Caller(kind="agent", id="listed"),
    "whitelisted permitted agent": Caller(kind="agent", id="listed", permissions=HOLDS),
    "the agent itself": Caller(kind="agent", id="asker", permissions=HOLDS),
    "user of another resource": Caller(
        kind="user", id="far", permissions=PermissionSet(grants=(Grant(action=ACTION, resource=OTHER),))
    ),
    "user of another action": Caller(
        kind="user", id="far", permissions=PermissionSet(grants=(Grant(action="access_website", resource=ONE),))
    ),
    "user with the wildcard": Caller(
        kind="user", id="wide", permissions=PermissionSet(grants=(Grant(action=ACTION, resource=WILDCARD),))
    ),
}

#                                1    2    3    4    5
VERDICTS = {
    "nobody":                   (ASK, ASK, ASK, ASK, YES),
    "user":                     (ASK, ASK, ASK, ASK, YES),
    "same-level user":          (YES, YES, ASK, YES, YES),
    "whitelisted user":         (ASK, YES, ASK, YES, YES),
    "whitelisted same-level user": (YES, YES, ASK, YES, YES),
    "agent":                    (ASK, ASK, ASK, ASK, YES),
    "permitted agent":          (ASK, ASK, YES, YES, YES),
    "whitelisted agent":        (ASK, ASK, ASK, YES, YES),
    "whitelisted permitted agent": (ASK, ASK, YES, YES, YES),
    "the agent itself":         (ASK, ASK, ASK, ASK, YES),
    "user of another resource": (ASK, ASK, ASK, ASK, YES),
    "user of another action":   (ASK, ASK, ASK, ASK, YES),
    "user with the wildcard":   (YES, YES, ASK, YES, YES),
}  # fmt: skip


@pytest.mark.parametrize("level", range(1, 6))
@pytest.mark.parametrize("name", CALLERS)
def test_each_level_takes_the_yes_of_its_own_callers(name: str, level: int):
    """The whole table: five levels, every kind of caller."""
    said = evaluate(agent(Clearance(level)), ACTION, ONE, CALLERS[name])
    assert said.verdict is VERDICTS[name][level - 1], said.reason
    assert said.clearance is Clearance(level)


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("resource", [OTHER, None, WILDCARD])
def test_without_a_grant_nobody_can_say_yes(name: str, resource: str | None):
    """Denied, whoever calls, also for no resource and for the wildcard as if it were one."""
    said = evaluate(agent(Clearance.INDEPENDENT), ACTION, resource, CALLERS[name])
    assert said.verdict is NO
    assert "no grant" in said.reason


@pytest.mark.parametrize(
    ("own", "default", "level"),
    [(own, default, own or default or 1) for own in Clearance for default in Clearance],
)
def test_an_unset_clearance_is_the_default_of_its_set_or_else_one(own: Clearance, default: Clearance, level: int):
    """A grant's own level comes first."""
    asker = agent(own, default)
    assert effective(asker.permissions.grants[0], asker.permissions) == level
    assert evaluate(asker, ACTION, ONE, None).clearance == level


def test_the_wildcard_is_every_resource_and_a_resource_of_its_own_comes_first():
    """A wildcard grant holds for what has no other."""
    grants = (
        Grant(action=ACTION, resource=WILDCARD, clearance=Clearance.INDEPENDENT),
        Grant(action=ACTION, resource=ONE, clearance=Clearance.PERMITTED_AGENT),
    )
    asker = Caller(kind="agent", id="asker", permissions=PermissionSet(grants=grants))
    assert evaluate(asker, ACTION, OTHER, None).verdict is YES
    assert evaluate(asker, ACTION, ONE, None).verdict is ASK
    assert evaluate(asker, ACTION, WILDCARD, None).verdict is NO
    assert evaluate(asker, ACTION, None, None).verdict is NO


def test_a_global_action_is_granted_without_a_resource():
    """A grant on resources, even on all, is none for a global action."""
    for resource, verdict in ((None, YES), (WILDCARD, NO), (ONE, NO)):
        grant = Grant(action="create_container", resource=resource, clearance=Clearance.INDEPENDENT)
        asker = Caller(kind="agent", id="asker", permissions=PermissionSet(grants=(grant,)))
        assert evaluate(asker, "create_container", None, None).verdict is verdict


def test_two_grants_for_one_thing_are_refused():
    """Which of two clearances holds is nobody's guess."""
    with pytest.raises(ValueError, match=f"two grants for {ACTION} on {ONE}"):
        PermissionSet(grants=(*HOLDS.grants, Grant(action=ACTION, resource=ONE, clearance=Clearance.INDEPENDENT)))


USERS = {"nobody": None, "a user": CALLERS["user"], "a same-level user": CALLERS["same-level user"]}
PLACES = {
    "nowhere": Channel(id="c"),
    "channel": Channel(id="c", permissions=HOLDS),
    "context": Channel(id="c", context=Context(id="x", permissions=HOLDS)),
    "elsewhere": Channel(
        id="c", permissions=PermissionSet(grants=(Grant(action=ACTION, resource=OTHER),)), context=Context(id="x")
    ),
}


@pytest.mark.parametrize("level", Clearance)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("place", PLACES)
def test_channel_and_context_pre_authorise_by_level(place: str, user: str, level: Clearance):
    """2 and 4 by their grant alone, 1 only for a user who holds it too, 3 never."""
    given = preauthorised(level, ACTION, ONE, PLACES[place], USERS[user])
    expected = place in {"channel", "context"} and (level in {2, 4} or (level == 1 and user == "a same-level user"))
    assert given == ({"channel": "channel c", "context": "context x"}[place] if expected else None)


def test_an_agent_in_the_users_seat_pre_authorises_nothing():
    """At level 1 the session's user counts, and an agent is none."""
    assert preauthorised(Clearance.SAME_LEVEL_USER, ACTION, ONE, PLACES["channel"], CALLERS["permitted agent"]) is None


@pytest.mark.parametrize(
    ("channel", "context", "own", "found"),
    [("c", "x", "a", "c"), (None, "x", "a", "x"), (None, None, "a", "a"), (None, None, None, None)],
)
def test_the_nearest_default_resource_is_taken(channel, context, own, found):
    """The channel's, else the context's, else the agent's."""

    def having(resource: str | None) -> PermissionSet:
        return PermissionSet(default_resources={ACTION: resource} if resource else {"other": "z"})

    place = Channel(id="c", permissions=having(channel), context=Context(id="x", permissions=having(context)))
    assert default_resource(ACTION, place, Caller(kind="agent", id="a", permissions=having(own))) == found
