"""What `provider.settings` promises: variables over the user's own file, and nothing from anywhere else."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import platformdirs
import pytest

from provider.errors import ConfigError
from provider.model import Limits
from provider.settings import DEFAULT_SOCKET, Endpoint, Settings, find_endpoint, load_settings, parse_size, with_limits


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nobody has set anything."""
    for name in os.environ:
        if name.upper().startswith(("SANDBOX_", "DOCKER_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(platformdirs, "user_config_dir", lambda name: str(tmp_path / "config" / name))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "config/sandbox-provider").mkdir(parents=True)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 2**20),
        (4096, 4096),
        ("1k", 1024),
        ("512m", 512 * 2**20),
        ("512M", 512 * 2**20),
        ("512 MiB", 512 * 2**20),
        ("512mb", 512 * 2**20),
        ("2g", 2 * 2**30),
        ("1.5g", 3 * 2**29),
        ("1t", 2**40),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_sizes_are_binary(text: object, size: int):
    """Sizes are read as Docker reads them, to the byte."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "m", "-1", "1x", "1 2", "1e3", "inf", "nan", "1.", "0x10", None, "9" * 400])
def test_what_is_no_size_is_named(text: object):
    """The message repeats what was given and shows what would be right."""
    with pytest.raises(ValueError, match="512m"):
        parse_size(text)


def test_defaults_are_the_models():
    """A machine without settings has the limits of the model, no network and the strict filter."""
    settings = load_settings()
    assert settings == Settings()
    assert settings.limits.limits() == Limits()
    assert (settings.network, settings.seccomp, settings.image) == ("none", "default", "sandbox-provider/default")


def test_the_users_own_file_is_read(machine: Path):
    """The platform's configuration folder is where it is looked for."""
    write(machine / "config/sandbox-provider/config.toml", 'grace = 2\n[limits]\nmemory = "1g"\n')
    settings = load_settings()
    assert settings.grace == 2
    assert settings.limits.limits().memory_bytes == 2**30


def test_a_named_file_takes_the_place_of_the_users_own(machine: Path):
    """One file counts, never two."""
    write(machine / "config/sandbox-provider/config.toml", "grace = 2\n")
    named = write(machine / "named.toml", 'network = "open"\n')
    settings = load_settings(named)
    assert (settings.grace, settings.network) == (0.5, "open")


def test_variables_win_over_the_file_one_by_one(machine: Path, monkeypatch: pytest.MonkeyPatch):
    """What a variable does not name stays as the file says, also within the limits."""
    write(
        machine / "config/sandbox-provider/config.toml", 'grace = 2\nimage = "a"\n[limits]\npids = 10\nmemory = "1g"\n'
    )
    monkeypatch.setenv("SANDBOX_IMAGE", "b")
    monkeypatch.setenv("SANDBOX_LIMITS__MEMORY", "2g")
    settings = load_settings()
    assert (settings.grace, settings.image) == (2, "b")
    assert (settings.limits.pids, settings.limits.memory) == (10, 2**31)


def test_a_workspace_is_never_read(machine: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever controls the current directory does not control the sandbox."""
    here = machine / "workspace"
    for name in ("config.toml", ".env", "sandbox-provider.toml", "pyproject.toml", "sandbox.toml"):
        write(here / name, 'network = "open"\nSANDBOX_NETWORK="open"\n')
    monkeypatch.chdir(here)
    assert load_settings() == Settings()


def test_settings_made_directly_read_nothing(monkeypatch: pytest.MonkeyPatch):
    """A program that passes its own settings gets those, whatever the environment says."""
    monkeypatch.setenv("SANDBOX_NETWORK", "open")
    assert Settings().network == "none"


@pytest.mark.parametrize(
    "text",
    [
        "unknown = 1",
        "[limits]\nunknown = 1",
        'network = "host"',
        'seccomp = "unconfined"',
        "grace = -1",
        "grace = 61",
        "engine_timeout = 0",
        "[limits]\npids = 0",
        "[limits]\npids = 1",
        '[limits]\nmemory = "1m"',
        '[limits]\nmemory = "much"',
        "[limits]\ncpus = 0",
        "[limits]\ncpus = nan",
        "[limits]\nflood = 0",
        "limits = 3",
        "limits = [1]",
        "not toml",
        '[limits]\nmemory = "' + "9" * 400 + '"',
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_load(machine: Path, text: str):
    """A mistake in a file is told when it is read, with the file's name, and never in a run."""
    path = write(machine / "bad.toml", text)
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        load_settings(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SANDBOX_NETWORK", "host"),
        ("SANDBOX_LIMITS__PIDS", "many"),
        ("SANDBOX_LIMITS", "3"),
        ("SANDBOX_LIMITS", "{"),
        ("SANDBOX_ALLOW_ROOT", "perhaps"),
    ],
)
def test_a_variable_that_does_not_fit_is_refused_at_load(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    """So is a mistake in a variable."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError):
        load_settings()


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_bytes(b"\xff")])
def test_a_named_file_must_be_readable(machine: Path, make):
    """A file that was asked for and cannot be read is an error, not a default."""
    path = machine / "named.toml"
    make(path)
    with pytest.raises(ConfigError, match=r"named\.toml"):
        load_settings(path)


def test_a_workspaces_limits_and_protected_names_are_read(machine: Path, monkeypatch: pytest.MonkeyPatch):
    """From the file as from variables."""
    config = write(machine / "named.toml", 'protect = [".git", ".vscode"]\n[limits]\nworkspace = "2g"\n')
    monkeypatch.setenv("SANDBOX_LIMITS__WORKSPACE_FILES", "500")
    settings = load_settings(config)
    limits = settings.limits.limits()
    assert (limits.workspace_bytes, limits.workspace_files, settings.protect) == (2**31, 500, (".git", ".vscode"))
    monkeypatch.setenv("SANDBOX_PROTECT", '[".envrc"]')
    assert load_settings(config).protect == (".envrc",)


def test_limits_can_be_changed_one_by_one():
    """The command line's options go over the settings, in the same words and with the same checks."""
    settings = with_limits(Settings(), {"memory": "1g"})
    assert (settings.limits.memory, settings.limits.pids) == (2**30, Limits().pids)
    with pytest.raises(ConfigError, match="memory"):
        with_limits(Settings(), {"memory": "1m"})


def test_settings_cannot_be_changed_afterwards():
    """What was loaded is what counts."""
    with pytest.raises(ValueError, match="frozen"):
        Settings().network = "open"


# Where the engine is.


def context(machine: Path, name: str, meta: str) -> Path:
    """Write what `docker context create` writes."""
    key = hashlib.sha256(name.encode()).hexdigest()
    write(machine / "home/.docker/contexts/meta" / key / "meta.json", meta)
    return machine / "home/.docker/contexts/tls" / key / "docker"


META = json.dumps({"Name": "far", "Endpoints": {"docker": {"Host": "tcp://far:2376"}}})


def test_without_a_word_it_is_the_default_socket():
    """The source says that nobody chose it."""
    assert find_endpoint() == Endpoint(url=DEFAULT_SOCKET, source="default")


def test_docker_host_wins(machine: Path, monkeypatch: pytest.MonkeyPatch):
    """DOCKER_HOST goes before any context, as with Docker's own client."""
    context(machine, "far", META)
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
    assert find_endpoint() == Endpoint(url="unix:///x.sock", source="DOCKER_HOST")


@pytest.mark.parametrize(("folder", "expected"), [(None, "home/.docker"), ("certificates", "certificates")])
def test_docker_host_with_tls(machine: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None, expected: str):
    """Certificates are used when verification is asked for, from their usual folder unless one is named."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://x:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    if folder:
        monkeypatch.setenv("DOCKER_CERT_PATH", str(machine / folder))
    assert find_endpoint().tls == machine / expected


@pytest.mark.parametrize("by", ["variable", "file"])
def test_a_chosen_context_is_read(machine: Path, monkeypatch: pytest.MonkeyPatch, by: str):
    """By DOCKER_CONTEXT or `docker context use`, with its certificates where it has any."""
    certificates = context(machine, "far", META)
    if by == "variable":
        monkeypatch.setenv("DOCKER_CONTEXT", "far")
    else:
        write(machine / "home/.docker/config.json", '{"currentContext": "far"}')
    assert find_endpoint() == Endpoint(url="tcp://far:2376", source="docker context far")
    certificates.mkdir(parents=True)
    assert find_endpoint().tls == certificates


@pytest.mark.parametrize("meta", [None, "", "{}", "[]", "null", '{"Endpoints": null}', '{"Endpoints": {"docker": {}}}'])
def test_a_chosen_context_that_cannot_be_read_is_an_error(
    machine: Path, monkeypatch: pytest.MonkeyPatch, meta: str | None
):
    """Another engine than the chosen one is never taken in its place."""
    if meta is not None:
        context(machine, "far", meta)
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    with pytest.raises(ConfigError, match="'far'"):
        find_endpoint()


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", "{}", '{"currentContext": ""}', '{"currentContext": "default"}']
)
def test_a_client_configuration_without_a_context_means_the_default(machine: Path, text: str):
    """The context named `default` is the default socket."""
    write(machine / "home/.docker/config.json", text)
    assert find_endpoint().source == "default"
