"""
The nouns of one run, as frozen dataclasses, in the order in which they come into being.

Request -> Verdict -> Plan -> Approval -> (Sandbox: Chunks, Ending) -> Artifacts -> Outcome. Nothing here does I/O.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

MIB = 1024 * 1024

Network = Literal["none", "open"]
Tier = Literal["default", "unix", "debug"]
Stream = Literal["stdout", "stderr"]
Background = Literal["end", "keep"]
Reuse = Literal["never", "scrub"]


class State(enum.StrEnum):
    """Where a run is. The last four are final."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a sandbox may use."""

    memory_bytes: int = 512 * MIB
    """Memory and swap together; tmpfs is charged to it as well."""
    cpus: float = 1.0
    pids: int = 256
    tmp_bytes: int = 256 * MIB
    """Size of /tmp, and again of HOME."""
    file_bytes: int = 1024 * MIB
    """Largest single file; a write past it is SIGXFSZ."""
    open_files: int = 4096
    output_bytes: int = 64 * MIB
    """Kept of each stream; what comes after is counted and dropped."""
    flood_bytes: int = 2048 * MIB
    """Both streams together; a command that writes more is ended."""
    workspace_bytes: int = 10 * 1024 * MIB
    """What a run may add to the workspace, as the disk counts; 0 is no limit."""
    workspace_files: int = 1_000_000
    """Files and directories that it may add there; 0 is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody wants run, free of any tool contract."""

    argv: tuple[str, ...]
    cwd: str = "."
    """Relative to the workspace, or absolute below /workspace."""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """Seconds until everything is ended; None is no deadline."""
    artifacts: tuple[str, ...] = ()
    """Paths and `**` patterns relative to the workspace, hashed after the run."""
    tty: tuple[int, int] | None = None
    """Rows and columns of a terminal, or None for pipes."""
    session: str = ""
    background: Background = "end"
    """What becomes of processes that the command leaves behind: ended with it, or kept under a lease."""
    lease: float = 600.0
    """Seconds that they are kept."""
    reuse: Reuse = "never"
    """Whether the container may serve this session's next command, scrubbed in between."""

    watch_writes: bool = False
    """Whether pid 1 counts what the command tried to write where it may only read."""

    judged: Verdict | None = None
    """What the rules of the caller's tool contract say; the policy can only be stricter."""
    remember: tuple[str, ...] = ()
    """What a yes for the session would cover, by that contract."""
    forever: str = ""
    """What a yes for ever would add to the operator's rules, by that contract; empty where there is no such yes."""
    script: str = ""
    """The shell text that argv comes down to, where a wrapper of the contract's would hide it from the rules."""

    image: str
    network: Network = "none"
    seccomp: Tier = "default"
    runtime: str = ""
    """An engine's runtime such as `runsc`; empty is the engine's default."""
    user: str
    """`uid:gid`, both as numbers."""
    limits: Limits = field(default_factory=Limits)
    read_only: bool = False
    """Whether the workspace can only be read."""
    protect: tuple[str, ...] = ()
    """First-level names of the workspace that can only be read, also such as are not there; see `protection.py`."""


class Decision(enum.IntEnum):
    """In order of severity, so that the strictest of several is `max`."""

    ALLOW = 0
    ASK = 1
    REFUSE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    decision: Decision
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A validated host directory, known by its inode and not only by its name."""

    path: Path
    device: int
    inode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """A first-level name of the workspace that is mounted over itself, read-only, and what it names."""

    name: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image pinned by its content."""

    name: str
    id: str
    volumes: tuple[str, ...] = ()
    """Paths that the image declares as VOLUME; each is covered by a tmpfs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPlan:
    """The half of a plan that fixes the container. Equal boxes are interchangeable."""

    image: Image
    workspace: Workspace
    uid: int
    gid: int
    network: Network
    seccomp: Tier
    seccomp_sha256: str
    init_path: Path
    init_sha256: str
    inside_path: Path
    """Our own programs for the inside, read-only there."""
    inside_sha256: str
    runtime: str
    limits: Limits
    read_only: bool
    protected: tuple[Protected, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlan:
    """The half of a plan that goes to pid 1 as one message and never into the container's configuration."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str
    """Absolute, inside the container."""
    timeout: float | None
    grace: float
    """Seconds between TERM and KILL."""
    tty: tuple[int, int] | None
    artifacts: tuple[str, ...]
    lease: float | None = None
    """Seconds that processes left behind are kept; None ends them with the command."""
    reuse: Reuse = "never"
    watch_writes: bool = False
    """Whether attempts to write where there is only reading are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    box: BoxPlan
    exec: ExecPlan
    digest: str
    """sha256 over the canonical form of both halves; an approval names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What was decided about exactly one plan."""

    by: str
    answer: str
    """`once`, `session`, `always`, `deny` or `abort`."""
    plan_digest: str
    remembered: tuple[str, ...] = ()
    """What a yes for the session covers."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Pid 1 has started the command."""

    pid: int


