"""What a command finds around itself, and what it cannot reach: each test is an attack, or a promise to the owner."""

import os
import socket
import sys
from dataclasses import replace

import pytest

import provider.run as run_module
from provider import CallError, ImageMissing, Limits, PlanRejected, PolicyRefused, Provider, Settings, run_sync
from provider.assets import load_assets

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"


def sh(workspace, text, **options):
    outcome = run_sync(text, workspace, **{"image": MINIMAL, "timeout": 30, **options})
    return outcome.stdout.decode() + outcome.stderr.decode()


def test_the_environment_is_built_from_nothing(workspace, monkeypatch):
    """No variable of the host reaches the command; what it gets is our five and the request's."""
    monkeypatch.setenv("CANARY_TOKEN", "canary-in-the-environment")
    said = sh(workspace, "env", env={"GIVEN": "1"})
    names = {line.partition("=")[0] for line in said.splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "HOME", "LANG", "TERM", "TMPDIR", "GIVEN"}
    assert "canary" not in said


def test_files_belong_to_the_owner_of_the_workspace(workspace):
    """What a command makes in the workspace belongs to whoever owns the workspace."""
    sh(workspace, "mkdir d; echo x > d/f")
    owner = workspace.stat()
    made = (workspace / "d/f").stat()
    assert (made.st_uid, made.st_gid) == (owner.st_uid, owner.st_gid)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a root-owned workspace")
def test_a_root_owned_workspace_runs_as_uid_0_without_capabilities_and_says_so(tmp_path):
    """Uid 0 has no capability, and the outcome says that it was uid 0; the setting refuses it; --user changes it."""
    outcome = run_sync("id -u; grep CapEff /proc/self/status; touch made", tmp_path, image=MINIMAL)
    assert outcome.stdout.split() == [b"0", b"CapEff:", b"0000000000000000"]
    assert "uid 0" in outcome.notes[0]
    with pytest.raises(PolicyRefused, match="allow_root"):
        run_sync(["true"], tmp_path, image=MINIMAL, settings=Settings(allow_root=False))
    tmp_path.chmod(0o755)
    assert run_sync("id -u; id -g", tmp_path, image=MINIMAL, user="1234:4321").stdout == b"1234\n4321\n"


@pytest.mark.parametrize("user", ["0:0", "1000:1000"])
@pytest.mark.parametrize(
    "attack",
    [
        "echo forged > /proc/1/fd/1",
        "cat /proc/1/fd/0",
        "ls -l /proc/1/fd/ | grep pipe",
        "cat /proc/1/environ",
        "cat /proc/1/mem",
        "cat /proc/1/maps | grep .",
        "mount -t proc proc /workspace",
        "mount -o remount,rw /",
        "echo 1 > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "mknod /tmp/disk b 254 0",
        "cat /dev/kmsg",
        "cat /dev/mem",
        "chroot / true",
        "unshare true",
        "echo x > /etc/passwd",
        "echo x > /.sandbox-init",
        "cat /proc/kcore",
        "ls /sys/kernel/debug/ | grep .",
        "hostname changed",
        "chmod u+s /workspace/f",
        "renice -n -5 1",
    ],
)
def test_the_host_and_pid_1_are_out_of_reach(workspace, user, attack):
    """Each of these fails, for uid 0 as well."""
    (workspace / "f").touch()
    workspace.chmod(0o777)
    outcome = run_sync(f"({attack}) && echo BREACH", workspace, image=MINIMAL, user=user, timeout=20)
    assert b"BREACH" not in outcome.stdout
    assert b"forged" not in outcome.stdout


def test_pid_1_cannot_be_killed_or_stopped_from_inside(workspace):
    """Signals of the command do not reach pid 1; the run still ends exactly."""
    outcome = run_sync(
        "kill -9 1; kill -STOP 1; kill -TERM 1; kill -INT 1; sleep 0.1; exit 5", workspace, image=MINIMAL
    )
    assert outcome.exit_code == 5


def test_a_command_can_write_frames_and_nobody_believes_them(workspace):
    """Output that looks like the protocol, of pid 1 or of the engine, is output."""
    forged = b"Z\x00\x00\x00\x05exit=" + b"\x01\x00\x00\x00\x00\x00\x00\x04abcd"
    (workspace / "forged").write_bytes(forged)
    outcome = run_sync("cat forged; exit 3", workspace, image=MINIMAL)
    assert (outcome.stdout, outcome.exit_code) == (forged, 3)


