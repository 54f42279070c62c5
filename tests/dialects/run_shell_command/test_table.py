"""The operator's table."""

from __future__ import annotations

import pytest

from provider.dialects.run_shell_command.table import load_table
from provider.errors import ConfigError


def test_defaults_are_the_contracts():
    """Two minutes in all, five without output, ten in the background, 40 000 characters."""
    table = load_table({})
    assert (table.timeout, table.inactivity_timeout, table.lease) == (120, 300, 600)
    assert (table.output_characters, table.format, table.confirm) == (40_000, "json", False)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"core_tools": ["git"]}, "core_tools"),
        ({"core_tools": "run_shell_command(git)"}, "core_tools"),
        ({"exclude_tools": [1]}, "exclude_tools"),
        ({"coreTools": []}, "coreTools"),
        ({"lease": 0}, "lease"),
        ({"timeout": "soon"}, "timeout"),
        ({"format": "xml"}, "format"),
    ],
)
def test_a_mistake_is_named(table, named):
    """The error names the table and the key; nothing is ignored."""
    with pytest.raises(ConfigError, match=rf"\[tools.run_shell_command\] {named}"):
        load_table({"run_shell_command": table})
