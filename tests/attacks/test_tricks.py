"""Every trick, by every way: nothing that a verdict has not judged gets a container. No engine is needed."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping

import pytest
from attacks.case import HERE
from attacks.cases import environment, policy
from attacks.cases.environment import FAMILIES, HELIX_TAKES
from attacks.trick import DENY_LIST, RUN, WAYS, Came, Trick, put, put_all, ways_of

from provider.dialects.codex.environment import EnvironmentPolicy
from provider.dialects.codex.environment import environment as environment_of
from provider.errors import ConfigError
from provider.inside.mk8.environment import of_process
from provider.policy.env import WITH_SECRETS, check_env, denied

pytestmark = pytest.mark.timeout(300)
TRICKS = (*policy.TRICKS, *environment.TRICKS)
GOLDEN = HERE / "golden" / "verdicts.json"
SIGNS = {"refused": "r", "asked": "?", "allowed": "+"}
_LONG = 70

Found = Mapping[tuple[str, str], Came]


@functools.cache
def _found() -> Found:
    return put_all(TRICKS)


@pytest.fixture
def found(installed: None) -> Found:
    """Made once, by the first that asks."""
    return _found()


def marked(tricks: tuple[Trick, ...]) -> list[object]:
    return [pytest.param(trick, id=trick.id, marks=pytest.mark.attack(trick.id)) for trick in tricks]


@pytest.mark.parametrize("trick", marked(TRICKS))
def test_trick(trick: Trick, found: Found) -> None:
    """Refused or asked about, with a reason and without a container; or allowed, and the trick says why."""
    for way in ways_of(trick):
        for spelling in trick.spellings:
            came, excuse = found[way, spelling], trick.excuse(way, spelling)
            assert (came.said == "allowed") == bool(excuse), (way, spelling[:200], came)
            assert (came.containers > 0) == (came.said == "allowed"), (way, spelling[:200])
            assert came.said == "allowed" or came.because.strip(), (way, spelling[:200])
    excused = {(way, spelling) for way, reasons in trick.harmless.items() for spelling in reasons}
    tried = {(way, spelling) for way in ways_of(trick) for spelling in trick.spellings}
    assert excused <= tried


def test_verdicts_are_those_of_the_table(found: Found) -> None:
    """Which of refused and asked it is, by each way, is written down; ATTACKS=golden writes it anew."""
    told: dict[str, object] = {"ways": list(WAYS), "signs": SIGNS | {"not put": "-"}}
    for trick in TRICKS:
        rows = {
            _short(spelling): "".join(
                SIGNS[found[way, spelling].said] if way in ways_of(trick) else "-" for way in WAYS
            )
            for spelling in trick.spellings
        }
        assert len(rows) == len(set(trick.spellings)), "two spellings look alike"
        told[trick.id] = rows
    text = json.dumps(told, indent=1, ensure_ascii=True) + "\n"
    if os.environ.get("ATTACKS") == "golden":
        GOLDEN.write_text(text)
    assert json.loads(GOLDEN.read_text()) == told


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text)} characters)"


@pytest.mark.parametrize("way", WAYS)
def test_daily_work_is_allowed(way: str, installed: None) -> None:
    """A way by which nothing runs would make every trick fail; by each of these something does."""
    text = {"shell_cmd": "ls", "execute_mk8_shell": "cat f"}.get(way, "git status")
    came = put(way, {text: WAYS[way].payload(text)})[text]
    assert (came.said, came.containers) == ("allowed", 1)


DENIED = ("E24", "E26", "E27", "E30", "E32", "E34", "E36", "E37", "E23", "E21", "E25a", "E25b")
"""These are about what an allow list covers: a deny list alone says nothing of them, and of siblings it cannot."""


@pytest.mark.parametrize("trick", marked(tuple(trick for trick in policy.TRICKS if trick.id not in DENIED)))
def test_a_deny_list_alone_is_not_got_around(trick: Trick, installed: None) -> None:
    """Where everything but `curl` and `rm` may run, these are found in every spelling, or it is asked about."""
    spellings = [text for text in trick.spellings if "curl" in text or "rm" in text]
    came = put(DENY_LIST, {text: {"command": text} for text in spellings})
    assert {text[:200]: one for text, one in came.items() if one.said == "allowed" or one.containers} == {}


@pytest.mark.parametrize("text", ["find . {-exec,curl} e ';'", "find . $x", "env $x", "xargs {curl,e}"])
def test_a_deny_list_is_not_got_around_by_words_that_only_the_shell_knows(text: str, installed: None) -> None:
    """Which command these run is known when they run."""
    assert put(DENY_LIST, {text: {"command": text}})[text].said == "asked"


# Variables.


@pytest.mark.parametrize("family", [pytest.param(name, marks=pytest.mark.attack(name)) for name in FAMILIES])
def test_variables_of_a_call(family: str, installed: None) -> None:
    """`workspace_run` takes an environment, and refuses those that steer the programs of its list."""
    payloads = {name: {"command": "ls", "env": {name: "x"}} for name in FAMILIES[family]}
    came = put("workspace_run", payloads)
    assert {name for name, one in came.items() if one.containers} == set(HELIX_TAKES.get(family, ()))


@pytest.mark.parametrize("family", [pytest.param(name, marks=pytest.mark.attack(name)) for name in FAMILIES])
def test_variables_are_on_the_provider_s_own_list(family: str) -> None:
    """In either case of letters."""
    for name in FAMILIES[family]:
        assert denied(name), name
        assert denied(name.swapcase()), name


@pytest.mark.parametrize("family", [pytest.param(name, marks=pytest.mark.attack(name)) for name in FAMILIES])
def test_variables_that_are_inherited_or_signed(family: str) -> None:
    """Codex inherits none of them, whatever it is given; a process of mk8.shell has none of a signed environment's."""
    given = dict.fromkeys(FAMILIES[family], "x")
    inherited = environment_of(EnvironmentPolicy(), given, network=False)
    own = {"PATH", "HOME", "TMPDIR", "PWD", "path"} if family == "F3" else set()
    assert inherited.keys() & given.keys() <= own
    passed = of_process(given)
    assert passed.keys() & given.keys() <= {"HOME", "PATH", "TMPDIR"}
    assert "x" not in {passed["PATH"], passed["TMPDIR"]}


