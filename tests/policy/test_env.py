"""What `provider.policy.env` promises: no variable makes a harmless program run something else."""

from __future__ import annotations

import pytest

from provider.policy.env import CODEX, HELIX, MK8, PROVIDER, TABLES, WITH_SECRETS, EnvFault, Table, check_env, denied

# security.md F1 to F11 and F13, a few of each.
REFUSED = (
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "LD_ANYTHING", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES",
    "GCONV_PATH", "LOCPATH", "NLSPATH", "MALLOC_CHECK_", "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4",
    "PROMPT_COMMAND", "IFS", "CDPATH", "GLOBIGNORE", "BASH_FUNC_x%%", "BASH_FUNC_ls", "ZDOTDIR", "FPATH", "PATH",
    "HOME", "TMPDIR", "PWD", "PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS", "PYTHONINSPECT",
    "PYTHONBREAKPOINT", "PYTHONUSERBASE", "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS",
    "npm_config_script_shell", "NPM_CONFIG_REGISTRY", "YARN_RC", "PNPM_HOME", "PERL5OPT", "PERL5LIB", "PERL5DB",
    "RUBYOPT", "RUBYLIB", "GEM_HOME", "BUNDLE_GEMFILE", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS",
    "MAVEN_OPTS", "GRADLE_OPTS", "CLASSPATH", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EDITOR",
    "GIT_PAGER", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0",
    "GIT_CONFIG_VALUE_0", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_GLOBAL", "GIT_DIR", "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "BROWSER", "SSH_ASKPASS",
    "SUDO_ASKPASS", "RUSTC_WRAPPER", "RUSTFLAGS", "CARGO_HOME", "CC", "CXX", "MAKEFLAGS", "GOFLAGS", "CGO_CFLAGS",
    "GOPROXY", "DOCKER_HOST", "DOCKER_CONFIG", "KUBECONFIG", "SSH_AUTH_SOCK", "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE",
    "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
ALLOWED = (
    "FOO", "foo", "A", "_", "A1", "CI", "DEBUG", "TERM", "LANG", "LC_ALL", "TZ", "NO_COLOR", "FORCE_COLOR",
    "LDFLAG", "XLD_PRELOAD", "MY_PATH", "PATHS", "NODE_ENV", "API_TOKEN",
)  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_families_are_refused_in_any_case(name: str):
    """Upper or lower case, each with a reason and by its own spelling."""
    for spelling in (name, name.lower(), name.upper()):
        (fault,) = check_env({spelling: "x"})
        assert fault.name == spelling
        assert fault.reason


@pytest.mark.parametrize("name", ALLOWED)
def test_other_names_are_allowed(name: str):
    """A name that only resembles one of the list passes, and so does a secret that the caller gives on purpose."""
    assert check_env({name: "x"}) == ()


@pytest.mark.parametrize("name", ["", "A=B", "A B", "A\0B", "A\nB", "1A", "A-B", "é", "A.B", " A", "A" * 300, "\ud800"])
def test_malformed_names_are_refused(name: str):
    """What some programs would read as another name, or as two."""
    (fault,) = check_env({name: "x"})
    assert "name" in fault.reason


@pytest.mark.parametrize(
    ("value", "piece"), [("a\0b", "NUL"), ("\udcff", "UTF-8"), ("x" * 65_537, "65537 bytes"), ("é" * 32_769, "65538")]
)
def test_bad_values_are_refused(value: str, piece: str):
    """NUL, bytes that are not UTF-8, and more than 64 KB of them."""
    (fault,) = check_env({"A": value})
    assert piece in fault.reason


def test_limits_are_exact():
    """256 variables and 65,536 bytes pass; one more does not."""
    assert check_env({f"A{index}": "" for index in range(256)}) == ()
    assert check_env({"A": "x" * 65_536}) == ()
    (fault,) = check_env({f"A{index}": "" for index in range(257)})
    assert fault == EnvFault("", "257 variables; at most 256 can be set")


def test_every_fault_is_told():
    """Not only the first."""
    faults = check_env({"LD_PRELOAD": "x", "A B": "x", "OK": "x", "C": "a\0"})
    assert [fault.name for fault in faults] == ["LD_PRELOAD", "A B", "C"]


def test_duplicates():
    """Twice, also in another case, since the last would win; where case counts, only the same name is the same."""
    assert [fault.name for fault in check_env([("A", "1"), ("a", "2")])] == ["a"]
    assert check_env([("A", "1"), ("a", "2")], HELIX) == ()
    assert [fault.name for fault in check_env([("A", "1"), ("A", "2")], HELIX)] == ["A"]
    assert check_env([("A", "1"), ("A", "2")], Table(families=(), duplicates="last wins")) == ()


HELIX_NAMES = (
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "NODE_OPTIONS",
    "PYTHONPATH", "PERL5OPT",
)  # fmt: skip


@pytest.mark.parametrize("name", HELIX_NAMES)
def test_helix_names_are_exact(name: str):
    """Eight names, in exact case; the text names the variable."""
    (fault,) = check_env({name: "x"}, HELIX)
    assert name in fault.reason
    assert check_env({name.lower(): "x", f"{name}_FOO": "x"}, HELIX) == ()


@pytest.mark.parametrize("name", ["API_KEY", "my_secret", "GITHUB_TOKEN", "KEYBOARD"])
def test_codex_leaves_out_what_looks_like_a_secret(name: str):
    """`*KEY*`, `*SECRET*`, `*TOKEN*`, in any case."""
    assert denied(name, CODEX)
    assert not denied("HOME", CODEX)


def test_secrets_are_never_inherited():
    """What comes from the machine has a stricter table than what comes with the call."""
    for name in ("AWS_PROFILE", "GOOGLE_X", "AZURE_Y", "DB_PASSWORD", "X_CREDENTIALS", "aws_region"):
        assert denied(name, WITH_SECRETS)
        assert not denied(name, PROVIDER)


def test_mk8_redacts():
    """Its own list of words."""
    assert denied("MY_CONN_STRING", MK8)
    assert not denied("HOME", MK8)


def test_every_table_has_a_name():
    """Contracts find theirs by name."""
    assert TABLES["provider"] is PROVIDER
    assert TABLES["workspace_run"] is HELIX
