"""The reader of shell text against bash itself, on any text at all: bash runs in a sandbox, where it can do no harm."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from provider import Provider

sys.path.insert(0, str(Path(__file__).parent.parent / "policy"))
import bash_truth
from judged import silently_allowable, unjudged
from shell_strings import ODD, shell_string

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
IMAGE = "sandbox-provider/default"
WANTED = 1500
BUILTINS = (
    "cd", ".", ":", "echo", "eval", "exec", "exit", "export", "kill", "printf", "pwd", "read", "set", "shift", "source",
    "test", "trap", "true", "type", "ulimit", "unset", "wait",
)  # fmt: skip
ROUGH = 0.3
"""How much of the texts is no grammar at all."""


def any_string(source: random.Random) -> str:
    """A text as in the unit tests, or a heap of its pieces, real builtins and any characters."""
    if source.random() > ROUGH:
        return shell_string(source)
    pieces = [*ODD, *BUILTINS, *(chr(source.randrange(1, 0xD800)) for _ in range(8)), *map(chr, range(32, 127))]
    return "".join(source.choice((*pieces, " ", " c1 ")) for _ in range(source.randrange(1, 25)))


async def test_bash_runs_nothing_unjudged(workspace: Path):
    """Thousands of texts in one container: what bash starts or writes was judged, or the text is asked about."""
    source = random.Random(20)
    texts: dict[str, None] = {}
    while len(texts) < WANTED:
        text = any_string(source)
        if "\0" not in text and silently_allowable(text):
            texts[text] = None
    (workspace / "texts.json").write_text(json.dumps(list(texts)))
    (workspace / "bash_truth.py").write_text(Path(bash_truth.__file__).read_text())
    async with Provider(workspace, image=IMAGE) as provider:
        outcome = await provider.run(["python3", "bash_truth.py", "texts.json"], timeout=500)
    assert outcome.exit_code == 0, outcome.stderr.decode()
    truths = json.loads(outcome.stdout)
    assert len(truths) == len(texts)
    assert sum(len(commands) for commands, _ in truths) > len(texts)
    overlooked = [
        (text, found)
        for text, (commands, files) in zip(texts, truths, strict=True)
        if (found := unjudged(text, commands, files))
    ]
    assert overlooked == []
