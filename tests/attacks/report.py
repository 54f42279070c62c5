"""
The table as Markdown: python tests/attacks/report.py SECURITY.md

`results/RUNTIME.json` is what the last run of the suite on it has left, where ATTACKS_RESULTS said.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from attacks import gvisor
from attacks.cases.programs import ALLOWED_BY, PROGRAMS
from attacks.table import ATTACKS, CVES, ELSEWHERE, NOT_TRIED, PROVED, TRICKS

RESULTS = Path(__file__).resolve().parent / "results"
BEGINS, ENDS = "<!-- attacks -->\n", "<!-- /attacks -->\n"
GROUPS = {
    "A": "Out of the container",
    "B": "The kernel's surface",
    "C": "Using up the host",
    "D": "Paths, links and digests",
    "E": "Around the policy",
    "F": "Variables",
    "G": "The network",
    "H": "Output",
    "I": "Protocol and approval",
    "J": "Faults",
    "CVE": "Published against others",
}


def markdown(records: Sequence[dict[str, Any]]) -> str:
    return "\n".join(_lines(records)) + "\n"


def _lines(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    results: dict[str, dict[str, str]] = {}
    runtimes: dict[str, str] = {}
    for record in records:
        runtimes |= record["runtimes"]
        for name, row in record["results"].items():
            results.setdefault(name, {}).update(row)
        yield f"Last run {record['when']}: engine {record['engine']}, kernel {record['kernel']}, {record['machine']}."
    promises = {attack.id: attack.title for attack in (*ATTACKS, *TRICKS)}
    promises |= {name: title for name, (title, _) in ELSEWHERE.items()}
    counts = {runtime: Counter(_result(results, name, runtime) for name in promises) for runtime in runtimes}
    for runtime, version in runtimes.items():
        counted = ", ".join(f"{count} {result}" for result, count in sorted(counts[runtime].items()))
        yield f"{runtime} {version}: {counted}; proved by other suites {len(PROVED)}; not tried {len(NOT_TRIED)}."
    for group, heading in GROUPS.items():
        yield from ("", f"### {heading}", "", _row("", "promise", *runtimes), "|" + "---|" * (2 + len(runtimes)))
        names = [name for name in (*promises, *PROVED, *NOT_TRIED) if _group(name) == group]
        for name in sorted(names, key=_order):
            if name in NOT_TRIED:
                yield _row(name, f"not tried: {NOT_TRIED[name]}", *("" for _ in runtimes))
            elif name in PROVED:
                promise, proof = PROVED[name]
                yield _row(name, f"{promise} `{proof}`", *("see there" for _ in runtimes))
            else:
                yield _row(name, promises[name], *(_shown(_result(results, name, runtime)) for runtime in runtimes))
    if "runsc" in runtimes:
        yield from _gvisor()
    yield from _programs()
    yield from ("", "### By where it was published", "", "| | tried as, or why not |", "|---|---|")
    for name, ids in sorted(CVES.items()):
        yield _row(name, ids if isinstance(ids, str) else ", ".join(ids))


def _gvisor() -> Iterator[str]:
    yield from ("", "### On runsc", "", "| | not held as written, or not tried; and what is left |", "|---|---|")
    for name, reason in sorted((gvisor.NOT_HELD | gvisor.NOT_TRIED).items(), key=lambda item: _order(item[0])):
        yield _row(name, f"{'not held' if name in gvisor.NOT_HELD else 'not tried'}: {reason}")


def _programs() -> Iterator[str]:
    heading = "### Options by which a program runs another (E31)"
    yield from ("", heading, "", "| allowed | not, for that | such as |", "|---|---|---|")
    for program in PROGRAMS:
        if program.runs:
            such = ", ".join(f"`{text}`" for text in program.runs[:3])
            yield _row(f"`{program.plain}`", str(len(program.runs)), such)
    for who, reason in ALLOWED_BY.items():
        yield _row(f"let pass: {who}", "", reason)


def _result(results: dict[str, dict[str, str]], name: str, runtime: str) -> str:
    row = results.get(name, {})
    return row.get(runtime) or row.get("any") or "not run"


def _shown(result: str) -> str:
    return f"**{result}**" if result == "failed" else result


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _group(name: str) -> str:
    return name[0] if re.fullmatch(r"[A-J]\d+[a-z]?", name) else "CVE"


def _order(name: str) -> tuple[object, ...]:
    return tuple(int(part) if part.isdigit() else part for part in re.findall(r"\d+|\D+", name))


def put_into(path: Path) -> None:
    """Put the table of all kept results between the marks of a document."""
    before, _, rest = path.read_text().partition(BEGINS)
    path.write_text(before + BEGINS + kept() + ENDS + rest.partition(ENDS)[2])


def kept() -> str:
    """Make the table of the last results on each runtime."""
    return markdown([json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))])


if __name__ == "__main__":
    put_into(Path(sys.argv[1]))
