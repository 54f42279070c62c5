"""
Rule files in the original's form, read and never executed; and the one rule that a yes for ever adds to them.

    prefix_rule(
        pattern = ["git", ["push", "fetch"]],     # the first words; a list inside is a choice
        decision = "prompt",                      # allow (when it is left out), prompt, forbidden
        match = ["git push origin", ["git", "fetch"]],
        not_match = ["git status"],
        justification = "the remote is shared",
    )

The original is Starlark, a language with functions and loops. Here a file is a list of such calls with literal
arguments, which is what people write, and anything else is refused with its line. A file whose examples do not hold is
not loaded, and with one such file none are: a rule that is missing could be the one that forbids.

The strictest rule that matches wins. A rule that restricts also counts for the program under another path; one that
allows counts for the program as it is written, so that `ls` does not allow `./ls`.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import shlex
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from provider.errors import ConfigError
from provider.model import Decision
from provider.policy.known import ELLIPSIS, Argv, base_name, unwrap

DECISIONS: Final[Mapping[str, Decision]] = {
    "allow": Decision.ALLOW,
    "prompt": Decision.ASK,
    "forbidden": Decision.REFUSE,
}
NAMES: Final[Mapping[Decision, str]] = {decision: name for name, decision in DECISIONS.items()}
SUFFIXES: Final = (".codexpolicy", ".rules")
MAX_BYTES: Final = 1024 * 1024  # rules are written by people, one line for each yes
_FORM: Final = 'prefix_rule(pattern=["git", "push"], decision="prompt", match=[…], not_match=[…], justification="…")'


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRule:
    pattern: tuple[tuple[str, ...], ...]
    """The leading words, each with its alternatives; of the first there is one."""
    decision: Decision = Decision.ALLOW
    justification: str = ""

    def fits(self, argv: Argv) -> bool | None:
        """Whether a command begins like this; None when words that only the shell knows decide it."""
        for index, alternatives in enumerate(self.pattern):
            word = argv[index] if index < len(argv) else ""
            if word is None or ELLIPSIS in word:
                return None
            moved = index == 0 and self.decision is not Decision.ALLOW and base_name(word) in alternatives
            if index >= len(argv) or not (moved or word in alternatives):
                return False
        return True

    def __str__(self) -> str:
        words = (one[0] if len(one) == 1 else f"[{'|'.join(one)}]" for one in self.pattern)
        return f"{' '.join(words)} ({NAMES[self.decision]})"


Rules = tuple[PrefixRule, ...]


class Match(NamedTuple):
    rule: PrefixRule
    command: tuple[str, ...]

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words of the command that the rule is about."""
        return self.command[: len(self.rule.pattern)]


@dataclass(frozen=True, slots=True)
class Evaluation:
    matches: tuple[Match, ...]

    @property
    def decision(self) -> Decision | None:
        """The strictest; None when no rule speaks of these commands."""
        return max((match.rule.decision for match in self.matches), default=None)

    @property
    def decisive(self) -> Match | None:
        """Of the strictest matches the longest: the one whose justification is told."""
        decisive = [match for match in self.matches if match.rule.decision is self.decision]
        # Between two of the same length, one that says why.
        return max(decisive, key=lambda match: (len(match.prefix), bool(match.rule.justification)), default=None)

    def as_json(self) -> dict[str, object]:
        if self.decision is None:
            return {"noMatch": {}}
        found = [
            {"prefixRuleMatch": {"matchedPrefix": list(match.prefix), "decision": NAMES[match.rule.decision]}}
            for match in self.matches
        ]
        return {"match": {"decision": NAMES[self.decision], "matchedRules": found}}


def evaluate(rules: Rules, commands: Iterable[Sequence[str]]) -> Evaluation:
    """Hold every rule against every command."""
    found = (Match(rule, tuple(argv)) for argv in commands for rule in rules if rule.fits(argv))
    return Evaluation(tuple(found))


# Reading.


