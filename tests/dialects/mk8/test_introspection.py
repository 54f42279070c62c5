"""What a script is told about itself is what holds for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provider.dialects.mk8.compile import compile_script
from provider.dialects.mk8.configuration import Sandbox
from provider.dialects.mk8.document import EXAMPLE, documentation, quick_reference, verb_table
from provider.dialects.mk8.introspection import answers, verb_names
from provider.dialects.mk8.script import parse_script
from provider.inside.mk8 import blacklist, words
from provider.inside.mk8.compiled import Rules
from provider.inside.mk8.templates import TEMPLATES
from provider.inside.mk8.verb import World
from provider.inside.mk8.verbs import VERBS

ASKED = sorted(name for name in VERBS if name.startswith("Mk8"))


def sandbox(**fields: Any) -> Sandbox:
    rules = Rules(
        blacklist=blacklist.effective(["my term"]),
        words=words.merged({"BranchNames": ["team/x"], "GitCloneUrls": []}),
        freetext={"enabled": True, "maxLength": 90, "perVerb": {"git tag create": {"enabled": False, "maxLength": 20}}},
    )
    env = {"STAGE": "test", "DB_PASSWORD": "hidden", "API_KEY": "hidden", "AUTHOR": "me"}
    return Sandbox(**{"id": "box1", "root_on_host": Path("/srv/x"), "env": env, "rules": rules, "user": "me", **fields})


def asked(verb: str, *args: str, **fields: Any) -> str:
    """What the step gives when it is executed."""
    box = sandbox(**fields)
    made = compile_script(parse_script({"operations": [{"verb": verb, "args": list(args)}]}), box)
    world = World(root="/workspace", cwd="/workspace", answers=made.answers)
    return str(VERBS[verb].act(world, args))


def test_only_what_is_asked_for_is_sent_along():
    """A script without such a verb carries no answers, one with a verb carries those of that verb."""
    assert answers({"Echo", "FileRead"}, sandbox(), "/workspace") == {}
    assert set(answers({"Echo", "Mk8Info"}, sandbox(), "/workspace")) == {"Mk8Info"}
    assert len(ASKED) == 10
    assert all(answers({verb}, sandbox(), "/workspace") for verb in ASKED)


def test_the_blacklist_that_holds():
    """Custom terms too."""
    lines = asked("Mk8Blacklist").splitlines()
    assert tuple(lines) == blacklist.effective(["my term"])


def test_word_lists():
    """Sorted, with what was added; names in any case; an unknown or empty list is no failure."""
    lines = asked("Mk8Vocab", "branchNAMES").splitlines()
    assert lines == sorted((*words.BUILT_IN["BranchNames"], "team/x"))
    for name in ("Nope", "GitCloneUrls"):
        assert asked("Mk8Vocab", name).startswith(
            f"Word list '{name}' not found. Available: BlameLineRanges, BranchNames,"
        )
    listed = asked("Mk8VocabList").splitlines()
    assert listed == sorted(listed)
    assert "BranchNames (67 words)" in listed
    assert not any(line.startswith("GitCloneUrls") for line in listed)


def test_free_text():
    """As the master switch and the command's own say together."""
    assert asked("Mk8FreeText").splitlines() == [
        "Global Enabled: True",
        "Global MaxLength: 90",
        "Per-verb overrides: 1",
        "  git tag create: Enabled=False, MaxLength=20",
    ]
    assert asked("Mk8FreeText", "git commit") == "Command: git commit\nFreeText Enabled: True\nMaxLength: 90"
    assert asked("Mk8FreeText", "Git Tag Create") == "Command: git tag create\nFreeText Enabled: False\nMaxLength: 20"
    assert asked("Mk8FreeText", rules=Rules()).splitlines()[:2] == ["Global Enabled: False", "Global MaxLength: 200"]


def test_the_environment_without_its_secrets():
    """Sorted; a value is hidden by its name."""
    assert asked("Mk8Env").splitlines() == ["API_KEY=[REDACTED]", "AUTHOR=me", "DB_PASSWORD=[REDACTED]", "STAGE=test"]


def test_the_surroundings():
    """As the container has them; nothing of this machine's own."""
    lines = asked("Mk8Info").splitlines()
    assert lines[:4] == ["SandboxId: box1", "WorkspaceRoot: /workspace", "WorkingDirectory: /workspace", "User: me"]
    assert [line.partition(":")[0] for line in lines[4:]] == [
        *("OS", "Architecture", "ProcessArchitecture", "Runtime", "ProcessorCount", "MachineName"),
    ]
    assert lines[-1] == "MachineName: sandbox"
    assert "/srv/x" not in "\n".join(lines)


def test_templates_and_verbs():
    """128 descriptions in their order; 153 names, sorted."""
    assert asked("Mk8Templates").splitlines() == [template.description for template in TEMPLATES]
    lines = asked("Mk8Verbs").splitlines()
    assert lines == verb_names() == sorted(lines)
    assert len(lines) == 153
    assert not {"ForEach", "If", "Include", "FileWriteMany", "FileCopyMany", "FileDeleteMany"} & set(lines)


@pytest.mark.parametrize("verb", ["Mk8Skills", "Mk8Docs"])
def test_the_documentation_s_example_compiles(verb):
    """What agents are shown works."""
    assert EXAMPLE in asked(verb)
    assert len(compile_script(parse_script(EXAMPLE), sandbox()).steps) == 8


def test_the_documentation_has_every_verb_and_every_template():
    """From the tables; the quick reference fits a page."""
    text = documentation()
    assert all(f"- {name}: " in text for name in VERBS)
    assert all(f"- {template.description}: `{template.usage}`" in text for template in TEMPLATES)
    assert "{" not in text.replace(EXAMPLE, "").split("## Limits")[1].split("## Verbs")[0]
    assert len(quick_reference().splitlines()) < 60


def test_the_table_of_verbs():
    """Every verb has a row with its arguments, its example where there is one, and its number of tests."""
    lines = verb_table({"Echo": 3}, {"Echo": "the text"}).splitlines()
    assert len(lines) == 2 + 159
    assert lines[:2] == ["| verb | arguments | example | tests |", "|---|---|---|---|"]
    assert any(line.startswith("| `Echo` | ") and line.endswith(" | the text | 3 |") for line in lines)
    assert all(line.replace("\\|", "").count("|") == 5 for line in lines)
