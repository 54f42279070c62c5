"""
Which paths a script may read and which it may write, and where below the root they lie.

First by the text alone: no `..`, nothing outside. Then, where the files are, by what the path really leads to: every
link on the way is followed, and whatever is true of the text must be true of that place as well. What comes back is the
path as it was written, absolute: deleting a link deletes the link.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Final

from .errors import CompileError, InvalidArgument, PathViolation

OWN_FILES: Final = frozenset({"mk8.shell.env", "mk8.shell.signed.env"})
"""The sandbox's own configuration: neither read nor written, by no verb."""
WRITE_BLOCKED_EXTENSIONS: Final = frozenset(
    {
        *(".exe", ".com", ".scr", ".msi", ".msp", ".dll", ".bin", ".run", ".appimage", ".elf", ".so", ".dylib"),
        *(".js", ".mjs", ".cjs"),
        *(".jse", ".wsf", ".wsh", ".msh", ".vbs", ".vbe"),
        *(".csproj", ".fsproj", ".vbproj", ".proj", ".targets", ".props", ".sln"),
        ".rs",
    }
)
"""What a tool that a script may start would execute or load."""
WRITE_BLOCKED_NAMES: Final = frozenset(
    {
        *("makefile", "gnumakefile", "cmakelists.txt", "dockerfile", ".npmrc"),
        *("directory.build.props", "directory.build.targets", "directory.packages.props", "nuget.config"),
        *("package.json", "build.rs", "cargo.toml", "setup.py", "setup.cfg", "pyproject.toml"),
        *(".gitattributes", ".gitmodules"),
        *OWN_FILES,
    }
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")
"""And surrogates, which no name of a file can have."""
_SEPARATOR: Final = re.compile(r"[/\\]")
_VERSIONED_LIBRARY: Final = re.compile(r"\.so(\.[0-9]+)+")
_SHOWN: Final = 200


def resolve_read(text: str, root: str, *, links: bool = False) -> str:
    """
    Where a path that is only read lies.

    Raises:
        InvalidArgument: it is no path.
        PathViolation: it leads out of the sandbox, or to the sandbox's own files.
    """
    path = _below(text, root)
    _refuse_own_files(text, path[len(root) :])
    if links:
        _refuse_own_files(text, _followed(text, path, root))
    return path


def resolve_write(verb: str, text: str, root: str, *, links: bool = False) -> str:
    """
    Where a path that is written, moved or deleted lies.

    Raises:
        InvalidArgument, PathViolation: as for reading.
        CompileError: something there would be executed by a tool, or is git's own.
    """
    path = _below(text, root)
    _refuse_own_files(text, path[len(root) :])
    _refuse_blocked(verb, text, path[len(root) :])
    if links:
        real = _followed(text, path, root)
        _refuse_own_files(text, real)
        _refuse_blocked(verb, text, real)
    return path


def write_refusal(path: str) -> str | None:
    """Why nothing may be written there, for a path relative to the root or to a folder below it. None if it may."""
    # Names are compared as file systems of other machines would: the workspace can be theirs.
    parts = [part.rstrip(" .").lower() for part in path.split("/") if part] or [""]
    name = parts[-1]
    extension = f".{name.rpartition('.')[2]}" if "." in name else ""
    if ".git" in parts or name.endswith(".git"):
        return "what belongs to git (.git) is changed by git commands only"
    if name in WRITE_BLOCKED_NAMES:
        return f"{name} steers tools, so no script may write it"
    if extension in WRITE_BLOCKED_EXTENSIONS or _VERSIONED_LIBRARY.search(name):
        return f"files with the extension {extension} are executed or loaded by tools, so no script may write them"
    return None


def check_name_pattern(verb: str, text: str) -> str:
    """Raises CompileError for what could reach another folder."""
    if not text.strip() or _CONTROL.search(text) or _SEPARATOR.search(text) or text in {".", ".."}:
        raise CompileError(
            verb,
            f"{shown(text)} is no pattern for names of files. Right: *.txt or report-?.json, without a folder; "
            "the folder is an argument of its own.",
        )
    return text


def is_root(path: str, root: str, *, links: bool = False) -> bool:
    """Whether a resolved path is the root itself."""
    return path == root or (links and os.path.realpath(path) == os.path.realpath(root))


def shown(text: str) -> str:
    """A text of the script in a message: in one line, not too long."""
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return repr(text)


def _below(text: str, root: str) -> str:
    if not text.strip():
        raise InvalidArgument(_wrong(text, "is blank"))
    if _CONTROL.search(text):
        raise InvalidArgument(_wrong(text, "has a control character or half a character in it"))
    if ".." in text and ".." in _SEPARATOR.split(text):
        raise PathViolation(_wrong(text, "has '..' in it"))
    path = posixpath.normpath(posixpath.join(root, text))
    if path != root and not path.startswith(f"{root}/"):
        raise PathViolation(_wrong(text, "is outside of the sandbox"))
    return path


def _wrong(text: str, why: str) -> str:
    return f"{shown(text)} {why}. Right: a path below the workspace, such as src/app.txt or $WORKSPACE/src/app.txt."


def _followed(text: str, path: str, root: str) -> str:
    """What the path leads to, relative to the root, with every link followed as far as there is something."""
    real_root, real = os.path.realpath(root), os.path.realpath(path)
    if real != real_root and not real.startswith(f"{real_root}/"):
        raise PathViolation(_wrong(text, "leads out of the sandbox through a link"))
    return real[len(real_root) :]


def _refuse_own_files(text: str, relative: str) -> None:
    if "mk8" in relative.lower() and not OWN_FILES.isdisjoint(relative.lower().split("/")):
        raise PathViolation(_wrong(text, "is the sandbox's own configuration, which no script reads or changes"))


def _refuse_blocked(verb: str, text: str, relative: str) -> None:
    if refusal := write_refusal(relative):
        raise CompileError(verb, f"{shown(text)} is write-protected: {refusal}.")