def load_rules(folder: Path) -> Rules:
    """
    Read every rule file of a folder, in the order of their names. A folder that is not there has no rules.

    Raises:
        ConfigError: a file cannot be read, is not of the one form, or its examples do not hold.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    except FileNotFoundError:
        return ()
    except OSError as error:
        message = f"failed to read execpolicy files from {folder}: {error}"
        raise ConfigError(message) from error
    return tuple(rule for path in paths for rule in parse_rules(_text(path), name=str(path)))


def parse_rules(text: str, *, name: str) -> Rules:
    """Raises ConfigError naming the file, the line, and what would be right."""
    try:
        return tuple(_rules(text))
    except _Fault as fault:
        line = f"line {fault.line}: " if fault.line else ""
        message = f"failed to parse execpolicy file {name}: {line}{fault}"
        raise ConfigError(message) from fault


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        message = f"failed to read execpolicy file {path}: {error}"
        raise ConfigError(message) from error


class _Fault(Exception):
    def __init__(self, reason: str, node: ast.expr | ast.stmt | ast.keyword | None = None, *, line: int = 0) -> None:
        super().__init__(reason)
        self.line = node.lineno if node else line


def _rules(text: str) -> Iterator[PrefixRule]:
    for statement in _parsed(text).body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id="prefix_rule"), args=[], keywords=keywords)):
                yield from _expanded(statement, _arguments(keywords))
            case _:
                reason = f"only calls with named, literal arguments can stand here, such as {_FORM}"
                raise _Fault(reason, statement)


def _parsed(text: str) -> ast.Module:
    """Python reads every text that Starlark reads, where it is a call with literals."""
    if len(text) > MAX_BYTES:
        reason = f"longer than {MAX_BYTES} bytes"
        raise _Fault(reason)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an unknown escape is a warning to Python and an error to Starlark
            return ast.parse(text)
    except SyntaxError as error:
        reason = f"{error.msg}; a rule is {_FORM}"
        raise _Fault(reason, line=error.lineno or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL; nesting beyond reason
        reason = f"{str(error) or type(error).__name__}; a rule is {_FORM}"
        raise _Fault(reason) from error


_KNOWN = ("pattern", "decision", "match", "not_match", "justification")


def _arguments(keywords: Sequence[ast.keyword]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for keyword in keywords:
        if keyword.arg not in _KNOWN or keyword.arg in found:
            given = "**" if keyword.arg is None else keyword.arg
            said = "is given twice" if keyword.arg in found else f"is not one of {', '.join(_KNOWN)}"
            reason = f"argument `{given}` {said}"
            raise _Fault(reason, keyword)
        found[keyword.arg] = keyword.value
    return found


def _expanded(call: ast.stmt, arguments: Mapping[str, ast.expr]) -> Iterator[PrefixRule]:
    """One call is one rule for each of its programs."""
    if "pattern" not in arguments:
        reason = f"missing `pattern`; a rule is {_FORM}"
        raise _Fault(reason, call)
    first, *rest = _pattern(arguments["pattern"])
    decision = Decision.ALLOW
    if node := arguments.get("decision"):
        said = _string(node, "decision")
        if said not in DECISIONS:
            reason = f"invalid decision: {said}; it must be one of {', '.join(DECISIONS)}"
            raise _Fault(reason, node)
        decision = DECISIONS[said]
    justification = ""
    if node := arguments.get("justification"):
        justification = _string(node, "justification")
        if not justification.strip():
            reason = "invalid justification: it cannot be blank; leave it out or say why"
            raise _Fault(reason, node)
    rules = [
        PrefixRule(pattern=((program,), *rest), decision=decision, justification=justification) for program in first
    ]
    _check_examples(rules, arguments)
    yield from rules


def _pattern(node: ast.expr) -> list[tuple[str, ...]]:
    if not isinstance(node, ast.List):
        reason = f"invalid pattern element: pattern must be a list (got {_kind(node)})"
        raise _Fault(reason, node)
    if not node.elts:
        reason = "invalid pattern element: pattern cannot be empty"
        raise _Fault(reason, node)
    return [_alternatives(element) for element in node.elts]


def _alternatives(node: ast.expr) -> tuple[str, ...]:
    match node:
        case ast.Constant(value=str(word)):
            return (word,)
        case ast.List(elts=[]):
            reason = "invalid pattern element: pattern alternatives cannot be empty"
            raise _Fault(reason, node)
        case ast.List(elts=elements):
            return tuple(
                _string(element, "invalid pattern element: pattern alternative", says="must be a string")
                for element in elements
            )
        case _:
            reason = f"invalid pattern element: pattern element must be a string or list of strings (got {_kind(node)})"
            raise _Fault(reason, node)


def _string(node: ast.expr, what: str, *, says: str = "must be a string") -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case _:
            reason = f"{what} {says} (got {_kind(node)})"
            raise _Fault(reason, node)


def _kind(node: ast.expr) -> str:
    """The type that a literal has, or what else stands in its place."""
    return type(node.value).__name__ if isinstance(node, ast.Constant) else type(node).__name__.lower()


# Examples.


def _check_examples(rules: Sequence[PrefixRule], arguments: Mapping[str, ast.expr]) -> None:
    if node := arguments.get("match"):
        missed = [words for words in _examples(node) if not any(rule.fits(words) for rule in rules)]
        if missed:
            listed, examples = ", ".join(map(str, rules)), ", ".join(map(shlex.join, missed))
            expected = "expected every example to match at least one rule"
            reason = f"{expected}. rules: {listed}; unmatched examples: {examples}"
            raise _Fault(reason, node)
    if node := arguments.get("not_match"):
        for words in _examples(node):
            for rule in rules:
                if rule.fits(words):
                    reason = f"expected example to not match rule `{rule}`: {shlex.join(words)}"
                    raise _Fault(reason, node)


def _examples(node: ast.expr) -> Iterator[list[str]]:
    if not isinstance(node, ast.List):
        reason = f"invalid example: examples must be a list (got {_kind(node)})"
        raise _Fault(reason, node)
    for example in node.elts:
        words = _example(example)
        if not words:
            reason = "invalid example: it has no words"
            raise _Fault(reason, example)
        yield words


def _example(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            try:
                return shlex.split(text)
            except ValueError as error:
                reason = f"invalid example: {text!r}: {error}"
                raise _Fault(reason, node) from error
        case ast.List(elts=elements):
            return [_string(element, "invalid example: a word") for element in elements]
        case _:
            reason = f"invalid example: it must be a string or a list of strings (got {_kind(node)})"
            raise _Fault(reason, node)


# Approve and remember.


_BROAD_PROGRAMS = (
    "bash sh zsh dash ash ksh fish csh tcsh busybox python python2 python3 py pypy pypy3 node nodejs deno bun ruby "
    "perl php lua osascript pwsh powershell cmd env sudo doas su xargs nohup nice timeout time command exec eval "
    "source . git rm mv cp dd chmod chown find sed awk ssh scp rsync curl wget docker podman kubectl make npm npx "
    "pnpm yarn uv uvx pip pip3 cargo go gradle mvn apt apt-get tee ln trap"
)
_BROAD = frozenset((program,) for program in _BROAD_PROGRAMS.split()) | frozenset(
    tuple(prefix.split())
    for prefix in (
        *("npm run", "npm exec", "pnpm run", "yarn run", "bun run", "deno run", "go run", "cargo run", "uv run"),
        *("python -m", "python3 -m", "git -C", "docker run", "docker exec", "rm -f", "rm -r", "rm -rf", "rm -fr"),
    )
)


def is_too_broad(prefix: Sequence[str]) -> bool:
    """Whether an allow rule for this prefix would allow anything: an interpreter, a wrapper, or a program of many."""
    if not prefix or (base_name(prefix[0]), *prefix[1:]) in _BROAD:
        return True
    inner = unwrap((*prefix, "anything"))  # what would run if one more word followed
    if inner.inline or inner.scripts:
        return True
    return any(is_too_broad([word for word in command if word][:-1]) for command in inner.commands)


def rule_line(prefix: Sequence[str]) -> str:
    """The line that allows a prefix; JSON's strings are Starlark's too, as long as no character is escaped in two."""
    words = ", ".join(json.dumps(word, ensure_ascii=False) for word in prefix)
    return f'prefix_rule(pattern=[{words}], decision="allow")'


def remember(path: Path, prefix: Sequence[str]) -> bool:
    """
    Add a rule that allows a prefix, unless that line is there already. Tell whether it was added. Blocks on a lock.

    The file is written beside and moved into place, under a lock on its folder. An append would be shorter, but one
    that is cut off by a crash leaves half a line, and a file that no longer loads. The lock is not on the file, since
    that is replaced while others wait for it.

    Raises:
        ConfigError: the prefix would allow anything, or the file does not load, now or with the new line.
    """
    if is_too_broad(prefix):
        message = f"a rule for `{shlex.join(prefix)}` would allow anything; name more of the command"
        raise ConfigError(message)
    path = path.resolve()  # a link to a file of rules stays a link
    line = rule_line(prefix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent):
            text = _text(path) if path.exists() else ""
            if line in text.split("\n"):
                return False
            text += "" if not text or text.endswith("\n") else "\n"
            parse_rules(f"{text}{line}\n", name=str(path))
            _replace(path, f"{text}{line}\n")
    except (OSError, UnicodeEncodeError) as error:
        message = f"failed to add a rule to {path}: {error}"
        raise ConfigError(message) from error
    return True


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)  # the new name is on the disk as well
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    data = text.encode()
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
