"""
Builds the images sandbox-provider/minimal and default, or those that are named, unless the engine has them.

Each image carries a label with the sha256 of all it is described by, so that a second run costs one look an image.
Where there is apt the images are made from Debian packages and need no container registry; elsewhere from the
Dockerfile beside the package list.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import docker
import docker.errors
from docker.models.images import Image

from provider.errors import ConfigError
from setup.engine import APT, SetupError, ensure, locked, say

HERE = Path(__file__).resolve().parent
FINISH = HERE / "default/finish"
"""The last touch to a Debian root."""
LABEL = "sandbox-provider.inputs"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
SUITE = "bookworm"
SUITE_DATE = 1_686_355_200  # 2023-06-10, its release; a fixed date makes the same tar every time
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = [
    f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {SUITE} main",
    f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {SUITE}-updates main",
    f"deb [signed-by={KEYRING}] http://deb.debian.org/debian-security {SUITE}-security main",
]


class NoPackages(Exception):
    """An image cannot be made from Debian packages on this machine; the message says why not."""


def main(names: list[str]) -> int:
    try:
        client = ensure()
        for name in names or DAILY:
            update(client, name)
    except (SetupError, ConfigError, docker.errors.APIError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def update(client: docker.DockerClient, name: str) -> None:
    inputs = digest(name)
    if is_fresh(find(client, name), inputs):
        return
    with locked("images"):
        old = find(client, name)
        if is_fresh(old, inputs):
            return  # another make built it meanwhile
        say(f"building the image sandbox-provider/{name}{'' if name == 'minimal' else ' (about 1 minute)'}")
        began = time.monotonic()
        try:
            check_packages(client)
            import_tar(client, name, BUILDS[name](), inputs)
        except NoPackages as reason:
            say(f"{reason}; building it from images/{name}/Dockerfile")
            build_dockerfile(client, name, inputs)
        new = client.images.get(f"sandbox-provider/{name}")
        say(f"built in {time.monotonic() - began:.0f} s: {new.attrs['Size'] / 1e6:.1f} MB")
        if old is not None and old.id != new.id:
            discard(client, old)


def digest(name: str) -> str:
    """Sum up what decides the image's content."""
    total = hashlib.sha256()
    for path in [Path(__file__), FINISH, *sorted((HERE / name).iterdir())]:
        if path.suffix != ".md":
            total.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return total.hexdigest()


def find(client: docker.DockerClient, name: str) -> Image | None:
    try:
        return client.images.get(f"sandbox-provider/{name}")
    except docker.errors.ImageNotFound:
        return None


def is_fresh(image: Image | None, inputs: str) -> bool:
    return image is not None and image.labels.get(LABEL) == inputs


def check_packages(client: docker.DockerClient) -> None:
    message = ""
    if not shutil.which("apt-get"):
        message = "there is no apt here"
    elif MACHINES.get(platform.machine()) != client.version()["Arch"]:
        message = "the engine runs on another kind of machine"
    if message:
        raise NoPackages(message)


def import_tar(client: docker.DockerClient, name: str, tar: Iterable[bytes], inputs: str) -> None:
    """Stream a root file system into the engine. A builder that fails midway raises, which breaks off the request."""
    shell = "sh" if name == "minimal" else "bash"
    reply = client.api.import_image_from_stream(
        tar,
        repository=f"sandbox-provider/{name}",
        tag="latest",
        changes=[f"LABEL {LABEL}={inputs}", "ENV LANG=C.UTF-8", f'CMD ["{shell}"]'],
    )
    last = json.loads(reply.splitlines()[-1])
    if "error" in last:  # after the stream has begun, the engine can only say so in its body
        message = f"the engine did not import sandbox-provider/{name}: {last['error']}"
        raise SetupError(message)


def build_dockerfile(client: docker.DockerClient, name: str, inputs: str) -> None:
    try:
        client.images.build(path=str(HERE / name), tag=f"sandbox-provider/{name}", labels={LABEL: inputs}, forcerm=True)
    except (docker.errors.BuildError, docker.errors.APIError) as error:
        message = f"the image sandbox-provider/{name} could not be built: {error}"
        raise SetupError(message) from error


def discard(client: docker.DockerClient, image: Image) -> None:
    try:
        client.images.remove(str(image.id))
    except docker.errors.APIError:
        say(f"left the former image {image.short_id}: something still uses it")


# Each yields the tar of a root file system.


