"""What `codex.environment` promises: five steps in order, and nothing of the host."""

from __future__ import annotations

import time

import pytest

from provider.dialects.codex.environment import (
    NETWORK_DISABLED,
    EnvironmentPolicy,
    Inherit,
    environment,
    matches,
)
from provider.errors import ConfigError

GIVEN = {
    "PATH": "/usr/bin",
    "HOME": "/home/sandbox",
    "LANG": "C.UTF-8",
    "CI": "true",
    "API_KEY": "k",
    "my_secret": "s",
    "GithubTokenFile": "t",
}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (EnvironmentPolicy(), {"PATH", "HOME", "LANG", "CI"}),
        (EnvironmentPolicy(inherit=Inherit.CORE), {"PATH", "HOME", "LANG"}),
        (EnvironmentPolicy(inherit=Inherit.NONE), set()),
        (EnvironmentPolicy(ignore_default_excludes=True), set(GIVEN)),
        (EnvironmentPolicy(exclude=("c?", "ho*")), {"PATH", "LANG"}),
        (
            EnvironmentPolicy(exclude=("CI",), set={"CI": "no", "API_KEY": "mine"}),
            {*GIVEN} - {"my_secret", "GithubTokenFile"},
        ),
        (EnvironmentPolicy(set={"ADDED": "x"}, include_only=("PATH", "ci")), {"PATH", "CI"}),
        (EnvironmentPolicy(set={"ADDED": "x"}, include_only=("ADD*",)), {"ADDED"}),
        (EnvironmentPolicy(inherit=Inherit.NONE, set={"A": "1"}), {"A"}),
        (EnvironmentPolicy(ignore_default_excludes=True, exclude=("*key*",)), {*GIVEN} - {"API_KEY"}),
    ],
)
def test_steps(policy: EnvironmentPolicy, expected: set[str]):
    """Inherit, default excludes, exclude, set, include_only: each sees what the one before it left."""
    assert expected == set(environment(policy, GIVEN, network=True))


def test_set_wins_over_what_is_inherited():
    """A value that is set replaces the one that was there."""
    assert environment(EnvironmentPolicy(set={"CI": "no"}), GIVEN, network=True)["CI"] == "no"


def test_nothing_comes_from_the_host(monkeypatch: pytest.MonkeyPatch):
    """A variable of this process is not in what a command gets."""
    monkeypatch.setenv("OF_THE_HOST", "1")
    assert "OF_THE_HOST" not in environment(EnvironmentPolicy(), {}, network=True)


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "ld_preload", "BASH_ENV", "PYTHONPATH", "GIT_SSH_COMMAND", "DOCKER_HOST", "http_proxy", "a b"],
)
def test_all_is_what_our_rules_admit(name: str):
    """Variables that steer programs or lead to services are not inherited, whatever the excludes say."""
    policy = EnvironmentPolicy(ignore_default_excludes=True, include_only=("*",))
    assert environment(policy, {name: "x", "KEPT": "1"}, network=True) == {"KEPT": "1"}


def test_every_variable_is_looked_at():
    """The rules hold for the thousandth variable as for the first."""
    many = {f"V{index}": "x" for index in range(1000)} | {"LD_PRELOAD": "x"}
    assert len(environment(EnvironmentPolicy(), many, network=True)) == 1000


@pytest.mark.parametrize("bad", ["LD_PRELOAD", "BASH_ENV", "a=b", "", "BASH_FUNC_x"])
def test_what_no_command_may_have_cannot_be_set(bad: str):
    """A policy that sets the loader's or the shell's variables is refused when it is made."""
    with pytest.raises(ConfigError, match="sets what no command may have"):
        EnvironmentPolicy(set={"GOOD": "1", bad: "x"})


def test_the_operator_may_steer_programs():
    """What is refused to a call can be set by hand."""
    assert environment(EnvironmentPolicy(set={"PYTHONPATH": "lib"}), {}, network=True) == {"PYTHONPATH": "lib"}


def test_missing_network_is_told_after_the_policy():
    """Even include_only does not drop it."""
    policy = EnvironmentPolicy(include_only=("NOTHING",))
    assert environment(policy, GIVEN, network=False) == {NETWORK_DISABLED: "1"}
    assert environment(policy, GIVEN, network=True) == {}


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("PATH", "PATH", True),
        ("path", "PATH", True),
        ("PATH", "MYPATH", False),
        ("PATH", "PATHS", False),
        ("*KEY*", "KEY", True),
        ("*KEY*", "monkeys", True),
        ("A?C", "abc", True),
        ("A?C", "AC", False),
        ("*", "", True),
        ("", "A", False),
        ("[A-Z]*", "ABC", False),
        ("[a]", "[A]", True),
        ("A.C", "ABC", False),
        ("A*C*E", "aXXcYYe", True),
        ("A\nB", "A\nB", True),
        ("A", "A\n", False),
    ],
)
def test_matcher(pattern: str, name: str, fits: bool):
    """Whole names in any case; stars and question marks, and no classes."""
    assert fits is matches(pattern, name)


def test_many_stars_cost_no_time():
    """A pattern of stars does not backtrack."""
    begun = time.monotonic()
    assert not matches("*a" * 40 + "b", "a" * 255)
    assert time.monotonic() - begun < 1
