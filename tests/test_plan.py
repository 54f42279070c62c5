"""What `provider.plan` promises: every protection is in the request, and every byte of a wish is in the digest."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from provider.assets import Assets
from provider.errors import CallError
from provider.model import Image, Limits, Plan, Request, Workspace
from provider.plan import (
    BASE_ENVIRONMENT,
    MAX_ARGUMENT,
    MAX_ARGUMENTS,
    MAX_TIMEOUT,
    container_request,
    make_plan,
)

Planned = Callable[..., Plan]
PROFILE = '{"defaultAction":"SCMP_ACT_ERRNO"}'

# The container request.

HARDENING = {
    "Image": "sha256:" + "a" * 64,
    "Entrypoint": ["/.sandbox-init"],
    "Cmd": [],
    "Env": [],
    "User": "1000:1001",
    "WorkingDir": "/",
    "Healthcheck": {"Test": ["NONE"]},
    "Hostname": "sandbox",
    "OpenStdin": True,
    "StdinOnce": True,
    "Tty": False,
    "NetworkDisabled": True,
    "HostConfig.AutoRemove": True,
    "HostConfig.CapDrop": ["ALL"],
    "HostConfig.CapAdd": [],
    "HostConfig.Privileged": False,
    "HostConfig.SecurityOpt": ["no-new-privileges:true", f"seccomp={PROFILE}"],
    "HostConfig.ReadonlyRootfs": True,
    "HostConfig.PidsLimit": 256,
    "HostConfig.Memory": 512 * 2**20,
    "HostConfig.MemorySwap": 512 * 2**20,
    "HostConfig.NanoCpus": 1_000_000_000,
    "HostConfig.CpuShares": 256,
    "HostConfig.OomScoreAdj": 500,
    "HostConfig.NetworkMode": "none",
    "HostConfig.Dns": ["127.0.0.1"],
    "HostConfig.DnsSearch": ["."],
    "HostConfig.ExtraHosts": [],
    "HostConfig.PublishAllPorts": False,
    "HostConfig.PidMode": "",
    "HostConfig.UTSMode": "",
    "HostConfig.UsernsMode": "",
    "HostConfig.IpcMode": "private",
    "HostConfig.ShmSize": 64 * 2**20,
    "HostConfig.CgroupnsMode": "private",
    "HostConfig.Devices": [],
    "HostConfig.DeviceCgroupRules": [],
    "HostConfig.VolumesFrom": [],
    "HostConfig.LogConfig": {"Type": "none", "Config": {}},
    "HostConfig.RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
    "HostConfig.Init": False,
}


def look_up(body: dict[str, Any], path: str) -> Any:
    for name in path.split("."):
        body = body[name]
    return body


@pytest.fixture
def body(planned: Planned) -> dict[str, Any]:
    return container_request(planned(user="1000:1001").box, profile=PROFILE, labels={"owner": "us"})


@pytest.mark.parametrize("field", HARDENING)
def test_every_hardening_field_is_sent(body: dict[str, Any], field: str):
    """What is left out falls to the image or the daemon, so every protection is written out."""
    assert look_up(body, field) == HARDENING[field]


def test_ulimits_are_sent(body: dict[str, Any]):
    """Cores, files, descriptors, locked memory, queues and stacks are limited; processes are not, that is by uid."""
    limits = {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in body["HostConfig"]["Ulimits"]}
    assert limits == {
        "core": (0, 0),
        "fsize": (2**30, 2**30),
        "memlock": (65536, 65536),
        "msgqueue": (0, 0),
        "nofile": (1024, 4096),
        "stack": (8 * 2**20, 64 * 2**20),
    }


@pytest.mark.parametrize(("path", "wanted"), [("/tmp", "exec"), ("/home/sandbox", "exec"), ("/run", "noexec")])
def test_tmpfs_is_bounded_and_without_set_id_and_devices(body: dict[str, Any], path: str, wanted: str):
    """Each writable place outside the workspace is capped in bytes and inodes, nosuid and nodev."""
    options = body["HostConfig"]["Tmpfs"][path].split(",")
    assert {"rw", "nosuid", "nodev", wanted} <= set(options)
    names = {option.split("=")[0] for option in options}
    assert {"size", "nr_inodes", "mode"} <= names


def test_home_belongs_to_the_user(body: dict[str, Any]):
    """The command can write its own HOME, and no one else can read it."""
    assert {"mode=0700", "uid=1000", "gid=1001"} <= set(body["HostConfig"]["Tmpfs"]["/home/sandbox"].split(","))


def test_only_the_workspace_is_mounted_writable(body: dict[str, Any], workspace: Path):
    """Beside it: pid 1, our own programs, localhost. A bind never creates its source, nor passes mounts on."""
    private = {"BindOptions": {"Propagation": "rprivate"}}
    alone = {"ReadOnly": True, "BindOptions": {"Propagation": "rprivate", "NonRecursive": True}}
    assert body["HostConfig"]["Mounts"] == [
        {"Type": "bind", "Source": str(workspace), "Target": "/workspace", **private},
        {"Type": "bind", "Source": "/opt/sandbox-init", "Target": "/.sandbox-init", **alone},
        {"Type": "bind", "Source": "/opt/inside", "Target": "/.sandbox-inside", **alone},
        {"Type": "bind", "Source": "/opt/inside/hosts", "Target": "/etc/hosts", **alone},
    ]
    assert "Binds" not in body["HostConfig"]


def test_a_workspace_can_be_mounted_for_reading_only(planned: Planned):
    """Without what is mounted below it, which would stay writable."""
    body = container_request(planned(read_only=True).box, profile=PROFILE, labels={})
    mount = body["HostConfig"]["Mounts"][0]
    assert (mount["Target"], mount["ReadOnly"], mount["BindOptions"]["NonRecursive"]) == ("/workspace", True, True)


@pytest.mark.parametrize(
    "path",
    ["/proc/kcore", "/proc/keys", "/sys/firmware", "/proc/kallsyms", "/proc/modules", "/sys/kernel", "/sys/class"],
)
def test_host_facts_are_masked(body: dict[str, Any], path: str):
    """Docker's own list, which an explicit one replaces, is in ours, and more."""
    assert path in body["HostConfig"]["MaskedPaths"]


