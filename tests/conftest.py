"""The docker gate, and what several test files share."""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import docker
import docker.errors
import hypothesis
import pytest
import requests

from provider import run as run_module
from provider.assets import Assets, Profile, load_assets
from provider.engine.docker import tls_config
from provider.engine.owner import OWNER_LABEL, this_owner
from provider.errors import ConfigError
from provider.gvisor import GVISOR
from provider.model import Image, Plan, Request, Workspace
from provider.plan import make_plan
from provider.settings import find_endpoint

IMAGES = ("sandbox-provider/default", "sandbox-provider/minimal")
OWNER_ID = 1000

# A machine under load is slow, not wrong.
hypothesis.settings.register_profile("ours", deadline=None, database=None)
hypothesis.settings.load_profile("ours")


def _client() -> docker.APIClient:
    endpoint = find_endpoint()
    return docker.APIClient(base_url=endpoint.url, version="auto", tls=tls_config(endpoint), timeout=30)


@functools.cache
def _what_is_missing() -> str | None:
    with warnings.catch_warnings():
        # The SDK forgets to close the socket of a connection that failed.
        warnings.simplefilter("ignore", ResourceWarning)
        reason = _look()
        gc.collect()
    return reason


def _look() -> str | None:
    try:
        load_assets()
        client = _client()
    except ConfigError as error:
        return str(error)
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        return f"no Docker engine answers: {error}"
    try:
        missing = [name for name in IMAGES if not client.images(name)]
    finally:
        client.close()
    return f"no image {', '.join(missing)}; run `make images`" if missing else None


def _unavailable(reason: str) -> NoReturn:
    """Skip, or fail where whoever started the tests has said that nothing may be skipped."""
    if os.environ.get("PROVIDER_DOCKER") == "must":
        pytest.fail(f"PROVIDER_DOCKER=must, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("docker") and (reason := _what_is_missing()):
        _unavailable(reason)


@pytest.fixture(scope="session")
def unavailable() -> Callable[[str], NoReturn]:
    """The same gate, for what a fixture finds missing."""
    return _unavailable


@pytest.fixture
def gvisor(engine_client: docker.APIClient) -> str:
    """
    The name of gVisor's runtime, for tests of that tier.

    It is an option of an engine, not a part: without it they are skipped, under PROVIDER_DOCKER=must too. GVISOR=must
    says that `make gvisor` has been run, and makes a failure of it.
    """
    if GVISOR not in (engine_client.info().get("Runtimes") or {}):
        reason = f"this engine does not offer {GVISOR}; run `make gvisor`"
        if os.environ.get("GVISOR") == "must":
            pytest.fail(f"GVISOR=must, but {reason}", pytrace=False)
        pytest.skip(reason)
    return GVISOR


@pytest.fixture
def engine_client() -> Iterator[docker.APIClient]:
    """The engine as others see it, past the provider."""
    client = _client()
    yield client
    client.close()


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a docker test, no container of this process exists."""
    if request.node.get_closest_marker("docker") is None:
        yield
        return
    client = request.getfixturevalue("engine_client")
    yield
    left = client.containers(all=True, filters={"label": f"{OWNER_LABEL}={this_owner()}"})
    assert [container["Names"] for container in left] == []


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """An empty directory that belongs to a person, as workspaces do."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, OWNER_ID, OWNER_ID)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pinned(workspace: Path) -> Workspace:
    """The same directory as `check_workspace` would give it."""
    status = workspace.stat()
    return Workspace(path=workspace, device=status.st_dev, inode=status.st_ino, uid=status.st_uid, gid=status.st_gid)


@pytest.fixture
def assets() -> Assets:
    """Those of an installation, without one."""
    texts = {tier: f'{{"defaultAction":"SCMP_ACT_ERRNO","tier":"{tier}"}}' for tier in ("default", "unix", "debug")}
    profiles = {
        tier: Profile(text=text, sha256=hashlib.sha256(text.encode()).hexdigest()) for tier, text in texts.items()
    }
    return Assets(
        init_path=Path("/opt/sandbox-init"),
        init_sha256="1" * 64,
        inside_path=Path("/opt/inside"),
        inside_sha256="3" * 64,
        profiles=profiles,
        gvisor_profiles=profiles,
    )


@pytest.fixture
def planned(pinned: Workspace, assets: Assets) -> Callable[..., Plan]:
    """Plans a request that is good in every part but those that a test names."""

    def plan(*, image: Image | None = None, grace: float = 0.5, **parts: object) -> Plan:
        request = Request(**{"argv": ("true",), "image": "an-image", "user": "1000:1000", **parts})
        image = image or Image(name="an-image", id="sha256:" + "a" * 64)
        return make_plan(request, pinned, image, assets, grace=grace)

    return plan


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user of this machine without settings, engine or daemon; the path is short, as that of a socket must be."""
    folder = Path(tempfile.mkdtemp(prefix="home-"))
    for name in [name for name in os.environ if name.startswith(("SANDBOX_", "DOCKER_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/no-engine.sock")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, assets: Assets) -> None:
    """An installation whose pid 1 need not be built."""
    monkeypatch.setattr(run_module, "load_assets", lambda: assets)
