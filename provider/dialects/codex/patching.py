"""
One patch: verified without side effects, approved, applied, told. All of it happens in a sandbox, by
`provider/inside/apply_patch`, so that links and races in the workspace lead nowhere; what comes back from there is
untrusted.

The patch goes in on stdin, for it may be longer than an argument can be; its digest is an argument, so that the plan
which somebody approves is a plan for this patch and no other.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from provider.dialects.codex import events
from provider.dialects.codex.command import refusal
from provider.dialects.codex.diff import File, unified
from provider.dialects.codex.patch import FAILED, Patch, objection
from provider.dialects.codex.profile import Profile, usual, wider
from provider.dialects.codex.requirement import (
    PATCH_OUTSIDE,
    RETRY,
    AskForApproval,
    Forbidden,
    NeedsApproval,
    Requirement,
    Setting,
    Skip,
    patch_key,
    patch_requirement,
)
from provider.dialects.codex.table import Table
from provider.dialects.codex.truncation import Ran, structured
from provider.dialects.codex.turn import Turn
from provider.dialects.contract import Context, Host, Rejected, Reply, Teller
from provider.errors import ProviderError
from provider.events import ApprovalRequested, Event, StateChanged
from provider.model import Decision, Outcome, State, Verdict
from provider.plan import WORKSPACE, inside_program

REJECTED: Final = "patch rejected by user"
READ_ONLY: Final = "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings"
PROGRAM: Final = inside_program("apply_patch")
_MAX_REPORT: Final = 64 * 2**20


class Changed(BaseModel):
    """One file, as the sandbox tells it."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    path: str
    kind: Literal["add", "delete", "update"]
    move_to: str | None = None
    before: str | None = None
    after: str | None = None
    over: str | None = None
    """What a move replaces."""
    mode_before: int | None = None
    mode_after: int | None = None
    mode_over: int | None = None

    def files(self) -> Iterator[tuple[str, File | None, File | None]]:
        """Each path with what it held before and what it holds after."""
        before, after = _file(self.before, self.mode_before), _file(self.after, self.mode_after)
        if self.move_to is None:
            yield self.path, before, after
        else:
            yield self.path, before, None
            yield self.move_to, _file(self.over, self.mode_over), after

    def shown(self) -> dict[str, Any]:
        """As the events have it."""
        if self.kind == "add":
            return {"type": "add", "content": _decoded(self.after)}
        if self.kind == "delete":
            return {"type": "delete", "content": _decoded(self.before)}
        moved = None if self.move_to is None else posixpath.join(WORKSPACE, self.move_to)
        difference = unified(_decoded(self.before), _decoded(self.after))
        return {"type": "update", "unified_diff": difference, "move_path": moved}


