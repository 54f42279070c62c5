"""Tool calls of one provider: which contract a tool has, opened once, and what a call brings with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from provider.approval import Approver, asked_instead
from provider.dialects import home, open_dialect
from provider.dialects.contract import Closing, Context, Dialect, Host, Reply

Tables = Mapping[str, Mapping[str, Any]]
OnEvent = Callable[[Mapping[str, Any]], Any]


class Calls:
    """The contracts that were called for; they may remember things between calls."""

    def __init__(self, host: Host, tables: Tables) -> None:
        self._host = host
        self._tables = tables
        self._opened: dict[str, Dialect] = {}

    def dialect(self, tool: str) -> Dialect:
        """Raises CallError where there is no such tool, ConfigError where its settings do not fit."""
        where = home(tool)
        if where not in self._opened:
            self._opened[where] = open_dialect(tool, self._host, self._tables)
        return self._opened[where]

    async def close(self) -> None:
        """Have those that keep something open let go of it."""
        for dialect in self._opened.values():
            if isinstance(dialect, Closing):
                await dialect.close()

    async def call(self, tool: str, payload: object, context: Context, approver: Approver | None) -> Reply:
        dialect = self.dialect(tool)
        with asked_instead(approver):
            return await dialect.call(tool, payload, context)


def context(workspace: Path, session: str, call_id: str, on_event: OnEvent | None) -> Context:
    """Who calls, and who hears of it."""

    async def emit(event: Mapping[str, Any]) -> None:
        result = on_event(event) if on_event else None
        if inspect.isawaitable(result):
            await result

    return Context(workspace=workspace, session=session, call_id=call_id, emit=emit)
