"""What `provider.assets` promises: an installation that would protect from nothing does not load."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

import pytest

from provider import assets as assets_module
from provider.assets import load_assets
from provider.errors import ConfigError

TIERS = ("default", "unix", "debug")
PROFILE = json.dumps({"defaultAction": "SCMP_ACT_ERRNO"})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of two small files."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    (tmp_path / "init").mkdir()
    (tmp_path / "init/sandbox-init-x86_64").write_bytes(b"\x7fELF")
    (tmp_path / "seccomp").mkdir()
    for tier in TIERS:
        (tmp_path / f"seccomp/{tier}.json").write_text(PROFILE)
        (tmp_path / f"seccomp/gvisor-{tier}.json").write_text(PROFILE)
    return tmp_path


def test_what_runs_inside_is_known_by_digest(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A changed, added or renamed file is another digest; what Python compiled is not looked at."""
    inside = tmp_path / "inside"
    (inside / "part").mkdir(parents=True)
    (inside / "part/a.py").write_text("x")
    monkeypatch.setattr(assets_module, "_INSIDE", inside)
    first = load_assets(data).inside_sha256
    (inside / "part/a.cpython-311.pyc").write_text("compiled")
    assert load_assets(data).inside_sha256 == first
    digests = {first}
    for change in (lambda: (inside / "part/a.py").write_text("y"), lambda: (inside / "hosts").write_text("z")):
        change()
        digests.add(load_assets(data).inside_sha256)
    (inside / "hosts").rename(inside / "part/hosts")
    assert len(digests | {load_assets(data).inside_sha256}) == 4


def test_parts_are_known_by_digest(data: Path):
    """Pid 1 and each profile are named by content, so that a plan is bound to them."""
    assets = load_assets(data)
    assert assets.init_path == data / "init/sandbox-init-x86_64"
    assert assets.init_sha256 == hashlib.sha256(b"\x7fELF").hexdigest()
    assert {tier: profile.text for tier, profile in assets.profiles.items()} == dict.fromkeys(TIERS, PROFILE)
    assert assets.profiles["unix"].sha256 == hashlib.sha256(PROFILE.encode()).hexdigest()


@pytest.mark.parametrize(
    ("machine", "name"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64"), ("riscv64", "riscv64")]
)
def test_machines_have_one_name(data: Path, monkeypatch: pytest.MonkeyPatch, machine: str, name: str):
    """What Linux, macOS and Windows call one machine is one file."""
    (data / "init/sandbox-init-x86_64").rename(data / f"init/sandbox-init-{name}")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert load_assets(data).init_path.name == f"sandbox-init-{name}"


@pytest.mark.parametrize("missing", ["init/sandbox-init-x86_64", *(f"seccomp/{tier}.json" for tier in TIERS)])
def test_a_missing_part_is_named(data: Path, missing: str):
    """The error says what is missing and how it is made."""
    (data / missing).unlink()
    with pytest.raises(ConfigError, match=rf"{missing}.*make"):
        load_assets(data)


@pytest.mark.parametrize(
    "text", ["{}", '{"defaultAction":"SCMP_ACT_ALLOW"}', '{"defaultAction":null}', "", "not json", "[]", "null", '"x"']
)
def test_a_profile_that_protects_from_nothing_is_refused(data: Path, text: str):
    """Docker takes `{}` for unconfined without a word; nothing but deny-by-default loads."""
    (data / "seccomp/debug.json").write_text(text)
    with pytest.raises(ConfigError, match="incomplete"):
        load_assets(data)