def debian(name: str) -> Iterator[bytes]:
    if not shutil.which("mmdebstrap"):
        say("installing mmdebstrap")
        apt_install("mmdebstrap", "uidmap", "debian-archive-keyring")
    unneeded = ["doc/*", "info/*", "lintian/*", "locale/*", "man/*"]
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+", errors="replace") as log:
        Path(scratch).chmod(0o755)  # apt downloads as a user of its own
        options = Path(scratch, "options")
        options.write_text(apt_options())
        command = [
            "mmdebstrap",
            "--variant=apt",
            f"--include={','.join((HERE / name / 'packages').read_text().split())}",
            f"--aptopt={options}",
            *(f"--dpkgopt=path-exclude=/usr/share/{path}" for path in unneeded),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            f"--customize-hook={FINISH.read_text()}",
            # The address of this machine's mirror or proxy may hold a password, and any command could read it.
            '--customize-hook=rm "$1/etc/apt/apt.conf.d/99mmdebstrap"',
            f"""--customize-hook=printf '%s\\n' '{"' '".join(SOURCES)}' >"$1/etc/apt/sources.list" """,
            SUITE,
            "-",
            *(host_sources() or SOURCES),
        ]
        if os.geteuid() == 0 and memory_available() > 4 * 2**30:
            # In memory: dpkg's many small writes take 95 s on ext4, 50 s here. Nobody else sees the mount.
            (memory := Path(scratch, "memory")).mkdir()
            mount = 'mount -t tmpfs tmpfs "$0" && TMPDIR="$0" exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", mount, str(memory), *command]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log) as process:
            assert process.stdout is not None
            yield from iter(partial(process.stdout.read, 2**20), b"")
        if process.returncode:
            log.seek(0)
            raise NoPackages("mmdebstrap failed:\n    " + "    ".join(log.readlines()[-8:]).rstrip())


def memory_available() -> int:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024


def host_sources() -> list[str]:
    """Where this machine's own apt gets the suite, if it is on it: a mirror nearby, or the only one it can reach."""
    fields = f"deb [signed-by={KEYRING}] $(REPO_URI) $(RELEASE) $(COMPONENT)"
    query = ["apt-get", "indextargets", "--format", fields, "Created-By: Packages", "Origin: Debian"]
    lines = subprocess.run(query, check=True, text=True, capture_output=True).stdout.splitlines()
    return [line for line in lines if line.split()[3].startswith(SUITE)]


def apt_options() -> str:
    """How this machine's apt reaches its mirrors: proxies, certificates, time-outs, tolerance for a frozen snapshot."""
    query = ["apt-config", "dump", "--no-empty", "--format", '%F "%v";%n', "Acquire"]
    lines = subprocess.run(query, check=True, text=True, capture_output=True).stdout.splitlines(keepends=True)
    # Not what else to download, and not how to store it: reading compressed lists again at every step costs 20 s.
    return "".join(line for line in lines if not line.startswith(("Acquire::IndexTargets", "Acquire::GzipIndexes")))


def minimal() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        package = download("busybox-static", Path(folder))
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        busybox = Path(folder, "bin/busybox")
        applets = subprocess.run([busybox, "--list-full"], check=True, text=True, capture_output=True).stdout.split()
        program = busybox.read_bytes()
    entries: list[tuple[str, int, bytes | str]] = [
        *(
            (f"{name}/", 0o755, b"")
            for name in ("bin", "dev", "etc", "proc", "sbin", "sys", "usr", "usr/bin", "usr/sbin")
        ),
        ("root/", 0o700, b""),
        ("tmp/", 0o1777, b""),
        ("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"),
        ("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n"),
        ("etc/shadow", 0o600, b"root:*:::::::\n"),
        ("bin/busybox", 0o755, program),
        *((applet, 0o777, "/bin/busybox") for applet in sorted(applets) if applet != "bin/busybox"),
    ]
    yield pack(entries)


def pack(entries: Iterable[tuple[str, int, bytes | str]]) -> bytes:
    """Make a tar of (path, mode, content): a trailing slash is a directory, content as `str` is where a link points."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for path, mode, content in entries:
            entry = tarfile.TarInfo(path.rstrip("/"))
            entry.mode, entry.mtime = mode, SUITE_DATE
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            elif path.endswith("/"):
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return tar.getvalue()


def download(package: str, folder: Path) -> Path:
    """Fetch a package without installing it; busybox-static, say, would replace the machine's own busybox."""
    command = ["apt-get", "-qq", "download", package]
    for refresh in (False, True):
        if refresh:
            apt_install()  # nothing but fresh lists: there were none, or the mirror has moved on
        if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0:
            return next(folder.glob("*.deb"))
    message = f"apt-get cannot download {package}"
    raise NoPackages(message)


def apt_install(*packages: str) -> None:
    if subprocess.run([APT, *packages], check=False).returncode:
        message = f"apt-get cannot install {' '.join(packages)}"
        raise NoPackages(message)


BUILDS: dict[str, Callable[[], Iterable[bytes]]] = {
    "minimal": minimal,
    "default": partial(debian, "default"),
    "speech": partial(debian, "speech"),
}
DAILY = ("minimal", "default")
"""Those that are built unless others are named."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
