"""What the seccomp profiles promise, read from the JSON that goes to the engine; `sandbox/test_seccomp.py` tries it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parent.parent
PROFILES = ROOT / "provider" / "data" / "seccomp"
SOURCE = tomllib.loads((ROOT / "seccomp" / "syscalls.toml").read_text())
TEXT = {tier: (PROFILES / f"{tier}.json").read_text() for tier in ("default", "unix", "debug")}
GVISOR = {f"gvisor-{tier}": (PROFILES / f"gvisor-{tier}.json").read_text() for tier in TEXT}
PROFILE: dict[str, dict[str, Any]] = {tier: json.loads(text) for tier, text in TEXT.items()}

ALLOW, EPERM, EINVAL, ENOSYS, EOPNOTSUPP = "allow", 1, 22, 38, 95
SETUID, SETGID = 0o4000, 0o2000
O_CREAT, TMPFILE = 0o100, 0o20000000
MODE_AT = {
    "chmod": 1, "fchmod": 1, "creat": 1, "mkdir": 1, "mknod": 1, "fchmodat": 2, "mkdirat": 2, "mknodat": 2,
}  # fmt: skip
ULONG = st.integers(0, 2**64 - 1)

every_tier = pytest.mark.parametrize("tier", PROFILE)


def answer(tier: str, name: str, *arguments: int) -> str | int:
    """What the filter does with a call: a rule matches if all its conditions hold, and no rule is the default."""
    for rule in PROFILE[tier]["syscalls"]:
        if name in rule["names"] and all(holds(condition, arguments) for condition in rule.get("args", [])):
            return ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else int(rule["errnoRet"])
    return EPERM


def holds(condition: dict[str, Any], arguments: tuple[int, ...]) -> bool:
    argument = arguments[condition["index"]]
    if condition["op"] == "SCMP_CMP_EQ":
        return bool(argument == condition["value"])
    return bool(argument & condition["value"] == condition.get("valueTwo", 0))


def names(tier: str, *, filtered: bool) -> set[str]:
    rules = [rule for rule in PROFILE[tier]["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    return {name for rule in rules if ("args" in rule) == filtered for name in rule["names"]}


def test_committed_profiles_are_the_generated_ones(tmp_path: Path) -> None:
    """What is committed is what `make seccomp` writes, byte for byte and file for file."""
    subprocess.run([sys.executable, ROOT / "seccomp" / "generate.py", tmp_path], check=True)
    assert {path.stem: path.read_text() for path in tmp_path.iterdir()} == TEXT | GVISOR
    assert {path.stem for path in PROFILES.iterdir()} == set(TEXT | GVISOR)


@every_tier
def test_unnamed_calls_are_denied(tier: str) -> None:
    """A call that no rule names answers EPERM."""
    assert (PROFILE[tier]["defaultAction"], PROFILE[tier]["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", EPERM)
    assert answer(tier, "a_call_of_the_year_2040") == EPERM


@every_tier
def test_only_the_two_64_bit_architectures(tier: str) -> None:
    """Only x86_64 and aarch64 have rules, so that their 32-bit entry points are dead."""
    assert PROFILE[tier]["archMap"] == [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
    ]
    assert "architectures" not in PROFILE[tier]


@every_tier
def test_profile_is_small(tier: str) -> None:
    """A profile stays below 20 KB, for it is sent with every container and shown by every inspect."""
    assert len(TEXT[tier].encode()) < 20 * 1024


@every_tier
def test_a_filtered_call_is_not_allowed_elsewhere(tier: str) -> None:
    """No call is both plainly allowed and argument-filtered, or allowed and refused: the wider rule would win."""
    refused = [name for rule in PROFILE[tier]["syscalls"] if "errnoRet" in rule for name in rule["names"]]
    plain = [name for rule in PROFILE[tier]["syscalls"] if len(rule) == 2 for name in rule["names"]]
    assert len(set(plain)) == len(plain)
    assert len(set(refused)) == len(refused)
    assert not names(tier, filtered=False) & names(tier, filtered=True)
    assert not names(tier, filtered=False) & set(refused)
    assert not names(tier, filtered=True) & set(refused)


@every_tier
def test_conditions_are_the_kind_that_cannot_be_fooled(tier: str) -> None:
    """A rule has one condition an argument (two are an OR in runc), an exact match or a mask, and only to allow."""
    for rule in PROFILE[tier]["syscalls"]:
        conditions = rule.get("args", [])
        assert len({condition["index"] for condition in conditions}) == len(conditions)
        assert {condition["op"] for condition in conditions} <= {"SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ"}
        assert not conditions or rule["action"] == "SCMP_ACT_ALLOW"
        # A result outside its mask could never match, and a mask of nothing always would.
        for condition in conditions:
            masked = condition["op"] == "SCMP_CMP_MASKED_EQ"
            assert not masked or condition["value"] > 0
            assert not masked or condition.get("valueTwo", 0) & ~condition["value"] == 0


@pytest.mark.parametrize("wider", ["unix", "debug"])
def test_wider_tiers_allow_all_of_default(wider: str) -> None:
    """`unix` and `debug` have every rule of `default`, so that a command which runs in one runs in the wider."""
    assert names("default", filtered=False) <= names(wider, filtered=False)
    filtered = [rule for rule in PROFILE["default"]["syscalls"] if "args" in rule]
    assert all(rule in PROFILE[wider]["syscalls"] for rule in filtered)


def test_tiers_add_only_what_they_say() -> None:
    """`unix` adds no call at all, `debug` adds the six that look into another process."""
    assert names("unix", filtered=False) == names("default", filtered=False)
    assert names("debug", filtered=False) - names("unix", filtered=False) == {
        "kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace",
    }  # fmt: skip
    assert names("debug", filtered=True) == names("default", filtered=True)


def test_every_entry_reaches_a_tier() -> None:
    """A misspelt tier addition in the source would vanish without a word."""
    additions = {addition for tier in SOURCE["tiers"].values() for addition in tier}
    assert {entry["for"] for kind in ("allow", "when") for entry in SOURCE[kind] if "for" in entry} == additions
    assert all("for" not in entry for entry in SOURCE["refuse"])
    assert all(entry["why"] for kind in ("allow", "when", "refuse") for entry in SOURCE[kind])


@every_tier
def test_refusals_answer_as_the_source_says(tier: str) -> None:
    """Each refused call answers with the errno that its entry gives, whatever the arguments."""
    errno = {"EPERM": EPERM, "EINVAL": EINVAL, "ENOSYS": ENOSYS, "EOPNOTSUPP": EOPNOTSUPP}
    for entry in SOURCE["refuse"]:
        for name in entry["names"].split():
            assert answer(tier, name, 0, 0, 0, 0, 0, 0) == errno[entry["errno"]], name


@every_tier
def test_calls_that_hide_their_arguments_do_not_exist(tier: str) -> None:
    """What takes its flags or mode in a struct says ENOSYS, on which libc falls back to the filtered call."""
    for name in ("clone3", "openat2", "fchmodat2", "execveat", "io_uring_setup", "io_uring_enter", "io_uring_register"):
        assert answer(tier, name, 0, 0, 0, 0) == ENOSYS


@every_tier
@given(mode=ULONG)
def test_set_id_bits_cannot_be_made(tier: str, mode: int) -> None:
    """No mode with a set-id bit passes, and every other one does, whatever else is in the register."""
    for name, position in MODE_AT.items():
        clean = mode & ~(SETUID | SETGID)
        if name.startswith("mknod"):
            clean &= ~0o170000
        for bits, expected in ((0, ALLOW), (SETUID, EPERM), (SETGID, EPERM), (SETUID | SETGID, EPERM)):
            assert answer(tier, name, *[0] * position, clean | bits) == expected, name


@every_tier
@pytest.mark.parametrize(("name", "flags_at"), [("open", 1), ("openat", 2)])
@given(flags=ULONG, mode=ULONG)
def test_open_reads_the_mode_only_when_it_creates(tier: str, name: str, flags_at: int, flags: int, mode: int) -> None:
    """A set-id mode is refused exactly when the flags make a file; else the mode is garbage and is ignored."""
    arguments = [0] * flags_at + [flags, mode]
    creates = bool(flags & (O_CREAT | TMPFILE))
    assert answer(tier, name, *arguments) == (EPERM if creates and mode & (SETUID | SETGID) else ALLOW)


@every_tier
@pytest.mark.parametrize(("name", "position"), [("mknod", 1), ("mknodat", 2)])
@given(mode=ULONG)
def test_mknod_makes_files_and_fifos_only(tier: str, name: str, position: int, mode: int) -> None:
    """Type zero, S_IFREG and S_IFIFO without set-id bits pass, everything else is a device or worse."""
    plain = mode & 0o170000 in (0, 0o100000, 0o010000) and not mode & (SETUID | SETGID)
    assert answer(tier, name, *[0] * position, mode) == (ALLOW if plain else EPERM)


@every_tier
@given(command=st.one_of(ULONG, st.integers(0, 0xFFFF)), high=st.integers(0, 2**32 - 1))
def test_ioctl_refuses_three_commands_and_no_other(tier: str, command: int, high: int) -> None:
    """TIOCSTI, TIOCLINUX and TIOCSETD are refused by their low 32 bits, which are what the kernel reads."""
    forbidden = (0x5412, 0x541C, 0x5423)
    assert answer(tier, "ioctl", 0, command) == (EPERM if command & 0xFFFFFFFF in forbidden else ALLOW)
    for each in forbidden:
        assert answer(tier, "ioctl", 0, high << 32 | each) == EPERM
        for bit in range(32):
            other = each ^ 1 << bit
            assert other in forbidden or answer(tier, "ioctl", 0, high << 32 | other) == ALLOW


@every_tier
@given(flags=ULONG)
def test_clone_makes_no_namespace(tier: str, flags: int) -> None:
    """Any namespace flag in clone is refused, and nothing else is."""
    for each in (flags, *(1 << bit for bit in range(64))):
        assert answer(tier, "clone", each) == (EPERM if each & 0x7E020000 else ALLOW)


@every_tier
def test_sockets_are_named_one_by_one(tier: str) -> None:
    """TCP, UDP, ping and NETLINK_ROUTE; AF_UNIX outside `default`; every other family, type or protocol is refused."""
    tcp, udp = ((1, 0), (1, 6)), ((2, 0), (2, 17))
    expected = {(family, *rest) for family in (2, 10) for rest in (*tcp, *udp)} | {(2, 2, 1), (10, 2, 58)}
    expected |= {(16, kind, 0) for kind in range(16)}
    protocols = (0, 1, 2, 6, 17, 33, 58, 115, 132, 136, 255, 262)  # also IGMP, DCCP, L2TP, SCTP, UDP-Lite, raw, MPTCP
    if tier != "default":
        expected |= {(1, kind, protocol) for kind in range(16) for protocol in protocols}
    cloexec_nonblock = 0o2004000
    high_bit = 1 << 32
    allowed = set()
    for family, kind, protocol in itertools.product(range(64), range(16), protocols):
        if answer(tier, "socket", family, kind | cloexec_nonblock, protocol) == ALLOW:
            allowed.add((family, kind, protocol))
            assert answer(tier, "socket", high_bit | family, kind, protocol) == EPERM
    assert allowed == expected


def test_default_has_no_unix_socket_that_can_connect() -> None:
    """In `default` a pair is of a type whose ends stay connected: a datagram end could reach a host's socket."""
    assert answer("default", "socket", 1, 1, 0) == EPERM
    assert [kind for kind in range(16) if answer("default", "socketpair", 1, kind, 0) == ALLOW] == [1, 5]
    assert answer("default", "socketpair", 30, 1, 0) == EPERM
    assert answer("unix", "socketpair", 1, 2, 0) == ALLOW


