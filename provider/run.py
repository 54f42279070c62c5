"""
Runner: the path of one request.

`_follow` is that path, step by step, and nothing else; begin reading there. Every step may raise one of our
errors; every run leaves a receipt, also a refused one; and every sandbox that was opened is disposed of,
whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provider import receipt as receipts
from provider.approval import Approver, Grants, Question, check, check_verdict, decide
from provider.artifacts import Collected, check_patterns, collect
from provider.assets import load_assets
from provider.background import Background
from provider.capture import Capture
from provider.changes import Controls
from provider.engine.docker import DockerEngine
from provider.engine.pool import Pool, PoolLimits
from provider.engine.recycle import Recycler
from provider.errors import DisposeFailed, ProviderError
from provider.lease import Lease
from provider.model import (
    Approval,
    ArtifactProblem,
    Decision,
    Ending,
    Engine,
    Outcome,
    Plan,
    Request,
    Sandbox,
    State,
    Verdict,
    Workspace,
)
from provider.plan import make_plan
from provider.policy import judge
from provider.protection import Placeholders
from provider.quota import Watch
from provider.settings import Settings, find_endpoint
from provider.stream import Stop, Streamed, stream
from provider.underway import Run

if TYPE_CHECKING:
    from provider.policy.rules import Rules


class Runner:
    """Takes requests along their path, and owns what they share: engine, spares, recycled sandboxes, leases, grants."""

    def __init__(self, settings: Settings, approver: Approver, engine: Engine | None) -> None:
        self._settings = settings
        self._approver = approver
        self._assets = load_assets()
        self._engine = engine or DockerEngine(find_endpoint(), self._assets, timeout=settings.engine_timeout)
        self._pool = Pool(self._engine, _pool_limits(settings))
        self._recycler = Recycler(most=settings.spares_total, idle_seconds=settings.spares_idle)
        self._controls = Controls()
        self._placeholders = Placeholders()
        self._rules = _load_rules(settings)
        self._grants = Grants(seconds=settings.grant_seconds)
        self._leases: dict[str, Lease] = {}
        self._background = Background()
        self._leasing = Background()
        self._closing = asyncio.Event()

    async def close(self) -> None:
        """
        End every lease, and wait until every container is gone.

        Raises:
            DisposeFailed: a container may be left.
        """
        self._closing.set()
        async with contextlib.AsyncExitStack() as stack:
            for last in (self._placeholders, self._background, self._pool, self._recycler, self._leasing):
                stack.push_async_callback(last.close)  # in the other order, and each whatever becomes of the others
            await asyncio.gather(*(lease.stop() for lease in self.leases()))
            await self.settle()

    async def settle(self) -> None:
        """Wait until every container that has served is gone. An outcome does not wait for that."""
        await self._background.settle()

    def tidy(self) -> None:
        """Remove what others left who were killed between create and start; a started container removes itself."""
        self._background.add(self._sweep())

    async def _sweep(self) -> None:
        with contextlib.suppress(ProviderError):  # not ours, and `sandbox prune` says what went wrong
            await self._engine.sweep()

    async def prewarm(self, request: Request, workspace: Workspace, count: int) -> None:
        """Have `count` containers wait for requests of this kind. Raises CallError, SandboxError."""
        plan = await self._plan(request, workspace)
        await self._pool.prewarm(plan.box, count)

    def judge(self, request: Request) -> Verdict:
        """What contract, rules and settings together say to a request."""
        return judge(request, self._settings, self._rules)

    def leases(self, session: str | None = None) -> tuple[Lease, ...]:
        """What commands left running under `background="keep"`."""
        return tuple(lease for lease in self._leases.values() if session in {None, lease.session} and not lease.is_over)

    def lease(self, name: str) -> Lease | None:
        """Find the lease that an outcome names, also one that is over but could still last."""
        return self._leases.get(name)

    def drop(self, session: str) -> None:
        """Forget what a session was granted, and dispose of the sandboxes that wait for it."""
        self._recycler.drop(session)
        self._grants.drop(session)

    async def run(self, run: Run) -> Outcome:
        """Take a run along its path. Whatever becomes of it, a receipt says so."""
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
            run.verdict = self.judge(request)
            check_verdict(run.verdict)
        async with run.step("plan"):
            check_patterns(request.artifacts)
            run.plan = plan = await self._plan(request, run.workspace)
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
                watch, controls = Watch(run.workspace, plan.box.limits), self._controls.look(run.workspace)
                with watch.telling(lambda: run.stop.request("workspace_quota")):
                    streamed = await stream(
                        sandbox,
                        plan,
                        stdin=run.stdin,
                        listeners=run.listeners,
                        stop=run.stop,
                        begun=run.begin,
                    )
                ending = await watch.judge(streamed.ending)
            async with run.step("collect"):
                found, problems = await self._collect(run)
                changes = self._controls.changes(run.workspace, controls)
            kept = not ending.growth and self._keep(run, plan, sandbox, streamed, watch)
        finally:
            if run.sandbox and not kept:
                self._background.add(run.sandbox.dispose())
        return Outcome(
            run_id=run.id,
            status=_status(ending),
            ending=ending,
            stdout_capture=streamed.stdout,
            stderr_capture=streamed.stderr,
            duration_ms=round(streamed.seconds * 1000),
            container=sandbox.container,
            artifacts=found,
            artifact_problems=problems,
            control_changes=changes,
            lease=run.id if streamed.leased and kept else None,
            notes=tuple(_notes(plan, lease_refused=_is_refused(streamed, ending, run.stop, kept=kept))),
        )

    async def _collect(self, run: Run) -> Collected:
        """Hash what was asked for, while it is wanted and within its time: files of nothing cost a command nothing."""
        patterns, seconds = run.request.artifacts, self._settings.artifact_seconds
        if not patterns:
            return (), ()
        collecting = asyncio.ensure_future(
            asyncio.wait_for(collect(run.workspace, patterns, max_file_bytes=self._settings.artifact_bytes), seconds)
        )
        try:
            if await _is_first(collecting, run.stop):
                return collecting.result()
            why = "the run was ended before it was hashed"
        except TimeoutError:
            why = f"hashing took longer than the {seconds:g} s it has"
        finally:
            collecting.cancel()
        return (), tuple(ArtifactProblem(path=pattern, problem="too_many", detail=why) for pattern in patterns)

    async def _plan(self, request: Request, workspace: Workspace) -> Plan:
        image = await self._engine.image(request.image)
        self._placeholders.make(workspace, request.protect)
        make = functools.partial(make_plan, request, workspace, image, self._assets, grace=self._settings.grace)
        # Only there is the workspace searched, which takes its time.
        return make() if request.seccomp == "default" else await asyncio.to_thread(make)

    async def _decide(self, run: Run, plan: Plan, verdict: Verdict) -> Approval | None:
        """Have it approved, or None when the run is to be stopped before anybody has answered."""
        question = Question(
            run_id=run.id,
            session=run.session,
            plan=plan,
            verdict=verdict,
            remember=run.request.remember,
            forever=run.request.forever,
        )
        decision = decide(
            self._approver, question, self._grants, seconds=self._settings.approval_seconds, asking=run.asking
        )
        if verdict.decision is Decision.ALLOW:
            return await decision  # nobody is asked
        deciding = asyncio.ensure_future(decision)
        try:
            return deciding.result() if await _is_first(deciding, run.stop) else None
        finally:
            deciding.cancel()

    async def _open(self, run: Run, plan: Plan) -> Sandbox | None:
        """Open a sandbox, or None when the run is to be stopped before there is one."""
        if not run.stop.is_requested and plan.exec.reuse != "scrub" and (ready := self._pool.take(plan.box)):
            return ready
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

    def _keep(self, run: Run, plan: Plan, sandbox: Sandbox, streamed: Streamed, watch: Watch) -> bool:
        """Whether the sandbox lives on: under a lease, or for the session's next command."""
        if run.stop.is_requested:
            return False  # whoever ends a run, or its session, wants nothing of it to live on
        if streamed.leased and len(self.leases(run.session)) < self._settings.leases:
            pids = streamed.ending.background_pids
            lease = Lease(sandbox, plan, watch, run_id=run.id, session=run.session, pids=pids)
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


async def _is_first(work: asyncio.Future[Any], stop: Stop) -> bool:
    """Wait for work or for the wish to stop; whether the work is done."""
    await asyncio.wait({work, stop.wish}, return_when=asyncio.FIRST_COMPLETED)
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


def _is_refused(streamed: Streamed, ending: Ending, stop: Stop, *, kept: bool) -> bool:
    """Whether what would have stayed under a lease had to go for want of one."""
    return streamed.leased and not kept and not ending.growth and not stop.is_requested


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
