"""The `[tools.NAME]` tables of the settings, as the contracts read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from provider.errors import ConfigError

Table = TypeVar("Table", bound=BaseModel)


def read_table(model: type[Table], tables: Mapping[str, Mapping[str, Any]], name: str) -> Table:
    """Give a contract its table, or the defaults where there is none. Raises ConfigError naming the key."""
    try:
        return model.model_validate(dict(tables.get(name, {})))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        message = f"settings: [tools.{name}] {faults}"
        raise ConfigError(message) from error
