"""
Requested equals applied, or nothing runs: each option of a container is broken on purpose.

First by an engine that applies something else than it was asked for and says so when it is read back, field by field.
Then by one that lies as well; there the word of pid 1 and of the host's kernel has to do, and the table says for what
it does. In no case is the command let go, and no container is left.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from attacks.names import IMAGES, OWNER

import provider.engine.docker as docker_engine
from provider import PlanRejected, Provider, SandboxError, Settings
from provider.assets import load_assets
from provider.engine.docker import DockerEngine
from provider.gvisor import GVISOR
from provider.model import Image, Request
from provider.plan import container_request, make_plan
from provider.settings import find_endpoint
from provider.workspace import check_workspace

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="module")]

AT_ONCE = 3
MIB = 2**20
Body = dict[str, Any]
Change = Callable[[Body], None]


def put(name: str, value: Any) -> Change:
    """Set a field; a dot leads into HostConfig."""

    def change(body: Body) -> None:
        place, _, field = name.rpartition(".")
        (body[place] if place else body)[field] = value

    return change


def drop(name: str) -> Change:
    """As an engine does with a field whose name it does not know."""

    def change(body: Body) -> None:
        place, _, field = name.rpartition(".")
        del (body[place] if place else body)[field]

    return change


def edit(name: str, how: Callable[[Any], Any]) -> Change:
    def change(body: Body) -> None:
        place, _, field = name.rpartition(".")
        where = body[place] if place else body
        where[field] = how(where[field])

    return change


def both(*changes: Change) -> Change:
    def change(body: Body) -> None:
        for one in changes:
            one(body)

    return change


def without(text: str) -> Callable[[list[str]], list[str]]:
    return lambda items: [item for item in items if not item.startswith(text)]


def swap(text: str, other: str) -> Callable[[list[str]], list[str]]:
    return lambda items: [other if item.startswith(text) else item for item in items]


def ulimit(name: str) -> Callable[[list[Body]], list[Body]]:
    return lambda items: [item for item in items if item["Name"] != name]


def mount(target: str, **other: Any) -> Callable[[list[Body]], list[Body]]:
    return lambda items: [item | other if item["Target"] == target else item for item in items]


def tmpfs(target: str, old: str, new: str) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda places: places | {target: places[target].replace(old, new)}


def also(**more: Any) -> Callable[[list[Body]], list[Body]]:
    return lambda items: [*items, more]


WEAK = '{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64"],"syscalls":[]}'
ULIMITS = ("core", "fsize", "nofile", "msgqueue", "memlock", "stack")
DEVICE = {"PathOnHost": "/dev/full", "PathInContainer": "/dev/x", "CgroupPermissions": "r"}
BIND = {"Type": "bind", "Source": "/usr", "Target": "/extra", "ReadOnly": True}

# By the field that is broken. Those of one field stand together; the first word is the field as the plan has it.
BROKEN: dict[str, Change] = {
    "Image": put("Image", IMAGES["default"]),
    "Cmd": put("Cmd", ["extra"]),
    "User dropped": drop("User"),
    "User without a group": edit("User", lambda user: user.split(":")[0]),
    "User is root": put("User", "0:0"),
    "WorkingDir": put("WorkingDir", "/tmp"),
    "Healthcheck": put("Healthcheck", {"Test": ["CMD", "true"], "Interval": 10**9}),
    "Hostname": put("Hostname", "other"),
    "StdinOnce": put("StdinOnce", False),
    "StopSignal": put("StopSignal", "SIGTERM"),
    "StopTimeout": put("StopTimeout", 600),
    "NetworkDisabled": put("NetworkDisabled", False),
    "Labels": put("Labels", {}),
    "AutoRemove": put("HostConfig.AutoRemove", False),
    "CapDrop": put("HostConfig.CapDrop", []),
    "CapDrop but one": put("HostConfig.CapDrop", ["NET_RAW"]),
    "CapAdd": put("HostConfig.CapAdd", ["SYS_ADMIN"]),
    "Privileged": put("HostConfig.Privileged", True),
    "SecurityOpt dropped": put("HostConfig.SecurityOpt", []),
    "SecurityOpt without no-new-privileges": edit("HostConfig.SecurityOpt", without("no-new-privileges")),
    "SecurityOpt with no-new-privileges off": edit("HostConfig.SecurityOpt", lambda o: [*o, "no-new-privileges:false"]),
    "SecurityOpt without seccomp": edit("HostConfig.SecurityOpt", without("seccomp=")),
    "SecurityOpt unconfined": edit("HostConfig.SecurityOpt", swap("seccomp=", "seccomp=unconfined")),
    "SecurityOpt with an empty filter": edit("HostConfig.SecurityOpt", swap("seccomp=", "seccomp={}")),
    "SecurityOpt with a weak filter": edit("HostConfig.SecurityOpt", swap("seccomp=", f"seccomp={WEAK}")),
    "ReadonlyRootfs": put("HostConfig.ReadonlyRootfs", False),
    "Tmpfs dropped": drop("HostConfig.Tmpfs"),
    "Tmpfs without a size": edit("HostConfig.Tmpfs", tmpfs("/tmp", "size=", "huge=never,size=1")),
    "Tmpfs with set-id": edit("HostConfig.Tmpfs", tmpfs("/tmp", "nosuid", "suid")),
    "Tmpfs with devices": edit("HostConfig.Tmpfs", tmpfs("/tmp", "nodev", "dev")),
    "Mounts with another workspace": edit("HostConfig.Mounts", mount("/workspace", Source="/usr/share")),
    "Mounts with a read-only workspace": edit("HostConfig.Mounts", mount("/workspace", ReadOnly=True)),
    "Mounts with a writable pid 1": edit("HostConfig.Mounts", mount("/.sandbox-init", ReadOnly=False)),
    "Mounts with writable programs": edit("HostConfig.Mounts", mount("/.sandbox-inside", ReadOnly=False)),
    "Mounts that propagate": edit("HostConfig.Mounts", mount("/workspace", BindOptions={"Propagation": "rslave"})),
    "Mounts with one more": edit("HostConfig.Mounts", also(**BIND)),
    "PidsLimit dropped": drop("HostConfig.PidsLimit"),
    "PidsLimit without end": put("HostConfig.PidsLimit", -1),
    "Memory dropped": both(drop("HostConfig.Memory"), drop("HostConfig.MemorySwap")),
    "Memory doubled": both(put("HostConfig.Memory", 1024 * MIB), put("HostConfig.MemorySwap", 1024 * MIB)),
    "MemorySwap dropped": drop("HostConfig.MemorySwap"),
    "MemorySwap without end": put("HostConfig.MemorySwap", -1),
    "NanoCpus": drop("HostConfig.NanoCpus"),
    "CpuShares": drop("HostConfig.CpuShares"),
    "OomScoreAdj": put("HostConfig.OomScoreAdj", -500),
    **{f"Ulimits without {name}": edit("HostConfig.Ulimits", ulimit(name)) for name in ULIMITS},
    "NetworkMode bridge": both(put("NetworkDisabled", False), put("HostConfig.NetworkMode", "bridge")),
    "NetworkMode host": both(put("NetworkDisabled", False), put("Hostname", ""), put("HostConfig.NetworkMode", "host")),
    "Dns": put("HostConfig.Dns", ["8.8.8.8"]),
    "DnsSearch": put("HostConfig.DnsSearch", ["corp.example"]),
    "ExtraHosts": put("HostConfig.ExtraHosts", ["evil:1.2.3.4"]),
    "PublishAllPorts": put("HostConfig.PublishAllPorts", True),
    "UTSMode": both(put("Hostname", ""), put("HostConfig.UTSMode", "host")),
    "IpcMode host": put("HostConfig.IpcMode", "host"),
    "IpcMode shareable": put("HostConfig.IpcMode", "shareable"),
    "ShmSize": put("HostConfig.ShmSize", 1024 * MIB),
    "CgroupnsMode": put("HostConfig.CgroupnsMode", "host"),
    "Devices": put("HostConfig.Devices", [DEVICE]),
    "DeviceCgroupRules": put("HostConfig.DeviceCgroupRules", ["c 1:3 rwm"]),
    "MaskedPaths": put("HostConfig.MaskedPaths", []),
    "MaskedPaths dropped": drop("HostConfig.MaskedPaths"),
    "ReadonlyPaths": put("HostConfig.ReadonlyPaths", []),
    "LogConfig": put("HostConfig.LogConfig", {"Type": "json-file", "Config": {}}),
    "RestartPolicy": both(
        put("HostConfig.RestartPolicy", {"Name": "always", "MaximumRetryCount": 0}), put("HostConfig.AutoRemove", False)
    ),
    # What nobody planned.
    "and Binds": put("HostConfig.Binds", ["/usr:/extra:ro"]),
    "and GroupAdd": put("HostConfig.GroupAdd", ["0"]),
    "and Sysctls": put("HostConfig.Sysctls", {"kernel.msgmax": "8192"}),
    "and Volumes": put("Volumes", {"/extra": {}}),
    "and OomKillDisable": put("HostConfig.OomKillDisable", True),
    "and CpusetCpus": put("HostConfig.CpusetCpus", "0"),
    "and CgroupParent": put("HostConfig.CgroupParent", "/docker"),
    "and ContainerIDFile": put("HostConfig.ContainerIDFile", "/tmp/x"),
}

# With these pid 1 does not begin, or cannot be understood; that comes before any read-back.
MUTE: dict[str, Change] = {
    "Init": put("HostConfig.Init", True),
    "PidMode": put("HostConfig.PidMode", "host"),
    "Tty": put("Tty", True),
    "Entrypoint": put("Entrypoint", ["/bin/busybox", "true"]),
    "OpenStdin": put("OpenStdin", False),
    "Mounts dropped": put("HostConfig.Mounts", []),
    "Mounts without pid 1": edit(
        "HostConfig.Mounts", lambda items: [item for item in items if item["Target"] != "/.sandbox-init"]
    ),
}

# Not options that confine anything.
HARMLESS = {
    "AttachStdin": "who is told of the streams; the stream that counts is attached to after the create",
    "AttachStdout": "the same",
    "AttachStderr": "the same",
    "Env": "pid 1 gives a command the environment of its own message, and takes none from the container",
    "UsernsMode": "only `host` can be asked for, and without remapping that is what there is",
    "VolumesFrom": "names another container, and there is none of ours to name; refused with the mounts it adds",
}

# By an engine that also lies in its read-back: who notices.
LIED_ABOUT: dict[str, Change] = {
    "User": put("User", "4321:4321"),
    "User without a group": edit("User", lambda user: user.split(":")[0]),
    "User is root": put("User", "0:0"),
    "CapDrop": both(put("User", "0:0"), put("HostConfig.CapDrop", [])),
    "CapAdd": put("HostConfig.CapAdd", ["CHOWN"]),
    "no-new-privileges": edit("HostConfig.SecurityOpt", without("no-new-privileges")),
    "seccomp": edit("HostConfig.SecurityOpt", swap("seccomp=", "seccomp=unconfined")),
    "seccomp, empty": edit("HostConfig.SecurityOpt", swap("seccomp=", "seccomp={}")),
    "workspace": edit("HostConfig.Mounts", mount("/workspace", Source="/usr/share")),
}


class Careless(DockerEngine):
    """An engine that is asked for a plan and applies another."""

    change: Change

    async def _create(self, name: str, request: Any) -> None:
        body = copy.deepcopy(dict(request))
        self.change(body)
        await super()._create(name, body)


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("applied")
    folder.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(folder, OWNER, OWNER)
    return folder


async def tried(engine: DockerEngine, workspace: Path, runtime: str, mark: str) -> Exception | None:
    """Run a command that leaves a mark; what was raised."""
    settings = Settings(spares=0)
    try:
        async with Provider(
            workspace, engine=engine, settings=settings, image=IMAGES["minimal"], runtime=runtime
        ) as own:
            await asyncio.wait_for(own.run(["touch", f"/workspace/{mark}"], timeout=10), 60)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
        return error
    finally:
        await engine.close()
    return None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def refusals(
    tenant: Path, runtime: str, no_container_is_left: None
) -> AsyncIterator[dict[str, tuple[Exception | None, bool]]]:
    """Each broken plan, tried; a few at a time, for most of it is waiting for the engine."""
    slots = asyncio.Semaphore(AT_ONCE)
    found: dict[str, tuple[Exception | None, bool]] = {}

    async def try_one(at: int, name: str, change: Change) -> None:
        async with slots:
            engine = Careless(find_endpoint(), load_assets(), timeout=20)
            engine.change = change
            error = await tried(engine, tenant, runtime, f"ran-{at}")
            found[name] = error, (tenant / f"ran-{at}").exists()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docker_engine, "_PATIENT_SECONDS", 1)  # one that was told not to remove itself does not
        await asyncio.gather(*(try_one(at, *item) for at, item in enumerate({**BROKEN, **MUTE}.items())))
    yield found


@pytest.mark.parametrize("field", BROKEN)
async def test_a_broken_plan_never_starts(refusals: dict[str, tuple[Exception | None, bool]], field: str) -> None:
    """With this field other than planned, the command does not run, and the error says that the plan was rejected."""
    error, ran = refusals[field]
    assert not ran
    assert isinstance(error, PlanRejected), repr(error)


@pytest.mark.parametrize("field", MUTE)
async def test_a_sandbox_without_its_pid_1_never_starts(
    refusals: dict[str, tuple[Exception | None, bool]], field: str
) -> None:
    """With this field other than planned there is no pid 1 to talk to, so there is nobody to give the command to."""
    error, ran = refusals[field]
    assert not ran
    assert isinstance(error, SandboxError), repr(error)


@pytest.mark.parametrize("field", LIED_ABOUT)
async def test_a_lie_about_it_does_not_help(
    tenant: Path, runtime: str, monkeypatch: pytest.MonkeyPatch, field: str, no_container_is_left: None
) -> None:
    """The engine applied something else and says that it did not: pid 1 or the host's kernel tells."""
    if (runtime, field) == (GVISOR, "no-new-privileges"):
        pytest.skip("gVisor knows nothing else: no program gains a privilege there, whatever it is told")

    def other_request(*args: Any, **options: Any) -> Body:
        body = container_request(*args, **options)
        LIED_ABOUT[field](body)
        return body

    monkeypatch.setattr(docker_engine, "container_request", other_request)
    engine = DockerEngine(find_endpoint(), load_assets(), timeout=20)
    error = await tried(engine, tenant, runtime, "lied")
    assert not (tenant / "lied").exists()
    assert isinstance(error, PlanRejected), repr(error)
    assert "the engine did not apply" not in str(error)


async def test_the_plan_itself_starts(tenant: Path, runtime: str, no_container_is_left: None) -> None:
    """Unbroken, by the same way, the command runs: what stops the others is what was broken."""
    engine = Careless(find_endpoint(), load_assets(), timeout=20)
    engine.change = lambda body: None
    assert await tried(engine, tenant, runtime, "fine") is None
    assert (tenant / "fine").exists()


async def test_every_field_is_broken_or_known_to_be_harmless(tenant: Path) -> None:
    """A field that is added to the plan has to be added here."""
    request = Request(argv=("true",), image="x", user="1000:1000")
    image = Image(name="x", id="sha256:" + "0" * 64)
    box = make_plan(request, check_workspace(tenant), image, load_assets(), grace=0.5).box
    body = container_request(box, profile="{}", labels={})
    fields = (body.keys() | body["HostConfig"].keys()) - {"HostConfig"}
    broken = {name.split()[0] for name in {**BROKEN, **MUTE}}
    assert fields - broken == set(HARMLESS)
