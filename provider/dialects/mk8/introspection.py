"""
What the Mk8* verbs answer, from the tables that enforce: a script can ask what it may do and gets no other answer than
the one that the rules would give.

Answers are made on the host, with the script, and only for the verbs that it has. A key is the verb, or the verb and
its argument.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Collection, Mapping
from typing import Final

from provider.dialects.mk8.configuration import Sandbox
from provider.dialects.mk8.document import documentation, quick_reference
from provider.inside.mk8 import allowlist
from provider.inside.mk8.compiled import Rules
from provider.inside.mk8.slots import freetext
from provider.inside.mk8.templates import TEMPLATES
from provider.inside.mk8.verbs import VERBS
from provider.inside.mk8.words import BUILT_IN

REDACTED: Final = "[REDACTED]"
MACHINE: Final = "sandbox"
"""The name that every container has."""


def answers(verbs: Collection[str], sandbox: Sandbox, root: str) -> dict[str, str]:
    """Everything that these verbs can be asked."""
    given: dict[str, str] = {}
    for verb in sorted(verbs):
        if verb in _ANSWERS:
            given |= _ANSWERS[verb](sandbox, root)
    return given


def verb_names() -> list[str]:
    """All that can stand alone: what is written out at compile time has no name here."""
    return sorted(name for name, verb in VERBS.items() if not verb.control)


def _blacklist(sandbox: Sandbox, root: str) -> Mapping[str, str]:  # noqa: ARG001 - the shape of all of them
    return {"Mk8Blacklist": "\n".join(sandbox.rules.blacklist)}


def _lists(sandbox: Sandbox) -> dict[str, tuple[str, ...]]:
    """Those with words in them."""
    return {name: words for name, words in sorted({**BUILT_IN, **sandbox.rules.words}.items()) if words}


def _vocabulary(sandbox: Sandbox, root: str) -> Mapping[str, str]:  # noqa: ARG001
    return {f"Mk8Vocab {name}": "\n".join(sorted(words)) for name, words in _lists(sandbox).items()}


def _vocabularies(sandbox: Sandbox, root: str) -> Mapping[str, str]:  # noqa: ARG001
    return {"Mk8VocabList": "\n".join(f"{name} ({len(words)} words)" for name, words in _lists(sandbox).items())}


def _freetext(sandbox: Sandbox, root: str) -> Mapping[str, str]:  # noqa: ARG001
    rules = sandbox.rules
    keys = sorted(rules.freetext.get("perVerb", {}))
    enabled, longest = freetext(rules, "")
    lines = [f"Global Enabled: {enabled}", f"Global MaxLength: {longest}", f"Per-verb overrides: {len(keys)}"]
    for key in keys:
        enabled, longest = freetext(rules, key)
        lines.append(f"  {key}: Enabled={enabled}, MaxLength={longest}")
    commands = dict.fromkeys((*(template.description for template in TEMPLATES), *keys))
    each = {f"Mk8FreeText {key}": _one_freetext(key, rules) for key in commands}
    return {"Mk8FreeText": "\n".join(lines), **each}


def _one_freetext(key: str, rules: Rules) -> str:
    enabled, longest = freetext(rules, key)
    return f"Command: {key}\nFreeText Enabled: {enabled}\nMaxLength: {longest}"


def _environment(sandbox: Sandbox, root: str) -> Mapping[str, str]:  # noqa: ARG001
    lines = (
        f"{name}={REDACTED if allowlist.is_redacted(name) else value}" for name, value in sorted(sandbox.env.items())
    )
    return {"Mk8Env": "\n".join(lines)}


def _information(sandbox: Sandbox, root: str) -> Mapping[str, str]:
    """Only what is as true of the container as of this machine: the kernel is the same one, the rest is as planned."""
    lines = (
        f"SandboxId: {sandbox.id}",
        f"WorkspaceRoot: {root}",
        f"WorkingDirectory: {root}",
        f"User: {sandbox.user}",
        f"OS: {platform.system()}",
        f"Architecture: {platform.machine()}",
        f"ProcessArchitecture: {platform.machine()}",
        "Runtime: Python 3 (SysOsInfo has the version)",
        f"ProcessorCount: {os.cpu_count() or 1}",
        f"MachineName: {MACHINE}",
    )
    return {"Mk8Info": "\n".join(lines)}


_ANSWERS: Final[Mapping[str, Callable[[Sandbox, str], Mapping[str, str]]]] = {
    "Mk8Blacklist": _blacklist,
    "Mk8Vocab": _vocabulary,
    "Mk8VocabList": _vocabularies,
    "Mk8FreeText": _freetext,
    "Mk8Env": _environment,
    "Mk8Info": _information,
    "Mk8Templates": lambda _, __: {"Mk8Templates": "\n".join(template.description for template in TEMPLATES)},
    "Mk8Verbs": lambda _, __: {"Mk8Verbs": "\n".join(verb_names())},
    "Mk8Skills": lambda _, __: {"Mk8Skills": quick_reference()},
    "Mk8Docs": lambda _, __: {"Mk8Docs": documentation()},
}
