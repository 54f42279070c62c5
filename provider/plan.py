"""
make_plan(): from a wish to every option of one container and one command. It looks at the workspace and changes
nothing.

Every protection stands here once, in `container_request`, with the attack it stops. What is written here is
compared with what the engine says it applied (`engine/attest.py`); nothing runs when the two differ.
"""

from __future__ import annotations

import functools
import math
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

from provider.assets import Assets
from provider.canonical import digest
from provider.errors import CallError
from provider.gvisor import GVISOR, OWN_THREADS
from provider.model import (
    Background,
    BoxPlan,
    ExecPlan,
    Image,
    Limits,
    Network,
    Plan,
    Request,
    Reuse,
    Tier,
    Workspace,
)
from provider.protection import find_protected
from provider.workspace import find_socket, working_directory

WORKSPACE = "/workspace"
INIT = "/.sandbox-init"
INSIDE = "/.sandbox-inside"
"""Where `provider/inside` is, for the programs of tool contracts that run in a sandbox."""
HOME = "/home/sandbox"
LABEL = "sandbox-provider"

BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108 - inside the container, a tmpfs of its own
}

MAX_ARGUMENT = 128 * 1024
"""The kernel's MAX_ARG_STRLEN with its NUL; past it execve fails."""
MAX_ARGUMENTS = 2 * 1024 * 1024
"""Arguments and environment together: a quarter of the 8 MiB stack, as the kernel counts."""
_KERNEL_RESERVE = 8192
_POINTER = 8
MAX_TIMEOUT = 7 * 24 * 3600.0
MAX_LEASE = 24 * 3600.0
_MAX_CELLS = 2**16 - 1


def make_plan(request: Request, workspace: Workspace, image: Image, assets: Assets, *, grace: float) -> Plan:
    """
    Fix every option of a run.

    Raises:
        CallError: a part of the request cannot be run by any container.
    """
    uid, gid = _user(request.user)
    environment = BASE_ENVIRONMENT | {"TERM": "xterm-256color" if request.tty else "dumb"} | dict(request.env)
    _check_choices(request)
    _check_limits(request.limits)
    if request.tty:
        check_terminal(*request.tty)
    _check_strings(request.argv, environment)
    if request.seccomp != "default" and (found := find_socket(workspace)):
        message = f"the workspace holds a socket, {found}, in reach of seccomp tier {request.seccomp}; use tier default"
        raise CallError(message)
    box = BoxPlan(
        image=image,
        workspace=workspace,
        uid=uid,
        gid=gid,
        network=request.network,
        seccomp=request.seccomp,
        seccomp_sha256=assets.profile(request.seccomp, request.runtime).sha256,
        init_path=assets.init_path,
        init_sha256=assets.init_sha256,
        inside_path=assets.inside_path,
        inside_sha256=assets.inside_sha256,
        runtime=request.runtime,
        limits=request.limits,
        read_only=request.read_only,
        protected=find_protected(workspace, request.protect),
    )
    execution = ExecPlan(
        argv=request.argv,
        env=tuple(sorted(environment.items())),
        cwd=working_directory(workspace, request.cwd),
        timeout=_timeout(request.timeout),
        grace=grace,
        tty=request.tty,
        artifacts=request.artifacts,
        lease=_lease(request.lease) if request.background == "keep" else None,
        reuse=request.reuse,
        watch_writes=request.watch_writes,
    )
    return Plan(box=box, exec=execution, digest=digest({"box": _box_digest(box), "exec": execution}))


@functools.lru_cache(maxsize=256)  # the same for most requests of a provider, and half a millisecond of work
def _box_digest(box: BoxPlan) -> str:
    return digest(box)


def _user(wanted: str) -> tuple[int, int]:
    """Both ids, always: with a uid alone Docker takes gid 0."""
    match = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10})", wanted)
    if match is None or max(int(match[1]), int(match[2])) >= 2**32 - 1:
        message = f"user {wanted!r} must be `uid:gid`, two numbers, such as 1000:1000"
        raise CallError(message)
    return int(match[1]), int(match[2])


