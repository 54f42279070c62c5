"""
The whole table: every number of these groups is an attack that is tried, or stands here with the reason why it is not.

`TRICKS` are about verdicts, and need no container. `ELSEWHERE` are those that need more than one run, or an engine to
look at; the test that is named carries their ids. `PROVED` are those of which a test of another suite is the proof. The
numbers are those of the list of attacks that this suite was made from.
"""

from __future__ import annotations

from attacks.case import Attack
from attacks.cases import environment, escape, exhaustion, kernel, network, output, paths, policy, published
from attacks.trick import Trick

ATTACKS: tuple[Attack, ...] = (
    *escape.ATTACKS,
    *kernel.ATTACKS,
    *exhaustion.ATTACKS,
    *paths.ATTACKS,
    *network.ATTACKS,
    *output.ATTACKS,
    *published.ATTACKS,
)

TRICKS: tuple[Trick, ...] = (*policy.TRICKS, *environment.TRICKS)

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
ELSEWHERE |= {
    "E31": ("A program that is allowed for reading does not run others by its options unasked.", "test_programs.py"),
    "E33": (
        "What a repository or a package makes an allowed program run, runs inside and nowhere else.",
        "test_inside.py",
    ),
    "F12": ("No secret of the provider's environment reaches a sandbox.", "test_tricks.py"),
    "F14": ("A variable that programs read differently is refused.", "test_tricks.py"),
    "F15": ("No variable is given twice, not even in another case of letters.", "test_tricks.py"),
    "I1": ("What is no JSON is answered with a no.", "test_protocol.py"),
    "I2": ("So is JSON that is cut off.", "test_protocol.py"),
    "I3": ("So are megabytes of it, soon.", "test_protocol.py"),
    "I4": ("So is any depth of nesting.", "test_protocol.py"),
    "I5": ("Of two fields of one name, the one that is judged is the one that is run.", "test_protocol.py"),
    "I6": ("What is no number is no value of a call.", "test_protocol.py"),
    "I7": ("A number of thousands of digits is answered with a no.", "test_protocol.py"),
    "I8": ("So is a byte order mark.", "test_protocol.py"),
    "I9": ("So is a value of another kind.", "test_protocol.py"),
    "I10": ("A field that nobody knows is refused, or has no effect at all.", "test_protocol.py"),
    "I11": ("What no program can be given is refused, with the limit.", "test_protocol.py"),
    "I12": ("The id of a run that is under way is not used again.", "test_consent.py"),
    "I13": ("A time that is none gives no longer run.", "test_protocol.py"),
    "I14": ("A yes to one plan is none to any other, whichever single field differs.", "test_consent.py"),
    "I16": ("An answer counts once.", "test_consent.py"),
    "I17": ("An answer that comes too late, and a yes of long ago, are none.", "test_consent.py"),
    "I18": ("An answer to another run, or another plan, is refused.", "test_consent.py"),
    "I19": ("So is one of another session.", "test_consent.py"),
    "I20": ("A yes to a program covers no other, however the text is put.", "test_consent.py"),
    "I21": ("What a person is shown decodes to the very bytes that run.", "test_consent.py"),
    "I22": ("A cancel and a yes at once have one outcome.", "test_consent.py"),
}

