"""
The files a sandbox is made of: the program that is its pid 1, the programs of tool contracts that run in it, and the
seccomp profiles. Read once, known by digest.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from provider.errors import ConfigError
from provider.gvisor import GVISOR
from provider.model import Tier

_DATA = Path(__file__).parent / "data"
_INSIDE = Path(__file__).parent / "inside"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    text: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    init_path: Path
    init_sha256: str
    inside_path: Path
    inside_sha256: str
    profiles: Mapping[Tier, Profile]
    gvisor_profiles: Mapping[Tier, Profile]
    """The same in what runsc understands of the format."""

    def profile(self, tier: Tier, runtime: str) -> Profile:
        return (self.gvisor_profiles if runtime == GVISOR else self.profiles)[tier]


def load_assets(data: Path = _DATA) -> Assets:
    """
    Read and check what the installation should hold.

    Raises:
        ConfigError: a part is missing, or a profile would protect from nothing.
    """
    machine = platform.machine().lower()
    init = data / "init" / f"sandbox-init-{_MACHINES.get(machine, machine)}"
    try:
        program = init.read_bytes()
        profiles, gvisor_profiles = _profiles(data / "seccomp", ""), _profiles(data / "seccomp", "gvisor-")
    except (OSError, ValueError) as error:
        message = f"the installation is incomplete: {error}; in a checkout, run `make init seccomp`"
        raise ConfigError(message) from error
    return Assets(
        init_path=init,
        init_sha256=hashlib.sha256(program).hexdigest(),
        inside_path=_INSIDE,
        inside_sha256=_tree_sha256(_INSIDE),
        profiles=profiles,
        gvisor_profiles=gvisor_profiles,
    )


def _tree_sha256(folder: Path) -> str:
    """Over all but what Python compiled the sources to, which it checks against them itself."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    files = {path.relative_to(folder): path.read_bytes() for path in found}
    named = (f"{name.as_posix()} {hashlib.sha256(text).hexdigest()}\n" for name, text in files.items())
    return hashlib.sha256("".join(named).encode()).hexdigest()


def _profiles(folder: Path, prefix: str) -> dict[Tier, Profile]:
    return {tier: _profile((folder / f"{prefix}{tier}.json").read_text()) for tier in get_args(Tier)}


def _profile(text: str) -> Profile:
    # Docker takes `{}` for "unconfined", without a word.
    profile = json.loads(text)
    if not isinstance(profile, dict) or profile.get("defaultAction") != "SCMP_ACT_ERRNO":
        message = "a seccomp profile does not deny by default"
        raise ValueError(message)
    return Profile(text=text, sha256=hashlib.sha256(text.encode()).hexdigest())
