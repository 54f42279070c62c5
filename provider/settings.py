"""
What the user of this machine has set, read once: `SANDBOX_*` variables over the user's own TOML file.

The only file that reads the environment or a configuration file. A workspace is never looked into for either: whoever
controls it would control the sandbox.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import platformdirs
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from provider.errors import ConfigError
from provider.model import Limits, Network, Tier

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: object) -> int:
    """Bytes from `512m`, `2g`, `1048576`: binary units, as Docker counts them."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", str(text).strip().lower())
    if match is None:
        message = f"{text!r} is not a size; write a number of bytes, or one such as 512m or 2g"
        raise ValueError(message)
    size = int(Fraction(match[1]) * _UNITS[match[2]])
    if size >= 2**63:
        message = f"{str(text)[:40]} is more than any machine has; write a size such as 512m or 2g"
        raise ValueError(message)
    return size


Size = Annotated[int, BeforeValidator(parse_size)]
_DEFAULTS = Limits()


class LimitSettings(BaseModel):
    """The `[limits]` table: defaults for every sandbox."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: Size = Field(default=_DEFAULTS.memory_bytes, ge=6 * 2**20)
    cpus: float = Field(default=_DEFAULTS.cpus, gt=0)
    pids: int = Field(default=_DEFAULTS.pids, ge=2)
    tmp: Size = Field(default=_DEFAULTS.tmp_bytes, ge=2**16)
    file: Size = Field(default=_DEFAULTS.file_bytes, ge=2**10)
    open_files: int = Field(default=_DEFAULTS.open_files, ge=64)
    output: Size = Field(default=_DEFAULTS.output_bytes, ge=0)
    flood: Size = Field(default=_DEFAULTS.flood_bytes, ge=1)
    workspace: Size = Field(default=_DEFAULTS.workspace_bytes, ge=0)
    workspace_files: int = Field(default=_DEFAULTS.workspace_files, ge=0)

    def limits(self) -> Limits:
        return Limits(
            memory_bytes=self.memory,
            cpus=self.cpus,
            pids=self.pids,
            tmp_bytes=self.tmp,
            file_bytes=self.file,
            open_files=self.open_files,
            output_bytes=self.output,
            flood_bytes=self.flood,
            workspace_bytes=self.workspace,
            workspace_files=self.workspace_files,
        )


class Settings(BaseSettings):
    """Frozen; passed in, never a global. Made directly it is what it is given; `load_settings` reads the machine."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="SANDBOX_", env_nested_delimiter="__", use_attribute_docstrings=True
    )

    image: str = "sandbox-provider/default"
    network: Network = "none"
    seccomp: Tier = "default"
    runtime: str = ""
    allow_root: bool = True
    """Whether a root-owned workspace may run as uid 0 (without any capability)."""
    grace: float = Field(default=0.5, ge=0, le=60)
    """Seconds between TERM and KILL."""
    engine_timeout: float = Field(default=30.0, gt=0)
    """Seconds that the engine has for any one answer."""
    approval_seconds: float = Field(default=600.0, gt=0)
    """How long an approver has; after that the answer is no."""
    grant_seconds: float = Field(default=8 * 3600.0, gt=0)
    """How long a yes for the session lasts, if the session does."""
    artifact_bytes: Size = Field(default=4 * 2**30, ge=0)
    """Largest file that is hashed."""
    artifact_seconds: float = Field(default=120.0, gt=0)
    """What hashing the artifacts of one run may take."""
    limits: LimitSettings = LimitSettings()
    protect: tuple[str, ...] = ()
    """First-level names of every workspace that runs can only read, such as `.git`; see `protection.py`."""
    spares: int = Field(default=4, ge=0, le=64)
    """Containers that wait for the next request of the same kind, at the most; 0 is none."""
    rules: Path | None = None
    """A TOML file of rules about commands, see `policy/rules.py`; they can only make a verdict stricter."""
    leases: int = Field(default=8, ge=0)
    """Sandboxes that a session may keep for processes left behind."""
    spares_total: int = Field(default=32, ge=0)
    """Spares of all kinds together."""
    spares_memory: Size = Field(default=512 * 2**20, ge=0)
    """What all spares together may cost the host, at 16 MiB each."""
    spares_idle: float = Field(default=60.0, gt=0)
    """Seconds that a spare waits before it is disposed of."""

    tools: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The `[tools.NAME]` tables; each is read by its contract."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the names are pydantic-settings' own
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def load_settings(config: Path | None = None) -> Settings:
    """
    Read `SANDBOX_*` variables over `config`, or over the user's own file where there is one.

    Raises:
        ConfigError: a value does not fit, or the named file cannot be read.
    """
    path = config or Path(platformdirs.user_config_dir("sandbox-provider"), "config.toml")
    try:
        written = tomllib.loads(path.read_text()) if config or path.is_file() else {}
        variables = EnvSettingsSource(Settings)()
        merged = {**written, **variables}
        tables = [source["limits"] for source in (written, variables) if "limits" in source]
        if all(isinstance(table, Mapping) for table in tables):
            merged["limits"] = {name: value for table in tables for name, value in table.items()}
        return Settings(**merged)
    except ValidationError as error:
        raise _one_line(error, f"settings ({path}, SANDBOX_* variables)") from error
    except (OSError, ValueError) as error:  # TOMLDecodeError is a ValueError
        message = f"settings file {path}: {error}"
        raise ConfigError(message) from error


