"""
From a script to what the sandbox executes. Either everything in it is right as far as that can be told before it runs,
or nothing of it runs; the error then says which step, which argument, and what would be right.

The order is the contract's, since it decides which of several mistakes is told: write out, limits, captures, labels,
templates and patches, then each step, then each step of the cleanup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from provider.dialects.mk8.configuration import Sandbox
from provider.dialects.mk8.expand import Expansion, Primitive
from provider.dialects.mk8.introspection import answers
from provider.dialects.mk8.limits import (
    LONGEST_LABEL,
    MOST_CAPTURES,
    MOST_CHARS,
    MOST_KEYS,
    MOST_PATCHES,
    MOST_RETRIES,
    SCRIPT_SECONDS,
    STEP_SECONDS,
)
from provider.dialects.mk8.script import SCRIPT, Options, Script
from provider.inside.mk8 import blacklist
from provider.inside.mk8.check import PATH_GUARDS, at, check_guard, check_path, check_step, texts
from provider.inside.mk8.compiled import Compiled, Rules, Step
from provider.inside.mk8.errors import Blacklisted, CompileError, Mk8Error
from provider.inside.mk8.paths import shown
from provider.inside.mk8.variables import RESERVED, expand, names

ROOT: Final = "/workspace"
"""Where every sandbox has its workspace."""
_LABEL: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_LABEL}}}")
_CAPTURE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIDDEN: Final = ("MK8_FREETEXT_CONFIG", "MK8_BLACKLIST", "MK8_VOCAB_")
"""Settings that stand in the signed environment and are nothing to a script."""
_GOTO: Final = "goto:"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of variables before the script runs."""

    values: Mapping[str, str]
    since: Mapping[str, int]
    """By name in upper case: the step after which only the run knows its value. `$PREV`, and captures."""
    of_processes: frozenset[str]
    """Captures that hold the output of a ProcRun."""

    def value(self, text: str, step: int) -> str | None:
        """A text at one step with its variables filled in; None where only the run can."""
        if "$" not in text:
            return text
        for name in names(text):
            if self.since.get(name, step) < step:
                return None
        return expand(text, self.values, MOST_CHARS)


def compile_script(script: Script, sandbox: Sandbox) -> Compiled:
    """
    Check a script for a sandbox and give it in the form that is executed.

    Raises:
        Mk8Error: nothing of it may run; mostly CompileError.
    """
    if not script.operations:
        raise CompileError(
            SCRIPT, 'there is no operation. Right: {"operations": [{"verb": "Echo", "args": ["hello"]}]}'
        )
    options = _clamped(script.options, sandbox)
    expansion = Expansion(sandbox.fragments)
    operations = expansion.write_out(script.operations, "operations")
    cleanup = expansion.write_out(script.cleanup, "cleanup")
    every = (*operations, *cleanup)
    _check_captures(every, sandbox.env)
    targets = _check_labels(operations, cleanup)
    for step in every:
        _check_parts(step)
    variables = _variables(sandbox)
    known = _known(every, variables, pipes=options.pipe_step_output)
    steps = [_step(step, options, targets) for step in every]
    values = _values(every, known)
    rules = _without_terms(every, steps, values, known, sandbox.rules)
    for index, step in enumerate(every):
        try:
            _check(steps[index], index, values[index], known, rules)
            if step.cwd is not None:
                _check_path("workingDirectory", known.value(step.cwd, index), rules)
        except Mk8Error as error:
            raise at(error, f"{step.verb}, step {index}: {step.place}") from None
    return Compiled(
        root=ROOT,
        user=sandbox.user,
        network=sandbox.network,
        steps=tuple(steps[: len(operations)]),
        cleanup=tuple(steps[len(operations) :]),
        variables=variables,
        rules=sandbox.rules,
        answers=answers({step.verb for step in every}, sandbox, ROOT),
        failure_mode=options.failure_mode,
        retry_delay=options.retry_delay,
        script_timeout=options.script_timeout,
        output_bytes=options.max_output_bytes,
        error_bytes=options.max_error_bytes,
        pipes=options.pipe_step_output,
    )


