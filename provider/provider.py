"""
Provider: what programs use. It turns wishes into requests, knows which runs are under way, and answers tool calls.

The path of a request is in `run.py`.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from provider.approval import Approver, refuse_all
from provider.calls import Calls, context
from provider.dialects.contract import Dialect, Reply
from provider.errors import CallError
from provider.events import Event
from provider.lease import Lease
from provider.listeners import Listeners
from provider.model import Engine, Limits, Network, Outcome, Request, Stdin, Tier, Verdict, Workspace
from provider.run import Runner
from provider.settings import Settings, load_settings
from provider.spawned import Conversation, Spawned
from provider.underway import Run
from provider.workspace import check_workspace


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
        protect: Sequence[str] = (),
        approver: Approver = refuse_all,
        settings: Settings | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._settings = settings or load_settings()
        self._folder = None if workspace is None else check_workspace(workspace).path
        self._runner = Runner(self._settings, approver, engine)
        self._defaults = Request(
            argv=(),
            image=image or self._settings.image,
            network=network or self._settings.network,
            seccomp=seccomp or self._settings.seccomp,
            runtime=self._settings.runtime if runtime is None else runtime,
            user=user or "",
            limits=limits or self._settings.limits.limits(),
            protect=_all_of(self._settings.protect, protect),
        )
        self._runs: dict[str, Run] = {}
        self._calls = Calls(self, self._settings.tools)
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
        try:
            await self._calls.close()
        finally:
            await self._runner.close()

    async def prewarm(self, count: int = 1, **box: Any) -> None:
        """
        Have `count` containers wait for requests of this kind; `box` is as for `run`.

        Raises:
            CallError, SandboxError: there can be no such container.
        """
        workspace, request = self._request(("true",), box)
        await self._runner.prewarm(request, workspace, count)

    async def settle(self) -> None:
        """Wait until every container that has served is gone. An outcome does not wait for that."""
        await self._runner.settle()

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
        return self._runner.leases(session)

    def lease(self, name: str) -> Lease | None:
        """Find the lease that an outcome names, also one that is over but could still last."""
        return self._runner.lease(name)

    async def stop(self, *, session: str) -> int:
        """End a session: its runs, leases and grants, and no other's. Tells how many runs and leases there were."""
        leases, runs = self.leases(session), self.runs(session)
        for run in runs:
            run.end()
        self._runner.drop(session)
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
        `lease` seconds, see `leases`. `box` takes workspace, read_only, image, network, seccomp, runtime, user and
        limits, each in place of the provider's own, `protect`, names beside the provider's own, and `reuse="scrub"`,
        by which the container may serve the session again.

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
        return self._runner.judge(replace(self._defaults, argv=words, judged=judged, script=script))

    def dialect(self, tool: str) -> Dialect:
        """Give the contract of a tool, the same each time, for it may remember things. Raises as `call` does."""
        return self._calls.dialect(tool)

    @property
    def limits(self) -> Limits:
        """What a sandbox may use unless a call says otherwise."""
        return self._defaults.limits

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
        if name in self._runs or self.lease(name):
            message = f"run id {name!r} is taken by a run that is under way"
            raise CallError(message)
        if not self._tidied:
            self._tidied = True
            self._runner.tidy()
        run = Run(id=name, request=request, workspace=workspace, stdin=stdin, listeners=listeners, receipt=receipt)
        self._runs[name] = run
        return run

    async def _complete(self, run: Run) -> Outcome:
        try:
            return await self._runner.run(run)
        finally:
            del self._runs[run.id]
            run.listeners.close()
            run.ended.set()

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
            protect=_all_of(self._defaults.protect, wanted.pop("protect", ())),
            **{"user": user, **wanted},
        )


def _all_of(names: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return (*names, *((more,) if isinstance(more, str) else more))


def run_sync(argv: Sequence[str] | str, workspace: str | Path = ".", **options: Any) -> Outcome:
    """`Provider.run` for programs without an event loop; `options` are those of Provider and of `run`."""
    own = {name: options.pop(name) for name in ("approver", "engine") if name in options}
    settings = (options.pop("settings", None) or load_settings()).model_copy(update={"spares": 0})  # nobody comes after

    async def run_once() -> Outcome:
        async with Provider(workspace, settings=settings, **own) as provider:
            return await provider.run(argv, **options)

    return asyncio.run(run_once())
