"""
What an administrator has set for mk8.shell, and the sandbox that a script is compiled for: global configuration and
signed environment, merged.

`mk8.shell.base.env` is JSON in which comments are allowed; it is made with the defaults where there is none. A sandbox
can only add to word lists and blacklist; where it has settings of its own for FreeText, they win.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from provider.dialects.mk8.registry import Registry
from provider.errors import ConfigError
from provider.inside.mk8 import blacklist, words
from provider.inside.mk8.compiled import Rules
from provider.inside.mk8.templates import FREETEXT, TEMPLATES

FILE_NAME: Final = "mk8.shell.base.env"
FREETEXT_KEY, BLACKLIST_KEY, VOCABULARY_KEY = "MK8_FREETEXT_CONFIG", "MK8_BLACKLIST", "MK8_VOCAB_"
"""Of a sandbox's environment. The last one goes on with the name of a list."""
_FILE_BYTES: Final = 4 * 2**20
_FRAGMENT_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_COMMENT: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLimits:
    """What no script gets more of, whatever its options say."""

    script_seconds: float = 300.0
    output_bytes: int = 1_048_576
    error_bytes: int = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What a script is compiled for; made anew for every script, and frozen."""

    id: str
    root_on_host: Path
    """The workspace on this machine; a script only ever sees it as /workspace."""
    env: Mapping[str, str]
    """The signed environment, verified; names in upper case."""
    rules: Rules = field(default_factory=Rules)
    fragments: Mapping[str, list[Any]] = field(default_factory=dict)
    """For Include: operations as the configuration has them, by id in lower case."""
    user: str = "sandbox"
    network: str = "none"
    """`none` or `open`, as the plan will have it."""
    limits: ScriptLimits = field(default_factory=ScriptLimits)


class _Table(BaseModel):
    """A JSON object whose names are taken in any case. An unknown one is a mistake: a rule would not hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _any_case(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        fields = {name.replace("_", ""): name for name in cls.model_fields}
        named = [(fields.get(str(name).lower(), name), value) for name, value in data.items()]
        if len(dict(named)) < len(named):
            message = "a name is there twice, in different case"
            raise ValueError(message)
        return dict(named)


class FreeTextOf(_Table):
    """What one command may be given as free text; what is not said is as for all."""

    enabled: bool | None = None
    max_length: int | None = Field(default=None, ge=1, le=10_000)


class FreeText(FreeTextOf):
    per_verb: dict[str, FreeTextOf] = Field(default_factory=dict)

    def with_(self, other: FreeText) -> FreeText:
        """What this says, and over it what the other one says."""
        per_verb = {name.lower(): (name, one) for name, one in self.per_verb.items()}
        for name, one in other.per_verb.items():
            known, before = per_verb.get(name.lower(), (name, FreeTextOf()))
            per_verb[name.lower()] = (known, before.model_copy(update=one.model_dump(exclude_none=True)))
        own = other.model_dump(exclude_none=True, exclude={"per_verb"})
        return self.model_copy(update={**own, "per_verb": dict(per_verb.values())})

    def rules(self) -> dict[str, Any]:
        """As `compiled.Rules` has it."""
        return {
            **_camel(self),
            "perVerb": {name: _camel(one) for name, one in self.per_verb.items()},
        }


def _camel(one: FreeTextOf) -> dict[str, Any]:
    said = {"enabled": one.enabled, "maxLength": one.max_length}
    return {name: value for name, value in said.items() if value is not None}


FREE_COMMANDS: Final = tuple(
    sorted(
        template.description
        for template in TEMPLATES
        if any(slot and slot.kind == FREETEXT for slot in (*template.slots, *template.flags.values()))
    )
)
"""Commands with a slot that can take free text."""
_OFF: Final = FreeText(enabled=False, max_length=200)


class Base(_Table):
    """The global configuration."""

    project_bases: tuple[str, ...] = Field(default=(), strict=False)
    git_remote_urls: tuple[str, ...] = Field(default=(), strict=False)
    git_clone_urls: tuple[str, ...] = Field(default=(), strict=False)
    free_text: FreeText = _OFF.with_(FreeText(per_verb=dict.fromkeys(FREE_COMMANDS, FreeTextOf(enabled=False))))
    vocabularies: dict[str, list[str]] = Field(default_factory=dict)
    custom_blacklist: tuple[str, ...] = Field(default=(), strict=False)
    disable_hardcoded_gigablacklist: bool = False
    disable_mk8shell_envs_gigablacklist: bool = False
    fragments: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    """For Include; by id in lower case."""
    container_isolation: dict[str, Any] = Field(default_factory=dict)
    network_whitelist: list[Any] = Field(default_factory=list)

    @field_validator("free_text")
    @classmethod
    def _over_defaults(cls, given: FreeText) -> FreeText:
        return _OFF.with_(given)

    @field_validator("fragments")
    @classmethod
    def _fragments(cls, given: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
        for name, operations in given.items():
            if not _FRAGMENT_ID.fullmatch(name) or not operations:
                message = (
                    f"fragment {name[:140]!r}: an id is 1 to 128 letters, digits, - _ and ., and it has operations"
                )
                raise ValueError(message)
        folded = {name.lower(): operations for name, operations in given.items()}
        if len(folded) < len(given):
            message = "a fragment's id is there twice, in different case"
            raise ValueError(message)
        return folded

    @model_validator(mode="after")
    def _isolation(self) -> Self:
        if self.container_isolation or self.network_whitelist:
            message = (
                "ContainerIsolation and NetworkWhitelist are not set here: every script runs in a container, "
                "whose [limits] and network are in the provider's config.toml"
            )
            raise ValueError(message)
        return self


def read_base(text: str) -> Base:
    """
    The configuration that a text says; the defaults where it says nothing.

    Raises:
        ConfigError: what is wrong in it, and where.
    """
    try:
        plain = without_comments(text)
        return Base.model_validate(json.loads(plain) if plain.strip() else {})
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, item['loc'])) or 'it'}: {item['msg']}" for item in error.errors()]
        message = f"{FILE_NAME}: {'; '.join(problems)}"
    except (ValueError, RecursionError) as error:
        message = f"{FILE_NAME} is no JSON: {error}"
    raise ConfigError(message)


