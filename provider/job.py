"""
One command line as data, and what becomes of it on a console: the same here and in the daemon.

Exit status: the command's own, but 1 for a 0 over the workspace's quota; 124 timed out, 125 the provider failed or the
request cannot be run, 126 refused or not executable, 127 not found, 128+n ended by signal n.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import signal
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from provider.client import SIGNALED
from provider.errors import CallError, ProviderError, Refused
from provider.model import Chunk, Outcome
from provider.provider import Provider
from provider.settings import Settings, load_settings, with_limits
from provider.spawned import Spawned
from provider.terminal import Console
from provider.tooljob import ToolJob, json_line, perform_tool

TIMED_OUT, PROVIDER_FAILED, REFUSED, NOT_FOUND = 124, 125, 126, 127
_LAST_WORDS_SECONDS = 0.3
"""What a console has for taking the rest of the output when a signal has ended the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """What `sandbox run` and `sandbox shell` were asked for."""

    command: str | tuple[str, ...]
    workspace: Path
    config: Path | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    receipt: Path | None = None
    as_json: bool = False
    stdin: bool = False
    tty: bool = False


Job = RunJob | ToolJob


async def perform(job: Job, console: Console, *, folder: Path, provider: Provider | None = None) -> int:
    """
    Perform it and give the exit status; `folder` is where the command line was typed.

    Without a provider it makes one of its own, without spares: they would serve nobody.
    """
    try:
        settings = load_settings(folder / job.config if job.config else None)
        if provider:
            return await _perform(job, console, provider, folder, settings)
        async with Provider(settings=settings.model_copy(update={"spares": 0})) as own:
            return await _perform(job, console, own, folder, settings)
    except ProviderError as error:
        problem = {"provider_error": {"kind": type(error).__name__, "message": str(error)}}
        await _tell(job, console, problem, [str(error)])
        return REFUSED if isinstance(error, Refused) else PROVIDER_FAILED


async def _perform(job: Job, console: Console, provider: Provider, folder: Path, settings: Settings) -> int:
    if isinstance(job, ToolJob):
        return await perform_tool(job, console, provider, folder)
    outcome, received = await _Talk(job, console, provider).hold(
        workspace=folder / job.workspace,
        receipt=folder / job.receipt if job.receipt else None,
        limits=with_limits(settings, job.limits).limits.limits(),
    )
    patience = None if received is None else _LAST_WORDS_SECONDS
    await _tell(job, console, _as_json(outcome), _remarks(outcome), patience=patience)
    return _exit_status(outcome, received)


async def _tell(
    job: Job, console: Console, value: Mapping[str, Any], remarks: Iterable[str], *, patience: float | None = None
) -> None:
    """One JSON object on stdout, or lines on stderr about what the exit status alone does not say."""
    text = "".join(f"sandbox: {_on_one_line(remark)}\n" for remark in remarks).encode("utf-8", "backslashreplace")
    as_json = isinstance(job, RunJob) and job.as_json
    if as_json or text:
        with contextlib.suppress(OSError):  # nobody reads, or not in time
            async with asyncio.timeout(patience):
                await console.write("stdout" if as_json else "stderr", json_line(value) if as_json else text)


def _on_one_line(text: str) -> str:
    """What a command has named may hold anything: nothing of it moves the cursor, or looks like a line of ours."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


class _Talk:
    """One command on a console's streams, terminal and signals."""

    def __init__(self, job: RunJob, console: Console, provider: Provider) -> None:
        self._job = job
        self._console = console
        self._provider = provider
        self._run_id = uuid.uuid4().hex
        self._process: Spawned | None = None
        self._received: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Future[Any]] = []

    async def hold(self, **wishes: Any) -> tuple[Outcome, int | None]:
        """Give the outcome, and the signal that ended it, if one did."""
        job, console = self._job, self._console
        if job.tty and console.size is None:
            message = "-t needs a terminal on stdin"
            raise CallError(message)
        console.on_signal(self._stop)
        size = console.size if job.tty else None
        # Raw before the sandbox is there: what is typed meanwhile is for it, and is not to be echoed here.
        with console.raw(self._resize) if job.tty else contextlib.nullcontext():
            self._process = process = await self._provider.spawn(
                job.command,
                stdin=job.stdin,
                run_id=self._run_id,
                tty=size,
                **job.options,
                **wishes,
            )
            try:
                if size and console.size and size != console.size:
                    process.resize(*console.size)  # it changed while the sandbox opened
                if job.stdin:
                    self._tasks.append(asyncio.ensure_future(self._feed(process)))
                outcome = await (process.wait() if job.as_json else self._show_all(process))
            finally:
                for task in self._tasks:
                    task.cancel()
        return outcome, self._received.result() if self._received.done() else None

    async def _show_all(self, process: Spawned) -> Outcome:
        showing = asyncio.ensure_future(self._show(process.output()))
        self._tasks.append(showing)
        await process.over()
        either: set[asyncio.Future[Any]] = {showing, self._received}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({showing}, timeout=_LAST_WORDS_SECONDS)
        return await process.wait()

    async def _show(self, output: AsyncIterator[Chunk]) -> None:
        async for chunk in output:
            try:
                await self._console.write(chunk.stream, chunk.data)
            except OSError:
                self._stop(signal.SIGPIPE)  # nobody reads; what the kernel would do to the command, were it here
                return

    async def _feed(self, process: Spawned) -> None:
        async for piece in self._console.stdin():
            await process.write(piece)
        await process.close_stdin()

    def _resize(self, rows: int, columns: int) -> None:
        if self._process:
            self._process.resize(rows, columns)

    def _stop(self, number: int) -> None:
        self._tasks.append(asyncio.ensure_future(self._provider.cancel(self._run_id)))
        if not self._received.done():
            self._received.set_result(number)


