"""
Brings gVisor: the static `runsc` of a Debian package, registered with the dockerd that setup/engine.py has started.

The package is of a fixed Debian release, whatever this machine runs, fetched by an apt of its own whose lists and
sources touch nothing of the machine's, and which checks signatures as apt does. An engine that somebody else started is
left alone: then one message says what its administrator can add.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import docker
import docker.errors

from provider.errors import ConfigError
from provider.gvisor import GVISOR
from setup.engine import (
    APT,
    RUNSC,
    RUNTIME,
    Daemon,
    SetupError,
    ensure,
    is_ours,
    living_pid,
    locked,
    register,
    run,
    say,
)

SUITE = "trixie"
PACKAGE = "runsc"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = "http://deb.debian.org/debian"
RELOAD = 10


def main(arguments: list[str]) -> int:
    try:
        client = ensure()
        if not is_offered(client) or not RUNSC.exists():
            bring_as_root(client, arguments)
        say(f"the engine offers {GVISOR}, {run(str(RUNSC), '--version').stdout.splitlines()[0]}")
    except (SetupError, ConfigError, docker.errors.APIError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def is_offered(client: docker.DockerClient) -> bool:
    found = (client.info().get("Runtimes") or {}).get(GVISOR) or {}
    return {name: found.get(name) for name in RUNTIME} == RUNTIME


def bring_as_root(client: docker.DockerClient, arguments: list[str]) -> None:
    if os.geteuid() == 0:
        with locked("gvisor"):
            bring(client, Daemon())
        return
    if arguments[:1] == ["again"] or not shutil.which("sudo") or not (sys.stdin.isatty() or is_free("sudo")):
        raise SetupError(f"to install {RUNSC} takes root. {advice()}")  # noqa: EM102
    # -B: root's bytecode in the user's clone could not be removed by the user.
    if subprocess.run(["sudo", sys.executable, "-B", __file__, "again"], check=False).returncode:
        raise SetupError("gVisor was not installed; the reason is above")  # noqa: EM101


def is_free(sudo: str) -> bool:
    return run(sudo, "-n", "true").returncode == 0


def bring(client: docker.DockerClient, daemon: Daemon) -> None:
    """Install what is missing, name it to the daemon, and see that it is offered. Needs root."""
    if not RUNSC.exists():
        install()
    if is_offered(client):
        return
    if not is_ours(daemon):
        raise SetupError(f"this engine was not started by `make`, so it is not touched. {advice()}")  # noqa: EM102
    register(daemon)
    pid = living_pid(daemon.pid_file, "dockerd")
    assert pid is not None
    os.kill(pid, signal.SIGHUP)  # it reads its runtimes anew, and nothing that runs notices
    until = time.monotonic() + RELOAD
    while not is_offered(client):
        if time.monotonic() > until:
            message = f"dockerd did not take {GVISOR} from {daemon.config} within {RELOAD} s; {daemon.log} says why"
            raise SetupError(message)
        time.sleep(0.1)


def advice() -> str:
    entry = json.dumps({"runtimes": {GVISOR: RUNTIME}})
    return f"Its administrator can: put runsc there, add {entry} to daemon.json, and reload dockerd."


def install() -> None:
    say(f"installing {PACKAGE} of Debian {SUITE} as {RUNSC} (a few seconds)")
    if not shutil.which("apt-get"):
        raise SetupError(f"there is no apt here to get gVisor with. {advice()}")  # noqa: EM102
    if not KEYRING.exists() and subprocess.run([APT, "debian-archive-keyring"], check=False).returncode:
        raise SetupError("without Debian's keys (debian-archive-keyring) no package of its can be checked")  # noqa: EM101
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)  # apt downloads as a user of its own
        package = download(folder)
        subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
        RUNSC.parent.mkdir(parents=True, exist_ok=True)
        new = RUNSC.with_name("runsc.new")
        shutil.copyfile(folder / "root/usr/bin/runsc", new)
        new.chmod(0o755)
        if run(str(new), "--version").returncode:
            new.unlink()
            raise SetupError(f"{package.name} holds no runsc that runs on this machine")  # noqa: EM102
        new.replace(RUNSC)


def download(folder: Path) -> Path:
    """Fetch the package, checked by apt against the release's signature."""
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "archives/partial").mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
    options = [
        f"Dir::Etc::sourcelist={folder}/sources.list",
        "Dir::Etc::sourceparts=/dev/null",
        f"Dir::State::lists={folder}/lists",
        "Dir::State::status=/dev/null",
        f"Dir::Cache={folder}",
        "Acquire::Languages=none",
        "Acquire::Retries=2",
        "APT::Get::List-Cleanup=0",
        "APT::Update::Error-Mode=any",
    ]
    apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    for command in ([*apt, "update"], [*apt, "install", "--download-only", "--no-install-recommends", "-y", PACKAGE]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            said = "\n    ".join(done.stderr.strip().splitlines()[-3:])
            message = f"gVisor cannot be had: apt-get finds no {PACKAGE} of {SUITE} at {mirror()}:\n    {said}"
            raise SetupError(message)
    return next((folder / "archives").glob(f"{PACKAGE}_*.deb"))


def mirror() -> str:
    """Where this machine's own apt gets Debian, if it does: a mirror nearby, or the only one it can reach."""
    query = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages", "Origin: Debian"]
    lines = [line.split() for line in run(*query).stdout.splitlines()]
    return next((uri.rstrip("/") for uri, release in lines if "-" not in release), MIRROR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
