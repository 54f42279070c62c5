"""What `provider.engine.attest` promises: requested equals applied, by every witness, or nothing runs."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provider.engine.attest import attest_clean, attest_engine, attest_host, attest_init
from provider.errors import PlanRejected, SandboxLost
from provider.model import BoxPlan, Image, Plan
from provider.plan import container_request

Planned = Callable[..., Plan]
Place = tuple[str | int, ...]

# What Docker Engine 20.10.24 adds to its description of such a container.
ADDED_TO_HOST_CONFIG: dict[str, Any] = {
    "Binds": None,
    "ContainerIDFile": "",
    "PortBindings": None,
    "VolumeDriver": "",
    "DnsOptions": None,
    "GroupAdd": None,
    "Cgroup": "",
    "Links": None,
    "Runtime": "runc",
    "ConsoleSize": [0, 0],
    "Isolation": "",
    "CgroupParent": "",
    "CpuPeriod": 0,
    "CpuQuota": 0,
    "CpuRealtimePeriod": 0,
    "CpuRealtimeRuntime": 0,
    "CpusetCpus": "",
    "DeviceRequests": None,
    "KernelMemory": 0,
    "MemorySwappiness": None,
    "OomKillDisable": False,
}
ADDED_TO_CONFIG: dict[str, Any] = {"Domainname": "", "Env": ["LANG=C.UTF-8"], "Volumes": None, "OnBuild": None}

# Parts of the request that need not be read back under their own name.
NOT_COMPARED = {
    "Image": "compared at the top, by content",
    "Env": "an image's own variables reach only pid 1, a static program",
    "AttachStdin": "how the engine's own client would attach",
    "AttachStdout": "likewise",
    "AttachStderr": "likewise",
}


@pytest.fixture
def box(planned: Planned) -> BoxPlan:
    return planned(image=Image(name="i", id="sha256:" + "a" * 64, volumes=("/data",))).box


@pytest.fixture
def request_(box: BoxPlan) -> dict[str, Any]:
    return container_request(box, profile='{"defaultAction":"SCMP_ACT_ERRNO"}', labels={"owner": "us"})


@pytest.fixture
def truth(request_: dict[str, Any]) -> dict[str, Any]:
    """What an engine that has applied all of it reports."""
    wanted = copy.deepcopy(request_)
    host = wanted.pop("HostConfig")
    binds = [mount for mount in host["Mounts"] if mount["Type"] == "bind"]
    mounts = [
        {
            "Type": "bind",
            "Source": mount["Source"],
            "Destination": mount["Target"],
            "Mode": "",
            "RW": not mount.get("ReadOnly", False),
            "Propagation": "rprivate",
        }
        for mount in binds
    ]
    mounts += [
        {"Type": "tmpfs", "Source": "", "Destination": mount["Target"], "Mode": "", "RW": True, "Propagation": ""}
        for mount in host["Mounts"]
        if mount["Type"] == "tmpfs"
    ]
    return {
        "Id": "c" * 64,
        "Image": wanted["Image"],
        "Config": {**wanted, **ADDED_TO_CONFIG},
        "HostConfig": {**host, **ADDED_TO_HOST_CONFIG},
        "Mounts": mounts,
        "NetworkSettings": {"Networks": {"none": {}}},
    }


def leaves(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every place in a description that holds a value of its own."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not parts or value in ({}, []):
        yield at
    for name, part in parts:
        yield from leaves(part, (*at, name))


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case dict():
            return {**value, "x": "x"}
        case list():
            return [*value, "x"]
        case _:
            return ["x"]


def put(description: dict[str, Any], place: Place, change: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy that differs in one place."""
    copied = copy.deepcopy(description)
    inner: Any = copied
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = change(inner[place[-1]])
    return copied


def planned_places(request: dict[str, Any]) -> list[Place]:
    """Where, in the engine's description, the request's own values stand."""
    host = [("HostConfig", *place) for place in leaves(request["HostConfig"])]
    config = {name: value for name, value in request.items() if name not in {"HostConfig", *NOT_COMPARED}}
    return [("Image",), *host, *(("Config", *place) for place in leaves(config))]


