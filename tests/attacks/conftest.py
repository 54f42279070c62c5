"""
What is attacked, where the canaries sit, and how the results are kept.

ATTACKS=long     the race with 100,000 attempts, and its counter-proof
ATTACKS=golden   writes the tables of system calls anew
ATTACKS=holes    tries what is known not to hold, too
ATTACKS_RUNTIMES=runc,runsc    on which runtimes; by default those that the engine offers, with GVISOR=must both
ATTACKS_ENGINE=module:function another engine to be scored
ATTACKS_RESULTS=FILE           where the results go, for report.py
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import platform
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
import requests

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
pytest.register_assert_rewrite("attacks")
from attacks.canaries import Canaries  # noqa: E402 - asserts in it are to be told as those of tests are
from attacks.names import OWNER  # noqa: E402

from provider.assets import load_assets  # noqa: E402
from provider.engine.docker import tls_config  # noqa: E402
from provider.engine.owner import OWNER_LABEL, this_owner  # noqa: E402
from provider.errors import ConfigError  # noqa: E402
from provider.settings import find_endpoint  # noqa: E402

SCORED = ("runc", "runsc")
collect_ignore = [] if os.environ.get("ATTACKS") == "holes" else ["test_holes.py"]
_BINARIES = ("runc", "runsc", "containerd-shim-runc-v2", "docker-init", "dockerd", "containerd")


@functools.cache
def engine_facts() -> dict[str, Any]:
    """The engine's `info`, or nothing where there is none; asked once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK forgets to close the socket when it fails
        facts = _ask()
        gc.collect()
    return facts


def _ask() -> dict[str, Any]:
    try:
        endpoint = find_endpoint()
        client = docker.APIClient(base_url=endpoint.url, version="auto", tls=tls_config(endpoint), timeout=10)
        try:
            bridge = client.inspect_network("bridge")["IPAM"]["Config"]
            gateway = bridge[0].get("Gateway") if bridge else None
            return client.info() | {"Version": client.version(), "Gateway": gateway}
        finally:
            client.close()
    except (docker.errors.DockerException, requests.exceptions.RequestException, ConfigError, OSError, KeyError):
        return {}


def runtimes() -> tuple[str, ...]:
    """Those named by ATTACKS_RUNTIMES, or those of ours that the engine offers."""
    if named := os.environ.get("ATTACKS_RUNTIMES"):
        return tuple(named.split(","))
    offered = engine_facts().get("Runtimes") or {}
    if os.environ.get("GVISOR") == "must":
        return SCORED  # one that is not there fails
    return tuple(name for name in SCORED if name in offered) or ("runc",)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "attack(*ids): which attacks of tests/attacks/table.py the test tries")
    config.stash[RESULTS] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "runtime" in metafunc.fixturenames:
        metafunc.parametrize("runtime", runtimes(), scope="module")


# Results.

RESULTS: pytest.StashKey[dict[str, dict[str, str]]] = pytest.StashKey()
_WORST = ("failed", "not held", "skipped", "contained")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = (yield).get_result()
    if (mark := item.get_closest_marker("attack")) is None or (report.when != "call" and report.passed):
        return
    runtime = getattr(item, "callspec", None) and item.callspec.params.get("runtime")
    result = "contained" if report.passed else "skipped" if report.skipped else "failed"
    if hasattr(report, "wasxfail"):
        result = "not held"
    for name in mark.args:
        row = item.config.stash[RESULTS].setdefault(name, {})
        row[runtime or "any"] = min(row.get(runtime or "any", "contained"), result, key=_WORST.index)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the results where ATTACKS_RESULTS says, for report.py."""
    path, results = os.environ.get("ATTACKS_RESULTS"), session.config.stash[RESULTS]
    if not path or not results:
        return
    facts = engine_facts()
    record = {
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "engine": facts.get("ServerVersion"),
        "runtimes": {name: _version(facts, name) for name in runtimes()},
        "results": dict(sorted(results.items())),
    }
    Path(path).write_text(json.dumps(record, indent=1) + "\n")


def _version(facts: dict[str, Any], runtime: str) -> str:
    parts = {part["Name"]: part["Version"] for part in facts.get("Version", {}).get("Components", [])}
    return parts.get(runtime) or _own_word(facts.get("Runtimes", {}).get(runtime, {}).get("path", ""))


def _own_word(program: str) -> str:
    """Of a runtime that the engine does not tell the version of."""
    if not Path(program).is_absolute() or not Path(program).exists():
        return ""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    return said.split("\n")[0].split()[-1] if said else ""


# Where it happens.


@pytest.fixture(autouse=True)
def nothing_is_left() -> None:
    """The rule of the other tests, kept here for a whole module: its provider lives longer than one attack."""


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    yield
    endpoint = find_endpoint()
    client = docker.APIClient(base_url=endpoint.url, version="auto", tls=tls_config(endpoint), timeout=30)
    try:
        left = client.containers(all=True, filters={"label": f"{OWNER_LABEL}={this_owner()}"})
        assert [container["Names"] for container in left] == []
    finally:
        client.close()


@pytest.fixture(scope="module")
def no_container_is_left() -> Iterator[None]:
    with none_left():
        yield


@pytest.fixture(scope="module")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canaries]:
    folder = tmp_path_factory.mktemp("canaries")
    for above in (folder, folder.parent):
        above.chmod(0o755)
    with Canaries(folder, gateway=engine_facts().get("Gateway"), owner=OWNER) as canaries:
        yield canaries


@pytest.fixture(scope="session")
def watched() -> tuple[Path, ...]:
    """Programs of the host that start containers, and our own pid 1."""
    own = "/usr/local/lib/sandbox-provider"
    folders = [
        Path(name) for name in (*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/usr/local/bin", own) if name
    ]
    found = {(folder / name).resolve() for folder in folders for name in _BINARIES if (folder / name).is_file()}
    with contextlib.suppress(Exception):  # nothing is built here; the docker gate says so
        found.add(load_assets().init_path)
    return tuple(sorted(found))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compiles a C source once, statically: it runs in any image."""
    folder = tmp_path_factory.mktemp("compiled")

    @functools.cache
    def compile_once(source: Path) -> Path:
        program = folder / re.sub(r"\W", "-", str(source))
        options = ["-static", "-O1", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["cc", *options, "-o", program, source], check=True, timeout=60)
        return program

    return compile_once
