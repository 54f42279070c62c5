"""
Provider: the path of one request, and the register of those under way.

`_follow` is that path, step by step, and nothing else; begin reading there. Every step may raise one of our
errors; every run leaves a receipt, also a refused one; and every sandbox that was opened is disposed of,
whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from provider import receipt as receipts
from provider.approval import Approver, approve, refuse_all
from provider.artifacts import check_patterns, collect
from provider.assets import Assets, load_assets
from provider.background import Background
from provider.capture import Capture
from provider.engine.docker import DockerEngine
from provider.engine.pool import Pool, PoolLimits
from provider.errors import CallError, DisposeFailed, ProviderError
from provider.events import Event
from provider.listeners import Listeners
from provider.model import (
    Ending,
    Engine,
    Limits,
    Network,
    Outcome,
    Plan,
    Request,
    Sandbox,
    State,
    Stdin,
    Tier,
    Workspace,
)
from provider.plan import check_terminal, make_plan
from provider.policy import judge
from provider.settings import Settings, find_endpoint, load_settings
from provider.stream import Stop, stream
from provider.underway import Run
from provider.workspace import check_workspace


class Provider:
    """
    Runs commands in single-use sandboxes over one workspace.

    An async context manager: on leaving it, nothing that it made exists on the engine any more.
    """

    def __init__(
        self,
        workspace: str | Path,
        *,
        image: str | None = None,
        network: Network | None = None,
        seccomp: Tier | None = None,
        runtime: str | None = None,
        user: str | None = None,
        limits: Limits | None = None,
        approver: Approver = refuse_all,
        settings: Settings | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._settings = settings or load_settings()
        self._folder = check_workspace(workspace).path
        self._assets: Assets = load_assets()
        self._engine = engine or DockerEngine(find_endpoint(), self._assets, timeout=self._settings.engine_timeout)
        self._pool = Pool(self._engine, _pool_limits(self._settings))
        self._approver = approver
        self._defaults = Request(
            argv=(),
            image=image or self._settings.image,
            network=network or self._settings.network,
            seccomp=seccomp or self._settings.seccomp,
            runtime=self._settings.runtime if runtime is None else runtime,
            user=user or "",
            limits=limits or self._settings.limits.limits(),
        )
        self._runs: dict[str, Run] = {}
        self._background = Background()
        self._tidied = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """
        Cancel what runs, wait until every container is gone.

        Raises:
            DisposeFailed: a container may be left.
        """
        runs = self.runs()
        for run in runs:
            run.end()
        for run in runs:
            await run.ended.wait()
        await self.settle()
        try:
            await self._pool.close()
        finally:
            await self._background.close()

    async def prewarm(self, count: int = 1, **box: Any) -> None:
        """
        Have `count` containers wait for requests of this kind; `box` is as for `run`.

        Raises:
            CallError, SandboxError: there can be no such container.
        """
        workspace, request = self._request(("true",), box)
        image = await self._engine.image(request.image)
        plan = make_plan(request, workspace, image, self._assets, grace=self._settings.grace)
        await self._pool.prewarm(plan.box, count)

    async def settle(self) -> None:
        """Wait until every container that has served is gone. An outcome does not wait for that."""
        await self._background.settle()

    def runs(self, session: str | None = None) -> tuple[Run, ...]:
        """Those under way."""
        return tuple(run for run in self._runs.values() if session in {None, run.session})

    async def cancel(self, run_id: str) -> bool:
        """End one run; its caller gets a canceled outcome. False when no such run is under way."""
        run = self._runs.get(run_id)
        if run:
            run.end()
        return run is not None

    async def stop(self, *, session: str) -> int:
        """End a session's runs and no other's; tells how many."""
        return sum([await self.cancel(run.id) for run in self.runs(session)])

    def resize(self, run_id: str, rows: int, columns: int) -> None:
        """Give the terminal of a run its new size. Raises CallError for one that no terminal has."""
        check_terminal(rows, columns)
        if sandbox := self._sandbox(run_id):
            sandbox.resize(rows, columns)

    def signal(self, run_id: str, number: int) -> None:
        """Send a signal to the command of a run. Raises CallError for a number that is none."""
        if number not in signal.valid_signals():
            message = f"signal {number} does not exist"
            raise CallError(message)
        if sandbox := self._sandbox(run_id):
            sandbox.signal(number)

    def _sandbox(self, run_id: str) -> Sandbox | None:
        run = self._runs.get(run_id)
        # Pid 1 takes anything that comes before its command for a broken conversation.
        return run.sandbox if run and run.state is State.RUNNING else None

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        stdin: Stdin = None,
        timeout: float | None = None,
        artifacts: Sequence[str] = (),
        tty: tuple[int, int] | None = None,
        session: str = "",
        run_id: str | None = None,
        on_stdout: Callable[[bytes], Any] | None = None,
        on_stderr: Callable[[bytes], Any] | None = None,
        on_event: Callable[[Event], Any] | None = None,
        receipt: Path | None = None,
        **box: Any,
    ) -> Outcome:
        """
        Run one command and tell what became of it.

        A text as `argv` is given to the image's `sh -c`. Callbacks may be sync or async; they are awaited one at a
        time, and a slow one slows the command. `box` takes image, network, seccomp, runtime, user and limits, each in
        place of the provider's own.

        Raises:
            CallError, Refused, SandboxError: there is no outcome; the error's `receipt` says how far it came.
        """
        workspace, request = self._request(
            ("sh", "-c", argv) if isinstance(argv, str) else tuple(argv),
            box,
            cwd=cwd,
            env=dict(env or {}),
            timeout=timeout,
            artifacts=tuple(artifacts) if not isinstance(artifacts, str) else (artifacts,),
            tty=tty,
            session=session,
        )
        listeners = Listeners(on_stdout, on_stderr, on_event)
        run = Run(id=run_id or uuid.uuid4().hex, request=request, workspace=workspace, stdin=stdin, listeners=listeners)
        if receipt and not os.access(receipt.parent, os.W_OK):
            message = f"receipt {receipt}: its directory does not exist or cannot be written"
            raise CallError(message)
        if run.id in self._runs:
            message = f"run id {run.id!r} is taken by a run that is under way"
            raise CallError(message)
        self._runs[run.id] = run
        if not self._tidied:
            self._tidied = True
            self._background.add(self._tidy())
        try:
            return await self._recorded(run, receipt)
        finally:
            del self._runs[run.id]
            listeners.close()
            run.ended.set()

    async def _tidy(self) -> None:
        """Remove what others left who were killed between create and start; a started container removes itself."""
        with contextlib.suppress(ProviderError):  # not ours, and `sandbox prune` says what went wrong
            await self._engine.sweep()

    def _request(self, argv: tuple[str, ...], box: Mapping[str, Any], **parts: Any) -> tuple[Workspace, Request]:
        """A request over the workspace as it is now: it may have been replaced since the last one."""
        workspace = check_workspace(self._folder)
        wishes = {name: value for name, value in box.items() if value is not None}
        user = self._defaults.user or f"{workspace.uid}:{workspace.gid}"
        return workspace, replace(self._defaults, argv=argv, **parts, **{"user": user, **wishes})

    async def _recorded(self, run: Run, path: Path | None) -> Outcome:
        """Whatever becomes of the run, a receipt says so."""
        outcome: Outcome | None = None
        error: BaseException | None = None
        try:
            await run.reach(State.QUEUED)
            outcome = await self._follow(run)
            await run.reach(outcome.status)
        except BaseException as problem:
            error = problem
            if isinstance(problem, asyncio.CancelledError):
                run.listeners.hurry()
            await run.reach(State.CANCELED if isinstance(problem, asyncio.CancelledError) else State.FAILED)
            raise
        finally:
            sealed = receipts.seal(
                run_id=run.id,
                request=run.request,
                verdict=run.verdict,
                plan=run.plan,
                approval=run.approval,
                outcome=outcome,
                error=error,
                timings=run.timings,
            )
            if isinstance(error, ProviderError):
                error.receipt = sealed
            notes = tuple(_written(sealed, path)) if path else ()
        errors = tuple(run.listeners.errors)
        return replace(outcome, receipt=sealed, callback_errors=errors, notes=(*outcome.notes, *notes))

    async def _follow(self, run: Run) -> Outcome:
        request = run.request
        async with run.step("judge"):
            run.verdict = judge(request, self._settings)
        async with run.step("plan"):
            check_patterns(request.artifacts)
            image = await self._engine.image(request.image)
            run.plan = plan = make_plan(request, run.workspace, image, self._assets, grace=self._settings.grace)
        async with run.step("approve"):
            run.approval = await approve(self._approver, plan, run.verdict)
        await run.reach(State.STARTING)
        try:
            async with run.step("open"):
                run.sandbox = sandbox = await self._open(plan, run.stop)
            if sandbox is None:
                return _never_started(run)
            async with run.step("run"):
                streamed = await stream(
                    sandbox,
                    plan,
                    stdin=run.stdin,
                    listeners=run.listeners,
                    stop=run.stop,
                    begun=lambda: run.reach(State.RUNNING),
                )
            async with run.step("collect"):
                found, problems = await collect(
                    run.workspace, request.artifacts, max_file_bytes=self._settings.artifact_bytes
                )
        finally:
            if run.sandbox:
                self._background.add(run.sandbox.dispose())
        return Outcome(
            run_id=run.id,
            status=_status(streamed.ending),
            ending=streamed.ending,
            stdout_capture=streamed.stdout,
            stderr_capture=streamed.stderr,
            duration_ms=round(streamed.seconds * 1000),
            container=sandbox.container,
            artifacts=found,
            artifact_problems=problems,
            notes=tuple(_notes(plan)),
        )

    async def _open(self, plan: Plan, stop: Stop) -> Sandbox | None:
        """Open a sandbox, or None when the run is to be stopped before there is one."""
        opening = asyncio.ensure_future(self._pool.open(plan.box))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._background.add(_undo(opening))
            raise
        finally:
            stopping.cancel()
        if opening.done():
            return opening.result()
        self._background.add(_undo(opening))
        return None


async def _undo(opening: asyncio.Future[Sandbox]) -> None:
    opening.cancel()
    try:
        sandbox = await opening  # when it was done already
    except DisposeFailed:
        raise
    except (asyncio.CancelledError, ProviderError):
        return
    await sandbox.dispose()


def _pool_limits(settings: Settings) -> PoolLimits:
    return PoolLimits(
        per_box=settings.spares,
        total=settings.spares_total,
        memory_bytes=settings.spares_memory,
        idle_seconds=settings.spares_idle,
    )


def _written(sealed: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Write the receipt; when that fails, say so beside what happened, not in its place."""
    try:
        receipts.write(sealed, path)
    except OSError as error:
        yield f"the receipt could not be written to {path}: {error}"