def test_a_truthful_engine_passes(request_: dict[str, Any], truth: dict[str, Any]):
    """What Docker 20.10 really reports, with all that it adds, is no difference."""
    attest_engine(request_, truth)


def test_every_planned_value_is_compared(request_: dict[str, Any], truth: dict[str, Any]):
    """Whichever single value the engine has changed, nothing runs."""
    unseen = []
    places = planned_places(request_)
    for place in places:
        try:
            attest_engine(request_, put(truth, place, changed))
        except PlanRejected:
            continue
        unseen.append(place)
    assert len(places) > 100
    assert unseen == []


def test_every_planned_value_must_be_there(request_: dict[str, Any], truth: dict[str, Any]):
    """An engine that leaves a protection out of its description has not applied it, as far as we know."""
    unseen = []
    for section in ("Config", "HostConfig"):
        wanted = request_ if section == "Config" else request_["HostConfig"]
        for name in [name for name in truth[section] if wanted.get(name) and name not in NOT_COMPARED]:
            silent = copy.deepcopy(truth)
            del silent[section][name]
            try:
                attest_engine(request_, silent)
            except PlanRejected:
                continue
            unseen.append(f"{section}.{name}")
    assert unseen == []


@pytest.mark.parametrize("empty", [None, [], {}, "", 0, False], ids=repr)
def test_engines_write_nothing_in_many_ways(request_: dict[str, Any], truth: dict[str, Any], empty: Any):
    """An empty list that is read back as null, or not at all, is no difference."""
    for name in ("CapAdd", "Devices", "ExtraHosts", "VolumesFrom", "PidMode", "Privileged", "Init"):
        truth["HostConfig"][name] = empty
    attest_engine(request_, truth)
    del truth["HostConfig"]["Devices"]
    attest_engine(request_, truth)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("RW", None),
        ("Type", "volume"),
        ("Propagation", "shared"),
        ("Destination", "/elsewhere"),
    ],
)
@pytest.mark.parametrize("mount", [0, 1], ids=["workspace", "init"])
def test_mounts_are_as_planned(request_: dict[str, Any], truth: dict[str, Any], mount: int, field: str, value: Any):
    """Where a mount is, what it is, and that nothing is passed on through it, is seen in what is really mounted."""
    with pytest.raises(PlanRejected):
        attest_engine(request_, put(truth, ("Mounts", mount, field), lambda _: value))


@pytest.mark.parametrize(("mount", "writable"), [(0, False), (1, True)], ids=["workspace", "init"])
def test_mounts_are_writable_only_where_planned(
    request_: dict[str, Any], truth: dict[str, Any], mount: int, writable: bool
):
    """The workspace can be written, pid 1 cannot."""
    with pytest.raises(PlanRejected, match="mount"):
        attest_engine(request_, put(truth, ("Mounts", mount, "RW"), lambda _: writable))


def test_an_unplanned_mount_is_refused(request_: dict[str, Any], truth: dict[str, Any]):
    """A volume of the image, or whatever a daemon adds, is not mounted in silence."""
    truth["Mounts"].append({"Type": "volume", "Destination": "/var/lib/data", "RW": True})
    with pytest.raises(PlanRejected, match="/var/lib/data"):
        attest_engine(request_, truth)


@pytest.mark.parametrize("part", ["Mounts", "Config", "HostConfig", "Image"])
def test_a_description_without_a_part_is_refused(request_: dict[str, Any], truth: dict[str, Any], part: str):
    """No answer is not a yes."""
    for nothing in ({}, None):
        with pytest.raises(PlanRejected):
            attest_engine(request_, {**truth, part: nothing})