def test_personality_per_tier() -> None:
    """Docker's five personalities everywhere, address randomisation off in `debug` only, executable data nowhere."""
    for value in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF):
        assert {answer(tier, "personality", value) for tier in PROFILE} == {ALLOW}
    assert [answer(tier, "personality", 0x40000) for tier in PROFILE] == [EPERM, EPERM, ALLOW]
    assert {answer(tier, "personality", 0x0400000) for tier in PROFILE} == {EPERM}


@every_tier
@given(pid=st.integers(1, 2**64 - 1), limit=st.integers(1, 2**64 - 1))
def test_limits_of_others_cannot_be_set(tier: str, pid: int, limit: int) -> None:
    """A process sets its own limits and may read those of others, but not set those of pid 1."""
    assert answer(tier, "prlimit64", pid, 7, limit, 0) == EPERM
    assert answer(tier, "prlimit64", pid, 7, 0, limit) == ALLOW
    assert answer(tier, "prlimit64", 0, 7, limit, 0) == ALLOW


@every_tier
@given(pid=st.integers(0, 2**32 - 1), above=st.integers(0, 2**32 - 1))
def test_pid_1_cannot_be_put_behind_everybody(tier: str, pid: int, above: int) -> None:
    """No process but pid 1 is out of reach, and pid 1 is, whatever the upper half of the argument holds."""
    for number in {pid, 1}:
        wanted = EPERM if number == 1 else ALLOW
        given = above << 32 | number
        for name in ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"):
            assert answer(tier, name, given, 0, 0) == wanted
    for group, who in ((0, 1), (1, 0), (2, 0), (2, pid), (0, above << 32 | 1)):
        assert answer(tier, "setpriority", group, who, 19) == EPERM
        assert answer(tier, "ioprio_set", group + 1, who, 0) == EPERM
    assert answer(tier, "setpriority", 0, 0, 19) == answer(tier, "ioprio_set", 1, 0, 0) == ALLOW


