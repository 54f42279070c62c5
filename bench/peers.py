"""
The peers, each on its best settings: a context manager that gives a function from a command to its output.

Each runs in a process of its own, in its own environment (`python -m bench.peers NAME`), and is asked by JSON lines on
stdin. It takes its own times, so that neither the pipe nor another peer's threads are in them. Only the standard
library and the peer itself are imported here. Where a peer can do without a network, a log or a reaper, it does: our
sandboxes have none either.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

IMAGE = "sandbox-provider/minimal"
ECHO = ("echo", "hi")

Request = Callable[[Sequence[str]], Iterator[Any]]
"""Runs a command and yields its output in the pieces in which the peer gives it out."""


@contextmanager
def host() -> Iterator[Request]:
    yield spoken


@contextmanager
def docker_run() -> Iterator[Request]:
    yield lambda argv: spoken(["docker", "run", "--rm", IMAGE, *argv])


@contextmanager
def docker_run_bare() -> Iterator[Request]:
    yield lambda argv: spoken(["docker", "run", "--rm", "--network=none", "--log-driver=none", IMAGE, *argv])


@contextmanager
def docker_exec() -> Iterator[Request]:
    keep = ["docker", "run", "-d", "--rm", "--network=none", "--log-driver=none", IMAGE, "sleep", "3600"]
    kept = subprocess.run(keep, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield lambda argv: spoken(["docker", "exec", kept, *argv])
    finally:
        subprocess.run(["docker", "rm", "-f", kept], check=True, capture_output=True)


def docker_sdk() -> AbstractContextManager[Request]:
    return _docker_sdk(network_mode="none")


def docker_sdk_offline() -> AbstractContextManager[Request]:
    """With the option that few know, and that halves a start: the engine makes no network namespace of its own."""
    return _docker_sdk(network_mode="none", network_disabled=True)


@contextmanager
def _docker_sdk(**options: Any) -> Iterator[Request]:
    import docker

    client = docker.from_env(max_pool_size=128)

    def request(argv: Sequence[str]) -> Iterator[bytes]:
        # It waits for the end by itself, removes the container, and gives the output in one piece from the log.
        yield client.containers.run(IMAGE, list(argv), remove=True, **options)

    yield request


@contextmanager
def raw_attach() -> Iterator[Request]:
    """The engine's own stream as fast as a socket gives it, with no sense made of it."""
    import docker
    from docker.types import LogConfig

    client = docker.from_env().api
    config = client.create_host_config(log_config=LogConfig(type="none"), network_mode="none")
    buffer = memoryview(bytearray(256 * 1024))

    def request(argv: Sequence[str]) -> Iterator[memoryview]:
        container = client.create_container(IMAGE, list(argv), host_config=config)["Id"]
        try:
            stream = client.attach_socket(container, params={"stdout": 1, "stderr": 1, "stream": 1})
            client.start(container)
            wire: socket.socket = stream._sock  # noqa: SLF001 - the SDK wraps the socket in a slower reader
            while size := wire.recv_into(buffer):
                yield buffer[:size]
            stream.close()
        finally:
            client.remove_container(container, force=True)

    yield request


@contextmanager
def testcontainers() -> Iterator[Request]:
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"  # its image is in a registry, and it would only cost time
    from testcontainers.core.container import DockerContainer

    def request(argv: Sequence[str]) -> Iterator[bytes]:
        with DockerContainer(IMAGE).with_command(list(argv)).with_kwargs(network_mode="none") as container:
            container.wait()
            yield container.get_wrapped_container().logs(stderr=False)

    yield request


def _llm_session(client: Any) -> Any:
    from llm_sandbox import SandboxBackend, SandboxSession

    return SandboxSession(
        backend=SandboxBackend.DOCKER,
        client=client,
        image=IMAGE,
        lang="python",
        skip_environment_setup=True,  # else it makes a virtual environment first
        # Else its stop waits ten seconds for a shell that does not listen.
        runtime_configs={"network_mode": "none", "stop_signal": "SIGKILL"},
    )


@contextmanager
def llm_sandbox_fresh() -> Iterator[Request]:
    import docker

    client = docker.from_env()

    def request(argv: Sequence[str]) -> Iterator[bytes]:
        with _llm_session(client) as session:
            yield session.execute_command(shlex.join(argv)).stdout.encode()

    yield request


@contextmanager
def llm_sandbox_kept() -> Iterator[Request]:
    import docker

    with _llm_session(docker.from_env()) as session:
        yield lambda argv: iter([session.execute_command(shlex.join(argv)).stdout.encode()])


