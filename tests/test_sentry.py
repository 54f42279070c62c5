"""What the host has to say of a container of gVisor's before its command is let go: all of it, or nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provider.engine import sentry
from provider.engine.sentry import attest_sentry
from provider.errors import PlanRejected
from provider.model import BoxPlan, Plan
from provider.plan import host_pids

CONTAINER = "c" * 64
SENTRY, SERVER, SHIM = 30, 20, 10
FLAGS = ("--network=none", "--oci-seccomp=true", "--root=/run/x", "--log=/l", "--log-format=json", "--log-fd=3")


@pytest.fixture
def box(planned: Callable[..., Plan]) -> BoxPlan:
    return replace(planned().box, runtime="runsc")


class Host:
    """A /proc and a /sys/fs/cgroup with one container of gVisor's, all as it should be."""

    def __init__(self, folder: Path, box: BoxPlan, workspace: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroups"
        for pid in (SENTRY, SERVER, SHIM):
            (self.proc / f"{pid}/ns").mkdir(parents=True)
            (self.proc / f"{pid}/cgroup").write_text(
                "".join(
                    f"{at}:{name}:/docker/{CONTAINER}\n" for at, name in enumerate(("cpu,cpuacct", "memory", "pids"))
                )
            )
        (self.proc / f"{SENTRY}/ns/user").symlink_to("user:[1]")
        self.tell(Name="exe", PPid=str(SHIM), NoNewPrivs="1", Seccomp="2")
        self.start(*FLAGS)
        (self.proc / f"{SERVER}/cmdline").write_text("runsc-gofer\0--root=/x\0gofer\0")
        (self.proc / f"{SERVER}/root").mkdir()
        self.mount(workspace)
        (self.proc / f"{SHIM}/task/11").mkdir(parents=True)
        (self.proc / f"{SHIM}/task/11/children").write_text(f"{SERVER} {SENTRY} ")
        limits = box.limits
        self.limit("memory", "memory.limit_in_bytes", limits.memory_bytes)
        self.limit("pids", "pids.max", host_pids(limits))
        self.limit("cpu,cpuacct", "cpu.cfs_quota_us", round(limits.cpus * 100_000))

    def tell(self, **status: str) -> None:
        (self.proc / f"{SENTRY}/status").write_text("".join(f"{name}:\t{value}\n" for name, value in status.items()))

    def start(self, *flags: str, program: str = "runsc-sandbox") -> None:
        words = [program, *flags, "boot", "--ignore-cgroups", CONTAINER]  # what follows `boot` is no flag of this kind
        (self.proc / f"{SENTRY}/cmdline").write_text("".join(f"{word}\0" for word in words))

    def mount(self, workspace: Path) -> None:
        link = self.proc / f"{SERVER}/root/workspace"
        link.unlink(missing_ok=True)
        link.symlink_to(workspace)

    def limit(self, kind: str, name: str, value: object) -> None:
        folder = self.cgroups / kind / "docker" / CONTAINER
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{value}\n")


@pytest.fixture
def host(tmp_path: Path, box: BoxPlan, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path / "host", box, workspace)
    monkeypatch.setattr(sentry, "_CGROUPS", host.cgroups)
    return host


def rejected(host: Host, box: BoxPlan, match: str) -> None:
    with pytest.raises(PlanRejected, match=match):
        attest_sentry(box, CONTAINER, SENTRY, host.proc)


def test_a_sentry_as_it_should_be_is_confirmed(host: Host, box: BoxPlan) -> None:
    """Else the other tests here would prove nothing."""
    attest_sentry(box, CONTAINER, SENTRY, host.proc)


@pytest.mark.parametrize(
    "flag",
    [
        "--ignore-cgroups=true", "--network=host", "--host-uds=open", "--host-fifo=open", "--fsgofer-host-uds=true",
        "--rootless=true", "--TESTONLY-unsafe-nonroot=true", "--allow-flag-override=true", "--nvproxy=true",
        "--oci-seccomp=false", "--overlay2=all:memory", "--some-flag-of-next-year",
    ],
)  # fmt: skip
def test_a_flag_that_may_open_a_door_is_refused(host: Host, box: BoxPlan, flag: str) -> None:
    """Those that are known to, and those that nobody here knows."""
    host.start(*FLAGS, flag)
    rejected(host, box, "started with " + flag)


def test_a_sentry_without_our_filter_is_refused(host: Host, box: BoxPlan) -> None:
    """gVisor's default is to ignore the profile."""
    host.start("--network=none")
    rejected(host, box, "without --oci-seccomp")


@pytest.mark.parametrize("program", ["sandbox-init", "runsc-gofer", ""])
def test_another_program_is_no_sentry(host: Host, box: BoxPlan, program: str) -> None:
    """A runtime that is only called runsc is refused."""
    host.start(*FLAGS, program=program)
    rejected(host, box, "not gVisor's")


@pytest.mark.parametrize("fact", ["NoNewPrivs", "Seccomp"])
def test_a_sentry_that_is_not_confined_itself_is_refused(host: Host, box: BoxPlan, fact: str) -> None:
    """Whoever takes the sentry over would have the host's kernel before him, unfiltered."""
    host.tell(**{"PPid": str(SHIM), "NoNewPrivs": "1", "Seccomp": "2", fact: "0"})
    rejected(host, box, fact)


def test_a_sentry_among_the_hosts_users_is_refused(host: Host, box: BoxPlan) -> None:
    """Its capabilities shall be good for its own namespace only."""
    (host.proc / f"{SENTRY}/ns/user").unlink()
    (host.proc / f"{SENTRY}/ns/user").symlink_to(Path("/proc/self/ns/user").readlink())
    rejected(host, box, "user namespace")


@pytest.mark.parametrize(
    ("kind", "name"),
    [("memory", "memory.limit_in_bytes"), ("pids", "pids.max"), ("cpu,cpuacct", "cpu.cfs_quota_us")],
)
@pytest.mark.parametrize("value", ["max", "-1", "9223372036854771712"])
def test_a_limit_that_is_not_on_the_cgroup_is_refused(
    host: Host, box: BoxPlan, kind: str, name: str, value: str
) -> None:
    """Whatever the engine says of it."""
    host.limit(kind, name, value)
    rejected(host, box, name)


def test_limits_of_the_newer_cgroups_count_as_well(host: Host, box: BoxPlan) -> None:
    """One tree for all kinds: the same three limits, under their new names."""
    (host.proc / f"{SENTRY}/cgroup").write_text(f"0::/docker/{CONTAINER}\n")
    host.limit("", "memory.max", box.limits.memory_bytes)
    host.limit("", "pids.max", host_pids(box.limits))
    host.limit("", "cpu.max", f"{round(box.limits.cpus * 100_000)} 100000")
    attest_sentry(box, CONTAINER, SENTRY, host.proc)
    host.limit("", "memory.max", "max")
    rejected(host, box, "memory.max")


def test_another_folder_as_workspace_is_refused(host: Host, box: BoxPlan, tmp_path: Path) -> None:
    """The name of the validated one may lead elsewhere by now, and nobody inside could tell."""
    host.mount(tmp_path)
    rejected(host, box, "not the directory that was validated")


def test_a_file_server_of_another_container_does_not_count(host: Host, box: BoxPlan) -> None:
    """Two containers may have one parent."""
    (host.proc / f"{SERVER}/cgroup").write_text("1:pids:/docker/other\n")
    rejected(host, box, "0 file servers")


@pytest.mark.parametrize(
    "missing",
    [
        f"{SENTRY}/status",
        f"{SENTRY}/cmdline",
        f"{SENTRY}/ns/user",
        f"{SERVER}/root/workspace",
        f"{SHIM}/task/11/children",
    ],
)
def test_what_cannot_be_seen_is_refused(host: Host, box: BoxPlan, missing: str) -> None:
    """As by a provider without root, or with its engine on another machine: nobody else could vouch for it."""
    (host.proc / missing).unlink()
    rejected(host, box, "cannot be looked at")


def test_another_containers_number_is_refused(host: Host, box: BoxPlan) -> None:
    """With the engine in a virtual machine the number is somebody else's here."""
    with pytest.raises(PlanRejected, match="cannot be looked at"):
        attest_sentry(box, "d" * 64, SENTRY, host.proc)


def test_gvisor_has_pids_to_spare_for_every_process_of_a_command(planned: Callable[..., Any]) -> None:
    """Or a command that forks up to its own limit would lose the whole sandbox."""
    limits = planned().box.limits
    assert host_pids(limits) > 2 * limits.pids
