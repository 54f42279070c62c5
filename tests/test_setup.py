"""What a killed engine leaves is cleared away, and nothing of a living one."""

import gc
import os
import socket
import subprocess
import sys
import warnings

import pytest

from provider.settings import Endpoint
from setup.engine import Daemon, NoAnswer, SetupError, advice, clear_stale, connect, ensure, living_pid


@pytest.fixture
def daemon(tmp_path):
    return Daemon(
        url=f"unix://{tmp_path}/docker.sock",
        pid_file=tmp_path / "docker.pid",
        containerd_pid_file=tmp_path / "containerd.pid",
        log=tmp_path / "log",
    )


@pytest.mark.parametrize("text", ["", "no number", "-1", "4194301", pytest.param(str(os.getpid()), id="ours")])
def test_a_pid_file_that_names_no_dockerd_is_removed(daemon, text):
    """Empty, garbled, of a dead process, or of a living one that is another program."""
    for file in (daemon.pid_file, daemon.containerd_pid_file):
        file.write_text(text)
    assert clear_stale(daemon) is None
    assert not daemon.pid_file.exists()
    assert not daemon.containerd_pid_file.exists()


def test_a_living_daemon_keeps_its_pid_file(tmp_path):
    """A process of the right name is left in peace."""
    file = tmp_path / "pid"
    with subprocess.Popen(["sleep", "60"]) as process:
        file.write_text(f"{process.pid}\n")
        assert living_pid(file, "sleep") == process.pid
        process.kill()
    assert file.exists()


@pytest.fixture
def sdk_leaks():
    """The SDK leaves the socket of a failed connection to the collector, which complains; here, not in a later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_a_socket_nobody_listens_on_is_no_engine(daemon, sdk_leaks):
    """A stale socket file is the same as none."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(daemon.url.removeprefix("unix://"))
    with pytest.raises(NoAnswer):
        connect(Endpoint(url=daemon.url, source="default"))


def test_an_engine_that_somebody_chose_is_never_replaced(monkeypatch, sdk_leaks):
    """A dead DOCKER_HOST is an error that names it; no other engine is started behind the user's back."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    with pytest.raises(SetupError, match="DOCKER_HOST names this engine"):
        ensure()


@pytest.mark.parametrize(("system", "words"), [({"debian"}, "apt-get install docker.io"), ({"fedora"}, "dnf install")])
def test_the_advice_fits_the_system(monkeypatch, system, words):
    """Where we cannot bring an engine, one message says what to type here."""
    monkeypatch.setattr(sys, "platform", "linux")
    assert words in advice(system)


def test_the_advice_for_macos(monkeypatch):
    """On macOS it names what runs a Linux engine there."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "colima" in advice(set())