@contextmanager
def autogen() -> Iterator[Request]:
    import asyncio

    import docker
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock
    from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        executor = DockerCommandLineCodeExecutor(IMAGE, work_dir=folder, stop_container=False)
        runner.run(executor.start())

        def request(argv: Sequence[str]) -> Iterator[bytes]:
            block = CodeBlock(code=shlex.join(argv), language="sh")
            yield runner.run(executor.execute_code_blocks([block], CancellationToken())).output.encode()

        try:
            yield request
        finally:  # its own stop waits ten seconds for a shell that does not listen
            docker.from_env().containers.get(executor.container_name).remove(force=True)


@contextmanager
def epicbox() -> Iterator[Request]:
    import epicbox

    epicbox.configure([epicbox.Profile("minimal", IMAGE)])

    def request(argv: Sequence[str]) -> Iterator[bytes]:
        yield epicbox.run("minimal", shlex.join(argv), limits={"cputime": 60, "realtime": 60})["stdout"]

    yield request


@dataclass(frozen=True, slots=True)
class Kind:
    """How a peer is called in the table, and where it is installed."""

    title: str
    open: Callable[[], AbstractContextManager[Request]]
    package: str = ""
    environment: str = "main"

    def version(self) -> str:
        if self.package:
            return f"{self.package} {importlib.metadata.version(self.package)}"
        if self.title.startswith("docker"):
            return subprocess.run(["docker", "--version"], check=True, capture_output=True, text=True).stdout.strip()
        return ""


PEERS = {
    "host": Kind("subprocess of the host", host),
    "run": Kind("docker run --rm", docker_run),
    "run_bare": Kind("docker run, no network or log", docker_run_bare),
    "exec": Kind("docker exec, kept container", docker_exec),
    "sdk": Kind("docker SDK containers.run", docker_sdk, "docker"),
    "sdk_offline": Kind("the same, network_disabled", docker_sdk_offline, "docker"),
    "attach": Kind("raw read of the attach socket", raw_attach, "docker"),
    "testcontainers": Kind("testcontainers", testcontainers, "testcontainers"),
    "llm_fresh": Kind("llm-sandbox, fresh session", llm_sandbox_fresh, "llm-sandbox"),
    "llm_kept": Kind("llm-sandbox, kept session", llm_sandbox_kept, "llm-sandbox"),
    "autogen": Kind("AutoGen executor, kept", autogen, "autogen-ext"),
    "epicbox": Kind("epicbox", epicbox, "epicbox", "epicbox"),
}


def spoken(argv: Sequence[str]) -> Iterator[bytes]:
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 2**18):
            yield piece
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)


def one(request: Request, argv: Sequence[str]) -> dict[str, Any]:
    """Run a command once: when its first and its last byte came, and when all was over, in seconds."""
    first = last = 0.0
    size, head = 0, b""
    began = time.perf_counter()
    for piece in request(argv):
        last = time.perf_counter() - began
        first = first or last
        size += len(piece)
        head = head or bytes(piece[:16])
    seconds = time.perf_counter() - began
    if tuple(argv) == ECHO and not head.endswith(b"hi\n"):
        message = f"said {head!r}"
        raise RuntimeError(message)
    return {"first": first, "last": last, "seconds": seconds, "size": size}


def many(request: Request, argv: Sequence[str], callers: int, total: int) -> dict[str, Any]:
    """Run a command `total` times from `callers` threads: how long all took, and each."""
    each: list[float] = []
    errors: list[str] = []
    left = iter(range(total))  # next() of a range is one step of the interpreter

    def call() -> None:
        for _ in left:
            try:
                each.append(one(request, argv)["seconds"])
            except Exception as error:  # noqa: BLE001 - told to whoever asked
                errors.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if errors:
        message = f"{len(errors)} of {total} failed: {errors[0]}"
        raise RuntimeError(message)
    return {"seconds": seconds, "each": each}


def serve(name: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer

    def answer(**parts: Any) -> None:
        answers.write(json.dumps(parts) + "\n")

    try:
        kind = PEERS[name]
        with kind.open() as request:
            one(request, ECHO)
            answer(version=kind.version())
            for line in sys.stdin:
                order = json.loads(line)
                try:
                    answer(**(many if "callers" in order else one)(request, **order))
                except Exception as error:  # noqa: BLE001 - told to whoever asked
                    answer(error=f"{type(error).__name__}: {error}"[:300])
    except Exception as error:  # noqa: BLE001 - the reason why it is not in the table
        answer(error=f"{type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    serve(sys.argv[1])