def test_kernel_switches_are_read_only(body: dict[str, Any]):
    """The five paths of Docker's own list stay read-only."""
    wanted = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
    assert body["HostConfig"]["ReadonlyPaths"] == wanted


def test_volumes_of_an_image_become_tmpfs(planned: Planned):
    """A VOLUME of the image is not a writable host directory without limit."""
    box = planned(image=Image(name="i", id="sha256:0", volumes=("/data",))).box
    mounts = container_request(box, profile=PROFILE, labels={})["HostConfig"]["Mounts"]
    assert mounts[4:] == [
        {"Type": "tmpfs", "Target": "/data", "TmpfsOptions": {"SizeBytes": 256 * 2**20, "Mode": 0o1777}}
    ]


def test_nothing_of_the_command_is_in_the_container_request(planned: Planned):
    """What runs goes to pid 1 alone, and never shows in `docker inspect`."""
    plan = planned(argv=("secret-program",), env={"SECRET_NAME": "secret-value"}, timeout=7.25)
    text = repr(container_request(plan.box, profile=PROFILE, labels={}))
    assert "secret" not in text.lower()


def test_an_open_network_is_the_only_thing_that_opens(planned: Planned, body: dict[str, Any]):
    """With network `open` no protection but the network's own changes."""
    opened = container_request(planned(user="1000:1001", network="open").box, profile=PROFILE, labels={"owner": "us"})
    assert opened["NetworkDisabled"] is False
    changed = {name for name, value in opened["HostConfig"].items() if body["HostConfig"][name] != value}
    assert changed == {"NetworkMode", "Dns", "DnsSearch", "Mounts"}
    assert opened["HostConfig"]["NetworkMode"] == "bridge"
    missing = [mount for mount in body["HostConfig"]["Mounts"] if mount not in opened["HostConfig"]["Mounts"]]
    assert [mount["Target"] for mount in missing] == ["/etc/hosts"]  # which the engine writes itself there


@pytest.mark.parametrize(("runtime", "sent"), [("", None), ("runsc", "runsc")])
def test_a_runtime_is_sent_only_when_one_is_named(planned: Planned, runtime: str, sent: str | None):
    """The engine's own default is not overridden by an empty name."""
    body = container_request(planned(runtime=runtime).box, profile=PROFILE, labels={})
    assert body["HostConfig"].get("Runtime") == sent


# The digest.

CHANGES: dict[str, Any] = {
    "argv": ("false",),
    "cwd": "sub",
    "env": {"A": "1"},
    "timeout": 1.0,
    "artifacts": ("a",),
    "tty": (24, 80),
    "network": "open",
    "seccomp": "unix",
    "runtime": "runsc",
    "user": "1000:1001",
    "limits": Limits(pids=3),
    "background": "keep",
    "reuse": "scrub",
    "read_only": True,
    "protect": ("sub",),
    "watch_writes": True,
}


