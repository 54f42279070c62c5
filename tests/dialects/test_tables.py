"""What `dialects.tables` promises: a contract has its own table or the defaults, and a wrong key is named."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict

from provider.dialects.tables import read_table
from provider.errors import ConfigError


class Limits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    most: int = 3


def test_a_table_is_found_by_its_name():
    """Others are not looked at, and none is the defaults."""
    tables = {"mine": {"most": 5}, "other": {"nonsense": True}}
    assert read_table(Limits, tables, "mine").most == 5
    assert read_table(Limits, tables, "none").most == 3


def test_what_does_not_fit_is_named():
    """The table, each key, and what is wrong with it, in one error."""
    with pytest.raises(ConfigError, match=r"^settings: \[tools\.mine\] most: .*; less: "):
        read_table(Limits, {"mine": {"most": "x", "less": 1}}, "mine")