@pytest.mark.parametrize("networks", [{"bridge": {}}, {"none": {}, "bridge": {}}])
def test_a_network_is_refused_where_none_was_planned(
    request_: dict[str, Any], truth: dict[str, Any], networks: dict[str, Any]
):
    """No network means no network, whatever the mode says."""
    truth["NetworkSettings"]["Networks"] = networks
    with pytest.raises(PlanRejected, match="bridge"):
        attest_engine(request_, truth)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Binds", ["/:/host"]),
        ("GroupAdd", ["0"]),
        ("PortBindings", {"80/tcp": [{"HostPort": "80"}]}),
        ("Links", ["/other:/sandbox/other"]),
        ("DeviceRequests", [{"Count": -1, "Capabilities": [["gpu"]]}]),
        ("CgroupParent", "/"),
        ("Sysctls", {"net.ipv4.ip_unprivileged_port_start": "0"}),
        ("OomKillDisable", True),
        ("CpuRealtimeRuntime", 950_000),
    ],
)
def test_privileges_that_nobody_planned_are_refused(
    request_: dict[str, Any], truth: dict[str, Any], field: str, value: Any
):
    """What a daemon adds of its own accord is seen too."""
    truth["HostConfig"][field] = value
    with pytest.raises(PlanRejected, match=field):
        attest_engine(request_, truth)


def test_all_differences_are_told_at_once(request_: dict[str, Any], truth: dict[str, Any]):
    """Whoever has to find out why gets the whole list, and no profile of thousands of characters."""
    truth["HostConfig"]["Privileged"] = True
    truth["HostConfig"]["SecurityOpt"] = ["seccomp=" + "x" * 10_000]
    truth["Config"]["User"] = "0:0"
    with pytest.raises(PlanRejected, match=r"User.*Privileged.*SecurityOpt") as caught:
        attest_engine(request_, truth)
    assert len(str(caught.value)) < 1000


# Pid 1's own word.


@pytest.fixture
def hello(box: BoxPlan) -> dict[str, str]:
    return {
        "protocol": "2",
        "uid": "1000",
        "gid": "1000",
        "no_new_privs": "1",
        "seccomp": "2",
        "cap_eff": "0000000000000000",
        "cap_bnd": "0000000000000000",
        "inode": str(box.workspace.inode),
    }


def test_a_confined_pid_1_passes(box: BoxPlan, hello: dict[str, str]):
    """The hello of a sandbox as it was planned, with facts that we do not know, is taken."""
    attest_init(box, hello)
    attest_init(box, {**hello, "later": "x"})


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        *(("protocol", value) for value in ("1", "3", "", "x", None)),
        *(("uid", value) for value in ("0", "1001", "-1", "", None)),
        *(("gid", value) for value in ("0", "1001", None)),
        *(("no_new_privs", value) for value in ("0", "", None)),
        *(("seccomp", value) for value in ("0", "1", None)),
        *((name, value) for name in ("cap_eff", "cap_bnd") for value in ("1", "00000000a80425fb", "x", "", None)),
        *(("inode", value) for value in ("1", "", None)),
    ],
)
def test_any_other_hello_is_refused(box: BoxPlan, hello: dict[str, str], fact: str, value: str | None):
    """A fact that is wrong, unreadable or missing: nothing runs, and the fact is named."""
    told = {name: text for name, text in {**hello, fact: value}.items() if text is not None}
    with pytest.raises(PlanRejected, match=fact):
        attest_init(box, told)


def test_gvisor_is_excused_from_its_own_inodes_and_from_nothing_else(box: BoxPlan, hello: dict[str, str]):
    """It numbers inodes itself; filter, uid and capabilities count as ever."""
    box = replace(box, runtime="runsc")
    attest_init(box, {**hello, "inode": "1"})
    for fact in ("uid", "gid", "no_new_privs", "seccomp", "cap_eff", "cap_bnd"):
        with pytest.raises(PlanRejected, match=fact):
            attest_init(box, {**hello, fact: "7"})


