"""
The variables of a command, by the contract's five steps: inherit, default excludes, exclude, set, include_only.

Nothing is inherited from the host. What there is to inherit is a mapping that the caller gives, and "all" of it is what
our own rules admit: no variable that steers other programs, and none that leads to a service of somebody's machine.
What the operator sets by hand may steer programs, but not the loader and the shell themselves.
"""

from __future__ import annotations

import enum
import fnmatch
import functools
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from provider.errors import ConfigError
from provider.policy.env import AGENTS, CODEX_EXCLUDES, LOADER, NETWORK, SHELL, STEERING, Table, check_env

DEFAULT_EXCLUDES: Final = CODEX_EXCLUDES.names
# Both versions of the contract: the first has no locale, the later one no USERNAME.
_CORE = "HOME LOGNAME PATH SHELL USER USERNAME TMPDIR TEMP TMP LANG LC_ALL LC_CTYPE"
CORE: Final = frozenset(_CORE.split())
NETWORK_DISABLED: Final = "CODEX_SANDBOX_NETWORK_DISABLED"

# PATH, HOME and their kind are the provider's own here, so they can be inherited. How many there may be is not this
# table's business: its check would look at the first ones only.
ADMITTED: Final = Table(families=(*STEERING, AGENTS, NETWORK), max_count=sys.maxsize)
SETTABLE: Final = Table(families=(LOADER, SHELL))


class Inherit(enum.StrEnum):
    ALL = "all"
    CORE = "core"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPolicy:
    """
    What the operator wants; never part of a call.

    Raises:
        ConfigError: `set` has variables that no command may have; each is named with its reason.
    """

    inherit: Inherit = Inherit.ALL
    ignore_default_excludes: bool = False
    """Off, as the contract's first version has it: names that look like secrets stay out."""
    exclude: tuple[str, ...] = ()
    set: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Comes after the excludes, so it can bring back a name that they dropped."""
    include_only: tuple[str, ...] = ()
    """Comes last, and goes over `set` as well."""

    def __post_init__(self) -> None:
        if faults := check_env(self.set, SETTABLE):
            named = "; ".join(f"{fault.name}: {fault.reason}" if fault.name else fault.reason for fault in faults)
            message = f"the environment policy sets what no command may have: {named}"
            raise ConfigError(message)


def environment(policy: EnvironmentPolicy, given: Mapping[str, str], *, network: bool) -> dict[str, str]:
    """Apply the policy to what there is to inherit. Without network, a variable says so to programs that ask."""
    found = {} if policy.inherit is Inherit.NONE else _admitted(given)
    if policy.inherit is Inherit.CORE:
        found = {name: value for name, value in found.items() if name.upper() in CORE}
    excludes = policy.exclude if policy.ignore_default_excludes else (*DEFAULT_EXCLUDES, *policy.exclude)
    found = {name: value for name, value in found.items() if not _any(excludes, name)}
    found.update(policy.set)
    if policy.include_only:
        found = {name: value for name, value in found.items() if _any(policy.include_only, name)}
    return found if network else found | {NETWORK_DISABLED: "1"}


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern fits a whole name, in any case: `*` is any run, `?` one character, all else itself."""
    return _compiled(pattern).match(name) is not None


def _any(patterns: Iterable[str], name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns)


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    # fnmatch knows how not to backtrack over many stars, but also classes, which the contract's matcher does not have.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")), re.IGNORECASE)


def _admitted(given: Mapping[str, str]) -> dict[str, str]:
    refused = {fault.name for fault in check_env(given, ADMITTED)}
    return {name: value for name, value in given.items() if name not in refused}
