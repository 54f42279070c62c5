"""
What pid 1 promises in images/init/PROTOCOL.md: the program itself, built with sanitizers for addresses and undefined
behaviour.

It is only ever started as pid 1 of a pid namespace of its own, where its `kill(-1)` reaches nobody else, and as
nobody, without any capability, as in a sandbox. Where it scrubs, it is in a file system of its own too.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from provider.engine import wire
from provider.model import Begun, Chunk, Ending, ExecPlan, Leased

SOURCES = sorted((Path(__file__).parents[2] / "images/init").glob("*.c"))
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-std=c11", "-Wall", "-Wextra")
# Leaks are not looked for: that needs ptrace, which pid 1 is closed to.
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=99", "UBSAN_OPTIONS": "exitcode=99", "PATH": os.environ["PATH"]}
NOBODY = "65534"
PLENTY = 16 * 2**20
SECONDS = 5.0


@pytest.fixture(scope="session")
def program(unavailable: Callable[[str], NoReturn]) -> Iterator[Path]:
    """The program, compiled; nobody can read pytest's own folders."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        unavailable("there is no C compiler")
    folder = Path(tempfile.mkdtemp(prefix="sandbox-init-"))
    folder.chmod(0o755)
    built = subprocess.run(
        [compiler, *SANITIZED, "-o", folder / "init", *SOURCES], capture_output=True, text=True, check=False
    )
    if "asan" in built.stderr:
        unavailable(f"the compiler has no sanitizers: {built.stderr.strip()[-300:]}")
    assert built.returncode == 0, built.stderr
    yield folder / "init"
    shutil.rmtree(folder)


def spaces(*more: str) -> list[str]:
    return ["unshare", "--pid", "--fork", "--kill-child", *more, *(() if is_root() else ("--user", "--map-root-user"))]


def bare() -> list[str]:
    """Without privileges, and where that is possible as nobody."""
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if is_root() else []
    return ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *ids]


def is_root() -> bool:
    return os.geteuid() == 0


def tried(command: list[str], unavailable: Callable[[str], NoReturn]) -> list[str]:
    try:
        done = subprocess.run(command, input=b"", capture_output=True, env=OPTIONS, timeout=SECONDS, check=False)
    except OSError as error:
        unavailable(f"namespaces cannot be had: {error}")
    if done.returncode != 0 or not done.stdout.startswith(b"H"):
        unavailable(f"namespaces cannot be had: {done.stderr.decode(errors='replace').strip()}")
    return command


@pytest.fixture(scope="session")
def as_pid_1(program: Path, unavailable: Callable[[str], NoReturn]) -> list[str]:
    """The command line that starts it as pid 1 of nothing but itself."""
    return tried([*spaces("--mount-proc"), *bare(), str(program)], unavailable)


BOX = """
set -e
root=$1 program=$2 workspace=$3 python=$4 uid=$5 more=$6
shift 6
mount -t tmpfs -o mode=755 box $root
cd $root
mkdir -p proc dev tmp run home/sandbox workspace usr etc python mnt sys/fs/cgroup
touch init
echo 12345 > sys/fs/cgroup/memory.peak
for name in bin sbin lib lib32 lib64 libx32; do [ ! -L /$name ] || cp -P /$name .; done
mount --bind -o ro $program init
mount --bind -o ro /usr usr
mount --bind -o ro /etc etc
mount --bind -o ro $python python
mount --bind $workspace workspace
mount -t proc proc proc
mount -t tmpfs -o mode=755 dev dev
mkdir dev/pts dev/shm dev/mqueue
touch dev/null dev/zero dev/urandom
for name in null zero urandom; do mount --bind /dev/$name dev/$name; done
ln -s pts/ptmx dev/ptmx
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t mqueue mqueue dev/mqueue
mount -t tmpfs -o mode=1777 tmp tmp
mount -t tmpfs -o mode=700,uid=$uid,gid=$uid home home/sandbox
mount -t tmpfs -o mode=1777 run run
mkdir -p run/inner/mounted
mount --bind -o ro $workspace run/inner/mounted
ip link set lo up
eval "$more"
mount -o remount,bind,ro $root
exec chroot $root "$@" /init
"""


@pytest.fixture(scope="session")
def boxed(program: Path, unavailable: Callable[[str], NoReturn]) -> Iterator[Callable[..., list[str]]]:
    """The command line that starts it as in a container, on a workspace: read-only but for that and some tmpfs."""
    if any(Path("/", name).is_dir() and not Path("/", name).is_symlink() for name in ("bin", "lib")):
        unavailable("the box is for systems where /bin is in /usr")
    root = Path(tempfile.mkdtemp(prefix="sandbox-init-"))

    def command(workspace: Path, more: str = "", prefix: tuple[str, ...] = ()) -> list[str]:
        parts = (root, program, workspace, sys.base_prefix, NOBODY if is_root() else "0", more)
        space = spaces("--mount", "--ipc", "--net")
        return [*space, "sh", "-c", BOX, "box", *map(str, parts), *prefix, *bare()]

    tried(command(root), unavailable)
    yield command
    root.rmdir()


