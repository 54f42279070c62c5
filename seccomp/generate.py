"""
Writes provider/data/seccomp/<tier>.json, in Docker's profile format, from syscalls.toml, which says what and why.
And gvisor-<tier>.json, the same in what gVisor's runsc understands of that format.

`python seccomp/generate.py [FOLDER]`. The same input gives the same bytes; a test compares them with what is committed.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Linux's numbers, also where this runs on another system.
ERRNO = {"EPERM": 1, "EINVAL": 22, "ENOSYS": 38, "EOPNOTSUPP": 95}
DEFAULT_ERRNO = "EPERM"

# No subArchitectures: the entry points of i386 (`int 0x80`), x32 and 32-bit ARM have no rules, and end the process.
ARCH_MAP = [
    {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
    {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
]

Rule = dict[str, Any]
Condition = dict[str, Any]


def profile(source: dict[str, Any], tier: str, *, gvisor: bool = False) -> dict[str, Any]:
    """The whole profile of one tier, for the kernel or for gVisor."""
    additions = [None, *source["tiers"][tier]]
    plain: list[str] = []
    rules: list[Rule] = []
    refused: list[Rule] = []
    for entry in source["gvisor"] if gvisor else ():
        refused += [deny(entry["names"], [exactly]) for exactly in exceptions(entry)]
    for entry in source["allow"]:
        if entry.get("for") in additions:
            plain += entry["names"].split()
    for entry in source["when"]:
        if gvisor and "unless" in entry:
            plain += entry["names"]
            refused += [deny(entry["names"], [exactly]) for exactly in exceptions(entry)]
        elif entry.get("for") in additions:
            rules += [allow(entry["names"], conditions) for conditions in alternatives(entry)]
    for entry in source["refuse"]:
        # runc skips a rule whose action is the default action, so EPERM needs none.
        if entry["errno"] != DEFAULT_ERRNO:
            rules.append(refuse(entry["names"].split(), None if gvisor else entry["errno"]))
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": ERRNO[DEFAULT_ERRNO],
        "archMap": ARCH_MAP,
        "syscalls": [*refused, allow(plain), *rules],
    }


def allow(names: list[str], conditions: list[Condition] | None = None) -> Rule:
    """A rule that allows these calls, if all conditions hold."""
    rule: Rule = {"names": sorted(names), "action": "SCMP_ACT_ALLOW"}
    return {**rule, "args": conditions} if conditions else rule


def deny(names: list[str], conditions: list[Condition]) -> Rule:
    """A rule that refuses these calls if all conditions hold, for gVisor, where the first rule that fits decides."""
    return {"names": sorted(names), "action": "SCMP_ACT_ERRNO", "args": conditions}


def refuse(names: list[str], error: str | None) -> Rule:
    """
    A rule that answers these calls with another errno than the default one.

    runsc (2024) knows no errno but EPERM. A call left to a tracer that is not there is ENOSYS, which libc needs.
    """
    if error is None:
        return {"names": sorted(names), "action": "SCMP_ACT_TRACE"}
    return {"names": sorted(names), "action": "SCMP_ACT_ERRNO", "errnoRet": ERRNO[error]}


def alternatives(entry: dict[str, Any]) -> Iterator[list[Condition]]:
    """The lists of conditions of a [[when]] entry; one list that holds is enough."""
    for arguments in entry.get("any", []):
        yield [condition(int(index), expected) for index, expected in arguments.items()]
    for index, values in entry.get("unless", {}).items():
        for mask, value in all_but(values):
            yield [condition(int(index), {"mask": mask, "is": value})]


def exceptions(entry: dict[str, Any]) -> Iterator[Condition]:
    """What `unless` names, each as one condition on the 32 bits that the kernel reads."""
    for index, values in entry["unless"].items():
        for value in values:
            yield condition(int(index), {"mask": 0xFFFFFFFF, "is": value})


def condition(index: int, expected: int | dict[str, int]) -> Condition:
    """One argument's condition. In a masked one `value` is the mask and `valueTwo`, zero when absent, the result."""
    if isinstance(expected, int):
        return {"index": index, "value": expected, "op": "SCMP_CMP_EQ"}
    result = {"valueTwo": expected["is"]} if expected["is"] else {}
    return {"index": index, "value": expected["mask"], **result, "op": "SCMP_CMP_MASKED_EQ"}


def all_but(values: list[int], bits: int = 0xFFFFFFFF, mask: int = 0, value: int = 0) -> Iterator[tuple[int, int]]:
    """
    Pairs (mask, value) that together match every 32-bit number but `values`, whatever the upper 32 bits are.

    A number is none of the values if it differs in a bit that they all share: one pair for each such bit. For the bits
    in which they differ, split at the highest: on either side only the values there are left to avoid, by what is
    left of those bits.
    """
    unshared = bits & reduce(or_, values) & ~reduce(and_, values)
    for bit in (1 << position for position in range(32)):
        if bit & bits & ~unshared:
            yield mask | bit, value | (bit & ~values[0])
    if unshared:
        highest = 1 << (unshared.bit_length() - 1)
        for side in (0, highest):
            there = [each for each in values if each & highest == side]
            yield from all_but(there, unshared & ~highest, mask | highest, value | side)


def text(tier_profile: dict[str, Any]) -> str:
    """Compact JSON with one rule a line, so that a diff shows which rule changed."""
    head = json.dumps({**tier_profile, "syscalls": []}, separators=(",", ":")).removesuffix("]}")
    rules = (json.dumps(rule, separators=(",", ":")) for rule in tier_profile["syscalls"])
    return head + "\n" + ",\n".join(rules) + "\n]}\n"


def main() -> None:
    """Write every tier."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "provider" / "data" / "seccomp"
    folder.mkdir(parents=True, exist_ok=True)
    source = tomllib.loads((HERE / "syscalls.toml").read_text(encoding="utf-8"))
    for tier in source["tiers"]:
        (folder / f"{tier}.json").write_text(text(profile(source, tier)), encoding="utf-8")
        for_gvisor = text(profile(source, tier, gvisor=True))
        (folder / f"gvisor-{tier}.json").write_text(for_gvisor, encoding="utf-8")


if __name__ == "__main__":
    main()
