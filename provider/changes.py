"""
Control files: what programs of the host obey by themselves when a person later opens or enters the workspace.

A command inside cannot run anything outside. It can leave a git hook, an editor's task or a line of configuration that
does, hours later, as that person. Which of them a run created, changed or removed is told in its outcome and receipt;
to keep a run from it, protect the name (`protection.py`).

Covered are the names in `CONTROLS`, of the workspace's first level and as deep as each says, and not the same names in
folders or repositories further down, nor what they point at, nor the project's own code: a Makefile, a package's
scripts, tests, which a person runs on purpose. Links are compared and never followed. What a lease changes after its
command has ended is not told.

A file is known by inode, time of change, size and mode, and the second of these cannot be set by anybody. A directory
whose inode and time of change are as they were has the names that it had: so where there is nothing to find, a look is
one system call.
"""

from __future__ import annotations

import itertools
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from provider.model import ControlChange, Workspace

GIT = "git runs what it names"
HOOKS = "git runs it"
EDITOR = "an editor runs what it names when the folder is opened"
SHELL = "a shell runs it, or what it names, when the folder is entered"
PACKAGES = "names programs that a package manager runs, also when only asked for its version"
AGENT = "a coding agent runs what it names, or obeys it"
COMMITS = "names what is run at the next commit"
FORGE = "a forge runs it at the next push, with its secrets"

CONTROLS: Mapping[str, str] = {
    ".git/config": GIT,  # core.fsmonitor, core.hooksPath, filters, aliases: `git status` is enough, in a prompt say
    ".git/config.worktree": GIT,
    ".git/commondir": "leads git to another repository's configuration and hooks",
    ".git/hooks/*": HOOKS,
    ".git/info/attributes": "chooses among the programs that git's configuration names",
    ".gitattributes": "chooses among the programs that git's configuration names",
    "HEAD": "with `config`, `objects` and `refs` it makes the folder itself a repository, whose settings git obeys",
    ".husky/*": HOOKS,
    ".husky/_/*": HOOKS,
    ".githooks/*": HOOKS,
    ".pre-commit-config.yaml": COMMITS,
    "lefthook.yml": COMMITS,
    "lefthook-local.yml": COMMITS,
    ".vscode/*": EDITOR,  # tasks.json on opening, settings.json with paths of tools, launch.json, mcp.json
    ".idea/*": EDITOR,
    ".idea/runConfigurations/*": EDITOR,
    ".zed/*": EDITOR,
    ".devcontainer.json": EDITOR,  # initializeCommand runs outside of the container
    ".devcontainer/*": EDITOR,
    ".exrc": EDITOR,
    ".nvimrc": EDITOR,
    ".nvim.lua": EDITOR,
    ".dir-locals.el": EDITOR,
    ".cargo/config": PACKAGES,  # build.rustc-wrapper; editors call cargo on opening
    ".cargo/config.toml": PACKAGES,
    ".npmrc": PACKAGES,
    ".yarnrc": PACKAGES,
    ".yarnrc.yml": PACKAGES,  # yarnPath
    ".envrc": SHELL,
    ".autoenv.zsh": SHELL,
    "mise.toml": SHELL,
    ".mise.toml": SHELL,
    ".mise/config.toml": SHELL,
    ".mcp.json": AGENT,
    ".claude/*": AGENT,
    ".codex/*": AGENT,
    ".agents/*": AGENT,
    ".cursor/*": AGENT,
    ".gemini/*": AGENT,
    ".github/workflows/*": FORGE,
    ".gitlab-ci.yml": FORGE,
}
_HARMLESS = ".sample"
"""Git's own examples, a dozen in every repository, which it never runs."""
_MOST_NAMES = 1_000
_FRESH_NS = 20_000_000
"""A directory that was changed so shortly ago can be changed again without its time telling."""
_WORKSPACES = 64

Identity = tuple[int, int, int, int]
"""Inode, time of change, size, mode."""


class _Folder:
    """A directory of the table: what to look for in it."""

    def __init__(self) -> None:
        self.names: dict[str, _Folder | str] = {}
        self.all: str = ""
        """Why every name counts, if it does."""


