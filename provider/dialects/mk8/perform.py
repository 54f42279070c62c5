"""
What a permitted call does: a script, a dangerous shell or a transcription in a sandbox, or a handler of the host
program. Nobody is asked here any more; the operator's own rules still hold.
"""

from __future__ import annotations

import codecs
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from provider.dialects.contract import Asked, Context, Host, Rejected, Teller, emit_nothing
from provider.dialects.mk8 import dangerous, transcription
from provider.dialects.mk8.actions import Actions
from provider.dialects.mk8.call import Call, Result, failed
from provider.dialects.mk8.compile import compile_script
from provider.dialects.mk8.configuration import Sandbox, ScriptLimits, load_base, load_sandbox
from provider.dialects.mk8.errors import ContainerError
from provider.dialects.mk8.kinds import Kind
from provider.dialects.mk8.registry import Registry
from provider.dialects.mk8.resources import Container, Mismatch, sandbox_of
from provider.dialects.mk8.result import EventReader, ScriptResult, job_texts
from provider.dialects.mk8.script import parse_script
from provider.dialects.mk8.status import Status
from provider.dialects.mk8.table import Table, containers
from provider.errors import ConfigError
from provider.inside.mk8.compiled import Compiled
from provider.inside.mk8.errors import Mk8Error, TimedOut
from provider.inside.mk8.execute import CLEANUP_SECONDS
from provider.model import Outcome, Stream
from provider.plan import inside_program

