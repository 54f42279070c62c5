"""
The nouns of the suite: an attack, what it is given, and what a judge is shown afterwards.

An attack is a promise with an id of its own, an input that tries to break it, and a judge. Nothing here, and nothing in
`cases/`, knows which engine is behind the provider: an input is run by whatever has `run` as `provider.Provider` has
it. Every judge needs evidence that the attempt was made; a run that says nothing is never called contained
(`test_table.py` tries that).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from provider.model import Limits, Network, Outcome, Tier

if TYPE_CHECKING:
    from attacks.canaries import Canaries
    from attacks.host import Facts

HERE = Path(__file__).resolve().parent
Image = Literal["minimal", "default"]
"""By what it has: a shell and busybox, or an agent's whole toolbox."""


class Runs(Protocol):
    """All that a case asks of a provider."""

    async def run(self, argv: Sequence[str] | str, **wishes: Any) -> Outcome: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One command, and what lies in the workspace when it begins."""

    argv: tuple[str, ...] | str
    """A text is given to `sh -c`. `@NAME@` in it is what `Canaries.places` says."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    source: Path | None = None
    """Of a C program, which is compiled and put into the workspace as `probe`."""
    image: Image = "minimal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of an attack: the run's own word, and what the host saw."""

    attack: Attack
    user: str
    """As whom it was tried; empty is the owner of the workspace."""
    outcome: Outcome | None
    error: Exception | None
    """One of `provider.errors`; where it is set, there is no outcome."""
    workspace: Path
    canaries: Canaries
    before: Facts
    after: Facts
    seconds: float
    chunks: int
    """In how many pieces output came."""
    beside: tuple[float, ...]
    """How long other requests took meanwhile, for an attack with `beside`."""
    broken: tuple[str, ...]
    """Which laws of `range.py` did not hold."""

    @property
    def ran(self) -> Outcome:
        assert self.outcome is not None, f"it was refused: {self.error!r}"
        return self.outcome

    @property
    def stdout(self) -> str:
        return self.ran.stdout.decode(errors="backslashreplace")

    @property
    def said(self) -> str:
        """Both streams."""
        return self.stdout + self.ran.stderr.decode(errors="backslashreplace")

    @property
    def answers(self) -> dict[str, str]:
        """What a probe answered, a line for each attempt: its name, a tab, the answer."""
        return dict(line.split("\t", 1) for line in self.stdout.splitlines() if "\t" in line)

    @property
    def problems(self) -> dict[str, str]:
        return {problem.path: problem.problem for problem in self.ran.artifact_problems}

    @property
    def rss_growth(self) -> int:
        """Bytes of memory that this process had at its highest, beyond what it had before."""
        return self.after.rss_peak - self.before.rss


Judge = Callable[[Seen], None]
"""Fails with an AssertionError where the promise is broken, or where there is no evidence either way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    id: str
    """Its number in the list of attacks, such as A1, with a letter where there are several; or the name of a CVE."""
    title: str
    """The promise, in one sentence."""
    input: Input
    judge: tuple[Judge, ...]
    """Besides the laws that hold for every attack, in `range.py`."""
    canaries: tuple[str, ...] = ()
    """Those it reaches for; all are watched whatever it reaches for."""

    tier: Tier = "default"
    network: Network = "none"
    limits: Limits = field(default_factory=Limits)
    timeout: float = 20.0
    users: tuple[str, ...] = ("",)
    """Whom it is tried as; empty is the owner of the workspace."""
    artifacts: tuple[str, ...] = ()
    wishes: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else `run` takes."""
    beside: bool = False
    """Whether other requests are made meanwhile, and timed."""
    alone: bool = False
    """Whether no other attack may be made meanwhile, for what the host has is measured."""

    @property
    def number(self) -> str:
        return re.sub(r"(?<=\d)[a-z]$", "", self.id)

    @property
    def group(self) -> str:
        return self.id[0] if re.fullmatch(r"[A-J]\d+[a-z]?", self.id) else "CVE"


BOTH = ("", "0:0")
"""Uid 0 has no capability in a sandbox, but it owns files that a user does not."""


# Inputs.


def shell(text: str, *, image: Image = "minimal", files: Mapping[str, bytes] | None = None) -> Input:
    return Input(argv=text, image=image, files=files or {})


def tries(*commands: str, image: Image = "minimal") -> Input:
    """Shell commands that have to fail, each by itself; judged by `all_fail`."""
    text = "".join(
        f"echo 'attempt {at}'; ( {command} ) </dev/null && echo 'BREACH {at}'\n" for at, command in enumerate(commands)
    )
    return Input(argv=text, image=image)


