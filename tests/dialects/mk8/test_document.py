"""docs/mk8.md is what `make docs` gives, and shows that no verb is without a test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from provider.inside.mk8.verbs import VERBS

ROOT = Path(__file__).parents[3]


def test_the_committed_document_is_the_generated_one(tmp_path: Path):
    """If it is not, `make docs` writes it."""
    made = tmp_path / "mk8.md"
    command = [sys.executable, str(ROOT / "setup/mk8_docs.py"), str(made)]
    subprocess.run(command, check=True, timeout=60)
    assert made.read_text() == (ROOT / "docs/mk8.md").read_text()


def test_every_verb_has_a_row_with_its_arguments_and_at_least_one_test():
    """As anybody can read there."""
    text = (ROOT / "docs/mk8.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (\d+) \|$", text, re.MULTILINE)
    assert [name for name, _, _ in rows] == sorted(VERBS)
    assert [name for name, _, count in rows if int(count) == 0] == []
    assert all(cells.split(" | ")[0] for _, cells, _ in rows)