PROGRAM: Final = inside_program("mk8.main")
SCRIPT, TRANSCRIPTION = "mk8.shell", "mk8.transcribe"
"""What the operator's rules read in place of our own programs: nothing of the agent's is shell text there."""
NOTHING_RUNS = (Mk8Error, Mismatch, ConfigError, Rejected)
"""What is raised for a call that cannot be run as it stands; its text goes to the model."""
_LAST_SECONDS: Final = CLEANUP_SECONDS + 5.0
"""What a script has, after its own time, for its cleanup and for telling what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caller:
    session: str
    tell: Teller


_caller: ContextVar[_Caller | None] = ContextVar("mk8_caller", default=None)


@contextlib.contextmanager
def called_from(context: Context) -> Iterator[Teller]:
    """Whose call it is, and who hears of it; it goes with the job past foreman and store, which need not know of it."""
    tell = Teller(context.emit)
    mark = _caller.set(_Caller(session=context.session, tell=tell))
    try:
        yield tell
    finally:
        _caller.reset(mark)


def _the_caller() -> _Caller:
    """Nobody in particular, for a job that is approved from elsewhere."""
    return _caller.get() or _Caller(session="", tell=Teller(emit_nothing))


@dataclass(frozen=True, slots=True)
class Performer:
    host: Host
    table: Table
    registry: Registry
    actions: Actions = field(default_factory=Actions)

    async def __call__(self, call: Call) -> Result:
        try:
            asked = self.asked(call)
        except NOTHING_RUNS as error:
            return failed(call, str(error))
        if asked is None:
            return await self.actions.perform(call)
        if isinstance(asked.call, Compiled):
            return await self._execute(call, asked, asked.call)
        outcome = await self._run(asked, **{f"on_{name}": _output(call.id, name) for name in ("stdout", "stderr")})
        if call.kind is Kind.TRANSCRIPTION:
            return transcription.answer(call.id, outcome)
        assert call.shell is not None
        return dangerous.answer(call.id, call.shell, outcome)

    def containers(self) -> tuple[Container, ...]:
        return containers(tuple(found.id for found in self.registry.list()))

    def asked(self, call: Call) -> Asked | None:
        """What is to be run, or None for what a handler does. Raises one of `NOTHING_RUNS`."""
        match call.kind:
            case Kind.SAFE_SHELL:
                return self._script(call)
            case Kind.DANGEROUS_SHELL:
                return self._dangerous(call)
            case Kind.TRANSCRIPTION if not self.actions.has(call.action):
                return self._transcription(call)
            case _:
                return None

    def flaw(self, call: Call) -> str | None:
        """Why a call cannot be run as it stands, if it cannot."""
        try:
            self.asked(call)
        except NOTHING_RUNS as error:
            return str(error)
        return None

    def compiled(self, call: Call) -> tuple[Sandbox, Compiled]:
        """Raises Mk8Error, Mismatch, ConfigError: nothing of it may run."""
        sandbox = load_sandbox(
            self.registry,
            sandbox_of(call, self.containers()),
            load_base(self.registry.folder),
            network=self.table.network,
            limits=ScriptLimits(script_seconds=self.table.script_seconds),
        )
        return sandbox, compile_script(parse_script(call.script), sandbox)

    def _script(self, call: Call) -> Asked:
        sandbox, compiled = self.compiled(call)
        wishes = {
            "stdin": json.dumps(compiled.to_json(), ensure_ascii=False).encode("utf-8", "surrogatepass"),
            "workspace": sandbox.root_on_host,
            "timeout": compiled.script_timeout + _LAST_SECONDS,
            "network": sandbox.network,
            "script": SCRIPT,
        }
        return Asked(argv=PROGRAM, wishes=wishes, call=compiled)

    def _dangerous(self, call: Call) -> Asked:
        user = self.table.system_user(call.resource)
        if user is None:
            message = f"resource {call.resource} is no SystemUser; an administrator lists them as system_users"
            raise Rejected(message)
        assert call.shell is not None
        assert call.command is not None
        run = dangerous.run_for(call.shell, call.command, user)
        wishes = {
            "workspace": call.workspace,
            "cwd": run.cwd or ".",
            "env": run.env,
            "user": run.user,
            "timeout": min(run.timeout, self.table.dangerous_seconds),
            "network": self.table.network,
        }
        return Asked(argv=run.argv, wishes=wishes)

    def _transcription(self, call: Call) -> Asked:
        device, model = self.table.device(call.resource), self.table.model(call.model)
        if device is None:
            message = f"resource {call.resource} is no audio; an administrator lists files under `audio`"
            raise Rejected(message)
        if model is None:
            message = f"there is no transcription model {call.model}; leave it out for English"
            raise Rejected(message)
        argv = transcription.argv_for(device.file, model, call.language)
        wishes = {
            "workspace": call.workspace,
            "image": self.table.speech_image,
            "timeout": transcription.TIMEOUT,
            "read_only": True,
            "network": "none",
            "script": TRANSCRIPTION,
        }
        return Asked(argv=argv, wishes=wishes)

    async def _execute(self, call: Call, asked: Asked, compiled: Compiled) -> Result:
        """Run a script in a sandbox of its own; each step is told as it happens."""
        reader, tell = EventReader(compiled), _the_caller().tell

        async def hear(data: bytes) -> None:
            for event in reader.feed(data):
                await tell({"type": "mk8_step", "callId": call.id, **event})

        outcome = await self._run(asked, on_stdout=hear)
        result = reader.conclude(_lost(outcome), stands=not outcome.over_quota)
        texts = job_texts(result)
        await tell({"type": "mk8_result", "callId": call.id, **result.to_json()})
        return Result(id=call.id, status=_status(result), result=texts.result, error=texts.error)

    async def _run(self, asked: Asked, **listeners: Callable[[bytes], Awaitable[None]]) -> Outcome:
        caller = _the_caller()
        outcome = await self.host.run(asked.argv, session=caller.session, **asked.wishes, **listeners)
        caller.tell.errors.extend(error for error in outcome.callback_errors if isinstance(error, Exception))
        return outcome


def _output(call_id: str, stream: Stream) -> Callable[[bytes], Awaitable[None]]:
    """Tells what a command writes, as text."""
    decode, tell = codecs.getincrementaldecoder("utf-8")("replace").decode, _the_caller().tell

    async def hear(data: bytes) -> None:
        if text := decode(data):
            event: Mapping[str, Any] = {"type": "mk8_output", "callId": call_id, "stream": stream, "text": text}
            await tell(event)

    return hear


def _status(result: ScriptResult) -> Status:
    return Status.COMPLETED if result.allSucceeded else Status.FAILED


def _lost(outcome: Outcome) -> Mk8Error | None:
    """What is known of a sandbox that did not come to its end."""
    if outcome.timed_out:
        return TimedOut("the script was ended: its time was over")
    if outcome.error:
        return ContainerError(f"{outcome.error}; mk8.shell needs python3 in the image")
    if outcome.over_quota:
        return ContainerError(outcome.over_quota)
    if outcome.oom_killed:
        return ContainerError("the sandbox was ended for want of memory")
    return None
