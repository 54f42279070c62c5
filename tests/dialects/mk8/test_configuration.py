"""What `dialects.mk8.configuration` promises: defaults that allow nothing, and a sandbox that can only add."""

from __future__ import annotations

import json
import stat

import pytest

from provider.dialects.mk8.configuration import (
    FILE_NAME,
    FREE_COMMANDS,
    Base,
    ScriptLimits,
    default_text,
    load_base,
    load_sandbox,
    merged_rules,
    read_base,
    without_comments,
)
from provider.dialects.mk8.errors import SandboxNotFound, SignatureError
from provider.dialects.mk8.registry import Registry
from provider.errors import ConfigError
from provider.inside.mk8 import blacklist, words


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "mk8.shell")


# The file.


def test_a_missing_file_is_made_with_the_defaults(tmp_path):
    """The first reading writes a file for the administrator, which reads as the defaults."""
    folder = tmp_path / "mk8.shell"
    assert load_base(folder) == Base() == read_base(default_text())
    path = folder / FILE_NAME
    assert path.read_text() == default_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_base(folder) == Base()


def test_an_empty_file_is_filled_and_another_one_is_left(tmp_path):
    """Only a file without anything in it is written to."""
    path = tmp_path / FILE_NAME
    path.write_text(" \n")
    assert load_base(tmp_path) == Base()
    assert path.read_text() == default_text()
    path.write_text('{"CustomBlacklist": ["x9"]}')
    assert load_base(tmp_path).custom_blacklist == ("x9",)
    assert path.read_text() == '{"CustomBlacklist": ["x9"]}'


def test_the_defaults_allow_no_free_text_and_no_url():
    """Nothing is switched on by being left out."""
    base = Base()
    assert base.free_text.rules() == {
        "enabled": False,
        "maxLength": 200,
        "perVerb": {name: {"enabled": False} for name in FREE_COMMANDS},
    }
    assert {"git commit", "git merge", "git tag create", "dotnet ef migrations add"} <= set(FREE_COMMANDS)
    assert (base.git_clone_urls, base.git_remote_urls, base.project_bases, base.fragments) == ((), (), (), {})
    assert not base.disable_hardcoded_gigablacklist


def test_a_link_to_nowhere_is_not_written_through(tmp_path):
    """The defaults are written into the folder and nowhere else."""
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    load_base(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"a": 1} // end', {"a": 1}),
        ('{/* one\n two */"a": 1}', {"a": 1}),
        ('// first\n{"a": "// no comment", "b": "/* none */"}', {"a": "// no comment", "b": "/* none */"}),
        (r'{"a": "quote \" // still text"} // "end', {"a": 'quote " // still text'}),
        ('\ufeff{"a": 1}', {"a": 1}),
    ],
)
def test_comments_are_left_out_and_texts_are_not(text, data):
    """`//` and `/* */` are comments outside of texts only."""
    assert json.loads(without_comments(text)) == data


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "is no JSON: .*line 1"),
        ('// one\n/* two\n */ {"a": }', "is no JSON: .*line 3"),
        ("[]", "it: "),
        ('{"Unknown": 1}', "Unknown: Extra inputs"),
        ('{"CustomBlacklist": "x"}', "custom_blacklist"),
        ('{"CustomBlacklist": [1]}', "custom_blacklist"),
        ('{"customBlacklist": [], "CustomBlacklist": []}', "twice"),
        ('{"FreeText": {"enabled": "yes"}}', "enabled"),
        ('{"FreeText": {"maxLength": 0}}', "max_length"),
        ('{"FreeText": {"perVerb": {"git commit": {"enable": true}}}}', "Extra inputs"),
        ('{"DisableHardcodedGigablacklist": 1}', "disable_hardcoded_gigablacklist"),
        ('{"Fragments": {"a b": [{}]}}', "1 to 128 letters"),
        ('{"Fragments": {"a": []}}', "it has operations"),
        ('{"Fragments": {"a": [{}], "A": [{}]}}', "twice"),
        ('{"NetworkWhitelist": ["example.com"]}', r"config\.toml"),
        ('{"ContainerIsolation": {"MaxProcesses": 3}}', r"config\.toml"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text, match):
    """A mistake in the file is an error that names it, never a default."""
    with pytest.raises(ConfigError, match=match):
        read_base(text)


def test_names_are_taken_in_any_case():
    """PascalCase, camelCase and capitals are the same setting."""
    for name in ("GitCloneUrls", "gitCloneUrls", "GITCLONEURLS"):
        assert read_base(json.dumps({name: ["https://example.com/a.git"]})).git_clone_urls
    assert read_base('{"freetext": {"ENABLED": true, "PerVerb": {"git commit": {"MaxLength": 9}}}}').free_text.enabled


def test_a_file_that_is_no_file_is_told(tmp_path):
    """A folder in its place is a mistake of the installation."""
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(ConfigError, match="is no file"):
        load_base(tmp_path)


# What holds in a sandbox.