@every_tier
def test_pid_1_has_what_it_calls(tier: str) -> None:
    """`sandbox-init` runs under the same filter as the command, so every call that it makes is allowed."""
    calls = """prctl signalfd4 ppoll poll pipe2 fork vfork execve wait4 waitid kill setsid getrusage clock_gettime
        getdents64 fchdir chdir statx newfstatat fcntl dup2 dup3 close close_range read write rt_sigaction
        rt_sigprocmask exit_group mmap munmap brk setpgid getpid"""
    for name in calls.split():
        assert answer(tier, name) == ALLOW, name
    assert answer(tier, "clone", 0x01200011) == ALLOW  # what glibc's fork passes
    for command in (0x5441, 0x540E, 0x5414, 0x40045431, 0x541B):  # GPTPEER, SCTTY, SWINSZ, SPTLCK, FIONREAD
        assert answer(tier, "ioctl", 0, command) == ALLOW


@every_tier
def test_gvisor_gets_no_wider_profile(tier: str) -> None:
    """For gVisor the same calls are allowed on the same conditions; what is excepted stands before what is allowed."""
    ours, theirs = PROFILE[tier], json.loads(GVISOR[f"gvisor-{tier}"])
    excepted = {name: entry["unless"] for entry in SOURCE["when"] if "unless" in entry for name in entry["names"]}
    denied: dict[str, set[tuple[int, int]]] = {}
    assert theirs["defaultAction"] == "SCMP_ACT_ERRNO"
    for rule in theirs["syscalls"]:
        if rule["action"] == "SCMP_ACT_ERRNO":
            (exactly,) = rule["args"]
            assert (exactly["op"], exactly["value"]) == ("SCMP_CMP_MASKED_EQ", 0xFFFFFFFF)
            for name in rule["names"]:
                denied.setdefault(name, set()).add((exactly["index"], exactly["valueTwo"]))
        elif rule["action"] == "SCMP_ACT_TRACE":
            assert rule["names"] in [each["names"] for each in ours["syscalls"] if each["action"] == "SCMP_ACT_ERRNO"]
        elif "args" in rule:
            assert rule in ours["syscalls"]
            assert not set(rule["names"]) & set(excepted)
        else:
            assert set(rule["names"]) == set(ours["syscalls"][0]["names"]) | set(excepted)
            there = {name: entry["unless"] for entry in SOURCE["gvisor"] for name in entry["names"]}
            for name, unless in (excepted | there).items():
                wanted = {(int(index), value) for index, values in unless.items() for value in values}
                assert denied[name] == wanted  # all of them are before this rule


@every_tier
def test_nobody_can_trace_where_gvisor_leaves_calls_to_a_tracer(tier: str) -> None:
    """What is ENOSYS for want of a tracer stays so: only tier `debug` has ptrace, and there its reader is told."""
    allowed = {name for rule in json.loads(GVISOR[f"gvisor-{tier}"])["syscalls"] for name in rule["names"]
               if rule["action"] == "SCMP_ACT_ALLOW"}  # fmt: skip
    assert ("ptrace" in allowed) == (tier == "debug")
