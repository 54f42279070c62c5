"""
What this engine is, and what it really enforces: told by containers that try, not by what the engine says of
itself.

Each probe is a run like any other, through the same path; a probe fails when the sandbox lets something
through, or when there is no sandbox at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from provider.assets import load_assets
from provider.engine.docker import DockerEngine
from provider.errors import ImageMissing, ProviderError
from provider.gvisor import CHANGES, GVISOR
from provider.model import Limits, Outcome
from provider.provider import Provider
from provider.settings import Settings, find_endpoint

PROBE_IMAGE = "sandbox-provider/minimal"
_SOMEBODY = 1000
_LATE_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    name: str
    verdict: Literal["pass", "fail", "info"]
    detail: str


async def examine(settings: Settings) -> AsyncIterator[Finding]:
    """Yield findings as they are made, facts before probes. Nothing follows an engine that cannot be reached."""
    endpoint = find_endpoint()
    yield Finding(name="address", verdict="info", detail=f"{endpoint.url} ({endpoint.source})")
    engine = DockerEngine(endpoint, load_assets(), timeout=settings.engine_timeout)
    try:
        version, info = await engine.facts()
        image = await _probe_image(engine, settings)
    except ProviderError as error:
        yield Finding(name="engine", verdict="fail", detail=str(error))
        return
    finally:
        await engine.close()
    for name, detail in _facts(version, info).items():
        yield Finding(name=name, verdict="info", detail=detail)
    with tempfile.TemporaryDirectory(prefix="sandbox-doctor-") as folder:
        if os.getuid() == 0:
            os.chown(folder, _SOMEBODY, _SOMEBODY)
        spareless = settings.model_copy(update={"spares": 0})  # each probe shall be about a container made for it
        async with Provider(folder, image=image, settings=spareless) as provider:
            for name, probe in PROBES.items():
                yield await _tried(name, probe, provider, Path(folder))
        if GVISOR not in (info.get("Runtimes") or {}) or settings.runtime == GVISOR:
            return
        for name, detail in CHANGES.items():
            yield Finding(name=f"{GVISOR}, {name}", verdict="info", detail=detail)
        async with Provider(folder, image=image, runtime=GVISOR, settings=spareless) as provider:
            for name, probe in PROBES.items():
                yield await _tried(f"{GVISOR}, {name}", probe, provider, Path(folder))


async def _probe_image(engine: DockerEngine, settings: Settings) -> str:
    try:
        return (await engine.image(PROBE_IMAGE)).name
    except ImageMissing:
        return (await engine.image(settings.image)).name


def _facts(version: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, str]:
    parts = {part["Name"]: part["Version"] for part in version.get("Components") or []}
    security = [option.removeprefix("name=").split(",")[0] for option in info.get("SecurityOptions") or []]
    modules = [name for name in security if name in {"apparmor", "selinux"}]
    return {
        "engine": f"{parts.get('Engine', version.get('Version'))}, API {version.get('ApiVersion')}",
        "runtimes": ", ".join(sorted(info.get("Runtimes") or {})) + f"; default {info.get('DefaultRuntime')}",
        "runc": parts.get("runc", "not told"),
        "kernel": str(info.get("KernelVersion")),
        "cgroups": f"version {info.get('CgroupVersion', '1')}, driver {info.get('CgroupDriver')}",
        "storage": str(info.get("Driver")),
        "security modules": ", ".join(modules) or "none; the sandbox does not count on one",
        "user namespaces": "remapped" if "userns" in security else "not remapped",
    }


Probe = Callable[[Provider, Path], Awaitable[tuple[bool, str]]]


async def _tried(name: str, probe: Probe, provider: Provider, folder: Path) -> Finding:
    try:
        passed, detail = await probe(provider, folder)
    except ProviderError as error:
        passed, detail = False, str(error)
    return Finding(name=name, verdict="pass" if passed else "fail", detail=detail)


async def _run(provider: Provider, text: str, **options: Any) -> Outcome:
    return await provider.run(text, timeout=options.pop("timeout", 20.0), **options)


def _status(outcome: Outcome, field: str) -> str:
    lines = outcome.stdout.decode(errors="replace").splitlines()
    return next((line.split()[-1] for line in lines if line.startswith(field + ":")), "unknown")


async def _attestation(provider: Provider, _: Path) -> tuple[bool, str]:
    outcome = await _run(provider, "true")
    witnesses = outcome.container.attested if outcome.container else ()
    return "engine" in witnesses and "init" in witnesses, f"plan confirmed by {', '.join(witnesses)}"


async def _user(provider: Provider, folder: Path) -> tuple[bool, str]:
    await _run(provider, "touch made")
    owner, made = folder.stat(), (folder / "made").stat()
    same = (owner.st_uid, owner.st_gid) == (made.st_uid, made.st_gid)
    return same, f"workspace of {owner.st_uid}:{owner.st_gid}, files made inside {made.st_uid}:{made.st_gid}"


async def _privileges(provider: Provider, _: Path) -> tuple[bool, str]:
    outcome = await _run(provider, "cat /proc/self/status")
    bounding, no_new = _status(outcome, "CapBnd"), _status(outcome, "NoNewPrivs")
    if outcome.container and outcome.container.runtime == GVISOR:
        no_new = "1"  # its status has no such line; pid 1 has asked by another call, or the command had not run
    return (int(bounding, 16), no_new) == (0, "1"), f"capabilities {bounding}, no-new-privileges {no_new}"


async def _seccomp(provider: Provider, _: Path) -> tuple[bool, str]:
    outcome = await _run(
        provider, "cat /proc/self/status; touch f; chmod u+s f && echo LET THROUGH; unshare true && echo LET THROUGH"
    )
    let_through = b"LET THROUGH" in outcome.stdout
    return (
        not let_through,
        f"mode {_status(outcome, 'Seccomp')}; set-id bit and unshare {'let through' if let_through else 'refused'}",
    )


async def _network(provider: Provider, _: Path) -> tuple[bool, str]:
    outcome = await _run(provider, "cat /proc/net/dev")
    names = [line.split(":")[0].strip() for line in outcome.stdout.decode().splitlines()[2:]]
    return names == ["lo"], f"interfaces: {', '.join(names)}"


async def _root(provider: Provider, _: Path) -> tuple[bool, str]:
    outcome = await _run(provider, "for d in / /etc /usr; do touch $d/x 2>/dev/null && echo $d; done; true")
    return (
        outcome.stdout == b"",
        "read-only" if outcome.stdout == b"" else f"writable: {outcome.stdout.decode().split()}",
    )


async def _pids(provider: Provider, _: Path) -> tuple[bool, str]:
    few = replace(Limits(), pids=16)
    outcome = await _run(provider, "i=0; while [ $i -lt 64 ]; do sleep 9 & i=$((i+1)); done; echo all", limits=few)
    return (
        b"all" not in outcome.stdout,
        "a fork past the limit fails" if b"all" not in outcome.stdout else "64 forks with a limit of 16",
    )


async def _memory(provider: Provider, _: Path) -> tuple[bool, str]:
    outcome = await _run(provider, "tail /dev/zero", limits=replace(Limits(), memory_bytes=64 * 2**20))
    return (
        outcome.oom_killed,
        "a hog is killed, and that is told" if outcome.oom_killed else f"a hog ended by {outcome.ending}",
    )


async def _deadline(provider: Provider, _: Path) -> tuple[bool, str]:
    outcome = await _run(provider, "trap '' TERM; while :; do sleep 1; done", timeout=0.5)
    return (
        outcome.timed_out and outcome.duration_ms < _LATE_MS,
        f"0.5 s, TERM ignored: ended after {outcome.duration_ms} ms",
    )


PROBES: dict[str, Probe] = {
    "attestation": _attestation,
    "uid mapping": _user,
    "privileges": _privileges,
    "seccomp": _seccomp,
    "network none": _network,
    "root file system": _root,
    "pids limit": _pids,
    "memory limit": _memory,
    "deadline": _deadline,
}
