"""Which variables of the environment are shown."""

from __future__ import annotations

import pytest

from provider.inside.mk8 import allowlist
from provider.inside.mk8.allowlist import ALLOWED, REFUSED, is_allowed, is_redacted


def test_fifteen_names_in_any_case():
    """Exactly the contract's names are allowed."""
    assert len(set(ALLOWED)) == 15
    assert all(is_allowed(name) and is_allowed(name.lower()) for name in ALLOWED)
    assert not any(map(is_allowed, ("", "HOME2", "LD_PRELOAD", "MK8_SANDBOX_ID", "GITHUB_TOKEN", "XDG_RUNTIME_DIR")))


@pytest.mark.parametrize("word", REFUSED)
def test_a_secret_s_name_is_refused_first(word, monkeypatch):
    """Even a name on the list is refused with one of these words in it."""
    monkeypatch.setattr(allowlist, "ALLOWED", (f"MY_{word}_1",))
    assert not is_allowed(f"my_{word}_1".lower())


@pytest.mark.parametrize(
    ("name", "redacted"),
    [("api_key", True), ("DB_PASSWORD", True), ("JWT", True), ("CONNECTION", True), ("AUTHOR", False), ("MODE", False)],
)
def test_which_values_are_hidden(name, redacted):
    """Mk8Env hides by the name alone."""
    assert is_redacted(name) is redacted