def _clamped(options: Options, sandbox: Sandbox) -> Options:
    limits = sandbox.limits
    script_timeout = min(options.script_timeout or SCRIPT_SECONDS, limits.script_seconds)
    return options.model_copy(
        update={
            "script_timeout": script_timeout,
            "step_timeout": min(options.step_timeout or STEP_SECONDS, script_timeout),
            "retry_delay": min(options.retry_delay, script_timeout),
            "max_retries": min(options.max_retries, MOST_RETRIES),
            "max_output_bytes": min(options.max_output_bytes, limits.output_bytes),
            "max_error_bytes": min(options.max_error_bytes, limits.error_bytes),
        }
    )


def _variables(sandbox: Sandbox) -> dict[str, str]:
    theirs = {name.upper(): value for name, value in sandbox.env.items() if not name.upper().startswith(_HIDDEN)}
    return {**theirs, "WORKSPACE": ROOT, "CWD": ROOT, "USER": sandbox.user}


def _check_captures(steps: Sequence[Primitive], environment: Mapping[str, str]) -> None:
    taken = {name.upper() for name in environment}
    seen: set[str] = set()
    for step in steps:
        if step.capture is None:
            continue
        name = step.capture.upper()
        if not _CAPTURE.fullmatch(step.capture):
            why = "is no name: letters, digits and _, and no digit first"
        elif name in RESERVED:
            why = f"is reserved, as are {', '.join(sorted(RESERVED))}"
        elif name in seen:
            why = "is used twice; names are the same in any case"
        elif name in taken:
            why = "is a name of the sandbox's environment"
        elif len(seen) >= MOST_CAPTURES:
            why = f"is one too many: {MOST_CAPTURES} captures are the most"
        else:
            seen.add(name)
            continue
        raise CompileError(step.verb, f"captureAs {shown(step.capture)} {why}. ({step.place})")


def _check_labels(operations: Sequence[Primitive], cleanup: Sequence[Primitive]) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for index, step in enumerate((*operations, *cleanup)):
        if step.label is None:
            continue
        if not _LABEL.fullmatch(step.label):
            right = f"1 to {LONGEST_LABEL} letters, digits, - and _"
            raise CompileError(step.verb, f"label {shown(step.label)} is none: {right}. ({step.place})")
        if step.label.lower() in found:
            raise CompileError(step.verb, f"label {shown(step.label)} is used twice, in any case. ({step.place})")
        found[step.label.lower()] = (index, step.label)
    for index, step in enumerate((*operations, *cleanup)):
        if step.on_failure is not None:
            _check_jump(step, index, found, len(operations))
    return found


def _check_jump(step: Primitive, index: int, found: Mapping[str, tuple[int, str]], operations: int) -> None:
    target = _target(step)
    if not target:
        why = f'is not of the form "{_GOTO}label"'
    elif index >= operations:
        why = "stands in the cleanup, which runs from its first step to its last"
    elif target not in found or found[target][0] >= operations:
        why = f"names no label; there are: {', '.join(spelled for _, spelled in found.values()) or 'none'}"
    elif found[target][0] <= index:
        why = "goes back; a jump only goes forward, to a later step"
    else:
        return
    raise CompileError(step.verb, f"onFailure {shown(step.on_failure or '')} {why}. ({step.place})")


def _target(step: Primitive) -> str:
    given = (step.on_failure or "").lower()
    return given.removeprefix(_GOTO) if given.startswith(_GOTO) else ""


def _check_parts(step: Primitive) -> None:
    """What stands beside the arguments of FileTemplate and FilePatch."""
    wrong = ""
    if step.template is not None:
        if not (step.source or "").strip():
            wrong = "template.source is blank; it is the path of the file with the {{KEYS}}"
        elif len(step.template) > MOST_KEYS:
            wrong = f"template.values has {len(step.template)} keys; {MOST_KEYS} is the most"
        elif bad := next((key for key, value in step.template.items() if "$" in value), None):
            wrong = f"the template's value of {shown(bad)} has a $ in it, but variables are not filled in there"
    elif len(step.patches) > MOST_PATCHES:
        wrong = f"there are {len(step.patches)} patches; {MOST_PATCHES} is the most"
    else:
        for place, (find, replace) in enumerate(step.patches):
            if not find:
                wrong = f"patches[{place}].find is empty"
            elif "$" in find or "$" in replace:
                wrong = f"patches[{place}] has a $ in it, but variables are not filled in there"
    if wrong:
        raise CompileError(step.verb, f"{wrong}. ({step.place})")


