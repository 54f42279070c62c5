"""What the tests of `run_shell_command` share: a provider over an engine without containers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provider import Provider
from provider import run as run_module
from provider.assets import Assets
from provider.settings import Settings
from provider.testing import FakeEngine

Made = Callable[..., Provider]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, assets: Assets) -> None:
    """Nothing here needs pid 1 to be built."""
    monkeypatch.setattr(run_module, "load_assets", lambda: assets)


@pytest.fixture
def made(workspace: Path) -> Made:
    """Makes a provider with the table of a test, over an engine of its own."""

    def make(engine: FakeEngine | None = None, *, table: dict[str, Any] | None = None, **options: Any) -> Provider:
        wanted = {"grace": 0.05, "spares": 0, "tools": {"run_shell_command": table or {}}} | options.pop("settings", {})
        return Provider(workspace, engine=engine or FakeEngine(), settings=Settings(**wanted), **options)

    return make
