"""
Rules about commands: who wrote them says allow, ask or refuse, and why. The strictest that matches wins.

A rule file is TOML. Every rule carries examples, and a file whose examples do not hold is not loaded:

    default = "ask"                     # for a program that no rule speaks of

    [[rule]]
    name = "no forced rm"
    decision = "refuse"
    because = "forced deletion is not wanted here"
    program = "rm"
    options = ["-f", "--force"]
    matches = ["rm -rf x", "sudo rm --force x", "a && /bin/rm -f x"]
    not_matches = ["rm x", "echo rm -f"]

All conditions of a rule must hold for one and the same segment: a simple command of the text, or one that a wrapper
such as `sudo`, `xargs` or `sh -c` would run. Some things are asked about whatever the rules allow: text that cannot be
read, a program whose name only the shell knows, program text in arguments, variables that steer other programs.
"""

from __future__ import annotations

import enum
import fnmatch
import operator
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from provider.errors import ConfigError
from provider.model import Decision, Verdict
from provider.policy.env import denied
from provider.policy.known import ELLIPSIS, NOTHING, Argv, argument, base_name, opener
from provider.policy.script import Command, Dynamic, Place, Word
from provider.policy.syntax import read

MAX_LAYERS: Final = 8  # wrappers around wrappers; more is an attempt to hide something


class Segment(NamedTuple):
    """One command to be judged."""

    argv: tuple[str | None, ...] = ()
    """None is a word that only the shell knows."""
    program: str = ""
    """Base name; empty when there is none, or none that is known."""
    text: str = ""
    """As it was written."""
    command: Command | None = None
    """Where it stands in a text; None when it comes out of a wrapper or was given as a list."""
    inline: str = ""
    """Why it evaluates program text that could not be read."""
    transparent: bool = False
    """It only runs other segments, which are judged by themselves."""
    unknown: str = ""
    """Why the text cannot be read; such a segment has no command."""


# From text to segments.


def segments(text: str) -> tuple[Segment, ...]:
    """Return every command in a shell text, those inside wrappers and scripts included."""
    return tuple(_opened(_from_text(text)))


def segments_of(argv: Argv) -> tuple[Segment, ...]:
    """Return the same for a command that no shell has to read."""
    return tuple(_opened([_from_argv(argv)]))


def _segment(argv: tuple[str | None, ...], text: str, command: Command | None = None) -> Segment:
    return tuple.__new__(Segment, (argv, _name(argv), text, command, "", False, ""))  # see script.py


def _from_text(text: str, *, by_bash: bool = True) -> list[Segment]:
    script = read(text)
    unknown = script.unknown
    if not unknown and not by_bash and not script.portable:
        unknown = "shells differ in how they read it, and it is not for bash"
    found = [] if unknown is None else [Segment(text=text, unknown=unknown)]
    data = b"" if text.isascii() else text.encode(errors="surrogatepass")  # offsets are in bytes
    for command in script.commands:
        program, start, end = command.program, command.start, command.end
        argv = () if program is None else _argv((program, *command.rest))
        written = data[start:end].decode(errors="replace") if data else text[start:end]
        found.append(_segment(argv, written, command))
    return found


def _argv(words: Sequence[Word | str]) -> tuple[str | None, ...]:
    return tuple([word if isinstance(word, str) else word.literal or argument(word) for word in words])


def _from_argv(argv: Argv) -> Segment:
    return _segment(tuple(argv), " ".join(word or ELLIPSIS for word in argv))


def _name(argv: Argv) -> str:
    first = argv[0] if argv else None
    return "" if first is None or ELLIPSIS in first else base_name(first)


_SYSTEM_FOLDER = re.compile(r"/(?:usr/)?(?:local/)?s?bin/[^/]+")


def is_local(program: str | None) -> bool:
    """Whether it is named by a path that leads to no folder of the image's: `./ls` is whatever the workspace says."""
    return program is not None and "/" in program and not _SYSTEM_FOLDER.fullmatch(program)


def _opened(found: list[Segment], layer: int = 0) -> list[Segment]:
    """Take wrappers off, layer by layer."""
    opened: list[Segment] = []
    for segment in found:
        name = segment.program
        inner = opener(name)(name, segment.argv[1:]) if name else NOTHING
        if inner is NOTHING:
            opened.append(segment)
            continue
        if layer >= MAX_LAYERS and (inner.commands or inner.scripts):
            opened.append(segment._replace(inline=f"more than {MAX_LAYERS} wrappers around each other"))
            continue
        readable = bool(inner.scripts)
        # A wrapper of the workspace's own, `./env`, may do anything besides.
        transparent = (readable or (inner.transparent and bool(inner.commands))) and not is_local(segment.argv[0])
        opened.append(segment._replace(inline="" if readable else inner.inline, transparent=transparent))
        for text in inner.scripts:
            opened += _opened(_from_text(text, by_bash=name == "bash"), layer + 1)
        opened += _opened([_from_argv(argv) for argv in inner.commands], layer + 1)
    return opened