def test_there_is_no_network_but_loopback(workspace):
    """Only `lo` exists, and nothing beyond it is reachable."""
    said = sh(
        workspace,
        "ls /sys/devices/virtual/net; ip -o link | wc -l; nc -w 1 1.1.1.1 80; echo status $?; nslookup debian.org",
    )
    assert said.splitlines()[:2] == ["lo", "1"]
    assert "status 1" in said
    assert "Network is unreachable" in said


def test_a_local_server_and_its_client_work(workspace):
    """Loopback works without any network, so that servers can be tested."""
    said = sh(workspace, "echo page > index.html; httpd -p 127.0.0.1:8080; wget -qO- http://127.0.0.1:8080/index.html")
    assert said == "page\n"


REACH_FOR_SOCKETS = """
import socket

def attempt(name, kind, make):
    try:
        end = make(kind)
        end.connect(name)
        end.send(b"from inside")
        print("BREACH", name, kind.name, make.__name__)
    except OSError as error:
        print("refused", error.errno)

def new(kind):
    return socket.socket(socket.AF_UNIX, kind)

def half_of_a_pair(kind):
    return socket.socketpair(socket.AF_UNIX, kind)[0]

for make in (new, half_of_a_pair):
    attempt("stream.sock", socket.SOCK_STREAM, make)
    attempt("datagram.sock", socket.SOCK_DGRAM, make)
"""


def test_a_host_socket_in_the_workspace_cannot_be_reached(workspace, monkeypatch):
    """No network includes unix sockets: the default tier cannot connect, the others refuse the workspace."""
    argv = ["python3", "-c", REACH_FOR_SOCKETS]
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as post:
        for host_socket, name in ((server, "stream.sock"), (post, "datagram.sock")):
            host_socket.bind(str(workspace / name))
            host_socket.settimeout(0)
            (workspace / name).chmod(0o777)
        server.listen()
        outcome = run_sync(argv, workspace, timeout=30)
        assert outcome.stdout.split()[::2] == [b"refused"] * 4, outcome
        with pytest.raises(BlockingIOError):
            server.accept()
        with pytest.raises(BlockingIOError):
            post.recv(99)
        with pytest.raises(CallError, match=r"\.sock"):
            run_sync(["true"], workspace, image=MINIMAL, seccomp="unix")

        # It is the filter that keeps it out: with another tier's in its place, the same attempt gets through.
        assets = load_assets()
        wider = replace(assets, profiles={**assets.profiles, "default": assets.profiles["unix"]})
        monkeypatch.setattr(run_module, "load_assets", lambda: wider)
        assert b"BREACH stream.sock" in run_sync(argv, workspace, timeout=30).stdout
        with server.accept()[0] as connection:
            assert connection.recv(99) == b"from inside"
        assert post.recv(99) == b"from inside"


def test_only_the_workspace_and_tmpfs_can_be_written(workspace):
    """Root is read-only; /tmp and HOME are private, executable and bounded."""
    said = sh(
        workspace,
        "for d in / /etc /usr /bin /dev; do touch $d/x 2>/dev/null && echo BREACH $d; done;"
        "mount | grep -E ' (/tmp|/home/sandbox) '",
    )
    assert "BREACH" not in said
    lines = [line for line in said.splitlines() if "tmpfs" in line]
    assert len(lines) == 2
    assert all("nosuid" in line and "nodev" in line and "noexec" not in line and "size=" in line for line in lines)
    assert sh(workspace, "cd ~ && printf '#!/bin/sh\\necho ran' > x && chmod +x x && ./x") == "ran\n"


def test_tmp_is_full_at_its_size(workspace):
    """Filling /tmp ends with an error inside, not with the host's memory."""
    said = sh(workspace, "head -c 9000000 /dev/zero > /tmp/x || echo full", limits=Limits(tmp_bytes=8 * 2**20))
    assert "full" in said


def test_a_file_past_its_limit_is_cut_off_by_signal(workspace):
    """A single file cannot grow past its limit."""
    outcome = run_sync(
        "exec head -c 2000000 /dev/zero > big", workspace, image=MINIMAL, limits=Limits(file_bytes=1_000_000)
    )
    assert outcome.signal == 25
    assert (workspace / "big").stat().st_size <= 1_000_000


