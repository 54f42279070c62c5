"""
Finds a Docker engine that answers; where none does, on Debian and Ubuntu, installs and starts one.

An engine that somebody chose (DOCKER_HOST, a docker context) is used as it is, or reported; only the default one is
ever started. No process is ever killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
import docker.errors

from provider.engine.docker import tls_config
from provider.errors import ConfigError
from provider.gvisor import ARGUMENTS, GVISOR
from provider.settings import DEFAULT_SOCKET, Endpoint, find_endpoint

APT = Path(__file__).resolve().with_name("apt")
FIRST_ANSWER = 10  # seconds; a sound engine takes milliseconds
ANY_ANSWER = 900  # building an image is one request
START = 90
LOG_LINES = 15
RUNSC = Path("/usr/local/lib/sandbox-provider/runsc")
"""A place of our own: another runsc of this machine is not ours to replace."""
RUNTIME = {"path": str(RUNSC), "runtimeArgs": list(ARGUMENTS)}


class SetupError(Exception):
    """The machine cannot be made ready; the message says what its user can do."""


class NoAnswer(SetupError):
    """Nothing speaks Docker's API at that address."""


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A dockerd: where it answers, and where it leaves its files."""

    url: str = DEFAULT_SOCKET
    pid_file: Path = Path("/var/run/docker.pid")
    containerd_pid_file: Path = Path("/var/run/docker/containerd/containerd.pid")
    log: Path = Path("/var/log/dockerd.log")
    config: Path = Path("/etc/docker/daemon.json")
    flags: tuple[str, ...] = ()  # /etc/docker/daemon.json decides; dockerd refuses what is said in both places


def main(arguments: list[str]) -> int:
    try:
        if arguments[:1] == ["start"]:
            start(Daemon(), group=arguments[1])
        else:
            ensure()
    except (SetupError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def say(step: str) -> None:
    print(f"==> {step}", file=sys.stderr, flush=True)


def ensure() -> docker.DockerClient:
    """Connect to the engine, after starting it where that is ours to do."""
    endpoint = find_endpoint()
    try:
        return connect(endpoint)
    except NoAnswer as silence:
        if endpoint.source != "default":
            message = f"{silence}\n{endpoint.source} names this engine. Start it, or name another."
            raise SetupError(message) from silence
    with locked("engine"):
        try:
            return connect(endpoint)  # another make may have started it meanwhile
        except NoAnswer:
            start_as_root()
            return connect(endpoint)


def connect(endpoint: Endpoint) -> docker.DockerClient:
    socket = Path(endpoint.url.removeprefix("unix://"))
    if endpoint.url.startswith("unix://") and socket.exists() and not os.access(socket, os.W_OK):
        message = f"this user may not use the engine at {socket}: sudo usermod -aG docker $USER, then log in again."
        raise SetupError(message)
    try:
        client = docker.DockerClient(endpoint.url, tls=tls_config(endpoint), timeout=FIRST_ANSWER)
    except docker.errors.DockerException as error:  # the client asks for the engine's version when it is made
        message = f"no Docker engine answers at {endpoint.url}: {error}"
        raise NoAnswer(message) from error
    client.api.timeout = ANY_ANSWER
    return client


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One make at a time, over all clones of this user. No child inherits the descriptor, so no daemon keeps it."""
    path = Path(tempfile.gettempdir(), f"sandbox-provider-{os.getuid()}-{name}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another make, which holds {path}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def start_as_root() -> None:
    system = os_release()
    if "debian" not in system or is_wsl():
        raise SetupError(advice(system))
    if os.geteuid() == 0:
        start(Daemon())
        return
    # Without a terminal nobody can answer a password prompt.
    if not shutil.which("sudo") or not (sys.stdin.isatty() or run("sudo", "-n", "true").returncode == 0):
        raise SetupError(advice(system))
    # -B: root's bytecode in the user's clone could not be removed by the user.
    again = ["sudo", sys.executable, "-B", __file__, "start", str(os.getgid())]
    if subprocess.run(again, check=False).returncode:
        message = "the engine was not started; the reason is above"
        raise SetupError(message)


def start(daemon: Daemon, group: str = "") -> None:
    """Install the engine if it is missing, start it and wait until it answers. Needs root."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # where dockerd and iptables are, and su does not look
    if not shutil.which("dockerd"):
        install()
    if Path("/run/systemd/system").is_dir() and daemon == Daemon():
        start_by_systemd()
        return
    if pid := clear_stale(daemon):
        say(f"waiting for dockerd, which is running with pid {pid}")
        wait(daemon)
        return
    mount_cgroups()
    if RUNSC.exists():
        register(daemon)
    say(f"starting dockerd, which writes to {daemon.log}")
    with daemon.log.open("ab") as log:
        # A session of its own and no descriptor of ours: it outlives this make and holds no pipe of the caller open.
        process = subprocess.Popen(
            ["dockerd", *daemon.flags, *(["--group", group] if group else [])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    wait(daemon, process)


def is_ours(daemon: Daemon) -> bool:
    """Whether the living dockerd is one that `start` started: nobody else's leads a session and writes to that log."""
    pid = living_pid(daemon.pid_file, "dockerd")
    try:
        process = Path("/proc", str(pid))
        writes = {(process / "fd" / number).readlink() for number in "12"}
        return pid is not None and os.getsid(pid) == pid and writes == {daemon.log.resolve()}
    except OSError:
        return False


def register(daemon: Daemon) -> bool:
    """Name gVisor to a dockerd by its configuration, of which all else is kept. False when it is there already."""
    try:
        config = json.loads(daemon.config.read_text())
        named = config.setdefault("runtimes", {})
    except FileNotFoundError:
        config = {"runtimes": (named := {})}
    except (ValueError, AttributeError) as error:
        message = f"{daemon.config} is no configuration of dockerd's: {error}"
        raise SetupError(message) from error
    if named.get(GVISOR) == RUNTIME:
        return False
    named[GVISOR] = RUNTIME
    daemon.config.parent.mkdir(parents=True, exist_ok=True)
    new = daemon.config.with_name(f"{daemon.config.name}.new")
    new.write_text(json.dumps(config, indent=2) + "\n")
    new.replace(daemon.config)
    return True


def install() -> None:
    packages = ["docker.io", "iptables"]
    apparmor = Path("/sys/module/apparmor/parameters/enabled")
    if apparmor.exists() and apparmor.read_text().startswith("Y"):
        packages.append("apparmor")  # only recommended, but where the kernel has it on, no container starts without
    say("installing docker.io (about 1 minute)")
    if subprocess.run([APT, *packages], check=False).returncode:
        message = "docker.io could not be installed; the reason is above"
        raise SetupError(message)


def start_by_systemd() -> None:
    say("starting docker by systemd")
    if run("systemctl", "start", "docker").returncode:
        log = run("journalctl", "--no-pager", f"-n{LOG_LINES}", "-udocker").stdout
        message = f"systemctl start docker failed; its journal ends with\n{log}"
        raise SetupError(message)
    wait(Daemon())


def clear_stale(daemon: Daemon) -> int | None:
    """
    Remove the pid files of a killed engine, and return the pid of a dockerd that lives.

    dockerd believes a pid file when any process has that number: by docker.pid it concludes that it runs already, and
    the process in containerd.pid it takes for its containerd, and gives up when that does not answer. Sockets and
    mounts of its former self it cleans up on its own.
    """
    living_pid(daemon.containerd_pid_file, "containerd")
    return living_pid(daemon.pid_file, "dockerd")


def living_pid(file: Path, program: str) -> int | None:
    """The pid in the file, if that is this program; else the file is removed."""
    try:
        pid = int(file.read_text())
        _, name, state = re.split(r" \(|\) ", Path(f"/proc/{pid}/stat").read_text(), maxsplit=2)
        if name == program and not state.startswith("Z"):  # a pid 1 that does not reap leaves the name on a corpse
            return pid
    except (OSError, ValueError):
        pass
    file.unlink(missing_ok=True)
    return None


def mount_cgroups() -> None:
    """Do what no init may have done where pid 1 is something else, and dockerd does not."""
    root = Path("/sys/fs/cgroup")
    if root.is_dir() and not any(root.iterdir()):
        run("mount", "-t", "cgroup2", "cgroup2", str(root))


def wait(daemon: Daemon, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + START
    while not answers(daemon):
        # Ours may end because another dockerd was first, started by the package or by another user: that one will do.
        ended = process is not None and process.poll() is not None and clear_stale(daemon) is None
        if ended or time.monotonic() > deadline:
            what = "dockerd ended" if ended else f"dockerd did not answer within {START} s"
            log = daemon.log.read_text(errors="replace").splitlines() if daemon.log.exists() else []
            raise SetupError("\n    ".join([f"{what}; {daemon.log} ends with", *log[-LOG_LINES:]]))
        time.sleep(0.1)


def answers(daemon: Daemon) -> bool:
    try:
        connect(Endpoint(url=daemon.url, source="default")).close()
    except NoAnswer:
        return False
    return True


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, text=True, stdin=subprocess.DEVNULL, capture_output=True)


def os_release() -> set[str]:
    """What this Linux is and is like: {"ubuntu", "debian"}."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return set()
    return {release["ID"], *release.get("ID_LIKE", "").split()}


def is_wsl() -> bool:
    return "microsoft" in platform.release().lower()


def advice(system: set[str]) -> str:
    """What to type on this system, where we cannot bring an engine ourselves."""
    grant = "sudo usermod -aG docker $USER"
    if sys.platform == "darwin":
        how = "brew install colima docker && colima start (or start Docker Desktop)"
    elif is_wsl():
        how = "start Docker Desktop, with Settings > Resources > WSL integration switched on for this distribution"
    elif "debian" in system:
        how = f"as an administrator, sudo apt-get install docker.io iptables && {grant}; then log in again"
    elif "fedora" in system:
        how = f"sudo dnf install moby-engine && sudo systemctl enable --now docker && {grant}; then log in again"
    else:
        how = f"install and start one (https://docs.docker.com/engine/install/), {grant}, log in again"
    return f"no Docker engine answers at {DEFAULT_SOCKET}, and DOCKER_HOST names no other. To have one: {how}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
