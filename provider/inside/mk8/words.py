"""
Word lists: what the slots of a template may be filled with. Configuration and sandbox add to them, and can make new
ones; nothing is ever taken away. Case does not matter.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

_SINGLE: Final = (*string.ascii_uppercase, *string.digits)


def _each(begin: str, ends: str) -> tuple[str, ...]:
    return tuple(f"{begin}{end}" for end in ends.split())


_BRANCHES: Final = (
    *_each(
        "feature/",
        "auth agents channels models providers jobs tasks skills resources api cli tests docs config logging "
        "permissions transcription shell containers",
    ),
    *_each("bugfix/", "build tests auth api cli data permissions models"),
    *_each("hotfix/", "security critical data"),
    *_SINGLE,
)
_TAGS: Final = (
    *(f"v0.{minor}.0" for minor in range(1, 10)),
    *(f"v1.{minor}.0" for minor in range(6)),
    *(f"v2.{minor}.0" for minor in range(4)),
    *("v3.0.0", "v3.1.0"),
    *_each("v0.1.0-", "alpha beta rc1 rc2"),
    *_each("v1.0.0-", "alpha beta rc1 rc2"),
    *_each("v2.0.0-", "alpha beta rc1"),
    *("baseline", "checkpoint", "snapshot", "draft", "initial", "stable", "latest"),
)
_MIGRATIONS: Final = (
    *("Initial", "Baseline", "Seed"),
    *_each(
        "Add",
        "Users Roles Permissions Auth Agents Channels Contexts Models Providers Jobs Tasks Skills Resources "
        "Containers Devices Messages Conversations ScheduledTasks Indexes Constraints Relations",
    ),
    *("UpdateSchema", "RefactorTables", "RenameColumns", "RemoveDeprecated", "Cleanup", "Optimize"),
    *("V1", "V2", "V3", "V4", "V5"),
    *("Test", "Debug", "Snapshot"),
    *_SINGLE,
)
_SUFFIXES: Final = (
    *("App", "Api", "Core", "Infrastructure", "Contracts", "Tests", "Utils", "Client", "Server", "Worker", "Service"),
    *("Web", "Grpc", "Shared", "Common", "Domain", "Data", "Models", "Handlers", "Extensions"),
    *_each("Application.", "API Core Infrastructure Contracts Tests"),
    *("PublicAPI", "UITests"),
)
_DOTNET: Final = (
    *("console", "classlib", "webapi", "web", "mvc", "razor", "worker", "mstest", "nunit", "xunit", "blazorserver"),
    *("blazorwasm", "grpc", "gitignore", "editorconfig", "globaljson", "tool-manifest"),
)

# Enough to say what a change is about, and nothing else: no names, no numbers beyond a digit, no whole sentences.
_COMMIT: Final = (
    *_each(
        "",  # what was done
        "Add Allow Bump Change Check Clean Correct Create Delete Disable Document Drop Enable Extend Extract Finish "
        "Fix Handle Implement Import Improve Limit Load Log Make Merge Migrate Move Optimize Prepare Prevent Reduce "
        "Refactor Release Remove Rename Replace Require Restore Revert Rewrite Simplify Skip Sort Split Start Stop "
        "Support Test Update Upgrade Use Validate Verify",
    ),
    *_each(
        "",  # of which kind
        "Breaking Broken Critical Deprecated Duplicate Empty Final First Initial Internal Invalid Last Major Minor "
        "Missing New Old Optional Public Shared Simple Temporary Unused",
    ),
    *_each(
        "",  # software
        "app arguments branch bug bugs build cache case changes class client code command commands comments commit "
        "config connection data database default defaults dependencies dependency docs endpoint endpoints error "
        "errors event example examples feature file files flags format formatting function functions handler handlers "
        "index issue limits lint list logging message messages method methods middleware migration migrations module "
        "modules name names options output package packages path paths performance query queue README request "
        "requests response results retry route routes schema script scripts server service services settings setup "
        "table template templates tests timeout tools type types typo users validation variables version warnings "
        "worker",
    ),
    *_each(
        "",  # what it is used for
        "agent agents auth authentication channel channels container containers context job jobs model models "
        "permission permissions provider providers resource resources role roles sandbox shell skill skills task "
        "tasks transcription API CI CLI DB HTML HTTP JSON SQL UI URL XML YAML",
    ),
    *_each("", "across and as at by for from in into of on to up with without"),
    *("checkpoint", "progress", "snapshot", "WIP", "work"),
    *_SINGLE,
)

BUILT_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "BlameLineRanges": ("1,10", "1,20", "1,50", "1,100", "1,200", "1,500", "1,1000"),
    "BranchNames": _BRANCHES,
    "CommitWords": _COMMIT,
    "DotnetTemplates": _DOTNET,
    "MigrationNames": _MIGRATIONS,
    "ProjectSuffixes": _SUFFIXES,
    "RemoteNames": ("origin", "upstream", "fork", "backup", "mirror"),
    "TagNames": _TAGS,
}


def merged(*additions: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """The lists with what configuration and sandbox add to them. A list's name is taken in any case."""
    lists = {name: list(words) for name, words in BUILT_IN.items()}
    spelled = {name.lower(): name for name in lists}
    for addition in additions:
        for name, words in addition.items():
            known = spelled.setdefault(name.lower(), name)
            lists.setdefault(known, []).extend(word.strip() for word in words if word.strip())
    return {name: tuple(dict.fromkeys(words)) for name, words in lists.items()}


def entry(words: tuple[str, ...], word: str) -> str | None:
    """The entry of a list that this word is, as the list has it."""
    known = _folded(words)
    return word if word in words else known.get(word.lower())


def not_in(words: tuple[str, ...], text: Iterable[str]) -> list[str]:
    """The words of a text that a list does not have."""
    known = _folded(words)
    return [word for word in text if word.lower() not in known]


@lru_cache(maxsize=64)
def _folded(words: tuple[str, ...]) -> dict[str, str]:
    return {word.lower(): word for word in reversed(words)}
