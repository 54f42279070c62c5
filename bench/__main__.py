"""Runs every row, prints the table, writes `bench/results.json`, and fails when a bound is not kept."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import cold, stream, warm
from bench.measure import Row, machine, percentiles

RESULTS = Path(__file__).parent / "results.json"


async def measured(workspace: Path) -> list[Row]:
    return [*await cold.rows(workspace), *await warm.rows(workspace), *await stream.rows(workspace)]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as folder:
        if os.getuid() == 0:
            os.chown(folder, 1000, 1000)
        rows = asyncio.run(measured(Path(folder)))
    table = Table("", "against", "ours p50 / p95 / p99", "theirs p50", "ratio", "bound", "")
    for row in rows:
        three = " / ".join(f"{value:.1f}" for value in percentiles(row.ours))
        theirs = f"{statistics.median(row.theirs):.1f} {row.unit}"
        mark = "[green]kept[/]" if row.holds else "[bold red]BROKEN[/]"
        table.add_row(row.name, row.peer, f"{three} {row.unit}", theirs, f"{row.ratio:.2f}", row.bound, mark)
    Console().print(table)
    RESULTS.write_text(json.dumps({"machine": machine(), "rows": [_plain(row) for row in rows]}, indent=1) + "\n")
    return 0 if all(row.holds for row in rows) else 1


def _plain(row: Row) -> dict[str, object]:
    sides = {name: dict(zip(("p50", "p95", "p99"), percentiles(side), strict=True)) for name, side in _sides(row)}
    return {"name": row.name, "peer": row.peer, "unit": row.unit, "ratio": row.ratio, "bound": row.bound, **sides}


def _sides(row: Row) -> list[tuple[str, list[float]]]:
    return [("ours", row.ours), ("theirs", row.theirs)]


if __name__ == "__main__":
    sys.exit(main())
