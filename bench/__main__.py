"""
Runs every group of rows, prints the table and the claims, and writes `results.json` and `results.png`.

A claim that is not held is said; only with `--strict` does it fail the run. A measurement that fails always does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import curves, hashing, kill, latency, memory, mk8, patch, plot, policy, stream, sustained
from bench.measure import Bench, Check, Report, Row, machine, percentiles

GROUPS = {
    "latency": latency.measure,
    "policy": policy.measure,
    "patch": patch.measure,
    "mk8": mk8.measure,
    "sustained": sustained.measure,
    "stream": stream.measure,
    "kill": kill.measure,
    "hashing": hashing.measure,
    "memory": memory.measure,
    "curves": curves.measure,
}
HERE = Path(__file__).parent
MARKS = {True: "[green]held[/]", False: "[bold red]not held[/]", None: "[yellow]not measured[/]"}


async def measured(bench: Bench, groups: Sequence[str], console: Console) -> None:
    for name in groups:
        began = time.monotonic()
        try:
            await GROUPS[name](bench)
        except Exception as error:  # noqa: BLE001 - the other groups are still worth their time
            traceback.print_exc()
            bench.report.failures.append(f"{name}: {type(error).__name__}: {error}")
        console.print(f"{name}: {time.monotonic() - began:.0f} s", style="dim")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples; writes quick.json and quick.png instead")
    parser.add_argument("--strict", action="store_true", help="a claim that is not held fails the run")
    parser.add_argument("--only", nargs="+", choices=GROUPS, help="these groups; writes quick.json and quick.png")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    report, facts = Report(), machine()
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as folder:
        if os.getuid() == 0:
            os.chown(folder, 1000, 1000)
        bench = Bench(workspace=Path(folder), quick=options.quick, report=report)
        asyncio.run(measured(bench, options.only or list(GROUPS), console))
    tables = [
        _table(report.rows),
        *(_curve(name, curve) for name, curve in report.curves.items()),
        _claims(report.checks),
    ]
    console.print(*(table for table in tables if table.row_count))
    versions = sorted({text for text in report.peers.values() if text})
    console.print(" · ".join([*facts.values(), *versions]), style="dim")
    name = "quick" if options.quick or options.only else "results"
    (HERE / f"{name}.json").write_text(json.dumps(_plain(report, facts, quick=options.quick), indent=1) + "\n")
    plot.draw(report, facts, HERE / f"{name}.png")
    console.print(f"written: bench/{name}.json, bench/{name}.png", style="dim")
    for failure in report.failures:
        console.print(f"could not be measured: {failure}", style="bold red")
    broken = any(check.held is False for check in report.checks)
    return 1 if report.failures or (options.strict and broken) else 0


def _table(rows: Sequence[Row]) -> Table:
    table = Table("", "against", "ours p50 / p95 / p99", "theirs p50 / p95 / p99", "", "ratio", "samples")
    last = ""
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}" if row.ratio < 0.1 else f"{row.ratio:.2f}"
        why = f"[yellow]{row.note or '-'}[/]"
        ours, theirs = _three(row.ours) or why, _three(row.theirs) or why
        name, ours = (row.name, ours) if row.name != last else ("", '"')
        table.add_row(name, row.peer, ours, theirs, row.unit, ratio, f"{len(row.ours)} : {len(row.theirs)}")
        last = row.name
    return table


def _three(samples: Sequence[float]) -> str:
    if len(samples) <= 1:
        return f"{samples[0]:,.1f}" if samples else ""
    return " / ".join(f"{value:.1f}" for value in percentiles(samples))


def _curve(name: str, curve: Mapping[str, list[tuple[float, float]]]) -> Table:
    places = [f"{place:,.0f}" for place, _ in next(iter(curve.values()))]
    table = Table(name, *places)
    for title, points in curve.items():
        table.add_row(title, *(f"{value:.1f}" for _, value in points))
    return table


def _claims(checks: Sequence[Check]) -> Table:
    table = Table("must show", "", "in this run")
    for check in checks:
        table.add_row(check.claim, MARKS[check.held], check.figures)
    return table


def _plain(report: Report, facts: dict[str, str], *, quick: bool) -> dict[str, object]:
    return {
        "machine": facts,
        "peers": report.peers,
        "quick": quick,
        "rows": [
            {
                "name": row.name,
                "peer": row.peer,
                "unit": row.unit,
                "ratio": row.ratio,
                "ours": _summary(row.ours),
                "theirs": _summary(row.theirs),
                "note": row.note,
            }
            for row in report.rows
        ],
        "claims": [asdict(check) for check in report.checks],
        "curves": report.curves,
        "failures": report.failures,
    }


def _summary(samples: Sequence[float]) -> dict[str, float]:
    three = percentiles(samples) if samples else ()
    return {**dict(zip(("p50", "p95", "p99"), three, strict=False)), "samples": len(samples)}


if __name__ == "__main__":
    sys.exit(main())
