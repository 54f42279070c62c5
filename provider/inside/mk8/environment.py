"""What of the sandbox's environment a step's world has, and what of that a process of ProcRun gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .allowlist import ALLOWED
from .compiled import Compiled

SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Fixed, and without a folder that a script could write to."""
_PROCESS: Final = ("HOME", "USER", "SHELL", "LANG", "TERM", "LC_ALL", "LC_CTYPE", "TZ", "XDG_RUNTIME_DIR")
_OWN: Final = "MK8_"


def visible(environ: Mapping[str, str], compiled: Compiled) -> dict[str, str]:
    """What may be read or passed on, and what the signed environment says."""
    theirs = {name: environ[name] for name in (*ALLOWED, *_PROCESS) if name in environ}
    ours = {name: value for name, value in compiled.variables.items() if name.startswith(_OWN)}
    return {"USER": compiled.user, **theirs, "PWD": compiled.root, "PATH": SEARCH_PATH, **ours}


def of_process(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process gets of a world's environment."""
    passed = {name: value for name, value in environment.items() if name in _PROCESS or name.startswith(_OWN)}
    return {**passed, "PATH": SEARCH_PATH, "TMPDIR": "/tmp"}  # noqa: S108 - a tmpfs of the sandbox
