"""
Generated shell strings against bash: policy never allows what bash would split into a command that was not judged.

`make fuzz` has a million of them, FUZZ=N another number, FUZZ_SEED=N others. Every string is judged by the most
generous of policies; what even that one asks about is out of the question. The others are run by bash in a sandbox,
many to a container, and whatever bash tried to start or wrote must be among what was judged. A string is had again by
its seed alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bash_truth
from judged import silently_allowable, unjudged
from shell_strings import any_string

from provider import Limits, Provider, Settings
from provider.model import Outcome

IMAGE = "sandbox-provider/default"
OWNER = 1000
MILLION = 1_000_000
ROUND = 20_000
"""Strings to a container: some thousands of them are for bash, in less than a minute."""
SECONDS = 600


@dataclass(slots=True)
class Fuzzed:
    strings: int = 0
    distinct: int = 0
    run: int = 0
    """Those that bash was given, each once."""
    commands: int = 0
    """What bash tried to start."""
    lost: list[str] = field(default_factory=list)
    """Strings that ended whoever watched them (`kill -9 -1`), also when they were alone; nothing is known of these."""
    overlooked: list[tuple[str, list[str]]] = field(default_factory=list)
    seconds: float = 0.0


async def fuzz(
    provider: Provider, workspace: Path, wanted: int, *, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> Fuzzed:
    """Judge so many strings, and let bash run those that could be allowed silently."""
    found, seen, began = Fuzzed(), set[int](), time.monotonic()
    (workspace / "bash_truth.py").write_text(Path(bash_truth.__file__).read_text())
    for start in range(0, wanted, ROUND):
        texts = dict.fromkeys(strings(seed, start, min(start + ROUND, wanted)))
        new = [text for text in texts if hash(text) not in seen]
        seen.update(map(hash, new))
        allowable = [text for text in new if "\0" not in text and silently_allowable(text)]
        for text, commands, files in await _truths(provider, workspace, allowable, found):
            found.run += 1
            found.commands += len(commands)
            if wrong := unjudged(text, commands, files):
                found.overlooked.append((text, wrong))
        found.strings, found.distinct = min(start + ROUND, wanted), len(seen)
        found.seconds = time.monotonic() - began
        say(told(found))
    return found


def strings(seed: int, start: int, end: int) -> Iterator[str]:
    for number in range(start, end):
        yield any_string(random.Random(seed * 2**40 + number))


def told(found: Fuzzed) -> str:
    rate = found.strings / found.seconds if found.seconds else 0.0
    return (
        f"{found.strings:,} strings, {found.distinct:,} distinct, {found.run:,} run by bash, "
        f"{found.commands:,} commands started; not judged: {len(found.overlooked)}; lost: {len(found.lost)}; "
        f"{rate:,.0f} strings/s"
    )


async def _truths(
    provider: Provider, workspace: Path, texts: Sequence[str], found: Fuzzed
) -> list[tuple[str, list[list[str]], list[str]]]:
    """What bash did for each; a text that ends the container is looked for by halving."""
    if not texts:
        return []
    (workspace / "texts.json").write_text(json.dumps(texts))
    outcome = await provider.run(["python3", "bash_truth.py", "texts.json"], timeout=SECONDS)
    if (answers := _answers(outcome)) is not None:
        return [(text, *answer) for text, answer in zip(texts, answers, strict=True)]
    if len(texts) == 1:
        found.lost.append(texts[0])
        return []
    half = len(texts) // 2
    first = await _truths(provider, workspace, texts[:half], found)
    return first + await _truths(provider, workspace, texts[half:], found)


def _answers(outcome: Outcome) -> list[tuple[list[list[str]], list[str]]] | None:
    if outcome.exit_code != 0:
        return None
    return [(commands, files) for commands, files in json.loads(outcome.stdout)]


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _main(wanted: int, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        workspace = Path(folder, "workspace")
        workspace.mkdir()
        Path(folder).chmod(0o755)
        if os.geteuid() == 0:
            os.chown(workspace, OWNER, OWNER)
        limits = Limits(memory_bytes=1024 * 2**20)
        async with Provider(workspace, image=IMAGE, limits=limits, settings=Settings(spares=0)) as provider:
            found = await fuzz(provider, workspace, wanted, seed=seed, say=_print)
    for text, wrong in found.overlooked:
        _print(f"NOT JUDGED {text!r}: {wrong}")
    for text in found.lost:
        _print(f"LOST {text!r}")
    return 1 if found.overlooked or found.run == 0 else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(int(os.environ.get("FUZZ") or MILLION), int(os.environ.get("FUZZ_SEED") or 0))))
