"""
A script as it is written: JSON whose names are taken in any case, and what of it is no script at all.

Only the shape is checked here. What verbs, labels, paths and numbers may be is the compiler's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.types import FailFast
from pydantic_core import ErrorDetails

from provider.dialects.mk8.limits import MOST_OPERATIONS, SCRIPT_SECONDS, STEP_SECONDS
from provider.inside.mk8.errors import CompileError
from provider.inside.mk8.guards import PREDICATES
from provider.inside.mk8.paths import shown

SCRIPT: Final = "Script"
"""Stands for the verb where an error is about none."""
FailureMode = Literal["StopOnFirstError", "ContinueOnError", "StopAndCleanup"]
_DURATION: Final = re.compile(r"(?:([0-9]{1,8})\.)?([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,7})?")
_HOURS, _SIXTY = 24, 60
_LONG: Final = 120
_SPELLED: Final = {
    name.lower(): name
    for name in (
        *("maxRetries", "stepTimeout", "onFailure", "captureAs", "forEach", "workingDirectory"),
        *("retryDelay", "scriptTimeout", "failureMode", "maxOutputBytes", "maxErrorBytes", "pipeStepOutput"),
    )
}
_TYPES: Final = {str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value if value is None else _wrong('a duration as text, such as "00:02:00"')
    found = _DURATION.fullmatch(value)
    if not found:
        return _wrong('a duration [d.]hh:mm:ss[.fffffff], such as "00:02:00"')
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    if hours >= _HOURS or minutes >= _SIXTY or seconds >= _SIXTY:
        return _wrong("a duration with hours below 24, minutes and seconds below 60")
    return ((days * _HOURS + hours) * _SIXTY + minutes) * _SIXTY + seconds + float(found[5] or 0)


def _name_of(names: Sequence[str]) -> Callable[[object], object]:
    known = {name.lower(): name for name in names}

    def spelled(value: object) -> object:
        if value is None or (isinstance(value, str) and value.lower() in known):
            return value if value is None else known[str(value).lower()]
        return _wrong(f"one of {', '.join(names)}")

    return spelled


def _wrong(wanted: str) -> object:
    text = f"Input should be {wanted}"
    raise ValueError(text)


Duration = Annotated[float, BeforeValidator(_seconds)]
Texts = Annotated[list[str], FailFast()]
_MODES: Final = ("StopOnFirstError", "ContinueOnError", "StopAndCleanup")


class _Part(BaseModel):
    """An object of the script: names in any case, others ignored, null as if it were not there."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", ""), extra="ignore", frozen=True, strict=True
    )

    @model_validator(mode="before")
    @classmethod
    def _fold(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        return {name.lower(): value for name, value in data.items() if isinstance(name, str) and value is not None}


class Template(_Part):
    source: str
    values: dict[str, str] = Field(default_factory=dict)


class Patch(_Part):
    find: str
    replace: str


class Predicate(_Part):
    kind: Annotated[str, BeforeValidator(_name_of(tuple(PREDICATES)))]
    args: Texts = Field(default_factory=list)


class ForEach(_Part):
    items: Texts
    body: Operation


class If(_Part):
    predicate: Predicate
    then: Operation


class Operation(_Part):
    verb: str
    args: Texts = Field(default_factory=list)
    max_retries: Annotated[int, Field(ge=0)] | None = None
    step_timeout: Duration | None = None
    label: str | None = None
    on_failure: str | None = None
    capture_as: str | None = None
    template: Template | None = None
    patches: Annotated[list[Patch], FailFast()] = Field(default_factory=list)
    for_each: ForEach | None = None
    if_: If | None = None
    working_directory: str | None = None


class Options(_Part):
    max_retries: Annotated[int, Field(ge=0)] = 0
    retry_delay: Duration = 2.0
    step_timeout: Duration = STEP_SECONDS
    script_timeout: Duration = SCRIPT_SECONDS
    failure_mode: Annotated[FailureMode, BeforeValidator(_name_of(_MODES))] = "StopOnFirstError"
    max_output_bytes: Annotated[int, Field(ge=1)] = 1_048_576
    max_error_bytes: Annotated[int, Field(ge=1)] = 262_144
    pipe_step_output: bool = False


Operations = Annotated[list[Operation], FailFast()]


class Script(_Part):
    operations: Operations
    options: Options = Field(default_factory=Options)
    cleanup: Operations = Field(default_factory=list)


_OPERATIONS: Final = TypeAdapter[list[Operation]](Operations)


def parse_script(data: object) -> Script:
    """
    Read a script: JSON data, or the text of it.

    Raises:
        CompileError: it is none; the text has the place and what should be there.
    """
    given = _decoded(data) if isinstance(data, str | bytes) else data
    if not isinstance(given, Mapping):
        raise _unreadable(SCRIPT, f'it should be an object, {{"operations": [...]}}, and is {_type(given)}')
    for name, value in given.items():
        if isinstance(name, str) and name.lower() in {"operations", "cleanup"}:
            _check_length(name, value)
    try:
        return Script.model_validate(given)
    except ValidationError as error:
        raise _unreadable(SCRIPT, _place(error.errors()[0])) from None
    except RecursionError:
        raise _unreadable(SCRIPT, "it is nested too deeply") from None


def parse_fragment(name: str, data: object) -> list[Operation]:
    """
    Read the operations of a fragment, as the configuration has them.

    Raises:
        CompileError: as for a script.
    """
    _check_length(name, data)
    try:
        return _OPERATIONS.validate_python(data)
    except ValidationError as error:
        raise _unreadable(SCRIPT, f"fragment {shown(name)}: {_place(error.errors()[0])}") from None


def _decoded(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(SCRIPT, f"it is no JSON: {str(error)[:200] or 'nested too deeply'}") from None


def _check_length(name: str, value: object) -> None:
    if isinstance(value, list) and len(value) > MOST_OPERATIONS:
        raise CompileError(SCRIPT, f"{name} has {len(value)} operations; {MOST_OPERATIONS} is the most.")


def _unreadable(verb: str, why: str) -> CompileError:
    return CompileError(verb, f"the script cannot be read: {why}.")


def _place(error: ErrorDetails) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{_spelled(part)}" for part in error["loc"])
    place = place if len(place) <= _LONG else f"{place[:_LONG]}..."
    wanted = error["msg"].removeprefix("Value error, ")
    got = "" if error["type"] == "missing" else f", got {_type(error['input'])}"
    return f"{place.removeprefix('.') or 'at the top'}: {wanted}{got}"


def _spelled(name: str) -> str:
    return _SPELLED.get(name, name)


def _type(value: Any) -> str:
    if isinstance(value, str):
        return shown(value)
    return _TYPES.get(type(value), "an object" if isinstance(value, Mapping) else "an array")