def test_digest_changes_with_the_time_of_a_lease(planned: Planned):
    """A yes to ten seconds of background processes is no yes to an hour."""
    digests = {planned(background="keep", lease=seconds).digest for seconds in (10.0, 3600.0)}
    assert len(digests) == 2


NOT_PLANNED = {"session", "image", "lease", "judged", "remember", "forever", "script"}


@pytest.mark.parametrize("field", sorted({field.name for field in fields(Request)} - NOT_PLANNED))
def test_digest_changes_with_every_part_of_a_request(planned: Planned, workspace: Path, field: str):
    """An approval of one request is none of another; a session alone changes nothing that runs."""
    (workspace / "sub").mkdir()
    assert planned(**{field: CHANGES[field]}).digest != planned().digest


@pytest.mark.parametrize("limit", [field.name for field in fields(Limits)])
def test_digest_changes_with_every_limit(planned: Planned, limit: str):
    """An approval of a small sandbox is none of a larger one."""
    larger = replace(Limits(), **{limit: getattr(Limits(), limit) + 1})
    assert planned(limits=larger).digest != planned().digest


@pytest.mark.parametrize("field", [field.name for field in fields(Image)])
def test_digest_changes_with_the_image(planned: Planned, field: str):
    """A tag that is moved after the approval is another plan."""
    image = Image(name="n", id="i", volumes=("/v",))
    changed = replace(image, **{field: {"volumes": ("/w",)}.get(field, "changed")})
    assert planned(image=changed).digest != planned(image=image).digest


@pytest.mark.parametrize("field", [field.name for field in fields(Workspace)])
def test_digest_changes_with_the_workspace(pinned: Workspace, assets: Assets, tmp_path: Path, field: str):
    """Another directory under the same name is another plan."""
    request = Request(argv=("true",), image="i", user="1:1")
    image = Image(name="i", id="0")
    changed = replace(pinned, **{field: tmp_path if field == "path" else getattr(pinned, field) + 1})
    plans = [make_plan(request, workspace, image, assets, grace=0.5) for workspace in (pinned, changed)]
    assert plans[0].digest != plans[1].digest


def test_digest_changes_with_pid_1_profile_and_grace(pinned: Workspace, assets: Assets):
    """What enforces the plan is part of it."""
    request = Request(argv=("true",), image="i", user="1:1")
    image = Image(name="i", id="0")
    profile = replace(assets.profiles["default"], sha256="2" * 64)
    digests = {
        make_plan(request, pinned, image, assets, grace=0.5).digest,
        make_plan(request, pinned, image, assets, grace=0.6).digest,
        make_plan(request, pinned, image, replace(assets, init_sha256="2" * 64), grace=0.5).digest,
        make_plan(request, pinned, image, replace(assets, init_path=Path("/x")), grace=0.5).digest,
        make_plan(request, pinned, image, replace(assets, inside_sha256="2" * 64), grace=0.5).digest,
        make_plan(request, pinned, image, replace(assets, inside_path=Path("/x")), grace=0.5).digest,
        make_plan(request, pinned, image, replace(assets, profiles={"default": profile}), grace=0.5).digest,
    }
    assert len(digests) == 7


def test_digest_is_the_same_for_the_same_wish(planned: Planned):
    """Neither time, chance nor the order of a mapping is in it."""
    assert planned(env={"A": "1", "B": "2"}).digest == planned(env={"B": "2", "A": "1"}).digest


def test_digest_tells_a_byte_from_its_escape(planned: Planned):
    """The byte 0xff and the four characters that are written for it are two commands, and have two digests."""
    assert planned(argv=("rm", "\udcff")).digest != planned(argv=("rm", "\\xff")).digest


# What no container could run.


@pytest.mark.parametrize(
    ("argument", "accepted"),
    [
        ("x" * (MAX_ARGUMENT - 1), True),
        ("x" * MAX_ARGUMENT, False),
        ("ü" * 65535 + "x", True),
        ("ü" * 65536, False),
        ("\udcff" * (MAX_ARGUMENT - 1), True),
        ("", True),
        ("a\0b", False),
        ("\ud800", False),
    ],
    ids=["131071", "131072", "131071 in UTF-8", "131072 in UTF-8", "131071 odd bytes", "empty", "NUL", "surrogate"],
)
def test_one_argument_fits_what_the_kernel_takes(planned: Planned, argument: str, accepted: bool):
    """An argument of 131,071 bytes is taken; one of 131,072, or with a NUL, is the caller's mistake."""
    if accepted:
        assert planned(argv=("echo", argument)).exec.argv == ("echo", argument)
    else:
        with pytest.raises(CallError, match=r"argv\[1\]"):
            planned(argv=("echo", argument))


