"""What an operator says of a workspace's shell: `[tools.workspace_run]`, or the arguments of `Shell`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from provider.errors import ConfigError
from provider.plan import MAX_TIMEOUT

MAX_STDOUT_BYTES = 256 * 1024
MAX_DURATION_MS = 600_000
LONGEST_MS = int(MAX_TIMEOUT * 1000)

_PROGRAM = re.compile(r"[A-Za-z0-9_./+@%:,][A-Za-z0-9_./+@%:,-]*")


def _program(entry: str) -> str:
    """A first token is compared as it is written, so an entry with a quote or a blank would never be equal to one."""
    if not _PROGRAM.fullmatch(entry):
        message = f"{entry!r} must be a program as it stands in a command, such as ls or ./build.sh, without arguments"
        raise ValueError(message)
    return entry


class ShellConfig(BaseModel):
    """Names as in TOML, or as the contract writes them: `allowed_commands` or `allowedCommands`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

    allowed_commands: tuple[Annotated[StrictStr, AfterValidator(_program)], ...] = ()
    """First tokens that may run. Empty is none: what is not listed was not allowed by anybody."""
    glob: StrictBool = False
    """Whether `{ } * ? [ ] ~` may stand in a command, and are then expanded."""
    max_stdout_bytes: StrictInt = Field(default=MAX_STDOUT_BYTES, ge=0)
    """Of each stream, in the tool's reply; `Shell.run` gives everything."""
    max_duration_ms: Annotated[StrictInt, Field(gt=0, le=LONGEST_MS)] | None = MAX_DURATION_MS
    """What a command has when its call says nothing, and the most that a call of the tool can ask for."""

    @model_validator(mode="before")
    @classmethod
    def _bare_true(cls, value: object) -> object:
        """Read `shell: true` as a shell without a list."""
        return {} if value is True else value


def read_config(table: Any, *, where: str) -> ShellConfig:
    """Raises ConfigError naming the place."""
    try:
        return ShellConfig.model_validate(table)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'it'}: {item['msg']}" for item in error.errors())
        message = f"{where}: {faults}"
        raise ConfigError(message) from error
