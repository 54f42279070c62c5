"""
Requested equals applied, or nothing runs.

Three witnesses, each asked about every container before its command is released: the engine's own read-back,
field by field; pid 1, which reports its confinement from inside; and, where the engine is on this machine, the
host kernel. Engines drop misspelt or unknown options without a word, and some report an option that they ignore
(both measured), so one witness is not enough.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from provider.engine.covers import seen_differences, told_differences
from provider.engine.sentry import attest_sentry
from provider.errors import PlanRejected, SandboxLost
from provider.gvisor import GVISOR
from provider.model import BoxPlan

_NO_CAPABILITY = 0
_FILTERED = 2
_CLEAN = {"clean": "1", "processes": "0", "files": "0", "ipc": "0", "sockets": "0"}
_NO_NETWORK = {GVISOR: f"; {GVISOR} as `make gvisor` registers it has none"}
_EMPTY = ("tmp", "home/sandbox", "dev/shm")
_CONFIG = frozenset(
    {
        *("Entrypoint", "Cmd", "User", "WorkingDir", "Hostname", "Healthcheck", "OpenStdin", "StdinOnce", "Tty"),
        *("StopSignal", "StopTimeout", "NetworkDisabled"),
    }
)
"""Parts of a create request, outside HostConfig, that are read back under the same name."""


def attest_engine(request: Mapping[str, Any], reported: Mapping[str, Any]) -> None:
    """
    Compare a create request with the engine's description of the container.

    Raises:
        PlanRejected: with every difference.
    """
    differences = list(_differences(request, reported))
    if differences:
        message = "the engine did not apply the plan: " + "; ".join(differences)
        raise PlanRejected(message)


def _differences(request: Mapping[str, Any], reported: Mapping[str, Any]) -> Iterator[str]:
    config, host = reported.get("Config") or {}, reported.get("HostConfig") or {}
    if reported.get("Image") != request["Image"]:
        yield f"Image is {reported.get('Image')!r}, not {request['Image']!r}"
    for name in sorted(_CONFIG):
        yield from _difference(name, request[name], config.get(name))
    for name, wanted in request["HostConfig"].items():
        yield from _difference(f"HostConfig.{name}", wanted, host.get(name))
    for name in sorted(host.keys() - request["HostConfig"].keys() - {"Runtime"}):
        if not _is_nothing(host[name]):
            yield f"HostConfig.{name} is {_short(host[name])}, which nobody planned"
    labels = config.get("Labels") or {}
    for name, wanted in request["Labels"].items():
        yield from _difference(f"label {name}", wanted, labels.get(name))
    yield from _mount_differences(request, reported)
    networks = set((reported.get("NetworkSettings") or {}).get("Networks") or {})
    if request["NetworkDisabled"] and not networks <= {"none"}:
        yield f"it is on networks {sorted(networks)}"


def _mount_differences(request: Mapping[str, Any], reported: Mapping[str, Any]) -> Iterator[str]:
    mounted = {mount.get("Destination"): mount for mount in reported.get("Mounts") or []}
    for mount in request["HostConfig"]["Mounts"]:
        found = mounted.pop(mount["Target"], None)
        writable = not mount.get("ReadOnly", False)
        expected = {"Type": "bind", "RW": writable, "Propagation": "rprivate"}
        if mount["Type"] == "bind" and not expected.items() <= (found or {}).items():
            yield f"mount {mount['Target']} is {found!r}"
    # Anything else was put there by the image or the daemon; a VOLUME, say.
    for target in mounted:
        yield f"an unplanned mount at {target}"


def _difference(name: str, wanted: Any, found: Any) -> Iterator[str]:
    # Engines write an empty list, mapping or text, a zero and a no in any of these forms.
    if wanted != found and (wanted or found):
        yield f"{name} is {_short(found)}, not {_short(wanted)}"


def _is_nothing(value: Any) -> bool:
    return not value or (isinstance(value, list) and not any(value))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"  # noqa: PLR2004


def attest_init(box: BoxPlan, hello: Mapping[str, str]) -> None:
    """
    Compare the plan with what pid 1 sees of itself.

    Raises:
        PlanRejected: with every difference.
    """
    expected: dict[str, int | None] = {
        "protocol": 2,
        "uid": box.uid,
        "gid": box.gid,
        "no_new_privs": 1,
        "seccomp": _FILTERED,
        "cap_eff": _NO_CAPABILITY,
        "cap_bnd": _NO_CAPABILITY,
        "inode": box.workspace.inode if box.runtime != GVISOR else None,  # sentry.py looks by itself
    }
    found = {name: _number(hello.get(name), base=16 if name.startswith("cap_") else 10) for name in expected}
    wrong = [
        f"{name} is {hello.get(name)}, not {wanted}"
        for name, wanted in expected.items()
        if wanted is not None and found[name] != wanted
    ]
    wrong += told_differences(box, hello)
    if box.network == "open" and set(hello.get("interfaces", "").split(",")) <= {"", "lo"}:
        wrong.append(f"there is no network but loopback, and an open one was planned{_NO_NETWORK.get(box.runtime, '')}")
    if wrong:
        message = "pid 1 is not confined as planned: " + "; ".join(wrong)
        raise PlanRejected(message)


def _number(text: str | None, *, base: int) -> int | None:
    try:
        return int(text or "", base)
    except ValueError:
        return None


def attest_host(box: BoxPlan, container: str, pid: int) -> bool:
    """
    Ask this machine's kernel about a container's first process. False when that process is not to be seen from here.

    Raises:
        PlanRejected: the kernel does not confirm the plan.
    """
    if box.runtime == GVISOR:
        attest_sentry(box, container, pid)
        return True
    process = Path("/proc", str(pid))
    try:
        if container not in (process / "cgroup").read_text():
            return False  # another process's number: the engine is in a virtual machine, or we are in a container
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    expected = {
        "NoNewPrivs": "1",
        "Seccomp": str(_FILTERED),
        "CapBnd": f"{_NO_CAPABILITY:016x}",
        "Uid": "\t".join([str(box.uid)] * 4),
        "Gid": "\t".join([str(box.gid)] * 4),
    }
    wrong = [f"{name} is {status.get(name)!r}" for name, wanted in expected.items() if status.get(name) != wanted]
    if not _is_workspace(process / "root/workspace", box):
        wrong.append("/workspace is not the directory that was validated; its name now leads elsewhere")
    with contextlib.suppress(PermissionError):  # only root may look through /proc/PID/root; pid 1 has vouched
        wrong += seen_differences(box, process / "root/workspace")
    if wrong:
        message = "the host kernel does not confirm the plan: " + "; ".join(wrong)
        raise PlanRejected(message)
    return True


def _is_workspace(mounted: Path, box: BoxPlan) -> bool:
    try:
        status = mounted.stat()
    except OSError:
        return True  # only root may look through /proc/PID/root; pid 1 has vouched for the inode
    return (status.st_dev, status.st_ino) == (box.workspace.device, box.workspace.inode)


def attest_clean(report: Mapping[str, str], host_pid: int | None) -> None:
    """
    See that nothing of a container's last command is left: by pid 1's word, and by this machine's kernel.

    Raises:
        SandboxLost: something is left, or nobody says otherwise.
    """
    left = [f"{name} is {report.get(name)}" for name, wanted in _CLEAN.items() if report.get(name) != wanted]
    if host_pid is not None:
        left += _left_on_host(Path("/proc", str(host_pid)))
    if left:
        message = f"the sandbox is not clean after its command: {'; '.join(filter(None, [*left, report.get('left')]))}"
        raise SandboxLost(message)


def _left_on_host(process: Path) -> Iterator[str]:
    try:
        # Orphans are given to pid 1, so where it has no child there is no process.
        if children := (process / "task" / process.name / "children").read_text():
            yield f"processes {children.strip()}"
        for folder in _EMPTY:
            for found in (process / "root" / folder).iterdir():
                yield f"/{folder}/{found.name}"
    except PermissionError:
        return  # only root may look through /proc/PID/root; pid 1 has vouched
    except OSError as error:
        yield str(error)