class Init:
    """A conversation with pid 1, kept within its credit at every frame."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.hello: dict[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        self.granted = 0
        self.received = 0
        self.stdin_credit = 0
        self.output = {"stdout": b"", "stderr": b""}

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        assert self.process.stdin
        self.process.stdin.write(wire.frame(kind, payload))

    def grant(self, size: int) -> None:
        self.granted += size
        self.send(b"C", struct.pack(">I", size))

    def run(
        self,
        *argv: str,
        credit: int = PLENTY,
        stdin: bool = False,
        processors: wire.Offer | None = None,
        **parts: Any,
    ) -> None:
        """Release a command; a single text is for the shell."""
        plan = {"env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}, "cwd": "/", "timeout": None, "grace": 0.2, "tty": None}
        plan.update(parts)
        plan["env"] = tuple(plan["env"].items())
        command = argv if len(argv) > 1 else ("sh", "-c", argv[0])
        self._forget()
        self.granted = credit
        assert self.process.stdin
        planned = ExecPlan(argv=command, artifacts=(), **plan)
        self.process.stdin.write(wire.command(planned, stdin=stdin, credit=credit, processors=processors))

    async def frame(self) -> tuple[int, bytes]:
        assert self.process.stdout
        async with asyncio.timeout(SECONDS):
            head = await self.process.stdout.readexactly(5)
            return head[0], await self.process.stdout.readexactly(int.from_bytes(head[1:], "big"))

    async def _checked(self) -> tuple[int, bytes]:
        """The next frame; every promise about frames is checked on the way."""
        kind, payload = await self.frame()
        if kind == ord("c"):
            self.stdin_credit += wire.u32(payload)
        if kind in b"OE":
            self.received += len(payload)
            self.output["stdout" if kind == ord("O") else "stderr"] += payload
            assert payload
            assert self.received <= self.granted
        return kind, payload

    async def message(self) -> Begun | Chunk | Leased | Ending:
        """The next frame with a meaning."""
        while (message := wire.message(*await self._checked())) is None:
            pass
        return message

    async def answer(self, kind: bytes) -> dict[str, str]:
        """The next frame of this kind, read as lines."""
        while (found := await self._checked())[0] != kind[0]:
            assert found[0] != ord("Z"), found
        return wire.lines(found[1])

    async def heard(self, text: bytes) -> None:
        """Wait until stdout has it."""
        while text not in self.output["stdout"]:
            assert not isinstance(await self.message(), Ending), self.output

    async def leased(self) -> Ending:
        while not isinstance(message := await self.message(), Leased):
            assert not isinstance(message, Ending), message
        return message.ending

    async def ending(self) -> Ending:
        while not isinstance(message := await self.message(), Ending):
            assert not isinstance(message, Leased)
        return message

    async def ran(self, *argv: str, **parts: Any) -> Ending:
        """Run a command to its ending, and no further: pid 1 scrubs, and tells."""
        self.run(*argv, reuse="scrub", **parts)
        return await self.ending()

    async def leave(self, listening: Awaitable[bytes] | None = None) -> tuple[int, bytes]:
        """Close its stdin; tell its exit status and what it said on stderr."""
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.process.stdin.close()
        async with asyncio.timeout(SECONDS):
            _, complaint, status = await asyncio.gather(
                listening or self.process.stdout.read(), self.process.stderr.read(), self.process.wait()
            )
        assert b"Sanitizer" not in complaint, complaint.decode()
        assert b"runtime error" not in complaint, complaint.decode()
        return status, complaint


Start = Callable[[list[str]], Awaitable[Init]]


@pytest.fixture
def start() -> Start:
    """Starts one, by its command line."""

    async def start(command: list[str]) -> Init:
        pipe = asyncio.subprocess.PIPE
        return Init(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=OPTIONS))

    return start


async def greeted(init: Init) -> AsyncIterator[Init]:
    """It has said hello and waits; afterwards it leaves without a complaint."""
    kind, hello = await init.frame()
    assert kind == ord("H")
    init.hello = wire.lines(hello)
    yield init
    assert (await init.leave())[0] in {0, 2}


@pytest.fixture
async def init(start: Start, as_pid_1: list[str]) -> AsyncIterator[Init]:
    async for init in greeted(await start(as_pid_1)):
        yield init


@pytest.fixture
async def box(start: Start, boxed: Callable[..., list[str]], shared: Path) -> AsyncIterator[Init]:
    """One in a container of its own; its workspace is `shared`."""
    async for init in greeted(await start(boxed(shared))):
        yield init


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that nobody can use."""
    folder = Path(tempfile.mkdtemp(prefix="sandbox-init-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


class Held:
    """A pipe that commands hold open; it tells when all who did are gone."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        path.chmod(0o666)
        self.path = path
        self._released = asyncio.Event()
        # Not blocking: it is ready only when somebody has come and everybody has gone.
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._reader, self._released.set)

    def __str__(self) -> str:
        return str(self.path)

    async def released(self) -> None:
        await asyncio.wait_for(self._released.wait(), SECONDS)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)


@pytest.fixture
async def held(shared: Path) -> AsyncIterator[Held]:
    held = Held(shared / "held")
    yield held
    held.close()
