"""
Writes docs/mk8.md: what an agent is told about mk8.shell, with an example and the number of tests of each verb.

`python setup/mk8_docs.py [FILE]`. All of it comes from the tables that enforce, and from the rows that test them; a
test compares the file with what is committed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "tests/inside/mk8/verbs"
LONGEST = 80  # of an example: a table's cell is no place for more

NOTE = (
    "<!-- Made by `make docs`, from the tables of provider/ and the rows of tests/inside/mk8/verbs. Edit those. -->\n"
)
TABLE = """\
## Verbs

{verbs} verbs, {rows} rows of tests. A row runs a verb in a workspace of its own and says what comes of it: an output,
files, or an error with its category. An example is one of those rows, its arguments and what they give.

"""


def render() -> str:
    sys.path[:0] = [str(ROOT), str(ROWS)]
    try:
        from rows import all_rows

        from provider.dialects.mk8.document import EXAMPLE, documentation, verb_table

        rows = all_rows()
    finally:
        del sys.path[:2]
    tests = Counter(row.verb for row in rows)
    examples: dict[str, str] = {}
    for row in rows:
        examples.setdefault(row.verb, "")
        examples[row.verb] = examples[row.verb] or _example(row)
    table = TABLE.format(verbs=len(tests), rows=len(rows)) + verb_table(tests, examples)
    before, _, rest = documentation().replace(EXAMPLE, f"```json\n{EXAMPLE}\n```").partition("## Verbs\n")
    _, heading, after = rest.partition("\n## ")
    return NOTE + before + table + heading + after


def _example(row: Any) -> str:
    """A row that succeeds, with nothing arranged for it but files, in one line, if it fits into one."""
    if not row.gives or not isinstance(row.gives, str) or row.patch or row.world or "" in row.args:
        return ""
    text = " ".join([*map(_word, row.args), "→", row.gives])
    return f"`{text}`" if text.isprintable() and "`" not in text and len(text) <= LONGEST else ""


def _word(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if set(text) & set(" '\"→") else text


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/mk8.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(render())