@pytest.mark.parametrize(
    ("base", "env", "added", "missing"),
    [
        ({}, {}, (), ()),
        ({"CustomBlacklist": [" Danger ", "x"]}, {}, ("danger",), ("x",)),
        ({}, {"MK8_BLACKLIST": "one, TWO ,,x"}, ("one", "two"), ("x", "")),
        ({"CustomBlacklist": ["a9"]}, {"MK8_BLACKLIST": "b9"}, ("a9", "b9"), ()),
        ({"DisableHardcodedGigablacklist": True}, {}, blacklist.OWN_FILES, ("halt",)),
        ({"DisableMk8shellEnvsGigablacklist": True}, {}, (*blacklist.OWN_FILES, "halt"), ()),
        (
            {
                "DisableHardcodedGigablacklist": True,
                "DisableMk8shellEnvsGigablacklist": True,
                "CustomBlacklist": ["a9"],
            },
            {},
            ("a9",),
            ("halt", *blacklist.OWN_FILES),
        ),
    ],
)
def test_blacklists_add_up(base, env, added, missing):
    """Global and sandbox terms are added, trimmed, in lower case; only the global switches take any away."""
    terms = merged_rules(read_base(json.dumps(base)), env).blacklist
    assert set(added) <= set(terms)
    assert not set(missing) & set(terms)
    if not any(name.startswith("Disable") for name in base):
        assert set(blacklist.effective()) <= set(terms)


def test_word_lists_add_up():
    """Global and sandbox words are added to a list whatever the case of its name, and can make a new list."""
    base = read_base('{"Vocabularies": {"branchnames": ["feature/a1"], "Cities": ["Bern"]}, "GitCloneUrls": ["u"]}')
    env = {"MK8_VOCAB_BRANCHNAMES": "feature/b1, feature/c1", "MK8_VOCAB_CITIES": "Rome", "MK8_VOCAB_": "lost"}
    lists = merged_rules(base, env).words
    assert set(lists["BranchNames"]) == {*words.BUILT_IN["BranchNames"], "feature/a1", "feature/b1", "feature/c1"}
    assert lists["Cities"] == ("Bern", "Rome")
    assert lists["GitCloneUrls"] == ("u",)
    assert "" not in lists


@pytest.mark.parametrize(
    ("base", "sandbox", "expected"),
    [
        ({}, None, {"enabled": False, "maxLength": 200, "perVerb": {}}),
        ({"enabled": True}, None, {"enabled": True, "maxLength": 200, "perVerb": {}}),
        ({"enabled": True}, {"enabled": False}, {"enabled": False, "maxLength": 200, "perVerb": {}}),
        ({"maxLength": 50}, {"enabled": True}, {"enabled": True, "maxLength": 50, "perVerb": {}}),
        (
            {"perVerb": {"git commit": {"enabled": False, "maxLength": 10}, "git merge": {"enabled": True}}},
            {"perVerb": {"GIT COMMIT": {"enabled": True}, "git tag create": {"maxLength": 5}}},
            {
                "enabled": False,
                "maxLength": 200,
                "perVerb": {
                    "git commit": {"enabled": True, "maxLength": 10},
                    "git merge": {"enabled": True},
                    "git tag create": {"maxLength": 5},
                },
            },
        ),
    ],
)
def test_a_sandboxs_free_text_wins_where_it_says_something(base, sandbox, expected):
    """Scalars of the sandbox win, commands are merged one by one, and what it does not say stays."""
    env = {} if sandbox is None else {"MK8_FREETEXT_CONFIG": json.dumps(sandbox)}
    assert merged_rules(read_base(json.dumps({"FreeText": base})), env).freetext == expected


@pytest.mark.parametrize("text", ["{", "[]", '{"enabled": 1}', '{"unknown": true}'])
def test_free_text_that_cannot_be_read_is_told(text):
    """A signed environment with broken settings runs nothing."""
    with pytest.raises(ConfigError, match="MK8_FREETEXT_CONFIG"):
        merged_rules(Base(), {"MK8_FREETEXT_CONFIG": text})


# The sandbox.


def test_a_sandbox_is_put_together_from_all_of_it(registry, tmp_path):
    """Registry, environment, configuration and the caller's limits are in one frozen object."""
    registry.register("Box", tmp_path / "root", {"MK8_BLACKLIST": "forbidden", "NAME": "value"})
    base = read_base('{"Fragments": {"Greet": [{"verb": "Echo", "args": ["hi"]}]}, "ProjectBases": ["App"]}')
    limits = ScriptLimits(script_seconds=10)
    sandbox = load_sandbox(registry, "box", base, user="someone", network="open", limits=limits)
    assert (sandbox.id, sandbox.root_on_host, sandbox.user, sandbox.network) == (
        *("Box", tmp_path / "root", "someone", "open"),
    )
    assert sandbox.env == {"MK8_SANDBOX_ID": "Box", "MK8_BLACKLIST": "forbidden", "NAME": "value"}
    assert "forbidden" in sandbox.rules.blacklist
    assert sandbox.rules.project_bases == ("App",)
    assert sandbox.fragments == {"greet": [{"verb": "Echo", "args": ["hi"]}]}
    assert sandbox.limits is limits
    with pytest.raises(AttributeError):
        sandbox.id = "other"


def test_every_script_reads_the_environment_anew(registry, tmp_path):
    """An update holds for the next script, and a tampered file fails it; nothing is cached."""
    registry.register("box", tmp_path / "root", {"N": "1"})
    assert load_sandbox(registry, "box", Base()).env["N"] == "1"
    registry.update("box", {"N": "2"})
    assert load_sandbox(registry, "box", Base()).env["N"] == "2"
    signed = registry.env_path("box").with_name("mk8.shell.signed.env")
    signed.write_text(signed.read_text().replace("N=2", "N=3"))
    with pytest.raises(SignatureError):
        load_sandbox(registry, "box", Base())
    registry.unregister("box")
    with pytest.raises(SandboxNotFound):
        load_sandbox(registry, "box", Base())
