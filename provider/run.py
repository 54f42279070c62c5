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
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from provider import receipt as receipts
from provider.approval import Approver, Grants, Question, check, check_verdict, decide, refuse_all
from provider.artifacts import check_patterns, collect
from provider.assets import Assets, load_assets
from provider.background import Background
from provider.calls import Calls, context
from provider.capture import Capture
from provider.dialects.contract import Dialect, Reply
from provider.engine.docker import DockerEngine
from provider.engine.pool import Pool, PoolLimits
from provider.engine.recycle import Recycler
from provider.errors import CallError, DisposeFailed, ProviderError
from provider.events import Event
from provider.lease import Lease
from provider.listeners import Listeners
from provider.model import (
    Approval,
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
    Verdict,
    Workspace,
)
from provider.plan import make_plan
from provider.policy import judge
from provider.settings import Settings, find_endpoint, load_settings
from provider.spawned import Conversation, Spawned
from provider.stream import Stop, Streamed, stream
from provider.underway import Run
from provider.workspace import check_workspace

if TYPE_CHECKING:
    from provider.policy.rules import Rules


class Provider:
    """
    Runs commands in single-use sandboxes, over this workspace or over the one that each run names.

    An async context manager: on leaving it, nothing that it made exists on the engine any more.
    """

    def __init__(
        self,
        workspace: str | Path | None = None,
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
        self._folder = None if workspace is None else check_workspace(workspace).path
        self._assets: Assets = load_assets()
        self._engine = engine or DockerEngine(find_endpoint(), self._assets, timeout=self._settings.engine_timeout)
        self._pool = Pool(self._engine, _pool_limits(self._settings))
        self._recycler = Recycler(most=self._settings.spares_total, idle_seconds=self._settings.spares_idle)
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
        self._rules = _load_rules(self._settings)
        self._grants = Grants(seconds=self._settings.grant_seconds)
        self._runs: dict[str, Run] = {}
        self._leases: dict[str, Lease] = {}
        self._calls = Calls(self, self._settings.tools)
        self._background = Background()
        self._leasing = Background()
        self._closing = asyncio.Event()
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
        self._closing.set()
        async with contextlib.AsyncExitStack() as stack:
            for last in (self._background, self._pool, self._recycler, self._leasing):
                stack.push_async_callback(last.close)  # in the other order, and each whatever becomes of the others
            runs = self.runs()
            for run in runs:
                run.end()
            for run in runs:
                await run.ended.wait()
            await asyncio.gather(*(lease.stop() for lease in self.leases()))
            await self.settle()

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

    def leases(self, session: str | None = None) -> tuple[Lease, ...]:
        """What commands left running under `background="keep"`."""
        return tuple(lease for lease in self._leases.values() if session in {None, lease.session} and not lease.is_over)

    def lease(self, name: str) -> Lease | None:
        """Find the lease that an outcome names, also one that is over but could still last."""
        return self._leases.get(name)

    async def stop(self, *, session: str) -> int:
        """End a session: its runs, leases and grants, and no other's. Tells how many runs and leases there were."""
        leases, runs = self.leases(session), self.runs(session)
        for run in runs:
            run.end()
        self._recycler.drop(session)
        self._grants.drop(session)
        await asyncio.gather(*(lease.stop() for lease in leases))
        return len(runs) + len(leases)

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
        time, and a slow one slows the command. With `background="keep"` processes that it leaves behind go on for
        `lease` seconds, see `leases`. `box` takes workspace, image, network, seccomp, runtime, user and limits, each in
        place of the provider's own, and `reuse="scrub"`, by which the container may serve the session again.

        Raises:
            CallError, Refused, SandboxError: there is no outcome; the error's `receipt` says how far it came.
        """
        parts = {"cwd": cwd, "env": env, "timeout": timeout, "artifacts": artifacts, "tty": tty, "session": session}
        listeners = Listeners(on_stdout, on_stderr, on_event)
        run = self._enter(argv, {**parts, **box}, stdin=stdin, listeners=listeners, run_id=run_id, receipt=receipt)
        return await self._complete(run)

    async def spawn(
        self,
        argv: Sequence[str] | str,
        *,
        stdin: bool = True,
        on_event: Callable[[Event], Any] | None = None,
        run_id: str | None = None,
        receipt: Path | None = None,
        **wishes: Any,
    ) -> Spawned:
        """
        Begin a command and hand over its stdin, output, signals and terminal; everything else is as in `run`.

        Without `stdin` it finds its standard input at the end.

        Returns when the command runs, or is over already.

        Raises:
            CallError, Refused, SandboxError: it was never begun.
        """
        talk = Conversation()
        listeners = talk.listeners(on_event)
        typed = talk.stdin() if stdin else None
        run = self._enter(argv, wishes, stdin=typed, listeners=listeners, run_id=run_id, receipt=receipt)
        task = asyncio.ensure_future(self._complete(run))
        begun = asyncio.ensure_future(run.begun.wait())
        try:
            await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            begun.cancel()
        if task.done():
            task.result()
        return Spawned(run, talk, task)

    async def call(
        self,
        tool: str,
        payload: object,
        *,
        workspace: str | Path | None = None,
        session: str = "",
        call_id: str = "",
        on_event: Callable[[Mapping[str, Any]], Any] | None = None,
        approver: Approver | None = None,
    ) -> Reply:
        """
        Answer a tool call in its own contract; events go to `on_event` in the contract's own shape.

        An `approver` answers for this call in place of the provider's own.

        Raises:
            CallError: there is no such tool.
            ConfigError: its settings do not fit.
        """
        folder = self._workspace(workspace).path
        about = context(folder, session, call_id or uuid.uuid4().hex, on_event)
        return await self._calls.call(tool, payload, about, approver)

    def check(self, tool: str, payload: object, *, workspace: str | Path | None = None, session: str = "") -> Verdict:
        """Tell what would be said to a tool call. Nothing runs. Raises as `call` does."""
        about = context(self._workspace(workspace).path, session, "", None)
        return self.dialect(tool).check(tool, payload, about)

    def judge(self, argv: Sequence[str] | str, judged: Verdict | None, *, script: str = "") -> Verdict:
        """Tell what contract, rules and settings together say to a command. Nothing runs."""
        words = ("sh", "-c", argv) if isinstance(argv, str) else tuple(argv)
        return judge(replace(self._defaults, argv=words, judged=judged, script=script), self._settings, self._rules)

    def dialect(self, tool: str) -> Dialect:
        """Give the contract of a tool, the same each time, for it may remember things. Raises as `call` does."""
        return self._calls.dialect(tool)

    def _workspace(self, wanted: str | Path | None) -> Workspace:
        """The workspace as it is now: it may have been replaced since the last request. Raises CallError."""
        folder = wanted or self._folder
        if folder is None:
            message = "no workspace: name one for the run, or for the provider"
            raise CallError(message)
        return check_workspace(folder)

    def _enter(
        self,
        argv: Sequence[str] | str,
        wishes: Mapping[str, Any],
        *,
        stdin: Stdin,
        listeners: Listeners,
        run_id: str | None,
        receipt: Path | None,
    ) -> Run:
        """Enter a run into the register. Raises CallError."""
        workspace, request = self._request(argv, wishes)
        name = run_id or uuid.uuid4().hex
        if receipt and not os.access(receipt.parent, os.W_OK):
            message = f"receipt {receipt}: its directory does not exist or cannot be written"
            raise CallError(message)
        if name in self._runs or name in self._leases:
            message = f"run id {name!r} is taken by a run that is under way"
            raise CallError(message)
        if not self._tidied:
            self._tidied = True
            self._background.add(self._tidy())
        run = Run(id=name, request=request, workspace=workspace, stdin=stdin, listeners=listeners, receipt=receipt)
        self._runs[name] = run
        return run

    async def _complete(self, run: Run) -> Outcome:
        try:
            return await self._recorded(run)
        finally:
            del self._runs[run.id]
            run.listeners.close()
            run.ended.set()

    async def _tidy(self) -> None:
        """Remove what others left who were killed between create and start; a started container removes itself."""
        with contextlib.suppress(ProviderError):  # not ours, and `sandbox prune` says what went wrong
            await self._engine.sweep()

    def _request(self, argv: Sequence[str] | str, wishes: Mapping[str, Any]) -> tuple[Workspace, Request]:
        wanted = {name: value for name, value in wishes.items() if value is not None}
        workspace = self._workspace(wanted.pop("workspace", None))
        artifacts = wanted.pop("artifacts", ())
        user = self._defaults.user or f"{workspace.uid}:{workspace.gid}"
        return workspace, replace(
            self._defaults,
            argv=("sh", "-c", argv) if isinstance(argv, str) else tuple(argv),
            env=dict(wanted.pop("env", {})),
            artifacts=(artifacts,) if isinstance(artifacts, str) else tuple(artifacts),
            **{"user": user, **wanted},
        )

    async def _recorded(self, run: Run) -> Outcome:
        """Whatever becomes of the run, a receipt says so."""
        outcome: Outcome | None = None
        error: BaseException | None = None
        try:
            await run.reach(State.QUEUED)
            outcome = await self._follow(run)
            await run.reach(outcome.status)
        except BaseException as problem:
            error = problem
            if lease := self._leases.get(run.id):
                self._background.add(lease.stop())  # nobody will hear of it
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
            notes = tuple(_written(sealed, run.receipt)) if run.receipt else ()
        errors = tuple(run.listeners.errors)
        return replace(outcome, receipt=sealed, callback_errors=errors, notes=(*outcome.notes, *notes))

    async def _follow(self, run: Run) -> Outcome:
        request = run.request
        async with run.step("judge"):
            run.verdict = judge(request, self._settings, self._rules)
            check_verdict(run.verdict)
        async with run.step("plan"):
            check_patterns(request.artifacts)
            image = await self._engine.image(request.image)
            run.plan = plan = make_plan(request, run.workspace, image, self._assets, grace=self._settings.grace)
        async with run.step("approve"):
            run.approval = await self._decide(run, plan, run.verdict)
            if run.approval is None:
                return _never_started(run)
            check(run.approval, plan, run.verdict)
        await run.reach(State.STARTING)
        kept = False
        try:
            async with run.step("open"):
                run.sandbox = sandbox = await self._open(run, plan)
            if sandbox is None:
                return _never_started(run)
            async with run.step("run"):
                streamed = await stream(
                    sandbox,
                    plan,
                    stdin=run.stdin,
                    listeners=run.listeners,
                    stop=run.stop,
                    begun=run.begin,
                )
            async with run.step("collect"):
                found, problems = await collect(
                    run.workspace, request.artifacts, max_file_bytes=self._settings.artifact_bytes
                )
            kept = self._keep(run, plan, sandbox, streamed)
        finally:
            if run.sandbox and not kept:
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
            lease=run.id if streamed.leased and kept else None,
            notes=tuple(_notes(plan, lease_refused=streamed.leased and not kept and not run.stop.is_requested)),
        )

    def _keep(self, run: Run, plan: Plan, sandbox: Sandbox, streamed: Streamed) -> bool:
        """Whether the sandbox lives on: under a lease, or for the session's next command."""
        if run.stop.is_requested:
            return False  # whoever ends a run, or its session, wants nothing of it to live on
        if streamed.leased and len(self.leases(run.session)) < self._settings.leases:
            pids = streamed.ending.background_pids
            lease = Lease(sandbox, plan, run_id=run.id, session=run.session, pids=pids)
            self._leases[lease.id] = lease
            self._leasing.add(self._serve(lease))
            return True
        if plan.exec.reuse == "scrub" and sandbox.is_alive:
            self._recycler.give_back(plan.box, run.session, sandbox)
            return True
        return False

    async def _serve(self, lease: Lease) -> None:
        try:
            await lease.serve()
            with contextlib.suppress(TimeoutError):  # what it wrote can be read for as long as it could have lasted
                await asyncio.wait_for(self._closing.wait(), lease.seconds_left)
        finally:
            del self._leases[lease.id]

    async def _decide(self, run: Run, plan: Plan, verdict: Verdict) -> Approval | None:
        """Have it approved, or None when the run is to be stopped before anybody has answered."""
        question = Question(
            run_id=run.id, session=run.session, plan=plan, verdict=verdict, remember=run.request.remember
        )
        seconds = self._settings.approval_seconds
        deciding = asyncio.ensure_future(decide(self._approver, question, self._grants, seconds=seconds))
        try:
            return deciding.result() if await _is_first(deciding, run.stop) else None
        finally:
            deciding.cancel()

    async def _open(self, run: Run, plan: Plan) -> Sandbox | None:
        """Open a sandbox, or None when the run is to be stopped before there is one."""
        opening = asyncio.ensure_future(self._find(run, plan))
        try:
            if await _is_first(opening, run.stop):
                return opening.result()
        except asyncio.CancelledError:
            self._background.add(_undo(opening))
            raise
        self._background.add(_undo(opening))
        return None

    async def _find(self, run: Run, plan: Plan) -> Sandbox:
        recycled = await self._recycler.take(plan.box, run.session) if plan.exec.reuse == "scrub" else None
        return recycled or await self._pool.open(plan.box)


async def _is_first(work: asyncio.Future[Any], stop: Stop) -> bool:
    """Wait for work or for the wish to stop; whether the work is done."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    return work.done()


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


def _notes(plan: Plan, *, lease_refused: bool) -> Iterator[str]:
    if lease_refused:
        yield "what it left behind was ended: the session has as many leases as it may"
    if plan.box.uid == 0:
        yield "it ran as uid 0, without any capability: the workspace belongs to root, or the caller asked for it"
    if Path(__file__).is_relative_to(plan.box.workspace.path):
        yield "the workspace holds the provider itself; what runs there can change it"


def _load_rules(settings: Settings) -> Rules | None:
    if settings.rules is None:
        return None
    from provider.policy.rules import load_policy  # with its parser, which most programs never need

    return load_policy(settings.rules)


def run_sync(argv: Sequence[str] | str, workspace: str | Path = ".", **options: Any) -> Outcome:
    """`Provider.run` for programs without an event loop; `options` are those of Provider and of `run`."""
    own = {name: options.pop(name) for name in ("approver", "engine") if name in options}
    settings = (options.pop("settings", None) or load_settings()).model_copy(update={"spares": 0})  # nobody comes after

    async def run_once() -> Outcome:
        async with Provider(workspace, settings=settings, **own) as provider:
            return await provider.run(argv, **options)

    return asyncio.run(run_once())