# Rules.


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Element = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
DecisionName = Literal["allow", "ask", "refuse"]
_DECISIONS: Mapping[str, Decision] = {decision.name.lower(): decision for decision in Decision}


class Rule(BaseModel):
    """One rule, as it stands in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str = Field(min_length=1)
    decision: DecisionName
    because: str = Field(min_length=1)
    """Shown to whoever is told no or asked."""
    program: Names = ()
    """
    Base names, any of which. An allow rule is about the program of that name in the image, and about `./x` only where
    it says `./x`; any other is about every program of that name, wherever it lies.
    """
    prefix: tuple[Element, ...] = ()
    """The first arguments, each a word or a list of alternatives."""
    options: Names = ()
    """Any of these is among the arguments; single letters also inside a cluster."""
    unless: Names = ()
    """None of these is."""
    arguments: Names = ()
    """Patterns, any of which fits one of the arguments: `of=/dev/*`."""
    dynamic: Annotated[tuple[Dynamic, ...], BeforeValidator(_listed)] = ()
    """A word has any of these in it."""
    redirects: Names = ()
    """Any of these operators; `*` is every one that can write."""
    assigns: Names = ()
    """Patterns for names that are assigned before the command or by export and its kind."""
    keyword: Names = ()
    place: Annotated[tuple[Place, ...], BeforeValidator(_listed)] = ()
    background: bool | None = None
    inline: bool | None = None
    """It evaluates program text that cannot be read. An allow rule that says so is believed."""
    unknown: bool | None = None
    """The text cannot be read. No allow rule may ask for that."""
    matches: Annotated[Names, Field(min_length=1)]
    not_matches: Names = ()

    @model_validator(mode="after")
    def _has_a_condition(self) -> Rule:
        conditions = self.model_fields_set - {"name", "decision", "because", "matches", "not_matches", "unless"}
        if not conditions:
            message = "a rule needs a condition besides `unless`"
            raise ValueError(message)
        if self.unknown and self.decision == "allow":
            message = "text that cannot be read is never allowed"
            raise ValueError(message)
        return self


class Policy(BaseModel):
    """A rule file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: DecisionName
    rule: tuple[Rule, ...] = ()


