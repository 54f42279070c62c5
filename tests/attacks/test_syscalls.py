"""
Every system call of the kernel, by number, in each tier and on each runtime, against a table that is kept.

`golden/syscalls-TIER-RUNTIME.json` is what a reader of a changed profile looks at: which calls a command gained or
lost. It is written anew by ATTACKS=golden, never by itself.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attacks.case import HERE
from attacks.names import IMAGES, OWNER

from provider import Settings, run_sync

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are x86_64's"),
]

LAST = 600
"""Beyond every number that there is; 2026's kernels end at about 470."""
X32 = 0x40000000
BEYOND = (1000, 4095, 0x3FFFFFFF, 0x7FFFFFFF, -1)
FILTERED = {"EPERM", "ENOSYS", "killed"}
NEVER = (
    "mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "init_module", "finit_module",
    "delete_module", "kexec_load", "reboot", "bpf", "perf_event_open", "keyctl", "add_key", "request_key",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "open_by_handle_at",
    "name_to_handle_at", "modify_ldt", "iopl", "ioperm", "swapon", "swapoff", "settimeofday", "clock_settime",
    "sethostname", "setdomainname", "syslog", "acct", "quotactl", "vhangup", "clone3", "openat2", "execveat",
    "memfd_secret", "vmsplice", "tee",
)  # fmt: skip
"""Calls that lead out, or to corners that no tier needs."""


@pytest.mark.attack("B18")
@pytest.mark.parametrize("tier", ["default", "unix", "debug"])
def test_every_system_call_answers_as_the_table_says(
    tier: str, runtime: str, compiled: Callable[[Path], Path], tmp_path: Path, no_container_is_left: None
) -> None:
    """No call is reachable that the table does not name, by the 64-bit door or by x32's; the sandbox survives them."""
    found = verdicts(tier, runtime, compiled(HERE / "syscalls.c"), tmp_path)
    path = HERE / "golden" / f"syscalls-{tier}-{runtime}.json"
    if os.environ.get("ATTACKS") == "golden":
        path.write_text(json.dumps(written(tier, runtime, found), indent=1) + "\n")
        pytest.skip(f"{path.name} is written anew; read what has changed")
    if not path.exists():
        pytest.fail(f"there is no {path.name}; ATTACKS=golden writes it")
    golden = json.loads(path.read_text())
    expected = dict(read(golden["verdicts"]))
    older = release(platform.release()) < release(golden["kernel"])
    different = {
        number: f"{expected.get(number)} became {answer}"
        for number, answer in found.items()
        # A kernel that is older has fewer calls, and filters some that newer ones pass by every filter (uretprobe).
        if answer != expected.get(number) and not (older and answer in FILTERED)
    }
    assert different == {}
    assert found.keys() == expected.keys()


def verdicts(tier: str, runtime: str, probe: Path, workspace: Path) -> dict[int, str]:
    shutil.copy(probe, workspace / "probe")
    if os.geteuid() == 0:
        os.chown(workspace, OWNER, OWNER)
    outcome = run_sync(
        ["/workspace/probe", f"0-{LAST}", *map(str, BEYOND), f"{X32}-{X32 + LAST}"],
        workspace,
        image=IMAGES["minimal"],
        seccomp=tier,
        runtime=runtime,
        timeout=180,
        settings=Settings(spares=0),
    )
    assert outcome.exit_code == 0, outcome
    answers = dict(line.split("\t") for line in outcome.stdout.decode().splitlines())
    return {int(number): answer for number, answer in answers.items()}


# The table as it is written: named calls one by one, unnamed ones with the same answer together.


def written(tier: str, runtime: str, found: dict[int, str]) -> dict[str, object]:
    lines: dict[str, str] = {}
    names = dict(calls_of_this_machine())
    for answer, group in itertools.groupby(
        found.items(), key=lambda item: (item[1], names.get(item[0], ""), item[0] >= X32, item[0] in BEYOND and item[0])
    ):
        numbers = [number for number, _ in group]
        lines[key(numbers, answer[1])] = answer[0]
    return {"tier": tier, "runtime": runtime, "kernel": platform.release(), "verdicts": lines}


def key(numbers: list[int], name: str) -> str:
    first, last = numbers[0], numbers[-1]
    if first >= X32 and first not in BEYOND:
        return f"x32 {first - X32}-{last - X32}"
    span = str(first) if first == last else f"{first}..{last}"
    return f"{span} {name}".strip()


def read(lines: dict[str, str]) -> Iterator[tuple[int, str]]:
    for text, answer in lines.items():
        if x32 := re.fullmatch(r"x32 (\d+)-(\d+)", text):
            numbers = range(X32 + int(x32[1]), X32 + int(x32[2]) + 1)
        else:
            first, _, last = text.split()[0].partition("..")
            numbers = range(int(first), int(last or first) + 1)
        for number in numbers:
            yield number, answer


def release(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def calls_of_this_machine() -> Iterator[tuple[int, str]]:
    macros = ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"]
    said = subprocess.run(macros, check=True, capture_output=True, text=True, timeout=30).stdout
    for line in said.splitlines():
        _, name, *number = line.split()
        if name.startswith("__NR_") and number and number[0].isdigit():
            yield int(number[0]), name.removeprefix("__NR_")


@pytest.mark.parametrize("path", sorted((HERE / "golden").glob("syscalls-*.json")), ids=lambda path: path.stem)
def test_no_table_allows_what_no_tier_may(path: Path) -> None:
    """Whatever is written anew: in no table may a call be allowed that leads out, nor any call by x32's door."""
    table = json.loads(path.read_text())["verdicts"]
    named = {text.split()[1]: answer for text, answer in table.items() if len(text.split()) > 1}
    assert {name: named[name] for name in NEVER if named[name] not in FILTERED} == {}
    by_x32 = {answer for text, answer in table.items() if text.startswith("x32")}
    assert by_x32 == ({"EPERM"} if path.stem.endswith("-runsc") else {"killed"})
    if "-runsc" not in path.stem and "-debug-" not in path.stem:
        assert named["ptrace"] == named["process_vm_readv"] == named["kcmp"] == "EPERM"
