"""
From a script to a flat list of steps: ForEach, Include and the batch verbs are written out, an If becomes a guard on
every step that it covers.

Whatever can make a short script long is counted while it grows: steps, and the characters of their texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from provider.dialects.mk8.limits import (
    DEEPEST,
    LONGEST_FRAGMENT_ID,
    MOST_CHARS,
    MOST_ENTRIES,
    MOST_ITEMS,
    MOST_OPERATIONS,
)
from provider.dialects.mk8.script import SCRIPT, If, Operation, parse_fragment
from provider.inside.mk8 import variables
from provider.inside.mk8.compiled import Guard
from provider.inside.mk8.errors import CompileError, InvalidArgument
from provider.inside.mk8.paths import shown
from provider.inside.mk8.verbs import VERBS

BATCHES: Final = {
    "FileWriteMany": ("FileWrite", ("path", "content")),
    "FileCopyMany": ("FileCopy", ("source", "target")),
    "FileDeleteMany": ("FileDelete", ("path",)),
}
"""What each becomes, and what one entry is."""

_NAMES: Final = {name.lower(): name for name in VERBS}
_FRAGMENT: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_FRAGMENT_ID}}}")
_OWN_FIELDS: Final = {
    "for_each": ("forEach", "ForEach", '{"items": ["a", "b"], "body": {"verb": ..., "args": [...]}}'),
    "if_": ("if", "If", '{"predicate": {"kind": "PrevContains", "args": ["x"]}, "then": {"verb": ..., "args": [...]}}'),
    "template": ("template", "FileTemplate", '{"source": "page.tmpl", "values": {"TITLE": "Start"}}'),
    "patches": ("patches", "FilePatch", '[{"find": "old", "replace": "new"}]'),
}
"""Fields that one verb needs and no other has: their names, their verbs, and what they look like."""
_OF_ONE_STEP: Final = {"label": "label", "capture_as": "captureAs", "on_failure": "onFailure"}
_OF_ANY_STEP: Final = frozenset(
    {"verb", "args", "max_retries", "step_timeout", "working_directory", *_OF_ONE_STEP},
)
_NEEDS_MORE: Final = {owner for _, owner, _ in _OWN_FIELDS.values()} | {name for name in VERBS if VERBS[name].control}


@dataclass(slots=True, kw_only=True)
class Primitive:
    """One step, with everything written out but its variables. Nobody changes it; frozen would cost a millisecond."""

    verb: str
    args: tuple[str, ...]
    place: str
    """Where it comes from, for people."""
    guards: tuple[Guard, ...] = ()
    retries: int | None = None
    timeout: float | None = None
    label: str | None = None
    capture: str | None = None
    on_failure: str | None = None
    cwd: str | None = None
    source: str | None = None
    template: Mapping[str, str] | None = None
    patches: tuple[tuple[str, str], ...] = ()


class _Around(NamedTuple):
    """What surrounds an operation."""

    depth: int = 0
    guards: tuple[Guard, ...] = ()
    item: Mapping[str, str] | None = None
    """`$ITEM` and `$INDEX`, in the body of a loop."""
    looped: bool = False
    included: bool = False
    retries: int | None = None
    timeout: float | None = None


class Expansion:
    """A script while it is written out. Operations and cleanup share the limits."""

    def __init__(self, fragments: Mapping[str, Sequence[Any]]) -> None:
        self._fragments = {name.lower(): data for name, data in fragments.items()}
        self._parsed: dict[str, list[Operation]] = {}
        self._steps: list[Primitive] = []
        self._count = self._chars = self._asked = 0

    def write_out(self, operations: Sequence[Operation], name: str) -> list[Primitive]:
        """
        Give all steps of a list of operations.

        Raises:
            CompileError: a limit, a name, or a form; the text has the place.
        """
        self._steps = []
        around = _Around()
        for index, operation in enumerate(operations):
            self._expand(operation, around, f"{name}[{index}]")
        return self._steps

    def _expand(self, operation: Operation, around: _Around, place: str) -> None:
        verb = _NAMES.get(operation.verb.lower())
        if verb is None:
            given = operation.verb if operation.verb.isascii() and operation.verb.isidentifier() else "?"
            text = f"there is no verb {shown(operation.verb)}; the verb Mk8Verbs lists all."
            raise CompileError(given[:64], f"{text} ({place})")
        if around.depth > DEEPEST:
            text = f"{around.depth} deep inside ForEach, If and Include; {DEEPEST} is the most."
            raise CompileError(verb, f"{text} ({place})")
        _check_fields(verb, operation, place)
        if not VERBS[verb].control:
            self._add_step(verb, operation, around, place)
            return
        around = around._replace(
            depth=around.depth + (verb not in BATCHES),
            retries=around.retries if operation.max_retries is None else operation.max_retries,
            timeout=around.timeout if operation.step_timeout is None else operation.step_timeout,
        )
        if verb in BATCHES:
            self._expand_batch(verb, operation, around, place)
            return
        if operation.for_each is not None:
            self._expand_loop(operation.for_each.items, operation.for_each.body, around, place)
        elif operation.if_ is not None:
            self._expand_if(operation.if_, around, place)
        else:
            self._expand_fragment(operation, around, place)

    def _expand_loop(self, items: Sequence[str], body: Operation, around: _Around, place: str) -> None:
        verb = "ForEach"
        if around.looped:
            text = "a loop inside a loop. Right: one ForEach, with all combinations as items."
            raise CompileError(verb, f"{text} ({place})")
        if len(items) > MOST_ITEMS:
            raise CompileError(verb, f"{len(items)} items; {MOST_ITEMS} is the most. ({place})")
        for index, item in enumerate(items):
            values = {"ITEM": item, "INDEX": str(index)}
            self._expand(body, around._replace(looped=True, item=values), f"{place}.forEach.body, item {index}")

    def _expand_if(self, condition: If, around: _Around, place: str) -> None:
        predicate = condition.predicate
        args = self._texts(predicate.args, around, f"{place}.if.predicate.args")
        guard = Guard(kind=predicate.kind, args=args, once=self._asked)
        self._asked += 1
        self._expand(condition.then, around._replace(guards=(*around.guards, guard)), f"{place}.if.then")

    def _expand_fragment(self, operation: Operation, around: _Around, place: str) -> None:
        verb, right = "Include", f"Right: [id], one of: {', '.join(self._fragments) or '(none is registered)'}."
        if len(operation.args) != 1:
            raise CompileError(verb, f"expected 1 argument, got {len(operation.args)}. {right} ({place})")
        (name,) = self._texts(operation.args, around, place)
        if around.included:
            raise CompileError(verb, f"a fragment includes no other one. ({place})")
        if not _FRAGMENT.fullmatch(name) or name.lower() not in self._fragments:
            raise CompileError(verb, f"there is no fragment {shown(name)}. {right} ({place})")
        for index, inner in enumerate(self._operations(name.lower(), place)):
            # A fragment is a text of its own: what stands for $ITEM here is nothing to it.
            self._expand(inner, around._replace(included=True, item=None), f"{place}, fragment {name}[{index}]")

    def _operations(self, name: str, place: str) -> list[Operation]:
        if name not in self._parsed:
            self._parsed[name] = parse_fragment(name, self._fragments[name])
            if not self._parsed[name]:
                verb = "Include"
                raise CompileError(verb, f"the fragment {shown(name)} has no operations. ({place})")
        return self._parsed[name]

    def _expand_batch(self, verb: str, operation: Operation, around: _Around, place: str) -> None:
        single, parts = BATCHES[verb]
        entries, rest = divmod(len(operation.args), len(parts))
        right = f"{', '.join(parts)}, and so on for 1 to {MOST_ENTRIES} entries"
        if rest or not 1 <= entries <= MOST_ENTRIES:
            raise CompileError(verb, f"{len(operation.args)} arguments. Right: {right}. ({place})")
        for index in range(entries):
            args = operation.args[index * len(parts) : (index + 1) * len(parts)]
            self._add(
                Primitive(
                    verb=single,
                    args=self._texts(args, around, place),
                    place=f"{place}, entry {index}",
                    guards=around.guards,
                    retries=around.retries,
                    timeout=around.timeout,
                )
            )

    def _add_step(self, verb: str, operation: Operation, around: _Around, place: str) -> None:
        template = operation.template
        patches = tuple((patch.find, patch.replace) for patch in operation.patches)
        if template or patches:
            self._count_texts(
                [text for pair in (*(template.values.items() if template else ()), *patches) for text in pair], place
            )
        self._add(
            Primitive(
                verb=verb,
                args=self._texts(operation.args, around, place),
                place=place,
                guards=around.guards,
                retries=around.retries if operation.max_retries is None else operation.max_retries,
                timeout=around.timeout if operation.step_timeout is None else operation.step_timeout,
                label=operation.label,
                capture=operation.capture_as,
                on_failure=operation.on_failure,
                cwd=self._path(operation.working_directory, around, place),
                source=self._path(template.source if template else None, around, place),
                template=template.values if template else None,
                patches=patches,
            )
        )

    def _add(self, step: Primitive) -> None:
        self._count += 1
        if self._count > MOST_OPERATIONS:
            text = f"more than {MOST_OPERATIONS} operations, with loops, fragments and cleanup written out."
            raise CompileError(step.verb, f"{text} ({step.place})")
        self._steps.append(step)

    def _path(self, text: str | None, around: _Around, place: str) -> str | None:
        return None if text is None else self._texts([text], around, place)[0]

    def _texts(self, texts: Sequence[str], around: _Around, place: str) -> tuple[str, ...]:
        if around.item:
            try:
                texts = [variables.expand(text, around.item, MOST_CHARS) for text in texts]
            except InvalidArgument:  # before it is made
                raise _too_long(place) from None
        self._count_texts(texts, place)
        return tuple(texts)

    def _count_texts(self, texts: Sequence[str], place: str) -> None:
        self._chars += sum(map(len, texts))
        if self._chars > MOST_CHARS:
            raise _too_long(place)
        if not all(map(str.isascii, texts)) and (bad := [text for text in texts if not _is_text(text)]):
            raise CompileError(SCRIPT, f"half of a surrogate pair is no text: {shown(bad[0])} ({place})")


def _check_fields(verb: str, operation: Operation, place: str) -> None:
    """What an operation must have, and what it must not, by its verb."""
    given = operation.model_fields_set
    if "args" in given and given <= _OF_ANY_STEP and verb not in _NEEDS_MORE:
        return
    for name, (spelled, owner, form) in _OWN_FIELDS.items():
        if verb == owner and not (name in given and getattr(operation, name)):
            raise CompileError(verb, f"`{spelled}` is missing. Right: {form} ({place})")
        if verb != owner and name in given:
            raise CompileError(verb, f"`{spelled}` belongs to {owner}. ({place})")
    if verb in {"ForEach", "If"}:
        if operation.args:
            raise CompileError(verb, f"it takes no args; they belong to the operation inside. ({place})")
    elif "args" not in given:
        raise CompileError(verb, f'args is missing. Right: "args": [{VERBS[verb].describe}] ({place})')
    if VERBS[verb].control and (wrong := given.intersection(_OF_ONE_STEP)):
        names = ", ".join(_OF_ONE_STEP[name] for name in sorted(wrong))
        raise CompileError(verb, f"{names} belongs to one step: put it on the operation inside. ({place})")


def _too_long(place: str) -> CompileError:
    return CompileError(SCRIPT, f"the texts of all steps have more than {MOST_CHARS} characters together. ({place})")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