class Recovered(BaseModel):
    """What an earlier patch that was killed has left."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    found: str = "nothing"
    """When it is `waiting`, it has to be undone before anything else can be done."""


class Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    ok: bool
    recovered: Recovered = Recovered()
    stdout: str = ""
    stderr: str = ""
    changes: tuple[Changed, ...] = Field(default=(), strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchAsked:
    """A patch as it would be applied, before anybody has decided."""

    patch: Patch
    cwd: str
    """Where its paths begin, in the sandbox, absolute."""
    timeout: float
    call_id: str = ""

    @property
    def directory(self) -> str:
        return posixpath.join(self.cwd, self.patch.directory)

    @property
    def objection(self) -> str | None:
        return objection(self.patch, WORKSPACE, self.cwd)


@dataclass(slots=True)
class PatchRun:
    """The path of one patch."""

    host: Host
    table: Table
    context: Context
    tell: Teller
    source: events.Source
    turn: Turn
    setting: Setting
    asked: PatchAsked
    somebody_was_asked: bool = False

    async def reply(self) -> Reply:
        try:
            planned = await self._verified()
            changes = {posixpath.join(WORKSPACE, change.path): change.shown() for change in planned.changes}
            outcome, report = await self._applied(changes)
        except Rejected as rejection:
            return Reply(content=rejection.text, success=False)
        except ProviderError as error:
            return Reply(content=refusal(error, rejected=REJECTED), success=False)
        ran = Ran(
            output=report.stdout if report.ok else report.stderr,
            exit_code=outcome.exit_code if outcome.exit_code is not None else 1,
            seconds=outcome.duration_ms / 1000,
            timed_out=outcome.timed_out,
        )
        await self.tell(
            events.patch_end(self.source, changes, stdout=report.stdout, stderr=report.stderr, success=report.ok)
        )
        for change in report.changes:
            self.turn.changed(change.files(), moved=(change.path, change.move_to) if change.move_to else None)
        if difference := self.turn.diff:
            await self.tell(events.turn_diff(difference))
        heard = not self.tell.errors and not outcome.callback_errors
        return Reply(content=structured(ran, self.table.budget), success=report.ok and ran.code == 0 and heard)

    async def _verified(self) -> Report:
        """What it would change. Raises Rejected."""
        if reason := self.asked.objection:
            raise Rejected(reason)
        reading = Profile(name="verification", read_only=True)
        report = _report(await self._run(Skip(), reading, "--check"))
        if report.recovered.found == "waiting":
            await self._recover()
            report = _report(await self._run(Skip(), reading, "--check"))
        if not report.ok:
            raise Rejected(FAILED + report.stderr.removesuffix("\n"))
        return report

    async def _applied(self, changes: dict[str, Any]) -> tuple[Outcome, Report]:
        needed, profile = decide(self.setting, self.table)
        if isinstance(needed, Forbidden):
            raise Rejected(needed.reason)

        async def hear(event: Event) -> None:
            if isinstance(event, ApprovalRequested):
                self.somebody_was_asked = True
                await self.tell(events.patch_approval_request(self.source, changes, _reason(needed)))
            if isinstance(event, StateChanged) and event.state is State.STARTING:
                await self.tell(events.patch_begin(self.source, changes, asked=self.somebody_was_asked))

        outcome = await self._run(needed, profile, on_event=hear)
        if outcome.ending.reason != "exited" or outcome.exit_code is None:
            await self._recover()  # it was ended in the middle; all or nothing holds once that is undone
        return outcome, _report(outcome)

    async def _recover(self) -> None:
        await self._run(Skip(), Profile(name="recovery"), "--recover")

    async def _run(self, needed: Requirement, profile: Profile, *flags: str, **options: Any) -> Outcome:
        asked = self.asked
        patch = asked.patch.text.encode("utf-8", "surrogateescape")
        arguments = [
            "--json",
            f"--sha256={hashlib.sha256(patch).hexdigest()}",
            f"--directory={asked.directory}",
            *flags,
        ]
        if self.table.compat:
            arguments.append("--compat")
        return await self.host.run(
            (*PROGRAM, *arguments),
            stdin=patch,
            workspace=self.context.workspace,
            session=self.context.session,
            timeout=asked.timeout,
            judged=self._verdict(needed, profile),
            remember=(patch_key(asked.patch.text, asked.directory),),
            script="apply_patch",
            **profile.wishes(self.host.limits),
            **options,
        )

    def _verdict(self, needed: Requirement, profile: Profile) -> Verdict:
        if isinstance(needed, Skip):
            return Verdict(decision=Decision.ALLOW)
        reasons = (_reason(needed), f"it would be applied in the container profile {profile}", self.asked.patch.text)
        return Verdict(decision=Decision.ASK, reasons=tuple(filter(None, reasons)))


def decide(setting: Setting, table: Table) -> tuple[Requirement, Profile]:
    """Who is asked about a patch that stays in the workspace, and where it would be applied."""
    profile = usual(table)
    needed = patch_requirement(setting, empty=False, inside=not profile.read_only)
    if not profile.read_only:
        return needed, profile
    # A workspace that can only be read cannot be patched: that it would be denied need not be tried.
    if setting.approval is AskForApproval.ON_FAILURE:
        return NeedsApproval(RETRY), wider(table)
    return (Forbidden(READ_ONLY) if needed == Forbidden(PATCH_OUTSIDE) else needed), wider(table)


def _reason(needed: Requirement) -> str:
    return "" if isinstance(needed, Skip) else needed.reason


def _report(outcome: Outcome) -> Report:
    """Raises Rejected where the program did not come to its end."""
    if outcome.timed_out:
        return Report(ok=False)
    if outcome.error:
        message = f"execution error: {outcome.error}; apply_patch needs python3 in the image"
        raise Rejected(message)
    if outcome.ending.reason == "canceled":
        message = "aborted by user"
        raise Rejected(message)
    if outcome.over_quota:
        message = f"execution error: {outcome.over_quota}"
        raise Rejected(message)
    try:
        return Report.model_validate_json(outcome.stdout_capture.read(_MAX_REPORT))
    except ValidationError as error:
        said = outcome.stderr_capture.read(2000).decode(errors="replace")
        message = f"execution error: apply_patch was ended before it could tell what it did: {said or outcome.status}"
        raise Rejected(message) from error


def _file(content: str | None, mode: int | None) -> File | None:
    return None if content is None else File(_bytes(content), mode or 0o644)


def _decoded(content: str | None) -> str:
    return _bytes(content or "").decode(errors="replace")


def _bytes(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        return b""