def _known(steps: Sequence[Primitive], variables: Mapping[str, str], *, pipes: bool) -> _Known:
    captures = {step.capture.upper(): index for index, step in enumerate(steps) if step.capture}
    return _Known(
        values=variables if pipes else {**variables, "PREV": ""},
        since={**captures, "PREV": -1} if pipes else captures,
        of_processes=frozenset(name for name, index in captures.items() if steps[index].verb == "ProcRun"),
    )


def _values(steps: Sequence[Primitive], known: _Known) -> list[tuple[str | None, ...]]:
    """The arguments of each step as far as they are known. What is filled in counts like what is written."""
    values: list[tuple[str | None, ...]] = []
    chars = 0
    for index, step in enumerate(steps):
        given: tuple[str | None, ...] = step.args
        if "$" in "".join(step.args):
            try:
                given = tuple([known.value(text, index) for text in step.args])
            except Mk8Error as error:
                raise at(error, f"{step.verb}, step {index}: {step.place}") from None
        values.append(given)
        chars += sum(map(len, filter(None, given)))
        if chars > MOST_CHARS:
            text = f"with variables filled in, the script has more than {MOST_CHARS} characters."
            raise CompileError(step.verb, f"{text} ({step.place})")
    return values


def _step(step: Primitive, options: Options, targets: Mapping[str, tuple[int, str]]) -> Step:
    return Step(
        verb=step.verb,
        args=step.args,
        retries=options.max_retries if step.retries is None else min(step.retries, MOST_RETRIES),
        timeout=min(step.timeout or options.step_timeout, options.script_timeout),
        label=step.label,
        on_failure=targets[_target(step)][1] if step.on_failure is not None else None,
        capture=step.capture,
        guards=step.guards,
        cwd=step.cwd if step.verb == "ProcRun" else None,
        source=step.source,
        template=step.template,
        patches=step.patches,
    )


def _without_terms(
    every: Sequence[Primitive],
    steps: Sequence[Step],
    values: Sequence[Sequence[str | None]],
    known: _Known,
    rules: Rules,
) -> Rules:
    """
    The rules without the blacklist, if the whole script has none of its terms: looking once for a hundred terms in a
    long text is ten times faster than looking in each short one. Otherwise each step is looked at, to tell where.
    """
    said = list(chain.from_iterable(map(texts, steps, values)))
    for index, step in enumerate(every):
        if step.source is not None or step.cwd is not None or step.guards:
            beside = (step.source, step.cwd, *(text for guard in step.guards for text in guard.args))
            said += (known.value(text, index) or "" for text in beside if text is not None)
    try:
        blacklist.check("\0".join(said), rules.blacklist, ROOT)
    except Blacklisted:
        return rules
    return replace(rules, blacklist=())


def _check(step: Step, index: int, values: Sequence[str | None], known: _Known, rules: Rules) -> None:
    """Everything that is known of it now; the rest is checked in the sandbox, by the same functions."""
    if step.verb == "ProcRun":
        _check_process_variables(step, index, known)
    check_step(step, values, rules, ROOT)
    if step.source is not None:
        _check_path("template.source", known.value(step.source, index), rules)
    for guard in step.guards:
        if guard.kind in PATH_GUARDS:
            check_guard(guard, [known.value(text, index) for text in guard.args], rules, ROOT)


def _check_path(name: str, path: str | None, rules: Rules) -> None:
    if path is not None:
        try:
            check_path(path, rules, ROOT)
        except Mk8Error as error:
            raise at(error, name) from None


def _check_process_variables(step: Step, index: int, known: _Known) -> None:
    for place, text in enumerate((*step.args, step.cwd or ""), start=1):
        if "$" not in text:
            continue
        used = names(text)
        where = "workingDirectory" if place > len(step.args) else f"argument {place}"
        if "PREV" in used:
            why = "$PREV, whatever the step before wrote, is never part of a command"
        elif bad := [name for name in used if name in known.of_processes and known.since[name] < index]:
            why = f"${bad[0]} is the output of a process, which is never part of another one's command"
        else:
            continue
        raise CompileError(step.verb, f"{why}. Captures of other verbs may be. ({where})")