def with_limits(settings: Settings, wanted: Mapping[str, object]) -> Settings:
    """
    Settings with some of their limits changed.

    Raises:
        ConfigError: a value does not fit.
    """
    try:
        limits = LimitSettings.model_validate({**settings.limits.model_dump(), **wanted})
    except ValidationError as error:
        raise _one_line(error, "limits") from error
    return settings.model_copy(update={"limits": limits})


def _one_line(error: ValidationError, where: str) -> ConfigError:
    problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
    return ConfigError(f"{where}: {'; '.join(problems)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the engine listens, and who said so."""

    url: str
    source: str
    """`DOCKER_HOST`, `docker context NAME` or `default`; only a default may be replaced by starting an engine."""
    tls: Path | None = None
    """Directory with ca.pem, cert.pem and key.pem."""


DEFAULT_SOCKET = "unix:///var/run/docker.sock"


def find_endpoint() -> Endpoint:
    """
    Find the engine as Docker's own client does: DOCKER_HOST, then the chosen context, then the default socket.

    The SDK's own look-up is not used because it does not know DOCKER_CONTEXT.

    Raises:
        ConfigError: the chosen context does not exist.
    """
    if host := os.environ.get("DOCKER_HOST"):
        verify = os.environ.get("DOCKER_TLS_VERIFY")
        certificates = Path(os.environ.get("DOCKER_CERT_PATH") or _docker_folder()) if verify else None
        return Endpoint(url=host, source="DOCKER_HOST", tls=certificates)
    name = os.environ.get("DOCKER_CONTEXT") or _current_context()
    if name in {"", "default"}:
        return Endpoint(url=DEFAULT_SOCKET, source="default")
    key = hashlib.sha256(name.encode()).hexdigest()
    contexts = _docker_folder() / "contexts"
    try:
        meta = json.loads((contexts / "meta" / key / "meta.json").read_text())
        url = meta["Endpoints"]["docker"]["Host"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"docker context {name!r} is chosen, but cannot be read from {contexts}: {error}"
        raise ConfigError(message) from error
    certificates = contexts / "tls" / key / "docker"
    return Endpoint(url=url, source=f"docker context {name}", tls=certificates if certificates.is_dir() else None)


def _docker_folder() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _current_context() -> str:
    try:
        config = json.loads((_docker_folder() / "config.json").read_text())
    except (OSError, ValueError):
        return ""
    return str(config.get("currentContext") or "") if isinstance(config, dict) else ""
