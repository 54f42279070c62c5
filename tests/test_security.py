"""What SECURITY.md promises: every promise has its test, and the table is that of the last results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "SECURITY.md").read_text()
PROMISED = TEXT.split("## What is promised")[1].split("\n## ")[0]
LINKS = re.findall(r"\[`(test_\w+)`\]\((tests/[\w/]+\.py)\)", PROMISED)


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_a_promise_names_a_test_that_is_there(name: str, path: str):
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_every_promise_names_a_test():
    rows = [line for line in PROMISED.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        assert re.search(r"\(tests/[\w/]+\.py\)", row), row


def test_the_table_is_made_from_the_last_results(tmp_path: Path):
    """Nobody writes `contained` by hand."""
    made = tmp_path / "SECURITY.md"
    made.write_text(TEXT)
    subprocess.run([sys.executable, str(ROOT / "tests/attacks/report.py"), str(made)], check=True)
    assert made.read_text() == TEXT
    assert "| contained |" in TEXT
