"""
Patches: 100 places in a file of 10,000 lines, and one place in each of 500 files, by the program that runs inside a
sandbox, here as a process on the host. Against `git apply` of the same changes, in the same kind of folder; and against
starting Python alone, which is what no such program can go below. Twice: as people call it, and as the provider does,
with all contents told in JSON.
"""

from __future__ import annotations

import asyncio
import compileall
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.measure import Bench, in_turns, median, percentiles
from provider.dialects.codex.diff import File, turn_diff
from provider.inside import apply_patch

BOOT = "import sys; sys.path.insert(0, {!r}); from apply_patch import program; sys.exit(program())"
START = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c"]
AROUND = 3  # lines of context, as git has them
FILES_BOUND = 2.0
LINES_BOUND_MS = 40.0

Texts = Mapping[str, Sequence[str]]


async def measure(bench: Bench) -> None:
    if not shutil.which("git"):
        bench.report.row("patch", "git apply", "ms", [], [], "not installed")
        return
    # Compiled beforehand, as it is for a sandbox.
    inside = bench.workspace / "inside"
    shutil.copytree(Path(apply_patch.__file__).parent, inside / "apply_patch")
    compileall.compile_dir(inside, quiet=1)
    program = [*START, BOOT.format(str(inside))]
    lines, files = _one_file(10_000, 100), _many_files(500)
    try:
        large = await _compare(bench, program, "patch: 100 places in a file of 10,000 lines", *lines)
        many = await _compare(bench, program, "patch: one place in each of 500 files", *files)
    finally:
        shutil.rmtree(inside)
    more = median(large["ours"]) - median(large["git"])
    figures = f"{median(large['ours']):.1f} / {median(large['git']):.1f} ms, {more:.1f} ms more"
    bench.report.check(
        f"a patch of a 10,000-line file takes at most {LINES_BOUND_MS:.0f} ms more than git apply",
        held=more <= LINES_BOUND_MS,
        figures=figures,
    )
    ratio = median(many["ours"]) / median(many["git"])
    p99 = percentiles(many["ours"])[2]
    figures = f"{median(many['ours']):.0f} / {median(many['git']):.0f} ms = {ratio:.2f} x (p99 {p99:.0f} ms)"
    claim = f"a patch of 500 files takes at most {FILES_BOUND:.0f} x git apply"
    bench.report.check(claim, held=ratio <= FILES_BOUND, figures=figures)


async def _compare(
    bench: Bench, program: Sequence[str], name: str, before: Texts, after: Texts, places: int
) -> dict[str, list[float]]:
    pristine, folder = bench.workspace / "pristine", bench.workspace / "patched"
    old, new = ({path: File(_joined(lines)) for path, lines in texts.items()} for texts in (before, after))
    for path, file in old.items():
        (pristine / path).parent.mkdir(parents=True, exist_ok=True)
        (pristine / path).write_bytes(file.content)
    patch, difference = _patch(before, after), turn_diff(old, new)
    assert difference.count("\n@@ ") == patch.count("\n@@\n") == places

    def once(command: Sequence[str], given: str, *, changes: bool = True) -> float:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(pristine, folder)
        # Whatever repository the folder is in, git must not look at it.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(bench.workspace)}
        began = time.perf_counter()
        subprocess.run(command, input=given.encode(), cwd=folder, env=environment, capture_output=True, check=True)
        seconds = time.perf_counter() - began
        wanted = new if changes else old
        assert all((folder / path).read_bytes() == file.content for path, file in wanted.items())
        return seconds * 1000

    try:
        samples = await in_turns(
            bench.times(15, 5),
            {
                "ours": lambda: asyncio.to_thread(once, program, patch),
                "told": lambda: asyncio.to_thread(once, [*program, "--json"], patch),
                "git": lambda: asyncio.to_thread(once, ["git", "apply", "-"], difference),
                "start": lambda: asyncio.to_thread(once, [*START, "pass"], "", changes=False),
            },
        )
    finally:
        shutil.rmtree(pristine, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
    bench.report.row(name, "git apply", "ms", samples["ours"], samples["git"])
    bench.report.row(name, "starting Python alone", "ms", samples["ours"], samples["start"])
    bench.report.row(f"{name}, contents told", "git apply", "ms", samples["told"], samples["git"])
    return samples


def _one_file(length: int, places: int) -> tuple[Texts, Texts, int]:
    before = _lines(length, 0)
    after = list(before)
    every = length // places
    for at in range(every // 2, length, every):
        after[at] = f"    changed = {at}"
    return {"src/large.py": before}, {"src/large.py": after}, places


def _many_files(count: int) -> tuple[Texts, Texts, int]:
    before = {f"src/package{number % 20}/module{number}.py": _lines(40, number) for number in range(count)}
    after = {path: [*lines[:20], "    changed = True", *lines[21:]] for path, lines in before.items()}
    return before, after, count


def _lines(count: int, seed: int) -> list[str]:
    return [f"    value_{seed}_{number} = compute({number * 7 % 13}, other[{number % 5}])" for number in range(count)]


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _patch(before: Texts, after: Texts) -> str:
    """The same changes as a patch of ours, with as many lines around each."""
    out = ["*** Begin Patch"]
    for path, lines in before.items():
        out.append(f"*** Update File: {path}")
        for at, (old, new) in enumerate(zip(lines, after[path], strict=True)):
            if old != new:
                context = [f" {line}" for line in lines[at - AROUND : at + AROUND + 1]]
                out += ["@@", *context[:AROUND], f"-{old}", f"+{new}", *context[AROUND + 1 :]]
    return "\n".join([*out, "*** End Patch", ""])
