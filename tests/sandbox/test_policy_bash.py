"""The reader of shell text against bash itself, on any text at all: bash runs in a sandbox, where it can do no harm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from provider import Provider

sys.path.insert(0, str(Path(__file__).parent.parent / "policy"))
from fuzz import IMAGE, fuzz

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
WANTED = 6_000
"""Of the million that `make fuzz` has."""


async def test_bash_runs_nothing_unjudged(workspace: Path):
    """Thousands of texts in one container: what bash starts or writes was judged, or the text is asked about."""
    async with Provider(workspace, image=IMAGE) as provider:
        found = await fuzz(provider, workspace, WANTED, seed=20)
    assert found.overlooked == []
    assert found.lost == []
    assert found.distinct > WANTED / 2
    assert found.commands > found.run > WANTED / 8
