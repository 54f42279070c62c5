"""
How dangerous a command is: allowed, asked about, or blocked. The most dangerous of its layers counts.

The table is the contract's, with the twins that it forgot: any mkfs, /boot, `git -C x clean`, `curl --output`, `sudo`.
"""

from __future__ import annotations

import enum
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from provider.dialects.shell_cmd.layers import Layer


class Tier(enum.IntEnum):
    ALLOW = 0
    HITL_REQUIRED = 1
    BLOCK = 2


class Risk(NamedTuple):
    tier: Tier
    reason: str
    tags: tuple[str, ...]


LOW: Final = Risk(Tier.ALLOW, "low_risk_command", ("risk:none",))
EMPTY: Final = Risk(Tier.ALLOW, "invalid_or_empty_command", ("risk:none",))
_DELETE: Final = ("risk:destructive", "risk:delete")
CATASTROPHIC_DELETE: Final = Risk(Tier.BLOCK, "catastrophic_delete_target", (*_DELETE, "risk:critical-target"))
WILDCARD: Final = Risk(Tier.HITL_REQUIRED, "destructive_delete_wildcard", _DELETE)
DELETE: Final = Risk(Tier.HITL_REQUIRED, "destructive_delete", _DELETE)
DISK: Final = Risk(Tier.BLOCK, "catastrophic_disk_operation", ("risk:destructive", "risk:disk"))
DISK_WRITE: Final = Risk(Tier.BLOCK, "catastrophic_disk_write", ("risk:destructive", "risk:disk"))
PERMISSIONS: Final = Risk(Tier.HITL_REQUIRED, "recursive_permission_change", ("risk:permissions", "risk:recursive"))
GIT_CLEAN: Final = Risk(Tier.HITL_REQUIRED, "destructive_git_clean", ("risk:destructive", "risk:git"))
DOWNLOAD: Final = Risk(Tier.HITL_REQUIRED, "remote_download", ("risk:network", "risk:download"))
INDIRECT: Final = Risk(Tier.HITL_REQUIRED, "indirect_execution", ("risk:indirect",))
"""Ours: it runs something that cannot be read from its arguments."""


def assess(found: Sequence[Layer], trusted: Sequence[Path]) -> Risk:
    """Tell the risk of a command; what lies below `trusted` is no critical target."""
    if not found or not found[0].program:
        return EMPTY
    return max((_assess(layer, trusted) for layer in found), key=lambda risk: risk.tier)


def _assess(layer: Layer, trusted: Sequence[Path]) -> Risk:
    program, words = layer.program, layer.arguments
    if program in _DELETERS:
        return _deletion(words, trusted)
    if program.startswith("mkfs.") or program in _DISK_TOOLS:
        return DISK
    if program == "dd" and any(_on_a_device(word) for word in words):
        return DISK_WRITE
    if program in _WORDED and _WORDED[program](words):
        return _REASONS[program]
    # A program that is asked to read itself from an empty stdin runs nothing.
    opaque = layer.opened.inline and not layer.opened.inline.endswith("from its input")
    return INDIRECT if opaque else LOW


_DELETERS: Final = frozenset({"rm", "rmdir", "unlink", "del", "erase"})
_DISK_TOOLS: Final = frozenset(
    {
        *("mkfs", "mke2fs", "mkswap", "wipefs", "blkdiscard"),
        *("fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted"),
    }
)


def _on_a_device(word: str) -> bool:
    return word.startswith("of=") and posixpath.normpath(word[3:]).startswith(("/dev/", "//dev/"))


# Deletion.


def _deletion(words: Sequence[str], trusted: Sequence[Path]) -> Risk:
    recursive = _has(words, "r", "--recursive", "/s")
    forced = _has(words, "f", "--force", "/q")
    critical = any(_is_critical(word, trusted) for word in words if not word.startswith("-"))
    if "--no-preserve-root" in words or (recursive and forced and critical):
        return CATASTROPHIC_DELETE
    return WILDCARD if any(mark in word for word in words for mark in "*?") else DELETE


_CRITICAL: Final = (
    *("/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/var", "/boot", "/root"),
    *("/proc", "/sys", "/dev", "/system", "/library", "/private"),
)
_CRITICAL_ALONE: Final = frozenset({"/", "~", "/home", "/users"})


def _is_critical(word: str, trusted: Sequence[Path]) -> bool:
    target = re.sub(r"^/+", "/", posixpath.normpath(re.sub(r"(?<=/)\*+$", "", word)))  # `/*` is all of `/`
    if any(target != "/" and Path(target).is_relative_to(root) for root in trusted):
        return False
    folded = target.lower()
    return (
        folded in _CRITICAL_ALONE
        or bool(re.fullmatch(r"[a-z]:[/\\]?", folded))
        or any(folded == name or folded.startswith(f"{name}/") for name in _CRITICAL)
    )


# The others.


def _has(words: Iterable[str], letter: str, *spelled: str) -> bool:
    """`-Rf` has r; `--recur` is taken for `--recursive`, as GNU programs do."""
    for word in words:
        given = word.lower().partition("=")[0]
        if given.startswith("--"):
            if len(given) > len("--x") and any(long.startswith(given) for long in spelled):
                return True
        elif given in spelled or (given.startswith("-") and letter and letter in given[1:]):
            return True
    return False


def _cleans(words: Sequence[str]) -> bool:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"} else 1
    rest = words[at + 1 :]
    return list(words[at : at + 1]) == ["clean"] and any(_has(rest, letter, "--force") for letter in "fdx")


def _fetches(words: Sequence[str]) -> bool:
    return any(re.match(r"https?://", word, re.IGNORECASE) for word in words)


_CURL_SAVES: Final = ("--output", "--output-dir", "--output-document", "--remote-name", "--remote-name-all")
_CURL_SHORT: Final = re.compile(r"-[^-AbcCdDeEFhHKmPQrtTuUwxXyYz]*?[oO]")  # not the value of another: -XPOST


def _curl_saves(words: Sequence[str]) -> bool:
    return _fetches(words) and (any(map(_CURL_SHORT.match, words)) or _has(words, "", *_CURL_SAVES))


def _changes_all(words: Sequence[str]) -> bool:
    return _has(words, "r", "--recursive")


def _finds_and_deletes(words: Sequence[str]) -> bool:
    return "-delete" in words


_WORDED: Final[dict[str, Callable[[Sequence[str]], bool]]] = {
    **dict.fromkeys(("chmod", "chown", "chgrp"), _changes_all),
    "git": _cleans,
    "curl": _curl_saves,
    "wget": _fetches,  # into a file, unless told otherwise
    "find": _finds_and_deletes,
}
_REASONS: Final = {
    **dict.fromkeys(("chmod", "chown", "chgrp"), PERMISSIONS),
    "git": GIT_CLEAN,
    "curl": DOWNLOAD,
    "wget": DOWNLOAD,
    "find": DELETE,
}