_ENGINE, _KILLED = "tests/faults/test_engine_faults.py", "tests/faults/test_killed.py"
_GARBAGE = "tests/faults/test_garbage.py"
PROVED: dict[str, tuple[str, str]] = {
    "F16": ("Variables of an image have no say.", "tests/sandbox/test_isolation.py::test_an_image_cannot_interfere"),
    "J1": (
        "A provider that is killed after it made a container leaves nothing.",
        f"{_KILLED}::test_killed_at_any_moment_it_leaves_nothing",
    ),
    "J2": (
        "Nor one that is killed after the start.",
        "tests/sandbox/test_lifecycle.py::test_a_killed_provider_leaves_nothing",
    ),
    "J3": ("Nor one that is killed while output streams.", f"{_KILLED}::test_killed_at_any_moment_it_leaves_nothing"),
    "J4": (
        "Nor one that is killed before it has removed its container.",
        "tests/sandbox/test_lifecycle.py::test_the_next_provider_tidies_up_after_one_killed_before_the_start",
    ),
    "J5": ("An engine that stops in the middle of a run is a typed error, in time.", f"{_ENGINE}::test_at_every_step"),
    "J6": ("So is one that is killed.", f"{_ENGINE}::test_at_every_step"),
    "J7": (
        "A stream that ends without an ending is a loss, and no outcome.",
        "tests/test_attach.py::test_silence_before_the_ending_is_a_loss",
    ),
    "J8": (
        "All output is there before the ending is.",
        "tests/test_attach.py::test_a_conversation_is_heard_to_its_end",
    ),
    "J9": ("A container is attached to before it is started.", "tests/attacks/test_table.py::test_attach_comes_first"),
    "J10": (
        "A stuck listener holds up neither a cancel nor a deadline.",
        "tests/sandbox/test_live.py::test_a_stalled_consumer_costs_no_memory_and_cannot_hold_up_a_cancel",
    ),
    "J11": (
        "Garbage from the engine, at every step, is a typed error.",
        f"{_GARBAGE}::test_every_damage_at_every_step",
    ),
    "J12": ("A full disk of the engine is an error that says so.", f"{_ENGINE}::test_a_full_disk_of_the_engine"),
    "J13": (
        "An image that goes before its container is made is a refusal.",
        f"{_ENGINE}::test_an_image_that_goes_between_look_up_and_create",
    ),
    "J14": ("The time of day decides nothing.", "tests/faults/test_host.py::test_the_time_of_day_decides_nothing"),
    "J15": (
        "Many runs over one workspace do not mix.",
        "tests/faults/test_many.py::test_many_at_once_do_not_mix",
    ),
    "J16": (
        "The container of one run is never taken for that of another.",
        "tests/test_attest.py::test_a_process_of_another_container_is_no_witness",
    ),
    "J17": ("A container that cannot be started does not stay.", f"{_ENGINE}::test_at_every_step"),
    "J18": (
        "A removal that fails is an error that names what may be left.",
        f"{_GARBAGE}::test_every_damage_at_every_step",
    ),
    "J19": (
        "A container that is dead already is no error.",
        "tests/sandbox/test_warm.py::test_a_spare_killed_from_outside_is_dropped",
    ),
    "J20": ("Run after run, nothing grows.", "tests/faults/test_many.py::test_soak"),
}
"""Id to promise, and the test that is the proof, from the root of the project."""

_PROXY = "there is no proxy tier; the network is `none` or `open`"
NOT_TRIED: dict[str, str] = {
    "I15": "a yes covers the plan; what the files of a workspace hold, a script that it names too, is not in it",
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

_COUNTS = {"A": 22, "B": 18, "C": 24, "D": 24, "E": 38, "F": 16, "G": 20, "H": 10, "I": 22, "J": 20}
NUMBERS = {f"{group}{number}" for group, count in _COUNTS.items() for number in range(1, count + 1)}
"""What there is to be tried."""

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
    "CVE-2025-54135": ("CVE-2025-59536", "I14"),
    "CVE-2025-54136": ("I14", "I18"),
    "CVE-2025-54794": ("CVE-2025-54794",),
    "CVE-2025-54795": ("E1", "E9", "E22"),
    "CVE-2025-55284": ("G2",),
    "CVE-2025-58764": ("E8", "E38"),
    "CVE-2025-59532": ("CVE-2025-59532",),
    "CVE-2025-59536": ("CVE-2025-59536",),
    "CVE-2025-59944": ("D21",),
    "CVE-2025-61260": ("CVE-2025-61260", "CVE-2025-59536"),
    "CVE-2025-64755": ("E31",),
    "CVE-2025-66032": ("E18", "E32"),
    "CVE-2025-66479": _PROXY,
    "CVE-2025-23266": "needs NVIDIA's container toolkit and its hardware",
    "CVE-2026-21852": ("CVE-2025-59536",),
    "CVE-2026-22708": ("E26",),
    "CVE-2026-25724": ("D1", "D2", "D3", "D4"),
    "CVE-2026-25725": ("CVE-2026-25725",),
    "CVE-2026-31431 Copy Fail": ("B2", "B4"),
    "CVE-2026-34040": "no part of the promise rests on an authorisation plugin of the engine's (A20)",
    "CVE-2026-35020": ("E9",),
    "CVE-2026-35021": ("E9",),
    "CVE-2026-35022": ("E9",),
    "CVE-2026-39861": ("CVE-2026-39861", "D8a"),
    "CVE-2026-41567": ("A18",),
    "CVE-2026-42306": ("A18",),
    "CVE-2026-46406": ("CVE-2026-46406",),
    "GHSA-wpqr-6v78-jr5g": ("CVE-2025-59536",),
    "Claude Code, 50 subcommands": ("E28",),
    "Compiler Explorer #6026": ("D1", "D3", "D9"),
    "DuneSlide": ("CVE-2026-39861", "D3"),
    "Hugging Face sandbox-server": ("A15", "A16", "D9"),
    "NomShub": ("E25", "E26"),
    "Respan 2026-06": ("Respan 2026-06",),
    "gemini-cli #25935": ("E16",),
    "io_uring": ("B1",),
    "moby #41827": ("J10",),
    "sandbox-runtime, NUL in SOCKS": _PROXY,
    "Codex, first creation of .codex": ("CVE-2026-25725",),
}
"""What was published, and by which attacks it is tried here, or why it is not."""