def _timeout(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    if not math.isfinite(seconds) or not 0 < seconds <= MAX_TIMEOUT:
        message = f"timeout {seconds} must be more than 0 and at most {MAX_TIMEOUT:.0f} seconds"
        raise CallError(message)
    return float(seconds)


def _lease(seconds: float) -> float:
    if not math.isfinite(seconds) or not 0 < seconds <= MAX_LEASE:
        message = f"lease {seconds} must be more than 0 and at most {MAX_LEASE:.0f} seconds"
        raise CallError(message)
    return float(seconds)


def _check_choices(request: Request) -> None:
    for what, value, choices in (
        ("network", request.network, get_args(Network)),
        ("seccomp", request.seccomp, get_args(Tier)),
        ("background", request.background, get_args(Background)),
        ("reuse", request.reuse, get_args(Reuse)),
    ):
        if value not in choices:
            message = f"{what} {value!r} must be one of {', '.join(choices)}"
            raise CallError(message)
    if request.background == "keep" and request.reuse == "scrub":
        message = "background='keep' and reuse='scrub' exclude each other: what is scrubbed keeps no process"
        raise CallError(message)


def check_terminal(rows: int, columns: int) -> None:
    """Raises CallError for a size that no terminal has."""
    if not (0 <= rows <= _MAX_CELLS and 0 <= columns <= _MAX_CELLS):
        message = f"tty of {rows} rows and {columns} columns; both must be from 0 to {_MAX_CELLS}"
        raise CallError(message)


def check_signal(number: int) -> None:
    """Raises CallError for a number that is no signal."""
    if number not in signal.valid_signals():
        message = f"signal {number} does not exist"
        raise CallError(message)


@functools.lru_cache(maxsize=256)  # as below, and what raises is not kept
def _check_limits(limits: Limits) -> None:
    lowest = {"memory_bytes": 6 * 2**20, "cpus": 0.01, "pids": 2, "tmp_bytes": 2**16, "file_bytes": 1, "open_files": 16}
    lowest |= {"output_bytes": 0, "flood_bytes": 1, "workspace_bytes": 0, "workspace_files": 0}
    for name, value in asdict(limits).items():
        # Docker reads 0 as "no limit" for most of these.
        if not math.isfinite(value) or value < lowest[name]:
            message = f"limit {name} is {value}; it must be at least {lowest[name]}"
            raise CallError(message)


def _check_strings(argv: tuple[str, ...], environment: Mapping[str, str]) -> None:
    if not argv or not argv[0]:
        message = "argv is empty; it must name a program"
        raise CallError(message)
    for name in environment:
        if not name or "=" in name:
            message = f"environment name {name!r} is empty or holds '='"
            raise CallError(message)
    named = [(f"argv[{at}]", text) for at, text in enumerate(argv)]
    named += [(f"environment {name!r}", f"{name}={value}") for name, value in environment.items()]
    total = _KERNEL_RESERVE
    for where, text in named:
        if "\0" in text:
            message = f"{where} holds a NUL byte; programs cannot be given one"
            raise CallError(message)
        try:
            size = len(os.fsencode(text)) + 1
        except UnicodeEncodeError as error:
            message = f"{where} holds a lone surrogate; it must be text or bytes decoded with surrogateescape"
            raise CallError(message) from error
        if size > MAX_ARGUMENT:
            message = f"{where} has {size - 1:,} bytes; the kernel takes fewer than {MAX_ARGUMENT:,} for one"
            raise CallError(message)
        total += size + _POINTER
    if total > MAX_ARGUMENTS:
        message = f"arguments and environment have {total:,} bytes; the kernel takes {MAX_ARGUMENTS:,} together"
        raise CallError(message)


MASKED_PATHS = [
    # Docker's own list; giving one replaces it.
    *("/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
    # What else tells about the host, or has been a way out of other sandboxes.
    *("/proc/cmdline", "/proc/kallsyms", "/proc/modules", "/proc/config.gz", "/proc/interrupts", "/proc/diskstats"),
    *("/proc/partitions", "/sys/kernel", "/sys/module", "/sys/block", "/sys/class", "/sys/bus"),
    *("/sys/devices/virtual/powercap", "/sys/devices/virtual/dmi"),
]
READONLY_PATHS = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def container_request(box: BoxPlan, *, profile: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Write the whole body of the engine's create call: what is left out falls to the image or to the daemon."""
    offline = box.network == "none"
    limits = box.limits
    tmpfs = f"rw,exec,nosuid,nodev,size={limits.tmp_bytes},nr_inodes=64k"  # exec: compilers and npm run what they make
    return {
        "Image": box.image.id,  # by content: a tag can be moved after the approval
        # An image's ENTRYPOINT would wrap the command, its USER, WORKDIR and HEALTHCHECK would apply.
        "Entrypoint": [INIT],
        "Cmd": [],
        "Env": [],
        "User": f"{box.uid}:{box.gid}",
        "WorkingDir": "/",  # a missing one is created in the host's workspace, as root
        "Healthcheck": {"Test": ["NONE"]},
        "Hostname": "sandbox",
        # Pid 1 lives as long as somebody holds its stdin: no reaper is needed when the provider is killed.
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,  # a terminal comes from the container's own devpts, never from the engine (CVE-2025-52565)
        "StopSignal": "SIGKILL",
        "StopTimeout": 1,
        "NetworkDisabled": offline,  # halves the cold start; never alone, for an engine may ignore it
        "Labels": dict(labels),
        "HostConfig": {
            "AutoRemove": True,
            "CapDrop": ["ALL"],  # mount, raw disk, module loading, ptrace of others
            "CapAdd": [],
            "Privileged": False,
            "SecurityOpt": [
                "no-new-privileges:true",  # set-id programs of the image give nothing
                f"seccomp={profile}",  # the kernel's rare corners; Docker's default still allows io_uring and vsock
            ],
            "ReadonlyRootfs": True,
            "Tmpfs": {
                "/tmp": f"{tmpfs},mode=1777",  # noqa: S108
                HOME: f"{tmpfs},mode=0700,uid={box.uid},gid={box.gid}",
                "/run": "rw,noexec,nosuid,nodev,size=16777216,nr_inodes=4k,mode=1777",
                # gVisor has cgroups of its own, which uid 0 may write to; those that hold are the host's.
                **({"/sys/fs/cgroup": "ro,noexec,nosuid,nodev,size=4096,mode=0555"} if box.runtime == GVISOR else {}),
            },
            # Mounts, never Binds: a bind with a missing source creates it, as root.
            "Mounts": [
                _bind(str(box.workspace.path), WORKSPACE, read_only=box.read_only),
                # Over the names themselves: such a one can be neither written, removed nor renamed.
                *(
                    _bind(str(box.workspace.path / held.name), f"{WORKSPACE}/{held.name}", read_only=True)
                    for held in box.protected
                ),
                _bind(str(box.init_path), INIT, read_only=True),
                _bind(str(box.inside_path), INSIDE, read_only=True),
                # Without a network the engine writes none, and localhost would have no address.
                *([_bind(str(box.inside_path / "hosts"), "/etc/hosts", read_only=True)] if offline else []),
                # A VOLUME of the image would be a writable host directory without any limit.
                *(_tmpfs(path, limits.tmp_bytes) for path in box.image.volumes),
            ],
            "PidsLimit": limits.pids if box.runtime != GVISOR else host_pids(limits),  # fork bombs
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,  # unset, Docker adds as much swap again
            "NanoCpus": round(limits.cpus * 1e9),
            "CpuShares": 256,
            "OomScoreAdj": 500,  # the sandbox dies before the daemon or the provider does
            "Ulimits": [
                _ulimit("core", 0, 0),
                _ulimit("fsize", limits.file_bytes, limits.file_bytes),
                _ulimit("memlock", 65536, 65536),
                _ulimit("msgqueue", 0, 0),  # kernel memory that no cgroup charges
                _ulimit("nofile", min(1024, limits.open_files), limits.open_files),
                _ulimit("stack", 8 * 2**20, 64 * 2**20),
                # There the host counts the sentry's threads, and who runs out of those loses the whole sandbox.
                *([_ulimit("nproc", limits.pids, limits.pids)] if box.runtime == GVISOR else []),
            ],
            "NetworkMode": "none" if offline else "bridge",
            "Dns": ["127.0.0.1"] if offline else [],  # keeps the host's resolver and search domains out
            "DnsSearch": ["."] if offline else [],
            "ExtraHosts": [],
            "PublishAllPorts": False,
            "PidMode": "",
            "UTSMode": "",
            "UsernsMode": "",
            "IpcMode": "private",
            "ShmSize": 64 * 2**20,
            "CgroupnsMode": "private",  # on cgroup v1 the default shows the host's tree
            "Devices": [],
            "DeviceCgroupRules": [],
            "VolumesFrom": [],
            "MaskedPaths": MASKED_PATHS,
            "ReadonlyPaths": READONLY_PATHS,
            "LogConfig": {
                "Type": "none",
                "Config": {},
            },  # attach has it all; json-file doubles the disk and halves the speed
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "Init": False,  # pid 1 is ours
            **({"Runtime": box.runtime} if box.runtime else {}),
        },
    }


def host_pids(limits: Limits) -> int:
    """What gVisor needs of the host's pids for that many processes of a command: more than it could use for them."""
    return OWN_THREADS + 2 * limits.pids


def inside_program(module: str) -> tuple[str, ...]:
    """
    Run `program()` of a module of `provider/inside`.

    Isolated from the workspace and from the image's site packages, and nothing is written beside the sources.
    """
    start = f"import sys; sys.path.insert(0, {INSIDE!r}); from {module} import program; sys.exit(program())"
    return ("python3", "-I", "-S", "-B", "-X", "utf8", "-c", start)


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    mount = {"Type": "bind", "Source": source, "Target": target}
    if not read_only:
        return mount | {"BindOptions": {"Propagation": "rprivate"}}  # engines leave a no out when they read it back
    # Not recursive: what is mounted below a read-only bind stays writable.
    return mount | {"ReadOnly": True, "BindOptions": {"Propagation": "rprivate", "NonRecursive": True}}


def _tmpfs(target: str, size: int) -> dict[str, Any]:
    return {"Type": "tmpfs", "Target": target, "TmpfsOptions": {"SizeBytes": size, "Mode": 0o1777}}


def _ulimit(name: str, soft: int, hard: int) -> dict[str, Any]:
    return {"Name": name, "Soft": soft, "Hard": hard}