@pytest.mark.parametrize("family", [pytest.param(name, marks=pytest.mark.attack(name)) for name in ("F1", "F2")])
def test_not_even_an_operator_sets_the_loader_s_and_the_shell_s(family: str) -> None:
    """Of Codex's environment; a folder of settings is easier to change than an image."""
    for name in FAMILIES[family]:
        with pytest.raises(ConfigError, match=name):
            EnvironmentPolicy(set={name: "x"})


@pytest.mark.attack("F12")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_the_provider_s_environment_is_handed_on(
    way: str, installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No secret of the process, by name or by value, is in what a sandbox is given; and such names are never copied."""
    names = ("AWS_SECRET_ACCESS_KEY", "GOOGLE_TOKEN", "AZURE_X", "MY_PASSWORD", "GH_TOKEN", "LD_PRELOAD_X", "PLAIN")
    for name in names:
        monkeypatch.setenv(name, f"ghp_canary_{name}")
    text = {"shell_cmd": "ls", "execute_mk8_shell": "cat f"}.get(way, "git status")
    given = put(way, {text: WAYS[way].payload(text)})[text].given
    assert given
    assert "canary" not in given
    assert [name for name in names if name in given] == []
    assert [name for name in names[:5] if not denied(name, WITH_SECRETS)] == []


MALFORMED = {
    "a sign": {"A=B": "x"},
    "no name": {"": "x"},
    "NUL in a name": {"A\0B": "x"},
    "NUL in a value": {"A": "x\0y"},
    "a newline": {"A\nB": "x"},
    "a function": {"BASH_FUNC_ls%%": "() { id; }"},
    "a megabyte": {"A": "x" * 2**20},
    "five thousand": {f"A{number}": "x" for number in range(5000)},
    "no text": {"A": "\ud800"},
    "a blank": {"A B": "x"},
}


@pytest.mark.attack("F14")
@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_variables_are_refused(kind: str, installed: None) -> None:
    """By the contract that takes variables from a model, with a reason, and by the table for all others."""
    came = put("workspace_run", {kind: {"command": "ls", "env": MALFORMED[kind]}})[kind]
    assert (came.said, came.containers) == ("refused", 0)
    assert check_env(MALFORMED[kind])


@pytest.mark.attack("F15")
def test_no_variable_is_given_twice() -> None:
    """Not even in another case of letters: which of the two a program sees is nobody's choice."""
    assert [fault.name for fault in check_env([("A", "1"), ("B", "1"), ("a", "2")])] == ["a"]


def test_every_way_is_a_tool_or_the_core() -> None:
    """A misspelt tool would refuse everything."""
    from provider.dialects import DIALECTS

    assert {way.tool for way in WAYS.values()} - {RUN} <= DIALECTS.keys()
