"""
Policy: the verdict on a shell text of 1 KB, as agents write them, with the rules of a small file. Against `bash -n`,
the least that a check of the same text by another program would cost, and against tree-sitter's parse alone.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable

import tree_sitter_bash
from tree_sitter import Language, Parser

from bench.measure import Bench, in_turns, percentiles
from provider.model import Decision
from provider.policy.rules import parse_policy

BOUND_MS = 1.0
BATCH = 20  # verdicts a sample: one alone is mostly the caches that the other contenders have emptied
RULES = """
default = "ask"
[[rule]]
name = "reading and testing"
decision = "allow"
because = "daily work"
program = [
  "set", "cd", "ls", "cat", "grep", "sed", "head", "tail", "wc", "echo", "git", "python3", "npm", "mkdir", "test", "cp",
  "tee"
]
matches = ["ls -la"]
[[rule]]
name = "no forced deletion"
decision = "refuse"
because = "it cannot be undone"
program = "rm"
options = ["-f", "--force"]
matches = ["rm -rf x"]
[[rule]]
name = "no background"
decision = "refuse"
because = "nothing may stay behind"
background = true
matches = ["ls &"]
"""
TEXT = """\
set -euo pipefail
cd /workspace/services/billing && mkdir -p build/reports
git status --short | head -n 20
grep -rn --include='*.py' "def apply_discount" src tests | tee build/reports/definitions.txt | wc -l
python3 -m pytest tests/unit/test_discounts.py tests/unit/test_tax.py -q -k "not slow and not network" 2>&1 | tail -n 40
if test -f build/reports/junit.xml; then
  sed -n '1,20p' build/reports/junit.xml
else
  echo "no report was written by the last run" >&2
fi
for name in discounts invoices customers; do
  cp "src/$name/schema.json" "build/reports/$name.schema.json"
done
cat > build/reports/README.md <<'EOF'
# Reports of the nightly run
Each file is named after the module that it describes, and nothing in this folder is read by the build itself.
EOF
npm --prefix web run lint -- --max-warnings 0 && npm --prefix web test -- --watch=false --reporters=default
git diff --stat HEAD~1 -- src tests docs && echo "finished in $SECONDS seconds"
"""


async def measure(bench: Bench) -> None:
    rules = parse_policy(RULES, name="bench")
    assert rules.judge_text(TEXT).decision is Decision.ALLOW, rules.judge_text(TEXT)
    parser = Parser(Language(tree_sitter_bash.language()))
    samples = await in_turns(
        bench.times(200, 20),
        {
            "ours": lambda: _timed(lambda: rules.judge_text(TEXT)),
            "bash": lambda: asyncio.to_thread(_bash),
            "parse": lambda: _timed(lambda: parser.parse(TEXT.encode())),
        },
        unpaid=5,
    )
    name = "verdict on a shell text of 1 KB"
    bench.report.row(name, "bash -n", "ms", samples["ours"], samples["bash"])
    bench.report.row(name, "tree-sitter's parse alone", "ms", samples["ours"], samples["parse"])
    p50, p95, p99 = percentiles(samples["ours"])
    figures = f"{p50:.2f} / {p95:.2f} / {p99:.2f} ms for {len(TEXT.encode())} bytes"
    bench.report.check(f"a verdict on 1 KB of shell in under {BOUND_MS:.0f} ms", held=p50 < BOUND_MS, figures=figures)


async def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(BATCH):
        work()
    return (time.perf_counter() - began) / BATCH * 1000


def _bash() -> float:
    began = time.perf_counter()
    subprocess.run(["bash", "-n", "-c", TEXT], check=True)
    return (time.perf_counter() - began) * 1000