def _never_started(run: Run) -> Outcome:
    return Outcome(
        run_id=run.id,
        status=State.CANCELED,
        ending=Ending(reason="canceled", error="canceled before it was started"),
        stdout_capture=Capture(0),
        stderr_capture=Capture(0),
        duration_ms=0,
        container=None,
    )


def _status(ending: Ending) -> State:
    if ending.reason == "timed_out":
        return State.TIMED_OUT
    if ending.reason == "canceled":
        return State.CANCELED
    return State.COMPLETED if ending.exit_code == 0 and ending.reason == "exited" else State.FAILED


def _notes(plan: Plan) -> Iterator[str]:
    if plan.box.uid == 0:
        yield "it ran as uid 0, without any capability: the workspace belongs to root, or the caller asked for it"
    if Path(__file__).is_relative_to(plan.box.workspace.path):
        yield "the workspace holds the provider itself; what runs there can change it"


def run_sync(argv: Sequence[str] | str, workspace: str | Path = ".", **options: Any) -> Outcome:
    """`Provider.run` for programs without an event loop; `options` are those of Provider and of `run`."""
    own = {name: options.pop(name) for name in ("approver", "engine") if name in options}
    settings = (options.pop("settings", None) or load_settings()).model_copy(update={"spares": 0})  # nobody comes after

    async def run_once() -> Outcome:
        async with Provider(workspace, settings=settings, **own) as provider:
            return await provider.run(argv, **options)

    return asyncio.run(run_once())