def load_policy(path: Path) -> Rules:
    """Raises ConfigError naming the file, and the rule and the example where there is one."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path}: cannot be read: {error}"
        raise ConfigError(message) from error
    return parse_policy(text, name=str(path))


def parse_policy(text: str, *, name: str = "policy") -> Rules:
    """Raises ConfigError naming the file, and the rule and the example where there is one."""
    try:
        content = tomllib.loads(text)
        policy = Policy.model_validate(content)
    except tomllib.TOMLDecodeError as error:
        message = f"{name}: not TOML: {error}"
        raise ConfigError(message) from error
    except ValidationError as error:
        faults = "; ".join(f"{_where(fault['loc'], content)}: {fault['msg']}" for fault in error.errors())
        message = f"{name}: {faults}"
        raise ConfigError(message) from error
    titles = [rule.name for rule in policy.rule]
    for title in titles:
        if titles.count(title) > 1:
            message = f"{name}: two rules are called {title!r}"
            raise ConfigError(message)
    for rule in policy.rule:
        _check_examples(rule, name)
    return Rules(policy)


def _where(location: Sequence[int | str], content: Mapping[str, object]) -> str:
    """`rule.2.decision` -> `rule 'no rm': decision`."""
    match location:
        case ["rule", int(index), *rest]:
            rules = content.get("rule")
            rule = rules[index] if isinstance(rules, list) else None
            title = rule.get("name", f"number {index + 1}") if isinstance(rule, dict) else f"number {index + 1}"
            return f"rule {title!r}: {'.'.join(map(str, rest)) or 'as a whole'}"
        case _:
            return ".".join(map(str, location)) or "the file"


def _check_examples(rule: Rule, name: str) -> None:
    compiled = _Compiled(rule)
    for examples, wanted in ((rule.matches, True), (rule.not_matches, False)):
        for example in examples:
            found = any(compiled.fits(segment) is _YES for segment in segments(example))
            if found is not wanted:
                says = "does not match its example" if wanted else "matches its counterexample"
                message = f"{name}: rule {rule.name!r} {says} {example!r}"
                raise ConfigError(message)


# Verdicts.


class Finding(NamedTuple):
    decision: Decision
    rule: str
    because: str
    segment: str
    """The command it is about."""


@dataclass(frozen=True, slots=True)
class Ruling:
    decision: Decision
    findings: tuple[Finding, ...]
    """Every rule that matched, with the strictest first."""

    def verdict(self) -> Verdict:
        strictest = [finding for finding in self.findings if finding.decision is self.decision]
        said = () if self.decision is Decision.ALLOW else strictest
        return Verdict(
            decision=self.decision, reasons=tuple(f"{one.rule}: {one.because}: {one.segment}" for one in said)
        )


class _Fit(enum.IntEnum):
    NO = 0
    MAYBE = 1
    """Only the shell knows; enough to ask, not enough to refuse or allow."""
    YES = 2


_NO, _MAYBE, _YES = _Fit  # Python 3.11 takes 0.1 us to look a member up, and there are hundreds to a verdict
_ALLOW, _ASK = Decision.ALLOW, Decision.ASK


@dataclass(slots=True)
class Rules:
    """A policy that has been checked, ready to judge."""

    policy: Policy
    _default: Decision = field(init=False)
    _by_program: dict[str, list[_Compiled]] = field(init=False, default_factory=dict)
    _general: list[_Compiled] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._default = _DECISIONS[self.policy.default]
        for rule in self.policy.rule:
            compiled = _Compiled(rule)
            for program in compiled.programs:
                self._by_program.setdefault(program, []).append(compiled)
            if not rule.program:
                self._general.append(compiled)
        for rules in self._by_program.values():
            rules.extend(self._general)

    def judge_text(self, text: str) -> Ruling:
        """Judge what bash would run for a text."""
        return self._judge(segments(text))

    def judge_argv(self, argv: Sequence[str]) -> Ruling:
        """Judge a command that no shell reads."""
        return self._judge(segments_of(argv))

    def _judge(self, found: Sequence[Segment]) -> Ruling:
        findings: list[Finding] = []
        for segment in found:
            self._find(segment, findings)
        findings.sort(key=operator.itemgetter(0), reverse=True)
        decision = findings[0].decision if findings else self._default
        return Ruling(decision, tuple(findings))

    def _find(self, segment: Segment, findings: list[Finding]) -> None:
        """Add what the rules say of one segment, and what is asked about whatever they say."""
        spoken = inline_allowed = False
        for compiled in self._by_program.get(segment.program, self._general):
            fit = compiled.fits(segment)
            if fit is _NO:
                continue
            decision = compiled.decision
            if fit is _MAYBE:
                if decision is _ALLOW:
                    continue
                decision = _ASK
            # A rule about redirections or places says nothing of the program.
            spoken = spoken or decision is not _ALLOW or bool(compiled.programs)
            inline_allowed = inline_allowed or (decision is _ALLOW and bool(compiled.inline))
            # As in script.py.
            findings.append(tuple.__new__(Finding, (decision, compiled.name, compiled.because, segment.text)))
        if _is_notable(segment):
            findings += _floors(segment, inline_allowed=inline_allowed)
        if not spoken and segment.argv and not segment.transparent:
            findings.append(Finding(self._default, "default", "no rule speaks of this program", segment.text))


def _is_notable(segment: Segment) -> bool:
    """Most segments are not, and this is asked of every one."""
    if segment.inline or not segment.program or not segment.program.isascii() or segment.program in _ASSIGNING:
        return True
    return segment.command is not None and bool(segment.command.assignments)


def _floors(segment: Segment, *, inline_allowed: bool) -> Iterator[Finding]:
    """Yield what is asked about even where every rule allows."""
    if segment.unknown:
        yield Finding(Decision.ASK, "unknown syntax", segment.unknown, segment.text)
        return
    if segment.inline and not inline_allowed:
        yield Finding(Decision.ASK, "inline evaluation", segment.inline, segment.text)
    if segment.argv and not segment.program:
        yield Finding(Decision.ASK, "dynamic program", "only the shell knows which program this is", segment.text)
    elif not segment.program.isascii():
        because = "its name has letters that only look like others"
        yield Finding(Decision.ASK, "odd program name", because, segment.text)
    for name in assigned(segment):
        if reason := denied(name):
            yield Finding(Decision.ASK, "steering variable", f"{name}: {reason}", segment.text)


_EXPORTING = {"export", "declare", "typeset", "readonly", "local", "env", "sudo"}
_SETTING = {"read", "mapfile", "readarray", "getopts", "printf"}
_ASSIGNING = _EXPORTING | _SETTING


def assigned(segment: Segment) -> Iterator[str]:
    """Yield the names of the variables that a segment sets, in whichever way."""
    command, program, words = segment.command, segment.program, segment.argv[1:]
    if command is not None:
        for assignment in command.assignments:
            yield assignment.name
        if command.keyword == "for":
            yield command.arguments[0].literal or ""
    if program in _EXPORTING:
        for word in words:
            name, equals, _ = (word or "").partition("=")
            if equals and name.removesuffix("+").isidentifier():
                yield name.removesuffix("+")
    if program in _SETTING:
        names = words if program != "printf" else _after_v(words)
        yield from (word for word in names if word and word.isidentifier())


def _after_v(words: Argv) -> Iterator[str | None]:
    """The variable of `printf -v NAME`."""
    for index, word in enumerate(words):
        if word and word.startswith("-v"):
            yield word[2:] or next(iter(words[index + 1 :]), None)


_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})


class _Compiled:
    """A rule, ready to be held against a segment. What is asked most is copied: a model's attribute takes 0.1 us."""

    __slots__ = (
        "background",
        "because",
        "decision",
        "has_shape",
        "inline",
        "name",
        "operators",
        "picks",
        "programs",
        "rule",
        "stands",
        "unknown",
        "written",
    )

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name, self.because, self.decision = rule.name, rule.because, _DECISIONS[rule.decision]
        self.programs = frozenset(map(base_name, rule.program))
        self.picks = self.decision is _ALLOW
        self.written = frozenset(name if is_local(name) else base_name(name) for name in rule.program)
        self.unknown, self.inline, self.background = bool(rule.unknown), rule.inline, rule.background
        self.operators = _WRITES if "*" in rule.redirects else frozenset(rule.redirects)
        self.stands = bool(rule.assigns or rule.dynamic or rule.redirects or rule.keyword or rule.place)
        self.has_shape = bool(rule.prefix or rule.options or rule.unless or rule.arguments)

    def fits(self, segment: Segment) -> _Fit:
        if self.programs and (
            segment.program not in self.programs
            or (self.picks and segment.argv[0] not in self.written and self._means_another(segment))
        ):
            return _NO
        if self.unknown is not bool(segment.unknown):
            return _NO
        if self.inline is not None and self.inline is not bool(segment.inline):
            return _NO
        command = segment.command
        if self.background is not None and (command is None or command.background is not self.background):
            return _NO
        if self.stands and not self._stands(segment):
            return _NO
        return self._shape(segment.argv[1:]) if self.has_shape else _YES

    def _means_another(self, segment: Segment) -> bool:
        """An allow rule does not mean every file of a name."""
        first = segment.argv[0] or ""
        return (first if is_local(first) else segment.program) not in self.written

    def _stands(self, segment: Segment) -> bool:
        """What only a command in a text has: its words as written, redirections, its place."""
        rule, command = self.rule, segment.command
        if rule.assigns and not any(_like(name, rule.assigns) for name in assigned(segment)):
            return False
        if not (rule.dynamic or rule.redirects or rule.keyword or rule.place):
            return True
        if command is None:
            return False
        operators = {
            redirection.operator for redirection in command.redirections if not _closes(redirection.target.literal)
        }
        return (
            (not rule.dynamic or any(word.dynamic.intersection(rule.dynamic) for word in command.words))
            and (not rule.redirects or bool(operators & self.operators))
            and (not rule.keyword or command.keyword in rule.keyword)
            and (not rule.place or bool(set(rule.place) & set(command.places)))
        )

    def _shape(self, words: Argv) -> _Fit:
        rule = self.rule
        fit = _prefix(words, rule.prefix)
        if rule.options:
            fit = min(fit, _options(words, rule.options))
        if rule.unless:
            fit = min(fit, _Fit(_YES - _options(words, rule.unless)))
        if rule.arguments:
            found = any(word is not None and _like(word, rule.arguments) for word in words)
            fit = min(fit, _YES if found else _MAYBE if None in words else _NO)
        return fit


def _closes(target: str | None) -> bool:
    """`2>&1` and `>&-` write no file."""
    return target is not None and (target.isdecimal() or target == "-")


def _like(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def _prefix(words: Argv, prefix: Sequence[Sequence[str]]) -> _Fit:
    for index, alternatives in enumerate(prefix):
        if index >= len(words):
            return _NO
        word = words[index]
        if word is None:
            return _MAYBE
        if word not in alternatives:
            return _NO
    return _YES


def _options(words: Argv, options: Sequence[str]) -> _Fit:
    fit = _NO
    for word in words:
        if word == "--":
            break
        if word is None:
            fit = _MAYBE
        elif word.startswith("-") and any(_is_option(word, option) for option in options):
            return _YES
    return fit


def _is_option(word: str, option: str) -> bool:
    """`-rf` has -f; `--forc` and `--force=x` are --force."""
    if word == option:
        return True
    if option.startswith("--"):
        given = word.partition("=")[0]
        return len(given) > len("--x") and option.startswith(given)
    return len(option) == len("-x") and not word.startswith("--") and option[1] in word[1:]
