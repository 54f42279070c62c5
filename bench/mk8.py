"""
mk8.shell: how long a script of 1,024 operations takes to compile, against reading the same JSON and nothing else; and
how long one step takes that is executed in process, with all its checks, against a process that does nothing at all.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.measure import Bench, in_turns, percentiles
from provider.dialects.mk8.compile import compile_script
from provider.dialects.mk8.configuration import Sandbox
from provider.dialects.mk8.script import parse_script
from provider.inside.mk8 import blacklist, words
from provider.inside.mk8.compiled import Compiled, Rules
from provider.inside.mk8.execute import execute

COMPILE_MS = 50.0
STEPS_A_SECOND = 500
OPERATIONS = 1024


async def measure(bench: Bench) -> None:
    await _compile(bench)
    await _execute(bench)


def operation(index: int) -> dict[str, Any]:
    """One of five kinds that agents write: a file, a guarded hash, JSON, text, and a command."""
    path = f"src/part-{index}.txt"
    kinds = (
        {"verb": "FileWrite", "args": [path, f"Part {index} of $USER, written by a script.\n"]},
        {
            "verb": "If",
            "if": {"predicate": {"kind": "FileExists", "args": [path]}, "then": {"verb": "FileHash", "args": [path]}},
        },
        {"verb": "JsonQuery", "args": ['{"parts": [1, 2, 3]}', "$.parts[0]"], "maxRetries": 2},
        {"verb": "TextReplace", "args": ["$PREV", "a", "b"], "label": f"step-{index}"},
        {"verb": "ProcRun", "args": ["git", "commit", "-m", "Fix build errors"]},
    )
    return kinds[index % len(kinds)]


def sandbox(root: Path) -> Sandbox:
    rules = Rules(blacklist=blacklist.effective(), words=words.merged())
    return Sandbox(id="bench", root_on_host=root, env={"STAGE": "bench"}, rules=rules)


async def _compile(bench: Bench) -> None:
    box = sandbox(bench.workspace)
    options = {"pipeStepOutput": True}
    text = json.dumps({"operations": [operation(index) for index in range(OPERATIONS)], "options": options})
    assert len(compile_script(parse_script(text), box).steps) == OPERATIONS
    samples = await in_turns(
        bench.times(100, 20),
        {
            "ours": lambda: _timed(lambda: compile_script(parse_script(text), box)),
            "json": lambda: _timed(lambda: json.loads(text)),
        },
        unpaid=5,
    )
    bench.report.row("compile 1,024 operations", "json.loads alone", "ms", samples["ours"], samples["json"])
    p50, p95, p99 = percentiles(samples["ours"])
    claim = f"a script of {OPERATIONS:,} operations compiles in under {COMPILE_MS:.0f} ms"
    bench.report.check(claim, held=p50 < COMPILE_MS, figures=f"{p50:.1f} / {p95:.1f} / {p99:.1f} ms")


async def _execute(bench: Bench) -> None:
    script = _in_process(bench.workspace)
    result = execute(script, lambda event: None)  # noqa: ARG005 - nobody listens
    assert result["allSucceeded"], result
    samples = await in_turns(
        bench.times(50, 10),
        {
            "ours": lambda: _timed(lambda: execute(script, lambda event: None), len(script.steps)),  # noqa: ARG005
            "process": lambda: asyncio.to_thread(_process),
        },
        unpaid=2,
    )
    bench.report.row("one step of a script", "a process (`true`)", "ms", samples["ours"], samples["process"])
    p50, p95, p99 = (1000 / value for value in percentiles(samples["ours"]))
    claim = f"at least {STEPS_A_SECOND} in-process steps a second"
    bench.report.check(claim, held=p50 >= STEPS_A_SECOND, figures=f"{p50:,.0f} / {p95:,.0f} / {p99:,.0f} a second")


def _in_process(root: Path) -> Compiled:
    """The same kinds without commands, on a folder of this machine."""
    operations = [operation(index) for index in range(500) if index % 5 != 4]
    script = compile_script(
        parse_script({"operations": operations, "options": {"pipeStepOutput": True}}), sandbox(root)
    )
    here = {"WORKSPACE": str(root), "CWD": str(root)}
    return replace(script, root=str(root), variables={**script.variables, **here})


async def _timed(work: Callable[[], object], parts: int = 1) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) / parts * 1000


def _process() -> float:
    began = time.perf_counter()
    subprocess.run(["true"], check=True)
    return (time.perf_counter() - began) * 1000
