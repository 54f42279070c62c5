"""What a killed engine leaves is cleared away, and nothing of a living one."""

import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import warnings

import pytest

from provider.settings import Endpoint
from setup import engine, gvisor
from setup.engine import (
    RUNTIME,
    Daemon,
    NoAnswer,
    SetupError,
    advice,
    clear_stale,
    connect,
    ensure,
    is_ours,
    living_pid,
    register,
)


@pytest.fixture
def daemon(tmp_path):
    return Daemon(
        url=f"unix://{tmp_path}/docker.sock",
        pid_file=tmp_path / "docker.pid",
        containerd_pid_file=tmp_path / "containerd.pid",
        log=tmp_path / "log",
        config=tmp_path / "etc/daemon.json",
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


# gVisor.


def test_a_runtime_is_registered_beside_what_else_is_configured(daemon):
    """What an administrator wrote stays; a second time nothing is written."""
    assert register(daemon)
    assert json.loads(daemon.config.read_text()) == {"runtimes": {"runsc": RUNTIME}}
    mine = {"runtimes": {"kata": {"path": "kata"}, "runsc": {"path": "/old"}}, "log-level": "warn"}
    daemon.config.write_text(json.dumps(mine))
    assert register(daemon)
    assert json.loads(daemon.config.read_text()) == mine | {"runtimes": {"kata": {"path": "kata"}, "runsc": RUNTIME}}
    assert not register(daemon)


@pytest.mark.parametrize("text", ["{", "[]", '"x"'])
def test_a_configuration_that_cannot_be_read_is_left_alone(daemon, text):
    """Nobody knows what its administrator meant."""
    daemon.config.parent.mkdir()
    daemon.config.write_text(text)
    with pytest.raises(SetupError, match="no configuration"):
        register(daemon)
    assert daemon.config.read_text() == text


@pytest.mark.parametrize(
    ("log", "session", "ours"), [("log", True, True), ("other", True, False), ("log", False, False)]
)
def test_only_a_dockerd_that_was_started_here_is_ours(daemon, tmp_path, log, session, ours):
    """It leads a session and writes to our log; one that was started in any other way is somebody else's."""
    shutil.copy(shutil.which("sleep"), tmp_path / "dockerd")
    with (
        (tmp_path / log).open("w") as output,
        subprocess.Popen(
            [tmp_path / "dockerd", "60"], stdout=output, stderr=output, start_new_session=session
        ) as process,
    ):
        daemon.pid_file.write_text(str(process.pid))
        assert is_ours(daemon) == ours
        process.kill()
    assert not is_ours(daemon)


@pytest.mark.parametrize("installed", [True, False])
def test_an_engine_that_is_started_later_knows_what_is_installed(daemon, tmp_path, monkeypatch, installed):
    """Also when its configuration was lost; without gVisor, none is written."""
    found = []
    monkeypatch.setattr(engine, "RUNSC", tmp_path if installed else tmp_path / "none")
    monkeypatch.setattr(engine, "mount_cgroups", lambda: None)
    monkeypatch.setattr(engine, "wait", lambda *_: None)
    monkeypatch.setattr(engine.shutil, "which", lambda _: "/dockerd")
    monkeypatch.setattr(engine.subprocess, "Popen", lambda *_, **__: found.append(daemon.config.exists()))
    engine.start(daemon)
    assert found == [installed]


class Engine:
    """One that offers no gVisor."""

    def info(self):
        return {"Runtimes": {"runc": {"path": "runc"}}}


def test_an_engine_of_somebody_elses_is_told_about_and_not_touched(daemon, tmp_path, monkeypatch):
    """One message says what its administrator can add."""
    monkeypatch.setattr(gvisor, "RUNSC", tmp_path)
    with pytest.raises(SetupError, match=r'not touched.*"runtimes".*"runsc"'):
        gvisor.bring(Engine(), daemon)
    assert not daemon.config.exists()


def test_a_runtime_with_other_arguments_does_not_count(monkeypatch):
    """Started without our flags it would ignore the seccomp profile."""
    client = Engine()
    monkeypatch.setattr(client, "info", lambda: {"Runtimes": {"runsc": {"path": RUNTIME["path"]}}})
    assert not gvisor.is_offered(client)
    monkeypatch.setattr(client, "info", lambda: {"Runtimes": {"runsc": RUNTIME}})
    assert gvisor.is_offered(client)


@pytest.mark.skipif(not shutil.which("apt-get"), reason="there is no apt here")
def test_without_a_mirror_there_is_one_clear_error(tmp_path, monkeypatch):
    """And nothing is installed."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(gvisor, "mirror", lambda: f"file://{tmp_path}/nowhere")
    with pytest.raises(SetupError, match="gVisor cannot be had: apt-get finds no runsc of trixie"):
        gvisor.download(tmp_path)
