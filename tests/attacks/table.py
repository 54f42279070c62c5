"""
The whole table: every number of these groups is an attack that is tried, or stands here with the reason why it is not.

`ELSEWHERE` are those that need more than one run, or an engine to look at; the test that is named carries their ids.
The numbers are those of the list of attacks that this suite was made from; groups E, F, I and J have suites of their
own.
"""

from __future__ import annotations

from attacks.case import Attack
from attacks.cases import escape, exhaustion, kernel, network, output, paths, published

ATTACKS: tuple[Attack, ...] = (
    *escape.ATTACKS,
    *kernel.ATTACKS,
    *exhaustion.ATTACKS,
    *paths.ATTACKS,
    *network.ATTACKS,
    *output.ATTACKS,
    *published.ATTACKS,
)

ELSEWHERE: dict[str, tuple[str, str]] = {
    "A11a": ("An image's entrypoint is not run, whatever it is.", "test_engine.py"),
    "A18": ("Nothing is copied into or out of a living container through the engine.", "test_engine.py"),
    "A19": ("Nothing is executed in a living container through the engine.", "test_engine.py"),
    "A21": ("A set-id program of the image gives nothing.", "test_engine.py"),
    "B18": ("Every system call, by every door, answers as the tier's table says.", "test_syscalls.py"),
    "C14": ("Many files, each below the cap of one, end at the quota of the workspace.", "test_workspace.py"),
    "C15a": ("So do very many empty ones, at a quota of files.", "test_workspace.py"),
    "D9": ("A file swapped for a link while it is hashed never gives a byte of the host.", "test_race.py"),
    "D10": ("Nor does a directory swapped for a link during the walk.", "test_race.py"),
    "D11": ("Of a file that grows no more is read than it had, and it is told as unstable.", "test_race.py"),
    "D12": ("So is a file cut short.", "test_race.py"),
    "D13": ("So is one whose times were put back.", "test_race.py"),
    "D21": ("No other spelling of a protected name leads to it.", "test_workspace.py"),
    "D22": ("A pointer in place of a repository is protected, or refused.", "test_workspace.py"),
    "CVE-2026-25725": ("A protected name that is missing cannot be made.", "test_workspace.py"),
    "D23": (
        "A workspace whose name leads elsewhere at the start is noticed before the command is let go.",
        "test_engine.py",
    ),
}
"""Id to promise, and the file of the test."""

_PROXY = "there is no proxy tier; the network is `none` or `open`"
NOT_TRIED: dict[str, str] = {
    "A20": "no part of the promise rests on an authorisation plugin of the engine's",
    "G11": _PROXY,
    "G12": _PROXY,
    "G13": _PROXY,
    "G14": _PROXY,
    "G15": _PROXY,
    "G16": _PROXY,
    "G17": _PROXY,
    "G18": _PROXY,
    "G20": _PROXY,
}

NUMBERS = {
    f"{group}{number}"
    for group, count in {"A": 22, "B": 18, "C": 24, "D": 24, "G": 20, "H": 10}.items()
    for number in range(1, count + 1)
}
"""What there is to be tried."""

_POLICY = "policy, group E: about which commands are allowed, not about what one can do"
_APPROVAL = "approval, group I: about what a person is shown and says yes to"
CVES: dict[str, tuple[str, ...] | str] = {
    "CVE-2019-5736": ("A9", "A11", "A11a"),
    "CVE-2019-7303": ("B5",),
    "CVE-2019-10063": ("B5",),
    "CVE-2021-30465": ("A14", "D23"),
    "CVE-2022-0847 Dirty Pipe": ("B4",),
    "CVE-2024-21626": ("A10", "A10a"),
    "CVE-2024-28185": ("CVE-2024-28189",),
    "CVE-2024-28189": ("CVE-2024-28189",),
    "CVE-2024-29018": ("G2",),
    "CVE-2024-29021": ("CVE-2024-28189", "G19"),
    "CVE-2025-31133": ("A12",),
    "CVE-2025-52565": ("A13",),
    "CVE-2025-52881": ("A14",),
    "CVE-2025-53109": ("CVE-2025-53109",),
    "CVE-2025-53110": ("CVE-2025-53110",),
    "CVE-2025-54135": _APPROVAL,
    "CVE-2025-54136": _APPROVAL,
    "CVE-2025-54794": ("CVE-2025-54794",),
    "CVE-2025-54795": _POLICY,
    "CVE-2025-55284": ("G2",),
    "CVE-2025-58764": _POLICY,
    "CVE-2025-59532": ("CVE-2025-59532",),
    "CVE-2025-59536": ("CVE-2025-59536",),
    "CVE-2025-59944": ("D21",),
    "CVE-2025-61260": ("CVE-2025-61260", "CVE-2025-59536"),
    "CVE-2025-64755": _POLICY,
    "CVE-2025-66032": _POLICY,
    "CVE-2025-66479": _PROXY,
    "CVE-2025-23266": "needs NVIDIA's container toolkit and its hardware",
    "CVE-2026-21852": ("CVE-2025-59536",),
    "CVE-2026-22708": _POLICY,
    "CVE-2026-25724": ("D1", "D2", "D3", "D4"),
    "CVE-2026-25725": ("CVE-2026-25725",),
    "CVE-2026-31431 Copy Fail": ("B2", "B4"),
    "CVE-2026-34040": "no part of the promise rests on an authorisation plugin of the engine's (A20)",
    "CVE-2026-35020": _POLICY,
    "CVE-2026-35021": _POLICY,
    "CVE-2026-35022": _POLICY,
    "CVE-2026-39861": ("CVE-2026-39861", "D8a"),
    "CVE-2026-41567": ("A18",),
    "CVE-2026-42306": ("A18",),
    "CVE-2026-46406": ("CVE-2026-46406",),
    "GHSA-wpqr-6v78-jr5g": ("CVE-2025-59536",),
    "Claude Code, 50 subcommands": _POLICY,
    "Compiler Explorer #6026": ("D1", "D3", "D9"),
    "DuneSlide": ("CVE-2026-39861", "D3"),
    "Hugging Face sandbox-server": ("A15", "A16", "D9"),
    "NomShub": _POLICY,
    "Respan 2026-06": ("Respan 2026-06",),
    "gemini-cli #25935": _POLICY,
    "io_uring": ("B1",),
    "moby #41827": "group J: a stalled reader is `test_live.py` in `tests/sandbox`",
    "sandbox-runtime, NUL in SOCKS": _PROXY,
    "Codex, first creation of .codex": ("CVE-2026-25725",),
}
"""What was published, and by which attacks it is tried here, or why it is not."""