@pytest.mark.parametrize("interfaces", ["lo", "", None])
def test_a_network_that_was_planned_is_there(box: BoxPlan, hello: dict[str, str], interfaces: str | None):
    """A runtime that leaves it out is found out, and not only by the command."""
    box = replace(box, network="open")
    attest_init(box, {**hello, "interfaces": "lo,eth0"})
    told = {name: value for name, value in {**hello, "interfaces": interfaces}.items() if value is not None}
    with pytest.raises(PlanRejected, match="no network but loopback"):
        attest_init(box, told)


# The host kernel's word.

CONTAINER = "c" * 64
STATUS = {
    "Name": "sandbox-init",
    "Uid": "1000\t1000\t1000\t1000",
    "Gid": "1000\t1000\t1000\t1000",
    "CapBnd": "0000000000000000",
    "NoNewPrivs": "1",
    "Seccomp": "2",
}


@pytest.fixture
def process(tmp_path: Path, workspace: Path) -> Callable[..., Any]:
    """Lays out what /proc would show of a container's first process; the pid is a way there from /proc."""
    folder = tmp_path / "process"
    (folder / "root").mkdir(parents=True)
    (folder / "root/workspace").symlink_to(workspace)

    def lay_out(**status: str | None) -> Any:
        (folder / "cgroup").write_text(f"12:pids:/docker/{CONTAINER}\n0::/\n")
        told = {name: value for name, value in {**STATUS, **status}.items() if value is not None}
        (folder / "status").write_text("".join(f"{name}:\t{value}\n" for name, value in told.items()))
        return f"..{folder}"

    return lay_out


def test_the_kernel_confirms_a_confined_process(box: BoxPlan, process: Callable[..., Any]):
    """No new privileges, a filter, no capability, the right ids and the right workspace: True."""
    assert attest_host(box, CONTAINER, process()) is True


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("NoNewPrivs", "0"),
        ("NoNewPrivs", None),
        ("Seccomp", "0"),
        ("Seccomp", "1"),
        ("Seccomp", None),
        ("CapBnd", "0000000000000001"),
        ("CapBnd", None),
        ("Uid", "1000\t0\t1000\t1000"),
        ("Uid", "0\t0\t0\t0"),
        ("Gid", "1000\t1000\t0\t1000"),
        ("Gid", None),
    ],
)
def test_the_kernel_is_believed(box: BoxPlan, process: Callable[..., Any], field: str, value: str | None):
    """Whatever engine and pid 1 say, a process that the kernel shows otherwise is not let run."""
    with pytest.raises(PlanRejected, match=field):
        attest_host(box, CONTAINER, process(**{field: value}))


@pytest.mark.parametrize("part", ["device", "inode"])
def test_a_swapped_workspace_is_seen(box: BoxPlan, process: Callable[..., Any], part: str):
    """The directory that is mounted is the one that was validated, not one that took its name."""
    other = replace(box.workspace, **{part: getattr(box.workspace, part) + 1})
    with pytest.raises(PlanRejected, match="workspace"):
        attest_host(replace(box, workspace=other), CONTAINER, process())


def test_a_workspace_that_cannot_be_looked_at_is_left_to_pid_1(
    box: BoxPlan, process: Callable[..., Any], tmp_path: Path
):
    """Only root may look through /proc/PID/root; pid 1 has vouched for the inode."""
    pid = process()
    (tmp_path / "process/root/workspace").unlink()
    assert attest_host(box, CONTAINER, pid) is True


def test_gvisors_process_is_judged_as_such_or_refused(box: BoxPlan, process: Callable[..., Any]):
    """A process that would do for runc is no sentry; for one that cannot be seen nobody vouches."""
    box = replace(box, runtime="runsc")
    for pid in (process(), 0):
        with pytest.raises(PlanRejected, match="gVisor"):
            attest_host(box, CONTAINER, pid)


def test_a_process_of_another_container_is_no_witness(box: BoxPlan, process: Callable[..., Any]):
    """With the engine in a virtual machine the number is somebody else's here: no answer, rather than a wrong one."""
    assert attest_host(box, "d" * 64, process(NoNewPrivs="0")) is False
    assert attest_host(box, CONTAINER, os.getpid()) is False