def python(source: str) -> Input:
    """A Python program; `call(name, number, *arguments)` in it makes a system call and prints what came of it."""
    return Input(
        argv=("python3", "attack.py"), files={"attack.py": (PRELUDE + source).encode("utf-8", "surrogateescape")},
        image="default",
    )  # fmt: skip


PRELUDE = """
import ctypes, errno, os, sys
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

def call(name, number, *arguments):
    result = _libc.syscall(ctypes.c_long(number), *(a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments))
    print(name, "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()], sep="\\t", flush=True)
    return result

def attempt(name, function, *arguments, **options):
    try:
        result = function(*arguments, **options)
        print(name, "ok", sep="\\t", flush=True)
        return result
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, type(error).__name__), sep="\\t", flush=True)
"""


def program(source: str, *words: str) -> Input:
    """A C program of this suite, or of a neighbour."""
    return Input(argv=("/workspace/probe", *words), source=HERE / source)


# Judges.


def all_fail(seen: Seen) -> None:
    """Every command of `tries` was tried, and none succeeded."""
    wanted = str(seen.attack.input.argv).count("echo 'attempt ")
    assert wanted > 0
    assert len(re.findall(r"(?m)^attempt \d+$", seen.stdout)) == wanted, seen.said
    assert re.findall(r"(?m)^BREACH \d+$", seen.stdout) == [], seen.said
    # It failed because it was stopped, not because it was badly put.
    assert not re.search(r"invalid option|unrecognized|not found$|Usage:|syntax error", seen.said), seen.said


def says(*patterns: str) -> Judge:
    """Each of these is somewhere in what it wrote."""

    def judge(seen: Seen) -> None:
        for pattern in patterns:
            assert re.search(pattern, seen.said, re.MULTILINE), (pattern, seen.said[-2000:])

    return judge


def never_says(*patterns: str) -> Judge:
    """None of these is; only together with a judge that asks for evidence."""

    def judge(seen: Seen) -> None:
        for pattern in patterns:
            assert not re.search(pattern, seen.said, re.MULTILINE), (pattern, seen.said[-2000:])

    return judge


def refuses(*names: str) -> Judge:
    """The probe made each of these attempts and got an error, or was ended for it. Which error, is the runtime's."""

    def judge(seen: Seen) -> None:
        answers = seen.answers
        assert {name for name in names if name not in answers} == set(), seen.said[-2000:]
        assert {name: answers[name] for name in names if answers[name] == "ok"} == {}

    return judge


def answers(**expected: str) -> Judge:
    """The probe got exactly these answers; an underscore stands for a space."""

    def judge(seen: Seen) -> None:
        wanted = {name.replace("_", " "): answer for name, answer in expected.items()}
        assert {name: seen.answers.get(name) for name in wanted} == wanted, seen.said[-2000:]

    return judge


def ends(**facts: Any) -> Judge:
    """The outcome has these attributes."""

    def judge(seen: Seen) -> None:
        assert {name: getattr(seen.ran, name) for name in facts} == facts, seen.said[-2000:]

    return judge


def denied(kind: type[Exception], pattern: str) -> Judge:
    """Nothing ran: the provider said no, with this error."""

    def judge(seen: Seen) -> None:
        assert seen.outcome is None, f"it ran: {seen.said[-2000:]}"
        assert isinstance(seen.error, kind), repr(seen.error)
        assert re.search(pattern, str(seen.error)), str(seen.error)

    return judge


def reports(**problems: str) -> Judge:
    """Of each of these paths the outcome says why it was not hashed."""

    def judge(seen: Seen) -> None:
        found = seen.problems
        assert {path: found.get(path) for path in problems} == problems
        assert {artifact.path for artifact in seen.ran.artifacts} & problems.keys() == set()

    return judge


def within(seconds: float) -> Judge:
    """It was over in time; with `timeout`, that much after the beginning."""

    def judge(seen: Seen) -> None:
        assert seen.ran is not None
        assert seen.seconds < seconds, f"{seen.seconds:.2f} s"

    return judge


def rss_below(mebibytes: int) -> Judge:
    """The provider's own memory did not grow by more."""

    def judge(seen: Seen) -> None:
        assert seen.ran is not None
        assert seen.rss_growth < mebibytes * 2**20, f"{seen.rss_growth / 2**20:.0f} MiB"

    return judge


def others_go_on(seconds: float) -> Judge:
    """Other requests were answered meanwhile, each in this time."""

    def judge(seen: Seen) -> None:
        assert seen.beside, "nobody was there to be disturbed"
        assert max(seen.beside) < seconds, seen.beside

    return judge