def _tree() -> _Folder:
    root = _Folder()
    for path, because in CONTROLS.items():
        *parents, name = path.split("/")
        folder = root
        for parent in parents:
            inner = folder.names.setdefault(parent, _Folder())
            assert isinstance(inner, _Folder)
            folder = inner
        if name == "*":
            folder.all = because
        else:
            folder.names[name] = because
    return root


_ROOT = _tree()


Look = Mapping[str, tuple[Identity, str]]
"""The control files of a workspace at one moment, each with why it is one."""
_Listed = dict[str, tuple[tuple[int, int], tuple[str, ...]]]
"""Of a directory: inode and time of change, and which names were there."""


class Controls:
    """Looks at workspaces, and remembers of each what it need not look for again."""

    def __init__(self) -> None:
        self._listed: OrderedDict[Workspace, _Listed] = OrderedDict()

    def look(self, workspace: Workspace) -> Look:
        """See what there is now."""
        listed = self._listed.setdefault(workspace, {})
        self._listed.move_to_end(workspace)
        if len(self._listed) > _WORKSPACES:
            self._listed.popitem(last=False)
        try:
            root = os.lstat(workspace.path)
        except OSError:
            return {}  # taken away under the run
        return dict(_look(f"{workspace.path}/", "", root, _ROOT, listed)) if stat.S_ISDIR(root.st_mode) else {}

    def changes(self, workspace: Workspace, before: Look) -> tuple[ControlChange, ...]:
        """Compare what there is now with what there was."""
        now = self.look(workspace)
        return () if now == before else tuple(_changes(before, now))


def _changes(before: Look, now: Look) -> Iterator[ControlChange]:
    for path in sorted(before.keys() | now.keys()):
        old, new = before.get(path), now.get(path)
        shown = path.encode("utf-8", "backslashreplace").decode()
        if new is None and old:
            yield ControlChange(path=shown, change="removed", because=old[1])
        elif new and new != old:
            yield ControlChange(path=shown, change="changed" if old else "created", because=new[1])


def _look(
    root: str, prefix: str, info: os.stat_result, folder: _Folder, listed: _Listed
) -> Iterator[tuple[str, tuple[Identity, str]]]:
    names = _names(root, prefix, info, folder, listed)
    if len(names) >= _MOST_NAMES:
        yield f"{prefix}*", (_identity(info), folder.all)
    for name in names:
        path = prefix + name
        try:
            status = os.lstat(root + path)
        except OSError:
            continue  # gone since it was listed
        inner = folder.names.get(name, folder.all)
        if not stat.S_ISDIR(status.st_mode):
            # A link or a file in place of a directory leads as far as the directory would.
            yield path, (_identity(status), _why(inner))
        elif isinstance(inner, _Folder):
            yield from _look(root, f"{path}/", status, inner, listed)


def _names(root: str, prefix: str, info: os.stat_result, folder: _Folder, listed: _Listed) -> tuple[str, ...]:
    """Those that are there of what is looked for; asked for anew only where the directory has changed."""
    state = (info.st_ino, info.st_ctime_ns)
    known = listed.get(prefix)
    if known and known[0] == state:
        return known[1]
    is_old = info.st_ctime_ns < time.time_ns() - _FRESH_NS
    if folder.all:
        names = _all_names(root + prefix)
    else:
        names = tuple(name for name in folder.names if _is_there(root + prefix + name))
    if is_old:
        listed[prefix] = (state, names)
    return names


def _is_there(path: str) -> bool:
    return os.access(path, os.F_OK, follow_symlinks=False)


def _all_names(folder: str) -> tuple[str, ...]:
    try:
        with os.scandir(folder) as entries:
            wanted = (entry.name for entry in entries if not entry.name.endswith(_HARMLESS))
            return tuple(itertools.islice(wanted, _MOST_NAMES))
    except OSError:
        return ()


def _why(inner: _Folder | str) -> str:
    if isinstance(inner, str):
        return inner
    return inner.all or next(map(_why, inner.names.values()))


def _identity(status: os.stat_result) -> Identity:
    return (status.st_ino, status.st_ctime_ns, status.st_size, status.st_mode)