def _exit_status(outcome: Outcome, received: int | None) -> int:
    if received is not None and outcome.status == "canceled":
        return SIGNALED + received
    if outcome.timed_out:
        return TIMED_OUT
    if outcome.error is not None:
        return NOT_FOUND if outcome.ending.error_number == errno.ENOENT else REFUSED
    if outcome.signal is not None:
        return SIGNALED + outcome.signal
    return outcome.exit_code or int(bool(outcome.over_quota))


def _as_json(outcome: Outcome) -> dict[str, Any]:
    container = outcome.container and {
        name: getattr(outcome.container, name)
        for name in ("id", "image", "image_id", "runtime", "network", "user", "warm", "served", "attested")
    }
    return {
        "run_id": outcome.run_id,
        "status": outcome.status,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        **_as_text("stdout", outcome.stdout),
        "stdout_bytes": outcome.stdout_bytes,
        "stdout_truncated": outcome.stdout_truncated,
        **_as_text("stderr", outcome.stderr),
        "stderr_bytes": outcome.stderr_bytes,
        "stderr_truncated": outcome.stderr_truncated,
        "timed_out": outcome.timed_out,
        "oom_killed": outcome.oom_killed,
        "output_limited": outcome.output_limited,
        "workspace_quota": outcome.ending.growth and asdict(outcome.ending.growth),
        "duration_ms": outcome.duration_ms,
        "pid": outcome.pid,
        "background_pids": list(outcome.background_pids),
        "error": outcome.error,
        "artifacts": [asdict(artifact) for artifact in outcome.artifacts],
        "artifact_problems": [asdict(problem) for problem in outcome.artifact_problems],
        "control_changes": [asdict(change) for change in outcome.control_changes],
        "container": container,
        "usage": outcome.usage and asdict(outcome.usage),
        "notes": list(outcome.notes),
    }


def _as_text(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: data.decode(errors="replace"), f"{name}_base64": base64.b64encode(data).decode()}


def _remarks(outcome: Outcome) -> Iterator[str]:
    if outcome.error:
        yield outcome.error
    if outcome.timed_out:
        yield "timed out; everything in the sandbox was ended"
    if outcome.oom_killed:
        yield "the kernel killed a process for want of memory; --memory gives more"
    if outcome.output_limited:
        yield "ended for writing too much output"
    if outcome.over_quota:
        yield f"failed: {outcome.over_quota}; --workspace-limit and --workspace-files give more"
    yield from _remarks_on_what_is_left(outcome)


def _remarks_on_what_is_left(outcome: Outcome) -> Iterator[str]:
    if outcome.background_pids:
        yield f"left behind and ended: pids {', '.join(map(str, outcome.background_pids))}"
    for name in ("stdout", "stderr"):
        if getattr(outcome, f"{name}_truncated"):
            yield f"{name}: kept less than the {getattr(outcome, f'{name}_bytes'):,} bytes written"
    for artifact in outcome.artifacts:
        yield f"artifact {artifact.path}: sha256 {artifact.sha256}, {artifact.bytes} bytes"
    for problem in outcome.artifact_problems:
        yield f"artifact {problem.path}: {problem.problem}: {problem.detail}"
    for change in outcome.control_changes:
        yield f"{change.path} was {change.change}: {change.because}"