@dataclass(frozen=True, slots=True)
class Chunk:
    stream: Stream
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    cpu_user_seconds: float
    cpu_system_seconds: float
    max_rss_bytes: int
    """Of the largest single process."""
    memory_peak_bytes: int | None
    """Of the whole container with its tmpfs, where the kernel tells."""


@dataclass(frozen=True, slots=True)
class Process:
    """One that runs in a sandbox."""

    pid: int
    command: str
    """Its arguments joined by spaces; bytes that are not printable ASCII are written as escapes."""


EndReason = Literal["exited", "timed_out", "canceled", "output_limit", "workspace_quota"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a run added to its workspace, when that was more than it may."""

    bytes: int
    files: int
    max_bytes: int
    max_files: int
    counted: Literal["tree", "filesystem"] = "tree"
    """
    In the workspace's own files; or in what its filesystem lost since the start, where the files do not tell: too many
    or too deep to be looked at, closed to us, or deleted and still open.
    """

    def __str__(self) -> str:
        limits = (
            (self.bytes, self.max_bytes, f"{self.max_bytes:,} bytes"),
            (self.files, self.max_files, f"{self.max_files:,} files"),
        )
        passed = " and ".join(name for count, most, name in limits if most and count > most)
        return (
            f"{self.bytes:,} bytes and {self.files:,} files were added to the workspace; no more than {passed} may be"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the command ended, as pid 1 saw it. Exactly one of exit_code, signal and error is set."""

    reason: EndReason
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    """Why the command could not be started at all."""
    error_number: int | None = None
    pid: int | None = None
    background_pids: tuple[int, ...] = ()
    """Processes that were still alive when the command ended; they were ended too, unless there is a lease."""
    oom_kills: int = 0
    usage: Usage | None = None
    denied_writes: int | None = None
    """
    Calls that meant to write where there is only reading; None where nobody watched, or could not see. At least so
    many: what pid 1 could not see is not in it.
    """
    denied_network: int | None = None
    """Connections and datagrams that found no route: without a network, every one that left loopback."""
    refused_datagrams: int | None = None
    """
    UDP datagrams to a port of the sandbox's own that nobody listens on. Without a network the look-up of a name is two
    to four of them, for the resolver then asks 127.0.0.1; but nobody can tell them from others.
    """
    growth: Growth | None = None
    """What was added to the workspace, if it was too much. Not pid 1's word: the provider has looked."""


@dataclass(frozen=True, slots=True)
class Leased:
    """The command has ended and left processes behind, which live on."""

    ending: Ending


Message = Begun | Chunk | Leased | Ending
"""What pid 1 says of a command, in this order; the Ending is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Facts about the container that ran a request."""

    id: str
    image: str
    image_id: str
    runtime: str
    network: Network
    user: str
    warm: bool
    attested: tuple[str, ...]
    """Whose word it was that the plan is applied: engine, pid 1, host kernel."""
    served: int = 0
    """Commands of the same session that it ran before this one; more than none only with `reuse`."""

    @classmethod
    def planned(cls, box: BoxPlan, name: str) -> Container:
        """What is known before anybody has vouched for it."""
        return cls(
            id=name,
            image=box.image.name,
            image_id=box.image.id,
            runtime=box.runtime,
            network=box.network,
            user=f"{box.uid}:{box.gid}",
            warm=False,
            attested=(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlChange:
    """A file by which programs of the host are steered, as the run left it; see `changes.py`."""

    path: str
    change: Literal["created", "changed", "removed"]
    because: str
    """What runs by it."""


ArtifactFault = Literal[
    "missing", "symlink", "directory", "fifo", "socket", "device", "too_large", "unreadable", "unstable", "too_many"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactProblem:
    """A path that was asked for and not hashed. It was never read through."""

    path: str
    problem: ArtifactFault
    detail: str


class Output(Protocol):
    """One captured stream."""

    @property
    def total_bytes(self) -> int:
        """What the command wrote, kept or not."""

    @property
    def truncated(self) -> bool: ...

    @property
    def sha256(self) -> str:
        """Over everything the command wrote."""

    def read(self, most: int | None = None) -> bytes:
        """What was kept, or the first bytes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one request whose command was let run."""

    run_id: str
    status: State
    ending: Ending
    stdout_capture: Output
    stderr_capture: Output
    duration_ms: int
    """From the command's release to its ending."""
    container: Container | None
    artifacts: tuple[Artifact, ...] = ()
    artifact_problems: tuple[ArtifactProblem, ...] = ()
    control_changes: tuple[ControlChange, ...] = ()
    """Before somebody opens the workspace on the host, these are worth a look."""
    callback_errors: tuple[BaseException, ...] = ()
    lease: str | None = None
    """The name under which `Provider.lease` finds what the command left running."""
    notes: tuple[str, ...] = ()
    """What the caller should know about how it ran, such as uid 0."""
    receipt: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stdout(self) -> bytes:
        return self.stdout_capture.read()

    @property
    def stderr(self) -> bytes:
        return self.stderr_capture.read()

    @property
    def stdout_truncated(self) -> bool:
        return self.stdout_capture.truncated

    @property
    def stderr_truncated(self) -> bool:
        return self.stderr_capture.truncated

    @property
    def stdout_bytes(self) -> int:
        return self.stdout_capture.total_bytes

    @property
    def stderr_bytes(self) -> int:
        return self.stderr_capture.total_bytes

    @property
    def exit_code(self) -> int | None:
        return self.ending.exit_code

    @property
    def signal(self) -> int | None:
        return self.ending.signal

    @property
    def error(self) -> str | None:
        return self.ending.error

    @property
    def timed_out(self) -> bool:
        return self.status is State.TIMED_OUT

    @property
    def oom_killed(self) -> bool:
        """The kernel killed the command or any of its children for want of memory."""
        return self.ending.oom_kills > 0

    @property
    def output_limited(self) -> bool:
        """The command was ended because it wrote more than `limits.flood_bytes`."""
        return self.ending.reason == "output_limit"

    @property
    def over_quota(self) -> str:
        """Why the command was ended, or failed at its end, for what it added to the workspace; empty if it was not."""
        if self.ending.reason != "workspace_quota":
            return ""
        return str(self.ending.growth or "more was added to the workspace than may be")

    @property
    def pid(self) -> int | None:
        return self.ending.pid

    @property
    def background_pids(self) -> tuple[int, ...]:
        return self.ending.background_pids

    @property
    def usage(self) -> Usage | None:
        return self.ending.usage

    @property
    def succeeded(self) -> bool:
        return self.status is State.COMPLETED and self.exit_code == 0


class Sandbox(Protocol):
    """A container that exists, is attested, and whose pid 1 waits for a command."""

    @property
    def container(self) -> Container: ...

    @property
    def is_alive(self) -> bool:
        """Whether pid 1 can still be given a command."""

    def mark_warm(self) -> None:
        """Note in the container's facts that it was waiting before its request came."""

    async def release(self, plan: ExecPlan, *, stdin: bool) -> None:
        """Send the command to pid 1; with `stdin`, its standard input is what `write_stdin` sends."""

    def messages(self) -> AsyncIterator[Message]:
        """
        What pid 1 says, up to and including the Ending; begun again, it goes on where it was left.

        Raises:
            SandboxLost: pid 1 falls silent before that.
        """

    def grant(self, size: int) -> None:
        """Let pid 1 send `size` more bytes of output."""

    async def write_stdin(self, data: bytes) -> None:
        """Pass bytes to the command's stdin, waiting while it does not read them. Empty bytes close it."""

    def resize(self, rows: int, columns: int) -> None: ...

    def signal(self, number: int, pid: int | None = None) -> None:
        """Send a signal to the command's process group, to one process, or with pid 0 to all."""

    async def processes(self) -> tuple[Process, ...]:
        """Ask pid 1 what runs. Raises SandboxLost."""

    def terminate(self, reason: EndReason) -> None:
        """Begin the kill sequence: TERM, grace, KILL to every process."""

    async def renew(self) -> None:
        """
        After the ending of a command with `reuse`: wait for proof that nothing of it is left.

        Raises:
            SandboxLost: something is left, or there is no proof. The sandbox is to be disposed of.
        """

    async def dispose(self, *, stuck: bool = False) -> None:
        """
        Have the container go, whatever state it is in; `stuck`, do not wait for pid 1. Safe to call twice.

        Raises:
            DisposeFailed: it may still exist.
        """


class Engine(Protocol):
    """What makes sandboxes. `provider.testing.FakeEngine` is the other implementation."""

    async def image(self, name: str) -> Image:
        """Pin a name to content. Raises ImageMissing."""

    async def open(self, box: BoxPlan) -> Sandbox:
        """
        Create, start and attest. What a failure leaves goes without the caller waiting for it; `close` waits.

        Raises:
            PlanRejected, EngineUnavailable, SandboxLost: there is no sandbox.
        """

    async def sweep(self) -> tuple[str, ...]:
        """Remove what dead owners left, and name it."""

    async def close(self) -> None: ...


Stdin = bytes | AsyncIterable[bytes] | None
