"""
The `[tools.mk8]` table of the settings: where sandboxes are registered, who may do what, and which resources there are.

Without a table an agent may run safe scripts in every registered sandbox by itself, and dangerous shells with a user's
approval; whatever else it asks for is denied.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

import platformdirs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from provider.dialects.mk8.dangerous import SystemUser
from provider.dialects.mk8.kinds import ACTIONS, DANGEROUS_SHELL, SAFE_SHELL, Kind
from provider.dialects.mk8.permissions import WILDCARD, Caller, Channel, Clearance, Context, Grant, PermissionSet
from provider.dialects.mk8.resources import Container
from provider.dialects.mk8.transcription import ENGLISH, AudioDevice, Model
from provider.dialects.tables import read_table
from provider.model import Network

TABLE: Final = "mk8"
SPEECH_IMAGE: Final = "sandbox-provider/speech"
_ANY: Final = "*"
_NAMESPACE: Final = uuid.UUID("6d6b3800-0000-4000-8000-000000000000")
_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def container_id(sandbox: str) -> str:
    """The resource id of a registered sandbox: always the same, so that it can be named before the first use."""
    return str(uuid.uuid5(_NAMESPACE, sandbox.lower()))


def _guid(text: str) -> str:
    if not _GUID.fullmatch(text.lower()):
        message = f"{text!r} must be a GUID such as {ENGLISH.id}"
        raise ValueError(message)
    return text.lower()


def _action(name: str) -> str:
    if name not in ACTIONS:
        message = f"there is no action {name!r}; there are {', '.join(ACTIONS)}"
        raise ValueError(message)
    return name


def _absolute(path: Path) -> Path:
    """A relative one would be another for every process: an approval comes from elsewhere."""
    path = path.expanduser()
    if not path.is_absolute():
        message = f"{str(path)!r} must be an absolute path"
        raise ValueError(message)
    return path


def _default_home() -> Path:
    return Path(platformdirs.user_data_dir("sandbox-provider"), "mk8.shell")


Guid = Annotated[str, AfterValidator(_guid)]
Action = Annotated[str, AfterValidator(_action)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class GrantTable(_Part):
    action: Action
    resource: Annotated[str, AfterValidator(lambda text: text if text == _ANY else _guid(text))] = _ANY
    """A GUID, or `*` for all; global actions have none."""
    clearance: int = Field(default=0, ge=0, le=5)

    def grant(self) -> Grant:
        named = WILDCARD if self.resource == _ANY else self.resource
        resource = None if ACTIONS[self.action] is Kind.GLOBAL else named
        return Grant(action=self.action, resource=resource, clearance=Clearance(self.clearance))


class PermissionTable(_Part):
    grants: tuple[GrantTable, ...] = ()
    default_clearance: int = Field(default=0, ge=0, le=5)
    users: frozenset[str] = frozenset()
    """Whitelisted users, by name."""
    agents: frozenset[str] = frozenset()
    default_resources: dict[Action, Guid] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.permissions()  # raises ValueError for two grants of one thing
        return self

    def permissions(self) -> PermissionSet:
        return PermissionSet(
            grants=tuple(grant.grant() for grant in self.grants),
            default_clearance=Clearance(self.default_clearance),
            users=self.users,
            agents=self.agents,
            default_resources=self.default_resources,
        )


class UserTable(_Part):
    id: Guid
    uid: int = Field(ge=0, lt=2**32 - 1)
    gid: int = Field(ge=0, lt=2**32 - 1)
    working_directory: str | None = None
    sandbox_root: str | None = None


class ModelTable(_Part):
    id: Guid
    language: str
    acoustic: str
    words: str
    dictionary: str


class AudioTable(_Part):
    id: Guid
    file: str
    """Where the host program records it, below the workspace."""


_SHELLS: Final = (
    GrantTable(action=SAFE_SHELL, clearance=Clearance.INDEPENDENT),
    GrantTable(action=DANGEROUS_SHELL, clearance=Clearance.SAME_LEVEL_USER),
)


class Table(_Part):
    home: Annotated[Path, AfterValidator(_absolute)] = Field(default_factory=_default_home)
    """The registry of sandboxes, and the jobs."""
    agent: str = "agent"
    """Whose calls these are."""
    user: str = "user"
    """Who approves on this machine."""
    agent_permissions: PermissionTable = PermissionTable(grants=_SHELLS)
    user_permissions: PermissionTable = PermissionTable(grants=_SHELLS)
    channel: str = "default"
    channel_permissions: PermissionTable = PermissionTable()
    context_permissions: PermissionTable = PermissionTable()
    system_users: tuple[UserTable, ...] = ()
    """Whom dangerous shells run as."""
    audio: tuple[AudioTable, ...] = ()
    models: tuple[ModelTable, ...] = ()
    """Besides the English one of the image for speech."""
    speech_image: str = SPEECH_IMAGE
    network: Network = "none"
    script_seconds: float = Field(default=300.0, gt=0, le=3600)
    """The most that a script has, whatever its options say."""
    dangerous_seconds: float = Field(default=300.0, gt=0, le=3600)

    def the_agent(self, name: str) -> Caller | None:
        permissions = self.agent_permissions.permissions()
        return Caller(kind="agent", id=name, permissions=permissions) if name == self.agent else None

    def the_user(self) -> Caller:
        return Caller(kind="user", id=self.user, permissions=self.user_permissions.permissions())

    def the_channel(self) -> Channel:
        context = Context(id="default", permissions=self.context_permissions.permissions())
        return Channel(id=self.channel, permissions=self.channel_permissions.permissions(), context=context)

    def system_user(self, resource: str | None) -> SystemUser | None:
        found = next((user for user in self.system_users if user.id == resource), None)
        return SystemUser(**found.model_dump()) if found else None

    def device(self, resource: str | None) -> AudioDevice | None:
        found = next((device for device in self.audio if device.id == resource), None)
        return AudioDevice(**found.model_dump()) if found else None

    def model(self, model_id: str | None) -> Model | None:
        """The English one unless another is named."""
        known = {ENGLISH.id: ENGLISH, **{model.id: Model(**model.model_dump()) for model in self.models}}
        return known.get(model_id or ENGLISH.id)


def containers(sandboxes: tuple[str, ...]) -> tuple[Container, ...]:
    return tuple(Container(id=container_id(name), sandbox=name) for name in sandboxes)


def load_table(tables: Mapping[str, Mapping[str, Any]]) -> Table:
    """Raises ConfigError naming the key."""
    return read_table(Table, tables, TABLE)