def test_a_process_that_is_gone_is_no_witness(box: BoxPlan):
    """Neither 0, as engines write for none, nor a number that nobody has."""
    assert attest_host(box, CONTAINER, 0) is False
    assert attest_host(box, CONTAINER, 2**22 + 1) is False


def test_this_very_process_is_not_a_sandbox(box: BoxPlan):
    """Of a real process the real kernel tells what is wrong with it."""
    own = Path("/proc/self/cgroup").read_text().splitlines()[-1]
    with pytest.raises(PlanRejected, match=r"NoNewPrivs|Seccomp|CapBnd|Uid"):
        attest_host(box, own, os.getpid())


# Clean, between two commands.

CLEAN = {"clean": "1", "processes": "0", "files": "0", "ipc": "0", "sockets": "0"}


@pytest.fixture
def scrubbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What /proc would show of pid 1 when nothing is left; the pid is a way there from /proc."""
    process = tmp_path / "7"
    (process / "task/7").mkdir(parents=True)
    (process / "task/7/children").write_text("")
    for folder in ("tmp", "home/sandbox", "dev/shm"):
        (process / "root" / folder).mkdir(parents=True)
    return process


def attest_left(process: Path, report: dict[str, str] = CLEAN) -> None:
    attest_clean(report, os.path.relpath(process, "/proc"))


def test_a_clean_sandbox_passes(scrubbed: Path):
    """By pid 1's word, and by the kernel's where it can be asked; further facts do no harm."""
    attest_clean({**CLEAN, "new": "1"}, None)
    attest_left(scrubbed)


@pytest.mark.parametrize("fact", CLEAN)
@pytest.mark.parametrize("value", [None, "", "2", "-1", "00", "x"])
def test_anything_else_than_clean_is_not_clean(fact: str, value: str | None):
    """What pid 1 reports as left, leaves out or garbles is left; its own list is in the message."""
    report = {name: told for name, told in {**CLEAN, fact: value}.items() if told is not None}
    with pytest.raises(SandboxLost, match=rf"{fact} is .*/tmp/x"):
        attest_clean({**report, "left": "/tmp/x"}, None)


@pytest.mark.parametrize("place", ["tmp", "home/sandbox", "dev/shm"])
@pytest.mark.parametrize("kind", ["file", "folder", "link", "hidden"])
def test_the_kernel_is_believed_about_files(scrubbed: Path, place: str, kind: str):
    """Whatever pid 1 says, what lies in a tmpfs is left."""
    found = scrubbed / "root" / place / (".x" if kind == "hidden" else "x")
    if kind == "folder":
        found.mkdir()
    elif kind == "link":
        found.symlink_to("/nowhere")
    else:
        found.write_text("")
    with pytest.raises(SandboxLost, match=f"/{place}/"):
        attest_left(scrubbed)


def test_the_kernel_is_believed_about_processes(scrubbed: Path):
    """A child of pid 1 is a process that is left, a zombie as well."""
    (scrubbed / "task/7/children").write_text("8 9 ")
    with pytest.raises(SandboxLost, match="processes 8 9"):
        attest_left(scrubbed)


@pytest.mark.parametrize("missing", ["task/7/children", "root/tmp", "root/dev/shm"])
def test_what_the_kernel_does_not_show_is_not_clean(scrubbed: Path, missing: str):
    """A process that is gone, or another's: nobody says that it is clean."""
    path = scrubbed / missing
    path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(SandboxLost):
        attest_left(scrubbed)


def test_what_only_root_may_see_is_left_to_pid_1(scrubbed: Path, monkeypatch: pytest.MonkeyPatch):
    """Its word is enough where the kernel shows an ordinary user no more; its children are looked at all the same."""

    def refuse(path: Path) -> Iterator[Path]:
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refuse)
    attest_left(scrubbed)
    (scrubbed / "task/7/children").write_text("8 ")
    with pytest.raises(SandboxLost):
        attest_left(scrubbed)
