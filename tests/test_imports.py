"""What `sandbox run` waits for before it begins: nothing but what it needs, seen in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from provider import client

HEAVY = {"asyncio", "docker", "platformdirs", "pydantic", "pydantic_settings", "requests", "rich", "ssl", "tenacity"}
HEAVY |= {"typer", "dataclasses", "importlib.metadata", "subprocess", "threading", "logging", "inspect"}
NOT_OURS = {"provider.model", "provider.run", "provider.cli", "provider.settings", "provider.errors", "provider.daemon"}
FOR_OTHERS = {"rich.table", "provider.doctor", "provider.daemon", "provider.testing"}
FOR_OTHERS |= {"tree_sitter", "testcontainers", "tests", "pytest", "hypothesis", "matplotlib"}


def imported(*words: str, without_site: bool = False) -> tuple[int, set[str]]:
    """The exit status of a command line, and every module that it has imported."""
    # Without site, an editable installation's own start-up is not counted as ours.
    start = ["-S", "-X", "importtime"] if without_site else ["-X", "importtime"]
    environment = {**os.environ, "PYTHONPATH": str(Path(client.__file__).parent.parent)}
    command = [sys.executable, *start, "-m", "provider", *words]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return result.returncode, {line.rsplit("|", 1)[1].strip() for line in lines} - {"imported package"}


@pytest.fixture
def daemon(home: Path) -> Iterator[None]:
    """One that takes whatever it is asked, and says 42."""
    folder = home / "sandbox-provider"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "daemon.sock"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while not connection.recv(client.PIECE).endswith(client.frame(b"A")):
                    pass
                connection.sendall(client.frame(b"Y") + client.frame(b"O", b"x") + client.frame(b"Z", b"\x2a"))

        serving = threading.Thread(target=serve)
        serving.start()
        yield
        serving.join(10)


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("word", ["run", "shell"])
def test_with_a_daemon_only_the_standard_library_is_imported_and_little_of_it(word: str):
    """Neither asyncio nor any package: what this process imports is what its user waits for."""
    status, modules = imported(word, "-c", "x", without_site=True)
    assert status == 42
    assert "provider.client" in modules
    assert modules & HEAVY == set()
    assert modules & NOT_OURS == set()
    tops = {module.split(".")[0] for module in modules} - {"provider"}
    assert tops - set(sys.stdlib_module_names) - {"__main__"} == set()


@pytest.mark.usefixtures("home")
def test_without_a_daemon_nothing_is_imported_that_only_others_need():
    """Tables, the doctor, parsers and whatever belongs to tests stay where they are."""
    status, modules = imported("run", "-c", "x")
    assert status == 125  # there is no engine
    assert "provider.run" in modules
    tops = {module.split(".")[0] for module in modules}
    assert (modules | tops) & FOR_OTHERS == set()
