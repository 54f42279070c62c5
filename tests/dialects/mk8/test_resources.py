"""What `mk8.resources` promises: a call is about the resource that it names, or about the nearest one that fits."""

from __future__ import annotations

import pytest

from provider.dialects.mk8.call import Call
from provider.dialects.mk8.permissions import Caller, Channel, PermissionSet
from provider.dialects.mk8.resources import Container, Mismatch, choose_resource, sandbox_of

CONTAINERS = (Container(id="one", sandbox="Alpha"), Container(id="two", sandbox="beta"))
DEFAULTS = PermissionSet(default_resources={"execute_mk8_shell": "two", "access_website": "site"})
CHANNEL = Channel(id="c", permissions=DEFAULTS)
AGENT = Caller(kind="agent", id="a")


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (Call(id="1", action="execute_mk8_shell", resource="one"), "one"),
        (Call(id="1", action="execute_mk8_shell", resource="one", sandbox="beta"), "one"),
        (Call(id="1", action="execute_mk8_shell", sandbox="ALPHA"), "one"),
        (Call(id="1", action="execute_mk8_shell", sandbox="gamma"), None),
        (Call(id="1", action="execute_mk8_shell"), "two"),
        (Call(id="1", action="access_website"), "site"),
        (Call(id="1", action="access_website", sandbox="alpha"), "site"),
        (Call(id="1", action="edit_task"), None),
        (Call(id="1", action="create_container", resource="one"), None),
    ],
)
def test_the_resource_of_a_call(call: Call, found: str | None):
    """Its own, else by its sandbox, else the default; a global action has none."""
    assert choose_resource(call, CONTAINERS, CHANNEL, AGENT) == found


@pytest.mark.parametrize(
    ("resource", "named", "sandbox"),
    [("one", None, "Alpha"), ("one", "alpha", "Alpha"), ("two", "beta", "beta")],
)
def test_a_script_runs_in_the_sandbox_of_its_container(resource: str, named: str | None, sandbox: str):
    """By the container's own name for it."""
    assert sandbox_of(Call(id="1", action="execute_mk8_shell", resource=resource, sandbox=named), CONTAINERS) == sandbox


@pytest.mark.parametrize(
    ("resource", "named", "said"),
    [("one", "beta", "has the sandbox 'Alpha', not 'beta'"), ("site", None, "no mk8.shell container")],
)
def test_a_resource_that_does_not_fit_is_refused(resource: str, named: str | None, said: str):
    """The origin runs in the container's sandbox whatever the call says; a script is written for one of them."""
    with pytest.raises(Mismatch, match=said):
        sandbox_of(Call(id="1", action="execute_mk8_shell", resource=resource, sandbox=named), CONTAINERS)
