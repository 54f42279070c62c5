"""What `provider.policy` promises: a reason for every no."""

from __future__ import annotations

import pytest

from provider.model import Decision, Request
from provider.policy import judge
from provider.settings import Settings


def request(user: str) -> Request:
    return Request(argv=("true",), image="i", user=user)


def test_strictest_decision_is_the_largest():
    """Of several rules the strictest wins by `max`."""
    assert max(Decision) is Decision.REFUSE
    assert Decision.ALLOW < Decision.ASK < Decision.REFUSE


@pytest.mark.parametrize("user", ["1000:1000", "1:0", "10:0", "1000:0"])
def test_a_person_may_run(user: str):
    """A uid other than 0 is allowed without a word, whatever the setting."""
    for allow_root in (True, False):
        verdict = judge(request(user), Settings(allow_root=allow_root))
        assert (verdict.decision, verdict.reasons) == (Decision.ALLOW, ())


def test_root_may_run_where_the_setting_says_so():
    """A root-owned workspace works out of the box."""
    assert judge(request("0:0"), Settings(allow_root=True)).decision is Decision.ALLOW


@pytest.mark.parametrize("user", ["0:0", "0:1000", "00:0", "0000000000:1000", "\u0660:0"])
def test_root_is_refused_where_the_setting_is_off(user: str):
    """With allow_root off, uid 0 is refused in every spelling that a plan would take, and told what to do."""
    verdict = judge(request(user), Settings(allow_root=False))
    assert verdict.decision is Decision.REFUSE
    assert "allow_root" in verdict.reasons[0]
