"""What `mk8.actions` promises: a registered handler answers, and where there is none the reply says so."""

from __future__ import annotations

import pytest

from provider.dialects.mk8.actions import REGISTRABLE, ActionFailed, Actions
from provider.dialects.mk8.call import Call
from provider.dialects.mk8.kinds import ACTIONS, Kind
from provider.dialects.mk8.status import Status

STUBS = [name for name, kind in ACTIONS.items() if kind in {Kind.GLOBAL, Kind.RESOURCE}]


@pytest.mark.parametrize("name", STUBS)
async def test_without_a_handler_the_reply_says_that_nothing_was_done(name: str):
    """Completed, as the seed has it, with action and resource by name."""
    for resource, shown in ((None, "n/a"), ("some-guid", "some-guid")):
        result = await Actions().perform(Call(id="1", action=name, resource=resource))
        assert result.status is Status.COMPLETED
        assert result.result is not None
        assert result.result.startswith(f"{name} on resource {shown} ")
        assert "nothing was done" in result.result


@pytest.mark.parametrize("name", REGISTRABLE)
async def test_a_handler_answers_its_own_action(name: str):
    """It is given the whole call, and no other action."""
    actions, calls = Actions(), []

    async def handler(call: Call) -> str:
        calls.append(call)
        return "done"

    actions.register(name, handler)
    call = Call(id="1", action=name, resource="r")
    assert (await actions.perform(call)).result == "done"
    assert calls == [call]
    assert actions.has(name)
    other = next(action for action in REGISTRABLE if action != name)
    assert "nothing was done" in str((await actions.perform(Call(id="2", action=other))).result)


async def test_what_a_handler_cannot_do_is_a_failure_with_its_words():
    """ActionFailed is for the model; any other exception is the program's, and goes through."""

    async def fails(call: Call) -> str:
        raise ActionFailed("no such website")

    async def breaks(call: Call) -> str:
        raise ZeroDivisionError

    actions = Actions()
    actions.register("access_website", fails)
    actions.register("edit_task", breaks)
    result = await actions.perform(Call(id="1", action="access_website"))
    assert (result.status, result.error) == (Status.FAILED, "no such website")
    with pytest.raises(ZeroDivisionError):
        await actions.perform(Call(id="1", action="edit_task"))


@pytest.mark.parametrize("name", ["fly", "execute_mk8_shell", "execute_dangerous_shell"])
def test_there_are_no_other_actions_to_register(name: str):
    """The shells are the provider's own."""

    async def handler(call: Call) -> str:
        return ""

    with pytest.raises(ValueError, match="there is no action"):
        Actions().register(name, handler)
    actions = Actions()
    actions.register("edit_task", handler)
    with pytest.raises(ValueError, match="has a handler already"):
        actions.register("edit_task", handler)