def test_limit_of_one_argument_is_131072():
    """The kernel's MAX_ARG_STRLEN is 32 pages, with the NUL."""
    assert MAX_ARGUMENT == 131_072


@pytest.mark.parametrize("argv", [(), ("",), ("", "x")])
def test_a_program_must_be_named(planned: Planned, argv: tuple[str, ...]):
    """No program is the caller's mistake, not the engine's."""
    with pytest.raises(CallError, match="argv is empty"):
        planned(argv=argv)


def largest() -> tuple[str, ...]:
    """Arguments that fill the limit to the byte."""
    environment = [*BASE_ENVIRONMENT.items(), ("TERM", "dumb")]
    left = MAX_ARGUMENTS - 8192 - sum(len(f"{name}={value}") + 9 for name, value in environment)
    left -= len("/bin/true") + 9
    argv = ["/bin/true"]
    while left > 0:
        size = min(left - 9, 100_000)
        if 0 < left - size - 9 <= 9:
            size -= 100
        argv.append("x" * size)
        left -= size + 9
    return tuple(argv)


def test_all_arguments_together_fit_what_the_kernel_takes(planned: Planned):
    """The sum is limited to the byte, and one byte more is the caller's mistake."""
    argv = largest()
    planned(argv=argv)
    with pytest.raises(CallError, match="together"):
        planned(argv=(*argv[:-1], argv[-1] + "x"))


def test_the_kernel_takes_the_largest_command_that_is_accepted(planned: Planned):
    """With the stack that a sandbox has, what passes the check can be executed."""
    plan = planned(argv=largest())
    stack = 8 * 2**20

    def limit_stack() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    done = subprocess.run(plan.exec.argv, env=dict(plan.exec.env), preexec_fn=limit_stack, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "env",
    [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "\0"}, {"A": "\ud800"}, {"A": "x" * (MAX_ARGUMENT - 2)}],
    ids=["empty name", "= in name", "NUL in name", "NUL", "surrogate", "too long"],
)
def test_environment_that_cannot_be_had_is_refused(planned: Planned, env: dict[str, str]):
    """A variable that execve could not carry is the caller's mistake."""
    with pytest.raises(CallError, match="environment"):
        planned(env=env)


def test_environment_is_built_from_nothing(planned: Planned, monkeypatch: pytest.MonkeyPatch):
    """The provider's own variables never reach a command; the caller's own replace the base."""
    monkeypatch.setenv("PROVIDER_SECRET", "s3cret")
    environment = dict(planned(env={"LANG": "de_DE.UTF-8"}).exec.env)
    assert environment == {**BASE_ENVIRONMENT, "TERM": "dumb", "LANG": "de_DE.UTF-8"}


@pytest.mark.parametrize(("tty", "term"), [(None, "dumb"), ((24, 80), "xterm-256color")])
def test_term_says_whether_there_is_a_terminal(planned: Planned, tty: tuple[int, int] | None, term: str):
    """Programs colour their output only on a terminal."""
    assert dict(planned(tty=tty).exec.env)["TERM"] == term


@pytest.mark.parametrize("seconds", [0, -0.0, -1, float("nan"), float("inf"), float("-inf"), 1e18, MAX_TIMEOUT + 1])
def test_timeouts_that_mean_nothing_are_refused(planned: Planned, seconds: float):
    """A deadline is a positive number of seconds, up to a week."""
    with pytest.raises(CallError, match="timeout"):
        planned(timeout=seconds)


@pytest.mark.parametrize("seconds", [None, 0.001, 1, MAX_TIMEOUT])
def test_timeouts_are_kept(planned: Planned, seconds: float | None):
    """What can be kept is kept as it is; no deadline is one too."""
    assert planned(timeout=seconds).exec.timeout == seconds


@pytest.mark.parametrize(
    "user",
    [
        "",
        "1000",
        "1000:",
        ":1000",
        "root",
        "root:root",
        "-1:1",
        "1:-1",
        "1:1:1",
        " 1:1",
        "1:1\n",
        "4294967295:1",
        "1:9e3",
    ],
)
def test_users_are_two_numbers(planned: Planned, user: str):
    """With a uid alone Docker takes gid 0, so both are always named."""
    with pytest.raises(CallError, match="uid:gid"):
        planned(user=user)


@pytest.mark.parametrize(
    ("user", "ids"), [("0:0", (0, 0)), ("1000:100", (1000, 100)), ("4294967294:1", (2**32 - 2, 1))]
)
def test_user_ids_are_taken_as_numbers(planned: Planned, user: str, ids: tuple[int, int]):
    """Both ids reach the plan."""
    box = planned(user=user).box
    assert (box.uid, box.gid) == ids