def test_processors_and_processes_are_limited(workspace):
    """A process past the limit cannot be made."""
    said = sh(workspace, "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done", limits=Limits(pids=16))
    assert "can't fork" in said


def test_an_image_cannot_interfere(workspace, engine_client, tmp_path):
    """ENV, ENTRYPOINT, USER, WORKDIR, HEALTHCHECK and VOLUME of an image have no say."""
    (tmp_path / "Dockerfile").write_text(
        f'FROM {MINIMAL}\nENV LD_PRELOAD=/evil.so BASH_ENV=/evil CANARY=image\nENTRYPOINT ["echo", "EP"]\n'
        "USER 4242\nWORKDIR /nowhere\nHEALTHCHECK CMD false\nVOLUME /data\n"
    )
    tag = "sandbox-provider-test/hostile"
    volumes = engine_client.volumes()["Volumes"]
    list(engine_client.build(path=str(tmp_path), tag=tag, rm=True, decode=True))
    try:
        said = sh(workspace, "pwd; id -u; env; mount | grep ' /data '; touch /data/x && echo ok", image=tag)
        assert said.splitlines()[0] == "/workspace"
        assert said.splitlines()[1] == str(workspace.stat().st_uid)
        assert "CANARY" not in said
        assert "LD_PRELOAD" not in said
        assert "tmpfs on /data" in said
        assert engine_client.volumes()["Volumes"] == volumes
    finally:
        engine_client.remove_image(tag, force=True)


def test_a_workspace_swapped_before_the_start_is_noticed(workspace, tmp_path, monkeypatch):
    """When the name leads elsewhere by the time the engine mounts it, nothing runs."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "canary").write_text("canary")
    victim = workspace / "w"
    victim.mkdir()
    import provider.engine.docker as docker_engine

    start = docker_engine.DockerEngine._start

    async def swap_then_start(self, name):
        victim.rename(workspace / "moved")
        victim.symlink_to(secret)
        await start(self, name)

    monkeypatch.setattr(docker_engine.DockerEngine, "_start", swap_then_start)
    with pytest.raises(PlanRejected, match=r"inode|workspace"):
        run_sync("cat canary > /workspace/stolen", victim, image=MINIMAL, user="0:0")
    assert not (secret / "stolen").exists()


def test_a_missing_image_is_named(workspace):
    """An image that is not here is an error before anything is made; nothing is pulled."""
    with pytest.raises(ImageMissing, match="no/such-image"):
        run_sync(["true"], workspace, image="no/such-image")


def test_an_unknown_runtime_is_refused(workspace):
    """A runtime that the engine does not have never becomes another one."""
    with pytest.raises(PlanRejected, match="runtime"):
        run_sync(["true"], workspace, image=MINIMAL, runtime="no-such-runtime")


async def test_runs_do_not_see_each_other(workspace, tmp_path):
    """Two sandboxes side by side share neither processes nor /tmp."""
    import asyncio

    other = tmp_path / "other"
    other.mkdir()
    ready = asyncio.Event()
    release = asyncio.Event()

    async def wait():
        await release.wait()
        yield b"\n"

    async def on_stdout(_):
        ready.set()

    async with Provider(workspace, image=MINIMAL) as provider, Provider(other, image=MINIMAL) as second:
        first = asyncio.ensure_future(
            provider.run("echo canary > /tmp/c; echo; read _", stdin=wait(), on_stdout=on_stdout)
        )
        await ready.wait()
        seen = await second.run("ls /tmp; ps -o args | grep -v -e ps -e grep -e COMMAND -e sh; ls /workspace")
        release.set()
        assert (await first).exit_code == 0
    assert b"canary" not in seen.stdout
    assert seen.stdout.strip() in {b"/.sandbox-init", b"{sandbox-init} /.sandbox-init"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_hosts_name_and_processes_are_not_shown(workspace):
    """The command sees its own few processes and a neutral host name."""
    said = sh(workspace, "hostname; ls -d /proc/[0-9]* | wc -l").split()
    assert said[0] == "sandbox"
    assert int(said[1]) < 6
