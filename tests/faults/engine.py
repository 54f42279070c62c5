"""
A second Docker engine, the tests' own: it may be killed, paused, starved of disk and started again.

The machine's first engine is only asked for the image. The second has a data root on a small tmpfs, its own exec root,
pid file, socket, containerd and control group, and lives in mount and network namespaces of its own (`holder.py`), so
that no bridge, rule or mount of the host is touched. It needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import docker.errors
from faults import holder

from provider.engine.docker import tls_config
from provider.settings import Endpoint, find_endpoint

MINIMAL = "sandbox-provider/minimal"
PROGRAMS = ("unshare", "nsenter", "mount", "dockerd", "containerd")
DATA_SIZE = "256m"
START_SECONDS = 40.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 20


class NoEngine(Exception):
    """There can be no second engine on this machine; the message says why."""


class SecondEngine:
    """One dockerd, over and over: the data, and so the containers, outlive the process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="faults-"))
        self.group = f"sandbox-faults-{os.getpid()}"
        self.socket = self.folder / "engine.sock"
        self.endpoint = Endpoint(url=f"unix://{self.socket}", source="tests/faults")
        self._holder: subprocess.Popen[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    # Its life.

    def set_up(self) -> None:
        """
        Make the namespaces, start the engine and give it the image.

        Raises:
            NoEngine: with the reason.
        """
        if os.geteuid() != 0:
            raise NoEngine("a second engine needs root")
        if missing := [name for name in PROGRAMS if not shutil.which(name, path=_path())]:
            raise NoEngine(f"a second engine needs {', '.join(missing)}")
        (self.folder / "data").mkdir()
        (self.folder / "daemon.json").write_text("{}")  # the machine's own is for the machine's own engine
        try:
            self._hold()
            self.start()
            self.load()
        except (OSError, subprocess.SubprocessError, docker.errors.DockerException, AssertionError) as error:
            raise NoEngine(f"a second engine does not start here: {error}{self.last_words()}") from error

    def tear_down(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.resume()
            self.stop()
        if self._holder:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._holder.communicate(timeout=holder.LIMIT + 5)  # the end of its stdin is the end of them all
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _hold(self) -> None:
        command = ["unshare", "--net", "--mount", "--propagation", "private", sys.executable, holder.__file__]
        command += [str(self.folder), DATA_SIZE, self.group]
        self._holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._holder.stdout.readline() == "ready\n", "the namespaces could not be made"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it, and do not wait."""
        assert self.pid is None, "it runs"
        for name in ("docker.pid", "exec/containerd/containerd.pid"):  # see setup/engine.py on stale ones
            (self.folder / name).unlink(missing_ok=True)
        options = {
            "data-root": self.folder / "data",
            "exec-root": self.folder / "exec",
            "pidfile": self.folder / "docker.pid",
            "config-file": self.folder / "daemon.json",
            "host": self.endpoint.url,
            "bridge": "none",
            "iptables": "false",
            "ip6tables": "false",
            "ip-forward": "false",
            "ip-masq": "false",
            "storage-driver": "overlay2",
            "cgroup-parent": f"/{self.group}",
        }
        enter = ["nsenter", "--target", str(self._holder.pid), "--mount", "--net", "--wd=/"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*enter, "dockerd", *(f"--{name}={value}" for name, value in options.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": _path()},
                start_new_session=True,
            )

    def wait(self, seconds: float = START_SECONDS) -> None:
        until = time.monotonic() + seconds
        while not self.answers():
            assert self.pid is not None, "it ended"
            assert time.monotonic() < until, f"it did not answer within {seconds:g} s"
            time.sleep(0.02)

    def answers(self) -> bool:
        """By hand: the SDK forgets to close its socket where nobody listens."""
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.settimeout(1)
            connection.connect(str(self.socket))
            connection.sendall(b"GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n")
            return b" 200 " in connection.recv(64)
        return False

    @property
    def pid(self) -> int | None:
        """Of dockerd, which has taken the place of the program that entered the namespaces."""
        return self._process.pid if self._process and self._process.poll() is None else None

    # What is done to it.

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As `kill -9`; its containerd goes with it, the shims and containers do not."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def pause_containerd(self) -> None:
        """The engine answers, and can neither start nor end a container, until it notices and helps itself."""
        os.kill(self._containerd, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in (self.pid, self._containerd):
            with contextlib.suppress(ProcessLookupError):
                if pid:
                    os.kill(pid, signal.SIGCONT)

    @property
    def _containerd(self) -> int:
        """Its pid; 0 when it is not there."""
        try:
            pid = int((self.folder / "exec/containerd/containerd.pid").read_text())
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except (OSError, ValueError):
            return 0
        return pid if name == "containerd" and pid in holder.neighbours(self._holder.pid) else 0

    def heal(self) -> None:
        """Whatever was done to it, have it answer again."""
        self.resume()
        self.empty_disk()
        if self.pid is None:
            self.begin()
        self.wait()

    def fill_disk(self) -> None:
        """Leave no byte for an image, a container, or its own notes."""
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))

    def empty_disk(self) -> None:
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.inside(self.folder / "data" / "filler")

    def _end(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)
        if self._process:
            self._process.wait(STOP_SECONDS)

    # What is seen of it.

    def inside(self, path: Path) -> Path:
        """A path as the engine's mount namespace has it, to be used from the host's."""
        return Path(f"/proc/{self._holder.pid}/root{path}")

    @property
    def small(self) -> Path:
        """A file system with room for a megabyte and a half."""
        return self.inside(self.folder / "small")

    @contextlib.contextmanager
    def client(self, timeout: float = ANSWER_SECONDS) -> Iterator[docker.APIClient]:
        """Past the provider. The version is given, for asking leaves a socket open when nobody answers."""
        client = docker.APIClient(base_url=self.endpoint.url, version="1.41", timeout=timeout)
        try:
            yield client
        finally:
            client.close()

    def containers(self) -> dict[str, str]:
        """Every container, in whatever state, by name."""
        with self.client() as client:
            found = [item for item in client.containers(all=True) if item["Names"] or _is_there(client, item["Id"])]
        return {" ".join(item["Names"]) or item["Id"]: item["State"] for item in found}

    def processes(self) -> set[int]:
        """Those of every container."""
        return holder.grouped(self.group)

    def mounts(self) -> list[str]:
        """The root file systems that are mounted for containers."""
        lines = Path(f"/proc/{self._holder.pid}/mounts").read_text().splitlines()
        return [line.split()[1] for line in lines if line.split()[1].startswith(f"{self.folder}/data/overlay2/")]

    def left(self) -> list[str]:
        """What there is of containers."""
        found = [f"{name} is {state}" for name, state in self.containers().items()]
        return [*found, *(f"process {pid}" for pid in self.processes()), *(f"mount {path}" for path in self.mounts())]

    def left_after(self, seconds: float, left: Callable[[], list[str]] | None = None) -> list[str]:
        """What is left, once nothing is or the time is over."""
        until = time.monotonic() + seconds
        while (found := (left or self.left)()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def last_words(self) -> str:
        log = self.folder / "log"
        lines = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
        return "".join(f"\n    {line}" for line in lines)

    def load(self) -> None:
        """Give it the image, from the first engine."""
        endpoint = find_endpoint()
        first = docker.APIClient(base_url=endpoint.url, version="auto", tls=tls_config(endpoint), timeout=60)
        with contextlib.closing(first), self.client(timeout=60) as second:
            loaded = [json.dumps(line) for line in second.load_image(b"".join(first.get_image(MINIMAL)))]
            assert second.images(MINIMAL), f"the image was not taken: {loaded}"

    def clear(self) -> None:
        """Remove every container."""
        with self.client() as client, contextlib.suppress(docker.errors.APIError):
            for item in client.containers(all=True):
                client.remove_container(item["Id"], force=True)

    def unload(self) -> None:
        with self.client() as client:
            client.remove_image(MINIMAL, force=True)


def _is_there(client: docker.APIClient, container: str) -> bool:
    """
    Whether an entry without a name is a container.

    Docker 20.10, killed and started again, sometimes lists one as dead that it has removed itself: it has no name,
    process, mount or folder, asked about and removed by its id it does not exist, and the next start forgets it.
    """
    try:
        client.inspect_container(container)
    except docker.errors.NotFound:
        return False
    return True


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where dockerd is, and su does not look