@pytest.mark.parametrize(("field", "value"), [("network", "host"), ("network", ""), ("seccomp", "unconfined")])
def test_choices_are_closed(planned: Planned, field: str, value: str):
    """The host's network and a sandbox without a filter cannot even be named."""
    with pytest.raises(CallError, match=field):
        planned(**{field: value})


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
@pytest.mark.parametrize("limit", [field.name for field in fields(Limits)])
def test_limits_that_limit_nothing_are_refused(planned: Planned, limit: str, value: float):
    """No number that the engine might read as `unlimited` passes."""
    with pytest.raises(CallError, match=limit):
        planned(limits=replace(Limits(), **{limit: value}))


MAY_BE_ZERO = {"output_bytes", "workspace_bytes", "workspace_files"}


@pytest.mark.parametrize("limit", sorted({field.name for field in fields(Limits)} - MAY_BE_ZERO))
def test_zero_is_not_a_limit(planned: Planned, limit: str):
    """Docker reads 0 as no limit; kept output may be none, and a quota, which is not Docker's, may be left out."""
    with pytest.raises(CallError, match=limit):
        planned(limits=replace(Limits(), **{limit: 0}))
    planned(limits=replace(Limits(), **dict.fromkeys(MAY_BE_ZERO, 0)))


@pytest.mark.parametrize("tty", [(65536, 80), (24, 65536), (-1, 80)])
def test_a_terminal_that_cannot_be_is_refused(planned: Planned, tty: tuple[int, int]):
    """A terminal's size is two 16-bit numbers; others are the caller's mistake, told before anything is created."""
    with pytest.raises(CallError, match="tty"):
        planned(tty=tty)


def test_arguments_that_are_not_utf_8_reach_the_command(planned: Planned):
    """Bytes decoded with surrogateescape are the same bytes again."""
    argument = os.fsdecode(b"\xff\xfe-\xc3\xbc")
    assert os.fsencode(planned(argv=("ls", argument)).exec.argv[1]) == b"\xff\xfe-\xc3\xbc"


@pytest.mark.parametrize("tier", ["unix", "debug"])
def test_a_socket_in_the_workspace_keeps_unix_sockets_closed(planned: Planned, workspace: Path, tier: str):
    """What listens in the workspace would be reachable from a sandbox that may use AF_UNIX."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(workspace / "s"))
        planned(seccomp="default")
        with pytest.raises(CallError, match="socket"):
            planned(seccomp=tier)
    (workspace / "s").unlink()
    assert planned(seccomp=tier).box.seccomp == tier


def test_a_plan_changes_nothing_in_the_workspace(planned: Planned, workspace: Path):
    """Planning looks and does not touch."""
    before = workspace.stat()
    planned()
    assert workspace.stat() == before
    assert asdict(planned()) == asdict(planned())


# What outlives a command.


@pytest.mark.parametrize("seconds", [0.001, 600, 24 * 3600])
def test_a_lease_is_planned_only_where_it_was_asked_for(planned: Planned, seconds: float):
    """Its time is fixed in the plan with `keep`, and nothing is kept without."""
    assert planned(background="keep", lease=seconds).exec.lease == seconds
    assert planned(lease=seconds).exec.lease is None
    assert planned().exec.reuse == "never"


@pytest.mark.parametrize("seconds", [0, -1, 24 * 3600 + 1, float("nan"), float("inf"), -float("inf")])
def test_a_lease_that_cannot_be_is_refused(planned: Planned, seconds: float):
    """Nothing is kept for ever, nor for no time."""
    with pytest.raises(CallError, match="lease"):
        planned(background="keep", lease=seconds)


@pytest.mark.parametrize("wish", [{"background": "forever"}, {"background": ""}, {"reuse": "always"}, {"reuse": True}])
def test_another_word_for_what_outlives_is_refused(planned: Planned, wish: dict[str, Any]):
    """A misspelt wish is never taken for its opposite."""
    (name,) = wish
    with pytest.raises(CallError, match=name):
        planned(**wish)


def test_what_is_scrubbed_keeps_no_process(planned: Planned):
    """The two wishes exclude each other, and whoever has both is told."""
    with pytest.raises(CallError, match="exclude"):
        planned(background="keep", reuse="scrub")


def test_what_outlives_a_command_does_not_change_its_box(planned: Planned):
    """A spare serves a command that leaves something behind as well as any other."""
    boxes = {planned().box, planned(background="keep").box, planned(reuse="scrub").box}
    assert len(boxes) == 1