def load_base(folder: Path) -> Base:
    """
    Read the configuration from the registry's folder, and write the defaults there if nobody has yet.

    Raises:
        ConfigError: it cannot be read.
    """
    path = folder / FILE_NAME
    try:
        text = path.read_text() if path.is_file() and path.stat().st_size <= _FILE_BYTES else None
        if text is None and path.exists():
            message = f"{path} is no file of less than {_FILE_BYTES} bytes"
            raise ConfigError(message)
        if not (text or "").strip():
            text = default_text()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()  # empty; or a link to nothing, which is not followed
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {error}"
        raise ConfigError(message) from error
    return read_base(text or "")


def default_text() -> str:
    """What stands in a new file: every setting with its default, and what it is for."""
    per_verb = ",\n".join(f'      {json.dumps(name)}: {{"enabled": false}}' for name in FREE_COMMANDS)
    return f"""// mk8.shell, for all sandboxes; a sandbox adds its own with MK8_... in its environment.
{{
  // Names that `dotnet new -n` may begin with, and URLs that git may add and clone: none, none at all.
  "ProjectBases": [],
  "GitRemoteUrls": [],
  "GitCloneUrls": [],

  // Whether a commit message and the like are free text, or made of listed words. The first switch is the master.
  "FreeText": {{
    "enabled": false,
    "maxLength": 200,
    "perVerb": {{
{per_verb}
    }}
  }},

  // Words for the lists that Mk8VocabList shows, such as {{"BranchNames": ["feature/search"]}}; new lists too.
  "Vocabularies": {{}},

  // Terms that no argument may contain, besides the built-in ones. The switches drop those: first all, then our files.
  "CustomBlacklist": [],
  "DisableHardcodedGigablacklist": false,
  "DisableMk8shellEnvsGigablacklist": false,

  // For Include: operations by id, such as {{"greet": [{{"verb": "Echo", "args": ["hello"]}}]}}.
  "Fragments": {{}}
}}
"""


def without_comments(text: str) -> str:
    """JSON without `//` and `/* */`, with every line where it was."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return _COMMENT.sub(blank, text.removeprefix("\ufeff"))


def load_sandbox(
    registry: Registry,
    sandbox_id: str,
    base: Base,
    *,
    user: str = "sandbox",
    network: str = "none",
    limits: ScriptLimits | None = None,
) -> Sandbox:
    """
    Read and verify a sandbox, for one script.

    Raises:
        SandboxNotFound, SignatureError, ContainerError: as `Registry.open`.
        ConfigError: the environment is signed, and what it sets cannot be used.
    """
    found, env = registry.open(sandbox_id)
    return Sandbox(
        id=found.id,
        root_on_host=found.root,
        env=env,
        rules=merged_rules(base, env),
        fragments=base.fragments,
        user=user,
        network=network,
        limits=limits or ScriptLimits(),
    )


def merged_rules(base: Base, env: Mapping[str, str]) -> Rules:
    """
    What holds in a sandbox with this environment.

    Raises:
        ConfigError: its FreeText settings cannot be read.
    """
    added = {
        name.removeprefix(VOCABULARY_KEY): _listed(value)
        for name, value in env.items()
        if name.startswith(VOCABULARY_KEY) and name != VOCABULARY_KEY
    }
    urls = {"GitRemoteUrls": base.git_remote_urls, "GitCloneUrls": base.git_clone_urls}
    return Rules(
        blacklist=blacklist.effective(
            (*base.custom_blacklist, *_listed(env.get(BLACKLIST_KEY, ""))),
            without_hard_coded=base.disable_hardcoded_gigablacklist,
            without_own_files=base.disable_mk8shell_envs_gigablacklist,
        ),
        words=words.merged(urls, base.vocabularies, added),
        freetext=_free_text(base, env).rules(),
        project_bases=base.project_bases,
    )


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _free_text(base: Base, env: Mapping[str, str]) -> FreeText:
    said = env.get(FREETEXT_KEY, "")
    if not said.strip():
        return base.free_text
    try:
        return base.free_text.with_(FreeText.model_validate(json.loads(said)))
    except (ValueError, RecursionError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        message = f'{FREETEXT_KEY} of the sandbox is not like {{"enabled": true, "maxLength": 100}}: {problem}'
        raise ConfigError(message) from error
